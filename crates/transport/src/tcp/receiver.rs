//! Receive side of a subflow: reordering and selective acknowledgements.
//!
//! Source: RFC 5681 §4.2 (what is acknowledged at once), RFC 2018 (SACK).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::Instant;

use super::acks::Acks;
use super::scoreboard::Chunk;
use crate::rtt::RttEstimator;
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
    acks: Acks,
    /// Range of the last segment, if it was a duplicate.
    duplicate: Option<(u64, u64)>,
    /// Timestamp to be echoed (TS.Recent of RFC 7323 §4.3).
    echo: Instant,
}

impl Receiver {
    /// Creates a receiver that acknowledges as `acks` says.
    pub fn new(acks: Acks) -> Self {
        Self {
            next: 0,
            beyond: VecDeque::new(),
            beyond_bytes: 0,
            blocks: Vec::new(),
            acks,
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

    /// Takes the timestamp of an acknowledgement without data (RFC 7323 §4.3).
    pub fn on_pure_ack(&mut self, seq: u64, sent_at: Instant) {
        if self.acks.is_clear() && seq <= self.next {
            self.echo = self.echo.max(sent_at);
        }
    }

    /// Processes a data segment. Chunks that are in order go to `deliver`, with their times of
    /// arrival.
    pub fn receive(
        &mut self,
        now: Instant,
        seq: u64,
        chunk: Chunk,
        sent_at: Instant,
        rtt: &RttEstimator,
        deliver: &mut impl FnMut(Chunk, Instant),
    ) {
        let end = seq + u64::from(chunk.len);
        if seq == self.next {
            self.next = end;
            if self.acks.is_clear() {
                self.echo = sent_at;
            }
            deliver(chunk, now);
            if self.beyond.is_empty() {
                self.acks.on_in_order(now, chunk.len, rtt);
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
                self.acks.request();
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
            if known {
                self.acks.on_duplicate();
            } else {
                self.acks.request();
            }
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
        self.acks.is_due()
    }

    /// Requests an immediate acknowledgement, for example after a window probe.
    pub fn acknowledge_now(&mut self) {
        self.acks.request();
    }

    /// Instant at which the delayed acknowledgement is due.
    pub const fn next_wakeup(&self) -> Instant {
        self.acks.next_wakeup()
    }

    /// Requests the delayed acknowledgement if its time has come.
    #[inline]
    pub fn wake(&mut self, now: Instant, rtt: &RttEstimator) {
        self.acks.wake(now, rtt);
    }

    /// Records own data, which carries acknowledgements.
    #[inline]
    pub fn on_data_sent(&mut self, now: Instant) {
        self.acks.on_data_sent(now);
    }

    /// Clears the pending acknowledgement. Returns its SACK blocks.
    #[inline]
    pub fn acknowledge(&mut self) -> Sacks {
        self.acks.on_sent();
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
    use crate::rtt::RtoRule;
    use crate::tcp::acks::AckRule;
    use skybraid_units::Duration;

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
        let rtt = estimator();
        receiver.receive(now, number * 1000, chunk, now, &rtt, &mut |chunk, _| {
            out.push(chunk.dsn / 1000);
        });
        out
    }

    fn receiver() -> Receiver {
        Receiver::new(Acks::new(AckRule::Fixed, 2, Duration::from_millis(40)))
    }

    fn estimator() -> RttEstimator {
        RttEstimator::new(RtoRule::Linux, Duration::from_millis(200), Duration::from_secs(120))
    }

    #[test]
    fn every_second_segment_is_acknowledged_a_single_one_later() {
        let mut receiver = receiver();
        arrive(&mut receiver, 0);
        assert!(!receiver.must_acknowledge());
        assert_eq!(receiver.next_wakeup(), Instant::from_millis(40));
        receiver.wake(Instant::from_millis(40), &estimator());
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
