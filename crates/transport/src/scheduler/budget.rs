//! Paths within a latency budget, weighted by what they add to the delay.

use skybraid_units::{Duration, Instant, Probability};

use super::low_rtt::lowest_rtt;
use super::{Choice, Reason, Scheduler, Unit, candidates, send_on, wait_for_room};
use crate::per_path::PerPath;
use crate::{PathSet, PathView, algorithm};

algorithm! {
    name: "budget",
    summary: "Uses in turn the usable paths whose smoothed round-trip time is below `rtt` and \
              whose deviation is below `tolerance` of it, weighted by 1 / (srtt · (1 + `aversion` \
              · inflation)), where inflation is the excess over the minimum round-trip time. An \
              excluded path returns after it has measured below four fifths of both limits for \
              `hold`; its weight then grows over another `hold`, since a drained path shows no \
              queue. Meanwhile every 64th unit probes it with a copy. If no path is within the \
              budget, the fastest one is used.",
    source: "proposal for mqvpn (mp0rta/mqvpn#73); srtla_send#17; the probing and return are this \
             project's",
    parameters: {
        rtt: Duration = Duration::from_millis(200), "time", "200ms",
            "round-trip time above which a path is excluded",
            "above zero" if rtt.is_positive();
        tolerance: Probability = Probability::saturating(0.5), "share", "50%",
            "deviation as a share of the round-trip time, above which a path is excluded",
            "above 0%" if *tolerance != Probability::ZERO;
        aversion: f64 = 1.0, "number", "1", "weight of the queueing delay",
            "from 0 to 1000" if (0.0..=1000.0).contains(aversion);
        hold: Duration = Duration::from_secs(2), "time", "2s",
            "time for which a path must be within its limits before it returns",
            "above zero" if hold.is_positive();
    },
    scheduler: |config| Budget {
        config: config.clone(),
        paths: PerPath::new(PathState::FRESH),
        units: 0,
    },
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
    /// Measurements of the path when it was last judged; `None` before.
    measured: Option<Measured>,
    /// Whether both are within their limits.
    fits: bool,
    /// Whether both are below [`CALM`] of their limits.
    calm: bool,
    /// Round-trip time in seconds that the path is weighted by, with its inflation.
    burden: f64,
    /// Share of the units that the path is to carry, relative to others: 1 / `burden`.
    weight: f64,
}

/// Smoothed round-trip time, its deviation and the lowest round-trip time.
type Measured = (Option<Duration>, Duration, Option<Duration>);

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// In use.
    Used,
    /// In use again since then, with a weight that grows.
    Returning { since: Instant },
    /// Outside of the budget; since when it has been calm.
    Left { calm_since: Option<Instant> },
}

impl PathState {
    const FRESH: Self = Self {
        phase: Phase::Used,
        credit: 0.0,
        measured: None,
        fits: true,
        calm: false,
        burden: 1.0,
        weight: 1.0,
    };

    /// Brings the phase up to date.
    #[inline]
    fn update(&mut self, now: Instant, config: &Config, view: &PathView) {
        let measured = (view.srtt, view.rtt_deviation, view.min_rtt);
        if self.measured != Some(measured) {
            self.measured = Some(measured);
            self.judge(config, view);
        }
        if !(self.fits && matches!(self.phase, Phase::Used)) && view.srtt.is_some() {
            self.change_phase(now, config.hold);
        }
    }

    /// Computes what depends on the measurements alone.
    #[inline(never)]
    fn judge(&mut self, config: &Config, view: &PathView) {
        let limit = |srtt: Duration, part: f64| {
            srtt <= config.rtt.mul_f64(part)
                && view.rtt_deviation <= srtt.mul_f64(config.tolerance.ratio() * part)
        };
        self.fits = view.srtt.is_none_or(|srtt| limit(srtt, 1.0));
        self.calm = view.srtt.is_some_and(|srtt| limit(srtt, CALM));
        let srtt = view.srtt.unwrap_or(config.rtt).as_secs_f64().max(1e-6);
        let min = view.min_rtt.map_or(srtt, Duration::as_secs_f64).max(1e-6);
        let inflation = (srtt / min - 1.0).max(0.0);
        self.burden = srtt * (1.0 + config.aversion * inflation);
        self.weight = 1.0 / self.burden;
    }

    fn change_phase(&mut self, now: Instant, hold: Duration) {
        let over = |since: Instant| now.since(since) >= hold;
        self.phase = match self.phase {
            Phase::Used | Phase::Returning { .. } if !self.fits => Phase::Left { calm_since: None },
            Phase::Returning { since } if over(since) => Phase::Used,
            Phase::Left { calm_since: Some(since) } if self.calm && over(since) => {
                Phase::Returning { since: now }
            }
            Phase::Left { calm_since } => {
                Phase::Left { calm_since: self.calm.then(|| calm_since.unwrap_or(now)) }
            }
            used => used,
        };
    }

    const fn is_used(&self) -> bool {
        !matches!(self.phase, Phase::Left { .. })
    }

    /// Adds the weight of one unit to the credit. Returns the weight.
    #[inline]
    fn gain(&mut self, now: Instant, hold: Duration) -> f64 {
        let weight = match self.phase {
            Phase::Returning { since } => {
                let part = now.since(since).as_secs_f64() / hold.as_secs_f64();
                (FIRST_WEIGHT + (1.0 - FIRST_WEIGHT) * part).min(1.0) / self.burden
            }
            _ => self.weight,
        };
        self.credit += weight;
        weight
    }
}

impl Scheduler for Budget {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        if !unit.carried_by.is_empty() {
            return lowest_rtt(unit, paths);
        }
        let Self { config, paths: states, .. } = self;
        let states = states.first_mut(paths.len());
        for (state, view) in states.iter_mut().zip(paths) {
            state.update(now, config, view);
        }
        let regular = paths.iter().any(|path| path.usable && !path.backup);
        let (mut has_room, mut total) = (false, 0.0);
        // The path with room whose turn it is (smooth weighted round robin), and its credit.
        let (mut first, mut most) = (None, f64::NEG_INFINITY);
        for (state, view) in states.iter_mut().zip(paths) {
            if !view.has_room || !view.usable || view.backup == regular {
                continue;
            }
            has_room = true;
            if state.is_used() {
                total += state.gain(now, config.hold);
                if state.credit > most {
                    (first, most) = (Some(view), state.credit);
                }
            }
        }
        if !has_room {
            return wait_for_room(paths);
        }
        let Some(first) = first else {
            // None within the budget has room: if one is within it, wait for that.
            if let Some(path) = candidates(paths).find(|view| self.paths[view.id].is_used()) {
                return Choice::wait_for(path.id, Reason::Patience);
            }
            return lowest_rtt(unit, paths);
        };
        self.paths[first.id].credit -= total;
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
