//! A performance-enhancing proxy: it splits the TCP connections that cross a node (RFC 3135 §2.4),
//! unseen by both ends, as PEPsal does at both ends of a satellite link.
//!
//! Routing hands every TCP packet that comes through the node to its own sockets. The proxy answers
//! the client at once in the server's name and connects to the server in the client's name, from the
//! client's own address and port; then it copies bytes both ways. So each side has a round-trip time,
//! a congestion control and retransmissions of its own. What is not TCP is routed as before.
//!
//! A SYN to a port at which nobody listens would be answered by a reset. So whoever carries packets to
//! the node must show them to [`Proxy::hook`] first, which makes the listener that is missing; the
//! forwarder does it by [`Proxy::watchers`].
//!
//! MPTCP does not pass: the proxy's answer has no `MP_CAPABLE`, and the connection falls back to TCP
//! (RFC 8684 §3.7); the SYN of an additional subflow gets an answer without `MP_JOIN`, and the client
//! gives the subflow up. [`multipath_warning`] says it to users.

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

/// What a proxy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections that it has accepted. Each is still open or counted in one of the next four.
    pub opened: u64,
    /// Connections that it has now.
    pub open: u64,
    /// Connections that both sides have ended.
    pub finished: u64,
    /// Connections that were broken off by one side, after both were established.
    pub reset: u64,
    /// Connections whose server could not be reached, or whose client left before it was.
    pub failed: u64,
    /// Bytes handed on to servers.
    pub to_server: u64,
    /// Bytes handed on to clients.
    pub to_client: u64,
    /// The most bytes of one direction of a connection that the proxy itself held; those in the
    /// kernel's socket buffers come on top.
    pub max_held: u64,
    /// SYNs with options of MPTCP, repeated ones included; their connections are plain TCP.
    pub multipath: u64,
    /// SYNs for which no listener could be made. They were answered by a reset.
    pub unheard: u64,
}

/// A proxy at work in a thread of its own. Dropping it ends the work; the node is a plain router
/// again, and connections are reset.
pub struct Proxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    detour: Detour,
    node: Arc<Namespace>,
}

/// Why a flow over MPTCP does not do what its user may expect on a path with a proxy.
pub fn multipath_warning(flow: &str, path: &str) -> String {
    format!(
        "flow `{flow}` uses MPTCP over path `{path}`, whose proxy splits TCP connections: a connection \
         that begins on this path falls back to TCP, and one that begins on another path gets no \
         subflow on this one; remove the proxy, or use TCP"
    )
}

impl Proxy {
    /// Begins to split the connections that cross `node`, both halves under the kernel's congestion
    /// control of this name. Every interface that the node is to have must be there.
    ///
    /// # Errors
    /// The kernel does not have the congestion control, or rights are missing (`CAP_NET_ADMIN` in the
    /// node's user namespace).
    pub fn start(node: &Namespace, congestion: &str) -> io::Result<Self> {
        let namespace = node.fd().try_clone_to_owned()?;
        let maker = Maker { namespace, congestion: congestion.to_owned() };
        let name = node.name();
        // What is missing is known now and not when somebody connects.
        let made = node.run(|| maker.socket(false))?;
        made.map_err(|error| {
            context(format_args!("cannot open a proxy's socket in {name} with {congestion}"), error)
        })?;
        // A client may use a port again while the proxy still remembers its last connection, and what
        // one connection learned about a path does not burden the next.
        set_sysctl(node, "ipv4/tcp_tw_reuse", "1")?;
        set_sysctl(node, "ipv4/tcp_no_metrics_save", "1")?;
        let (interfaces, own) = node.run(describe)??;
        let loopback = node.netlink()?.link("lo")?.index;
        let node = Arc::new(node.again()?);
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

    /// What must see every IP packet on its way to the node before the node does. It takes about a
    /// microsecond; for the first connection to a port, as long as it takes to open a socket.
    pub fn hook(&self) -> impl Fn(&[u8]) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |packet| shared.look_at(packet)
    }

    /// The hook for a forwarder: the node lies between the lanes `before`, on the vehicle's side, and
    /// `behind`, on the ground's.
    pub fn watchers(&self, before: &str, behind: &str) -> [Watcher; 2] {
        [(before, Direction::Uplink), (behind, Direction::Downlink)].map(|(lane, direction)| {
            Watcher { lane: lane.to_owned(), direction, see: Box::new(self.hook()) }
        })
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    /// The connections that it has now.
    pub fn connections(&self) -> Vec<Split> {
        self.shared.connections()
    }

    /// Ends the work.
    ///
    /// # Errors
    /// The node's routes could not be restored, or the proxy's thread has panicked.
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

/// The interfaces other than the loopback, and all addresses, of the calling thread's namespace.
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
