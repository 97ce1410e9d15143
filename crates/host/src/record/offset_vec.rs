//! Values by number, of which only those from the first to the last that is in use take memory.

use alloc::vec::Vec;

/// Values by number. A value outside the numbers in use is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetVec<T> {
    first: usize,
    values: Vec<T>,
}

impl<T> Default for OffsetVec<T> {
    fn default() -> Self {
        Self { first: 0, values: Vec::new() }
    }
}

impl<T: Default> OffsetVec<T> {
    /// Returns the value of `number`, which is in use from now on.
    #[inline]
    pub fn at(&mut self, number: usize) -> &mut T {
        let mut place = number.wrapping_sub(self.first);
        if place >= self.values.len() {
            self.reserve(number);
            place = number - self.first;
        }
        #[expect(clippy::indexing_slicing, reason = "in use, if need be since the lines above")]
        &mut self.values[place]
    }

    /// Returns the value of `number`, if it is in use.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.values.get_mut(number.wrapping_sub(self.first))
    }

    #[cold]
    fn reserve(&mut self, number: usize) {
        if self.values.is_empty() {
            self.first = number;
        }
        let before = self.first.saturating_sub(number);
        self.values.splice(0..0, core::iter::repeat_with(T::default).take(before));
        self.first -= before;
        let len = self.values.len().max(number - self.first + 1);
        self.values.resize_with(len, T::default);
    }

    /// Lowest number in use; zero if none is.
    pub const fn first(&self) -> usize {
        self.first
    }

    /// Numbers and values in use, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (self.first..).zip(&self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn values_are_found_by_number_in_any_order(
            numbers in proptest::collection::vec(0_usize..500, 1..50)
        ) {
            let mut counts = OffsetVec::<u32>::default();
            numbers.iter().for_each(|number| *counts.at(*number) += 1);
            proptest::prop_assert_eq!(Some(&counts.first()), numbers.iter().min());
            proptest::prop_assert_eq!(counts.iter().last().map(|(number, _)| number), numbers.iter().max().copied());
            for (number, count) in counts.iter() {
                let expected = numbers.iter().filter(|other| **other == number).count();
                proptest::prop_assert_eq!(*count as usize, expected);
            }
            proptest::prop_assert!(counts.get_mut(500).is_none());
        }
    }
}
