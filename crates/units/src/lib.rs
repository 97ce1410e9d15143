//! Units of time, rate, size, probability, length and angle, named random streams, and the field of erasure codes.
//!
//! The type of a quantity determines its unit. Text input must name a unit (`"10Mbit/s"`, `"30ms"`, `"0.17%"`,
//! `"1200B"`, `"5km"`), and output has the same form. Times, rates and sizes are integers; lengths, angles and
//! the other measures are floating-point numbers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bytes;
pub mod calendar;
pub mod field;
pub mod invariant;
mod measure;
mod parse;
mod probability;
mod rate;
mod stream;
mod time;

pub use bytes::Bytes;
pub use invariant::Promised;
pub use measure::{Angle, Decibels, Frequency, Length, RainRate, Speed};
pub use parse::ParseError;
pub use probability::Probability;
pub use rate::Rate;
pub use stream::{Seed, Stream};
pub use time::{Duration, Instant};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
