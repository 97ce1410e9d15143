//! Paths and sets of paths, as schedulers see them.

use core::fmt;

use skybraid_units::{Bytes, Duration, Rate};

/// Number of a path within a connection, 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

impl PathId {
    /// Position of the path in the connection's list of paths.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a subflow within its connection, 0 to 63. Schedulers, which choose between subflows, see each as a path of
/// the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubflowId(PathId);

impl SubflowId {
    /// The subflow that opens the connection.
    pub const FIRST: Self = Self(PathId(0));

    /// Returns the subflow at position `index` of the connection's list.
    pub const fn from_index(index: usize) -> Self {
        Self(PathId(index as u8))
    }

    /// Returns the subflow that a scheduler sees as `path`.
    pub const fn from_path(path: PathId) -> Self {
        Self(path)
    }

    /// Path that a scheduler sees.
    pub const fn as_path(self) -> PathId {
        self.0
    }

    /// Number of the subflow, as segments carry it.
    pub const fn number(self) -> u8 {
        self.0.0
    }

    /// Position of the subflow in the connection's list.
    pub const fn index(self) -> usize {
        self.0.index()
    }
}

/// A set of up to 64 paths.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PathSet(u64);

impl PathSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// Maximum number of paths of a connection.
    pub const CAPACITY: usize = 64;

    /// Returns the set of `path` alone; empty for a path number above 63.
    pub const fn only(path: PathId) -> Self {
        Self(match 1_u64.checked_shl(path.0 as u32) {
            Some(bit) => bit,
            None => 0,
        })
    }

    /// Bit mask of the set: bit n is path n.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of paths in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// True if `path` is in the set.
    #[inline]
    pub const fn contains(self, path: PathId) -> bool {
        (path.0 as usize) < Self::CAPACITY && self.0 >> path.0 & 1 != 0
    }

    /// Returns the set with `path` added.
    #[must_use]
    pub const fn with(self, path: PathId) -> Self {
        Self(self.0 | Self::only(path).0)
    }

    /// Returns the set without `path`.
    #[must_use]
    pub const fn without(self, path: PathId) -> Self {
        Self(self.0 & !Self::only(path).0)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Returns the set without the paths of `other`.
    #[must_use]
    pub const fn except(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The lowest-numbered path.
    pub const fn first(self) -> Option<PathId> {
        if self.0 == 0 { None } else { Some(PathId(self.0.trailing_zeros() as u8)) }
    }

    /// Returns the paths in ascending order.
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

/// Static properties of a path, from the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Maximum size of an IP packet on the path.
    pub mtu: Bytes,
    /// Cost per byte in a unit of the user's choice; `cheapest_path` prefers the lowest.
    pub cost: u32,
    /// True for a backup path: used only when no regular path is usable (B flag of RFC 8684 §3.2).
    pub backup: bool,
    /// Priority of RFC 9897 §3.2.9: 0 never, 1 standby, 2 secondary, 3 to 15 primary; higher values
    /// are preferred.
    pub priority: u8,
}

impl Default for PathInfo {
    fn default() -> Self {
        Self { mtu: Bytes::new(1500), cost: 1, backup: false, priority: 3 }
    }
}

/// Read-only state of a path at the moment of a scheduling decision.
#[derive(Clone, Copy, Debug)]
pub struct PathView {
    /// Number of the path.
    pub id: PathId,
    /// True if the path is established and not suspected of having failed.
    pub usable: bool,
    /// True if the congestion window has room for the unit to be scheduled.
    pub has_room: bool,
    /// Smoothed round-trip time; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Round-trip time deviation (RTTVAR of RFC 6298); zero before the first sample.
    pub rtt_deviation: Duration,
    /// Lowest round-trip time so far; `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// Congestion window; the maximum size without congestion control.
    pub window: Bytes,
    /// Slow start threshold; the maximum size before the first loss.
    pub threshold: Bytes,
    /// Pacing rate, if the congestion control paces segments.
    pub pacing: Option<Rate>,
    /// Bytes sent that are neither acknowledged nor marked lost.
    pub in_flight: Bytes,
    /// Bytes assigned to the path but not yet sent.
    pub queued: Bytes,
    /// Maximum payload of a segment.
    pub segment: Bytes,
    /// Cost per byte, see [`PathInfo::cost`].
    pub cost: u32,
    /// True for a backup path, see [`PathInfo::backup`].
    pub backup: bool,
    /// Priority of RFC 9897 §3.2.9, see [`PathInfo::priority`].
    pub priority: u8,
}

impl PathView {
    /// True in slow start: the window is below its threshold.
    pub fn slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Free part of the window: neither in flight nor assigned to the path.
    pub fn room(&self) -> Bytes {
        self.window - self.in_flight - self.queued
    }

    /// True under congestion control.
    pub fn is_limited(&self) -> bool {
        self.window.get() < u64::MAX
    }

    /// True if the window has room for a segment, what waits on the path included.
    pub fn fits_segment(&self) -> bool {
        self.room() >= self.segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn sets_iterate_in_order_and_ignore_invalid_paths() {
        let set: PathSet = [PathId(5), PathId(1), PathId(63), PathId(200)].into_iter().collect();
        assert_eq!(set.iter().map(|path| path.0).collect::<Vec<_>>(), [1, 5, 63]);
        assert_eq!(set.without(PathId(5)).len(), 2);
        assert!(!set.contains(PathId(200)));
    }
}
