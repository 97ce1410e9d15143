//! Accepting connections, with a pause where the process has no descriptor left: a connection that cannot be
//! accepted keeps its listener ready, and a loop would do nothing else.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use skybraid_units::Duration;

/// Connections that are accepted in one wake-up.
const MAX_ACCEPTED: usize = 32;
/// Pause after a connection that could not be accepted.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Passes on the connections that wait at a listener that does not block. Returns false where the system has no
/// descriptor or memory for another one, so that the listener must pause.
pub(super) fn accept_all(
    listener: &TcpListener,
    take: &mut dyn FnMut(TcpStream, SocketAddr),
) -> bool {
    for _ in 0..MAX_ACCEPTED {
        match listener.accept() {
            Ok((stream, from)) => take(stream, from),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return true,
                // One that has gone meanwhile (accept(2)).
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => return false,
            },
        }
    }
    true
}
