//! Tests of the emulator with real packets between network namespaces.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

mod bed;
mod bridge;
mod control;
mod crossings;
mod faults;
mod forward;
mod proxy;
mod sandbox;
mod testbed;
