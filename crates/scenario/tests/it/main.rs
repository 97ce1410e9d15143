//! Tests of scenario and gateway files, valid and invalid.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail by panicking")]

mod bad_gateways;
mod bad_input;
mod common;
mod defaults;
mod families;
mod gateway_docs;
mod network;
mod orbit;
mod places;
mod randomness;
mod scenarios;
mod testbed;
mod traces;
