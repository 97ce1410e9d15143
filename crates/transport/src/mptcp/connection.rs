//! One end of a connection: messages in, segments out, over one or several subflows.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Promised};

use super::addresses::Addresses;
use super::close::Closing;
use super::reassembly::{Arrived, Reassembly};
use super::relay::Relay;
use crate::congestion::{Sibling, Siblings};
use crate::endpoint::{ConnectionTotals, Decision, Role, SubflowSample, Transmit};
use crate::scheduler::Scheduler;
use crate::segment::{Flags, Segment, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::{Event, Stamp, Subflow};
use crate::{Class, Delivered, Message, PathId, PathInfo, PathSet, PathView, TransportConfig};

/// A written message that is not yet fully assigned to chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Data sequence number after the last byte.
    pub end: u64,
    pub stream: u8,
    pub id: u32,
    pub class: Class,
    pub deadline: Option<Instant>,
}

/// One end of a TCP or MPTCP connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: TransportConfig,
    pub(super) role: Role,
    pub(super) paths: Vec<PathInfo>,
    pub(super) subflows: Vec<Subflow>,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) segment: u32,
    pub(super) receive_buffer: u64,
    /// Messages whose end is not yet part of a chunk.
    pub(super) written: VecDeque<Written>,
    pub(super) write_end: u64,
    pub(super) next_dsn: u64,
    pub(super) data_una: u64,
    /// First data sequence number beyond the peer's receive window.
    pub(super) send_limit: u64,
    pub(super) reinject: VecDeque<Chunk>,
    pub(super) reassembly: Reassembly,
    pub(super) advertised: u64,
    pub(super) relay: Relay,
    delivered: VecDeque<Delivered>,
    pub(super) persist_at: Instant,
    pub(super) wait_until: Instant,
    pub(super) views: Vec<PathView>,
    siblings: Vec<Sibling>,
    pub(super) decisions: Option<Vec<Decision>>,
    /// Start of the current blocking by the peer's window although a subflow has room.
    pub(super) blocked_since: Option<Instant>,
    pub(super) blocked_time: Duration,
    pub(super) blocked: u64,
    /// Data sequence number of the last opportunistic retransmission, and time of the last penalty.
    pub(super) last_opportunistic: Option<u64>,
    pub(super) penalised_at: Option<Instant>,
    pub(super) opportunistic: u64,
    pub(super) reinjections: u64,
    pub(super) addresses: Addresses,
    pub(super) closing: Closing,
}

impl Connection {
    /// Creates one end of a connection over `paths` (at least one, at most 64; more are ignored).
    /// With one path it is plain TCP. The client opens the connection.
    pub fn new(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        let paths = paths.get(..paths.len().min(PathSet::CAPACITY)).unwrap_or(paths);
        let multipath = config.is_multipath();
        // All subflows share one segment size: a chunk may be retransmitted on any of them.
        let room =
            paths.iter().map(|path| Subflow::segment_for(path.mtu, multipath)).min().unwrap_or(1);
        let wanted = config.segment.map_or(u64::from(room), Bytes::get).clamp(1, u64::from(room));
        let receive_buffer = config.receive_buffer.get();
        let usable = if multipath { paths.len() } else { paths.len().min(1) };
        let routes =
            if multipath { config.path_manager.subflows(usable) } else { alloc::vec![PathId(0)] };
        let mut connection = Self {
            config: config.clone(),
            role,
            paths: paths.to_vec(),
            subflows: Vec::with_capacity(routes.len()),
            scheduler: config.scheduler.build(),
            segment: wanted as u32,
            receive_buffer,
            written: VecDeque::new(),
            write_end: 0,
            next_dsn: 0,
            data_una: 0,
            send_limit: 0,
            reinject: VecDeque::new(),
            reassembly: Reassembly::default(),
            advertised: receive_buffer,
            relay: Relay::default(),
            delivered: VecDeque::new(),
            persist_at: Instant::FAR_FUTURE,
            wait_until: Instant::FAR_FUTURE,
            views: Vec::with_capacity(routes.len()),
            siblings: Vec::with_capacity(routes.len()),
            decisions: None,
            blocked_since: None,
            blocked_time: Duration::ZERO,
            blocked: 0,
            last_opportunistic: None,
            penalised_at: None,
            opportunistic: 0,
            reinjections: 0,
            addresses: Addresses::default(),
            closing: Closing::default(),
        };
        for path in routes.iter().take(PathSet::CAPACITY) {
            connection.add_subflow(*path);
        }
        if role == Role::Client
            && let Some(first) = connection.subflows.first_mut()
        {
            first.open(false);
        }
        connection
    }

    /// Adds a closed subflow over `path`.
    pub(super) fn add_subflow(&mut self, path: PathId) {
        let Some(info) = self.paths.get(path.index()).copied() else { return };
        let id = PathId(self.subflows.len() as u8);
        let (config, role, segment) = (&self.config, self.role, self.segment);
        self.subflows.push(Subflow::new(config, role, id, path, info, segment));
    }

    /// Starts recording scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        self.decisions = Some(Vec::new());
    }

    /// Takes the scheduling decisions since the last call.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.iter_mut().flat_map(|decisions| decisions.drain(..))
    }

    /// Queues a message. Ignored after [`close`](Self::close).
    pub fn write(&mut self, message: Message) {
        if self.closing.is_requested() {
            return;
        }
        self.write_end += u64::from(message.bytes.max(1));
        self.written.push_back(Written {
            end: self.write_end,
            stream: message.stream,
            id: message.id,
            class: message.class,
            deadline: message.deadline,
        });
    }

    /// Bytes written but not yet acknowledged.
    pub fn unacknowledged(&self) -> Bytes {
        Bytes::new(self.write_end.saturating_sub(self.data_una))
    }

    /// Returns the next message that is complete and in order.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.delivered.pop_front()
    }

    /// Processes a segment that arrived on `path`.
    pub fn receive(&mut self, now: Instant, path: PathId, segment: &Segment, tcp: &Tcp) {
        let own = usize::from(tcp.subflow);
        if own == self.subflows.len()
            && own < PathSet::CAPACITY
            && tcp.flags.has(Flags::SYN.and(Flags::JOIN))
        {
            // The peer joins over an address that was added later.
            self.add_subflow(path);
        }
        self.refresh_siblings(own);
        let Some(subflow) = self.subflows.get_mut(own).filter(|subflow| subflow.path == path)
        else {
            return;
        };
        let reassembly = &mut self.reassembly;
        let delivered = &mut self.delivered;
        let siblings = Siblings { all: &self.siblings, own };
        let event = subflow.receive(now, segment, tcp, siblings, &mut |chunk, at| {
            let arrived = Arrived { chunk, path, at };
            reassembly.insert(now, &arrived, &mut |message| delivered.push_back(message));
        });
        if tcp.data_ack > self.data_una && tcp.data_ack <= self.next_dsn + 1 {
            self.data_una = tcp.data_ack;
            self.closing.on_data_ack(self.data_una, self.write_end);
        }
        if tcp.window_end > self.send_limit {
            self.send_limit = tcp.window_end;
            self.persist_at = Instant::FAR_FUTURE;
            self.unblock(now);
        }
        self.relay.on_peer_flags(tcp.flags);
        if tcp.flags.has(Flags::FIN) {
            self.closing.on_fin(tcp.dsn);
        }
        if self.closing.take_fin(&mut self.reassembly)
            && let Some(subflow) = self.subflows.get_mut(own).promised("the receiving subflow")
        {
            subflow.acknowledge_now();
        }
        self.receive_address(tcp);
        self.on_event(now, event, own);
    }

    fn refresh_siblings(&mut self, own: usize) {
        if self.subflows.get(own).is_some_and(Subflow::is_coupled) {
            self.siblings.clear();
            self.siblings.extend(self.subflows.iter().map(Subflow::sibling));
        }
    }

    fn on_event(&mut self, now: Instant, event: Option<Event>, own: usize) {
        match event {
            Some(Event::Established) => self.on_established(now),
            Some(Event::Unanswered) if self.role == Role::Client => {
                // The first path may be down: try to open the connection over the next path.
                let none_yet = !self.subflows.iter().any(Subflow::is_established);
                let next = self.subflows.iter_mut().find(|subflow| subflow.is_closed());
                if let (true, Some(next)) = (none_yet, next) {
                    next.open(false);
                }
            }
            Some(Event::TimedOut) if self.subflows.len() > 1 => self.reinject_from(own),
            _ => {}
        }
    }

    /// Reinjects the chunks of a failed subflow, except those that a usable subflow carries as
    /// well.
    pub(super) fn reinject_from(&mut self, own: usize) {
        let usable: PathSet = self
            .subflows
            .iter()
            .filter(|subflow| subflow.is_usable())
            .map(|subflow| subflow.id)
            .collect();
        let subflow = self.subflows.get_mut(own).promised("the failed subflow");
        let Some(subflow) = subflow else { return };
        let id = subflow.id;
        let waiting: Vec<Chunk> = subflow.take_backlog().collect();
        let needed = |chunk: &Chunk| {
            let carried_elsewhere =
                chunk.carried_by.without(id).iter().any(|other| usable.contains(other));
            chunk.end() > self.data_una && !carried_elsewhere
        };
        let mut chunks: Vec<Chunk> = core::mem::take(&mut self.reinject).into();
        chunks.extend(
            subflow
                .outstanding()
                .filter(needed)
                .map(|chunk| Chunk { carried_by: chunk.carried_by.with(id), ..chunk }),
        );
        // Chunks in the backlog were never sent here, and perhaps not on the subflow that had them
        // before.
        let held =
            |dsn| self.subflows.iter().any(|subflow| subflow.is_usable() && subflow.has_chunk(dsn));
        chunks.extend(
            waiting
                .into_iter()
                .filter(|chunk| chunk.end() > self.data_una && !held(chunk.dsn))
                .map(|chunk| Chunk { carried_by: chunk.carried_by.without(id), ..chunk }),
        );
        chunks.sort_by_key(|chunk| chunk.dsn);
        chunks.dedup_by_key(|chunk| chunk.dsn);
        self.reinjections += chunks.len() as u64;
        self.reinject = chunks.into();
    }

    /// Returns the next segment to send and its path.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            if self.subflows.iter().any(Subflow::may_send) {
                let stamp = self.stamp();
                for subflow in &mut self.subflows {
                    if let Some(due) = subflow.poll_send(now, &stamp) {
                        let segment = subflow.send(now, &stamp, &due);
                        return Some(Transmit { path: subflow.path, segment });
                    }
                }
            }
            if !self.schedule(now) {
                break;
            }
        }
        // With several subflows, the scheduler may starve one while there is data to send.
        if self.write_end == self.next_dsn || self.subflows.len() > 1 {
            self.subflows.iter_mut().for_each(Subflow::note_starved);
        }
        if self.subflows.iter().any(Subflow::owes_tail_probe) {
            let sent = self.poll_subflows(|subflow, stamp| subflow.poll_tail_probe(now, stamp));
            if sent.is_some() {
                return sent;
            }
        }
        if let Some(transmit) = self.poll_addresses(now).or_else(|| self.poll_fin(now)) {
            return Some(transmit);
        }
        if self.subflows.iter().any(Subflow::owes_ack) {
            return self.poll_subflows(|subflow, stamp| subflow.poll_ack(now, stamp));
        }
        None
    }

    fn poll_subflows(
        &mut self,
        mut poll: impl FnMut(&mut Subflow, &Stamp) -> Option<Segment>,
    ) -> Option<Transmit> {
        let stamp = self.stamp();
        self.subflows.iter_mut().find_map(|subflow| {
            poll(subflow, &stamp).map(|segment| Transmit { path: subflow.path, segment })
        })
    }

    /// Bytes in the receive buffer.
    pub(super) fn held(&self) -> u64 {
        self.reassembly.held() + self.subflows.iter().map(Subflow::held).sum::<u64>()
    }

    pub(super) fn stamp(&mut self) -> Stamp {
        let free = self.receive_buffer.saturating_sub(self.held());
        let window = self.relay.window(free);
        // The right edge of the window never moves left (RFC 8684 §3.3.4).
        self.advertised = self.advertised.max(self.reassembly.next() + window);
        Stamp {
            data_ack: self.reassembly.next(),
            window_end: self.advertised,
            data_una: self.data_una,
        }
    }

    /// Builds an acknowledgement with `flags` on the usable subflow with the lowest round-trip
    /// time.
    pub(super) fn signal(
        &mut self,
        now: Instant,
        flags: Flags,
        mark: impl Fn(&mut Tcp),
    ) -> Option<Transmit> {
        let stamp = self.stamp();
        let subflow = self
            .subflows
            .iter_mut()
            .filter(|subflow| subflow.is_usable())
            .min_by_key(|subflow| subflow.srtt_or_max())?;
        let mut segment = subflow.signal_segment(now, &stamp, flags);
        if let crate::Body::Tcp(tcp) = &mut segment.body {
            mark(tcp);
        }
        Some(Transmit { path: subflow.path, segment })
    }

    pub(super) fn probe_interval(&self) -> Duration {
        self.subflows
            .iter()
            .filter(|subflow| subflow.is_established())
            .map(|subflow| subflow.rtt().timeout())
            .min()
            .unwrap_or(Duration::from_secs(1))
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        let own = self.persist_at.min(self.wait_until);
        let own = own.min(self.addresses.next_wakeup()).min(self.closing.next_wakeup());
        self.subflows.iter().map(Subflow::next_wakeup).fold(own, Instant::min)
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        for own in 0..self.subflows.len() {
            self.refresh_siblings(own);
            let siblings = Siblings { all: &self.siblings, own };
            let subflow = self.subflows.get_mut(own).promised("a subflow in range");
            let event = subflow.and_then(|subflow| subflow.wake(now, siblings));
            self.on_event(now, event, own);
        }
        if self.persist_at <= now {
            self.persist_at = now + self.probe_interval();
            if let Some(subflow) = self.subflows.iter_mut().find(|subflow| subflow.is_usable()) {
                subflow.probe();
            }
        }
        self.addresses.wake(now);
        self.closing.wake(now);
    }

    /// Totals of the connection up to `now`.
    pub fn totals(&self, now: Instant) -> ConnectionTotals {
        let blocked = self.blocked_since.map_or(Duration::ZERO, |since| now.since(since));
        ConnectionTotals {
            window_blocked: self.blocked_time + blocked,
            window_blocked_times: self.blocked,
            holding: self.reassembly.holding(now),
            reinjections: self.reinjections,
            opportunistic: self.opportunistic,
        }
    }

    /// Returns the state of each subflow.
    pub fn samples(&self) -> impl Iterator<Item = SubflowSample> + '_ {
        self.subflows.iter().map(|subflow| SubflowSample {
            subflow: subflow.id.0,
            path: subflow.path,
            window: Bytes::new(subflow.window()),
            threshold: subflow.control().slow_start_threshold(),
            pacing: subflow.control().pacing_rate(),
            srtt: subflow.rtt().srtt(),
            in_flight: Bytes::new(subflow.in_flight()),
            totals: subflow.totals(),
        })
    }
}
