//! Distributions of a duration: their configuration, and their samplers.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Duration, Promised, Seed, Stream};

use crate::form::{only_one, text_or_table};

/// Maximum number of redraws of a value that must be positive, after which the mean is used. With a mean above zero,
/// at least half of the draws are positive.
const MAX_REDRAWS: u32 = 64;

/// Distribution of a duration.
///
/// In TOML: `"30ms"` (fixed), `{ mean = "20s" }` (exponential), `{ mean = "20s", sd = "4s" }`
/// (normal, redrawn until positive), `{ min = "1ms", max = "5ms" }` (uniform),
/// `{ mixture = "lte-aerial" }` or `{ mixture = [{ weight = 0.8, mean = "2ms", sd = "0.25ms" }] }`
/// (normals, redrawn until positive). Each table takes `plus = "10ms"`, which is added to every draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Random part.
    pub shape: Shape,
    /// Constant added to every draw.
    pub plus: Duration,
}

/// Random part of a [`Distribution`].
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Fixed value.
    Fixed(Duration),
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Duration,
    },
    /// Normal distribution, redrawn until positive.
    Normal {
        /// Mean before truncation at zero.
        mean: Duration,
        /// Standard deviation before truncation at zero.
        sd: Duration,
    },
    /// Uniform distribution.
    Uniform {
        /// Lower bound.
        min: Duration,
        /// Upper bound.
        max: Duration,
    },
    /// Mixture of normal distributions, each redrawn until positive.
    Mixture(Mixture),
}

/// A mixture of normal distributions. Weights need not sum to one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Mixture {
    /// Built-in mixture: `lte-aerial`.
    Named(String),
    /// Explicit components.
    Components(Vec<Component>),
}

/// One normal distribution of a [`Mixture`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Weight relative to the other components; above zero.
    pub weight: f64,
    /// Mean.
    pub mean: Duration,
    /// Standard deviation.
    pub sd: Duration,
}

/// LTE handover execution times measured in flight below 120 m over a dense city: Gaussian mixture of Chavali 2022,
/// Table 4.1 (the fit excludes values above 250 ms). The published weights sum to 0.9866 and are normalised here.
const LTE_AERIAL: [Component; 4] = [
    component(0.8383, 1_968_100, 248_400),
    component(0.1214, 3_905_000, 941_400),
    component(0.0095, 9_387_900, 5_624_600),
    component(0.0174, 203_183_200, 21_231_800),
];

const fn component(weight: f64, mean_ns: i64, sd_ns: i64) -> Component {
    Component { weight, mean: Duration::from_nanos(mean_ns), sd: Duration::from_nanos(sd_ns) }
}

impl Mixture {
    /// Names of the built-in mixtures.
    pub const NAMES: [&'static str; 1] = ["lte-aerial"];

    /// Components; `None` for an unknown name.
    pub fn components(&self) -> Option<&[Component]> {
        match self {
            Self::Named(name) if name == "lte-aerial" => Some(&LTE_AERIAL),
            Self::Named(_) => None,
            Self::Components(components) => Some(components),
        }
    }
}

impl Distribution {
    /// Returns the distribution with the fixed value `span`.
    pub const fn fixed(span: Duration) -> Self {
        Self { shape: Shape::Fixed(span), plus: Duration::ZERO }
    }

    /// Returns a normal distribution, redrawn until positive.
    pub const fn normal(mean: Duration, sd: Duration) -> Self {
        Self { shape: Shape::Normal { mean, sd }, plus: Duration::ZERO }
    }

    /// Returns an exponential distribution.
    pub const fn exponential(mean: Duration) -> Self {
        Self { shape: Shape::Exponential { mean }, plus: Duration::ZERO }
    }

    /// Returns an error for negative spans, `min` above `max`, a normal distribution without positive mean, and
    /// unknown or empty mixtures.
    pub(crate) fn check(&self) -> Result<(), String> {
        let negative = |span: Duration| span < Duration::ZERO;
        let wrong = match &self.shape {
            Shape::Fixed(span) => negative(*span),
            Shape::Exponential { mean } => !mean.is_positive(),
            Shape::Normal { mean, sd } => !mean.is_positive() || negative(*sd),
            Shape::Uniform { min, max } => {
                if min > max {
                    return Err(format!("`min` {min} lies above `max` {max}"));
                }
                negative(*min)
            }
            Shape::Mixture(mixture) => {
                let Some(components) = mixture.components() else {
                    return Err(format!("expected a known mixture: {}", Mixture::NAMES.join(", ")));
                };
                if components.is_empty() {
                    return Err("a mixture needs at least one component".to_string());
                }
                !components.iter().all(|component| {
                    component.weight > 0.0
                        && component.weight.is_finite()
                        && component.mean.is_positive()
                        && !negative(component.sd)
                })
            }
        };
        if wrong || negative(self.plus) {
            return Err("means and weights must be above zero, spans not below zero".to_string());
        }
        Ok(())
    }

    /// Returns endless draws from the stream `name`.
    pub fn draws(&self, seed: Seed, name: &str) -> impl Iterator<Item = Duration> + use<> {
        let (sampler, mut stream) = (self.sampler(), seed.stream(name));
        core::iter::repeat_with(move || sampler.draw(&mut stream))
    }

    /// Returns the sampler of the distribution.
    pub(crate) fn sampler(&self) -> Sampler {
        let nanos = |span: Duration| span.as_nanos() as f64;
        let kind = match &self.shape {
            Shape::Fixed(span) => Kind::Fixed(*span),
            Shape::Exponential { mean } => Kind::Exponential(nanos(*mean)),
            Shape::Normal { mean, sd } => Kind::Normals(vec![(1.0, nanos(*mean), nanos(*sd))]),
            Shape::Uniform { min, max } => Kind::Uniform(nanos(*min), nanos(*max)),
            Shape::Mixture(mixture) => {
                let components =
                    mixture.components().promised("a known mixture").unwrap_or_default();
                let total: f64 = components.iter().map(|component| component.weight).sum();
                let mut sum = 0.0;
                let cumulative = components.iter().map(|component| {
                    sum += component.weight / total;
                    (sum, nanos(component.mean), nanos(component.sd))
                });
                Kind::Normals(cumulative.collect())
            }
        };
        Sampler { kind, plus: self.plus }
    }
}

/// Sampler of a [`Distribution`].
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    kind: Kind,
    plus: Duration,
}

/// All times in nanoseconds.
#[derive(Clone, Debug)]
enum Kind {
    Fixed(Duration),
    Exponential(f64),
    Uniform(f64, f64),
    /// Cumulative weight, mean, standard deviation.
    Normals(Vec<(f64, f64, f64)>),
}

impl Sampler {
    /// Draws a value, which is never negative.
    pub fn draw(&self, stream: &mut Stream) -> Duration {
        let span = match &self.kind {
            Kind::Fixed(span) => *span,
            Kind::Exponential(mean) => from_nanos(stream.exponential(*mean)),
            Kind::Uniform(min, max) => from_nanos(stream.between(*min, *max)),
            Kind::Normals(normals) => {
                let place = if normals.len() > 1 { stream.unit() } else { 0.0 };
                let chosen = normals.iter().find(|(up_to, ..)| place < *up_to);
                let chosen = chosen.or(normals.last()).copied();
                let (_, mean, sd) =
                    chosen.promised("a component of the mixture").unwrap_or_default();
                from_nanos(positive_normal(stream, mean, sd))
            }
        };
        (span + self.plus).max(Duration::ZERO)
    }

    /// Lower bound of all draws.
    pub fn min(&self) -> Duration {
        let span = match &self.kind {
            Kind::Fixed(span) => *span,
            Kind::Uniform(min, _) => from_nanos(*min),
            Kind::Exponential(_) | Kind::Normals(_) => Duration::ZERO,
        };
        (span + self.plus).max(Duration::ZERO)
    }

    /// Mean of the draws.
    pub fn mean(&self) -> Duration {
        let span = match &self.kind {
            Kind::Fixed(span) => *span,
            Kind::Exponential(mean) => from_nanos(*mean),
            Kind::Uniform(min, max) => from_nanos(f64::midpoint(*min, *max)),
            Kind::Normals(normals) => {
                let (mut sum, mut below) = (0.0, 0.0);
                for (up_to, mean, sd) in normals {
                    sum += (up_to - below) * positive_normal_mean(*mean, *sd);
                    below = *up_to;
                }
                from_nanos(sum)
            }
        };
        (span + self.plus).max(Duration::ZERO)
    }
}

fn from_nanos(nanos: f64) -> Duration {
    Duration::from_nanos(libm::round(nanos) as i64)
}

/// Draws from a normal distribution until the value is positive.
fn positive_normal(stream: &mut Stream, mean: f64, sd: f64) -> f64 {
    for _ in 0..MAX_REDRAWS {
        let draw = stream.normal(mean, sd);
        if draw > 0.0 {
            return draw;
        }
    }
    mean.max(0.0)
}

/// Returns the mean of a normal distribution truncated at zero.
fn positive_normal_mean(mean: f64, sd: f64) -> f64 {
    if sd <= 0.0 {
        return mean;
    }
    let cut = -mean / sd;
    let density = libm::exp(-0.5 * cut * cut) / libm::sqrt(core::f64::consts::TAU);
    let above = 0.5 * libm::erfc(cut / core::f64::consts::SQRT_2);
    if above > 0.0 { mean + sd * density / above } else { mean }
}

/// Keys of a distribution's table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DistributionTable {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sd: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixture: Option<Mixture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plus: Option<Duration>,
}

impl DistributionTable {
    pub fn resolve(self) -> Result<Distribution, String> {
        let forms = [
            ("mean", self.mean.is_some()),
            ("min", self.min.is_some() || self.max.is_some()),
            ("mixture", self.mixture.is_some()),
        ];
        only_one(&forms)?;
        if self.sd.is_some() && self.mean.is_none() {
            return Err("`sd` needs `mean`".to_string());
        }
        let shape = match (self.mean, self.sd, self.min, self.max, self.mixture) {
            (Some(mean), Some(sd), ..) => Shape::Normal { mean, sd },
            (Some(mean), ..) => Shape::Exponential { mean },
            (_, _, _, _, Some(mixture)) => Shape::Mixture(mixture),
            (_, _, Some(min), Some(max), _) => Shape::Uniform { min, max },
            _ => return Err("`min` and `max` belong together".to_string()),
        };
        let distribution = Distribution { shape, plus: self.plus.unwrap_or(Duration::ZERO) };
        distribution.check()?;
        Ok(distribution)
    }
}

impl Distribution {
    /// Returns the table that parses to this distribution; `None` for a fixed time, which is a text.
    pub(crate) fn table(&self) -> Option<DistributionTable> {
        let mut table = DistributionTable::default();
        match &self.shape {
            Shape::Fixed(_) => return None,
            Shape::Exponential { mean } => table.mean = Some(*mean),
            Shape::Normal { mean, sd } => {
                table.mean = Some(*mean);
                table.sd = Some(*sd);
            }
            Shape::Uniform { min, max } => {
                table.min = Some(*min);
                table.max = Some(*max);
            }
            Shape::Mixture(mixture) => table.mixture = Some(mixture.clone()),
        }
        table.plus = (self.plus != Duration::ZERO).then_some(self.plus);
        Some(table)
    }

    /// The value of a fixed distribution, including `plus`.
    pub(crate) fn constant(&self) -> Option<Duration> {
        match self.shape {
            Shape::Fixed(span) => Some(span + self.plus),
            _ => None,
        }
    }
}

pub(crate) fn read_fixed(text: &str) -> Result<Distribution, String> {
    Ok(Distribution::fixed(Duration::from_text(text).map_err(|error| error.to_string())?))
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "a time with a unit, or a table such as { mean = \"20s\", sd = \"4s\" }";
        text_or_table(from, expected, read_fixed, DistributionTable::resolve)
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.table() {
            Some(table) => table.serialize(to),
            None => self.constant().serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Mixture {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Mixture;
            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("a known mixture such as \"lte-aerial\", or a list of components")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Mixture, E> {
                if Mixture::NAMES.contains(&name) {
                    return Ok(Mixture::Named(name.to_string()));
                }
                let known = Mixture::NAMES.join(", ");
                Err(E::custom(format!("`{name}` is not a known mixture; expected {known}")))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Mixture, A::Error> {
                let list = serde::de::value::SeqAccessDeserializer::new(seq);
                Ok(Mixture::Components(Vec::deserialize(list)?))
            }
        }
        from.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Seed;

    fn draws(distribution: &Distribution, count: usize) -> Vec<f64> {
        let sampler = distribution.sampler();
        let mut stream = Seed(11).stream("draws");
        (0..count).map(|_| sampler.draw(&mut stream).as_millis_f64()).collect()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean) * (value - mean));
        (mean, libm::sqrt(squares.sum::<f64>() / count))
    }

    // Chavali 2022, Table 4.1, normalised: mean 5.83 ms, standard deviation 26.6 ms, and
    // 0.0174 / 0.9866 of the handovers near 203 ms.
    #[test]
    fn aerial_handovers_have_the_moments_of_their_mixture() {
        let mixture = Mixture::Named("lte-aerial".into());
        let distribution = Distribution { shape: Shape::Mixture(mixture), plus: Duration::ZERO };
        let drawn = draws(&distribution, 1_000_000);
        let (mean, sd) = moments(&drawn);
        assert!((mean - 5.83).abs() < 0.08, "{mean}");
        assert!((sd - 26.6).abs() < 0.3, "{sd}");
        assert!((distribution.sampler().mean().as_millis_f64() - mean).abs() < 0.08);
        let long = drawn.iter().filter(|value| **value > 100.0).count() as f64 / 1e6;
        assert!((long - 1.74 / 98.66).abs() < 4e-4, "{long}");
        assert!(drawn.iter().all(|value| *value > 0.0));
    }

    #[test]
    fn draws_of_a_truncated_normal_have_its_mean() {
        let ms = Duration::from_millis;
        let distribution = Distribution::normal(ms(10), ms(10));
        let (mean, _) = moments(&draws(&distribution, 400_000));
        let expected = distribution.sampler().mean().as_millis_f64();
        // 10 + 10 · φ(1) / Φ(1)
        assert!((expected - 12.876).abs() < 1e-3, "{expected}");
        assert!((mean - expected).abs() < 0.05, "{mean}");
    }

    #[test]
    fn exponential_and_uniform_draws_have_their_moments() {
        let ms = Duration::from_millis;
        let (mean, sd) = moments(&draws(&Distribution::exponential(ms(20)), 400_000));
        assert!((mean - 20.0).abs() < 0.15 && (sd - 20.0).abs() < 0.2, "{mean} {sd}");
        let shape = Shape::Uniform { min: ms(1), max: ms(5) };
        let (mean, sd) = moments(&draws(&Distribution { shape, plus: ms(10) }, 400_000));
        assert!((mean - 13.0).abs() < 0.01 && (sd - libm::sqrt(16.0 / 12.0)).abs() < 0.01);
    }

    #[test]
    fn invalid_distributions_are_rejected() {
        let ms = Duration::from_millis;
        let bad = [
            Shape::Exponential { mean: ms(0) },
            Shape::Normal { mean: ms(5), sd: ms(-1) },
            Shape::Uniform { min: ms(5), max: ms(1) },
            Shape::Fixed(ms(-1)),
            Shape::Mixture(Mixture::Named("moon".into())),
            Shape::Mixture(Mixture::Components(vec![])),
            Shape::Mixture(Mixture::Components(vec![Component {
                weight: f64::NAN,
                mean: ms(1),
                sd: ms(0),
            }])),
        ];
        for shape in bad {
            let distribution = Distribution { shape, plus: Duration::ZERO };
            assert!(distribution.check().is_err(), "{distribution:?}");
        }
    }
}
