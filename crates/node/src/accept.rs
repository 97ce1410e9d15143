//! Accepting of connections, with a pause if the process has no free descriptor: a connection that cannot be
//! accepted keeps its listener readable, which would busy-loop.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

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
