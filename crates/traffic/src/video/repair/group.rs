//! Which packets of a group are known.

use alloc::vec;
use alloc::vec::Vec;

use super::xor::next_recoverable;
use super::{Code, RepairError};

/// A group whose packets are counted, not kept.
#[derive(Clone, Debug)]
pub struct Group {
    code: Code,
    sources: usize,
    /// Of each position: the packet arrived, or was recovered.
    known: Vec<bool>,
    known_packets: usize,
    known_sources: usize,
}

impl Group {
    /// A group of `sources` source packets of which none has arrived.
    ///
    /// # Errors
    /// The code has no such group.
    pub fn new(code: Code, sources: usize) -> Result<Self, RepairError> {
        code.check(sources)?;
        let known = vec![false; sources + code.repairs(sources)];
        Ok(Self { code, sources, known, known_packets: 0, known_sources: 0 })
    }

    /// How its repair packets are made.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Its source packets.
    pub const fn sources(&self) -> usize {
        self.sources
    }

    /// Its packets: sources and repairs.
    pub fn packets(&self) -> usize {
        self.known.len()
    }

    /// The packet arrived, or was recovered.
    pub fn is_known(&self, position: usize) -> bool {
        self.known.get(position).copied().unwrap_or(false)
    }

    /// All source packets are known.
    pub const fn is_complete(&self) -> bool {
        self.known_sources == self.sources
    }

    /// The source packets that are not known.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.sources).filter(|&source| !self.is_known(source))
    }

    /// Notes that a packet arrived, and gives the source packets that this makes known: those
    /// recovered, without the packet itself. A packet that is known already, or none of the group,
    /// changes nothing.
    pub fn arrive(&mut self, position: usize) -> Vec<usize> {
        let mut recovered = Vec::new();
        if self.note(position) {
            while let Some((source, _)) = self.next_recoverable() {
                self.note(source);
                recovered.push(source);
            }
        }
        recovered
    }

    /// The packet is known from now on. False if it was before, or is none of the group.
    pub(super) fn note(&mut self, position: usize) -> bool {
        let Some(known) = self.known.get_mut(position) else { return false };
        let new = !core::mem::replace(known, true);
        self.known_packets += usize::from(new);
        self.known_sources += usize::from(new && position < self.sources);
        new
    }

    /// The next source packet to recover, and for a parity code the repair packet that gives it.
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

    /// The source packets missing in the end when `lost` (bit by position) did not arrive.
    fn missing(code: Code, sources: usize, lost: u64) -> usize {
        let mut group = Group::new(code, sources).unwrap();
        for position in (0..group.packets()).filter(|position| lost >> position & 1 == 0) {
            group.arrive(position);
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
    fn interleaved_parity_recovers_a_burst_as_long_as_it_has_columns() {
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
    fn the_grid_recovers_any_three_losses_and_of_four_all_but_rectangles() {
        let code = Code::Grid { columns: 4 };
        let mut failed = [0; 5];
        for lost in (0..1_u64 << 16).filter(|lost| lost.count_ones() <= 4) {
            failed[lost.count_ones() as usize] += usize::from(missing(code, 16, lost) > 0);
        }
        assert_eq!(failed, [0, 0, 0, 0, 36]);
    }

    #[test]
    fn reed_solomon_recovers_from_as_many_packets_as_sources_whichever_they_are() {
        let code = Code::ReedSolomon { repairs: 4 };
        for lost in 0..1_u64 << 10 {
            let lost_sources = (lost & 0x3f).count_ones() as usize;
            let left = if lost.count_ones() <= 4 { 0 } else { lost_sources };
            assert_eq!(missing(code, 6, lost), left);
        }
    }

    #[test]
    fn what_comes_late_or_twice_changes_nothing() {
        let mut group = Group::new(Code::Xor, 2).unwrap();
        assert_eq!(group.arrive(2), []);
        assert_eq!(group.arrive(2), []);
        assert_eq!(group.arrive(7), []);
        assert!(!group.is_complete());
        assert_eq!(group.arrive(1), [0]);
        assert!(group.is_complete() && group.is_known(0));
        assert_eq!(group.arrive(0), []);
    }

    #[test]
    fn groups_that_a_code_cannot_have_are_refused() {
        let refused = |code, sources| Group::new(code, sources).map(|_| ());
        assert_eq!(refused(Code::Xor, 0), Err(RepairError::Empty));
        assert_eq!(refused(Code::Grid { columns: 0 }, 4), Err(RepairError::Empty));
        assert_eq!(refused(Code::Interleaved { columns: 0 }, 4), Err(RepairError::Empty));
        let too_many = RepairError::TooMany { packets: 256, most: 255 };
        assert_eq!(refused(Code::ReedSolomon { repairs: 56 }, 200), Err(too_many));
        assert_eq!(refused(Code::ReedSolomon { repairs: 55 }, 200), Ok(()));
        let too_many = RepairError::TooMany { packets: usize::MAX, most: 1024 };
        assert_eq!(refused(Code::Xor, usize::MAX), Err(too_many));
    }
}
