//! Which of the satellites in sight serves.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::epoch::Epoch;
use crate::visibility::crossing;

/// How a terminal chooses its satellite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// The highest at every moment.
    Nearest,
    /// The one that stays longest, until it leaves.
    #[default]
    LongestVisible,
    /// A new choice every 15 s, at :12, :27, :42 and :57 of the minute, as Starlink's scheduler takes
    /// it (Tanveer et al., "Making sense of constellations", CoNEXT 2023): the highest of those that
    /// stay until the next choice, else the highest of all. What is lost before is not replaced.
    Epoch,
}

/// The phase of [`Choice::Epoch`] and its period, in ns.
const SLOT: (i64, i64) = (12_000_000_000, 15_000_000_000);
/// Between which times a change of the highest is looked for, in ms.
const LOOK: i64 = 1000;

/// A time from the first millisecond on to before the second in which a satellite could serve or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub satellite: usize,
    pub from: i64,
    pub to: i64,
}

impl Choice {
    /// Who serves when, of those that could; `elevation` gives any increasing function of it.
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
        let there = passes.iter().filter(|pass| pass.from <= now && now < pass.to);
        // Of equals the first, so that the order alone decides.
        match there.rev().max_by_key(|pass| pass.to) {
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

/// The one of `there` that stands highest at a time; of equals the first.
fn highest<'a>(
    there: impl Iterator<Item = &'a Pass>,
    at: i64,
    elevation: &impl Fn(usize, i64) -> f64,
) -> Option<Pass> {
    let mut best: Option<(f64, Pass)> = None;
    for pass in there {
        let height = elevation(pass.satellite, at);
        if best.is_none_or(|(highest, _)| height > highest) {
            best = Some((height, *pass));
        }
    }
    best.map(|(_, pass)| pass)
}

fn nearest(passes: &[Pass], end: i64, elevation: impl Fn(usize, i64) -> f64) -> Vec<Pass> {
    let mut served = Vec::new();
    let mut coming = passes.to_vec();
    coming.sort_by_key(|pass| core::cmp::Reverse(pass.from));
    let mut there: Vec<Pass> = Vec::new();
    let mut now = 0;
    while now < end {
        there.retain(|pass| pass.to > now);
        while coming.last().is_some_and(|pass| pass.from <= now) {
            there.extend(coming.pop().filter(|pass| pass.to > now));
        }
        there.sort_by_key(|pass| pass.satellite);
        // Until then the same satellites are there.
        let until = there.iter().map(|pass| pass.to).chain(coming.last().map(|pass| pass.from));
        let until = until.fold(end, i64::min);
        let until = if there.is_empty() { until } else { until.min((now / LOOK + 1) * LOOK) };
        while now < until {
            let Some(best) = highest(there.iter(), now, &elevation) else { break };
            let is_best = |at: i64| {
                let other = highest(there.iter(), at, &elevation);
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
    // The first slot began before the run; the next begins here, rounded up to the millisecond.
    let into = (start.within_minute() - SLOT.0).rem_euclid(SLOT.1);
    let mut next = (SLOT.1 - into + 999_999) / 1_000_000;
    let mut now = 0;
    while now < end {
        let until = next.min(end);
        let there = || passes.iter().filter(|pass| pass.from <= now && now < pass.to);
        let whole = there().filter(|pass| pass.to >= until);
        let best = highest(whole, now, &elevation).or_else(|| highest(there(), now, &elevation));
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
    fn the_longest_visible_serves_until_it_leaves() {
        let passes = [pass(0, 0, 40_000), pass(1, 0, 60_000), pass(2, 30_000, 90_000)];
        let served = Choice::LongestVisible.serve(&passes, Epoch::J2000, 120_000, |_, _| 0.0);
        assert_eq!(served, [pass(1, 0, 60_000), pass(2, 60_000, 90_000)]);
    }

    #[test]
    fn the_nearest_serves_from_the_millisecond_on_at_which_it_is_higher() {
        // One falls from 60, the other rises from 0 with one each per second: equal at 30.5 s.
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
    fn epochs_begin_at_12_27_42_and_57_seconds_of_the_minute() {
        let start = Epoch::from_text("2026-01-01T00:00:20Z").unwrap();
        // Higher, but gone before the epoch from 27 s to 42 s ends.
        let height = |satellite: usize, _| if satellite == 1 { 80.0 } else { 50.0 };
        let passes = [pass(0, 0, 60_000), pass(1, 5_000, 20_000), pass(2, 10_000, 37_000)];
        let served = Choice::Epoch.serve(&passes, start, 52_000, height);
        assert_eq!(served, [pass(0, 0, 52_000)]);
        let served = Choice::Epoch.serve(&passes[1..], start, 52_000, height);
        assert_eq!(served, [pass(1, 7_000, 20_000), pass(2, 22_000, 37_000)]);
    }
}
