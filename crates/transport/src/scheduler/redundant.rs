//! Every unit on every path.

use alloc::boxed::Box;

use skybraid_units::Instant;

use super::{Choice, Reason, Scheduler, Unit, candidates, wait_for_room};
use crate::PathView;
use crate::registry::{About, Check};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "redundant",
    summary: "One copy on every usable path; the first to arrive counts. Under full windows each path \
              goes through the stream at its own pace and skips what the peer already has, as \
              MPTCP's redundant scheduler does.",
    source: "Linux out-of-tree MPTCP, mptcp_redundant.c; chavali2022 §4",
    linux: "",
    parameters: &[],
};

/// No parameters.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Check for Config {}

impl Config {
    /// A fresh instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        Box::new(Redundant)
    }
}

#[derive(Debug)]
struct Redundant;

impl Scheduler for Redundant {
    fn choose(&mut self, _now: Instant, _unit: &Unit, paths: &[PathView]) -> Choice {
        if candidates(paths).any(|path| path.has_room) {
            Choice::Send(candidates(paths).map(|path| path.id).collect(), Reason::EveryPath)
        } else {
            wait_for_room(paths)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, paths};
    use super::*;
    use alloc::vec;

    #[test]
    fn every_usable_path_gets_a_copy_even_if_its_window_is_full() {
        let mut scheduler = Config {}.build();
        let mut three = paths(&[20, 100, 50]);
        three[1].has_room = false;
        three[2].usable = false;
        assert_eq!(chosen(&mut *scheduler, &three), Some(vec![0, 1]));
        three[0].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &three), None);
    }
}
