//! One end of a connection: messages in, packets out, over one or several subflows.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Promised};

use super::subflow::{Event, Subflow};
use crate::congestion::{Sibling, Siblings};
use crate::datagram::{Copies, Hedges, Inbox, Outbox, Pending};
use crate::endpoint::{Decision, Role, SubflowSample, Transmit};
use crate::scheduler::forecast::Forecast;
use crate::scheduler::{Choice, Reason, Scheduler, Unit};
use crate::segment::{Body, Dccp, DccpKind, Segment};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, PathView, Protocol, TransportConfig};

/// One end of a DCCP or MP-DCCP connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    subflows: Vec<Subflow>,
    scheduler: Box<dyn Scheduler>,
    /// What may be sent once more, if the scheduler learns from single packets.
    hedges: Option<Box<Hedges>>,
    /// Time after which an idle path is probed for it.
    report_every: Duration,
    outbox: Outbox,
    inbox: Inbox,
    /// Maximum datagrams in the send queue.
    tx_queue: u64,
    drop_expired: bool,
    /// Messages dropped unsent because the queue was full or their deadline had passed.
    refused: Vec<u32>,
    wait_until: Instant,
    views: Vec<PathView>,
    siblings: Vec<Sibling>,
    decisions: Option<Vec<Decision>>,
}

impl Connection {
    /// Creates one end of a connection over `paths` (at least one, at most 64; more are ignored).
    /// The client opens the connection.
    pub fn new(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        let paths = paths.get(..paths.len().min(PathSet::CAPACITY)).unwrap_or(paths);
        let multipath = config.protocol == Protocol::MpDccp;
        let inbox = Inbox::new(config);
        let reported_rtt = inbox.wants_rtt().filter(|_| multipath);
        // All subflows share one size, so that the scheduler may choose freely (RFC 9897).
        let reports_rtt = reported_rtt.is_some();
        let scheduler = config.scheduler.build();
        // Repair packets have no form in DCCP.
        let learns = paths.len() > 1 && scheduler.grouping().is_none();
        let fast_acks = scheduler.ack_delay().filter(|_| learns);
        let tracks = fast_acks.is_some();
        let size_for =
            |path: &PathInfo| Subflow::segment_for(path.mtu, multipath, reports_rtt, tracks);
        let room = u64::from(paths.iter().map(size_for).min().unwrap_or(1));
        let segment = config.segment.map_or(room, Bytes::get).clamp(1, room) as u32;
        let subflow = |(index, info): (usize, &PathInfo)| {
            let id = PathId(index as u8);
            let ack_delay = config.ack_delay.min(fast_acks.unwrap_or(Duration::MAX));
            Subflow::new(config, id, *info, role, segment, reported_rtt, ack_delay)
        };
        let mut subflows: Vec<Subflow> = paths.iter().enumerate().map(subflow).collect();
        if tracks {
            subflows.iter_mut().for_each(Subflow::track);
        }
        if role == Role::Client
            && let Some(first) = subflows.first_mut()
        {
            first.open(false);
        }
        Self {
            role,
            subflows,
            scheduler,
            hedges: tracks.then(Box::default),
            report_every: config.report_every,
            outbox: Outbox::new(segment),
            inbox,
            tx_queue: u64::from(config.tx_queue().max(1)),
            drop_expired: config.drop_expired,
            refused: Vec::new(),
            wait_until: Instant::FAR_FUTURE,
            views: Vec::with_capacity(paths.len()),
            siblings: Vec::new(),
            decisions: None,
        }
    }

    /// Starts recording scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        self.decisions = Some(Vec::new());
    }

    /// Takes the scheduling decisions since the last call.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.iter_mut().flat_map(|decisions| decisions.drain(..))
    }

    /// Queues a message. If it cannot be sent by the next calls of [`poll_send`](Self::poll_send)
    /// and does not fit the queue, it is refused.
    pub fn write(&mut self, message: Message) {
        self.outbox.write(message);
    }

    /// Bytes in the send queue; the maximum size while the queue is full.
    pub fn unsent(&self) -> Bytes {
        if self.outbox.packets() >= self.tx_queue {
            return Bytes::new(u64::MAX);
        }
        self.outbox.unsent()
    }

    /// Returns the numbers of the messages that are wholly or partly unsent.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.outbox.waiting()
    }

    /// True if messages were refused since [`take_refused`](Self::take_refused).
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Takes the numbers of the messages refused since the last call: they will never be delivered.
    pub fn take_refused(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.refused.drain(..)
    }

    /// Allows or forbids new messages on `path`; all paths are allowed at first.
    pub fn set_usable(&mut self, path: PathId, usable: bool) {
        if let Some(subflow) = self.subflows.get_mut(path.index()) {
            subflow.set_allowed(usable);
        }
    }

    /// Processes a measurement of the queue of `path`.
    pub fn on_queue(&mut self, now: Instant, path: PathId, share: Option<f64>) {
        if let Some(subflow) = self.subflows.get_mut(path.index()) {
            subflow.on_queue(now, share);
        }
    }

    /// Time until a datagram written now could leave; zero where no path is usable, since none is paced.
    pub fn pacing_delay(&self) -> Duration {
        let usable = self.subflows.iter().filter(|subflow| subflow.is_usable());
        usable.map(Subflow::pacing_delay).min().unwrap_or_default()
    }

    /// Probes `path` at once if it seemed to have failed.
    pub fn retry(&mut self, now: Instant, path: PathId) {
        if let Some(subflow) = self.subflows.get_mut(path.index()) {
            subflow.retry(now);
        }
    }

    /// Returns the next complete message.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.inbox.poll_delivered()
    }

    /// Share of the messages that the scheduler expects in time.
    pub fn forecast(&self) -> Option<Forecast> {
        self.scheduler.forecast()
    }

    /// Processes a packet that arrived on `path`, sent by the peer at `sent_at` by its clock.
    #[inline(never)]
    pub fn receive(&mut self, now: Instant, path: PathId, sent_at: Instant, dccp: &Dccp) {
        let own = path.index();
        self.refresh_siblings(own);
        let siblings = Siblings { all: &self.siblings, own };
        let Some(subflow) = self.subflows.get_mut(own) else { return };
        let event = subflow.receive(now, sent_at, dccp, siblings);
        // Before the peer reports a round-trip time, that of the handshake is used.
        let rtt = match event {
            Some(Event::Established) => subflow.srtt(),
            _ if dccp.rtt_us > 0 => Some(Duration::from_micros(i64::from(dccp.rtt_us))),
            _ => None,
        };
        if let Some(rtt) = rtt {
            self.inbox.on_latency(path, rtt / 2);
        }
        self.inbox.on_packet(path, dccp.sequence);
        self.inbox.receive(now, path, &dccp.data);
        self.on_event(event);
        self.settle(now, path);
    }

    /// Passes the fates of packets on `path` to the scheduler.
    fn settle(&mut self, now: Instant, path: PathId) {
        if let Some(hedges) = &mut self.hedges
            && let Some(subflow) =
                self.subflows.get_mut(path.index()).promised("a subflow in range")
        {
            for (sent_at, sequence, delay) in subflow.take_fates() {
                self.scheduler.on_settled(now, path, sent_at, delay);
                if let Some(sequence) = sequence.filter(|_| delay.is_some()) {
                    hedges.on_acked(sequence);
                }
            }
        }
    }

    fn refresh_siblings(&mut self, own: usize) {
        if self.subflows.get(own).is_some_and(Subflow::is_coupled) {
            self.siblings.clear();
            self.siblings.extend(self.subflows.iter().map(Subflow::sibling));
        }
    }

    fn on_event(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Established) if self.role == Role::Client => {
                self.subflows.iter_mut().for_each(|subflow| subflow.open(true));
            }
            Some(Event::Unanswered) => {
                // The first path may be down: try to open the connection over the next path.
                let none_yet = !self.subflows.iter().any(Subflow::is_established);
                let next = self.subflows.iter_mut().find(|subflow| subflow.is_closed());
                if let (true, Some(next)) = (none_yet, next) {
                    next.open(false);
                }
            }
            _ => {}
        }
    }

    /// Returns the next packet to send and its path.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            if self.subflows.iter().any(Subflow::may_send) {
                for subflow in &mut self.subflows {
                    if let Some(segment) = subflow.poll_send(now) {
                        let path = subflow.id();
                        if self.hedges.is_some() && is_tracked(&segment) {
                            self.scheduler.on_sent(now, path);
                        }
                        return Some(Transmit { path, segment });
                    }
                }
            }
            if !self.offer_hedges(now) && !self.schedule(now) {
                break;
            }
        }
        let refused = &mut self.refused;
        self.outbox.refuse_beyond(self.tx_queue, &mut |message| refused.push(message));
        for subflow in &mut self.subflows {
            if let Some(segment) = subflow.poll_ack(now) {
                return Some(Transmit { path: subflow.id(), segment });
            }
        }
        None
    }

    /// Assigns the next datagram to subflows. Returns false if nothing could be assigned.
    fn schedule(&mut self, now: Instant) -> bool {
        self.wait_until = Instant::FAR_FUTURE;
        if self.drop_expired {
            let refused = &mut self.refused;
            self.outbox.drop_expired(now, &mut |message| refused.push(message));
        }
        let Some((message, datagram)) = self.outbox.peek() else {
            self.subflows.iter_mut().for_each(Subflow::note_app_limited);
            return false;
        };
        let unit = self.outbox.unit(&message, &datagram);
        let Some(paths) = self.choose(now, message.id, &unit) else {
            return false;
        };
        self.outbox.advance(&datagram);
        self.each_of(paths, |subflow| subflow.assign(datagram));
        if let Some(hedges) = &mut self.hedges {
            let unit = Unit { carried_by: paths, ..unit };
            let pending = Pending { datagram, unit, first_sent: now, message: message.id };
            hedges.offer_later(now, pending, &mut *self.scheduler, &self.views);
            let idle = self.subflows.iter_mut();
            idle.for_each(|subflow| subflow.probe_if_idle(now, self.report_every));
        }
        true
    }

    fn each_of(&mut self, paths: PathSet, queue: impl Fn(&mut Subflow)) {
        for path in paths.iter() {
            let subflow = self.subflows.get_mut(path.index());
            if let Some(subflow) = subflow.promised("the subflow of a view") {
                queue(subflow);
            }
        }
    }

    /// Offers datagrams whose time has come to the scheduler again. Returns true if there are copies to send.
    fn offer_hedges(&mut self, now: Instant) -> bool {
        let Some(hedges) = self.hedges.as_mut().filter(|hedges| hedges.next() <= now) else {
            return false;
        };
        self.views.clear();
        self.views.extend(self.subflows.iter().map(|subflow| subflow.view(false)));
        hedges.offer(now, &mut *self.scheduler, &mut self.views);
        let mut any = false;
        while let Some(Copies { datagram, paths, message }) =
            self.hedges.as_mut().and_then(|hedges| hedges.next_copies())
        {
            self.record(now, message, Choice::Send(paths, Reason::Hedge));
            self.each_of(paths, |subflow| subflow.assign_copy(datagram));
            any = true;
        }
        any
    }

    fn record(&mut self, at: Instant, first_message: u32, choice: Choice) {
        if let Some(decisions) = &mut self.decisions {
            decisions.push(Decision { at, first_message, choice });
        }
    }

    /// Returns the paths for `unit`: those of the scheduler's choice with room, or else those
    /// whose copies may queue.
    fn choose(&mut self, now: Instant, message: u32, unit: &Unit) -> Option<PathSet> {
        if let [only] = self.subflows.as_mut_slice() {
            if only.is_established() && only.has_room() {
                return Some(PathSet::only(only.id()));
            }
            only.note_limited();
            return None;
        }
        let none_better = !self.subflows.iter().any(Subflow::is_usable);
        self.views.clear();
        self.views.extend(self.subflows.iter().map(|subflow| subflow.view(none_better)));
        for (subflow, view) in self.subflows.iter_mut().zip(&self.views) {
            // A full window held data back even if another path takes the datagram.
            if !view.has_room {
                subflow.note_limited();
            }
        }
        let choice = self.scheduler.choose(now, unit, &self.views);
        self.record(now, message, choice);
        match choice {
            Choice::Send(paths, reason) => {
                let chosen =
                    || self.views.iter().filter(|view| view.usable && paths.contains(view.id));
                let with_room: PathSet =
                    chosen().filter(|view| view.has_room).map(|view| view.id).collect();
                if !with_room.is_empty() && reason != Reason::WaitingCopies {
                    return Some(with_room);
                }
                // A scheduler that chooses only full paths queues there, up to the queue's limit.
                let queue: PathSet = chosen()
                    .filter(|view| {
                        view.has_room || view.queued.get() < self.tx_queue * view.segment.get()
                    })
                    .map(|view| view.id)
                    .collect();
                (!queue.is_empty()).then_some(queue)
            }
            Choice::Wait { until, .. } => {
                self.wait_until = until.unwrap_or(Instant::FAR_FUTURE);
                None
            }
        }
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        let hedges = self.hedges.as_ref().map_or(Instant::FAR_FUTURE, |hedges| hedges.next());
        let first = self.wait_until.min(self.inbox.next_wakeup()).min(hedges);
        self.subflows.iter().map(Subflow::next_wakeup).fold(first, Instant::min)
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        for own in 0..self.subflows.len() {
            self.refresh_siblings(own);
            let siblings = Siblings { all: &self.siblings, own };
            let subflow = self.subflows.get_mut(own).promised("a subflow in range");
            let event = subflow.and_then(|subflow| subflow.wake(now, siblings));
            self.on_event(event);
            self.settle(now, PathId(own as u8));
        }
        self.inbox.wake(now);
    }

    /// Returns the state of each subflow.
    pub fn samples(&self) -> impl Iterator<Item = SubflowSample> + '_ {
        self.subflows.iter().map(Subflow::sample)
    }
}

/// True if a scheduler that learns from single packets hears of this one's fate.
fn is_tracked(segment: &Segment) -> bool {
    let Body::Dccp(dccp) = &segment.body else { return false };
    dccp.data.fragments > 0 || dccp.kind == DccpKind::Sync
}
