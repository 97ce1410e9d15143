//! The paths of a gateway, by their numbers here and on the wire.

use alloc::vec::Vec;

use skybraid_transport::{PathId, PathSet};
use skybraid_units::invariant::Promised;

use crate::health::Path;

/// The paths in the order of their names, which is that of their numbers.
#[derive(Debug)]
pub(super) struct Paths {
    paths: Vec<Path>,
    by_wire: [Option<PathId>; PathSet::CAPACITY],
}

impl Paths {
    /// At most as many paths as have numbers of their own.
    pub const MAX: usize = PathSet::CAPACITY - 2;

    pub fn new(paths: impl Iterator<Item = Path>) -> Self {
        Self { paths: paths.take(Self::MAX).collect(), by_wire: [None; PathSet::CAPACITY] }
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
}
