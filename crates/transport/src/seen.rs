//! Sliding window of seen numbers (RFC 4303 §3.4.3, in blocks as in RFC 6479 §2).

use alloc::vec::Vec;

use skybraid_units::Promised;

/// Numbers that have been seen, in `BLOCKS` blocks of 64. A number older than the window counts as seen.
#[derive(Clone, Debug, Default)]
pub struct SeenNumbers<const BLOCKS: u64> {
    /// Newest number plus one; 0 before the first.
    next: u64,
    /// Bits of the numbers, as a ring; empty before the first.
    blocks: Vec<u64>,
}

impl<const BLOCKS: u64> SeenNumbers<BLOCKS> {
    /// Window size before the newest number: one block less, since the newest may be partly filled.
    pub const WINDOW: u64 = (BLOCKS - 1) * 64;

    /// Records a number. Returns whether it is new.
    #[inline]
    pub fn insert(&mut self, number: u64) -> bool {
        if self.blocks.is_empty() {
            self.blocks.resize(BLOCKS as usize, 0);
        }
        if self.is_newest(number) {
            // Clears the blocks that come into use.
            let last = number / 64;
            for index in self.next.div_ceil(64).max((last + 1).saturating_sub(BLOCKS))..=last {
                if let Some(bits) = self.block(index) {
                    *bits = 0;
                }
            }
            self.next = number + 1;
        } else if self.next - number > Self::WINDOW {
            return false;
        }
        let Some(bits) = self.block(number / 64) else { return false };
        let bit = 1 << (number % 64);
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    }

    /// Whether a number has been seen, or is too old for the window.
    pub fn contains(&self, number: u64) -> bool {
        let block = || self.blocks.get((number / 64 % BLOCKS) as usize);
        !self.is_newest(number)
            && (self.next - number > Self::WINDOW
                || block().is_some_and(|bits| bits >> (number % 64) & 1 == 1))
    }

    /// Whether a number is greater than all that have been seen.
    pub const fn is_newest(&self, number: u64) -> bool {
        number >= self.next
    }

    /// Whether a number has been seen and is one of the newest 64.
    pub fn is_recent(&self, number: u64) -> bool {
        !self.is_newest(number) && self.next - number <= 64 && self.contains(number)
    }

    #[inline]
    fn block(&mut self, index: u64) -> Option<&mut u64> {
        self.blocks.get_mut((index % BLOCKS) as usize).promised("a block of the ring")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    type Seen = SeenNumbers<65>;

    #[test]
    fn the_window_ends_4096_numbers_behind_the_newest() {
        let mut seen = Seen::default();
        assert!(seen.insert(5000));
        assert!(!seen.insert(5000 - 4096));
        assert!(seen.insert(5000 - 4095));
        assert!(!seen.insert(5000 - 4095));
        assert!(!seen.insert(0));
    }

    #[test]
    fn numbers_up_to_the_last_one_are_known() {
        let last = (1 << 48) - 1;
        let mut seen = Seen::default();
        assert!(seen.insert(last));
        assert!(!seen.insert(last));
        assert!(seen.insert(last - 1));
        assert!(!seen.insert(7));
        assert!(seen.is_recent(last) && !seen.is_recent(last - 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn it_says_what_a_set_of_all_numbers_says(
            steps in proptest::collection::vec(
                prop_oneof![-20i64..20, -5000i64..200, Just(64), 0i64..9000], 1..400,
            )
        ) {
            let (mut seen, mut all, mut newest) = (Seen::default(), BTreeSet::new(), 0_u64);
            let numbers: Vec<u64> = steps.iter().scan(0_u64, |at, step| {
                *at = at.saturating_add_signed(*step);
                Some(*at)
            }).collect();
            for number in numbers {
                let new = newest < number + Seen::WINDOW && !all.contains(&number);
                prop_assert_eq!(seen.contains(number), !new, "{}", number);
                prop_assert_eq!(seen.is_newest(number), all.is_empty() || number > newest);
                prop_assert_eq!(seen.insert(number), new);
                if new {
                    all.insert(number);
                    newest = newest.max(number);
                }
            }
        }
    }
}
