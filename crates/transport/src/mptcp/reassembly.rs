//! Putting the chunks of several subflows back in the order of their data sequence numbers.
//!
//! Source: RFC 8684 §3.3.1: the first arrival of a range counts, later ones are dropped.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use crate::tcp::scoreboard::Chunk;
use crate::{Delivered, PathId};

/// A chunk, the path that brought it, and when it arrived there.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The chunk.
    pub chunk: Chunk,
    /// The path.
    pub path: PathId,
    /// When it arrived, in its subflow's order or not.
    pub at: Instant,
}

/// The receiving half of a connection.
#[derive(Debug, Default)]
pub struct Reassembly {
    next: u64,
    /// Chunks beyond a hole, ascending.
    beyond: VecDeque<Arrived>,
    held: u64,
    /// When the last byte arrived of the message that is being put together.
    whole_at: Option<Instant>,
    /// Since when something has been held, and for how long in all before.
    holding_since: Option<Instant>,
    holding: Duration,
    /// Chunks in order that a proxy has not taken yet, in place of messages.
    relayed: Option<VecDeque<Chunk>>,
}

impl Reassembly {
    /// From now on hands over chunks instead of messages.
    pub fn relay(&mut self) {
        self.relayed.get_or_insert_default();
    }

    /// The next chunk in order.
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        let chunk = self.relayed.as_mut()?.pop_front()?;
        self.held -= u64::from(chunk.len);
        Some(chunk)
    }

    /// Next data sequence number expected (the data ACK).
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The peer has closed its side, which takes one data sequence number (RFC 8684 §3.3.3).
    pub const fn take_fin(&mut self) {
        self.next += 1;
    }

    /// Bytes held: beyond a hole, and in chunks that have not been taken.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// How long in all something has been held beyond a hole.
    pub fn holding(&self, now: Instant) -> Duration {
        self.holding + self.holding_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Takes a chunk; messages that are complete and in order go to `deliver`.
    pub fn insert(&mut self, now: Instant, it: Arrived, deliver: &mut impl FnMut(Delivered)) {
        if it.chunk.end() <= self.next {
            return;
        }
        if it.chunk.dsn > self.next {
            let place = self.beyond.partition_point(|held| held.chunk.dsn < it.chunk.dsn);
            let known = self.beyond.get(place).is_some_and(|held| held.chunk.dsn == it.chunk.dsn);
            if !known {
                self.holding_since.get_or_insert(now);
                self.held += u64::from(it.chunk.len);
                self.beyond.insert(place, it);
            }
            return;
        }
        self.hand_over(now, &it, deliver);
        while let Some(it) = self.beyond.front().copied() {
            if it.chunk.dsn > self.next {
                break;
            }
            self.beyond.pop_front();
            self.held -= u64::from(it.chunk.len);
            if it.chunk.end() > self.next {
                self.hand_over(now, &it, deliver);
            }
        }
        if self.beyond.is_empty()
            && let Some(since) = self.holding_since.take()
        {
            self.holding += now.since(since);
        }
    }

    fn hand_over(&mut self, now: Instant, it: &Arrived, deliver: &mut impl FnMut(Delivered)) {
        let chunk = &it.chunk;
        let dsn = core::mem::replace(&mut self.next, chunk.end());
        if let Some(relayed) = &mut self.relayed {
            let len = (chunk.end() - dsn) as u32;
            self.held += u64::from(len);
            relayed.push_back(Chunk { dsn, len, ..*chunk });
            return;
        }
        let mut whole_at = self.whole_at.take().map_or(it.at, |before| before.max(it.at));
        for offset in 0..u32::from(chunk.messages) {
            deliver(Delivered {
                stream: chunk.stream,
                id: chunk.first_message.wrapping_add(offset),
                held: now.since(whole_at),
                path: it.path,
            });
            whole_at = it.at;
        }
        if chunk.tail {
            self.whole_at = Some(whole_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSet;
    use alloc::vec::Vec;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn chunk(number: u32) -> Chunk {
        Chunk {
            dsn: u64::from(number) * 100,
            len: 100,
            first_message: number,
            messages: 1,
            stream: 0,
            tail: false,
            carried_by: PathSet::EMPTY,
        }
    }

    fn insert(stream: &mut Reassembly, ms: i64, chunk: Chunk, path: u8) -> Vec<(u32, u8, i64)> {
        let mut out = Vec::new();
        let it = Arrived { chunk, path: PathId(path), at: at(ms) };
        stream.insert(at(ms), it, &mut |message| {
            out.push((message.id, message.path.0, message.held.as_nanos() / 1_000_000));
        });
        out
    }

    #[test]
    fn the_first_copy_counts_and_the_second_is_dropped() {
        let mut stream = Reassembly::default();
        assert_eq!(insert(&mut stream, 0, chunk(0), 0), [(0, 0, 0)]);
        assert_eq!(insert(&mut stream, 1, chunk(0), 1), []);
        assert_eq!(insert(&mut stream, 2, chunk(2), 1), []);
        assert_eq!(insert(&mut stream, 3, chunk(2), 0), []);
        assert_eq!(stream.held(), 100);
        assert_eq!(insert(&mut stream, 4, chunk(1), 0), [(1, 0, 0), (2, 1, 2)]);
        assert_eq!((stream.next(), stream.held()), (300, 0));
    }

    #[test]
    fn a_message_is_held_from_the_arrival_of_its_last_byte_until_its_turn() {
        let mut stream = Reassembly::default();
        let part = |number, messages, tail| Chunk { messages, tail, ..chunk(number) };
        // Message 1 fills chunks 1 and 2; chunk 0, which holds message 0, comes last.
        assert_eq!(insert(&mut stream, 10, Chunk { first_message: 1, ..part(1, 0, true) }, 0), []);
        assert_eq!(insert(&mut stream, 25, Chunk { first_message: 1, ..part(2, 1, false) }, 0), []);
        assert_eq!(insert(&mut stream, 40, chunk(0), 1), [(0, 1, 0), (1, 0, 15)]);
        assert_eq!(stream.holding(at(50)), Duration::from_millis(30));
    }
}
