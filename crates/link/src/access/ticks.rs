//! Timers that tick with a period, at a phase of their own.

use skybraid_units::{Duration, Instant, Stream};

/// Instants `phase + k · period`, numbered by k.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    period: i64,
    phase: i64,
}

impl Ticks {
    /// Creates a timer; a period below 1 ns counts as 1 ns.
    pub fn new(period: Duration, phase: Duration) -> Self {
        Self { period: period.as_nanos().max(1), phase: phase.as_nanos() }
    }

    /// Creates a timer at a phase drawn from `stream`. One draw.
    pub fn drawn(period: Duration, stream: &mut Stream) -> Self {
        let phase = stream.below(period.as_nanos().max(1) as u64);
        Self::new(period, Duration::from_nanos(phase as i64))
    }

    /// Period.
    pub const fn period(self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// Number of the first tick after `at`.
    pub const fn after(self, at: Instant) -> i64 {
        at.as_nanos().saturating_sub(self.phase).div_euclid(self.period).saturating_add(1)
    }

    /// Number of the first tick at or after `at`.
    pub const fn from(self, at: Instant) -> i64 {
        let since = at.as_nanos().saturating_sub(self.phase);
        let index = since.div_euclid(self.period);
        if since.rem_euclid(self.period) == 0 { index } else { index.saturating_add(1) }
    }

    /// Instant of the tick with this number.
    pub const fn at(self, index: i64) -> Instant {
        Instant::from_nanos(index.saturating_mul(self.period).saturating_add(self.phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_found_before_and_after_an_instant() {
        let ms = Instant::from_millis;
        let ticks = Ticks::new(Duration::from_millis(10), Duration::from_millis(3));
        for (at, after, from) in [(0, 3, 3), (3, 13, 3), (4, 13, 13), (12, 13, 13), (13, 23, 13)] {
            assert_eq!(ticks.at(ticks.after(ms(at))), ms(after), "after {at} ms");
            assert_eq!(ticks.at(ticks.from(ms(at))), ms(from), "from {at} ms");
        }
    }
}
