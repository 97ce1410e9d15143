//! Discrete-event simulator of flows over networks, in virtual time.
//!
//! The simulator drives the same link objects and transport code as the emulator and the gateway. A link decides a
//! packet's fate at admission, so there is at most one event per packet and hop, and the agenda holds one entry per
//! link rather than one per packet.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
mod fragments;
mod ring;
mod routes;
mod simulation;
mod sources;
mod wire;

pub use simulation::{Observer, PacketEvent, Silent, Stopped, run};
pub use skybraid_host::{
    AddressChange, DirectedLink, FlowSetup, Forwarding, Host, LinkSetup, Outcome, PathSetup,
    ProxySetup, Route, Setup, record,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
