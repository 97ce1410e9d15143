//! The crate with input and output: packet captures.
#![forbid(unsafe_code)]

pub mod capture;
