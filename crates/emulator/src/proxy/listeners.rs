//! The listening sockets of a proxy, made when the first packet for them comes by.
//!
//! The kernel hands every TCP packet that comes to the proxy's node to its own sockets, but a listener
//! has one port, so there must be one for each port that anybody connects to. It is bound to all
//! addresses, takes connections to foreign ones too (`IP_TRANSPARENT`), and tells by its own name
//! which one was meant.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Protocol, Socket, Type};

/// A proxy keeps so many listeners; the oldest is given up for the next.
const MOST: usize = 512;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// What one listener is for.
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

/// What sockets of a proxy have in common, and where they lie.
pub(super) struct Maker {
    pub namespace: OwnedFd,
    pub congestion: String,
}

impl Listeners {
    /// The listener at `door`, if there is one.
    pub fn get(&self, door: Door) -> Option<Arc<Socket>> {
        self.open.get(&door).cloned()
    }

    /// Keeps a listener.
    pub fn keep(&mut self, door: Door, listener: Arc<Socket>) {
        if self.order.len() == MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
        self.open.insert(door, listener);
        self.order.push_back(door);
    }
}

impl Maker {
    /// A socket that may have any address, made in the namespace of the calling thread.
    ///
    /// It shares its port: the address from which one host connects may be one that another host once
    /// connected to.
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

    /// A listener, made in the proxy's namespace by a thread of any other.
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
