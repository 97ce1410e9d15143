//! Clock comparison of both ends from one-way measurements.
//!
//! A datagram's transit time is the one-way delay plus the clock offset. Delays are never negative, so the
//! transit time of each received datagram is an upper bound of the offset, and that of each sent datagram, as
//! echoed, gives a lower bound. Clocks drift apart slowly: a bound stays valid if it widens by
//! [`MAX_DRIFT_PPM`]. The best bound of each direction is therefore kept, and delays that last for minutes do
//! not loosen it. Contradictory bounds mean that a clock was stepped, stopped or drifted faster: the comparison
//! restarts.
//!
//! Where no path carries both ways there are no echoes; the peer's reports of what it receives take their place.

use skybraid_units::{Duration, Instant};

/// Modulus of time differences; times on the wire are microseconds modulo 2³².
const LAP_NS: i64 = 1_000 << 32;
/// Maximum rate at which the clocks of both ends drift apart, in parts per million: 100 for each crystal.
pub const MAX_DRIFT_PPM: i64 = 200;
/// Maximum contradiction explained by rounding and the kernel's clock conversion.
const TOLERANCE: Duration = Duration::from_micros(200);
/// Time without echoes after which the peer's reports take their place.
const ECHOES_MISSING: Duration = Duration::from_secs(1);
/// Minimum contradiction that is a step of a clock rather than drift.
const MIN_STEP: Duration = Duration::from_millis(20);
/// Time after a step of a clock in which messages from before it may arrive.
const STEP_MEMORY: Duration = Duration::from_secs(10);
/// Window of the lowest transit time, kept for up to two windows since routes change.
const WINDOW: Duration = Duration::from_secs(10);

/// Converts a time to wire format.
pub fn micros(at: Instant) -> u32 {
    at.as_nanos().div_euclid(1_000) as u32
}

/// Returns the difference nearest to zero of two times known modulo 2³² µs.
pub fn nearest(difference: Duration) -> Duration {
    let within = (difference.as_nanos() + LAP_NS / 2).rem_euclid(LAP_NS) - LAP_NS / 2;
    Duration::from_nanos(within)
}

/// Returns the time from `earlier` to `later`, both in wire format; the value nearest to zero.
pub fn between(earlier: u32, later: u32) -> Duration {
    Duration::from_micros(i64::from(later.wrapping_sub(earlier).cast_signed()))
}

/// Returns the lowest of transit times that are near to each other, known modulo 2³² µs.
pub fn lowest(transits: impl IntoIterator<Item = Duration>) -> Option<Duration> {
    let lower = |one, other| if nearest(other - one) < Duration::ZERO { other } else { one };
    transits.into_iter().reduce(lower)
}

/// Transit times of datagrams on a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transit {
    last: Option<Duration>,
    smoothed: Option<Duration>,
    /// Minimum of the current and of the previous window.
    min: [Option<Duration>; 2],
    since: Instant,
    jitter: Duration,
}

impl Transit {
    /// Records the transit time of a datagram.
    pub fn sample(&mut self, now: Instant, transit: Duration) {
        if let Some(last) = self.last {
            // RFC 3550 §6.4.1.
            let change = nearest(transit - last).as_nanos().abs() - self.jitter.as_nanos();
            self.jitter += Duration::from_nanos(change / 16);
        }
        self.last = Some(transit);
        let smoothed = self.smoothed.unwrap_or(transit);
        let change = Duration::from_nanos(nearest(transit - smoothed).as_nanos() / 8);
        self.smoothed = Some(nearest(smoothed + change));
        if now.since(self.since) > WINDOW {
            self.min = [None, self.min[0]];
            self.since = now;
        }
        self.min[0] = lowest(self.min[0].into_iter().chain([transit]));
    }

    /// Returns the newest transit time.
    pub const fn last(&self) -> Option<Duration> {
        self.last
    }

    /// Returns the smoothed transit time (gain 1/8).
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Returns the minimum of the last 10 to 20 s.
    pub fn min(&self) -> Option<Duration> {
        lowest(self.min.iter().flatten().copied())
    }

    /// Returns the jitter of RFC 3550 §6.4.1.
    pub const fn jitter(&self) -> Duration {
        self.jitter
    }
}

/// Lowest transit time in one direction, with the time of measurement.
#[derive(Clone, Copy, Debug)]
struct Bound {
    transit: Duration,
    at: Instant,
}

impl Bound {
    /// Returns the bound at `now`, widened by the max drift since its measurement.
    fn at(self, now: Instant) -> Duration {
        let elapsed = now.since(self.at).as_nanos().max(0);
        self.transit + Duration::from_nanos(elapsed / 1_000_000 * MAX_DRIFT_PPM)
    }

    /// Returns the tighter of a bound and a new measurement.
    fn tighten(bound: Option<Self>, now: Instant, transit: Duration) -> Self {
        let kept = bound.filter(|bound| nearest(transit - bound.at(now)).as_nanos() >= 0);
        kept.unwrap_or(Self { transit, at: now })
    }
}

/// Bounds of the offset between our clock and the peer's.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerClock {
    /// Upper bound of the offset (ours minus the peer's).
    incoming: Option<Bound>,
    /// Negated lower bound of the offset.
    outgoing: Option<Bound>,
    /// Arrival of the last echo.
    echoed: Option<Instant>,
    /// Arrival of the probe that showed a step of a clock, and its transit time.
    stepped: Option<(Instant, Duration)>,
}

impl PeerClock {
    /// Records the transit time of a probe that arrived at `now` and, if it has an echo, that of the echoed
    /// probe. Returns true if a clock was stepped: transit times before that are of no use.
    pub fn sample(&mut self, now: Instant, incoming: Duration, outgoing: Option<Duration>) -> bool {
        let mut is_step = false;
        self.incoming = Some(Bound::tighten(self.incoming, now, incoming));
        if let Some(outgoing) = outgoing {
            self.outgoing = Some(Bound::tighten(self.outgoing, now, outgoing));
            self.echoed = Some(now);
        }
        if let Some(sum) = self.round_trip(now).filter(|_| self.is_contradictory(now)) {
            let bound = |transit| Bound { transit, at: now };
            (self.incoming, self.outgoing) = (Some(bound(incoming)), outgoing.map(bound));
            is_step = sum + MIN_STEP < Duration::ZERO;
            if is_step {
                self.stepped = Some((now, incoming));
            }
        }
        if self.is_contradictory(now) {
            // The echoed probe left before the step.
            self.outgoing = None;
        }
        is_step
    }

    /// Records the transit time of our probes on a path as the peer reports it; it counts while there are no echoes.
    pub fn on_report(&mut self, now: Instant, outgoing: Duration) {
        if self.echoed.is_some_and(|echoed| now.since(echoed) > ECHOES_MISSING) {
            self.outgoing = Some(Bound::tighten(self.outgoing, now, outgoing));
        }
        if self.is_contradictory(now) {
            (self.incoming, self.outgoing) = (None, None);
        }
    }

    fn is_contradictory(&self, now: Instant) -> bool {
        self.round_trip(now).is_some_and(|sum| sum + TOLERANCE < Duration::ZERO)
    }

    /// Whether a message with this transit time was stamped before the probe that showed a step of a clock: it may have
    /// been stamped by a clock that stood still.
    pub fn is_before_step(&self, now: Instant, transit: Duration) -> bool {
        let recent = self.stepped.filter(|(at, _)| now.since(*at) < STEP_MEMORY);
        recent.is_some_and(|(at, incoming)| {
            nearest(now.since(at) - (transit - incoming)) < Duration::ZERO
        })
    }

    /// Whether both directions have been measured.
    pub const fn is_compared(&self) -> bool {
        self.incoming.is_some() && self.outgoing.is_some()
    }

    /// Returns the uncertainty of the clock offset: the sum of the lowest transit times of both directions,
    /// widened by drift.
    pub fn round_trip(&self, now: Instant) -> Option<Duration> {
        Some(nearest(self.incoming?.at(now) + self.outgoing?.at(now)))
    }

    /// Returns the estimated offset, ours minus the peer's: the middle between the bounds.
    fn offset(&self, now: Instant) -> Option<Duration> {
        let half = Duration::from_nanos(self.round_trip(now)?.as_nanos() / 2);
        Some(nearest(self.incoming?.at(now) - half))
    }

    /// Returns the one-way delay for a transit time, accurate to half the lowest round trip; `None` before
    /// the clocks are compared.
    pub fn incoming_delay(&self, now: Instant, transit: Duration) -> Option<Duration> {
        Some(nearest(transit - self.offset(now)?))
    }

    /// Returns the one-way delay for a transit time reported by the peer.
    pub fn outgoing_delay(&self, now: Instant, transit: Duration) -> Option<Duration> {
        Some(nearest(transit + self.offset(now)?))
    }

    /// Returns the upper bound of the one-way delay for a transit time, which assumes a return delay of zero;
    /// `None` before the clocks are compared, and for a bound below zero: a clock was stepped or stopped.
    pub fn max_incoming_delay(&self, now: Instant, transit: Duration) -> Option<Duration> {
        self.incoming?;
        let delay = nearest(transit + self.outgoing?.at(now));
        (delay + TOLERANCE >= Duration::ZERO).then_some(delay)
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
            // In wire format: modulo 2³² µs.
            let incoming = |delay: i64| nearest(ms(delay) + offset);
            let outgoing = |delay: i64| nearest(ms(delay) - offset);
            let mut clock = PeerClock::default();
            let now = Instant::ZERO;
            for (there, back) in &delays {
                clock.sample(now, incoming(*there), Some(outgoing(*back)));
            }
            let min = |delays: &mut dyn Iterator<Item = i64>| delays.min().unwrap();
            let min_in = min(&mut delays.iter().map(|(incoming, _)| *incoming));
            let min_out = min(&mut delays.iter().map(|(_, outgoing)| *outgoing));
            let shortest = min_in + min_out;
            for (there, back) in &delays {
                let seen = clock.incoming_delay(now, incoming(*there)).unwrap();
                prop_assert!((seen - ms(*there)).as_nanos().abs() <= shortest * 500_000 + 1);
                let seen = clock.outgoing_delay(now, outgoing(*back)).unwrap();
                prop_assert!((seen - ms(*back)).as_nanos().abs() <= shortest * 500_000 + 1);
                let max = clock.max_incoming_delay(now, incoming(*there)).unwrap();
                prop_assert!(max >= ms(*there) && max <= ms(*there + min_out));
            }
        }
    }

    /// Samples two clocks every 50 ms, one of them fast by `ppm`, with delays given per second. Passes the
    /// second, the true delay, the estimate and the upper bound to `each`.
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
            let max = clock.max_incoming_delay(now, nearest(transit)).unwrap();
            each(tick / 20, ms(there), estimate, max);
        }
    }

    #[test]
    fn a_delay_of_ten_minutes_is_not_taken_for_the_clock() {
        let held = |second| if second < 10 { (30, 30) } else { (1_500, 30) };
        drift(100, 600, held, |second, delay, estimate, max| {
            assert!(max >= delay && max <= delay + ms(31), "{second} s: {max}");
            // Half the round trip plus half the max drift since.
            let wrong = (estimate - delay).as_nanos().abs();
            assert!(wrong <= ms(30).as_nanos() + second * 300_000, "{second} s: {estimate}");
        });
    }

    #[test]
    fn both_directions_held_up_at_once_leave_the_bound_true() {
        let held = |second| if second < 10 { (30, 30) } else { (1_500, 1_900) };
        drift(-150, 600, held, |second, delay, _, max| {
            assert!(max >= delay, "{second} s: {max}");
            let widened = ms(31) + Duration::from_nanos(second * 400_000);
            assert!(max <= delay + widened, "{second} s: {max}");
        });
    }

    #[test]
    fn an_hour_of_drift_costs_no_more_than_the_way_back() {
        for ppm in [-100, 0, 100] {
            drift(
                ppm,
                3_600,
                |_| (45, 30),
                |_, delay, estimate, max| {
                    assert!(max >= delay && max <= delay + ms(31), "{max}");
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
            clock.max_incoming_delay(at(50), ms(30)).map(|max| max.as_nanos() / 1_000),
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
        assert_eq!(transit.min(), Some(ms(50)));
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
