//! Delays, counted in buckets of 0.1 % width.

use alloc::vec::Vec;

use skybraid_units::Duration;

/// Bits of a value that a bucket keeps: 1024 buckets per power of two.
const BITS: u32 = 10;
const PER_OCTAVE: u64 = 1 << BITS;

/// A histogram of durations with a relative precision of one part in 1024. Memory follows the
/// largest value, not the number of values: 270 kB for a spread up to two hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

fn bucket(nanos: u64) -> usize {
    let octave = (64 - BITS).saturating_sub((nanos | PER_OCTAVE).leading_zeros() + 1);
    ((u64::from(octave) << BITS) + (nanos >> octave)) as usize
}

/// The largest value that falls into a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let octave = (bucket >> BITS).saturating_sub(1);
    ((bucket - (octave << BITS) + 1) << octave) - 1
}

impl Histogram {
    /// Counts a value; a negative one as zero.
    #[inline]
    pub fn add(&mut self, value: Duration) {
        let index = bucket(value.as_nanos().max(0) as u64);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
            self.total += 1;
        }
    }

    /// How many values were counted.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The value at a rank, from 1 for the smallest; at most 0.1 % above the true one. `None` for rank
    /// 0 or one above the total.
    pub fn at_rank(&self, rank: u64) -> Option<Duration> {
        if rank == 0 || rank > self.total {
            return None;
        }
        let mut seen = 0;
        self.counts
            .iter()
            .position(|count| {
                seen += count;
                seen >= rank
            })
            .map(|index| Duration::from_nanos(upper(index) as i64))
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_rank_is_within_a_tenth_of_a_percent_above_the_truth(
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
        }
    }
}
