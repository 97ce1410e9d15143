//! Interval of a share over independent runs, or over the blocks of one run.
//!
//! The interval is Fay and Feuer's for weighted sums of Poisson counts (Statistics in Medicine 16, 1997): episodes are
//! the events, the messages that each took with it their weights. Of independent misses it is the exact Poisson
//! interval. A variance that was estimated from few or from very unequal blocks widens it as Student's t does (Korn and
//! Graubard, Survey Methodology 24, 1998). Fewer than [`FEW`] episodes say little about the largest that may come: the
//! upper end of the misses allows for an outage of [`UNSEEN_S`] that was not seen. Of links whose flights are drawn
//! from families, the interval also reaches as far as the flights seen were better or worse than all.

use alloc::vec::Vec;

use libm::{rint, sqrt};

use crate::batch_means::{SIGNIFICANT, sum};
use crate::exposure::{Exposure, expected};
use crate::run_share::{RunShare, freedom};
use crate::{Interval, gamma_quantile, normal_quantile, student_quantile};

/// Below this number of episodes no method's interval holds everywhere; results say so.
pub const FEW: f64 = 5.0;
/// Length in s of an outage that a run with few episodes may have missed.
pub const UNSEEN_S: f64 = 10.0;
/// The same as a part of the flight time, where that is less: of longer ones a short flight knows nothing.
const UNSEEN_PART: f64 = 0.05;
/// From this number of runs on, runs are the clusters; fewer are judged by blocks unless they differ by more.
pub const RUNS: usize = 10;
/// Maximum factor on the run's length that is reported as deciding.
const MAX_FACTOR: f64 = 1e6;

/// Unit counted as independent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Blocks of a run.
    Blocks,
    /// Whole runs.
    Runs,
}

impl Unit {
    /// Returns the word that tables have.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Runs => "runs",
        }
    }
}

/// Share over one or several runs, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareInterval {
    /// From 0 to 1; NaN without a trial.
    pub estimate: f64,
    /// The two-sided interval.
    pub interval: Interval,
    /// Messages (or frames) whose fate is decided.
    pub trials: u64,
    /// Those among them that failed.
    pub missed: u64,
    /// In how many groups they failed, of distinct runs.
    pub episodes: u64,
    /// Number of runs.
    pub runs: usize,
    /// Unit counted as independent.
    pub unit: Unit,
    /// Length of a block in s; the longest of all runs.
    pub block_s: f64,
    /// Time of all runs in s.
    pub span_s: f64,
    /// Factor on the weight of each episode, where blocks of a measurement's parts decide.
    pub clustering: f64,
    /// Number of copies of each distinct run.
    pub copies: usize,
    /// Share that all flights of the links' families are expected to have; `estimate` where no flight is drawn.
    pub expected: f64,
}

impl ShareInterval {
    fn of_nothing(runs: usize) -> Self {
        Self {
            estimate: f64::NAN,
            interval: Interval { low: 0.0, high: 1.0 },
            trials: 0,
            missed: 0,
            episodes: 0,
            runs,
            unit: Unit::Blocks,
            block_s: 0.0,
            span_s: 0.0,
            clustering: 1.0,
            copies: 1,
            expected: f64::NAN,
        }
    }
}

/// Returns the share over independent runs, or over the blocks of one run, with its two-sided interval.
///
/// Runs that are copies of one another, to the last message, are judged as one.
///
/// # Arguments
/// * `runs`: those without a trial are left out.
/// * `confidence`: of the interval, between 0 and 1, both excluded.
pub fn share_interval(runs: &[RunShare], confidence: f64) -> ShareInterval {
    let (seen, copies) = distinct(runs);
    if seen.is_empty() {
        return ShareInterval::of_nothing(runs.len());
    }
    let trials = seen.iter().map(|run| run.trials).sum::<u64>();
    let missed = seen.iter().map(|run| run.missed).sum::<u64>();
    let episodes = seen.iter().map(|run| run.episodes).sum::<u64>();
    let span_s = sum(seen.iter().map(|run| run.span_s));
    let (all, failed) = (trials as f64, missed as f64);
    let Spread { unit, variance, freedom, largest, clustering } = Spread::of(&seen, failed / all);
    let few = (episodes as f64) < FEW * clustering;
    let mut largest = clustering * largest;
    if few && span_s > 0.0 {
        let longest_s = seen.iter().map(|run| run.span_s).fold(0.0, f64::max);
        let unseen_s = (clustering * UNSEEN_S).min(UNSEEN_PART * span_s).min(longest_s);
        largest = largest.max(all * unseen_s / span_s);
    }
    let events = Events {
        variance: clustering * variance,
        freedom: freedom / clustering,
        largest: largest.max(1.0),
        tail: (1.0 - confidence) / 2.0,
    };
    let mut failing = events.interval(failed);
    if 2 * missed > trials {
        // The rarer outcome is what comes in episodes; of few episodes nobody knows which one that is.
        let meeting = events.interval(all - failed);
        let (low, high) = (all - meeting.high, all - meeting.low);
        failing = if few {
            Interval { low: failing.low.min(low), high: failing.high.max(high) }
        } else {
            Interval { low, high }
        };
    }
    let beyond = |end: f64, more: f64| {
        all * (expected_of(&seen, failed / all, end / all, more) - failed / all)
    };
    failing.low += beyond(failed, -1.0).min(0.0);
    failing.high += beyond(failing.high, 1.0).max(0.0);
    let times = copies as u64;
    ShareInterval {
        estimate: (all - failed) / all,
        interval: Interval {
            low: (1.0 - failing.high / all).max(0.0),
            high: (1.0 - failing.low / all).min(1.0),
        },
        trials: times * trials,
        missed: times * missed,
        episodes,
        runs: copies * seen.len(),
        unit,
        block_s: seen.iter().map(|run| run.block_s).fold(0.0, f64::max),
        span_s: copies as f64 * span_s,
        clustering,
        copies,
        expected: (all - failed - beyond(failed, 0.0)) / all,
    }
}

/// Returns the share of misses that all flights are expected to have, from that of some runs; see [`expected`].
///
/// # Arguments
/// * `more`: part of `family_more` by which the other flights' exposure is taken as larger, from -1 to 1.
fn expected_of(runs: &[RunShare], failing: f64, bound: f64, more: f64) -> f64 {
    let number = runs.len() as f64;
    let mean = |of: &dyn Fn(&RunShare) -> f64| sum(runs.iter().map(of)) / number;
    let seen = Exposure { some: mean(&|run| run.seen.some), all: mean(&|run| run.seen.all) };
    let family = |of: fn(&Exposure) -> f64| {
        mean(&|run| (of(&run.family) + more * of(&run.family_more)).max(0.0))
    };
    let family =
        Exposure { some: family(|exposure| exposure.some), all: family(|exposure| exposure.all) };
    expected(failing, bound, runs.len(), seen, family)
}

/// Returns the multiple of the flight time that would decide whether the share reaches `target`, at the present rate of
/// misses: at least 1; `None` where the estimate is too close to the target, without a trial, or for a target of 0 or
/// 1.
pub fn factor_needed(runs: &[RunShare], target: f64, confidence: f64) -> Option<f64> {
    let now = share_interval(runs, confidence);
    if now.trials == 0 || target <= 0.0 || target >= 1.0 {
        return None;
    }
    let (seen, copies) = distinct(runs);
    // Runs that differ weigh as many of their like; so do blocks.
    let spread = Spread::of(&seen, now.missed as f64 / now.trials as f64);
    let trials = now.trials / copies as u64;
    // More flights are less and less better or worse than all.
    let missed = rint((1.0 - now.expected) * trials as f64);
    let more = missed * copies as f64 / now.missed as f64;
    // Of misses that were not seen nobody knows the episodes: they are taken as the longest that may be unseen.
    let unseen = trials as f64 * (UNSEEN_S / (now.span_s / copies as f64)).min(UNSEEN_PART);
    let variance = if now.missed > 0 { spread.variance * more.max(1.0) } else { missed * unseen };
    let together = RunShare {
        trials,
        missed: missed as u64,
        variance,
        freedom: spread.freedom,
        largest: spread.largest,
        episodes: now.episodes,
        block_s: now.block_s,
        span_s: now.span_s / copies as f64,
        clustering: spread.clustering,
        ..RunShare::of_counts(0, 0)
    };
    let decides = |factor: f64| {
        let interval = share_interval(&[together.times(factor)], confidence).interval;
        if now.expected >= target { interval.low >= target } else { interval.high < target }
    };
    smallest(decides, MAX_FACTOR)
}

/// Returns the runs with a trial, each once if all are copies of one another, and how often each is there.
fn distinct(runs: &[RunShare]) -> (Vec<RunShare>, usize) {
    let mut seen: Vec<RunShare> = runs.iter().copied().filter(|run| run.trials > 0).collect();
    match seen.first().copied() {
        Some(first) if first.missed > 0 && seen.iter().all(|run| *run == first) => {
            let copies = seen.len();
            seen.truncate(1);
            (seen, copies)
        }
        _ => (seen, 1),
    }
}

/// Returns the smallest factor from 1 on at which a monotone condition holds, to a hundredth; `None` beyond `most`.
fn smallest(holds: impl Fn(f64) -> bool, max: f64) -> Option<f64> {
    let mut high = 1.0;
    while !holds(high) {
        high *= 2.0;
        if high > max {
            return None;
        }
    }
    let mut low = high / 2.0;
    while high > 1.0 && high - low > 0.01 * low {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Independent units of a share and their variance.
struct Spread {
    unit: Unit,
    /// Variance of the misses.
    variance: f64,
    /// Degrees of freedom of the variance.
    freedom: f64,
    /// Misses of the event that may come next.
    largest: f64,
    /// Factor on the weight of an episode.
    clustering: f64,
}

impl Spread {
    /// `failing` is the share of misses over all `runs`.
    fn of(runs: &[RunShare], failing: f64) -> Self {
        let within = sum(runs.iter().map(|run| run.variance));
        let max =
            |value: fn(&RunShare) -> f64| runs.iter().map(value).fold(f64::NEG_INFINITY, f64::max);
        let largest = max(|run| run.largest);
        let blocks = Self {
            unit: Unit::Blocks,
            variance: within,
            freedom: sum(runs.iter().map(|run| run.freedom)),
            largest,
            clustering: max(|run| run.clustering),
        };
        if runs.len() == 1 {
            return blocks;
        }
        let number = runs.len() as f64;
        let apart = runs.iter().map(|run| run.missed as f64 - failing * run.trials as f64);
        let between = number / (number - 1.0) * sum(apart.clone().map(|apart| apart * apart));
        let alike = between <= within * (1.0 + SIGNIFICANT * sqrt(2.0 / (number - 1.0)));
        if alike && runs.len() < RUNS {
            return blocks;
        }
        let missed = runs.iter().map(|run| run.missed).sum::<u64>() as f64;
        let episodes = runs.iter().map(|run| run.episodes).sum();
        Self {
            unit: Unit::Runs,
            variance: between,
            freedom: freedom(apart.clone(), number, missed, between, episodes).min(number - 1.0),
            // Of runs that are alike, what comes next is an episode; of others, a run.
            largest: if alike { largest } else { apart.fold(f64::NEG_INFINITY, f64::max) },
            clustering: 1.0,
        }
    }
}

/// Moments of a weighted sum of Poisson counts.
pub(crate) struct Events {
    /// Variance of the sum.
    pub variance: f64,
    /// Degrees of freedom of the variance.
    pub freedom: f64,
    /// Weight of the event that may come next.
    pub largest: f64,
    /// Probability of either side.
    pub tail: f64,
}

impl Events {
    /// Returns the interval of a sum (Fay and Feuer 1997).
    pub fn interval(&self, sum: f64) -> Interval {
        let above = 1.0 - self.tail;
        let student = student_quantile(self.freedom.max(1.0), above) / normal_quantile(above);
        let student = student.max(1.0);
        let widened = self.variance * student * student;
        let low = if sum > 0.0 && widened > 0.0 {
            widened / sum * gamma_quantile(sum * sum / widened, self.tail, false)
        } else {
            sum
        };
        let (more, wider) = (sum + self.largest, widened + self.largest * self.largest);
        Interval { low, high: wider / more * gamma_quantile(more * more / wider, self.tail, true) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn independent_misses_have_the_exact_interval_of_poisson() {
        // Garwood, Biometrika 28 (1936): of 10 events, 4.795 to 18.391.
        let seen = share_interval(&[RunShare::of_counts(1_000_000, 999_990)], 0.95);
        assert!((1e6 * (1.0 - seen.interval.high) - 4.795).abs() < 1e-3);
        assert!((1e6 * (1.0 - seen.interval.low) - 18.391).abs() < 2e-3);
    }

    #[test]
    fn copies_of_one_run_say_no_more_than_one() {
        let run = RunShare { variance: 400.0, ..RunShare::of_counts(10_000, 9_900) };
        let (one, three) = (share_interval(&[run], 0.95), share_interval(&[run; 3], 0.95));
        assert_eq!(one.interval, three.interval);
        assert_eq!((three.copies, three.trials, three.missed), (3, 30_000, 300));
        assert_eq!(factor_needed(&[run; 3], 0.98, 0.95), factor_needed(&[run], 0.98, 0.95));
    }

    #[test]
    fn without_a_message_nothing_is_known() {
        let nothing = share_interval(&[RunShare::of_bins(&[0.0], &[0.0], 1.0)], 0.95);
        assert!(nothing.estimate.is_nan());
        assert_eq!(nothing.interval, Interval { low: 0.0, high: 1.0 });
        assert_eq!(factor_needed(&[], 0.9, 0.95), None);
    }

    #[test]
    fn ten_flights_that_differ_are_ten_and_not_a_thousand_blocks() {
        let runs: Vec<RunShare> = (0..10)
            .map(|flight| {
                let met = if flight == 0 { 0.0 } else { 10.0 };
                RunShare::of_bins(&vec![10.0; 600], &vec![met; 600], 0.1)
            })
            .collect();
        let seen = share_interval(&runs, 0.95);
        assert_eq!(seen.unit, Unit::Runs);
        assert!(seen.interval.low < 0.6 && seen.interval.high > 0.97, "{seen:?}");
    }

    proptest! {
        #[test]
        fn the_interval_holds_its_estimate(
            flights in prop::collection::vec(prop::collection::vec((0_u8..=10, 1_usize..60), 1..40), 1..12),
            confidence in 0.8..0.999_f64,
        ) {
            // Spells of some bins with ten messages each, so many of which arrive in time.
            let runs: Vec<RunShare> = flights.iter().map(|spells| {
                let met: Vec<f64> =
                    spells.iter().flat_map(|(met, bins)| vec![f64::from(*met); *bins]).collect();
                RunShare::of_bins(&vec![10.0; met.len()], &met, 0.1)
            }).collect();
            let seen = share_interval(&runs, confidence);
            prop_assert!(0.0 <= seen.interval.low && seen.interval.high <= 1.0);
            prop_assert!(seen.interval.low <= seen.estimate && seen.estimate <= seen.interval.high, "{seen:?}");
        }
    }
}
