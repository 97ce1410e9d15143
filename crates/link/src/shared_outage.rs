//! Correlated outages of several carriers.
//!
//! Two carriers of one kind pass the same tunnel, valley and crowd, so they fail together more often than
//! independent carriers. A carrier is down while its own process or a common process is down (the common shock
//! of Marshall and Olkin, "A multivariate exponential distribution", JASA 62, 1967). All are alternating
//! renewal processes with exponential up times and the same distribution of down times. Let p be the share of
//! time that a carrier is down, and L = P(both down) / p² the configured ratio. Any two carriers are up
//! together for 1 − 2p + L p² of the time, which is (1 − p)² / (1 − c) for a common share c; this gives c, and
//! the own share o follows from 1 − p = (1 − c)(1 − o).
//!
//! Not every carrier need be in every common outage: carrier i is in one with the probability q_i, drawn for each
//! outage and carrier by itself. Its share is then 1 − (1 − q_i c)(1 − o), and n carriers are in a common outage
//! together for c q_1 … q_n of the time.
//!
//! Below independence (L < 1, as of a satellite and a carrier, which different obstacles shadow) there is no common
//! process: an outage of a carrier that would overlap one of an earlier carrier is moved, with the probability 1 − L,
//! to a random time without overlap, which keeps p and multiplies the time together by L.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Seed, expect};

use crate::distribution::Distribution;
use crate::outage::merged;

/// Correlated outages in a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SharedOutagesConfig {
    /// Mean up time of a carrier between outages; at least 1 ms.
    pub up: Duration,
    /// Duration of an outage; its mean must be at least 1 ms. Overlapping own and common outages are merged.
    pub down: Distribution,
    /// Dependence between the carriers' outages. Default: independent.
    #[serde(default)]
    pub together: Together,
    /// Probability with which each carrier is in an outage that is common, 0 to 1, in the order of the carriers; empty:
    /// all are in all of them.
    #[serde(default)]
    pub takes_part: Vec<f64>,
}

/// Dependence of the outages of several carriers.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a ratio or \"always\"")]
pub enum Together {
    /// Ratio of the probability that two carriers are down at once to that of independent carriers: from 0 (never
    /// together) over 1 (independent) to 1 / share of time down (always together).
    Ratio(f64),
    /// All outages are common.
    Always(Always),
}

/// The word `"always"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Always {
    /// All outages are common.
    Always,
}

impl Default for Together {
    fn default() -> Self {
        Self::Ratio(1.0)
    }
}

/// Correlated outages, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedOutages {
    down: Distribution,
    /// Share of time that the common process is down.
    common: f64,
    /// Share of time that each carrier's own process is down.
    own: f64,
    /// Probability that an outage avoids those of earlier carriers.
    apart: f64,
    /// Probability with which each carrier is in a common outage; 1 for those that are not listed.
    takes_part: Vec<f64>,
}

/// Minimum share of time down; a smaller one is a rounding error.
const MIN_SHARE: f64 = 1e-12;

/// Warm-up of a process before the run, in mean down times, after which it is stationary.
const WARM_UP: i64 = 50;

impl SharedOutagesConfig {
    /// Share of time that each carrier is down.
    pub fn share_down(&self) -> f64 {
        let (up, down) = (self.up.as_secs_f64(), self.down.sampler().mean().as_secs_f64());
        down / (up + down)
    }

    /// Returns the checked outages.
    ///
    /// # Errors
    /// The key at fault, and what was expected.
    pub fn resolve(&self) -> Result<SharedOutages, (&'static str, String)> {
        let min_mean = Duration::from_millis(1);
        expect(self.up >= min_mean, "up", "at least 1ms")?;
        self.down.check().map_err(|problem| ("down", problem))?;
        expect(self.down.sampler().mean() >= min_mean, "down", "a mean of at least 1ms")?;
        let p = self.share_down();
        let max = 1.0 / p;
        let ratio = match self.together {
            Together::Ratio(ratio) => ratio,
            Together::Always(_) => max,
        };
        // A printed number may exceed the limit by rounding.
        if !(0.0..=max * (1.0 + 1e-9)).contains(&ratio) {
            let problem = format!(
                "found {ratio}, expected 0 to {max:.4}: a carrier is down for {:.4} % of the time",
                100.0 * p
            );
            return Err(("together", problem));
        }
        if let Some(part) = self.takes_part.iter().find(|part| !(0.0..=1.0).contains(*part)) {
            return Err(("takes_part", format!("found {part}, expected probabilities, 0 to 1")));
        }
        let apart = (1.0 - ratio).max(0.0);
        // Moved outages need room.
        if apart > 0.0 && p > 0.25 {
            let problem = format!("a carrier is down for {:.1} % of the time", 100.0 * p);
            return Err(("together", format!("expected at least 1: {problem}")));
        }
        let both_up = 1.0 - 2.0 * p + ratio.clamp(1.0, max) * p * p;
        let common = 1.0 - (1.0 - p) * (1.0 - p) / both_up;
        let own = 1.0 - (1.0 - p) / (1.0 - common);
        Ok(SharedOutages {
            down: self.down.clone(),
            common: common.clamp(0.0, 1.0),
            own: own.clamp(0.0, 1.0),
            apart,
            takes_part: self.takes_part.clone(),
        })
    }
}

impl SharedOutages {
    /// Returns the shares of time in which common outages and the carriers' own take them down, as far as they have
    /// any.
    pub(crate) fn shares_down(&self) -> [f64; 2] {
        [self.common, self.own].map(|share| if share < MIN_SHARE { 0.0 } else { share })
    }

    /// Returns the duration of an outage.
    pub(crate) fn down(&self) -> &Distribution {
        &self.down
    }

    /// Draws the outages of `carriers` carriers in a run of `length`: start and length of each, in order and
    /// disjoint. Uses the streams `name.common`, `name.0`, `name.1` and so on, and `name.1.apart`, `name.0.takes_part`
    /// and so on.
    pub fn draw(
        &self,
        seed: Seed,
        name: &str,
        carriers: usize,
        length: Duration,
    ) -> Vec<Vec<(Instant, Duration)>> {
        let common = self.process(self.common, seed, &format!("{name}.common"), length);
        let mut drawn: Vec<Vec<(Instant, Duration)>> = Vec::new();
        for number in 0..carriers {
            let own = format!("{name}.{number}");
            let mut all = self.process(self.own, seed, &own, length);
            if self.apart > 0.0 && number > 0 {
                let earlier: Vec<_> = drawn.iter().flatten().copied().collect();
                let earlier = merged(&earlier);
                self.move_apart(&mut all, &earlier, seed, &format!("{own}.apart"), length);
            }
            let part = self.takes_part.get(number).copied().unwrap_or(1.0);
            let mut stream = seed.stream(&format!("{own}.takes_part"));
            // Of a probability of 1, each draw below it is taken.
            all.extend(common.iter().filter(|_| stream.unit() < part));
            let spans = merged(&all).into_iter().map(|(start, end)| (start, end - start));
            drawn.push(spans.collect());
        }
        drawn
    }

    /// Moves outages that overlap `earlier` ones, each with the probability `apart`, to random times where they do not.
    fn move_apart(
        &self,
        own: &mut [(Instant, Duration)],
        earlier: &[(Instant, Instant)],
        seed: Seed,
        name: &str,
        length: Duration,
    ) {
        // With a quarter of the time down, an outage of the mean length fits at most times.
        const MAX_TRIES: u32 = 64;
        let mut stream = seed.stream(name);
        let overlaps = |spans: &[(Instant, Instant)], start: Instant, span: Duration| {
            let next = spans.partition_point(|(_, end)| *end <= start);
            spans.get(next).is_some_and(|(other, _)| *other < start + span)
        };
        let mut taken: Vec<_> =
            earlier.iter().map(|(start, end)| (*start, *end - *start)).collect();
        taken.extend_from_slice(own);
        let taken = merged(&taken);
        for (start, span) in own {
            let moves = stream.unit() < self.apart;
            if !moves || !overlaps(earlier, *start, *span) {
                continue;
            }
            let room = (length - *span).as_nanos().max(0) as f64;
            let place = |_| Instant::from_nanos((stream.unit() * room) as i64);
            if let Some(place) = (0..MAX_TRIES).map(place).find(|at| !overlaps(&taken, *at, *span))
            {
                *start = place;
            }
        }
    }

    /// Draws the outages of an alternating process that is down for `share` of the time.
    fn process(
        &self,
        share: f64,
        seed: Seed,
        name: &str,
        length: Duration,
    ) -> Vec<(Instant, Duration)> {
        let mut found = Vec::new();
        if share < MIN_SHARE {
            return found;
        }
        let sampler = self.down.sampler();
        let mut stream = seed.stream(name);
        let mean_down = sampler.mean();
        let mean_up = mean_down.as_secs_f64() * (1.0 - share) / share;
        let end = Instant::ZERO + length;
        let mut at = Instant::ZERO - mean_down * WARM_UP;
        loop {
            let start = at + Duration::from_secs_f64(stream.exponential(mean_up));
            if start >= end {
                return found;
            }
            // At least a nanosecond, so that time advances.
            at = start + sampler.draw(&mut stream).max(Duration::from_nanos(1));
            if at > Instant::ZERO {
                let start = start.max(Instant::ZERO);
                found.push((start, at.min(end) - start));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn config(up_s: i64, down: Distribution, together: f64) -> SharedOutagesConfig {
        let together = Together::Ratio(together);
        SharedOutagesConfig { up: Duration::from_secs(up_s), down, together, takes_part: vec![] }
    }

    fn total(spans: &[(Instant, Duration)]) -> f64 {
        spans.iter().map(|(_, length)| length.as_secs_f64()).sum()
    }

    /// Time in seconds that both carriers are down.
    fn both(a: &[(Instant, Duration)], b: &[(Instant, Duration)]) -> f64 {
        let (mut i, mut j, mut sum) = (0, 0, 0.0);
        while i < a.len() && j < b.len() {
            let (end_a, end_b) = (a[i].0 + a[i].1, b[j].0 + b[j].1);
            let shared = end_a.min(end_b) - a[i].0.max(b[j].0);
            sum += shared.max(Duration::ZERO).as_secs_f64();
            if end_a < end_b { i += 1 } else { j += 1 }
        }
        sum
    }

    #[test]
    fn carriers_fail_for_their_share_and_together_by_the_ratio() {
        let length = Duration::from_secs(2_000_000);
        let second = Duration::from_secs(1);
        for down in [Distribution::exponential(second), Distribution::fixed(second)] {
            for together in [1.0, 2.5, 3.6, 20.0, 50.0] {
                let outages = config(49, down.clone(), together).resolve().unwrap();
                let drawn = outages.draw(Seed(7), "cells", 3, length);
                let seconds = length.as_secs_f64();
                for carrier in &drawn {
                    // 40 000 outages of at most exponential spread: Var(sum) ≤ 2 n D².
                    let share = total(carrier) / seconds;
                    assert!(
                        (share - 0.02).abs() < 4.0 * 0.02 * (2.0 / 40_000.0f64).sqrt(),
                        "{share}"
                    );
                }
                for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                    let ratio = both(&drawn[a], &drawn[b]) / seconds / 0.02 / 0.02;
                    let met = seconds * together * 0.02 * 0.02;
                    let within = 4.0 * together * (2.0 / met).sqrt();
                    assert!((ratio - together).abs() < within, "{ratio} for {together}");
                }
            }
        }
    }

    #[test]
    fn below_independence_carriers_avoid_one_another() {
        let length = Duration::from_secs(2_000_000);
        for together in [0.0, 0.4, 0.8] {
            let down = Distribution::exponential(Duration::from_secs(2));
            let outages = config(38, down, together).resolve().unwrap();
            let drawn = outages.draw(Seed(5), "cells", 3, length);
            let seconds = length.as_secs_f64();
            for carrier in &drawn {
                // 50 000 outages of exponential length: Var(sum) = 2 n D².
                let share = total(carrier) / seconds;
                let within = 4.0 * 0.05 * (2.0 / 50_000.0f64).sqrt();
                assert!((share - 0.05).abs() < within, "{share}");
            }
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                let ratio = both(&drawn[a], &drawn[b]) / seconds / 0.05 / 0.05;
                // Some 2500 · `together` seconds together, in pieces of a second.
                assert!((ratio - together).abs() < 0.01 + 0.1 * together, "{ratio} for {together}");
            }
        }
    }

    #[test]
    fn carriers_take_part_in_common_outages_by_their_probability() {
        let length = Duration::from_secs(4_000_000);
        let down = Distribution::exponential(Duration::from_secs(2));
        let takes_part = vec![1.0, 0.6, 0.25, 0.0];
        let together = Together::Always(Always::Always);
        let outages = SharedOutagesConfig { takes_part, together, ..config(98, down, 1.0) };
        let drawn = outages.resolve().unwrap().draw(Seed(3), "cells", 4, length);
        let seconds = length.as_secs_f64();
        // Down together for c q_i q_j of the time, in 40 000 q_i q_j spans of exponential length: Var(sum) = 2 n D².
        for (a, b, share) in [(0, 0, 1.0), (1, 1, 0.6), (0, 1, 0.6), (0, 2, 0.25), (1, 2, 0.15)] {
            let found = both(&drawn[a], &drawn[b]) / seconds / 0.02;
            let within = 4.0 * (2.0 * share / 40_000.0f64).sqrt();
            assert!((found - share).abs() < within, "{a} {b}: {found} of {share}");
        }
        assert!(drawn[3].is_empty());
    }

    #[test]
    fn at_the_maximum_all_fail_together_and_at_one_none_do() {
        let down = Distribution::exponential(Duration::from_secs(1));
        let all = config(49, down.clone(), 50.0).resolve().unwrap();
        let drawn = all.draw(Seed(1), "cells", 2, Duration::from_secs(10_000));
        assert!(drawn[0].len() > 100);
        assert_eq!(drawn[0], drawn[1]);
        let none = config(49, down, 1.0).resolve().unwrap();
        assert!(none.common < 1e-12, "{}", none.common);
    }

    #[test]
    fn a_run_starts_in_an_outage_with_the_share_of_time_down() {
        let down = Distribution::exponential(Duration::from_secs(1));
        let outages = config(3, down, 2.0).resolve().unwrap();
        let begins = |seed| {
            let drawn = outages.draw(Seed(seed), "cells", 1, Duration::from_secs(1));
            drawn[0].first().is_some_and(|(start, _)| *start == Instant::ZERO)
        };
        let share = (0..4000).filter(|seed| begins(*seed)).count() as f64 / 4000.0;
        assert!((share - 0.25).abs() < 4.0 * (0.25f64 * 0.75 / 4000.0).sqrt(), "{share}");
    }

    #[test]
    fn a_further_carrier_does_not_change_the_others() {
        let down = Distribution::exponential(Duration::from_secs(1));
        let outages = config(49, down, 3.0).resolve().unwrap();
        let draw =
            |name, carriers| outages.draw(Seed(1), name, carriers, Duration::from_secs(9999));
        assert_eq!(draw("cells", 2), draw("cells", 3)[..2]);
        assert_ne!(draw("cells", 2), draw("sats", 2));
    }

    #[test]
    fn an_invalid_key_is_named_in_the_error() {
        let down = Distribution::exponential(Duration::from_secs(1));
        let refused = |config: SharedOutagesConfig| config.resolve().unwrap_err();
        assert_eq!(refused(config(0, down.clone(), 1.0)).0, "up");
        assert_eq!(refused(config(9, Distribution::fixed(Duration::ZERO), 1.0)).0, "down");
        let (key, problem) = refused(config(9, down.clone(), 11.0));
        assert_eq!(
            (key, problem.contains("expected 0 to 10.0000")),
            ("together", true),
            "{problem}"
        );
        assert_eq!(refused(config(9, down.clone(), f64::NAN)).0, "together");
        let strange = SharedOutagesConfig { takes_part: vec![1.2], ..config(9, down, 1.0) };
        assert_eq!(refused(strange).0, "takes_part");
    }
}
