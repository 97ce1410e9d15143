//! Tests of the link effects, compared with formulas, traces and each other.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail by panicking")]

mod access;
mod access_requests;
mod access_stack;
mod along;
mod common;
mod config;
mod delay_line;
mod halts;
mod live;
mod loss;
mod lutz;
mod mahimahi;
mod outage;
mod population;
mod processes;
mod properties;
mod queue;
mod radio;
mod randomness;
mod readers;
mod replay;
mod sampling;
