//! Packet loss: uniform, bit errors, Gilbert–Elliott, ON/OFF, Lutz, from a trace, and combinations.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Bytes, Instant, Probability, Promised, Seed, Stream, defaults};

use crate::distribution::Distribution;
use crate::link::Cause;
use crate::lutz::{Fading, Lutz, LutzConfig};
use crate::rate::not_loaded;
use crate::sampler::Sampler;
use crate::trace::{Quantity, Replay, Series, SeriesCursor, TraceSource, trace_table};
use skybraid_units::form::only_one;

/// Loss model in a configuration.
///
/// In TOML: `{ uniform = "0.006%" }`, `{ bit_errors = 1e-7 }` (per bit),
/// `{ gilbert_elliott = { good_to_bad = "1%", bad_to_good = "20%" } }`,
/// `{ on_off = { on = { mean = "6s", sd = "0.7071s" }, off = { mean = "1s", sd = "0.3162s" }, off_loss = "1%" } }`,
/// `{ lutz = { environment = "highway", speed = "30m/s", margin = "6dB" } }`
/// or `{ trace = "f.csv", column = "loss", unit = "%" }`.
#[derive(Clone, Debug, PartialEq)]
pub enum LossConfig {
    /// Independent loss of each packet with this probability.
    Uniform(Probability),
    /// Independent bit errors with this probability, 0 to 1; a packet with a bit error is lost.
    BitErrors(f64),
    /// Two-state Markov chain that steps with every packet.
    GilbertElliott(GilbertElliott),
    /// Alternating phases in time.
    OnOff(OnOff),
    /// Land-mobile-satellite channel.
    Lutz(LutzConfig),
    /// Measured series of probabilities.
    Trace(TraceSource),
}

/// Loss models of one direction; the first that loses a packet sets the cause. In TOML one table or a list of tables;
/// an empty list switches an inherited loss off.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses(pub Vec<LossConfig>);

/// Gilbert–Elliott model. The chain starts in its stationary distribution and steps after every packet. The number of
/// packets per bad phase is geometric with mean 1 / `bad_to_good`; the share of packets in the bad state is
/// `good_to_bad` / (`good_to_bad` + `bad_to_good`).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of a transition to the bad state after a packet.
    pub good_to_bad: Probability,
    /// Probability of a transition to the good state after a packet.
    pub bad_to_good: Probability,
    /// Loss in the good state. Default: 0 %.
    #[serde(default)]
    pub good_loss: Probability,
    /// Loss in the bad state. Default: 100 %.
    #[serde(default = "always")]
    pub bad_loss: Probability,
}

defaults! { always: Probability = Probability::ONE; }

/// ON/OFF model (Pedrazzi 2020): phases alternate in time, independent of the traffic, starting with ON. Packets are
/// lost with `off_loss` in OFF, and only by bit errors in ON.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OnOff {
    /// Length of the ON phases.
    pub on: Distribution,
    /// Length of the OFF phases.
    pub off: Distribution,
    /// Loss probability of a packet in OFF.
    pub off_loss: Probability,
    /// Bit error probability in ON. Default: zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub on_bit_errors: f64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// Loss model with its data, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum LossSource {
    /// Independent loss of each packet with this probability.
    Uniform(Probability),
    /// Independent bit errors with this probability.
    BitErrors(f64),
    /// Two-state Markov chain that steps with every packet.
    GilbertElliott(GilbertElliott),
    /// Alternating phases in time.
    OnOff(OnOff),
    /// Land-mobile-satellite channel.
    Lutz(Lutz),
    /// Series of ratios.
    Series(Replay<Series>),
}

impl LossConfig {
    /// Returns the checked loss model.
    ///
    /// # Errors
    /// A parameter is out of range, or the trace has not been loaded. The text says what was expected.
    pub fn resolve(&self) -> Result<LossSource, String> {
        let bit_error_ratio = |ratio: f64| {
            let valid = (0.0..=1.0).contains(&ratio);
            if valid { Ok(ratio) } else { Err("expected errors per bit from 0 to 1".to_string()) }
        };
        match self {
            Self::Uniform(probability) => Ok(LossSource::Uniform(*probability)),
            Self::BitErrors(ratio) => Ok(LossSource::BitErrors(bit_error_ratio(*ratio)?)),
            Self::GilbertElliott(model) => Ok(LossSource::GilbertElliott(*model)),
            Self::OnOff(model) => {
                bit_error_ratio(model.on_bit_errors)?;
                for phase in [&model.on, &model.off] {
                    phase.check()?;
                    if !phase.sampler().mean().is_positive() {
                        return Err("expected phases longer than zero".to_string());
                    }
                }
                Ok(LossSource::OnOff(model.clone()))
            }
            Self::Lutz(model) => model.resolve().map(LossSource::Lutz),
            Self::Trace(source) => {
                source.loaded_series().map(LossSource::Series).ok_or_else(|| not_loaded(source))
            }
        }
    }
}

trace_table!(LossTable {
    uniform: Probability,
    bit_errors: f64,
    gilbert_elliott: GilbertElliott,
    on_off: OnOff,
    lutz: LutzConfig,
});

impl LossTable {
    fn resolve(self) -> Result<LossConfig, String> {
        only_one(&[
            ("uniform", self.uniform.is_some()),
            ("bit_errors", self.bit_errors.is_some()),
            ("gilbert_elliott", self.gilbert_elliott.is_some()),
            ("on_off", self.on_off.is_some()),
            ("lutz", self.lutz.is_some()),
            ("trace", self.trace.is_some()),
        ])?;
        let trace = self.trace_file()?;
        let config = self.uniform.map(LossConfig::Uniform);
        let config = config.or(self.bit_errors.map(LossConfig::BitErrors));
        let config = config.or(self.gilbert_elliott.map(LossConfig::GilbertElliott));
        let config = config.or(self.on_off.map(LossConfig::OnOff));
        let Some(config) = config.or(self.lutz.map(LossConfig::Lutz)) else {
            let file = trace.unwrap_or_default();
            return Ok(LossConfig::Trace(TraceSource::series(file, Quantity::Loss)));
        };
        config.resolve()?;
        Ok(config)
    }
}

impl<'de> Deserialize<'de> for LossConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        LossTable::deserialize(from)?.resolve().map_err(serde::de::Error::custom)
    }
}

impl Serialize for LossConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let none = LossTable::default();
        let table = match self {
            Self::Uniform(probability) => LossTable { uniform: Some(*probability), ..none },
            Self::BitErrors(ratio) => LossTable { bit_errors: Some(*ratio), ..none },
            Self::GilbertElliott(model) => LossTable { gilbert_elliott: Some(*model), ..none },
            Self::OnOff(model) => LossTable { on_off: Some(model.clone()), ..none },
            Self::Lutz(model) => LossTable { lutz: Some(*model), ..none },
            Self::Trace(TraceSource { file, .. }) => LossTable::of_trace(file),
        };
        table.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Losses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Losses;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a loss such as { uniform = \"0.1%\" }, or a list of them")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Losses, A::Error> {
                Ok(Losses(vec![LossConfig::deserialize(MapAccessDeserializer::new(map))?]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Losses, A::Error> {
                Ok(Losses(Vec::deserialize(SeqAccessDeserializer::new(seq))?))
            }
        }
        from.deserialize_any(OneOrMany)
    }
}

impl Serialize for Losses {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(to),
            many => many.serialize(to),
        }
    }
}

/// Returns the packet error ratio of a packet of `bits` bits: 1 − (1 − `ratio`)^`bits`.
pub(crate) fn packet_error_ratio(ratio: f64, bits: u64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    -libm::expm1(bits as f64 * libm::log1p(-ratio))
}

/// A probability scaled for comparison with 64 random bits.
#[derive(Clone, Copy, Debug)]
struct Threshold(u64);

impl Threshold {
    fn new(ratio: f64) -> Self {
        // 2^64. The conversion saturates: a probability of 1 becomes the largest number.
        Self(libm::round(ratio * 18_446_744_073_709_551_616.0) as u64)
    }

    fn draw(self, stream: &mut Stream) -> bool {
        stream.next_u64() < self.0 || self.0 == u64::MAX
    }
}

/// Bit error model with a cache of the packet error ratios, by packet size.
#[derive(Clone, Debug)]
struct BitErrors {
    ratio: f64,
    cache: [(u64, Threshold); 8],
}

impl BitErrors {
    fn new(ratio: f64) -> Self {
        Self { ratio, cache: [(0, Threshold(0)); 8] }
    }

    fn threshold(&mut self, size: Bytes) -> Threshold {
        let bytes = size.get();
        let slot = (bytes ^ (bytes >> 3) ^ (bytes >> 6)) % 8;
        let entry = self.cache.get_mut(slot as usize).promised("a cache slot");
        let Some(entry) = entry else { return Threshold(0) };
        if entry.0 != bytes {
            *entry = (bytes, Threshold::new(packet_error_ratio(self.ratio, size.bits())));
        }
        entry.1
    }
}

/// Process of a loss model. Packets must be in order of departure.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    model: Model,
    stream: Stream,
}

#[derive(Clone, Debug)]
enum Model {
    Uniform(Threshold, Probability),
    BitErrors(BitErrors),
    GilbertElliott { model: GilbertElliott, bad: bool },
    OnOff { phases: Phases, off_loss: Probability, on_errors: BitErrors },
    Lutz(Box<Fading>),
    Series(SeriesCursor),
}

impl LossProcess {
    /// Creates the process of `source`. `stream` is the prefix of its stream names, for example `lte.uplink.loss`;
    /// `shared` is that of processes shared by both directions, for example `lte.loss`. The kind of model is
    /// appended, so a further model of another kind changes no draw.
    pub fn new(source: &LossSource, seed: Seed, stream: &str, shared: &str) -> Self {
        let named = |kind: &str| seed.stream(&format!("{stream}.{kind}"));
        match source {
            LossSource::Uniform(probability) => Self {
                model: Model::Uniform(Threshold::new(probability.ratio()), *probability),
                stream: named("uniform"),
            },
            LossSource::BitErrors(ratio) => Self {
                model: Model::BitErrors(BitErrors::new(*ratio)),
                stream: named("bit_errors"),
            },
            LossSource::GilbertElliott(model) => {
                let mut stream = named("gilbert_elliott");
                let bad = stream.unit() < stationary_bad(model);
                Self { model: Model::GilbertElliott { model: *model, bad }, stream }
            }
            LossSource::OnOff(model) => Self {
                model: Model::OnOff {
                    phases: Phases::new(model, named("on_off.phases")),
                    off_loss: model.off_loss,
                    on_errors: BitErrors::new(model.on_bit_errors),
                },
                stream: named("on_off"),
            },
            LossSource::Lutz(model) => {
                let states = seed.stream(&format!("{shared}.lutz.states"));
                let fading = Fading::new(model, states, named("lutz.fading"));
                Self { model: Model::Lutz(Box::new(fading)), stream: named("lutz") }
            }
            LossSource::Series(replay) => Self {
                model: Model::Series(SeriesCursor::new(replay, seed)),
                stream: named("trace"),
            },
        }
    }

    /// Returns the cause of loss of a packet that departs at `at`, if it is lost. The number of draws does not depend
    /// on the result.
    pub fn on_sent(&mut self, at: Instant, size: Bytes) -> Option<Cause> {
        let stream = &mut self.stream;
        let (lost, cause) = match &mut self.model {
            Model::Uniform(threshold, _) => (threshold.draw(stream), Cause::Random),
            Model::BitErrors(errors) => (errors.threshold(size).draw(stream), Cause::Random),
            Model::GilbertElliott { model, bad } => {
                let was_bad = *bad;
                let (loss, turn) = if was_bad {
                    (model.bad_loss, model.bad_to_good)
                } else {
                    (model.good_loss, model.good_to_bad)
                };
                let lost = stream.chance(loss);
                *bad = was_bad != stream.chance(turn);
                (lost, if was_bad { Cause::Burst } else { Cause::Random })
            }
            Model::OnOff { phases, off_loss, on_errors } => {
                if phases.is_off(at) {
                    (stream.chance(*off_loss), Cause::Burst)
                } else {
                    (on_errors.threshold(size).draw(stream), Cause::Random)
                }
            }
            Model::Lutz(fading) => fading.on_sent(at),
            Model::Series(cursor) => (stream.unit() < cursor.at(at).0, Cause::Random),
        };
        lost.then_some(cause)
    }

    /// Returns the loss probability of a packet of `size` that departs at `at`, independent of the traffic: the state
    /// of a Gilbert–Elliott chain counts as unknown.
    pub fn probability(&mut self, at: Instant, size: Bytes) -> f64 {
        match &mut self.model {
            Model::Uniform(_, probability) => probability.ratio(),
            Model::BitErrors(errors) => packet_error_ratio(errors.ratio, size.bits()),
            Model::GilbertElliott { model, .. } => {
                let bad = stationary_bad(model);
                bad * model.bad_loss.ratio() + (1.0 - bad) * model.good_loss.ratio()
            }
            Model::OnOff { phases, off_loss, on_errors } => {
                if phases.is_off(at) {
                    off_loss.ratio()
                } else {
                    packet_error_ratio(on_errors.ratio, size.bits())
                }
            }
            Model::Lutz(fading) => fading.probability(at),
            Model::Series(cursor) => cursor.at(at).0,
        }
    }
}

/// Returns the stationary probability of the bad state.
fn stationary_bad(model: &GilbertElliott) -> f64 {
    let (turning_bad, turning_good) = (model.good_to_bad.ratio(), model.bad_to_good.ratio());
    if turning_bad > 0.0 { turning_bad / (turning_bad + turning_good) } else { 0.0 }
}

/// Alternating ON and OFF phases. Queries must be in order of time.
#[derive(Clone, Debug)]
struct Phases {
    on: Sampler,
    off: Sampler,
    stream: Stream,
    is_off: bool,
    until: Instant,
}

impl Phases {
    fn new(model: &OnOff, mut stream: Stream) -> Self {
        let on = model.on.sampler();
        let until = Instant::ZERO + on.draw(&mut stream);
        Self { on, off: model.off.sampler(), stream, is_off: false, until }
    }

    fn is_off(&mut self, at: Instant) -> bool {
        while at >= self.until && self.until < Instant::FAR_FUTURE {
            self.is_off = !self.is_off;
            let phase = if self.is_off { &self.off } else { &self.on };
            self.until += phase.draw(&mut self.stream);
        }
        self.is_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pedrazzi 2020, section 2: 1000-byte packets.
    #[test]
    fn packet_error_ratio_follows_the_published_table() {
        for (bit_errors, packet_errors, within) in [
            (1e-3, 0.99967, 1e-5),
            (1e-4, 0.551, 5e-4),
            (1e-5, 0.0769, 5e-5),
            (1e-6, 7.97e-3, 5e-6),
            (1e-7, 8.00e-4, 5e-7),
            (1e-8, 8.00e-5, 5e-8),
            (1e-9, 8.00e-6, 5e-9),
        ] {
            let found = packet_error_ratio(bit_errors, 8000);
            assert!((found - packet_errors).abs() < within, "{bit_errors}: {found}");
        }
        assert_eq!(packet_error_ratio(1.0, 8), 1.0);
        assert_eq!(packet_error_ratio(0.0, 8000), 0.0);
        assert_eq!(packet_error_ratio(1.0, 0), 0.0);
    }
}
