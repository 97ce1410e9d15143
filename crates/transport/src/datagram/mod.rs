//! Unreliable datagrams over one or several paths.
//!
//! There is no congestion control and no retransmission. A message larger than a datagram is split;
//! it has arrived when all its parts have. Where the scheduler needs round-trip times, the receiver
//! reports on each path what it sees, and idle paths are probed.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant};

use crate::endpoint::{Decision, Transmit};
use crate::reordering::{Reorderer, ReorderingConfig};
use crate::rtt::{RtoRule, RttEstimator};
use crate::scheduler::{Choice, Reason, Scheduler, Unit};
use crate::segment::{Body, Datagram, IPV4_HEADER, Report, Segment, UDP_HEADER};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, PathView, TransportConfig};

mod duplicates;
use duplicates::Duplicates;

/// Bytes of a report's payload: sequence, two timestamps, count.
const REPORT_PAYLOAD: u32 = 28;
/// A path is taken for failed when this many reports in a row are missing.
const MISSING_REPORTS: i64 = 3;

/// One end of a datagram flow.
#[derive(Debug)]
pub struct Datagrams {
    scheduler: Box<dyn Scheduler>,
    paths: Vec<Path>,
    payload: u32,
    reports: bool,
    report_every: Duration,
    queue: VecDeque<Message>,
    unsent: u64,
    fragment: u16,
    sequence: u64,
    /// A datagram whose copies are leaving, and the paths that still lack one.
    leaving: Option<(Datagram, PathSet)>,
    duplicates: Duplicates,
    partial: VecDeque<Partial>,
    reorderer: Option<Reorderer>,
    delivered: VecDeque<Delivered>,
    /// When to ask a scheduler again that waits.
    wait_until: Instant,
    views: Vec<PathView>,
    decisions: Option<Vec<Decision>>,
}

/// A message of which some parts have arrived.
#[derive(Clone, Copy, Debug)]
struct Partial {
    message: u32,
    missing: u16,
}

/// Messages that may be incomplete at the same time; the oldest is given up beyond that.
const PARTIAL_MESSAGES: usize = 256;

/// A path of which nothing has been measured.
fn view(index: usize, info: &PathInfo, payload: u32) -> PathView {
    PathView {
        id: PathId(index as u8),
        usable: true,
        has_room: true,
        srtt: None,
        rtt_deviation: Duration::ZERO,
        min_rtt: None,
        window: Bytes::new(u64::MAX),
        threshold: Bytes::new(u64::MAX),
        pacing: None,
        in_flight: Bytes::ZERO,
        queued: Bytes::ZERO,
        segment: Bytes::new(u64::from(payload)),
        cost: info.cost,
        backup: info.backup,
        priority: info.priority,
    }
}

#[derive(Debug)]
struct Path {
    rtt: RttEstimator,
    last_sent: Instant,
    /// When the oldest datagram was sent that no report has answered.
    unanswered_since: Option<Instant>,
    /// Receiver: datagrams so far, and when the last report left.
    received: u64,
    reported: Option<Instant>,
    report: Option<Report>,
}

impl Datagrams {
    /// One end of a flow over `paths` (at most 64; more are ignored).
    pub fn new(config: &TransportConfig, paths: &[PathInfo]) -> Self {
        let paths = paths.get(..paths.len().min(PathSet::CAPACITY)).unwrap_or(paths);
        let mtu = paths.iter().map(|path| path.mtu.get()).min().unwrap_or(1500);
        let room = u32::try_from(mtu).unwrap_or(u32::MAX).saturating_sub(IPV4_HEADER + UDP_HEADER);
        let scheduler = config.scheduler.build();
        let wanted = config.segment.map_or(room, |size| size.get().min(u64::from(room)) as u32);
        Self {
            reports: scheduler.needs_rtt() && paths.len() > 1,
            scheduler,
            paths: paths
                .iter()
                .map(|_| Path {
                    rtt: RttEstimator::new(
                        RtoRule::Linux,
                        Duration::from_millis(200),
                        Duration::from_secs(120),
                    ),
                    last_sent: Instant::ZERO - config.report_every,
                    unanswered_since: None,
                    received: 0,
                    reported: None,
                    report: None,
                })
                .collect(),
            payload: wanted.max(1),
            report_every: config.report_every,
            queue: VecDeque::new(),
            unsent: 0,
            fragment: 0,
            sequence: 0,
            leaving: None,
            duplicates: Duplicates::default(),
            partial: VecDeque::new(),
            reorderer: match config.reordering {
                ReorderingConfig::None => None,
                ReorderingConfig::Fixed(limit) => Some(Reorderer::new(limit)),
            },
            delivered: VecDeque::new(),
            wait_until: Instant::FAR_FUTURE,
            views: paths
                .iter()
                .enumerate()
                .map(|(index, info)| view(index, info, wanted))
                .collect(),
            decisions: None,
        }
    }

    /// Keeps scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        self.decisions = Some(Vec::new());
    }

    /// The scheduling decisions since the last call.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.iter_mut().flat_map(|decisions| decisions.drain(..))
    }

    /// Writes a message. It leaves with the next calls of [`poll_send`](Self::poll_send).
    pub fn write(&mut self, _now: Instant, message: Message) {
        self.unsent += u64::from(message.bytes.max(1));
        self.queue.push_back(message);
    }

    /// Bytes written and not yet sent.
    pub fn unsent(&self) -> Bytes {
        Bytes::new(self.unsent)
    }

    /// The next message that has arrived whole.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.delivered.pop_front()
    }

    /// Takes a datagram that arrived on `path`.
    pub fn receive(&mut self, now: Instant, path: PathId, sent_at: Instant, datagram: &Datagram) {
        let Some(state) = self.paths.get_mut(path.index()) else {
            return;
        };
        state.received += 1;
        let due = state.reported.is_none_or(|last| now.since(last) >= self.report_every);
        if self.reports && due {
            state.reported = Some(now);
            state.report = Some(Report { echo: sent_at, arrived: now, received: state.received });
        }
        if datagram.fragments == 0 || !self.duplicates.is_new(datagram.sequence) {
            return;
        }
        if datagram.fragments == 1 || self.completes(datagram) {
            self.hand_over(now, Delivered { id: datagram.message, path });
        }
    }

    fn completes(&mut self, datagram: &Datagram) -> bool {
        let known = self.partial.iter().position(|part| part.message == datagram.message);
        let Some(index) = known else {
            if self.partial.len() >= PARTIAL_MESSAGES {
                self.partial.pop_front();
            }
            self.partial
                .push_back(Partial { message: datagram.message, missing: datagram.fragments - 1 });
            return false;
        };
        let Some(part) = self.partial.get_mut(index) else {
            return false;
        };
        part.missing -= 1;
        let complete = part.missing == 0;
        if complete {
            self.partial.remove(index);
        }
        complete
    }

    fn hand_over(&mut self, now: Instant, message: Delivered) {
        let delivered = &mut self.delivered;
        match &mut self.reorderer {
            None => delivered.push_back(message),
            Some(reorderer) => {
                reorderer.insert(now, message, &mut |message| delivered.push_back(message));
            }
        }
    }

    /// Takes the peer's report on what arrived on `path`.
    pub fn receive_report(&mut self, now: Instant, path: PathId, report: &Report) {
        let Some(state) = self.paths.get_mut(path.index()) else {
            return;
        };
        state.rtt.sample(now.since(report.echo), true);
        state.unanswered_since = None;
    }

    /// The next datagram to leave.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        if let Some((datagram, waiting)) = self.leaving {
            return self.leave(now, datagram, waiting);
        }
        if let Some(transmit) = self.poll_reports(now) {
            return Some(transmit);
        }
        let message = *self.queue.front()?;
        let size = message.bytes.max(1);
        let fragments = if size <= self.payload {
            1
        } else {
            size.div_ceil(self.payload).min(u32::from(u16::MAX)) as u16
        };
        let len = self.payload.min(size - self.payload * u32::from(self.fragment));
        let paths = self.choose(now, &message, len)?;
        let last = self.fragment + 1 == fragments;
        let datagram = Datagram {
            sequence: self.sequence,
            message: message.id,
            len,
            fragment: self.fragment,
            fragments,
        };
        self.sequence += 1;
        self.fragment += 1;
        if last {
            self.fragment = 0;
            self.queue.pop_front();
            self.unsent -= u64::from(size);
        }
        self.leave(now, datagram, paths)
    }

    /// Sends a copy on the first of `paths`; the others follow with the next calls.
    fn leave(&mut self, now: Instant, datagram: Datagram, paths: PathSet) -> Option<Transmit> {
        let path = paths.first()?;
        let rest = paths.without(path);
        self.leaving = (!rest.is_empty()).then_some((datagram, rest));
        if self.reports
            && let Some(state) = self.paths.get_mut(path.index())
        {
            state.last_sent = now;
            state.unanswered_since.get_or_insert(now);
        }
        let segment = Segment {
            size: IPV4_HEADER + UDP_HEADER + datagram.len,
            sent_at: now,
            first_message: datagram.message,
            messages: u16::from(datagram.fragment + 1 == datagram.fragments),
            body: Body::Datagram(datagram),
        };
        Some(Transmit { path, segment })
    }

    fn poll_reports(&mut self, now: Instant) -> Option<Transmit> {
        if !self.reports {
            return None;
        }
        for (index, state) in self.paths.iter_mut().enumerate() {
            let path = PathId(index as u8);
            let body = if let Some(report) = state.report.take() {
                Body::Report(report)
            } else if now.since(state.last_sent) >= self.report_every && !self.queue.is_empty() {
                state.last_sent = now;
                state.unanswered_since.get_or_insert(now);
                Body::Datagram(Datagram {
                    sequence: 0,
                    message: 0,
                    len: 0,
                    fragment: 0,
                    fragments: 0,
                })
            } else {
                continue;
            };
            let size = IPV4_HEADER + UDP_HEADER + REPORT_PAYLOAD;
            let segment = Segment { size, sent_at: now, first_message: 0, messages: 0, body };
            return Some(Transmit { path, segment });
        }
        None
    }

    fn choose(&mut self, now: Instant, message: &Message, len: u32) -> Option<PathSet> {
        if let [_] = self.paths.as_slice() {
            let only = PathSet::only(PathId(0));
            return self.follow(now, message.id, Choice::Send(only, Reason::OnlyPath));
        }
        if self.reports {
            self.refresh_views(now);
        }
        let unit = Unit {
            bytes: Bytes::new(u64::from(len)),
            class: message.class,
            deadline: message.deadline,
            carried_by: PathSet::EMPTY,
            backlog: Bytes::new(self.unsent.saturating_sub(u64::from(len))),
            window_room: Bytes::new(u64::MAX),
            blocked: 0,
        };
        self.wait_until = Instant::FAR_FUTURE;
        let choice = self.scheduler.choose(now, &unit, &self.views);
        self.follow(now, message.id, choice)
    }

    /// Notes a decision and gives the paths to send on, if any.
    fn follow(&mut self, now: Instant, first_message: u32, choice: Choice) -> Option<PathSet> {
        if let Some(decisions) = &mut self.decisions {
            decisions.push(Decision { at: now, first_message, choice });
        }
        match choice {
            Choice::Send(paths, _) => (!paths.is_empty()).then_some(paths),
            Choice::Wait { until, .. } => {
                self.wait_until = until.unwrap_or(Instant::FAR_FUTURE);
                None
            }
        }
    }

    /// Brings the views up to what reports have told. Without reports nothing ever changes.
    fn refresh_views(&mut self, now: Instant) {
        let patience = self.report_every * MISSING_REPORTS;
        for (view, path) in self.views.iter_mut().zip(&self.paths) {
            view.usable = path.unanswered_since.is_none_or(|since| {
                now.since(since) <= patience + path.rtt.srtt().unwrap_or(patience)
            });
            view.srtt = path.rtt.srtt();
            view.rtt_deviation = path.rtt.deviation();
            view.min_rtt = path.rtt.least();
        }
        if self.views.iter().all(|view| !view.usable) {
            // With every path silent there is nothing to lose by trying them all.
            self.views.iter_mut().for_each(|view| view.usable = true);
        }
    }

    /// When to call [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        let released = self.reorderer.as_ref().and_then(Reorderer::next_wakeup);
        self.wait_until.min(released.unwrap_or(Instant::FAR_FUTURE))
    }

    /// Lets waits end.
    pub fn wake(&mut self, now: Instant) {
        let delivered = &mut self.delivered;
        if let Some(reorderer) = &mut self.reorderer {
            reorderer.poll(now, &mut |message| delivered.push_back(message));
        }
    }
}
