//! Routes from the serving satellite to a gateway, direct or over inter-satellite links.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use skybraid_units::{Duration, Promised};

use crate::constellation::Constellation;
use crate::epoch::Epoch;
use crate::visibility::{LIGHT, Observer, since_start};

/// A gateway, for routes.
pub(crate) struct Station<'a> {
    pub observer: Observer<'a>,
    /// One-way delay from the gateway to the other end.
    pub ground: Duration,
}

/// A route from a satellite to the other end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    /// Satellites, beginning with the serving one.
    pub satellites: Vec<usize>,
    /// Number of the gateway.
    pub gateway: usize,
}

/// Returns the propagation time over `metres` at the speed of light, in seconds.
fn light_time(metres: f64) -> f64 {
    metres / LIGHT
}

fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    let difference = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
    let [x, y, z] = difference;
    libm::sqrt(x * x + y * y + z * z)
}

/// Positions of satellites at one time, computed on first use.
struct Places<'a> {
    constellation: &'a Constellation,
    at: Epoch,
    known: Vec<Option<[f64; 3]>>,
}

impl Places<'_> {
    fn of(&mut self, satellite: usize) -> Option<[f64; 3]> {
        let known = self.known.get_mut(satellite).promised("a satellite of this number")?;
        if known.is_none() {
            let satellite = self.constellation.satellites().get(satellite);
            *known = satellite.promised("a satellite of this number")?.position(self.at);
        }
        *known
    }
}

/// Returns the gateway over which a satellite reaches the other end fastest, with the seconds to the other end.
pub(crate) fn fastest_gateway(
    position: [f64; 3],
    stations: &[Station],
    millis: i64,
) -> Option<(usize, f64)> {
    let mut best: Option<(usize, f64)> = None;
    for (number, station) in stations.iter().enumerate() {
        let sight = station.observer.sight_of(position, millis);
        let seconds = light_time(sight.range) + station.ground.as_secs_f64();
        if station.observer.sees(&sight) && best.is_none_or(|(_, min)| seconds < min) {
            best = Some((number, seconds));
        }
    }
    best
}

/// Returns the fastest route from a satellite over links to a gateway (Dijkstra 1959).
pub(crate) fn fastest_route(
    constellation: &Constellation,
    start: Epoch,
    satellite: usize,
    stations: &[Station],
    millis: i64,
) -> Option<Route> {
    let count = constellation.satellites().len();
    let at = start + since_start(millis);
    let mut places = Places { constellation, at, known: vec![None; count] };
    let mut min = vec![f64::INFINITY; count];
    let mut came_from: Vec<Option<usize>> = vec![None; count];
    *min.get_mut(satellite).promised("a satellite of this number")? = 0.0;
    // The bits of floating-point numbers that are not negative have the order of the numbers.
    let mut open = BinaryHeap::from([Reverse((0u64, satellite))]);
    let mut best: Option<(f64, usize, usize)> = None;
    while let Some(Reverse((bits, here))) = open.pop() {
        let so_far = f64::from_bits(bits);
        if best.is_some_and(|(total, ..)| so_far >= total) {
            break;
        }
        if min.get(here).promised("a satellite").is_none_or(|min| so_far > *min) {
            continue;
        }
        let Some(position) = places.of(here) else { continue };
        if let Some((gateway, rest)) = fastest_gateway(position, stations, millis) {
            let total = so_far + rest;
            if best.is_none_or(|(min, ..)| total < min) {
                best = Some((total, here, gateway));
            }
        }
        for next in constellation.neighbours(here) {
            let Some(there) = places.of(next) else { continue };
            let until = so_far + light_time(distance(position, there));
            if let Some(known) = min.get_mut(next).promised("a neighbouring satellite")
                && until < *known
            {
                *known = until;
                came_from[next] = Some(here);
                open.push(Reverse((until.to_bits(), next)));
            }
        }
    }
    let (_, last, gateway) = best?;
    let mut satellites = vec![last];
    let mut here = last;
    while let Some(before) = came_from[here] {
        satellites.push(before);
        here = before;
    }
    satellites.reverse();
    Some(Route { satellites, gateway })
}

impl Route {
    /// Returns the seconds from the serving satellite to the other end; `None` if the last satellite is not
    /// visible to the gateway.
    pub fn seconds(
        &self,
        constellation: &Constellation,
        start: Epoch,
        stations: &[Station],
        millis: i64,
    ) -> Option<f64> {
        let at = start + since_start(millis);
        let mut seconds = 0.0;
        let mut before: Option<[f64; 3]> = None;
        for satellite in &self.satellites {
            let satellite = constellation.satellites().get(*satellite);
            let position = satellite.promised("a satellite of the route")?.position(at)?;
            seconds += before.map_or(0.0, |before| light_time(distance(before, position)));
            before = Some(position);
        }
        let station = stations.get(self.gateway).promised("the gateway of the route")?;
        let sight = station.observer.sight_of(before?, millis);
        let rest = light_time(sight.range) + station.ground.as_secs_f64();
        station.observer.sees(&sight).then_some(seconds + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_track::{Position, Track};
    use skybraid_units::Angle;

    /// Minimum over all routes of at most `hops` links, by exhaustive search.
    fn fastest(
        constellation: &Constellation,
        here: usize,
        hops: u32,
        down_from: &dyn Fn(usize) -> Option<f64>,
    ) -> Option<f64> {
        let at = |satellite: usize| {
            constellation.satellites()[satellite].position(Epoch::J2000).unwrap()
        };
        let mut best = down_from(here);
        if hops > 0 {
            for next in constellation.neighbours(here) {
                let rest = fastest(constellation, next, hops - 1, down_from);
                let total = rest.map(|rest| rest + light_time(distance(at(here), at(next))));
                best = match (best, total) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        best
    }

    #[test]
    fn the_route_is_the_fastest_of_all_routes() {
        let iridium = Constellation::named("iridium").unwrap();
        let places: Vec<Track> = [(47.0, 8.0), (-35.0, 149.0)]
            .map(|(latitude, longitude)| {
                Track::fixed(Position::new(latitude, longitude, 0.0).unwrap())
            })
            .into();
        let stations: Vec<Station> = places
            .iter()
            .map(|place| Station {
                observer: Observer::new(place, Angle::from_degrees(8.0), Epoch::J2000),
                ground: Duration::from_millis(3),
            })
            .collect();
        for satellite in [0, 5, 17, 33, 48, 65] {
            let route = fastest_route(&iridium, Epoch::J2000, satellite, &stations, 0).unwrap();
            assert_eq!(route.satellites[0], satellite);
            let found = route.seconds(&iridium, Epoch::J2000, &stations, 0).unwrap();
            let down_from = |satellite: usize| {
                let position = iridium.satellites()[satellite].position(Epoch::J2000).unwrap();
                fastest_gateway(position, &stations, 0).map(|(_, seconds)| seconds)
            };
            let expected = fastest(&iridium, satellite, 7, &down_from).unwrap();
            assert!(route.satellites.len() <= 8, "{route:?}");
            assert!((found - expected).abs() < 1e-12, "{satellite}: {found} {expected}");
        }
    }
}
