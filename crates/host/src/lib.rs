//! The two hosts of a run: applications, transport endpoints, and the record of what happened.
//!
//! [`Hosts`] has neither a clock nor a wire. A driver (the simulator or the emulator) passes in the time and the
//! segments received, and implements [`Carrier`] to send segments and keep timers. The result of a run is an
//! [`Outcome`], whichever driver ran it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod app;
mod duties;
mod end_host;
mod hosts;
mod ids;
mod machine;
mod population;
pub mod record;
mod relay;
mod reports;
mod sender;
mod setup;
mod side;

pub use hosts::{Carried, Carrier, Hosts, InFlight, Outgoing, Participant};
pub use ids::{DirectedLink, FlowId, Numbered, RecordId, RouteId, SideId};
pub use record::Outcome;
pub use setup::{
    AddressChange, FlowSetup, Forwarding, Host, LinkSetup, PathSetup, ProxySetup, Route, Setup,
    TooLarge,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
