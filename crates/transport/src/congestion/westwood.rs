//! Westwood with adaptive bandwidth share estimation: after a loss the window falls to the measured
//! capacity of the path, so that losses of a radio link do not slow it down.
//!
//! Source: Mascolo et al., TCP Westwood (2001); Wang, Valla, Sanadidi, Gerla, Adaptive bandwidth
//! share estimation in TCP Westwood (2002). Selectively acknowledged data counts as delivered;
//! without SACK a duplicate acknowledgement does not show how much has arrived, and the estimate
//! waits until the hole is filled.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration};

use super::eligible_rate::{EligibleRate, Rules};
use super::reno::{self, Reno};
use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Siblings};
use crate::algorithm;

algorithm! {
    name: "westwood",
    summary: "Westwood (ABSE): estimates the rate of acknowledged data and, after a loss, sets the \
              window to that rate times the minimum round-trip time instead of halving it. Grows \
              like New Reno.",
    source: "Mascolo et al., MobiCom 2001; Wang, Valla, Sanadidi and Gerla, GLOBECOM 2002",
    parameters: {
        filter: Filter = Filter::Abse, "abse or tustin", "abse",
            "adaptive estimation, or the filter of 2001: samples are averaged in pairs and filtered \
             with a fixed time constant, with an empty sample after half of it without \
             acknowledgements";
        adaptive_interval: bool = true, "true or false", "true",
            "sample over up to a round-trip time during congestion (abse)";
        adaptive_gain: bool = true, "true or false", "true",
            "follow an unstable rate more slowly (abse)";
        t_min: Duration = Duration::ZERO, "time", "0s",
            "minimum duration of a sample, or the time since the last acknowledgement if longer";
        tau: Duration = Duration::from_millis(500), "time", "500ms",
            "time constant of the filter without adaptive gain",
            "a time above zero" if tau.is_positive();
        n: f64 = 10.0, "round-trip times", "10",
            "maximum that instability adds to the adaptive time constant of one",
            "a number of at least zero" if *n >= 0.0 && n.is_finite();
        beta: f64 = 0.6, "ratio", "0.6", "memory of the instability filter",
            "a number from 0 to below 1" if (0.0..1.0).contains(beta);
        u_window: u32 = 10, "samples", "10",
            "number of values from which the maximum instability is taken",
            "at least 1" if *u_window > 0;
    }
}

/// Filter of the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Adaptive bandwidth share estimation (2002).
    #[default]
    Abse,
    /// The first filter, discretised by Tustin's rule (2001).
    Tustin,
}

impl Config {
    /// Builds a new instance. Parameters outside their range are replaced by the defaults.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let usual = Self::default();
        let config = if self.check().is_ok() { self } else { &usual };
        let abse = config.filter == Filter::Abse;
        Box::new(Westwood {
            reno: Reno::new(&reno::Config::default(), path),
            rate: EligibleRate::new(Rules {
                tustin: !abse,
                adaptive_interval: abse && config.adaptive_interval,
                adaptive_gain: abse && config.adaptive_gain,
                t_min: config.t_min.as_secs_f64(),
                tau: config.tau.as_secs_f64(),
                n: config.n,
                beta: config.beta,
                u_window: config.u_window as usize,
            }),
            min_rtt: None,
        })
    }
}

#[derive(Debug)]
struct Westwood {
    reno: Reno,
    rate: EligibleRate,
    min_rtt: Option<Duration>,
}

impl Westwood {
    /// Capacity of the path without a queue, in bytes.
    fn pipe(&self) -> Option<u64> {
        let rate = self.rate.get()?;
        Some((rate * self.min_rtt?.as_secs_f64()) as u64)
    }
}

impl Congestion for Westwood {
    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        if let Some(rtt) = acked.rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        }
        let min_rtt = self.min_rtt.unwrap_or(acked.srtt).as_secs_f64();
        self.rate.on_delivery(acked, min_rtt, self.reno.window as f64);
    }

    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        self.reno.on_ack(acked, siblings);
    }

    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>) {
        match self.pipe() {
            Some(pipe) => self.reno.reduce_to(pipe),
            None => self.reno.on_loss(lost, siblings),
        }
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>) {
        match self.pipe() {
            Some(pipe) => self.reno.restart_towards(pipe),
            None => self.reno.on_timeout(lost, repeated, siblings),
        }
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.reno.on_idle(idle);
    }

    fn on_spurious(&mut self, before: &ControlState) {
        self.reno.on_spurious(before);
    }

    window_of!(reno);
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Instant;

    /// Returns a flow that delivers a segment per millisecond with a round-trip time of `rtt_ms`.
    fn measured(window: u64, rtt_ms: i64) -> Box<dyn Congestion> {
        let mut control = Config::default().build(&PathBasics::in_test(
            Bytes::new(1000),
            Bytes::new(window * 1000),
            Bytes::new(0),
        ));
        for step in 1..100 {
            let acked = Acked {
                now: Instant::from_millis(step),
                bytes: Bytes::new(1000),
                delivered: Bytes::new(1000 * step as u64),
                srtt: Duration::from_millis(rtt_ms),
                rtt: Some(Duration::from_millis(rtt_ms)),
                ..Acked::default()
            };
            control.on_delivery(&acked, Siblings::default());
        }
        control
    }

    const LOST: Lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(10_000) };

    /// Returns threshold and window in bytes.
    fn state(control: &dyn Congestion) -> (u64, u64) {
        (control.slow_start_threshold().get(), control.window().get())
    }

    // Source: palazzi2007 PAL-T3.
    #[test]
    fn a_loss_leaves_the_path_s_capacity_but_never_more() {
        for (window, after) in [(80, (40_000, 40_000)), (30, (40_000, 30_000))] {
            let mut control = measured(window, 40);
            control.on_loss(&LOST, Siblings::default());
            assert_eq!(state(&*control), after);
        }
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_the_capacity_as_threshold() {
        for (rtt_ms, threshold) in [(40, 40_000), (1, 2_000)] {
            let mut control = measured(80, rtt_ms);
            control.on_timeout(&LOST, false, Siblings::default());
            assert_eq!(state(&*control), (threshold, 1000));
        }
    }

    #[test]
    fn a_loss_before_any_measurement_halves_the_window() {
        let mut control = Config::default().build(&PathBasics::in_test(
            Bytes::new(1000),
            Bytes::new(10_000),
            Bytes::new(u64::MAX),
        ));
        control.on_loss(&LOST, Siblings::default());
        assert_eq!(state(&*control), (5000, 5000));
    }
}
