//! A performance-enhancing proxy: it splits the TCP connections that cross a node (RFC 3135 §2.4),
//! transparently to both ends, as PEPsal does at both ends of a satellite link.
//!
//! Routing delivers every TCP packet that crosses the node to its own sockets. The proxy answers the client
//! at once in the server's name and connects to the server in the client's name, from the client's own
//! address and port; then it copies bytes in both directions. Each side thus has its own round-trip time,
//! congestion control and retransmissions. Packets other than TCP are routed as before.
//!
//! A SYN to a port without a listener would be answered by a reset. The component that carries packets to the
//! node must therefore pass them to [`Proxy::hook`] first, which creates missing listeners; the forwarder
//! does so through [`Proxy::watchers`].
//!
//! MPTCP is not supported: the proxy's answer has no `MP_CAPABLE`, and the connection falls back to TCP (RFC
//! 8684 §3.7); the SYN of an additional subflow is answered without `MP_JOIN`, and the client drops the
//! subflow. [`multipath_warning`] informs users.

mod connection;
mod detour;
mod flow;
mod listeners;
pub(crate) mod syn;
mod worker;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use nix::ifaddrs::getifaddrs;
use nix::sched::{CloneFlags, setns};
use skybraid_link::Direction;

use crate::forward::Watcher;
use crate::testbed::set_sysctl;
pub use connection::{Half, Split};
use detour::Detour;
use listeners::Maker;
use skybraid_io::context;
use skybraid_io::netlink::{Namespace, Network, Route, Rule};
use worker::Shared;

/// Statistics of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Accepted connections. Each is still open or counted in one of the next four.
    pub opened: u64,
    /// Connections currently open.
    pub open: u64,
    /// Connections closed by both sides.
    pub finished: u64,
    /// Connections aborted by one side, after both were established.
    pub reset: u64,
    /// Connections whose server was unreachable, or whose client left before it was connected.
    pub failed: u64,
    /// Bytes forwarded to servers.
    pub to_server: u64,
    /// Bytes forwarded to clients.
    pub to_client: u64,
    /// Maximum bytes of one direction of a connection held by the proxy, in addition to the kernel's socket
    /// buffers.
    pub max_held: u64,
    /// SYNs with MPTCP options, including retransmissions; their connections are plain TCP.
    pub multipath: u64,
    /// SYNs for which no listener could be created, answered by a reset.
    pub unheard: u64,
}

/// A proxy running in its own thread. Dropping it stops the thread; the node is a plain router again, and
/// connections are reset.
pub struct Proxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    detour: Detour,
    node: Arc<Namespace>,
}

/// Returns a warning about the effect of a proxy on an MPTCP flow over its path.
pub fn multipath_warning(flow: &str, path: &str) -> String {
    format!(
        "flow `{flow}` uses MPTCP over path `{path}`, whose proxy splits TCP connections: a connection \
         that begins on this path falls back to TCP, and one that begins on another path gets no \
         subflow on this one; remove the proxy, or use TCP"
    )
}

impl Proxy {
    /// Starts to split the connections that cross `node`, with the kernel's congestion control of this name
    /// on both halves. All interfaces of the node must already exist.
    ///
    /// # Errors
    /// The kernel lacks the congestion control, or the capability is missing (`CAP_NET_ADMIN` in the node's
    /// user namespace).
    pub fn start(node: &Namespace, congestion: &str) -> io::Result<Self> {
        let namespace = node.fd().try_clone_to_owned()?;
        let maker = Maker { namespace, congestion: congestion.to_owned() };
        let name = node.name();
        // Detects missing features now and not on the first connection.
        let made = node.run(|| maker.socket(false))?;
        made.map_err(|error| {
            context(format_args!("cannot open a proxy's socket in {name} with {congestion}"), error)
        })?;
        // A client may reuse a port while the proxy still remembers its last connection, and path metrics of
        // one connection do not affect the next.
        set_sysctl(node, "ipv4/tcp_tw_reuse", "1")?;
        set_sysctl(node, "ipv4/tcp_no_metrics_save", "1")?;
        let (interfaces, own) = node.run(describe)??;
        let loopback = node.netlink()?.link("lo")?.index;
        let node = Arc::new(node.try_clone()?);
        let shared = Arc::new(Shared::new(maker, own)?);
        let (entered, answer) = sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("proxy {name}")).spawn({
            let (shared, node) = (Arc::clone(&shared), Arc::clone(&node));
            move || {
                let result = setns(node.fd(), CloneFlags::CLONE_NEWNET);
                let inside = result.is_ok();
                entered.send(result.map_err(io::Error::from)).ok();
                if inside {
                    shared.run();
                }
            }
        })?;
        answer.recv().map_err(io::Error::other)??;
        let detour = Detour::of(loopback, &interfaces);
        let proxy = Self { shared, thread: Some(thread), detour, node };
        proxy.detour.set_up(&proxy.node)?;
        Ok(proxy)
    }

    /// Returns the hook that must see every IP packet before the node does. It takes about a microsecond, but
    /// for the first connection to a port as long as opening a socket.
    pub fn hook(&self) -> impl Fn(&[u8]) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |packet| shared.on_packet(packet)
    }

    /// Returns the hooks for a forwarder: the node is between the lanes `before`, on the vehicle's side, and
    /// `behind`, on the ground's.
    pub fn watchers(&self, before: &str, behind: &str) -> [Watcher; 2] {
        [(before, Direction::Uplink), (behind, Direction::Downlink)].map(|(lane, direction)| {
            Watcher { lane: lane.to_owned(), direction, see: Box::new(self.hook()) }
        })
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    /// Returns the current connections.
    pub fn connections(&self) -> Vec<Split> {
        self.shared.connections()
    }

    /// Stops the thread and returns its results.
    ///
    /// # Errors
    /// The node's routes could not be restored, or the thread of the proxy has panicked.
    pub fn stop(mut self) -> io::Result<Statistics> {
        self.end()?;
        Ok(self.statistics())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let restored = self.detour.take_down(&self.node);
        self.shared.stop();
        let panicked = |_| io::Error::other("the proxy has ended by an error of its own");
        thread.join().map_err(panicked).and(restored)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end().ok();
    }
}

/// Returns the interfaces other than the loopback, and all addresses, of the calling thread's namespace.
fn describe() -> io::Result<(Vec<String>, BTreeSet<IpAddr>)> {
    let mut interfaces = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for found in getifaddrs()? {
        if found.interface_name != "lo" {
            interfaces.insert(found.interface_name);
        }
        let Some(address) = found.address else { continue };
        if let Some(v4) = address.as_sockaddr_in() {
            addresses.insert(IpAddr::V4(v4.ip()));
        } else if let Some(v6) = address.as_sockaddr_in6() {
            addresses.insert(IpAddr::V6(v6.ip()));
        }
    }
    Ok((interfaces.into_iter().collect(), addresses))
}
