//! Segments as bytes: TCP options for captures, and datagrams that carry segments over real
//! networks.

pub mod datagram;
mod tcp_options;

pub use tcp_options::{CLIENT_KEY, SERVER_KEY, SERVER_TOKEN, carries_mptcp, tcp_options};
