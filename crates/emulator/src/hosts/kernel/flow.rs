//! A flow of a scenario over a connection of the kernel.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use skybraid_host::{FlowSetup, Host, Outcome};
use skybraid_traffic::{Source, TrafficConfig};
use skybraid_transport::{ConnectionTotals, PathId};
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};
use socket2::Socket;

use super::connection::{ConnectionError, End, Interest, Part, READ};
use super::framing::MAX_WRITE;
use super::sampling::Subflows;
use super::sockets::Options;
use super::{Ends, KernelError, supports};

/// A flow over the kernel's TCP or MPTCP: both its ends and their applications.
///
/// A driver opens it before the run, then calls [`step`](Self::step) when one of the descriptors of
/// [`interest`](Self::interest) is ready or [`next_due`](Self::next_due) is reached, [`sample`](Self::sample)
/// every 100 ms, and [`finish`](Self::finish) at the end, before [`skybraid_host::Hosts::finish`]. The
/// vehicle connects at the run's start, as in simulation.
#[derive(Debug)]
pub struct KernelFlow {
    name: String,
    from: Host,
    source: Source,
    /// A bulk application writes whenever there is space, between start and stop.
    bulk: bool,
    start: Instant,
    stop: Instant,
    bytes: u32,
    state: State,
    /// Kept open for further MPTCP subflows.
    listener: Socket,
    vehicle: SocketAddr,
    ground: SocketAddr,
    options: Options,
    sender: End,
    receiver: End,
    /// A bulk application is active.
    fills: bool,
    buffer: Box<[u8]>,
    handshake: Option<Duration>,
    ended: Option<KernelError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Connecting { since: Instant },
    Established,
}

/// Results of a flow's connection.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Handshake duration from the vehicle's SYN until it is established; `None` if it never was.
    pub handshake: Option<Duration>,
    /// An MPTCP connection fell back to TCP.
    pub fell_back: bool,
    /// Total number of the sender's subflows.
    pub subflows: usize,
    /// Name of the congestion control in the kernel.
    pub congestion: &'static str,
    /// Addresses of the vehicle and the ground.
    pub addresses: (SocketAddr, SocketAddr),
    /// Payload bytes accepted by the sender's socket, by second of the run.
    pub sent_by_second: Vec<u64>,
    /// Payload bytes read from the receiver's socket, by second of the run.
    pub received_by_second: Vec<u64>,
    /// Segments retransmitted by the sender.
    pub retransmitted: u64,
    /// Error that ended the flow early, if any.
    pub ended: Option<KernelError>,
}

impl KernelFlow {
    /// Opens flow number `index` of a run that ends at `end`: creates the sockets in their namespaces and
    /// listens. The replies of the flow have the record number `answers` in [`Outcome::flows`].
    ///
    /// # Errors
    /// The kernel does not support the flow's transport ([`supports`]), the flow shares another's connection,
    /// or a socket cannot be set up.
    pub fn open(
        flow: &FlowSetup,
        index: usize,
        answers: Option<usize>,
        end: Instant,
        ends: &Ends<'_>,
    ) -> Result<Self, KernelError> {
        let unsupported = |reason| KernelError::Unsupported { flow: flow.name.clone(), reason };
        supports(&flow.transport).map_err(unsupported)?;
        if flow.rides_with.is_some() {
            let reason = "it rides in another flow's connection, which is for simulation only";
            return Err(unsupported(reason.to_owned()));
        }
        if flow.traffic.video().is_some_and(|video| video.is_reported()) {
            let reason = "its reports for `rate_control` come back through Skybraid's own transports; \
                          expected `stack = \"skybraid\"`";
            return Err(unsupported(reason.to_owned()));
        }
        let options = Options::new(&flow.name, &flow.transport)?;
        let (listener, ground) = options.ground(ends)?;
        let socket = options.vehicle(ends)?;
        let stop = flow.stop.min(end);
        let multipath = options.is_multipath();
        let part = Part {
            writes: Some(index),
            gets: answers,
            answers: false,
            bytes: message_bytes(&flow.traffic),
            copies: flow.copies,
            path: PathId(if multipath { u8::MAX } else { 0 }),
        };
        let back = Part { writes: answers, gets: Some(index), answers: answers.is_some(), ..part };
        let subflows = |host| {
            let vehicle = host == Host::Vehicle;
            Subflows::new(index, vehicle, multipath, options.is_paced(), &ends.paths)
        };
        let (to, from) = match flow.from {
            Host::Vehicle => (Host::Ground, Host::Vehicle),
            Host::Ground => (Host::Vehicle, Host::Ground),
        };
        let mut opened = Self {
            name: flow.name.clone(),
            from: flow.from,
            source: Source::new(&flow.traffic, flow.start, stop),
            bulk: matches!(flow.traffic, TrafficConfig::Bulk { .. }),
            start: flow.start,
            stop,
            bytes: part.bytes,
            state: State::Ready,
            listener,
            vehicle: SocketAddr::new(ends.vehicle, 0),
            ground,
            sender: End::new(part, subflows(from)),
            receiver: End::new(back, subflows(to)),
            options,
            fills: false,
            buffer: vec![0; READ].into_boxed_slice(),
            handshake: None,
            ended: None,
        };
        opened.vehicle_end().socket = Some(socket);
        Ok(opened)
    }

    /// Returns the error that ended the flow early, if any.
    pub const fn ended(&self) -> Option<&KernelError> {
        self.ended.as_ref()
    }

    /// Returns the descriptors whose readiness requires a [`step`](Self::step).
    pub fn interest(&self) -> impl Iterator<Item = Interest<'_>> {
        let running = self.ended.is_none();
        let [vehicle, ground] = match self.from {
            Host::Vehicle => [&self.sender, &self.receiver],
            Host::Ground => [&self.receiver, &self.sender],
        };
        let both = match self.state {
            _ if !running => [None, None],
            State::Ready => [None, None],
            State::Connecting { .. } => {
                let wish = vehicle.socket.as_ref().map(|socket| Interest {
                    socket: socket.as_fd(),
                    readable: false,
                    writable: true,
                });
                [wish, ground.interest(false)]
            }
            State::Established => [self.sender.interest(self.fills), self.receiver.interest(false)],
        };
        let listens = running && self.state != State::Ready && ground.socket.is_none();
        let socket = self.listener.as_fd();
        let listener = Interest { socket, readable: true, writable: false };
        both.into_iter().flatten().chain(listens.then_some(listener))
    }

    /// Returns the latest time of the next [`step`](Self::step), apart from ready descriptors;
    /// [`Instant::FAR_FUTURE`] if none.
    pub fn next_due(&self) -> Instant {
        if self.ended.is_some() {
            return if self.bulk { Instant::FAR_FUTURE } else { self.source.next_write() };
        }
        let connect = match self.state {
            State::Ready => Instant::ZERO,
            State::Connecting { .. } | State::Established => Instant::FAR_FUTURE,
        };
        connect.min(match (self.bulk, self.fills) {
            (false, _) => self.source.next_write(),
            (true, true) => self.stop,
            (true, false) if self.sender.finished => Instant::FAR_FUTURE,
            (true, false) => self.start,
        })
    }

    /// Makes all progress possible at `now` without blocking: connects, writes due messages, sends, receives,
    /// replies. Messages are recorded in `outcome`.
    ///
    /// # Errors
    /// The flow has ended: its connection failed, or the received data differs from the data written. The
    /// error is returned once and kept as [`ended`](Self::ended); records are kept, the sockets are closed,
    /// and further writes of the application are refused.
    pub fn step(&mut self, now: Instant, outcome: &mut Outcome) -> Result<(), KernelError> {
        if self.ended.is_some() {
            self.refuse(now, outcome);
            return Ok(());
        }
        let result = self.advance(now, outcome);
        if let Err(error) = &result {
            self.ended = Some(error.clone());
            self.sender.abort();
            self.receiver.abort();
        }
        result
    }

    /// Refuses messages from the application of an ended flow.
    fn refuse(&mut self, now: Instant, outcome: &mut Outcome) {
        let record = self
            .sender
            .writes
            .and_then(|writes| outcome.flows.get_mut(writes).promised("a flow of this run"));
        let Some(record) = record.filter(|_| !self.bulk) else { return };
        while let Some(written) = self.source.write(now) {
            let id = record.next_id();
            record.on_written(now, written);
            (0..self.sender.copies()).for_each(|_| record.on_refused(id));
        }
    }

    fn advance(&mut self, now: Instant, outcome: &mut Outcome) -> Result<(), KernelError> {
        if self.state == State::Ready && now >= Instant::ZERO {
            self.connect(now)?;
        }
        if self.state != State::Ready && self.ground_end().socket.is_none() {
            self.accept()?;
        }
        if let State::Connecting { since } = self.state {
            self.await_established(now, since)?;
        }
        if !self.bulk {
            while let Some(written) = self.source.write(now) {
                self.sender.write(now, written, outcome);
            }
            self.sender.finished = self.source.next_write() == Instant::FAR_FUTURE;
        } else {
            self.fills = self.start <= now && now < self.stop;
            self.sender.finished = now >= self.stop;
        }
        if self.state != State::Established {
            return Ok(());
        }
        self.exchange(now, outcome).map_err(|trouble| self.error(trouble))
    }

    fn exchange(&mut self, now: Instant, outcome: &mut Outcome) -> Result<(), ConnectionError> {
        let Self { sender, receiver, buffer, .. } = self;
        let mut room = super::connection::STEP;
        loop {
            if self.fills && sender.outgoing.is_empty() {
                for _ in 0..MAX_WRITE.div_ceil(self.bytes as usize) {
                    sender.write(now, self.bytes.into(), outcome);
                }
            }
            let taken = sender.send(now, outcome)?;
            room = room.saturating_sub(taken);
            if !self.fills || room == 0 || !sender.outgoing.is_empty() {
                break;
            }
        }
        receiver.receive(now, buffer, outcome)?;
        receiver.send(now, outcome)?;
        sender.receive(now, buffer, outcome)
    }

    fn connect(&mut self, now: Instant) -> Result<(), KernelError> {
        let ground = self.ground;
        let Some(socket) = &self.vehicle_end().socket else { return Ok(()) };
        let result = socket.connect(&ground.into());
        let bound = socket.local_addr().ok().and_then(|address| address.as_socket());
        self.vehicle = bound.unwrap_or(self.vehicle);
        self.state = State::Connecting { since: now };
        match result {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                Err(self.error(ConnectionError::Io("connecting", error)))
            }
            _ => Ok(()),
        }
    }

    fn await_established(&mut self, now: Instant, since: Instant) -> Result<(), KernelError> {
        let Some(socket) = &self.vehicle_end().socket else { return Ok(()) };
        match socket.take_error() {
            Ok(Some(error)) | Err(error) => {
                return Err(self.error(ConnectionError::Io("connecting", error)));
            }
            Ok(None) => {}
        }
        if socket.peer_addr().is_ok() {
            self.state = State::Established;
            self.handshake = Some(now - since);
        }
        Ok(())
    }

    /// Accepts the vehicle's connection, and no other, from the listening socket.
    fn accept(&mut self) -> Result<(), KernelError> {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.error(ConnectionError::Io("accepting", error))),
            };
            if peer.as_socket() != Some(self.vehicle) {
                continue;
            }
            let made = socket.set_nonblocking(true);
            made.map_err(self.options.failed("make a socket non-blocking".to_owned()))?;
            self.options.set_on_connection(&socket)?;
            self.ground_end().socket = Some(socket);
            return Ok(());
        }
    }

    /// Adds a row for each subflow of every sending end.
    pub fn sample(&mut self, now: Instant, outcome: &mut Outcome) {
        if self.ended.is_some() || self.state != State::Established {
            return;
        }
        for end in [&mut self.sender, &mut self.receiver] {
            if end.writes.is_some()
                && let Some(socket) = &end.socket
                && end.subflows.sample(socket).is_ok()
            {
                outcome.subflows.extend(end.subflows.rows(now));
            }
        }
    }

    /// Finishes the run. Adds the connection's results to the summaries of the flow's records. Undelivered
    /// messages of a flow that ended early are given up.
    pub fn finish(mut self, outcome: &mut Outcome) -> Finished {
        let multipath = self.options.is_multipath();
        for end in [&mut self.sender, &mut self.receiver] {
            if let Some(socket) = &end.socket {
                end.subflows.sample(socket).ok();
            }
            let record = end
                .writes
                .and_then(|writes| outcome.flows.get_mut(writes).promised("a flow of this run"));
            let Some(record) = record else { continue };
            for subflow in end.subflows.known() {
                let path = subflow.path.unwrap_or(usize::MAX);
                if let Some(packets) = record.summary.packets_by_path.get_mut(path) {
                    *packets += u64::from(subflow.last.data_segments);
                }
                if !multipath {
                    let blocked_us = i64::try_from(subflow.last.window_blocked_us).unwrap_or(0);
                    record.summary.connection.window_blocked += Duration::from_micros(blocked_us);
                }
            }
            let reinjections = u64::from(end.subflows.connection().reinjections);
            record.summary.connection +=
                ConnectionTotals { reinjections, ..ConnectionTotals::default() };
            if self.ended.is_some() {
                let ids = record.blocks().flatten().zip(record.first_id()..);
                let missing = ids.filter(|(message, _)| message.delivered().is_none());
                let missing: Vec<u32> = missing.map(|(_, id)| id).collect();
                for id in missing {
                    (0..end.copies()).for_each(|_| record.on_refused(id));
                }
            }
        }
        let known = self.sender.subflows.known();
        let retransmitted = |sum, subflow: &super::sampling::Subflow| {
            sum + u64::from(subflow.last.total_retransmitted)
        };
        Finished {
            handshake: self.handshake,
            fell_back: self.sender.subflows.connection().fell_back,
            subflows: known.len(),
            congestion: self.options.congestion(),
            addresses: (self.vehicle, self.ground),
            retransmitted: known.iter().fold(0, retransmitted),
            sent_by_second: self.sender.sent_by_second,
            received_by_second: self.receiver.received_by_second,
            ended: self.ended,
        }
    }

    fn vehicle_end(&mut self) -> &mut End {
        match self.from {
            Host::Vehicle => &mut self.sender,
            Host::Ground => &mut self.receiver,
        }
    }

    fn ground_end(&mut self) -> &mut End {
        match self.from {
            Host::Vehicle => &mut self.receiver,
            Host::Ground => &mut self.sender,
        }
    }

    fn error(&self, trouble: ConnectionError) -> KernelError {
        let flow = self.name.clone();
        let ends = format!("vehicle {}, ground {}", self.vehicle, self.ground);
        match trouble {
            ConnectionError::Framing(error) => KernelError::Framing { flow, ends, error },
            ConnectionError::Io(doing, error) => {
                KernelError::Connection { flow, ends, doing, reason: error.to_string() }
            }
        }
    }
}

#[cfg(test)]
impl KernelFlow {
    /// Returns the sockets of sender and receiver of an established connection.
    pub(super) fn sockets(&self) -> [&Socket; 2] {
        [&self.sender, &self.receiver].map(|end| end.socket.as_ref().unwrap())
    }

    pub(super) fn close_receiver(&mut self) {
        self.receiver.socket = None;
    }

    pub(super) fn stop_listening(&mut self) {
        let (domain, protocol) = (socket2::Domain::IPV4, socket2::Protocol::TCP);
        self.listener = super::stream_socket(domain, protocol).unwrap();
        self.listener.listen(1).unwrap();
    }
}

/// Returns the message size of a flow in bytes, for a video the maximum.
pub(super) fn message_bytes(traffic: &TrafficConfig) -> u32 {
    let size = match traffic {
        TrafficConfig::Cbr { packet, .. }
        | TrafficConfig::Bulk { packet }
        | TrafficConfig::OnOff { packet, .. }
        | TrafficConfig::Ping { packet, .. } => packet,
        TrafficConfig::File { size } => size,
        TrafficConfig::Video(video) => &video.packet,
    };
    u32::try_from(size.get()).unwrap_or(u32::MAX).max(1)
}
