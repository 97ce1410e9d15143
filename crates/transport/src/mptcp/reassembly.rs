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
    /// Stream and number of the message that ended last before `next`.
    last: Option<(u8, u32)>,
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
    #[inline]
    pub fn insert(&mut self, now: Instant, arrived: &Arrived, deliver: &mut impl FnMut(Delivered)) {
        if arrived.chunk.dsn == self.next && self.beyond.is_empty() {
            self.accept(now, arrived.at, arrived.path, &arrived.chunk, deliver);
        } else {
            self.insert_apart(now, arrived, deliver);
        }
    }

    /// Inserts a chunk that is not the next one, or is followed by others.
    fn insert_apart(
        &mut self,
        now: Instant,
        arrived: &Arrived,
        deliver: &mut impl FnMut(Delivered),
    ) {
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
        self.accept(now, arrived.at, arrived.path, &self.without_known(chunk), deliver);
        while let Some(first) = self.beyond.front().copied() {
            if first.chunk.dsn > self.next {
                break;
            }
            self.beyond.pop_front();
            self.held -= u64::from(first.chunk.len);
            if first.chunk.end() > self.next {
                let chunk = self.without_known(&first.chunk);
                self.accept(now, first.at, first.path, &chunk, deliver);
            }
        }
        if self.beyond.is_empty()
            && let Some(since) = self.holding_since.take()
        {
            self.holding += now.since(since);
        }
    }

    /// Accepts the next chunk, which arrived at `at` on `path`: delivers the messages that end in it, or relays it.
    #[inline(always)]
    fn accept(
        &mut self,
        now: Instant,
        at: Instant,
        path: PathId,
        chunk: &Chunk,
        deliver: &mut impl FnMut(Delivered),
    ) {
        self.next = chunk.end();
        if let Some(more) = chunk.messages.checked_sub(1) {
            self.last = Some((chunk.stream, chunk.first_message.wrapping_add(more.into())));
        }
        if let Some(relayed) = &mut self.relayed {
            self.held += u64::from(chunk.len);
            relayed.push_back(*chunk);
            return;
        }
        let mut whole_at = self.whole_at.take().map_or(at, |before| before.max(at));
        for offset in 0..u32::from(chunk.messages) {
            deliver(Delivered {
                stream: chunk.stream,
                id: chunk.first_message.wrapping_add(offset),
                held: now.since(whole_at),
                path,
            });
            whole_at = at;
        }
        if chunk.tail {
            self.whole_at = Some(whole_at);
        }
    }

    /// Returns the chunk without the bytes before `next`, and without the messages that ended there. All bytes of a
    /// chunk belong to messages of one stream with consecutive numbers, so those up to the last one are known.
    fn without_known(&self, chunk: &Chunk) -> Chunk {
        let known = self.next.saturating_sub(chunk.dsn);
        if known == 0 {
            return *chunk;
        }
        let mut rest = Chunk { dsn: chunk.dsn + known, len: chunk.len - known as u32, ..*chunk };
        if let Some((stream, last)) = self.last
            && stream == chunk.stream
        {
            let ended = last.wrapping_sub(chunk.first_message).wrapping_add(1);
            // Half of the numbers are before the chunk's first.
            let ended = if ended < 1 << 31 { ended.min(chunk.messages.into()) } else { 0 };
            rest.first_message = chunk.first_message.wrapping_add(ended);
            rest.messages -= ended as u16;
        }
        rest
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

    // Source: RFC 8684 §3.3.1: of data received twice, only the bytes beyond the first copy count.
    #[test]
    fn messages_of_an_overlapping_chunk_are_delivered_once() {
        let mut stream = Reassembly::default();
        let pair = |number, messages| Chunk { len: 200, messages, ..chunk(number) };
        assert_eq!(insert(&mut stream, 0, pair(0, 2), 0), [(0, 0, 0), (1, 0, 0)]);
        // Bytes 100 to 299 are those of messages 1 and 2; message 1 has been delivered.
        assert_eq!(insert(&mut stream, 1, pair(1, 2), 0), [(2, 0, 0)]);
        // The same beyond a hole: bytes 400 to 599, then 500 to 699.
        assert_eq!(insert(&mut stream, 2, pair(4, 2), 0), []);
        assert_eq!(insert(&mut stream, 2, pair(5, 2), 0), []);
        let ids: Vec<_> = insert(&mut stream, 2, chunk(3), 0).iter().map(|one| one.0).collect();
        assert_eq!((ids, stream.next(), stream.held()), ((3..7).collect(), 700, 0));
    }

    #[test]
    fn an_overlapping_chunk_is_relayed_without_known_bytes() {
        let mut stream = Reassembly::default();
        stream.relay();
        let pair = |number| Chunk { len: 200, messages: 2, ..chunk(number) };
        insert(&mut stream, 0, pair(0), 0);
        insert(&mut stream, 1, pair(1), 0);
        let relayed: Vec<_> = core::iter::from_fn(|| stream.take_chunk())
            .map(|chunk| (chunk.dsn, chunk.len, chunk.first_message, chunk.messages))
            .collect();
        assert_eq!(relayed, [(0, 200, 0, 2), (200, 100, 2, 1)]);
        assert_eq!(stream.held(), 0);
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
