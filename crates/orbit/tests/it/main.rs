//! Tests of satellite positions and service.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod positions;
mod service;
