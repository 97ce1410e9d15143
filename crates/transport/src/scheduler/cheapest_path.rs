//! The cheapest path that has room.

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant};

use super::{Choice, Reason, Scheduler, Unit, candidates, send_on};
use crate::PathView;
use crate::registry::{About, Check};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "cheapest_path",
    summary: "Cheapest path first: the usable path of the lowest cost whose window has room; ties go \
              to the lower round-trip time. Traffic spills to the next-cheapest path when the window \
              of the cheaper one is full.",
    source: "baltaci2023 §2.4 (CPF of MP-DCCP); RFC 9897 §3.4 (priorities)",
    linux: "",
    parameters: &[],
};

/// No parameters; the costs stand with the paths.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Check for Config {}

impl Config {
    /// A fresh instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        Box::new(CheapestPath)
    }
}

#[derive(Debug)]
struct CheapestPath;

impl Scheduler for CheapestPath {
    fn choose(&mut self, _now: Instant, _unit: &Unit, paths: &[PathView]) -> Choice {
        let order = |path: &&PathView| (path.cost, path.srtt.unwrap_or(Duration::MAX));
        let best = candidates(paths).filter(|path| path.has_room).min_by_key(order);
        send_on(best, Reason::Cheapest, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, paths};
    use super::*;
    use alloc::vec;

    #[test]
    fn the_cheap_path_is_taken_until_its_window_is_full_then_traffic_spills() {
        let mut scheduler = Config {}.build();
        let mut two = paths(&[20, 100]);
        two[0].cost = 5;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
        two[1].has_room = false;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
    }

    #[test]
    fn among_equally_cheap_paths_the_lower_round_trip_time_wins() {
        let mut scheduler = Config {}.build();
        assert_eq!(chosen(&mut *scheduler, &paths(&[80, 20, 40])), Some(vec![1]));
    }
}
