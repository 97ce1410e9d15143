//! Values for the paths of a connection.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::PathId;

/// A value per path, with a default for paths not seen yet.
#[derive(Clone, Debug)]
pub struct PerPath<T> {
    fresh: T,
    known: Vec<T>,
}

impl<T: Clone> PerPath<T> {
    /// Creates the values of a new connection: `fresh` for each path.
    pub const fn new(fresh: T) -> Self {
        Self { fresh, known: Vec::new() }
    }

    /// Returns the values of the paths seen so far, up to the last of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.known.iter()
    }

    /// As [`iter`](Self::iter), to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.known.iter_mut()
    }

    /// Returns the values of paths 0 to `count` − 1, to be changed.
    #[inline]
    pub fn first_mut(&mut self, count: usize) -> &mut [T] {
        if self.known.len() < count {
            self.known.resize(count, self.fresh.clone());
        }
        &mut self.known[..count]
    }

    #[cold]
    fn grow(&mut self, path: PathId) {
        self.known.resize(path.index() + 1, self.fresh.clone());
    }
}

impl<T> Index<PathId> for PerPath<T> {
    type Output = T;

    #[inline]
    fn index(&self, path: PathId) -> &T {
        self.known.get(path.index()).unwrap_or(&self.fresh)
    }
}

impl<T: Clone> IndexMut<PathId> for PerPath<T> {
    #[inline]
    fn index_mut(&mut self, path: PathId) -> &mut T {
        if self.known.len() <= path.index() {
            self.grow(path);
        }
        &mut self.known[path.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_fresh_value_until_something_is_known() {
        let mut counts = PerPath::new(7);
        counts[PathId(2)] += 1;
        assert_eq!([0, 1, 2, 63].map(|path| counts[PathId(path)]), [7, 7, 8, 7]);
        assert_eq!(counts.iter().count(), 3);
    }
}
