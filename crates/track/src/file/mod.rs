//! Tracks as files hold them: CSV, GPX 1.1 and KML. Pure: text in, track out.
//!
//! The first time of a file becomes zero. GPX and KML count altitudes from mean sea level and CSV files
//! mostly do too; they are taken as heights above the ellipsoid, which is off by up to 110 m.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use skybraid_units::{Duration, Speed};

use crate::position::Position;
use crate::track::{Track, TrackError};

mod csv;
mod date;
mod gpx;
mod kml;

/// Why a text is not a track. Lines count from one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// Something on a line does not fit.
    #[error("line {line}: found `{found}`, expected {expected}")]
    Line {
        /// The line.
        line: usize,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: String,
    },
    /// The text is no XML.
    #[error("line {line}: {problem}")]
    Xml {
        /// The line.
        line: usize,
        /// What the XML parser says.
        problem: String,
    },
    /// The file holds no point.
    #[error("the file holds no point; expected {expected}")]
    Empty {
        /// What it should hold.
        expected: &'static str,
    },
    /// A line of points without times, and no speed.
    #[error("the points have no times; expected a `speed` beside the file, for example \"60m/s\"")]
    NoSpeed,
    /// The points have times, which a speed contradicts.
    #[error("the points have times; expected no `speed` beside the file")]
    Speed,
    /// The points make no track.
    #[error(transparent)]
    Track(#[from] TrackError),
}

/// The format of a track file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Columns `time_s`, `latitude`, `longitude`, `altitude_m`.
    Csv,
    /// GPX 1.1: the points of all tracks with their times, else those of all routes.
    Gpx,
    /// KML 2.2: the points of all `gx:Track` with their times, else those of all `LineString`.
    Kml,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Csv, Self::Gpx, Self::Kml];

    /// The ending of a file's name, in lower case.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Gpx => "gpx",
            Self::Kml => "kml",
        }
    }

    /// The format that a file's name ends with, whatever its case.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        Self::ALL.into_iter().find(|format| format.ending().eq_ignore_ascii_case(ending))
    }
}

/// Reads `text`. `speed` is over ground, for points that have no times.
///
/// # Errors
/// Names the line, what was found and what was expected.
pub fn read(text: &str, format: Format, speed: Option<Speed>) -> Result<Track, ReadError> {
    let points = match format {
        Format::Csv => csv::read(text)?,
        Format::Gpx => gpx::read(&xml(text)?)?,
        Format::Kml => kml::read(&xml(text)?)?,
    };
    match (points, speed) {
        (Points::Timed(points), None) => Ok(Track::through(&points)?),
        (Points::Timed(_), Some(_)) => Err(ReadError::Speed),
        (Points::Bare(points), Some(speed)) => Ok(Track::waypoints(&points, speed)?),
        (Points::Bare(_), None) => Err(ReadError::NoSpeed),
    }
}

/// What a file holds; at least one point.
enum Points {
    /// The first time is zero, times increase.
    Timed(Vec<(Duration, Position)>),
    /// In order.
    Bare(Vec<Position>),
}

/// Collects points with times in ns since any origin.
#[derive(Default)]
struct Timed {
    origin: Option<i64>,
    points: Vec<(Duration, Position)>,
}

impl Timed {
    /// Adds a point unless it shares the time of the one before. `Err` where time runs backwards.
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

fn wrong(line: usize, found: &str, expected: &str) -> ReadError {
    /// More of a broken file is of no help.
    const MOST: usize = 80;
    let found: String = found.chars().take(MOST).collect();
    ReadError::Line { line, found, expected: expected.to_string() }
}

/// A number of a field; finite.
fn number(field: &str) -> Option<f64> {
    field.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

/// A position from three fields, each in degrees or metres.
fn position(
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
        // The error reads "found …, expected …", and so does a line's.
        let parts = problem.strip_prefix("found ").and_then(|rest| rest.split_once(", expected "));
        let (found, expected) = parts.unwrap_or((&problem, "a position"));
        wrong(line, found, expected)
    })
}

fn xml(text: &str) -> Result<roxmltree::Document<'_>, ReadError> {
    roxmltree::Document::parse(text).map_err(|error| ReadError::Xml {
        line: error.pos().row as usize,
        problem: error.to_string(),
    })
}

/// The line on which an element begins.
fn line_of(node: roxmltree::Node<'_, '_>) -> usize {
    node.document().text_pos_at(node.range().start).row as usize
}

/// The text of an element, over all its pieces.
fn text_of(node: roxmltree::Node<'_, '_>) -> String {
    node.children().filter_map(|child| child.text()).collect()
}

/// The elements called `name` in `node`, at any depth and whatever the name space.
fn elements<'a, 'input: 'a>(
    node: roxmltree::Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = roxmltree::Node<'a, 'input>> {
    node.descendants().filter(move |it| it.is_element() && it.tag_name().name() == name)
}

/// The first child of `node` called `name`.
fn child<'a, 'input: 'a>(
    node: roxmltree::Node<'a, 'input>,
    name: &str,
) -> Option<roxmltree::Node<'a, 'input>> {
    node.children().find(|it| it.is_element() && it.tag_name().name() == name)
}
