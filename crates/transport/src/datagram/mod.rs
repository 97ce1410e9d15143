//! Unreliable datagrams over one or several paths.
//!
//! There is no congestion control and no retransmission. A message larger than a datagram is split;
//! it has arrived when all its parts have. Where the scheduler needs round-trip times, the receiver
//! reports on each path what it sees, and idle paths are probed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant};

use crate::endpoint::{Decision, Transmit};
use crate::rtt::{RtoRule, RttEstimator};
use crate::scheduler::{Choice, Reason, Scheduler, Unit};
use crate::segment::{Body, Datagram, IPV4_HEADER, Report, Segment, UDP_HEADER};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, PathView, TransportConfig};

mod duplicates;
mod inbox;
mod outbox;
pub use inbox::Inbox;
pub use outbox::Outbox;

/// Bytes of a report's payload: sequence, two timestamps, count.
const REPORT_PAYLOAD: u32 = 28;
/// A path is taken for failed when this many reports in a row are missing.
const MISSING_REPORTS: i64 = 3;

/// One end of a datagram flow.
#[derive(Debug)]
pub struct Datagrams {
    scheduler: Box<dyn Scheduler>,
    paths: Vec<Path>,
    reports: bool,
    report_every: Duration,
    outbox: Outbox,
    /// A datagram whose copies are leaving, and the paths that still lack one.
    leaving: Option<(Datagram, PathSet)>,
    inbox: Inbox,
    /// The reordering engine reads one-way latencies.
    learns: bool,
    /// When to ask a scheduler again that waits.
    wait_until: Instant,
    views: Vec<PathView>,
    decisions: Option<Vec<Decision>>,
}

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
    /// The driver has not said otherwise.
    allowed: bool,
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
        let inbox = Inbox::new(config);
        Self {
            reports: scheduler.needs_rtt() && paths.len() > 1,
            scheduler,
            paths: paths
                .iter()
                .map(|_| Path {
                    allowed: true,
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
            report_every: config.report_every,
            outbox: Outbox::new(wanted),
            leaving: None,
            learns: inbox.wants_rtt().is_some(),
            inbox,
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
        self.outbox.write(message);
    }

    /// Bytes written and not yet sent.
    pub fn unsent(&self) -> Bytes {
        self.outbox.unsent()
    }

    /// The numbers of the messages of which a part waits to be sent.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.outbox.waiting()
    }

    /// Whether `path` may carry messages; all may until told otherwise.
    pub fn set_usable(&mut self, path: PathId, usable: bool) {
        if let Some(state) = self.paths.get_mut(path.index()) {
            state.allowed = usable;
        }
        if let Some(view) = self.views.get_mut(path.index()) {
            view.usable = usable;
        }
    }

    /// The next message that has arrived whole.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.inbox.poll_delivered()
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
        if self.learns {
            // Clocks that differ shift all paths alike, and only differences between paths count.
            self.inbox.learn(path, now.since(sent_at));
        }
        self.inbox.receive(now, path, datagram);
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
        let (message, datagram) = self.outbox.peek()?;
        let paths = self.choose(now, &message, datagram.len)?;
        self.outbox.advance();
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
            stream: 0,
            tail: false,
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
            } else if now.since(state.last_sent) >= self.report_every && !self.outbox.is_empty() {
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
            let segment = Segment {
                size,
                sent_at: now,
                first_message: 0,
                messages: 0,
                stream: 0,
                tail: false,
                body,
            };
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
            backlog: self.outbox.unsent() - Bytes::new(u64::from(len)),
            window_room: Bytes::new(u64::MAX),
            window: Bytes::new(u64::MAX),
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
            let answers = path.unanswered_since.is_none_or(|since| {
                now.since(since) <= patience + path.rtt.srtt().unwrap_or(patience)
            });
            view.usable = path.allowed && answers;
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
        self.wait_until.min(self.inbox.next_wakeup())
    }

    /// Lets waits end.
    pub fn wake(&mut self, now: Instant) {
        self.inbox.wake(now);
    }
}
