//! Factors by which a link's processes change along a route: with the height above ground, the speed, the hour and the
//! surroundings.
//!
//! Random events follow their factor by a change of time: they are those of the process without factors, at the times
//! at which the integral of the factor reaches theirs. A constant factor `f` thus gives `f` times as many, and an
//! interval that spans several factors is exact. A rate is multiplied by the factor of its time.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Length, Speed};

/// Keys of an `along` table; missing keys come from the preset.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlongConfig {
    /// Altitude of the ground, from which `height` counts.
    pub ground: Option<Length>,
    /// Hour of the day at which a run begins, 0 to 24.
    pub hour: Option<f64>,
    /// Surroundings, each from its time on; the first time must be zero.
    pub surroundings: Option<Vec<(Duration, String)>>,
    /// Factors on the number of handovers per time.
    pub handover: Option<FactorTables>,
    /// Factors on the number of stalls per time.
    pub stall: Option<FactorTables>,
    /// Factors on the number of random outages per time.
    pub outage: Option<FactorTables>,
    /// Factors on rates that are constant or a process.
    pub rate: Option<FactorTables>,
}

/// Factors by what a route is like; those of several tables multiply. Each holds from its value on, the first one below
/// it too.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FactorTables {
    /// By height above ground.
    pub height: Option<Vec<(Length, f64)>>,
    /// By speed.
    pub speed: Option<Vec<(Speed, f64)>>,
    /// By hour of the day, 0 to 24.
    pub hour: Option<Vec<(f64, f64)>>,
    /// By surroundings.
    pub surroundings: Option<BTreeMap<String, f64>>,
}

/// What a route is like from a time on; `None` where it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Time of the run.
    pub at: Duration,
    /// Altitude.
    pub altitude: Option<Length>,
    /// Speed.
    pub speed: Option<Speed>,
}

/// Factors of a path over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Along {
    /// On the number of handovers per time.
    pub handover: Factor,
    /// On the number of stalls per time.
    pub stall: Factor,
    /// On the number of random outages per time.
    pub outage: Factor,
    /// On the rate.
    pub rate: Factor,
}

/// Factor over time: each entry holds until the next one, the last one for ever. Empty: one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factor(Arc<[(Instant, f64)]>);

/// A key of the table, and what is wrong with its value.
type InvalidKey = (String, String);

impl AlongConfig {
    /// Names and tables of the processes.
    fn tables(&self) -> [(&'static str, Option<&FactorTables>); 4] {
        [
            ("handover", self.handover.as_ref()),
            ("stall", self.stall.as_ref()),
            ("outage", self.outage.as_ref()),
            ("rate", self.rate.as_ref()),
        ]
    }

    /// Returns the first key whose table needs what the route does not say: `ground`, `hour`, `surroundings`, or a
    /// track.
    pub fn missing(&self, has_track: bool) -> Option<(String, &'static str)> {
        self.tables().into_iter().find_map(|(name, tables)| {
            let tables = tables?;
            let needs = [
                ("height", tables.height.is_some(), has_track, "a `track` of the node that moves"),
                ("height", tables.height.is_some(), self.ground.is_some(), "`ground`"),
                ("speed", tables.speed.is_some(), has_track, "a `track` of the node that moves"),
                ("hour", tables.hour.is_some(), self.hour.is_some(), "`hour`"),
                (
                    "surroundings",
                    tables.surroundings.is_some(),
                    self.surroundings.is_some(),
                    "`surroundings`",
                ),
            ];
            let found = needs.into_iter().find(|(_, given, known, _)| *given && !known);
            found.map(|(key, .., needed)| (format!("{name}.{key}"), needed))
        })
    }

    /// Returns the factors along a route. A table that needs what is unknown has no effect.
    ///
    /// # Errors
    /// A key with a factor or a value that is out of range or out of order.
    pub fn factors(&self, route: &[Moment]) -> Result<Along, InvalidKey> {
        if self.hour.is_some_and(|hour| !(0.0..=24.0).contains(&hour)) {
            return Err(("hour".to_string(), "expected 0 to 24".to_string()));
        }
        let places = self.surroundings.as_deref().unwrap_or_default();
        increasing("surroundings", places.iter().map(|(from, _)| from.as_secs_f64()))?;
        if places.first().is_some_and(|(from, _)| *from != Duration::ZERO) {
            let expected = "expected a first time of 0s".to_string();
            return Err(("surroundings".to_string(), expected));
        }
        for (name, tables) in self.tables() {
            tables.map_or(Ok(()), |tables| tables.check(name, places))?;
        }
        let [handover, stall, outage, rate] = self.tables().map(|(_, tables)| {
            tables.map_or_else(Factor::default, |tables| {
                Factor::new(route.iter().map(|moment| (moment.at, self.factor(tables, moment))))
            })
        });
        Ok(Along { handover, stall, outage, rate })
    }

    fn factor(&self, tables: &FactorTables, moment: &Moment) -> f64 {
        let height = self.ground.zip(moment.altitude);
        let height = height.map(|(ground, altitude)| altitude.as_metres() - ground.as_metres());
        let hour = self.hour.map(|hour| libm::fmod(hour + moment.at.as_secs_f64() / 3600.0, 24.0));
        let places = self.surroundings.as_deref().unwrap_or_default();
        let place = places.iter().rev().find(|(from, _)| *from <= moment.at);
        let heights = metres(tables.height.as_deref());
        let speeds = speeds(tables.speed.as_deref());
        let of_place = tables.surroundings.as_ref().zip(place);
        step(&heights, height)
            * step(&speeds, moment.speed.map(Speed::as_metres_per_second))
            * step(tables.hour.as_deref().unwrap_or_default(), hour)
            * of_place.and_then(|(table, (_, name))| table.get(name)).copied().unwrap_or(1.0)
    }
}

fn metres(table: Option<&[(Length, f64)]>) -> Vec<(f64, f64)> {
    table.unwrap_or_default().iter().map(|(from, factor)| (from.as_metres(), *factor)).collect()
}

fn speeds(table: Option<&[(Speed, f64)]>) -> Vec<(f64, f64)> {
    let table = table.unwrap_or_default().iter();
    table.map(|(from, factor)| (from.as_metres_per_second(), *factor)).collect()
}

/// Returns the factor of a table at a value; one where either is unknown.
fn step(table: &[(f64, f64)], value: Option<f64>) -> f64 {
    let Some(value) = value else { return 1.0 };
    let entry = table.iter().rev().find(|(from, _)| *from <= value).or(table.first());
    entry.map_or(1.0, |(_, factor)| *factor)
}

fn increasing(key: &str, mut values: impl Iterator<Item = f64>) -> Result<(), InvalidKey> {
    let Some(mut last) = values.next() else { return Ok(()) };
    for value in values {
        if value.is_nan() || value <= last {
            return Err((key.to_string(), "expected increasing values".to_string()));
        }
        last = value;
    }
    Ok(())
}

impl FactorTables {
    fn check(&self, name: &str, places: &[(Duration, String)]) -> Result<(), InvalidKey> {
        let tables = [
            ("height", metres(self.height.as_deref())),
            ("speed", speeds(self.speed.as_deref())),
            ("hour", self.hour.clone().unwrap_or_default()),
        ];
        for (key, table) in tables {
            let key = format!("{name}.{key}");
            increasing(&key, table.iter().map(|(from, _)| *from))?;
            table.iter().try_for_each(|(_, factor)| in_range(&key, *factor))?;
        }
        let key = format!("{name}.surroundings");
        let Some(table) = &self.surroundings else { return Ok(()) };
        table.values().try_for_each(|factor| in_range(&key, *factor))?;
        let unknown = places.iter().find(|(_, place)| !table.contains_key(place));
        unknown.map_or(Ok(()), |(_, place)| Err((key, format!("expected a factor of `{place}`"))))
    }
}

/// Checks a factor.
fn in_range(key: &str, factor: f64) -> Result<(), InvalidKey> {
    if (0.0..=1e4).contains(&factor) {
        return Ok(());
    }
    Err((key.to_string(), format!("found the factor {factor}, expected 0 to 10000")))
}

impl Factor {
    /// Creates the factor of entries in order of time; the first one counts from the start of the run on.
    pub fn new(entries: impl Iterator<Item = (Duration, f64)>) -> Self {
        let mut steps: Vec<(Instant, f64)> = Vec::new();
        for (at, factor) in entries {
            let at = if steps.is_empty() { Duration::ZERO } else { at };
            if steps.last().is_none_or(|(_, last)| *last != factor) {
                steps.push((Instant::ZERO + at, factor));
            }
        }
        match steps.as_slice() {
            [(_, 1.0)] => Self::default(),
            _ => Self(steps.into()),
        }
    }

    /// Whether it is one at all times.
    pub fn is_one(&self) -> bool {
        self.0.is_empty()
    }

    /// Entries in order of time.
    pub fn entries(&self) -> &[(Instant, f64)] {
        &self.0
    }

    /// Returns the factor at a time.
    pub fn at(&self, at: Instant) -> f64 {
        let number = self.0.partition_point(|(from, _)| *from <= at);
        self.0.get(number.saturating_sub(1)).map_or(1.0, |(_, factor)| *factor)
    }

    /// Returns the time at which the integral of the factor from `start` on reaches `length`; far in the future if it
    /// never does.
    pub(crate) fn after(&self, start: Instant, length: Duration) -> Instant {
        if self.is_one() {
            return start + length;
        }
        let mut left = length.as_secs_f64();
        let mut at = start;
        let next = self.0.partition_point(|(from, _)| *from <= start);
        for (until, _) in self.0.iter().skip(next) {
            let held = self.at(at) * (*until - at).as_secs_f64();
            if held >= left {
                break;
            }
            left -= held;
            at = *until;
        }
        match self.at(at) {
            factor if factor > 0.0 => at + Duration::from_secs_f64(left / factor),
            _ => Instant::FAR_FUTURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(seconds)
    }

    fn factor(entries: &[(f64, f64)]) -> Factor {
        let entries = entries.iter().map(|(at, factor)| (Duration::from_secs_f64(*at), *factor));
        Factor::new(entries)
    }

    #[test]
    fn an_interval_ends_where_the_integral_reaches_it() {
        // 10 s at 1, 10 s at 3, 10 s at 0, then 0.5.
        let pace = factor(&[(0.0, 1.0), (10.0, 3.0), (20.0, 0.0), (30.0, 0.5)]);
        for (start, length, end) in
            [(0.0, 5.0, 5.0), (5.0, 11.0, 12.0), (5.0, 40.0, 40.0), (22.0, 2.0, 34.0)]
        {
            let found = pace.after(seconds(start), Duration::from_secs_f64(length));
            assert_eq!(found, seconds(end), "{start} {length}");
        }
        let silent = factor(&[(0.0, 1.0), (10.0, 0.0)]);
        let found = silent.after(Instant::ZERO, Duration::from_secs(11));
        assert_eq!(found, Instant::FAR_FUTURE);
        assert!(factor(&[(3.0, 1.0)]).is_one());
    }
}
