//! The side of the networks: UDP, or TCP where UDP is blocked.

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
use super::{GatewayError, PathEdge};

/// Both ways to carry datagrams.
pub enum Paths {
    /// A UDP socket for each path.
    Udp(Sockets),
    /// A TCP connection for each path, and one of MPTCP.
    Tcp(Streams),
}

impl Paths {
    /// The paths of a file; nothing is open yet.
    ///
    /// # Errors
    /// An address of the file is none.
    pub fn new(now: Instant, config: &GatewayConfig) -> Result<Self, GatewayError> {
        match config.network {
            Network::Udp => Sockets::new(now, config).map(Self::Udp),
            Network::Tcp => Streams::new(now, config).map(Self::Tcp),
        }
    }

    /// Opens and closes as interfaces and names demand.
    pub fn look(
        &mut self,
        now: Instant,
        interfaces: &Interfaces,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) {
        match self {
            Self::Udp(sockets) => sockets.look(now, interfaces, tools, gateway),
            Self::Tcp(streams) => streams.look(now, interfaces, tools, gateway),
        }
    }

    /// Time of the next [`look`](Self::look).
    pub fn due(&self) -> Instant {
        match self {
            Self::Udp(sockets) => sockets.due(),
            Self::Tcp(streams) => streams.due(),
        }
    }

    /// The ground's name on a path has been resolved.
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

    /// A source of this side is ready. True if there may be more to take.
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

    /// Sends a datagram, or puts it where [`flush`](Self::flush) finds it; `bytes` may get another buffer
    /// in exchange.
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

    /// Sends all that waits.
    pub fn flush(&mut self) {
        match self {
            Self::Udp(sockets) => sockets.flush(),
            Self::Tcp(_) => {}
        }
    }

    /// Returns the counters of the paths.
    pub fn edges(&self) -> Vec<PathEdge> {
        match self {
            Self::Udp(sockets) => sockets.edges(),
            Self::Tcp(streams) => streams.edges(),
        }
    }

    /// Leaves nothing behind on the machine.
    pub fn close(&mut self) {
        if let Self::Tcp(streams) = self {
            streams.close();
        }
    }
}

/// The byte of the IP header by which networks may tell classes apart: the DSCP in its upper six bits.
///
/// Expedited forwarding (46, RFC 3246) for control and for the signs of life that stand for it; assured
/// forwarding of classes 4 and 3 (34 and 26, RFC 2597) for telemetry and video, as RFC 4594 has it for
/// real-time data and streams; the class selector below best effort (8, RFC 4594 §4.10) for bulk, so that
/// it yields in every queue that knows it. Modems and Wi-Fi sort packets by the upper three bits.
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
struct Losses {
    unsent: u64,
    too_large: u64,
    error: Option<i32>,
}

impl Losses {
    fn note(&mut self, errno: i32) {
        self.unsent += 1;
        // What is too large for the interface is how the size of packets is found, and no error.
        if errno == libc::EMSGSIZE {
            self.too_large += 1;
        } else {
            self.error = Some(errno);
        }
    }

    fn edge(&self, name: &str, open: bool) -> PathEdge {
        PathEdge {
            name: name.to_owned(),
            open,
            unsent: self.unsent,
            too_large: self.too_large,
            error: self.error.map(|errno| io::Error::from_raw_os_error(errno).to_string()),
        }
    }
}
