//! Unreliable datagrams over one or several paths.
//!
//! There is no congestion control and no retransmission. A message larger than a datagram is
//! fragmented; it is delivered once all its fragments have arrived. If the scheduler needs
//! round-trip times, the receiver sends a report on each path, and idle paths are probed. If it
//! needs acknowledgements, reports carry them, and it is offered what is not acknowledged again, to
//! be sent once more or to be repaired (`repairs.rs`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant};

use crate::coding::Recovered;
use crate::endpoint::{Decision, Transmit};
use crate::scheduler::forecast::Forecast;
use crate::scheduler::{Choice, Reason, Scheduler, Unit};
use crate::seen::SeenNumbers;
use crate::segment::{
    Body, Datagram, IPV4_HEADER, REPAIR_HEADER, Repair, Report, Segment, UDP_HEADER,
};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, PathView, TransportConfig};
use feedback::Feedback;
use repairs::Coding;

mod acks;
mod feedback;
mod hedges;
mod inbox;
mod outbox;
mod peer_clock;
mod repairs;
pub use hedges::{Copies, Hedges, Pending};
pub use inbox::Inbox;
pub use outbox::Outbox;
pub use peer_clock::PeerClock;

/// Sequence numbers of datagrams; of the newest 65,000 each is known.
type DatagramNumbers = SeenNumbers<1024>;

/// One end of a datagram flow.
#[derive(Debug)]
pub struct Datagrams {
    scheduler: Box<dyn Scheduler>,
    /// Reports about the paths, if the scheduler needs them.
    feedback: Option<Box<Feedback>>,
    /// Whether there are no reports, no order to restore and no recorded decisions, as in most flows.
    is_simple: bool,
    /// State of the code, if the scheduler sends repair packets.
    coding: Option<Box<Coding>>,
    outbox: Outbox,
    /// Datagram that is being duplicated, and the paths that still lack a copy.
    duplicating: Option<(Datagram, PathSet)>,
    inbox: Inbox,
    /// True if the reordering engine needs one-way latencies.
    needs_latency: bool,
    /// Instant of the next call of a scheduler that waits.
    wait_until: Instant,
    /// Number of paths.
    paths: u8,
    /// One per path of several; the only path of a flow needs no choice.
    views: Vec<PathView>,
    decisions: Option<Vec<Decision>>,
}

/// Returns the view of a path without measurements.
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

/// Returns the sequence number of a datagram; a probe has none.
fn sequence_of(datagram: &Datagram) -> Option<u64> {
    (datagram.fragments > 0).then_some(datagram.sequence)
}

/// Returns a packet that carries no part of a message.
const fn without_message(now: Instant, size: u32, body: Body) -> Segment {
    let (first_message, messages, stream, tail) = (0, 0, 0, false);
    Segment { size, sent_at: now, first_message, messages, stream, tail, body }
}

impl Datagrams {
    /// Creates one end of a flow over `paths` (at most 64; more are ignored).
    pub fn new(config: &TransportConfig, paths: &[PathInfo]) -> Self {
        let paths = paths.get(..paths.len().min(PathSet::CAPACITY)).unwrap_or(paths);
        let mtu = paths.iter().map(|path| path.mtu.get()).min().unwrap_or(1500);
        let room = u32::try_from(mtu).unwrap_or(u32::MAX).saturating_sub(IPV4_HEADER + UDP_HEADER);
        let scheduler = config.scheduler.build();
        let ack_delay = scheduler.ack_delay().filter(|_| paths.len() > 1);
        let grouping = scheduler.grouping().filter(|_| ack_delay.is_some());
        let coding = grouping.map(|grouping| Box::new(Coding::new(grouping)));
        let room = if coding.is_some() { room.saturating_sub(REPAIR_HEADER) } else { room };
        let wanted = config.segment.map_or(room, |size| size.get().min(u64::from(room)) as u32);
        let inbox = Inbox::new(config);
        let view = |(index, info)| view(index, info, wanted);
        let reports = (scheduler.needs_rtt() && paths.len() > 1) || ack_delay.is_some();
        let feedback = || Box::new(Feedback::new(paths.len(), config.report_every, ack_delay));
        let seen = if paths.len() > 1 { paths } else { &[] };
        Self {
            is_simple: !reports && !inbox.restores_order(),
            feedback: reports.then(feedback),
            coding,
            scheduler,
            outbox: Outbox::new(wanted),
            duplicating: None,
            needs_latency: inbox.wants_rtt().is_some(),
            inbox,
            wait_until: Instant::FAR_FUTURE,
            paths: paths.len() as u8,
            views: seen.iter().enumerate().map(view).collect(),
            decisions: None,
        }
    }

    /// Starts recording scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        self.is_simple = false;
        self.decisions = Some(Vec::new());
    }

    /// Takes the scheduling decisions since the last call.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.iter_mut().flat_map(|decisions| decisions.drain(..))
    }

    /// Queues a message for [`poll_send`](Self::poll_send).
    #[inline]
    pub fn write(&mut self, _now: Instant, message: Message) {
        self.outbox.write(message);
    }

    /// Share of the messages that the scheduler expects in time.
    pub fn forecast(&self) -> Option<Forecast> {
        self.scheduler.forecast()
    }

    /// True if the scheduler needs reports of the peer and none has come for `time` after a packet.
    pub fn never_answered(&self, now: Instant, time: Duration) -> bool {
        self.feedback.as_ref().is_some_and(|feedback| feedback.never_came(now, time))
    }

    /// Bytes written but not yet sent.
    pub fn unsent(&self) -> Bytes {
        self.outbox.unsent()
    }

    /// Returns the numbers of the messages that are wholly or partly unsent.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.outbox.waiting()
    }

    /// Allows or forbids messages on `path`; all paths are allowed at first.
    pub fn set_usable(&mut self, path: PathId, usable: bool) {
        if let Some(view) = self.views.get_mut(path.index()) {
            view.usable = usable;
        }
        if let Some(feedback) = &mut self.feedback {
            feedback.set_allowed(path, usable);
        }
    }

    /// Returns the next complete message.
    #[inline]
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.inbox.poll_delivered()
    }

    /// Processes a datagram that arrived on `path`. Its `payload` is needed if those that are recovered are
    /// to have one.
    #[inline(never)]
    pub fn receive(
        &mut self,
        now: Instant,
        path: PathId,
        sent_at: Instant,
        datagram: &Datagram,
        payload: &[u8],
    ) {
        if !self.on_arrival(now, path, sent_at, sequence_of(datagram)) {
            return;
        }
        self.inbox.receive(now, path, datagram);
        if datagram.fragments > 0
            && let Some(coding) = &mut self.coding
        {
            coding.decode(|decoder, take| decoder.on_datagram(datagram, payload, take));
            self.deliver_recovered(now, path);
        }
    }

    /// Processes a repair packet that arrived on `path`.
    #[inline(never)]
    pub fn receive_repair(
        &mut self,
        now: Instant,
        path: PathId,
        sent_at: Instant,
        repair: &Repair,
        payload: &[u8],
    ) {
        if self.on_arrival(now, path, sent_at, None)
            && let Some(coding) = &mut self.coding
        {
            coding.decode(|decoder, take| decoder.on_repair(repair, payload, take));
            self.deliver_recovered(now, path);
        }
    }

    /// True if the scheduler sends repair packets.
    pub const fn is_coded(&self) -> bool {
        self.coding.is_some()
    }

    /// Takes a datagram that was recovered with its payload.
    pub fn take_recovered(&mut self) -> Option<Recovered> {
        self.coding.as_mut()?.take_recovered()
    }

    /// Returns a datagram that was sent and may be covered by a repair packet.
    pub fn sent(&self, sequence: u64) -> Option<&Datagram> {
        self.coding.as_ref()?.encoder.sent(sequence)
    }

    /// Processes a datagram at an end that sends nothing because of what it receives; see
    /// [`only_receives`](Self::only_receives). Returns the message that it completes.
    #[inline]
    pub fn receive_only(&mut self, path: PathId, datagram: &Datagram) -> Option<Delivered> {
        if path.0 >= self.paths {
            return None;
        }
        self.inbox.receive_unordered(path, datagram)
    }

    /// Whether a datagram that arrives now causes no timer, no packet and no decision.
    #[inline]
    pub fn only_receives(&self) -> bool {
        self.is_simple && self.outbox.is_empty() && self.duplicating.is_none()
    }

    /// Records the arrival of a datagram, a probe or a repair packet. False if there is no such path.
    fn on_arrival(
        &mut self,
        now: Instant,
        path: PathId,
        sent_at: Instant,
        sequence: Option<u64>,
    ) -> bool {
        if path.0 >= self.paths {
            return false;
        }
        if let Some(feedback) = &mut self.feedback {
            feedback.on_arrival(now, path, sent_at, sequence);
        }
        if self.needs_latency {
            // An offset between the clocks shifts all paths alike, and only differences matter.
            self.inbox.on_latency(path, now.since(sent_at));
        }
        true
    }

    /// Processes the peer's report about `path`, sent at `sent_at` by the peer's clock.
    #[inline(never)]
    pub fn receive_report(
        &mut self,
        now: Instant,
        path: PathId,
        sent_at: Instant,
        report: &Report,
    ) {
        let Some(feedback) = self.feedback.as_mut().filter(|_| path.0 < self.paths) else { return };
        feedback.on_report(now, path, sent_at, report, &mut *self.scheduler);
        if self.coding.is_some()
            && let Some(hedges) = feedback.hedges_mut()
        {
            report.recovered.iter().for_each(|recovered| hedges.on_all_acked(recovered));
        }
    }

    /// Passes all datagrams that can be sent now to `send`.
    #[inline]
    pub fn send_all(&mut self, now: Instant, mut send: impl FnMut(&Transmit)) {
        if !self.is_simple || self.duplicating.is_some() {
            while let Some(transmit) = &self.poll_send(now) {
                send(transmit);
            }
            return;
        }
        while let Some((message, datagram)) = self.outbox.peek() {
            let unit = self.outbox.unit(&message, &datagram);
            let Some(paths) = self.choose(now, message.id, &unit) else { return };
            self.outbox.advance(&datagram);
            let segment = Segment::of_datagram(now, datagram);
            let mut transmit = Transmit { path: PathId(0), segment };
            for path in paths.iter() {
                transmit.path = path;
                send(&transmit);
            }
        }
    }

    /// Returns the next datagram to send.
    #[inline]
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        let idle = self.duplicating.is_none() && self.outbox.is_empty() && self.feedback.is_none();
        if idle { None } else { self.next_transmit(now) }
    }

    fn next_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some((datagram, paths)) = self.duplicating {
            return self.send_copy(now, datagram, paths);
        }
        if let Some(transmit) = self.poll_reports(now) {
            return Some(transmit);
        }
        let hedges = self.feedback.as_ref().and_then(|feedback| feedback.hedges());
        if hedges.is_some_and(|hedges| hedges.next() <= now) {
            self.offer_hedges(now);
        }
        let hedges = self.feedback.as_mut().and_then(|feedback| feedback.hedges_mut());
        let copies = hedges.and_then(Hedges::next_copies);
        if let Some(Copies { datagram, paths, message }) = copies {
            self.follow(now, message, Choice::Send(paths, Reason::Hedge));
            return self.send_copy(now, datagram, paths);
        }
        if let Some((repair, path)) = self.coding.as_mut().and_then(|coding| coding.next_repair()) {
            return Some(self.send_repair(now, repair, path));
        }
        let (message, datagram) = self.outbox.peek()?;
        let unit = self.outbox.unit(&message, &datagram);
        let paths = self.choose(now, message.id, &unit)?;
        self.outbox.advance(&datagram);
        if let Some(hedges) = self.feedback.as_mut().and_then(|feedback| feedback.hedges_mut()) {
            let unit = Unit { carried_by: paths, ..unit };
            let pending = Pending { datagram, unit, first_sent: now, message: message.id };
            hedges.offer_later(now, pending, &mut *self.scheduler, &self.views);
            self.protect(now, &datagram, &unit);
        }
        self.send_copy(now, datagram, paths)
    }

    fn offer_hedges(&mut self, now: Instant) {
        self.refresh_views(now);
        if self.coding.is_some() {
            self.offer_runs(now);
        } else if let Some(feedback) = &mut self.feedback
            && let Some(hedges) = feedback.hedges_mut()
        {
            hedges.offer(now, &mut *self.scheduler, &mut self.views);
        }
    }

    fn send_repair(&mut self, now: Instant, repair: Repair, path: PathId) -> Transmit {
        self.on_sent(now, path, None);
        let size = IPV4_HEADER + UDP_HEADER + REPAIR_HEADER + repair.len;
        Transmit { path, segment: without_message(now, size, Body::Repair(repair)) }
    }

    /// Records that a datagram, a probe or a repair packet leaves on `path`.
    fn on_sent(&mut self, now: Instant, path: PathId, sequence: Option<u64>) {
        if let Some(feedback) = &mut self.feedback {
            feedback.on_sent(now, path, sequence, &mut *self.scheduler);
        }
    }

    /// Sends a copy on the first of `paths`; later calls send the remaining copies.
    fn send_copy(&mut self, now: Instant, datagram: Datagram, paths: PathSet) -> Option<Transmit> {
        let path = paths.first()?;
        let rest = paths.without(path);
        self.duplicating = (!rest.is_empty()).then_some((datagram, rest));
        self.on_sent(now, path, sequence_of(&datagram));
        Some(Transmit { path, segment: Segment::of_datagram(now, datagram) })
    }

    fn poll_reports(&mut self, now: Instant) -> Option<Transmit> {
        let recovered = self.coding.as_ref().and_then(|coding| coding.recovered);
        let waiting = !self.outbox.is_empty();
        self.feedback.as_mut()?.poll(now, recovered, waiting, &mut *self.scheduler)
    }

    #[inline]
    fn choose(&mut self, now: Instant, message: u32, unit: &Unit) -> Option<PathSet> {
        if self.paths == 1 {
            let only = PathSet::only(PathId(0));
            return self.follow(now, message, Choice::Send(only, Reason::OnlyPath));
        }
        self.refresh_views(now);
        self.wait_until = Instant::FAR_FUTURE;
        let choice = self.scheduler.choose(now, unit, &self.views);
        self.follow(now, message, choice)
    }

    /// Records a decision. Returns the paths to send on, if any.
    #[inline]
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

    /// Updates the views from the reports. Without reports they never change.
    #[inline]
    fn refresh_views(&mut self, now: Instant) {
        if let Some(feedback) = &self.feedback {
            feedback.refresh(now, &mut self.views, self.scheduler.judges_silence());
        }
    }

    /// Instant at which [`wake`](Self::wake) must be called.
    #[inline]
    pub fn next_wakeup(&self) -> Instant {
        let next = self.wait_until.min(self.inbox.next_wakeup());
        self.feedback.as_ref().map_or(next, |feedback| next.min(feedback.next_wakeup()))
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        self.inbox.wake(now);
    }
}
