//! Satellite constellations: positions, satellite selection, handovers and delays.
//!
//! Results depend on time and configuration alone, without randomness or a clock. Positions are earth-centred
//! and earth-fixed (ECEF) in metres. Times are instants of the run, which begins at an [`Epoch`].
//! `docs/orbits.md` lists the simplifications and their errors.
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
pub use config::{InvalidKey, OrbitConfig};
pub use constellation::{CONSTELLATIONS, Constellation, NamedConstellation};
pub use elements::{ElementsError, read};
pub use epoch::Epoch;
pub use satellite::Satellite;
pub use service::{
    Delays, Gateway, Handover, Sample, Service, Serving, Terminal, over_ground, serve,
};
pub use walker::Walker;
pub use weather::{ElevationLoss, Rain, specific_attenuation};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
