//! Send side of a connection: messages in, chunks of the stream out.
//!
//! Source: RFC 8684 §3.3 (data sequence numbers), §3.3.6 (reinjection).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Instant};

use crate::scheduler::Unit;
use crate::tcp::scoreboard::Chunk;
use crate::{Class, Message, PathSet};

/// End of a message whose last byte has not arrived at this proxy yet.
const OPEN: u64 = u64::MAX;

/// A written message that is not yet fully assigned to chunks.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// Data sequence number after the last byte.
    end: u64,
    stream: u8,
    id: u32,
    class: Class,
    deadline: Option<Instant>,
}

/// Next chunk to assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A chunk of new data, or one to reinject.
    Chunk {
        /// The chunk.
        chunk: Chunk,
        /// True if it was sent before.
        again: bool,
    },
    /// The peer's receive window does not admit the next chunk, in which this message ends first.
    Blocked(u32),
    /// There is nothing to send.
    Nothing,
}

/// Send side of a connection.
#[derive(Debug)]
pub struct SendSide {
    /// Maximum payload of a segment in bytes.
    segment: u32,
    /// Messages whose end is not yet part of a chunk.
    written: VecDeque<Written>,
    write_end: u64,
    next_dsn: u64,
    data_una: u64,
    /// First data sequence number beyond the peer's receive window.
    limit: u64,
    /// There since the first reinjection.
    reinjected: Option<Box<Reinjected>>,
}

/// Chunks that are sent again, by another subflow.
#[derive(Debug, Default)]
struct Reinjected {
    waiting: VecDeque<Chunk>,
    /// Number of chunks so far.
    count: u64,
}

impl SendSide {
    /// Creates the send side of a connection whose segments carry at most `segment` bytes.
    pub const fn new(segment: u32) -> Self {
        Self {
            segment,
            written: VecDeque::new(),
            write_end: 0,
            next_dsn: 0,
            data_una: 0,
            limit: 0,
            reinjected: None,
        }
    }

    /// Maximum payload of a segment in bytes.
    #[inline]
    pub const fn segment(&self) -> u32 {
        self.segment
    }

    /// Data sequence number after the last byte written.
    #[inline]
    pub const fn write_end(&self) -> u64 {
        self.write_end
    }

    /// Oldest data sequence number that the peer has not acknowledged.
    #[inline]
    pub const fn data_una(&self) -> u64 {
        self.data_una
    }

    /// Bytes written but not yet acknowledged.
    #[inline]
    pub const fn unacknowledged(&self) -> Bytes {
        Bytes::new(self.write_end.saturating_sub(self.data_una))
    }

    /// True if written bytes were not yet assigned.
    #[inline]
    pub const fn has_unsent(&self) -> bool {
        self.write_end != self.next_dsn
    }

    /// True if all written bytes were assigned and none waits for reinjection.
    #[inline]
    pub fn is_drained(&self) -> bool {
        let all_sent = self.next_dsn >= self.write_end;
        all_sent && self.reinjected.as_ref().is_none_or(|chunks| chunks.waiting.is_empty())
    }

    /// Number of chunks reinjected so far.
    pub fn reinjections(&self) -> u64 {
        self.reinjected.as_ref().map_or(0, |chunks| chunks.count)
    }

    /// Appends a message.
    pub fn write(&mut self, message: &Message) {
        self.write_end += u64::from(message.bytes.max(1));
        self.written.push_back(Written {
            end: self.write_end,
            stream: message.stream,
            id: message.id,
            class: message.class,
            deadline: message.deadline,
        });
    }

    /// Appends a chunk of another connection; see [`Connection::write_chunk`](super::Connection::write_chunk).
    pub fn write_chunk(&mut self, chunk: &Chunk) {
        let start = self.write_end;
        self.write_end += u64::from(chunk.len);
        if self.written.back().is_some_and(|message| message.end == OPEN) {
            self.written.pop_back();
        }
        let ended = (0..chunk.messages)
            .map(|offset| part_of(chunk, offset, chunk.message_end(offset, start)));
        self.written.extend(ended);
        if chunk.tail || chunk.messages == 0 {
            self.written.push_back(part_of(chunk, chunk.messages, OPEN));
        }
    }

    /// Processes a data acknowledgement. Returns whether it is new.
    #[inline]
    pub const fn on_data_ack(&mut self, data_ack: u64) -> bool {
        let new = data_ack > self.data_una && data_ack <= self.next_dsn + 1;
        if new {
            self.data_una = data_ack;
        }
        new
    }

    /// Processes the right edge of the peer's window. Returns whether the window has opened.
    #[inline]
    pub const fn on_window_end(&mut self, window_end: u64) -> bool {
        let opened = window_end > self.limit;
        if opened {
            self.limit = window_end;
        }
        opened
    }

    /// Returns the chunk to assign next.
    #[inline]
    pub fn next(&mut self) -> Next {
        if self.reinjected.is_some()
            && let Some(chunk) = self.next_again()
        {
            return Next::Chunk { chunk, again: true };
        }
        self.next_new()
    }

    /// Returns the next chunk to reinject. Those that the peer has acknowledged by now are dropped.
    #[cold]
    fn next_again(&mut self) -> Option<Chunk> {
        let waiting = &mut self.reinjected.as_mut()?.waiting;
        while waiting.front().is_some_and(|chunk| chunk.end() <= self.data_una) {
            waiting.pop_front();
        }
        waiting.front().copied()
    }

    /// Returns the next chunk of new data, if the peer's window admits it.
    #[inline]
    fn next_new(&self) -> Next {
        let Some(chunk) = self.cut() else { return Next::Nothing };
        // Only a proxy knows a message in part. Its bytes may wait for the following ones while data is
        // outstanding (Nagle's algorithm, RFC 9293 §3.7.4).
        if chunk.tail && chunk.len < self.segment && self.data_una < self.next_dsn {
            return Next::Nothing;
        }
        if chunk.end() > self.limit {
            return Next::Blocked(chunk.first_message);
        }
        Next::Chunk { chunk, again: false }
    }

    /// Cuts the next chunk of new data: messages of one stream with consecutive numbers, so that the receiver can
    /// identify them.
    fn cut(&self) -> Option<Chunk> {
        let unsent = self.write_end - self.next_dsn;
        if unsent == 0 {
            return None;
        }
        let first = self.written.front()?;
        let limit = self.next_dsn + unsent.min(u64::from(self.segment));
        let (end, messages, tail) = if first.end > limit {
            (limit, 0, true)
        } else if self.written.len() == 1 {
            (first.end, 1, false)
        } else {
            self.consecutive(first, limit)
        };
        Some(Chunk {
            dsn: self.next_dsn,
            len: (end - self.next_dsn) as u32,
            first_message: first.id,
            messages: messages as u16,
            stream: first.stream,
            tail,
            carried_by: PathSet::EMPTY,
        })
    }

    /// Returns the end of a chunk up to `limit` that begins with the message `first`, the number of messages that end
    /// in it, and whether bytes of another follow.
    fn consecutive(&self, first: &Written, limit: u64) -> (u64, u32, bool) {
        let (mut end, mut messages) = (limit, 0);
        for (offset, message) in (0..).zip(&self.written) {
            if message.stream != first.stream || message.id != first.id.wrapping_add(offset) {
                break;
            }
            if message.end > limit {
                return (limit, messages, true);
            }
            end = message.end;
            messages += 1;
            if messages == u32::from(u16::MAX) {
                break;
            }
        }
        (end, messages, false)
    }

    /// Removes the chunk of [`next`](Self::next), which has been assigned.
    #[inline]
    pub fn advance(&mut self, chunk: &Chunk, again: bool) {
        if again {
            if let Some(chunks) = &mut self.reinjected {
                chunks.waiting.pop_front();
            }
            return;
        }
        self.next_dsn = chunk.end();
        while self.written.front().is_some_and(|message| message.end <= self.next_dsn) {
            self.written.pop_front();
        }
    }

    /// Returns what a scheduler must know about `chunk`; `blocked` counts how often the peer's window has blocked.
    pub fn unit(&self, chunk: &Chunk, blocked: u64) -> Unit {
        let head = self.written.front();
        Unit {
            bytes: Bytes::new(u64::from(chunk.len)),
            class: head.map_or(Class::Data, |message| message.class),
            deadline: head.and_then(|message| message.deadline),
            carried_by: chunk.carried_by,
            backlog: Bytes::new(self.write_end.saturating_sub(chunk.end())),
            window: Bytes::new(self.limit.saturating_sub(self.data_una)),
            window_room: Bytes::new(self.limit.saturating_sub(chunk.dsn)),
            blocked,
        }
    }

    /// Queues chunks for another subflow, together with those that wait already.
    pub fn reinject(&mut self, more: impl IntoIterator<Item = Chunk>) {
        let reinjected = self.reinjected.get_or_insert_default();
        let mut chunks: Vec<Chunk> = core::mem::take(&mut reinjected.waiting).into();
        chunks.extend(more);
        chunks.sort_by_key(|chunk| chunk.dsn);
        chunks.dedup_by_key(|chunk| chunk.dsn);
        reinjected.count += chunks.len() as u64;
        reinjected.waiting = chunks.into();
    }
}

fn part_of(chunk: &Chunk, offset: u16, end: u64) -> Written {
    Written {
        end,
        stream: chunk.stream,
        id: chunk.first_message.wrapping_add(u32::from(offset)),
        class: Class::Data,
        deadline: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(stream: u8, id: u32, bytes: u32) -> Message {
        Message { stream, id, class: Class::Data, bytes, deadline: None }
    }

    /// Returns (dsn, len, first message, messages, tail) of all chunks that can be assigned.
    fn drain(side: &mut SendSide) -> Vec<(u64, u32, u32, u16, bool)> {
        core::iter::from_fn(|| {
            let Next::Chunk { chunk, again } = side.next() else { return None };
            side.advance(&chunk, again);
            Some((chunk.dsn, chunk.len, chunk.first_message, chunk.messages, chunk.tail))
        })
        .collect()
    }

    #[test]
    fn chunks_hold_consecutive_messages_of_one_stream() {
        let mut side = SendSide::new(1000);
        side.on_window_end(10_000);
        for (stream, id, bytes) in [(0, 0, 400), (0, 1, 400), (0, 2, 400), (1, 0, 100), (0, 3, 50)]
        {
            side.write(&message(stream, id, bytes));
        }
        // Message 2 starts in the first segment and ends in the second; stream 1 has chunks of its own.
        let expected = [
            (0, 1000, 0, 2, true),
            (1000, 200, 2, 1, false),
            (1200, 100, 0, 1, false),
            (1300, 50, 3, 1, false),
        ];
        assert_eq!(drain(&mut side), expected);
        assert!(side.is_drained() && !side.has_unsent());
    }

    #[test]
    fn a_closed_window_blocks_until_it_opens() {
        let mut side = SendSide::new(1000);
        side.write(&message(0, 7, 1500));
        assert_eq!(side.next(), Next::Blocked(7));
        assert!(side.on_window_end(1000) && !side.on_window_end(1000));
        assert_eq!(drain(&mut side), [(0, 1000, 7, 0, true)]);
        assert!(side.on_data_ack(1000) && !side.on_data_ack(1000));
        assert_eq!((side.next(), side.unacknowledged()), (Next::Blocked(7), Bytes::new(500)));
    }

    #[test]
    fn reinjected_chunks_come_first_and_only_while_unacknowledged() {
        let mut side = SendSide::new(1000);
        side.on_window_end(10_000);
        (0..4).for_each(|id| side.write(&message(0, id, 1000)));
        let first = core::iter::from_fn(|| match side.next() {
            Next::Chunk { chunk, again } if chunk.dsn < 3000 => {
                side.advance(&chunk, again);
                Some(chunk)
            }
            _ => None,
        });
        let sent: Vec<_> = first.collect();
        side.on_data_ack(1000);
        side.reinject(sent.into_iter().rev());
        let numbers: Vec<_> = drain(&mut side).iter().map(|chunk| chunk.0).collect();
        assert_eq!(numbers, [1000, 2000, 3000]);
        assert_eq!(side.reinjections(), 3);
    }
}
