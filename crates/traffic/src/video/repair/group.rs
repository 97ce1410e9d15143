//! Recovery state of a group of source and repair packets.

use alloc::vec;
use alloc::vec::Vec;

use super::xor::next_recoverable;
use super::{Code, RepairError};

/// A group whose packets are tracked without their bytes.
#[derive(Clone, Debug)]
pub struct Group {
    code: Code,
    sources: usize,
    /// Whether the packet at each position has arrived or been recovered.
    known: Vec<bool>,
    known_packets: usize,
    known_sources: usize,
}

impl Group {
    /// Creates a group of `sources` source packets before any has arrived.
    ///
    /// # Errors
    /// The code does not support a group of this size.
    pub fn new(code: Code, sources: usize) -> Result<Self, RepairError> {
        code.check(sources)?;
        let known = vec![false; sources + code.repairs(sources)];
        Ok(Self { code, sources, known, known_packets: 0, known_sources: 0 })
    }

    /// Returns the code of the group.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Returns the number of source packets.
    pub const fn sources(&self) -> usize {
        self.sources
    }

    /// Returns the number of packets, sources and repairs.
    pub fn packets(&self) -> usize {
        self.known.len()
    }

    /// Returns whether the packet has arrived or been recovered; `false` for a position outside the group.
    pub fn is_known(&self, position: usize) -> bool {
        self.known.get(position).copied().unwrap_or(false)
    }

    /// Returns whether all source packets are known.
    pub const fn is_complete(&self) -> bool {
        self.known_sources == self.sources
    }

    /// Returns the source packets that are not known.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.sources).filter(|&source| !self.is_known(source))
    }

    /// Records the arrival of a packet, and returns the source packets recovered by it. A packet that is known
    /// already or not of the group changes nothing.
    pub fn on_received(&mut self, position: usize) -> Vec<usize> {
        let mut recovered = Vec::new();
        if self.mark_known(position) {
            while let Some((source, _)) = self.next_recoverable() {
                self.mark_known(source);
                recovered.push(source);
            }
        }
        recovered
    }

    /// Marks a packet as known. Returns `false` if it was known before or is not of the group.
    pub(super) fn mark_known(&mut self, position: usize) -> bool {
        let Some(known) = self.known.get_mut(position) else { return false };
        let new = !core::mem::replace(known, true);
        self.known_packets += usize::from(new);
        self.known_sources += usize::from(new && position < self.sources);
        new
    }

    /// Returns the next source packet to recover, and for a parity code the repair packet that recovers it.
    pub(super) fn next_recoverable(&self) -> Option<(usize, Option<usize>)> {
        if self.is_complete() {
            return None;
        }
        if matches!(self.code, Code::ReedSolomon { .. }) {
            let enough = self.known_packets >= self.sources;
            return self.missing().next().filter(|_| enough).map(|source| (source, None));
        }
        let (source, repair) = next_recoverable(self.code, self.sources, &self.known)?;
        Some((source, Some(repair)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of source packets missing in the end if the packets in `lost` (one bit per
    /// position) do not arrive.
    fn missing(code: Code, sources: usize, lost: u64) -> usize {
        let mut group = Group::new(code, sources).unwrap();
        for position in (0..group.packets()).filter(|position| lost >> position & 1 == 0) {
            group.on_received(position);
        }
        group.missing().count()
    }

    #[test]
    fn xor_recovers_one_loss_and_no_more() {
        for lost in 0..1_u64 << 9 {
            let lost_sources = (lost & 0xff).count_ones() as usize;
            let left = if lost_sources == 1 && lost >> 8 == 0 { 0 } else { lost_sources };
            assert_eq!(missing(Code::Xor, 8, lost), left);
        }
    }

    #[test]
    fn interleaved_parity_recovers_a_burst_of_its_columns() {
        let code = Code::Interleaved { columns: 4 };
        for start in 0..20 {
            for (length, all) in [(1, true), (4, true), (5, false)] {
                let burst = ((1_u64 << length) - 1) << start & 0xf_ffff;
                // At the end the burst is shorter than its length.
                let all = all || burst.count_ones() <= 4;
                assert_eq!(missing(code, 20, burst) == 0, all);
            }
        }
    }

    // Source: RFC 8627 §1.1.3: two-dimensional parity fails where the lost packets are at the
    // corners of rectangles; with four losses of 4 × 4 there are C(4, 2)² = 36 such.
    #[test]
    fn the_grid_recovers_up_to_four_losses_but_rectangles() {
        let code = Code::Grid { columns: 4 };
        let mut failed = [0; 5];
        for lost in (0..1_u64 << 16).filter(|lost| lost.count_ones() <= 4) {
            failed[lost.count_ones() as usize] += usize::from(missing(code, 16, lost) > 0);
        }
        assert_eq!(failed, [0, 0, 0, 0, 36]);
    }

    #[test]
    fn reed_solomon_recovers_from_any_set_as_large_as_its_sources() {
        let code = Code::ReedSolomon { repairs: 4 };
        for lost in 0..1_u64 << 10 {
            let lost_sources = (lost & 0x3f).count_ones() as usize;
            let left = if lost.count_ones() <= 4 { 0 } else { lost_sources };
            assert_eq!(missing(code, 6, lost), left);
        }
    }

    #[test]
    fn late_and_duplicate_packets_change_nothing() {
        let mut group = Group::new(Code::Xor, 2).unwrap();
        assert_eq!(group.on_received(2), []);
        assert_eq!(group.on_received(2), []);
        assert_eq!(group.on_received(7), []);
        assert!(!group.is_complete());
        assert_eq!(group.on_received(1), [0]);
        assert!(group.is_complete() && group.is_known(0));
        assert_eq!(group.on_received(0), []);
    }

    #[test]
    fn groups_that_a_code_does_not_support_are_rejected() {
        let rejected = |code, sources| Group::new(code, sources).map(|_| ());
        assert_eq!(rejected(Code::Xor, 0), Err(RepairError::Empty));
        assert_eq!(rejected(Code::Grid { columns: 0 }, 4), Err(RepairError::Empty));
        assert_eq!(rejected(Code::Interleaved { columns: 0 }, 4), Err(RepairError::Empty));
        let too_many = RepairError::TooMany { packets: 256, max: 255 };
        assert_eq!(rejected(Code::ReedSolomon { repairs: 56 }, 200), Err(too_many));
        assert_eq!(rejected(Code::ReedSolomon { repairs: 55 }, 200), Ok(()));
        let too_many = RepairError::TooMany { packets: usize::MAX, max: 1024 };
        assert_eq!(rejected(Code::Xor, usize::MAX), Err(too_many));
    }
}
