//! Every path except the fastest, which is left to urgent messages.

use skybraid_units::{Duration, Instant};

use super::{Choice, Reason, Scheduler, Unit, candidates, fastest, send_on, untried};
use crate::{PathId, PathView, algorithm};

algorithm! {
    name: "spare_fastest",
    summary: "For downloads next to control: like `low_rtt`, but without the path with the lowest \
              round-trip time, so that its queue stays short for other traffic. That path is used \
              only if no other regular path is usable. A path replaces the fastest one if it is a \
              tenth faster.",
    source: "Skybraid",
    scheduler: |_config| SpareFastest { spared: None },
}

#[derive(Debug)]
struct SpareFastest {
    spared: Option<PathId>,
}

impl SpareFastest {
    /// Returns the path to leave free: the one with the lowest minimum round-trip time. The
    /// smoothed time would include the queue that the data itself builds up.
    fn spare<'a>(&mut self, usable: impl Iterator<Item = &'a PathView> + Clone) -> Option<PathId> {
        let min_rtt = |path: &PathView| path.min_rtt.unwrap_or(Duration::MAX);
        let fastest = usable.clone().min_by_key(|path| min_rtt(path))?;
        let spared = usable.clone().find(|path| Some(path.id) == self.spared);
        let stays = spared.filter(|path| min_rtt(path) * 9 <= min_rtt(fastest) * 10);
        self.spared = Some(stays.unwrap_or(fastest).id);
        self.spared.filter(|_| usable.count() > 1)
    }
}

impl Scheduler for SpareFastest {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let spared = self.spare(candidates(paths));
        let others = candidates(paths).filter(|path| Some(path.id) != spared);
        let free = untried(unit, others).filter(|path| path.has_room);
        send_on(fastest(free), Reason::LowestRtt, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, paths};
    use super::*;
    use alloc::vec;

    #[test]
    fn the_fastest_path_is_left_free_while_another_is_usable() {
        let mut scheduler = Config {}.build();
        let mut three = paths(&[20, 100, 60]);
        assert_eq!(chosen(&mut *scheduler, &three), Some(vec![2]));
        three[2].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &three), Some(vec![1]));
        three[1].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &three), None, "it waits rather than take the fastest");
        three[1].usable = false;
        three[2].usable = false;
        assert_eq!(chosen(&mut *scheduler, &three), Some(vec![0]));
    }

    #[test]
    fn a_path_s_own_queue_does_not_make_it_look_slow() {
        let mut scheduler = Config {}.build();
        let mut two = paths(&[20, 40]);
        two[1].srtt = Some(Duration::from_millis(15));
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
    }

    #[test]
    fn nearly_equal_paths_do_not_alternate() {
        let mut scheduler = Config {}.build();
        assert_eq!(chosen(&mut *scheduler, &paths(&[40, 42])), Some(vec![1]));
        assert_eq!(chosen(&mut *scheduler, &paths(&[42, 40])), Some(vec![1]));
        assert_eq!(chosen(&mut *scheduler, &paths(&[46, 40])), Some(vec![0]));
    }

    #[test]
    fn a_backup_path_does_not_count_as_another_path() {
        let mut scheduler = Config {}.build();
        let mut two = paths(&[20, 40]);
        two[1].backup = true;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
    }
}
