//! Two-line element sets.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::elements::{ElementsError, MeanElements};
use crate::epoch::Epoch;

/// A line of an element set with its number in the text.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

/// Parses element sets, with the line at which each begins. Blank lines and lines that begin with `#` are
/// skipped; any other line that is neither line 1 nor line 2 of a set is the name of the next set.
pub(crate) fn read(text: &str) -> Result<Vec<(usize, MeanElements)>, ElementsError> {
    let mut found = Vec::new();
    let mut name = None;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    while let Some((number, text)) = lines.next() {
        if !text.starts_with("1 ") {
            if text.starts_with("2 ") || name.is_some() {
                return Err(ElementsError::at(number, text, "line 1 of a two-line element set"));
            }
            name = Some(text.strip_prefix("0 ").unwrap_or(text).trim());
            continue;
        }
        let first = Line { number, text };
        let (number, text) = lines.next().unwrap_or((number + 1, "the end"));
        let second = Line { number, text };
        first.check('1')?;
        second.check('2')?;
        found.push((first.number, elements(name.take(), first, second)?));
    }
    match name {
        Some(name) => {
            let line = text.lines().count();
            Err(ElementsError::at(line, name, "a two-line element set after the name"))
        }
        None => Ok(found),
    }
}

fn elements(name: Option<&str>, first: Line, second: Line) -> Result<MeanElements, ElementsError> {
    let catalogue = first.field(3, 7);
    if catalogue != second.field(3, 7) {
        let expected = format!("the catalogue number {catalogue} of line 1 in columns 3 to 7");
        return Err(ElementsError::at(second.number, second.field(3, 7), &expected));
    }
    let year = first.number(19, 20, "the year, two digits")?;
    // CelesTrak: 57 to 99 are 1957 to 1999.
    let year = if year < 57.0 { 2000.0 + year } else { 1900.0 + year };
    let day = first.number(21, 32, "a day of the year")?;
    let epoch = Epoch::from_day_of_year(year as i32, day)
        .ok_or_else(|| first.wrong(19, 32, "an epoch, for example 25029.54533459"))?;
    let eccentricity = format!("0.{}", second.field(27, 33));
    let eccentricity = eccentricity
        .parse()
        .map_err(|_| second.wrong(27, 33, "an eccentricity, seven digits after the point"))?;
    Ok(MeanElements {
        name: name.unwrap_or(catalogue).to_string(),
        epoch,
        mean_motion: second.number(53, 63, "a mean motion in revolutions per day")?,
        eccentricity,
        inclination: second.number(9, 16, "an inclination in degrees")?,
        right_ascension: second.number(18, 25, "a right ascension in degrees")?,
        argument_of_perigee: second.number(35, 42, "an argument of perigee in degrees")?,
        mean_anomaly: second.number(44, 51, "a mean anomaly in degrees")?,
        bstar: first.with_exponent(54, 61)?,
    })
}

impl<'a> Line<'a> {
    /// Checks the line number, ASCII, the length and the checksum.
    fn check(self, which: char) -> Result<(), ElementsError> {
        let wrong = |expected: &str| Err(ElementsError::at(self.number, self.text, expected));
        if !self.text.is_ascii() || !self.text.starts_with(which) || self.text.len() < 69 {
            return wrong(&format!("line {which} of a two-line element set, 69 ASCII characters"));
        }
        let sum: u32 = self.field(1, 68).chars().map(value).sum();
        let expected = sum % 10;
        if self.field(69, 69) != expected.to_string() {
            return wrong(&format!("the checksum {expected} in column 69"));
        }
        Ok(())
    }

    /// Returns the trimmed text of these columns, from one.
    fn field(self, from: usize, to: usize) -> &'a str {
        self.text.get(from - 1..to).unwrap_or_default().trim()
    }

    fn wrong(self, from: usize, to: usize, expected: &str) -> ElementsError {
        let expected = format!("{expected} in columns {from} to {to}");
        ElementsError::at(self.number, self.field(from, to), &expected)
    }

    fn number(self, from: usize, to: usize, expected: &str) -> Result<f64, ElementsError> {
        let number = self.field(from, to).parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite());
        number.ok_or_else(|| self.wrong(from, to, expected))
    }

    /// Parses a number such as `-31515-4`, which is −0.31515 · 10⁻⁴.
    fn with_exponent(self, from: usize, to: usize) -> Result<f64, ElementsError> {
        let field = self.field(from, to);
        let (sign, rest) = match field.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, field.strip_prefix('+').unwrap_or(field)),
        };
        let read = || {
            let at = rest.rfind(['+', '-'])?;
            let (digits, exponent) = (rest.get(..at)?.trim(), rest.get(at..)?);
            format!("0.{digits}e{exponent}").parse::<f64>().ok()
        };
        let number = if rest.is_empty() { Some(0.0) } else { read() };
        let expected = "a drag term, for example -31515-4";
        number.map(|number| sign * number).ok_or_else(|| self.wrong(from, to, expected))
    }
}

/// Returns the checksum value of a character.
const fn value(character: char) -> u32 {
    match character {
        '0'..='9' => character as u32 - '0' as u32,
        '-' => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    // Source: the ISS on 2020-07-12, CelesTrak.
    const ISS: [&str; 2] = [
        "1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992",
        "2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008",
    ];

    fn text(name: &str) -> String {
        format!("{name}\n{}\n{}\n", ISS[0], ISS[1])
    }

    #[test]
    fn sets_with_and_without_a_name_have_the_same_elements() {
        let (line, iss) = read(&text("0 ISS (ZARYA)")).unwrap().remove(0);
        assert_eq!((line, iss.name.as_str()), (2, "ISS (ZARYA)"));
        assert_eq!(iss.epoch.to_string(), "2020-07-12T21:16:01.000416Z");
        assert_eq!((iss.inclination, iss.right_ascension), (51.6461, 221.2784));
        assert_eq!((iss.eccentricity, iss.argument_of_perigee), (0.000_141_3, 89.1723));
        assert_eq!((iss.mean_anomaly, iss.mean_motion), (280.4612, 15.495_078_96));
        assert!((iss.bstar + 3.1515e-5).abs() < 1e-12);
        let (line, unnamed) = read(&text("\n# a comment")).unwrap().remove(0);
        assert_eq!((line, unnamed.name.as_str()), (3, "25544"));
        assert_eq!(unnamed.epoch, iss.epoch);
    }

    #[test]
    fn an_error_names_its_line_and_what_was_expected() {
        let damaged = text("ISS").replace("51.6461", "51.6462");
        let error = read(&damaged).unwrap_err().to_string();
        assert!(error.starts_with("line 3: found `2 25544  51.6462"), "{error}");
        assert!(error.ends_with("expected the checksum 9 in column 69"), "{error}");
        // A 6 turned into a minus and a 5 into a 0 keeps the checksum of 10 less.
        let damaged = text("ISS").replace("89.1723", "8x.1722");
        assert!(read(&damaged).is_err());
        let error = read(&text("ISS\nISS again")).unwrap_err().to_string();
        let expected = "line 2: found `ISS again`, expected line 1 of a two-line element set";
        assert_eq!(error, expected);
        let error = read(&format!("{}\n", ISS[0])).unwrap_err().to_string();
        assert!(error.starts_with("line 2: found `the end`, expected line 2"), "{error}");
    }
}
