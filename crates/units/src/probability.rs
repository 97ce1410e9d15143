//! Probabilities, written as percentages so that a ratio cannot be mistaken for a percentage.

use core::fmt;

use crate::ParseError;
use crate::parse::{Grammar, quantity_text};

const GRAMMAR: Grammar = Grammar {
    quantity: "probability",
    units: Probability::UNITS,
    listed: "%, ppm",
    example: "0.17%",
};

/// A probability, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Accepted units with their size.
    pub const UNITS: &[(&str, f64)] = &[("%", 1e-2), ("ppm", 1e-6)];
    /// Probability 0.
    pub const ZERO: Self = Self(0.0);
    /// Probability 1.
    pub const ONE: Self = Self(1.0);

    /// Creates the probability `ratio`; `None` unless 0 ≤ `ratio` ≤ 1.
    pub fn new(ratio: f64) -> Option<Self> {
        (0.0..=1.0).contains(&ratio).then_some(Self(ratio))
    }

    /// Creates the probability `ratio`, or the nearer of 0 and 1 outside of them; 0 for a number that is none.
    pub const fn saturating(ratio: f64) -> Self {
        if ratio >= 0.0 { Self(ratio.min(1.0)) } else { Self(0.0) }
    }

    /// Value as a ratio, 0 to 1.
    pub const fn ratio(self) -> f64 {
        self.0
    }

    /// Probability of the complementary event.
    pub fn complement(self) -> Self {
        Self(1.0 - self.0)
    }

    /// Parses a text such as `"0.17%"` or `"60ppm"`.
    ///
    /// # Errors
    /// The text has no number, no unit, an unknown unit, or a value outside 0 to 100 %.
    pub fn from_text(text: &str) -> Result<Self, ParseError> {
        // Rounded to 15 decimals, so that "99.999%" is exactly 0.99999.
        let ratio = libm::round(GRAMMAR.read(text)? * 1e15) / 1e15;
        Self::new(ratio).ok_or_else(|| ParseError::OutOfRange {
            found: text.into(),
            expected: "a probability is from 0% to 100%",
        })
    }
}

quantity_text!(Probability, "a probability with a unit, for example \"0.17%\"");

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded to nine decimals, so that 99.999 % prints without floating-point noise.
        let percent = libm::round(self.0 * 1e11) * 1e-9;
        write!(f, "{}%", libm::round(percent * 1e9) / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn percentages_and_parts_per_million_parse() {
        assert!((Probability::from_text("0.17%").unwrap().ratio() - 1.7e-3).abs() < 1e-15);
        assert!((Probability::from_text("60ppm").unwrap().ratio() - 6e-5).abs() < 1e-15);
        assert_eq!(Probability::from_text("99.999%").unwrap().to_string(), "99.999%");
        assert_eq!(Probability::from_text("99.999%").unwrap().ratio(), 0.99999);
    }

    #[test]
    fn a_bare_ratio_is_rejected() {
        assert!(Probability::from_text("0.00166").unwrap_err().to_string().contains("no unit"));
        assert!(Probability::from_text("101%").is_err());
    }
}
