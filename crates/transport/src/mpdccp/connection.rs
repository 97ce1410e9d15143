//! One end of a connection: messages in, packets out, over one or several subflows.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Promised};

use super::subflow::{Event, Subflow};
use crate::congestion::{Sibling, Siblings};
use crate::datagram::{Inbox, Outbox};
use crate::endpoint::{Decision, Role, SubflowSample, Transmit};
use crate::scheduler::{Choice, Reason, Scheduler, Unit};
use crate::segment::{Datagram, Dccp};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, PathView, Protocol, TransportConfig};

/// One end of a DCCP or MP-DCCP connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    subflows: Vec<Subflow>,
    scheduler: Box<dyn Scheduler>,
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
        let size_for = |path: &PathInfo| Subflow::segment_for(path.mtu, multipath, reports_rtt);
        let room = u64::from(paths.iter().map(size_for).min().unwrap_or(1));
        let segment = config.segment.map_or(room, Bytes::get).clamp(1, room) as u32;
        let subflow = |(index, info): (usize, &PathInfo)| {
            let id = PathId(index as u8);
            Subflow::new(config, id, *info, role, segment, reported_rtt)
        };
        let mut subflows: Vec<Subflow> = paths.iter().enumerate().map(subflow).collect();
        if role == Role::Client
            && let Some(first) = subflows.first_mut()
        {
            first.open(false);
        }
        Self {
            role,
            subflows,
            scheduler: config.scheduler.build(),
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

    /// Returns the next complete message.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.inbox.poll_delivered()
    }

    /// Processes a packet that arrived on `path`.
    pub fn receive(&mut self, now: Instant, path: PathId, dccp: &Dccp) {
        let own = path.index();
        self.refresh_siblings(own);
        let siblings = Siblings { all: &self.siblings, own };
        let Some(subflow) = self.subflows.get_mut(own) else { return };
        let event = subflow.receive(now, dccp, siblings);
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
                        return Some(Transmit { path: subflow.id(), segment });
                    }
                }
            }
            if !self.schedule(now) {
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
        let Some(paths) = self.choose(now, &message, &datagram) else {
            return false;
        };
        self.outbox.advance();
        for path in paths.iter() {
            let subflow = self.subflows.get_mut(path.index());
            if let Some(subflow) = subflow.promised("the subflow of a view") {
                subflow.assign(datagram);
            }
        }
        true
    }

    /// Returns the paths for `datagram`: those of the scheduler's choice with room, or else those
    /// whose copies may queue.
    fn choose(&mut self, now: Instant, message: &Message, datagram: &Datagram) -> Option<PathSet> {
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
        let bytes = Bytes::new(u64::from(datagram.len));
        let unit = Unit {
            bytes,
            class: message.class,
            deadline: message.deadline,
            carried_by: PathSet::EMPTY,
            backlog: self.outbox.unsent() - bytes,
            window: Bytes::new(u64::MAX),
            window_room: Bytes::new(u64::MAX),
            blocked: 0,
        };
        let choice = self.scheduler.choose(now, &unit, &self.views);
        if let Some(decisions) = &mut self.decisions {
            decisions.push(Decision { at: now, first_message: message.id, choice });
        }
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
        let first = self.wait_until.min(self.inbox.next_wakeup());
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
        }
        self.inbox.wake(now);
    }

    /// Returns the state of each subflow.
    pub fn samples(&self) -> impl Iterator<Item = SubflowSample> + '_ {
        self.subflows.iter().map(Subflow::sample)
    }
}
