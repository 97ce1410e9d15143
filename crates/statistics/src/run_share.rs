//! The share of a run, with the grouping of its misses.

use alloc::vec::Vec;

use libm::{fabs, rint};

use crate::Exposure;
use crate::batch_means::{block, blocks, sum, sums};
use crate::share_interval::FEW;

/// Part of the bins with a miss from which on gaps between misses separate no episodes.
const DENSE: f64 = 1.0 / 3.0;

/// Degrees of freedom of a variance that is not estimated.
const KNOWN: f64 = 1e9;

/// Share in one run, with the grouping of its misses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunShare {
    /// Messages (or frames) whose fate is decided.
    pub trials: u64,
    /// Those among them that failed.
    pub missed: u64,
    /// Variance of `missed`, by blocks, in messages squared.
    pub variance: f64,
    /// Degrees of freedom of `variance`.
    pub freedom: f64,
    /// Misses of the worst block beyond the expected ones; of dense misses, as many as one event takes.
    pub largest: f64,
    /// Groups of misses with more than a block between them; of dense misses, as many independent ones as would vary
    /// as much.
    pub episodes: u64,
    /// Length of a block in s.
    pub block_s: f64,
    /// Time from the first to the last trial, in s.
    pub span_s: f64,
    /// Factor on the weight of each episode, since the run saw a part of a measurement only.
    pub clustering: f64,
    /// How bad the links were.
    pub seen: Exposure,
    /// How bad they are in other flights of their families; equal to `seen` where no flight is drawn.
    pub family: Exposure,
    /// How much more than `family` it may be, at [`CONFIDENCE`](crate::CONFIDENCE).
    pub family_more: Exposure,
}

impl RunShare {
    /// Builds a share from counts over time.
    ///
    /// # Arguments
    /// * `trials`: of each bin, in the order of time.
    /// * `met`: those among them that met the requirement; as many bins.
    /// * `bin_s`: width of a bin in s.
    pub fn of_bins(trials: &[f64], met: &[f64], bin_s: f64) -> Self {
        let busy = |count: &f64| *count != 0.0;
        let (Some(first), Some(last)) =
            (trials.iter().position(busy), trials.iter().rposition(busy))
        else {
            return Self { freedom: 0.0, largest: 0.0, block_s: bin_s, ..Self::of_counts(0, 0) };
        };
        let bins = || trials.iter().zip(met).take(last + 1).skip(first);
        let missed: Vec<f64> = bins().map(|(trials, met)| trials - met).collect();
        let total = sum(bins().map(|(trials, _)| *trials));
        let failed = sum(missed.iter().copied());
        let share = failed / total;
        let deviations = bins().zip(&missed).map(|((trials, _), missed)| missed - share * trials);
        let sums = sums(deviations);
        let (length, variance) = block(&sums, failed);
        let number = missed.len() as f64;
        let misses = Misses { missed: &missed, failed, trials: total, variance };
        let episodes = misses.episodes(length);
        Self {
            trials: rint(total) as u64,
            missed: rint(failed) as u64,
            variance,
            freedom: freedom(
                blocks(&sums, length),
                number / length as f64,
                failed,
                variance,
                episodes,
            ),
            largest: misses.largest(blocks(&sums, length)),
            episodes,
            block_s: length as f64 * bin_s,
            span_s: number * bin_s,
            ..Self::of_counts(0, 0)
        }
    }

    /// Builds a share from the sums of a run, within which messages count as independent.
    ///
    /// # Arguments
    /// * `trials`: messages whose fate is decided.
    /// * `met`: those among them that met the requirement.
    pub fn of_counts(trials: u64, met: u64) -> Self {
        let missed = trials.saturating_sub(met);
        Self {
            trials,
            missed,
            variance: missed as f64,
            freedom: KNOWN,
            largest: 1.0,
            episodes: missed,
            block_s: 0.0,
            span_s: 0.0,
            clustering: 1.0,
            seen: Exposure::default(),
            family: Exposure::default(),
            family_more: Exposure::default(),
        }
    }

    /// Projects to a flight that many times as long with the same rate of misses.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let scaled = |count: u64| rint(count as f64 * factor) as u64;
        Self {
            trials: scaled(self.trials),
            missed: scaled(self.missed),
            variance: self.variance * factor,
            freedom: self.freedom * factor,
            episodes: scaled(self.episodes),
            span_s: self.span_s * factor,
            ..*self
        }
    }
}

/// Misses of a run by bin.
struct Misses<'a> {
    missed: &'a [f64],
    /// Their sum.
    failed: f64,
    /// Sum of the trials.
    trials: f64,
    /// Variance of `failed`.
    variance: f64,
}

impl Misses<'_> {
    fn is_dense(&self) -> bool {
        let bins = self.missed.iter().filter(|missed| **missed != 0.0).count();
        bins as f64 > DENSE * self.missed.len() as f64
    }

    /// Variance that independent misses would have.
    fn independent(&self) -> f64 {
        self.failed * (1.0 - self.failed / self.trials)
    }

    /// Groups of misses more than a block apart; of dense misses, the effective number of independent ones.
    fn episodes(&self, length: usize) -> u64 {
        let places = self.missed.iter().enumerate().filter(|(_, missed)| **missed != 0.0);
        let mut places = places.map(|(place, _)| place);
        let Some(mut last) = places.next() else { return 0 };
        let mut grouped = 1;
        for place in places {
            grouped += u64::from(place - last > length);
            last = place;
        }
        let independent = self.independent();
        let alike = if self.variance > 0.0 {
            rint((independent * independent / self.variance).min(self.failed)) as u64
        } else {
            1
        };
        if self.is_dense() { alike.max(1) } else { alike.max(grouped) }
    }

    /// Weight assumed for an unseen event: that of the worst block, or the mean one of dense misses.
    fn largest(&self, blocks: impl Iterator<Item = f64>) -> f64 {
        if self.is_dense() && self.failed < self.trials {
            return self.variance / self.independent();
        }
        blocks.map(fabs).fold(0.0, f64::max)
    }
}

/// Returns the effective degrees of freedom of a variance that was estimated from clusters of unequal size.
///
/// That is how well the variance for a given number of misses is known: exactly where all episodes have one size.
///
/// # Arguments
/// * `clusters`: misses of each beyond the expected ones; blocks may overlap.
/// * `number`: of clusters side by side.
/// * `missed`: their sum.
/// * `variance`: of that sum.
/// * `episodes`: in which they came; of few, no more can be known.
pub(crate) fn freedom(
    clusters: impl Iterator<Item = f64> + Clone,
    number: f64,
    missed: f64,
    variance: f64,
    episodes: u64,
) -> f64 {
    let known = episodes as f64;
    if known < FEW || variance <= 0.0 {
        return known.max(1.0);
    }
    let places = clusters.clone().count() as f64;
    let third = number * sum(clusters.clone().map(|size| size * size * size)) / places;
    let fourth = number * sum(clusters.map(|size| size * size * size * size)) / places;
    let spread = fourth / (variance * variance) + variance / (missed * missed)
        - 2.0 * third / (variance * missed);
    // Few episodes rarely hold the longest: what they say of their inequality is too little.
    2.0 / (spread * (known + 3.0) / (known - 3.0)).max(1e-9)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// A run of bins with ten messages each, in which all of the given bins fail.
    fn run(bins: usize, failing: &[usize]) -> RunShare {
        let met: Vec<f64> =
            (0..bins).map(|bin| if failing.contains(&bin) { 0.0 } else { 10.0 }).collect();
        RunShare::of_bins(&vec![10.0; bins], &met, 0.1)
    }

    #[test]
    fn an_outage_is_one_episode_however_many_messages_it_takes() {
        let outage: Vec<usize> = (300..310).collect();
        let seen = run(1_000, &outage);
        assert_eq!((seen.trials, seen.missed, seen.episodes), (10_000, 100, 1));
        assert!((seen.span_s - 100.0).abs() < 1e-9);
    }

    #[test]
    fn misses_far_apart_are_as_many_episodes() {
        let apart: Vec<usize> = (0..20).map(|place| 37 + 49 * place).collect();
        assert_eq!(run(1_000, &apart).episodes, 20);
    }

    #[test]
    fn bins_before_the_first_message_and_after_the_last_are_no_time() {
        let mut trials = vec![0.0; 100];
        trials[40..60].fill(5.0);
        let seen = RunShare::of_bins(&trials, &trials, 0.5);
        assert_eq!((seen.trials, seen.missed, seen.span_s), (100, 0, 10.0));
        assert_eq!(RunShare::of_bins(&[0.0; 9], &[0.0; 9], 0.5).trials, 0);
    }

    #[test]
    fn a_flight_ten_times_as_long_has_ten_times_the_misses() {
        let long = run(1_000, &[3, 500, 700]).times(10.0);
        assert_eq!((long.trials, long.missed, long.episodes), (100_000, 300, 30));
    }
}
