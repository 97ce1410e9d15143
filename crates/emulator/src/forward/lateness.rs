//! Lateness of sent packets.

use skybraid_units::Duration;

/// Buckets per power of two: a value reads at most an eighth too high.
const PER_OCTAVE: u32 = 8;
/// Up to 2^40 ns, 18 minutes.
const BUCKETS: usize = 40 * PER_OCTAVE as usize;

/// Histogram of the lateness of all packets of a run: time passed to the kernel minus due time. Values are
/// read from buckets and are at most 12.5 % too high.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    counts: Box<[u64]>,
    total: u64,
    early: u64,
    earliest: Duration,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
            early: 0,
            earliest: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

fn bucket(nanos: u64) -> usize {
    let nanos = nanos | u64::from(PER_OCTAVE);
    let octave = nanos.ilog2() - PER_OCTAVE.ilog2();
    ((octave * PER_OCTAVE) as usize + (nanos >> octave) as usize - PER_OCTAVE as usize)
        .min(BUCKETS - 1)
}

/// Returns the largest value of a bucket.
fn upper(bucket: usize) -> Duration {
    let (octave, step) = (bucket as u32 / PER_OCTAVE, bucket as u64 % u64::from(PER_OCTAVE));
    Duration::from_nanos((((u64::from(PER_OCTAVE) + step + 1) << octave) - 1) as i64)
}

impl Lateness {
    /// Counts a packet; a negative value means that it was sent before it was due.
    #[inline]
    pub fn add(&mut self, late: Duration) {
        self.total += 1;
        if late < Duration::ZERO {
            self.early += 1;
            self.earliest = self.earliest.max(Duration::ZERO - late);
        }
        let index = bucket(late.as_nanos().max(0) as u64);
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
        }
        self.max = self.max.max(late);
    }

    /// Returns the number of packets counted.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the quantile `share` (0 to 1) of the lateness; zero without packets.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(Duration::ZERO, |index| upper(index).min(self.max))
    }

    /// Returns the maximum lateness.
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// Returns the share of packets, 0 to 1, sent before they were due, as the kernel was given time to
    /// process them.
    pub fn early_share(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.early as f64 / self.total as f64 }
    }

    /// Returns the maximum time by which a packet left early.
    pub const fn earliest(&self) -> Duration {
        self.earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read_back_at_most_an_eighth_too_high() {
        for nanos in (0..2000).chain((2000..5_000_000).step_by(777)) {
            let read = upper(bucket(nanos)).as_nanos() as u64;
            assert!(read >= nanos && read <= nanos + nanos / 8 + 15, "{nanos} reads as {read}");
        }
    }

    #[test]
    fn quantiles_and_early_packets_are_reported() {
        let mut lateness = Lateness::default();
        for micros in -10..990 {
            lateness.add(Duration::from_micros(micros));
        }
        assert!((lateness.early_share() - 0.01).abs() < 1e-12);
        assert_eq!(lateness.earliest(), Duration::from_micros(10));
        assert_eq!(lateness.max(), Duration::from_micros(989));
        let half = lateness.quantile(0.5).as_nanos();
        assert!((489_000..552_000).contains(&half), "{half}");
        assert_eq!(lateness.quantile(1.0), lateness.max());
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }
}
