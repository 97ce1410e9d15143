//! Sessions between an aircraft and its ground station over networks that lose, delay, repeat and reorder,
//! with restarts, and with others who listen, forge and flood.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod enemies;
mod faults;
mod field;
