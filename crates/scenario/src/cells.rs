//! Places of nodes, and the radio cells of a link.

use serde::Deserialize;
use skybraid_link::{Distribution, HandoverConfig, PathConfig, Switch};
use skybraid_track::file::Format;
use skybraid_track::{Grid, Position, Service, Track, TrackConfig};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Decibels, Duration, Instant, Length, Seed};

use crate::ScenarioError;
use crate::inputs::Inputs;
use crate::key::KeyPath;
use crate::network::{Node, NodeKind};
use crate::text::ScenarioText;

/// A key and what is wrong with its value.
type InvalidKey = (&'static str, String);

/// Default height of antennas above the ground station, in metres.
const ANTENNA: f64 = 30.0;

/// Place of a node in a scenario: `position` or `track`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Place {
    pub position: Option<Position>,
    pub track: Option<TrackConfig>,
}

impl Place {
    /// Returns the track, `None` if neither key is given. `key` is that of the table.
    pub fn track(
        &self,
        inputs: &mut Inputs,
        text: &ScenarioText,
        key: &KeyPath,
    ) -> Result<Option<Track>, ScenarioError> {
        match (&self.position, &self.track) {
            (None, None) => Ok(None),
            (Some(position), None) => Ok(Some(Track::fixed(*position))),
            (None, Some(config)) => track(config, inputs, text, &key.key("track")).map(Some),
            (Some(_), Some(_)) => {
                let problem = "`position` and `track` exclude one another".to_string();
                Err(text.wrong(&key.key("track"), problem))
            }
        }
    }
}

/// Returns a configured track and reads its file.
fn track(
    config: &TrackConfig,
    inputs: &mut Inputs,
    text: &ScenarioText,
    key: &KeyPath,
) -> Result<Track, ScenarioError> {
    let wrong = |problem: String| text.wrong(key, problem);
    match config {
        TrackConfig::Circle(circle) => circle.track().map_err(|error| wrong(error.to_string())),
        TrackConfig::Waypoints(ways) => ways.track().map_err(|error| wrong(error.to_string())),
        TrackConfig::File { file, speed } => {
            let Some(format) = Format::of_name(file) else {
                let expected = "expected one that ends with .csv, .gpx, .kml or .plan";
                return Err(wrong(format!("found the file {file}, {expected}")));
            };
            let read = inputs.text(file, key)?.to_string();
            skybraid_track::file::read(&read, format, *speed).map_err(|error| {
                let (line, problem) = error.line();
                inputs.wrong_file(file, line, problem, key)
            })
        }
    }
}

/// Returns the tracks of a link's terminal and of its other end. The terminal is a vehicle, else a moving node,
/// else a node with a known place.
pub(crate) fn ends<'a>(
    ends: [usize; 2],
    nodes: &[Node],
    tracks: &'a [Option<Track>],
) -> [Option<&'a Track>; 2] {
    let track =
        |end: usize| tracks.get(end).promised("a track of the node").and_then(Option::as_ref);
    let rank = |end: usize| {
        let node = nodes.get(end).promised("an end of the link");
        let vehicle = node.is_some_and(|node| node.kind == NodeKind::Vehicle);
        let moves = track(end).is_some_and(|track| !track.is_fixed());
        (vehicle, moves, track(end).is_some())
    };
    let [a, b] = ends;
    if rank(b) > rank(a) { [track(b), track(a)] } else { [track(a), track(b)] }
}

/// `[path.NAME.cells]` and `[link.NAME.cells]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CellsFile {
    pub grid: Option<Length>,
    pub origin: Option<[f64; 2]>,
    pub altitude: Option<Length>,
    pub exponent: Option<f64>,
    pub shadowing: Option<Decibels>,
    pub decorrelation: Option<Length>,
    pub hysteresis: Option<Decibels>,
    pub time_to_trigger: Option<Duration>,
    pub interruption: Option<Distribution>,
}

/// Radio cells that serve a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Cells {
    /// Positions of the base stations, and handover parameters.
    pub grid: Grid,
    /// Interruption of a handover, during which nothing is sent.
    pub interruption: Distribution,
    /// Track of the terminal.
    pub terminal: Track,
}

impl CellsFile {
    /// Returns the cells of a link of `config` between a terminal and another node. They replace the link's
    /// random handovers; the interruption of a preset's handovers is kept.
    ///
    /// # Errors
    /// A key below `cells` and the problem with its value.
    pub fn build(
        &self,
        config: &mut PathConfig,
        terminal: Option<&Track>,
        other: Option<&Track>,
    ) -> Result<Cells, InvalidKey> {
        let Some(terminal) = terminal else {
            let problem = "expected a `track` or `position` of the node that moves".to_string();
            return Err(("", problem));
        };
        let drawn = config.handover.replace(Switch::Off);
        for flight in &mut config.flight {
            flight.handover = Some(Switch::Off);
        }
        let drawn = drawn.as_ref().and_then(Switch::on);
        let preset = drawn.and_then(|HandoverConfig { interruption, .. }| interruption.clone());
        let Some(interruption) = self.interruption.clone().or(preset) else {
            return Err(("interruption", "expected a distribution, for example \"50ms\"".into()));
        };
        let Some(spacing) = self.grid else {
            return Err(("grid", "expected a length, for example \"5km\"".to_string()));
        };
        let ground = other.filter(|track| track.is_fixed()).map(|track| track.at(Duration::ZERO));
        let start = terminal.at(Duration::ZERO);
        let [latitude, longitude] = self.origin.unwrap_or_else(|| {
            let place = ground.unwrap_or(start);
            [place.latitude(), place.longitude()]
        });
        let altitude = self.altitude.map(Length::as_metres);
        let altitude = altitude.unwrap_or(ground.map_or(0.0, Position::altitude) + ANTENNA);
        let origin = Position::new(latitude, longitude, altitude)
            .map_err(|error| ("origin", error.to_string()))?;
        let plain = Grid::new(origin, spacing);
        let grid = Grid {
            exponent: self.exponent.unwrap_or(plain.exponent),
            shadowing: self.shadowing.unwrap_or(plain.shadowing),
            decorrelation: self.decorrelation.unwrap_or(plain.decorrelation),
            hysteresis: self.hysteresis.unwrap_or(plain.hysteresis),
            time_to_trigger: self.time_to_trigger.unwrap_or(plain.time_to_trigger),
            ..plain
        };
        let called = |(name, problem)| (if name == "spacing" { "grid" } else { name }, problem);
        grid.check().map_err(called)?;
        Ok(Cells { grid, interruption, terminal: terminal.clone() })
    }
}

impl Cells {
    /// Returns the serving cells over a run of `length`. `link` names the random streams.
    pub fn serve(&self, length: Duration, seed: Seed, link: &str) -> Service {
        self.grid.serve(&self.terminal, length, seed, &format!("{link}.cells"))
    }

    /// Returns start and length of each handover, during which nothing is sent.
    pub fn halts(&self, length: Duration, seed: Seed, link: &str) -> Vec<(Instant, Duration)> {
        let service = self.serve(length, seed, link);
        let lengths = self.interruption.draws(seed, &format!("{link}.cells.interruption"));
        service.handovers.iter().map(|handover| handover.at).zip(lengths).collect()
    }
}
