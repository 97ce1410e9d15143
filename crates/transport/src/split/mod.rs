//! Split connections: a proxy between two connections, which acknowledges to the sender what it has yet
//! to deliver.
//!
//! Source: Palazzi 2007 §1.1; RFC 3135 §2 (performance-enhancing proxies).

use skybraid_units::{Bytes, Instant};

use crate::endpoint::{Role, SubflowSample, Transmit};
use crate::mptcp::{Connection, full_segment};
use crate::{Body, PathId, PathInfo, Segment, TransportConfig};

mod ledger;

use ledger::Ledger;
pub use ledger::{Loss, LostMessages};

/// One of the two sides of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards the end that opens connections.
    Upstream,
    /// Towards the end that answers.
    Downstream,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::Upstream, Self::Downstream];
}

/// How much a proxy stores for each direction of flow, in order or not.
///
/// In TOML: `{ packets = 200 }` or `{ bytes = "300kB" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Bytes of payload.
    Bytes(Bytes),
    /// Full segments of TCP on the side on which the data arrive.
    Packets(u32),
}

impl Default for Cache {
    /// 200 packets (Palazzi 2007 §2).
    fn default() -> Self {
        Self::Packets(200)
    }
}

/// What a proxy has on one side: its connection, and what it owes of the data that arrive there.
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
        let config = TransportConfig { receive_buffer, ..config.clone() };
        let connection = Connection::relaying(&config, paths, role);
        Self { connection, ledger: Ledger::default() }
    }

    /// Forwards what has arrived here to `next`.
    fn forward(&mut self, next: &mut Connection) {
        while let Some(chunk) = self.connection.take_chunk() {
            self.ledger.store(&chunk);
            next.forward(&chunk);
        }
        if self.connection.peer_has_closed() {
            next.close();
        }
        self.ledger.release(next.unacknowledged());
        self.connection.note_stored(next.unacknowledged());
    }

    fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        let sent = self.connection.poll_send(now).or_else(|| self.connection.poll_window(now));
        let mut transmit = sent?;
        if let Body::Tcp(tcp) = &mut transmit.segment.body {
            self.connection.note_leaving(tcp);
            self.ledger.acknowledge(tcp.data_ack);
        }
        Some(transmit)
    }
}

/// A proxy: a server to the sender, a client to the receiver, and a memory between them.
///
/// Bytes are forwarded as they arrive in order, and kept until the next hop has acknowledged them. The
/// window that the sender is told is half of the memory that is free; its right edge never moves left.
/// The two directions have a memory each.
///
/// It is driven as an [`Endpoint`](crate::Endpoint) is: after every `receive` and `wake`, call
/// [`poll_send`](Self::poll_send) until it answers `None`, then ask [`next_wakeup`](Self::next_wakeup).
#[derive(Debug)]
pub struct Proxy {
    upstream: Half,
    downstream: Half,
    /// Something has come from upstream: the connection downstream is opened.
    opened: bool,
    failed: bool,
}

impl Proxy {
    /// A proxy whose sides run over `paths` with a transport each, TCP or MPTCP. `cache` is the memory
    /// for each direction, at least two segments; it takes the place of the receive buffers.
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

    /// A segment arrived on `path` of `side`. One that does not fit the window that was told is dropped
    /// (RFC 9293 §3.10.7.4).
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
            self.pass_on();
        }
    }

    /// The next segment to leave now, and on which side; `None` when there is none.
    pub fn poll_send(&mut self, now: Instant) -> Option<(Side, Transmit)> {
        if self.failed || !self.opened {
            return None;
        }
        let upstream = self.upstream.poll_send(now).map(|it| (Side::Upstream, it));
        upstream.or_else(|| Some((Side::Downstream, self.downstream.poll_send(now)?)))
    }

    /// When to call [`wake`](Self::wake); [`Instant::FAR_FUTURE`] for never.
    pub fn next_wakeup(&self) -> Instant {
        if self.failed {
            return Instant::FAR_FUTURE;
        }
        self.upstream.connection.next_wakeup().min(self.downstream.connection.next_wakeup())
    }

    /// Time has passed. Calling it early does no harm.
    pub fn wake(&mut self, now: Instant) {
        if !self.failed {
            self.upstream.connection.wake(now);
            self.downstream.connection.wake(now);
        }
    }

    fn pass_on(&mut self) {
        self.upstream.forward(&mut self.downstream.connection);
        self.downstream.forward(&mut self.upstream.connection);
    }

    /// The proxy dies: it sends nothing any more and ignores what arrives. Returns what goes with it of
    /// the data that arrived upstream, and downstream.
    pub fn fail(&mut self) -> [Loss; 2] {
        self.failed = true;
        Side::BOTH.map(|side| self.owes(side))
    }

    /// The proxy has died.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// What has been acknowledged of the data that arrived on `side` and is not known to have reached
    /// the next hop. Some of it may be on its way there.
    pub fn owes(&self, side: Side) -> Loss {
        self.half(side).ledger.owed()
    }

    /// How much of the memory for data that arrive on `side` is taken.
    pub fn stored(&self, side: Side) -> Bytes {
        let next = match side {
            Side::Upstream => &self.downstream,
            Side::Downstream => &self.upstream,
        };
        let waiting = next.connection.unacknowledged().get();
        Bytes::new(self.half(side).connection.buffered().get() + waiting)
    }

    /// The memory for data that arrive on `side`.
    pub const fn memory(&self, side: Side) -> Bytes {
        self.half(side).connection.memory()
    }

    /// The connection on `side`, to look at.
    pub const fn connection(&self, side: Side) -> &Connection {
        &self.half(side).connection
    }

    /// How the subflows of `side` stand.
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
