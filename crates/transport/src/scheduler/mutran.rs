//! MuTran's assignor: control messages on every path, everything else by another scheduler.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use skybraid_units::Instant;

use super::{Choice, Reason, Scheduler, Unit, candidates, low_rtt, round_robin};
use crate::{Class, PathView, algorithm};

algorithm! {
    name: "mutran",
    summary: "MuTran: sends a control message on the path chosen by the data scheduler, with a \
              copy on every other path; the first to arrive counts. All other data uses the data \
              scheduler. A copy for a path without room waits; over MP-DCCP it is omitted unless \
              `wait` is true.",
    source: "lee2021mutran §1.1",
    parameters: {
        data: Data = Data::LowRtt, "low_rtt or round_robin", "low_rtt", "scheduler of all other data";
        duplicate: Vec<Class> = vec![Class::Control], "list of classes", "[\"control\"]",
            "classes that are copied to every path: control, video, data";
        wait: bool = false, "true or false", "false",
            "copies wait for paths without room over MP-DCCP, too";
    }
}

/// Scheduler of messages that are not duplicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// The default scheduler of MPTCP.
    #[default]
    LowRtt,
    /// Each path in turn.
    RoundRobin,
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        let data = match self.data {
            Data::LowRtt => low_rtt::Config::default().build(),
            Data::RoundRobin => round_robin::Config::default().build(),
        };
        let reason = if self.wait { Reason::WaitingCopies } else { Reason::ControlCopies };
        Box::new(Mutran { data, duplicate: self.duplicate.clone(), reason })
    }
}

#[derive(Debug)]
struct Mutran {
    data: Box<dyn Scheduler>,
    duplicate: Vec<Class>,
    /// Reason reported for duplicated messages.
    reason: Reason,
}

impl Scheduler for Mutran {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        // The original takes its turn like any data. Retransmissions are not duplicated.
        let original = self.data.choose(now, unit, paths);
        let copies = self.duplicate.contains(&unit.class) && unit.carried_by.is_empty();
        match original {
            Choice::Send(..) if copies => {
                let every = candidates(paths).map(|path| path.id).collect();
                Choice::Send(every, self.reason)
            }
            choice => choice,
        }
    }

    fn needs_rtt(&self) -> bool {
        self.data.needs_rtt()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, chosen, paths};
    use super::*;
    use crate::{PathId, PathSet};

    const CONTROL: Unit = Unit { class: Class::Control, ..UNIT };

    // Source: lee2021mutran §1.1 and figure 1d.
    #[test]
    fn control_uses_every_path_and_data_the_fastest() {
        let mut scheduler = Config::default().build();
        let mut three = paths(&[50, 20, 100]);
        three[2].has_room = false;
        let every = three.iter().map(|path| path.id).collect();
        let control = scheduler.choose(Instant::ZERO, &CONTROL, &three);
        assert_eq!(control, Choice::Send(every, Reason::ControlCopies));
        let data = scheduler.choose(Instant::ZERO, &UNIT, &three);
        assert_eq!(data, Choice::Send(PathSet::only(PathId(1)), Reason::LowestRtt));
    }

    #[test]
    fn no_copy_uses_a_failed_path_and_none_is_sent_if_all_are_full() {
        let mut scheduler = Config::default().build();
        let mut two = paths(&[50, 20]);
        two[1].usable = false;
        let control = scheduler.choose(Instant::ZERO, &CONTROL, &two);
        assert_eq!(control, Choice::Send(PathSet::only(PathId(0)), Reason::ControlCopies));
        two[0].has_room = false;
        let control = scheduler.choose(Instant::ZERO, &CONTROL, &two);
        assert_eq!(control, Choice::wait(Reason::WindowFull));
    }

    #[test]
    fn a_retransmitted_control_message_is_sent_once() {
        let unit = Unit { carried_by: PathSet::only(PathId(1)), ..CONTROL };
        let again = Config::default().build().choose(Instant::ZERO, &unit, &paths(&[50, 20]));
        assert_eq!(again, Choice::Send(PathSet::only(PathId(0)), Reason::LowestRtt));
    }

    #[test]
    fn data_may_take_turns_and_other_classes_be_duplicated() {
        let config = Config { data: Data::RoundRobin, duplicate: vec![Class::Video], wait: true };
        let mut scheduler = config.build();
        let two = paths(&[50, 20]);
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
        let control = scheduler.choose(Instant::ZERO, &CONTROL, &two);
        assert_eq!(control, Choice::Send(PathSet::only(PathId(0)), Reason::Turn));
        let video = Unit { class: Class::Video, ..UNIT };
        let every = two.iter().map(|path| path.id).collect();
        let video = scheduler.choose(Instant::ZERO, &video, &two);
        assert_eq!(video, Choice::Send(every, Reason::WaitingCopies));
    }
}
