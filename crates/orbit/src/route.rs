//! The way from the satellite that serves to a gateway: straight down, or over other satellites.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use skybraid_units::Duration;

use crate::constellation::Constellation;
use crate::epoch::Epoch;
use crate::visibility::{LIGHT, Observer, since_start};

/// A gateway as routes need it.
pub(crate) struct Station<'a> {
    pub observer: Observer<'a>,
    /// One way from the gateway to the other end.
    pub ground: Duration,
}

/// A way from a satellite to the other end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    /// The satellites, beginning with the one that serves.
    pub satellites: Vec<usize>,
    /// Number of the gateway.
    pub gateway: usize,
}

/// Seconds that light needs for `metres`.
fn light_time(metres: f64) -> f64 {
    metres / LIGHT
}

fn apart(a: [f64; 3], b: [f64; 3]) -> f64 {
    let way = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
    libm::sqrt(way[0] * way[0] + way[1] * way[1] + way[2] * way[2])
}

/// Where satellites are at one time, each worked out when it is first asked for.
struct Places<'a> {
    constellation: &'a Constellation,
    at: Epoch,
    known: Vec<Option<[f64; 3]>>,
}

impl Places<'_> {
    fn of(&mut self, satellite: usize) -> Option<[f64; 3]> {
        let known = self.known.get_mut(satellite)?;
        if known.is_none() {
            *known = self.constellation.satellites().get(satellite)?.position(self.at);
        }
        *known
    }
}

/// The gateway over which a satellite reaches the other end soonest, and the seconds until there.
pub(crate) fn down(position: [f64; 3], stations: &[Station], millis: i64) -> Option<(usize, f64)> {
    let mut best: Option<(usize, f64)> = None;
    for (number, station) in stations.iter().enumerate() {
        let sight = station.observer.sight_of(position, millis);
        let seconds = light_time(sight.range) + station.ground.as_secs_f64();
        if station.observer.sees(&sight) && best.is_none_or(|(_, least)| seconds < least) {
            best = Some((number, seconds));
        }
    }
    best
}

/// The quickest route from a satellite over links to a gateway (Dijkstra 1959).
pub(crate) fn quickest(
    constellation: &Constellation,
    start: Epoch,
    satellite: usize,
    stations: &[Station],
    millis: i64,
) -> Option<Route> {
    let count = constellation.satellites().len();
    let at = start + since_start(millis);
    let mut places = Places { constellation, at, known: vec![None; count] };
    let mut least = vec![f64::INFINITY; count];
    let mut came_from: Vec<Option<usize>> = vec![None; count];
    *least.get_mut(satellite)? = 0.0;
    // Seconds are ordered as their bits, since none is negative.
    let mut open = BinaryHeap::from([Reverse((0u64, satellite))]);
    let mut best: Option<(f64, usize, usize)> = None;
    while let Some(Reverse((bits, here))) = open.pop() {
        let so_far = f64::from_bits(bits);
        if best.is_some_and(|(whole, ..)| so_far >= whole) {
            break;
        }
        if least.get(here).is_none_or(|least| so_far > *least) {
            continue;
        }
        let Some(position) = places.of(here) else { continue };
        if let Some((gateway, rest)) = down(position, stations, millis) {
            let whole = so_far + rest;
            if best.is_none_or(|(least, ..)| whole < least) {
                best = Some((whole, here, gateway));
            }
        }
        for next in constellation.neighbours(here) {
            let Some(there) = places.of(next) else { continue };
            let until = so_far + light_time(apart(position, there));
            if let Some(known) = least.get_mut(next)
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
    while let Some(before) = came_from.get(here).copied().flatten() {
        satellites.push(before);
        here = before;
    }
    satellites.reverse();
    Some(Route { satellites, gateway })
}

impl Route {
    /// Seconds from the satellite that serves to the other end; `None` if the gateway no longer sees
    /// the last satellite.
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
            let position = constellation.satellites().get(*satellite)?.position(at)?;
            seconds += before.map_or(0.0, |before| light_time(apart(before, position)));
            before = Some(position);
        }
        let station = stations.get(self.gateway)?;
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

    /// Every way of at most `hops` links, by trying them all.
    fn least(
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
                let rest = least(constellation, next, hops - 1, down_from);
                let whole = rest.map(|rest| rest + light_time(apart(at(here), at(next))));
                best = match (best, whole) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        best
    }

    #[test]
    fn the_route_is_the_quickest_of_all_that_there_are() {
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
            let route = quickest(&iridium, Epoch::J2000, satellite, &stations, 0).unwrap();
            assert_eq!(route.satellites[0], satellite);
            let found = route.seconds(&iridium, Epoch::J2000, &stations, 0).unwrap();
            let down_from = |satellite: usize| {
                let position = iridium.satellites()[satellite].position(Epoch::J2000).unwrap();
                down(position, &stations, 0).map(|(_, seconds)| seconds)
            };
            let expected = least(&iridium, satellite, 7, &down_from).unwrap();
            assert!(route.satellites.len() <= 8, "{route:?}");
            assert!((found - expected).abs() < 1e-12, "{satellite}: {found} {expected}");
        }
    }
}
