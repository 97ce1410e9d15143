//! Handovers: interruptions during which the radio changes its cell.
//!
//! The timeline depends on the seed and the path's name alone, so both directions, and all schedulers of a
//! comparison, see the same handovers.

use alloc::format;
use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Seed, expect};

use crate::along::Factor;
use crate::distribution::Distribution;
use crate::timeline::Timeline;

/// Keys of a `handover` table; missing keys come from the preset, else from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandoverConfig {
    /// Time between the starts of consecutive handovers. Required.
    pub interval: Option<Distribution>,
    /// Duration of a handover, during which nothing is sent. Required.
    pub interruption: Option<Distribution>,
    /// Minimum interval; smaller draws are repeated. Default: 1 s.
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
    /// Factor on the number of handovers per time.
    pub factor: Factor,
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
            factor: Factor::default(),
        };
        expect(handover.at_least.is_positive(), "at_least", "a time above zero")?;
        expect(
            handover.interval.constant().is_none_or(|fixed| fixed >= handover.at_least),
            "interval",
            "at least `at_least`",
        )?;
        Ok(handover)
    }
}

impl Handover {
    /// Returns the handovers of `path`, in order of time.
    pub(crate) fn timeline(&self, seed: Seed, path: &str) -> Timeline {
        let streams = [format!("{path}.handover"), format!("{path}.handover.interruption")];
        let streams = streams.map(|name| seed.stream(&name));
        Timeline::new(&self.interval, &self.interruption, self.at_least, streams)
            .along(self.factor.clone())
    }
}
