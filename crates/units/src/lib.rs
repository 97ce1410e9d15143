//! Time, rate, size, probability, lengths and angles, and named random streams: the vocabulary that
//! every other room shares.
//!
//! All quantities have their unit in the type, are read from text that names its unit (`"10Mbit/s"`,
//! `"30ms"`, `"0.17%"`, `"1200B"`, `"5km"`), and print the same way. What packets are counted and timed
//! with are integers; what places are measured with are real numbers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bytes;
pub mod calendar;
mod measure;
mod parse;
mod probability;
mod rate;
mod stream;
mod time;

pub use bytes::Bytes;
pub use measure::{Angle, Decibels, Frequency, Length, RainRate, Speed};
pub use parse::ParseError;
pub use probability::Probability;
pub use rate::Rate;
pub use stream::{Seed, Stream};
pub use time::{Duration, Instant};
