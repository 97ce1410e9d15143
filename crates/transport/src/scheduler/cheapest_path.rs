//! Cheapest path first: the cheapest path that has room.

use skybraid_units::{Duration, Instant};

use super::ranking::Ranking;
use super::{Choice, Reason, Scheduler, Unit, send_on, wait_for_room};
use crate::registry::Compat;
use crate::{PathId, PathView, algorithm};

algorithm! {
    name: "cheapest_path",
    summary: "Cheapest path first: uses the path with the highest priority among the usable paths \
              whose window has room; ties are decided by the lowest cost, then by the lowest \
              round-trip time. Traffic spills to the next path when the window of the better one \
              is full, but to a standby path only when no other path is usable. A path with \
              priority 0 is never used.",
    source: "baltaci2023 §2.4 (CPF of MP-DCCP); RFC 9897 §3.2.9 and §3.4 (priorities)",
    linux: "As in Telekom's MP-DCCP kernel: standby paths also carry spilled traffic, and cost is \
            ignored.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "whether standby paths wait until all others have failed";
    },
    scheduler: |config| CheapestPath { preference: Preference::new(config.compat) },
}

#[derive(Debug)]
struct CheapestPath {
    preference: Preference,
}

impl Scheduler for CheapestPath {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        self.preference.choose(unit, paths, |path| path.has_room)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

/// Returns the rank of a path among those that priorities admit: regular paths before standby paths before backup
/// paths. `None` for a path that is not usable or has priority 0.
fn rank(compat: Compat, path: &PathView) -> Option<u8> {
    let rank = match (path.backup, compat) {
        (true, _) => 2,
        (false, Compat::Paper) => u8::from(path.priority == STANDBY),
        (false, Compat::Linux) => 0,
    };
    (path.usable && path.priority != NEVER).then_some(rank)
}

/// Priorities of RFC 9897 §3.2.9.
pub(super) const NEVER: u8 = 0;
const STANDBY: u8 = 1;

/// Place of a path in the order of preference, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Rank, complement of the priority and cost, from the highest bits on.
    first: u64,
    srtt: Duration,
}

impl Place {
    /// Rank in `first` of a path that may not be used.
    const CLOSED: u64 = 0xff;

    #[inline]
    fn of(compat: Compat, path: &PathView) -> Self {
        let cost = match compat {
            Compat::Paper => path.cost,
            Compat::Linux => 0,
        };
        let rank = rank(compat, path).map_or(Self::CLOSED, u64::from);
        let priority = u64::from(u8::MAX - path.priority);
        Self {
            first: rank << 40 | priority << 32 | u64::from(cost),
            srtt: path.srtt.unwrap_or(Duration::MAX),
        }
    }

    fn rank(self) -> Option<usize> {
        Some(self.first >> 40).filter(|rank| *rank != Self::CLOSED).map(|rank| rank as usize)
    }
}

/// Order of preference of a connection's paths.
#[derive(Debug)]
pub(super) struct Preference {
    compat: Compat,
    ranking: Ranking<Place>,
}

impl Preference {
    pub const fn new(compat: Compat) -> Self {
        Self { compat, ranking: Ranking::new() }
    }

    /// Returns the choice of the best path among those with `room`.
    pub fn choose(
        &mut self,
        unit: &Unit,
        paths: &[PathView],
        room: impl Fn(&PathView) -> bool,
    ) -> Choice {
        for (path, view) in (0..).map(PathId).zip(paths) {
            let place = Place::of(self.compat, view);
            if self.ranking.key(path) != Some(place) {
                self.ranking.set(path, place, place.rank());
            }
        }
        let open = self.ranking.lowest_class(unit.carried_by);
        if open.is_empty() {
            return Choice::wait(Reason::NoPath);
        }
        let mut views = self.ranking.of(open).filter_map(|path| paths.get(path.index()));
        let Some(best) = views.find(|view| room(view)) else { return wait_for_room(paths) };
        let priority =
            |path: Option<PathId>| self.ranking.key(path?).map(|place| place.first >> 32);
        let mut all = self.ranking.of(open);
        let is_ranked = priority(all.next()) < priority(all.next_back());
        let reason = if is_ranked { Reason::Priority } else { Reason::Cheapest };
        send_on(Some(best), reason, paths)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, chosen, paths};
    use super::*;
    use crate::PathSet;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Returns paths with these priorities and round-trip times in milliseconds.
    fn ranked(of: &[(u8, i64)]) -> Vec<PathView> {
        let mut views = paths(&of.iter().map(|(_, rtt)| *rtt).collect::<Vec<_>>());
        views.iter_mut().zip(of).for_each(|(view, (priority, _))| view.priority = *priority);
        views
    }

    #[test]
    fn traffic_spills_once_the_window_of_the_cheap_path_is_full() {
        let mut scheduler = Config::default().build();
        let mut two = paths(&[20, 100]);
        two[0].cost = 5;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
        two[1].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
    }

    #[test]
    fn the_lower_round_trip_time_wins_at_equal_cost() {
        let mut scheduler = Config::default().build();
        assert_eq!(chosen(&mut *scheduler, &paths(&[80, 20, 40])), Some(vec![1]));
    }

    // Source: the CPF vectors of the algorithm reference, §7.2.
    #[test]
    fn the_higher_priority_wins_until_its_window_is_full() {
        for compat in [Compat::Paper, Compat::Linux] {
            let mut scheduler = Config { compat }.build();
            let mut two = ranked(&[(3, 50), (5, 100)]);
            let answer = scheduler.choose(Instant::ZERO, &UNIT, &two);
            assert_eq!(answer, Choice::Send(PathSet::only(PathId(1)), Reason::Priority));
            two[1].has_room = false;
            assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
            assert_eq!(chosen(&mut *scheduler, &ranked(&[(3, 50), (3, 30)])), Some(vec![1]));
        }
    }

    #[test]
    fn priority_ranks_before_cost_and_cost_before_rtt() {
        let mut three = ranked(&[(4, 90), (4, 20), (3, 10)]);
        (three[0].cost, three[1].cost, three[2].cost) = (2, 3, 1);
        let on = |compat| chosen(&mut *Config { compat }.build(), &three);
        assert_eq!(on(Compat::Paper), Some(vec![0]));
        assert_eq!(on(Compat::Linux), Some(vec![1]));
    }

    // Source: RFC 9897 §3.2.9: 0 never, 1 standby, 2 secondary; the algorithm reference, §7.2, on
    // Telekom's kernel.
    #[test]
    fn standby_paths_wait_except_in_telekoms_kernel() {
        let mut four = ranked(&[(3, 50), (2, 50), (1, 10), (0, 5)]);
        let on = |compat, four: &[PathView]| chosen(&mut *Config { compat }.build(), four);
        four[0].has_room = false;
        assert_eq!(on(Compat::Paper, &four), Some(vec![1]));
        four[1].has_room = false;
        assert_eq!(on(Compat::Paper, &four), None);
        assert_eq!(on(Compat::Linux, &four), Some(vec![2]));
        (four[0].usable, four[1].usable) = (false, false);
        assert_eq!(on(Compat::Paper, &four), Some(vec![2]));
        four[2].usable = false;
        assert_eq!(on(Compat::Paper, &four), None);
        assert_eq!(on(Compat::Linux, &four), None);
        let answer = Config::default().build().choose(Instant::ZERO, &UNIT, &four);
        assert_eq!(answer, Choice::wait(Reason::NoPath));
    }
}
