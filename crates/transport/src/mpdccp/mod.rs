//! Multipath DCCP: unreliable datagrams with congestion control on each path.
//!
//! A [`Connection`] fragments messages into datagrams and schedules them over subflows; the
//! receiver drops duplicates and, if configured, restores order. Nothing is retransmitted. With one
//! path it is plain DCCP.
//!
//! Simplifications compared with the standards: every ack vector covers 256 packets, so that
//! acknowledgements are not acknowledged themselves (RFC 4340 §11.4), and a packet not reported
//! within 256 packets counts as lost; priorities are exchanged in the handshake only; sequence
//! numbers start at 1; connections do not close.
//!
//! A packet is assigned to a path only if the path's window has room for it. A redundant
//! scheduler's copy on a full path is omitted instead of sent late, as in MP-DCCP for Linux.
//!
//! Source: RFC 4340, RFC 4341, RFC 9897.

mod ack_ratio;
mod ack_vector;
mod connection;
mod receiver;
mod sent_packets;
mod subflow;
pub mod wire;

pub use ack_vector::AckVector;
pub use connection::Connection;
