//! Columns of numbers separated by comma, semicolon, tab or spaces, with or without headings.
//!
//! Blank lines and lines that begin with `#` are skipped. A field may be in double quotes, which protect separators.
//! Times are relative to the first. Each value holds until the next time. A delay of `inf` is a gap.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use crate::trace::{Quantity, Series, TraceError, TraceFile, time_scale};

/// Parses one column as a series of `quantity`.
///
/// # Errors
/// There are no samples, a column or unit is unknown, a heading is repeated, a quote is not closed, a field is not a
/// number, a value is out of range or NaN, or times do not increase.
pub fn read(text: &str, file: &TraceFile, quantity: Quantity) -> Result<Series, TraceError> {
    let scale = quantity.scale(file.unit.as_deref())?;
    let time_scale = time_scale("time_unit", file.time_unit.as_deref().or(Some("s")))?;
    let mut columns: Option<Columns> = None;
    let mut samples: Vec<(Instant, f64)> = Vec::new();
    let mut origin = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let row = Row::split(index + 1, line)?;
        let columns = match &columns {
            Some(columns) => columns,
            None => {
                let (found, is_heading) = Columns::find(&row.fields, file)?;
                let columns = columns.insert(found);
                if is_heading {
                    if let Some(twice) = repeated(&row.fields) {
                        return Err(row.wrong(twice, "each column once"));
                    }
                    continue;
                }
                columns
            }
        };
        let value = row.value(columns.value, quantity, scale)?;
        // A comma within a number would shift all cells after it.
        if row.fields.iter().skip(columns.count).any(|field| !field.is_empty()) {
            let expected = format!("{} cells, as on the first line", columns.count);
            return Err(row.wrong(line, &expected));
        }
        let at = match (columns.time, file.every) {
            (Some(column), None) => {
                let time = row.number(column, false)?;
                // Subtract before scaling: nanoseconds since 1970 exceed the precision of an f64.
                let since = time - *origin.get_or_insert(time);
                Instant::from_nanos(libm::round(since * time_scale) as i64)
            }
            (_, every) => {
                Instant::ZERO + every.unwrap_or(Duration::from_secs(1)) * samples.len() as i64
            }
        };
        if samples.last().is_some_and(|(previous, _)| at <= *previous) {
            return Err(row.wrong(line, "a time later than on the line before"));
        }
        samples.push((at, value));
    }
    if samples.is_empty() {
        return Err(TraceError::Empty { expected: "lines such as `0.1,25.4`" });
    }
    Series::from_samples(&samples, file.repeat.unwrap_or(true))
}

/// A line split into fields.
struct Row<'a> {
    /// Number of the line, from 1.
    number: usize,
    line: &'a str,
    fields: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn split(number: usize, line: &'a str) -> Result<Self, TraceError> {
        let row = Self { number, line, fields: Vec::new() };
        let fields = split(line).ok_or_else(|| row.wrong(line, "a closing quote `\"`"))?;
        Ok(Self { fields, ..row })
    }

    fn wrong(&self, found: &str, expected: &str) -> TraceError {
        TraceError::Line {
            line: self.number,
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }

    fn no_number(&self, found: &str, column: usize) -> TraceError {
        self.wrong(found, &format!("a number in column {}", column + 1))
    }

    fn field(&self, column: usize) -> Result<&'a str, TraceError> {
        let field = self.fields.get(column).copied();
        field.ok_or_else(|| self.no_number(self.line, column))
    }

    fn number(&self, column: usize, may_be_gap: bool) -> Result<f64, TraceError> {
        let field = self.field(column)?;
        let value = field
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_finite() || (may_be_gap && *value == f64::INFINITY));
        value.ok_or_else(|| self.no_number(field, column))
    }

    /// Returns the number in `column`, scaled and in the range of `quantity`.
    fn value(&self, column: usize, quantity: Quantity, scale: f64) -> Result<f64, TraceError> {
        let value = self.number(column, quantity == Quantity::Delay)?;
        let field = self.field(column)?;
        // A number too large for an f64 is no gap.
        let is_gap = value == f64::INFINITY && !field.contains(|c: char| c.is_ascii_digit());
        let value = value * scale;
        if is_gap || quantity.allows(value) {
            Ok(value)
        } else {
            Err(self.wrong(field, quantity.range()))
        }
    }
}

struct Columns {
    time: Option<usize>,
    value: usize,
    count: usize,
}

impl Columns {
    /// Finds the columns in the first line. Also returns whether that line is a heading.
    fn find(fields: &[&str], file: &TraceFile) -> Result<(Self, bool), TraceError> {
        let is_heading = fields.iter().any(|field| field.parse::<f64>().is_err());
        let place = |key: &'static str, name: &str| {
            let named = fields.iter().position(|field| is_heading && *field == name);
            let numbered = || {
                let number = name.parse::<usize>().ok()?;
                (1..=fields.len()).contains(&number).then(|| number - 1)
            };
            named.or_else(numbered).ok_or_else(|| TraceError::Option {
                key,
                found: name.to_string(),
                expected: if is_heading {
                    format!("a column of {}", fields.join(", "))
                } else {
                    format!("a column from 1 to {}", fields.len())
                },
            })
        };
        let time = match (&file.time, file.every) {
            (Some(name), None) => Some(place("time", name)?),
            (None, None) if fields.len() > 1 => Some(0),
            (None, None) => {
                return Err(TraceError::Option {
                    key: "every",
                    found: "nothing".to_string(),
                    expected: "the spacing of the lines, since there is no column of times".into(),
                });
            }
            (_, Some(every)) if every.is_positive() => None,
            (_, Some(every)) => {
                return Err(TraceError::Option {
                    key: "every",
                    found: every.to_string(),
                    expected: "a time above zero".into(),
                });
            }
        };
        let value = match &file.column {
            Some(name) => place("column", name)?,
            None => usize::from(time == Some(0)),
        };
        Ok((Self { time, value, count: fields.len() }, is_heading))
    }
}

/// Splits a line into fields; `None` if a quote is not closed. The separator is the first of comma, semicolon and tab
/// that occurs outside quotes, else spaces.
fn split(line: &str) -> Option<Vec<&str>> {
    if line.matches('"').count() % 2 == 1 {
        return None;
    }
    let separator = [',', ';', '\t']
        .into_iter()
        .find(|separator| pieces(line, |found| found == *separator).count() > 1);
    Some(match separator {
        Some(separator) => pieces(line, |found| found == separator).map(clean).collect(),
        None => {
            pieces(line, char::is_whitespace).map(clean).filter(|field| !field.is_empty()).collect()
        }
    })
}

/// Splits a line at separators outside quotes.
fn pieces(line: &str, is_separator: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    line.split(move |found: char| {
        quoted ^= found == '"';
        !quoted && is_separator(found)
    })
}

fn clean(field: &str) -> &str {
    field.trim().trim_matches('"')
}

/// Returns the first repeated heading; empty headings do not count.
fn repeated<'a>(headings: &[&'a str]) -> Option<&'a str> {
    let named = headings.iter().enumerate().filter(|(_, name)| !name.is_empty());
    let is_repeated = |(place, name): &(usize, &&str)| {
        headings.iter().take(*place).any(|earlier| earlier == *name)
    };
    named.filter(is_repeated).map(|(_, name)| *name).next()
}

/// Returns a [`TraceFile`] that reads `column` in `unit` from a text without a file.
pub fn column(column: Option<&str>, unit: Option<&str>) -> TraceFile {
    TraceFile {
        trace: String::new(),
        column: column.map(ToString::to_string),
        unit: unit.map(ToString::to_string),
        ..TraceFile::default()
    }
}
