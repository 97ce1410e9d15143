//! Paths within a latency budget, weighted by what they add to the delay.

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant, Probability};

use super::hedge::positive;
use super::low_rtt::lowest_rtt;
use super::{Choice, Reason, Scheduler, Unit, candidates, send_on, wait_for_room};
use crate::per_path::PerPath;
use crate::registry::{About, Check, InvalidParameter, Parameter};
use crate::{PathSet, PathView};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "budget",
    summary: "The usable paths whose smoothed round-trip time is below `rtt` and whose deviation is \
              below `tolerance` of it, in turn, weighted by 1 / (srtt · (1 + `aversion` · inflation)), \
              where inflation is the excess over the lowest round-trip time. A path that was left \
              comes back once it has measured below four fifths of both limits for `hold`, at \
              first with a part of its weight that grows over another `hold`: a drained path shows \
              no queue. While it is left, each 64th unit probes it with a copy. If no path is \
              within the budget, the fastest.",
    source: "proposal for mqvpn (mp0rta/mqvpn#73); srtla_send#17; the probing and return are this \
             project's",
    linux: "",
    parameters: &[
        Parameter {
            name: "rtt",
            unit: "time",
            default: "200ms",
            summary: "round-trip time from which a path is left",
        },
        Parameter {
            name: "tolerance",
            unit: "share",
            default: "50%",
            summary: "deviation, of the round-trip time, from which a path is left",
        },
        Parameter {
            name: "aversion",
            unit: "number",
            default: "1",
            summary: "weight of the delay that queues add",
        },
        Parameter {
            name: "hold",
            unit: "time",
            default: "2s",
            summary: "time for which a path must be calm before it comes back",
        },
    ],
};

/// Parameters of the scheduler.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Round-trip time from which a path is left; above zero.
    pub rtt: Duration,
    /// Deviation, as a share of the round-trip time, from which a path is left; above zero.
    pub tolerance: Probability,
    /// Weight of the delay that queues add, 0 to 1000.
    pub aversion: f64,
    /// Time for which a path must be calm before it comes back; above zero.
    pub hold: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rtt: Duration::from_millis(200),
            tolerance: Probability::new(0.5).unwrap_or(Probability::ONE),
            aversion: 1.0,
            hold: Duration::from_secs(2),
        }
    }
}

impl Check for Config {
    fn check(&self) -> Result<(), InvalidParameter> {
        positive("rtt", Some(self.rtt))?;
        positive("hold", Some(self.hold))?;
        if self.tolerance == Probability::ZERO {
            return Err(("tolerance", "expected above 0%".into()));
        }
        if (0.0..=1000.0).contains(&self.aversion) {
            Ok(())
        } else {
            Err(("aversion", "expected from 0 to 1000".into()))
        }
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        Box::new(Budget { config: self.clone(), paths: PerPath::new(PathState::FRESH), units: 0 })
    }
}

/// Units after which a path that was left is probed by a copy.
const PROBE_EVERY: u64 = 64;
/// Part of both limits below which a path is calm enough to come back.
const CALM: f64 = 0.8;
/// Part of its weight with which a path comes back.
const FIRST_WEIGHT: f64 = 0.1;

#[derive(Debug)]
struct Budget {
    config: Config,
    /// State of each path, indexed by path.
    paths: PerPath<PathState>,
    units: u64,
}

#[derive(Clone, Copy, Debug)]
struct PathState {
    phase: Phase,
    /// Weight that the path has gained and not yet used.
    credit: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// In use; since when, if it was left before.
    Used { since: Option<Instant> },
    /// Outside of the budget; since when it has been calm.
    Left { calm_since: Option<Instant> },
}

impl PathState {
    const FRESH: Self = Self { phase: Phase::Used { since: None }, credit: 0.0 };

    fn update(&mut self, now: Instant, config: &Config, view: &PathView) {
        let Some(srtt) = view.srtt else { return };
        let limit = |part: f64| {
            srtt <= config.rtt.mul_f64(part)
                && view.rtt_deviation <= srtt.mul_f64(config.tolerance.ratio() * part)
        };
        self.phase = match self.phase {
            Phase::Used { .. } if !limit(1.0) => Phase::Left { calm_since: None },
            Phase::Left { calm_since } if limit(CALM) => match calm_since {
                Some(since) if now.since(since) >= config.hold => Phase::Used { since: Some(now) },
                None => Phase::Left { calm_since: Some(now) },
                still => Phase::Left { calm_since: still },
            },
            Phase::Left { .. } => Phase::Left { calm_since: None },
            used => used,
        };
    }

    const fn is_used(&self) -> bool {
        matches!(self.phase, Phase::Used { .. })
    }

    /// Share of the units that the path is to carry, relative to others.
    fn weight(&self, now: Instant, config: &Config, view: &PathView) -> f64 {
        let srtt = view.srtt.unwrap_or(config.rtt).as_secs_f64().max(1e-6);
        let min = view.min_rtt.map_or(srtt, Duration::as_secs_f64).max(1e-6);
        let inflation = (srtt / min - 1.0).max(0.0);
        let back = match self.phase {
            Phase::Used { since: Some(since) } => {
                let part = now.since(since).as_secs_f64() / config.hold.as_secs_f64();
                (FIRST_WEIGHT + (1.0 - FIRST_WEIGHT) * part).min(1.0)
            }
            _ => 1.0,
        };
        back / (srtt * (1.0 + config.aversion * inflation))
    }
}

impl Budget {
    /// Returns the path with room whose turn it is (smooth weighted round robin).
    fn turn<'a>(&mut self, now: Instant, paths: &'a [PathView]) -> Option<&'a PathView> {
        let config = self.config.clone();
        let mut total = 0.0;
        let mut best: Option<(&PathView, f64)> = None;
        for view in candidates(paths).filter(|path| path.has_room) {
            let state = &mut self.paths[view.id];
            if !state.is_used() {
                continue;
            }
            let weight = state.weight(now, &config, view);
            state.credit += weight;
            total += weight;
            if best.is_none_or(|(_, most)| state.credit > most) {
                best = Some((view, state.credit));
            }
        }
        let (view, _) = best?;
        self.paths[view.id].credit -= total;
        Some(view)
    }
}

impl Scheduler for Budget {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        if !unit.carried_by.is_empty() {
            return lowest_rtt(unit, paths);
        }
        let config = self.config.clone();
        for view in paths {
            self.paths[view.id].update(now, &config, view);
        }
        if !candidates(paths).any(|path| path.has_room) {
            return wait_for_room(paths);
        }
        let Some(first) = self.turn(now, paths) else {
            // None within the budget has room: if one is within it, wait for that.
            if let Some(path) = candidates(paths).find(|view| self.paths[view.id].is_used()) {
                return Choice::wait_for(path.id, Reason::Patience);
            }
            return lowest_rtt(unit, paths);
        };
        self.units += 1;
        let left = |view: &&PathView| view.has_room && !self.paths[view.id].is_used();
        if self.units.is_multiple_of(PROBE_EVERY)
            && let Some(probed) = candidates(paths).find(left)
        {
            let set: PathSet = [first.id, probed.id].into_iter().collect();
            return Choice::Send(set, Reason::Turn);
        }
        send_on(Some(first), Reason::Turn, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, at, paths};
    use super::*;

    /// Returns how many of `units` units each of two paths carries, one unit every 10 ms.
    fn carried(scheduler: &mut dyn Scheduler, from: i64, units: i64, rtt_ms: [i64; 2]) -> [i64; 2] {
        let mut two = paths(&rtt_ms);
        for path in &mut two {
            path.min_rtt = Some(Duration::from_millis(50));
        }
        let mut sent = [0; 2];
        for unit in 0..units {
            if let Choice::Send(set, _) = scheduler.choose(at(from + 10 * unit), &UNIT, &two) {
                set.iter().for_each(|path| sent[path.index()] += 1);
            }
        }
        sent
    }

    // Source: the proposal's weights, 1 / (srtt · (1 + inflation)): 1/50 against 1/(100 · 2).
    #[test]
    fn paths_within_the_budget_share_by_their_weights() {
        let mut scheduler = Config::default().build();
        assert_eq!(carried(&mut *scheduler, 0, 500, [50, 100]), [400, 100]);
    }

    #[test]
    fn a_path_beyond_the_budget_is_only_probed_until_it_is_calm() {
        let mut scheduler = Config::default().build();
        assert_eq!(carried(&mut *scheduler, 0, 640, [50, 201]), [640, 10]);
        // 180 ms are within the budget, but not calm.
        assert_eq!(carried(&mut *scheduler, 6_400, 640, [50, 180]), [640, 10]);
        // Calm for 2 s: still only probed.
        assert_eq!(carried(&mut *scheduler, 12_800, 200, [50, 50]), [200, 3]);
        // Then it comes back with a tenth of its weight, and has all of it after 2 s more.
        let first = carried(&mut *scheduler, 14_800, 20, [50, 50]);
        assert!((1..=4).contains(&first[1]), "{first:?}");
        assert_eq!(carried(&mut *scheduler, 17_000, 100, [50, 50]), [50, 50]);
    }

    #[test]
    fn without_a_path_in_the_budget_the_fastest_carries_everything() {
        let mut scheduler = Config::default().build();
        assert_eq!(carried(&mut *scheduler, 0, 100, [300, 250]), [0, 100]);
    }
}
