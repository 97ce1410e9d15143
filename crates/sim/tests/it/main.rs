//! Tests of whole simulated runs.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod dccp;
mod flows;
mod head_of_line;
mod held;
mod misses;
mod mptcp;
mod mutran;
mod networks;
mod parallel;
mod properties;
mod schedulers;
mod support;
mod theory;
mod video;
