//! Flows over the kernel's own TCP and MPTCP.
//!
//! A [`KernelFlow`] contains both ends of one flow, for one thread: non-blocking sockets that stay in the
//! namespaces in which they were created, the applications with their queues, and the records. Message
//! headers are part of the messages' own bytes ([`framing`]), so sizes stay exact. The kernel reports the
//! state of its connections ([`info`]).

mod connection;
mod error;
mod flow;
pub mod framing;
pub mod info;
pub mod iperf;
mod option;
mod sampling;
mod sockets;
mod support;
#[cfg(test)]
mod tests;

pub use connection::Interest;
pub use error::KernelError;
pub use flow::{Finished, KernelFlow};
pub use sockets::{Ends, MakeSocket, stream_socket};
pub use support::supports;
