//! Partial duplication: copies only while the path in use shows signs of trouble.

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant, Probability};

use super::copies::Purse;
use super::hedge::{expected_age, latest_age, next_in_time, one_way};
use super::warning::Warning;
use super::{Choice, Reason, Scheduler, Unit, candidates, untried, wait_for_room};
use crate::per_path::PerPath;
use crate::{PathId, PathSet, PathView, algorithm};

algorithm! {
    name: "early_warning",
    summary: "Uses the path with the smallest sign of trouble, and sends a copy on the next best \
              path while the sign exceeds `warn`. The sign of a path is the maximum of its delays \
              within `memory` (a loss exceeds any delay), of the delay extrapolated from the last \
              two packets, and of the age of overdue packets. Unacknowledged datagrams are copied \
              as late as another path can still deliver them (`hedge`). Over protocols that \
              retransmit there are no signs, and it is `low_rtt`.",
    source: "PAAF, arXiv 2604.24352 (partial duplication by radio values); the signs are this \
             project's",
    parameters: {
        within: Option<Duration> = None, "time", "(the message's deadline)",
            "time within which a message must arrive",
            "above zero" if within.is_none_or(Duration::is_positive);
        warn: Option<Duration> = None, "time", "(half of within)",
            "one-way delay above which copies are sent",
            "above zero" if warn.is_none_or(Duration::is_positive);
        memory: Duration = Duration::from_secs(1), "time", "1s",
            "time for which a bad delay is remembered",
            "above zero" if memory.is_positive();
        hedge: bool = true, "true or false", "true", "send copies of unacknowledged datagrams";
        budget: Probability = Probability::ONE, "share", "100%",
            "bytes of further copies as a share of the bytes of first copies";
        ack_delay: Duration = Duration::from_millis(20), "time", "20ms",
            "maximum time for which the receiver holds an acknowledgement",
            "above zero" if ack_delay.is_positive();
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        let purse = Purse::new(self.budget.ratio(), 0.0);
        let warnings = PerPath::new(Warning::new(self.memory));
        Box::new(EarlyWarning { config: self.clone(), purse, warnings })
    }
}

#[derive(Debug)]
struct EarlyWarning {
    config: Config,
    purse: Purse,
    /// Signs of trouble.
    warnings: PerPath<Warning<()>>,
}

/// Sign that distinguishes no more: a path this quiet is chosen by its round-trip time.
const STEP: i64 = 10_000_000;

impl EarlyWarning {
    fn sign(&mut self, now: Instant, path: &PathView) -> Duration {
        let back = one_way(path, 0) + self.config.ack_delay;
        self.warnings[path.id].sign(now, back)
    }

    /// Returns the least troubled path that has not carried `unit`, with its sign.
    fn calmest(
        &mut self,
        now: Instant,
        unit: &Unit,
        carried_by: PathSet,
        paths: &[PathView],
    ) -> Option<(PathId, Duration)> {
        let open = untried(unit, candidates(paths));
        let open = open.filter(|path| path.has_room && !carried_by.contains(path.id));
        let signs = open.map(|path| (path, self.sign(now, path)));
        let best = signs.min_by_key(|(path, sign)| {
            (sign.as_nanos() / STEP, path.srtt.unwrap_or(Duration::MAX))
        });
        best.map(|(path, sign)| (path.id, sign))
    }

    fn warn(&self, within: Option<Duration>) -> Duration {
        let half = within.map(|within| within / 2);
        self.config.warn.or(half).unwrap_or(Duration::from_millis(50))
    }

    fn within(&self, now: Instant, unit: &Unit) -> Option<Duration> {
        self.config.within.or(unit.deadline.map(|deadline| deadline.since(now)))
    }
}

impl Scheduler for EarlyWarning {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let Some((first, sign)) = self.calmest(now, unit, PathSet::EMPTY, paths) else {
            return wait_for_room(paths);
        };
        let alone = PathSet::only(first);
        if !unit.carried_by.is_empty() {
            return Choice::Send(alone, Reason::LowestRtt);
        }
        self.purse.earn(now, unit.bytes);
        let warn = self.warn(self.within(now, unit));
        if sign >= warn
            && let Some((second, _)) = self.calmest(now, unit, alone, paths)
            && self.purse.spend(unit.bytes)
        {
            return Choice::Send([first, second].into_iter().collect(), Reason::Risk);
        }
        Choice::Send(alone, Reason::LowestRtt)
    }

    fn ack_delay(&self) -> Option<Duration> {
        Some(self.config.ack_delay)
    }

    fn on_sent(&mut self, now: Instant, path: PathId) {
        self.warnings[path].on_sent(now, ());
    }

    fn on_settled(&mut self, now: Instant, path: PathId, sent: Instant, delay: Option<Duration>) {
        self.warnings[path].on_settled(now, sent, delay);
    }

    fn hedge_at(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> Option<Instant> {
        let deadline = first_sent + self.within(first_sent, unit)?;
        let delay = self.config.ack_delay;
        let at = match latest_age(unit, deadline.since(now), delay, paths) {
            Some(age) => now + age,
            // Too late for this one, but not for those after it.
            None => first_sent + expected_age(unit, delay, paths),
        };
        (self.config.hedge && now < at && at < deadline).then_some(at)
    }

    fn hedge(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        let deadline = self.within(first_sent, unit).map(|within| first_sent + within);
        self.purse.copy(unit, next_in_time(now, unit, deadline, paths))
    }

    fn hedge_early(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        let within = self.within(first_sent, unit);
        let deadline = within.map(|within| first_sent + within);
        let warn = self.warn(within);
        let carried = paths.iter().filter(|path| unit.carried_by.contains(path.id));
        let calm = carried.map(|path| self.sign(now, path)).any(|sign| sign < warn);
        let next = next_in_time(now, unit, deadline, paths).filter(|_| !calm);
        self.purse.copy(unit, next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, at, chosen, paths};
    use super::*;
    use alloc::vec;

    fn scheduler() -> Box<dyn Scheduler> {
        Config { within: Some(Duration::from_millis(100)), ..Config::default() }.build()
    }

    #[test]
    fn copies_begin_with_a_sign_of_trouble_and_end_with_it() {
        let mut scheduler = scheduler();
        let two = paths(&[60, 80]);
        let sent_on =
            |scheduler: &mut dyn Scheduler, now| match scheduler.choose(at(now), &UNIT, &two) {
                Choice::Send(set, _) => set.len(),
                Choice::Wait { .. } => 0,
            };
        assert_eq!(sent_on(&mut *scheduler, 0), 1);
        for path in [0, 1] {
            scheduler.on_sent(at(0), PathId(path));
            scheduler.on_settled(at(90), PathId(path), at(0), Some(Duration::from_millis(55)));
        }
        assert_eq!(sent_on(&mut *scheduler, 100), 2);
        assert_eq!(sent_on(&mut *scheduler, 1091), 2, "what one delay predicts stays");
        for path in [0, 1] {
            scheduler.on_sent(at(1100), PathId(path));
            scheduler.on_settled(at(1140), PathId(path), at(1100), Some(Duration::from_millis(30)));
        }
        assert_eq!(sent_on(&mut *scheduler, 1150), 1);
    }

    #[test]
    fn the_path_without_trouble_is_taken() {
        let mut scheduler = scheduler();
        let two = paths(&[60, 80]);
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
        scheduler.on_sent(at(0), PathId(0));
        scheduler.on_settled(at(0), PathId(0), at(0), None);
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
    }
}
