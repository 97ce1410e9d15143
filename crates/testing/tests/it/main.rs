//! Tests of the examples that parse TOML; here its generic code is compiled without optimisation.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod examples;
