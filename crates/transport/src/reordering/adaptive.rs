//! Maximum wait that follows the difference between the paths' latencies.

use alloc::boxed::Box;

use skybraid_units::Duration;

use super::buffer::engine;
use super::{Engine, Filter, Latencies, LatencyRules, Reorderer, RttKind};
use crate::PathId;
use crate::registry::Compat;

engine! {
    name: "adaptive",
    summary: "Delivers in order, and waits for a missing datagram for the difference of latencies \
              between the slowest and the fastest path plus `offset`.",
    source: "RFC 9897 (MP_SEQ, MP_RTT); the reordering module of MP-DCCP for Linux",
    parameters: {
        offset: Duration = Duration::from_millis(5), "time", "5ms", "added to the difference of latencies";
        max: Duration = Duration::from_millis(100), "time", "100ms", "maximum wait";
        rtt: RttKind = RttKind::Raw, "raw, min, max or smoothed", "raw",
            "round-trip time that the sender reports (MP_RTT); a path's latency is half of it";
        filter: Filter = Filter::Raw, "raw, kalman or directional", "raw", "smoothing of latency samples";
        kalman_q: f64 = 0.08, "ms²", "0.08", "assumed variance of the change of latency between samples",
            "a number above zero" if *kalman_q > 0.0 && kalman_q.is_finite();
        kalman_r: f64 = 1.0, "ms²", "1.0", "assumed variance of a sample around the latency",
            "a number above zero" if *kalman_r > 0.0 && kalman_r.is_finite();
        window: usize = 5, "samples", "5", "memory of the directional filter",
            "1 to 1000" if (1..=1000).contains(window);
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
