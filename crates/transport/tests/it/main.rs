//! Tests of the transports against formulas, published figures and each other.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod bbr;
mod bottleneck;
mod bottlenecks;
mod chain;
mod datagrams;
mod dccp;
mod docs;
mod equilibria;
mod examples;
mod extending;
mod hedging;
mod hosts;
mod network;
mod over_datagrams;
mod response;
mod schedulers;
mod split;
mod wire_guide;
