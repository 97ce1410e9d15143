//! Families of flights: each run draws its own flight, so that runs differ as much as measured flights do.
//!
//! A family is a list of fitted flights, in order from the worst to the best. A run draws one of them, all alike, and
//! multiplies its rates, delays, stalls and outages by lognormal factors, which stand for the flights that nobody
//! measured. The draw depends on seed and path alone.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Probability, Promised, Rate, Seed, Stream};

use crate::config::{ConfigError, Direction, DirectionConfig, LinkConfig, PathConfig, Switch};
use crate::delay::DelaySource;
use crate::distribution::{Distribution, Shape};
use crate::drx::DrxConfig;
use crate::handover::HandoverConfig;
use crate::loss::LossSource;
use crate::process::normal_probability;
use crate::rate::RateSource;
use crate::reconfiguration::ReconfigurationConfig;
use crate::spans::RandomSpansConfig;

/// Keys of a `[[flight]]` table: what sets a flight apart in its family. Missing keys come from the family.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlightConfig {
    /// Name of the flight, for readers.
    pub name: Option<String>,
    /// Direction from the vehicle to the ground.
    pub uplink: DirectionConfig,
    /// Direction from the ground to the vehicle.
    pub downlink: DirectionConfig,
    /// Discontinuous reception.
    pub drx: Option<Switch<DrxConfig>>,
    /// Handovers.
    pub handover: Option<Switch<HandoverConfig>>,
    /// Stalls.
    pub stall: Option<Switch<RandomSpansConfig>>,
    /// Random outages.
    pub outage: Option<Switch<RandomSpansConfig>>,
    /// Satellite reconfiguration.
    pub reconfiguration: Option<Switch<ReconfigurationConfig>>,
}

/// Keys of a `spread` table: geometric standard deviations, 1 or more, of the factors of a run. Default: 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpreadConfig {
    /// Of rates that are constant or a process, drawn for each direction.
    pub rate: Option<f64>,
    /// Of the constant part of the delay.
    pub delay: Option<f64>,
    /// Of what a process adds to that part.
    pub jitter: Option<f64>,
    /// Of the probability of independent losses.
    pub loss: Option<f64>,
    /// Of the number of stalls per time.
    pub stall: Option<f64>,
    /// Of the number of random outages per time.
    pub outage: Option<f64>,
}

/// Choice of a run's flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Any flight, with factors.
    #[default]
    Random,
    /// The flight in the middle of the list, without factors.
    Median,
    /// The flight after the first tenth of the list, without factors.
    WorstDecile,
}

/// Family of flights, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Population {
    /// Uplink and downlink of each flight, from the worst to the best; at least one.
    pub flights: Vec<[LinkConfig; 2]>,
    /// Geometric standard deviations of the factors.
    pub spread: SpreadConfig,
    /// Choice of the flight.
    pub draw: Draw,
}

impl FlightConfig {
    /// Returns the flight with the keys of `own` in place of its own.
    pub(crate) fn overridden_by(&self, own: &PathConfig) -> Self {
        let own = PathConfig { flight: Vec::new(), ..own.clone() };
        let merged = own.with_defaults(&self.clone().into_path());
        Self {
            name: self.name.clone(),
            uplink: merged.uplink,
            downlink: merged.downlink,
            drx: merged.drx,
            handover: merged.handover,
            stall: merged.stall,
            outage: merged.outage,
            reconfiguration: merged.reconfiguration,
        }
    }

    /// Returns the keys of the flight as those of a path.
    pub(crate) fn into_path(self) -> PathConfig {
        PathConfig {
            uplink: self.uplink,
            downlink: self.downlink,
            drx: self.drx,
            handover: self.handover,
            stall: self.stall,
            outage: self.outage,
            reconfiguration: self.reconfiguration,
            ..PathConfig::default()
        }
    }
}

impl Draw {
    /// Returns the flight of `count` flights that is fixed, if it is.
    pub(crate) const fn fixed(self, count: usize) -> Option<usize> {
        match self {
            Self::Random => None,
            Self::Median => Some(count / 2),
            Self::WorstDecile => Some(count / 10),
        }
    }
}

impl PathConfig {
    /// Returns the path of one of its flights.
    pub(crate) fn of_flight(&self, number: usize) -> Self {
        let family = Self { flight: Vec::new(), ..self.clone() };
        match self.flight.get(number) {
            Some(flight) => flight.clone().into_path().with_defaults(&family),
            None => family,
        }
    }

    /// Returns the family of flights, if the path is one.
    ///
    /// # Errors
    /// As for [`link`](Self::link), for any flight; a spread below 1.
    pub fn population(&self) -> Result<Option<Population>, ConfigError> {
        if self.flight.is_empty() {
            return Ok(None);
        }
        let spread = self.spread.unwrap_or_default();
        let SpreadConfig { rate, delay, jitter, loss, stall, outage } = spread;
        for (key, value) in [
            ("rate", rate),
            ("delay", delay),
            ("jitter", jitter),
            ("loss", loss),
            ("stall", stall),
            ("outage", outage),
        ] {
            if value.is_some_and(|value| !(1.0..=100.0).contains(&value)) {
                let problem = "expected 1 to 100".to_string();
                return Err(ConfigError { key: format!("spread.{key}"), problem });
            }
        }
        let flight = |number| {
            let path = self.of_flight(number);
            let link = |direction| {
                path.link(direction).map_err(|ConfigError { key, problem }| ConfigError {
                    key: format!("flight.{number}.{key}"),
                    problem,
                })
            };
            Ok([link(Direction::Uplink)?, link(Direction::Downlink)?])
        };
        let flights = (0..self.flight.len()).map(flight).collect::<Result<_, _>>()?;
        let draw = self.draw.unwrap_or_default();
        Ok(Some(Population { flights, spread, draw }))
    }
}

impl Population {
    /// Returns uplink and downlink of the flight that a run of `seed` draws for `path`, from the stream
    /// `path.population`.
    ///
    /// # Arguments
    /// * `shared`: normal score that paths share: its value, and the correlation of this path's score with it.
    pub fn draw(&self, seed: Seed, path: &str, shared: Option<(f64, f64)>) -> [LinkConfig; 2] {
        let mut stream = seed.stream(&format!("{path}.population"));
        let count = self.flights.len();
        let number = self.draw.fixed(count).unwrap_or_else(|| {
            let (common, load) = shared.unwrap_or_default();
            let own = libm::sqrt((1.0 - load * load).max(0.0));
            let score = load * common + own * stream.standard_normal();
            (normal_probability(score) * count as f64) as usize
        });
        let flight = self.flights.get(number.min(count.saturating_sub(1)));
        let Some([uplink, downlink]) = flight.promised("a flight of the family") else {
            let nothing = LinkConfig::plain(RateSource::Constant(Rate::ZERO), Duration::ZERO);
            return [nothing.clone(), nothing];
        };
        let mut links = [uplink.clone(), downlink.clone()];
        if self.draw == Draw::Random {
            self.vary(&mut links, &mut stream);
        }
        links
    }

    /// Multiplies by the factors of a run.
    fn vary(&self, links: &mut [LinkConfig; 2], stream: &mut Stream) {
        let mut factor = |spread: Option<f64>| {
            let normal = stream.standard_normal();
            libm::exp(libm::log(spread.unwrap_or(1.0)) * normal)
        };
        let rates = [factor(self.spread.rate), factor(self.spread.rate)];
        let delay = factor(self.spread.delay);
        let stalls = factor(self.spread.stall);
        let outages = factor(self.spread.outage);
        let jitter = factor(self.spread.jitter);
        let losses = factor(self.spread.loss);
        for (link, rate) in links.iter_mut().zip(rates) {
            scale_rate(&mut link.rate, rate);
            scale_delay(&mut link.delay, delay, jitter);
            for loss in &mut link.losses {
                if let LossSource::Uniform(share) = loss {
                    *share = Probability::saturating(share.ratio() * losses);
                }
            }
            if let Some(stall) = &mut link.stall {
                stall.rate *= stalls;
            }
            if let Some(outage) = &mut link.outage {
                outage.rate *= outages;
            }
        }
    }
}

fn scale_rate(rate: &mut RateSource, factor: f64) {
    match rate {
        RateSource::Process(process) => process.scale *= factor,
        RateSource::Constant(rate) => *rate = Rate::from_mbps(rate.as_bps() as f64 * factor * 1e-6),
        RateSource::Series(_) | RateSource::Opportunities(_) => {}
    }
}

/// Multiplies the constant part of a delay by `factor`, and what a process adds to it by `jitter`.
fn scale_delay(delay: &mut DelaySource, factor: f64, jitter: f64) {
    match delay {
        DelaySource::Process(process) => {
            process.plus *= factor;
            process.scale *= jitter;
        }
        DelaySource::Distribution(Distribution { shape, plus }) => {
            *plus = plus.mul_f64(factor);
            if let Shape::Fixed(fixed) = shape {
                *fixed = fixed.mul_f64(factor);
            }
        }
        DelaySource::Series(_) => {}
    }
}
