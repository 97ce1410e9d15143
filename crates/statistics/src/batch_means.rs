//! Variance of sums by blocks: overlapping batch means (Meketon and Schmeiser, Winter Simulation Conference 1984).

use alloc::vec::Vec;

use libm::sqrt;

use crate::{Interval, student_quantile};

/// Fewest blocks by which a length is judged.
const MIN_BLOCKS: usize = 16;
/// Standard errors by which blocks must correlate, or vary, to count as dependent.
pub(crate) const SIGNIFICANT: f64 = 2.0;

/// Returns the interval of the mean of an autocorrelated series, by batch means; `None` below 32 values.
///
/// # Arguments
/// * `values`: in the order of time, equally far apart.
/// * `confidence`: of the interval, between 0 and 1.
pub fn mean_over_time(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.len() < 2 * MIN_BLOCKS {
        return None;
    }
    let number = values.len() as f64;
    let total = sum(values.iter().copied());
    let mean = total / number;
    let (length, variance) = block(&sums(values.iter().map(|value| value - mean)), total);
    let freedom = 1.5 * number / length as f64 - 1.0;
    let reach = student_quantile(freedom, f64::midpoint(1.0, confidence)) * sqrt(variance) / number;
    Some(Interval { low: mean - reach, high: mean + reach })
}

/// Sum with the rounding errors of its parts added back (Neumaier 1974).
pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0_f64, 0.0);
    for value in values {
        let next = total + value;
        lost +=
            if total.abs() >= value.abs() { total - next + value } else { value - next + total };
        total = next;
    }
    total + lost
}

/// Cumulative sums, starting with 0.
pub(crate) fn sums(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let cumulative = values.scan(0.0, |total, value| {
        *total += value;
        Some(*total)
    });
    core::iter::once(0.0).chain(cumulative).collect()
}

/// Differences of cumulative sums over a block's length, one for each place that the block may begin at.
pub(crate) fn blocks(sums: &[f64], length: usize) -> impl Iterator<Item = f64> + Clone {
    sums.iter().skip(length).zip(sums).map(|(end, start)| end - start)
}

/// Returns the length of a block in bins, and the variance of the sum by blocks of that length.
///
/// A length is taken while a block depends on its neighbour, or where blocks of that length vary by more than what was
/// taken so far explains: a slow change under much noise.
///
/// # Arguments
/// * `sums`: of the deviations from the mean, with a leading 0.
/// * `total`: of the values themselves.
pub(crate) fn block(sums: &[f64], total: f64) -> (usize, f64) {
    let bins = sums.len().saturating_sub(1);
    if bins < 2 * MIN_BLOCKS {
        return (bins.max(1), total * total);
    }
    let number = bins as f64;
    let variance_by = |length: usize| {
        let places = (bins + 1 - length) as f64;
        let squares = sum(blocks(sums, length).map(|block| block * block)) / places;
        squares * number / length as f64 * number / (bins - length) as f64
    };
    let (mut taken, mut variance) = (1, variance_by(1));
    let (mut length, mut before, mut dependent) = (2, variance, true);
    while bins / length >= MIN_BLOCKS {
        let wider = variance_by(length);
        let in_blocks = 1.5 * number / length as f64;
        let freedom =
            if variance > 0.0 { in_blocks.min((total * total / variance).max(1.0)) } else { 1.0 };
        if dependent || wider > variance * (1.0 + SIGNIFICANT * sqrt(2.0 / freedom)) {
            (taken, variance) = (length, variance.max(wider));
        }
        let by_chance = 1.0 + SIGNIFICANT * sqrt(length as f64 / 2.0 / number);
        dependent = dependent && wider > before * by_chance;
        (length, before) = (2 * length, wider);
    }
    (taken, variance)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn values_that_repeat_make_blocks_as_long_as_they_last() {
        // 64 levels of 32 values each: a block of 32 or more is independent of the next one.
        let levels = (0..64).map(|place| f64::from((place * 37) % 64));
        let values: Vec<f64> = levels.flat_map(|level| vec![level; 32]).collect();
        let mean = sum(values.iter().copied()) / values.len() as f64;
        let (length, variance) = block(&sums(values.iter().map(|value| value - mean)), 0.0);
        assert!((32..=128).contains(&length), "{length}");
        assert!(
            variance
                > 32.0 * values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>()
                    / 2.0
        );
    }

    #[test]
    fn a_constant_series_has_an_interval_without_width() {
        let interval = mean_over_time(&[5.0; 40], 0.95);
        assert_eq!(interval, Some(Interval { low: 5.0, high: 5.0 }));
        assert_eq!(mean_over_time(&[5.0; 31], 0.95), None);
    }

    #[test]
    fn sums_keep_the_digits_that_large_values_hide() {
        assert_eq!(sum([1e16, 1.0, -1e16].into_iter()), 1.0);
    }
}
