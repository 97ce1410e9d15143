//! Handovers: interruptions during which the radio changes its cell.
//!
//! The timeline depends on the seed and the path's name alone, so both directions, and all schedulers of a
//! comparison, see the same handovers.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Seed, Stream};

use crate::distribution::{Distribution, Sampler};

/// Keys of a `handover` table; missing keys come from the preset, else from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandoverConfig {
    /// Time between the starts of consecutive handovers. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Distribution>,
    /// Duration of a handover, during which nothing is sent. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Distribution>,
    /// Minimum interval; smaller draws are repeated. Default: 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Duration>,
}

/// Handovers, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Handover {
    /// Time between the starts of consecutive handovers.
    pub interval: Distribution,
    /// Duration of a handover.
    pub interruption: Distribution,
    /// Minimum interval.
    pub at_least: Duration,
}

impl HandoverConfig {
    pub(crate) fn resolve(&self) -> Result<Handover, (&'static str, String)> {
        let required = |value: &Option<Distribution>, key| {
            let value = value.clone().ok_or((key, "expected a distribution".to_string()))?;
            value.check().map_err(|problem| (key, problem))?;
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

/// Minimum time of service between two handovers.
const MIN_SERVICE: Duration = Duration::from_millis(1);

/// Maximum number of redraws of an interval below the minimum, after which the minimum is used.
const MAX_REDRAWS: u32 = 64;

/// Endless sequence of a path's handovers, in order of time.
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

    /// Returns start and end of the next handover. A handover that would overlap the previous one starts 1 ms after
    /// its end, so service never stops for ever.
    pub fn next(&mut self) -> (Instant, Instant) {
        let mut interval = self.interval.draw(&mut self.intervals);
        for _ in 0..MAX_REDRAWS {
            if interval >= self.at_least {
                break;
            }
            interval = self.interval.draw(&mut self.intervals);
        }
        let (last_start, last_end) = self.previous;
        let start = (last_start + interval.max(self.at_least)).max(last_end + MIN_SERVICE);
        let end = start + self.interruption.draw(&mut self.interruptions);
        self.previous = (start, end);
        self.previous
    }
}
