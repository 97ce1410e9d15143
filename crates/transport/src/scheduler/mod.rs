//! Schedulers: on which paths does the next unit leave, or does it wait?
//!
//! A scheduler answers with a set of paths, so that duplication is an ordinary answer, or with
//! "wait", so that holding data back for a better path is one too.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;

use skybraid_units::{Bytes, Duration, Instant};

use crate::registry::algorithms;
use crate::{Class, PathId, PathSet, PathView};

pub mod adaptive_cheapest_path;
pub mod blest;
pub mod by_class;
pub mod cheapest_path;
pub mod ecf;
pub mod handover;
pub mod linux_upstream;
pub mod low_rtt;
pub mod low_rtt_wait;
pub mod mutran;
pub mod otias;
pub mod redundant;
pub mod round_robin;
pub mod single;
pub mod spare_fastest;

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
    /// Bytes waiting behind the unit that are on no path yet.
    pub backlog: Bytes,
    /// Bytes that the peer's window still admits, this unit included; the largest size where there
    /// is no flow control.
    pub window_room: Bytes,
    /// The peer's window as a whole, from the oldest byte that it lacks; the largest size where there
    /// is no flow control.
    pub window: Bytes,
    /// How often so far the peer's window kept back data while a path had room, each time anew.
    pub blocked: u64,
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
    /// The path on which the unit is expected to arrive first, waiting included.
    EarliestArrival,
    /// The faster path is full, but the unit arrives earlier on this one than behind it.
    SlowIsEarlier,
    /// The faster path is full, and the unit arrives earlier by waiting for it.
    FastIsEarlier,
    /// A slower path, since what it carries will not block the peer's window.
    NoBlocking,
    /// The slower path is left free: what it would carry is expected to block the peer's window.
    BlockingEstimate,
    /// The path whose queue empties first.
    ShortestQueue,
    /// A burst goes on where it began.
    Burst,
    /// Copies of a control message on every interface.
    ControlCopies,
    /// The same, and none is left out for want of room.
    WaitingCopies,
    /// The path that is kept for the message's class.
    ByClass,
    /// The highest priority among the paths with room.
    Priority,
    /// The fastest path is full, and the scheduler waits rather than spill to a slower one.
    Patience,
    /// What an algorithm of the user's own answered.
    Own,
    /// The peer's window admits no more data.
    PeerWindow,
    /// No usable path has room in its window.
    WindowFull,
    /// No path is usable.
    NoPath,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::OnlyPath,
        Self::LowestRtt,
        Self::Turn,
        Self::Cheapest,
        Self::EveryPath,
        Self::Backup,
        Self::EarliestArrival,
        Self::SlowIsEarlier,
        Self::FastIsEarlier,
        Self::NoBlocking,
        Self::BlockingEstimate,
        Self::ShortestQueue,
        Self::Burst,
        Self::ControlCopies,
        Self::WaitingCopies,
        Self::ByClass,
        Self::Priority,
        Self::Patience,
        Self::Own,
        Self::PeerWindow,
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
            Self::EarliestArrival => "earliest arrival",
            Self::SlowIsEarlier => "slower path arrives earlier",
            Self::FastIsEarlier => "faster path arrives earlier",
            Self::NoBlocking => "no blocking expected",
            Self::BlockingEstimate => "blocking expected",
            Self::ShortestQueue => "shortest queue",
            Self::Burst => "burst goes on",
            Self::ControlCopies => "control copies",
            Self::WaitingCopies => "copies that wait",
            Self::ByClass => "path of the class",
            Self::Priority => "highest priority",
            Self::Patience => "fastest path full",
            Self::Own => "own algorithm",
            Self::PeerWindow => "peer's window",
            Self::WindowFull => "window full",
            Self::NoPath => "no path",
        }
    }
}

/// A scheduler's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Send on these paths. On a path without room the copy waits for room, and is dropped if the
    /// peer has the data by then; over MP-DCCP, which never learns of that, it is left out while
    /// another path has room, but for [`Reason::WaitingCopies`].
    Send(PathSet, Reason),
    /// Send nothing. Asked again when an acknowledgement arrives or a path changes, and at the
    /// instant given, if one is.
    Wait {
        /// Why.
        reason: Reason,
        /// The path that is worth waiting for, if it is one in particular.
        path: Option<PathId>,
        /// When to ask again at the latest.
        until: Option<Instant>,
    },
}

impl Choice {
    /// Send nothing for `reason` until something changes.
    pub const fn wait(reason: Reason) -> Self {
        Self::Wait { reason, path: None, until: None }
    }

    /// Send nothing because `path` is worth waiting for.
    pub const fn wait_for(path: PathId, reason: Reason) -> Self {
        Self::Wait { reason, path: Some(path), until: None }
    }
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

/// Makes schedulers of a kind that the driver brings along.
pub trait Factory: Debug + Send + Sync {
    /// A fresh instance.
    fn build(&self) -> Box<dyn Scheduler>;
}

/// The usable paths that `unit` may take: regular ones, or the backup paths if there is no regular
/// one.
pub fn candidates(paths: &[PathView]) -> impl Iterator<Item = &PathView> + Clone {
    let regular = paths.iter().any(|path| path.usable && !path.backup);
    paths.iter().filter(move |path| path.usable && path.backup != regular)
}

/// Those of `open` that have not carried `unit` yet; all of them once each has, since then the round
/// of MPTCP's path mask starts over. A path without room is kept: it may be worth waiting for.
pub fn untried<'a, Open>(unit: &Unit, open: Open) -> impl Iterator<Item = &'a PathView> + Clone
where
    Open: Iterator<Item = &'a PathView> + Clone,
{
    let carried_by = unit.carried_by;
    let some_left = open.clone().any(|path| !carried_by.contains(path.id));
    open.filter(move |path| !some_left || !carried_by.contains(path.id))
}

/// The path of the lowest smoothed round-trip time; the first of several. A path without a sample
/// comes last: nothing speaks for it yet.
pub fn fastest<'a>(paths: impl Iterator<Item = &'a PathView>) -> Option<&'a PathView> {
    paths.min_by_key(|path| path.srtt.unwrap_or(Duration::MAX))
}

/// A full fast path and a slower one that has room: what BLEST and ECF weigh.
#[derive(Clone, Copy, Debug)]
pub struct FastOrSlow<'a> {
    /// The path of the lowest round-trip time of all. It has no room.
    pub fast: &'a PathView,
    /// The path of the lowest round-trip time among those with room.
    pub slow: &'a PathView,
    /// Of the fast path, above zero.
    pub fast_rtt: Duration,
    /// Of the slow path, longer than that of the fast one.
    pub slow_rtt: Duration,
}

impl<'a> FastOrSlow<'a> {
    /// The paths to weigh for `unit`.
    ///
    /// # Errors
    /// The answer, where there is nothing to weigh: the fastest path has room, or no path has, or
    /// the round-trip times do not differ or are not known.
    pub fn of(unit: &Unit, paths: &'a [PathView]) -> Result<Self, Choice> {
        let open = untried(unit, candidates(paths));
        let free = fastest(open.clone().filter(|path| path.has_room));
        let lowest_rtt = send_on(free, Reason::LowestRtt, paths);
        let (Some(fast), Some(slow)) = (fastest(open), free) else { return Err(lowest_rtt) };
        match (fast.srtt, slow.srtt) {
            (Some(fast_rtt), Some(slow_rtt)) if fast_rtt.is_positive() && fast_rtt < slow_rtt => {
                Ok(Self { fast, slow, fast_rtt, slow_rtt })
            }
            _ => Err(lowest_rtt),
        }
    }
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
    Choice::wait(reason)
}

algorithms! {
    /// A scheduler and its parameters.
    SchedulerConfig, "scheduler",
    fn build(self) (&self) -> Box<dyn Scheduler> => (),
    custom dyn Factory, absent single::Config::default(),
    {
        Single => single,
        RoundRobin => round_robin,
        LowRtt => low_rtt,
        CheapestPath => cheapest_path,
        Redundant => redundant,
        LowRttWait => low_rtt_wait,
        Blest => blest,
        Ecf => ecf,
        Otias => otias,
        LinuxUpstream => linux_upstream,
        Mutran => mutran,
        ByClass => by_class,
        AdaptiveCheapestPath => adaptive_cheapest_path,
        Handover => handover,
        SpareFastest => spare_fastest,
    }
}

impl SchedulerConfig {
    /// The parameters that name paths by their position, with their keys; each must exist.
    pub fn positions(&self) -> Vec<(&'static str, u8)> {
        match self {
            Self::Single(config) => vec![("path", config.path)],
            Self::ByClass(config) => vec![("control", config.control), ("data", config.data)],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

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
                min_rtt: Some(Duration::from_millis(*ms)),
                window: Bytes::new(14_000),
                threshold: Bytes::new(14_000),
                pacing: None,
                in_flight: Bytes::ZERO,
                queued: Bytes::ZERO,
                segment: Bytes::new(1400),
                cost: 1,
                backup: false,
                priority: 3,
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
        window: Bytes::new(u64::MAX),
        blocked: 0,
    };

    /// The paths that `scheduler` takes for one segment of new data, `None` if it waits.
    pub fn chosen(scheduler: &mut dyn Scheduler, paths: &[PathView]) -> Option<Vec<u8>> {
        match scheduler.choose(Instant::ZERO, &UNIT, paths) {
            Choice::Send(set, _) => Some(set.iter().map(|path| path.0).collect()),
            Choice::Wait { .. } => None,
        }
    }
}
