//! One end of a connection of any protocol, as a driver sees it.

use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::datagram::Datagrams;
use crate::mpdccp;
use crate::mptcp::Connection;
use crate::parallel::Parallel;
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
    /// Its number within the connection.
    pub subflow: u8,
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

/// What a connection as a whole has come to, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionTotals {
    /// How long the peer's window kept back data for which a path had room.
    pub window_blocked: Duration,
    /// How often it began to.
    pub window_blocked_times: u64,
    /// How long the receiver held data in its buffer because something before it was missing.
    pub holding: Duration,
    /// Chunks offered to another path because theirs failed.
    pub reinjections: u64,
    /// Chunks sent again on a faster path because the peer's window was blocked.
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

/// One end of a connection.
///
/// See the crate's documentation for the order of calls.
#[allow(clippy::large_enum_variant, reason = "made once per connection and never moved")]
#[derive(Debug)]
pub enum Endpoint {
    /// Unreliable datagrams.
    Datagrams(Datagrams),
    /// A reliable stream.
    Stream(Connection),
    /// Several independent streams.
    Parallel(Parallel),
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
            Protocol::ParallelTcp => Self::Parallel(Parallel::new(config, paths, role)),
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
            Self::Parallel(connections) => connections.write(message),
            Self::Dccp(connection) => connection.write(message),
        }
    }

    /// Bytes written and not yet acknowledged; for datagrams, not yet sent; of several connections,
    /// those of the one that the next message goes to.
    pub fn unacknowledged(&self) -> Bytes {
        match self {
            Self::Datagrams(datagrams) => datagrams.unsent(),
            Self::Stream(connection) => connection.unacknowledged(),
            Self::Parallel(connections) => connections.unacknowledged(),
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

    /// Hands over the numbers of the messages of which a part waits to be sent; nothing for a stream,
    /// which gives nothing up.
    pub fn waiting(&self, take: &mut impl FnMut(u32)) {
        match self {
            Self::Datagrams(datagrams) => datagrams.waiting().for_each(take),
            Self::Stream(_) | Self::Parallel(_) => {}
            Self::Dccp(connection) => connection.waiting().for_each(take),
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
            (Self::Parallel(connections), Body::Tcp(tcp)) => {
                connections.receive(now, path, segment, tcp);
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
            Self::Parallel(connections) => connections.poll_send(now),
            Self::Dccp(connection) => connection.poll_send(now),
        }
    }

    /// The next message that has arrived; `None` when there is none.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        match self {
            Self::Datagrams(datagrams) => datagrams.poll_delivered(),
            Self::Stream(connection) => connection.poll_delivered(),
            Self::Parallel(connections) => connections.poll_delivered(),
            Self::Dccp(connection) => connection.poll_delivered(),
        }
    }

    /// When to call [`wake`](Self::wake); [`Instant::FAR_FUTURE`] for never.
    pub fn next_wakeup(&self) -> Instant {
        match self {
            Self::Datagrams(datagrams) => datagrams.next_wakeup(),
            Self::Stream(connection) => connection.next_wakeup(),
            Self::Parallel(connections) => connections.next_wakeup(),
            Self::Dccp(connection) => connection.next_wakeup(),
        }
    }

    /// Time has passed. Calling it early does no harm.
    pub fn wake(&mut self, now: Instant) {
        match self {
            Self::Datagrams(datagrams) => datagrams.wake(now),
            Self::Stream(connection) => connection.wake(now),
            Self::Parallel(connections) => connections.wake(now),
            Self::Dccp(connection) => connection.wake(now),
        }
    }

    /// Keeps scheduling decisions for [`take_decision`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        match self {
            Self::Datagrams(datagrams) => datagrams.record_decisions(),
            Self::Stream(connection) => connection.record_decisions(),
            // There is nothing to decide: messages take turns.
            Self::Parallel(_) => {}
            Self::Dccp(connection) => connection.record_decisions(),
        }
    }

    /// Hands over the scheduling decisions since the last call.
    pub fn take_decisions(&mut self, take: &mut impl FnMut(Decision)) {
        match self {
            Self::Datagrams(datagrams) => datagrams.take_decisions().for_each(take),
            Self::Stream(connection) => connection.take_decisions().for_each(take),
            Self::Dccp(connection) => connection.take_decisions().for_each(take),
            Self::Parallel(_) => {}
        }
    }

    /// The application will write no more; what has been written is still delivered.
    pub fn close(&mut self) {
        match self {
            Self::Datagrams(_) | Self::Dccp(_) => {}
            Self::Stream(connection) => connection.close(),
            Self::Parallel(parallel) => parallel.close(),
        }
    }

    /// An address has become available: `path` may be used.
    pub fn add_path(&mut self, now: Instant, path: PathId) {
        match self {
            Self::Datagrams(_) | Self::Parallel(_) | Self::Dccp(_) => {}
            Self::Stream(connection) => connection.add_path(now, path),
        }
    }

    /// An address has gone: `path` can no longer be used.
    pub fn remove_path(&mut self, path: PathId) {
        match self {
            Self::Datagrams(_) | Self::Parallel(_) | Self::Dccp(_) => {}
            Self::Stream(connection) => connection.remove_path(path),
        }
    }

    /// Who watches the paths by other means says whether `path` may carry new messages; the rest of the
    /// connection (acknowledgements, signs of life) goes on. Streams find out for themselves.
    pub fn set_usable(&mut self, path: PathId, usable: bool) {
        match self {
            Self::Datagrams(datagrams) => datagrams.set_usable(path, usable),
            Self::Stream(_) | Self::Parallel(_) => {}
            Self::Dccp(connection) => connection.set_usable(path, usable),
        }
    }

    /// The connection ends at a proxy: what the peer acknowledges may still be lost on its way to the
    /// far end.
    pub const fn is_split(&self) -> bool {
        match self {
            Self::Datagrams(_) | Self::Parallel(_) | Self::Dccp(_) => false,
            Self::Stream(connection) => connection.is_split(),
        }
    }

    /// What the connection as a whole has come to.
    pub fn totals(&self, now: Instant) -> ConnectionTotals {
        match self {
            Self::Datagrams(_) | Self::Dccp(_) => ConnectionTotals::default(),
            Self::Stream(connection) => connection.totals(now),
            Self::Parallel(parallel) => parallel.totals(now),
        }
    }

    /// How the subflows stand; nothing for a protocol that has none.
    pub fn samples(&self, take: &mut impl FnMut(SubflowSample)) {
        match self {
            Self::Datagrams(_) => {}
            Self::Stream(connection) => connection.samples().for_each(take),
            Self::Parallel(connections) => connections.samples().for_each(take),
            Self::Dccp(connection) => connection.samples().for_each(take),
        }
    }
}
