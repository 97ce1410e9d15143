//! Detection of duplicate datagrams.

use alloc::vec::Vec;

use skybraid_units::Promised;

/// Number of sequence numbers tracked. An older datagram counts as a duplicate.
const TRACKED: u64 = 65_536;
const WORDS: u64 = TRACKED / 64;

/// Bitmap of the newest sequence numbers, as a ring.
#[derive(Debug, Default)]
pub struct Duplicates {
    /// Highest sequence number seen, plus 1.
    end: u64,
    bits: Vec<u64>,
}

impl Duplicates {
    /// Returns true on the first call with `sequence`.
    #[inline]
    pub fn is_new(&mut self, sequence: u64) -> bool {
        if self.bits.is_empty() {
            self.bits.resize(WORDS as usize, 0);
        }
        if sequence + TRACKED <= self.end {
            return false;
        }
        if sequence >= self.end {
            // Clear the ring's words of the previous lap.
            let (from, to) = (self.end.div_ceil(64), sequence / 64);
            for word in from.max((to + 1).saturating_sub(WORDS))..=to {
                if let Some(bits) = self.word(word) {
                    *bits = 0;
                }
            }
            self.end = sequence + 1;
        }
        let Some(bits) = self.word(sequence / 64) else { return false };
        let bit = 1 << (sequence % 64);
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    }

    /// True if [`is_new`](Self::is_new) was called with `sequence`, or it is no longer tracked.
    pub fn contains(&self, sequence: u64) -> bool {
        let word = || self.bits.get((sequence / 64 % WORDS) as usize);
        sequence < self.end
            && (sequence + TRACKED <= self.end
                || word().is_some_and(|bits| bits >> (sequence % 64) & 1 == 1))
    }

    #[inline]
    fn word(&mut self, number: u64) -> Option<&mut u64> {
        self.bits.get_mut((number % WORDS) as usize).promised("a word of the ring")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    proptest::proptest! {
        #[test]
        fn each_sequence_number_is_new_once(
            jumps in proptest::collection::vec((0u64..200, proptest::bool::weighted(0.05)), 1..600)
        ) {
            let (mut duplicates, mut seen, mut base) = (Duplicates::default(), BTreeSet::new(), 0u64);
            for (offset, far) in jumps {
                if far {
                    base += 70_000;
                }
                let sequence = base + offset;
                let expected = seen.insert(sequence);
                proptest::prop_assert_eq!(duplicates.contains(sequence), !expected);
                proptest::prop_assert_eq!(duplicates.is_new(sequence), expected);
            }
        }
    }
}
