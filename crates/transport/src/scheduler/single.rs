//! Always the same path.

use skybraid_units::Instant;

use super::{Choice, Reason, Scheduler, Unit, wait_for_room};
use crate::{PathSet, PathView, algorithm};

algorithm! {
    name: "single",
    summary: "Sends all data on one path, even if that path fails. It is the baseline for \
              multipath transports.",
    source: "baseline",
    parameters: {
        path: u8 = 0, "position", "0", "index of the path, counted from 0";
    },
    scheduler: |config| Single { path: config.path },
}

#[derive(Debug)]
struct Single {
    path: u8,
}

impl Scheduler for Single {
    fn choose(&mut self, _now: Instant, _unit: &Unit, paths: &[PathView]) -> Choice {
        match paths.get(usize::from(self.path)) {
            Some(path) if path.usable && path.has_room => {
                Choice::Send(PathSet::only(path.id), Reason::OnlyPath)
            }
            _ => wait_for_room(paths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, paths};
    use super::*;

    #[test]
    fn a_failed_path_is_not_replaced_by_an_idle_one() {
        let mut scheduler = Config { path: 1 }.build();
        let mut two = paths(&[20, 100]);
        assert_eq!(chosen(&mut *scheduler, &two), Some(alloc::vec![1]));
        two[1].usable = false;
        assert_eq!(chosen(&mut *scheduler, &two), None);
    }
}
