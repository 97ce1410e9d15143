//! Trace files: parsers of their formats, and the data in memory.
//!
//! This module opens no files. A configuration names its files in [`TraceSource`]s; the caller reads each file
//! and passes its text to [`TraceSource::load`].

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_units::{Decibels, Duration, Instant, Promised};

pub mod csv;
pub mod hypatia;
pub mod mahimahi;
pub mod ping;
pub mod replay;
mod series;
mod spelling;

pub use mahimahi::Opportunities;
pub use replay::{Course, Replay, Sampling, Start};
pub use series::Series;
pub(crate) use series::SeriesCursor;

/// Error in a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// No samples.
    #[error("the trace holds no samples; expected {expected}")]
    Empty {
        /// Expected form of a line.
        expected: &'static str,
    },
    /// Invalid line.
    #[error("line {line}: found `{found}`, expected {expected}")]
    Line {
        /// Number of the line, from one.
        line: usize,
        /// Text that was found.
        found: String,
        /// Text that was expected.
        expected: String,
    },
    /// Invalid sample of a series built in memory.
    #[error("sample {sample}: found {found}, expected {expected}")]
    Sample {
        /// Number of the sample, from one.
        sample: usize,
        /// Value that was found.
        found: String,
        /// Value that was expected.
        expected: &'static str,
    },
    /// Invalid key: a missing or unknown unit, or a format without the requested quantity.
    #[error("`{key}`: found `{found}`, expected {expected}")]
    Option {
        /// Key next to `trace`.
        key: &'static str,
        /// Value that was found.
        found: String,
        /// Value that was expected.
        expected: String,
    },
}

/// Quantity of a series, which determines its units and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Data rate in bit/s.
    Rate,
    /// One-way delay in ns.
    Delay,
    /// Loss probability as a ratio.
    Loss,
    /// Attenuation in dB.
    Attenuation,
}

impl Quantity {
    /// Returns the size of `unit`, in any usual spelling, in the base unit of this quantity.
    ///
    /// # Errors
    /// The unit is missing, or is not a unit of this quantity.
    pub fn scale(self, unit: Option<&str>) -> Result<f64, TraceError> {
        let (size, units): (fn(&str) -> Option<f64>, _) = match self {
            Self::Rate => (spelling::rate, "bit/s, kbit/s, Mbit/s, Gbit/s, kB/s, MB/s"),
            Self::Delay => return time_scale("unit", unit),
            Self::Loss => (spelling::loss, "%, ppm, ratio"),
            Self::Attenuation => (decibels, "dB"),
        };
        unit.and_then(size).ok_or_else(|| unknown_unit("unit", unit, units))
    }

    /// Whether `value`, in the base unit, is in range.
    fn allows(self, value: f64) -> bool {
        let max = match self {
            Self::Rate => 1e15,
            Self::Delay => 9e15,
            Self::Loss => 1.0,
            Self::Attenuation => 1e3,
        };
        (0.0..=max).contains(&value)
    }

    const fn range(self) -> &'static str {
        match self {
            Self::Rate => "a rate from 0 to 1000 Tbit/s",
            Self::Delay => "a delay from 0 to 100 days",
            Self::Loss => "a probability from 0 to 1 (0 to 100 %)",
            Self::Attenuation => "an attenuation from 0 dB to 1000 dB",
        }
    }
}

/// Returns the size of a unit of time, in any usual spelling, in ns.
fn time_scale(key: &'static str, unit: Option<&str>) -> Result<f64, TraceError> {
    unit.and_then(spelling::time).ok_or_else(|| unknown_unit(key, unit, "ns, us, ms, s, min, h"))
}

fn decibels(unit: &str) -> Option<f64> {
    Decibels::UNITS.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size)
}

fn unknown_unit(key: &'static str, found: Option<&str>, units: &str) -> TraceError {
    TraceError::Option {
        key,
        found: found.unwrap_or("nothing").to_string(),
        expected: format!("one of {units}"),
    }
}

/// Format of a trace file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    /// Columns separated by comma, semicolon, tab or spaces.
    #[default]
    Csv,
    /// `flow_id,time_ns,rtt_ns` or `time_ns,rtt_ns`; the one-way delay is half the round-trip time.
    Hypatia,
    /// Output of Linux `ping`; the one-way delay is half the round-trip time.
    Ping,
}

/// A trace file in a configuration, with its format and sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFile {
    /// Path of the file, relative to the configuration.
    pub trace: String,
    /// Format. Default: CSV.
    pub format: Option<TraceFormat>,
    /// Column of the values: its heading, or its number from one. Default: the second column; the first if `every` is
    /// set.
    pub column: Option<String>,
    /// Unit of the values.
    pub unit: Option<String>,
    /// Column of the times: its heading, or its number from one. Default: the first column.
    pub time: Option<String>,
    /// Unit of the times. Default: seconds.
    pub time_unit: Option<String>,
    /// Time between lines, for a file without times; for `ping`, between probes.
    pub every: Option<Duration>,
    /// Whether the trace starts over at its end. A scenario rejects a trace that is shorter than the run, unless
    /// `repeat = true`.
    pub repeat: Option<bool>,
    /// Sampling by runs.
    pub sampling: Box<Sampling>,
}

impl TraceFile {
    /// Whether both read the same data from the same file, regardless of sampling.
    pub fn reads_as(&self, other: &Self) -> bool {
        let plain = |file: &Self| Self { sampling: Box::default(), ..file.clone() };
        plain(self) == plain(other)
    }

    /// Name of the clock of the measurement: that of `together`, else the normalised path of the file.
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

/// A trace in a configuration: the file and, once loaded, its data.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSource {
    /// File, with its format and sampling.
    pub file: TraceFile,
    kind: TraceKind,
    /// Length to which the data is limited, if it is.
    length: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
enum TraceKind {
    Series(Quantity, Option<Arc<Series>>),
    Opportunities(Option<Arc<Opportunities>>),
}

impl TraceSource {
    /// Creates a series of `quantity` in `file`, not yet loaded.
    pub const fn series(file: TraceFile, quantity: Quantity) -> Self {
        Self { file, kind: TraceKind::Series(quantity, None), length: None }
    }

    /// Creates delivery opportunities in the file at `path`, not yet loaded.
    pub fn opportunities(path: String, sampling: Sampling) -> Self {
        let sampling = Box::new(sampling);
        let file = TraceFile { trace: path, sampling, ..TraceFile::default() };
        Self { file, kind: TraceKind::Opportunities(None), length: None }
    }

    /// Whether the data is loaded.
    pub const fn is_loaded(&self) -> bool {
        matches!(self.kind, TraceKind::Series(_, Some(_)) | TraceKind::Opportunities(Some(_)))
    }

    /// Whether the file contains delivery opportunities (mahimahi).
    pub const fn holds_opportunities(&self) -> bool {
        matches!(self.kind, TraceKind::Opportunities(_))
    }

    /// Parses the file's text.
    ///
    /// # Errors
    /// The text does not follow the format; see [`TraceError`].
    pub fn load(&mut self, text: &str) -> Result<(), TraceError> {
        match &mut self.kind {
            TraceKind::Series(quantity, data) => {
                *data = Some(Arc::new(read(text, &self.file, *quantity)?));
            }
            TraceKind::Opportunities(data) => *data = Some(Arc::new(mahimahi::read(text)?)),
        }
        Ok(())
    }

    /// Shares the data of `other` if it is the same file, read in the same way. Returns whether it does.
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

    /// Length of the measurement, once loaded.
    pub fn length(&self) -> Option<Duration> {
        let whole = match &self.kind {
            TraceKind::Series(_, data) => data.as_ref().map(|series| series.end() - Instant::ZERO),
            TraceKind::Opportunities(data) => {
                let period = |data: &Arc<Opportunities>| Duration::from_millis(data.period_ms());
                data.as_ref().map(period)
            }
        };
        self.length.or(whole)
    }

    /// Limits the measurement to `length`, so that measurements on one clock start over together.
    pub const fn set_length(&mut self, length: Duration) {
        self.length = Some(length);
    }

    /// Returns the measurement in steps of `step` from `start` on, wrapped around its end, as values that
    /// increase as the link gets worse: delays in ns, losses, and negated capacities. Empty if the trace is not
    /// loaded or `step` is not positive.
    pub fn badness(&self, start: Duration, step: Duration) -> impl Iterator<Item = f64> + '_ {
        let period = self.length().map_or(0, Duration::as_nanos).max(1);
        let step = step.as_nanos().max(0);
        let is_empty = !self.is_loaded() || step == 0;
        let ends = (1_i64..)
            .map(move |number| start.as_nanos().saturating_add(number.saturating_mul(step)));
        ends.take_while(move |_| !is_empty).map(move |end| match &self.kind {
            TraceKind::Series(quantity, Some(series)) => {
                let sign = if *quantity == Quantity::Rate { -1.0 } else { 1.0 };
                let last = Instant::from_nanos((end - 1).rem_euclid(period));
                let begun = series.times().partition_point(|time| *time <= last);
                let value = series.values().get(begun.saturating_sub(1));
                value.promised("a value per time").map_or(0.0, |value| sign * value)
            }
            TraceKind::Opportunities(Some(opportunities)) => {
                let each = opportunities.times_ms().len() as i64;
                let before = |ns: i64| {
                    let ms = ns.rem_euclid(period) / Duration::from_millis(1).as_nanos();
                    let begun = opportunities.times_ms().partition_point(|time| *time < ms) as i64;
                    each * ns.div_euclid(period) + begun
                };
                (before(end - step) - before(end)) as f64
            }
            TraceKind::Series(_, None) | TraceKind::Opportunities(None) => 0.0,
        })
    }

    /// Replay of the series, once loaded.
    pub fn loaded_series(&self) -> Option<Replay<Series>> {
        match &self.kind {
            TraceKind::Series(_, data) => self.replay(data.clone()?),
            TraceKind::Opportunities(_) => None,
        }
    }

    /// Replay of the delivery opportunities, once loaded.
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

/// Parses `text` as a series of `quantity` in the format of `file`.
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
        (TraceFormat::Ping, Quantity::Attenuation) => {
            Err(unfit("csv; a ping log holds no attenuations"))
        }
    }
}

/// Defines the serde form of a value that may come from a trace: a struct of optional keys, the given ones and those
/// of a trace.
macro_rules! trace_table {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Default, serde::Deserialize, serde::Serialize)]
        #[serde(default, deny_unknown_fields)]
        struct $name {
            $($field: Option<$type>,)*
            trace: Option<alloc::string::String>,
            format: Option<crate::trace::TraceFormat>,
            column: Option<alloc::string::String>,
            unit: Option<alloc::string::String>,
            time: Option<alloc::string::String>,
            time_unit: Option<alloc::string::String>,
            every: Option<skybraid_units::Duration>,
            repeat: Option<bool>,
            start: Option<crate::trace::Start>,
            together: Option<alloc::string::String>,
            resample: Option<skybraid_units::Duration>,
        }

        impl $name {
            /// Sampling by runs.
            fn sampling(&self) -> crate::trace::Sampling {
                crate::trace::Sampling {
                    start: self.start,
                    together: self.together.clone(),
                    resample: self.resample,
                }
            }

            /// Returns the file of the table, if there is one. Keys of a trace without `trace` are an error.
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

/// Keys of a process in a table that has a field for each.
macro_rules! process_keys {
    ($name:ident) => {
        impl $name {
            /// Returns the keys of a process; without a `process` they are an error.
            fn process_keys(
                &self,
                given: bool,
            ) -> Result<crate::process::ProcessKeys, alloc::string::String> {
                let keys = crate::process::ProcessKeys {
                    slow: self.slow,
                    fast: self.fast,
                    slow_share: self.slow_share,
                    step: self.step,
                    scale: self.scale,
                    both_ways: self.both_ways,
                };
                if !given && keys != crate::process::ProcessKeys::default() {
                    return Err("`slow`, `fast`, `slow_share`, `step`, `scale` and `both_ways` \
                                belong to `process`"
                        .into());
                }
                Ok(keys)
            }

            fn of_process(keys: crate::process::ProcessKeys) -> Self {
                Self {
                    slow: keys.slow,
                    fast: keys.fast,
                    slow_share: keys.slow_share,
                    step: keys.step,
                    scale: keys.scale,
                    both_ways: keys.both_ways,
                    ..Self::default()
                }
            }
        }
    };
}

pub(crate) use process_keys;
