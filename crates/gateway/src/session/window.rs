//! Sliding window of seen numbers (RFC 4303 §3.4.3, in blocks as in RFC 6479 §2).

use skybraid_units::invariant::Promised;

/// Window size before the newest number; older numbers are refused.
pub(super) const WINDOW: u64 = 4096;

/// Numbers before the newest that count as recent.
const RECENT: u64 = 64;

/// One block more than the window, since the newest may be partly filled.
const BLOCKS: u64 = WINDOW / 64 + 1;

/// The numbers that have been seen on a path under a key.
#[derive(Debug)]
pub(super) struct Window {
    /// Newest number plus one; 0 before the first.
    next: u64,
    seen: [u64; BLOCKS as usize],
}

impl Window {
    pub const fn new() -> Self {
        Self { next: 0, seen: [0; BLOCKS as usize] }
    }

    /// Whether a number is new and not too old for the window.
    pub fn is_fresh(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        let seen = self.seen.get(block(number)).is_some_and(|bits| bits & bit(number) != 0);
        self.next - number <= WINDOW && !seen
    }

    /// Whether a number has been seen and is recent.
    pub fn is_recent(&self, number: u64) -> bool {
        number < self.next && self.next - number <= RECENT && !self.is_fresh(number)
    }

    /// Records a fresh number; returns whether it is the newest.
    pub fn note(&mut self, number: u64) -> bool {
        let newest = number >= self.next;
        if newest {
            // Clears the blocks that come into use.
            let first = self.next.div_ceil(64).max((number / 64 + 1).saturating_sub(BLOCKS));
            for index in first..=number / 64 {
                if let Some(bits) = self.seen.get_mut((index % BLOCKS) as usize).promised("a block")
                {
                    *bits = 0;
                }
            }
            self.next = number + 1;
        }
        if let Some(bits) = self.seen.get_mut(block(number)).promised("a block") {
            *bits |= bit(number);
        }
        newest
    }
}

const fn block(number: u64) -> usize {
    (number / 64 % BLOCKS) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Takes a number if it is fresh.
    fn take(window: &mut Window, number: u64) -> bool {
        let fresh = window.is_fresh(number);
        if fresh {
            window.note(number);
        }
        fresh
    }

    #[test]
    fn the_window_ends_4096_numbers_behind_the_newest() {
        let mut window = Window::new();
        assert!(take(&mut window, 5000));
        assert!(!take(&mut window, 5000 - 4096));
        assert!(take(&mut window, 5000 - 4095));
        assert!(!take(&mut window, 5000 - 4095));
        assert!(!take(&mut window, 0));
    }

    #[test]
    fn numbers_up_to_the_last_one_are_known() {
        let last = super::super::envelope::LAST_NUMBER;
        let mut window = Window::new();
        assert!(take(&mut window, last));
        assert!(!take(&mut window, last));
        assert!(take(&mut window, last - 1));
        assert!(!take(&mut window, 7));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn it_says_what_a_set_of_all_numbers_says(
            steps in proptest::collection::vec(
                prop_oneof![-20i64..20, -5000i64..200, Just(64), 0i64..9000], 1..400,
            )
        ) {
            let (mut window, mut seen, mut newest) = (Window::new(), BTreeSet::new(), 0_u64);
            let numbers: Vec<u64> = steps.iter().scan(0_u64, |at, step| {
                *at = at.saturating_add_signed(*step);
                Some(*at)
            }).collect();
            for number in numbers {
                let wanted = newest < number + WINDOW && !seen.contains(&number);
                prop_assert_eq!(window.is_fresh(number), wanted, "{}", number);
                if wanted {
                    let first = seen.is_empty() || number > newest;
                    prop_assert_eq!(window.note(number), first);
                    seen.insert(number);
                    newest = newest.max(number);
                }
            }
        }
    }
}
