//! Flows over the kernel's own TCP and MPTCP.
//!
//! A [`KernelFlow`] is both ends of one flow, for one thread: non-blocking sockets that stay in the
//! namespaces in which they were made, the applications with their queues, and what is recorded. The
//! messages travel within their own bytes ([`framing`]), so sizes stay exact. The kernel says how its
//! connections stand ([`info`]).

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
