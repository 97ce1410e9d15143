//! Receive side of a subflow: reordering and selective acknowledgements.
//!
//! Source: RFC 5681 §4.2 (what is acknowledged at once), RFC 2018 (SACK).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::acks::Acks;
use super::receiver_rtt::ReceiverRtt;
use super::scoreboard::Chunk;
use crate::rtt::RttEstimator;
use crate::segment::{Sacks, Segment, Tcp};
use crate::{PathId, PathSet};

/// Receive side of a subflow.
#[derive(Debug)]
pub struct Receiver {
    next: u64,
    /// Segments that were not in order; there since the first one.
    disorder: Option<Box<Disorder>>,
    acks: Acks,
    /// Timestamp to be echoed (TS.Recent of RFC 7323 §4.3).
    echo: Instant,
    /// Measured if it tunes the receive buffer.
    rtt: Option<Box<ReceiverRtt>>,
}

/// Segments of a subflow that were not in order.
#[derive(Debug, Default)]
struct Disorder {
    /// Segments beyond a hole in ascending order, with their times of arrival.
    beyond: VecDeque<(u64, Chunk, Instant)>,
    beyond_bytes: u64,
    /// Ranges received beyond a hole, the most recently extended first.
    blocks: Vec<(u64, u64)>,
    /// Range of the last segment, if it was a duplicate.
    duplicate: Option<(u64, u64)>,
}

impl Receiver {
    /// Creates a receiver that acknowledges as `acks` says, and measures the round-trip time if that tunes a buffer.
    pub fn new(acks: Acks, measures_rtt: bool) -> Self {
        Self {
            next: 0,
            disorder: None,
            acks,
            echo: Instant::ZERO,
            rtt: measures_rtt.then(Box::default),
        }
    }

    /// Next sequence number expected (RCV.NXT).
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Bytes received beyond a hole.
    #[inline]
    pub fn held(&self) -> u64 {
        self.disorder.as_ref().map_or(0, |disorder| disorder.beyond_bytes)
    }

    /// Timestamp to echo.
    pub const fn echo(&self) -> Instant {
        self.echo
    }

    /// Round-trip time that this end has measured as a receiver; none unless it tunes the receive buffer.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.as_ref().and_then(|rtt| rtt.get())
    }

    /// Sets the size of the receive buffer in bytes.
    pub const fn set_buffer(&mut self, bytes: u64) {
        self.acks.set_room(bytes);
    }

    /// Processes a segment. Chunks that are in order go to `deliver`, with their times of arrival.
    #[inline]
    pub fn receive(
        &mut self,
        now: Instant,
        segment: &Segment,
        tcp: &Tcp,
        rtt: &RttEstimator,
        deliver: &mut impl FnMut(Chunk, Instant),
    ) {
        if tcp.len > 0 {
            if let Some(rtt) = &mut self.rtt {
                rtt.on_segment(now, tcp.len, tcp.echo);
            }
            let chunk = Chunk {
                dsn: tcp.dsn,
                len: tcp.len,
                first_message: segment.first_message,
                messages: segment.messages,
                stream: segment.stream,
                tail: segment.tail,
                carried_by: PathSet::only(PathId(tcp.subflow)),
            };
            if tcp.seq == self.next {
                if self.acks.is_clear() {
                    self.echo = segment.sent_at;
                }
                self.next += u64::from(chunk.len);
                deliver(chunk, now);
                match &mut self.disorder {
                    Some(disorder) if !disorder.beyond.is_empty() => {
                        self.next = disorder.deliver_held(self.next, deliver);
                        self.acks.request();
                    }
                    _ => self.acks.on_in_order(now, chunk.len, rtt),
                }
            } else {
                self.hold(now, tcp.seq, chunk);
            }
        } else if tcp.seq < self.next {
            self.acks.request();
        } else if self.rtt.is_some() && self.acks.is_clear() && tcp.seq <= self.next {
            // A peer that tunes its buffer measures by what its acknowledgements are echoed (RFC 7323 §4.3).
            self.echo = self.echo.max(segment.sent_at);
        }
    }

    /// Holds a chunk that is not the next one, unless it has arrived before.
    #[cold]
    fn hold(&mut self, now: Instant, seq: u64, chunk: Chunk) {
        let is_known = self.disorder.get_or_insert_default().hold(now, self.next, seq, chunk);
        // Out of order or duplicate: acknowledge at once (RFC 5681 §4.2).
        if is_known {
            self.acks.on_duplicate();
        } else {
            self.acks.request();
        }
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
        let Some(disorder) = &mut self.disorder else { return sacks };
        if disorder.blocks.is_empty() && disorder.duplicate.is_none() {
            return sacks;
        }
        if let Some((start, end)) = disorder.duplicate.take() {
            sacks.report_duplicate(self.next, start, end);
        }
        for (start, end) in disorder.blocks.iter().take(3) {
            sacks.push(self.next, *start, *end);
        }
        sacks
    }
}

impl Disorder {
    /// Delivers the held chunks that are in order once `next` is the next sequence number. Returns the next one then.
    #[cold]
    fn deliver_held(&mut self, mut next: u64, deliver: &mut impl FnMut(Chunk, Instant)) -> u64 {
        while let Some((seq, chunk, arrived)) = self.beyond.front().copied() {
            if seq > next {
                break;
            }
            self.beyond.pop_front();
            self.beyond_bytes -= u64::from(chunk.len);
            next = seq + u64::from(chunk.len);
            deliver(chunk, arrived);
        }
        self.blocks.retain(|(_, end)| *end > next);
        next
    }

    /// Holds a chunk that is not the `next` one. Returns whether it has arrived before.
    fn hold(&mut self, now: Instant, next: u64, seq: u64, chunk: Chunk) -> bool {
        let end = seq + u64::from(chunk.len);
        let mut is_known = seq < next;
        if seq > next {
            let place = self.beyond.partition_point(|(held, ..)| *held < seq);
            is_known = self.beyond.get(place).is_some_and(|(held, ..)| *held == seq);
            if !is_known {
                self.beyond.insert(place, (seq, chunk, now));
                self.beyond_bytes += u64::from(chunk.len);
                self.extend_blocks(seq, end);
            }
        }
        self.duplicate = is_known.then_some((seq, end));
        is_known
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::RtoRule;
    use crate::segment::{Body, Flags};
    use crate::tcp::acks::AckRule;

    fn arrive(receiver: &mut Receiver, number: u64) -> Vec<u64> {
        let mut out = Vec::new();
        let tcp = Tcp {
            flags: Flags::ACK,
            subflow: 0,
            address: 0,
            seq: number * 1000,
            len: 1000,
            ack: 0,
            dsn: number * 1000,
            data_ack: 0,
            window_end: 0,
            echo: Instant::ZERO,
            sacks: Sacks::NONE,
        };
        let now = Instant::from_millis(number as i64);
        let segment = Segment {
            size: 1052,
            sent_at: now,
            first_message: 0,
            messages: 0,
            stream: 0,
            tail: false,
            body: Body::Tcp(tcp),
        };
        receiver.receive(now, &segment, &tcp, &estimator(), &mut |chunk, _| {
            out.push(chunk.dsn / 1000);
        });
        out
    }

    fn receiver() -> Receiver {
        Receiver::new(Acks::new(AckRule::Fixed, 2, Duration::from_millis(40)), false)
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
