//! `coverage` of a path: measured places that determine its rate, delay and loss along a track.

use core::fmt::Write as _;

use serde::Deserialize;
use skybraid_link::trace::Quantity;
use skybraid_link::{
    DelayConfig, Direction, LossConfig, Losses, PathConfig, RateConfig, TraceFile, TraceSource,
};
use skybraid_track::{Along, Coverage, Track};
use skybraid_units::{Duration, Length};

use crate::ScenarioError;
use crate::file::LinkFile;
use crate::inputs::Inputs;
use crate::key::KeyPath;
use crate::text::ScenarioText;

/// Default radius within which a place counts, in metres.
const RADIUS: f64 = 100.0;
/// Default time between two looks at the position.
const EVERY: Duration = Duration::from_secs(1);

/// `[path.NAME.coverage]` and `[link.NAME.coverage]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CoverageFile {
    file: String,
    radius: Option<Length>,
    every: Option<Duration>,
}

/// Coverage of a path, read.
pub(crate) struct PathCoverage {
    file: String,
    radius: Length,
    every: Duration,
    coverage: Coverage,
    columns: Vec<Column>,
}

/// Column of a coverage file that a link can follow.
struct Column {
    index: usize,
    /// Both without one.
    direction: Option<Direction>,
    quantity: Quantity,
    /// Heading.
    name: String,
    unit: String,
}

impl Column {
    /// Returns the column of a heading: `[uplink|downlink] rate|delay|loss [UNIT]`; `None` for another.
    fn of_heading(index: usize, heading: &str) -> Option<Self> {
        let (words, unit) = heading.strip_suffix(']')?.split_once('[')?;
        let words: Vec<&str> = words.split_whitespace().collect();
        let (direction, quantity) = match words.as_slice() {
            ["uplink", quantity] => (Some(Direction::Uplink), *quantity),
            ["downlink", quantity] => (Some(Direction::Downlink), *quantity),
            [quantity] => (None, *quantity),
            _ => return None,
        };
        let quantity = match quantity {
            "rate" => Quantity::Rate,
            "delay" => Quantity::Delay,
            "loss" => Quantity::Loss,
            _ => return None,
        };
        let unit = unit.trim().to_string();
        Some(Self { index, direction, quantity, name: heading.to_string(), unit })
    }

    fn is_of(&self, direction: Direction) -> bool {
        self.direction.is_none_or(|own| own == direction)
    }
}

impl CoverageFile {
    /// Reads the file. `link` has the keys of the table `above`, which the file must not repeat.
    pub fn read(
        &self,
        link: &LinkFile,
        inputs: &mut Inputs,
        text: &ScenarioText,
        above: &KeyPath,
    ) -> Result<PathCoverage, ScenarioError> {
        let key = &above.key("coverage");
        let radius = self.radius.unwrap_or(Length::from_metres(RADIUS));
        if !(1.0..=1e6).contains(&radius.as_metres()) {
            let problem = format!("found {radius}, expected 1m to 1000km");
            return Err(text.wrong(&key.key("radius"), problem));
        }
        let every = self.every.unwrap_or(EVERY);
        if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&every) {
            let problem = format!("found {every}, expected 10ms to 1h");
            return Err(text.wrong(&key.key("every"), problem));
        }
        let read = inputs.text(&self.file, key)?.to_string();
        let coverage = Coverage::read(&read).map_err(|error| {
            let (line, problem) = error.line();
            inputs.wrong_file(&self.file, line, problem, key)
        })?;
        let headings = coverage.columns().iter().enumerate();
        let columns: Vec<Column> =
            headings.filter_map(|(index, heading)| Column::of_heading(index, heading)).collect();
        if columns.is_empty() {
            let found = coverage.columns().join(", ");
            let problem = format!(
                "found the columns {found}; expected one such as `downlink rate [Mbit/s]`, `delay [ms]` or `loss [%]`"
            );
            return Err(inputs.wrong_file(&self.file, Some(1), problem, key));
        }
        for column in &columns {
            if let Err(error) = column.quantity.scale(Some(&column.unit)) {
                let problem = format!("{}: {error}", column.name);
                return Err(inputs.wrong_file(&self.file, Some(1), problem, key));
            }
            if let Some(own) = given(link, column) {
                let problem = format!(
                    "found `coverage` too, whose column `{}` gives it along the track; expected either",
                    column.name
                );
                return Err(text.wrong(&above.below(&own), problem));
            }
        }
        Ok(PathCoverage { file: self.file.clone(), radius, every, coverage, columns })
    }
}

/// Returns the key of the scenario that gives what a column gives.
fn given(link: &LinkFile, column: &Column) -> Option<String> {
    let (name, both) = match column.quantity {
        Quantity::Rate => ("rate", link.rate.is_some()),
        Quantity::Delay => ("delay", link.delay.is_some()),
        Quantity::Loss | Quantity::Attenuation => ("loss", link.loss.is_some()),
    };
    if both {
        return Some(name.to_string());
    }
    [(Direction::Uplink, &link.uplink), (Direction::Downlink, &link.downlink)]
        .into_iter()
        .find(|(direction, own)| {
            column.is_of(*direction)
                && match column.quantity {
                    Quantity::Rate => own.rate.is_some(),
                    Quantity::Delay => own.delay.is_some(),
                    Quantity::Loss | Quantity::Attenuation => own.loss.is_some(),
                }
        })
        .map(|(direction, _)| format!("{}.{name}", direction.name()))
}

impl PathCoverage {
    /// Sets rate, delay and loss of a link along the track of its terminal. Where no place is near, it is down.
    ///
    /// # Errors
    /// The problem with the values or the track.
    pub fn apply(
        &self,
        config: &mut PathConfig,
        terminal: Option<&Track>,
        length: Duration,
    ) -> Result<(), String> {
        let Some(terminal) = terminal else {
            return Err("expected a `track` or `position` of the node that moves".to_string());
        };
        let along = |column: &Column| {
            self.coverage.along(column.index, terminal, length, self.every, self.radius)
        };
        let followed: Vec<(&Column, Along)> =
            self.columns.iter().map(|column| (column, along(column))).collect();
        for (column, along) in &followed {
            let source = self.source(column, along)?;
            for (_, direction, own) in config.directions_mut() {
                if !column.is_of(direction) {
                    continue;
                }
                let source = source.clone();
                match column.quantity {
                    Quantity::Rate => own.rate = Some(RateConfig::Trace(source)),
                    Quantity::Delay => own.delay = Some(DelayConfig::Trace(source)),
                    Quantity::Loss | Quantity::Attenuation => {
                        own.loss = Some(Losses(vec![LossConfig::Trace(source)]));
                    }
                }
            }
        }
        let gaps = gaps(&followed, self.every);
        let down = config.down.get_or_insert_default();
        down.extend(gaps);
        down.sort_unstable();
        Ok(())
    }

    /// Returns a column along the track as a trace; without a place near, the last value stays.
    fn source(&self, column: &Column, along: &Along) -> Result<TraceSource, String> {
        let Some(first) = along.values.iter().flatten().next() else {
            let metres = self.radius;
            return Err(format!(
                "found no place of `{}` with a `{}` within {metres} of the track; expected some",
                self.file, column.name
            ));
        };
        let (mut text, mut last) = (String::new(), *first);
        for (time, value) in along.times.iter().zip(&along.values) {
            last = value.unwrap_or(last);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{},{last}", time.as_secs_f64());
        }
        let file = TraceFile {
            trace: self.file.clone(),
            unit: Some(column.unit.clone()),
            repeat: Some(true),
            ..TraceFile::default()
        };
        let mut source = TraceSource::series(file, column.quantity);
        source.load(&text).map_err(|error| format!("{}: {error}", column.name))?;
        Ok(source)
    }
}

/// Returns start and length of the spans in which no column has a place near.
fn gaps(followed: &[(&Column, Along)], every: Duration) -> Vec<(Duration, Duration)> {
    let Some((_, first)) = followed.first() else { return Vec::new() };
    let mut found: Vec<(Duration, Duration)> = Vec::new();
    for (index, time) in first.times.iter().enumerate() {
        let is_near =
            |(_, along): &(&Column, Along)| matches!(along.values.get(index), Some(Some(_)));
        if followed.iter().any(is_near) {
            continue;
        }
        match found.last_mut() {
            Some((start, length)) if *start + *length == *time => *length += every,
            _ => found.push((*time, every)),
        }
    }
    found
}
