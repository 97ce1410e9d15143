//! One end of a connection: messages in, segments out, over one or several subflows.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use skybraid_units::{Bytes, Duration, Instant};

use super::addresses::Addresses;
use super::assignment::{Assigned, Assignment};
use super::buffers::{Buffers, ReceiveTuning, SendTuning};
use super::close::Closing;
use super::peer_window::PeerWindow;
use super::reassembly::Arrived;
use super::receive::ReceiveSide;
use super::relay::{Relay, full_segment};
use super::send::SendSide;
use super::subflows::Subflows;
use super::walk::Walks;
use crate::endpoint::{ConnectionTotals, Decision, Role, SubflowSample, Transmit};
use crate::segment::{Flags, Segment, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::{Event, Stamp, Subflow};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, SubflowId, TransportConfig};

/// One end of a TCP or MPTCP connection.
#[derive(Debug)]
pub struct Connection {
    subflows: Subflows,
    send: SendSide,
    assignment: Assignment,
    receive: ReceiveSide,
    /// Messages that are complete and in order, for [`poll_delivered`](Self::poll_delivered).
    delivered: VecDeque<Delivered>,
    send_buffer: SendTuning,
    addresses: Addresses,
    closing: Closing,
    relay: Relay,
    /// True if nothing can be sent, whatever is written, before a segment arrives or a timer expires.
    full: bool,
}

impl Connection {
    /// Creates one end of a connection over `paths` (at least one, at most 64; more are ignored).
    /// With one path it is plain TCP. The client opens the connection.
    pub fn new(config: &Arc<TransportConfig>, paths: &[PathInfo], role: Role) -> Self {
        let paths = paths.get(..paths.len().min(PathSet::CAPACITY)).unwrap_or(paths);
        let multipath = config.is_multipath();
        let room =
            paths.iter().map(|path| Subflow::segment_for(path.mtu, multipath)).min().unwrap_or(1);
        let wanted = config.segment.map_or(u64::from(room), Bytes::get).clamp(1, u64::from(room));
        let segment = wanted as u32;
        let scheduler = config.scheduler.build();
        let walks = scheduler.walk().filter(|_| multipath).map(Walks::new);
        let mut subflows = Subflows::new(config, paths, role, segment);
        if role == Role::Client
            && let Some(first) = subflows.all_mut().first_mut()
        {
            first.open(false);
        }
        Self {
            send: SendSide::new(segment),
            assignment: Assignment::new(scheduler, walks),
            subflows,
            receive: match config.buffers {
                Buffers::Fixed => ReceiveSide::new(config.receive_buffer.get()),
                Buffers::Auto => {
                    ReceiveSide::tuned(ReceiveTuning::new(config.receive_buffer.get(), segment))
                }
            },
            delivered: VecDeque::new(),
            send_buffer: SendTuning::new(config.buffers, config.send_buffer.get()),
            addresses: Addresses::new(role),
            closing: Closing::default(),
            relay: Relay::default(),
            full: false,
        }
    }

    /// Creates one end of a connection that a proxy joins to another one. The receive memory is
    /// `config.receive_buffer`, but at least two segments: half of less could not admit one.
    pub fn relaying(config: &Arc<TransportConfig>, paths: &[PathInfo], role: Role) -> Self {
        let segment = full_segment(paths);
        let receive = ReceiveSide::relaying(config.receive_buffer.get().max(2 * segment));
        Self { receive, relay: Relay::proxy(segment), ..Self::new(config, paths, role) }
    }

    /// Starts recording scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        self.full = false;
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
        self.delivered.pop_front()
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
        let mut delivered = core::mem::take(&mut self.delivered);
        self.receive_into(now, path, (segment, tcp), &mut |message| delivered.push_back(message));
        self.delivered = delivered;
    }

    /// Processes a segment that arrived on `path`. Messages that are complete and in order go to `deliver`.
    pub fn receive_into(
        &mut self,
        now: Instant,
        path: PathId,
        (segment, tcp): (&Segment, &Tcp),
        deliver: &mut impl FnMut(Delivered),
    ) {
        self.full = false;
        // Most segments carry data, an acknowledgement or both, and no signal.
        let signals = tcp.flags != Flags::ACK;
        if signals
            && usize::from(tcp.subflow) == self.subflows.all().len()
            && !self.subflows.is_full()
            && tcp.flags.has(Flags::SYN.and(Flags::JOIN))
        {
            // The peer joins over an address that was added later.
            self.subflows.add(path);
        }
        let Some((subflow, siblings)) = self.subflows.with_siblings(tcp.subflow) else { return };
        let own = subflow.id();
        if subflow.path() != path {
            return;
        }
        let receive = &mut self.receive;
        if !receive.admits(tcp) {
            return subflow.acknowledge_now();
        }
        let event = subflow.receive(now, segment, tcp, siblings, &mut |chunk, at| {
            receive.insert(now, &Arrived { chunk, path, at }, deliver);
        });
        if self.send.on_data_ack(tcp.data_ack) {
            self.closing.on_data_ack(self.send.data_una(), self.send.write_end());
        }
        if self.send.on_window_end(tcp.window_end) {
            self.assignment.on_opened(now);
        }
        if signals {
            self.relay.on_peer_flags(tcp.flags);
            if tcp.flags.has(Flags::FIN) {
                self.closing.on_fin(tcp.dsn);
            }
        }
        if self.closing.take_fin(&mut self.receive) {
            self.subflows[own].acknowledge_now();
        }
        if signals {
            self.addresses.on_announcement(tcp, &mut self.subflows);
            if tcp.flags.has(Flags::REMOVE_ADDRESS) {
                // The subflow that carries the withdrawal uses an address that has come back.
                self.remove_subflows(PathId(tcp.address), Some(own));
            }
        }
        if let Some(event) = event {
            self.on_event(now, event, own);
        }
        if self.receive.tune(now, || self.subflows.receiver_rtt()) {
            self.subflows.set_receive_buffer(self.receive.buffer());
        }
        if self.send_buffer.is_tuned() {
            let established = self.subflows.all().iter().filter(|subflow| subflow.is_established());
            self.send_buffer.on_windows(self.send.segment(), established.map(Subflow::window));
        }
        self.addresses.on_segment(tcp, &mut self.subflows);
    }

    #[cold]
    fn on_event(&mut self, now: Instant, event: Event, own: SubflowId) {
        match event {
            Event::Established => self.addresses.on_established(now, &mut self.subflows),
            Event::Unanswered => self.addresses.on_unanswered(&mut self.subflows),
            Event::TimedOut if self.subflows.all().len() > 1 => self.reinject_from(own),
            Event::TimedOut => {}
        }
    }

    /// Adds a local address, over which a subflow joins on `path`. The client opens the subflow;
    /// the server announces the address (RFC 8684 §3.4.1).
    pub fn add_path(&mut self, now: Instant, path: PathId) {
        self.full = false;
        self.addresses.add(now, path, &mut self.subflows);
    }

    /// Removes a local address: ends the subflows over `path`, reinjects their data, and notifies
    /// the peer (RFC 8684 §3.4.2).
    pub fn remove_path(&mut self, path: PathId) {
        self.full = false;
        self.remove_subflows(path, None);
        self.addresses.withdraw(path);
    }

    #[cold]
    fn remove_subflows(&mut self, path: PathId, except: Option<SubflowId>) {
        for own in self.subflows.ids() {
            let subflow = &mut self.subflows[own];
            if subflow.path() == path && Some(own) != except && !subflow.is_removed() {
                subflow.remove();
                self.reinject_from(own);
            }
        }
        self.addresses.forget(path);
    }

    /// Reinjects the chunks of a failed subflow, except those that a usable subflow carries as
    /// well.
    #[cold]
    fn reinject_from(&mut self, own: SubflowId) {
        let assignment = &self.assignment;
        let una = self.send.data_una();
        let chunks = self.subflows.take_chunks(own, una, |chunk| assignment.carried_by(chunk));
        self.send.reinject(chunks);
    }

    /// Returns the next segment to send and its path.
    #[inline]
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        if self.full {
            None
        } else if self.is_idle() {
            self.poll_ack(now)
        } else {
            self.poll_segment(now)
        }
    }

    /// Passes all segments that can be sent now to `send`.
    #[inline]
    pub fn send_all(&mut self, now: Instant, send: &mut impl FnMut(&Transmit)) {
        while !self.full {
            let idle = self.is_idle();
            let next = if idle { self.poll_ack(now) } else { self.poll_segment(now) };
            let Some(transmit) = &next else { return };
            send(transmit);
            // An idle connection sends one acknowledgement per subflow.
            if idle && self.subflows.all().len() == 1 {
                return;
            }
        }
    }

    /// True if there is nothing to send but acknowledgements, as after most events.
    #[inline]
    fn is_idle(&self) -> bool {
        self.send.is_drained()
            && !self.assignment.walks()
            && !self.addresses.is_due()
            && !self.closing.is_due()
            && self.subflows.all().iter().all(Subflow::sends_acks_only)
    }

    /// Returns the acknowledgement that an [idle](Self::is_idle) connection sends next.
    #[inline]
    fn poll_ack(&mut self, now: Instant) -> Option<Transmit> {
        self.assignment.on_idle();
        let mut owes_ack = false;
        for subflow in self.subflows.all_mut() {
            subflow.note_starved();
            owes_ack |= subflow.owes_ack();
        }
        if owes_ack { self.send_ack(now) } else { None }
    }

    /// Sends the acknowledgement of the first subflow that owes one.
    fn send_ack(&mut self, now: Instant) -> Option<Transmit> {
        let stamp = self.stamp();
        let subflow = self.subflows.all_mut().iter_mut().find(|subflow| subflow.owes_ack())?;
        Some(Transmit { path: subflow.path(), segment: subflow.send_ack(now, &stamp) })
    }

    fn poll_segment(&mut self, now: Instant) -> Option<Transmit> {
        let full = loop {
            if self.subflows.all().iter().any(Subflow::may_send) {
                let stamp = self.stamp();
                for subflow in self.subflows.all_mut() {
                    if let Some(due) = subflow.poll_send(now, &stamp) {
                        let segment = subflow.send(now, &stamp, &due);
                        return Some(Transmit { path: subflow.path(), segment });
                    }
                }
            }
            match self.assignment.assign_next(now, &mut self.send, &mut self.subflows) {
                Assigned::AtOnce(id, chunk) => {
                    let stamp = self.stamp();
                    let subflow = &mut self.subflows[id];
                    let segment = subflow.send_chunk(now, &stamp, &chunk);
                    return Some(Transmit { path: subflow.path(), segment });
                }
                Assigned::Queued => {}
                Assigned::Nothing => break false,
                Assigned::Full => break true,
            }
        };
        // With several subflows, the scheduler may starve one while there is data to send.
        let starved = !self.send.has_unsent() || self.subflows.all().len() > 1;
        let (mut owes_probe, mut owes_ack) = (false, false);
        for subflow in self.subflows.all_mut() {
            if starved {
                subflow.note_starved();
            }
            owes_probe |= subflow.owes_tail_probe();
            owes_ack |= subflow.owes_ack();
        }
        if owes_probe {
            let stamp = self.stamp();
            let sent = self.subflows.poll(|subflow| subflow.poll_tail_probe(now, &stamp));
            if sent.is_some() {
                return sent;
            }
        }
        if let Some(transmit) = self.poll_address(now).or_else(|| self.poll_fin(now)) {
            return Some(transmit);
        }
        if owes_ack {
            return self.send_ack(now);
        }
        self.full = full && self.subflows.all().iter().all(Subflow::is_unpaced);
        None
    }

    #[cold]
    fn poll_address(&mut self, now: Instant) -> Option<Transmit> {
        let (flags, path) = self.addresses.front()?;
        let transmit = self.signal(now, flags, |tcp| tcp.address = path.0)?;
        self.addresses.pop();
        Some(transmit)
    }

    #[cold]
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

    fn signal(&mut self, now: Instant, flags: Flags, mark: impl Fn(&mut Tcp)) -> Option<Transmit> {
        let stamp = self.stamp();
        self.subflows.signal(now, &stamp, flags, mark)
    }

    #[inline]
    fn stamp(&mut self) -> Stamp {
        let free = self.receive.buffer().saturating_sub(self.buffered().get());
        let window_end = self.receive.advertise(self.relay.window(free));
        Stamp { data_ack: self.receive.next(), window_end, data_una: self.send.data_una() }
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    #[inline]
    pub fn next_wakeup(&self) -> Instant {
        let own = self.assignment.next_wakeup().min(self.addresses.next_wakeup());
        let own = own.min(self.closing.next_wakeup());
        self.subflows.all().iter().map(Subflow::next_wakeup).fold(own, Instant::min)
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        self.full = false;
        for own in self.subflows.ids() {
            if self.subflows[own].is_due(now)
                && let Some((subflow, siblings)) = self.subflows.with_siblings(own.number())
                && let Some(event) = subflow.wake(now, siblings)
            {
                self.on_event(now, event, own);
            }
        }
        self.assignment.wake(now, &mut self.subflows);
        self.addresses.wake(now);
        self.closing.wake(now);
    }

    /// Totals of the connection up to `now`.
    pub fn totals(&self, now: Instant) -> ConnectionTotals {
        let peer_window = self.assignment.peer_window();
        ConnectionTotals {
            window_blocked: peer_window.map_or(Duration::ZERO, |window| window.time(now)),
            window_blocked_times: peer_window.map_or(0, PeerWindow::times),
            holding: self.receive.holding(now),
            reinjections: self.send.reinjections(),
            opportunistic: peer_window.map_or(0, PeerWindow::opportunistic),
        }
    }

    /// Returns the state of each subflow.
    pub fn samples(&self) -> impl Iterator<Item = SubflowSample> + '_ {
        self.subflows.all().iter().map(Subflow::sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Protocol};
    use alloc::vec::Vec;

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

    #[test]
    fn an_idle_connection_sends_one_acknowledgement_per_subflow() {
        for protocol in [Protocol::Tcp, Protocol::Mptcp] {
            let config = TransportConfig { protocol, ..TransportConfig::default() }.into();
            let paths = [PathInfo::default(); 2];
            let [mut client, mut server] =
                [Role::Client, Role::Server].map(|role| Connection::new(&config, &paths, role));
            for _ in 0..6 {
                exchange(&mut client, &mut server, |_| true);
                exchange(&mut server, &mut client, |_| true);
            }
            let subflows = server.subflows.all_mut();
            assert!(subflows.iter().all(Subflow::is_established) && !subflows.is_empty());
            subflows.iter_mut().for_each(Subflow::acknowledge_now);
            let due: Vec<PathId> = subflows.iter().map(Subflow::path).collect();
            let mut sent = Vec::new();
            server.send_all(NOW, &mut |transmit| sent.push(transmit.path));
            assert_eq!(sent, due);
            assert!(server.poll_send(NOW).is_none());
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
        let config = config.into();
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
