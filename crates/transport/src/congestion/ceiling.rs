//! Upper bound of a subflow's window while its queue is too long.
//!
//! Source: Raiciu et al., "How Hard Can It Be?", NSDI 2012, §4.2: a subflow is capped at two
//! bandwidth-delay products of the unloaded path, so that it fills neither a bloated network buffer
//! nor the connection's receive buffer.

use skybraid_units::Duration;

/// Maximum ratio of the smoothed to the minimum round-trip time.
const MAX_RATIO: i64 = 2;

/// Ceiling of one subflow's window.
#[derive(Debug)]
pub struct Ceiling {
    segment: u64,
    bytes: u64,
}

impl Ceiling {
    /// Creates an unlimited ceiling.
    pub const fn new(segment: u64) -> Self {
        Self { segment, bytes: u64::MAX }
    }

    /// Maximum bytes in flight.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Processes a round-trip time sample. Once per round trip (`new_round`), the ceiling falls to
    /// the window's value at the maximum ratio, or rises by one segment.
    pub fn on_rtt_sample(
        &mut self,
        new_round: bool,
        window: u64,
        srtt: Duration,
        min_rtt: Duration,
    ) {
        if !new_round {
            return;
        }
        if srtt > min_rtt * MAX_RATIO {
            let ratio = (min_rtt * MAX_RATIO).as_secs_f64() / srtt.as_secs_f64();
            let lower = (window as f64 * ratio) as u64;
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
    fn the_ceiling_falls_to_two_products_and_rises_by_segments() {
        let mut ceiling = Ceiling::new(1000);
        ceiling.on_rtt_sample(true, 100_000, ms(40), ms(20));
        assert_eq!(ceiling.bytes(), u64::MAX);
        ceiling.on_rtt_sample(true, 100_000, ms(100), ms(20));
        assert_eq!(ceiling.bytes(), 40_000);
        ceiling.on_rtt_sample(false, 40_000, ms(30), ms(20));
        ceiling.on_rtt_sample(true, 40_000, ms(30), ms(20));
        assert_eq!(ceiling.bytes(), 41_000);
        ceiling.on_rtt_sample(true, 1000, ms(1000), ms(20));
        assert_eq!(ceiling.bytes(), 2000);
    }
}
