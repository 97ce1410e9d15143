//! Distributions of a duration.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Duration, Seed};

use crate::quantiles::Quantiles;
use skybraid_units::form::{only_one, text_or_table};

/// Distribution of a duration.
///
/// In TOML: `"30ms"` (fixed), `{ mean = "20s" }` (exponential), `{ mean = "20s", sd = "4s" }` (normal, redrawn until
/// positive), `{ min = "1ms", max = "5ms" }` (uniform), `{ mixture = "lte-aerial" }` or `{ mixture = [{ weight = 0.8,
/// mean = "2ms", sd = "0.25ms" }] }` (normals, redrawn until positive), `{ median = "80ms", sigma = 1.2, max = "10s" }`
/// (lognormal), `{ pareto = "50ms", alpha = 1.2, max = "10s" }`, `{ exponentials = [{ weight = 0.8, mean = "2s" }] }`
/// (hyperexponential) or `{ quantiles = [[0, "0ms"], [0.5, "4ms"], [1, "90ms"]] }`. Each table takes `plus = "10ms"`,
/// which is added to every draw.
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
    /// Lognormal distribution.
    LogNormal {
        /// Median before truncation.
        median: Duration,
        /// Standard deviation of the logarithm before truncation.
        sigma: f64,
        /// Upper bound, at least the median; larger draws are repeated.
        max: Option<Duration>,
    },
    /// Pareto distribution, conditioned on at most `max`: P(X > x) = (from / x)^alpha before truncation.
    Pareto {
        /// Lower bound.
        from: Duration,
        /// Exponent of the tail.
        alpha: f64,
        /// Upper bound.
        max: Duration,
    },
    /// Hyperexponential distribution: a mixture of exponentials. As an interval it makes clusters.
    Exponentials(Vec<Phase>),
    /// Quantile function: probabilities with their values, linear between.
    Quantiles(Vec<(f64, Duration)>),
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

/// One exponential distribution of a hyperexponential one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Weight relative to the other phases; above zero.
    pub weight: f64,
    /// Mean.
    pub mean: Duration,
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
            Shape::LogNormal { median, sigma, max } => {
                if max.is_some_and(|max| max < *median) {
                    return Err("`max` lies below `median`".to_string());
                }
                !median.is_positive() || !is_shape(*sigma)
            }
            Shape::Pareto { from, alpha, max } => {
                if max <= from {
                    return Err("`max` must be above `pareto`".to_string());
                }
                !from.is_positive() || !is_shape(*alpha)
            }
            Shape::Exponentials(phases) => {
                let valid = |phase: &Phase| {
                    phase.weight > 0.0 && phase.weight.is_finite() && phase.mean.is_positive()
                };
                phases.is_empty() || !phases.iter().all(valid)
            }
            Shape::Quantiles(quantiles) => {
                quantile_table(quantiles).map_err(|problem| format!("`quantiles`: {problem}"))?;
                false
            }
        };
        if wrong || negative(self.plus) {
            return Err("means and weights must be above zero, spans not below zero".to_string());
        }
        Ok(())
    }

    /// Mean.
    pub fn mean(&self) -> Duration {
        self.sampler().mean()
    }

    /// Mean square in s².
    pub(crate) fn mean_square(&self) -> f64 {
        self.sampler().mean_square()
    }

    /// Returns endless draws from the stream `name`.
    pub fn draws(&self, seed: Seed, name: &str) -> impl Iterator<Item = Duration> + use<> {
        let (sampler, mut stream) = (self.sampler(), seed.stream(name));
        core::iter::repeat_with(move || sampler.draw(&mut stream))
    }
}

/// Whether `value` may be the exponent or the deviation of a distribution.
fn is_shape(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// Returns the quantile function in ns.
pub(crate) fn quantile_table(quantiles: &[(f64, Duration)]) -> Result<Quantiles, String> {
    Quantiles::new(quantiles.iter().map(|(p, time)| (*p, time.as_nanos() as f64)).collect())
}

/// Keys of a distribution's table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DistributionTable {
    pub mean: Option<Duration>,
    pub sd: Option<Duration>,
    pub min: Option<Duration>,
    pub max: Option<Duration>,
    pub mixture: Option<Mixture>,
    pub median: Option<Duration>,
    pub sigma: Option<f64>,
    pub pareto: Option<Duration>,
    pub alpha: Option<f64>,
    pub exponentials: Option<Vec<Phase>>,
    pub quantiles: Option<Vec<(f64, Duration)>>,
    pub plus: Option<Duration>,
}

impl DistributionTable {
    pub fn resolve(self) -> Result<Distribution, String> {
        let bounded = self.median.is_some() || self.pareto.is_some();
        let forms = [
            ("mean", self.mean.is_some()),
            ("min", self.min.is_some() || (self.max.is_some() && !bounded)),
            ("mixture", self.mixture.is_some()),
            ("median", self.median.is_some()),
            ("pareto", self.pareto.is_some()),
            ("exponentials", self.exponentials.is_some()),
            ("quantiles", self.quantiles.is_some()),
        ];
        only_one(&forms)?;
        let needs = [
            ("sd", "mean", self.sd.is_some() && self.mean.is_none()),
            ("sigma", "median", self.sigma.is_some() && self.median.is_none()),
            ("alpha", "pareto", self.alpha.is_some() && self.pareto.is_none()),
        ];
        if let Some((key, other, _)) = needs.iter().find(|(.., alone)| *alone) {
            return Err(format!("`{key}` needs `{other}`"));
        }
        let shape = if let Some(mean) = self.mean {
            match self.sd {
                Some(sd) => Shape::Normal { mean, sd },
                None => Shape::Exponential { mean },
            }
        } else if let Some(mixture) = self.mixture {
            Shape::Mixture(mixture)
        } else if let Some(median) = self.median {
            let sigma = self.sigma.ok_or("`median` needs `sigma`")?;
            Shape::LogNormal { median, sigma, max: self.max }
        } else if let Some(from) = self.pareto {
            let (Some(alpha), Some(max)) = (self.alpha, self.max) else {
                return Err("`pareto` needs `alpha` and `max`".to_string());
            };
            Shape::Pareto { from, alpha, max }
        } else if let Some(phases) = self.exponentials {
            Shape::Exponentials(phases)
        } else if let Some(quantiles) = self.quantiles {
            Shape::Quantiles(quantiles)
        } else if let (Some(min), Some(max)) = (self.min, self.max) {
            Shape::Uniform { min, max }
        } else {
            return Err("`min` and `max` belong together".to_string());
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
            Shape::LogNormal { median, sigma, max } => {
                (table.median, table.sigma, table.max) = (Some(*median), Some(*sigma), *max);
            }
            Shape::Pareto { from, alpha, max } => {
                (table.pareto, table.alpha, table.max) = (Some(*from), Some(*alpha), Some(*max));
            }
            Shape::Exponentials(phases) => table.exponentials = Some(phases.clone()),
            Shape::Quantiles(quantiles) => table.quantiles = Some(quantiles.clone()),
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

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "a time with a unit, or a table such as { mean = \"20s\", sd = \"4s\" }";
        let fixed = |text: &str| Duration::from_text(text).map(Self::fixed);
        text_or_table(from, expected, fixed, DistributionTable::resolve)
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
    use alloc::vec;
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
            Shape::LogNormal { median: ms(5), sigma: 0.0, max: None },
            Shape::LogNormal { median: ms(5), sigma: 1.0, max: Some(ms(4)) },
            Shape::Pareto { from: ms(5), alpha: 1.0, max: ms(5) },
            Shape::Exponentials(vec![]),
            Shape::Exponentials(vec![Phase { weight: 0.0, mean: ms(1) }]),
            Shape::Quantiles(vec![(0.0, ms(2)), (1.0, ms(1))]),
        ];
        for shape in bad {
            let distribution = Distribution { shape, plus: Duration::ZERO };
            assert!(distribution.check().is_err(), "{distribution:?}");
        }
    }
}
