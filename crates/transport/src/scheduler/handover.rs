//! One active path at a time, the usable one with the highest priority.

use skybraid_units::Instant;

use super::cheapest_path::{NEVER, Preference};
use super::{Choice, Reason, Scheduler, Unit, send_on};
use crate::registry::Compat;
use crate::{PathView, algorithm};

algorithm! {
    name: "handover",
    summary: "Uses one path: the first of the usable paths with the highest priority. Traffic does \
              not spill when it is full; another path takes over only if it fails. A path with \
              priority 0 is never used.",
    source: "Telekom MP-DCCP kernel, handover scheduler: what was meant; RFC 9897 §3.2.9",
    linux: "As implemented: nothing is sent while a path with priority 0 is usable and has room; \
            otherwise `cheapest_path` with `compat = \"linux\"`, including spill.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "as intended, or as implemented";
    },
    scheduler: |config| Handover { compat: config.compat, preference: Preference::new(config.compat) },
}

#[derive(Debug)]
struct Handover {
    compat: Compat,
    preference: Preference,
}

impl Scheduler for Handover {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        if self.compat == Compat::Linux {
            let stalls =
                paths.iter().any(|path| path.usable && path.has_room && path.priority == 0);
            return if stalls {
                Choice::wait(Reason::Priority)
            } else {
                self.preference.choose(unit, paths, |path| path.has_room)
            };
        }
        match preferred(paths, false).or_else(|| preferred(paths, true)) {
            Some(active) if active.has_room => send_on(Some(active), Reason::Priority, paths),
            Some(active) => Choice::wait_for(active.id, Reason::WindowFull),
            None => Choice::wait(Reason::NoPath),
        }
    }

    fn needs_rtt(&self) -> bool {
        self.compat == Compat::Linux
    }
}

/// Returns the usable path of the highest priority among the regular or the `backup` paths, the first of several.
fn preferred(paths: &[PathView], backup: bool) -> Option<&PathView> {
    let (mut highest, mut preferred) = (NEVER, None);
    for path in paths {
        // The priority first: most paths are not better than the best before them.
        if path.priority > highest && path.usable && path.backup == backup {
            (highest, preferred) = (path.priority, Some(path));
        }
    }
    preferred
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, chosen, paths};
    use super::*;
    use crate::PathId;
    use alloc::vec;

    #[test]
    fn another_path_takes_over_only_if_the_active_one_fails() {
        let mut scheduler = Config::default().build();
        let mut two = paths(&[20, 100]);
        two[1].priority = 5;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
        two[1].has_room = false;
        let answer = scheduler.choose(Instant::ZERO, &UNIT, &two);
        assert_eq!(answer, Choice::wait_for(PathId(1), Reason::WindowFull));
        two[1].usable = false;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
        two[0].priority = 0;
        assert_eq!(chosen(&mut *scheduler, &two), None);
    }

    // Source: the algorithm reference, §7.2 and §10 item 16b.
    #[test]
    fn as_coded_it_stalls_on_priority_0_and_otherwise_spills() {
        let mut scheduler = Config { compat: Compat::Linux }.build();
        let mut two = paths(&[20, 100]);
        two[1].priority = 5;
        two[1].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
        two[1].has_room = true;
        two[0].priority = 0;
        assert_eq!(chosen(&mut *scheduler, &two), None);
    }
}
