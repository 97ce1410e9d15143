//! Configuration of a link's satellites in a scenario.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize};
use skybraid_track::{Position, Track};
use skybraid_units::{Angle, Duration, form, keys};

use crate::choice::Choice;
use crate::constellation::Constellation;
use crate::elements::{ElementsError, read};
use crate::epoch::Epoch;
use crate::satellite::Satellite;
use crate::service::{Gateway, Service, Terminal, over_ground, serve};
use crate::walker::Walker;
use crate::weather::{ElevationLoss, Rain};

/// Maximum number of samples of a service: six days at the default step.
const MAX_SAMPLES: i64 = 5_200_000;
/// Age of element sets beyond which positions are unreliable.
const STALE: Duration = Duration::from_secs(14 * 86_400);

/// Error: the key at fault, and the problem with its value.
pub type InvalidKey = (&'static str, String);

keys! {
    /// Satellites of a link, and the service of a terminal. Exactly one of `constellation`, `walker`, `elements` and
    /// `geostationary` must be given.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct OrbitConfig {
        /// Name of a constellation, see [`CONSTELLATIONS`](crate::CONSTELLATIONS).
        pub constellation: Option<String> = None,
        /// One shell or several.
        #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
        pub walker: Vec<Walker> = Vec::new(),
        /// File with element sets, see [`read`].
        pub elements: Option<String> = None,
        /// Longitudes of geostationary satellites, east positive.
        #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
        pub geostationary: Vec<Angle> = Vec::new(),
        /// Date and time of the start of the run. Default: 2026-01-01T00:00:00Z.
        // 20454 days after 1970-01-01.
        pub start: Epoch = Epoch::from_unix_nanos(20_454 * 86_400 * 1_000_000_000),
        /// Positions of the gateways. Default: the link's other end.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub gateways: Vec<Position> = Vec::new(),
        /// Minimum elevation at the terminal. Default: 25°.
        pub mask: Angle = Angle::from_degrees(25.0),
        /// Minimum elevation at the gateways. Default: `mask`.
        pub gateway_mask: Option<Angle> = None,
        /// Selection strategy of the terminal. Default: the longest visible.
        pub choice: Choice = Choice::default(),
        /// Interruption at a handover. Default: zero (make-before-break).
        pub handover_gap: Duration = Duration::ZERO,
        /// Whether satellites of a shell forward packets to their four neighbours. Default: false.
        pub isl: bool = false,
        /// One-way delay from a gateway to the link's other end. Default: the great circle at 2/3 of the speed of light.
        pub ground_delay: Option<Duration> = None,
        /// Interval of the delay samples, in whole milliseconds. Default: 100 ms.
        pub step: Duration = Duration::from_millis(100),
        /// Rain at the terminal. Default: none.
        pub rain: Option<Rain> = None,
        /// Loss by elevation. Default: none.
        pub elevation_loss: Option<ElevationLoss> = None,
        /// Satellites of the element sets, once loaded.
        #[serde(skip)]
        loaded: Loaded = Loaded(None),
    }
}

/// Loaded element sets, which are ignored when configurations are compared.
#[derive(Clone, Debug, Default)]
struct Loaded(Option<Arc<Constellation>>);

impl PartialEq for Loaded {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    form::one_or_many(from, "one or a list of them").map(Vec::from)
}

impl OrbitConfig {
    /// File that must be [loaded](Self::load) first.
    pub fn file(&self) -> Option<&str> {
        self.elements.as_deref()
    }

    /// Parses the text of the file with element sets.
    ///
    /// # Errors
    /// Line at fault, with what was found and what was expected.
    pub fn load(&mut self, text: &str) -> Result<(), ElementsError> {
        self.loaded = Loaded(Some(Arc::new(Constellation::of(read(text)?))));
        Ok(())
    }

    /// Checks all keys, without the content of the file.
    ///
    /// # Errors
    /// Key at fault, with what was found and what was expected.
    pub fn check(&self) -> Result<(), InvalidKey> {
        let given = [
            ("constellation", self.constellation.is_some()),
            ("walker", !self.walker.is_empty()),
            ("elements", self.elements.is_some()),
            ("geostationary", !self.geostationary.is_empty()),
        ];
        let mut given = given.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
        match (given.next(), given.next()) {
            (None, _) => {
                let expected = "expected one of constellation, walker, elements and geostationary";
                return Err(("", expected.to_string()));
            }
            (Some(first), Some(second)) => {
                return Err((second, format!("`{first}` and `{second}` exclude one another")));
            }
            _ => {}
        }
        if let Some(name) = &self.constellation {
            Constellation::named(name).map_err(|wrong| ("constellation", wrong))?;
        }
        let is_invalid = |longitude: &&Angle| longitude.as_degrees().abs() > 180.0;
        if let Some(longitude) = self.geostationary.iter().find(is_invalid) {
            return Err((
                "geostationary",
                format!("found {longitude}, expected -180deg to 180deg"),
            ));
        }
        for (key, mask) in [("mask", Some(self.mask)), ("gateway_mask", self.gateway_mask)] {
            if let Some(mask) = mask
                && !(0.0..90.0).contains(&mask.as_degrees())
            {
                return Err((key, format!("found {mask}, expected 0deg to below 90deg")));
            }
        }
        let step = self.step.as_nanos();
        if step < 1_000_000 || step % 1_000_000 != 0 {
            return Err(("step", format!("found {}, expected whole milliseconds", self.step)));
        }
        if self.isl && (self.elements.is_some() || !self.geostationary.is_empty()) {
            let problem = "links need the grid of a constellation or walker shell";
            return Err(("isl", problem.to_string()));
        }
        if let Some(rain) = &self.rain {
            rain.check().map_err(|wrong| ("rain", wrong))?;
        }
        if let Some(loss) = &self.elevation_loss {
            loss.check().map_err(|wrong| ("elevation_loss", wrong))?;
        }
        Ok(())
    }

    /// Returns the satellites. Element sets must have been loaded.
    ///
    /// # Errors
    /// Key at fault, and the problem with its value.
    pub fn satellites(&self) -> Result<Arc<Constellation>, InvalidKey> {
        self.check()?;
        if let Some(name) = &self.constellation {
            let named = Constellation::named(name).map_err(|wrong| ("constellation", wrong))?;
            return Ok(Arc::new(named));
        }
        if let Some(file) = &self.elements {
            let not_loaded = || ("elements", format!("the file `{file}` has not been read"));
            return self.loaded.0.clone().ok_or_else(not_loaded);
        }
        if !self.walker.is_empty() {
            return Ok(Arc::new(Constellation::of_shells("walker", &self.walker)));
        }
        let longitudes = self.geostationary.iter().map(|longitude| longitude.as_degrees());
        Ok(Arc::new(Constellation::of(longitudes.map(Satellite::geostationary).collect())))
    }

    /// Returns a warning if no element set is near the time of the run.
    pub fn warning(&self) -> Option<String> {
        let satellites = self.loaded.0.as_ref()?.satellites().iter();
        let age = |satellite: &Satellite| {
            satellite.elements_epoch().map(|epoch| (epoch - self.start).abs())
        };
        let min_age = satellites.filter_map(age).min()?;
        (min_age > STALE).then(|| {
            let days = min_age.as_secs_f64() / 86_400.0;
            format!("no element set is nearer to the start {} than {days:.0} days", self.start)
        })
    }

    /// Returns the terminal at `here` of a link to `there`.
    pub fn terminal(&self, here: &Track, there: &Track) -> Terminal {
        let other = there.at(Duration::ZERO);
        let gateway = |place: &Position| Gateway {
            track: Track::fixed(*place),
            ground: self.ground_delay.unwrap_or_else(|| over_ground(place.distance(other))),
        };
        let own = || {
            vec![Gateway {
                track: there.clone(),
                ground: self.ground_delay.unwrap_or(Duration::ZERO),
            }]
        };
        let gateways: Vec<Gateway> = self.gateways.iter().map(gateway).collect();
        Terminal {
            track: here.clone(),
            mask: self.mask,
            gateways: if gateways.is_empty() { own() } else { gateways },
            gateway_mask: self.gateway_mask.unwrap_or(self.mask),
            choice: self.choice,
            isl: self.isl,
            handover_gap: self.handover_gap,
            step: self.step,
        }
    }

    /// Returns the service of a terminal at `here` of a link to `there`, in a run of `length`.
    ///
    /// # Errors
    /// As for [`satellites`](Self::satellites).
    pub fn serve(
        &self,
        here: &Track,
        there: &Track,
        length: Duration,
    ) -> Result<Service, InvalidKey> {
        if length.as_nanos() / self.step.as_nanos().max(1) > MAX_SAMPLES {
            let min = Duration::from_millis(length.as_nanos() / MAX_SAMPLES / 1_000_000 + 1);
            let problem = format!("found {}, expected at least {min} for {length}", self.step);
            return Err(("step", problem));
        }
        let terminal = self.terminal(here, there);
        Ok(serve(self.satellites()?.as_ref(), &terminal, self.start, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> OrbitConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_scenarios_table_survives_a_round_trip() {
        for text in [
            "constellation = \"starlink\"\nstart = 2026-03-01T12:00:00Z\nmask = \"30deg\"\nisl = true",
            "walker = \"53deg:1584/72/65@550km\"\nchoice = \"nearest\"\nhandover_gap = \"50ms\"",
            "walker = [{ altitude = \"550km\", inclination = \"53deg\", planes = 72, per_plane = 22 }]",
            "elements = \"starlink.tle\"\ngateways = [{ latitude = 47.0, longitude = 8.0 }]",
            "geostationary = [\"13deg\", \"-30deg\"]\nground_delay = \"5ms\"\nchoice = \"epoch\"",
            "geostationary = \"13deg\"\nelevation_loss = [[\"10deg\", \"2%\"], [\"25deg\", \"0.1%\"]]\n\
             rain = { rate = \"25mm/h\", frequency = \"12GHz\", margin = \"6dB\", length = \"60s\" }",
        ] {
            let config = read(text);
            config.check().unwrap();
            assert_eq!(read(&toml::to_string(&config).unwrap()), config, "{text}");
        }
        assert_eq!(OrbitConfig::default().start.to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn invalid_values_are_rejected_with_their_key() {
        for (text, key, expected) in [
            ("", "", "expected one of constellation, walker, elements and geostationary"),
            ("constellation = \"starlink\"\nelements = \"a\"", "elements", "exclude one another"),
            ("constellation = \"sputnik\"", "constellation", "found \"sputnik\", expected one of"),
            ("geostationary = \"13deg\"\nisl = true", "isl", "links need the grid"),
            ("geostationary = \"200deg\"", "geostationary", "found 200deg"),
            ("geostationary = \"13deg\"\nmask = \"95deg\"", "mask", "found 95deg, expected 0deg"),
            ("geostationary = \"13deg\"\nstep = \"100us\"", "step", "expected whole milliseconds"),
        ] {
            let (found, problem) = read(text).check().unwrap_err();
            assert_eq!(found, key, "{text}");
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn old_element_sets_give_a_warning_and_long_runs_an_error() {
        let mut config = read("elements = \"iss.tle\"\nstart = 2020-07-20T00:00:00Z");
        config
            .load(
                "1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992\n\
                 2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008\n",
            )
            .unwrap();
        assert_eq!(config.warning(), None);
        config.start = Epoch::from_text("2026-01-01T00:00:00Z").unwrap();
        // 2020-07-12 21:16 is 1998.1 days earlier.
        let expected = "no element set is nearer to the start 2026-01-01T00:00:00Z than 1998 days";
        assert_eq!(config.warning().unwrap(), expected);
        let place = Track::fixed(Position::new(40.0, 0.0, 0.0).unwrap());
        let year = Duration::from_secs(365 * 86_400);
        let (key, problem) = config.serve(&place, &place, year).unwrap_err();
        assert_eq!((key, problem.starts_with("found 100ms, expected at least")), ("step", true));
    }

    #[test]
    fn gateways_default_to_the_other_end() {
        let place = |latitude| Track::fixed(Position::new(latitude, 0.0, 0.0).unwrap());
        let config = read("geostationary = \"0deg\"");
        let terminal = config.terminal(&place(40.0), &place(50.0));
        assert_eq!(terminal.gateways, [Gateway { track: place(50.0), ground: Duration::ZERO }]);
        let config =
            read("geostationary = \"0deg\"\ngateways = [{ latitude = 41, longitude = 0 }]");
        let terminal = config.terminal(&place(40.0), &place(50.0));
        // 9 · 111.195 km at 2/3 of the speed of light.
        let ground = terminal.gateways[0].ground.as_millis_f64();
        assert!((ground - 9.0 * 111.195_08 / 199_861.639 * 1000.0).abs() < 1e-4, "{ground}");
    }
}
