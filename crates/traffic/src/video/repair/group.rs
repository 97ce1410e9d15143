//! Recovery state of a group of source and repair packets.

use alloc::vec;
use alloc::vec::Vec;

/// A group whose packets are tracked without their bytes.
#[derive(Clone, Debug)]
pub struct Group {
    sources: usize,
    /// Whether the packet at each position has arrived or been recovered.
    known: Vec<bool>,
    known_packets: usize,
    known_sources: usize,
}

impl Group {
    /// Creates a group of `sources` source packets and `repairs` repair packets before any has arrived.
    pub fn new(sources: usize, repairs: usize) -> Self {
        let known = vec![false; sources.saturating_add(repairs)];
        Self { sources, known, known_packets: 0, known_sources: 0 }
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
        if !self.mark_known(position) || !self.is_recoverable() {
            return Vec::new();
        }
        let recovered: Vec<usize> = self.missing().collect();
        for &source in &recovered {
            self.mark_known(source);
        }
        recovered
    }

    /// Returns whether source packets are missing, and enough packets known to recover them.
    pub(super) const fn is_recoverable(&self) -> bool {
        !self.is_complete() && self.known_packets >= self.sources
    }

    /// Marks a packet as known. Returns `false` if it was known before or is not of the group.
    pub(super) fn mark_known(&mut self, position: usize) -> bool {
        let Some(known) = self.known.get_mut(position) else { return false };
        let new = !core::mem::replace(known, true);
        self.known_packets += usize::from(new);
        self.known_sources += usize::from(new && position < self.sources);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of source packets missing in the end if the packets in `lost` (one bit per
    /// position) do not arrive.
    fn missing(sources: usize, repairs: usize, lost: u64) -> usize {
        let mut group = Group::new(sources, repairs);
        for position in (0..group.packets()).filter(|position| lost >> position & 1 == 0) {
            group.on_received(position);
        }
        group.missing().count()
    }

    #[test]
    fn a_group_recovers_from_as_many_packets_as_sources() {
        for repairs in 1..=4 {
            for lost in 0..1_u64 << (6 + repairs) {
                let lost_sources = (lost & 0x3f).count_ones() as usize;
                let left = if lost.count_ones() <= repairs { 0 } else { lost_sources };
                assert_eq!(missing(6, repairs as usize, lost), left);
            }
        }
    }

    #[test]
    fn late_and_duplicate_packets_change_nothing() {
        let mut group = Group::new(2, 1);
        assert_eq!(group.on_received(2), []);
        assert_eq!(group.on_received(2), []);
        assert_eq!(group.on_received(7), []);
        assert!(!group.is_complete());
        assert_eq!(group.on_received(1), [0]);
        assert!(group.is_complete() && group.is_known(0));
        assert_eq!(group.on_received(0), []);
    }
}
