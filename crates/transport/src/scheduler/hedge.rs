//! Hedging: one copy at first, and another on another path if no acknowledgement comes in time.

use skybraid_units::{Duration, Instant, Probability};

use super::copies::Purse;
use super::low_rtt::lowest_rtt;
use super::{Choice, Scheduler, Unit, candidates, fastest, untried};
use crate::{PathSet, PathView, algorithm};

algorithm! {
    name: "hedge",
    summary: "Uses the path with the lowest round-trip time. If a datagram is not acknowledged \
              after `after`, a copy is sent on another path, provided that it can arrive before \
              the deadline and the budget allows it. Without `after`, copies are sent as late as \
              another path can still deliver them. Further copies use the remaining paths. Over \
              protocols that retransmit, it is `low_rtt`.",
    source: "Dean and Barroso 2013, The Tail at Scale; XLINK (SIGCOMM 2021) and xquic's deadline \
             reinjection",
    parameters: {
        after: Option<Duration> = None, "time", "(from the deadline)",
            "age at which a copy of a datagram is sent",
            "above zero" if after.is_none_or(Duration::is_positive);
        within: Option<Duration> = None, "time", "(the message's deadline)",
            "time within which a message must arrive",
            "above zero" if within.is_none_or(Duration::is_positive);
        budget: Probability = Probability::ONE, "share", "100%",
            "bytes of further copies as a share of the bytes of first copies";
        ack_delay: Duration = Duration::from_millis(20), "time", "20ms",
            "maximum time for which the receiver holds an acknowledgement",
            "above zero" if ack_delay.is_positive();
    },
    scheduler: |config| Hedge { config: config.clone(), purse: Purse::new(config.budget.ratio(), 0.0) },
}

#[derive(Debug)]
struct Hedge {
    config: Config,
    purse: Purse,
}

impl Hedge {
    fn deadline(&self, unit: &Unit, first_sent: Instant) -> Option<Instant> {
        self.config.within.map(|within| first_sent + within).or(unit.deadline)
    }
}

/// Returns the time one way that a path needs, from its round trips; a margin of deviations is
/// added. Zero before the first sample.
pub(super) fn one_way(path: &PathView, deviations: i64) -> Duration {
    path.srtt.unwrap_or(Duration::ZERO) / 2 + path.rtt_deviation * deviations
}

/// Returns the fastest path that has not carried `unit`.
pub(super) fn next_path<'a>(unit: &Unit, paths: &'a [PathView]) -> Option<&'a PathView> {
    let carried_by = unit.carried_by;
    fastest(untried(unit, candidates(paths)).filter(|path| !carried_by.contains(path.id)))
}

/// Returns the same path if a copy can arrive before the deadline on it.
pub(super) fn next_in_time<'a>(
    now: Instant,
    unit: &Unit,
    deadline: Option<Instant>,
    paths: &'a [PathView],
) -> Option<&'a PathView> {
    next_path(unit, paths)
        .filter(|path| deadline.is_none_or(|deadline| now + one_way(path, 0) <= deadline))
}

/// Returns the age of `unit` by which its acknowledgement may be expected.
pub(super) fn expected_age(unit: &Unit, ack_delay: Duration, paths: &[PathView]) -> Duration {
    let carried = paths.iter().filter(|path| unit.carried_by.contains(path.id));
    let own =
        carried.map(|path| path.srtt.unwrap_or(Duration::ZERO) + path.rtt_deviation * 2).min();
    own.unwrap_or(Duration::ZERO) + ack_delay
}

/// Returns the age at which a copy of `unit` on another path is due by the paths' round trips: as
/// late as it can arrive, but not before the acknowledgement may be expected. Under congestion control it may have
/// to wait for room, for a round trip at most.
pub(super) fn latest_age(
    unit: &Unit,
    left: Duration,
    ack_delay: Duration,
    paths: &[PathView],
) -> Option<Duration> {
    let other = next_path(unit, paths)?;
    let expected = expected_age(unit, ack_delay, paths);
    let room = other.srtt.filter(|_| other.is_limited()).unwrap_or(Duration::ZERO);
    let latest = left - one_way(other, 4) - room;
    let possible = left - one_way(other, 0);
    if latest >= expected { Some(latest) } else { (expected < possible).then_some(expected) }
}

impl Scheduler for Hedge {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let choice = lowest_rtt(unit, paths);
        if matches!(choice, Choice::Send(..)) {
            self.purse.earn(now, unit.bytes);
        }
        choice
    }

    fn ack_delay(&self) -> Option<Duration> {
        Some(self.config.ack_delay)
    }

    fn hedge_at(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> Option<Instant> {
        let deadline = self.deadline(unit, first_sent);
        let at = match (self.config.after, deadline) {
            (Some(after), _) => now + after,
            (None, Some(deadline)) => {
                now + latest_age(unit, deadline.since(now), self.config.ack_delay, paths)?
            }
            // Without a deadline: xquic's time for its reinjection.
            (None, None) => {
                let least = fastest(candidates(paths))?.srtt?.mul_f64(1.1);
                now + least.min(Duration::from_millis(500)).max(Duration::from_millis(20))
            }
        };
        next_path(unit, paths).filter(|_| deadline.is_none_or(|deadline| at < deadline)).map(|_| at)
    }

    fn hedge(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        let deadline = self.deadline(unit, first_sent);
        self.purse.copy(unit, next_in_time(now, unit, deadline, paths))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, at, paths};
    use super::*;
    use crate::PathId;
    use alloc::vec::Vec;
    use skybraid_units::Bytes;

    const SENT: Unit = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };

    fn within(millis: i64) -> Config {
        Config { within: Some(Duration::from_millis(millis)), ..Config::default() }
    }

    /// Paths of these round-trip times in milliseconds, without congestion control.
    fn unlimited(rtts: &[i64]) -> Vec<PathView> {
        let window = Bytes::new(u64::MAX);
        paths(rtts).iter().map(|path| PathView { window, ..*path }).collect()
    }

    // Another path takes 40 ms one way, so a copy at 260 ms is in time by 300 ms; a full window keeps it for 80 ms.
    #[test]
    fn a_hedge_waits_as_long_as_its_copy_can_arrive() {
        let mut scheduler = within(300).build();
        let free = unlimited(&[60, 80]);
        assert_eq!(scheduler.hedge_at(at(0), &SENT, at(0), &free), Some(at(260)));
        let limited = paths(&[60, 80]);
        assert_eq!(scheduler.hedge_at(at(0), &SENT, at(0), &limited), Some(at(180)));
    }

    // The acknowledgement comes 80 ms after sending; a copy on the other path takes 40 ms.
    #[test]
    fn a_hedge_that_cannot_arrive_is_not_planned() {
        let two = unlimited(&[60, 80]);
        assert_eq!(within(125).build().hedge_at(at(0), &SENT, at(0), &two), Some(at(85)));
        assert_eq!(within(115).build().hedge_at(at(0), &SENT, at(0), &two), None);
    }

    #[test]
    fn a_copy_goes_to_an_untried_path_while_it_can_arrive() {
        let mut scheduler = within(100).build();
        let three = paths(&[60, 100, 80]);
        scheduler.choose(at(0), &UNIT, &three);
        let only = |path| PathSet::only(PathId(path));
        assert_eq!(scheduler.hedge(at(60), &SENT, at(0), &three), only(2));
        assert_eq!(scheduler.hedge(at(61), &SENT, at(0), &three), PathSet::EMPTY);
    }

    #[test]
    fn copies_stay_within_the_budget() {
        let budget = Probability::new(0.25).unwrap();
        let mut scheduler = Config { budget, ..within(300) }.build();
        let two = paths(&[60, 80]);
        let mut copies = 0;
        for _ in 0..4000 {
            scheduler.choose(at(0), &UNIT, &two);
            copies += scheduler.hedge(at(0), &SENT, at(0), &two).len();
        }
        assert_eq!(copies, 1000);
    }

    // Source: xquic, `xqc_reinj_deadline.c`: max(min(1.1 · least srtt, 500 ms), 20 ms).
    #[test]
    fn without_a_deadline_the_time_is_that_of_xquic() {
        for (rtt, expected) in [(10, 20), (100, 110), (1000, 500)] {
            let both = paths(&[rtt, rtt + 1]);
            let mut scheduler = Config::default().build();
            assert_eq!(scheduler.hedge_at(at(0), &SENT, at(0), &both), Some(at(expected)));
        }
    }
}
