//! Satellites: where they are, which one serves, and what delay that gives.
//!
//! Everything is a function of time and configuration: no randomness, no clock. Positions are
//! earth-centred and earth-fixed in metres, times are instants of the run, and the run begins at an
//! [`Epoch`]. What is left out, and what it costs, stands in `docs/orbits.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod choice;
mod constellation;
mod elements;
mod epoch;
mod omm;
mod satellite;
mod tle;
mod visibility;
mod walker;

pub use choice::Choice;
pub use constellation::{CONSTELLATIONS, Constellation, Named};
pub use elements::{ElementsError, read};
pub use epoch::Epoch;
pub use satellite::Satellite;
pub use walker::Walker;
