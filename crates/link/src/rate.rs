//! Serialisation rate of a link: constant, in steps, a random process, from a trace, or as mahimahi delivery
//! opportunities.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Duration, Instant, Rate, Seed};

use crate::along::Factor;
use crate::process::{Process, ProcessCursor, ProcessKeys};
use crate::trace::mahimahi::OpportunityCursor;
use crate::trace::{
    Opportunities, Quantity, Replay, Series, SeriesCursor, TraceSource, process_keys, trace_table,
};
use skybraid_units::form::{only_one, text_or_table};

/// Default correlation times and step of a process.
const PROCESS_SLOW: Duration = Duration::from_secs(30);
const PROCESS_FAST: Duration = Duration::from_secs(2);
const PROCESS_STEP: Duration = Duration::from_secs(1);

/// Rate in a configuration.
///
/// In TOML: `"40Mbit/s"`, `{ steps = [["0s", "10Mbit/s"], ["5s", "2Mbit/s"]] }`,
/// `{ process = [[0, "0Mbit/s"], [0.5, "20Mbit/s"], [1, "40Mbit/s"]], slow = "30s", fast = "2s" }`,
/// `{ trace = "f.csv", column = "rate", unit = "Mbit/s" }` or `{ opportunities = "f.up" }` (mahimahi).
#[derive(Clone, Debug, PartialEq)]
pub enum RateConfig {
    /// Constant rate.
    Constant(Rate),
    /// Rates, each from its time on; the first time must be zero. The last rate stays.
    Steps(Vec<(Duration, Rate)>),
    /// Random process: quantiles of its marginal distribution (probability, rate), and its time scales. A rate of zero
    /// is an outage in which the queue is kept.
    Process(Vec<(f64, Rate)>, ProcessKeys),
    /// Measured series or measured delivery opportunities.
    Trace(TraceSource),
}

/// Rate with its data, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSource {
    /// Constant rate.
    Constant(Rate),
    /// Series in bit/s.
    Series(Replay<Series>),
    /// Random process in bit/s.
    Process(Process),
    /// Mahimahi delivery opportunities.
    Opportunities(Replay<Opportunities>),
}

impl RateSource {
    /// Returns the rate multiplied by a factor over time.
    ///
    /// # Errors
    /// The rate is a trace. The text says what was expected.
    pub(crate) fn along(self, factor: &Factor) -> Result<Self, String> {
        let factor = factor.clone();
        match self {
            rate if factor.is_one() => Ok(rate),
            Self::Process(process) => Ok(Self::Process(Process { factor, ..process })),
            Self::Constant(rate) => {
                let bps = rate.as_bps() as f64;
                let steps = [PROCESS_SLOW, PROCESS_FAST, PROCESS_STEP];
                let process =
                    ProcessKeys::default().resolve(vec![(0.0, bps), (1.0, bps)], 0.0, steps)?;
                Ok(Self::Process(Process { factor, ..process }))
            }
            Self::Series(_) | Self::Opportunities(_) => {
                Err("found a trace and `along.rate`; expected a constant rate or a `process`"
                    .to_string())
            }
        }
    }
}

impl RateConfig {
    /// Returns the checked rate.
    ///
    /// # Errors
    /// The rate is zero, the step times do not increase from zero, or the trace has not been loaded. The text says
    /// what was expected.
    pub fn resolve(&self) -> Result<RateSource, String> {
        match self {
            Self::Constant(rate) if *rate == Rate::ZERO => {
                Err("expected a rate above zero; an outage is written with `down`".to_string())
            }
            Self::Constant(rate) => Ok(RateSource::Constant(*rate)),
            Self::Steps(steps) => {
                let samples = steps.iter().map(|(at, rate)| (*at, rate.as_bps() as f64));
                Ok(RateSource::Series(Arc::new(series_of_steps(samples)?).into()))
            }
            Self::Process(quantiles, keys) => {
                let quantiles = quantiles.iter().map(|(p, rate)| (*p, rate.as_bps() as f64));
                let defaults = [PROCESS_SLOW, PROCESS_FAST, PROCESS_STEP];
                let process = keys.resolve(quantiles.collect(), 0.0, defaults)?;
                if process.max() < 1.0 {
                    return Err("`process`: expected a last rate above zero".to_string());
                }
                Ok(RateSource::Process(process))
            }
            Self::Trace(source) => {
                let series = source.loaded_series().map(RateSource::Series);
                let loaded =
                    series.or(source.loaded_opportunities().map(RateSource::Opportunities));
                loaded.ok_or_else(|| not_loaded(source))
            }
        }
    }
}

/// Returns the error for a trace that has not been loaded.
pub(crate) fn not_loaded(source: &TraceSource) -> String {
    alloc::format!("expected the trace `{}` to have been read", source.file.trace)
}

/// Returns the series of the steps in a configuration; the last value stays.
pub(crate) fn series_of_steps(
    steps: impl Iterator<Item = (Duration, f64)>,
) -> Result<Series, String> {
    let samples: Vec<(Instant, f64)> =
        steps.map(|(at, value)| (Instant::ZERO + at, value)).collect();
    Series::from_samples(&samples, false).map_err(|error| error.to_string())
}

trace_table!(RateTable {
    steps: Vec<(Duration, Rate)>,
    process: Vec<(f64, Rate)>,
    slow: Duration,
    fast: Duration,
    slow_share: f64,
    step: Duration,
    scale: f64,
    both_ways: f64,
    opportunities: String,
});
process_keys!(RateTable);

impl RateTable {
    fn resolve(self) -> Result<RateConfig, String> {
        only_one(&[
            ("steps", self.steps.is_some()),
            ("process", self.process.is_some()),
            ("trace", self.trace.is_some()),
            ("opportunities", self.opportunities.is_some()),
        ])?;
        let keys = self.process_keys(self.process.is_some())?;
        let sampling = self.sampling();
        let of_trace = match self.opportunities {
            // These keys are also allowed with opportunities.
            Some(_) => Self { start: None, together: None, resample: None, ..self },
            None => self,
        };
        if let Some(file) = of_trace.trace_file()? {
            return Ok(RateConfig::Trace(TraceSource::series(file, Quantity::Rate)));
        }
        if let Some(quantiles) = of_trace.process {
            let process = RateConfig::Process(quantiles, keys);
            return process.resolve().map(|_| process);
        }
        match (of_trace.steps, of_trace.opportunities) {
            (_, Some(path)) => Ok(RateConfig::Trace(TraceSource::opportunities(path, sampling))),
            (steps, None) => {
                let steps = steps.unwrap_or_default();
                series_of_steps(steps.iter().map(|(at, rate)| (*at, rate.as_bps() as f64)))?;
                Ok(RateConfig::Steps(steps))
            }
        }
    }
}

impl<'de> Deserialize<'de> for RateConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "a rate with a unit, for example \"10Mbit/s\", or a table with `steps`, \
                        `process`, `trace` or `opportunities`";
        let constant = |text: &str| Rate::from_text(text).map(Self::Constant);
        text_or_table(from, expected, constant, RateTable::resolve)
    }
}

impl Serialize for RateConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let table = match self {
            Self::Constant(rate) => return rate.serialize(to),
            Self::Steps(steps) => RateTable { steps: Some(steps.clone()), ..RateTable::default() },
            Self::Process(quantiles, keys) => {
                RateTable { process: Some(quantiles.clone()), ..RateTable::of_process(*keys) }
            }
            Self::Trace(source) if source.holds_opportunities() => {
                let path = source.file.trace.clone();
                RateTable {
                    opportunities: Some(path),
                    trace: None,
                    ..RateTable::of_trace(&source.file)
                }
            }
            Self::Trace(TraceSource { file, .. }) => RateTable::of_trace(file),
        };
        table.serialize(to)
    }
}

/// Cursor over a rate. Queries must be in order of time.
#[derive(Clone, Debug)]
pub(crate) enum RateCursor {
    Constant(Rate),
    Series(SeriesCursor),
    Process(ProcessCursor),
    Opportunities(OpportunityCursor),
}

impl RateCursor {
    /// Creates the cursor. `own` names the random streams of the direction, `both` those that both directions share.
    pub fn new(source: &RateSource, seed: Seed, own: &str, both: &str) -> Self {
        match source {
            RateSource::Constant(rate) => Self::Constant(*rate),
            // The search for a rate above zero would never end in an all-zero series.
            RateSource::Series(replay) if replay.data.values().iter().all(|rate| *rate < 1.0) => {
                Self::Constant(Rate::ZERO)
            }
            RateSource::Series(replay) => Self::Series(SeriesCursor::new(replay, seed)),
            RateSource::Process(process) => {
                Self::Process(ProcessCursor::new(process, seed, own, both))
            }
            RateSource::Opportunities(replay) => {
                Self::Opportunities(OpportunityCursor::new(replay, seed))
            }
        }
    }

    /// Returns the rate at `at`, with the instant until which it holds; none for opportunities.
    #[inline]
    pub fn step(&mut self, at: Instant) -> Option<(Rate, Instant)> {
        let (rate, until) = match self {
            Self::Constant(rate) => return Some((*rate, Instant::FAR_FUTURE)),
            Self::Series(cursor) => cursor.at(at),
            Self::Process(cursor) => cursor.at(at),
            Self::Opportunities(_) => return None,
        };
        Some((Rate::from_bps(rate as u64), until))
    }

    /// Returns the rate at `at` for display; opportunities are averaged over the 100 ms window around `at`.
    pub fn mean_rate(&mut self, at: Instant) -> Rate {
        match self {
            Self::Constant(rate) => *rate,
            Self::Series(cursor) => Rate::from_bps(cursor.at(at).0 as u64),
            Self::Process(cursor) => Rate::from_bps(cursor.at(at).0 as u64),
            Self::Opportunities(cursor) => cursor.mean_rate(at, Duration::from_millis(100)),
        }
    }
}
