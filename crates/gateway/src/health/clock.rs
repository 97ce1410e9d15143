//! Comparing the clocks of both ends, as far as one-way measurements allow.
//!
//! A datagram's transit time is its one-way delay and the difference of the clocks. On one path both
//! directions together give the difference if they are equally long; it is wrong by half of what they
//! differ by, and so by no more than half of the round trip. The path of the shortest round trip is taken.

use skybraid_units::{Duration, Instant};

/// Times on the wire are microseconds modulo 2³²; differences of them are taken modulo this.
const LAP_NS: i64 = 1_000 << 32;
/// A minimum is forgotten after twice this long, since clocks drift.
const WINDOW: Duration = Duration::from_secs(10);

/// A time as the wire carries it.
pub fn micros(at: Instant) -> u32 {
    at.as_nanos().div_euclid(1_000) as u32
}

/// The difference of two times that are known modulo 2³² µs: the one that is nearest to zero.
pub fn nearest(difference: Duration) -> Duration {
    let within = (difference.as_nanos() + LAP_NS / 2).rem_euclid(LAP_NS) - LAP_NS / 2;
    Duration::from_nanos(within)
}

/// Transit times of what arrives on a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transit {
    last: Option<Duration>,
    smoothed: Option<Duration>,
    /// The least of the current window and of the one before.
    least: [Option<Duration>; 2],
    since: Instant,
    jitter: Duration,
}

impl Transit {
    /// A datagram that had left at `sent_us` arrived.
    pub fn sample(&mut self, now: Instant, transit: Duration) {
        if let Some(last) = self.last {
            // RFC 3550 §6.4.1.
            let change = (transit - last).as_nanos().abs() - self.jitter.as_nanos();
            self.jitter += Duration::from_nanos(change / 16);
        }
        self.last = Some(transit);
        let smoothed = self.smoothed.unwrap_or(transit);
        self.smoothed = Some(smoothed + Duration::from_nanos((transit - smoothed).as_nanos() / 8));
        if now.since(self.since) > WINDOW {
            self.least = [None, self.least[0]];
            self.since = now;
        }
        self.least[0] = Some(self.least[0].map_or(transit, |least| least.min(transit)));
    }

    /// Smoothed with 1/8.
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The least of the last 10 to 20 s.
    pub fn least(&self) -> Option<Duration> {
        self.least.iter().flatten().min().copied()
    }

    /// Jitter of RFC 3550 §6.4.1.
    pub const fn jitter(&self) -> Duration {
        self.jitter
    }
}

/// The difference of the peer's clock from ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerClock {
    /// What to take off a transit time to get a one-way delay.
    offset: Option<Duration>,
}

impl PeerClock {
    /// Compares the clocks by the least transit times of each path, in and out.
    pub fn compare(&mut self, least: impl Iterator<Item = (Duration, Duration)>) {
        let round_trip =
            |(incoming, outgoing): &(Duration, Duration)| nearest(*incoming + *outgoing);
        if let Some((incoming, outgoing)) = least.min_by_key(round_trip) {
            let half = Duration::from_nanos(nearest(incoming + outgoing).as_nanos() / 2);
            self.offset = Some(nearest(incoming - half));
        }
    }

    /// The one-way delay of something whose transit time is known; `None` before clocks could be
    /// compared.
    pub fn incoming_delay(&self, transit: Duration) -> Option<Duration> {
        Some(nearest(transit - self.offset?))
    }

    /// The one-way delay of something whose transit time the peer has told.
    pub fn outgoing_delay(&self, transit: Duration) -> Option<Duration> {
        Some(nearest(transit + self.offset?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: i64) -> Duration {
        Duration::from_millis(ms)
    }

    proptest! {
        #[test]
        fn one_way_delays_are_right_within_half_the_shortest_round_trip(
            offset_s in -1_000_000_i64..1_000_000,
            delays in proptest::collection::vec((1_i64..400, 1_i64..400), 1..5),
        ) {
            let offset = Duration::from_secs(offset_s);
            // As the wire carries them: modulo 2³² µs.
            let told = |transit: Duration| nearest(transit);
            let mut clock = PeerClock::default();
            let pairs = delays.iter().map(|(incoming, outgoing)| {
                (told(ms(*incoming) + offset), told(ms(*outgoing) - offset))
            });
            clock.compare(pairs);
            let shortest = delays.iter().map(|(incoming, outgoing)| incoming + outgoing).min().unwrap();
            for (incoming, outgoing) in &delays {
                let seen = clock.incoming_delay(told(ms(*incoming) + offset)).unwrap();
                prop_assert!((seen - ms(*incoming)).as_nanos().abs() <= shortest * 500_000 + 1);
                let seen = clock.outgoing_delay(told(ms(*outgoing) - offset)).unwrap();
                prop_assert!((seen - ms(*outgoing)).as_nanos().abs() <= shortest * 500_000 + 1);
            }
        }
    }

    #[test]
    fn a_least_transit_time_is_forgotten_after_twenty_seconds() {
        let mut transit = Transit::default();
        transit.sample(Instant::from_millis(0), ms(20));
        for second in 1..=40 {
            transit.sample(Instant::from_millis(1_000 * second), ms(50));
        }
        assert_eq!(transit.least(), Some(ms(50)));
    }

    // Source: RFC 3550 §6.4.1: J += (|D| - J) / 16.
    #[test]
    fn jitter_is_that_of_rtp() {
        let mut transit = Transit::default();
        for delay in [20, 36, 20] {
            transit.sample(Instant::ZERO, ms(delay));
        }
        assert_eq!(
            transit.jitter(),
            Duration::from_micros(1_000 + 15_000 / 16) + Duration::from_nanos(500)
        );
    }
}
