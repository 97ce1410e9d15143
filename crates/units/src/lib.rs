//! Time, rate, size, probability and named random streams: the vocabulary that every other room
//! shares.
//!
//! All quantities are integers or ratios with their unit in the type, are read from text that names
//! its unit (`"10Mbit/s"`, `"30ms"`, `"0.17%"`, `"1200B"`), and print the same way.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bytes;
mod parse;
mod probability;
mod rate;
mod stream;
mod time;

pub use bytes::Bytes;
pub use parse::ParseError;
pub use probability::Probability;
pub use rate::Rate;
pub use stream::{Seed, Stream};
pub use time::{Duration, Instant};
