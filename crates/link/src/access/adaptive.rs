//! Es/N0 of a link over time, and the coding of each frame: fixed, or adapted to the last report.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Decibels, Duration, Instant, Promised, Seed, expect};

use crate::rate::{not_loaded, series_of_steps};
use crate::trace::{Quantity, Replay, Series, SeriesCursor, TraceSource, trace_table};
use skybraid_units::form::{only_one, text_or_table};

/// Attenuation below clear sky in a configuration.
///
/// In TOML: `"3dB"`, `{ steps = [["0s", "0dB"], ["60s", "8dB"]] }` or
/// `{ trace = "f.csv", column = "attenuation", unit = "dB" }`.
#[derive(Clone, Debug, PartialEq)]
pub enum AttenuationConfig {
    /// Constant attenuation.
    Constant(Decibels),
    /// Attenuations, each from its time on; the first time must be zero. The last one stays.
    Steps(Vec<(Duration, Decibels)>),
    /// Measured series.
    Trace(TraceSource),
}

/// Attenuation with its data, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Attenuation {
    /// Constant attenuation in dB.
    Constant(f64),
    /// Series in dB.
    Series(Replay<Series>),
}

impl AttenuationConfig {
    /// Returns the checked attenuation.
    ///
    /// # Errors
    /// A value is negative, or the trace has not been loaded.
    pub fn resolve(&self) -> Result<Attenuation, String> {
        match self {
            Self::Constant(value) if value.get() < 0.0 => {
                Err("expected an attenuation that is not negative".to_string())
            }
            Self::Constant(value) => Ok(Attenuation::Constant(value.get())),
            Self::Steps(steps) => {
                let steps = steps.iter().map(|(at, value)| (*at, value.get()));
                Ok(Attenuation::Series(Arc::new(series_of_steps(steps)?).into()))
            }
            Self::Trace(source) => {
                let series = source.loaded_series().map(Attenuation::Series);
                series.ok_or_else(|| not_loaded(source))
            }
        }
    }
}

trace_table!(AttenuationTable { steps: Vec<(Duration, Decibels)> });

impl AttenuationTable {
    fn resolve(self) -> Result<AttenuationConfig, String> {
        only_one(&[("steps", self.steps.is_some()), ("trace", self.trace.is_some())])?;
        if let Some(file) = self.trace_file()? {
            return Ok(AttenuationConfig::Trace(TraceSource::series(file, Quantity::Attenuation)));
        }
        Ok(AttenuationConfig::Steps(self.steps.unwrap_or_default()))
    }
}

impl<'de> Deserialize<'de> for AttenuationConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "an attenuation such as \"3dB\", or a table with `steps` or `trace`";
        let constant = |text: &str| Decibels::from_text(text).map(Self::Constant);
        text_or_table(from, expected, constant, AttenuationTable::resolve)
    }
}

impl Serialize for AttenuationConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let none = AttenuationTable::default();
        match self {
            Self::Constant(value) => value.serialize(to),
            Self::Steps(steps) => {
                AttenuationTable { steps: Some(steps.clone()), ..none }.serialize(to)
            }
            Self::Trace(source) => AttenuationTable::of_trace(&source.file).serialize(to),
        }
    }
}

/// Keys of an `es_n0` table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EsN0Config {
    /// Es/N0 under a clear sky. Required.
    pub clear_sky: Option<Decibels>,
    /// Attenuation below it. Default: none.
    pub attenuation: Option<AttenuationConfig>,
    /// Margin of the adaptation: a coding is used while the reported Es/N0 exceeds its threshold by this. Default: 0
    /// dB.
    pub margin: Option<Decibels>,
    /// Age of the report that determines a frame's coding. Default: none.
    pub delay: Option<Duration>,
}

/// Es/N0 of a link, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct EsN0 {
    /// Under a clear sky, in dB.
    pub clear_sky: f64,
    /// Attenuation.
    pub attenuation: Attenuation,
    /// Margin in dB.
    pub margin: f64,
    /// Age of a report.
    pub delay: Duration,
}

impl EsN0Config {
    /// Returns the checked Es/N0, or the key at fault.
    pub(crate) fn resolve(&self) -> Result<EsN0, (&'static str, String)> {
        let clear_sky = self.clear_sky.ok_or_else(|| {
            ("es_n0.clear_sky", "expected the Es/N0 of a clear sky, for example \"15dB\"".into())
        })?;
        let delay = self.delay.unwrap_or(Duration::ZERO);
        expect(delay >= Duration::ZERO, "es_n0.delay", "a time that is not negative")?;
        let none = AttenuationConfig::Constant(Decibels::ZERO);
        let attenuation = self.attenuation.as_ref().unwrap_or(&none).resolve();
        Ok(EsN0 {
            clear_sky: clear_sky.get(),
            attenuation: attenuation.map_err(|problem| ("es_n0.attenuation", problem))?,
            margin: self.margin.unwrap_or_default().get(),
            delay,
        })
    }
}

/// Attenuation over time. Queries must be in order of time.
#[derive(Clone, Debug)]
enum Curve {
    Constant(f64),
    Series(SeriesCursor),
}

impl Curve {
    fn new(attenuation: &Attenuation, seed: Seed) -> Self {
        match attenuation {
            Attenuation::Constant(value) => Self::Constant(*value),
            Attenuation::Series(replay) => Self::Series(SeriesCursor::new(replay, seed)),
        }
    }

    fn at(&mut self, at: Instant) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Series(cursor) => cursor.at(at).0,
        }
    }
}

/// Es/N0 now, and as last reported.
#[derive(Clone, Debug)]
struct Channel {
    clear_sky: f64,
    margin: f64,
    delay: Duration,
    present: Curve,
    reported: Curve,
}

/// Coding of a frame or burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coding {
    /// Bytes for packets and their headers.
    pub payload: u64,
    /// Symbols of the frame or burst.
    pub symbols: u64,
    /// Bits of the frame or burst with redundancy, and its code rate.
    pub coded_bits: u64,
    /// Code rate as a fraction.
    pub rate: (u64, u64),
    /// Es/N0 in dB below which the frame is lost.
    pub threshold: f64,
}

/// Codings of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Codings {
    /// By rising efficiency; not empty.
    all: Vec<Coding>,
    channel: Option<Channel>,
}

impl Codings {
    /// Creates the choice between `all`; without an Es/N0 no frame is lost to it. `None` if `all` is empty.
    pub fn new(mut all: Vec<Coding>, es_n0: Option<&EsN0>, seed: Seed) -> Option<Self> {
        let efficiency = |coding: &Coding| coding.payload as f64 / coding.symbols as f64;
        all.sort_by(|one, other| efficiency(one).total_cmp(&efficiency(other)));
        let channel = es_n0.map(|es_n0| Channel {
            clear_sky: es_n0.clear_sky,
            margin: es_n0.margin,
            delay: es_n0.delay,
            present: Curve::new(&es_n0.attenuation, seed),
            reported: Curve::new(&es_n0.attenuation, seed),
        });
        (!all.is_empty()).then_some(Self { all, channel })
    }

    /// Payload of the least efficient coding.
    pub fn min_payload(&self) -> u64 {
        self.all.first().map_or(0, |coding| coding.payload)
    }

    /// Returns the coding of a frame sent at `at`, and whether it is received. Queries must be in order of time.
    ///
    /// The coding is the most efficient whose threshold the report exceeds by the margin, else the one with the lowest
    /// threshold.
    pub fn at(&mut self, at: Instant) -> Option<(Coding, bool)> {
        let Some(channel) = &mut self.channel else {
            return self.all.last().copied().promised("a coding").map(|coding| (coding, true));
        };
        let asked =
            Instant::from_nanos(at.as_nanos().saturating_sub(channel.delay.as_nanos()).max(0));
        let reported = channel.clear_sky - channel.reported.at(asked);
        let present = channel.clear_sky - channel.present.at(at);
        let usable = |coding: &&Coding| coding.threshold + channel.margin <= reported;
        let best = self.all.iter().rev().find(usable);
        let by_threshold =
            |one: &&Coding, other: &&Coding| one.threshold.total_cmp(&other.threshold);
        let coding = best.or_else(|| self.all.iter().min_by(by_threshold)).promised("a coding")?;
        Some((*coding, present >= coding.threshold))
    }
}
