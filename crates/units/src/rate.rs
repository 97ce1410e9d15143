//! Data rates in bits per second.

use core::fmt;

use crate::parse::{Grammar, quantity_text};
use crate::{Bytes, Duration, ParseError};

const GRAMMAR: Grammar = Grammar {
    quantity: "rate",
    units: Rate::UNITS,
    listed: "bit/s, kbit/s, Mbit/s, Gbit/s",
    example: "10Mbit/s",
};

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// Accepted units with their size in bit/s.
    pub const UNITS: &[(&str, f64)] = &[
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("Mbit/s", 1e6),
        ("Gbit/s", 1e9),
        ("bps", 1.0),
        ("kbps", 1e3),
        ("Mbps", 1e6),
        ("Gbps", 1e9),
    ];

    /// Creates a rate of `bits` bits per second.
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// Creates a rate of `megabits` million bits per second, rounded to one bit per second. Negative values and
    /// NaN become zero.
    pub fn from_mbps(megabits: f64) -> Self {
        Self(libm::round(megabits * 1e6) as u64)
    }

    /// Value in bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Returns the serialisation time of `size`, rounded up to the nanosecond; [`Duration::MAX`] at rate zero.
    pub const fn time_for(self, size: Bytes) -> Duration {
        self.time_for_bits(size.bits())
    }

    /// Returns the serialisation time of `bits` bits, rounded up to the nanosecond; [`Duration::MAX`] at rate zero.
    pub const fn time_for_bits(self, bits: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        match bits.checked_mul(1_000_000_000) {
            Some(scaled) => Duration::from_nanos(scaled.div_ceil(self.0) as i64),
            None => {
                let nanos = (bits as u128 * 1_000_000_000).div_ceil(self.0 as u128);
                if nanos > i64::MAX as u128 {
                    Duration::MAX
                } else {
                    Duration::from_nanos(nanos as i64)
                }
            }
        }
    }

    /// Returns the number of whole bits in `span`; zero for a negative span, [`u64::MAX`] if there are more.
    pub const fn bits_in(self, span: Duration) -> u64 {
        if span.as_nanos() <= 0 {
            return 0;
        }
        match self.0.checked_mul(span.as_nanos() as u64) {
            Some(scaled) => scaled / 1_000_000_000,
            None => {
                let bits = self.0 as u128 * span.as_nanos() as u128 / 1_000_000_000;
                if bits > u64::MAX as u128 { u64::MAX } else { bits as u64 }
            }
        }
    }

    /// Parses a text such as `"10Mbit/s"`. Units: bit/s, kbit/s, Mbit/s, Gbit/s, and bps, kbps, Mbps, Gbps.
    ///
    /// # Errors
    /// The text has no number, no unit, an unknown unit, or a value that is negative or too large.
    pub fn from_text(text: &str) -> Result<Self, ParseError> {
        let bits = GRAMMAR.read(text)?;
        if !(0.0..=1e15).contains(&bits) {
            return Err(ParseError::OutOfRange {
                found: text.into(),
                expected: "a rate is from 0bit/s to 1000000Gbit/s",
            });
        }
        Ok(Self(libm::round(bits) as u64))
    }
}

quantity_text!(Rate, "a rate with a unit, for example \"10Mbit/s\"");

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (size, unit) in [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")] {
            if self.0 >= size && self.0.is_multiple_of(size / 1_000) {
                let (whole, thousandths) = (self.0 / size, self.0 % size / (size / 1_000));
                if thousandths == 0 {
                    return write!(f, "{whole}{unit}");
                }
                let mut digits = 3;
                let mut fraction = thousandths;
                while fraction.is_multiple_of(10) {
                    fraction /= 10;
                    digits -= 1;
                }
                return write!(f, "{whole}.{fraction:0digits$}{unit}");
            }
        }
        write!(f, "{}bit/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn serialisation_time_is_size_over_rate() {
        let rate = Rate::from_text("10Mbit/s").unwrap();
        assert_eq!(rate.time_for(Bytes::new(1200)), Duration::from_micros(960));
        assert_eq!(rate.bits_in(Duration::from_micros(960)), 9600);
    }

    #[test]
    fn bits_of_a_long_span_saturate() {
        let rate = Rate::from_bps(1_000_000_000_000_000);
        assert_eq!(rate.bits_in(Duration::from_secs(18_446)), 18_446_000_000_000_000_000);
        assert_eq!(rate.bits_in(Duration::from_secs(18_447)), u64::MAX);
        assert_eq!(rate.bits_in(Duration::MAX), u64::MAX);
        assert_eq!(rate.bits_in(Duration::from_nanos(-1)), 0);
    }

    #[test]
    fn a_negative_rate_and_a_bare_number_are_rejected() {
        assert!(Rate::from_text("-1Mbit/s").unwrap_err().to_string().contains("out of range"));
        assert!(Rate::from_text("10").unwrap_err().to_string().contains("no unit"));
        assert!(Rate::from_text("10MB").unwrap_err().to_string().contains("not a unit of rate"));
    }

    #[test]
    fn serialisation_at_rate_zero_never_ends() {
        assert_eq!(Rate::ZERO.time_for(Bytes::new(1)), Duration::MAX);
    }

    proptest::proptest! {
        #[test]
        fn every_rate_parses_from_its_text(bits in 0u64..1_000_000_000_000) {
            let rate = Rate::from_bps(bits);
            proptest::prop_assert_eq!(Rate::from_text(&rate.to_string()).unwrap(), rate);
        }
    }
}
