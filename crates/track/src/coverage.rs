//! Coverage: values measured at places, looked up along a track.
//!
//! A file has a heading with `latitude` and `longitude` in degrees, perhaps `altitude_m`, and columns of values. The
//! nearest place within a radius counts: a mean of several would hide what varies between them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Duration, Length, Promised};

use crate::file::{ReadError, csv, number, position, wrong};
use crate::position::Position;
use crate::track::Track;

const HEADING: &str = "a heading with `latitude`, `longitude` and a column of values";

/// Values measured at places.
#[derive(Clone, Debug, PartialEq)]
pub struct Coverage {
    columns: Vec<String>,
    has_altitude: bool,
    places: Vec<Place>,
}

/// A place with its values; NaN where a field is empty.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    position: Position,
    values: Vec<f64>,
}

/// A place with a value of one column.
struct Known<'a> {
    place: &'a Place,
    /// Earth-centred coordinates at sea level, in metres.
    point: [f64; 3],
    value: f64,
}

/// A column over the time of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Along {
    /// Time of each value.
    pub times: Vec<Duration>,
    /// Value of the nearest place; `None` where no place is within the radius.
    pub values: Vec<Option<f64>>,
}

impl Coverage {
    /// Parses a file.
    ///
    /// # Errors
    /// Line at fault, with what was found and what was expected.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let ((at, heading, names), lines) = csv::lines(text, HEADING)?;
        let place_of = |name: &str| names.iter().position(|heading| *heading == name);
        let (Some(latitude), Some(longitude)) = (place_of("latitude"), place_of("longitude"))
        else {
            return Err(wrong(at, heading, HEADING));
        };
        let altitude = place_of("altitude_m");
        let own: Vec<usize> = (0..names.len())
            .filter(|place| ![Some(latitude), Some(longitude), altitude].contains(&Some(*place)))
            .collect();
        if own.is_empty() {
            return Err(wrong(at, heading, HEADING));
        }
        let mut places = Vec::new();
        for (line, row, fields) in lines {
            if fields.len() != names.len() {
                let expected = alloc::format!("{} fields", names.len());
                return Err(wrong(line, row, &expected));
            }
            let field = |place: usize| *fields.get(place).promised("a field").unwrap_or(&"");
            let height = altitude.map_or("0", field);
            let position = position(line, field(latitude), field(longitude), height)?;
            // Other columns may hold text, such as the operator's name.
            let value = |place: &usize| number(field(*place)).unwrap_or(f64::NAN);
            let values = own.iter().map(value).collect();
            places.push(Place { position, values });
        }
        if places.is_empty() {
            return Err(ReadError::Empty { expected: "a line below the heading" });
        }
        let names = own.iter().filter_map(|place| names.get(*place));
        let columns = names.map(|name| String::from(*name)).collect();
        Ok(Self { columns, has_altitude: altitude.is_some(), places })
    }

    /// Headings of the columns of values.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns all numbers of a column, places in the order of the file.
    pub fn values(&self, column: usize) -> impl Iterator<Item = f64> + '_ {
        self.places
            .iter()
            .filter_map(move |place| place.values.get(column).copied())
            .filter(|value| value.is_finite())
    }

    /// Returns a column along a track, every `every` from the start of a run of `length`. Without an altitude in the
    /// file, places count for all heights.
    pub fn along(
        &self,
        column: usize,
        track: &Track,
        length: Duration,
        every: Duration,
        radius: Length,
    ) -> Along {
        let radius = radius.as_metres().max(1.0);
        let bucket = |point: [f64; 3]| point.map(|metres| libm::floor(metres / radius) as i32);
        let mut buckets: BTreeMap<[i32; 3], Vec<Known<'_>>> = BTreeMap::new();
        for place in &self.places {
            let Some(value) = place.values.get(column).copied().filter(|value| value.is_finite())
            else {
                continue;
            };
            let point = at_sea_level(place.position);
            buckets.entry(bucket(point)).or_default().push(Known { place, point, value });
        }
        let nearest = |at: Position| {
            let point = at_sea_level(at);
            let centre = bucket(point);
            let mut best: Option<(f64, f64)> = None;
            for number in 0..27 {
                let [x, y, z] = centre;
                let key = [x + number % 3 - 1, y + number / 3 % 3 - 1, z + number / 9 - 1];
                for known in buckets.get(&key).into_iter().flatten() {
                    let over = squared(point, known.point);
                    if over > radius * radius {
                        continue;
                    }
                    let climb = known.place.position.altitude() - at.altitude();
                    let far = over + if self.has_altitude { climb * climb } else { 0.0 };
                    if best.is_none_or(|(least, _)| far < least) {
                        best = Some((far, known.value));
                    }
                }
            }
            best.map(|(_, value)| value)
        };
        let every = every.max(Duration::from_millis(1));
        let steps = length.as_nanos().max(0) / every.as_nanos() + 1;
        let times: Vec<Duration> = (0..steps).map(|step| every * step).collect();
        let values = times.iter().map(|time| nearest(track.at(*time))).collect();
        Along { times, values }
    }
}

fn at_sea_level(position: Position) -> [f64; 3] {
    position.at_altitude(0.0).unwrap_or(position).ecef()
}

fn squared(one: [f64; 3], other: [f64; 3]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Speed;

    fn place(latitude: f64, longitude: f64, altitude: f64) -> Position {
        Position::new(latitude, longitude, altitude).unwrap()
    }

    fn along(text: &str, from: Position, to: Position, radius: f64) -> Vec<Option<f64>> {
        let speed = Speed::from_metres_per_second(10.0);
        let track = Track::waypoints(&[from, to], speed).unwrap();
        let coverage = Coverage::read(text).unwrap();
        let (length, every) = (Duration::from_secs(20), Duration::from_secs(10));
        coverage.along(0, &track, length, every, Length::from_metres(radius)).values
    }

    #[test]
    fn the_nearest_place_within_the_radius_counts() {
        // 0.001° of longitude on the equator is 111 m.
        let text = "latitude,longitude,rate\n0,0,5\n0,0.001,7\n";
        let found = along(text, place(0.0, 0.0, 0.0), place(0.0, 0.01, 0.0), 60.0);
        // After 0, 100 and 200 m: at the first place, 11 m from the second, 89 m from it.
        assert_eq!(found, [Some(5.0), Some(7.0), None]);
    }

    #[test]
    fn altitudes_choose_among_places_one_above_another() {
        let text = "latitude,longitude,altitude_m,rate\n0,0,0,5\n0,0,100,7\n";
        let [low, high] = [40.0, 60.0].map(|altitude| place(0.0, 0.0, altitude));
        assert_eq!(along(text, low, low, 10.0)[0], Some(5.0));
        assert_eq!(along(text, high, high, 10.0)[0], Some(7.0));
    }

    #[test]
    fn places_on_both_sides_of_the_date_line_are_neighbours() {
        let text = "latitude,longitude,rate\n0,179.9999,5\n";
        let at = place(0.0, -179.9999, 0.0);
        assert_eq!(along(text, at, at, 50.0)[0], Some(5.0));
    }

    #[test]
    fn an_empty_field_is_no_measurement() {
        let text = "latitude,longitude,rate\n0,0,\n0,0.0001,7\n";
        let at = place(0.0, 0.0, 0.0);
        assert_eq!(along(text, at, at, 50.0)[0], Some(7.0));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("latitude,rate\n1,2\n", 1),
            ("latitude,longitude\n1,2\n", 1),
            ("latitude,longitude,rate\n1,2\n", 2),
            ("latitude,longitude,rate\n1,2,3\n91,2,3\n", 3),
        ] {
            let Err(ReadError::Line { line: found, .. }) = Coverage::read(text) else {
                panic!("{text}")
            };
            assert_eq!(found, line, "{text}");
        }
        assert!(matches!(
            Coverage::read("latitude,longitude,rate\n"),
            Err(ReadError::Empty { .. })
        ));
    }
}
