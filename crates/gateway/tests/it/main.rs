//! Tests of two gateways over simulated paths, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod age;
mod attacks;
mod bursts;
mod clocks;
mod copies;
mod cuts;
mod faults;
mod field;
mod forecast;
mod gateway;
mod mtu;
mod names;
mod outages;
mod predicted;
mod queue;
mod session;
mod storm;
mod video;
