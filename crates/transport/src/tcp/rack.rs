//! RACK: a segment is lost once a segment sent later, by more than a reordering window, has been
//! delivered.
//!
//! Source: RFC 8985 §6; edge case 9 of the algorithm reference, §12.

use skybraid_units::{Duration, Instant};

use crate::tcp::scoreboard::DUPLICATE_THRESHOLD;

/// Number of recoveries for which a widened reordering window is kept (RFC 8985 §6.2 step 4).
const PERSIST_RECOVERIES: u32 = 16;

/// RACK state of a subflow.
#[derive(Debug)]
pub struct Rack {
    /// Most recently sent segment that was delivered: time of sending, and end.
    newest: Option<(Instant, u64)>,
    /// Round-trip time of that segment.
    rtt: Duration,
    min_rtt: Duration,
    /// Highest sequence number delivered (`RACK.fack`).
    forward_ack: u64,
    reordering_seen: bool,
    multiplier: u32,
    persist: u32,
    /// Sequence number that must be acknowledged before duplicates widen the window again.
    duplicate_round: u64,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            newest: None,
            rtt: Duration::ZERO,
            min_rtt: Duration::MAX,
            forward_ack: 0,
            reordering_seen: false,
            multiplier: 1,
            persist: 0,
            duplicate_round: 0,
        }
    }
}

/// A segment at the moment of its delivery.
#[derive(Clone, Copy, Debug)]
pub struct SegmentDelivery {
    /// Time of the last transmission.
    pub sent_at: Instant,
    /// Sequence number after the last byte.
    pub end: u64,
    /// True if sent more than once.
    pub retransmitted: bool,
    /// Timestamp echoed by the acknowledgement.
    pub echo: Instant,
}

impl Rack {
    /// Records a delivery (steps 1 to 3). Segments of one acknowledgement come in ascending order.
    #[inline]
    pub fn on_delivered(&mut self, now: Instant, delivery: &SegmentDelivery) {
        let (rtt, this) = (now.since(delivery.sent_at), (delivery.sent_at, delivery.end));
        if !delivery.retransmitted {
            self.on_delivered_in_order(rtt, delivery.end, this);
            return;
        }
        self.forward_ack = self.forward_ack.max(delivery.end);
        let of_original = delivery.echo < delivery.sent_at || rtt < self.min_rtt;
        if !of_original {
            self.measure(rtt, this);
        }
    }

    /// Records the delivery of segments that were sent once and in order (steps 1 to 3). The first ends at `first_end`;
    /// the last was sent at the instant of `last`, ends there, and had the round-trip time `rtt`.
    #[inline]
    pub fn on_delivered_in_order(&mut self, rtt: Duration, first_end: u64, last: (Instant, u64)) {
        self.min_rtt = self.min_rtt.min(rtt);
        self.reordering_seen |= first_end < self.forward_ack;
        self.forward_ack = self.forward_ack.max(last.1);
        self.measure(rtt, last);
    }

    /// Takes the round-trip time of a delivery, and its time of sending and end if it was sent last.
    #[inline]
    fn measure(&mut self, rtt: Duration, sent: (Instant, u64)) {
        self.rtt = rtt;
        if self.newest.is_none_or(|newest| sent > newest) {
            self.newest = Some(sent);
        }
    }

    /// Records a D-SACK: a retransmission was spurious (step 4).
    pub fn on_duplicate(&mut self, una: u64, next: u64) {
        if una >= self.duplicate_round {
            self.duplicate_round = next;
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST_RECOVERIES;
        }
    }

    /// Records the end of a recovery (step 4).
    pub fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// Reordering window (step 4).
    pub fn window(&self, recovering: bool, sacked_segments: u32, srtt: Duration) -> Duration {
        if !self.reordering_seen && (recovering || sacked_segments >= DUPLICATE_THRESHOLD) {
            return Duration::ZERO;
        }
        if self.min_rtt == Duration::MAX {
            return srtt;
        }
        (self.min_rtt * i64::from(self.multiplier) / 4).min(srtt)
    }

    /// True if a segment sent at `sent_at` and ending at `end` was sent before one that was
    /// delivered.
    #[inline]
    pub fn is_overtaken(&self, sent_at: Instant, end: u64) -> bool {
        self.newest.is_some_and(|newest| (sent_at, end) < newest)
    }

    /// Instant at which an overtaken segment that was sent at `sent_at` is lost (step 5).
    pub fn lost_at(&self, sent_at: Instant, window: Duration) -> Instant {
        sent_at + self.rtt + window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn ms(ms: i64) -> Duration {
        Duration::from_millis(ms)
    }

    fn deliver(rack: &mut Rack, now_ms: i64, sent_ms: i64, end: u64) {
        let delivery =
            SegmentDelivery { sent_at: at(sent_ms), end, retransmitted: false, echo: at(sent_ms) };
        rack.on_delivered(at(now_ms), &delivery);
    }

    // Source: RFC 8985 §6.2; the vectors of the algorithm reference, §1.5.
    #[test]
    fn the_reordering_window_is_a_quarter_of_the_minimum_rtt() {
        let mut rack = Rack { reordering_seen: true, min_rtt: ms(80), ..Rack::default() };
        for (multiplier, window) in [(1, 20), (3, 60), (6, 100)] {
            rack.multiplier = multiplier;
            assert_eq!(rack.window(false, 0, ms(100)), ms(window));
        }
    }

    #[test]
    fn an_overtaken_segment_is_lost_after_the_reordering_window() {
        let mut rack = Rack { reordering_seen: true, min_rtt: ms(80), ..Rack::default() };
        deliver(&mut rack, 105, 5, 2000);
        assert!(rack.is_overtaken(at(0), 1000));
        let window = rack.window(false, 1, ms(100));
        assert_eq!(rack.lost_at(at(0), window), at(120));
    }

    #[test]
    fn three_sacked_segments_need_no_reordering_window() {
        let mut rack = Rack::default();
        deliver(&mut rack, 105, 5, 2000);
        let window = rack.window(false, 3, ms(100));
        assert_eq!(rack.lost_at(at(0), window), at(100));
    }

    #[test]
    fn a_late_segment_that_was_sent_once_shows_reordering() {
        let mut rack = Rack::default();
        deliver(&mut rack, 100, 2, 3000);
        assert_eq!(rack.window(true, 0, ms(100)), Duration::ZERO);
        deliver(&mut rack, 101, 1, 2000);
        assert_eq!(rack.window(true, 0, ms(100)), ms(98) / 4);
    }

    #[test]
    fn duplicates_widen_the_window_and_recoveries_narrow_it() {
        let mut rack = Rack { reordering_seen: true, min_rtt: ms(40), ..Rack::default() };
        rack.on_duplicate(1000, 5000);
        rack.on_duplicate(2000, 6000);
        assert_eq!(rack.window(false, 0, ms(100)), ms(20));
        rack.on_duplicate(5000, 9000);
        assert_eq!(rack.window(false, 0, ms(100)), ms(30));
        for _ in 0..15 {
            rack.on_recovered();
        }
        assert_eq!(rack.window(false, 0, ms(100)), ms(30));
        rack.on_recovered();
        assert_eq!(rack.window(false, 0, ms(100)), ms(10));
    }

    #[test]
    fn a_delivery_of_the_original_is_not_the_retransmission_s() {
        let mut rack = Rack::default();
        deliver(&mut rack, 100, 0, 1000);
        let delivery =
            SegmentDelivery { sent_at: at(150), end: 2000, retransmitted: true, echo: at(0) };
        rack.on_delivered(at(160), &delivery);
        assert!(!rack.is_overtaken(at(10), 3000));
    }
}
