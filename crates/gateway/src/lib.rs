//! The gateway of an aircraft or a ground station, as a state machine without a clock or a socket.
//!
//! A [`Gateway`] takes what local applications write (MAVLink frames, datagrams, IP packets), says of
//! each message which class it is of, and carries it to its peer over several networks at once: control
//! on every path, first copy wins; everything else over the transports of [`skybraid_transport`]. All
//! that leaves is sealed by a Noise session. Its driver passes in datagrams, bytes and the time:
//! `skybraid-node gateway` with sockets, tests with links in virtual time.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod brake;
pub mod class;
pub mod config;
mod endpoint;
pub mod event;
pub mod fair;
pub mod fec;
pub mod gateway;
pub mod health;
pub mod hello;
pub mod inner;
pub mod key;
mod link;
pub mod message;
pub mod order;
pub mod policy;
pub mod session;
pub mod signing;
pub mod snapshot;
pub mod sources;
mod stats;

pub use class::Class;
pub use config::{GatewayConfig, Side};
pub use event::Event;
pub use gateway::{BUNDLE, Gateway, Outgoing};
pub use key::{PresharedKey, PrivateKey, PublicKey, Secrets};
pub use session::Sessions;
pub use signing::SigningKey;
pub use snapshot::Snapshot;
pub use sources::{Client, Origin};

/// Source of secrets: keys of a handshake, cookies, numbers of sessions.
pub trait Random: Send {
    /// Fills `bytes` with what nobody can guess.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// A way by which local applications reach the gateway: MAVLink, a UDP port, the TUN interface. Numbers
/// are those of the names in [`GatewayConfig::channels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u8);
