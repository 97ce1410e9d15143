//! Satellites: where they are, which one serves, and what delay that gives.
//!
//! Everything is a function of time and configuration: no randomness, no clock. Positions are
//! earth-centred and earth-fixed in metres, times are instants of the run, and the run begins at an
//! [`Epoch`]. What is left out, and what it costs, stands in `docs/orbits.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod choice;
mod config;
mod constellation;
mod elements;
mod epoch;
mod export;
mod omm;
mod route;
mod satellite;
mod service;
mod tle;
mod visibility;
mod walker;
mod weather;

pub use choice::Choice;
pub use config::{OrbitConfig, Wrong};
pub use constellation::{CONSTELLATIONS, Constellation, Named};
pub use elements::{ElementsError, read};
pub use epoch::Epoch;
pub use satellite::Satellite;
pub use service::{
    Delays, Gateway, Handover, Sample, Service, Serving, Terminal, over_ground, serve,
};
pub use walker::Walker;
pub use weather::{ElevationLoss, Rain, specific_attenuation};
