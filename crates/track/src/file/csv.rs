//! Tracks as CSV with the columns `time_s`, `latitude`, `longitude`, `altitude_m`.
//!
//! The heading is required. Columns may be in any order, next to others, separated by comma, semicolon or tab.
//! Blank lines and lines that begin with `#` are skipped.

use alloc::format;
use alloc::vec::Vec;

use super::{Points, ReadError, Timed, number, position, wrong};

const COLUMNS: [&str; 4] = ["time_s", "latitude", "longitude", "altitude_m"];
const HEADING: &str = "the heading `time_s,latitude,longitude,altitude_m`";

/// Maximum absolute time in seconds.
const MAX_TIME: f64 = 9e9;

/// A line: its number, its text and its fields.
pub(crate) type Line<'a> = (usize, &'a str, Vec<&'a str>);

/// Returns the heading of a file, which is `expected`, and the lines below it.
pub(crate) fn lines<'a>(
    text: &'a str,
    expected: &'static str,
) -> Result<(Line<'a>, impl Iterator<Item = Line<'a>>), ReadError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = lines.next() else { return Err(ReadError::Empty { expected }) };
    let separator = [',', ';', '\t'].into_iter().find(|sign| first.1.contains(*sign));
    let separator = separator.unwrap_or(',');
    let split = move |(number, line): (usize, &'a str)| -> Line<'a> {
        let fields = line.split(separator).map(|field| field.trim().trim_matches('"'));
        (number, line, fields.collect())
    };
    Ok((split(first), lines.map(split)))
}

pub(super) fn read(text: &str) -> Result<Points, ReadError> {
    let ((at, heading, names), lines) = lines(text, HEADING)?;
    let mut places = [0; 4];
    for (place, name) in places.iter_mut().zip(COLUMNS) {
        let found = names.iter().position(|heading| *heading == name);
        *place = found.ok_or_else(|| wrong(at, heading, HEADING))?;
    }
    let mut timed = Timed::default();
    let mut origin = None;
    for (line, row, fields) in lines {
        let field = |column: usize| {
            let expected = || format!("{} fields", names.len());
            fields.get(column).copied().ok_or_else(|| wrong(line, row, &expected()))
        };
        let [time, latitude, longitude, altitude] = places;
        let (time, latitude) = (field(time)?, field(latitude)?);
        let place = position(line, latitude, field(longitude)?, field(altitude)?)?;
        let seconds = number(time).filter(|time| time.abs() <= MAX_TIME);
        let seconds = seconds.ok_or_else(|| wrong(line, time, "a time in seconds"))?;
        // Subtract before scaling: nanoseconds since 1970 exceed the precision of an f64.
        let since = seconds - *origin.get_or_insert(seconds);
        let nanos = libm::round(since * 1e9) as i64;
        if timed.push(nanos, place) != Ok(true) {
            return Err(wrong(line, time, "a time later than on the line before"));
        }
    }
    if timed.points.is_empty() {
        return Err(ReadError::Empty { expected: "a line below the heading" });
    }
    Ok(Points::Timed(timed.points))
}
