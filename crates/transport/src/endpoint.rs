//! One end of a connection of any protocol, as a driver sees it.

use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::datagram::Datagrams;
use crate::mpdccp;
use crate::mptcp::Connection;
use crate::scheduler::Choice;
use crate::segment::{Body, Segment};
use crate::tcp::subflow::Totals;
use crate::{Delivered, Message, PathId, PathInfo, Protocol, TransportConfig};

/// Who opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that opens it.
    Client,
    /// The end that answers.
    Server,
}

/// A segment and the path on which it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// On which path.
    pub path: PathId,
    /// What.
    pub segment: Segment,
}

/// A scheduling decision, for the `decisions` table.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// Number of the first message that ends in the unit.
    pub first_message: u32,
    /// The answer with its reason.
    pub choice: Choice,
}

/// How a subflow stands.
#[derive(Clone, Copy, Debug)]
pub struct SubflowSample {
    /// Its path.
    pub path: PathId,
    /// Congestion window.
    pub window: Bytes,
    /// Slow start threshold.
    pub threshold: Bytes,
    /// Pacing rate, where the congestion control sets one.
    pub pacing: Option<Rate>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Bytes in flight.
    pub in_flight: Bytes,
    /// Totals since the start.
    pub totals: Totals,
}

/// One end of a connection.
///
/// See the crate's documentation for the order of calls.
#[derive(Debug)]
pub enum Endpoint {
    /// Unreliable datagrams.
    Datagrams(Datagrams),
    /// A reliable stream.
    Stream(Connection),
    /// Unreliable datagrams under congestion control.
    Dccp(mpdccp::Connection),
}

impl Endpoint {
    /// One end of a connection over `paths`, the first one first.
    pub fn new(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        match config.protocol {
            Protocol::Udp => Self::Datagrams(Datagrams::new(config, paths)),
            Protocol::Tcp => {
                let first = paths.get(..1).unwrap_or(paths);
                Self::Stream(Connection::new(config, first, role))
            }
            Protocol::Mptcp => Self::Stream(Connection::new(config, paths, role)),
            Protocol::Dccp => {
                let first = paths.get(..1).unwrap_or(paths);
                Self::Dccp(mpdccp::Connection::new(config, first, role))
            }
            Protocol::MpDccp => Self::Dccp(mpdccp::Connection::new(config, paths, role)),
        }
    }

    /// The application writes a message.
    pub fn write(&mut self, now: Instant, message: Message) {
        match self {
            Self::Datagrams(datagrams) => datagrams.write(now, message),
            Self::Stream(connection) => connection.write(message),
            Self::Dccp(connection) => connection.write(message),
        }
    }

    /// Bytes written and not yet acknowledged; for datagrams, not yet sent.
    pub fn unacknowledged(&self) -> Bytes {
        match self {
            Self::Datagrams(datagrams) => datagrams.unsent(),
            Self::Stream(connection) => connection.unacknowledged(),
            Self::Dccp(connection) => connection.unsent(),
        }
    }

    /// Hands over the numbers of the messages that the endpoint has given up unsent since the last
    /// call.
    pub fn take_refused(&mut self, take: &mut impl FnMut(u32)) {
        if let Self::Dccp(connection) = self {
            connection.take_refused().for_each(take);
        }
    }

    /// A segment arrived on `path`. One of another protocol is ignored.
    pub fn receive(&mut self, now: Instant, path: PathId, segment: &Segment) {
        match (self, &segment.body) {
            (Self::Datagrams(datagrams), Body::Datagram(datagram)) => {
                datagrams.receive(now, path, segment.sent_at, datagram);
            }
            (Self::Datagrams(datagrams), Body::Report(report)) => {
                datagrams.receive_report(now, path, report);
            }
            (Self::Stream(connection), Body::Tcp(tcp)) => {
                connection.receive(now, path, segment, tcp);
            }
            (Self::Dccp(connection), Body::Dccp(dccp)) => connection.receive(now, path, dccp),
            _ => {}
        }
    }

    /// The next segment to leave now; `None` when there is none.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        match self {
            Self::Datagrams(datagrams) => datagrams.poll_send(now),
            Self::Stream(connection) => connection.poll_send(now),
            Self::Dccp(connection) => connection.poll_send(now),
        }
    }

    /// The next message that has arrived; `None` when there is none.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        match self {
            Self::Datagrams(datagrams) => datagrams.poll_delivered(),
            Self::Stream(connection) => connection.poll_delivered(),
            Self::Dccp(connection) => connection.poll_delivered(),
        }
    }

    /// When to call [`wake`](Self::wake); [`Instant::FAR_FUTURE`] for never.
    pub fn next_wakeup(&self) -> Instant {
        match self {
            Self::Datagrams(datagrams) => datagrams.next_wakeup(),
            Self::Stream(connection) => connection.next_wakeup(),
            Self::Dccp(connection) => connection.next_wakeup(),
        }
    }

    /// Time has passed. Calling it early does no harm.
    pub fn wake(&mut self, now: Instant) {
        match self {
            Self::Datagrams(datagrams) => datagrams.wake(now),
            Self::Stream(connection) => connection.wake(now),
            Self::Dccp(connection) => connection.wake(now),
        }
    }

    /// Keeps scheduling decisions for [`take_decision`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        match self {
            Self::Datagrams(datagrams) => datagrams.record_decisions(),
            Self::Stream(connection) => connection.record_decisions(),
            Self::Dccp(connection) => connection.record_decisions(),
        }
    }

    /// Hands over the scheduling decisions since the last call.
    pub fn take_decisions(&mut self, take: &mut impl FnMut(Decision)) {
        match self {
            Self::Datagrams(datagrams) => datagrams.take_decisions().for_each(take),
            Self::Stream(connection) => connection.take_decisions().for_each(take),
            Self::Dccp(connection) => connection.take_decisions().for_each(take),
        }
    }

    /// How the subflows stand; nothing for a protocol that has none.
    pub fn samples(&self, take: &mut impl FnMut(SubflowSample)) {
        match self {
            Self::Datagrams(_) => {}
            Self::Stream(connection) => connection.samples().for_each(take),
            Self::Dccp(connection) => connection.samples().for_each(take),
        }
    }
}
