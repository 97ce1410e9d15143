//! Accepting of connections, with a pause if the process has no free descriptor: a connection that cannot be
//! accepted keeps its listener readable, which would busy-loop.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use skybraid_units::Duration;

/// Maximum connections accepted per wakeup.
const MAX_ACCEPTED: usize = 32;
/// Pause after a failed accept.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Accepts pending connections of a non-blocking listener. Returns false if the system has no descriptor or
/// memory for another connection, so that the listener must pause.
pub(super) fn accept_all(
    listener: &TcpListener,
    take: &mut dyn FnMut(TcpStream, SocketAddr),
) -> bool {
    for _ in 0..MAX_ACCEPTED {
        match listener.accept() {
            Ok((stream, from)) => take(stream, from),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return true,
                // Connection closed before it was accepted (accept(2)).
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => return false,
            },
        }
    }
    true
}

/// Returns an IPv4 address, or the 64 bits of an IPv6 network: whoever has one address of that has all.
pub(super) fn source_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}
