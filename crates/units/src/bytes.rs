//! Sizes in bytes.

use core::fmt;

use crate::ParseError;
use crate::parse::{Grammar, quantity_text};

const GRAMMAR: Grammar = Grammar {
    quantity: "size",
    units: Bytes::UNITS,
    listed: "B, kB, MB, GB, KiB, MiB, GiB",
    example: "1200B",
};

/// A size in bytes. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// Accepted units with their size in bytes.
    pub const UNITS: &[(&str, f64)] = &[
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ];
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// Creates a size of `count` bytes.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// Number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Number of bits.
    pub const fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// Parses a text such as `"1200B"` or `"64KiB"`. Units: B, kB, MB, GB, KiB, MiB, GiB.
    ///
    /// # Errors
    /// The text has no number, no unit, an unknown unit, or a value that is negative, too large or
    /// not a whole number of bytes.
    pub fn from_text(text: &str) -> Result<Self, ParseError> {
        let bytes = GRAMMAR.read(text)?;
        if !(0.0..=1e15).contains(&bytes) || libm::fabs(bytes - libm::round(bytes)) > 1e-6 {
            return Err(ParseError::OutOfRange {
                found: text.into(),
                expected: "a size is a whole number of bytes from 0B to 1000000GB",
            });
        }
        Ok(Self(libm::round(bytes) as u64))
    }
}

quantity_text!(Bytes, "a size with a unit, for example \"1200B\"");

saturating!(Bytes, Bytes);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (size, unit) in [
            (1_000_000_000, "GB"),
            (1_073_741_824, "GiB"),
            (1_048_576, "MiB"),
            (1_000_000, "MB"),
            (1_024, "KiB"),
            (1_000, "kB"),
        ] {
            if self.0 > 0 && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!(Bytes::from_text("1.5kB").unwrap().get(), 1500);
        assert_eq!(Bytes::from_text("64KiB").unwrap().get(), 65_536);
        assert!(Bytes::from_text("1200").is_err());
        assert!(Bytes::from_text("0.5B").is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_size_parses_from_its_text(count in 0u64..1_000_000_000_000) {
            let size = Bytes::new(count);
            proptest::prop_assert_eq!(Bytes::from_text(&size.to_string()).unwrap(), size);
        }
    }
}
