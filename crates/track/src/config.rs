//! Configuration of a track in a scenario.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_units::{Length, Speed};

use crate::position::Position;
use crate::track::{Track, TrackError};

/// Keys of a `track` table.
///
/// In TOML: `{ file = "flight.gpx" }`, `{ file = "route.kml", speed = "60m/s" }`,
/// `{ circle = { centre = [47.0, 7.4], radius = "20km", speed = "40m/s", altitude = "3000m" } }` or
/// `{ waypoints = [[47.0, 7.4], [46.2, 6.1]], speed = "60m/s", altitude = "1000m" }`. Places are pairs
/// of latitude and longitude in degrees.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "TrackTable", into = "TrackTable")]
pub enum TrackConfig {
    /// Track file, which the caller must read.
    File {
        /// Path of the file.
        file: String,
        /// Speed over ground, for points without times.
        speed: Option<Speed>,
    },
    /// See [`Track::circle`].
    Circle(Circle),
    /// See [`Track::waypoints`].
    Waypoints(Waypoints),
}

/// A circle around a place.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Circle {
    /// Latitude and longitude in degrees.
    pub centre: [f64; 2],
    /// Radius over ground; above zero.
    pub radius: Length,
    /// Speed over ground; above zero.
    pub speed: Speed,
    /// Altitude above the ellipsoid. Default: 0 m.
    #[serde(default)]
    pub altitude: Length,
}

/// Waypoints in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Waypoints {
    /// Latitude and longitude in degrees.
    pub waypoints: Vec<[f64; 2]>,
    /// Speed over ground; above zero.
    pub speed: Speed,
    /// Altitude above the ellipsoid. Default: 0 m.
    pub altitude: Length,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct TrackTable {
    file: Option<String>,
    circle: Option<Circle>,
    waypoints: Option<Vec<[f64; 2]>>,
    speed: Option<Speed>,
    altitude: Option<Length>,
}

impl TryFrom<TrackTable> for TrackConfig {
    type Error = String;
    fn try_from(table: TrackTable) -> Result<Self, String> {
        let TrackTable { file, circle, waypoints, speed, altitude } = table;
        let only_waypoints = "`altitude` goes with `waypoints`; a circle has its own";
        match (file, circle, waypoints) {
            (Some(_), None, None) if altitude.is_some() => Err(only_waypoints.to_string()),
            (Some(file), None, None) => Ok(Self::File { file, speed }),
            (None, Some(_), None) if speed.is_some() || altitude.is_some() => {
                Err("`speed` and `altitude` of a circle stand inside `circle`".to_string())
            }
            (None, Some(circle), None) => Ok(Self::Circle(circle)),
            (None, None, Some(waypoints)) => {
                let speed = speed.ok_or("`waypoints` need a `speed`, for example \"60m/s\"")?;
                let altitude = altitude.unwrap_or_default();
                Ok(Self::Waypoints(Waypoints { waypoints, speed, altitude }))
            }
            _ => Err("expected one of `file`, `circle` and `waypoints`".to_string()),
        }
    }
}

impl From<TrackConfig> for TrackTable {
    fn from(config: TrackConfig) -> Self {
        match config {
            TrackConfig::File { file, speed } => {
                Self { file: Some(file), speed, ..Self::default() }
            }
            TrackConfig::Circle(circle) => Self { circle: Some(circle), ..Self::default() },
            TrackConfig::Waypoints(Waypoints { waypoints, speed, altitude }) => Self {
                waypoints: Some(waypoints),
                speed: Some(speed),
                altitude: Some(altitude),
                ..Self::default()
            },
        }
    }
}

impl Circle {
    /// Returns the track.
    ///
    /// # Errors
    /// A value is outside its range.
    pub fn track(&self) -> Result<Track, TrackError> {
        let [latitude, longitude] = self.centre;
        let centre = Position::new(latitude, longitude, self.altitude.as_metres())?;
        Track::circle(centre, self.radius, self.speed)
    }
}

impl Waypoints {
    /// Returns the track.
    ///
    /// # Errors
    /// A value is outside its range.
    pub fn track(&self) -> Result<Track, TrackError> {
        let place = |[latitude, longitude]: &[f64; 2]| {
            Position::new(*latitude, *longitude, self.altitude.as_metres())
        };
        let places = self.waypoints.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        Track::waypoints(&places, self.speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Duration;

    fn read(text: &str) -> Result<TrackConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_string())
    }

    #[test]
    fn every_form_of_a_track_survives_a_round_trip() {
        for text in [
            "file = \"flight.gpx\"",
            "file = \"route.kml\"\nspeed = \"60m/s\"",
            "circle = { centre = [47, 7.4], radius = \"20km\", speed = \"40m/s\", altitude = \"3000m\" }",
            "waypoints = [[47.0, 7.4], [46.2, 6.1]]\nspeed = \"60m/s\"\naltitude = \"1000m\"",
        ] {
            let config = read(text).unwrap();
            assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config, "{text}");
        }
    }

    #[test]
    fn a_circle_and_waypoints_become_tracks_at_their_altitude() {
        let circle = read(
            "circle = { centre = [47, 7.4], radius = \"20km\", speed = \"40m/s\", altitude = \"3km\" }",
        );
        let Ok(TrackConfig::Circle(circle)) = circle else { panic!("{circle:?}") };
        assert_eq!(circle.track().unwrap().at(Duration::ZERO).altitude(), 3000.0);
        let ways = read("waypoints = [[47.0, 7.4], [46.2, 6.1]]\nspeed = \"60m/s\"");
        let Ok(TrackConfig::Waypoints(ways)) = ways else { panic!("{ways:?}") };
        assert_eq!(
            ways.track().unwrap().at(Duration::ZERO),
            Position::new(47.0, 7.4, 0.0).unwrap()
        );
    }

    #[test]
    fn an_inconsistent_table_is_rejected_with_what_was_expected() {
        for (text, expected) in [
            ("", "expected one of `file`, `circle` and `waypoints`"),
            ("file = \"a.csv\"\nwaypoints = [[0, 0]]", "expected one of"),
            ("waypoints = [[0, 0]]", "`waypoints` need a `speed`"),
            ("file = \"a.csv\"\naltitude = \"5m\"", "goes with `waypoints`"),
            ("waypoint = [[0, 0]]", "unknown field `waypoint`"),
            ("file = \"a\"\nspeed = \"5km\"", "not a unit of speed"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
