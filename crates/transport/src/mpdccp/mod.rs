//! Multipath DCCP: unreliable datagrams with congestion control on each path.
//!
//! A [`Connection`] cuts messages into datagrams and spreads them over subflows; the receiver
//! drops second copies and, if asked, restores order. Nothing is sent again. With one path it is
//! plain DCCP.
//!
//! Where this is simpler than the standards: every vector covers 256 packets, so acknowledgements are
//! not acknowledged in turn (RFC 4340 §11.4), and what is not told of within 256 packets counts as
//! lost; priorities are told in the handshake alone; sequence numbers start at 1; connections do not
//! close.
//!
//! A packet goes to a path only if the path's window has room for it. A redundant scheduler's copy on
//! a full path is left out rather than sent late, as in MP-DCCP for Linux.
//!
//! Source: RFC 4340, RFC 4341, RFC 9897.

mod ack_ratio;
mod ack_vector;
mod connection;
mod flight;
mod receiver;
mod subflow;
pub mod wire;

pub use ack_vector::AckVector;
pub use connection::Connection;
