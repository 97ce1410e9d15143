//! Coded recovery of runs: what is overdue is replaced by linear combinations over other paths.

use alloc::vec::Vec;

use skybraid_units::{Duration, Instant, Probability};

use super::arrivals::{Arrivals, LossChain, stationary};
use super::hedge::{expected_age, latest_age, next_path, one_way};
use super::low_rtt::lowest_rtt;
use super::{Choice, Grouping, Repairs, Run, Scheduler, Unit, candidates};
use crate::per_path::PerPath;
use crate::{PathId, PathSet, PathView, algorithm};

algorithm! {
    name: "coded",
    summary: "Uses the path with the lowest round-trip time. When an acknowledgement is overdue, \
              as late as another path can still deliver, n + k random linear combinations of the n \
              affected datagrams in flight are sent over the other paths that are in time; any n \
              received combinations or datagrams suffice. k follows from the measured loss of \
              these paths. Over protocols that retransmit, it is `low_rtt`.",
    source: "CellFusion, XNC (SIGCOMM 2023); code: RFC 8681",
    parameters: {
        within: Option<Duration> = None, "time", "(the message's deadline)",
            "time within which a message must arrive",
            "above zero" if within.is_none_or(Duration::is_positive);
        fails: Probability = Probability::saturating(0.01), "share", "1%",
            "share of runs that lack a combination at the measured loss, or whose combinations are \
             linearly dependent",
            "above 0%" if *fails != Probability::ZERO;
        ack_delay: Duration = Duration::from_millis(20), "time", "20ms",
            "maximum time for which the receiver holds an acknowledgement",
            "above zero" if ack_delay.is_positive();
    },
    scheduler: |config| Coded {
        config: config.clone(),
        losses: PerPath::new(LossChain::default()),
    },
}

#[derive(Debug)]
struct Coded {
    config: Config,
    losses: PerPath<LossChain>,
}

/// Returns the paths on which a repair of `run` can arrive in time, the fastest first: those that have
/// not carried it, or all if there is no other.
pub(super) fn repair_paths<'a>(
    now: Instant,
    run: &Run,
    deadline: Option<Instant>,
    paths: &'a [PathView],
) -> Vec<&'a PathView> {
    let mut open: Vec<&PathView> = candidates(paths)
        .filter(|path| deadline.is_none_or(|deadline| now + one_way(path, 0) <= deadline))
        .collect();
    if open.iter().any(|path| !run.carried_by.contains(path.id)) {
        open.retain(|path| !run.carried_by.contains(path.id));
    }
    open.sort_by_key(|path| path.srtt.unwrap_or(Duration::MAX));
    open
}

impl Coded {
    fn deadline(&self, first_sent: Instant, own: Option<Instant>) -> Option<Instant> {
        self.config.within.map(|within| first_sent + within).or(own)
    }

    /// Returns the number of combinations of which at least `needed` arrive, but for `fails`; 0 without a path.
    fn combinations(&self, needed: usize, paths: &[&PathView]) -> usize {
        let rates = paths.iter().map(|path| self.losses[path.id].rates());
        let worst = rates.max_by(|one, other| stationary(*one).total_cmp(&stationary(*other)));
        let Some(rates) = worst else { return 0 };
        let mut arrivals = Arrivals::new(rates, stationary(rates)).after(needed);
        let mut sent = needed;
        while sent < 2 * needed && arrivals.insufficient(needed) > self.config.fails.ratio() {
            arrivals.push();
            sent += 1;
        }
        sent
    }
}

impl Scheduler for Coded {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        lowest_rtt(unit, paths)
    }

    fn ack_delay(&self) -> Option<Duration> {
        Some(self.config.ack_delay)
    }

    fn on_settled(&mut self, _now: Instant, path: PathId, _sent: Instant, delay: Option<Duration>) {
        self.losses[path].on_settled(delay.is_none());
    }

    fn grouping(&self) -> Option<Grouping> {
        Some(Grouping::Runs)
    }

    fn hedge_at(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> Option<Instant> {
        let deadline = self.deadline(first_sent, unit.deadline);
        let left = deadline.map_or(Duration::from_millis(300), |deadline| deadline.since(now));
        let age = latest_age(unit, left, self.config.ack_delay, paths)?;
        Some(now + age.max(Duration::from_millis(1)))
    }

    /// A datagram in flight joins a run if it is overdue too, or could not be repaired once it is.
    fn hedge_early(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        let overdue = first_sent + expected_age(unit, self.config.ack_delay, paths);
        let deadline = self.deadline(first_sent, unit.deadline);
        let Some(other) = next_path(unit, paths) else { return PathSet::EMPTY };
        let joins = now >= overdue || deadline.is_some_and(|at| overdue + one_way(other, 0) > at);
        if joins { PathSet::only(other.id) } else { PathSet::EMPTY }
    }

    fn repair(&mut self, now: Instant, run: &Run, paths: &[PathView]) -> Repairs {
        if run.fresh {
            return Repairs::default();
        }
        // The run's first datagram may be too late already, those after it are not.
        let deadline =
            self.deadline(run.first_sent, run.deadline).map(|deadline| deadline.max(now));
        let mut open = repair_paths(now, run, deadline, paths);
        if open.is_empty() {
            open = repair_paths(now, run, None, paths);
        }
        let sent = self.combinations(run.missing as usize, &open);
        let paths = open.iter().map(|path| path.id).cycle().take(sent).collect();
        Repairs { first: None, paths }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, paths};
    use super::*;
    use alloc::vec;

    fn run(missing: u32) -> Run {
        let unit = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        Run { missing, ..Run::of(7, &unit, Instant::ZERO, false) }
    }

    #[test]
    fn combinations_are_spread_over_the_other_paths() {
        let mut scheduler = Config::default().build();
        let repairs = scheduler.repair(Instant::ZERO, &run(4), &paths(&[50, 60, 40]));
        let count = |path| repairs.paths.iter().filter(|planned| planned.0 == path).count();
        assert_eq!([count(0), count(1), count(2)], [0, 2, 3]);
    }

    // Source: the binomial formula. At 10 % loss more than 2 of 6 are lost with probability 0.0159,
    // more than 3 of 7 with 0.0027.
    #[test]
    fn further_combinations_follow_the_measured_loss() {
        let mut scheduler = Config::default().build();
        for packet in 0..20_000 {
            let delay = (packet * 7919 % 10 != 0).then_some(Duration::ZERO);
            scheduler.on_settled(Instant::ZERO, PathId(1), Instant::ZERO, delay);
        }
        // Losses are spaced evenly, so that none follows another.
        let sent = scheduler.repair(Instant::ZERO, &run(4), &paths(&[50, 60])).paths.len();
        assert!((6..=7).contains(&sent), "{sent}");
    }

    #[test]
    fn nothing_is_sent_before_an_acknowledgement_is_overdue() {
        let mut scheduler = Config::default().build();
        let fresh = Run { fresh: true, ..run(4) };
        assert_eq!(scheduler.repair(Instant::ZERO, &fresh, &paths(&[50, 60])).paths, vec![]);
    }
}
