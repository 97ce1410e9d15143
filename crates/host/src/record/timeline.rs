//! Counts over the time of a run, from which intervals allow for events that come in episodes.

use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::Histogram;

/// Binary logarithm of the initial bin width in ns: 16.8 ms.
const FIRST_SHIFT: u32 = 24;

/// A count that can be summed.
pub trait Count: Clone + Default {
    /// Adds another count.
    fn merge(&mut self, other: &Self);
}

/// Messages or frames of a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages or frames that are decided.
    pub trials: u32,
    /// Trials that met the requirement.
    pub met: u32,
}

impl Count for Tally {
    fn merge(&mut self, other: &Self) {
        self.trials += other.trials;
        self.met += other.met;
    }
}

impl Count for u64 {
    fn merge(&mut self, other: &Self) {
        *self += other;
    }
}

impl Count for Histogram {
    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }
}

/// Counts in at most `BINS` bins of equal width; the width doubles when the run outgrows them. `BINS` must be even.
#[derive(Clone, Debug)]
pub struct Timeline<T, const BINS: usize = 1024> {
    shift: u32,
    bins: Vec<T>,
}

impl<T, const BINS: usize> Default for Timeline<T, BINS> {
    fn default() -> Self {
        Self { shift: FIRST_SHIFT, bins: Vec::new() }
    }
}

impl<T: Count, const BINS: usize> Timeline<T, BINS> {
    /// Returns the count of the bin at time `at`; a time before the start counts as the start.
    #[inline]
    pub fn at(&mut self, at: Instant) -> &mut T {
        while self.bin(at) as usize >= BINS {
            self.coarsen();
        }
        let bin = self.bin(at) as usize;
        if bin >= self.bins.len() {
            self.bins.resize_with(bin + 1, T::default);
        }
        #[expect(clippy::indexing_slicing, reason = "resized just above")]
        &mut self.bins[bin]
    }

    /// Adds counts at their times. Those of one bin that follow one another are summed first.
    pub fn extend(&mut self, counts: impl Iterator<Item = (Instant, T)>) {
        let mut counts = counts.peekable();
        while let Some((at, mut sum)) = counts.next() {
            let bin = self.bin(at);
            // Bins become wider only with a time after the last one.
            while let Some((_, count)) = counts.next_if(|(next, _)| self.bin(*next) == bin) {
                sum.merge(&count);
            }
            self.at(at).merge(&sum);
        }
    }

    /// Number of the bin of `at`, as long as bins keep their width.
    #[inline]
    fn bin(&self, at: Instant) -> u64 {
        at.as_nanos().max(0) as u64 >> self.shift
    }

    /// Width of a bin.
    pub fn width(&self) -> Duration {
        Duration::from_nanos(1 << self.shift)
    }

    /// Bins from the start of the run on.
    pub fn bins(&self) -> &[T] {
        &self.bins
    }

    /// Adds the counts of another flow in the same run.
    pub fn merge(&mut self, other: &Self) {
        while self.shift < other.shift {
            self.coarsen();
        }
        let finer = self.shift - other.shift;
        for (place, count) in other.bins.iter().enumerate() {
            let start = Instant::from_nanos(((place >> finer) << self.shift) as i64);
            self.at(start).merge(count);
        }
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        let pairs = self.bins.chunks(2).map(|pair| {
            let mut both = T::default();
            pair.iter().for_each(|one| both.merge(one));
            both
        });
        self.bins = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn counts_stay_in_their_bins_however_long_the_run_is(
            times in proptest::collection::vec(0i64..100_000_000_000_000, 1..200)
        ) {
            let mut timeline = Timeline::<u64, 64>::default();
            for time in &times {
                *timeline.at(Instant::from_nanos(*time)) += 1;
            }
            let mut extended = Timeline::<u64, 64>::default();
            extended.extend(times.iter().map(|time| (Instant::from_nanos(*time), 1)));
            proptest::prop_assert_eq!((extended.bins(), extended.width()), (timeline.bins(), timeline.width()));
            proptest::prop_assert!(timeline.bins().len() <= 64);
            let width = timeline.width().as_nanos();
            for (bin, count) in timeline.bins().iter().enumerate() {
                let within = times.iter().filter(|time| **time / width == bin as i64).count();
                proptest::prop_assert_eq!(*count, within as u64);
            }
        }
    }

    #[test]
    fn flows_of_different_length_merge_bin_by_bin() {
        let at = Instant::from_secs_f64;
        let (mut long, mut short) =
            (Timeline::<u64, 64>::default(), Timeline::<u64, 64>::default());
        *long.at(at(100.0)) += 1;
        *short.at(at(0.5)) += 2;
        let mut both = short.clone();
        both.merge(&long);
        long.merge(&short);
        assert_eq!((both.bins(), both.width()), (long.bins(), long.width()));
        assert_eq!(both.bins().iter().sum::<u64>(), 3);
    }
}
