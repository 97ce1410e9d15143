//! The path with room that has the lowest round-trip time.

use skybraid_units::Instant;

use super::{Choice, Reason, Scheduler, Unit, candidates, fastest, send_on, untried};
use crate::{PathView, algorithm};

algorithm! {
    name: "low_rtt",
    summary: "The default of MPTCP: uses the path with the lowest smoothed round-trip time among \
              the usable paths whose window has room. Retransmitted data uses a path that has not \
              carried it, and waits if that path is full.",
    source: "Linux out-of-tree MPTCP, mptcp_sched.c; baltaci2023 §4 item 7",
    scheduler: |_config| LowRtt,
}

#[derive(Debug)]
struct LowRtt;

impl Scheduler for LowRtt {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        lowest_rtt(unit, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }

    fn waits_for_room(&self) -> bool {
        true
    }
}

/// Returns the default choice of MPTCP, which other schedulers use for retransmissions.
pub(super) fn lowest_rtt(unit: &Unit, paths: &[PathView]) -> Choice {
    let free = untried(unit, candidates(paths)).filter(|path| path.has_room);
    send_on(fastest(free), Reason::LowestRtt, paths)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, chosen, paths};
    use super::*;
    use crate::{PathId, PathSet};
    use alloc::vec;

    // Source: the scheduler golden tests of the algorithm reference, §9.8 item 1.
    #[test]
    fn segments_fill_the_fast_window_before_the_slow_one() {
        let mut scheduler = Config {}.build();
        let mut sent = [0; 2];
        for _ in 0..15 {
            let mut two = paths(&[20, 100]);
            two[0].has_room = sent[0] < 10;
            two[1].has_room = sent[1] < 10;
            let on = chosen(&mut *scheduler, &two).unwrap();
            sent[usize::from(on[0])] += 1;
        }
        assert_eq!(sent, [10, 5]);
    }

    #[test]
    fn a_retransmission_waits_for_the_untried_path() {
        let mut scheduler = Config {}.build();
        let mut two = paths(&[20, 100]);
        two[1].has_room = false;
        let unit = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        assert!(matches!(scheduler.choose(Instant::ZERO, &unit, &two), Choice::Wait { .. }));
        two[1].usable = false;
        let again = scheduler.choose(Instant::ZERO, &unit, &two);
        assert_eq!(again, Choice::Send(PathSet::only(PathId(0)), Reason::LowestRtt));
    }

    #[test]
    fn a_backup_path_is_used_only_if_no_regular_path_is_usable() {
        let mut scheduler = Config {}.build();
        let mut two = paths(&[100, 20]);
        two[1].backup = true;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
        two[0].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &two), None);
        two[0].usable = false;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
    }
}
