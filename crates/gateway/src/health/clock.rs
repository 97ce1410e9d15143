//! Comparing the clocks of both ends, as far as one-way measurements allow.
//!
//! A datagram's transit time is its one-way delay plus the difference of the clocks. A delay is never
//! negative, so every transit time of what arrives is an upper bound of that difference, and every transit
//! time of what was sent, as an echo reveals it, a lower one. Clocks drift apart slowly: a bound that was
//! true once stays true when it widens by [`MAX_DRIFT_PPM`], so the best bound of each direction is kept for
//! good, and a network that holds everything up for minutes does not loosen it. Bounds that contradict each
//! other mean that a clock was stepped or has run faster than that: the comparison begins again.

use skybraid_units::{Duration, Instant};

/// Times on the wire are microseconds modulo 2³²; differences of them are taken modulo this.
const LAP_NS: i64 = 1_000 << 32;
/// Maximum rate at which the clocks of both ends drift apart, in parts per million: 100 for each crystal.
pub const MAX_DRIFT_PPM: i64 = 200;
/// Contradictions up to this are rounding and the kernel's conversion between clocks.
const TOLERANCE: Duration = Duration::from_micros(200);
/// A path's lowest transit time is forgotten after twice this long, since routes change.
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

/// The time from `earlier` to `later`, both as the wire carries them: the one that is nearest to zero.
pub fn between(earlier: u32, later: u32) -> Duration {
    Duration::from_micros(i64::from(later.wrapping_sub(earlier).cast_signed()))
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

    /// That of the newest datagram.
    pub const fn last(&self) -> Option<Duration> {
        self.last
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

/// The lowest transit time seen in one direction, at the time of its measurement.
#[derive(Clone, Copy, Debug)]
struct Bound {
    transit: Duration,
    at: Instant,
}

impl Bound {
    /// The bound as it stands now: wider by what the clocks may have drifted since.
    fn at(self, now: Instant) -> Duration {
        let elapsed = now.since(self.at).as_nanos().max(0);
        self.transit + Duration::from_nanos(elapsed / 1_000_000 * MAX_DRIFT_PPM)
    }

    /// The tighter of a bound and a new measurement.
    fn tighten(bound: Option<Self>, now: Instant, transit: Duration) -> Self {
        let kept = bound.filter(|bound| nearest(transit - bound.at(now)).as_nanos() >= 0);
        kept.unwrap_or(Self { transit, at: now })
    }
}

/// Bounds of the difference of the peer's clock from ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerClock {
    /// The difference (ours minus the peer's) is at most this.
    incoming: Option<Bound>,
    /// … and at least the negative of this.
    outgoing: Option<Bound>,
}

impl PeerClock {
    /// Takes the transit time of a probe that arrived at `now` and, where it has an echo, that of the probe
    /// that it echoes.
    pub fn sample(&mut self, now: Instant, incoming: Duration, outgoing: Option<Duration>) {
        self.incoming = Some(Bound::tighten(self.incoming, now, incoming));
        if let Some(outgoing) = outgoing {
            self.outgoing = Some(Bound::tighten(self.outgoing, now, outgoing));
        }
        if self.round_trip(now).is_some_and(|sum| sum + TOLERANCE < Duration::ZERO) {
            let bound = |transit| Bound { transit, at: now };
            (self.incoming, self.outgoing) = (Some(bound(incoming)), outgoing.map(bound));
        }
    }

    /// Both directions have been measured.
    pub const fn is_compared(&self) -> bool {
        self.incoming.is_some() && self.outgoing.is_some()
    }

    /// Width of what is known of the difference of the clocks: the sum of the lowest transit times of both
    /// directions, widened by drift.
    pub fn round_trip(&self, now: Instant) -> Option<Duration> {
        Some(nearest(self.incoming?.at(now) + self.outgoing?.at(now)))
    }

    /// Estimate of the difference, ours minus the peer's: the middle between the bounds.
    fn offset(&self, now: Instant) -> Option<Duration> {
        let half = Duration::from_nanos(self.round_trip(now)?.as_nanos() / 2);
        Some(nearest(self.incoming?.at(now) - half))
    }

    /// The one-way delay of something whose transit time is known, within half of the lowest round trip;
    /// `None` before clocks could be compared.
    pub fn incoming_delay(&self, now: Instant, transit: Duration) -> Option<Duration> {
        Some(nearest(transit - self.offset(now)?))
    }

    /// The one-way delay of something whose transit time the peer has told.
    pub fn outgoing_delay(&self, now: Instant, transit: Duration) -> Option<Duration> {
        Some(nearest(transit + self.offset(now)?))
    }

    /// Upper bound of the one-way delay of something whose transit time is known: the whole round trip but
    /// for nothing on the way back. `None` before clocks could be compared.
    pub fn max_incoming_delay(&self, now: Instant, transit: Duration) -> Option<Duration> {
        Some(nearest(transit + self.outgoing?.at(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: i64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    proptest! {
        #[test]
        fn delays_are_right_within_half_the_round_trip_and_bounded(
            offset_s in -1_000_000_i64..1_000_000,
            delays in proptest::collection::vec((1_i64..400, 1_i64..400), 1..5),
        ) {
            let offset = Duration::from_secs(offset_s);
            // As the wire carries them: modulo 2³² µs.
            let incoming = |delay: i64| nearest(ms(delay) + offset);
            let outgoing = |delay: i64| nearest(ms(delay) - offset);
            let mut clock = PeerClock::default();
            let now = Instant::ZERO;
            for (there, back) in &delays {
                clock.sample(now, incoming(*there), Some(outgoing(*back)));
            }
            let least = |delays: &mut dyn Iterator<Item = i64>| delays.min().unwrap();
            let min_in = least(&mut delays.iter().map(|(incoming, _)| *incoming));
            let min_out = least(&mut delays.iter().map(|(_, outgoing)| *outgoing));
            let shortest = min_in + min_out;
            for (there, back) in &delays {
                let seen = clock.incoming_delay(now, incoming(*there)).unwrap();
                prop_assert!((seen - ms(*there)).as_nanos().abs() <= shortest * 500_000 + 1);
                let seen = clock.outgoing_delay(now, outgoing(*back)).unwrap();
                prop_assert!((seen - ms(*back)).as_nanos().abs() <= shortest * 500_000 + 1);
                let most = clock.max_incoming_delay(now, incoming(*there)).unwrap();
                prop_assert!(most >= ms(*there) && most <= ms(*there + min_out));
            }
        }
    }

    /// Samples each 50 ms of two clocks, one of which runs fast by so many parts per million, over delays
    /// by the second; passes on the time, the true delay, its estimate and its upper bound.
    fn drift(
        ppm: i64,
        seconds: i64,
        delays: impl Fn(i64) -> (i64, i64),
        mut each: impl FnMut(i64, Duration, Duration, Duration),
    ) {
        let mut clock = PeerClock::default();
        for tick in 0..seconds * 20 {
            let now = at(50 * tick);
            let offset = Duration::from_secs(-90) + Duration::from_nanos(50 * tick * ppm);
            let (there, back) = delays(tick / 20);
            let transit = ms(there) + offset;
            clock.sample(now, nearest(transit), Some(nearest(ms(back) - offset)));
            let estimate = clock.incoming_delay(now, nearest(transit)).unwrap();
            let most = clock.max_incoming_delay(now, nearest(transit)).unwrap();
            each(tick / 20, ms(there), estimate, most);
        }
    }

    #[test]
    fn a_delay_that_lasts_for_ten_minutes_is_not_taken_for_the_clock() {
        let held = |second| if second < 10 { (30, 30) } else { (1_500, 30) };
        drift(100, 600, held, |second, delay, estimate, most| {
            assert!(most >= delay && most <= delay + ms(31), "{second} s: {most}");
            // Half the round trip, and half of what the clocks may have drifted since.
            let wrong = (estimate - delay).as_nanos().abs();
            assert!(wrong <= ms(30).as_nanos() + second * 300_000, "{second} s: {estimate}");
        });
    }

    #[test]
    fn both_directions_held_up_at_once_leave_the_bound_true() {
        let held = |second| if second < 10 { (30, 30) } else { (1_500, 1_900) };
        drift(-150, 600, held, |second, delay, _, most| {
            assert!(most >= delay, "{second} s: {most}");
            let widened = ms(31) + Duration::from_nanos(second * 400_000);
            assert!(most <= delay + widened, "{second} s: {most}");
        });
    }

    #[test]
    fn an_hour_of_drift_costs_no_more_than_the_way_back() {
        for ppm in [-100, 0, 100] {
            drift(
                ppm,
                3_600,
                |_| (45, 30),
                |_, delay, estimate, most| {
                    assert!(most >= delay && most <= delay + ms(31), "{most}");
                    assert!((estimate - delay).as_nanos().abs() <= ms(8).as_nanos(), "{estimate}");
                },
            );
        }
    }

    #[test]
    fn a_stepped_clock_begins_a_new_comparison() {
        for step in [-5_000, -300, 300, 5_000] {
            let mut clock = PeerClock::default();
            clock.sample(at(0), ms(30), Some(ms(30)));
            clock.sample(at(50), ms(30 + step), Some(ms(30 - step)));
            let seen = clock.incoming_delay(at(50), ms(30 + step));
            assert_eq!(seen, Some(ms(30)), "{step}");
        }
    }

    #[test]
    fn one_direction_alone_compares_nothing() {
        let mut clock = PeerClock::default();
        clock.sample(at(0), ms(30), None);
        assert!(!clock.is_compared());
        assert_eq!(clock.max_incoming_delay(at(0), ms(30)), None);
        clock.sample(at(50), ms(30), Some(ms(40)));
        assert_eq!(
            clock.max_incoming_delay(at(50), ms(30)).map(|most| most.as_nanos() / 1_000),
            Some(70_000)
        );
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
