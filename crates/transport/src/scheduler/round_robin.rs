//! Round robin: paths take turns.

use skybraid_units::Instant;

use super::{Choice, Reason, Scheduler, Unit, candidates, send_on, untried};
use crate::per_path::PerPath;
use crate::registry::Compat;
use crate::{PathId, PathSet, PathView, algorithm};

algorithm! {
    name: "round_robin",
    summary: "Uses the paths in turn. With `cwnd_limited`, a path with a full window is skipped, \
              so the split follows the windows; otherwise the scheduler waits for that path.",
    source: "Linux out-of-tree MPTCP, mptcp_rr.c",
    linux: "Rounds of quotas: a path that was skipped because it was full keeps its turn, an \
            interrupted burst continues first, and rounds begin with the last path of the list.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "plain turns, or rounds of quotas";
        segments: u32 = 1, "segments", "1", "consecutive segments on a path",
            "at least 1" if *segments > 0;
        cwnd_limited: bool = true, "true or false", "true",
            "skip paths with a full window instead of waiting for them";
    },
    scheduler: |config| RoundRobin {
        config: Config { segments: config.segments.max(1), ..*config },
        current: None,
        taken: 0,
        quotas: PerPath::new(0),
    },
}

#[derive(Debug)]
struct RoundRobin {
    config: Config,
    /// Path of the last segment, and the length of its burst so far.
    current: Option<PathId>,
    taken: u32,
    /// Segments of each path in the current round, for Linux's quotas.
    quotas: PerPath<u32>,
}

impl RoundRobin {
    /// Returns the path whose burst continues, else the next path in order, else the first.
    fn turn<'a, Open>(&mut self, mut open: Open) -> Option<&'a PathView>
    where
        Open: Iterator<Item = &'a PathView> + Clone,
    {
        let mut unfinished = None;
        if self.taken < self.config.segments {
            unfinished = open.clone().find(|path| Some(path.id) == self.current);
        }
        let next = unfinished
            .or_else(|| open.clone().find(|path| self.current.is_none_or(|last| path.id > last)))
            .or_else(|| open.next());
        if let Some(path) = next.filter(|path| path.has_room) {
            self.taken = if unfinished.is_some() { self.taken + 1 } else { 1 };
            self.current = Some(path.id);
        }
        next
    }

    /// Returns the path whose burst continues, else the last path without a segment in this round.
    fn turn_of_quotas<'a, Open>(&mut self, open: Open) -> Option<&'a PathView>
    where
        Open: Iterator<Item = &'a PathView> + Clone,
    {
        let segments = self.config.segments;
        let quota = |path: &PathView| self.quotas[path.id];
        let unfinished = open.clone().find(|path| (1..segments).contains(&quota(path)));
        let untouched = open.clone().filter(|path| quota(path) == 0).last();
        let mut next = unfinished.or(untouched);
        if next.is_none() {
            for path in open {
                self.quotas[path.id] = 0;
                next = Some(path);
            }
        }
        if let Some(path) = next.filter(|path| path.has_room) {
            self.quotas[path.id] += 1;
        }
        next
    }
}

/// Returns the path after `last`, or the first if that was the last one; `None` if the numbers have gaps.
fn successor(paths: &[PathView], last: PathId) -> Option<&PathView> {
    let place = last.index() + 1;
    if place == paths.len() {
        return paths.first().filter(|_| paths.last().is_some_and(|path| path.id == last));
    }
    paths.get(place).filter(|path| path.id.index() == place)
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        // Most often the next path is regular and has room. Then the others need not be looked at.
        if self.config.compat == Compat::Paper
            && self.taken >= self.config.segments
            && unit.carried_by.is_empty()
            && let Some(next) = self.current.and_then(|last| successor(paths, last))
            && next.usable
            && !next.backup
            && next.has_room
        {
            (self.taken, self.current) = (1, Some(next.id));
            return Choice::Send(PathSet::only(next.id), Reason::Turn);
        }
        self.choose_among(unit, paths)
    }
}

impl RoundRobin {
    /// Chooses among all paths. Not inlined, so that the usual turn needs few registers.
    #[inline(never)]
    fn choose_among(&mut self, unit: &Unit, paths: &[PathView]) -> Choice {
        let skip_full = self.config.cwnd_limited;
        let open = untried(unit, candidates(paths)).filter(|path| path.has_room || !skip_full);
        let next = match self.config.compat {
            Compat::Paper => self.turn(open),
            Compat::Linux => self.turn_of_quotas(open),
        };
        send_on(next.filter(|path| path.has_room), Reason::Turn, paths)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::testing::{UNIT, chosen, paths};
    use super::*;

    /// Returns the paths of the next `segments` segments.
    fn turns(scheduler: &mut dyn Scheduler, paths: &[PathView], segments: u32) -> Vec<u8> {
        (0..segments).filter_map(|_| chosen(scheduler, paths)).map(|on| on[0]).collect()
    }

    /// Returns how many of `segments` segments go to each of two paths with these windows, without
    /// acknowledgements.
    fn split(config: &Config, windows: [u32; 2], segments: u32) -> [u32; 2] {
        let mut scheduler = config.build();
        let mut sent = [0; 2];
        for _ in 0..segments {
            let mut two = paths(&[20, 100]);
            for (path, (sent, window)) in two.iter_mut().zip(sent.iter().zip(windows)) {
                path.has_room = *sent < window;
            }
            if let Some(on) = chosen(&mut *scheduler, &two) {
                sent[usize::from(on[0])] += 1;
            }
        }
        sent
    }

    // Source: the scheduler golden tests of the algorithm reference, §9.8.
    #[test]
    fn equal_windows_share_equally_and_full_ones_are_skipped() {
        for compat in [Compat::Paper, Compat::Linux] {
            let config = Config { compat, ..Config::default() };
            assert_eq!(split(&config, [5, 5], 8), [4, 4]);
            assert_eq!(split(&config, [2, 10], 8), [2, 6]);
        }
    }

    #[test]
    fn without_cwnd_limited_the_turn_waits_for_the_full_path() {
        let config = Config { cwnd_limited: false, ..Config::default() };
        assert_eq!(split(&config, [2, 10], 8), [2, 2]);
    }

    #[test]
    fn consecutive_segments_stay_on_a_path() {
        let mut scheduler = Config { segments: 3, ..Config::default() }.build();
        let two = paths(&[20, 100]);
        assert_eq!(turns(&mut *scheduler, &two, 7), [0, 0, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn the_turn_passes_over_paths_that_fail_wait_or_are_absent() {
        let mut scheduler = Config::default().build();
        let mut four = paths(&[20, 100, 50, 80]);
        assert_eq!(turns(&mut *scheduler, &four, 5), [0, 1, 2, 3, 0]);
        four[1].usable = false;
        assert_eq!(turns(&mut *scheduler, &four, 4), [2, 3, 0, 2]);
        four[3].backup = true;
        assert_eq!(turns(&mut *scheduler, &four, 3), [0, 2, 0]);
        four.remove(1);
        assert_eq!(turns(&mut *scheduler, &four, 3), [2, 0, 2]);
        four.pop();
        four.pop();
        assert_eq!(turns(&mut *scheduler, &four, 2), [0, 0]);
    }

    // Source: the algorithm reference, §5.2: the last path in iteration order with zero quota.
    #[test]
    fn a_path_that_was_full_keeps_its_turn_in_a_round_of_quotas() {
        let mut three = paths(&[20, 100, 50]);
        for (compat, order) in [(Compat::Paper, [0, 2, 0]), (Compat::Linux, [2, 0, 1])] {
            let mut scheduler = Config { compat, ..Config::default() }.build();
            three[1].has_room = false;
            let mut on = turns(&mut *scheduler, &three, 2);
            three[1].has_room = true;
            on.extend(turns(&mut *scheduler, &three, 1));
            assert_eq!(on, order, "{compat:?}");
        }
    }

    // Source: the algorithm reference, §5.2: a partially used quota comes first.
    #[test]
    fn an_interrupted_burst_continues_first_in_a_round_of_quotas() {
        let config = Config { compat: Compat::Linux, segments: 3, ..Config::default() };
        let mut scheduler = config.build();
        let mut two = paths(&[20, 100]);
        assert_eq!(turns(&mut *scheduler, &two, 1), [1]);
        two[1].has_room = false;
        assert_eq!(turns(&mut *scheduler, &two, 3), [0, 0, 0]);
        two[1].has_room = true;
        assert_eq!(turns(&mut *scheduler, &two, 6), [1, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn a_retransmission_uses_a_path_that_has_not_carried_it() {
        let unit = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        let two = paths(&[20, 100]);
        for _ in 0..2 {
            let again = Config::default().build().choose(Instant::ZERO, &unit, &two);
            assert_eq!(again, Choice::Send(PathSet::only(PathId(1)), Reason::Turn));
        }
    }
}
