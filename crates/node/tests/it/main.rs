//! Tests of the daemon and its commands on real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

mod commands;
mod daemons;
mod loopback;
mod networks;
mod speed;
