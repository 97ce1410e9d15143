//! Tracks: positions of a node over the time of a run.

use alloc::vec::Vec;

use skybraid_units::{Duration, Length, Speed};

use crate::position::{Position, PositionError};

/// Error in the construction of a track.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrackError {
    /// No point.
    #[error("found no point, expected at least one")]
    Empty,
    /// Times do not increase.
    #[error("found the time {found} after {previous}, expected a later one")]
    Time {
        /// Time of the point at fault.
        found: Duration,
        /// Time of the point before.
        previous: Duration,
    },
    /// Speed not above zero.
    #[error("found the speed {0}, expected above zero")]
    Speed(Speed),
    /// Radius not above zero, or more than a quarter of the earth's circumference.
    #[error("found the radius {0}, expected above zero and at most 10000km")]
    Radius(Length),
    /// Invalid position.
    #[error(transparent)]
    Position(#[from] PositionError),
}

/// Positions over the time of a run. Before its first point and after its last point, a track rests there.
#[derive(Clone, Debug, PartialEq)]
pub struct Track(Shape);

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    /// Legs in order of time, with the last point.
    Legs { legs: Vec<Leg>, end: Position },
    /// Clockwise circle around `centre`, starting in the north.
    Circle { centre: Position, radius: f64, degrees_per_second: f64 },
}

/// Leg between two points: a great circle at constant speed with linear altitude.
#[derive(Clone, Debug, PartialEq)]
struct Leg {
    start: Duration,
    length: Duration,
    from: Position,
    climb: f64,
    bearing: f64,
    distance: f64,
}

impl Leg {
    fn new((start, from): (Duration, Position), (end, to): (Duration, Position)) -> Self {
        Self {
            start,
            length: end - start,
            from,
            climb: to.altitude() - from.altitude(),
            bearing: from.bearing(to),
            distance: from.distance(to),
        }
    }

    fn at(&self, time: Duration) -> Position {
        let share = (time - self.start).as_nanos() as f64 / self.length.as_nanos() as f64;
        let over = self.from.destination(self.bearing, self.distance * share);
        over.at_altitude(self.from.altitude() + self.climb * share).unwrap_or(over)
    }
}

impl Track {
    /// Returns the track of a node at rest.
    pub const fn fixed(position: Position) -> Self {
        Self(Shape::Legs { legs: Vec::new(), end: position })
    }

    /// Returns the track through points at given times.
    ///
    /// # Errors
    /// There is no point, or times do not increase.
    pub fn through(points: &[(Duration, Position)]) -> Result<Self, TrackError> {
        let Some(&(_, end)) = points.last() else { return Err(TrackError::Empty) };
        let mut legs = Vec::with_capacity(points.len());
        for (&from, &to) in points.iter().zip(points.iter().skip(1)) {
            if to.0 <= from.0 {
                return Err(TrackError::Time { found: to.0, previous: from.0 });
            }
            legs.push(Leg::new(from, to));
        }
        Ok(Self(Shape::Legs { legs, end }))
    }

    /// Returns the track through points in order, at constant speed over ground from time zero. Repeated points are
    /// dropped.
    ///
    /// # Errors
    /// There is no point, or the speed is not above zero.
    pub fn waypoints(points: &[Position], speed: Speed) -> Result<Self, TrackError> {
        let pace = above_zero(speed)?;
        let Some(&first) = points.first() else { return Err(TrackError::Empty) };
        let mut timed = Vec::with_capacity(points.len());
        timed.push((Duration::ZERO, first));
        let (mut last, mut travelled) = (first, 0.0);
        for &point in points.iter().skip(1) {
            travelled += last.distance(point);
            let at = Duration::from_secs_f64(travelled / pace);
            if timed.last().is_some_and(|(previous, _)| at > *previous) {
                timed.push((at, point));
                last = point;
            }
        }
        Self::through(&timed)
    }

    /// Returns an endless clockwise circle around `centre`, at its altitude and constant speed over ground,
    /// starting in the north.
    ///
    /// # Errors
    /// Radius or speed are not above zero, or the radius is above 10 000 km.
    pub fn circle(centre: Position, radius: Length, speed: Speed) -> Result<Self, TrackError> {
        let (metres, pace) = (radius.as_metres(), above_zero(speed)?);
        if !(metres > 0.0 && metres <= 1e7) {
            return Err(TrackError::Radius(radius));
        }
        // Euclidean radius of the circle, smaller than its radius over ground.
        let through = crate::MEAN_RADIUS * libm::sin(metres / crate::MEAN_RADIUS);
        let degrees_per_second = (pace / through).to_degrees();
        Ok(Self(Shape::Circle { centre, radius: metres, degrees_per_second }))
    }

    /// Position of the node `time` after the start of the run.
    pub fn at(&self, time: Duration) -> Position {
        match &self.0 {
            Shape::Circle { centre, radius, degrees_per_second } => {
                let turned = degrees_per_second * time.max(Duration::ZERO).as_secs_f64();
                centre.destination(turned % 360.0, *radius)
            }
            Shape::Legs { legs, end } => {
                let begun = legs.partition_point(|leg| leg.start <= time);
                let Some(index) = begun.checked_sub(1) else {
                    return legs.first().map_or(*end, |leg| leg.from);
                };
                match legs.get(index) {
                    Some(leg) if time == leg.start => leg.from,
                    Some(leg) if time < leg.start + leg.length => leg.at(time),
                    _ => *end,
                }
            }
        }
    }

    /// Time of the last point; zero for a node at rest, `None` for a circle.
    pub fn end(&self) -> Option<Duration> {
        match &self.0 {
            Shape::Circle { .. } => None,
            Shape::Legs { legs, .. } => {
                Some(legs.last().map_or(Duration::ZERO, |leg| leg.start + leg.length))
            }
        }
    }

    /// Whether the node never moves.
    pub fn is_fixed(&self) -> bool {
        matches!(&self.0, Shape::Legs { legs, .. } if legs.is_empty())
    }
}

/// Returns the speed in metres per second if it is above zero.
fn above_zero(speed: Speed) -> Result<f64, TrackError> {
    let pace = speed.as_metres_per_second();
    if pace > 0.0 { Ok(pace) } else { Err(TrackError::Speed(speed)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(latitude: f64, longitude: f64, altitude: f64) -> Position {
        Position::new(latitude, longitude, altitude).unwrap()
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_leg_follows_the_great_circle_and_climbs_linearly() {
        let (berne, geneva) = (place(46.95, 7.44, 500.0), place(46.2, 6.14, 1500.0));
        let track = Track::through(&[(seconds(10.0), berne), (seconds(110.0), geneva)]).unwrap();
        let middle = track.at(seconds(60.0));
        assert!((berne.distance(middle) - middle.distance(geneva)).abs() < 1e-3);
        let way = berne.distance(middle) + middle.distance(geneva);
        assert!((way - berne.distance(geneva)).abs() < 1e-3);
        assert!((middle.altitude() - 1000.0).abs() < 1e-9);
        assert_eq!(track.at(seconds(0.0)), berne);
        assert_eq!(track.at(seconds(10.0)).latitude(), 46.95);
        assert_eq!((track.at(seconds(110.0)), track.at(seconds(1e6))), (geneva, geneva));
        assert_eq!(track.end(), Some(seconds(110.0)));
    }

    #[test]
    fn waypoints_are_passed_at_the_configured_speed() {
        let points = [place(47.0, 7.4, 0.0), place(46.2, 6.1, 0.0), place(46.2, 6.1, 0.0)];
        let track = Track::waypoints(&points, Speed::from_metres_per_second(60.0)).unwrap();
        let (a, b) = (track.at(seconds(100.0)), track.at(seconds(101.0)));
        assert!((a.distance(b) - 60.0).abs() < 1e-3);
        let length = points[0].distance(points[1]);
        assert!((track.end().unwrap().as_secs_f64() - length / 60.0).abs() < 1e-6);
    }

    // A round of 2 π · 20 km at 40 m/s takes 3141.6 s on a plane; on the sphere the circle is
    // shorter by (r / R)² / 6 = 1.6e-6 of it.
    #[test]
    fn a_circle_keeps_its_radius_and_speed() {
        let centre = place(47.0, 7.4, 3000.0);
        let (radius, speed) = (Length::from_metres(20_000.0), Speed::from_metres_per_second(40.0));
        let track = Track::circle(centre, radius, speed).unwrap();
        for at in [0.0, 500.0, 1234.5] {
            assert!((centre.distance(track.at(seconds(at))) - 20_000.0).abs() < 1e-3);
            let step = track.at(seconds(at)).distance(track.at(seconds(at + 1.0)));
            assert!((step - 40.0).abs() < 1e-3, "{step}");
        }
        assert!(track.at(Duration::ZERO).latitude() > 47.17);
        assert!(track.at(seconds(785.4)).longitude() > 7.65, "a quarter later in the east");
        let round = core::f64::consts::TAU * 20_000.0 / 40.0 * (1.0 - 1.64e-6);
        assert!(track.at(Duration::ZERO).distance(track.at(seconds(round))) < 0.1);
        assert_eq!(track.end(), None);
    }

    #[test]
    fn invalid_tracks_are_rejected() {
        let here = place(0.0, 0.0, 0.0);
        assert_eq!(Track::through(&[]), Err(TrackError::Empty));
        let twice = Track::through(&[(seconds(1.0), here), (seconds(1.0), here)]);
        assert_eq!(twice, Err(TrackError::Time { found: seconds(1.0), previous: seconds(1.0) }));
        assert!(matches!(Track::waypoints(&[here], Speed::ZERO), Err(TrackError::Speed(_))));
        assert!(Track::circle(here, Length::ZERO, Speed::from_metres_per_second(1.0)).is_err());
    }

    proptest! {
        #[test]
        fn a_track_is_continuous_and_passes_its_points_on_time(
            points in proptest::collection::vec((-85.0f64..85.0, -180.0f64..180.0), 1..8),
        ) {
            let timed: Vec<_> = points
                .iter()
                .enumerate()
                .map(|(index, (latitude, longitude))| {
                    (seconds(index as f64 * 1000.0), place(*latitude, *longitude, 0.0))
                })
                .collect();
            let track = Track::through(&timed).unwrap();
            for (at, point) in &timed {
                prop_assert!(track.at(*at).distance(*point) < 1e-3);
            }
            for step in 0..points.len() * 20 {
                let at = seconds(step as f64 * 50.0);
                let apart = track.at(at).distance(track.at(at + seconds(50.0)));
                prop_assert!(apart <= core::f64::consts::PI * crate::MEAN_RADIUS / 20.0 + 1.0);
            }
        }
    }
}
