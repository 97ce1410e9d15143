//! Dates and times in XML.
//!
//! Source: W3C, XML Schema Definition Language 1.1 part 2, §3.3.7 `dateTime`.

use skybraid_units::calendar::{days_in_month, days_since_1970};

/// Expected text, for errors.
pub(super) const EXPECTED: &str = "a time such as `2026-01-01T12:00:00Z`";

/// Parses a text such as `2026-01-01T12:00:00.25Z` into nanoseconds since 1970. The zone may be `Z` or an
/// offset such as `+01:00`. Default: UTC. Years 1900 to 2199.
pub(super) fn read(text: &str) -> Option<i64> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-');
    let year = whole(date.next()?, 4, 1900, 2199)?;
    let month = whole(date.next()?, 2, 1, 12)?;
    let day = whole(date.next()?, 2, 1, days_in_month(year, month))?;
    let (time, offset) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => match time.rfind(['+', '-']) {
            Some(at) => {
                let (time, zone) = (time.get(..at)?, time.get(at..)?);
                let (hours, minutes) = zone.get(1..)?.split_once(':')?;
                let span = whole(hours, 2, 0, 14)? * 60 + whole(minutes, 2, 0, 59)?;
                (time, if zone.starts_with('-') { -span } else { span })
            }
            None => (time, 0),
        },
    };
    let mut time = time.splitn(3, ':');
    let hour = whole(time.next()?, 2, 0, 23)?;
    let minute = whole(time.next()?, 2, 0, 59)?;
    let second = time.next()?;
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    // A leap second is the first second of the next minute, as in Unix time.
    let second = whole(second, 2, 0, 60)?;
    let nanos = nanoseconds(fraction)?;
    let minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute - offset;
    Some((minutes * 60 + second) * 1_000_000_000 + nanos)
}

/// Parses an integer of exactly `digits` digits in a range.
fn whole(text: &str, digits: usize, min: i64, max: i64) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    let value: i64 = if plain { text.parse().ok()? } else { return None };
    (min..=max).contains(&value).then_some(value)
}

/// Parses the decimals of a second; digits after the ninth are truncated.
fn nanoseconds(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let first = digits.bytes().chain(core::iter::repeat(b'0')).take(9);
    Some(first.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Source: the seconds since 1970 of POSIX (`date -u -d … +%s`).
    #[test]
    fn dates_are_seconds_since_1970_as_in_posix() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2026-01-01T00:00:00Z", 1_767_225_600.0),
            ("2024-02-29T12:30:15.5Z", 1_709_209_815.5),
            ("2024-02-29T12:30:15.5+01:30", 1_709_204_415.5),
            ("2024-02-29T12:30:15-00:30", 1_709_211_615.0),
            ("2024-02-29 12:30:15", 1_709_209_815.0),
            ("2016-12-31T23:59:60Z", 1_483_228_800.0),
        ] {
            assert_eq!(read(text).unwrap() as f64 * 1e-9, seconds, "{text}");
        }
        assert_eq!(read("1970-01-01T00:00:00.1234567899Z"), Some(123_456_789));
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in [
            "",
            "2026-01-01",
            "2023-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "26-01-01T00:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00.xZ",
            "2026-01-01T00:00:00+1:00",
            "-026-01-01T00:00:00Z",
            "2026-01-01T00:00:+1Z",
            "2026-01-01T−00:00:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
