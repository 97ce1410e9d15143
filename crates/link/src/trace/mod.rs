//! Measured series: what they look like in memory, and pure readers of the formats they come in.
//!
//! Nothing here opens a file. A configuration names its files in [`TraceSource`]s; whoever may do
//! input hands the text to [`TraceSource::load`].

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Rate};

pub mod csv;
pub mod hypatia;
pub mod mahimahi;
pub mod ping;
pub mod replay;
mod series;

pub use mahimahi::Opportunities;
pub use replay::{Course, Replay, Sampling, Start};
pub use series::Series;
pub(crate) use series::SeriesCursor;

/// Why a text is not a trace. A line counts from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Nothing to replay.
    #[error("the trace holds no samples; expected {expected}")]
    Empty {
        /// What a line should look like.
        expected: &'static str,
    },
    /// A line does not fit.
    #[error("line {line}: found `{found}`, expected {expected}")]
    Line {
        /// The line, from one.
        line: usize,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: String,
    },
    /// A sample of a series that was built in memory does not fit.
    #[error("sample {sample}: found {found}, expected {expected}")]
    Sample {
        /// The sample, from one.
        sample: usize,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// The request itself is at fault: a missing or unknown unit, a format that has no such quantity.
    #[error("`{key}`: found `{found}`, expected {expected}")]
    Option {
        /// The key beside `trace`.
        key: &'static str,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
}

/// What the values of a series mean; decides their units and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A data rate, held in bit/s.
    Rate,
    /// A one-way delay, held in ns.
    Delay,
    /// A loss probability, held as a ratio.
    Loss,
}

impl Quantity {
    /// Accepted units and their size in the base unit.
    const fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Rate => Rate::UNITS,
            Self::Delay => Duration::UNITS,
            Self::Loss => &[("%", 1e-2), ("ppm", 1e-6), ("ratio", 1.0)],
        }
    }

    /// The size of `unit` in the base unit of this quantity.
    ///
    /// # Errors
    /// The unit is missing or not one of this quantity's.
    pub fn scale(self, unit: Option<&str>) -> Result<f64, TraceError> {
        scale_of("unit", self.units(), unit)
    }

    /// Whether `value`, in the base unit, makes sense.
    fn allows(self, value: f64) -> bool {
        let most = match self {
            Self::Rate => 1e15,
            Self::Delay => 9e15,
            Self::Loss => 1.0,
        };
        (0.0..=most).contains(&value)
    }

    const fn range(self) -> &'static str {
        match self {
            Self::Rate => "a rate from 0 to 1000 Tbit/s",
            Self::Delay => "a delay from 0 to 100 days",
            Self::Loss => "a probability from 0 to 1 (0 to 100 %)",
        }
    }
}

fn scale_of(
    key: &'static str,
    units: &[(&'static str, f64)],
    unit: Option<&str>,
) -> Result<f64, TraceError> {
    let found = unit.and_then(|unit| units.iter().find(|(name, _)| *name == unit));
    found.map(|(_, size)| *size).ok_or_else(|| {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        TraceError::Option {
            key,
            found: unit.unwrap_or("nothing").to_string(),
            expected: format!("one of {}", names.join(", ")),
        }
    })
}

/// The format of a trace file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    /// Columns separated by comma, semicolon, tab or spaces.
    #[default]
    Csv,
    /// `flow_id,time_ns,rtt_ns` or `time_ns,rtt_ns`; the one-way delay is half the round trip.
    Hypatia,
    /// Output of Linux `ping`; the one-way delay is half the round trip.
    Ping,
}

/// A file that a configuration names, and how to read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFile {
    /// Path of the file, relative to the configuration.
    pub trace: String,
    /// Format; CSV unless said.
    pub format: Option<TraceFormat>,
    /// Column of the values: its heading or its number from one. The second unless said (the first
    /// where `every` is given).
    pub column: Option<String>,
    /// Unit of the values.
    pub unit: Option<String>,
    /// Column of the times: its heading or its number from one. The first unless said.
    pub time: Option<String>,
    /// Unit of the times; seconds unless said.
    pub time_unit: Option<String>,
    /// Spacing of the lines, for a file without times (for `ping`: between probes).
    pub every: Option<Duration>,
    /// Whether the trace starts over at its end. A scenario refuses a trace that is shorter than the run
    /// and does not say `repeat = true`.
    pub repeat: Option<bool>,
    /// How runs sample it.
    pub sampling: Box<Sampling>,
}

impl TraceFile {
    /// Whether both read the same data from the same file, however runs sample it.
    pub fn reads_as(&self, other: &Self) -> bool {
        let plain = |file: &Self| Self { sampling: Box::default(), ..file.clone() };
        plain(self) == plain(other)
    }

    /// The name of the clock on which the file was measured: the shared one, else the file's, without
    /// what does not change where it is.
    pub fn clock(&self) -> String {
        if let Some(shared) = &self.sampling.together {
            return shared.clone();
        }
        let mut parts: Vec<&str> = Vec::new();
        for part in self.trace.split('/').filter(|part| *part != ".") {
            match (part, parts.last()) {
                ("..", Some(above)) if !matches!(*above, ".." | "") => drop(parts.pop()),
                _ => parts.push(part),
            }
        }
        parts.join("/")
    }
}

/// A measured input of a configuration: the file it names and, once somebody has read it, the data.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSource {
    /// The file and how to read it.
    pub file: TraceFile,
    kind: TraceKind,
    /// How much of the data counts, if not all.
    length: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
enum TraceKind {
    Series(Quantity, Option<Arc<Series>>),
    Opportunities(Option<Arc<Opportunities>>),
}

impl TraceSource {
    /// A series of `quantity` that is still to be read from `file`.
    pub const fn series(file: TraceFile, quantity: Quantity) -> Self {
        Self { file, kind: TraceKind::Series(quantity, None), length: None }
    }

    /// Delivery opportunities that are still to be read from the file at `path`.
    pub fn opportunities(path: String, sampling: Sampling) -> Self {
        let sampling = Box::new(sampling);
        let file = TraceFile { trace: path, sampling, ..TraceFile::default() };
        Self { file, kind: TraceKind::Opportunities(None), length: None }
    }

    /// Whether the data is there.
    pub const fn is_loaded(&self) -> bool {
        matches!(self.kind, TraceKind::Series(_, Some(_)) | TraceKind::Opportunities(Some(_)))
    }

    /// Whether the file holds delivery opportunities (mahimahi).
    pub const fn holds_opportunities(&self) -> bool {
        matches!(self.kind, TraceKind::Opportunities(_))
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// The text does not follow the format; says line, found and expected.
    pub fn load(&mut self, text: &str) -> Result<(), TraceError> {
        match &mut self.kind {
            TraceKind::Series(quantity, data) => {
                *data = Some(Arc::new(read(text, &self.file, *quantity)?));
            }
            TraceKind::Opportunities(data) => *data = Some(Arc::new(mahimahi::read(text)?)),
        }
        Ok(())
    }

    /// Shares the data of `other` if it is what this file would give.
    pub fn share(&mut self, other: &Self) -> bool {
        let same = match (&self.kind, &other.kind) {
            (TraceKind::Series(one, _), TraceKind::Series(other, _)) => one == other,
            (TraceKind::Opportunities(_), TraceKind::Opportunities(_)) => true,
            _ => false,
        };
        let same = same && self.file.reads_as(&other.file);
        if same {
            self.kind = other.kind.clone();
        }
        same
    }

    /// How long the measurement is, once read.
    pub fn length(&self) -> Option<Duration> {
        let whole = match &self.kind {
            TraceKind::Series(_, data) => data.as_ref().map(|it| it.end() - Instant::ZERO),
            TraceKind::Opportunities(data) => {
                data.as_ref().map(|it| Duration::from_millis(it.period_ms()))
            }
        };
        self.length.or(whole)
    }

    /// Lets no more than `length` of the measurement count, as measurements on one clock need it to
    /// start over together.
    pub const fn set_length(&mut self, length: Duration) {
        self.length = Some(length);
    }

    /// The series, once read, as runs replay it.
    pub fn loaded_series(&self) -> Option<Replay<Series>> {
        match &self.kind {
            TraceKind::Series(_, data) => self.replay(data.clone()?),
            TraceKind::Opportunities(_) => None,
        }
    }

    /// The delivery opportunities, once read, as runs replay them.
    pub fn loaded_opportunities(&self) -> Option<Replay<Opportunities>> {
        match &self.kind {
            TraceKind::Opportunities(data) => self.replay(data.clone()?),
            TraceKind::Series(..) => None,
        }
    }

    fn replay<T>(&self, data: Arc<T>) -> Option<Replay<T>> {
        let course = self.file.sampling.course(&self.file.clock());
        Some(Replay { data, length: self.length()?, course })
    }
}

/// Reads `text` as a series of `quantity` in the format that `file` names.
///
/// # Errors
/// The text does not follow the format, or the format has no such quantity.
pub fn read(text: &str, file: &TraceFile, quantity: Quantity) -> Result<Series, TraceError> {
    let repeat = file.repeat.unwrap_or(true);
    let unfit = |expected: &str| TraceError::Option {
        key: "format",
        found: format!("{:?}", file.format.unwrap_or_default()).to_lowercase(),
        expected: expected.to_string(),
    };
    match (file.format.unwrap_or_default(), quantity) {
        (TraceFormat::Csv, _) => csv::read(text, file, quantity),
        (TraceFormat::Hypatia, Quantity::Delay) => hypatia::read_one_way(text, repeat),
        (TraceFormat::Ping, Quantity::Delay) => {
            ping::read(text, file.every, repeat)?.one_way_delay()
        }
        (TraceFormat::Ping, Quantity::Loss) => Ok(ping::read(text, file.every, repeat)?.loss),
        (TraceFormat::Hypatia, _) => Err(unfit("csv; a Hypatia file holds delays only")),
        (TraceFormat::Ping, Quantity::Rate) => Err(unfit("csv; a ping log holds no rates")),
    }
}

/// Defines the serde form of a value that may come from a trace: a struct of optional keys, which
/// has the keys beside `trace` besides its own.
macro_rules! trace_table {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Default, serde::Deserialize, serde::Serialize)]
        #[serde(default, deny_unknown_fields)]
        struct $name {
            $(#[serde(skip_serializing_if = "Option::is_none")] $field: Option<$type>,)*
            #[serde(skip_serializing_if = "Option::is_none")]
            trace: Option<alloc::string::String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            format: Option<crate::trace::TraceFormat>,
            #[serde(skip_serializing_if = "Option::is_none")]
            column: Option<alloc::string::String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            unit: Option<alloc::string::String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            time: Option<alloc::string::String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            time_unit: Option<alloc::string::String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            every: Option<skybraid_units::Duration>,
            #[serde(skip_serializing_if = "Option::is_none")]
            repeat: Option<bool>,
            #[serde(skip_serializing_if = "Option::is_none")]
            start: Option<crate::trace::Start>,
            #[serde(skip_serializing_if = "Option::is_none")]
            together: Option<alloc::string::String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            resample: Option<skybraid_units::Duration>,
        }

        impl $name {
            /// How runs sample the file.
            fn sampling(&self) -> crate::trace::Sampling {
                crate::trace::Sampling {
                    start: self.start,
                    together: self.together.clone(),
                    resample: self.resample,
                }
            }

            /// The file that the table names, if any; refuses its options without it.
            fn trace_file(&self) -> Result<Option<crate::trace::TraceFile>, alloc::string::String> {
                let file = crate::trace::TraceFile {
                    trace: self.trace.clone().unwrap_or_default(),
                    format: self.format,
                    column: self.column.clone(),
                    unit: self.unit.clone(),
                    time: self.time.clone(),
                    time_unit: self.time_unit.clone(),
                    every: self.every,
                    repeat: self.repeat,
                    sampling: alloc::boxed::Box::new(self.sampling()),
                };
                if self.trace.is_some() {
                    return Ok(Some(file));
                }
                if file != crate::trace::TraceFile::default() {
                    return Err("`format`, `column`, `unit`, `time`, `time_unit`, `every`, \
                                `repeat`, `start`, `together` and `resample` belong to `trace`"
                        .into());
                }
                Ok(None)
            }

            fn of_trace(file: &crate::trace::TraceFile) -> Self {
                let file = file.clone();
                Self {
                    start: file.sampling.start,
                    together: file.sampling.together,
                    resample: file.sampling.resample,
                    trace: Some(file.trace),
                    format: file.format,
                    column: file.column,
                    unit: file.unit,
                    time: file.time,
                    time_unit: file.time_unit,
                    every: file.every,
                    repeat: file.repeat,
                    ..Self::default()
                }
            }
        }
    };
}
pub(crate) use trace_table;
