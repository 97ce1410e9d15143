//! Walker shells: evenly spaced planes of one inclination, with evenly spaced satellites in each plane.
//!
//! Source: J. G. Walker, "Satellite constellations", JBIS 37 (1984): i:t/p/f with t satellites in p planes; a
//! satellite is f · 360°/t ahead of its neighbour in the plane to the west.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::f64::consts::{PI, TAU};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::form::text_or_table;
use skybraid_units::{Angle, Length, defaults};

use crate::epoch::Epoch;
use crate::satellite::{Circular, EARTH_RADIUS, Motion, Satellite};

/// A shell of satellites on circular orbits.
///
/// In TOML a table, or Walker's notation followed by the altitude: `"53deg:1584/72/65@550km"` for a delta
/// (planes over 360° of longitude), `"star 86.4deg:66/6/2@780km"` for a star (over 180°).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walker {
    /// Altitude above the equator.
    pub altitude: Length,
    /// Inclination of all planes.
    pub inclination: Angle,
    /// Number of planes.
    pub planes: u32,
    /// Satellites in each plane.
    pub per_plane: u32,
    /// Walker's f, from 0 to below the number of planes.
    pub phasing: u32,
    /// Whether the planes span 180° of longitude (star) rather than 360° (delta).
    pub star: bool,
    /// Time at which the first plane's node is at the equinox and its first satellite is at the node.
    pub epoch: Epoch,
}

/// Table of a shell in a scenario.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WalkerTable {
    altitude: Length,
    inclination: Angle,
    planes: u32,
    per_plane: u32,
    #[serde(default)]
    phasing: u32,
    #[serde(default)]
    star: bool,
    #[serde(default = "j2000")]
    epoch: Epoch,
}

defaults! { j2000: Epoch = Epoch::J2000; }

/// Maximum number of satellites of a shell.
const MAX_SATELLITES: u64 = 100_000;

impl Walker {
    /// Creates a delta; altitude in km, inclination in degrees.
    pub(crate) const fn delta(
        altitude: f64,
        inclination: f64,
        planes: u32,
        per_plane: u32,
        phasing: u32,
    ) -> Self {
        Self {
            altitude: Length::from_metres(altitude * 1000.0),
            inclination: Angle::from_degrees(inclination),
            planes,
            per_plane,
            phasing,
            star: false,
            epoch: Epoch::J2000,
        }
    }

    /// Returns the shell as a star.
    pub(crate) const fn as_star(self) -> Self {
        Self { star: true, ..self }
    }

    /// Parses Walker's notation, see [`Walker`].
    ///
    /// # Errors
    /// The text is not valid; the error names what was found and what was expected.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let whole = || {
            format!(
                "found \"{text}\", expected i:t/p/f@altitude, for example \"53deg:1584/72/65@550km\""
            )
        };
        let trimmed = text.trim();
        let (star, rest) = match trimmed.strip_prefix("star ") {
            Some(rest) => (true, rest),
            None => (false, trimmed.strip_prefix("delta ").unwrap_or(trimmed)),
        };
        let (inclination, rest) = rest.split_once(':').ok_or_else(whole)?;
        let (numbers, altitude) = rest.split_once('@').ok_or_else(whole)?;
        let mut numbers = numbers.split('/').map(|number| number.trim().parse::<u32>().ok());
        let mut number = || numbers.next().flatten().ok_or_else(whole);
        let (all, planes, phasing) = (number()?, number()?, number()?);
        if numbers.next().is_some() {
            return Err(whole());
        }
        if planes == 0 || all % planes != 0 {
            return Err(format!(
                "found {all} satellites in {planes} planes, expected as many in each"
            ));
        }
        let shell = Self {
            altitude: Length::from_text(altitude).map_err(|error| error.to_string())?,
            inclination: Angle::from_text(inclination).map_err(|error| error.to_string())?,
            planes,
            per_plane: all / planes,
            phasing,
            star,
            epoch: Epoch::J2000,
        };
        shell.check()?;
        Ok(shell)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// Value that was found, and what was expected.
    pub fn check(&self) -> Result<(), String> {
        let (altitude, inclination) = (self.altitude, self.inclination);
        if !(100e3..=500_000e3).contains(&altitude.as_metres()) {
            return Err(format!("found the altitude {altitude}, expected 100km to 500000km"));
        }
        if !(0.0..=180.0).contains(&inclination.as_degrees()) {
            return Err(format!("found the inclination {inclination}, expected 0deg to 180deg"));
        }
        let all = u64::from(self.planes) * u64::from(self.per_plane);
        if !(1..=MAX_SATELLITES).contains(&all) {
            return Err(format!("found {all} satellites, expected 1 to {MAX_SATELLITES}"));
        }
        if self.phasing >= self.planes {
            let (phasing, planes) = (self.phasing, self.planes);
            return Err(format!(
                "found the phasing {phasing}, expected 0 to below {planes}, the planes"
            ));
        }
        Ok(())
    }

    /// Orbital radius in m.
    fn radius(&self) -> f64 {
        EARTH_RADIUS + self.altitude.as_metres()
    }

    /// Angle between the nodes of adjacent planes, in rad.
    fn between_nodes(&self) -> f64 {
        (if self.star { PI } else { TAU }) / f64::from(self.planes)
    }

    /// Phase by which a satellite is ahead of its neighbour in the plane to the west, in rad.
    fn ahead(&self) -> f64 {
        TAU * f64::from(self.phasing) / (f64::from(self.planes) * f64::from(self.per_plane))
    }

    /// Returns the satellites, plane by plane, named `label.plane.place`, both numbers from one.
    pub fn satellites(&self, label: &str) -> Vec<Satellite> {
        let mut satellites = Vec::new();
        for plane in 0..self.planes {
            for place in 0..self.per_plane {
                let orbit = Circular {
                    radius: self.radius(),
                    inclination: self.inclination.as_radians(),
                    node: f64::from(plane) * self.between_nodes(),
                    phase: TAU * f64::from(place) / f64::from(self.per_plane)
                        + f64::from(plane) * self.ahead(),
                    epoch: self.epoch,
                };
                satellites.push(Satellite {
                    name: format!("{label}.{}.{}", plane + 1, place + 1),
                    motion: Motion::Circular(orbit),
                });
            }
        }
        satellites
    }

    /// Returns whether neighbours in a plane, and neighbours in adjacent planes, always have a line of sight at least
    /// [`CLEARANCE`] above the ground.
    pub(crate) fn sights(&self) -> (bool, bool) {
        let sees = |angle: f64| self.radius() * libm::cos(angle / 2.0) >= EARTH_RADIUS + CLEARANCE;
        let along = self.per_plane > 1 && sees(TAU / f64::from(self.per_plane));
        let widest = (0..360).map(|step| self.apart(f64::from(step).to_radians()));
        let across = self.planes > 1 && sees(widest.fold(0.0, f64::max));
        (along, across)
    }

    /// Places by which the satellite of the next plane that is nearest in phase is behind the satellite of the
    /// same number.
    pub(crate) const fn shift(&self) -> u32 {
        (2 * self.phasing + self.planes) / (2 * self.planes)
    }

    /// Returns the angle at the Earth's centre between a satellite `phase` past its node and its neighbour in
    /// the next plane, in rad.
    fn apart(&self, phase: f64) -> f64 {
        let shift = TAU * f64::from(self.shift()) / f64::from(self.per_plane);
        let (turned, other) = (self.between_nodes(), phase + self.ahead() - shift);
        let cosine = libm::cos(self.inclination.as_radians());
        let sine = libm::sin(self.inclination.as_radians());
        let (x, y) = (libm::cos(phase), libm::sin(phase));
        let (along, across) = (libm::cos(other), libm::sin(other));
        let dot = x * (along * libm::cos(turned) - across * cosine * libm::sin(turned))
            + y * cosine * (along * libm::sin(turned) + across * cosine * libm::cos(turned))
            + y * sine * across * sine;
        libm::acos(dot.clamp(-1.0, 1.0))
    }
}

/// Height in m above which the atmosphere does not affect laser links: the top of the mesosphere (Bhattacherjee and
/// Singla, "Network topology design at 27,000 km/hour", CoNEXT 2019).
pub(crate) const CLEARANCE: f64 = 80e3;

impl TryFrom<WalkerTable> for Walker {
    type Error = String;
    fn try_from(table: WalkerTable) -> Result<Self, String> {
        let WalkerTable { altitude, inclination, planes, per_plane, phasing, star, epoch } = table;
        let shell = Self { altitude, inclination, planes, per_plane, phasing, star, epoch };
        shell.check()?;
        Ok(shell)
    }
}

impl<'de> Deserialize<'de> for Walker {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "a shell such as \"53deg:1584/72/65@550km\", or a table";
        text_or_table(from, expected, Self::from_text, |table: WalkerTable| Self::try_from(table))
    }
}

impl Serialize for Walker {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { altitude, inclination, planes, per_plane, phasing, star, epoch } = *self;
        WalkerTable { altitude, inclination, planes, per_plane, phasing, star, epoch }.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Duration;

    fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
        libm::sqrt(a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum())
    }

    #[test]
    fn walkers_notation_parses() {
        let starlink = Walker::from_text("53deg:1584/72/65@550km").unwrap();
        assert_eq!(starlink, Walker::delta(550.0, 53.0, 72, 22, 65));
        let iridium = Walker::from_text("star 86.4deg:66/6/2@780km").unwrap();
        assert_eq!(iridium, Walker::delta(780.0, 86.4, 6, 11, 2).as_star());
        for (text, expected) in [
            ("53:1584/72/65@550km", "has no unit"),
            (
                "53deg:1584/70/1@550km",
                "found 1584 satellites in 70 planes, expected as many in each",
            ),
            ("53deg:1584/72/72@550km", "found the phasing 72, expected 0 to below 72"),
            ("53deg:1584/72@550km", "expected i:t/p/f@altitude"),
            ("53deg:10/1/0@50km", "found the altitude 50km, expected 100km to 500000km"),
        ] {
            let error = Walker::from_text(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_nodal_period_includes_the_effect_of_j2() {
        // 550 km: T = 2π sqrt(6928.137³ / 398600.4418) = 5738.99 s; from node to node the flattening
        // changes the rate by 1.5 J2 (R/a)² (4 cos² 53° − 1) = +6.176e-4.
        let satellite = Walker::delta(550.0, 53.0, 1, 1, 0).satellites("x").remove(0);
        let round = satellite.period().unwrap();
        assert!((round.as_secs_f64() - 5738.993 / (1.0 + 6.176e-4)).abs() < 0.01, "{round}");
        let (start, end) = (Epoch::J2000, Epoch::J2000 + round);
        let (from, to) = (satellite.position(start).unwrap(), satellite.position(end).unwrap());
        // Back at the node; the Earth has rotated below it.
        assert!(from[2].abs() < 1e-3 && to[2].abs() < 100.0, "{}", to[2]);
    }

    #[test]
    fn the_node_of_a_sun_synchronous_shell_drifts_once_a_year() {
        // Source: the definition; 97.6° at 560 km is sun-synchronous within 1 % (0.9856°/day).
        let orbit = Walker::delta(560.0, 97.6, 1, 1, 0).satellites("x").remove(0);
        let day = Duration::from_secs(86_400) * 10;
        let node = |at: Epoch| {
            // The pole of the orbit, a quarter turn from its node, in the inertial frame.
            let quarter = Duration::from_nanos(orbit.period().unwrap().as_nanos() / 4);
            let (a, b) = (orbit.position(at).unwrap(), orbit.position(at + quarter).unwrap());
            let turned = |p: [f64; 3], by: f64| {
                let (sin, cos) = (libm::sin(by), libm::cos(by));
                [p[0] * cos - p[1] * sin, p[0] * sin + p[1] * cos, p[2]]
            };
            let (a, b) =
                (turned(a, at.sidereal_angle()), turned(b, (at + quarter).sidereal_angle()));
            let pole = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2]];
            libm::atan2(pole[0], -pole[1])
        };
        let drift = (node(Epoch::J2000 + day) - node(Epoch::J2000)).to_degrees() / 10.0;
        assert!((drift - 0.9856).abs() < 0.01, "{drift}°/day");
    }

    #[test]
    fn a_star_spreads_its_planes_over_half_the_equator() {
        let shell = Walker::delta(780.0, 86.4, 6, 11, 2).as_star();
        let satellites = shell.satellites("iridium");
        assert_eq!(satellites.len(), 66);
        assert_eq!(satellites[12].name(), "iridium.2.2");
        // Nodes 30° apart at the radius of 7158 km; phase 2 · 360°/66 ahead.
        let at = Epoch::J2000;
        let first = satellites[0].position(at).unwrap();
        let second = satellites[11].position(at).unwrap();
        let expected = 2.0 * shell.radius() * libm::sin(shell.apart(0.0) / 2.0);
        assert!((distance(first, second) - expected).abs() < 1.0);
    }

    #[test]
    fn shells_whose_links_the_earth_blocks_are_detected() {
        // Four planes: neighbours are up to 90° apart, and the chord passes below the ground.
        assert_eq!(Walker::delta(560.0, 97.6, 4, 43, 0).sights(), (true, false));
        assert_eq!(Walker::delta(550.0, 53.0, 72, 22, 65).sights(), (true, true));
        assert_eq!(Walker::delta(8062.0, 0.0, 1, 20, 0).sights(), (true, false));
        // Iridium's chord in its plane stays 490 km high: 7158 km · cos(16.4°) − 6378 km.
        assert!(Walker::delta(780.0, 86.4, 6, 11, 2).as_star().sights().0);
    }
}
