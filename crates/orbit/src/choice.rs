//! Selection of the serving satellite.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::epoch::Epoch;
use crate::visibility::crossing;

/// Strategy by which a terminal selects its satellite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// The satellite with the highest elevation, at every instant.
    Nearest,
    /// The satellite with the longest remaining pass, until its end.
    #[default]
    LongestVisible,
    /// A selection every 15 s, at :12, :27, :42 and :57 of the minute, like that of Starlink's scheduler
    /// (Tanveer et al., "Making sense of constellations", CoNEXT 2023): the highest of the satellites that stay
    /// visible until the next selection, else the highest of all. A satellite that sets before is not replaced.
    Epoch,
}

/// Phase and period of [`Choice::Epoch`], in ns.
const SLOT: (i64, i64) = (12_000_000_000, 15_000_000_000);
/// Maximum interval of the search for a change of the highest satellite, in ms.
const LOOK: i64 = 1000;

/// Half-open span in ms in which a satellite can serve, or serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub satellite: usize,
    pub from: i64,
    pub to: i64,
}

impl Choice {
    /// Returns the serving satellites over time. `elevation` may be any increasing function of the elevation.
    pub(crate) fn serve(
        self,
        passes: &[Pass],
        start: Epoch,
        end: i64,
        elevation: impl Fn(usize, i64) -> f64,
    ) -> Vec<Pass> {
        let served = match self {
            Self::Nearest => nearest(passes, end, elevation),
            Self::LongestVisible => longest(passes, end),
            Self::Epoch => slots(passes, start, end, elevation),
        };
        let mut joined: Vec<Pass> = Vec::new();
        for pass in served {
            match joined.last_mut() {
                Some(last) if last.satellite == pass.satellite && last.to == pass.from => {
                    last.to = pass.to;
                }
                _ => joined.push(pass),
            }
        }
        joined
    }
}

fn longest(passes: &[Pass], end: i64) -> Vec<Pass> {
    let mut served = Vec::new();
    let mut now = 0;
    while now < end {
        let visible = passes.iter().filter(|pass| pass.from <= now && now < pass.to);
        // Ties go to the first, for reproducibility.
        match visible.rev().max_by_key(|pass| pass.to) {
            Some(best) => {
                served.push(Pass { from: now, ..*best });
                now = best.to;
            }
            None => {
                let next = passes.iter().map(|pass| pass.from).filter(|from| *from > now).min();
                now = next.unwrap_or(end);
            }
        }
    }
    served
}

/// Returns the highest of the `visible` satellites at a time; ties go to the first.
fn highest<'a>(
    visible: impl Iterator<Item = &'a Pass>,
    at: i64,
    elevation: &impl Fn(usize, i64) -> f64,
) -> Option<Pass> {
    let mut best: Option<(f64, Pass)> = None;
    for pass in visible {
        let height = elevation(pass.satellite, at);
        if best.is_none_or(|(highest, _)| height > highest) {
            best = Some((height, *pass));
        }
    }
    best.map(|(_, pass)| pass)
}

fn nearest(passes: &[Pass], end: i64, elevation: impl Fn(usize, i64) -> f64) -> Vec<Pass> {
    let mut served = Vec::new();
    let mut later = passes.to_vec();
    later.sort_by_key(|pass| core::cmp::Reverse(pass.from));
    let mut visible: Vec<Pass> = Vec::new();
    let mut now = 0;
    while now < end {
        visible.retain(|pass| pass.to > now);
        while later.last().is_some_and(|pass| pass.from <= now) {
            visible.extend(later.pop().filter(|pass| pass.to > now));
        }
        visible.sort_by_key(|pass| pass.satellite);
        // The set of visible satellites does not change until then.
        let until = visible.iter().map(|pass| pass.to).chain(later.last().map(|pass| pass.from));
        let until = until.fold(end, i64::min);
        let until = if visible.is_empty() { until } else { until.min((now / LOOK + 1) * LOOK) };
        while now < until {
            let Some(best) = highest(visible.iter(), now, &elevation) else { break };
            let is_best = |at: i64| {
                let other = highest(visible.iter(), at, &elevation);
                other.is_some_and(|other| other.satellite == best.satellite)
            };
            let to = if is_best(until - 1) { until } else { crossing(now, until - 1, is_best) };
            served.push(Pass { from: now, to, ..best });
            now = to;
        }
        now = until;
    }
    served
}

fn slots(
    passes: &[Pass],
    start: Epoch,
    end: i64,
    elevation: impl Fn(usize, i64) -> f64,
) -> Vec<Pass> {
    let mut served = Vec::new();
    // The first slot began before the run; `next` is the start of the second, rounded up to the millisecond.
    let into = (start.within_minute() - SLOT.0).rem_euclid(SLOT.1);
    let mut next = (SLOT.1 - into + 999_999) / 1_000_000;
    let mut now = 0;
    while now < end {
        let until = next.min(end);
        let visible = || passes.iter().filter(|pass| pass.from <= now && now < pass.to);
        let staying = visible().filter(|pass| pass.to >= until);
        let best =
            highest(staying, now, &elevation).or_else(|| highest(visible(), now, &elevation));
        served.extend(best.map(|best| Pass { from: now, to: best.to.min(until), ..best }));
        now = until;
        next += SLOT.1 / 1_000_000;
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn pass(satellite: usize, from: i64, to: i64) -> Pass {
        Pass { satellite, from, to }
    }

    #[test]
    fn the_longest_visible_serves_until_the_end_of_its_pass() {
        let passes = [pass(0, 0, 40_000), pass(1, 0, 60_000), pass(2, 30_000, 90_000)];
        let served = Choice::LongestVisible.serve(&passes, Epoch::J2000, 120_000, |_, _| 0.0);
        assert_eq!(served, [pass(1, 0, 60_000), pass(2, 60_000, 90_000)]);
    }

    #[test]
    fn the_nearest_serves_from_the_millisecond_it_is_higher() {
        // One sinks from 61, the other rises from 0, by one per second each: equal at 30.5 s.
        let height = |satellite: usize, at: i64| {
            if satellite == 0 { 61.0 - at as f64 / 1000.0 } else { at as f64 / 1000.0 }
        };
        let passes = [pass(0, 0, 60_000), pass(1, 5_500, 60_000)];
        let served = Choice::Nearest.serve(&passes, Epoch::J2000, 100_000, height);
        assert_eq!(served, [pass(0, 0, 30_501), pass(1, 30_501, 60_000)]);
        let served = Choice::Nearest.serve(&passes[1..], Epoch::J2000, 6_000, height);
        assert_eq!(served, [pass(1, 5_500, 6_000)]);
    }

    #[test]
    fn epochs_begin_15_seconds_apart_at_12_of_the_minute() {
        let start = Epoch::from_text("2026-01-01T00:00:20Z").unwrap();
        // Higher, but sets before the end of the epoch from 27 s to 42 s.
        let height = |satellite: usize, _| if satellite == 1 { 80.0 } else { 50.0 };
        let passes = [pass(0, 0, 60_000), pass(1, 5_000, 20_000), pass(2, 10_000, 37_000)];
        let served = Choice::Epoch.serve(&passes, start, 52_000, height);
        assert_eq!(served, [pass(0, 0, 52_000)]);
        let served = Choice::Epoch.serve(&passes[1..], start, 52_000, height);
        assert_eq!(served, [pass(1, 7_000, 20_000), pass(2, 22_000, 37_000)]);
    }
}
