//! Positions on WGS 84: ECEF coordinates, look angles, distances and bearings.
//!
//! Source: NIMA TR8350.2, third edition (WGS 84); for the conversion from ECEF, B. R. Bowring, "The accuracy of
//! geodetic latitude and height equations", Survey Review 28 (1985).

use core::f64::consts::TAU;

use serde::{Deserialize, Serialize};
use skybraid_units::Length;

/// Equatorial radius of WGS 84 in metres.
const EQUATORIAL_RADIUS: f64 = 6_378_137.0;
/// Flattening of WGS 84.
const FLATTENING: f64 = 1.0 / 298.257_223_563;
/// First eccentricity squared.
const ECCENTRICITY_2: f64 = FLATTENING * (2.0 - FLATTENING);
/// Polar radius in metres.
const POLAR_RADIUS: f64 = EQUATORIAL_RADIUS * (1.0 - FLATTENING);

/// Mean radius of the earth in metres, (2a + b) / 3 of WGS 84 (Moritz, Geodetic Reference System 1980): the
/// radius of the sphere for distances.
pub const MEAN_RADIUS: f64 = (2.0 * EQUATORIAL_RADIUS + POLAR_RADIUS) / 3.0;

/// Error in the coordinates of a position.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PositionError {
    /// Latitude out of range.
    #[error("found the latitude {0}, expected -90 to 90 degrees")]
    Latitude(f64),
    /// Longitude out of range.
    #[error("found the longitude {0}, expected -180 to 180 degrees")]
    Longitude(f64),
    /// Altitude out of range.
    #[error("found the altitude {0}m, expected -12km to 1000000km")]
    Altitude(f64),
}

/// A geodetic position on WGS 84.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "PositionTable", into = "PositionTable")]
pub struct Position {
    latitude: f64,
    longitude: f64,
    altitude: f64,
}

/// Table of a position in a scenario: degrees as numbers, the altitude with its unit.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PositionTable {
    latitude: f64,
    longitude: f64,
    #[serde(default)]
    altitude: Length,
}

impl TryFrom<PositionTable> for Position {
    type Error = PositionError;
    fn try_from(table: PositionTable) -> Result<Self, PositionError> {
        Self::new(table.latitude, table.longitude, table.altitude.as_metres())
    }
}

impl From<Position> for PositionTable {
    fn from(position: Position) -> Self {
        Self {
            latitude: position.latitude,
            longitude: position.longitude,
            altitude: Length::from_metres(position.altitude),
        }
    }
}

/// Look angles and range of a point, as seen from a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Azimuth in degrees clockwise from north, 0 to 360.
    pub azimuth: f64,
    /// Elevation in degrees above the local horizontal plane of the ellipsoid, −90 to 90.
    pub elevation: f64,
    /// Line-of-sight distance in metres.
    pub range: f64,
}

impl Position {
    /// Creates a position from `latitude` (north, −90 to 90) and `longitude` (east, −180 to 180) in degrees and
    /// `altitude` above the ellipsoid in metres (−12 000 to 10⁹).
    ///
    /// # Errors
    /// One of the three is out of range or NaN.
    pub fn new(latitude: f64, longitude: f64, altitude: f64) -> Result<Self, PositionError> {
        if !(-90.0..=90.0).contains(&latitude) {
            return Err(PositionError::Latitude(latitude));
        }
        if !(-180.0..=180.0).contains(&longitude) {
            return Err(PositionError::Longitude(longitude));
        }
        if !(-12_000.0..=1e9).contains(&altitude) {
            return Err(PositionError::Altitude(altitude));
        }
        Ok(Self { latitude, longitude, altitude })
    }

    /// Latitude in degrees, north positive.
    pub const fn latitude(self) -> f64 {
        self.latitude
    }

    /// Longitude in degrees, east positive.
    pub const fn longitude(self) -> f64 {
        self.longitude
    }

    /// Altitude above the ellipsoid in metres.
    pub const fn altitude(self) -> f64 {
        self.altitude
    }

    /// Returns the position with another altitude above the ellipsoid, in metres.
    ///
    /// # Errors
    /// The altitude is out of range.
    pub fn at_altitude(self, altitude: f64) -> Result<Self, PositionError> {
        Self::new(self.latitude, self.longitude, altitude)
    }

    /// Returns the earth-centred, earth-fixed (ECEF) coordinates in metres: x towards the prime meridian on the
    /// equator, z towards the north pole.
    pub fn ecef(self) -> [f64; 3] {
        let [cos_latitude, sin_latitude] = circle(self.latitude);
        let [cos_longitude, sin_longitude] = circle(self.longitude);
        let normal =
            EQUATORIAL_RADIUS / libm::sqrt(1.0 - ECCENTRICITY_2 * sin_latitude * sin_latitude);
        let across = (normal + self.altitude) * cos_latitude;
        [
            across * cos_longitude,
            across * sin_longitude,
            (normal * (1.0 - ECCENTRICITY_2) + self.altitude) * sin_latitude,
        ]
    }

    /// Creates a position from ECEF coordinates in metres. The error is below 1 µm up to geostationary altitude.
    ///
    /// # Errors
    /// The altitude is out of range, or a coordinate is NaN.
    pub fn from_ecef([x, y, z]: [f64; 3]) -> Result<Self, PositionError> {
        let across = libm::hypot(x, y);
        let mut reduced = libm::atan2(z * EQUATORIAL_RADIUS, across * POLAR_RADIUS);
        let mut latitude = reduced;
        // Two iterations reach machine precision near the ground; high altitudes need a few more.
        for _ in 0..5 {
            let (sin, cos) = (libm::sin(reduced), libm::cos(reduced));
            let second = ECCENTRICITY_2 / (1.0 - ECCENTRICITY_2) * POLAR_RADIUS;
            latitude = libm::atan2(
                z + second * sin * sin * sin,
                across - ECCENTRICITY_2 * EQUATORIAL_RADIUS * cos * cos * cos,
            );
            reduced = libm::atan2((1.0 - FLATTENING) * libm::sin(latitude), libm::cos(latitude));
        }
        let (sin, cos) = (libm::sin(latitude), libm::cos(latitude));
        let altitude = across * cos + z * sin
            - EQUATORIAL_RADIUS * libm::sqrt(1.0 - ECCENTRICITY_2 * sin * sin);
        let longitude = libm::atan2(y, x);
        Self::new(latitude.to_degrees(), longitude.to_degrees(), altitude)
    }

    /// Returns the great-circle distance at sea level in metres, on the sphere of [`MEAN_RADIUS`]. It differs
    /// from the geodesic of the ellipsoid by at most 0.6 %.
    pub fn distance(self, to: Self) -> f64 {
        let half = |from: f64, to: f64| libm::sin((to - from).to_radians() / 2.0);
        let across = half(self.latitude, to.latitude);
        let along = half(self.longitude, to.longitude);
        let chord = across * across
            + libm::cos(self.latitude.to_radians())
                * libm::cos(to.latitude.to_radians())
                * along
                * along;
        2.0 * MEAN_RADIUS * libm::asin(libm::sqrt(chord.min(1.0)))
    }

    /// Returns the initial bearing of the great circle to `to`, in degrees clockwise from north, 0 to 360; 0
    /// for equal places.
    pub fn bearing(self, to: Self) -> f64 {
        let [cos_from, sin_from] = circle(self.latitude);
        let [cos_to, sin_to] = circle(to.latitude);
        let [cos_turn, sin_turn] = circle(to.longitude - self.longitude);
        let east = sin_turn * cos_to;
        let north = cos_from * sin_to - sin_from * cos_to * cos_turn;
        whole_turn(libm::atan2(east, north))
    }

    /// Returns the position `distance` metres along the great circle with this initial bearing (degrees
    /// clockwise from north), at sea level on the sphere of [`MEAN_RADIUS`], with the same altitude.
    #[must_use]
    pub fn destination(self, bearing: f64, distance: f64) -> Self {
        let [cos_latitude, sin_latitude] = circle(self.latitude);
        let [cos_longitude, sin_longitude] = circle(self.longitude);
        let [north, east] = circle(bearing);
        let angle = distance / MEAN_RADIUS;
        let (ahead, stay) = (libm::sin(angle), libm::cos(angle));
        let out = stay * cos_latitude - ahead * north * sin_latitude;
        let x = out * cos_longitude - ahead * east * sin_longitude;
        let y = out * sin_longitude + ahead * east * cos_longitude;
        let z = stay * sin_latitude + ahead * north * cos_latitude;
        let latitude = libm::atan2(z, libm::hypot(x, y)).to_degrees();
        let longitude = libm::atan2(y, x).to_degrees();
        Self::new(latitude, longitude, self.altitude).unwrap_or(self)
    }

    /// Returns a point in ECEF metres as local coordinates: metres to the east, to the north and upwards.
    pub fn east_north_up(self, point: [f64; 3]) -> [f64; 3] {
        let [cos_latitude, sin_latitude] = circle(self.latitude);
        let [cos_longitude, sin_longitude] = circle(self.longitude);
        let here = self.ecef();
        let [x, y, z] = [point[0] - here[0], point[1] - here[1], point[2] - here[2]];
        let out = cos_longitude * x + sin_longitude * y;
        [
            cos_longitude * y - sin_longitude * x,
            cos_latitude * z - sin_latitude * out,
            cos_latitude * out + sin_latitude * z,
        ]
    }

    /// Returns look angles and range of a point in ECEF metres; azimuth and elevation are 0 for the position itself.
    pub fn look(self, point: [f64; 3]) -> Look {
        let [east, north, up] = self.east_north_up(point);
        let level = libm::hypot(east, north);
        Look {
            azimuth: whole_turn(libm::atan2(east, north)),
            elevation: libm::atan2(up, level).to_degrees(),
            range: libm::hypot(level, up),
        }
    }
}

/// Returns cosine and sine of an angle in degrees.
fn circle(degrees: f64) -> [f64; 2] {
    let radians = degrees.to_radians();
    [libm::cos(radians), libm::sin(radians)]
}

/// Converts radians to degrees from 0 to 360.
fn whole_turn(radians: f64) -> f64 {
    (if radians < 0.0 { radians + TAU } else { radians }).to_degrees()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn place(latitude: f64, longitude: f64, altitude: f64) -> Position {
        Position::new(latitude, longitude, altitude).unwrap()
    }

    fn near(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() <= within, "found {found}, expected {expected}");
    }

    #[test]
    fn the_axes_of_the_ellipsoid_are_those_of_wgs_84() {
        assert_eq!(place(0.0, 0.0, 0.0).ecef(), [6_378_137.0, 0.0, 0.0]);
        let pole = place(90.0, 0.0, 100.0).ecef();
        near(pole[2], 6_356_752.314_245 + 100.0, 1e-6);
        near(pole[0], 0.0, 1e-6);
        near(MEAN_RADIUS, 6_371_008.771_4, 1e-3);
    }

    /// By hand for 45° north: N = a / sqrt(1 − e²/2) = 6 388 838.290 m, and along the axis
    /// N (1 − e²) sin 45° = 4 487 348.409 m.
    #[test]
    fn ecef_follows_the_definition() {
        let [x, y, z] = place(45.0, 90.0, 0.0).ecef();
        near(x, 0.0, 1e-6);
        near(y, 6_388_838.290_121 * core::f64::consts::FRAC_1_SQRT_2, 1e-3);
        near(z, 4_487_348.409, 1e-2);
    }

    /// One degree of latitude is π R / 180 = 111 195.08 m on the mean sphere.
    #[test]
    fn a_degree_of_latitude_has_the_length_on_the_mean_sphere() {
        near(place(0.0, 7.0, 0.0).distance(place(1.0, 7.0, 0.0)), 111_195.08, 0.01);
        near(place(0.0, -90.0, 0.0).distance(place(0.0, 90.0, 0.0)), MEAN_RADIUS * TAU / 2.0, 0.1);
    }

    /// The geodesic of the ellipsoid from Vincenty's own test line: Flinders Peak to Buninyong is
    /// 54 972.271 m with an azimuth of 306°52'05.37" (Geoscience Australia, GRS 80).
    #[test]
    fn distance_and_bearing_are_close_to_the_geodesic() {
        let flinders = place(
            -(37.0 + 57.0 / 60.0 + 3.72030 / 3600.0),
            144.0 + 25.0 / 60.0 + 29.52440 / 3600.0,
            0.0,
        );
        let buninyong = place(
            -(37.0 + 39.0 / 60.0 + 10.15610 / 3600.0),
            143.0 + 55.0 / 60.0 + 35.38390 / 3600.0,
            0.0,
        );
        near(flinders.distance(buninyong), 54_972.271, 0.006 * 54_972.271);
        near(flinders.bearing(buninyong), 306.0 + 52.0 / 60.0 + 5.37 / 3600.0, 0.2);
    }

    #[test]
    fn look_angles_are_right_overhead_and_on_the_horizon() {
        let here = place(47.0, 7.4, 500.0);
        let look = here.look(place(47.0, 7.4, 550_500.0).ecef());
        near(look.elevation, 90.0, 1e-5);
        near(look.range, 550_000.0, 1e-6);
        let equator = place(0.0, 0.0, 0.0);
        let look = equator.look([6_378_137.0, 1000.0, 0.0]);
        assert_eq!(look, Look { azimuth: 90.0, elevation: 0.0, range: 1000.0 });
        assert_eq!(equator.look([6_378_137.0, -1.0, 0.0]).azimuth, 270.0);
    }

    /// Elevation of a geostationary satellite on the own meridian, on the ellipsoid: from the two
    /// points' difference (42 164 000 − x, z).
    #[test]
    fn a_geostationary_satellite_is_south_of_berne() {
        let berne = place(46.95, 7.44, 550.0);
        let satellite = place(0.0, 7.44, 42_164_000.0 - 6_378_137.0);
        let look = berne.look(satellite.ecef());
        near(look.azimuth, 180.0, 1e-6);
        // Sphere: elevation = atan((cos φ − R / r) / sin φ) = 36.1°; the ellipsoid moves it by < 0.2°.
        near(look.elevation, 36.1, 0.2);
        near(look.range, 38_130_000.0, 60_000.0);
    }

    #[test]
    fn coordinates_out_of_range_are_rejected() {
        let error = Position::new(91.0, 0.0, 0.0).unwrap_err().to_string();
        assert_eq!(error, "found the latitude 91, expected -90 to 90 degrees");
        assert!(Position::new(0.0, f64::NAN, 0.0).is_err());
        assert!(Position::new(0.0, 0.0, -20_000.0).is_err());
        assert!(Position::from_ecef([0.0, 0.0, 0.0]).is_err());
        assert!(Position::from_ecef([f64::NAN, 0.0, 0.0]).is_err());
    }

    #[test]
    fn a_position_is_written_with_the_unit_of_its_altitude() {
        let text = "latitude = 46.9\nlongitude = 7\naltitude = \"550m\"\n";
        let read: Position = toml::from_str(text).unwrap();
        assert_eq!(read, place(46.9, 7.0, 550.0));
        assert_eq!(toml::from_str::<Position>(&toml::to_string(&read).unwrap()).unwrap(), read);
        let error = toml::from_str::<Position>("latitude = 100\nlongitude = 7").unwrap_err();
        assert!(error.message().contains("expected -90 to 90 degrees"), "{error}");
    }

    proptest! {
        #[test]
        fn ecef_coordinates_convert_back_to_the_position(
            latitude in -90.0f64..90.0,
            longitude in -180.0f64..180.0,
            altitude in -10_000.0f64..36_000_000.0,
        ) {
            let here = place(latitude, longitude, altitude);
            let back = Position::from_ecef(here.ecef()).unwrap();
            prop_assert!((back.latitude - latitude).abs() < 1e-10, "{back:?}");
            prop_assert!((back.altitude - altitude).abs() < 1e-6, "{back:?}");
            let [east, north, up] = here.east_north_up(back.ecef());
            prop_assert!(libm::hypot(libm::hypot(east, north), up) < 1e-6);
        }

        #[test]
        fn a_destination_lies_as_far_away_as_asked_and_in_its_direction(
            latitude in -80.0f64..80.0,
            longitude in -180.0f64..180.0,
            bearing in 0.0f64..360.0,
            distance in 10.0f64..5_000_000.0,
        ) {
            let here = place(latitude, longitude, 0.0);
            let there = here.destination(bearing, distance);
            prop_assert!((here.distance(there) - distance).abs() < 1e-3);
            let turn = (here.bearing(there) - bearing).abs();
            prop_assert!(turn.min(360.0 - turn) < 1e-4, "{turn}");
        }
    }
}
