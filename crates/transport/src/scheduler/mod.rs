//! Schedulers: on which paths does the next unit leave, or does it wait?
//!
//! A scheduler answers with a set of paths, so that duplication is an ordinary answer, or with
//! "wait", so that holding data back for a better path is one too.

use alloc::boxed::Box;
use core::fmt::Debug;

use skybraid_units::{Bytes, Instant};

use crate::registry::algorithms;
use crate::{Class, PathSet, PathView};

pub mod cheapest_path;
pub mod low_rtt;
pub mod redundant;
pub mod round_robin;
pub mod single;

/// What is to be scheduled: a segment's worth of a stream, or a whole datagram.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Payload bytes.
    pub bytes: Bytes,
    /// Class of the message that the unit begins with.
    pub class: Class,
    /// When that message stops being useful.
    pub deadline: Option<Instant>,
    /// Paths that have carried the unit before; empty for new data.
    pub carried_by: PathSet,
    /// Bytes waiting behind the unit.
    pub backlog: Bytes,
    /// Bytes that the peer's window still admits, this unit included; the largest size where there
    /// is no flow control.
    pub window_room: Bytes,
}

/// Why a scheduler answered as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The only path there is to choose.
    OnlyPath,
    /// The lowest round-trip time among the paths with room.
    LowestRtt,
    /// Next in turn.
    Turn,
    /// The lowest cost among the paths with room.
    Cheapest,
    /// One copy on every path.
    EveryPath,
    /// No regular path is usable.
    Backup,
    /// No usable path has room in its window.
    WindowFull,
    /// No path is usable.
    NoPath,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::OnlyPath,
        Self::LowestRtt,
        Self::Turn,
        Self::Cheapest,
        Self::EveryPath,
        Self::Backup,
        Self::WindowFull,
        Self::NoPath,
    ];

    /// The reason in a few words, as tables show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnlyPath => "only path",
            Self::LowestRtt => "lowest RTT",
            Self::Turn => "next in turn",
            Self::Cheapest => "cheapest",
            Self::EveryPath => "every path",
            Self::Backup => "backup",
            Self::WindowFull => "window full",
            Self::NoPath => "no path",
        }
    }
}

/// A scheduler's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Send on these paths. On a path without room the copy waits for room, and is dropped if the
    /// peer has the data by then.
    Send(PathSet, Reason),
    /// Send nothing. Asked again when an acknowledgement arrives or a path changes, and at the
    /// instant given, if one is.
    Wait(Reason, Option<Instant>),
}

/// A packet scheduler. One instance serves one direction of one connection.
pub trait Scheduler: Debug + Send {
    /// Where does `unit` go? `paths` holds every path of the connection in order of their numbers.
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice;

    /// The scheduler reads `srtt`, so a transport without acknowledgements must measure it.
    fn needs_rtt(&self) -> bool {
        false
    }
}

/// The usable paths that `unit` may take: regular ones, or the backup paths if there is no regular
/// one.
pub fn candidates(paths: &[PathView]) -> impl Iterator<Item = &PathView> + Clone {
    let regular = paths.iter().any(|path| path.usable && !path.backup);
    paths.iter().filter(move |path| path.usable && path.backup != regular)
}

/// The answer of a scheduler that takes one path: `best` for `reason`, or none yet.
pub fn send_on(best: Option<&PathView>, reason: Reason, paths: &[PathView]) -> Choice {
    match best {
        Some(path) => {
            let reason = if path.backup { Reason::Backup } else { reason };
            Choice::Send(PathSet::only(path.id), reason)
        }
        None => wait_for_room(paths),
    }
}

/// The answer when none of the candidates could be taken.
pub fn wait_for_room(paths: &[PathView]) -> Choice {
    let reason =
        if paths.iter().any(|path| path.usable) { Reason::WindowFull } else { Reason::NoPath };
    Choice::Wait(reason, None)
}

algorithms! {
    /// A scheduler and its parameters.
    SchedulerConfig, "scheduler",
    fn build(self) (&self) -> Box<dyn Scheduler> => (), {
        Single => single,
        RoundRobin => round_robin,
        LowRtt => low_rtt,
        CheapestPath => cheapest_path,
        Redundant => redundant,
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::PathId;
    use alloc::vec::Vec;
    use skybraid_units::Duration;

    /// Usable paths with room, with these round-trip times in milliseconds.
    pub fn paths(rtt_ms: &[i64]) -> Vec<PathView> {
        rtt_ms
            .iter()
            .enumerate()
            .map(|(index, ms)| PathView {
                id: PathId(index as u8),
                usable: true,
                has_room: true,
                srtt: Some(Duration::from_millis(*ms)),
                rtt_deviation: Duration::ZERO,
                window: Bytes::new(14_000),
                in_flight: Bytes::ZERO,
                queued: Bytes::ZERO,
                segment: Bytes::new(1400),
                slow_start: false,
                cost: 1,
                backup: false,
            })
            .collect()
    }

    /// One segment of new data with nothing behind it.
    pub const UNIT: Unit = Unit {
        bytes: Bytes::new(1400),
        class: Class::Data,
        deadline: None,
        carried_by: PathSet::EMPTY,
        backlog: Bytes::ZERO,
        window_room: Bytes::new(u64::MAX),
    };

    /// The paths that `scheduler` takes for one segment, `None` if it waits.
    pub fn chosen(scheduler: &mut dyn Scheduler, paths: &[PathView]) -> Option<Vec<u8>> {
        match scheduler.choose(Instant::ZERO, &UNIT, paths) {
            Choice::Send(set, _) => Some(set.iter().map(|path| path.0).collect()),
            Choice::Wait(..) => None,
        }
    }
}
