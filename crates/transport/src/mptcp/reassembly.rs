//! Reassembly of the stream from the chunks of several subflows.
//!
//! Source: RFC 8684 §3.3.1: the first copy of a range counts, later ones are dropped.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use crate::tcp::scoreboard::Chunk;
use crate::{Delivered, PathId};

/// A chunk with its path and time of arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The chunk.
    pub chunk: Chunk,
    /// Path of the chunk.
    pub path: PathId,
    /// Time of arrival, in the subflow's order or not.
    pub at: Instant,
}

/// Receive side of a connection.
#[derive(Debug, Default)]
pub struct Reassembly {
    next: u64,
    /// Chunks beyond a hole, in ascending order.
    beyond: VecDeque<Arrived>,
    held: u64,
    /// Arrival time of the last byte of the incomplete message.
    whole_at: Option<Instant>,
    /// Start of the current head-of-line blocking, and the total time of all before.
    holding_since: Option<Instant>,
    holding: Duration,
    /// Chunks in order that a proxy has not taken yet; `None` if messages are delivered.
    relayed: Option<VecDeque<Chunk>>,
}

impl Reassembly {
    /// Switches from delivering messages to relaying chunks.
    pub fn relay(&mut self) {
        self.relayed.get_or_insert_default();
    }

    /// Takes the next chunk in order.
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        let chunk = self.relayed.as_mut()?.pop_front()?;
        self.held -= u64::from(chunk.len);
        Some(chunk)
    }

    /// Next data sequence number expected (the data ACK).
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Consumes the data sequence number of the peer's DATA_FIN (RFC 8684 §3.3.3).
    pub const fn take_fin(&mut self) {
        self.next += 1;
    }

    /// Bytes held: beyond a hole, and in chunks that have not been taken.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Total time of head-of-line blocking up to `now`.
    pub fn holding(&self, now: Instant) -> Duration {
        self.holding + self.holding_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Inserts a chunk. Messages that are complete and in order go to `deliver`.
    pub fn insert(&mut self, now: Instant, arrived: &Arrived, deliver: &mut impl FnMut(Delivered)) {
        let chunk = &arrived.chunk;
        if chunk.end() <= self.next {
            return;
        }
        if chunk.dsn > self.next {
            let place = self.beyond.partition_point(|held| held.chunk.dsn < chunk.dsn);
            let known = self.beyond.get(place).is_some_and(|held| held.chunk.dsn == chunk.dsn);
            if !known {
                self.holding_since.get_or_insert(now);
                self.held += u64::from(chunk.len);
                self.beyond.insert(place, *arrived);
            }
            return;
        }
        self.accept(now, arrived, deliver);
        while let Some(first) = self.beyond.front().copied() {
            if first.chunk.dsn > self.next {
                break;
            }
            self.beyond.pop_front();
            self.held -= u64::from(first.chunk.len);
            if first.chunk.end() > self.next {
                self.accept(now, &first, deliver);
            }
        }
        if self.beyond.is_empty()
            && let Some(since) = self.holding_since.take()
        {
            self.holding += now.since(since);
        }
    }

    /// Accepts a chunk in order: delivers the messages that end in it, or relays it.
    fn accept(&mut self, now: Instant, arrived: &Arrived, deliver: &mut impl FnMut(Delivered)) {
        let chunk = &arrived.chunk;
        let dsn = core::mem::replace(&mut self.next, chunk.end());
        if let Some(relayed) = &mut self.relayed {
            let len = (chunk.end() - dsn) as u32;
            self.held += u64::from(len);
            relayed.push_back(Chunk { dsn, len, ..*chunk });
            return;
        }
        let mut whole_at = self.whole_at.take().map_or(arrived.at, |before| before.max(arrived.at));
        for offset in 0..u32::from(chunk.messages) {
            deliver(Delivered {
                stream: chunk.stream,
                id: chunk.first_message.wrapping_add(offset),
                held: now.since(whole_at),
                path: arrived.path,
            });
            whole_at = arrived.at;
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
        let arrived = Arrived { chunk, path: PathId(path), at: at(ms) };
        stream.insert(at(ms), &arrived, &mut |message| {
            out.push((message.id, message.path.0, message.held.as_nanos() / 1_000_000));
        });
        out
    }

    #[test]
    fn the_first_copy_is_delivered_and_the_second_dropped() {
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
    fn a_message_is_held_from_its_last_byte_until_its_turn() {
        let mut stream = Reassembly::default();
        let part = |number, messages, tail| Chunk { messages, tail, ..chunk(number) };
        // Message 1 fills chunks 1 and 2; chunk 0, with message 0, arrives last.
        assert_eq!(insert(&mut stream, 10, Chunk { first_message: 1, ..part(1, 0, true) }, 0), []);
        assert_eq!(insert(&mut stream, 25, Chunk { first_message: 1, ..part(2, 1, false) }, 0), []);
        assert_eq!(insert(&mut stream, 40, chunk(0), 1), [(0, 1, 0), (1, 0, 15)]);
        assert_eq!(stream.holding(at(50)), Duration::from_millis(30));
    }
}
