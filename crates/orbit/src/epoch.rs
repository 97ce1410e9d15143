//! Calendar time, and the rotation of the Earth.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::f64::consts::TAU;
use core::fmt;
use core::ops::{Add, Sub};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::Duration;
use skybraid_units::calendar::{date_of, days_in_month, days_since_1970};
use skybraid_units::form::text_or_table;

/// Unix time in nanoseconds: since 1970-01-01T00:00:00 UTC, without leap seconds. Range: ±292 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(i64);

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

impl Epoch {
    /// 2000-01-01T12:00:00 UTC.
    pub const J2000: Self = Self(10_957 * DAY + DAY / 2);

    /// Creates the epoch `nanos` nanoseconds after 1970-01-01T00:00:00 UTC.
    pub const fn from_unix_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970-01-01T00:00:00 UTC.
    pub const fn as_unix_nanos(self) -> i64 {
        self.0
    }

    /// Creates the epoch of midnight (UTC) of a Gregorian date; `None` if the date does not exist or is out of
    /// range (years 1700 to 2250).
    pub fn from_date(year: i32, month: u32, day: u32) -> Option<Self> {
        let (year, month, day) = (i64::from(year), i64::from(month), i64::from(day));
        let sound = (1700..=2250).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day);
        sound.then(|| Self(days_since_1970(year, month, day) * DAY))
    }

    /// Creates the epoch of a fractional day of a year; day 1.0 is midnight (UTC) of 1 January.
    pub(crate) fn from_day_of_year(year: i32, day: f64) -> Option<Self> {
        let start = Self::from_date(year, 1, 1)?;
        let valid = (1.0..367.0).contains(&day);
        valid.then(|| start + Duration::from_nanos(libm::round((day - 1.0) * DAY as f64) as i64))
    }

    /// Parses an ISO 8601 date and time: `2026-01-01T00:00:00Z`, with optional fractional seconds, and an
    /// optional offset such as `+01:00`. Default: UTC.
    ///
    /// # Errors
    /// The text is not valid; the error names what was found and what was expected.
    pub fn from_text(text: &str) -> Result<Self, String> {
        read(text.trim()).ok_or_else(|| {
            format!("found \"{text}\", expected a date and time, for example 2026-01-01T00:00:00Z")
        })
    }

    /// Returns the days since J2000: whole days and the fraction, 0 to 1.
    fn days_since_j2000(self) -> (f64, f64) {
        let nanos = self.0.saturating_sub(Self::J2000.0);
        (nanos.div_euclid(DAY) as f64, nanos.rem_euclid(DAY) as f64 / DAY as f64)
    }

    /// Julian years (365.25 days) since J2000.
    pub(crate) fn years_since_j2000(self) -> f64 {
        let (days, rest) = self.days_since_j2000();
        (days + rest) / 365.25
    }

    /// Returns the Greenwich mean sidereal time in rad, from 0 to 2π, by the 1982 model of SGP4's frame TEME
    /// (Vallado et al., AIAA 2006-6753, appendix C). UTC is used for UT1, from which it differs by at most 0.9
    /// s.
    pub fn sidereal_angle(self) -> f64 {
        let (days, rest) = self.days_since_j2000();
        let centuries = (days + rest) / 36_525.0;
        // Of the mean rotation, one turn per day, only the fraction of the day matters.
        let seconds = 67_310.548_41
            + rest * 86_400.0
            + (8_640_184.812_866 + (0.093_104 - 6.2e-6 * centuries) * centuries) * centuries;
        let turns = seconds / 86_400.0;
        (turns - libm::floor(turns)) * TAU
    }

    /// Nanoseconds into the current minute.
    pub(crate) const fn within_minute(self) -> i64 {
        self.0.rem_euclid(60 * SECOND)
    }
}

/// Parses an ISO 8601 date and time.
fn read(text: &str) -> Option<Epoch> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let mut whole = |length: usize| number(parts.next()?, length);
    let (year, month, day) = (whole(4)?, whole(2)?, whole(2)?);
    if parts.next().is_some() {
        return None;
    }
    let (time, offset) = offset(time)?;
    let mut parts = time.split(':');
    let mut whole = || number(parts.next()?, 2);
    let (hour, minute) = (whole()?, whole()?);
    let seconds = parts.next().unwrap_or("00");
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let second = number(second, 2)?;
    // A leap second is the first second of the next minute, as in Unix time.
    let sound = hour < 24 && minute < 60 && second <= 60 && parts.next().is_none();
    let digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !sound || !digits || fraction.len() > 18 {
        return None;
    }
    let fraction = format!("0.{fraction}").parse::<f64>().ok()?;
    let start = Epoch::from_date(i32::try_from(year).ok()?, month, day)?;
    let within = Duration::from_secs(i64::from(hour * 3600 + minute * 60 + second));
    Some(start + (within + Duration::from_secs_f64(fraction) - offset))
}

/// Splits a time of day into the time and its offset from UTC.
fn offset(time: &str) -> Option<(&str, Duration)> {
    if let Some(rest) = time.strip_suffix(['Z', 'z']) {
        return Some((rest, Duration::ZERO));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, Duration::ZERO)) };
    let (rest, offset) = (time.get(..at)?, time.get(at + 1..)?);
    let (hours, minutes) = offset.split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let span = Duration::from_secs(i64::from(hours * 3600 + minutes * 60));
    let sound = hours < 24 && minutes < 60;
    sound.then_some((rest, if time.as_bytes().get(at) == Some(&b'-') { span * -1 } else { span }))
}

fn number(text: &str, length: usize) -> Option<u32> {
    let digits = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

impl Add<Duration> for Epoch {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_nanos()))
    }
}

impl Sub for Epoch {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Epoch {
    /// Writes ISO 8601 in UTC: `2026-01-01T00:00:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0.div_euclid(DAY));
        let within = self.0.rem_euclid(DAY);
        let (second, fraction) = (within / SECOND, within % SECOND);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if fraction != 0 {
            let digits = format!("{fraction:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

impl<'de> Deserialize<'de> for Epoch {
    /// Reads a text, or a TOML date, which serde passes as a table of one text.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "a date and time, for example 2026-01-01T00:00:00Z";
        text_or_table(from, expected, Self::from_text, |date: BTreeMap<String, String>| {
            let text = date.values().next();
            text.map_or(Err("found an empty table, expected a date and time".into()), |text| {
                Self::from_text(text).map_err(|error| error.to_string())
            })
        })
    }
}

impl Serialize for Epoch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidereal_time_agrees_with_published_examples() {
        // Source: Meeus, Astronomical Algorithms, examples 12.a and 12.b: 1987 April 10, 0 h UT:
        // 13 h 10 min 46.3668 s; 19 h 21 min: 8 h 34 min 57.0896 s.
        for (text, hours) in [
            ("1987-04-10T00:00:00Z", 13.0 + 10.0 / 60.0 + 46.3668 / 3600.0),
            ("1987-04-10T19:21:00Z", 8.0 + 34.0 / 60.0 + 57.0896 / 3600.0),
        ] {
            let found = Epoch::from_text(text).unwrap().sidereal_angle() / TAU * 24.0;
            assert!((found - hours).abs() * 3600.0 < 1e-4, "{text}: {found} h");
        }
    }

    #[test]
    fn dates_parse_from_their_text_and_with_offsets() {
        for text in ["2026-01-01T00:00:00Z", "2024-02-29T23:59:59.25Z", "1969-12-31T23:59:58Z"] {
            assert_eq!(Epoch::from_text(text).unwrap().to_string(), text);
        }
        assert_eq!(Epoch::J2000.to_string(), "2000-01-01T12:00:00Z");
        let zurich = Epoch::from_text("2026-06-01T02:00:00+02:00").unwrap();
        assert_eq!(zurich, Epoch::from_text("2026-06-01 00:00").unwrap());
        for wrong in ["2026-13-01T00:00:00Z", "2025-02-29T00:00:00", "2026-01-01", "now", "é"] {
            assert!(Epoch::from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn days_of_the_year_start_at_one() {
        let noon = Epoch::from_day_of_year(2025, 29.5).unwrap();
        assert_eq!(noon.to_string(), "2025-01-29T12:00:00Z");
        assert_eq!(Epoch::from_day_of_year(2025, 0.5), None);
    }

    proptest::proptest! {
        #[test]
        fn every_epoch_parses_from_its_text(nanos in -8_000_000_000i64..8_800_000_000) {
            let epoch = Epoch::from_unix_nanos(nanos * 1_000_000_000 + 123_000);
            proptest::prop_assert_eq!(Epoch::from_text(&epoch.to_string()).unwrap(), epoch);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Epoch::from_text(&text);
        }
    }
}
