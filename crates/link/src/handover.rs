//! Handovers: now and then the radio changes its cell and sends nothing meanwhile.
//!
//! A timeline of interruptions that depends on the seed and the path's name alone, so that both
//! directions, and all schedulers of a comparison, meet the same handovers.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Seed, Stream};

use crate::distribution::{Distribution, Sampler};

/// Keys of a `handover` table; what is absent comes from the preset or from the default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandoverConfig {
    /// Time from the start of a handover to the start of the next. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Distribution>,
    /// How long a handover takes, during which nothing is sent. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Distribution>,
    /// Shortest interval; shorter draws are repeated. 1 s unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Duration>,
}

/// Handovers, complete and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Handover {
    /// Time from the start of a handover to the start of the next.
    pub interval: Distribution,
    /// How long a handover takes.
    pub interruption: Distribution,
    /// Shortest interval.
    pub at_least: Duration,
}

impl HandoverConfig {
    pub(crate) fn resolve(&self) -> Result<Handover, (&'static str, String)> {
        let required = |value: &Option<Distribution>, key| {
            let value = value.clone().ok_or((key, "expected a distribution".to_string()))?;
            value.check().map_err(|wrong| (key, wrong))?;
            Ok(value)
        };
        let handover = Handover {
            interval: required(&self.interval, "interval")?,
            interruption: required(&self.interruption, "interruption")?,
            at_least: self.at_least.unwrap_or(Duration::from_secs(1)),
        };
        if !handover.at_least.is_positive() {
            return Err(("at_least", "expected a time above zero".to_string()));
        }
        if handover.interval.constant().is_some_and(|fixed| fixed < handover.at_least) {
            return Err(("interval", "expected at least `at_least`".to_string()));
        }
        Ok(handover)
    }
}

/// What remains for service between two handovers.
const LEAST_SERVICE: Duration = Duration::from_millis(1);

/// How often an interval below the shortest is drawn again before the shortest stands in for it.
const REDRAWS: u32 = 64;

/// The handovers of a path in time order, without end.
#[derive(Clone, Debug)]
pub(crate) struct HandoverTimeline {
    interval: Sampler,
    interruption: Sampler,
    at_least: Duration,
    intervals: Stream,
    interruptions: Stream,
    previous: (Instant, Instant),
}

impl HandoverTimeline {
    pub fn new(handover: &Handover, path: &str, seed: Seed) -> Self {
        Self {
            interval: handover.interval.sampler(),
            interruption: handover.interruption.sampler(),
            at_least: handover.at_least,
            intervals: seed.stream(&alloc::format!("{path}.handover")),
            interruptions: seed.stream(&alloc::format!("{path}.handover.interruption")),
            previous: (Instant::ZERO, Instant::ZERO),
        }
    }

    /// Start and end of the next handover. One that would begin before the last is over begins 1 ms
    /// after its end, so that service never stops for ever.
    pub fn next(&mut self) -> (Instant, Instant) {
        let mut interval = self.interval.draw(&mut self.intervals);
        for _ in 0..REDRAWS {
            if interval >= self.at_least {
                break;
            }
            interval = self.interval.draw(&mut self.intervals);
        }
        let (last_start, last_end) = self.previous;
        let start = (last_start + interval.max(self.at_least)).max(last_end + LEAST_SERVICE);
        let end = start + self.interruption.draw(&mut self.interruptions);
        self.previous = (start, end);
        self.previous
    }
}
