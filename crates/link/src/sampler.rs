//! Draws from distributions of a duration.

use alloc::vec;
use alloc::vec::Vec;

use skybraid_units::{Duration, Promised, Stream};

use crate::distribution::{Distribution, Shape, quantile_table};
use crate::process::normal_probability;
use crate::quantiles::{Quantiles, uniform_square};

/// Maximum number of redraws of a value that must be positive or below a maximum, after which the mean or the median
/// is used. At least half of the draws are valid.
const MAX_REDRAWS: u32 = 64;

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
    LogNormal {
        median: f64,
        sigma: f64,
        max: f64,
    },
    /// Lower bound, exponent, upper bound.
    Pareto(f64, f64, f64),
    /// Weight and mean; the weights sum to one.
    Exponentials(Vec<(f64, f64)>),
    Quantiles(Quantiles),
}

impl Distribution {
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
            Shape::LogNormal { median, sigma, max } => Kind::LogNormal {
                median: nanos(*median),
                sigma: *sigma,
                max: max.map_or(f64::INFINITY, nanos),
            },
            Shape::Pareto { from, alpha, max } => Kind::Pareto(nanos(*from), *alpha, nanos(*max)),
            Shape::Exponentials(phases) => {
                let total: f64 = phases.iter().map(|phase| phase.weight).sum();
                let weighted = phases.iter().map(|phase| (phase.weight / total, nanos(phase.mean)));
                Kind::Exponentials(weighted.collect())
            }
            Shape::Quantiles(quantiles) => {
                let table = quantile_table(quantiles).ok().promised("a checked quantile table");
                table.map_or(Kind::Fixed(Duration::ZERO), Kind::Quantiles)
            }
        };
        Sampler { kind, plus: self.plus }
    }
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
            Kind::LogNormal { median, sigma, max } => {
                let draw = |_| median * libm::exp(sigma * stream.standard_normal());
                let valid = (0..MAX_REDRAWS).map(draw).find(|draw| draw <= max);
                from_nanos(valid.unwrap_or(*median))
            }
            Kind::Pareto(from, alpha, max) => {
                let beyond = libm::pow(from / max, *alpha);
                let tail = beyond + (1.0 - beyond) * (1.0 - stream.unit());
                from_nanos(from * libm::pow(tail, -1.0 / alpha))
            }
            Kind::Exponentials(phases) => {
                exponential_of(phases.iter().map(|(weight, mean)| (*weight, *mean)), stream)
            }
            Kind::Quantiles(table) => from_nanos(table.at(stream.unit())),
        };
        (span + self.plus).max(Duration::ZERO)
    }

    /// Draws what remains, at a random time, of an interval with this distribution, if it is a mixture of
    /// exponentials: a phase is then met in proportion to its share of time. Otherwise draws a whole interval.
    pub fn remaining(&self, stream: &mut Stream) -> Duration {
        let Kind::Exponentials(phases) = &self.kind else { return self.draw(stream) };
        let mean: f64 = phases.iter().map(|(weight, mean)| weight * mean).sum();
        exponential_of(phases.iter().map(|(weight, own)| (weight * own / mean, *own)), stream)
    }

    /// Lower bound of all draws.
    pub fn min(&self) -> Duration {
        let span = match &self.kind {
            Kind::Fixed(span) => *span,
            Kind::Uniform(min, _) | Kind::Pareto(min, ..) => from_nanos(*min),
            Kind::Quantiles(table) => from_nanos(table.min()),
            Kind::Exponential(_)
            | Kind::Normals(_)
            | Kind::LogNormal { .. }
            | Kind::Exponentials(_) => Duration::ZERO,
        };
        (span + self.plus).max(Duration::ZERO)
    }

    /// Mean of the draws.
    pub fn mean(&self) -> Duration {
        let span = match &self.kind {
            Kind::Fixed(span) => *span,
            Kind::Exponential(mean) => from_nanos(*mean),
            Kind::Uniform(min, max) => from_nanos(f64::midpoint(*min, *max)),
            Kind::Normals(normals) => from_nanos(mean_of(normals, positive_normal_mean)),
            Kind::LogNormal { median, sigma, max } => {
                from_nanos(log_normal_moment(*median, *sigma, *max, 1.0))
            }
            Kind::Pareto(from, alpha, max) => from_nanos(pareto_moment(*from, *alpha, *max, 1.0)),
            Kind::Exponentials(phases) => {
                from_nanos(phases.iter().map(|(weight, mean)| weight * mean).sum())
            }
            Kind::Quantiles(table) => from_nanos(table.mean()),
        };
        (span + self.plus).max(Duration::ZERO)
    }

    /// Mean square of the draws in s².
    pub fn mean_square(&self) -> f64 {
        let square = match &self.kind {
            Kind::Fixed(span) => square(span.as_nanos() as f64),
            Kind::Exponential(mean) => 2.0 * square(*mean),
            Kind::Uniform(min, max) => uniform_square(*min, *max),
            Kind::Normals(normals) => {
                mean_of(normals, |mean, sd| mean * positive_normal_mean(mean, sd) + square(sd))
            }
            Kind::LogNormal { median, sigma, max } => log_normal_moment(*median, *sigma, *max, 2.0),
            Kind::Pareto(from, alpha, max) => pareto_moment(*from, *alpha, *max, 2.0),
            Kind::Exponentials(phases) => {
                phases.iter().map(|(weight, mean)| weight * 2.0 * square(*mean)).sum()
            }
            Kind::Quantiles(table) => table.mean_square(),
        };
        let (mean, plus) = (self.mean().as_secs_f64(), self.plus.as_secs_f64());
        square * 1e-18 + plus * (2.0 * mean - plus)
    }
}

fn square(value: f64) -> f64 {
    value * value
}

/// Returns the mean over a mixture of normals (cumulative weight, mean, standard deviation).
fn mean_of(normals: &[(f64, f64, f64)], of: impl Fn(f64, f64) -> f64) -> f64 {
    let (mut sum, mut below) = (0.0, 0.0);
    for (up_to, mean, sd) in normals {
        sum += (up_to - below) * of(*mean, *sd);
        below = *up_to;
    }
    sum
}

/// Returns the mean of a power of a lognormal value of at most `max`.
fn log_normal_moment(median: f64, sigma: f64, max: f64, power: f64) -> f64 {
    let cut = libm::log(max / median) / sigma;
    let kept = normal_probability(cut - power * sigma) / normal_probability(cut);
    libm::pow(median, power) * libm::exp(0.5 * power * power * sigma * sigma) * kept
}

/// Returns the mean of a power of a Pareto value of at most `max`.
fn pareto_moment(from: f64, alpha: f64, max: f64, power: f64) -> f64 {
    let ratio = from / max;
    let beyond = 1.0 - libm::pow(ratio, alpha);
    let least = libm::pow(from, power);
    if (alpha - power).abs() < 1e-9 {
        return least * alpha * -libm::log(ratio) / beyond;
    }
    least * alpha / (alpha - power) * (1.0 - libm::pow(ratio, alpha - power)) / beyond
}

/// Draws from a mixture of exponentials (weight, mean) whose weights sum to one.
fn exponential_of(phases: impl Iterator<Item = (f64, f64)>, stream: &mut Stream) -> Duration {
    let mut place = stream.unit();
    let mut chosen = 0.0;
    for (weight, mean) in phases {
        chosen = mean;
        if place < weight {
            break;
        }
        place -= weight;
    }
    from_nanos(stream.exponential(chosen))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Phase;
    use skybraid_units::Seed;

    const COUNT: usize = 400_000;

    fn of(shape: Shape) -> Sampler {
        Distribution { shape, plus: Duration::ZERO }.sampler()
    }

    /// Draws in ms, in ascending order.
    fn draws(draw: impl Fn(&mut Stream) -> Duration) -> Vec<f64> {
        let mut stream = Seed(11).stream("draws");
        let mut drawn: Vec<f64> = (0..COUNT).map(|_| draw(&mut stream).as_millis_f64()).collect();
        drawn.sort_by(f64::total_cmp);
        drawn
    }

    fn share_above(drawn: &[f64], value: f64) -> f64 {
        1.0 - drawn.partition_point(|draw| *draw <= value) as f64 / drawn.len() as f64
    }

    fn near(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() < within, "found {found}, expected {expected}");
    }

    fn mean(drawn: &[f64]) -> f64 {
        drawn.iter().sum::<f64>() / drawn.len() as f64
    }

    /// Mean square of draws in ms, in s².
    fn mean_square(drawn: &[f64]) -> f64 {
        drawn.iter().map(|ms| square(ms * 1e-3)).sum::<f64>() / drawn.len() as f64
    }

    const fn ms(millis: i64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn mean_squares_are_those_of_the_draws() {
        let components = vec![
            crate::distribution::Component { weight: 3.0, mean: ms(100), sd: ms(20) },
            crate::distribution::Component { weight: 1.0, mean: ms(50), sd: ms(200) },
        ];
        for shape in [
            Shape::Fixed(ms(70)),
            Shape::Exponential { mean: ms(70) },
            Shape::Uniform { min: ms(20), max: ms(90) },
            Shape::Mixture(crate::distribution::Mixture::Components(components)),
            Shape::LogNormal { median: ms(80), sigma: 0.5, max: None },
            Shape::LogNormal { median: ms(80), sigma: 1.5, max: Some(ms(500)) },
            Shape::Pareto { from: ms(50), alpha: 1.1, max: ms(2_000) },
            Shape::Pareto { from: ms(50), alpha: 2.0, max: ms(2_000) },
            Shape::Exponentials(vec![
                Phase { weight: 3.0, mean: ms(100) },
                Phase { weight: 1.0, mean: ms(500) },
            ]),
            Shape::Quantiles(vec![(0.0, ms(1)), (0.9, ms(10)), (1.0, ms(110))]),
        ] {
            for plus in [ms(0), ms(30)] {
                let sampler = Distribution { shape: shape.clone(), plus }.sampler();
                let drawn = draws(|stream| sampler.draw(stream));
                // Of 400,000 draws; the standard error is below 0.7 %.
                near(mean_square(&drawn) / sampler.mean_square(), 1.0, 0.02);
            }
        }
    }

    #[test]
    fn a_lognormal_has_its_median_spread_and_mean() {
        let plain = of(Shape::LogNormal { median: ms(80), sigma: 0.5, max: None });
        let drawn = draws(|stream| plain.draw(stream));
        near(drawn[COUNT / 2], 80.0, 0.3);
        // One standard deviation above: Φ(1) = 0.8413.
        near(share_above(&drawn, 80.0 * libm::exp(0.5)), 1.0 - 0.841_345, 0.003);
        near(plain.mean().as_millis_f64(), 80.0 * libm::exp(0.125), 1e-3);
        near(mean(&drawn), 80.0 * libm::exp(0.125), 0.3);
        let cut = of(Shape::LogNormal { median: ms(80), sigma: 1.5, max: Some(ms(500)) });
        let drawn = draws(|stream| cut.draw(stream));
        assert!(drawn.last().is_some_and(|last| *last <= 500.0));
        near(mean(&drawn), cut.mean().as_millis_f64(), 0.7);
    }

    #[test]
    fn a_pareto_has_its_tail_up_to_the_maximum() {
        for alpha in [0.7, 1.0, 1.6] {
            let sampler = of(Shape::Pareto { from: ms(50), alpha, max: ms(10_000) });
            let drawn = draws(|stream| sampler.draw(stream));
            let beyond = libm::pow(50.0 / 10_000.0, alpha);
            for value in [100.0, 500.0, 5000.0] {
                let expected = (libm::pow(50.0 / value, alpha) - beyond) / (1.0 - beyond);
                near(share_above(&drawn, value), expected, 0.003);
            }
            near(mean(&drawn) / sampler.mean().as_millis_f64(), 1.0, 0.03);
            assert!(drawn[0] >= 50.0 && drawn[COUNT - 1] <= 10_000.0);
        }
    }

    #[test]
    fn a_hyperexponential_has_its_moments_and_remainder() {
        let phases =
            vec![Phase { weight: 3.0, mean: ms(100) }, Phase { weight: 1.0, mean: ms(1000) }];
        let sampler = of(Shape::Exponentials(phases));
        let drawn = draws(|stream| sampler.draw(stream));
        // E[X²] = 2 (0.75 · 100² + 0.25 · 1000²): four standard errors are 4.05 ms.
        near(mean(&drawn), 325.0, 4.05);
        near(sampler.mean().as_millis_f64(), 325.0, 1e-6);
        let survival = |weight: f64, t: f64| {
            weight * libm::exp(-t / 100.0) + (1.0 - weight) * libm::exp(-t / 1000.0)
        };
        near(share_above(&drawn, 400.0), survival(0.75, 400.0), 0.003);
        // At a random time a phase is met by its share of time: 75 of 325 and 250 of 325.
        let left = draws(|stream| sampler.remaining(stream));
        near(share_above(&left, 400.0), survival(75.0 / 325.0, 400.0), 0.003);
    }

    #[test]
    fn draws_follow_a_table_of_quantiles() {
        let table = vec![(0.0, ms(1)), (0.9, ms(10)), (1.0, ms(110))];
        let sampler = of(Shape::Quantiles(table));
        let drawn = draws(|stream| sampler.draw(stream));
        near(share_above(&drawn, 10.0), 0.1, 0.003);
        near(share_above(&drawn, 60.0), 0.05, 0.003);
        near(mean(&drawn), 0.9 * 5.5 + 0.1 * 60.0, 0.1);
        assert_eq!(sampler.min(), ms(1));
    }
}
