//! Radio cells along a track, compared with a search over every station.

use proptest::prelude::*;
use skybraid_track::{Cell, Grid, Position, Service, Track};
use skybraid_units::{Decibels, Duration, Instant, Length, Seed, Speed};

fn place(latitude: f64, longitude: f64, altitude: f64) -> Position {
    Position::new(latitude, longitude, altitude).unwrap()
}

fn grid() -> Grid {
    Grid::new(place(47.0, 7.4, 30.0), Length::from_metres(5000.0))
}

/// A track from the origin to the east, 60 km in 1000 s, along a row of stations.
fn eastwards() -> Track {
    let origin = place(47.0, 7.4, 30.0);
    let end = origin.destination(90.0, 60_000.0);
    Track::waypoints(&[origin, end], Speed::from_metres_per_second(60.0)).unwrap()
}

fn every_cell() -> impl Iterator<Item = Cell> {
    (-24..=24).flat_map(|q| (-20..=20).map(move |r| Cell { q, r }))
}

fn nearest_of_all(grid: &Grid, position: Position) -> Cell {
    let distance = |cell: &Cell| grid.distance(position, *cell);
    every_cell().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap()
}

fn serve(grid: &Grid, track: &Track, seconds: i64, seed: u64) -> Service {
    grid.serve(track, Duration::from_secs(seconds), Seed(seed), "lte")
}

#[test]
fn the_six_neighbours_are_one_spacing_away() {
    let (grid, origin) = (grid(), place(47.0, 7.4, 30.0));
    for (q, r) in [(1, 0), (0, 1), (-1, 1), (-1, 0), (0, -1), (1, -1)] {
        assert!((grid.distance(origin, Cell { q, r }) - 5000.0).abs() < 1e-6, "{q} {r}");
    }
    assert_eq!(grid.distance(place(47.0, 7.4, 1030.0), Cell { q: 0, r: 0 }), 1000.0);
}

// Halfway between two stations of a row, both are equally strong. A hysteresis of 3 dB at an exponent of 2.2 requires
// d1 / d2 = 10^(3/22) = 1.3689, which is 5 km · 1.3689 / 2.3689 = 2889.3 m after a station.
#[test]
fn handovers_along_a_row_follow_the_hysteresis() {
    let service = serve(&grid(), &eastwards(), 1000, 1);
    assert_eq!(service.first, Cell { q: 0, r: 0 });
    assert_eq!(service.handovers.len(), 12);
    for (index, handover) in service.handovers.iter().enumerate() {
        let seconds = (index as f64 * 5000.0 + 2889.3) / 60.0 + 0.16;
        let late = handover.at.as_secs_f64() - seconds;
        // At the next measurement, 40 ms apart.
        assert!((-0.001..0.041).contains(&late), "{handover:?} {late}");
        assert_eq!((handover.from.q, handover.to.q), (index as i32, index as i32 + 1));
        assert!((handover.distance - (5000.0 - 2889.3 - 0.16 * 60.0)).abs() < 3.0, "{handover:?}");
    }
    assert_eq!(service.serving().first(), Some(&(Instant::ZERO, Cell { q: 0, r: 0 })));
    assert_eq!(service.serving().len(), 13);
}

#[test]
fn without_hysteresis_the_nearest_station_serves() {
    let grid = Grid { hysteresis: Decibels::ZERO, time_to_trigger: Duration::ZERO, ..grid() };
    let centre = place(47.05, 7.5, 500.0);
    let (radius, speed) = (Length::from_metres(20_000.0), Speed::from_metres_per_second(100.0));
    let track = Track::circle(centre, radius, speed).unwrap();
    let service = serve(&grid, &track, 1300, 1);
    assert!(service.handovers.len() > 20, "{}", service.handovers.len());
    let serving = service.serving();
    for second in (0..1300).step_by(5) {
        // Just before a sample the serving station is that of the sample before.
        let at = Instant::from_millis(second * 1000);
        let (_, cell) = serving.iter().rev().find(|(from, _)| *from <= at).unwrap();
        let position = track.at(at.since(Instant::ZERO));
        let nearest = nearest_of_all(&grid, position);
        assert!(grid.distance(position, *cell) <= grid.distance(position, nearest) + 1e-6);
    }
}

// The reference searches every station, without a list of candidates.
#[test]
fn handovers_agree_with_a_search_over_all_stations() {
    let grid = Grid { time_to_trigger: Duration::from_millis(400), ..grid() };
    let places = [place(47.0, 7.4, 100.0), place(47.2, 7.9, 100.0), place(46.9, 7.7, 100.0)];
    let track = Track::waypoints(&places, Speed::from_metres_per_second(80.0)).unwrap();
    let service = serve(&grid, &track, 600, 1);
    let signal = |at: Duration, cell: Cell| -22.0 * grid.distance(track.at(at), cell).log10();
    let (mut serving, mut found) = (service.first, Vec::new());
    let mut waiting: Option<(Cell, Duration)> = None;
    for sample in 1..15_000 {
        let at = Duration::from_millis(40) * sample;
        // On this track, only the nearest station can be the first to be stronger for long enough.
        let best = nearest_of_all_near(&grid, track.at(at));
        let above = signal(at, best) > signal(at, serving) + 3.0;
        waiting = match waiting {
            _ if !above => None,
            Some((cell, since)) if cell == best => Some((cell, since)),
            _ => Some((best, at)),
        };
        if let Some((cell, since)) = waiting
            && at - since >= Duration::from_millis(400)
        {
            found.push((Instant::ZERO + at, serving, cell));
            (serving, waiting) = (cell, None);
        }
    }
    let handovers = service.handovers.iter();
    let handovers: Vec<_> =
        handovers.map(|handover| (handover.at, handover.from, handover.to)).collect();
    assert!(handovers.len() > 5);
    assert_eq!(handovers, found);
}

fn nearest_of_all_near(grid: &Grid, position: Position) -> Cell {
    let distance = |cell: &Cell| grid.distance(position, *cell);
    let cells = (-6..=12).flat_map(|q| (-7..=8).map(move |r| Cell { q, r }));
    cells.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap()
}

#[test]
fn shadowing_adds_handovers_and_is_reproducible() {
    let shadowed = Grid { shadowing: Decibels::new(6.0), ..grid() };
    let plain = serve(&grid(), &eastwards(), 1000, 1);
    let (one, again, other) = (
        serve(&shadowed, &eastwards(), 1000, 1),
        serve(&shadowed, &eastwards(), 1000, 1),
        serve(&shadowed, &eastwards(), 1000, 2),
    );
    assert!(one.handovers.len() > 2 * plain.handovers.len(), "{}", one.handovers.len());
    assert_eq!(one, again);
    assert_ne!(one, other);
    let longer = Duration::from_millis(2560);
    let patient = Grid { time_to_trigger: longer, ..shadowed };
    let calm = serve(&patient, &eastwards(), 1000, 1);
    assert!(calm.handovers.len() < one.handovers.len(), "{}", calm.handovers.len());
}

#[test]
fn a_node_at_rest_keeps_its_station() {
    let shadowed = Grid { shadowing: Decibels::new(6.0), ..grid() };
    let service = serve(&shadowed, &Track::fixed(place(47.02, 7.43, 100.0)), 100_000, 1);
    assert_eq!(service.handovers, []);
}

#[test]
fn values_out_of_range_are_named() {
    let zero = Grid { spacing: Length::ZERO, ..grid() };
    assert_eq!(zero.check().unwrap_err().0, "spacing");
    assert_eq!(Grid { exponent: f64::NAN, ..grid() }.check().unwrap_err().0, "exponent");
    let negative = Grid { hysteresis: Decibels::new(-1.0), ..grid() };
    assert_eq!(negative.check().unwrap_err(), ("hysteresis", "expected 0dB to 100dB".to_string()));
    assert_eq!(grid().check(), Ok(()));
}

proptest! {
    #[test]
    fn the_nearest_station_is_the_nearest_of_all(
        bearing in 0.0f64..360.0,
        distance in 0.0f64..60_000.0,
        altitude in 0.0f64..12_000.0,
    ) {
        let grid = grid();
        let position = place(47.0, 7.4, altitude).destination(bearing, distance);
        let (handed_over, found) = (grid.nearest(position), nearest_of_all(&grid, position));
        prop_assert!(grid.distance(position, handed_over) <= grid.distance(position, found) + 1e-6);
    }
}
