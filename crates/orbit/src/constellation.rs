//! Named constellations, and inter-satellite links.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::satellite::Satellite;
use crate::walker::Walker;

/// A constellation by name, as filed or as launched.
#[derive(Clone, Copy, Debug)]
pub struct NamedConstellation {
    /// Name in configurations.
    pub name: &'static str,
    /// Description and sources.
    pub about: &'static str,
    /// Shells of the constellation.
    pub shells: &'static [Walker],
}

const STARLINK: [Walker; 5] = [
    Walker::delta(550.0, 53.0, 72, 22, 65),
    Walker::delta(540.0, 53.2, 72, 22, 65),
    Walker::delta(570.0, 70.0, 36, 20, 25),
    Walker::delta(560.0, 97.6, 6, 58, 1),
    Walker::delta(560.0, 97.6, 4, 43, 0),
];

/// Named constellations. Filings do not specify the phasing of planes. For deltas it is the phasing that
/// maximises the minimum distance of satellites, as in J. Liang et al., "Phasing parameter analysis for
/// satellite collision avoidance in Starlink and Kuiper constellations" (2021). For stars it is half the
/// spacing in a plane, except for Iridium, for which 2 is commonly cited.
pub const CONSTELLATIONS: [NamedConstellation; 7] = [
    NamedConstellation {
        name: "starlink",
        about: "first generation, 4408 satellites in five shells; SpaceX, FCC SAT-MOD-20200417-00037",
        shells: &STARLINK,
    },
    NamedConstellation {
        name: "starlink-550",
        about: "its first shell alone, 1584 satellites at 550 km and 53.0°; the same filing",
        shells: &[STARLINK[0]],
    },
    NamedConstellation {
        name: "oneweb",
        about: "first generation as launched, 588 satellites in 12 planes at 1200 km; ISRO, \
                LVM3-M2/OneWeb India-1 mission, 2022",
        shells: &[Walker::delta(1200.0, 87.9, 12, 49, 6).as_star()],
    },
    NamedConstellation {
        name: "kuiper",
        about: "3236 satellites in three shells; Amazon, FCC SAT-LOA-20190704-00057",
        shells: &[
            Walker::delta(630.0, 51.9, 34, 34, 7),
            Walker::delta(610.0, 42.0, 36, 36, 11),
            Walker::delta(590.0, 33.0, 28, 28, 17),
        ],
    },
    NamedConstellation {
        name: "telesat",
        about: "1671 satellites in polar and inclined planes; Telesat, FCC SAT-MPL-20200526-00053",
        shells: &[
            Walker::delta(1015.0, 98.98, 27, 13, 13).as_star(),
            Walker::delta(1325.0, 50.88, 40, 33, 24),
        ],
    },
    NamedConstellation {
        name: "iridium",
        about: "66 satellites in six planes at 780 km; Fossa et al., \"An overview of the Iridium low Earth \
                orbit satellite system\", NAECON 1998",
        shells: &[Walker::delta(780.0, 86.4, 6, 11, 2).as_star()],
    },
    NamedConstellation {
        name: "o3b",
        about: "20 satellites over the equator at 8062 km; SES, FCC SAT-MOD-20160624-00060",
        shells: &[Walker::delta(8062.0, 0.0, 1, 20, 0)],
    },
];

/// Satellites of a shell as a grid, for inter-satellite links.
#[derive(Clone, Copy, Debug)]
struct Grid {
    first: usize,
    planes: usize,
    per_plane: usize,
    /// Places by which the neighbour in the next plane is behind.
    shift: usize,
    /// Places by which the neighbour in the first plane is ahead of a satellite in the last plane.
    seam: usize,
    star: bool,
    /// Whether neighbours in a plane are linked.
    along: bool,
    /// Whether neighbours in adjacent planes are linked.
    across: bool,
}

/// Satellites, with the grids of their shells.
#[derive(Clone, Debug, Default)]
pub struct Constellation {
    satellites: Vec<Satellite>,
    grids: Vec<Grid>,
}

impl Constellation {
    /// Creates a constellation of individual satellites, without inter-satellite links.
    pub const fn of(satellites: Vec<Satellite>) -> Self {
        Self { satellites, grids: Vec::new() }
    }

    /// Creates a constellation of shells, each with its own grid. Satellites are named `label-altitude.plane.place`.
    pub fn of_shells(label: &str, shells: &[Walker]) -> Self {
        let mut all = Self::default();
        for shell in shells {
            let (along, across) = shell.sights();
            let (per_plane, shift) = (shell.per_plane as usize, shell.shift() as usize);
            // Around the equator, the phases of the planes add up to f places.
            let seam = (shell.phasing as usize + per_plane - shift % per_plane) % per_plane;
            all.grids.push(Grid {
                first: all.satellites.len(),
                planes: shell.planes as usize,
                per_plane,
                shift: shift % per_plane,
                seam,
                star: shell.star,
                along,
                across,
            });
            let label = format!("{label}-{}", shell.altitude.as_metres() / 1000.0);
            all.satellites.extend(shell.satellites(&label));
        }
        all
    }

    /// Returns the constellation with this name, see [`CONSTELLATIONS`].
    ///
    /// # Errors
    /// The name is unknown; the text lists the names.
    pub fn named(name: &str) -> Result<Self, String> {
        match CONSTELLATIONS.iter().find(|known| known.name == name) {
            Some(known) => {
                Ok(Self::of_shells(name.split('-').next().unwrap_or(name), known.shells))
            }
            None => {
                let names: Vec<&str> = CONSTELLATIONS.iter().map(|known| known.name).collect();
                Err(format!("found \"{name}\", expected one of {}", names.join(", ")))
            }
        }
    }

    /// Satellites of all shells.
    pub fn satellites(&self) -> &[Satellite] {
        &self.satellites
    }

    fn grid_of(&self, satellite: usize) -> Option<&Grid> {
        let next = self.grids.partition_point(|grid| grid.first <= satellite);
        self.grids.get(next.checked_sub(1)?)
    }

    /// Returns the satellites linked to this one: two in its plane, one in each adjacent plane. The last and
    /// the first plane of a star, which move in opposite directions, are not linked.
    pub(crate) fn neighbours(&self, satellite: usize) -> impl Iterator<Item = usize> + use<> {
        let links = self.grid_of(satellite).map(|grid| grid.links(satellite));
        links.into_iter().flatten().flatten()
    }

    /// Returns the group of each satellite: satellites of one group can reach one another over links.
    pub(crate) fn link_groups(&self) -> Vec<usize> {
        let group = |satellite: usize| match self.grid_of(satellite) {
            Some(grid) if grid.across => grid.first,
            Some(grid) if grid.along => {
                grid.first + (satellite - grid.first) / grid.per_plane.max(1) * grid.per_plane
            }
            _ => satellite,
        };
        // Links across planes alone would not connect the places of a plane. In practice, every shell dense
        // enough for links across also has links along its planes.
        (0..self.satellites.len()).map(group).collect()
    }
}

impl Grid {
    fn links(&self, satellite: usize) -> [Option<usize>; 4] {
        let per_plane = self.per_plane.max(1);
        let (plane, place) =
            ((satellite - self.first) / per_plane, (satellite - self.first) % per_plane);
        let at = |plane: usize, place: usize| self.first + plane * per_plane + place % per_plane;
        let mut links = [None; 4];
        if self.along {
            links[0] = Some(at(plane, place + 1));
            // In a plane of two, both neighbours are the same satellite.
            links[1] = (per_plane > 2).then(|| at(plane, place + per_plane - 1));
        }
        if self.across {
            let last = self.planes.saturating_sub(1);
            let round = !self.star && self.planes > 2;
            let back = per_plane - self.shift;
            links[2] = match plane {
                _ if plane < last => Some(at(plane + 1, place + back)),
                _ => round.then(|| at(0, place + self.seam)),
            };
            links[3] = match plane {
                0 => round.then(|| at(last, place + per_plane - self.seam)),
                _ => Some(at(plane - 1, place + self.shift)),
            };
        }
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use alloc::collections::BTreeSet;
    use core::f64::consts::TAU;

    /// Minimum distance within a delta in km. Source: L. Speckman et al., "ACDL: constellation design" (1990),
    /// the equation that Liang et al. (2021) use.
    fn min_distance(shell: &Walker, phasing: u32) -> f64 {
        let (planes, per_plane) = (f64::from(shell.planes), f64::from(shell.per_plane));
        let inclination = shell.inclination.as_radians();
        let mut min = f64::MAX;
        for plane in 1..shell.planes {
            let node = TAU * f64::from(plane) / planes;
            for place in 0..shell.per_plane {
                let phase = TAU
                    * (f64::from(place) / per_plane
                        + f64::from(phasing) * f64::from(plane) / (planes * per_plane));
                let turn =
                    phase - 2.0 * libm::atan(-libm::cos(inclination) * libm::tan(node / 2.0));
                let tilt = 1.0
                    + libm::pow(libm::cos(inclination), 2.0)
                    + libm::pow(libm::sin(inclination), 2.0) * libm::cos(node);
                let radius = 6378.137 + shell.altitude.as_metres() / 1000.0;
                let apart = 2.0 * radius * (libm::sqrt(tilt / 2.0) * libm::sin(turn / 2.0)).abs();
                min = min.min(apart);
            }
        }
        min
    }

    #[test]
    fn the_phasing_maximises_the_minimum_distance() {
        // Source: Liang et al. (2021): 61.83 km for Starlink in 22 planes with 17, 55.89 km for Kuiper's
        // second shell with 11.
        assert!((min_distance(&Walker::delta(550.0, 53.0, 22, 72, 17), 17) - 61.83).abs() < 0.01);
        assert!((min_distance(&Walker::delta(610.0, 42.0, 36, 36, 11), 11) - 55.89).abs() < 0.01);
        for shell in CONSTELLATIONS.iter().flat_map(|named| named.shells) {
            if shell.star || shell.planes == 1 {
                continue;
            }
            let own = min_distance(shell, shell.phasing);
            let phasings = 0..shell.planes;
            let best = phasings.map(|phasing| min_distance(shell, phasing)).fold(0.0, f64::max);
            assert!(own > best - 1e-6, "{shell:?}: {own} km, but {best} km is possible");
        }
    }

    #[test]
    fn named_constellations_have_the_satellites_of_their_filings() {
        for (name, count) in [
            ("starlink", 4408),
            ("starlink-550", 1584),
            ("oneweb", 588),
            ("kuiper", 3236),
            ("telesat", 1671),
            ("iridium", 66),
            ("o3b", 20),
        ] {
            assert_eq!(Constellation::named(name).unwrap().satellites().len(), count, "{name}");
        }
        for shell in CONSTELLATIONS.iter().flat_map(|named| named.shells) {
            shell.check().unwrap();
        }
        let error = Constellation::named("starlnk").unwrap_err();
        assert!(error.starts_with("found \"starlnk\", expected one of starlink, "), "{error}");
    }

    #[test]
    fn links_are_symmetric_and_join_close_satellites() {
        let starlink = Constellation::of_shells("s", &[Walker::delta(550.0, 53.0, 72, 22, 65)]);
        let at = Epoch::J2000;
        for satellite in 0..starlink.satellites().len() {
            let near: BTreeSet<usize> = starlink.neighbours(satellite).collect();
            assert_eq!(near.len(), 4);
            for other in near {
                assert!(starlink.neighbours(other).any(|back| back == satellite));
                let a = starlink.satellites()[satellite].position(at).unwrap();
                let b = starlink.satellites()[other].position(at).unwrap();
                let apart = libm::sqrt(a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum());
                // 22 in a plane: 2 · 6928 km · sin(180° / 22) = 1972 km. Planes are 5° (604 km) apart,
                // and the nearest in phase is 65/72 − 1 of a place of 16.4° away.
                assert!(apart < 2_000e3, "{satellite} and {other}: {apart} m");
            }
        }
    }

    #[test]
    fn a_seam_and_sparse_planes_have_no_links() {
        let star = Constellation::named("iridium").unwrap();
        assert_eq!(star.neighbours(0).count(), 3);
        assert_eq!(star.neighbours(65).count(), 3);
        assert_eq!(star.neighbours(30).count(), 4);
        let starlink = Constellation::named("starlink").unwrap();
        assert_eq!(starlink.neighbours(4407).count(), 2);
        let groups = starlink.link_groups();
        assert_eq!(groups[0], groups[1583]);
        assert_ne!(groups[0], groups[1584]);
        assert_eq!((groups[4407], groups[4365]), (4365, 4365));
        assert_ne!(groups[4364], groups[4365]);
    }
}
