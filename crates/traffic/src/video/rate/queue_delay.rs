//! SCReAM's estimate of the network queue: its delay, the trend of the delay, and the target delay next to
//! competing flows.
//!
//! Source: RFC 8298 §4.1.2, §4.1.2.3; RFC 6817 §2.4.2 (LEDBAT) for the base delay. Choices where RFC 8298
//! leaves freedom: the delay is that of the newest packet of a report; its history for competing flows has 200
//! samples (§4.1.1.2 says 100, the code of §4.1.2.3 says 200).

use alloc::collections::VecDeque;

use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

/// `QDELAY_TARGET_HI` (RFC 8298 §4.1.1.1), in s.
const MAX_TARGET: f64 = 0.4;
/// `QDELAY_WEIGHT`.
const WEIGHT: f64 = 0.1;
/// Sampling interval of the trend, its number of samples, and the decay of its peak per sample
/// (§4.1.2).
const SAMPLE: Duration = Duration::from_millis(50);
const FRACTIONS: usize = 20;
const PEAK_HOLD: f64 = 0.99;
/// Number of samples of the variance and of the average; thresholds of the loss event rate and of the
/// variance (§4.1.2.3).
const VARIANCE_OVER: usize = 200;
const AVERAGE_OVER: usize = 50;
const LOSS_EVENTS: f64 = 0.002;
const STEADY: f64 = 0.2;
/// `BASE_HISTORY` (RFC 6817 §2.4.2): number of spans whose minimum delay is kept.
const BASE_HISTORY: usize = 10;

/// Minimum recent one-way delay, which is that of an empty queue.
#[derive(Clone, Debug)]
struct BaseDelay {
    span: Duration,
    minima: VecDeque<Duration>,
    next: Instant,
}

impl BaseDelay {
    /// Adds a sample and returns the base delay. Both contain the offset between the clocks.
    fn update(&mut self, now: Instant, one_way: Duration) -> Duration {
        match self.minima.back_mut() {
            Some(min) if now < self.next => *min = (*min).min(one_way),
            _ => {
                self.next = now + self.span;
                self.minima.push_back(one_way);
                if self.minima.len() > BASE_HISTORY {
                    self.minima.pop_front();
                }
            }
        }
        self.minima.iter().min().copied().promised("the minimum just recorded").unwrap_or(one_way)
    }
}

/// Delay of the network queue.
#[derive(Clone, Debug)]
pub(super) struct QueueDelay {
    base: BaseDelay,
    min_target: f64,
    /// `qdelay_target`, in s.
    pub target: f64,
    /// `qdelay`, in s.
    pub delay: f64,
    /// `qdelay_fraction_avg`, `qdelay_fraction_hist`.
    average: f64,
    fractions: VecDeque<f64>,
    /// `qdelay_trend`, 0 to 1.
    pub trend: f64,
    /// `qdelay_trend_mem`, 0 to 1.
    pub trend_peak: f64,
    next_sample: Option<Instant>,
    /// `qdelay_norm_hist`.
    norms: VecDeque<f64>,
}

impl QueueDelay {
    /// Creates an estimate with a target delay. A base delay expires after `history`.
    pub fn new(target: Duration, history: Duration) -> Self {
        let target = target.as_secs_f64();
        Self {
            base: BaseDelay {
                span: history / BASE_HISTORY as i64,
                minima: VecDeque::new(),
                next: Instant::ZERO,
            },
            min_target: target,
            target,
            delay: 0.0,
            average: 0.0,
            fractions: VecDeque::from([0.0; FRACTIONS]),
            trend: 0.0,
            trend_peak: 0.0,
            next_sample: None,
            norms: VecDeque::new(),
        }
    }

    /// Returns whether the delay exceeds the target.
    pub fn is_above_target(&self) -> bool {
        self.delay > self.target
    }

    /// Records the one-way delay of a packet, which contains the offset between the clocks.
    pub fn record(&mut self, now: Instant, one_way: Duration) {
        self.advance(now);
        self.delay = (one_way - self.base.update(now, one_way)).as_secs_f64();
    }

    /// Samples the last known delay up to `now`.
    pub fn advance(&mut self, now: Instant) {
        let mut next = *self.next_sample.get_or_insert(now);
        // More samples than the history holds would only repeat the last one.
        next = next.max(now - SAMPLE * FRACTIONS as i64);
        while next <= now {
            self.sample();
            next += SAMPLE;
        }
        self.next_sample = Some(next);
    }

    /// Adds a sample (§4.1.2, `update_variables`).
    fn sample(&mut self) {
        let fraction = self.delay / self.target;
        self.average = (1.0 - WEIGHT) * self.average + WEIGHT * fraction;
        self.fractions.pop_front();
        self.fractions.push_back(fraction);
        self.trend = (correlation(&self.fractions) * self.average).clamp(0.0, 1.0);
        self.trend_peak = (PEAK_HOLD * self.trend_peak).max(self.trend);
    }

    /// Adjusts the target delay to competing flows, with each report (§4.1.2.3, `adjust_qdelay_target`).
    pub fn adjust_target(&mut self, loss_event_rate: f64) {
        self.norms.push_back(self.delay / self.min_target);
        if self.norms.len() > VARIANCE_OVER {
            self.norms.pop_front();
        }
        let variance = {
            let mean = mean(self.norms.iter());
            mean_of(self.norms.iter().map(|norm| (norm - mean) * (norm - mean)))
        };
        let average = mean(self.norms.iter().rev().take(AVERAGE_OVER));
        let wanted = (average + libm::sqrt(variance)) * self.min_target;
        let target = if loss_event_rate > LOSS_EVENTS {
            1.5 * wanted
        } else if variance < STEADY {
            wanted
        } else if wanted < self.min_target {
            wanted.max(0.5 * self.target)
        } else {
            0.9 * self.target
        };
        self.target = target.min(MAX_TARGET).max(self.min_target);
    }
}

/// Returns the autocorrelation at lag one, R(x − mean, 1) / R(x − mean, 0); zero for a constant.
fn correlation(values: &VecDeque<f64>) -> f64 {
    let mean = mean(values.iter());
    let pairs = values.iter().zip(values.iter().skip(1));
    let lagged: f64 = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum();
    let power: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    if power > 1e-12 { lagged / power } else { 0.0 }
}

fn mean<'a>(values: impl ExactSizeIterator<Item = &'a f64>) -> f64 {
    mean_of(values.copied())
}

fn mean_of(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    fn queue() -> QueueDelay {
        QueueDelay::new(Duration::from_millis(100), Duration::from_secs(600))
    }

    // Source: RFC 6817 §2.4.2: the minimum of ten minutes; the eleventh minute drops the first.
    #[test]
    fn a_longer_path_counts_as_a_queue_until_the_base_expires() {
        let mut queue = queue();
        let mut at = |seconds: i64, millis| {
            queue.record(Instant::from_millis(1000 * seconds), Duration::from_millis(millis));
            libm::round(queue.delay * 1e3)
        };
        assert_eq!(at(0, -50_000), 0.0);
        assert_eq!(at(1, -49_970), 30.0);
        for minute in 1..10 {
            assert_eq!(at(60 * minute, -49_970), 30.0);
        }
        assert_eq!(at(600, -49_970), 0.0);
    }

    // Source: RFC 8298 §4.1.2: after one sample of 50 ms at a target of 100 ms the average is
    // 0.1 · 0.5; a lone last value x among 20 has mean m = x/20, R(0) = 19 m² + (x − m)² = 0.95 x² · … =
    // 0.2375, R(1) = 18 m² + (−m)(x − m) = 0.01125 − 0.011875: a negative correlation, no trend.
    #[test]
    fn a_single_long_delay_is_no_trend_a_rising_one_is() {
        let mut queue = queue();
        queue.delay = 0.05;
        queue.sample();
        assert!((queue.average - 0.05).abs() < 1e-12);
        assert!((correlation(&queue.fractions) - (0.01125 - 0.011875) / 0.2375).abs() < 1e-9);
        assert_eq!(queue.trend, 0.0);
        for tick in 0..20 {
            queue.delay = 0.01 * f64::from(tick);
            queue.sample();
        }
        assert!(queue.trend > 0.5);
        let peak = queue.trend_peak;
        queue.delay = 0.0;
        for _ in 0..40 {
            queue.sample();
        }
        assert_eq!(queue.trend, 0.0);
        assert!(queue.trend_peak < peak && queue.trend_peak > 0.6 * peak);
    }

    // The ramp 1 … 20 has R(1)/R(0) = 565.25 / 665.
    #[test]
    fn the_correlation_of_a_ramp_is_0_85() {
        let ramp = (1..=20).map(f64::from).collect();
        assert!((correlation(&ramp) - 565.25 / 665.0).abs() < 1e-12);
        assert_eq!(correlation(&VecDeque::from([0.3; 20])), 0.0);
    }

    // Source: RFC 8298 §4.1.2.3: a steady delay of 0.3 s looks like a competing flow's queue.
    #[test]
    fn a_steady_long_queue_raises_the_target_to_its_maximum() {
        let mut queue = queue();
        queue.delay = 0.3;
        for _ in 0..VARIANCE_OVER {
            queue.adjust_target(0.0);
        }
        assert!((queue.target - 0.3).abs() < 1e-9);
        queue.adjust_target(0.01);
        assert_eq!(queue.target, MAX_TARGET);
        queue.delay = 0.0;
        for _ in 0..VARIANCE_OVER {
            queue.adjust_target(0.0);
        }
        assert_eq!(queue.target, 0.1);
    }

    #[test]
    fn a_pause_is_sampled_at_most_as_long_as_the_history() {
        let mut queue = queue();
        queue.record(ms(0), Duration::ZERO);
        queue.delay = 0.1;
        queue.advance(ms(3_600_000));
        assert!((queue.average - (1.0 - libm::pow(0.9, 21.0))).abs() < 1e-12);
        assert_eq!(queue.next_sample, Some(ms(3_600_050)));
    }
}
