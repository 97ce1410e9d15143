//! Parser of quantities with units.

use alloc::string::{String, ToString};

/// Error in the text of a quantity, with what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text does not start with a number.
    #[error("`{found}` is not a number with a unit; expected for example `{example}`")]
    NotANumber {
        /// Text of the input.
        found: String,
        /// Example of a valid text.
        example: &'static str,
    },
    /// The number has no unit.
    #[error("`{found}` has no unit; expected one of {units}, for example `{example}`")]
    MissingUnit {
        /// Text of the input.
        found: String,
        /// Accepted units.
        units: &'static str,
        /// Example of a valid text.
        example: &'static str,
    },
    /// The unit is not a unit of this quantity.
    #[error("`{unit}` in `{found}` is not a unit of {quantity}; expected one of {units}")]
    UnknownUnit {
        /// Text of the input.
        found: String,
        /// Unit that was found.
        unit: String,
        /// Name of the quantity.
        quantity: &'static str,
        /// Accepted units.
        units: &'static str,
    },
    /// The value is outside the quantity's range.
    #[error("`{found}` is out of range: {expected}")]
    OutOfRange {
        /// Text of the input.
        found: String,
        /// Accepted range.
        expected: &'static str,
    },
}

/// Grammar of a quantity: its name, its units with their size in the base unit, and an example.
pub(crate) struct Grammar {
    pub quantity: &'static str,
    pub units: &'static [(&'static str, f64)],
    pub listed: &'static str,
    pub example: &'static str,
}

impl Grammar {
    /// Parses `text` and returns the value in the base unit, which is always finite.
    pub fn read(&self, text: &str) -> Result<f64, ParseError> {
        let trimmed = text.trim();
        let split = number_length(trimmed);
        let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
        let value: f64 = match number.parse::<f64>() {
            Ok(value) if value.is_finite() => value,
            _ => {
                return Err(ParseError::NotANumber {
                    found: text.to_string(),
                    example: self.example,
                });
            }
        };
        if unit.is_empty() {
            return Err(ParseError::MissingUnit {
                found: text.to_string(),
                units: self.listed,
                example: self.example,
            });
        }
        match self.units.iter().find(|(name, _)| *name == unit) {
            Some((_, size)) => Ok(value * size),
            None => Err(ParseError::UnknownUnit {
                found: text.to_string(),
                unit: unit.to_string(),
                quantity: self.quantity,
                units: self.listed,
            }),
        }
    }
}

/// Returns the length of the leading decimal number. An `e` is part of it only if digits follow, as in `1e-6` but not
/// in `5exa`.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while at < bytes.len() && bytes[at].is_ascii_digit() {
            at += 1;
        }
        at
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut end = digits(sign);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let stop = digits(exponent);
        if stop > exponent {
            end = stop;
        }
    }
    end
}

/// Implements `FromStr` and serde for a quantity that has `from_text` and `Display`.
macro_rules! quantity_text {
    ($type:ty, $what:literal) => {
        impl core::str::FromStr for $type {
            type Err = crate::ParseError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <$type>::from_text(text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::form::text(from, $what, <$type>::from_text)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    };
}
pub(crate) use quantity_text;
