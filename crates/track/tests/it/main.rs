//! Tests of track files and of cells along tracks.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod cells;
mod files;
