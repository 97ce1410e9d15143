//! A quantity that varies in time with a given marginal distribution and two time scales.
//!
//! A Gaussian copula: a slow and a fast standard normal autoregressive process of first order (an Ornstein–Uhlenbeck
//! process each, sampled at `step`) are added with the shares `slow_share` and `1 − slow_share` of the variance; the
//! sum is mapped to the marginal by its probability, `value = scale · Q(Φ(z)) + plus`. At lag `k` steps the normal
//! scores have the autocorrelation `slow_share · exp(−k step / slow) + (1 − slow_share) · exp(−k step / fast)`.
//!
//! Both parts may be correlated with those of the other direction, and the slow part with those of other paths: a
//! part is then a sum of its own process and of processes whose streams are shared.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant, Seed, Stream};

use crate::along::Factor;
use crate::quantiles::Quantiles;

/// Minimum step of a process.
const MIN_STEP: Duration = Duration::from_millis(1);

/// Keys of a process other than its quantiles; a missing key has the default of its quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessKeys {
    /// Correlation time of the slow part.
    pub slow: Option<Duration>,
    /// Correlation time of the fast part; zero makes steps independent.
    pub fast: Option<Duration>,
    /// Share of the variance that the slow part has, 0 to 1. Default: 0.5.
    pub slow_share: Option<f64>,
    /// Time for which a value holds, at least 1 ms.
    pub step: Option<Duration>,
    /// Factor on all quantiles, above zero. Default: 1.
    pub scale: Option<f64>,
    /// Correlation of the normal scores of both directions, 0 to 1. Default: 0.
    pub both_ways: Option<f64>,
}

/// Quantity that varies in time, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Marginal distribution before `scale` and `plus`, in bit/s or ns.
    pub quantiles: Arc<Quantiles>,
    /// Correlation time of the slow part.
    pub slow: Duration,
    /// Correlation time of the fast part.
    pub fast: Duration,
    /// Share of the variance that the slow part has.
    pub slow_share: f64,
    /// Time for which a value holds.
    pub step: Duration,
    /// Factor on all quantiles.
    pub scale: f64,
    /// Factor on all quantiles over time.
    pub factor: Factor,
    /// Constant added to all values, in the unit of the quantiles.
    pub plus: f64,
    /// Correlation of the normal scores of both directions, in both parts.
    pub both_ways: f64,
    /// Slow process shared with other paths.
    pub shared: Option<SharedSlow>,
}

/// Slow process that several paths share.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedSlow {
    /// Name of its random stream.
    pub stream: String,
    /// Correlation time.
    pub slow: Duration,
    /// Time for which a value holds.
    pub step: Duration,
    /// Correlation of the path's slow part with it, −1 to 1. The slow parts of two paths then have the product of
    /// their loadings as correlation.
    pub load: f64,
}

impl ProcessKeys {
    /// Returns the checked process of `quantiles` (bit/s or ns) with the defaults (slow, fast, step) of its quantity.
    pub(crate) fn resolve(
        &self,
        quantiles: Vec<(f64, f64)>,
        plus: f64,
        [slow, fast, step]: [Duration; 3],
    ) -> Result<Process, String> {
        let quantiles =
            Quantiles::new(quantiles).map_err(|problem| format!("`process`: {problem}"))?;
        let process = Process {
            quantiles: Arc::new(quantiles),
            slow: self.slow.unwrap_or(slow),
            fast: self.fast.unwrap_or(fast),
            slow_share: self.slow_share.unwrap_or(0.5),
            step: self.step.unwrap_or(step),
            scale: self.scale.unwrap_or(1.0),
            factor: Factor::default(),
            plus,
            both_ways: self.both_ways.unwrap_or(0.0),
            shared: None,
        };
        if process.slow < Duration::ZERO || process.fast < Duration::ZERO {
            return Err("`slow` and `fast`: expected a time, zero or more".to_string());
        }
        if process.step < MIN_STEP {
            return Err(format!("`step`: found {}, expected at least {MIN_STEP}", process.step));
        }
        for (key, share) in [("slow_share", process.slow_share), ("both_ways", process.both_ways)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("`{key}`: found {share}, expected 0 to 1"));
            }
        }
        if !(process.scale.is_finite() && process.scale > 0.0) {
            return Err(format!("`scale`: found {}, expected above zero", process.scale));
        }
        Ok(process)
    }
}

impl Process {
    /// Minimum value.
    pub fn min(&self) -> f64 {
        self.value(0.0)
    }

    /// Maximum value.
    pub fn max(&self) -> f64 {
        self.value(1.0)
    }

    /// Mean value over time.
    pub fn mean(&self) -> f64 {
        self.plus + self.scale * self.quantiles.mean()
    }

    /// Returns the value at the probability `p`.
    pub fn value(&self, p: f64) -> f64 {
        self.plus + self.scale * self.quantiles.at(p)
    }

    /// Whether the value ever changes.
    pub fn varies(&self) -> bool {
        self.min() < self.max()
    }
}

/// Probability that a standard normal variable is below `z`.
pub(crate) fn normal_probability(z: f64) -> f64 {
    0.5 * libm::erfc(-z * core::f64::consts::FRAC_1_SQRT_2)
}

/// Returns the loading on a common factor that gives each two of several normal scores the rank correlation `rank`, 0
/// to 1: the root of their correlation `2 sin(π rank / 6)` (Pearson 1907).
pub fn loading_of_rank_correlation(rank: f64) -> f64 {
    libm::sqrt((2.0 * libm::sin(core::f64::consts::PI * rank / 6.0)).clamp(0.0, 1.0))
}

/// Standard normal autoregressive process of first order, whose value holds for a step.
#[derive(Clone, Debug)]
struct Autoregressive {
    keep: f64,
    noise: f64,
    step: i64,
    /// End of the current value, in ns.
    until: i64,
    value: f64,
    stream: Stream,
}

impl Autoregressive {
    fn new(correlation: Duration, step: Duration, seed: Seed, name: &str) -> Self {
        let ratio = step.as_secs_f64() / correlation.as_secs_f64();
        let keep = if correlation.is_positive() { libm::exp(-ratio) } else { 0.0 };
        let mut stream = seed.stream(name);
        let value = stream.standard_normal();
        let step = step.as_nanos().max(1);
        Self { keep, noise: libm::sqrt(1.0 - keep * keep), step, until: step, value, stream }
    }

    /// Returns the value at `at` (ns). Each step is drawn, so that values do not depend on the queries.
    fn at(&mut self, at: i64) -> f64 {
        while at >= self.until {
            self.value = self.keep * self.value + self.noise * self.stream.standard_normal();
            self.until = self.until.saturating_add(self.step);
        }
        self.value
    }
}

/// Cursor over a [`Process`]. Queries must be in order of time.
#[derive(Clone, Debug)]
pub(crate) struct ProcessCursor {
    process: Process,
    /// Processes with their weights in the normal score.
    parts: Vec<(f64, Autoregressive)>,
    /// End of the current value, in ns.
    until: i64,
    value: f64,
}

impl ProcessCursor {
    /// Creates the cursor of one direction's process. `own` names the streams of the direction, `both` those that
    /// both directions share.
    pub fn new(process: &Process, seed: Seed, own: &str, both: &str) -> Self {
        let Process { slow, fast, step, slow_share, .. } = *process;
        let shared = process.shared.as_ref();
        let load = shared.map_or(0.0, |shared| shared.load.clamp(-1.0, 1.0));
        // Both directions load on the process of the group, which correlates them by the square of the loading.
        let both_slow = (process.both_ways - load * load).max(0.0);
        let own_slow = (1.0 - load * load - both_slow).max(0.0);
        // A part by its share of the variance of the normal score.
        let part = |share: f64, correlation, step, name: &str| {
            let weight = libm::sqrt(share);
            (share > 0.0).then(|| (weight, Autoregressive::new(correlation, step, seed, name)))
        };
        let of_group = shared.and_then(|group| {
            let share = slow_share * load * load;
            let (weight, part) = part(share, group.slow, group.step, &group.stream)?;
            Some((libm::copysign(weight, load), part))
        });
        let (both_fast, own_fast) = (process.both_ways, 1.0 - process.both_ways);
        let fast_share = 1.0 - slow_share;
        let parts = [
            of_group,
            part(slow_share * both_slow, slow, step, &format!("{both}.slow")),
            part(slow_share * own_slow, slow, step, &format!("{own}.slow")),
            part(fast_share * both_fast, fast, step, &format!("{both}.fast")),
            part(fast_share * own_fast, fast, step, &format!("{own}.fast")),
        ];
        let parts = parts.into_iter().flatten().collect();
        let mut cursor = Self { process: process.clone(), parts, until: 0, value: 0.0 };
        cursor.advance(0);
        cursor
    }

    /// Returns the value at `at`, with the instant until which it holds.
    #[inline]
    pub fn at(&mut self, at: Instant) -> (f64, Instant) {
        if at.as_nanos() >= self.until {
            self.advance(at.as_nanos());
        }
        (self.value, Instant::from_nanos(self.until))
    }

    /// Minimum value.
    pub fn min(&self) -> f64 {
        self.process.min()
    }

    fn advance(&mut self, at: i64) {
        let step = self.process.step.as_nanos().max(1);
        let start = at.max(0) / step * step;
        let score: f64 = self.parts.iter_mut().map(|(weight, part)| *weight * part.at(start)).sum();
        let quantile = self.process.quantiles.at(normal_probability(score));
        let factor = self.process.factor.at(Instant::from_nanos(start));
        self.value = self.process.plus + self.process.scale * factor * quantile;
        self.until = start.saturating_add(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn uniform(keys: ProcessKeys) -> Process {
        let defaults = [30, 2, 1].map(Duration::from_secs);
        keys.resolve(vec![(0.0, 0.0), (1.0, 1.0)], 0.0, defaults).unwrap()
    }

    fn values(process: &Process, seed: u64, own: &str, count: i64) -> Vec<f64> {
        let mut cursor = ProcessCursor::new(process, Seed(seed), own, "p.rate");
        (0..count).map(|second| cursor.at(Instant::ZERO + Duration::from_secs(second)).0).collect()
    }

    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (mean_a, mean_b) = (mean(a), mean(b));
        let pairs = || a.iter().zip(b).map(|(a, b)| (a - mean_a, b - mean_b));
        let cross: f64 = pairs().map(|(a, b)| a * b).sum();
        let (aa, bb): (f64, f64) =
            pairs().fold((0.0, 0.0), |(aa, bb), (a, b)| (aa + a * a, bb + b * b));
        cross / libm::sqrt(aa * bb)
    }

    /// Rank correlation of a bivariate normal with correlation `r`: Pearson 1907.
    fn rank_correlation(r: f64) -> f64 {
        6.0 / core::f64::consts::PI * libm::asin(r / 2.0)
    }

    #[test]
    fn autocorrelation_is_that_of_two_time_scales() {
        let keys = ProcessKeys {
            slow: Some(Duration::from_secs(30)),
            fast: Some(Duration::from_secs(2)),
            slow_share: Some(0.6),
            ..ProcessKeys::default()
        };
        let drawn = values(&uniform(keys), 3, "p.uplink.rate", 1_000_000);
        for lag in [1usize, 5, 15, 30, 60] {
            let k = lag as f64;
            let scores = 0.6 * libm::exp(-k / 30.0) + 0.4 * libm::exp(-k / 2.0);
            let found = correlation(&drawn[..drawn.len() - lag], &drawn[lag..]);
            // A correlation time of 30 s leaves some 16 000 independent values: a standard error of 0.008.
            assert!((found - rank_correlation(scores)).abs() < 0.025, "{found} at {lag}");
        }
    }

    #[test]
    fn the_marginal_is_that_of_the_table() {
        let table = vec![(0.0, 0.0), (0.05, 0.0), (0.5, 20.0), (0.9, 30.0), (1.0, 50.0)];
        let defaults = [10, 1, 1].map(Duration::from_secs);
        let keys = ProcessKeys { scale: Some(2.0), ..ProcessKeys::default() };
        let process = keys.resolve(table, 3.0, defaults).unwrap();
        let drawn = values(&process, 5, "p.uplink.rate", 1_000_000);
        let share = |below: f64| {
            drawn.iter().filter(|value| **value <= below).count() as f64 / drawn.len() as f64
        };
        for (value, expected) in [(3.0, 0.05), (43.0, 0.5), (63.0, 0.9), (103.0, 1.0)] {
            assert!((share(value) - expected).abs() < 0.01, "{} at {value}", share(value));
        }
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean / process.mean() - 1.0).abs() < 0.01, "{mean} of {}", process.mean());
        assert_eq!((process.min(), process.max()), (3.0, 103.0));
    }

    #[test]
    fn runs_of_a_white_process_are_geometric() {
        let keys =
            ProcessKeys { slow_share: Some(0.0), fast: Some(Duration::ZERO), ..Default::default() };
        let drawn = values(&uniform(keys), 9, "p.uplink.rate", 400_000);
        let starts = drawn.windows(2).filter(|pair| pair[0] >= 0.2 && pair[1] < 0.2).count();
        let below = drawn.iter().filter(|value| **value < 0.2).count();
        // Runs below the lowest fifth have the mean length 1 / 0.8.
        let mean = below as f64 / starts as f64;
        assert!((mean - 1.25).abs() < 0.01, "{mean}");
    }

    #[test]
    fn values_do_not_depend_on_the_queries() {
        let process = uniform(ProcessKeys::default());
        let mut every = ProcessCursor::new(&process, Seed(1), "p.uplink.rate", "p.rate");
        let mut rare = every.clone();
        for second in 0..1000 {
            let at = Instant::ZERO + Duration::from_secs(second);
            let value = every.at(at + Duration::from_millis(300));
            if second % 97 == 0 {
                assert_eq!(rare.at(at + Duration::from_millis(900)), value);
            }
            assert_eq!(value.1, at + Duration::from_secs(1));
        }
    }

    #[test]
    fn directions_and_paths_have_their_correlations() {
        let slow_only = |load, both_ways| {
            let keys = ProcessKeys {
                slow: Some(Duration::from_secs(5)),
                slow_share: Some(1.0),
                both_ways: Some(both_ways),
                ..ProcessKeys::default()
            };
            let (slow, step) = (Duration::from_secs(5), Duration::from_secs(1));
            let stream = "correlation.0".to_string();
            let shared = Some(SharedSlow { stream, slow, step, load });
            Process { shared, ..uniform(keys) }
        };
        let count = 400_000;
        let a = values(&slow_only(0.8, 0.0), 1, "a.uplink.rate", count);
        let b = values(&slow_only(0.5, 0.0), 1, "b.uplink.rate", count);
        let c = values(&slow_only(-0.5, 0.0), 1, "c.uplink.rate", count);
        let up = values(&slow_only(0.3, 0.7), 1, "d.uplink.rate", count);
        let down = values(&slow_only(0.3, 0.7), 1, "d.downlink.rate", count);
        for (pair, expected) in [((&a, &b), 0.4), ((&a, &c), -0.4), ((&up, &down), 0.7)] {
            let found = correlation(pair.0, pair.1);
            assert!((found - rank_correlation(expected)).abs() < 0.02, "{found} for {expected}");
        }
    }

    #[test]
    fn the_loading_of_a_rank_correlation_gives_it_back() {
        for rank in [0.0, 0.25, 0.46, 1.0] {
            let load = loading_of_rank_correlation(rank);
            assert!((rank_correlation(load * load) - rank).abs() < 1e-9, "{rank}");
        }
    }

    #[test]
    fn an_invalid_key_is_named_in_the_error() {
        let defaults = [30, 2, 1].map(Duration::from_secs);
        let table = vec![(0.0, 0.0), (1.0, 1.0)];
        for (key, keys) in [
            ("slow_share", ProcessKeys { slow_share: Some(1.5), ..Default::default() }),
            ("scale", ProcessKeys { scale: Some(0.0), ..Default::default() }),
            ("both_ways", ProcessKeys { both_ways: Some(f64::NAN), ..Default::default() }),
            ("step", ProcessKeys { step: Some(Duration::ZERO), ..Default::default() }),
            ("slow", ProcessKeys { slow: Some(Duration::from_secs(-1)), ..Default::default() }),
        ] {
            let error = keys.resolve(table.clone(), 0.0, defaults).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
        let error = ProcessKeys::default().resolve(Vec::new(), 0.0, defaults).unwrap_err();
        assert!(error.starts_with("`process`"), "{error}");
    }
}
