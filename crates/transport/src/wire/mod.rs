//! Segments as bytes: the TCP options that captures show, and the datagrams in which segments travel
//! over real networks.

pub mod datagram;
mod tcp_options;

pub use tcp_options::{CLIENT_KEY, SERVER_KEY, SERVER_TOKEN, carries_mptcp, tcp_options};
