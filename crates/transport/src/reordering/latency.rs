//! Filtered one-way latencies of paths.

use alloc::collections::VecDeque;

use skybraid_units::Duration;

use crate::PathId;
use crate::per_path::PerPath;

/// Filter of latency samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Uses the last sample.
    #[default]
    Raw,
    /// Kalman filter with one state.
    Kalman,
    /// Rises at once, falls slowly: a larger sample is used as it is; otherwise the mean of two
    /// means, of the last samples and of the last results.
    Directional,
}

/// Filter and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyRules {
    /// Filter to use.
    pub filter: Filter,
    /// Process variance of the Kalman filter in ms².
    pub kalman_q: f64,
    /// Measurement variance of the Kalman filter in ms².
    pub kalman_r: f64,
    /// Window of the directional filter in samples.
    pub window: usize,
}

impl Default for LatencyRules {
    fn default() -> Self {
        Self { filter: Filter::Raw, kalman_q: 0.08, kalman_r: 1.0, window: 5 }
    }
}

/// Filtered latency of a path in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    value: f64,
    /// Variance of `value`.
    variance: f64,
    samples: VecDeque<f64>,
    results: VecDeque<f64>,
}

impl Estimate {
    /// Starts the estimate with the first sample.
    pub fn new(sample: f64) -> Self {
        Self {
            value: sample,
            variance: 1.0,
            samples: VecDeque::from([sample]),
            results: VecDeque::from([sample]),
        }
    }

    /// Adds a sample.
    pub fn update(&mut self, rules: &LatencyRules, sample: f64) {
        match rules.filter {
            Filter::Raw => self.value = sample,
            Filter::Kalman => {
                let predicted = self.variance + rules.kalman_q;
                let gain = predicted / (predicted + rules.kalman_r);
                self.value += gain * (sample - self.value);
                self.variance = (1.0 - gain) * predicted;
            }
            Filter::Directional => {
                push(&mut self.samples, sample, rules.window);
                self.value = if sample > self.value {
                    sample
                } else {
                    f64::midpoint(mean(&self.samples), mean(&self.results))
                };
                push(&mut self.results, self.value, rules.window);
            }
        }
    }
}

fn push(window: &mut VecDeque<f64>, value: f64, max_len: usize) {
    window.push_back(value);
    while window.len() > max_len.max(1) {
        window.pop_front();
    }
}

fn mean(window: &VecDeque<f64>) -> f64 {
    window.iter().sum::<f64>() / window.len().max(1) as f64
}

/// Latencies of all paths.
#[derive(Debug)]
pub struct Latencies {
    rules: LatencyRules,
    paths: PerPath<Option<Estimate>>,
}

impl Latencies {
    /// Creates a set without known latencies.
    pub fn new(rules: LatencyRules) -> Self {
        Self { rules, paths: PerPath::new(None) }
    }

    /// Adds a sample.
    pub fn add(&mut self, path: PathId, latency: Duration) {
        let sample = latency.as_millis_f64();
        match &mut self.paths[path] {
            Some(estimate) => estimate.update(&self.rules, sample),
            unknown => *unknown = Some(Estimate::new(sample)),
        }
    }

    /// Latency of a path, if known.
    pub fn of(&self, path: PathId) -> Option<Duration> {
        self.paths[path].as_ref().map(from_millis)
    }

    /// Minimum and maximum of the known latencies.
    pub fn range(&self) -> Option<(Duration, Duration)> {
        let mut known = self.paths.iter().flatten().map(from_millis);
        let first = known.next()?;
        Some(known.fold((first, first), |(min, max), value| (min.min(value), max.max(value))))
    }
}

fn from_millis(estimate: &Estimate) -> Duration {
    Duration::from_secs_f64(estimate.value / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered<const N: usize>(filter: Filter, first: f64, samples: [f64; N]) -> [f64; N] {
        let rules = LatencyRules { filter, ..LatencyRules::default() };
        let mut estimate = Estimate::new(first);
        samples.map(|sample| {
            estimate.update(&rules, sample);
            estimate.value
        })
    }

    // Source: the vectors of the algorithm reference, §7.3.
    #[test]
    fn the_kalman_filter_takes_half_of_the_first_step() {
        let values = filtered(Filter::Kalman, 50.0, [60.0; 3]);
        for (value, expected) in values.iter().zip([55.19, 56.99, 57.93]) {
            assert!((value - expected).abs() < 0.01, "{value}");
        }
    }

    #[test]
    fn the_kalman_gain_settles_at_its_steady_state() {
        let rules = LatencyRules { filter: Filter::Kalman, ..LatencyRules::default() };
        let mut estimate = Estimate::new(0.0);
        for _ in 0..100 {
            estimate.update(&rules, 0.0);
        }
        estimate.update(&rules, 1.0);
        assert!((estimate.value - 0.2457).abs() < 1e-4, "{}", estimate.value);
    }

    #[test]
    fn the_directional_filter_rises_at_once_and_falls_slowly() {
        // Samples 10, 30, 10 and results 10, 30: means 16.67 and 20.
        let values = filtered(Filter::Directional, 10.0, [30.0, 10.0]);
        assert_eq!(values[0], 30.0);
        assert!((values[1] - f64::midpoint(50.0 / 3.0, 20.0)).abs() < 1e-9, "{}", values[1]);
    }
}
