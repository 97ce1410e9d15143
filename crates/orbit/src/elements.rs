//! Mean elements of satellites in their published formats.
//!
//! Sources: TLE: CelesTrak, "NORAD Two-Line Element Set Format"; OMM: CCSDS 502.0-B-3, §4.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::f64::consts::PI;

use crate::epoch::Epoch;
use crate::satellite::{Motion, Satellite};
use crate::{omm, tle};

/// Error in a file of element sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementsError {
    /// No satellite.
    #[error(
        "found no satellite, expected two-line elements, or an orbit mean-elements message as JSON, CSV, XML or KVN"
    )]
    Empty,
    /// Invalid line.
    #[error("line {line}: found `{found}`, expected {expected}")]
    Line {
        /// Number of the line, from one.
        line: usize,
        /// Text that was found.
        found: String,
        /// Text that was expected.
        expected: String,
    },
}

impl ElementsError {
    pub(crate) fn at(line: usize, found: &str, expected: &str) -> Self {
        let found = found.trim_end().chars().take(80).collect();
        Self::Line { line, found, expected: expected.to_string() }
    }
}

/// Mean elements of a satellite, for SGP4.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeanElements {
    pub name: String,
    pub epoch: Epoch,
    /// Revolutions per day (Kozai).
    pub mean_motion: f64,
    pub eccentricity: f64,
    /// Degrees, like the three angles below.
    pub inclination: f64,
    pub right_ascension: f64,
    pub argument_of_perigee: f64,
    pub mean_anomaly: f64,
    /// Drag term in 1 / Earth radii.
    pub bstar: f64,
}

impl MeanElements {
    /// Returns the satellite. `line` is the line of the elements, for errors.
    pub fn satellite(self, line: usize) -> Result<Satellite, ElementsError> {
        // Element sets are fitted with the constants of WGS 72, which must also be used here (Vallado et al.,
        // AIAA 2006-6753).
        let wrong = |expected: &str| ElementsError::at(line, &self.name, expected);
        let orbit = sgp4::Orbit::from_kozai_elements(
            &sgp4::WGS72,
            self.inclination.to_radians(),
            self.right_ascension.to_radians(),
            self.eccentricity,
            self.argument_of_perigee.to_radians(),
            self.mean_anomaly.to_radians(),
            self.mean_motion * (PI / 720.0),
        );
        let orbit = orbit.map_err(|_| wrong("an orbit with a mean motion above zero"))?;
        let years = self.epoch.years_since_j2000();
        let constants = sgp4::Constants::new(
            sgp4::WGS72,
            sgp4::iau_epoch_to_sidereal_time,
            years,
            self.bstar,
            orbit,
        );
        let constants = constants.map_err(|_| wrong("an eccentricity from 0 to below 1"))?;
        let motion = Motion::Sgp4 {
            constants: Box::new(constants),
            epoch: self.epoch,
            revolutions_per_day: self.mean_motion,
            eccentricity: self.eccentricity,
        };
        let satellite = Satellite { name: self.name.clone(), motion };
        if satellite.position(self.epoch).is_none() {
            return Err(wrong("an orbit above the ground at its epoch"));
        }
        Ok(satellite)
    }
}

/// Parses element sets: TLE with or without a line for the name, or OMM as JSON, CSV, XML or KVN. The format is
/// detected from the beginning of the text. A satellite without a name gets its catalogue number as name.
///
/// # Errors
/// Line at fault, with what was found and what was expected.
pub fn read(text: &str) -> Result<Vec<Satellite>, ElementsError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let start = text.trim_start();
    let first = start.lines().next().unwrap_or_default();
    let found = if start.starts_with(['[', '{']) {
        omm::json(text)?
    } else if start.starts_with('<') {
        omm::xml(text)?
    } else if first.contains("CCSDS_OMM_VERS") && first.contains('=') {
        omm::kvn(text)?
    } else if first.contains("MEAN_MOTION") && first.contains(',') {
        omm::csv(text)?
    } else {
        tle::read(text)?
    };
    if found.is_empty() {
        return Err(ElementsError::Empty);
    }
    found.into_iter().map(|(line, elements)| elements.satellite(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_satellites_is_rejected() {
        assert_eq!(read("").unwrap_err(), ElementsError::Empty);
        assert_eq!(read("[]").unwrap_err(), ElementsError::Empty);
        assert_eq!(read("# only a comment\n").unwrap_err(), ElementsError::Empty);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[\\[{<1 2=,\"A-Z_a-z0-9.+\n -]{0,300}") {
            let _ = read(&text);
        }

        #[test]
        fn no_damaged_element_set_panics(at in 0usize..140, with in proptest::char::any()) {
            let lines = "1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992\n\
                         2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008\n";
            let characters = lines.chars().enumerate();
            let damaged: String =
                characters.map(|(i, original)| if i == at { with } else { original }).collect();
            let _ = read(&damaged);
        }
    }
}
