//! Packet schedulers: on which paths to send the next unit, or whether to wait.
//!
//! A scheduler returns a set of paths, so that duplication needs no special case, or
//! [`Choice::Wait`], so that it may hold data back for a better path.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;

use skybraid_units::{Bytes, Duration, Instant, named};

use crate::registry::algorithms;
use crate::{Class, PathId, PathSet, PathView};

pub mod adaptive_cheapest_path;
mod arrivals;
pub mod blest;
pub mod budget;
pub mod by_class;
pub mod cheapest_path;
pub mod coded;
mod copies;
pub mod deadline;
pub mod early_warning;
pub mod ecf;
pub mod forecast;
pub mod handover;
pub mod hedge;
pub mod linux_upstream;
pub mod low_rtt;
pub mod low_rtt_wait;
pub mod mutran;
mod odds;
pub mod otias;
mod plan;
mod ranking;
pub mod redundant;
pub mod round_robin;
pub mod rounds;
mod route;
pub mod single;
pub mod spare_fastest;
pub mod streaming;
mod warning;

/// Data to be scheduled: one segment of a stream, or one datagram.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Payload bytes.
    pub bytes: Bytes,
    /// Class of the message that the unit begins with.
    pub class: Class,
    /// Deadline of that message.
    pub deadline: Option<Instant>,
    /// Paths that have carried the unit before; empty for new data.
    pub carried_by: PathSet,
    /// Bytes queued after the unit that are assigned to no path yet.
    pub backlog: Bytes,
    /// Free part of the peer's receive window, this unit included; the maximum size without flow
    /// control.
    pub window_room: Bytes,
    /// Size of the peer's receive window, from its oldest missing byte; the maximum size without
    /// flow control.
    pub window: Bytes,
    /// Number of times that the peer's window began to block data although a path had room.
    pub blocked: u64,
}

/// Datagrams that a repair packet is to recover together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All that are in flight on the path of an overdue one.
    Runs,
    /// Those of one frame: written together, with one deadline.
    Frames,
}

/// A run of datagrams that a scheduler may repair.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Sequence numbers of the first and the last.
    pub span: (u64, u64),
    /// Number of datagrams in the run that are not acknowledged.
    pub missing: u32,
    /// Bytes of the largest.
    pub bytes: Bytes,
    /// Time of the first copies.
    pub first_sent: Instant,
    /// Earliest deadline of their messages.
    pub deadline: Option<Instant>,
    /// Paths that have carried them.
    pub carried_by: PathSet,
    /// True right after the first copies have left, before any acknowledgement.
    pub fresh: bool,
}

impl Run {
    /// Returns the run of one datagram.
    pub const fn of(sequence: u64, unit: &Unit, first_sent: Instant, fresh: bool) -> Self {
        let Unit { bytes, deadline, carried_by, .. } = *unit;
        let span = (sequence, sequence);
        Self { span, missing: 1, bytes, first_sent, deadline, carried_by, fresh }
    }

    /// Adds a later datagram.
    pub fn push(&mut self, later: &Self) {
        self.span.1 = later.span.1;
        self.missing += later.missing;
        self.bytes = self.bytes.max(later.bytes);
        self.deadline = self.deadline.into_iter().chain(later.deadline).min();
        self.carried_by = self.carried_by.iter().chain(later.carried_by.iter()).collect();
    }
}

/// Repair packets to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Sequence number of the first datagram covered, if not that of the run.
    pub first: Option<u64>,
    /// Path of each repair packet.
    pub paths: Vec<PathId>,
}

named! {
    /// Reason for a scheduler's choice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Reason {
        /// The only path to choose from.
        OnlyPath = "only path",
        /// The lowest round-trip time among the paths with room.
        LowestRtt = "lowest RTT",
        /// Next path in turn.
        Turn = "next in turn",
        /// The lowest cost among the paths with room.
        Cheapest = "cheapest",
        /// One copy per path.
        EveryPath = "every path",
        /// Backup path: no regular path is usable.
        Backup = "backup",
        /// The path with the earliest expected arrival, queueing included.
        EarliestArrival = "earliest arrival",
        /// The fast path is full, and the unit arrives earlier on this slower one.
        SlowIsEarlier = "slower path arrives earlier",
        /// The fast path is full, and the unit arrives earlier by waiting for it.
        FastIsEarlier = "faster path arrives earlier",
        /// A slower path: its data is not expected to block the receive window.
        NoBlocking = "no blocking expected",
        /// The slower path stays idle: its data is expected to block the receive window.
        BlockingEstimate = "blocking expected",
        /// The path whose queue empties first.
        ShortestQueue = "shortest queue",
        /// Continues a burst on its path.
        Burst = "burst goes on",
        /// Copies of a control message on every path.
        ControlCopies = "control copies",
        /// Copies of a control message on every path, including those without room.
        WaitingCopies = "copies that wait",
        /// The path reserved for the message's class.
        ByClass = "path of the class",
        /// The highest priority among the paths with room.
        Priority = "highest priority",
        /// The fastest path is full, and the scheduler waits for it instead of using a slower one.
        Patience = "fastest path full",
        /// A further copy of a unit that was not acknowledged in time.
        Hedge = "hedge",
        /// Copies on several paths, since one alone might miss the deadline.
        Risk = "risk of a miss",
        /// Choice of a custom algorithm.
        Own = "own algorithm",
        /// The peer's receive window is full.
        PeerWindow = "peer's window",
        /// No usable path has room in its window.
        WindowFull = "window full",
        /// No path is usable.
        NoPath = "no path",
    }
}

/// Choice of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Send on these paths. On a path without room, the copy waits and is dropped if the peer has
    /// received the data by then. MP-DCCP never learns that, so it omits the copy while another
    /// path has room, except for [`Reason::WaitingCopies`].
    Send(PathSet, Reason),
    /// Send nothing. The scheduler is called again when an acknowledgement arrives, when a path
    /// changes, and at `until`.
    Wait {
        /// Reason for waiting.
        reason: Reason,
        /// Path to wait for, if it is a particular one.
        path: Option<PathId>,
        /// Instant of the next call at the latest.
        until: Option<Instant>,
    },
}

impl Choice {
    /// Returns the choice to wait for `reason` until something changes.
    pub const fn wait(reason: Reason) -> Self {
        Self::Wait { reason, path: None, until: None }
    }

    /// Returns the choice to wait for `path`.
    pub const fn wait_for(path: PathId, reason: Reason) -> Self {
        Self::Wait { reason, path: Some(path), until: None }
    }
}

/// A packet scheduler. One instance serves one direction of one connection.
pub trait Scheduler: Debug + Send {
    /// Chooses where to send `unit`. `paths` holds every path of the connection in numeric order.
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice;

    /// True if the scheduler reads `srtt`, so that a transport without acknowledgements must
    /// measure it.
    fn needs_rtt(&self) -> bool {
        self.ack_delay().is_some()
    }

    /// True if the scheduler waits without a time limit while no path has room, and learns nothing from being asked
    /// then, so that it need not be.
    fn waits_for_room(&self) -> bool {
        false
    }

    /// Way in which the subflows of an MPTCP connection go through its send queue, each at its own pace; `None` if
    /// [`choose`](Self::choose) decides about each unit. Retransmissions are always chosen.
    fn walk(&self) -> Option<redundant::Walk> {
        None
    }

    /// Maximum time for which the receiver may hold an acknowledgement, if the scheduler needs one
    /// for each datagram. Only datagrams, with or without congestion control, call the methods below.
    fn ack_delay(&self) -> Option<Duration> {
        None
    }

    /// True if the scheduler judges paths without acknowledgements itself. Then they stay usable: what fails may be
    /// the way back alone.
    fn judges_silence(&self) -> bool {
        false
    }

    /// Records that a copy of a datagram, or a probe, left on `path`.
    fn on_sent(&mut self, _now: Instant, _path: PathId) {}

    /// Records that the packet sent on `path` at `sent` has arrived after `delay`, the estimated time one way;
    /// `None` if it is lost.
    fn on_settled(
        &mut self,
        _now: Instant,
        _path: PathId,
        _sent: Instant,
        _delay: Option<Duration>,
    ) {
    }

    /// Returns when [`hedge`](Self::hedge) is to be called for `unit`, first sent at `first_sent`,
    /// unless it is acknowledged by then. Called after each copy.
    fn hedge_at(
        &mut self,
        _now: Instant,
        _unit: &Unit,
        _first_sent: Instant,
        _paths: &[PathView],
    ) -> Option<Instant> {
        None
    }

    /// Chooses paths for further copies of a unit that is not acknowledged; may be none.
    fn hedge(
        &mut self,
        _now: Instant,
        _unit: &Unit,
        _first_sent: Instant,
        _paths: &[PathView],
    ) -> PathSet {
        PathSet::EMPTY
    }

    /// Chooses paths for further copies of a unit that is in flight while another was offered to
    /// [`hedge`](Self::hedge): the same trouble may hold both up. May be none. With [`Grouping::Runs`], a unit
    /// with a path joins the run.
    fn hedge_early(
        &mut self,
        _now: Instant,
        _unit: &Unit,
        _first_sent: Instant,
        _paths: &[PathView],
    ) -> PathSet {
        PathSet::EMPTY
    }

    /// Datagrams that the scheduler repairs together, if it sends repair packets in place of further
    /// copies. Then [`repair`](Self::repair) is called in place of [`hedge`](Self::hedge).
    fn grouping(&self) -> Option<Grouping> {
        None
    }

    /// Returns the share of the messages that is expected in time, if the scheduler estimates it.
    fn forecast(&self) -> Option<forecast::Forecast> {
        None
    }

    /// Chooses repair packets for a run; may be none. Called for each frame once its first copies have
    /// left, and for what is not acknowledged at [`hedge_at`](Self::hedge_at).
    fn repair(&mut self, _now: Instant, _run: &Run, _paths: &[PathView]) -> Repairs {
        Repairs::default()
    }
}

/// Factory of a custom scheduler.
pub trait Factory: Debug + Send + Sync {
    /// Builds a new instance.
    fn build(&self) -> Box<dyn Scheduler>;
}

/// Returns the usable paths for `unit`: the regular ones, or the backup paths if no regular one is
/// usable.
pub fn candidates(paths: &[PathView]) -> impl Iterator<Item = &PathView> + Clone {
    let regular = paths.iter().any(|path| path.usable && !path.backup);
    paths.iter().filter(move |path| path.usable && path.backup != regular)
}

/// Returns the paths of `open` that have not carried `unit` yet, with or without room; all of
/// `open` once each has carried it (a new round of MPTCP's path mask).
pub fn untried<'a, Open>(unit: &Unit, open: Open) -> impl Iterator<Item = &'a PathView> + Clone
where
    Open: Iterator<Item = &'a PathView> + Clone,
{
    let carried_by = unit.carried_by;
    let some_left = carried_by.is_empty() || open.clone().any(|path| !carried_by.contains(path.id));
    open.filter(move |path| !some_left || !carried_by.contains(path.id))
}

/// Returns the path with the lowest smoothed round-trip time; the first of equals. Paths without a
/// sample come last.
pub fn fastest<'a>(paths: impl Iterator<Item = &'a PathView>) -> Option<&'a PathView> {
    paths.min_by_key(|path| path.srtt.unwrap_or(Duration::MAX))
}

/// A full fast path and a slower path with room: the alternatives of BLEST and ECF.
#[derive(Clone, Copy, Debug)]
pub struct FastOrSlow<'a> {
    /// Path with the lowest round-trip time of all. It has no room.
    pub fast: &'a PathView,
    /// Path with the lowest round-trip time among those with room.
    pub slow: &'a PathView,
    /// Round-trip time of the fast path, above zero.
    pub fast_rtt: Duration,
    /// Round-trip time of the slow path, above that of the fast path.
    pub slow_rtt: Duration,
}

impl<'a> FastOrSlow<'a> {
    /// Returns the two paths to compare for `unit`.
    ///
    /// # Errors
    /// Returns the choice if there is nothing to compare: the fastest path has room, no path has, or
    /// the round-trip times are equal or unknown.
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

/// Returns the choice to send on `best` for `reason`, or to wait if there is none.
pub fn send_on(best: Option<&PathView>, reason: Reason, paths: &[PathView]) -> Choice {
    match best {
        Some(path) => {
            let reason = if path.backup { Reason::Backup } else { reason };
            Choice::Send(PathSet::only(path.id), reason)
        }
        None => wait_for_room(paths),
    }
}

/// Returns the choice to wait, with the reason that no path could be used.
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
        Hedge => hedge,
        EarlyWarning => early_warning,
        Deadline => deadline,
        Budget => budget,
        Coded => coded,
        Rounds => rounds,
        Streaming => streaming,
    }
}

impl SchedulerConfig {
    /// Returns the parameters that are positions of paths, with their keys. Each path must exist.
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

    /// Returns an instant in milliseconds.
    pub const fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Returns a duration in milliseconds.
    pub const fn ms(millis: i64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns usable paths with room and these round-trip times in milliseconds.
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

    /// One segment of new data, the last of the queue.
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

    /// Returns the paths chosen for one segment of new data; `None` if the scheduler waits.
    pub fn chosen(scheduler: &mut dyn Scheduler, paths: &[PathView]) -> Option<Vec<u8>> {
        match scheduler.choose(Instant::ZERO, &UNIT, paths) {
            Choice::Send(set, _) => Some(set.iter().map(|path| path.0).collect()),
            Choice::Wait { .. } => None,
        }
    }
}
