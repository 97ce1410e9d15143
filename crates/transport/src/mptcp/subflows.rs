//! Subflows of a connection, with the paths that they may take.

use alloc::vec::Vec;

use skybraid_units::{Duration, Promised};

use crate::congestion::{Sibling, Siblings};
use crate::endpoint::Role;
use crate::tcp::subflow::Subflow;
use crate::{PathId, PathInfo, PathSet, TransportConfig};

/// Subflows of a connection. Numbers are positions, and identify the subflow to both ends.
#[derive(Debug)]
pub struct Subflows {
    config: TransportConfig,
    role: Role,
    /// Maximum payload of a segment in bytes: one for all, since a chunk may be retransmitted on any of them.
    segment: u32,
    paths: Vec<PathInfo>,
    all: Vec<Subflow>,
    siblings: Vec<Sibling>,
}

impl Subflows {
    /// Creates the initial subflows of a connection, all closed.
    pub fn new(config: &TransportConfig, paths: &[PathInfo], role: Role, segment: u32) -> Self {
        let multipath = config.is_multipath();
        let usable = if multipath { paths.len() } else { paths.len().min(1) };
        let routes =
            if multipath { config.path_manager.subflows(usable) } else { alloc::vec![PathId(0)] };
        let mut subflows = Self {
            config: config.clone(),
            role,
            segment,
            paths: paths.to_vec(),
            all: Vec::with_capacity(routes.len()),
            siblings: Vec::with_capacity(routes.len()),
        };
        routes.iter().take(PathSet::CAPACITY).for_each(|path| subflows.add(*path));
        subflows
    }

    /// Configuration of the connection.
    #[inline]
    pub const fn config(&self) -> &TransportConfig {
        &self.config
    }

    /// Number of paths of the connection, used or not.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// True if no further subflow can be added.
    pub fn is_full(&self) -> bool {
        self.all.len() >= PathSet::CAPACITY
    }

    /// Adds a closed subflow over `path`; ignored for an unknown path.
    pub fn add(&mut self, path: PathId) {
        let Some(info) = self.paths.get(path.index()).copied() else { return };
        let id = PathId(self.all.len() as u8);
        let (config, role, segment) = (&self.config, self.role, self.segment);
        self.all.push(Subflow::new(config, role, id, path, info, segment));
    }

    /// All subflows, by number.
    #[inline]
    pub fn all(&self) -> &[Subflow] {
        &self.all
    }

    /// All subflows, by number.
    #[inline]
    pub fn all_mut(&mut self) -> &mut [Subflow] {
        &mut self.all
    }

    /// Returns the subflow that `id` names.
    #[inline]
    pub fn of(&mut self, id: PathId) -> Option<&mut Subflow> {
        self.all.get_mut(id.index()).promised("the subflow of this number")
    }

    /// Returns subflow number `own`, if it exists, and what its congestion control sees of the others.
    #[inline]
    pub fn with_siblings(&mut self, own: usize) -> Option<(&mut Subflow, Siblings<'_>)> {
        if self.all.get(own)?.is_coupled() {
            self.siblings.clear();
            self.siblings.extend(self.all.iter().map(Subflow::sibling));
        }
        Some((self.all.get_mut(own)?, Siblings { all: &self.siblings, own }))
    }

    /// Numbers of the usable subflows.
    pub fn usable(&self) -> PathSet {
        self.all.iter().filter(|subflow| subflow.is_usable()).map(|subflow| subflow.id).collect()
    }

    /// Returns the usable subflow with the lowest round-trip time.
    pub fn fastest(&mut self) -> Option<&mut Subflow> {
        let usable = self.all.iter_mut().filter(|subflow| subflow.is_usable());
        usable.min_by_key(|subflow| subflow.srtt_or_max())
    }

    /// Opens all closed subflows, which join the connection.
    pub fn open_all(&mut self) {
        self.all.iter_mut().for_each(|subflow| subflow.open(true));
    }

    /// Opens the first closed subflow if none is established: the path of the first one may be down.
    pub fn open_next(&mut self) {
        let none_yet = !self.all.iter().any(Subflow::is_established);
        let next = self.all.iter_mut().find(|subflow| subflow.is_closed());
        if let (true, Some(next)) = (none_yet, next) {
            next.open(false);
        }
    }

    /// Bytes that the subflows hold for their own order.
    #[inline]
    pub fn held(&self) -> u64 {
        self.all.iter().map(Subflow::held).sum()
    }

    /// Longest round-trip time that the receive side of a subflow has measured.
    pub fn receiver_rtt(&self) -> Option<Duration> {
        self.all.iter().filter_map(Subflow::receiver_rtt).max()
    }

    /// Interval between two probes of a closed window, and between two FINs.
    pub fn probe_interval(&self) -> Duration {
        self.all
            .iter()
            .filter(|subflow| subflow.is_established())
            .map(|subflow| subflow.rtt().timeout())
            .min()
            .unwrap_or(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    #[test]
    fn a_connection_of_one_path_has_one_subflow_and_may_get_more() {
        let paths = [PathInfo::default(); 3];
        let count = |protocol| {
            let config = TransportConfig { protocol, ..TransportConfig::default() };
            Subflows::new(&config, &paths, Role::Client, 1400).all().len()
        };
        assert_eq!((count(Protocol::Tcp), count(Protocol::Mptcp)), (1, 3));
        let config = TransportConfig { protocol: Protocol::Mptcp, ..TransportConfig::default() };
        let mut subflows = Subflows::new(&config, &paths, Role::Client, 1400);
        subflows.add(PathId(3));
        assert_eq!(subflows.all().len(), 3, "an unknown path");
        (0..100).for_each(|_| {
            if !subflows.is_full() {
                subflows.add(PathId(1));
            }
        });
        let last = subflows.all().last().map(|subflow| (subflow.id, subflow.path));
        assert_eq!(last, Some((PathId(63), PathId(1))));
        assert!(subflows.usable().is_empty() && subflows.fastest().is_none());
    }
}
