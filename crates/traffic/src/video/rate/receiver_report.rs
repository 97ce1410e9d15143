//! Loss-based rate control: the fraction lost of each RTCP receiver report, smoothed and compared with two
//! thresholds.
//!
//! Source: Busse, Deffner, Schulzrinne, "Dynamic QoS control of multimedia applications based on
//! RTP", Computer Communications 19 (1996); RFC 3550 §6.4.1 for the fraction lost. From the paper:
//! the smoothing and its 0.3, the thresholds of 2 % and 4 % between unloaded, loaded and congested,
//! and the decrease to 0.875. Chosen here: a report each second (the minimum interval of RTCP was five at the
//! time), and the step of 50 kbit/s. With `congested = "0%"` it represents controls that take any loss for
//! congestion.

use skybraid_units::{Duration, Instant, Probability, Rate, keys};

use super::history::{History, Update};
use super::{Bounds, RateControl, RateError, Report, Sent, bps, range, rate};
use crate::about::Kind;

/// Registry entry.
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

keys! {
    /// Parameters of loss-based control.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Config {
        /// Interval between receiver reports.
        pub interval: Duration = Duration::from_secs(1),
        /// Weight of the newest report in the smoothed loss, above 0 to 1.
        pub smoothing: f64 = 0.3,
        /// Loss up to which the rate rises.
        pub unloaded: Probability = Probability::saturating(0.02),
        /// Loss above which the rate falls.
        pub congested: Probability = Probability::saturating(0.04),
        /// Factor on the rate when it falls, above 0 and below 1.
        pub decrease: f64 = 0.875,
        /// Rise of the rate with a report.
        pub increase: Rate = Rate::from_bps(50_000),
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

/// Loss-based rate control.
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

    /// Handles a receiver report with the fraction lost since the previous one.
    fn on_receiver_report(&mut self, fraction: f64) {
        let Config { smoothing, unloaded, congested, decrease, increase, .. } = &self.config;
        self.loss += smoothing * (fraction - self.loss);
        let target = if self.loss > congested.ratio() {
            self.target * decrease
        } else if self.loss <= unloaded.ratio() {
            self.target + bps(*increase)
        } else {
            self.target
        };
        self.target = self.bounds.clamp(target);
    }
}

impl RateControl for ReceiverReport {
    fn on_sent(&mut self, now: Instant, packet: Sent) {
        self.history.on_sent(now, packet);
    }

    fn on_feedback(&mut self, now: Instant, report: &Report<'_>) {
        for (_, update) in self.history.updates(now, report) {
            match update {
                Update::Arrived(_) => self.expected += 1,
                Update::Missing => {
                    self.expected += 1;
                    self.lost += 1;
                }
                Update::Late { .. } => self.lost = self.lost.saturating_sub(1),
            }
        }
        let due = *self.due.get_or_insert(now + self.config.interval);
        if now >= due && self.expected > 0 {
            // RFC 3550 §6.4.1: eight bits, rounded down.
            let fraction = f64::from(self.lost * 256 / self.expected) / 256.0;
            self.due = Some(now + self.config.interval);
            self.expected = 0;
            self.lost = 0;
            self.on_receiver_report(fraction);
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
        min: Rate::from_bps(500_000),
        start: Rate::from_bps(2_000_000),
        max: Rate::from_bps(4_000_000),
    };

    // Source: Busse et al. 1996: λ ← 0.7 λ + 0.3 b. A tenth lost gives 3 %, 5.1 % and 6.57 %: loaded,
    // then congested; 4.599 % is congested still, 3.219 % is not.
    #[test]
    fn loss_is_smoothed_before_it_is_compared() {
        let mut control = ReceiverReport::new(&Config::default(), &BOUNDS);
        let mut after = |fraction| {
            control.on_receiver_report(fraction);
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
        for (fraction, limit) in [(1.0, BOUNDS.min), (0.0, BOUNDS.max)] {
            for _ in 0..200 {
                control.on_receiver_report(fraction);
            }
            assert_eq!(control.target(), limit);
        }
    }
}
