//! A queue that writes its entries where it keeps them.

use alloc::vec::Vec;

use skybraid_units::Promised;

/// A first-in first-out queue of plain records. It writes an entry in its place, where `VecDeque` builds it on the
/// stack and then copies it, with a call if it has more than 128 bytes.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    /// As many as a power of two, or none.
    slots: Vec<T>,
    /// Slot of the first entry, not wrapped yet.
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

    /// Appends the entry that `make` returns, which is built in its slot: hence inlined.
    #[inline(always)]
    pub fn push_back(&mut self, make: impl FnOnce() -> T) {
        if self.len == self.slots.len() {
            return self.grow(make());
        }
        let slot = self.slot(self.len);
        if let Some(slot) = self.slots.get_mut(slot).promised("a free slot") {
            *slot = make();
            self.len += 1;
        }
    }

    /// Doubles the slots and appends `entry`, which is also in all slots that remain free.
    #[cold]
    fn grow(&mut self, entry: T) {
        let first = self.slot(0);
        self.slots.rotate_left(first);
        self.head = 0;
        self.slots.resize((2 * self.slots.len()).max(Self::MIN_SLOTS), entry);
        self.len += 1;
    }

    /// Moves the newest entry before those of the others for which `is_after` is true, which are the last. Returns its
    /// place.
    #[cold]
    pub fn move_back_before(&mut self, is_after: impl Fn(&T) -> bool) -> usize {
        let mut place = self.len.saturating_sub(1);
        while place > 0 && self.get(place - 1).is_some_and(&is_after) {
            let (one, other) = (self.slot(place - 1), self.slot(place));
            self.slots.swap(one, other);
            place -= 1;
        }
        place
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    proptest::proptest! {
        #[test]
        fn a_ring_holds_what_a_deque_holds(
            changes in proptest::collection::vec((0u8..4, 0u64..20), 1..300)
        ) {
            let (mut ring, mut deque) = (Ring::new(), VecDeque::new());
            for (change, number) in changes {
                match change {
                    0 => {
                        ring.pop_front();
                        deque.pop_front();
                    }
                    1 => {
                        let sorted = deque.iter().rev().take_while(|other| **other > number);
                        let place = deque.len() - sorted.count();
                        deque.insert(place, number);
                        ring.push_back(|| number);
                        let moved = ring.move_back_before(|other| *other > number);
                        proptest::prop_assert_eq!(moved, place);
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
}
