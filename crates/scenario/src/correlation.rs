//! Correlation between paths: of the slow parts of their rates, and of the flights that they draw.
//!
//! One factor for a group: each path loads on a standard normal process that all share, so that two paths have the
//! product of their loadings as correlation.

use serde::Deserialize;
use skybraid_host::LinkSetup;
use skybraid_link::{RateSource, SharedSlow, loading_of_rank_correlation};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Seed};

use crate::Link;
use crate::members::{Problem, members};

/// Time for which the shared process holds its value.
const STEP: Duration = Duration::from_secs(1);

/// `[[correlation]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CorrelationFile {
    /// Paths, in a scenario of paths.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Links, in a network.
    #[serde(default)]
    pub links: Vec<String>,
    pub slow: Option<Strength>,
    pub flights: Option<Strength>,
    pub time: Option<Duration>,
}

/// Rank correlation of every pair, or the loading of each path.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Strength {
    Pairs(f64),
    Loadings(Vec<f64>),
}

/// A group of correlated links.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlation {
    /// Links of the group, as indices into [`Scenario::links`](crate::Scenario::links), with the loadings of the slow
    /// parts of their rates and of the flights that they draw.
    pub links: Vec<(usize, f64, f64)>,
    /// Correlation time of the shared slow process.
    pub time: Duration,
}

impl Strength {
    /// Returns the loadings of `count` paths.
    fn loadings(&self, count: usize) -> Result<Vec<f64>, String> {
        match self {
            Self::Pairs(rank) if (0.0..=1.0).contains(rank) => {
                Ok(vec![loading_of_rank_correlation(*rank); count])
            }
            Self::Pairs(rank) => Err(format!("found {rank}, expected a rank correlation, 0 to 1")),
            Self::Loadings(loadings) if loadings.len() != count => {
                Err(format!("found {} loadings for {count} paths", loadings.len()))
            }
            Self::Loadings(loadings) => {
                match loadings.iter().find(|load| !(-1.0..=1.0).contains(*load)) {
                    Some(load) => Err(format!("found {load}, expected loadings from -1 to 1")),
                    None => Ok(loadings.clone()),
                }
            }
        }
    }
}

impl CorrelationFile {
    /// Converts the table into a group. `find` returns the links of a name.
    ///
    /// # Errors
    /// A key and the problem with its value.
    pub fn group(
        &self,
        of_paths: bool,
        find: impl Fn(&str) -> Result<Vec<usize>, String>,
        links: &[Link],
    ) -> Result<Correlation, Problem> {
        let found = members(&self.paths, &self.links, of_paths, find)?;
        let count = found.len();
        let loadings = |key, strength: &Option<Strength>| match strength {
            None => Ok(vec![0.0; count]),
            Some(strength) => strength.loadings(count).map_err(|problem| (key, problem)),
        };
        let slow = loadings("slow", &self.slow)?;
        let flights = loadings("flights", &self.flights)?;
        if self.slow.is_none() && self.flights.is_none() {
            return Err(("slow", "expected `slow`, `flights` or both".to_string()));
        }
        let time = self.time.unwrap_or(Duration::from_secs(30));
        if !time.is_positive() {
            return Err(("time", "expected a time above zero".to_string()));
        }
        for number in &found {
            let Some(link) = links.get(*number).promised("a link found by name") else { continue };
            let random = [&link.uplink, &link.downlink]
                .iter()
                .any(|direction| matches!(direction.rate, RateSource::Process(_)));
            let problem = |key, what| Err((key, format!("expected {what} in `{}`", link.name)));
            if self.slow.is_some() && !random {
                return problem("slow", "a rate with a `process`");
            }
            if self.flights.is_some() && link.population.is_none() {
                return problem("flights", "a family of flights");
            }
        }
        let links = found.into_iter().zip(slow).zip(flights);
        let links = links.map(|((link, slow), flights)| (link, slow, flights));
        Ok(Correlation { links: links.collect(), time })
    }
}

impl Correlation {
    /// Returns the score that link `number`, if it is in the group, shares with the others when it draws its flight,
    /// and the correlation with it. `group` distinguishes groups.
    pub fn shared_score(&self, number: usize, seed: Seed, group: usize) -> Option<(f64, f64)> {
        let (_, _, load) = self.links.iter().find(|(link, ..)| *link == number)?;
        let common = seed.stream(&format!("correlation.{group}.flights")).standard_normal();
        Some((common, *load))
    }

    /// Makes the rates of the links of the group share their slow process.
    pub fn share_slow(&self, links: &mut [LinkSetup], group: usize) {
        for (number, load, _) in self.links.iter().filter(|(_, load, _)| *load != 0.0) {
            let Some(link) = links.get_mut(*number).promised("a link of the group") else {
                continue;
            };
            for direction in [&mut link.uplink, &mut link.downlink] {
                if let RateSource::Process(process) = &mut direction.rate {
                    let stream = format!("correlation.{group}.slow");
                    let shared = SharedSlow { stream, slow: self.time, step: STEP, load: *load };
                    process.shared = Some(shared);
                }
            }
        }
    }
}
