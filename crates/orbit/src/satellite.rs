//! Motion of a satellite: SGP4, circular with J2, or geostationary.

use alloc::boxed::Box;
use alloc::string::String;
use core::f64::consts::TAU;

use skybraid_units::Duration;

use crate::epoch::Epoch;

/// Equatorial radius of the Earth in m (WGS 84), the reference of the altitudes of circular orbits.
pub(crate) const EARTH_RADIUS: f64 = 6_378_137.0;
/// Gravitational parameter of the Earth in m³/s² (WGS 84, EGM 96).
const GRAVITY: f64 = 3.986_004_418e14;
/// Second zonal harmonic of the Earth's gravity (EGM 96).
const J2: f64 = 1.082_629_8e-3;
/// Angular rate of the Earth in rad/s (WGS 84).
pub(crate) const EARTH_RATE: f64 = 7.292_115e-5;
/// Radius of the geostationary orbit in m, with a period of one sidereal day.
const GEOSTATIONARY_RADIUS: f64 = 42_164_170.0;

/// A satellite on its orbit.
#[derive(Clone, Debug)]
pub struct Satellite {
    pub(crate) name: String,
    pub(crate) motion: Motion,
}

#[derive(Clone, Debug)]
pub(crate) enum Motion {
    /// SGP4 from mean elements.
    Sgp4 {
        constants: Box<sgp4::Constants>,
        epoch: Epoch,
        revolutions_per_day: f64,
        eccentricity: f64,
    },
    /// Circular orbit with J2 precession.
    Circular(Circular),
    /// Fixed point over the equator, in ECEF metres.
    Geostationary([f64; 3]),
}

/// A circular orbit with the secular rates of J2, which precess its plane and change the rate of its phase.
/// Periodic terms (some km) are neglected.
#[derive(Clone, Debug)]
pub(crate) struct Circular {
    /// Orbital radius in m.
    pub radius: f64,
    /// Inclination in rad.
    pub inclination: f64,
    /// Right ascension of the ascending node at the epoch, in rad.
    pub node: f64,
    /// Angle from the ascending node at the epoch, in rad.
    pub phase: f64,
    /// Epoch of the angles above.
    pub epoch: Epoch,
}

impl Circular {
    /// Mean motion in rad/s.
    fn mean_motion(&self) -> f64 {
        libm::sqrt(GRAVITY / (self.radius * self.radius * self.radius))
    }

    /// Returns the rates of node and phase in rad/s. Source: Vallado, Fundamentals of Astrodynamics and
    /// Applications, §9.6 (secular J2), for eccentricity zero.
    fn rates(&self) -> (f64, f64) {
        let flattened = 1.5 * J2 * (EARTH_RADIUS / self.radius) * (EARTH_RADIUS / self.radius);
        let (motion, cosine) = (self.mean_motion(), libm::cos(self.inclination));
        let node = -flattened * motion * cosine;
        let phase = motion * (1.0 + flattened * (4.0 * cosine * cosine - 1.0));
        (node, phase)
    }

    fn position(&self, at: Epoch) -> [f64; 3] {
        let elapsed = (at - self.epoch).as_secs_f64();
        let (node_rate, phase_rate) = self.rates();
        let (sin_phase, cos_phase) = libm::sincos(self.phase + phase_rate * elapsed);
        let (sin_inclination, cos_inclination) = libm::sincos(self.inclination);
        let node = self.node + node_rate * elapsed - at.sidereal_angle();
        let (sin_node, cos_node) = libm::sincos(node);
        let (along, across) = (self.radius * cos_phase, self.radius * sin_phase * cos_inclination);
        [
            along * cos_node - across * sin_node,
            along * sin_node + across * cos_node,
            self.radius * sin_phase * sin_inclination,
        ]
    }
}

impl Satellite {
    /// Creates a geostationary satellite over this longitude, in degrees east.
    pub fn geostationary(longitude: f64) -> Self {
        let (sin, cos) = libm::sincos(longitude.to_radians());
        let radius = GEOSTATIONARY_RADIUS;
        let (east, side) = if longitude < 0.0 { (-longitude, "W") } else { (longitude, "E") };
        Self {
            name: alloc::format!("geo {east}{side}"),
            motion: Motion::Geostationary([radius * cos, radius * sin, 0.0]),
        }
    }

    /// Name of the satellite.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position in ECEF metres; `None` if the satellite has decayed. SGP4's frame is rotated by the
    /// sidereal angle alone: at the satellite, the error is below 20 m for polar motion and below 0.5 km for
    /// UTC in place of UT1.
    pub fn position(&self, at: Epoch) -> Option<[f64; 3]> {
        match &self.motion {
            Motion::Geostationary(position) => Some(*position),
            Motion::Circular(orbit) => Some(orbit.position(at)),
            Motion::Sgp4 { constants, epoch, .. } => {
                let minutes = (at - *epoch).as_nanos() as f64 / 60e9;
                let [x, y, z] =
                    constants.propagate(sgp4::MinutesSinceEpoch(minutes)).ok()?.position;
                let (sin, cos) = libm::sincos(at.sidereal_angle());
                let position =
                    [1000.0 * (x * cos + y * sin), 1000.0 * (y * cos - x * sin), 1000.0 * z];
                let radius =
                    libm::sqrt(position.iter().map(|coordinate| coordinate * coordinate).sum());
                (radius > 6_356_752.0).then_some(position)
            }
        }
    }

    /// Epoch of the orbit's elements, for an orbit from element sets.
    pub fn elements_epoch(&self) -> Option<Epoch> {
        match &self.motion {
            Motion::Sgp4 { epoch, .. } => Some(*epoch),
            Motion::Circular(_) | Motion::Geostationary(_) => None,
        }
    }

    /// Lower and upper bound of the orbital radius in m.
    pub(crate) fn distances(&self) -> (f64, f64) {
        match &self.motion {
            Motion::Geostationary(_) => (GEOSTATIONARY_RADIUS, GEOSTATIONARY_RADIUS),
            Motion::Circular(orbit) => (orbit.radius, orbit.radius),
            Motion::Sgp4 { revolutions_per_day, eccentricity, .. } => {
                // A margin of 100 km for SGP4's perturbations, drag included.
                let axis = semi_major_axis(*revolutions_per_day);
                (axis * (1.0 - eccentricity) - 100e3, axis * (1.0 + eccentricity) + 100e3)
            }
        }
    }

    /// Upper bound of the angular rate about the Earth's centre, in the rotating frame, in rad/s.
    pub(crate) fn max_angular_rate(&self) -> f64 {
        let rate = match &self.motion {
            Motion::Geostationary(_) => 0.0,
            Motion::Circular(orbit) => orbit.mean_motion(),
            Motion::Sgp4 { revolutions_per_day, eccentricity, .. } => {
                let squeezed = 1.0 - eccentricity * eccentricity;
                let at_perigee = (1.0 + eccentricity) * (1.0 + eccentricity);
                revolutions_per_day * TAU / 86_400.0 * at_perigee
                    / (squeezed * libm::sqrt(squeezed))
            }
        };
        1.05 * rate + EARTH_RATE
    }

    /// Orbital period; `None` for a geostationary satellite.
    pub fn period(&self) -> Option<Duration> {
        let rate = match &self.motion {
            Motion::Geostationary(_) => return None,
            Motion::Circular(orbit) => orbit.rates().1,
            Motion::Sgp4 { revolutions_per_day, .. } => revolutions_per_day * TAU / 86_400.0,
        };
        Some(Duration::from_secs_f64(TAU / rate))
    }
}

/// Returns the semi-major axis in m of an orbit with this mean motion.
fn semi_major_axis(revolutions_per_day: f64) -> f64 {
    let rate = revolutions_per_day * TAU / 86_400.0;
    libm::cbrt(GRAVITY / (rate * rate))
}
