//! Way of a frame through the satellite: a delay to it, its own timer, and a delay from it.
//!
//! An emulator that keeps frames in delay queues looks at them with a timer. A frame of the instant t with the delay d
//! then leaves at the first tick after t that is not before ⌊t⌋ + d, where ⌊t⌋ is a whole period of the clock.

use alloc::format;

use skybraid_units::{Duration, Instant, Seed};

use super::config::Way;
use super::ticks::Ticks;
use crate::delay::Delay;

/// Delay queue, first in, first out.
#[derive(Clone, Debug)]
struct Hop {
    delay: Delay,
    clock: Option<Ticks>,
    last: Instant,
}

impl Hop {
    /// Returns the instant at which a frame that enters at `at` leaves; `None` in a gap of the delay.
    fn pass(&mut self, at: Instant) -> Option<Instant> {
        let delay = self.delay.of_packet(at);
        if delay == Duration::MAX {
            return None;
        }
        let out = match self.clock {
            None => at + delay,
            Some(clock) => {
                let whole = at.as_nanos() - at.as_nanos().rem_euclid(clock.period().as_nanos());
                let due = clock.from(Instant::from_nanos(whole) + delay);
                clock.at(due.max(clock.after(at)))
            }
        };
        self.last = self.last.max(out);
        Some(self.last)
    }
}

/// Way of the frames of one direction. Frames must be in order.
#[derive(Clone, Debug)]
pub(crate) struct Hops {
    first: Hop,
    satellite: Option<Ticks>,
    second: Hop,
    ground: Duration,
}

impl Hops {
    /// Creates the way. Phases of timers come from streams below `name`.
    pub fn new(way: &Way, seed: Seed, name: &str) -> Self {
        let ticks = |period: Option<Duration>, of: &str| {
            period
                .map(|period| Ticks::drawn(period, &mut seed.stream(&format!("{name}.{of}.phase"))))
        };
        let hop = |delay, of: &str| {
            let stream = format!("{name}.{of}");
            Hop {
                delay: Delay::new(delay, seed, &stream, &stream),
                clock: ticks(way.clock, of),
                last: Instant::ZERO,
            }
        };
        Self {
            first: hop(&way.first, "first"),
            satellite: ticks(way.satellite_frame, "satellite"),
            second: hop(&way.second, "second"),
            ground: way.ground_after,
        }
    }

    /// Returns the arrival of a frame sent at `at`; `None` in a gap of a delay.
    pub fn pass(&mut self, at: Instant) -> Option<Instant> {
        let reached = self.first.pass(at)?;
        let forwarded = self.satellite.map_or(reached, |ticks| ticks.at(ticks.after(reached)));
        Some(self.second.pass(forwarded)? + self.ground)
    }

    /// Sum of the delays of a frame sent at `at`, without waits for timers; `None` in a gap.
    pub fn delay(&mut self, at: Instant) -> Option<Duration> {
        let first = self.first.delay.expected(at);
        let second = self.second.delay.expected(at);
        let gap = first == Duration::MAX || second == Duration::MAX;
        (!gap).then(|| first + second + self.ground)
    }
}
