//! Multipath transport endpoints: protocols, packet schedulers, congestion control and reordering.
//!
//! An [`Endpoint`] is a state machine without a clock or a socket. A driver (the simulator, the
//! emulator or the gateway) supplies time and packets.
//!
//! **After every call that may change an endpoint (`write`, `receive`, `wake`), the driver calls
//! `poll_send` until it returns `None`, then `poll_delivered` until it returns `None`, and then
//! reads `next_wakeup` again.**
//!
//! ```
//! use skybraid_transport::{Class, Endpoint, Message, PathInfo, Role, TransportConfig};
//! use skybraid_units::Instant;
//!
//! let (config, paths) = (TransportConfig::default(), [PathInfo::default()]);
//! let mut client = Endpoint::new(&config, &paths, Role::Client);
//! let mut server = Endpoint::new(&config, &paths, Role::Server);
//!
//! let (sent, received) = (Instant::ZERO, Instant::from_millis(20));
//! let message = Message { stream: 0, id: 7, class: Class::Control, bytes: 100, deadline: None };
//! client.write(sent, message);
//! while let Some(transmit) = client.poll_send(sent) {
//!     server.receive(received, transmit.path, &transmit.segment);
//! }
//! assert_eq!(server.poll_delivered().map(|delivered| delivered.id), Some(7));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod coding;
pub mod config;
pub mod congestion;
pub mod datagram;
pub mod endpoint;
pub mod message;
pub mod mpdccp;
pub mod mptcp;
pub mod mutran;
pub mod pacing;
pub mod parallel;
pub mod path;
mod per_path;
pub mod registry;
pub mod reordering;
pub mod rtt;
pub mod scheduler;
pub mod seen;
pub mod segment;
pub mod split;
pub mod tcp;
pub mod timer;
pub mod wire;

pub use config::{Protocol, Stack, TransportConfig};
pub use endpoint::{ConnectionTotals, Decision, Endpoint, Role, SubflowSample, Transmit};
pub use message::{Class, Delivered, Message};
pub use path::{PathId, PathInfo, PathSet, PathView, SubflowId};
pub use segment::{Body, Segment};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
