//! Maximum wait per path that equalises the paths' latencies.

use alloc::boxed::Box;

use skybraid_units::Duration;

use super::{Engine, Latencies, Reorderer, RttKind, adaptive};
use crate::PathId;
use crate::registry::{About, InvalidParameter};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "equalised",
    summary: "Delivers in order; a datagram that arrived early waits for the difference of \
              latencies between the slowest path and its own plus `offset`, so that latency and \
              wait add up to the same time on every path.",
    source: "the reordering module of MP-DCCP for Linux (delay equalisation)",
    linux: super::buffer::LINUX,
    parameters: adaptive::ABOUT.parameters,
};

/// The parameters of the [`adaptive`] engine.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(transparent)]
pub struct Config(pub adaptive::Config);

impl Config {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// Returns the first parameter that is outside its range.
    pub fn check(&self) -> Result<(), InvalidParameter> {
        self.0.check()
    }

    /// Sets `compat = "linux"`.
    pub fn use_linux_behaviour(&mut self) {
        self.0.use_linux_behaviour();
    }

    /// Builds a new instance.
    pub fn build(&self) -> Option<Reorderer> {
        let engine = Equalised { latencies: self.0.latencies(), config: self.0.clone() };
        Some(Reorderer::new(Box::new(engine), self.0.rules()))
    }
}

#[derive(Debug)]
struct Equalised {
    config: adaptive::Config,
    latencies: Latencies,
}

impl Engine for Equalised {
    fn max_wait(&self, path: PathId) -> Duration {
        let Some((_, max)) = self.latencies.range() else { return self.config.max };
        match self.latencies.of(path) {
            Some(own) => self.config.wait(max - own),
            None => self.config.max,
        }
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

    // Source: the vectors of the algorithm reference, §7.3 and §9.9.
    #[test]
    fn the_wait_on_a_path_equalises_its_latency() {
        let config = adaptive::Config::default();
        let mut engine = Equalised { latencies: config.latencies(), config };
        engine.on_latency(PathId(0), Duration::from_millis(40));
        engine.on_latency(PathId(1), Duration::from_millis(60));
        assert_eq!(engine.max_wait(PathId(0)), Duration::from_millis(25));
        assert_eq!(engine.max_wait(PathId(1)), Duration::from_millis(5));
    }
}
