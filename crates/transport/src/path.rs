//! Paths and sets of paths, as schedulers see them.

use core::fmt;

use skybraid_units::{Bytes, Duration, Rate};

/// The number of a path within a connection, 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

impl PathId {
    /// The path's position in a connection's list of paths.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of up to 64 paths.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PathSet(u64);

impl PathSet {
    /// No path.
    pub const EMPTY: Self = Self(0);
    /// The most paths that a connection may have.
    pub const CAPACITY: usize = 64;

    /// The set of `path` alone; empty for a path number beyond 63.
    pub const fn only(path: PathId) -> Self {
        Self(match 1_u64.checked_shl(path.0 as u32) {
            Some(bit) => bit,
            None => 0,
        })
    }

    /// The paths as a bit mask: bit n stands for path n.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True when no path is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many paths are in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// True when `path` is in the set.
    pub const fn contains(self, path: PathId) -> bool {
        self.0 & Self::only(path).0 != 0
    }

    /// The set with `path` added.
    #[must_use]
    pub const fn with(self, path: PathId) -> Self {
        Self(self.0 | Self::only(path).0)
    }

    /// The set with `path` taken out.
    #[must_use]
    pub const fn without(self, path: PathId) -> Self {
        Self(self.0 & !Self::only(path).0)
    }

    /// The lowest-numbered path.
    pub const fn first(self) -> Option<PathId> {
        if self.0 == 0 { None } else { Some(PathId(self.0.trailing_zeros() as u8)) }
    }

    /// The paths in ascending order.
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        let mut left = self;
        core::iter::from_fn(move || {
            let next = left.first()?;
            left = left.without(next);
            Some(next)
        })
    }
}

impl FromIterator<PathId> for PathSet {
    fn from_iter<I: IntoIterator<Item = PathId>>(paths: I) -> Self {
        paths.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|path| path.0)).finish()
    }
}

/// What is known of a path before any packet: from the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Largest IP packet that the path carries.
    pub mtu: Bytes,
    /// Cost per byte, in the user's own measure; cheapest path first prefers the lowest.
    pub cost: u32,
    /// Used only when no regular path is usable (the B flag of RFC 8684 §3.2).
    pub backup: bool,
    /// Priority of RFC 9897 §3.2.9: 0 never, 1 standby, 2 secondary, 3 to 15 primary, more is
    /// preferred.
    pub priority: u8,
}

impl Default for PathInfo {
    fn default() -> Self {
        Self { mtu: Bytes::new(1500), cost: 1, backup: false, priority: 3 }
    }
}

/// A path at the moment of a scheduling decision. Read-only.
#[derive(Clone, Copy, Debug)]
pub struct PathView {
    /// Which path.
    pub id: PathId,
    /// Established and not suspected of having failed.
    pub usable: bool,
    /// The unit in question may leave at once: the congestion window has room for it.
    pub has_room: bool,
    /// Smoothed round-trip time; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Round-trip time deviation (RTTVAR of RFC 6298); zero before the first sample.
    pub rtt_deviation: Duration,
    /// The lowest round-trip time so far; `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// Congestion window; the largest size where there is no congestion control.
    pub window: Bytes,
    /// Slow start threshold; the largest size before the first loss.
    pub threshold: Bytes,
    /// The rate at which segments leave, where the congestion control paces them.
    pub pacing: Option<Rate>,
    /// Bytes sent and neither acknowledged nor taken for lost.
    pub in_flight: Bytes,
    /// Bytes assigned to the path and not yet sent.
    pub queued: Bytes,
    /// Largest payload of a segment.
    pub segment: Bytes,
    /// The user's cost.
    pub cost: u32,
    /// Used only when no regular path is usable.
    pub backup: bool,
    /// Priority of RFC 9897 §3.2.9, see [`PathInfo::priority`].
    pub priority: u8,
}

impl PathView {
    /// Below its slow start threshold.
    pub fn slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Bytes that the window still takes beyond what is in flight and assigned.
    pub fn room(&self) -> Bytes {
        self.window - self.in_flight - self.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_set_iterates_in_ascending_order_and_ignores_impossible_paths() {
        let set: PathSet = [PathId(5), PathId(1), PathId(63), PathId(200)].into_iter().collect();
        assert_eq!(set.iter().map(|path| path.0).collect::<Vec<_>>(), [1, 5, 63]);
        assert_eq!(set.without(PathId(5)).len(), 2);
        assert!(!set.contains(PathId(200)));
    }
}
