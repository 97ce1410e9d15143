//! What the two ends of a connection do about their paths: protocols, schedulers, congestion
//! control, reordering.
//!
//! Hosts are state machines without a clock or a socket. A driver (the simulator, the emulator, the
//! gateway) hands them time and packets.
//!
//! **After every call that may change an endpoint (`write`, `receive`, `wake`), the driver calls
//! `poll_send` until it answers `None`, then `poll_delivered` until it answers `None`, and then asks
//! `next_wakeup` again.**
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

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
pub mod registry;
pub mod reordering;
pub mod rtt;
pub mod scheduler;
pub mod segment;
pub mod split;
pub mod tcp;
pub mod wire;

pub use config::{Protocol, Stack, TransportConfig};
pub use endpoint::{ConnectionTotals, Decision, Endpoint, Role, SubflowSample, Transmit};
pub use message::{Class, Delivered, Message};
pub use path::{PathId, PathInfo, PathSet, PathView};
pub use segment::{Body, Segment};
