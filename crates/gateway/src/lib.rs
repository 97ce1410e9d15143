//! The gateway of an aircraft or a ground station, as a state machine without a clock or a socket.
//!
//! A [`Gateway`] classifies the messages of local applications (MAVLink frames, datagrams, IP packets) and
//! carries them to its peer over several networks at once: control on every path, first copy wins; everything
//! else over the transports of [`skybraid_transport`]. All outgoing data is sealed by a Noise session. A
//! driver supplies datagrams, bytes and the time: `skybraid-node gateway` with sockets, tests with links in
//! virtual time.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

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
mod rate_limiter;
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
    /// Fills `bytes` with unguessable data.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// Channel of local applications: MAVLink, a UDP port or the TUN interface. The number is the index in
/// [`GatewayConfig::channels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u8);
