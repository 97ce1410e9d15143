//! Histogram of delays with a relative precision of 0.1 %.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_units::{Duration, Promised};

/// Significant bits of a value per bucket: 1024 buckets per power of two.
const BITS: u32 = 10;
const PER_OCTAVE: u64 = 1 << BITS;

/// Buckets per page. Only pages with a count are allocated.
const PAGE: usize = 64;
/// Pages of an octave, and those for which there is room from the first value on.
const OCTAVE: usize = PER_OCTAVE as usize / PAGE;
const FIRST_ROOM: usize = 2 * OCTAVE;

/// A histogram of durations with a relative precision of 1/1024. Its memory depends on the spread of the values,
/// not on their number: 0.5 kB for each sixteenth of an octave with at least one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of the first page in `pages`: that of an octave, before which no page has a count.
    first: usize,
    pages: Vec<Option<Box<[u64; PAGE]>>>,
    total: u64,
}

fn bucket(nanos: u64) -> usize {
    let octave = (64 - BITS).saturating_sub((nanos | PER_OCTAVE).leading_zeros() + 1);
    ((u64::from(octave) << BITS) + (nanos >> octave)) as usize
}

/// Returns the largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let octave = (bucket >> BITS).saturating_sub(1);
    ((bucket - (octave << BITS) + 1) << octave) - 1
}

impl Histogram {
    /// Counts a value; a negative value counts as zero.
    #[inline]
    pub fn add(&mut self, value: Duration) {
        let index = bucket(value.as_nanos().max(0) as u64);
        let page = match self.pages.get_mut((index / PAGE).wrapping_sub(self.first)) {
            Some(Some(page)) => page.as_mut_slice(),
            _ => self.page(index / PAGE),
        };
        if let Some(count) = page.get_mut(index % PAGE).promised("a bucket") {
            *count += 1;
            self.total += 1;
        }
    }

    #[cold]
    fn page(&mut self, number: usize) -> &mut [u64] {
        let octave = number - number % OCTAVE;
        if self.pages.is_empty() {
            self.pages.reserve_exact(FIRST_ROOM);
            self.first = octave;
        }
        if number < self.first {
            let before = self.first - octave;
            self.pages.splice(0..0, core::iter::repeat_n(None, before));
            self.first = octave;
        }
        let place = number - self.first;
        if place >= self.pages.len() {
            self.pages.resize(place + 1, None);
        }
        match self.pages.get_mut(place).promised("a page") {
            Some(page) => page.get_or_insert_with(|| Box::new([0; PAGE])).as_mut_slice(),
            None => &mut [],
        }
    }

    /// Pages with a count, and the first bucket of each.
    fn counts(&self) -> impl Iterator<Item = (usize, &[u64; PAGE])> {
        let pages = (self.first..).zip(&self.pages);
        pages.filter_map(|(number, page)| Some((number * PAGE, page.as_deref()?)))
    }

    /// Number of values counted.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the value at a rank, 1 for the smallest; at most 0.1 % above the true value. `None` if the rank is 0
    /// or above the total.
    pub fn at_rank(&self, rank: u64) -> Option<Duration> {
        if rank == 0 || rank > self.total {
            return None;
        }
        let mut seen = 0;
        let mut counts = self.counts().flat_map(|(first, page)| (first..).zip(page));
        counts
            .find(|(_, count)| {
                seen += **count;
                seen >= rank
            })
            .map(|(index, _)| Duration::from_nanos(upper(index) as i64))
    }

    /// Number of values up to `limit`, including all values in the bucket of `limit`.
    pub fn up_to(&self, limit: Duration) -> u64 {
        let last = bucket(limit.as_nanos().max(0) as u64);
        self.counts()
            .flat_map(|(first, page)| (first..).zip(page))
            .take_while(|(index, _)| *index <= last)
            .map(|(_, count)| *count)
            .sum()
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (first, theirs) in other.counts() {
            for (count, more) in self.page(first / PAGE).iter_mut().zip(theirs) {
                *count += more;
            }
        }
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_rank_is_at_most_a_thousandth_too_large(
            mut values in proptest::collection::vec(0i64..10_000_000_000_000, 1..200)
        ) {
            let mut histogram = Histogram::default();
            for value in &values {
                histogram.add(Duration::from_nanos(*value));
            }
            values.sort_unstable();
            for (index, value) in values.iter().enumerate() {
                let read = histogram.at_rank(index as u64 + 1).unwrap().as_nanos();
                proptest::prop_assert!(read >= *value && read <= value + value / 1000 + 1);
            }
            proptest::prop_assert_eq!(histogram.at_rank(values.len() as u64 + 1), None);
            let median = histogram.at_rank(values.len().div_ceil(2) as u64).unwrap();
            let at_most = values.iter().filter(|value| **value <= median.as_nanos()).count() as u64;
            proptest::prop_assert_eq!(histogram.up_to(median), at_most);
        }
    }
}
