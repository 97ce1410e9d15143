//! One-way latencies of paths, filtered.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::Duration;

use crate::PathId;
use crate::registry::Parameter;

pub(super) const FILTER: Parameter = Parameter {
    name: "filter",
    unit: "raw, kalman or directional",
    default: "raw",
    summary: "how samples of latency are smoothed",
};
pub(super) const KALMAN_Q: Parameter = Parameter {
    name: "kalman_q",
    unit: "ms²",
    default: "0.08",
    summary: "variance by which the latency is thought to move from sample to sample",
};
pub(super) const KALMAN_R: Parameter = Parameter {
    name: "kalman_r",
    unit: "ms²",
    default: "1.0",
    summary: "variance of a sample around the latency",
};
pub(super) const WINDOW: Parameter = Parameter {
    name: "window",
    unit: "samples",
    default: "5",
    summary: "memory of the directional filter",
};

/// How samples of latency are filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// The last sample counts.
    #[default]
    Raw,
    /// A Kalman filter of one state.
    Kalman,
    /// Up at once, down slowly: a larger sample counts in full; otherwise the mean of the means of
    /// the last samples and of the last answers.
    Directional,
}

/// A filter and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyRules {
    /// Which filter.
    pub filter: Filter,
    /// Process variance of the Kalman filter in ms².
    pub kalman_q: f64,
    /// Measurement variance of the Kalman filter in ms².
    pub kalman_r: f64,
    /// Samples that the directional filter remembers.
    pub window: usize,
}

impl Default for LatencyRules {
    fn default() -> Self {
        Self { filter: Filter::Raw, kalman_q: 0.08, kalman_r: 1.0, window: 5 }
    }
}

/// A filtered latency in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    value: f64,
    /// Variance of `value`.
    variance: f64,
    samples: VecDeque<f64>,
    answers: VecDeque<f64>,
}

impl Estimate {
    /// Begins with the first sample.
    pub fn new(sample: f64) -> Self {
        Self {
            value: sample,
            variance: 1.0,
            samples: VecDeque::from([sample]),
            answers: VecDeque::from([sample]),
        }
    }

    /// Takes another sample.
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
                remember(&mut self.samples, sample, rules.window);
                self.value = if sample > self.value {
                    sample
                } else {
                    f64::midpoint(mean(&self.samples), mean(&self.answers))
                };
                remember(&mut self.answers, self.value, rules.window);
            }
        }
    }
}

fn remember(window: &mut VecDeque<f64>, value: f64, most: usize) {
    window.push_back(value);
    while window.len() > most.max(1) {
        window.pop_front();
    }
}

fn mean(window: &VecDeque<f64>) -> f64 {
    window.iter().sum::<f64>() / window.len().max(1) as f64
}

/// The latencies of all paths.
#[derive(Debug)]
pub struct Latencies {
    rules: LatencyRules,
    paths: Vec<Option<Estimate>>,
}

impl Latencies {
    /// None known yet.
    pub fn new(rules: LatencyRules) -> Self {
        Self { rules, paths: Vec::new() }
    }

    /// Takes a sample.
    pub fn learn(&mut self, path: PathId, latency: Duration) {
        if self.paths.len() <= path.index() {
            self.paths.resize(path.index() + 1, None);
        }
        let Some(slot) = self.paths.get_mut(path.index()) else { return };
        let sample = latency.as_millis_f64();
        match slot {
            Some(estimate) => estimate.update(&self.rules, sample),
            None => *slot = Some(Estimate::new(sample)),
        }
    }

    /// A path's latency, if it is known.
    pub fn of(&self, path: PathId) -> Option<Duration> {
        self.paths.get(path.index())?.as_ref().map(from_millis)
    }

    /// The least and the most of the latencies that are known.
    pub fn range(&self) -> Option<(Duration, Duration)> {
        let mut known = self.paths.iter().flatten().map(from_millis);
        let first = known.next()?;
        Some(known.fold((first, first), |(least, most), it| (least.min(it), most.max(it))))
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
    fn the_kalman_filter_takes_half_of_the_first_step_and_less_of_the_next() {
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
    fn the_directional_filter_follows_a_rise_at_once_and_a_fall_slowly() {
        // Samples 10, 30, 10 and answers 10, 30: means 16.67 and 20.
        let values = filtered(Filter::Directional, 10.0, [30.0, 10.0]);
        assert_eq!(values[0], 30.0);
        assert!((values[1] - f64::midpoint(50.0 / 3.0, 20.0)).abs() < 1e-9, "{}", values[1]);
    }
}
