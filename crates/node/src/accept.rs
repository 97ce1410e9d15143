//! Accepting of connections, with a pause if the process has no free descriptor: a connection that cannot be
//! accepted keeps its listener readable, which would busy-loop. Clients leave some descriptors to the gateway itself.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use nix::sys::resource::{Resource, getrlimit};

use skybraid_units::Duration;

/// Maximum connections accepted per wakeup.
const MAX_ACCEPTED: usize = 32;
/// Pause after a failed accept.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Descriptors that clients leave free: a path, a device or the log may have to be opened again.
pub(super) const FOR_OWN: u64 = 12;

/// Accepts pending connections of a non-blocking listener, which leave `spare` descriptors. Returns false if the
/// system has no descriptor or memory for another connection, so that the listener must pause.
pub(super) fn accept_all(
    listener: &TcpListener,
    spare: u64,
    take: &mut dyn FnMut(TcpStream, SocketAddr),
) -> bool {
    for _ in 0..MAX_ACCEPTED {
        match listener.accept() {
            // A new descriptor has the lowest number that is free.
            Ok((stream, _))
                if spare.saturating_add(stream.as_raw_fd() as u64) >= max_descriptors() =>
            {
                return false;
            }
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

fn max_descriptors() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

/// Returns an IPv4 address, or the 64 bits of an IPv6 network: whoever has one address of that has all.
pub(super) fn source_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_descriptors_to_the_gateway() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = |spare: u64| {
            let _client = TcpStream::connect(address).unwrap();
            let mut taken = 0;
            (accept_all(&listener, spare, &mut |_, _| taken += 1), taken)
        };
        assert_eq!(accepted(0), (true, 1));
        assert_eq!(accepted(max_descriptors()), (false, 0));
    }
}
