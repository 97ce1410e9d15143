//! Storage of waiting frames: slots of one size, reused without allocation.

/// Slots allocated at once when none is free.
const BLOCK: usize = 1024;

/// Slots, addressed by number.
pub(super) struct Frames {
    blocks: Vec<Box<[u8]>>,
    /// Free slots, last freed first, so that the memory stays in the cache.
    free: Vec<u32>,
    size: usize,
}

impl Frames {
    /// Creates slots for frames of at most `largest` bytes.
    pub fn new(largest: usize) -> Self {
        let mut frames =
            Self { blocks: Vec::new(), free: Vec::new(), size: largest.next_multiple_of(64) };
        for _ in 0..2 {
            frames.grow();
        }
        frames
    }

    fn grow(&mut self) {
        let first = self.blocks.len() * BLOCK;
        // Written once, so that the pages are allocated before the first frame.
        let block = vec![1; self.size * BLOCK].into_boxed_slice();
        self.blocks.push(block);
        self.free.reserve(self.blocks.len() * BLOCK);
        self.free.extend((first..first + BLOCK).rev().map(|slot| slot as u32));
    }

    /// Returns a free slot.
    pub fn take(&mut self) -> u32 {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.pop().unwrap_or_default()
    }

    /// Frees a slot.
    pub fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Returns the first `length` bytes of a slot, or fewer if it holds fewer.
    pub fn bytes(&self, slot: u32, length: u32) -> &[u8] {
        let (block, start) = self.place(slot);
        let end = start + (length as usize).min(self.size);
        self.blocks.get(block).and_then(|block| block.get(start..end)).unwrap_or_default()
    }

    /// Returns a whole slot.
    pub fn slot(&mut self, slot: u32) -> &mut [u8] {
        let (block, start) = self.place(slot);
        let size = self.size;
        let block = self.blocks.get_mut(block);
        block.and_then(|block| block.get_mut(start..start + size)).unwrap_or_default()
    }

    const fn place(&self, slot: u32) -> (usize, usize) {
        (slot as usize / BLOCK, slot as usize % BLOCK * self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn slots_in_use_are_apart_and_come_back() {
        let mut frames = Frames::new(1514);
        let taken: Vec<u32> = (0..3 * BLOCK).map(|_| frames.take()).collect();
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len());
        for slot in &taken {
            frames.slot(*slot).fill(*slot as u8);
        }
        for slot in &taken {
            assert_eq!(frames.bytes(*slot, 1514).len(), 1514);
            assert!(frames.bytes(*slot, 1514).iter().all(|byte| *byte == *slot as u8));
            frames.give_back(*slot);
        }
        assert_eq!(frames.take(), taken[3 * BLOCK - 1]);
    }
}
