//! One end of a connection, independent of its protocol.

use alloc::boxed::Box;
use alloc::sync::Arc;

use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::coding::Recovered;
use crate::datagram::Datagrams;
use crate::mpdccp;
use crate::mptcp::Connection;
use crate::parallel::Parallel;
use crate::scheduler::Choice;
use crate::scheduler::forecast::Forecast;
use crate::segment::{Body, Datagram, REPAIR_HEADER, Segment};
use crate::tcp::subflow::Totals;
use crate::{Delivered, Message, PathId, PathInfo, Protocol, TransportConfig};

/// Role of an endpoint in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens the connection.
    Client,
    /// Accepts the connection.
    Server,
}

/// An outgoing segment and its path.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Path to send on.
    pub path: PathId,
    /// Segment to send.
    pub segment: Segment,
}

/// A scheduling decision, for the `decisions` table.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// Instant of the decision.
    pub at: Instant,
    /// Number of the first message that ends in the scheduled unit.
    pub first_message: u32,
    /// Choice of the scheduler, with its reason.
    pub choice: Choice,
}

/// State of a subflow at one instant.
#[derive(Clone, Copy, Debug)]
pub struct SubflowSample {
    /// Number of the subflow within the connection.
    pub subflow: u8,
    /// Path of the subflow.
    pub path: PathId,
    /// Congestion window.
    pub window: Bytes,
    /// Slow start threshold.
    pub threshold: Bytes,
    /// Pacing rate, if the congestion control sets one.
    pub pacing: Option<Rate>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Bytes in flight.
    pub in_flight: Bytes,
    /// Totals since the start.
    pub totals: Totals,
}

/// Totals of a connection since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionTotals {
    /// Time for which the peer's receive window blocked data although a path had room.
    pub window_blocked: Duration,
    /// Number of times that the receive window began to block.
    pub window_blocked_times: u64,
    /// Time for which the receiver buffered data because earlier data was missing.
    pub holding: Duration,
    /// Chunks reinjected on another path because their own path failed.
    pub reinjections: u64,
    /// Chunks retransmitted on a faster path because the peer's receive window blocked.
    pub opportunistic: u64,
}

impl core::ops::AddAssign for ConnectionTotals {
    fn add_assign(&mut self, more: Self) {
        self.window_blocked += more.window_blocked;
        self.window_blocked_times += more.window_blocked_times;
        self.holding += more.holding;
        self.reinjections += more.reinjections;
        self.opportunistic += more.opportunistic;
    }
}

/// One end of a connection. The crate's documentation defines the order of calls.
#[derive(Debug)]
pub enum Endpoint {
    /// Unreliable datagrams.
    Datagrams(Box<Datagrams>),
    /// A reliable, ordered stream.
    Stream(Box<Connection>),
    /// Several independent streams.
    Parallel(Box<Parallel>),
    /// Unreliable datagrams under congestion control.
    Dccp(Box<mpdccp::Connection>),
}

impl Endpoint {
    /// Creates an endpoint over `paths`; a protocol of one path uses the first. Endpoints may share
    /// their configuration.
    pub fn new(config: impl Into<Arc<TransportConfig>>, paths: &[PathInfo], role: Role) -> Self {
        let config = &config.into();
        match config.protocol {
            Protocol::Udp => Self::Datagrams(Box::new(Datagrams::new(config, paths))),
            Protocol::Tcp => {
                let first = paths.get(..1).unwrap_or(paths);
                Self::Stream(Box::new(Connection::new(config, first, role)))
            }
            Protocol::Mptcp => Self::Stream(Box::new(Connection::new(config, paths, role))),
            Protocol::ParallelTcp => Self::Parallel(Box::new(Parallel::new(config, paths, role))),
            Protocol::Dccp => {
                let first = paths.get(..1).unwrap_or(paths);
                Self::Dccp(Box::new(mpdccp::Connection::new(config, first, role)))
            }
            Protocol::MpDccp => Self::Dccp(Box::new(mpdccp::Connection::new(config, paths, role))),
        }
    }

    /// Queues a message of the application.
    #[inline]
    pub fn write(&mut self, now: Instant, message: Message) {
        match self {
            Self::Datagrams(datagrams) => datagrams.write(now, message),
            Self::Stream(connection) => connection.write(message),
            Self::Parallel(connections) => connections.write(message),
            Self::Dccp(connection) => connection.write(message),
        }
    }

    /// Bytes written but not yet acknowledged (datagrams: not yet sent). For parallel connections,
    /// those of the connection that carries the next message.
    pub fn unacknowledged(&self) -> Bytes {
        match self {
            Self::Datagrams(datagrams) => datagrams.unsent(),
            Self::Stream(connection) => connection.unacknowledged(),
            Self::Parallel(connections) => connections.unacknowledged(),
            Self::Dccp(connection) => connection.unsent(),
        }
    }

    /// Bytes that the send buffer of a stream holds; for parallel connections, that of the connection that carries the
    /// next message. None for datagrams.
    pub fn send_buffer(&self) -> Option<Bytes> {
        match self {
            Self::Datagrams(_) | Self::Dccp(_) => None,
            Self::Stream(connection) => Some(connection.send_buffer()),
            Self::Parallel(connections) => connections.send_buffer(),
        }
    }

    /// True if [`take_refused`](Self::take_refused) has something to take.
    #[inline]
    pub fn has_refused(&self) -> bool {
        matches!(self, Self::Dccp(connection) if connection.has_refused())
    }

    /// Takes the numbers of the messages dropped unsent since the last call.
    pub fn take_refused(&mut self, take: &mut impl FnMut(u32)) {
        if let Self::Dccp(connection) = self {
            connection.take_refused().for_each(take);
        }
    }

    /// Reports the number of each message that is still wholly or partly unsent; none for a stream,
    /// which drops nothing.
    pub fn waiting(&self, take: &mut impl FnMut(u32)) {
        match self {
            Self::Datagrams(datagrams) => datagrams.waiting().for_each(take),
            Self::Stream(_) | Self::Parallel(_) => {}
            Self::Dccp(connection) => connection.waiting().for_each(take),
        }
    }

    /// Processes a segment that arrived on `path`. A segment of another protocol is ignored.
    #[inline]
    pub fn receive(&mut self, now: Instant, path: PathId, segment: &Segment) {
        self.receive_with(now, path, segment, &[]);
    }

    /// Processes a segment with its payload, which [`take_recovered`](Self::take_recovered) needs.
    #[inline(always)]
    pub fn receive_with(&mut self, now: Instant, path: PathId, segment: &Segment, payload: &[u8]) {
        let sent_at = segment.sent_at;
        match (self, &segment.body) {
            (Self::Datagrams(datagrams), Body::Datagram(datagram)) => {
                datagrams.receive(now, path, sent_at, datagram, payload);
            }
            (Self::Datagrams(datagrams), Body::Repair(repair)) => {
                datagrams.receive_repair(now, path, sent_at, repair, payload);
            }
            (Self::Datagrams(datagrams), Body::Report(report)) => {
                datagrams.receive_report(now, path, sent_at, report);
            }
            (Self::Stream(connection), Body::Tcp(tcp)) => {
                connection.receive(now, path, segment, tcp);
            }
            (Self::Parallel(connections), Body::Tcp(tcp)) => {
                connections.receive(now, path, segment, tcp);
            }
            (Self::Dccp(connection), Body::Dccp(dccp)) => {
                connection.receive(now, path, sent_at, dccp);
            }
            _ => {}
        }
    }

    /// Takes a datagram that was recovered with its payload.
    pub fn take_recovered(&mut self) -> Option<Recovered> {
        let Self::Datagrams(datagrams) = self else { return None };
        datagrams.take_recovered()
    }

    /// Overhead of a repair packet over the largest datagram that it covers, in bytes; zero without repair.
    pub const fn repair_overhead(&self) -> u32 {
        match self {
            Self::Datagrams(datagrams) if datagrams.is_coded() => REPAIR_HEADER,
            _ => 0,
        }
    }

    /// Returns a datagram that was sent and may be covered by a repair packet.
    pub fn sent(&self, sequence: u64) -> Option<&Datagram> {
        let Self::Datagrams(datagrams) = self else { return None };
        datagrams.sent(sequence)
    }

    /// Returns the next segment to send now.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        match self {
            Self::Datagrams(datagrams) => datagrams.poll_send(now),
            Self::Stream(connection) => connection.poll_send(now),
            Self::Parallel(connections) => connections.poll_send(now),
            Self::Dccp(connection) => connection.poll_send(now),
        }
    }

    /// Returns the next delivered message.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        match self {
            Self::Datagrams(datagrams) => datagrams.poll_delivered(),
            Self::Stream(connection) => connection.poll_delivered(),
            Self::Parallel(connections) => connections.poll_delivered(),
            Self::Dccp(connection) => connection.poll_delivered(),
        }
    }

    /// Instant at which [`wake`](Self::wake) must be called; [`Instant::FAR_FUTURE`] for never.
    pub fn next_wakeup(&self) -> Instant {
        match self {
            Self::Datagrams(datagrams) => datagrams.next_wakeup(),
            Self::Stream(connection) => connection.next_wakeup(),
            Self::Parallel(connections) => connections.next_wakeup(),
            Self::Dccp(connection) => connection.next_wakeup(),
        }
    }

    /// Fires expired timers. Calling it early does no harm.
    pub fn wake(&mut self, now: Instant) {
        match self {
            Self::Datagrams(datagrams) => datagrams.wake(now),
            Self::Stream(connection) => connection.wake(now),
            Self::Parallel(connections) => connections.wake(now),
            Self::Dccp(connection) => connection.wake(now),
        }
    }

    /// Starts recording scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        match self {
            Self::Datagrams(datagrams) => datagrams.record_decisions(),
            Self::Stream(connection) => connection.record_decisions(),
            // Messages take turns: there is nothing to decide.
            Self::Parallel(_) => {}
            Self::Dccp(connection) => connection.record_decisions(),
        }
    }

    /// Takes the scheduling decisions since the last call.
    pub fn take_decisions(&mut self, take: &mut impl FnMut(Decision)) {
        match self {
            Self::Datagrams(datagrams) => datagrams.take_decisions().for_each(take),
            Self::Stream(connection) => connection.take_decisions().for_each(take),
            Self::Dccp(connection) => connection.take_decisions().for_each(take),
            Self::Parallel(_) => {}
        }
    }

    /// Closes the sending side: the application writes no more; written data is still delivered.
    pub fn close(&mut self) {
        match self {
            Self::Datagrams(_) | Self::Dccp(_) => {}
            Self::Stream(connection) => connection.close(),
            Self::Parallel(parallel) => parallel.close(),
        }
    }

    /// Adds a local address: `path` may be used from now on.
    pub fn add_path(&mut self, now: Instant, path: PathId) {
        match self {
            Self::Datagrams(_) | Self::Parallel(_) | Self::Dccp(_) => {}
            Self::Stream(connection) => connection.add_path(now, path),
        }
    }

    /// Removes a local address: `path` can no longer be used.
    pub fn remove_path(&mut self, path: PathId) {
        match self {
            Self::Datagrams(_) | Self::Parallel(_) | Self::Dccp(_) => {}
            Self::Stream(connection) => connection.remove_path(path),
        }
    }

    /// Allows or forbids new messages on `path`, for drivers that monitor paths themselves.
    /// Acknowledgements and keep-alives continue. Streams ignore it: they detect failures
    /// themselves.
    pub fn set_usable(&mut self, path: PathId, usable: bool) {
        match self {
            Self::Datagrams(datagrams) => datagrams.set_usable(path, usable),
            Self::Stream(_) | Self::Parallel(_) => {}
            Self::Dccp(connection) => connection.set_usable(path, usable),
        }
    }

    /// Processes a measurement of the queue of `path`, for drivers that measure queues themselves. While the queue is
    /// too long, `share` is the fraction of the bytes in flight that fits: nothing leaves until the queue is short
    /// again; then that many may be in flight, and more with each measurement. While acknowledgements are overdue,
    /// nothing leaves for at most 300 ms, since a measurement is on its way. For DCCP and MP-DCCP alone.
    pub fn on_queue(&mut self, now: Instant, path: PathId, share: Option<f64>) {
        if let Self::Dccp(connection) = self {
            connection.on_queue(now, path, share);
        }
    }

    /// Time until a datagram written now could leave, behind those that are assigned to paths; zero where no pace is
    /// known. For DCCP and MP-DCCP alone.
    pub fn pacing_delay(&self) -> Duration {
        match self {
            Self::Dccp(connection) => connection.pacing_delay(),
            Self::Datagrams(_) | Self::Stream(_) | Self::Parallel(_) => Duration::ZERO,
        }
    }

    /// Probes `path` at once if it seemed to have failed, for drivers that know that it works again. For DCCP and
    /// MP-DCCP alone.
    pub fn retry(&mut self, now: Instant, path: PathId) {
        if let Self::Dccp(connection) = self {
            connection.retry(now, path);
        }
    }

    /// True if the peer is a proxy: data that it acknowledges may still be lost before the far end.
    pub const fn is_split(&self) -> bool {
        match self {
            Self::Datagrams(_) | Self::Parallel(_) | Self::Dccp(_) => false,
            Self::Stream(connection) => connection.is_split(),
        }
    }

    /// Share of the messages that the scheduler expects in time, if it estimates it.
    pub fn forecast(&self) -> Option<Forecast> {
        match self {
            Self::Datagrams(datagrams) => datagrams.forecast(),
            Self::Dccp(connection) => connection.forecast(),
            Self::Stream(_) | Self::Parallel(_) => None,
        }
    }

    /// True if the scheduler needs reports of the peer and none has come for `time` after a packet.
    pub fn never_answered(&self, now: Instant, time: Duration) -> bool {
        match self {
            Self::Datagrams(datagrams) => datagrams.never_answered(now, time),
            Self::Stream(_) | Self::Parallel(_) | Self::Dccp(_) => false,
        }
    }

    /// Totals of the connection up to `now`.
    pub fn totals(&self, now: Instant) -> ConnectionTotals {
        match self {
            Self::Datagrams(_) | Self::Dccp(_) => ConnectionTotals::default(),
            Self::Stream(connection) => connection.totals(now),
            Self::Parallel(parallel) => parallel.totals(now),
        }
    }

    /// Reports the state of each subflow; none for a protocol without subflows.
    pub fn samples(&self, take: &mut impl FnMut(SubflowSample)) {
        match self {
            Self::Datagrams(_) => {}
            Self::Stream(connection) => connection.samples().for_each(take),
            Self::Parallel(connections) => connections.samples().for_each(take),
            Self::Dccp(connection) => connection.samples().for_each(take),
        }
    }
}
