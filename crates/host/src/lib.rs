//! The two hosts of a run: applications that write, endpoints that carry, and what is recorded.
//!
//! [`Hosts`] knows neither a clock nor a wire. A driver (the simulator, the emulator) tells it the time,
//! hands it the segments that arrive, and carries those that leave as a [`Carrier`]. What a run
//! leaves behind is an [`Outcome`], whoever drove it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod hosts;
mod population;
pub mod record;
mod reports;
mod setup;

pub use hosts::{Carrier, Hosts, Leaving, OnTheWay};
pub use record::Outcome;
pub use setup::{
    AddressChange, FlowSetup, Forwarding, Host, LinkSetup, PathSetup, ProxySetup, Route, Setup,
};
