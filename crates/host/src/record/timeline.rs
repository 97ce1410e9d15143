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
    /// Number of the first bin that is kept: all before it are empty.
    first: u32,
    kept: Vec<T>,
}

impl<T, const BINS: usize> Default for Timeline<T, BINS> {
    fn default() -> Self {
        Self { shift: FIRST_SHIFT, first: 0, kept: Vec::new() }
    }
}

impl<T: Count, const BINS: usize> Timeline<T, BINS> {
    /// Returns the count of the bin at time `at`; a time before the start counts as the start.
    #[inline]
    pub fn at(&mut self, at: Instant) -> &mut T {
        let place = self.bin(at).wrapping_sub(u64::from(self.first)) as usize;
        if place >= self.kept.len() {
            return self.grow(at);
        }
        #[expect(clippy::indexing_slicing, reason = "compared just above")]
        &mut self.kept[place]
    }

    /// Keeps the bin at time `at` and all between it and those that are kept. Returns its count.
    #[cold]
    fn grow(&mut self, at: Instant) -> &mut T {
        while self.bin(at) as usize >= BINS {
            self.coarsen();
        }
        let bin = self.bin(at) as u32;
        if self.kept.is_empty() {
            self.first = bin;
        }
        let before = self.first.saturating_sub(bin);
        self.first -= before;
        let place = (bin - self.first) as usize;
        let count = self.kept.len() + before as usize;
        self.kept.resize_with(count.max(place + 1), T::default);
        self.kept.rotate_right(before as usize);
        #[expect(clippy::indexing_slicing, reason = "resized just above")]
        &mut self.kept[place]
    }

    /// Adds counts at their times. Those of one bin that follow one another are summed first.
    #[inline]
    pub fn extend(&mut self, counts: impl Iterator<Item = (Instant, T)>) {
        // Begin and width of the bin of the sum, in ns; there is no sum while the width is zero.
        let (mut begin, mut width, mut sum) = (0, 0, T::default());
        counts.for_each(|(at, count)| {
            if (at.as_nanos().wrapping_sub(begin) as u64) < width {
                sum.merge(&count);
                return;
            }
            self.add(begin, width, &sum);
            // Bins become wider only with a time after the last one.
            let bin = self.bin(at);
            (begin, width, sum) = ((bin << self.shift) as i64, 1 << self.shift, count);
        });
        self.add(begin, width, &sum);
    }

    /// Adds a sum to the bin that begins at `begin`, unless the width is zero.
    #[inline(never)]
    fn add(&mut self, begin: i64, width: u64, sum: &T) {
        if width > 0 {
            self.at(Instant::from_nanos(begin)).merge(sum);
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

    /// Returns a value of each bin's count, from the start of the run on; that of an empty bin is the default.
    pub fn bins<V: Clone + Default>(&self, value: impl Fn(&T) -> V) -> impl Iterator<Item = V> {
        core::iter::repeat_n(V::default(), self.first as usize).chain(self.kept.iter().map(value))
    }

    /// Adds the counts of another flow in the same run.
    pub fn merge(&mut self, other: &Self) {
        while self.shift < other.shift {
            self.coarsen();
        }
        for (bin, count) in (u64::from(other.first)..).zip(&other.kept) {
            self.at(Instant::from_nanos((bin << other.shift) as i64)).merge(count);
        }
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        if !self.first.is_multiple_of(2) {
            self.kept.insert(0, T::default());
        }
        self.first /= 2;
        let pairs = self.kept.chunks(2).map(|pair| {
            let mut both = T::default();
            pair.iter().for_each(|one| both.merge(one));
            both
        });
        self.kept = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(timeline: &Timeline<u64, 64>) -> Vec<u64> {
        timeline.bins(|count| *count).collect()
    }

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
            proptest::prop_assert_eq!((all(&extended), extended.width()), (all(&timeline), timeline.width()));
            proptest::prop_assert!(all(&timeline).len() <= 64);
            let width = timeline.width().as_nanos();
            for (bin, count) in all(&timeline).into_iter().enumerate() {
                let within = times.iter().filter(|time| **time / width == bin as i64).count();
                proptest::prop_assert_eq!(count, within as u64);
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
        assert_eq!((all(&both), both.width()), (all(&long), long.width()));
        assert_eq!(all(&both).iter().sum::<u64>(), 3);
    }
}
