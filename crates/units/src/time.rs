//! Instants and durations in nanoseconds of the run's time.

use core::fmt;
use core::ops::{Div, Mul, Sub};

use crate::ParseError;
use crate::parse::{Grammar, quantity_text};

const GRAMMAR: Grammar = Grammar {
    quantity: "time",
    units: Duration::UNITS,
    listed: "ns, us, ms, s, min, h",
    example: "30ms",
};

/// An instant in nanoseconds since the start of the run. Range: ±292 years. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i64);

/// A duration in nanoseconds, which may be negative. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

impl Instant {
    /// Start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than any event; means "never".
    pub const FAR_FUTURE: Self = Self(i64::MAX);

    /// Creates the instant `nanos` nanoseconds after the start of the run.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates the instant `millis` milliseconds after the start of the run.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates the instant `seconds` seconds after the start of the run, rounded to the nanosecond.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(nearest(seconds * 1e9))
    }

    /// Nanoseconds since the start of the run.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Seconds since the start of the run.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        let span = self.0.saturating_sub(earlier.0);
        Duration(if span < 0 { 0 } else { span })
    }
}

impl Duration {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// Accepted units with their size in nanoseconds.
    pub const UNITS: &[(&str, f64)] = &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
        ("h", 3600e9),
    ];
    /// Maximum duration.
    pub const MAX: Self = Self(i64::MAX);

    /// Creates a duration of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates a duration of `micros` microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Creates a duration of `millis` milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates a duration of `seconds` seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Creates a duration of `seconds` seconds, rounded to the nanosecond. Saturates; NaN becomes zero.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(nearest(seconds * 1e9))
    }

    /// Value in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Value in milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// Value in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Whether the duration is above zero.
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// Returns the product with `factor`, rounded to the nanosecond.
    pub fn mul_f64(self, factor: f64) -> Self {
        Self(nearest(self.0 as f64 * factor))
    }

    /// Absolute value.
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// Parses a text such as `"30ms"`, `"20.04s"` or `"30min"`. Units: ns, us, ms, s, min, h.
    ///
    /// # Errors
    /// The text has no number, no unit, an unknown unit, or a value that is negative or too large.
    pub fn from_text(text: &str) -> Result<Self, ParseError> {
        let nanos = GRAMMAR.read(text)?;
        if !(0.0..9.2e18).contains(&nanos) {
            return Err(ParseError::OutOfRange {
                found: text.into(),
                expected: "a time is from 0ns to 292 years",
            });
        }
        Ok(Self(nearest(nanos)))
    }
}

quantity_text!(Duration, "a time with a unit, for example \"30ms\"");

saturating!(Instant, Duration);
saturating!(Duration, Duration);

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Mul<i64> for Duration {
    type Output = Self;
    fn mul(self, factor: i64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Div<i64> for Duration {
    type Output = Self;
    /// Division by zero returns [`Duration::MAX`].
    fn div(self, divisor: i64) -> Self {
        Self(self.0.checked_div(divisor).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(i64, &str); 6] = [
            (3_600_000_000_000, "h"),
            (60_000_000_000, "min"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
            (1, "ns"),
        ];
        if self.0 == 0 {
            return f.write_str("0s");
        }
        for (size, unit) in UNITS {
            if self.0 % size == 0 {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        Ok(())
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.as_secs_f64())
    }
}

/// Returns the nearest integer, of two the one farther from zero. As `libm::round`, which takes several times as long
/// where the processor's instruction is not known to exist.
#[inline]
fn nearest(value: f64) -> i64 {
    let whole = value as i64;
    let rest = value - whole as f64;
    whole.saturating_add(i64::from(rest >= 0.5)).saturating_sub(i64::from(rest <= -0.5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn durations_parse_with_their_unit() {
        for (text, nanos) in [
            ("30ms", 30_000_000),
            ("20.04s", 20_040_000_000),
            ("30min", 1_800_000_000_000),
            ("2 h", 7_200_000_000_000),
            ("1e-3s", 1_000_000),
            ("5us", 5_000),
        ] {
            assert_eq!(Duration::from_text(text).unwrap().as_nanos(), nanos, "{text}");
        }
    }

    #[test]
    fn a_time_without_unit_is_rejected_with_an_example() {
        let error = Duration::from_text("300").unwrap_err().to_string();
        assert_eq!(
            error,
            "`300` has no unit; expected one of ns, us, ms, s, min, h, for example `30ms`"
        );
        assert!(Duration::from_text("-5ms").is_err());
        assert!(Duration::from_text("NaNms").is_err());
        assert!(Duration::from_text("5 parsecs").is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_duration_parses_from_its_text(nanos in 0i64..9_000_000_000_000_000) {
            let span = Duration::from_nanos(nanos);
            proptest::prop_assert_eq!(Duration::from_text(&span.to_string()).unwrap(), span);
        }

        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = Duration::from_text(&text);
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        let below_half = 0.5_f64.next_down();
        let large = 4_503_599_627_370_495.5;
        for value in [0.0, 0.5, 1.5, 2.5, below_half, large, 1e15, 9.3e18, 1e300, f64::INFINITY] {
            for value in [value, -value] {
                assert_eq!(nearest(value), libm::round(value) as i64, "{value}");
            }
        }
        assert_eq!((nearest(2.5), nearest(-2.5), nearest(below_half)), (3, -3, 0));
        assert_eq!(nearest(f64::NAN), 0);
    }

    proptest::proptest! {
        #[test]
        fn any_number_is_rounded_as_by_libm(bits: u64, small in -1e10..1e10) {
            for value in [f64::from_bits(bits), small, libm::trunc(small) + 0.5] {
                proptest::prop_assert_eq!(nearest(value), libm::round(value) as i64);
            }
        }
    }
}
