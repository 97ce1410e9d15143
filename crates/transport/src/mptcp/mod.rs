//! A reliable stream over one or several subflows: data sequence numbers, the shared receive
//! window, scheduling and reinjection. With a single subflow it is plain TCP.
//!
//! Source: RFC 8684. The files in the order in which they explain the protocol:
//!
//! 1. `path_manager` and `subflows`: which subflows there are, over which paths;
//! 2. `send`: messages become chunks of the stream, which may be reinjected;
//! 3. `assignment`: a scheduler chooses the subflows of each chunk; `walk`: or each subflow takes them in turn;
//!    `peer_window`: what happens while the peer's window blocks;
//! 4. `reassembly` and `receive`: chunks become messages; the receive window; `buffers`: its size;
//! 5. `addresses`: addresses come and go, and subflows join over them;
//! 6. `close`: both sides end the stream;
//! 7. `relay`: what differs where the connection ends at a proxy;
//! 8. `connection`: all of these as one end of a connection.
//!
//! Each part owns its fields; `connection` alone sees several parts at once.

mod addresses;
mod assignment;
pub mod buffers;
mod close;
pub mod connection;
pub mod path_manager;
mod peer_window;
pub mod reassembly;
mod receive;
mod relay;
mod send;
mod subflows;
mod walk;

pub use connection::Connection;
pub use relay::full_segment;
