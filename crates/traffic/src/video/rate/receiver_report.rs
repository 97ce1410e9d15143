//! Loss alone: the fraction that each RTCP receiver report names as lost, smoothed, against two
//! thresholds.
//!
//! Source: Busse, Deffner, Schulzrinne, "Dynamic QoS control of multimedia applications based on
//! RTP", Computer Communications 19 (1996); RFC 3550 §6.4.1 for the fraction lost. From the paper:
//! the smoothing and its 0.3, the thresholds of 2 % and 4 % between unloaded, loaded and congested,
//! and the decrease to 0.875. Chosen here: a report each second (RTCP then had at least five), and
//! the step of 50 kbit/s. With `congested = "0%"` it stands for controls that take any loss for
//! congestion.

use skybraid_units::{Duration, Instant, Probability, Rate};

use super::history::{History, News};
use super::{Bounds, RateControl, RateError, Report, Sent, bps, range, rate};
use crate::about::Kind;

/// For `list` and the documentation.
pub const ABOUT: Kind = Kind {
    name: "receiver_report",
    summary: "Loss alone, from a receiver report each second: a step up below one threshold, a \
              factor down above another; delay counts for nothing.",
    parameters: &[
        ("interval", "time", "1s"),
        ("smoothing", "share of the newest report", "0.3"),
        ("unloaded", "loss", "2%"),
        ("congested", "loss", "4%"),
        ("decrease", "factor", "0.875"),
        ("increase", "bit/s", "50kbit/s"),
    ],
    source: "Busse, Deffner, Schulzrinne 1996; RFC 3550 §6.4.1",
};

/// How strongly loss counts.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// From one receiver report to the next.
    pub interval: Duration,
    /// What share the newest report has in the smoothed loss, above 0 to 1.
    pub smoothing: f64,
    /// Up to this loss the rate rises.
    pub unloaded: Probability,
    /// Above this loss the rate falls.
    pub congested: Probability,
    /// What is left of the rate when it falls, above 0 and below 1.
    pub decrease: f64,
    /// By how much the rate rises with a report.
    pub increase: Rate,
}

impl Default for Config {
    fn default() -> Self {
        let percent = |share| Probability::new(share).unwrap_or_default();
        Self {
            interval: Duration::from_secs(1),
            smoothing: 0.3,
            unloaded: percent(0.02),
            congested: percent(0.04),
            decrease: 0.875,
            increase: Rate::from_bps(50_000),
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), RateError> {
        range("interval", self.interval.is_positive(), "above zero")?;
        range("smoothing", self.smoothing > 0.0 && self.smoothing <= 1.0, "above 0 and at most 1")?;
        range("congested", self.unloaded <= self.congested, "at least `unloaded`")?;
        range("decrease", self.decrease > 0.0 && self.decrease < 1.0, "above 0 and below 1")
    }
}

/// Loss alone.
#[derive(Clone, Debug)]
pub struct ReceiverReport {
    config: Config,
    bounds: Bounds,
    history: History,
    expected: u32,
    lost: u32,
    /// Smoothed loss, 0 to 1.
    loss: f64,
    due: Option<Instant>,
    target: f64,
}

impl ReceiverReport {
    pub(super) fn new(config: &Config, bounds: &Bounds) -> Self {
        Self {
            config: config.clone(),
            bounds: *bounds,
            history: History::default(),
            expected: 0,
            lost: 0,
            loss: 0.0,
            due: None,
            target: bounds.first(),
        }
    }

    /// A receiver report says that this fraction of its interval was lost.
    fn reported(&mut self, fraction: f64) {
        let Config { smoothing, unloaded, congested, decrease, increase, .. } = &self.config;
        self.loss += smoothing * (fraction - self.loss);
        let target = if self.loss > congested.ratio() {
            self.target * decrease
        } else if self.loss <= unloaded.ratio() {
            self.target + bps(*increase)
        } else {
            self.target
        };
        self.target = self.bounds.hold(target);
    }
}

impl RateControl for ReceiverReport {
    fn sent(&mut self, now: Instant, packet: Sent) {
        self.history.sent(now, packet);
    }

    fn feedback(&mut self, now: Instant, report: &Report<'_>) {
        for (_, news) in self.history.news(now, report) {
            match news {
                News::Arrived(_) => self.expected += 1,
                News::Missing => {
                    self.expected += 1;
                    self.lost += 1;
                }
                News::Late { .. } => self.lost = self.lost.saturating_sub(1),
            }
        }
        let due = *self.due.get_or_insert(now + self.config.interval);
        if now >= due && self.expected > 0 {
            // RFC 3550 §6.4.1: eight bits, rounded down.
            let fraction = f64::from(self.lost * 256 / self.expected) / 256.0;
            self.due = Some(now + self.config.interval);
            self.expected = 0;
            self.lost = 0;
            self.reported(fraction);
        }
    }

    fn target(&self) -> Rate {
        rate(self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        least: Rate::from_bps(500_000),
        start: Rate::from_bps(2_000_000),
        most: Rate::from_bps(4_000_000),
    };

    // Source: Busse et al. 1996: λ ← 0.7 λ + 0.3 b. A tenth lost gives 3 %, 5.1 % and 6.57 %: loaded,
    // then congested; 4.599 % is congested still, 3.219 % is not.
    #[test]
    fn loss_is_smoothed_before_it_counts() {
        let mut control = ReceiverReport::new(&Config::default(), &BOUNDS);
        let mut after = |fraction| {
            control.reported(fraction);
            control.target().as_bps()
        };
        assert_eq!(after(0.0), 2_050_000);
        assert_eq!(after(0.1), 2_050_000);
        assert_eq!(after(0.1), 1_793_750);
        assert_eq!(after(0.1), 1_569_531);
        assert_eq!(after(0.0), 1_373_340);
        assert_eq!(after(0.0), 1_373_340);
    }

    #[test]
    fn the_target_stays_within_its_bounds() {
        let mut control = ReceiverReport::new(&Config::default(), &BOUNDS);
        for (fraction, limit) in [(1.0, BOUNDS.least), (0.0, BOUNDS.most)] {
            for _ in 0..200 {
                control.reported(fraction);
            }
            assert_eq!(control.target(), limit);
        }
    }
}
