//! Split connections: a proxy between two connections that acknowledges data to the sender before
//! delivering it.
//!
//! Source: Palazzi 2007 §1.1; RFC 3135 §2 (performance-enhancing proxies).

use skybraid_units::{Bytes, Instant};

use crate::endpoint::{Role, SubflowSample, Transmit};
use crate::mptcp::{Connection, full_segment};
use crate::{Body, PathId, PathInfo, Segment, TransportConfig};

mod ledger;

use ledger::Ledger;
pub use ledger::{Loss, LostMessages};

/// A side of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards the end that opens connections.
    Upstream,
    /// Towards the end that accepts connections.
    Downstream,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::Upstream, Self::Downstream];

    /// Returns the other side.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Upstream => Self::Downstream,
            Self::Downstream => Self::Upstream,
        }
    }
}

/// Memory of a proxy for each direction, for data in order or not.
///
/// In TOML: `{ packets = 200 }` or `{ bytes = "300kB" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Payload in bytes.
    Bytes(Bytes),
    /// Full TCP segments of the side on which data arrives.
    Packets(u32),
}

impl Default for Cache {
    /// 200 packets (Palazzi 2007 §2).
    fn default() -> Self {
        Self::Packets(200)
    }
}

/// One side of a proxy: its connection, and the ledger of the data that arrived there.
#[derive(Debug)]
struct Half {
    connection: Connection,
    ledger: Ledger,
}

impl Half {
    fn new(config: &TransportConfig, paths: &[PathInfo], role: Role, cache: Cache) -> Self {
        let receive_buffer = match cache {
            Cache::Bytes(bytes) => bytes,
            Cache::Packets(packets) => Bytes::new(u64::from(packets) * full_segment(paths)),
        };
        let config = TransportConfig { receive_buffer, ..config.clone() }.into();
        let connection = Connection::relaying(&config, paths, role);
        Self { connection, ledger: Ledger::default() }
    }

    /// Forwards the data that has arrived to `next`.
    fn forward(&mut self, next: &mut Connection) {
        while let Some(chunk) = self.connection.take_chunk() {
            self.ledger.store(&chunk);
            next.write_chunk(&chunk);
        }
        if self.connection.peer_has_closed() {
            next.close();
        }
        self.ledger.release(next.unacknowledged());
        self.connection.set_stored(next.unacknowledged());
    }

    fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        let ack_or_data = self.connection.poll_send(now);
        let mut transmit = ack_or_data.or_else(|| self.connection.poll_window(now))?;
        if let Body::Tcp(tcp) = &mut transmit.segment.body {
            self.connection.on_sent(tcp);
            self.ledger.acknowledge(tcp.data_ack);
        }
        Some(transmit)
    }
}

/// A proxy: a server to the sender, a client to the receiver, and a memory between them.
///
/// Bytes are forwarded as soon as they are in order, and kept until the next hop has acknowledged
/// them. The window advertised to the sender is half of the free memory; its right edge never moves
/// left. Each direction has a memory of its own.
///
/// The order of calls is that of [`Endpoint`](crate::Endpoint): after every `receive` and `wake`,
/// call [`poll_send`](Self::poll_send) until it returns `None`, then read
/// [`next_wakeup`](Self::next_wakeup).
#[derive(Debug)]
pub struct Proxy {
    upstream: Half,
    downstream: Half,
    /// True once a segment has arrived from upstream: the downstream connection may open.
    opened: bool,
    failed: bool,
}

impl Proxy {
    /// Creates a proxy. Each side runs over its own paths with its own transport, TCP or MPTCP.
    /// `cache` is the memory of each direction, at least two segments; it replaces the receive
    /// buffers.
    pub fn new(
        upstream: (&TransportConfig, &[PathInfo]),
        downstream: (&TransportConfig, &[PathInfo]),
        cache: Cache,
    ) -> Self {
        Self {
            upstream: Half::new(upstream.0, upstream.1, Role::Server, cache),
            downstream: Half::new(downstream.0, downstream.1, Role::Client, cache),
            opened: false,
            failed: false,
        }
    }

    /// Processes a segment that arrived on `path` of `side`. A segment beyond the advertised window
    /// is dropped (RFC 9293 §3.10.7.4).
    pub fn receive(&mut self, now: Instant, side: Side, path: PathId, segment: &Segment) {
        if self.failed {
            return;
        }
        let connection = &mut self.half_mut(side).connection;
        if let Body::Tcp(tcp) = &segment.body
            && connection.admits(tcp)
        {
            connection.receive(now, path, segment, tcp);
            self.opened |= side == Side::Upstream;
            self.forward();
        }
    }

    /// Returns the next segment to send now, and its side.
    pub fn poll_send(&mut self, now: Instant) -> Option<(Side, Transmit)> {
        if self.failed || !self.opened {
            return None;
        }
        let upstream = self.upstream.poll_send(now).map(|transmit| (Side::Upstream, transmit));
        upstream.or_else(|| Some((Side::Downstream, self.downstream.poll_send(now)?)))
    }

    /// Instant at which [`wake`](Self::wake) must be called; [`Instant::FAR_FUTURE`] for never.
    pub fn next_wakeup(&self) -> Instant {
        if self.failed {
            return Instant::FAR_FUTURE;
        }
        self.upstream.connection.next_wakeup().min(self.downstream.connection.next_wakeup())
    }

    /// Fires expired timers. Calling it early does no harm.
    pub fn wake(&mut self, now: Instant) {
        if !self.failed {
            self.upstream.connection.wake(now);
            self.downstream.connection.wake(now);
        }
    }

    fn forward(&mut self) {
        self.upstream.forward(&mut self.downstream.connection);
        self.downstream.forward(&mut self.upstream.connection);
    }

    /// Fails the proxy: it sends nothing any more and ignores what arrives. Returns the data lost
    /// with it, by the side of its arrival: upstream, then downstream.
    pub fn fail(&mut self) -> [Loss; 2] {
        self.failed = true;
        Side::BOTH.map(|side| self.owes(side))
    }

    /// Returns the acknowledged data of `side` that is not known to have reached the next hop. Part
    /// of it may be on its way there.
    pub fn owes(&self, side: Side) -> Loss {
        self.half(side).ledger.owed()
    }

    /// Used memory for data that arrives on `side`.
    pub fn stored(&self, side: Side) -> Bytes {
        let waiting = self.half(side.opposite()).connection.unacknowledged().get();
        Bytes::new(self.half(side).connection.buffered().get() + waiting)
    }

    /// Total memory for data that arrives on `side`.
    pub const fn memory(&self, side: Side) -> Bytes {
        self.half(side).connection.memory()
    }

    /// Read-only access to the connection of `side`.
    pub const fn connection(&self, side: Side) -> &Connection {
        &self.half(side).connection
    }

    /// Returns the state of each subflow of `side`.
    pub fn samples(&self, side: Side) -> impl Iterator<Item = SubflowSample> + '_ {
        self.half(side).connection.samples()
    }

    const fn half(&self, side: Side) -> &Half {
        match side {
            Side::Upstream => &self.upstream,
            Side::Downstream => &self.downstream,
        }
    }

    const fn half_mut(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Upstream => &mut self.upstream,
            Side::Downstream => &mut self.downstream,
        }
    }
}
