//! Network side: UDP, or TCP if UDP is blocked.

mod bundle;
pub(crate) mod frame;
mod place;
mod stream;
mod tcp;
mod udp;

use std::io;
use std::net::SocketAddr;

use skybraid_gateway::config::{GatewayConfig, Network};
use skybraid_gateway::gateway::Outgoing;
use skybraid_gateway::{Class, Gateway};
use skybraid_units::Instant;

use self::tcp::Streams;
use self::udp::Sockets;
use super::interfaces::Interfaces;
use super::poller::Ready;
use super::tools::Tools;
use super::{GatewayError, PathCounters};

/// Transports for datagrams.
pub enum Paths {
    /// One UDP socket per path.
    Udp(Sockets),
    /// One TCP connection per path, and one of MPTCP.
    Tcp(Streams),
}

impl Paths {
    /// Creates the configured paths without opening them.
    ///
    /// # Errors
    /// A configured address is invalid.
    pub fn new(now: Instant, config: &GatewayConfig) -> Result<Self, GatewayError> {
        match config.network {
            Network::Udp => Sockets::new(now, config).map(Self::Udp),
            Network::Tcp => Streams::new(now, config).map(Self::Tcp),
        }
    }

    /// Opens and closes sockets according to interfaces and names.
    pub fn refresh(
        &mut self,
        now: Instant,
        interfaces: &Interfaces,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) {
        match self {
            Self::Udp(sockets) => sockets.refresh(now, interfaces, tools, gateway),
            Self::Tcp(streams) => streams.refresh(now, interfaces, tools, gateway),
        }
    }

    /// Time of the next [`refresh`](Self::refresh).
    pub fn due(&self) -> Instant {
        match self {
            Self::Udp(sockets) => sockets.due(),
            Self::Tcp(streams) => streams.due(),
        }
    }

    /// Handles the resolved name of the ground on a path.
    pub fn resolved(
        &mut self,
        now: Instant,
        path: u8,
        addresses: io::Result<Vec<SocketAddr>>,
        tools: &mut Tools,
    ) {
        match self {
            Self::Udp(sockets) => sockets.resolved(now, path, addresses, tools),
            Self::Tcp(streams) => streams.resolved(now, path, addresses, tools),
        }
    }

    /// Handles a ready source of this side. Returns true if there may be more to read.
    pub fn ready(
        &mut self,
        now: Instant,
        ready: Ready,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) -> bool {
        match self {
            Self::Udp(sockets) => sockets.ready(now, ready, tools, gateway),
            Self::Tcp(streams) => {
                streams.ready(now, ready, tools, gateway);
                false
            }
        }
    }

    /// Sends a datagram, or queues it for [`flush`](Self::flush); `bytes` may be swapped for another buffer.
    pub fn send(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        bytes: &mut Vec<u8>,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) {
        match self {
            Self::Udp(sockets) => sockets.send(outgoing, bytes),
            Self::Tcp(streams) => streams.send(now, outgoing, bytes, tools, gateway),
        }
    }

    /// Sends all queued datagrams.
    pub fn flush(&mut self) {
        match self {
            Self::Udp(sockets) => sockets.flush(),
            Self::Tcp(_) => {}
        }
    }

    /// Returns the counters of the paths.
    pub fn edges(&mut self) -> Vec<PathCounters> {
        match self {
            Self::Udp(sockets) => sockets.edges(),
            Self::Tcp(streams) => streams.edges(),
        }
    }

    /// Removes all changes to the machine.
    pub fn close(&mut self) {
        if let Self::Tcp(streams) = self {
            streams.close();
        }
    }
}

/// Returns the IP header byte by which networks may distinguish classes: the DSCP in its upper six bits.
///
/// Expedited forwarding (46, RFC 3246) for control and its keep-alives; assured forwarding of classes 4 and 3
/// (34 and 26, RFC 2597) for telemetry and video, as RFC 4594 specifies for real-time data and streams; the
/// class selector below best effort (8, RFC 4594 §4.10) for bulk, so that it yields in every queue that
/// supports it. Modems and Wi-Fi classify packets by the upper three bits.
const fn traffic_class(class: Option<Class>) -> u8 {
    let dscp: u8 = match class {
        None | Some(Class::Control) => 46,
        Some(Class::Telemetry) => 34,
        Some(Class::Video) => 26,
        Some(Class::Bulk) => 8,
    };
    dscp << 2
}

/// Counters of a path.
#[derive(Debug, Default)]
struct DropCounters {
    unsent: u64,
    too_large: u64,
    error: Option<i32>,
    /// There was one since the last look.
    failing: bool,
}

impl DropCounters {
    fn note(&mut self, errno: i32) {
        self.unsent += 1;
        // EMSGSIZE is part of path MTU discovery, and no error.
        if errno == libc::EMSGSIZE {
            self.too_large += 1;
        } else {
            self.error = Some(errno);
            self.failing = true;
        }
    }

    /// Returns the counters, and begins another look.
    fn edge(&mut self, name: &str, open: bool) -> PathCounters {
        PathCounters {
            name: name.to_owned(),
            open,
            unsent: self.unsent,
            too_large: self.too_large,
            unread: 0,
            error: self.error.map(|errno| io::Error::from_raw_os_error(errno).to_string()),
            failing: std::mem::take(&mut self.failing),
        }
    }
}
