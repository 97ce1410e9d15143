//! Measurements of the engine: speed relative to a bare loop, instructions, allocations, and the cost of single
//! algorithms.

pub mod algorithms;
pub mod allocations;
pub mod callgrind;
pub mod cases;
pub mod coding;
pub mod counting;
pub mod floor;
pub mod messages;
pub mod simulated;

use std::time::Instant;

/// Current wall time.
#[expect(clippy::disallowed_methods, reason = "measures wall time")]
pub fn now() -> Instant {
    Instant::now()
}
