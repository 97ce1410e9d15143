//! Maximum wait that follows the difference between the paths' latencies.

use alloc::boxed::Box;
use alloc::string::ToString;

use skybraid_units::Duration;

use super::buffer::{CAPACITY, COMPAT, DROP_LATE, LINUX, LOSS_INFERENCE};
use super::latency::{FILTER, KALMAN_Q, KALMAN_R, WINDOW};
use super::{Engine, Filter, Latencies, LatencyRules, Reorderer, RttKind, Rules};
use crate::PathId;
use crate::registry::{About, Check, Compat, InvalidParameter, Parameter};

/// Parameters of this engine and of the `equalised` engine.
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "offset",
        unit: "time",
        default: "5ms",
        summary: "added to the difference of latencies",
    },
    Parameter { name: "max", unit: "time", default: "100ms", summary: "maximum wait" },
    Parameter {
        name: "rtt",
        unit: "raw, min, max or smoothed",
        default: "raw",
        summary: "round-trip time that the sender reports (MP_RTT); a path's latency is half of it",
    },
    FILTER,
    KALMAN_Q,
    KALMAN_R,
    WINDOW,
    LOSS_INFERENCE,
    DROP_LATE,
    CAPACITY,
    COMPAT,
];

/// See [`Config`].
pub const ABOUT: About = About {
    name: "adaptive",
    summary: "Delivers in order, and waits for a missing datagram for the difference of latencies \
              between the slowest and the fastest path plus `offset`.",
    source: "RFC 9897 (MP_SEQ, MP_RTT); the reordering module of MP-DCCP for Linux",
    linux: LINUX,
    parameters: PARAMETERS,
};

/// Parameters of the engine.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time added to the difference of latencies.
    pub offset: Duration,
    /// Maximum wait, whatever the latencies.
    pub max: Duration,
    /// Kind of round-trip time that the sender reports.
    pub rtt: RttKind,
    /// Filter of the latency samples.
    pub filter: Filter,
    /// See [`LatencyRules::kalman_q`].
    pub kalman_q: f64,
    /// See [`LatencyRules::kalman_r`].
    pub kalman_r: f64,
    /// See [`LatencyRules::window`].
    pub window: usize,
    /// See [`Rules::loss_inference`].
    pub loss_inference: u8,
    /// See [`Rules::drop_late`].
    pub drop_late: bool,
    /// See [`Rules::capacity`].
    pub capacity: usize,
    /// Reference behaviour.
    pub compat: Compat,
}

impl Default for Config {
    fn default() -> Self {
        let (rules, latency) = (Rules::default(), LatencyRules::default());
        Self {
            offset: Duration::from_millis(5),
            max: Duration::from_millis(100),
            rtt: RttKind::Raw,
            filter: latency.filter,
            kalman_q: latency.kalman_q,
            kalman_r: latency.kalman_r,
            window: latency.window,
            loss_inference: rules.loss_inference,
            drop_late: rules.drop_late,
            capacity: rules.capacity,
            compat: rules.compat,
        }
    }
}

impl Config {
    pub(super) fn latencies(&self) -> Latencies {
        Latencies::new(LatencyRules {
            filter: self.filter,
            kalman_q: self.kalman_q,
            kalman_r: self.kalman_r,
            window: self.window,
        })
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            loss_inference: self.loss_inference,
            drop_late: self.drop_late,
            capacity: self.capacity,
            compat: self.compat,
        }
    }

    /// Returns the maximum wait for a difference of latencies.
    pub(super) fn wait(&self, difference: Duration) -> Duration {
        (difference + self.offset).min(self.max)
    }

    /// Builds a new instance.
    pub fn build(&self) -> Option<Reorderer> {
        let engine = Adaptive { latencies: self.latencies(), config: self.clone() };
        Some(Reorderer::new(Box::new(engine), self.rules()))
    }
}

impl Check for Config {
    fn check(&self) -> Result<(), InvalidParameter> {
        let above_zero = |value: f64| value > 0.0 && value.is_finite();
        if !above_zero(self.kalman_q) {
            return Err(("kalman_q", "expected a number above zero".to_string()));
        }
        if !above_zero(self.kalman_r) {
            return Err(("kalman_r", "expected a number above zero".to_string()));
        }
        if !(1..=1000).contains(&self.window) {
            return Err(("window", "expected 1 to 1000".to_string()));
        }
        self.rules().check()
    }

    fn use_linux_behaviour(&mut self) {
        self.compat = Compat::Linux;
    }
}

#[derive(Debug)]
struct Adaptive {
    config: Config,
    latencies: Latencies,
}

impl Engine for Adaptive {
    fn max_wait(&self, _path: PathId) -> Duration {
        let Some((min, max)) = self.latencies.range() else { return self.config.max };
        // Telekom's kernel module initialises its minimum latency to zero, where it stays.
        let min = if self.config.compat == Compat::Linux { Duration::ZERO } else { min };
        self.config.wait(max - min)
    }

    fn on_latency(&mut self, path: PathId, latency: Duration) {
        self.latencies.add(path, latency);
    }

    fn wants_rtt(&self) -> Option<RttKind> {
        Some(self.config.rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn max_wait_ms(config: Config, latencies_ms: &[i64]) -> f64 {
        let mut engine = Adaptive { latencies: config.latencies(), config };
        for (path, ms) in latencies_ms.iter().enumerate() {
            engine.on_latency(PathId(path as u8), Duration::from_millis(*ms));
        }
        engine.max_wait(PathId(0)).as_millis_f64()
    }

    // Source: the vectors of the algorithm reference, §7.3 and §9.9.
    #[test]
    fn the_wait_is_the_latency_difference_plus_offset_up_to_max() {
        assert_eq!(max_wait_ms(Config::default(), &[60, 20]), 45.0);
        assert_eq!(max_wait_ms(Config::default(), &[150, 20]), 100.0);
        let linux = Config { compat: Compat::Linux, ..Config::default() };
        assert_eq!(max_wait_ms(linux, &[60, 20]), 65.0);
    }

    // Source: RFC 9897 by way of the algorithm reference, §7.1: half the difference of the
    // round-trip times, here 100 and 40 ms.
    #[test]
    fn without_an_offset_the_wait_is_the_rfc_s_loss_inference() {
        let config = Config { offset: Duration::ZERO, ..Config::default() };
        assert_eq!(max_wait_ms(config, &[50, 20]), 30.0);
    }

    #[test]
    fn the_wait_is_the_maximum_without_a_known_latency() {
        assert_eq!(max_wait_ms(Config::default(), &[]), 100.0);
    }
}
