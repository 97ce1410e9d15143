//! Each path in turn.

use alloc::boxed::Box;
use alloc::string::ToString;

use skybraid_units::Instant;

use super::{Choice, Reason, Scheduler, Unit, candidates, wait_for_room};
use crate::registry::{About, Check, Parameter, Wrong};
use crate::{PathId, PathSet, PathView};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "round_robin",
    summary: "Takes the paths in turn. With `cwnd_limited` a path whose window is full is skipped, so \
              that the split follows the windows; without, the turn waits for that path.",
    source: "Linux out-of-tree MPTCP, mptcp_rr.c",
    linux: "",
    parameters: &[
        Parameter {
            name: "segments",
            unit: "segments",
            default: "1",
            summary: "segments in a row on one path",
        },
        Parameter {
            name: "cwnd_limited",
            unit: "true or false",
            default: "true",
            summary: "skip a path whose window is full rather than wait for it",
        },
    ],
};

/// How the turn is taken.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Segments in a row on one path, at least 1.
    pub segments: u32,
    /// Skip a path whose window is full rather than wait for it.
    pub cwnd_limited: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { segments: 1, cwnd_limited: true }
    }
}

impl Check for Config {
    fn check(&self) -> Result<(), Wrong> {
        if self.segments == 0 {
            return Err(("segments", "expected at least 1".to_string()));
        }
        Ok(())
    }
}

impl Config {
    /// A fresh instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        Box::new(RoundRobin {
            config: Self { segments: self.segments.max(1), ..*self },
            current: None,
            taken: 0,
        })
    }
}

#[derive(Debug)]
struct RoundRobin {
    config: Config,
    current: Option<PathId>,
    taken: u32,
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, _now: Instant, _unit: &Unit, paths: &[PathView]) -> Choice {
        let (mut unfinished, mut behind, mut first) = (None, None, None);
        for path in candidates(paths).filter(|path| path.has_room || !self.config.cwnd_limited) {
            if Some(path.id) == self.current && self.taken < self.config.segments {
                unfinished = Some(path);
            }
            if behind.is_none() && self.current.is_none_or(|last| path.id > last) {
                behind = Some(path);
            }
            first = first.or(Some(path));
        }
        let next = unfinished.or(behind).or(first);
        match next {
            Some(path) if path.has_room => {
                self.taken = if unfinished.is_some() { self.taken + 1 } else { 1 };
                self.current = Some(path.id);
                Choice::Send(PathSet::only(path.id), Reason::Turn)
            }
            _ => wait_for_room(paths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, paths};
    use super::*;

    /// How many of `segments` go to each of two paths with these windows, none acknowledged.
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
    fn equal_windows_share_equally_and_a_full_window_is_skipped() {
        assert_eq!(split(&Config::default(), [5, 5], 8), [4, 4]);
        assert_eq!(split(&Config::default(), [2, 10], 8), [2, 6]);
    }

    #[test]
    fn without_cwnd_limited_the_turn_waits_for_the_full_path() {
        let config = Config { cwnd_limited: false, ..Config::default() };
        assert_eq!(split(&config, [2, 10], 8), [2, 2]);
    }

    #[test]
    fn several_segments_in_a_row_stay_on_a_path() {
        let mut scheduler = Config { segments: 3, cwnd_limited: true }.build();
        let two = paths(&[20, 100]);
        let order: alloc::vec::Vec<u8> =
            (0..7).filter_map(|_| chosen(&mut *scheduler, &two)).map(|on| on[0]).collect();
        assert_eq!(order, [0, 0, 0, 1, 1, 1, 0]);
    }
}
