//! A ceiling over the window of a subflow whose queue has grown too long.
//!
//! Source: Raiciu et al., "How Hard Can It Be?", NSDI 2012, §4.2: a subflow is held to two
//! bandwidth-delay products of the unloaded path, so that it does not fill a bloated buffer and with it
//! the connection's.

use skybraid_units::Duration;

/// The smoothed round-trip time may be this many times the least one.
const TOLERATED: i64 = 2;

/// The ceiling of one subflow.
#[derive(Debug)]
pub struct Ceiling {
    segment: u64,
    bytes: u64,
}

impl Ceiling {
    /// No ceiling yet.
    pub const fn new(segment: u64) -> Self {
        Self { segment, bytes: u64::MAX }
    }

    /// The most that may be in flight.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A round-trip time was measured. Once per round trip (`new_flight`) the ceiling comes down to what
    /// the window would be at the tolerated round-trip time, or rises by a segment.
    pub fn sampled(&mut self, new_flight: bool, window: u64, srtt: Duration, least: Duration) {
        if !new_flight {
            return;
        }
        if srtt > least * TOLERATED {
            let tolerated = (least * TOLERATED).as_secs_f64() / srtt.as_secs_f64();
            let lower = (window as f64 * tolerated) as u64;
            self.bytes = self.bytes.min(lower.max(2 * self.segment));
        } else {
            self.bytes = self.bytes.saturating_add(self.segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: i64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_window_of_five_products_comes_down_to_two_and_may_grow_by_a_segment_per_round_trip() {
        let mut ceiling = Ceiling::new(1000);
        ceiling.sampled(true, 100_000, ms(40), ms(20));
        assert_eq!(ceiling.bytes(), u64::MAX);
        ceiling.sampled(true, 100_000, ms(100), ms(20));
        assert_eq!(ceiling.bytes(), 40_000);
        ceiling.sampled(false, 40_000, ms(30), ms(20));
        ceiling.sampled(true, 40_000, ms(30), ms(20));
        assert_eq!(ceiling.bytes(), 41_000);
        ceiling.sampled(true, 1000, ms(1000), ms(20));
        assert_eq!(ceiling.bytes(), 2000);
    }
}
