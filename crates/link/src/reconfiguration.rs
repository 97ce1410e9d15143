//! Global reconfiguration of a satellite constellation such as Starlink: at fixed instants every terminal may be
//! assigned another satellite. The delay steps, service pauses, and some packets are lost.
//!
//! Boundaries are at `phase + k · every` (12, 27, 42 and 57 s past the minute: Tanveer et al., HotNets 2023). A
//! boundary belongs to the epoch that it begins. Like handovers, epochs depend on seed and path alone.

use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Probability, Seed, Stream, expect};

use crate::distribution::Distribution;
use crate::sampler::Sampler;

/// Keys of a `reconfiguration` table; missing keys come from the preset, else from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReconfigurationConfig {
    /// Time between boundaries. Default: 15 s.
    pub every: Option<Duration>,
    /// Instant of the first boundary, less than `every`. Default: 12 s.
    pub phase: Option<Duration>,
    /// Extra delay throughout an epoch, drawn at each boundary. Default: none.
    pub delay_step: Option<Distribution>,
    /// Duration of the service pause after a boundary. Default: none.
    pub interruption: Option<Distribution>,
    /// Loss probability after a boundary. Default: zero.
    pub loss: Option<Probability>,
    /// Duration of that loss. Default: 100 ms.
    pub loss_for: Option<Duration>,
}

/// Reconfiguration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconfiguration {
    /// Time between boundaries.
    pub every: Duration,
    /// Instant of the first boundary.
    pub phase: Duration,
    /// Extra delay throughout an epoch.
    pub delay_step: Distribution,
    /// Duration of the service pause after a boundary.
    pub interruption: Distribution,
    /// Loss probability after a boundary.
    pub loss: Probability,
    /// Duration of that loss.
    pub loss_for: Duration,
}

impl ReconfigurationConfig {
    pub(crate) fn resolve(&self) -> Result<Reconfiguration, (&'static str, String)> {
        let or_none = |value: &Option<Distribution>, key| {
            let value = value.clone().unwrap_or(Distribution::fixed(Duration::ZERO));
            value.check().map_err(|problem| (key, problem))?;
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
        expect(reconfiguration.every.is_positive(), "every", "a time above zero")?;
        expect(
            (Duration::ZERO..reconfiguration.every).contains(&reconfiguration.phase),
            "phase",
            "at least zero and less than `every`",
        )?;
        let interruption = reconfiguration.interruption.constant();
        expect(
            interruption.is_none_or(|interruption| interruption < reconfiguration.every),
            "interruption",
            "less than `every`",
        )?;
        Ok(reconfiguration)
    }
}

/// Endless sequence of the interruptions at boundaries, in order of time.
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

    /// Returns start and end of the next interruption, which leaves at least a thousandth of the interval for
    /// service.
    pub fn next(&mut self) -> (Instant, Instant) {
        let start = self.next;
        self.next += self.every;
        let max = self.every - self.every / 1000;
        (start, start + self.interruption.draw(&mut self.stream).min(max))
    }
}

/// Epochs between boundaries: delay step and loss. Queries must be in order of time.
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

    #[inline]
    fn advance(&mut self, at: Instant) {
        while at >= self.next && self.next < Instant::FAR_FUTURE {
            self.started = Some(self.next);
            self.next += self.every;
            self.step = self.delay_step.draw(&mut self.steps);
        }
    }

    /// Returns the extra delay of packets that depart at `at`.
    pub fn delay_step(&mut self, at: Instant) -> Duration {
        self.advance(at);
        self.step
    }

    /// Returns the loss probability of packets that depart at `at`.
    pub fn loss(&mut self, at: Instant) -> Probability {
        self.advance(at);
        let recent = self.started.is_some_and(|start| at - start < self.loss_for);
        if recent { self.loss } else { Probability::ZERO }
    }

    /// Draws whether a packet that departs at `at` is lost to the reconfiguration. Without losses nothing is drawn.
    pub fn on_sent(&mut self, at: Instant) -> bool {
        if self.loss == Probability::ZERO {
            return false;
        }
        let loss = self.loss(at);
        self.losses.chance(loss)
    }
}
