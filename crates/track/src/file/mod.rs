//! Parsers of track files: CSV, GPX 1.1, KML and QGroundControl's plans.
//!
//! Times are relative to the first time of a file. Altitudes are used as heights above the ellipsoid. GPX, KML,
//! plans and most CSV files contain heights above mean sea level, so the error is up to 110 m.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use skybraid_units::{Duration, Speed};

use crate::position::Position;
use crate::track::{Track, TrackError};

pub(crate) mod csv;
mod date;
mod gpx;
mod kml;
mod plan;

/// Error in a track file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// Invalid line.
    #[error("line {line}: found `{found}`, expected {expected}")]
    Line {
        /// Number of the line, from one.
        line: usize,
        /// Text that was found.
        found: String,
        /// Text that was expected.
        expected: String,
    },
    /// Invalid XML or JSON.
    #[error("line {line}: {problem}")]
    Syntax {
        /// Number of the line, from one.
        line: usize,
        /// Message of the parser.
        problem: String,
    },
    /// Invalid part of a JSON file.
    #[error("{place}: {problem}")]
    Part {
        /// Path of the part, such as `mission.items[2]`.
        place: String,
        /// What was found, and what was expected.
        problem: String,
    },
    /// No points.
    #[error("the file holds no point; expected {expected}")]
    Empty {
        /// Content that was expected.
        expected: &'static str,
    },
    /// Points without times, and no speed.
    #[error("the points have no times; expected a `speed` next to the file, for example \"60m/s\"")]
    NoSpeed,
    /// Points with times, and a speed.
    #[error("the points have times; expected no `speed` next to the file")]
    Speed,
    /// Invalid track.
    #[error(transparent)]
    Track(#[from] TrackError),
}

/// Format of a track file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV with the columns `time_s`, `latitude`, `longitude`, `altitude_m`.
    Csv,
    /// GPX 1.1: the points of all tracks with their times, else the points of all routes.
    Gpx,
    /// KML 2.2: the points of all `gx:Track` with their times, else the points of all `LineString`.
    Kml,
    /// Mission plan of QGroundControl, without times.
    Plan,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Csv, Self::Gpx, Self::Kml, Self::Plan];

    /// File name extension, in lower case.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Gpx => "gpx",
            Self::Kml => "kml",
            Self::Plan => "plan",
        }
    }

    /// Returns the format of a file by the extension of its name, in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        Self::ALL.into_iter().find(|format| format.ending().eq_ignore_ascii_case(ending))
    }
}

impl ReadError {
    /// Line at fault, if it is one, and the problem without it.
    pub fn line(&self) -> (Option<usize>, String) {
        let words = self.to_string();
        match self {
            Self::Line { line, .. } | Self::Syntax { line, .. } => {
                (Some(*line), words.split_once(": ").map_or(words.clone(), |(_, rest)| rest.into()))
            }
            _ => (None, words),
        }
    }
}

/// Parses a track file. `speed` is over ground, for points without times; it replaces the speed of a plan.
///
/// # Errors
/// Line at fault, with what was found and what was expected.
pub fn read(text: &str, format: Format, speed: Option<Speed>) -> Result<Track, ReadError> {
    let points = match format {
        Format::Csv => csv::read(text)?,
        Format::Gpx => gpx::read(&xml(text)?)?,
        Format::Kml => kml::read(&xml(text)?)?,
        Format::Plan => plan::read(text)?,
    };
    match (points, speed) {
        (Points::Timed(points), None) => Ok(Track::through(&points)?),
        (Points::Timed(_), Some(_)) => Err(ReadError::Speed),
        (Points::Bare(points, own), speed) => {
            Ok(Track::waypoints(&points, speed.or(own).ok_or(ReadError::NoSpeed)?)?)
        }
    }
}

/// Points of a file; at least one.
enum Points {
    /// Points with increasing times from zero.
    Timed(Vec<(Duration, Position)>),
    /// Points in order, without times, and the speed that the file has for them.
    Bare(Vec<Position>, Option<Speed>),
}

/// Collector of points with times in ns since any origin.
#[derive(Default)]
struct Timed {
    origin: Option<i64>,
    points: Vec<(Duration, Position)>,
}

impl Timed {
    /// Adds a point unless its time equals that of the point before. Returns whether it was added; `Err` if its
    /// time is earlier.
    fn push(&mut self, nanos: i64, position: Position) -> Result<bool, ()> {
        let since = nanos.saturating_sub(*self.origin.get_or_insert(nanos));
        let at = Duration::from_nanos(since);
        match self.points.last() {
            Some((previous, _)) if at < *previous => Err(()),
            Some((previous, _)) if at == *previous => Ok(false),
            _ => {
                self.points.push((at, position));
                Ok(true)
            }
        }
    }
}

pub(crate) fn wrong(line: usize, found: &str, expected: &str) -> ReadError {
    const MAX_FOUND: usize = 80;
    let found: String = found.chars().take(MAX_FOUND).collect();
    ReadError::Line { line, found, expected: expected.to_string() }
}

/// Parses a field as a finite number.
pub(crate) fn number(field: &str) -> Option<f64> {
    field.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

/// Parses a position from fields in degrees and metres.
pub(crate) fn position(
    line: usize,
    latitude: &str,
    longitude: &str,
    altitude: &str,
) -> Result<Position, ReadError> {
    let read = |field: &str, expected| number(field).ok_or_else(|| wrong(line, field, expected));
    let latitude = read(latitude, "a latitude in degrees")?;
    let longitude = read(longitude, "a longitude in degrees")?;
    let altitude = read(altitude, "an altitude in metres")?;
    Position::new(latitude, longitude, altitude).map_err(|error| {
        let problem = error.to_string();
        // Both errors have the form "found …, expected …".
        let parts = problem.strip_prefix("found ").and_then(|rest| rest.split_once(", expected "));
        let (found, expected) = parts.unwrap_or((&problem, "a position"));
        wrong(line, found, expected)
    })
}

fn xml(text: &str) -> Result<roxmltree::Document<'_>, ReadError> {
    roxmltree::Document::parse(text).map_err(|error| ReadError::Syntax {
        line: error.pos().row as usize,
        problem: error.to_string(),
    })
}

/// Returns the line of an element's start tag.
fn line_of(node: roxmltree::Node<'_, '_>) -> usize {
    node.document().text_pos_at(node.range().start).row as usize
}

/// Returns the text of an element, from all its text nodes.
fn text_of(node: roxmltree::Node<'_, '_>) -> String {
    node.children().filter_map(|child| child.text()).collect()
}

/// Returns the elements `name` in `node`, at any depth and in any namespace.
fn elements<'a, 'input: 'a>(
    node: roxmltree::Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = roxmltree::Node<'a, 'input>> {
    node.descendants().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

/// Returns the first child element `name` of `node`.
fn child<'a, 'input: 'a>(
    node: roxmltree::Node<'a, 'input>,
    name: &str,
) -> Option<roxmltree::Node<'a, 'input>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}
