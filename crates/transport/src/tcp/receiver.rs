//! Receive side of a subflow: reordering, selective and delayed acknowledgements.
//!
//! Source: RFC 9293 §3.8.6.3 and RFC 5681 §4.2 (delayed acknowledgements), RFC 2018 (SACK).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::scoreboard::Chunk;
use crate::segment::Sacks;

/// Receive side of a subflow.
#[derive(Debug)]
pub struct Receiver {
    next: u64,
    /// Segments beyond a hole in ascending order, with their times of arrival.
    beyond: VecDeque<(u64, Chunk, Instant)>,
    beyond_bytes: u64,
    /// Ranges received beyond a hole, the most recently extended first.
    blocks: Vec<(u64, u64)>,
    ack_every: u32,
    ack_delay: Duration,
    unacknowledged: u32,
    ack_at: Instant,
    ack_now: bool,
    /// Range of the last segment, if it was a duplicate.
    duplicate: Option<(u64, u64)>,
    /// Timestamp to be echoed (TS.Recent of RFC 7323 §4.3).
    echo: Instant,
}

impl Receiver {
    /// Creates a receiver that acknowledges at least every `ack_every` segments and within
    /// `ack_delay`.
    pub fn new(ack_every: u32, ack_delay: Duration) -> Self {
        Self {
            next: 0,
            beyond: VecDeque::new(),
            beyond_bytes: 0,
            blocks: Vec::new(),
            ack_every: ack_every.max(1),
            ack_delay,
            unacknowledged: 0,
            ack_at: Instant::FAR_FUTURE,
            ack_now: false,
            duplicate: None,
            echo: Instant::ZERO,
        }
    }

    /// Next sequence number expected (RCV.NXT).
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Bytes received beyond a hole.
    pub const fn held(&self) -> u64 {
        self.beyond_bytes
    }

    /// Timestamp to echo.
    pub const fn echo(&self) -> Instant {
        self.echo
    }

    /// Processes a data segment. Chunks that are in order go to `deliver`, with their times of
    /// arrival.
    pub fn receive(
        &mut self,
        now: Instant,
        seq: u64,
        chunk: Chunk,
        sent_at: Instant,
        deliver: &mut impl FnMut(Chunk, Instant),
    ) {
        let end = seq + u64::from(chunk.len);
        if seq == self.next {
            self.next = end;
            if self.unacknowledged == 0 {
                self.echo = sent_at;
            }
            deliver(chunk, now);
            if self.beyond.is_empty() {
                self.unacknowledged += 1;
                if self.unacknowledged >= self.ack_every {
                    self.ack_now = true;
                } else {
                    self.ack_at = self.ack_at.min(now + self.ack_delay);
                }
            } else {
                while let Some((seq, chunk, arrived)) = self.beyond.front().copied() {
                    if seq > self.next {
                        break;
                    }
                    self.beyond.pop_front();
                    self.beyond_bytes -= u64::from(chunk.len);
                    self.next = seq + u64::from(chunk.len);
                    deliver(chunk, arrived);
                }
                self.blocks.retain(|(_, end)| *end > self.next);
                self.ack_now = true;
            }
        } else {
            let mut known = seq < self.next;
            if seq > self.next {
                let place = self.beyond.partition_point(|(held, ..)| *held < seq);
                known = self.beyond.get(place).is_some_and(|(held, ..)| *held == seq);
                if !known {
                    self.beyond.insert(place, (seq, chunk, now));
                    self.beyond_bytes += u64::from(chunk.len);
                    self.extend_blocks(seq, end);
                }
            }
            self.duplicate = known.then_some((seq, end));
            // Out of order or duplicate: acknowledge at once (RFC 5681 §4.2).
            self.ack_now = true;
        }
    }

    fn extend_blocks(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        self.blocks.retain(|(from, to)| {
            let touches = *from <= end && start <= *to;
            if touches {
                start = start.min(*from);
                end = end.max(*to);
            }
            !touches
        });
        self.blocks.insert(0, (start, end));
    }

    /// True if an acknowledgement must be sent at once.
    pub const fn must_acknowledge(&self) -> bool {
        self.ack_now
    }

    /// Requests an immediate acknowledgement, for example after a window probe.
    pub fn acknowledge_now(&mut self) {
        self.ack_now = true;
    }

    /// Instant at which the delayed acknowledgement is due.
    pub const fn next_wakeup(&self) -> Instant {
        self.ack_at
    }

    /// Requests the delayed acknowledgement if its time has come.
    pub fn wake(&mut self, now: Instant) {
        if self.ack_at <= now {
            self.ack_now = true;
        }
    }

    /// Clears the pending acknowledgement. Returns its SACK blocks.
    #[inline]
    pub fn acknowledge(&mut self) -> Sacks {
        self.unacknowledged = 0;
        self.ack_now = false;
        self.ack_at = Instant::FAR_FUTURE;
        let mut sacks = Sacks::NONE;
        if self.blocks.is_empty() && self.duplicate.is_none() {
            return sacks;
        }
        if let Some((start, end)) = self.duplicate.take() {
            sacks.report_duplicate(self.next, start, end);
        }
        for (start, end) in self.blocks.iter().take(3) {
            sacks.push(self.next, *start, *end);
        }
        sacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSet;

    fn arrive(receiver: &mut Receiver, number: u64) -> Vec<u64> {
        let mut out = Vec::new();
        let chunk = Chunk {
            dsn: number * 1000,
            len: 1000,
            first_message: 0,
            messages: 0,
            stream: 0,
            tail: false,
            carried_by: PathSet::EMPTY,
        };
        let now = Instant::from_millis(number as i64);
        receiver.receive(now, number * 1000, chunk, now, &mut |chunk, _| {
            out.push(chunk.dsn / 1000);
        });
        out
    }

    fn receiver() -> Receiver {
        Receiver::new(2, Duration::from_millis(40))
    }

    #[test]
    fn every_second_segment_is_acknowledged_a_single_one_later() {
        let mut receiver = receiver();
        arrive(&mut receiver, 0);
        assert!(!receiver.must_acknowledge());
        assert_eq!(receiver.next_wakeup(), Instant::from_millis(40));
        receiver.wake(Instant::from_millis(40));
        assert!(receiver.must_acknowledge());
        receiver.acknowledge();
        arrive(&mut receiver, 1);
        arrive(&mut receiver, 2);
        assert!(receiver.must_acknowledge());
    }

    #[test]
    fn the_most_recently_extended_block_is_reported_first() {
        let mut receiver = receiver();
        for number in [2, 4, 6, 8, 5] {
            assert_eq!(arrive(&mut receiver, number), []);
        }
        let blocks: Vec<_> =
            receiver.acknowledge().iter(0).map(|(start, end)| (start / 1000, end / 1000)).collect();
        assert_eq!(blocks, [(4, 7), (8, 9), (2, 3)]);
    }

    #[test]
    fn a_filled_hole_is_acknowledged_at_once() {
        let mut receiver = receiver();
        arrive(&mut receiver, 0);
        receiver.acknowledge();
        arrive(&mut receiver, 2);
        receiver.acknowledge();
        assert_eq!(arrive(&mut receiver, 1), [1, 2]);
        assert!(receiver.must_acknowledge());
        assert_eq!((receiver.next(), receiver.held()), (3000, 0));
        assert!(receiver.acknowledge().is_empty());
    }
}
