//! Virtual time: flows over networks, simulated event by event.
//!
//! The simulator hands time and packets to the very link objects and transport code that the emulator
//! and the gateway use. A link decides a packet's fate at admission, so there is one event per packet
//! and hop, and the agenda holds one entry per busy link rather than one per packet.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
mod routes;
mod simulation;
mod wire;

pub use simulation::{Observer, PacketEvent, Silent, Stopped, run};
pub use skybraid_host::{
    AddressChange, FlowSetup, Forwarding, Host, LinkSetup, Outcome, PathSetup, ProxySetup, Route,
    Setup, record,
};
