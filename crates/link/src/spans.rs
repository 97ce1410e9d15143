//! Random spans of a path: stalls, in which nothing is sent, and outages, which lose what waits.
//!
//! A stall delivers what waited as soon as it ends, so that the delay of successive packets falls with slope −1. Spans
//! depend on time, seed and the path's name alone; both directions see the same, or only one of them has any.

use alloc::format;
use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Seed};

use crate::along::Factor;
use crate::config::Direction;
use crate::distribution::Distribution;
use crate::timeline::Timeline;

/// Keys of a `stall` or `outage` table; missing keys come from the preset.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomSpansConfig {
    /// Time between the starts of consecutive spans. Required.
    pub interval: Option<Distribution>,
    /// Length of a span. Required.
    pub length: Option<Distribution>,
    /// The only direction that has the spans. Default: both have the same.
    pub direction: Option<Direction>,
}

/// Random spans, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomSpans {
    /// Time between the starts of consecutive spans, before `rate`.
    pub interval: Distribution,
    /// Length of a span.
    pub length: Distribution,
    /// Factor on the number of spans per time, above zero: intervals are divided by it.
    pub rate: f64,
    /// Factor on it over time.
    pub factor: Factor,
}

/// Minimum mean of the intervals.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

impl RandomSpansConfig {
    /// Returns the spans of a direction, if it has any.
    pub(crate) fn resolve(
        &self,
        direction: Direction,
    ) -> Result<Option<RandomSpans>, (&'static str, String)> {
        let required = |value: &Option<Distribution>, key| {
            let value = value.clone().ok_or((key, "expected a distribution".to_string()))?;
            value.check().map_err(|problem| (key, problem))?;
            Ok(value)
        };
        let spans = RandomSpans {
            interval: required(&self.interval, "interval")?,
            length: required(&self.length, "length")?,
            rate: 1.0,
            factor: Factor::default(),
        };
        if spans.interval.sampler().mean() < MIN_INTERVAL {
            return Err(("interval", format!("expected a mean of at least {MIN_INTERVAL}")));
        }
        Ok(self.direction.is_none_or(|only| only == direction).then_some(spans))
    }
}

impl RandomSpans {
    /// Returns the spans in order of time, from the streams `name` and `name.length`.
    pub(crate) fn timeline(&self, seed: Seed, name: &str) -> Timeline {
        let streams = [seed.stream(name), seed.stream(&format!("{name}.length"))];
        let spans = Timeline::new(&self.interval, &self.length, Duration::ZERO, streams);
        spans.at_rate(self.rate).along(self.factor.clone())
    }
}
