//! Outages shared by several links.

use serde::Deserialize;
use skybraid_link::{Distribution, SharedOutages, SharedOutagesConfig, Together};
use skybraid_units::{Duration, Instant, Seed};

use crate::members::{Problem, members};

/// `[[outages]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutagesFile {
    /// Paths, in a scenario of paths.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Links, in a network.
    #[serde(default)]
    pub links: Vec<String>,
    pub up: Duration,
    pub down: Distribution,
    pub together: Option<Together>,
    pub takes_part: Option<Vec<f64>>,
}

/// A group of links with separate and common outages.
#[derive(Clone, Debug, PartialEq)]
pub struct OutageGroup {
    /// Links of the group, as indices into [`Scenario::links`](crate::Scenario::links); each once.
    pub links: Vec<usize>,
    /// Process of the outages.
    pub outages: SharedOutages,
}

impl OutagesFile {
    /// Converts the table into a group. `find` returns the links of a name.
    ///
    /// # Errors
    /// A key and the problem with its value.
    pub fn group(
        &self,
        of_paths: bool,
        find: impl Fn(&str) -> Result<Vec<usize>, String>,
    ) -> Result<OutageGroup, Problem> {
        let links = members(&self.paths, &self.links, of_paths, find)?;
        let takes_part = self.takes_part.clone().unwrap_or_default();
        if self.takes_part.is_some() && takes_part.len() != links.len() {
            let (found, expected) = (takes_part.len(), links.len());
            let problem = format!("found {found} probabilities for {expected} names");
            return Err(("takes_part", problem));
        }
        let config = SharedOutagesConfig {
            up: self.up,
            down: self.down.clone(),
            together: self.together.unwrap_or_default(),
            takes_part,
        };
        Ok(OutageGroup { links, outages: config.resolve()? })
    }
}

impl OutageGroup {
    /// Draws the outages of each link of the group in a run of `length`: the link, and start and length of each
    /// outage. `number` distinguishes groups.
    pub fn draw(
        &self,
        seed: Seed,
        number: usize,
        length: Duration,
    ) -> impl Iterator<Item = (usize, Vec<(Instant, Duration)>)> {
        let drawn = self.outages.draw(seed, &format!("outages.{number}"), self.links.len(), length);
        self.links.iter().copied().zip(drawn)
    }
}
