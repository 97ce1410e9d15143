//! Positions on the earth, tracks over time, and radio cells and measured coverage along tracks.
//!
//! Positions are geodetic on the WGS 84 ellipsoid; azimuth, elevation and range are computed on the ellipsoid.
//! Distances, tracks and circles follow great circles of the mean sphere, see [`Position::distance`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cells;
mod config;
mod coverage;
pub mod file;
mod position;
mod track;

pub use cells::{Cell, Grid, Handover, Service};
pub use config::{Circle, TrackConfig, Waypoints};
pub use coverage::{Along, Coverage};
pub use position::{Look, MEAN_RADIUS, Position, PositionError};
pub use track::{Track, TrackError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
