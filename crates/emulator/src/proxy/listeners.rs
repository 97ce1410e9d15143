//! Listening sockets of a proxy, created on the first packet for each.
//!
//! The kernel delivers every TCP packet that reaches the proxy's node to its own sockets, but a listener has
//! one port, so one is needed for each destination port. A listener is bound to all addresses, accepts
//! connections to foreign ones too (`IP_TRANSPARENT`), and an accepted socket has the original destination as
//! its local address.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum listeners of a proxy; another one replaces the oldest.
const MAX_LISTENERS: usize = 512;
/// Maximum connections waiting to be accepted.
const BACKLOG: i32 = 4096;

/// Address family and port of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Door {
    pub ipv6: bool,
    pub port: u16,
}

/// Listening sockets of a proxy.
#[derive(Default)]
pub(super) struct Listeners {
    open: BTreeMap<Door, Arc<Socket>>,
    order: VecDeque<Door>,
}

/// Common properties of a proxy's sockets, and their namespace.
pub(super) struct Maker {
    pub namespace: OwnedFd,
    pub congestion: String,
}

impl Listeners {
    /// Returns the listener at `door`, if there is one.
    pub fn get(&self, door: Door) -> Option<Arc<Socket>> {
        self.open.get(&door).cloned()
    }

    /// Adds a listener.
    pub fn keep(&mut self, door: Door, listener: Arc<Socket>) {
        if self.order.len() == MAX_LISTENERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
        self.open.insert(door, listener);
        self.order.push_back(door);
    }
}

impl Maker {
    /// Creates a socket that may use any address, in the namespace of the calling thread.
    ///
    /// The port is shared: the address from which one host connects may be one to which another host once
    /// connected.
    pub fn socket(&self, ipv6: bool) -> io::Result<Socket> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(domain, kind, Some(Protocol::TCP))?;
        if ipv6 {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
        } else {
            socket.set_ip_transparent_v4(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_congestion(self.congestion.as_bytes())?;
        Ok(socket)
    }

    /// Creates a listener in the proxy's namespace, from a thread of any other.
    pub fn listener(&self, door: Door) -> io::Result<Socket> {
        let own = File::open("/proc/thread-self/ns/net")?;
        setns(&self.namespace, CloneFlags::CLONE_NEWNET)?;
        let made = self.socket(door.ipv6);
        setns(own.as_fd(), CloneFlags::CLONE_NEWNET)?;
        let socket = made?;
        let address: SocketAddr = if door.ipv6 {
            (Ipv6Addr::UNSPECIFIED, door.port).into()
        } else {
            (Ipv4Addr::UNSPECIFIED, door.port).into()
        };
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    }
}
