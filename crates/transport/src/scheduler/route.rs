//! A path as the scheduler `deadline` sees it: its sign of trouble, and its chance to deliver in time.

use skybraid_units::{Duration, Instant};

use super::hedge::one_way;
use super::odds::{
    BEYOND, BINS, Estimate, INDEPENDENT, PERSISTENT, PathOdds, RESTLESS, SIGNS, is_due,
};
use super::warning::Warning;
use crate::{PathId, PathView};

/// Age beyond the round-trip time of a packet without a fate at which its path is silent.
const SILENCE: Duration = Duration::from_millis(300);
/// Time after a late packet for which its path is restless. Measured: packets without a sign of
/// trouble are late 4 to 13 times as often (`python -m skybraid_studies.frontier restless`).
const REST: Duration = Duration::from_secs(4);
/// Margin of a time that decides about levels; larger than the error of a floating-point number.
const MARGIN: Duration = Duration::from_nanos(2);
/// A deviation that no view has.
const UNMEASURED: Duration = Duration::MAX;
/// A time before all others.
const NEVER: Instant = Instant::from_nanos(i64::MIN);

/// State in which a packet left.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub level: usize,
    /// Number of independent packets that it counts as.
    pub weight: f64,
}

/// Times of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time within which messages must arrive.
    pub within: Duration,
    /// Maximum time for which the receiver holds an acknowledgement.
    pub ack_delay: Duration,
}

/// State of a path.
#[derive(Clone, Debug)]
pub struct PathState {
    warning: Warning<Mark>,
    /// Time until which the path is restless.
    restless_until: Instant,
    /// Time of sending of the last packet.
    last_sent: Option<Instant>,
    /// Age of a packet without a fate from which on the path is silent.
    silent_after: Duration,
    judged: Judged,
}

/// A path as of the last [`refresh`](PathState::refresh), and what that holds for; together, since it is read for each
/// message.
#[derive(Clone, Copy, Debug)]
struct Judged {
    route: Route,
    /// Deviation of the round-trip time in the last view; [`UNMEASURED`] before the first one.
    rtt_deviation: Duration,
    /// Time until which the level and the silence hold, while nothing else changes them.
    holds_until: Instant,
    /// Number of independent packets that the chance of a miss is of.
    late_as_of: f64,
}

impl PathState {
    /// Creates the state of a path without measurements, on which bad delays are remembered for `memory`.
    pub const fn new(memory: Duration) -> Self {
        let route = Route {
            path: PathId(0),
            level: 0,
            is_silent: false,
            late: Estimate::UNKNOWN,
            late_together: Estimate::UNKNOWN,
            srtt: Duration::MAX,
            back: Duration::ZERO,
            expected: Duration::ZERO,
            back_bins: 0,
            expected_bins: 0,
        };
        Self {
            warning: Warning::new(memory),
            restless_until: Instant::ZERO,
            last_sent: None,
            silent_after: Duration::MAX,
            judged: Judged {
                route,
                rtt_deviation: UNMEASURED,
                holds_until: NEVER,
                late_as_of: f64::NEG_INFINITY,
            },
        }
    }

    /// Returns the rank of the path if [`refresh`](Self::refresh) would change nothing, with `settled` independent
    /// packets.
    #[inline]
    pub fn current_rank(&self, now: Instant, view: &PathView, settled: f64) -> Option<Rank> {
        let judged = &self.judged;
        let is_current = now <= judged.holds_until
            && !is_due(judged.late_as_of, settled)
            && judged.is_measured_by(view);
        is_current.then(|| judged.route.rank())
    }

    /// Takes over what is measured, judges the path, and looks up its chance. Returns true if the
    /// [`route`](Self::route) may differ from before.
    #[inline(never)]
    pub fn refresh(
        &mut self,
        now: Instant,
        view: &PathView,
        times: Times,
        odds: &mut PathOdds,
    ) -> bool {
        let has_new_view = !self.judged.is_measured_by(view);
        if has_new_view {
            self.silent_after = SILENCE + view.srtt.unwrap_or(SILENCE);
            self.judged.measure(view, times);
        }
        self.judge(now, times.within);
        let judged = &mut self.judged;
        if !is_due(judged.late_as_of, odds.settled()) {
            return has_new_view;
        }
        let chances = odds.update(view.id, judged.route.level);
        judged.late_as_of = chances.as_of();
        judged.route.late = chances.late();
        judged.route.late_together = judged.route.late.while_another_fails();
        true
    }

    /// Forgets all that depends on the time within which messages must arrive.
    pub const fn forget_times(&mut self) {
        (self.judged.rtt_deviation, self.judged.holds_until) = (UNMEASURED, NEVER);
    }

    /// Judges the path, if it was not judged since anything changed.
    fn judge(&mut self, now: Instant, within: Duration) {
        if now > self.judged.holds_until {
            let Route { level, is_silent, .. } = self.judged.route;
            self.judge_afresh(now, within);
            if (level, is_silent) != (self.judged.route.level, self.judged.route.is_silent) {
                self.judged.late_as_of = f64::NEG_INFINITY;
            }
        }
    }

    fn judge_afresh(&mut self, now: Instant, within: Duration) {
        let back = self.judged.route.back;
        let sign = self.warning.sign(now, back);
        let is_silent = self.warning.age(now) > self.silent_after;
        let eighths = bins(sign, within) / (BINS / SIGNS);
        let goes_on = is_silent || self.warning.newest() > within;
        let is_restless = now < self.restless_until;
        let level = match eighths {
            SIGNS if goes_on => PERSISTENT,
            SIGNS => BEYOND,
            _ if is_restless => RESTLESS + eighths,
            _ => eighths,
        };
        let next_level = match eighths {
            SIGNS => Duration::MAX,
            eighths => within / SIGNS as i64 * (eighths as i64 + 1) - MARGIN,
        };
        let silent_after = if is_silent { Duration::MAX } else { self.silent_after };
        let rests_at = if is_restless { self.restless_until - MARGIN } else { Instant::FAR_FUTURE };
        let sign_holds = self.warning.holds_until(now, silent_after.min(back + next_level));
        self.judged.holds_until = sign_holds.min(rests_at);
        (self.judged.route.level, self.judged.route.is_silent) = (level, is_silent);
    }

    /// Records a packet that leaves.
    pub fn on_sent(&mut self, now: Instant, within: Duration) {
        self.judge(now, within);
        let since = self.last_sent.replace(now).map_or(INDEPENDENT, |last| now.since(last));
        let weight = (since.as_secs_f64() / INDEPENDENT.as_secs_f64()).min(1.0);
        let oldest = self.warning.oldest();
        self.warning.on_sent(now, Mark { level: self.judged.route.level, weight });
        if self.warning.oldest() != oldest {
            self.judged.holds_until = NEVER;
        }
    }

    /// Records the fate of the packet sent at `sent`, which had to arrive `within` a time; no delay if it is lost.
    /// Returns the state in which it left.
    pub fn on_settled(
        &mut self,
        now: Instant,
        sent: Instant,
        delay: Option<Duration>,
        within: Duration,
    ) -> Option<Mark> {
        self.judged.holds_until = NEVER;
        if delay.is_none_or(|delay| delay > within) {
            self.restless_until = now + REST;
        }
        self.warning.on_settled(now, sent, delay)
    }

    /// Returns the path for a copy, as of the last [`refresh`](Self::refresh).
    #[inline]
    pub const fn route(&self) -> &Route {
        &self.judged.route
    }
}

impl Judged {
    /// True if the round trips are those of the last view.
    #[inline]
    fn is_measured_by(&self, view: &PathView) -> bool {
        let srtt = view.srtt.unwrap_or(Duration::MAX);
        self.route.srtt == srtt && self.rtt_deviation == view.rtt_deviation
    }

    /// Takes over the round trips.
    fn measure(&mut self, view: &PathView, times: Times) {
        (self.rtt_deviation, self.holds_until) = (view.rtt_deviation, NEVER);
        let route = &mut self.route;
        (route.path, route.srtt) = (view.id, view.srtt.unwrap_or(Duration::MAX));
        route.back = one_way(view, 0) + times.ack_delay;
        route.expected = expected(view, times.ack_delay);
        route.back_bins = bins(route.back, times.within);
        route.expected_bins = bins(route.expected, times.within);
    }
}

/// A path's place among others, from the best on; silent ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The bits of the chance to be late, which have the order of chances, and one above them for a silent path.
    late: u64,
    srtt: Duration,
}

impl Rank {
    /// Behind all paths.
    pub const MAX: Self = Self { late: u64::MAX, srtt: Duration::MAX };
}

/// Returns the age of a packet by which its acknowledgement may be expected.
pub fn expected(view: &PathView, ack_delay: Duration) -> Duration {
    view.srtt.unwrap_or(Duration::ZERO) + view.rtt_deviation + ack_delay
}

/// Returns the number of whole [`BINS`] of the time `within` in `span`.
#[inline]
pub fn bins(span: Duration, within: Duration) -> usize {
    if span >= within {
        return BINS;
    }
    let part = span.as_secs_f64() / within.as_secs_f64() * BINS as f64;
    part.max(0.0) as u32 as usize
}

/// A path that may carry a copy.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub path: PathId,
    pub level: usize,
    pub is_silent: bool,
    /// Chance that a copy misses the whole time.
    pub late: Estimate,
    /// The same while another path fails.
    pub late_together: Estimate,
    /// Round-trip time; the maximum if it is not known.
    pub srtt: Duration,
    /// Time that an acknowledgement takes from the packet's arrival on.
    pub back: Duration,
    /// Age of a packet by which its acknowledgement may be expected.
    pub expected: Duration,
    /// Whole [`BINS`] of the time in `back`, and in `expected`.
    pub back_bins: usize,
    pub expected_bins: usize,
}

impl Route {
    /// Returns its place among others.
    #[inline]
    pub const fn rank(&self) -> Rank {
        let late = self.late.mean.to_bits() | (self.is_silent as u64) << 63;
        Rank { late, srtt: self.srtt }
    }

    /// True if the path is not expected to deliver in time.
    pub const fn is_troubled(&self) -> bool {
        self.level >= BEYOND
    }

    /// Returns the chance of a miss of a copy here and one on `other` once the first is overdue, which is
    /// `missed` by the means.
    pub fn hedged_by(&self, other: &Self, missed: f64) -> Estimate {
        // The copy comes too late more often than both fail together.
        let too_late = missed / self.late.mean - other.late_together.mean;
        self.late.times(&other.late_together.or_too_late(too_late))
    }
}

#[cfg(test)]
mod tests {
    use skybraid_units::Seed;

    use super::super::odds::LEVELS;
    use super::super::testing::{at, ms, paths};
    use super::*;

    const TIMES: Times = Times { within: ms(160), ack_delay: ms(16) };

    // The reference is a state that is judged from scratch each time.
    #[test]
    fn a_level_that_is_kept_is_that_of_now() {
        let mut stream = Seed(1).stream("fates");
        let (mut odds, mut kept) = (PathOdds::default(), PathState::new(ms(1000)));
        let mut seen = [false; LEVELS];
        for now in 0..150_000 {
            // Whole milliseconds meet the bounds of levels, 20 ms each, exactly.
            if now % 40 == 0 && now % 9000 < 7000 {
                kept.on_sent(at(now), TIMES.within);
            }
            for age in [60, 250] {
                // Every 211th packet is lost.
                let sent = now - age;
                if sent % 40 == 0 && (sent / 40 % 211 == 0) == (age == 250) {
                    let max = 30 + 20 * (now / 4000 % 8);
                    let delay = (age < 250).then(|| ms(stream.between(20.0, max as f64) as i64));
                    kept.on_settled(at(now), at(sent), delay, TIMES.within);
                }
            }
            let view = &paths(&[60])[0];
            let mut scratch = kept.clone();
            scratch.forget_times();
            kept.refresh(at(now), view, TIMES, &mut odds);
            scratch.refresh(at(now), view, TIMES, &mut odds);
            let [found, expected] =
                [&kept, &scratch].map(|path| (path.route().level, path.route().is_silent));
            assert_eq!(found, expected, "{now} ms");
            seen[expected.0] = true;
        }
        // Delays of 20 ms and more are never in the first eighth after a late packet.
        let is_expected = |level: usize| seen[level] || level == RESTLESS;
        assert!((0..LEVELS).all(is_expected), "{seen:?}");
    }

    // A packet that is late by 190 ms is forgotten as a sign after 1 s, and its path rests after 4 s.
    #[test]
    fn a_path_is_restless_for_4_s_after_a_late_packet() {
        let (mut odds, mut path) = (PathOdds::default(), PathState::new(ms(1000)));
        path.on_sent(at(0), TIMES.within);
        path.on_settled(at(250), at(0), Some(ms(190)), TIMES.within);
        path.on_sent(at(300), TIMES.within);
        path.on_settled(at(360), at(300), Some(ms(30)), TIMES.within);
        let mut level = |now| {
            path.refresh(at(now), &paths(&[60])[0], TIMES, &mut odds);
            path.route().level
        };
        assert_eq!([360, 1250, 1251, 4249, 4250].map(&mut level), [BEYOND, BEYOND, 9, 9, 1]);
    }

    #[test]
    fn silent_paths_come_last() {
        let of = |is_silent: bool, mean: f64, srtt: i64| {
            let late = Estimate { mean, ..Estimate::UNKNOWN };
            let fresh = *PathState::new(ms(1000)).route();
            Route { is_silent, late, srtt: ms(srtt), ..fresh }.rank()
        };
        let ranks =
            [of(false, 0.0, 50), of(false, 1e-6, 20), of(false, 1e-6, 30), of(true, 0.0, 1)];
        assert!(ranks.is_sorted() && ranks[3] < Rank::MAX, "{ranks:?}");
    }
}
