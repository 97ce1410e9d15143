//! Subflows of a connection, with the paths that they may take.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use skybraid_units::{Duration, Instant, Promised};

use crate::congestion::{Sibling, Siblings};
use crate::endpoint::{Role, Transmit};
use crate::segment::{Body, Flags, Segment, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::{Stamp, Subflow};
use crate::{PathId, PathInfo, PathSet, SubflowId, TransportConfig};

/// Subflows of a connection. Their numbers identify them to both ends; none is ever taken out of the list.
#[derive(Debug)]
pub struct Subflows {
    /// Configuration of a multipath connection, whose subflows may change; one over a single path keeps none.
    config: Option<Arc<TransportConfig>>,
    role: Role,
    /// Maximum payload of a segment in bytes: one for all, since a chunk may be retransmitted on any of them.
    segment: u32,
    paths: Vec<PathInfo>,
    all: Vec<Subflow>,
    siblings: Vec<Sibling>,
}

impl Subflows {
    /// Creates the initial subflows of a connection, all closed.
    pub fn new(
        config: &Arc<TransportConfig>,
        paths: &[PathInfo],
        role: Role,
        segment: u32,
    ) -> Self {
        let multipath = config.is_multipath();
        let usable = if multipath { paths.len() } else { paths.len().min(1) };
        let routes =
            if multipath { config.path_manager.subflows(usable) } else { alloc::vec![PathId(0)] };
        let mut subflows = Self {
            config: multipath.then(|| Arc::clone(config)),
            role,
            segment,
            paths: paths.to_vec(),
            all: Vec::with_capacity(routes.len()),
            siblings: Vec::new(),
        };
        routes.iter().take(PathSet::CAPACITY).for_each(|path| subflows.push(config, *path));
        subflows
    }

    /// Configuration of a multipath connection.
    #[inline]
    pub fn config(&self) -> Option<&TransportConfig> {
        self.config.as_deref()
    }

    /// Number of paths of the connection, used or not.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// True if no further subflow can be added.
    pub fn is_full(&self) -> bool {
        self.all.len() >= PathSet::CAPACITY
    }

    /// Adds a closed subflow over `path`; ignored for an unknown path, and by a connection over a single path.
    pub fn add(&mut self, path: PathId) {
        if let Some(config) = self.config.take() {
            self.push(&config, path);
            self.config = Some(config);
        }
    }

    fn push(&mut self, config: &TransportConfig, path: PathId) {
        let Some(info) = self.paths.get(path.index()).copied() else { return };
        let id = SubflowId::from_index(self.all.len());
        self.all.push(Subflow::new(config, self.role, id, (path, info), self.segment));
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

    /// Numbers of all subflows.
    pub fn ids(&self) -> impl Iterator<Item = SubflowId> + use<> {
        (0..self.all.len()).map(SubflowId::from_index)
    }

    /// Returns the subflow that segments call `number`, if there is one, and what its congestion control sees of the
    /// others.
    #[inline]
    pub fn with_siblings(&mut self, number: u8) -> Option<(&mut Subflow, Siblings<'_>)> {
        let Self { all, siblings, .. } = self;
        let own = usize::from(number);
        if all.get(own)?.is_coupled() {
            see_siblings(siblings, all);
        }
        Some((all.get_mut(own)?, Siblings { all: siblings, own }))
    }

    /// Numbers of the usable subflows.
    pub fn usable(&self) -> PathSet {
        self.all
            .iter()
            .filter(|subflow| subflow.is_usable())
            .map(|subflow| subflow.id().as_path())
            .collect()
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

    /// Sets the size of the receive buffer in bytes.
    pub fn set_receive_buffer(&mut self, bytes: u64) {
        for subflow in &mut self.all {
            subflow.set_receive_buffer(bytes);
        }
    }

    /// Interval between two probes of a closed window, and between two FINs.
    pub fn probe_interval(&self) -> Duration {
        self.all
            .iter()
            .filter(|subflow| subflow.is_established())
            .map(Subflow::timeout)
            .min()
            .unwrap_or(Duration::from_secs(1))
    }

    /// Takes the chunks of subflow `own`, which has failed, for reinjection: those beyond `una` that no usable subflow
    /// carries as well. `carried_by` returns the subflows that have carried a chunk.
    pub fn take_chunks(
        &mut self,
        own: SubflowId,
        una: u64,
        carried_by: impl Fn(&Chunk) -> PathSet,
    ) -> Vec<Chunk> {
        let (usable, id) = (self.usable(), own.as_path());
        let waiting: Vec<Chunk> = self[own].take_backlog().collect();
        let carried_elsewhere = |chunk: &Chunk| {
            carried_by(chunk).without(id).iter().any(|other| usable.contains(other))
        };
        let outstanding = self[own]
            .outstanding()
            .filter(|chunk| chunk.end() > una && !carried_elsewhere(chunk))
            .map(|chunk| Chunk { carried_by: chunk.carried_by.with(id), ..chunk });
        // Chunks in the backlog were never sent here, and perhaps not on the subflow that had them
        // before.
        let held =
            |dsn| self.all.iter().any(|subflow| subflow.is_usable() && subflow.has_chunk(dsn));
        let waiting = waiting
            .into_iter()
            .filter(|chunk| chunk.end() > una && !held(chunk.dsn))
            .map(|chunk| Chunk { carried_by: chunk.carried_by.without(id), ..chunk });
        outstanding.chain(waiting).collect()
    }

    /// Returns the first segment that `poll` finds at a subflow.
    #[inline]
    pub fn poll(
        &mut self,
        mut poll: impl FnMut(&mut Subflow) -> Option<Segment>,
    ) -> Option<Transmit> {
        self.all.iter_mut().find_map(|subflow| {
            poll(subflow).map(|segment| Transmit { path: subflow.path(), segment })
        })
    }

    /// Builds an acknowledgement with `flags` on the usable subflow with the lowest round-trip
    /// time.
    pub fn signal(
        &mut self,
        now: Instant,
        stamp: &Stamp,
        flags: Flags,
        mark: impl Fn(&mut Tcp),
    ) -> Option<Transmit> {
        let subflow = self.fastest()?;
        let mut segment = subflow.signal_segment(now, stamp, flags);
        if let Body::Tcp(tcp) = &mut segment.body {
            mark(tcp);
        }
        Some(Transmit { path: subflow.path(), segment })
    }
}

impl Index<SubflowId> for Subflows {
    type Output = Subflow;

    #[inline]
    #[track_caller]
    fn index(&self, id: SubflowId) -> &Subflow {
        self.all.get(id.index()).promised(EXPECTED).unwrap_or_else(|| &self.all[0])
    }
}

impl IndexMut<SubflowId> for Subflows {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, id: SubflowId) -> &mut Subflow {
        find_mut(&mut self.all, id)
    }
}

/// Expectation of a lookup. An id of another connection is a bug; a release build then uses the first subflow.
const EXPECTED: &str = "a subflow of this connection";

/// Collects what congestion controls see of the subflows.
fn see_siblings(siblings: &mut Vec<Sibling>, all: &[Subflow]) {
    siblings.clear();
    siblings.extend(all.iter().map(Subflow::sibling));
}

#[inline]
#[track_caller]
fn find_mut(all: &mut [Subflow], id: SubflowId) -> &mut Subflow {
    let known = all.get(id.index()).promised(EXPECTED).map_or(0, |_| id.index());
    &mut all[known]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    #[test]
    fn only_a_multipath_connection_gets_more_subflows() {
        let paths = [PathInfo::default(); 3];
        let count = |protocol| {
            let config = TransportConfig { protocol, ..TransportConfig::default() }.into();
            let mut subflows = Subflows::new(&config, &paths, Role::Client, 1400);
            let first = subflows.all().len();
            subflows.add(PathId(0));
            (first, subflows.all().len())
        };
        assert_eq!([count(Protocol::Tcp), count(Protocol::Mptcp)], [(1, 1), (3, 4)]);
        let config =
            TransportConfig { protocol: Protocol::Mptcp, ..TransportConfig::default() }.into();
        let mut subflows = Subflows::new(&config, &paths, Role::Client, 1400);
        subflows.add(PathId(3));
        assert_eq!(subflows.all().len(), 3, "an unknown path");
        (0..100).for_each(|_| {
            if !subflows.is_full() {
                subflows.add(PathId(1));
            }
        });
        let path_of = |subflows: &mut Subflows, number| {
            subflows.with_siblings(number).map(|(subflow, _)| subflow.path())
        };
        let paths = [63, 64].map(|number| path_of(&mut subflows, number));
        assert_eq!(paths, [Some(PathId(1)), None]);
        assert!(subflows.usable().is_empty() && subflows.fastest().is_none());
    }

    #[test]
    fn a_failed_subflow_gives_back_what_no_other_carries() {
        let config =
            TransportConfig { protocol: Protocol::Mptcp, ..TransportConfig::default() }.into();
        let mut subflows = Subflows::new(&config, &[PathInfo::default(); 2], Role::Client, 1400);
        let [first, second] = [0, 1].map(SubflowId::from_index);
        for dsn in [0, 1000, 2000] {
            subflows[first].assign(Chunk {
                dsn,
                len: 1000,
                first_message: 0,
                messages: 1,
                stream: 0,
                tail: false,
                carried_by: PathSet::only(first.as_path()),
            });
        }
        let taken = subflows.take_chunks(first, 1000, |chunk| chunk.carried_by);
        let taken: Vec<_> = taken.iter().map(|chunk| (chunk.dsn, chunk.carried_by)).collect();
        assert_eq!(taken, [(1000, PathSet::EMPTY), (2000, PathSet::EMPTY)]);
        assert!(subflows[first].is_idle() && subflows[second].is_idle());
    }
}
