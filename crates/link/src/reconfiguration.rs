//! The global reconfiguration of a satellite constellation such as Starlink: at fixed instants, every
//! terminal may be given another satellite. Delay steps, service pauses, and some packets are lost.
//!
//! Boundaries lie at `phase + k · every` (12, 27, 42 and 57 s past the minute: Tanveer et al.,
//! HotNets 2023). A boundary belongs to the epoch that it begins. As for handovers, epochs depend on
//! seed and path alone.

use alloc::format;
use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Probability, Seed, Stream};

use crate::distribution::{Distribution, Sampler};

/// Keys of a `reconfiguration` table; what is absent comes from the preset or from the default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReconfigurationConfig {
    /// Time between boundaries; 15 s unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// Instant of the first boundary, less than `every`; 12 s unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Duration>,
    /// Added to the delay throughout an epoch, drawn anew at each boundary; none unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_step: Option<Distribution>,
    /// How long nothing is sent from a boundary on; none unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Distribution>,
    /// Probability of loss right after a boundary; zero unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Probability>,
    /// How long that lasts; 100 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_for: Option<Duration>,
}

/// Reconfiguration, complete and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconfiguration {
    /// Time between boundaries.
    pub every: Duration,
    /// Instant of the first boundary.
    pub phase: Duration,
    /// Added to the delay throughout an epoch.
    pub delay_step: Distribution,
    /// How long nothing is sent from a boundary on.
    pub interruption: Distribution,
    /// Probability of loss right after a boundary.
    pub loss: Probability,
    /// How long that lasts.
    pub loss_for: Duration,
}

impl ReconfigurationConfig {
    pub(crate) fn resolve(&self) -> Result<Reconfiguration, (&'static str, String)> {
        let or_none = |value: &Option<Distribution>, key| {
            let value = value.clone().unwrap_or(Distribution::fixed(Duration::ZERO));
            value.check().map_err(|wrong| (key, wrong))?;
            Ok(value)
        };
        let reconfiguration = Reconfiguration {
            every: self.every.unwrap_or(Duration::from_secs(15)),
            phase: self.phase.unwrap_or(Duration::from_secs(12)),
            delay_step: or_none(&self.delay_step, "delay_step")?,
            interruption: or_none(&self.interruption, "interruption")?,
            loss: self.loss.unwrap_or(Probability::ZERO),
            loss_for: self.loss_for.unwrap_or(Duration::from_millis(100)),
        };
        if !reconfiguration.every.is_positive() {
            return Err(("every", "expected a time above zero".to_string()));
        }
        if !(Duration::ZERO..reconfiguration.every).contains(&reconfiguration.phase) {
            return Err(("phase", "expected at least zero and less than `every`".to_string()));
        }
        if reconfiguration.interruption.constant().is_some_and(|it| it >= reconfiguration.every) {
            return Err(("interruption", "expected less than `every`".to_string()));
        }
        Ok(reconfiguration)
    }
}

/// The interruptions at the boundaries, in time order, without end.
#[derive(Clone, Debug)]
pub(crate) struct BoundaryTimeline {
    every: Duration,
    next: Instant,
    interruption: Sampler,
    stream: Stream,
}

impl BoundaryTimeline {
    pub fn new(config: &Reconfiguration, path: &str, seed: Seed) -> Self {
        Self {
            every: config.every,
            next: Instant::ZERO + config.phase,
            interruption: config.interruption.sampler(),
            stream: seed.stream(&format!("{path}.reconfiguration.interruption")),
        }
    }

    /// Start and end of the next interruption, which leaves at least a thousandth of the time to the
    /// next boundary for service.
    pub fn next(&mut self) -> (Instant, Instant) {
        let start = self.next;
        self.next += self.every;
        let longest = self.every - self.every / 1000;
        (start, start + self.interruption.draw(&mut self.stream).min(longest))
    }
}

/// The epochs between boundaries: delay step and loss. Instants asked for must not decrease.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    every: Duration,
    loss: Probability,
    loss_for: Duration,
    delay_step: Sampler,
    steps: Stream,
    losses: Stream,
    started: Option<Instant>,
    next: Instant,
    step: Duration,
}

impl Epochs {
    pub fn new(config: &Reconfiguration, path: &str, direction: &str, seed: Seed) -> Self {
        let delay_step = config.delay_step.sampler();
        let mut steps = seed.stream(&format!("{path}.reconfiguration.delay"));
        let step = delay_step.draw(&mut steps);
        Self {
            every: config.every,
            loss: config.loss,
            loss_for: config.loss_for,
            delay_step,
            steps,
            losses: seed.stream(&format!("{path}.{direction}.reconfiguration.loss")),
            started: None,
            next: Instant::ZERO + config.phase,
            step,
        }
    }

    fn advance(&mut self, at: Instant) {
        while at >= self.next && self.next < Instant::FAR_FUTURE {
            self.started = Some(self.next);
            self.next += self.every;
            self.step = self.delay_step.draw(&mut self.steps);
        }
    }

    /// Added to the delay of packets that leave at `at`.
    pub fn delay_step(&mut self, at: Instant) -> Duration {
        self.advance(at);
        self.step
    }

    /// Probability of loss of packets that leave at `at`.
    pub fn loss(&mut self, at: Instant) -> Probability {
        self.advance(at);
        let fresh = self.started.is_some_and(|start| at - start < self.loss_for);
        if fresh { self.loss } else { Probability::ZERO }
    }

    /// Whether a packet that leaves at `at` is lost to the reconfiguration.
    pub fn loses(&mut self, at: Instant) -> bool {
        let loss = self.loss(at);
        self.losses.chance(loss)
    }
}
