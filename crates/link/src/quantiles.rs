//! Quantile function of a marginal distribution, given as a table.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Maximum number of entries of a table.
const MAX_ENTRIES: usize = 200;

/// Piecewise linear quantile function: pairs of a probability and a value. Probabilities increase strictly from 0 to
/// 1, values do not decrease and are finite and not negative.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles(Vec<(f64, f64)>);

impl Quantiles {
    /// Checks a table.
    ///
    /// # Errors
    /// What was expected.
    pub fn new(entries: Vec<(f64, f64)>) -> Result<Self, String> {
        let count = entries.len();
        if !(2..=MAX_ENTRIES).contains(&count) {
            return Err(format!("found {count} quantiles, expected 2 to {MAX_ENTRIES}"));
        }
        let (first, last) = (entries.first(), entries.last());
        if first.is_none_or(|(p, _)| *p != 0.0) || last.is_none_or(|(p, _)| *p != 1.0) {
            return Err("expected quantiles from probability 0 to probability 1".to_string());
        }
        let rises = |pair: &[(f64, f64)]| match pair {
            [(p, value), (next_p, next_value)] => next_p > p && next_value >= value,
            _ => true,
        };
        if !entries.windows(2).all(rises) {
            let expected = "expected probabilities that increase and values that do not decrease";
            return Err(expected.to_string());
        }
        if !entries.iter().all(|(_, value)| value.is_finite() && *value >= 0.0) {
            return Err("expected values that are zero or more".to_string());
        }
        Ok(Self(entries))
    }

    /// Returns the value at the probability `p`, which is clamped to 0..=1.
    pub fn at(&self, p: f64) -> f64 {
        let after = self.0.partition_point(|(known, _)| *known <= p);
        let below = self.0.get(after.saturating_sub(1)).copied();
        match (below, self.0.get(after)) {
            (Some((p0, low)), Some((p1, high))) if p > p0 => {
                low + (high - low) * (p - p0) / (p1 - p0)
            }
            (Some((_, value)), _) => value,
            (None, _) => 0.0,
        }
    }

    /// Mean: the integral of the quantile function.
    pub fn mean(&self) -> f64 {
        let part = |pair: &[(f64, f64)]| match pair {
            [(p0, low), (p1, high)] => (p1 - p0) * f64::midpoint(*low, *high),
            _ => 0.0,
        };
        self.0.windows(2).map(part).sum()
    }

    /// Mean of the squares.
    pub fn mean_square(&self) -> f64 {
        let part = |pair: &[(f64, f64)]| match pair {
            [(p0, low), (p1, high)] => (p1 - p0) * uniform_square(*low, *high),
            _ => 0.0,
        };
        self.0.windows(2).map(part).sum()
    }

    /// Minimum value.
    pub fn min(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, value)| *value)
    }

    /// Maximum value.
    pub fn max(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, value)| *value)
    }
}

/// Mean square of a uniform distribution.
pub fn uniform_square(min: f64, max: f64) -> f64 {
    (min * min + min * max + max * max) / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn quantiles_are_linear_between_their_entries() {
        let table = Quantiles::new(vec![(0.0, 0.0), (0.1, 0.0), (0.5, 8.0), (1.0, 10.0)]).unwrap();
        for (p, value) in
            [(-1.0, 0.0), (0.0, 0.0), (0.05, 0.0), (0.3, 4.0), (0.5, 8.0), (0.75, 9.0), (1.0, 10.0)]
        {
            assert!((table.at(p) - value).abs() < 1e-12, "{p}");
        }
        assert!((table.mean() - (0.4 * 4.0 + 0.5 * 9.0)).abs() < 1e-12);
        // From 0 to 8 and from 8 to 10: 64/3 and 244/3.
        assert!((table.mean_square() - (0.4 * 64.0 + 0.5 * 244.0) / 3.0).abs() < 1e-12);
        assert_eq!((table.min(), table.max()), (0.0, 10.0));
    }

    #[test]
    fn a_table_must_span_all_probabilities_and_rise() {
        for wrong in [
            vec![(0.0, 1.0)],
            vec![(0.1, 1.0), (1.0, 2.0)],
            vec![(0.0, 1.0), (0.9, 2.0)],
            vec![(0.0, 1.0), (0.5, 0.5), (1.0, 2.0)],
            vec![(0.0, 1.0), (0.5, 1.5), (0.5, 1.7), (1.0, 2.0)],
            vec![(0.0, -1.0), (1.0, 2.0)],
            vec![(0.0, 1.0), (1.0, f64::NAN)],
        ] {
            assert!(Quantiles::new(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
