//! A satellite's motion.

use alloc::boxed::Box;
use alloc::string::String;
use core::f64::consts::TAU;

use skybraid_units::Duration;

use crate::epoch::Epoch;

/// Equatorial radius of the Earth in m (WGS 84); altitudes of circular orbits count from it.
pub(crate) const EARTH_RADIUS: f64 = 6_378_137.0;
/// Gravitational parameter of the Earth in m³/s² (WGS 84, EGM 96).
const GRAVITY: f64 = 3.986_004_418e14;
/// Second zonal harmonic of the Earth's gravity (EGM 96).
const J2: f64 = 1.082_629_8e-3;
/// Angular rate of the Earth in rad/s (WGS 84).
pub(crate) const EARTH_RATE: f64 = 7.292_115e-5;
/// Radius of the geostationary orbit in m: one round in a sidereal day.
const GEOSTATIONARY_RADIUS: f64 = 42_164_170.0;

/// A satellite, with its way around the Earth.
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
    /// A circle that the Earth's flattening turns.
    Circular(Circular),
    /// A point that stays over the equator, in earth-fixed metres.
    Geostationary([f64; 3]),
}

/// A circular orbit with the secular rates of J2: its plane turns about the Earth's axis and the
/// satellite runs faster or slower along it. Periodic terms (some km) are left out.
#[derive(Clone, Debug)]
pub(crate) struct Circular {
    /// Distance from the Earth's centre in m.
    pub radius: f64,
    /// Inclination in rad.
    pub inclination: f64,
    /// Right ascension of the ascending node at the epoch, in rad.
    pub node: f64,
    /// Angle from the ascending node at the epoch, in rad.
    pub phase: f64,
    /// When the angles above hold.
    pub epoch: Epoch,
}

impl Circular {
    /// Mean motion in rad/s.
    fn mean_motion(&self) -> f64 {
        libm::sqrt(GRAVITY / (self.radius * self.radius * self.radius))
    }

    /// Rates of node and phase in rad/s. Source: Vallado, Fundamentals of Astrodynamics and
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
    /// A geostationary satellite over this longitude, in degrees east.
    pub fn geostationary(longitude: f64) -> Self {
        let (sin, cos) = libm::sincos(longitude.to_radians());
        let radius = GEOSTATIONARY_RADIUS;
        let (east, side) = if longitude < 0.0 { (-longitude, "W") } else { (longitude, "E") };
        Self {
            name: alloc::format!("geo {east}{side}"),
            motion: Motion::Geostationary([radius * cos, radius * sin, 0.0]),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is, in earth-fixed (ECEF) metres; `None` once it has come down. SGP4's frame is
    /// turned by the sidereal angle alone: polar motion is below 20 m, and UTC for UT1 below 0.5 km,
    /// at the satellite.
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
                let radius = libm::sqrt(position.iter().map(|it| it * it).sum());
                (radius > 6_356_752.0).then_some(position)
            }
        }
    }

    /// When the orbit's elements held, where that matters.
    pub fn elements_epoch(&self) -> Option<Epoch> {
        match &self.motion {
            Motion::Sgp4 { epoch, .. } => Some(*epoch),
            Motion::Circular(_) | Motion::Geostationary(_) => None,
        }
    }

    /// What its distance from the Earth's centre stays between, in m, with room to spare.
    pub(crate) fn distances(&self) -> (f64, f64) {
        match &self.motion {
            Motion::Geostationary(_) => (GEOSTATIONARY_RADIUS, GEOSTATIONARY_RADIUS),
            Motion::Circular(orbit) => (orbit.radius, orbit.radius),
            Motion::Sgp4 { revolutions_per_day, eccentricity, .. } => {
                // 100 km for what SGP4 moves the orbit by, drag included.
                let axis = semi_major_axis(*revolutions_per_day);
                (axis * (1.0 - eccentricity) - 100e3, axis * (1.0 + eccentricity) + 100e3)
            }
        }
    }

    /// An angular rate about the Earth's centre, seen from the turning Earth, that it stays below, in
    /// rad/s.
    pub(crate) fn fastest(&self) -> f64 {
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

    /// The time of one round; `None` for what stands still.
    pub fn period(&self) -> Option<Duration> {
        let rate = match &self.motion {
            Motion::Geostationary(_) => return None,
            Motion::Circular(orbit) => orbit.rates().1,
            Motion::Sgp4 { revolutions_per_day, .. } => revolutions_per_day * TAU / 86_400.0,
        };
        Some(Duration::from_secs_f64(TAU / rate))
    }
}

/// Semi-major axis in m of an orbit with this mean motion.
fn semi_major_axis(revolutions_per_day: f64) -> f64 {
    let rate = revolutions_per_day * TAU / 86_400.0;
    libm::cbrt(GRAVITY / (rate * rate))
}
