//! Propagation delay: constant, drawn per packet, in steps, a random process, or from a trace.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Duration, Instant, Seed, Stream};

use crate::distribution::{Distribution, DistributionTable, Mixture, Phase};
use crate::process::{Process, ProcessCursor, ProcessKeys};
use crate::rate::{not_loaded, series_of_steps};
use crate::sampler::Sampler;
use crate::trace::{
    Quantity, Replay, Series, SeriesCursor, TraceSource, process_keys, trace_table,
};
use skybraid_units::form::{only_one, text_or_table};

/// Default correlation times and step of a process.
const PROCESS_SLOW: Duration = Duration::from_secs(10);
const PROCESS_FAST: Duration = Duration::from_millis(200);
const PROCESS_STEP: Duration = Duration::from_millis(100);

/// One-way delay in a configuration.
///
/// In TOML: `"30ms"`, a [`Distribution`] (drawn for each packet),
/// `{ process = [[0, "0ms"], [0.9, "8ms"], [1, "90ms"]], plus = "25ms", slow = "10s", fast = "200ms" }`,
/// `{ steps = [["0s", "30ms"], ["5s", "80ms"]] }` or
/// `{ trace = "f.csv", column = "delay", unit = "ms" }`.
#[derive(Clone, Debug, PartialEq)]
pub enum DelayConfig {
    /// Fixed, or drawn for each packet.
    Distribution(Distribution),
    /// Delays, each from its time on; the first time must be zero. The last delay stays.
    Steps(Vec<(Duration, Duration)>),
    /// Random process: quantiles of its marginal distribution (probability, time), its time scales, and a constant
    /// that is added.
    Process(Vec<(f64, Duration)>, ProcessKeys, Duration),
    /// Measured series.
    Trace(TraceSource),
}

/// One-way delay with its data, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum DelaySource {
    /// Fixed, or drawn for each packet.
    Distribution(Distribution),
    /// Series in ns; infinity is a gap in which packets are lost.
    Series(Replay<Series>),
    /// Random process in ns.
    Process(Process),
}

impl DelayConfig {
    /// Returns the checked delay.
    ///
    /// # Errors
    /// The delay is not valid, or its trace has not been loaded. The text says what was expected.
    pub fn resolve(&self) -> Result<DelaySource, String> {
        match self {
            Self::Distribution(distribution) => {
                distribution.check()?;
                Ok(DelaySource::Distribution(distribution.clone()))
            }
            Self::Steps(steps) => {
                let samples = steps.iter().map(|(at, delay)| (*at, delay.as_nanos() as f64));
                Ok(DelaySource::Series(Arc::new(series_of_steps(samples)?).into()))
            }
            Self::Process(quantiles, keys, plus) => {
                if *plus < Duration::ZERO {
                    return Err("`plus`: expected a time, zero or more".into());
                }
                let quantiles = quantiles.iter().map(|(p, time)| (*p, time.as_nanos() as f64));
                let defaults = [PROCESS_SLOW, PROCESS_FAST, PROCESS_STEP];
                let process = keys.resolve(quantiles.collect(), plus.as_nanos() as f64, defaults);
                process.map(DelaySource::Process)
            }
            Self::Trace(source) => {
                source.loaded_series().map(DelaySource::Series).ok_or_else(|| not_loaded(source))
            }
        }
    }
}

trace_table!(DelayTable {
    steps: Vec<(Duration, Duration)>,
    mean: Duration,
    sd: Duration,
    min: Duration,
    max: Duration,
    mixture: Mixture,
    median: Duration,
    sigma: f64,
    pareto: Duration,
    alpha: f64,
    exponentials: Vec<Phase>,
    quantiles: Vec<(f64, Duration)>,
    plus: Duration,
    process: Vec<(f64, Duration)>,
    slow: Duration,
    fast: Duration,
    slow_share: f64,
    step: Duration,
    scale: f64,
    both_ways: f64,
});
process_keys!(DelayTable);

impl DelayTable {
    fn resolve(self) -> Result<DelayConfig, String> {
        let distribution = DistributionTable {
            mean: self.mean,
            sd: self.sd,
            min: self.min,
            max: self.max,
            mixture: self.mixture.clone(),
            median: self.median,
            sigma: self.sigma,
            pareto: self.pareto,
            alpha: self.alpha,
            exponentials: self.exponentials.clone(),
            quantiles: self.quantiles.clone(),
            plus: self.plus.filter(|_| self.process.is_none()),
        };
        let keys = self.process_keys(self.process.is_some())?;
        let drawn = distribution != DistributionTable::default();
        let other = self.steps.is_some() || self.trace.is_some() || self.process.is_some();
        if drawn && !other {
            self.trace_file()?;
            return Ok(DelayConfig::Distribution(distribution.resolve()?));
        }
        only_one(&[
            ("steps", self.steps.is_some()),
            ("process", self.process.is_some()),
            ("trace", self.trace.is_some()),
            ("mean", drawn),
        ])?;
        if let Some(quantiles) = self.process {
            let plus = self.plus.unwrap_or(Duration::ZERO);
            let process = DelayConfig::Process(quantiles, keys, plus);
            return process.resolve().map(|_| process);
        }
        if let Some(file) = self.trace_file()? {
            return Ok(DelayConfig::Trace(TraceSource::series(file, Quantity::Delay)));
        }
        let steps = self.steps.unwrap_or_default();
        series_of_steps(steps.iter().map(|(at, delay)| (*at, delay.as_nanos() as f64)))?;
        Ok(DelayConfig::Steps(steps))
    }
}

impl<'de> Deserialize<'de> for DelayConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "a time with a unit, for example \"30ms\", or a table with `steps`, \
                        `process`, `trace`, or a distribution such as `mean`, `min` and `max`, or `mixture`";
        let fixed = |text: &str| {
            Duration::from_text(text).map(|span| Self::Distribution(Distribution::fixed(span)))
        };
        text_or_table(from, expected, fixed, DelayTable::resolve)
    }
}

impl Serialize for DelayConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Distribution(distribution) => distribution.serialize(to),
            Self::Steps(steps) => {
                DelayTable { steps: Some(steps.clone()), ..DelayTable::default() }.serialize(to)
            }
            Self::Process(quantiles, keys, plus) => {
                let (process, plus) = (Some(quantiles.clone()), Some(*plus));
                DelayTable { process, plus, ..DelayTable::of_process(*keys) }.serialize(to)
            }
            Self::Trace(TraceSource { file, .. }) => DelayTable::of_trace(file).serialize(to),
        }
    }
}

/// Delay of the packets of one direction. Queries must be in order of time.
#[derive(Clone, Debug)]
pub(crate) enum Delay {
    Constant(Duration),
    Drawn(Sampler, Stream),
    Series(SeriesCursor),
    Process(Box<ProcessCursor>),
}

impl Delay {
    /// Creates the delay. `own` names the random streams of the direction, `both` those that both directions share.
    pub fn new(source: &DelaySource, seed: Seed, own: &str, both: &str) -> Self {
        match source {
            DelaySource::Distribution(distribution) => match distribution.constant() {
                Some(delay) => Self::Constant(delay),
                None => Self::Drawn(distribution.sampler(), seed.stream(own)),
            },
            DelaySource::Series(replay) => Self::Series(SeriesCursor::new(replay, seed)),
            DelaySource::Process(process) => {
                Self::Process(Box::new(ProcessCursor::new(process, seed, own, both)))
            }
        }
    }

    /// Returns the delay of a packet that departs at `at`; [`Duration::MAX`] in a gap of a series.
    pub fn of_packet(&mut self, at: Instant) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            Self::Drawn(sampler, stream) => sampler.draw(stream),
            Self::Series(cursor) => Duration::from_nanos(cursor.at(at).0 as i64),
            Self::Process(cursor) => Duration::from_nanos(cursor.at(at).0 as i64),
        }
    }

    /// Minimum delay of any packet.
    pub fn min(&self) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            Self::Drawn(sampler, _) => sampler.min(),
            Self::Series(cursor) => Duration::from_nanos(cursor.min() as i64),
            Self::Process(cursor) => Duration::from_nanos(cursor.min() as i64),
        }
    }

    /// Returns the mean delay of packets that depart at `at`, without a draw.
    pub fn expected(&mut self, at: Instant) -> Duration {
        match self {
            Self::Drawn(sampler, _) => sampler.mean(),
            Self::Constant(_) | Self::Series(_) | Self::Process(_) => self.of_packet(at),
        }
    }
}
