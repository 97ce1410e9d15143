//! Where nodes are: positions on the earth, tracks over time, radio cells along them.
//!
//! Positions are geodetic on the WGS 84 ellipsoid, and what is seen from them (elevation, azimuth,
//! range) is exact there. Ways over ground (distances, tracks, circles) follow great circles of the mean
//! sphere, see [`Position::distance`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cells;
mod config;
pub mod file;
mod position;
mod track;

pub use cells::{Cell, Grid, Handover, Service};
pub use config::{Circle, TrackConfig, Waypoints};
pub use position::{Look, MEAN_RADIUS, Position, PositionError};
pub use track::{Track, TrackError};
