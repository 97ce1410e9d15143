//! The paths of a gateway, by their numbers here and on the wire.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use skybraid_transport::{PathId, PathSet};
use skybraid_units::Instant;
use skybraid_units::invariant::Promised;

use super::BUNDLE;
use crate::config::Network;
use crate::health::Path;

/// Placeholder address over TCP.
pub(super) const NOWHERE: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The paths in the order of their names, which is that of their numbers.
#[derive(Debug)]
pub(super) struct Paths {
    network: Network,
    paths: Vec<Path>,
    /// Streams that are writable, [`BUNDLE`] included (TCP mode).
    writable: PathSet,
    by_wire: [Option<PathId>; PathSet::CAPACITY],
}

impl Paths {
    /// At most as many paths as have numbers of their own.
    pub const MAX: usize = PathSet::CAPACITY - 2;

    pub fn new(network: Network, paths: impl Iterator<Item = Path>) -> Self {
        let paths: Vec<Path> = paths.take(Self::MAX).collect();
        let writable = (0..paths.len() as u8).map(PathId).collect();
        Self { network, paths, writable, by_wire: [None; PathSet::CAPACITY] }
    }

    pub const fn len(&self) -> usize {
        self.paths.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.paths.len() as u8).map(PathId)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.paths.iter_mut()
    }

    /// A path by its number, which nobody makes up: `None` is a bug.
    #[track_caller]
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.paths.get(id.index()).promised("a path of this gateway")
    }

    /// As [`get`](Self::get), to be changed.
    #[track_caller]
    pub fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths.get_mut(id.index()).promised("a path of this gateway")
    }

    /// The path of a number on the wire; `None` for one that the peer made up, or has alone.
    pub fn by_wire(&self, wire: u8) -> Option<PathId> {
        self.by_wire.get(usize::from(wire)).copied().flatten()
    }

    /// Sets the numbers on the wire: `wire` is that of each path by number and name.
    pub fn set_wire(&mut self, wire: impl Fn(usize, &str) -> Option<u8>) {
        self.by_wire = [None; PathSet::CAPACITY];
        for (id, path) in (0..).map(PathId).zip(&mut self.paths) {
            path.wire = wire(id.index(), &path.name);
            let place = path.wire.and_then(|wire| self.by_wire.get_mut(usize::from(wire)));
            if let Some(place) = place {
                *place = Some(id);
            }
        }
    }

    /// Sets whether the stream of a path, or [`BUNDLE`], is writable (TCP mode).
    pub const fn set_writable(&mut self, id: PathId, writable: bool) {
        self.writable = if writable { self.writable.with(id) } else { self.writable.without(id) };
    }

    /// Whether the MPTCP connection is writable (TCP mode).
    pub const fn is_bundle_writable(&self) -> bool {
        self.writable.contains(BUNDLE)
    }

    /// Returns the destination of a datagram on a path, if it can leave.
    pub fn reach(&self, id: PathId) -> Option<SocketAddr> {
        let path = self.get(id).filter(|path| path.present)?;
        match self.network {
            Network::Udp => path.remote,
            Network::Tcp => self.writable.contains(id).then_some(path.remote.unwrap_or(NOWHERE)),
        }
    }

    /// Returns the paths on which the peer is heard.
    pub fn heard(&self) -> impl Iterator<Item = &Path> {
        self.iter().filter(|path| path.is_heard())
    }

    /// Returns the last time at which the peer was heard on any path.
    pub fn last_heard(&self) -> Option<Instant> {
        self.iter().filter_map(|path| path.watch.heard()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PathConfig;

    #[test]
    fn a_path_is_reached_by_its_address_or_by_its_writable_stream() {
        let new = |network| {
            let names = ["lte", "satellite"].into_iter();
            Paths::new(
                network,
                names.map(|name| Path::new(Instant::ZERO, name, &PathConfig::default())),
            )
        };
        let (mut udp, mut tcp) = (new(Network::Udp), new(Network::Tcp));
        let (id, address) = (PathId(1), SocketAddr::from(([192, 0, 2, 1], 7)));
        assert_eq!((udp.reach(id), tcp.reach(id)), (None, Some(NOWHERE)));
        udp.get_mut(id).unwrap().remote = Some(address);
        tcp.set_writable(id, false);
        assert_eq!((udp.reach(id), tcp.reach(id)), (Some(address), None));
        udp.get_mut(id).unwrap().present = false;
        assert_eq!(udp.reach(id), None);
    }

    #[test]
    fn the_bundle_is_writable_only_once_it_is_connected() {
        let mut paths = Paths::new(Network::Tcp, core::iter::empty());
        assert!(!paths.is_bundle_writable());
        paths.set_writable(BUNDLE, true);
        assert!(paths.is_bundle_writable());
    }
}
