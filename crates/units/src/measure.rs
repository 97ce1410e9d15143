//! Floating-point quantities: lengths, speeds, angles, decibels, frequencies and rain rates.

use core::fmt;

use crate::ParseError;
use crate::parse::{Grammar, quantity_text};

macro_rules! measure {
    (
        $(#[$about:meta])*
        $type:ident, $quantity:literal, units: $units:expr, listed: $listed:literal,
        example: $example:literal, up_to: $limit:literal, range: $range:literal,
        new: $new:ident, get: $get:ident, base: $base:literal, expecting: $expecting:literal
        $(, shown: $shown:literal)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $type(f64);

        impl $type {
            /// Zero.
            pub const ZERO: Self = Self(0.0);
            #[doc = concat!("Accepted units with their size in ", $base, ".")]
            pub const UNITS: &[(&str, f64)] = $units;

            #[doc = concat!("Creates a value in ", $base, ".")]
            pub const fn $new(value: f64) -> Self {
                Self(value)
            }

            #[doc = concat!("Value in ", $base, ".")]
            pub const fn $get(self) -> f64 {
                self.0
            }

            #[doc = concat!("Parses a text such as `\"", $example, "\"`. Units: ", $listed, ".")]
            ///
            /// # Errors
            /// The text has no number, no unit, an unknown unit, or a value that is too large.
            pub fn from_text(text: &str) -> Result<Self, ParseError> {
                let grammar = Grammar {
                    quantity: $quantity,
                    units: Self::UNITS,
                    listed: $listed,
                    example: $example,
                };
                let value = grammar.read(text)?;
                if !(-$limit..=$limit).contains(&value) {
                    return Err(ParseError::OutOfRange { found: text.into(), expected: $range });
                }
                Ok(Self(value))
            }
        }

        quantity_text!($type, $expecting);

        $(impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $shown), self.0)
            }
        })?
    };
}

measure! {
    /// A length or height in metres.
    Length, "length",
    units: &[("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("NM", 1852.0)],
    listed: "m, km, ft, NM", example: "5km",
    up_to: 1e12, range: "a length is at most 1000000000km either way",
    new: from_metres, get: as_metres, base: "metres",
    expecting: "a length with a unit, for example \"5km\""
}

measure! {
    /// A speed in metres per second.
    Speed, "speed",
    units: &[("m/s", 1.0), ("km/h", 1.0 / 3.6), ("kn", 1852.0 / 3600.0)],
    listed: "m/s, km/h, kn", example: "40m/s",
    up_to: 3e8, range: "a speed is at most 300000000m/s either way",
    new: from_metres_per_second, get: as_metres_per_second, base: "metres per second",
    expecting: "a speed with a unit, for example \"40m/s\"",
    shown: "m/s"
}

measure! {
    /// An angle in degrees.
    Angle, "angle",
    units: &[("deg", 1.0), ("°", 1.0), ("rad", 180.0 / core::f64::consts::PI)],
    listed: "deg, rad", example: "25deg",
    up_to: 1e6, range: "an angle is at most 1000000deg either way",
    new: from_degrees, get: as_degrees, base: "degrees",
    expecting: "an angle with a unit, for example \"25deg\"",
    shown: "deg"
}

measure! {
    /// A power ratio in decibels.
    Decibels, "power ratio",
    units: &[("dB", 1.0)],
    listed: "dB", example: "3dB",
    up_to: 1e3, range: "a ratio of powers is at most 1000dB either way",
    new: new, get: get, base: "decibels",
    expecting: "a ratio of powers with its unit, for example \"3dB\"",
    shown: "dB"
}

measure! {
    /// A frequency in hertz.
    Frequency, "frequency",
    units: &[("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)],
    listed: "Hz, kHz, MHz, GHz", example: "12GHz",
    up_to: 1e15, range: "a frequency is at most 1000000GHz",
    new: from_hertz, get: as_hertz, base: "hertz",
    expecting: "a frequency with a unit, for example \"12GHz\""
}

measure! {
    /// A rain rate in millimetres per hour.
    RainRate, "rain rate",
    units: &[("mm/h", 1.0)],
    listed: "mm/h", example: "25mm/h",
    up_to: 1e4, range: "a rain rate is at most 10000mm/h",
    new: from_millimetres_per_hour, get: as_millimetres_per_hour, base: "millimetres per hour",
    expecting: "a rain rate with its unit, for example \"25mm/h\"",
    shown: "mm/h"
}

impl Angle {
    /// Value in radians.
    pub fn as_radians(self) -> f64 {
        self.0.to_radians()
    }
}

impl Decibels {
    /// Value as a ratio: 10^(dB / 10).
    pub fn power_ratio(self) -> f64 {
        libm::pow(10.0, self.0 / 10.0)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0.0 && self.0 % 1000.0 == 0.0 {
            return write!(f, "{}km", self.0 / 1000.0);
        }
        write!(f, "{}m", self.0)
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0.0 && self.0 % 1e6 == 0.0 {
            return write!(f, "{}GHz", self.0 / 1e9);
        }
        write!(f, "{}Hz", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn measures_parse_with_their_unit() {
        let metres = |text| Length::from_text(text).unwrap().as_metres();
        assert_eq!((metres("5km"), metres("-20 m"), metres("1NM")), (5000.0, -20.0, 1852.0));
        assert!((metres("1000ft") - 304.8).abs() < 1e-9);
        let speed = |text| Speed::from_text(text).unwrap().as_metres_per_second();
        assert!((speed("36km/h") - 10.0).abs() < 1e-12);
        assert!((speed("100kn") - 51.444_444).abs() < 1e-6);
        let angle = |text| Angle::from_text(text).unwrap().as_radians();
        assert_eq!(angle("180deg"), core::f64::consts::PI);
        assert_eq!(angle("180°"), core::f64::consts::PI);
        assert!((angle("1rad") - 1.0).abs() < 1e-15);
        let frequency = Frequency::from_text("19.7GHz").unwrap();
        assert_eq!((frequency.as_hertz(), frequency.to_string()), (19.7e9, "19.7GHz".into()));
        assert_eq!(RainRate::from_text("25mm/h").unwrap().to_string(), "25mm/h");
    }

    #[test]
    fn ten_decibels_are_a_factor_of_ten() {
        assert_eq!(Decibels::from_text("10dB").unwrap().power_ratio(), 10.0);
        assert!((Decibels::from_text("-3dB").unwrap().power_ratio() - 0.501_187).abs() < 1e-6);
    }

    #[test]
    fn a_missing_unit_and_a_foreign_unit_are_rejected() {
        let error = Length::from_text("5").unwrap_err().to_string();
        assert_eq!(error, "`5` has no unit; expected one of m, km, ft, NM, for example `5km`");
        let error = Speed::from_text("5km").unwrap_err().to_string();
        assert!(error.contains("`km` in `5km` is not a unit of speed"), "{error}");
        assert!(Decibels::from_text("2000dB").unwrap_err().to_string().contains("out of range"));
        assert!(Angle::from_text("NaNdeg").is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_measure_reads_back_what_it_prints(value in -1e6f64..1e6, whole in -1000i32..1000) {
            for value in [value, f64::from(whole) * 1000.0] {
                let length = Length::from_metres(value);
                proptest::prop_assert_eq!(Length::from_text(&length.to_string()).unwrap(), length);
                let speed = Speed::from_metres_per_second(value);
                proptest::prop_assert_eq!(Speed::from_text(&speed.to_string()).unwrap(), speed);
            }
        }
    }
}
