//! Variance between the parts of a measurement, which a run that replays one part cannot see.
//!
//! A measured network has good and bad hours. A run that replays half an hour of eight sees a part of them, and its own
//! blocks, all of that half hour, are more alike than any two half hours are. The measurement itself says by how much:
//! windows of the run's length are cut out of it, and the variance between them is divided by the one that the blocks
//! within each lead to expect. So many times its own weight has each episode of the run (a design effect: Kish, Survey
//! Sampling, 1965).

use alloc::vec;
use alloc::vec::Vec;

use crate::RunShare;
use crate::batch_means::sum;

/// Parts of a measurement's time that are looked at: its worst thousandth, …, its worse half.
pub const BAD: [f64; 7] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5];
/// Windows of a measurement that are compared.
pub const WINDOWS: u32 = 64;
/// Bins of a window.
pub const BINS: u32 = 256;
/// Fewer misses than these say nothing of the level that they come from: up to here every level counts.
const SEEN_FROM: f64 = 0.01;
/// A run's share of misses may be so many times too small.
const REACH: f64 = 2.0;

/// Factor by which clustering multiplies an episode's weight, as a function of the share of misses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clustering {
    /// For each of [`BAD`], at least 1.
    pub factors: [f64; BAD.len()],
}

impl Clustering {
    /// No measurement is replayed in part.
    pub const NONE: Self = Self { factors: [1.0; BAD.len()] };

    /// Returns the largest factors among measurements.
    ///
    /// # Arguments
    /// * `measurements`: of each, windows of a run's length; of each window, how bad the link was in equal bins.
    pub fn of(measurements: &[Vec<Vec<f64>>]) -> Self {
        let mut found = Self::NONE;
        for windows in measurements {
            for (factor, bad) in found.factors.iter_mut().zip(BAD) {
                *factor = factor.max(design_effect(windows, bad).unwrap_or(1.0));
            }
        }
        found
    }

    /// Returns the factor for a run of which a share of 0 to 1 missed.
    pub fn factor(&self, missing: f64) -> f64 {
        let up_to = (REACH * missing).max(SEEN_FROM);
        let factors = self.factors.iter().zip(BAD).filter(|(_, bad)| *bad <= up_to);
        factors.map(|(factor, _)| *factor).fold(1.0, f64::max)
    }
}

/// Returns the ratio of the variance between windows to that expected from within them, for the worst share `bad` of
/// the time; `None` without a bin, or where nothing is expected to vary.
fn design_effect(windows: &[Vec<f64>], bad: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = windows.iter().flatten().copied().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = (sorted.len().saturating_sub(1)) as f64 * (1.0 - bad);
    let edge = *sorted.get(place as usize)?;
    let all = sorted.len() as f64;
    let beyond = sorted.partition_point(|value| *value <= edge);
    let from = sorted.partition_point(|value| *value < edge);
    // Of few different values, many may be equal to the edge.
    let without_edge = (sorted.len() - beyond) as f64 / all;
    let with_edge = (sorted.len() - from) as f64 / all;
    let takes_edge = bad * bad > without_edge * with_edge;
    let is_worst = |value: f64| value > edge || (takes_edge && value == edge);
    let runs: Vec<RunShare> = windows
        .iter()
        .map(|window| {
            let met: Vec<f64> =
                window.iter().map(|value| f64::from(u8::from(!is_worst(*value)))).collect();
            RunShare::of_bins(&vec![1.0; window.len()], &met, 1.0)
        })
        .collect();
    let number = runs.len() as f64;
    let within = sum(runs.iter().map(|run| run.variance)) / number;
    let mean = sum(runs.iter().map(|run| run.missed as f64)) / number;
    let apart = runs.iter().map(|run| run.missed as f64 - mean);
    let between = sum(apart.map(|apart| apart * apart)) / number;
    (within > 0.0).then_some(between / within)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 256 bins, of which every `spacing`-th is bad; in every other window only, or in all of them.
    fn windows(spacing: usize, every_other: bool) -> Vec<Vec<f64>> {
        let bin = |window: usize, bin: usize| {
            let bad = bin.is_multiple_of(spacing) && (!every_other || window.is_multiple_of(2));
            if bad { 200.0 } else { 20.0 }
        };
        (0..64).map(|window| (0..256).map(|place| bin(window, place)).collect()).collect()
    }

    #[test]
    fn windows_that_are_alike_need_no_factor() {
        assert_eq!(Clustering::of(&[windows(8, false)]), Clustering::NONE);
        assert_eq!(Clustering::of(&[]), Clustering::NONE);
    }

    #[test]
    fn good_and_bad_windows_multiply_an_episodes_weight() {
        let clustering = Clustering::of(&[windows(4, true)]);
        assert!(clustering.factor(0.125) > 5.0, "{clustering:?}");
        assert!(clustering.factor(0.125) >= clustering.factor(0.0));
    }
}
