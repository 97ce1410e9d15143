//! Units of time, rate, size, probability, length and angle, named random streams, and the field of erasure codes.
//!
//! The type of a quantity determines its unit. Text input must name a unit (`"10Mbit/s"`, `"30ms"`, `"0.17%"`,
//! `"1200B"`, `"5km"`), and output has the same form. Times, rates and sizes are integers; lengths, angles and
//! the other measures are floating-point numbers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Implements saturating addition and subtraction of integer quantities.
macro_rules! saturating {
    ($type:ty, $other:ty) => {
        impl core::ops::Add<$other> for $type {
            type Output = Self;
            fn add(self, other: $other) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl core::ops::AddAssign<$other> for $type {
            fn add_assign(&mut self, other: $other) {
                *self = *self + other;
            }
        }

        impl core::ops::Sub<$other> for $type {
            type Output = Self;
            fn sub(self, other: $other) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl core::ops::SubAssign<$other> for $type {
            fn sub_assign(&mut self, other: $other) {
                *self = *self - other;
            }
        }
    };
}

mod bytes;
pub mod calendar;
pub mod field;
pub mod form;
pub mod invariant;
mod measure;
mod parse;
mod probability;
mod rate;
mod stream;
mod time;

use alloc::format;
use alloc::string::String;

pub use bytes::Bytes;
pub use invariant::Promised;
pub use measure::{Angle, Decibels, Frequency, Length, RainRate, Speed};
pub use parse::ParseError;
pub use probability::Probability;
pub use rate::Rate;
pub use stream::{Seed, Stream};
pub use time::{Duration, Instant};

/// Checks a value of an input.
///
/// # Errors
/// Returns its key with what was expected unless `holds`.
pub fn expect<Key>(holds: bool, key: Key, expected: &str) -> Result<(), (Key, String)> {
    if holds { Ok(()) } else { Err((key, format!("expected {expected}"))) }
}

/// Declares a table of a file whose keys all have defaults.
#[macro_export]
macro_rules! keys {
    ($(#[$about:meta])* pub struct $type:ident {
        $($(#[$doc:meta])* $access:vis $key:ident: $kind:ty = $default:expr,)+
    }) => {
        $(#[$about])*
        #[derive(serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $type {
            $($(#[$doc])* $access $key: $kind,)+
        }

        impl Default for $type {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }
    };
}

/// Declares the defaults of keys: functions for `#[serde(default = "…")]`.
#[macro_export]
macro_rules! defaults {
    ($($name:ident: $type:ty = $value:expr;)+) => {
        $(fn $name() -> $type {
            $value
        })+
    };
}

/// Declares an enum whose values have names in files and tables, with the list `ALL` and the method `name`.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $type:ident {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        pub enum $type {
            $($(#[$doc])* $variant,)+
        }

        impl $type {
            /// All values, in the order of their declaration.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Name in files and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
