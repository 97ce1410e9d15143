//! Telling the first copy of a datagram from later ones.

use alloc::vec::Vec;

/// Datagrams that are remembered. One that is older than this is taken for a second copy.
const REMEMBERED: u64 = 65_536;
const WORDS: u64 = REMEMBERED / 64;

/// Which of the newest datagrams have been seen, as a ring of bits.
#[derive(Debug, Default)]
pub struct Duplicates {
    /// One more than the highest sequence number seen.
    end: u64,
    bits: Vec<u64>,
}

impl Duplicates {
    /// True the first time that it is called with `sequence`.
    pub fn is_new(&mut self, sequence: u64) -> bool {
        if self.bits.is_empty() {
            self.bits.resize(WORDS as usize, 0);
        }
        if sequence + REMEMBERED <= self.end {
            return false;
        }
        if sequence >= self.end {
            // Forget what the ring's words held one lap ago.
            let (from, to) = (self.end.div_ceil(64), sequence / 64);
            for word in from.max((to + 1).saturating_sub(WORDS))..=to {
                if let Some(bits) = self.bits.get_mut((word % WORDS) as usize) {
                    *bits = 0;
                }
            }
            self.end = sequence + 1;
        }
        let Some(bits) = self.bits.get_mut((sequence / 64 % WORDS) as usize) else {
            return false;
        };
        let bit = 1 << (sequence % 64);
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    proptest::proptest! {
        #[test]
        fn no_datagram_is_taken_for_new_twice(
            jumps in proptest::collection::vec((0u64..200, proptest::bool::weighted(0.05)), 1..600)
        ) {
            let (mut duplicates, mut seen, mut base) = (Duplicates::default(), BTreeSet::new(), 0u64);
            for (offset, far) in jumps {
                if far {
                    base += 70_000;
                }
                let sequence = base + offset;
                let expected = seen.insert(sequence);
                proptest::prop_assert_eq!(duplicates.is_new(sequence), expected);
            }
        }
    }
}
