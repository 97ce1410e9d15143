//! Redundancy: every unit on every path.

use skybraid_units::Instant;

use super::low_rtt::lowest_rtt;
use super::{Choice, Reason, Scheduler, Unit, candidates, wait_for_room};
use crate::{PathSet, PathView, algorithm};

algorithm! {
    name: "redundant",
    summary: "Sends a copy on every usable path; the first to arrive counts. When windows are \
              full, each path advances through the stream at its own pace and skips data that the \
              peer already has, like MPTCP's redundant scheduler; with `strict`, every path \
              carries all data at the pace of the slowest path. Retransmitted data uses one path, \
              as with `low_rtt`.",
    source: "Linux out-of-tree MPTCP, mptcp_redundant.c; chavali2022 §4",
    parameters: {
        strict: bool = false, "true or false", "false", "wait until every usable path has room";
        version: Option<Walk> = None, "0.95, 0.95.1 or 0.95.2", "none",
            "MPTCP: redundancy of this version of out-of-tree MPTCP, including its faults",
            "none with `strict`" if !strict || version.is_none();
    },
    scheduler: |config| Redundant { strict: config.strict, walk: config.version },
}

/// Way in which each subflow of out-of-tree MPTCP goes through the send queue. In all of them the subflows take turns,
/// and each takes what follows the chunk that it took last; they differ in where it goes on once the peer has that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub enum Walk {
    /// With new data, so that a subflow that is overtaken misses what others have sent; and copies are sent only while
    /// new data waits, so that the last segment has none (issue #392).
    #[serde(rename = "0.95")]
    Unsent,
    /// With the oldest data that is not acknowledged (pull request #391).
    #[serde(rename = "0.95.1")]
    Unacknowledged,
    /// The same, but the oldest chunk counts as acknowledged by its first byte: it is sent again and again until it
    /// is (issue #474).
    #[serde(rename = "0.95.2")]
    Repeating,
}

#[derive(Debug)]
struct Redundant {
    strict: bool,
    walk: Option<Walk>,
}

impl Scheduler for Redundant {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        if !unit.carried_by.is_empty() {
            return lowest_rtt(unit, paths);
        }
        let (mut every, mut with_room) = (PathSet::EMPTY, PathSet::EMPTY);
        for path in candidates(paths) {
            every = every.with(path.id);
            if path.has_room {
                with_room = with_room.with(path.id);
            }
        }
        if with_room.is_empty() || (self.strict && with_room != every) {
            return wait_for_room(paths);
        }
        Choice::Send(every, Reason::EveryPath)
    }

    fn walk(&self) -> Option<Walk> {
        self.walk
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, chosen, paths};
    use super::*;
    use crate::PathId;
    use alloc::vec;

    #[test]
    fn every_usable_path_gets_a_copy_even_with_a_full_window() {
        let mut scheduler = Config::default().build();
        let mut three = paths(&[20, 100, 50]);
        three[1].has_room = false;
        three[2].usable = false;
        assert_eq!(chosen(&mut *scheduler, &three), Some(vec![0, 1]));
        three[0].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &three), None);
    }

    #[test]
    fn strict_copies_wait_for_room_on_every_usable_path() {
        let mut scheduler = Config { strict: true, ..Config::default() }.build();
        let mut three = paths(&[20, 100, 50]);
        assert_eq!(chosen(&mut *scheduler, &three), Some(vec![0, 1, 2]));
        three[1].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &three), None);
        three[1].usable = false;
        assert_eq!(chosen(&mut *scheduler, &three), Some(vec![0, 2]));
    }

    // Source: the algorithm reference, §5.3: reinjections use the default choice.
    #[test]
    fn a_retransmission_uses_the_fastest_untried_path() {
        let unit = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        let three = paths(&[20, 100, 50]);
        let again = Config::default().build().choose(Instant::ZERO, &unit, &three);
        assert_eq!(again, Choice::Send(PathSet::only(PathId(2)), Reason::LowestRtt));
    }
}
