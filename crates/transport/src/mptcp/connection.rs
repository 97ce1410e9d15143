//! One end of a connection: messages in, segments out, over one or several subflows.

use alloc::vec::Vec;

use skybraid_units::{Bytes, Instant, Promised};

use super::addresses::Addresses;
use super::assignment::Assignment;
use super::buffers::{Buffers, ReceiveTuning, SendTuning};
use super::close::Closing;
use super::path_manager::{JoinAfter, PathManager};
use super::peer_window::PeerWindow;
use super::reassembly::Arrived;
use super::receive::ReceiveSide;
use super::relay::{Relay, full_segment};
use super::send::{Next, SendSide};
use super::subflows::Subflows;
use super::walk::{Step, Walks};
use crate::endpoint::{ConnectionTotals, Decision, Role, SubflowSample, Transmit};
use crate::scheduler::{Choice, Reason};
use crate::segment::{Flags, Segment, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::{Event, Stamp, Subflow};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, TransportConfig};

/// One end of a TCP or MPTCP connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    subflows: Subflows,
    send: SendSide,
    assignment: Assignment,
    walks: Option<Walks>,
    peer_window: PeerWindow,
    receive: ReceiveSide,
    send_buffer: SendTuning,
    addresses: Addresses,
    closing: Closing,
    relay: Relay,
    /// Subflows must be joined after the next segment of the peer.
    joins_due: bool,
}

impl Connection {
    /// Creates one end of a connection over `paths` (at least one, at most 64; more are ignored).
    /// With one path it is plain TCP. The client opens the connection.
    pub fn new(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        let paths = paths.get(..paths.len().min(PathSet::CAPACITY)).unwrap_or(paths);
        let multipath = config.is_multipath();
        let room =
            paths.iter().map(|path| Subflow::segment_for(path.mtu, multipath)).min().unwrap_or(1);
        let wanted = config.segment.map_or(u64::from(room), Bytes::get).clamp(1, u64::from(room));
        let segment = wanted as u32;
        let scheduler = config.scheduler.build();
        let walks = scheduler.walk().filter(|_| multipath).map(Walks::new);
        // Only the default scheduler of out-of-tree MPTCP relieves a blocked window.
        let relieves = walks.is_none();
        let config = &TransportConfig {
            penalisation: config.penalisation && relieves,
            opportunistic_retransmission: config.opportunistic_retransmission && relieves,
            ..config.clone()
        };
        let mut subflows = Subflows::new(config, paths, role, segment);
        if role == Role::Client
            && let Some(first) = subflows.all_mut().first_mut()
        {
            first.open(false);
        }
        Self {
            role,
            send: SendSide::new(segment),
            assignment: Assignment::new(scheduler, subflows.all().len()),
            walks,
            subflows,
            peer_window: PeerWindow::default(),
            receive: match config.buffers {
                Buffers::Fixed => ReceiveSide::new(config.receive_buffer.get()),
                Buffers::Auto => {
                    ReceiveSide::tuned(ReceiveTuning::new(config.receive_buffer.get(), segment))
                }
            },
            send_buffer: SendTuning::new(config.buffers, config.send_buffer.get()),
            addresses: Addresses::default(),
            closing: Closing::default(),
            relay: Relay::default(),
            joins_due: false,
        }
    }

    /// Creates one end of a connection that a proxy joins to another one. The receive memory is
    /// `config.receive_buffer`, but at least two segments: half of less could not admit one.
    pub fn relaying(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        let segment = full_segment(paths);
        let receive = ReceiveSide::relaying(config.receive_buffer.get().max(2 * segment));
        Self { receive, relay: Relay::proxy(segment), ..Self::new(config, paths, role) }
    }

    /// Starts recording scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        self.assignment.record_decisions();
    }

    /// Takes the scheduling decisions since the last call.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.assignment.take_decisions()
    }

    /// Queues a message. Ignored after [`close`](Self::close).
    pub fn write(&mut self, message: Message) {
        if !self.closing.is_requested() {
            self.send.write(&message);
        }
    }

    /// Queues a chunk of another connection with the messages that end in it; its data sequence
    /// number is ignored. The positions of the ends within the chunk are unknown: each message ends
    /// as late as possible, so that none is delivered before its last byte has arrived.
    pub fn write_chunk(&mut self, chunk: &Chunk) {
        self.send.write_chunk(chunk);
    }

    /// Bytes written but not yet acknowledged.
    pub const fn unacknowledged(&self) -> Bytes {
        self.send.unacknowledged()
    }

    /// Bytes that the send buffer holds, acknowledged ones excluded.
    pub const fn send_buffer(&self) -> Bytes {
        Bytes::new(self.send_buffer.buffer())
    }

    /// Closes the sending side: the application writes no more; written data is still delivered.
    pub const fn close(&mut self) {
        self.closing.request();
    }

    /// True once the peer has closed and all its data has arrived.
    pub const fn peer_has_closed(&self) -> bool {
        self.closing.peer_has_closed()
    }

    /// True once both sides have closed and each knows that the other has.
    pub const fn is_closed(&self) -> bool {
        self.closing.is_closed()
    }

    /// Returns the next message that is complete and in order.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.receive.poll_delivered()
    }

    /// Takes the next chunk in order. Its bytes leave the receive memory unless
    /// [`set_stored`](Self::set_stored) counts them.
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        self.receive.take_chunk()
    }

    /// Sets the bytes taken from this connection that still occupy its memory because the next hop
    /// has not acknowledged them.
    pub const fn set_stored(&mut self, bytes: Bytes) {
        self.relay.set_stored(bytes.get());
    }

    /// Bytes in the receive memory that have not been taken.
    pub fn buffered(&self) -> Bytes {
        Bytes::new(self.receive.held() + self.subflows.held())
    }

    /// Size of the receive memory.
    pub const fn memory(&self) -> Bytes {
        Bytes::new(self.receive.buffer())
    }

    /// True if the peer is a proxy: data that it acknowledges may still be lost before the far end.
    pub const fn is_split(&self) -> bool {
        self.relay.peer_is_proxy()
    }

    /// Records an outgoing segment of a proxy.
    pub(crate) fn on_sent(&mut self, tcp: &mut Tcp) {
        self.relay.on_sent(tcp);
    }

    /// True if the segment is within the window that a proxy has announced.
    pub(crate) const fn admits(&self, tcp: &Tcp) -> bool {
        self.relay.admits(tcp)
    }

    /// Processes a segment that arrived on `path`.
    pub fn receive(&mut self, now: Instant, path: PathId, segment: &Segment, tcp: &Tcp) {
        let own = usize::from(tcp.subflow);
        if own == self.subflows.all().len()
            && !self.subflows.is_full()
            && tcp.flags.has(Flags::SYN.and(Flags::JOIN))
        {
            // The peer joins over an address that was added later.
            self.subflows.add(path);
        }
        let Some((subflow, siblings)) = self.subflows.with_siblings(own) else { return };
        if subflow.path != path {
            return;
        }
        let receive = &mut self.receive;
        if !receive.admits(tcp) {
            return subflow.acknowledge_now();
        }
        let event = subflow.receive(now, segment, tcp, siblings, &mut |chunk, at| {
            receive.insert(now, &Arrived { chunk, path, at });
        });
        if self.send.on_data_ack(tcp.data_ack) {
            self.closing.on_data_ack(self.send.data_una(), self.send.write_end());
        }
        if self.send.on_window_end(tcp.window_end) {
            self.peer_window.on_opened(now);
        }
        self.relay.on_peer_flags(tcp.flags);
        if tcp.flags.has(Flags::FIN) {
            self.closing.on_fin(tcp.dsn);
        }
        if self.closing.take_fin(&mut self.receive)
            && let Some(subflow) =
                self.subflows.all_mut().get_mut(own).promised("the receiving subflow")
        {
            subflow.acknowledge_now();
        }
        self.receive_address(tcp);
        self.on_event(now, event, own);
        self.receive.tune(now, || self.subflows.receiver_rtt());
        if self.send_buffer.is_tuned() {
            let established = self.subflows.all().iter().filter(|subflow| subflow.is_established());
            self.send_buffer.on_windows(self.send.segment(), established.map(Subflow::window));
        }
        if !tcp.flags.has(Flags::SYN) {
            self.join_if_due();
        }
    }

    /// Joins further subflows after the first DSS option of the server, which every segment but a SYN carries, if they
    /// must wait for it (RFC 8684 §3.1).
    fn join_if_due(&mut self) {
        if core::mem::take(&mut self.joins_due) {
            self.subflows.open_all();
        }
    }

    fn receive_address(&mut self, tcp: &Tcp) {
        let path = PathId(tcp.address);
        if tcp.flags.has(Flags::ADD_ADDRESS) {
            if tcp.flags.has(Flags::ECHO_ADDRESS) {
                self.addresses.forget(path);
            } else {
                self.addresses.echo(path);
                if self.role == Role::Client && path.index() < self.subflows.path_count() {
                    self.addresses.join(path, &mut self.subflows);
                }
            }
        }
        if tcp.flags.has(Flags::REMOVE_ADDRESS) {
            // The subflow that carries the withdrawal uses an address that has come back.
            self.remove_subflows(path, Some(usize::from(tcp.subflow)));
        }
    }

    fn on_event(&mut self, now: Instant, event: Option<Event>, own: usize) {
        match event {
            Some(Event::Established) => self.on_established(now),
            Some(Event::Unanswered) if self.role == Role::Client => self.subflows.open_next(),
            Some(Event::TimedOut) if self.subflows.all().len() > 1 => self.reinject_from(own),
            _ => {}
        }
    }

    /// Handles an established subflow: opens or announces the others after the first one.
    fn on_established(&mut self, now: Instant) {
        let first = self.addresses.on_established();
        let config = self.subflows.config();
        match (self.role, config.path_manager) {
            (Role::Client, PathManager::FullMesh | PathManager::Ports(_)) => {
                match config.join_after {
                    JoinAfter::Handshake => self.subflows.open_all(),
                    JoinAfter::Dss => self.joins_due = true,
                }
            }
            (Role::Server, PathManager::Announced) if first && config.is_multipath() => {
                for path in 1..self.subflows.path_count() {
                    self.addresses.announce(now, PathId(path as u8));
                }
            }
            (Role::Server, _) | (Role::Client, PathManager::Announced) => {}
        }
    }

    /// Adds a local address, over which a subflow joins on `path`. The client opens the subflow;
    /// the server announces the address (RFC 8684 §3.4.1).
    pub fn add_path(&mut self, now: Instant, path: PathId) {
        if !self.subflows.config().is_multipath() || path.index() >= self.subflows.path_count() {
            return;
        }
        match self.role {
            Role::Client => self.addresses.join(path, &mut self.subflows),
            Role::Server => self.addresses.announce(now, path),
        }
    }

    /// Removes a local address: ends the subflows over `path`, reinjects their data, and notifies
    /// the peer (RFC 8684 §3.4.2).
    pub fn remove_path(&mut self, path: PathId) {
        self.remove_subflows(path, None);
        self.addresses.withdraw(path);
    }

    fn remove_subflows(&mut self, path: PathId, except: Option<usize>) {
        for own in 0..self.subflows.all().len() {
            if let Some(subflow) = self.subflows.all_mut().get_mut(own).promised("a subflow")
                && subflow.path == path
                && Some(own) != except
                && !subflow.is_removed()
            {
                subflow.remove();
                self.reinject_from(own);
            }
        }
        self.addresses.forget(path);
    }

    /// Reinjects the chunks of a failed subflow, except those that a usable subflow carries as
    /// well.
    fn reinject_from(&mut self, own: usize) {
        let usable = self.subflows.usable();
        let failed = self.subflows.all_mut().get_mut(own).promised("the failed subflow");
        let Some(failed) = failed else { return };
        let id = failed.id;
        let waiting: Vec<Chunk> = failed.take_backlog().collect();
        let all = self.subflows.all();
        let una = self.send.data_una();
        let needed = |chunk: &Chunk| {
            let carried_by = match &self.walks {
                Some(walks) => walks.carried_by(chunk),
                None => chunk.carried_by,
            };
            let carried_elsewhere =
                carried_by.without(id).iter().any(|other| usable.contains(other));
            chunk.end() > una && !carried_elsewhere
        };
        let outstanding = all.get(own).into_iter().flat_map(Subflow::outstanding).filter(needed);
        let outstanding =
            outstanding.map(|chunk| Chunk { carried_by: chunk.carried_by.with(id), ..chunk });
        // Chunks in the backlog were never sent here, and perhaps not on the subflow that had them
        // before.
        let held = |dsn| all.iter().any(|subflow| subflow.is_usable() && subflow.has_chunk(dsn));
        let waiting = waiting
            .into_iter()
            .filter(|chunk| chunk.end() > una && !held(chunk.dsn))
            .map(|chunk| Chunk { carried_by: chunk.carried_by.without(id), ..chunk });
        self.send.reinject(outstanding.chain(waiting));
    }

    /// Returns the next segment to send and its path.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            if self.subflows.all().iter().any(Subflow::may_send) {
                let stamp = self.stamp();
                for subflow in self.subflows.all_mut() {
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
        if !self.send.has_unsent() || self.subflows.all().len() > 1 {
            self.subflows.all_mut().iter_mut().for_each(Subflow::note_starved);
        }
        if self.subflows.all().iter().any(Subflow::owes_tail_probe) {
            let sent = self.poll_subflows(|subflow, stamp| subflow.poll_tail_probe(now, stamp));
            if sent.is_some() {
                return sent;
            }
        }
        if let Some(transmit) = self.poll_address(now).or_else(|| self.poll_fin(now)) {
            return Some(transmit);
        }
        if self.subflows.all().iter().any(Subflow::owes_ack) {
            return self.poll_subflows(|subflow, stamp| subflow.poll_ack(now, stamp));
        }
        None
    }

    /// Assigns the next chunk to subflows. Returns false if nothing could be assigned.
    fn schedule(&mut self, now: Instant) -> bool {
        self.assignment.stop_waiting();
        let next = self.send.next();
        if !matches!(next, Next::Chunk { again: true, .. })
            && let Some(walked) = self.walk(now, &next)
        {
            return walked;
        }
        let (chunk, again) = match next {
            Next::Chunk { chunk, again } => (chunk, again),
            Next::Nothing => return false,
            Next::Blocked(message) => {
                self.on_blocked(now, message);
                return false;
            }
        };
        let (send, blocked) = (&self.send, self.peer_window.times());
        let unit = || send.unit(&chunk, blocked);
        let Some(chosen) = self.assignment.choose(now, &chunk, &mut self.subflows, unit) else {
            return false;
        };
        self.send.advance(&chunk, again);
        let carried_by = chosen.iter().fold(chunk.carried_by, PathSet::with);
        for id in chosen.iter() {
            if let Some(subflow) = self.subflows.of(id) {
                subflow.assign(Chunk { carried_by, ..chunk });
            }
        }
        true
    }

    fn on_blocked(&mut self, now: Instant, message: u32) {
        if self.peer_window.on_blocked(now, &self.send, &mut self.subflows) {
            let choice = Choice::wait(Reason::PeerWindow);
            self.assignment.record(now, message, choice, self.subflows.all());
        }
    }

    /// Assigns the next chunk to the subflow whose turn it is, if subflows go through the send queue by themselves.
    /// Returns false if nothing could be assigned; `None` if the scheduler decides.
    fn walk(&mut self, now: Instant, next: &Next) -> Option<bool> {
        let walks = self.walks.as_mut()?;
        let (una, segment) = (self.send.data_una(), self.send.segment());
        let has_unsent = self.send.has_unsent();
        let step = walks.next(una, has_unsent, segment, self.subflows.all());
        let (id, chunk) = match (step, next) {
            (Some(Step::Copy(id, chunk)), _) => (id, chunk),
            (Some(Step::New(id)), Next::Chunk { chunk, .. }) => {
                self.send.advance(chunk, false);
                (id, *chunk)
            }
            (_, Next::Blocked(message)) => {
                self.on_blocked(now, *message);
                return Some(false);
            }
            _ => {
                if has_unsent {
                    self.subflows.all_mut().iter_mut().for_each(Subflow::note_limited);
                }
                return Some(false);
            }
        };
        let chunk = walks.on_taken(id, &chunk);
        let choice = Choice::Send(PathSet::only(id), Reason::EveryPath);
        self.assignment.record(now, chunk.first_message, choice, self.subflows.all());
        if let Some(subflow) = self.subflows.of(id) {
            subflow.assign(chunk);
        }
        Some(true)
    }

    fn poll_subflows(
        &mut self,
        mut poll: impl FnMut(&mut Subflow, &Stamp) -> Option<Segment>,
    ) -> Option<Transmit> {
        let stamp = self.stamp();
        self.subflows.all_mut().iter_mut().find_map(|subflow| {
            poll(subflow, &stamp).map(|segment| Transmit { path: subflow.path, segment })
        })
    }

    fn poll_address(&mut self, now: Instant) -> Option<Transmit> {
        let (flags, path) = self.addresses.front()?;
        let transmit = self.signal(now, flags, |tcp| tcp.address = path.0)?;
        self.addresses.pop();
        Some(transmit)
    }

    fn poll_fin(&mut self, now: Instant) -> Option<Transmit> {
        if !self.closing.is_due() || !self.send.is_drained() {
            return None;
        }
        let dsn = self.send.write_end();
        let transmit = self.signal(now, Flags::FIN, |tcp| tcp.dsn = dsn)?;
        self.closing.on_sent(now + self.subflows.probe_interval());
        Some(transmit)
    }

    /// Returns a window update of a proxy, if one is due. To be called when no other segment is due.
    pub(crate) fn poll_window(&mut self, now: Instant) -> Option<Transmit> {
        let edge = self.stamp().window_end;
        let due = self.relay.owes_window(edge, self.receive.next());
        if due { self.signal(now, Flags::WINDOW, |_| {}) } else { None }
    }

    /// Builds an acknowledgement with `flags` on the usable subflow with the lowest round-trip
    /// time.
    fn signal(&mut self, now: Instant, flags: Flags, mark: impl Fn(&mut Tcp)) -> Option<Transmit> {
        let stamp = self.stamp();
        let subflow = self.subflows.fastest()?;
        let mut segment = subflow.signal_segment(now, &stamp, flags);
        if let crate::Body::Tcp(tcp) = &mut segment.body {
            mark(tcp);
        }
        Some(Transmit { path: subflow.path, segment })
    }

    fn stamp(&mut self) -> Stamp {
        let free = self.receive.buffer().saturating_sub(self.buffered().get());
        let window_end = self.receive.advertise(self.relay.window(free));
        Stamp { data_ack: self.receive.next(), window_end, data_una: self.send.data_una() }
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        let own = self.peer_window.next_wakeup().min(self.assignment.next_wakeup());
        let own = own.min(self.addresses.next_wakeup()).min(self.closing.next_wakeup());
        self.subflows.all().iter().map(Subflow::next_wakeup).fold(own, Instant::min)
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        for own in 0..self.subflows.all().len() {
            let event = self
                .subflows
                .with_siblings(own)
                .and_then(|(subflow, siblings)| subflow.wake(now, siblings));
            self.on_event(now, event, own);
        }
        self.peer_window.wake(now, &mut self.subflows);
        self.addresses.wake(now);
        self.closing.wake(now);
    }

    /// Totals of the connection up to `now`.
    pub fn totals(&self, now: Instant) -> ConnectionTotals {
        ConnectionTotals {
            window_blocked: self.peer_window.time(now),
            window_blocked_times: self.peer_window.times(),
            holding: self.receive.holding(now),
            reinjections: self.send.reinjections(),
            opportunistic: self.peer_window.opportunistic(),
        }
    }

    /// Returns the state of each subflow.
    pub fn samples(&self) -> impl Iterator<Item = SubflowSample> + '_ {
        self.subflows.all().iter().map(|subflow| SubflowSample {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Protocol};

    const NOW: Instant = Instant::ZERO;

    /// Moves all segments of `from` that `passes` admits to `to`.
    fn exchange(from: &mut Connection, to: &mut Connection, mut passes: impl FnMut(&Tcp) -> bool) {
        while let Some(Transmit { path, segment }) = from.poll_send(NOW) {
            let crate::Body::Tcp(tcp) = &segment.body else { continue };
            if passes(tcp) {
                to.receive(NOW, path, &segment, tcp);
            }
        }
    }

    // Source: RFC 9293 §3.10.7.4: a segment beyond the window is dropped and acknowledged.
    #[test]
    fn a_peer_that_ignores_the_window_fills_no_more_than_it() {
        let config = TransportConfig {
            protocol: Protocol::Tcp,
            receive_buffer: Bytes::new(6_000),
            ..TransportConfig::default()
        };
        let path = [PathInfo::default()];
        let mut client = Connection::new(&config, &path, Role::Client);
        let mut server = Connection::new(&config, &path, Role::Server);
        client.write(Message {
            stream: 0,
            id: 0,
            class: Class::Data,
            bytes: 60_000,
            deadline: None,
        });
        client.send.on_window_end(u64::MAX);
        exchange(&mut client, &mut server, |_| true);
        exchange(&mut server, &mut client, |_| true);
        let mut beyond = 0;
        exchange(&mut client, &mut server, |tcp| {
            beyond += u32::from(tcp.len > 0 && tcp.dsn + u64::from(tcp.len) > 6_000);
            // The first segment is lost, so that the following ones stay in the buffer.
            tcp.len == 0 || tcp.dsn > 0
        });
        assert!(beyond >= 4, "{beyond} segments beyond the window");
        assert!(
            (1..=6_000).contains(&server.buffered().get()),
            "{} B held",
            server.buffered().get()
        );
        assert!(server.subflows.all()[0].owes_ack());
    }
}
