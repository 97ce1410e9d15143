//! Loss detection by time: a segment is lost when one that was sent later, by more than a reordering
//! window, has been delivered.
//!
//! Source: RFC 8985 §6 (RACK); edge case 9 of the algorithm reference, §12.

use skybraid_units::{Duration, Instant};

use crate::tcp::scoreboard::DUPLICATE_THRESHOLD;

/// Rounds in which a widened reordering window is kept (RFC 8985 §6.2 step 4).
const PERSIST_RECOVERIES: u32 = 16;

/// What is remembered of deliveries.
#[derive(Debug)]
pub struct Rack {
    /// The most recently sent segment that was delivered: when, and its end.
    newest: Option<(Instant, u64)>,
    /// The round-trip time of that segment.
    rtt: Duration,
    least_rtt: Duration,
    /// Highest sequence number delivered (`RACK.fack`).
    forward_ack: u64,
    reordering_seen: bool,
    multiplier: u32,
    persist: u32,
    /// Duplicates widen the window again only when this has been acknowledged.
    duplicate_round: u64,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            newest: None,
            rtt: Duration::ZERO,
            least_rtt: Duration::MAX,
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
pub struct Arrival {
    /// When it was last sent.
    pub sent_at: Instant,
    /// Sequence number just behind it.
    pub end: u64,
    /// It had been sent more than once.
    pub retransmitted: bool,
    /// The timestamp that the acknowledgement echoes.
    pub echo: Instant,
}

impl Rack {
    /// A segment was delivered (steps 1 to 3). Segments of one acknowledgement come in ascending order.
    pub fn arrived(&mut self, now: Instant, arrival: &Arrival) {
        let rtt = now.since(arrival.sent_at);
        if !arrival.retransmitted {
            self.least_rtt = self.least_rtt.min(rtt);
        }
        if arrival.end > self.forward_ack {
            self.forward_ack = arrival.end;
        } else if arrival.end < self.forward_ack && !arrival.retransmitted {
            self.reordering_seen = true;
        }
        let of_first_copy =
            arrival.retransmitted && (arrival.echo < arrival.sent_at || rtt < self.least_rtt);
        if of_first_copy {
            return;
        }
        self.rtt = rtt;
        let this = (arrival.sent_at, arrival.end);
        if self.newest.is_none_or(|newest| this > newest) {
            self.newest = Some(this);
        }
    }

    /// The peer reports data that it had before: something was sent again for nothing (step 4).
    pub fn duplicate_reported(&mut self, una: u64, next: u64) {
        if una >= self.duplicate_round {
            self.duplicate_round = next;
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST_RECOVERIES;
        }
    }

    /// A recovery has ended (step 4).
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// How much later another segment must have been sent (step 4).
    pub fn window(&self, recovering: bool, sacked_segments: u32, srtt: Duration) -> Duration {
        if !self.reordering_seen && (recovering || sacked_segments >= DUPLICATE_THRESHOLD) {
            return Duration::ZERO;
        }
        if self.least_rtt == Duration::MAX {
            return srtt;
        }
        (self.least_rtt * i64::from(self.multiplier) / 4).min(srtt)
    }

    /// A segment sent at that time, ending there, was sent before one that was delivered.
    pub fn is_overtaken(&self, sent_at: Instant, end: u64) -> bool {
        self.newest.is_some_and(|newest| (sent_at, end) < newest)
    }

    /// When an overtaken segment that was sent at `sent_at` is lost (step 5).
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

    fn arrive(rack: &mut Rack, now_ms: i64, sent_ms: i64, end: u64) {
        let arrival =
            Arrival { sent_at: at(sent_ms), end, retransmitted: false, echo: at(sent_ms) };
        rack.arrived(at(now_ms), &arrival);
    }

    // Source: RFC 8985 §6.2; the vectors of the algorithm reference, §1.5.
    #[test]
    fn the_reordering_window_is_a_quarter_of_the_least_rtt_times_the_multiplier_up_to_srtt() {
        let mut rack = Rack { reordering_seen: true, least_rtt: ms(80), ..Rack::default() };
        for (multiplier, window) in [(1, 20), (3, 60), (6, 100)] {
            rack.multiplier = multiplier;
            assert_eq!(rack.window(false, 0, ms(100)), ms(window));
        }
    }

    #[test]
    fn with_reordering_seen_an_overtaken_segment_is_lost_after_the_window() {
        let mut rack = Rack { reordering_seen: true, least_rtt: ms(80), ..Rack::default() };
        arrive(&mut rack, 105, 5, 2000);
        assert!(rack.is_overtaken(at(0), 1000));
        let window = rack.window(false, 1, ms(100));
        assert_eq!(rack.lost_at(at(0), window), at(120));
    }

    #[test]
    fn without_reordering_three_selectively_acknowledged_segments_are_proof_enough() {
        let mut rack = Rack::default();
        arrive(&mut rack, 105, 5, 2000);
        let window = rack.window(false, 3, ms(100));
        assert_eq!(rack.lost_at(at(0), window), at(100));
    }

    #[test]
    fn a_late_segment_that_was_sent_once_shows_reordering() {
        let mut rack = Rack::default();
        arrive(&mut rack, 100, 2, 3000);
        assert_eq!(rack.window(true, 0, ms(100)), Duration::ZERO);
        arrive(&mut rack, 101, 1, 2000);
        assert_eq!(rack.window(true, 0, ms(100)), ms(98) / 4);
    }

    #[test]
    fn duplicates_widen_the_window_once_a_round_and_sixteen_recoveries_narrow_it() {
        let mut rack = Rack { reordering_seen: true, least_rtt: ms(40), ..Rack::default() };
        rack.duplicate_reported(1000, 5000);
        rack.duplicate_reported(2000, 6000);
        assert_eq!(rack.window(false, 0, ms(100)), ms(20));
        rack.duplicate_reported(5000, 9000);
        assert_eq!(rack.window(false, 0, ms(100)), ms(30));
        for _ in 0..15 {
            rack.recovered();
        }
        assert_eq!(rack.window(false, 0, ms(100)), ms(30));
        rack.recovered();
        assert_eq!(rack.window(false, 0, ms(100)), ms(10));
    }

    #[test]
    fn the_first_copy_of_a_retransmission_is_not_taken_for_the_second() {
        let mut rack = Rack::default();
        arrive(&mut rack, 100, 0, 1000);
        let arrival = Arrival { sent_at: at(150), end: 2000, retransmitted: true, echo: at(0) };
        rack.arrived(at(160), &arrival);
        assert!(!rack.is_overtaken(at(10), 3000));
    }
}
