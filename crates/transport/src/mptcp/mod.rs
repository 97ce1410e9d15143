//! A reliable stream over one or several subflows: data sequence numbers, the shared receive
//! window, scheduling and reinjection. With a single subflow it is plain TCP.
//!
//! Source: RFC 8684.

mod addresses;
mod assignment;
mod close;
pub mod connection;
pub mod path_manager;
pub mod reassembly;
mod relay;

pub use connection::Connection;
pub use relay::full_segment;
