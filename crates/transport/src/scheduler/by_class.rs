//! Control messages on one path, everything else on another.

use skybraid_units::Instant;

use super::{Choice, Reason, Scheduler, Unit, wait_for_room};
use crate::{Class, PathSet, PathView, algorithm};

algorithm! {
    name: "by_class",
    summary: "Separate paths for control and all other data: neither waits for the other, and \
              neither uses another path if its own is full or fails.",
    source: "lee2021mutran §1.3, the system compared as [16]",
    parameters: {
        control: u8 = 0, "position", "0", "index of the path for control, counted from 0";
        data: u8 = 1, "position", "1", "index of the path for video and data";
    },
    scheduler: |config| ByClass { control: config.control, data: config.data },
}

#[derive(Debug)]
struct ByClass {
    control: u8,
    data: u8,
}

impl Scheduler for ByClass {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let position = match unit.class {
            Class::Control => self.control,
            Class::Video | Class::Data => self.data,
        };
        match paths.get(usize::from(position)) {
            Some(path) if path.usable && path.has_room => {
                Choice::Send(PathSet::only(path.id), Reason::ByClass)
            }
            Some(path) if path.usable => Choice::wait_for(path.id, Reason::WindowFull),
            Some(_) => Choice::wait(Reason::NoPath),
            None => wait_for_room(paths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, paths};
    use super::*;
    use crate::PathId;

    // Source: lee2021mutran §1.3: separate interfaces for data and control.
    #[test]
    fn control_and_data_keep_to_their_own_paths() {
        let mut scheduler = Config { control: 1, data: 0 }.build();
        let control = Unit { class: Class::Control, ..UNIT };
        let mut two = paths(&[20, 100]);
        let mut answer = |unit, two: &[PathView]| scheduler.choose(Instant::ZERO, unit, two);
        let send_on = |path| Choice::Send(PathSet::only(PathId(path)), Reason::ByClass);
        assert_eq!(answer(&control, &two), send_on(1));
        assert_eq!(answer(&UNIT, &two), send_on(0));
        two[0].has_room = false;
        assert_eq!(answer(&UNIT, &two), Choice::wait_for(PathId(0), Reason::WindowFull));
        two[1].usable = false;
        assert_eq!(answer(&control, &two), Choice::wait(Reason::NoPath));
    }
}
