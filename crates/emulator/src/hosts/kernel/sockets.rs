//! Setup of the sockets of both ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};
use skybraid_transport::TransportConfig;
use skybraid_transport::config::Protocol;
use skybraid_units::Bytes;
use socket2::{Domain, Socket, Type};

use super::KernelError;
use super::option::switch_pacing_on;
use super::support::congestion_name;

/// Creates a non-blocking stream socket of that family and protocol in the namespace of one of the hosts,
/// where it stays: [`stream_socket`], run there.
pub type MakeSocket<'a> = &'a dyn Fn(Domain, socket2::Protocol) -> io::Result<Socket>;

/// Creates a non-blocking stream socket in the namespace of the calling thread.
///
/// # Errors
/// Error of the kernel; `EPROTONOSUPPORT` and `ENOPROTOOPT` without MPTCP.
pub fn stream_socket(domain: Domain, protocol: socket2::Protocol) -> io::Result<Socket> {
    Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(protocol))
}

/// Addresses and sockets of a flow's connection.
#[derive(Clone)]
pub struct Ends<'a> {
    /// Vehicle's address on the flow's first path.
    pub vehicle: IpAddr,
    /// Ground's address on the flow's first path.
    pub ground: IpAddr,
    /// Ground's port; 0 for any free port.
    pub port: u16,
    /// Paths of the flow in the connection's order: the vehicle's address, and the index in the scenario.
    pub paths: Vec<(IpAddr, u16)>,
    /// Creates the vehicle's socket.
    pub in_vehicle: MakeSocket<'a>,
    /// Creates the ground's socket.
    pub in_ground: MakeSocket<'a>,
}

/// Socket options of both ends.
#[derive(Clone, Debug)]
pub(super) struct Options {
    flow: String,
    congestion: &'static str,
    multipath: bool,
    peer_multipath: bool,
    receive_buffer: Option<Bytes>,
    send_buffer: Option<Bytes>,
    segment: Option<Bytes>,
    paced: bool,
}

impl Options {
    /// Returns the options of a checked transport.
    pub fn new(flow: &str, config: &TransportConfig) -> Result<Self, KernelError> {
        let unsupported = |reason| KernelError::Unsupported { flow: flow.to_owned(), reason };
        let usual = TransportConfig::default();
        let unless = |size: Bytes, usual: Bytes| (size != usual).then_some(size);
        Ok(Self {
            flow: flow.to_owned(),
            congestion: congestion_name(&config.congestion).map_err(unsupported)?,
            multipath: config.protocol == Protocol::Mptcp,
            peer_multipath: config.peer_multipath,
            // The defaults are the bounds within which the kernel auto-tunes its buffers.
            receive_buffer: unless(config.receive_buffer, usual.receive_buffer),
            send_buffer: unless(config.send_buffer, usual.send_buffer),
            segment: config.segment,
            paced: config.pacing,
        })
    }

    /// Name of the congestion control in the kernel.
    pub const fn congestion(&self) -> &'static str {
        self.congestion
    }

    /// Outgoing data is paced by the kernel.
    pub fn is_paced(&self) -> bool {
        self.paced || self.congestion == "bbr"
    }

    /// Returns true if the connection must use MPTCP.
    pub const fn is_multipath(&self) -> bool {
        self.multipath
    }

    /// Creates the vehicle's socket, bound to its address.
    pub fn vehicle(&self, ends: &Ends<'_>) -> Result<Socket, KernelError> {
        let socket = self.make(ends.in_vehicle, ends.vehicle, self.multipath)?;
        let local = SocketAddr::new(ends.vehicle, 0);
        socket.bind(&local.into()).map_err(self.failed(format!("bind to {local}")))?;
        Ok(socket)
    }

    /// Creates the ground's listening socket; also returns the address to connect to.
    pub fn ground(&self, ends: &Ends<'_>) -> Result<(Socket, SocketAddr), KernelError> {
        let multipath = self.multipath && self.peer_multipath;
        let socket = self.make(ends.in_ground, ends.ground, multipath)?;
        // Further subflows may arrive at any of the ground's addresses.
        let address = match ends.ground {
            address if !multipath => address,
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(address, ends.port);
        socket.bind(&local.into()).map_err(self.failed(format!("bind to {local}")))?;
        socket.listen(8).map_err(self.failed(format!("listen on {local}")))?;
        let bound = socket.local_addr().map_err(self.failed("read the own address".to_owned()))?;
        let port = bound.as_socket().map_or(ends.port, |bound| bound.port());
        Ok((socket, SocketAddr::new(ends.ground, port)))
    }

    fn make(
        &self,
        maker: MakeSocket<'_>,
        address: IpAddr,
        multipath: bool,
    ) -> Result<Socket, KernelError> {
        let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let protocol = if multipath { socket2::Protocol::MPTCP } else { socket2::Protocol::TCP };
        let socket = maker(domain, protocol).map_err(|error| {
            let (flow, reason) = (self.flow.clone(), error.to_string());
            match error.raw_os_error() {
                Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT) if multipath => {
                    KernelError::NoMptcp { flow, reason }
                }
                _ => KernelError::Socket { flow, what: "make a socket".to_owned(), reason },
            }
        })?;
        self.prepare(&socket)?;
        Ok(socket)
    }

    /// Sets options that must precede the connection.
    fn prepare(&self, socket: &Socket) -> Result<(), KernelError> {
        socket.set_reuse_address(true).map_err(self.failed("set SO_REUSEADDR".to_owned()))?;
        if let Some(size) = self.receive_buffer {
            let wanted = usize::try_from(size.get()).unwrap_or(usize::MAX);
            // As root, beyond the limit of net.core.rmem_max, otherwise up to it.
            let set = setsockopt(socket, sockopt::RcvBufForce, &wanted)
                .map_err(io::Error::from)
                .or_else(|_| socket.set_recv_buffer_size(wanted));
            let found = set.and_then(|()| socket.recv_buffer_size());
            self.check_size("receive_buffer", "rmem_max", wanted, found)?;
        }
        if let Some(size) = self.send_buffer {
            let wanted = usize::try_from(size.get()).unwrap_or(usize::MAX);
            let set = setsockopt(socket, sockopt::SndBufForce, &wanted)
                .map_err(io::Error::from)
                .or_else(|_| socket.set_send_buffer_size(wanted));
            let found = set.and_then(|()| socket.send_buffer_size());
            self.check_size("send_buffer", "wmem_max", wanted, found)?;
        }
        if let Some(segment) = self.segment {
            // The kernel's size includes the 12 B of the timestamp option (RFC 7323) that it always sends.
            let size = u32::try_from(segment.get()).unwrap_or(u32::MAX).saturating_add(12);
            let what = format!("set a segment of {size} B");
            socket.set_tcp_mss(size).map_err(self.failed(what))?;
        }
        if self.paced {
            let what = "switch pacing on".to_owned();
            switch_pacing_on(socket.as_fd()).map_err(self.failed(what))?;
        }
        self.set_on_connection(socket)
    }

    /// Sets options that an accepted socket may not inherit from the listening one.
    pub fn set_on_connection(&self, socket: &Socket) -> Result<(), KernelError> {
        socket.set_tcp_nodelay(true).map_err(self.failed("set TCP_NODELAY".to_owned()))?;
        let name = self.congestion;
        socket.set_tcp_congestion(name.as_bytes()).map_err(|error| KernelError::Congestion {
            flow: self.flow.clone(),
            name: name.to_owned(),
            reason: error.to_string(),
            available: std::fs::read_to_string(AVAILABLE)
                .map_or_else(|error| error.to_string(), |text| text.trim().to_owned()),
        })
    }

    fn check_size(
        &self,
        key: &str,
        bound: &str,
        wanted: usize,
        found: io::Result<usize>,
    ) -> Result<(), KernelError> {
        let what = format!("set `{key}` to {wanted} B");
        let found = found.map_err(self.failed(what.clone()))?;
        // The kernel doubles the size for its own needs (socket(7)).
        if found >= wanted.saturating_mul(2) {
            return Ok(());
        }
        let reason = format!("the kernel grants {} B; net.core.{bound} bounds it", found / 2);
        Err(KernelError::Socket { flow: self.flow.clone(), what, reason })
    }

    /// Returns a converter for the error of operation `what`.
    pub fn failed(&self, what: String) -> impl FnOnce(io::Error) -> KernelError {
        let flow = self.flow.clone();
        move |error| KernelError::Socket { flow, what, reason: error.to_string() }
    }
}

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_transport::congestion::CongestionConfig;

    fn options(config: &TransportConfig) -> Options {
        Options::new("video", config).unwrap()
    }

    #[test]
    fn a_missing_congestion_control_is_named_with_those_available() {
        let config = TransportConfig { protocol: Protocol::Tcp, ..TransportConfig::default() };
        let options = Options { congestion: "no_such", ..options(&config) };
        let socket = stream_socket(Domain::IPV4, socket2::Protocol::TCP).unwrap();
        let error = options.set_on_connection(&socket).unwrap_err().to_string();
        let available = std::fs::read_to_string(AVAILABLE).unwrap();
        for part in
            ["`video`", "`no_such`", available.trim(), "root", "tcp_allowed_congestion_control"]
        {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn an_mptcp_server_listens_for_subflows_on_all_addresses() {
        let local = "127.0.0.1".parse().unwrap();
        let make: MakeSocket<'_> = &|domain, _| stream_socket(domain, socket2::Protocol::TCP);
        let ends = Ends {
            vehicle: local,
            ground: local,
            port: 0,
            paths: Vec::new(),
            in_vehicle: make,
            in_ground: make,
        };
        for (protocol, wide) in [(Protocol::Tcp, false), (Protocol::Mptcp, true)] {
            let congestion = CongestionConfig::by_name("reno").unwrap();
            let config = TransportConfig { protocol, congestion, ..TransportConfig::default() };
            let (listener, address) = options(&config).ground(&ends).unwrap();
            let bound = listener.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(bound.ip().is_unspecified(), wide);
            assert_eq!((address.ip(), address.port()), (local, bound.port()));
        }
    }
}
