//! A time for each path that makes up for its latency.

use alloc::boxed::Box;

use skybraid_units::Duration;

use super::{Engine, Latencies, Reorderer, RttKind, adaptive};
use crate::PathId;
use crate::registry::{About, Check, Wrong};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "equalised",
    summary: "Hands over in order; a datagram that came early waits as long as the slowest path is \
              behind its own, and a little longer: together with the path's latency the same time \
              on every path.",
    source: "the reordering module of MP-DCCP for Linux (delay equalisation)",
    linux: super::buffer::LINUX,
    parameters: adaptive::PARAMETERS,
};

/// The parameters of the [`adaptive`] engine.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(transparent)]
pub struct Config(pub adaptive::Config);

impl Config {
    /// A fresh instance.
    pub fn build(&self) -> Option<Reorderer> {
        let engine = Equalised { latencies: self.0.latencies(), config: self.0.clone() };
        Some(Reorderer::new(Box::new(engine), self.0.rules()))
    }
}

impl Check for Config {
    fn check(&self) -> Result<(), Wrong> {
        self.0.check()
    }
}

#[derive(Debug)]
struct Equalised {
    config: adaptive::Config,
    latencies: Latencies,
}

impl Engine for Equalised {
    fn limit(&self, path: PathId) -> Duration {
        let Some((_, most)) = self.latencies.range() else { return self.config.max };
        match self.latencies.of(path) {
            Some(own) => self.config.wait(most - own),
            None => self.config.max,
        }
    }

    fn learn(&mut self, path: PathId, latency: Duration) {
        self.latencies.learn(path, latency);
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
    fn a_path_twenty_milliseconds_ahead_of_the_slowest_is_held_for_twenty_five() {
        let config = adaptive::Config::default();
        let mut engine = Equalised { latencies: config.latencies(), config };
        engine.learn(PathId(0), Duration::from_millis(40));
        engine.learn(PathId(1), Duration::from_millis(60));
        assert_eq!(engine.limit(PathId(0)), Duration::from_millis(25));
        assert_eq!(engine.limit(PathId(1)), Duration::from_millis(5));
    }
}
