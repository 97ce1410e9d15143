//! A queue that writes its entries where it keeps them.

use alloc::vec::Vec;

/// A first-in first-out queue of plain records. It writes an entry in its place, where `VecDeque` builds it on the stack
/// and then copies it, with a call if it has more than 128 bytes.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    /// As many as a power of two, or none.
    slots: Vec<T>,
    /// Number of entries removed so far, which is the place of the first entry before it is wrapped.
    head: usize,
    len: usize,
}

impl<T: Copy> Ring<T> {
    /// Slots of a queue with an entry.
    const MIN_SLOTS: usize = 4;

    /// Creates an empty queue without memory.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), head: 0, len: 0 }
    }

    /// Number of entries.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slot of the entry at `place`, which may be one after the last.
    #[inline]
    const fn slot(&self, place: usize) -> usize {
        self.head.wrapping_add(place) & self.slots.len().wrapping_sub(1)
    }

    /// Returns the entry at `place`.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        if place < self.len { self.slots.get(self.slot(place)) } else { None }
    }

    /// Returns the entry at `place`.
    #[inline]
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let slot = self.slot(place);
        if place < self.len { self.slots.get_mut(slot) } else { None }
    }

    /// Returns the oldest entry.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// Returns the newest entry.
    #[inline]
    pub fn back(&self) -> Option<&T> {
        self.get(self.len.wrapping_sub(1))
    }

    /// Appends the entry that `make` returns.
    #[inline]
    pub fn push_back(&mut self, make: impl Fn() -> T) {
        if self.len == self.slots.len() {
            self.grow(make());
        }
        let slot = self.slot(self.len);
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = make();
            self.len += 1;
        }
    }

    /// Doubles the slots; `filler` is in those without an entry.
    #[cold]
    fn grow(&mut self, filler: T) {
        let first = self.slot(0);
        self.slots.rotate_left(first);
        self.head = 0;
        self.slots.resize((2 * self.slots.len()).max(Self::MIN_SLOTS), filler);
    }

    /// Inserts the entry that `make` returns before that at `place`.
    #[cold]
    pub fn insert(&mut self, place: usize, make: impl Fn() -> T) {
        self.push_back(make);
        for later in (place + 1..self.len).rev() {
            let (to, from) = (self.slot(later), self.slot(later - 1));
            self.slots.swap(to, from);
        }
    }

    /// Removes the oldest entry, if there is one.
    #[inline]
    pub const fn pop_front(&mut self) {
        if self.len > 0 {
            self.head = self.head.wrapping_add(1);
            self.len -= 1;
        }
    }

    /// Returns the entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|place| self.get(place))
    }

    /// Returns the place of the first entry for which `is_before` is false, where it is true for all before.
    pub fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let (mut first, mut last) = (0, self.len);
        while first < last {
            let middle = usize::midpoint(first, last);
            if self.get(middle).is_some_and(&is_before) {
                first = middle + 1;
            } else {
                last = middle;
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    proptest::proptest! {
        #[test]
        fn a_ring_holds_what_a_deque_holds(
            changes in proptest::collection::vec((0u8..4, 0usize..64), 1..300)
        ) {
            let (mut ring, mut deque) = (Ring::new(), VecDeque::new());
            for (number, (change, place)) in changes.into_iter().enumerate() {
                match change {
                    0 => {
                        ring.pop_front();
                        deque.pop_front();
                    }
                    1 if !deque.is_empty() => {
                        let place = place % deque.len();
                        ring.insert(place, || number);
                        deque.insert(place, number);
                    }
                    _ => {
                        ring.push_back(|| number);
                        deque.push_back(number);
                    }
                }
                proptest::prop_assert!(ring.iter().eq(&deque));
                proptest::prop_assert_eq!((ring.front(), ring.back()), (deque.front(), deque.back()));
                proptest::prop_assert_eq!((ring.len(), ring.is_empty()), (deque.len(), deque.is_empty()));
            }
        }
    }

    #[test]
    fn the_partition_point_is_the_number_of_entries_before() {
        let mut ring = Ring::new();
        for number in 0..6 {
            ring.push_back(|| number);
            if number < 3 {
                ring.pop_front();
            }
        }
        assert_eq!(
            [2, 3, 4, 5, 9].map(|end| ring.partition_point(|entry| *entry < end)),
            [0, 0, 1, 2, 3]
        );
    }
}
