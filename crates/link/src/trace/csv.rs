//! Columns of numbers: separated by comma, semicolon, tab or spaces, with or without headings.
//!
//! Blank lines and lines that begin with `#` are skipped. Times need not begin at zero: the first
//! becomes zero. Each value holds until the next time.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use crate::trace::{Quantity, Series, TraceError, TraceFile, scale_of};

/// Reads one column as a series of `quantity`.
///
/// # Errors
/// No samples, an unknown column or unit, a field that is not a number, a value out of range (also
/// NaN), or times that do not increase.
pub fn read(text: &str, file: &TraceFile, quantity: Quantity) -> Result<Series, TraceError> {
    let scale = quantity.scale(file.unit.as_deref())?;
    let time_scale =
        scale_of("time_unit", Duration::UNITS, file.time_unit.as_deref().or(Some("s")))?;
    let mut columns: Option<Columns> = None;
    let mut samples: Vec<(Instant, f64)> = Vec::new();
    let mut origin = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields = split(line);
        let columns = match &columns {
            Some(columns) => columns,
            None => {
                let (found, is_heading) = Columns::find(&fields, file)?;
                let columns = columns.insert(found);
                if is_heading {
                    continue;
                }
                columns
            }
        };
        let wrong = |found: &str, expected: &str| TraceError::Line {
            line: index + 1,
            found: found.to_string(),
            expected: expected.to_string(),
        };
        let number = |column: usize| -> Result<f64, TraceError> {
            let expected = || format!("a number in column {}", column + 1);
            let field = fields.get(column).ok_or_else(|| wrong(line, &expected()))?;
            let value = field.parse::<f64>().ok().filter(|value| value.is_finite());
            value.ok_or_else(|| wrong(field, &expected()))
        };
        let value = number(columns.value)? * scale;
        if !quantity.allows(value) {
            let field = fields.get(columns.value).copied().unwrap_or_default();
            return Err(wrong(field, quantity.range()));
        }
        let at = match (columns.time, file.every) {
            (Some(column), None) => {
                let time = number(column)?;
                // The difference is taken first, since nanoseconds since 1970 exceed an f64.
                let since = time - *origin.get_or_insert(time);
                Instant::from_nanos(libm::round(since * time_scale) as i64)
            }
            (_, every) => {
                Instant::ZERO + every.unwrap_or(Duration::from_secs(1)) * samples.len() as i64
            }
        };
        if samples.last().is_some_and(|(previous, _)| at <= *previous) {
            return Err(wrong(line, "a time later than on the line before"));
        }
        samples.push((at, value));
    }
    if samples.is_empty() {
        return Err(TraceError::Empty { expected: "lines such as `0.1,25.4`" });
    }
    Series::from_samples(&samples, file.repeat.unwrap_or(true))
}

struct Columns {
    time: Option<usize>,
    value: usize,
}

impl Columns {
    /// Finds the columns from the first line, and whether that line is a heading.
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
        Ok((Self { time, value }, is_heading))
    }
}

/// The fields of a line. The separator is the first of comma, semicolon and tab that occurs, else
/// spaces.
fn split(line: &str) -> Vec<&str> {
    match [',', ';', '\t'].into_iter().find(|separator| line.contains(*separator)) {
        Some(separator) => line.split(separator).map(clean).collect(),
        None => line.split_whitespace().map(clean).collect(),
    }
}

fn clean(field: &str) -> &str {
    field.trim().trim_matches('"')
}

/// A [`TraceFile`] that reads `column` in `unit`, for a text that has no name.
pub fn column(column: Option<&str>, unit: Option<&str>) -> TraceFile {
    TraceFile {
        trace: String::new(),
        column: column.map(ToString::to_string),
        unit: unit.map(ToString::to_string),
        ..TraceFile::default()
    }
}
