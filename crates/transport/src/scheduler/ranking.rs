//! Paths in order of preference, kept from decision to decision.

use alloc::vec::Vec;

use crate::{PathId, PathSet};

/// Ranks that are distinguished; a path of a higher one is used only without any of a lower one.
const RANKS: usize = 3;

/// Order of a connection's paths by a key. Only a path whose key has changed takes another place, so that a decision
/// between many paths costs little more than one between few.
#[derive(Debug)]
pub(super) struct Ranking<K> {
    /// Key of each path.
    keys: Vec<K>,
    /// Numbers of the paths in the order of their keys; of equals, the lower number comes first.
    order: Vec<u8>,
    /// Paths of each rank.
    open: [PathSet; RANKS],
}

impl<K: Copy + Ord> Ranking<K> {
    /// Creates the ranking of a connection whose paths are not known yet.
    pub const fn new() -> Self {
        Self { keys: Vec::new(), order: Vec::new(), open: [PathSet::EMPTY; RANKS] }
    }

    /// Key of a path; `None` for one that is not known.
    #[inline]
    pub fn key(&self, path: PathId) -> Option<K> {
        self.keys.get(path.index()).copied()
    }

    /// Sets the key and the rank of a path, which has none while it may not be used. A path that is not known yet must
    /// be the next by number.
    pub fn set(&mut self, path: PathId, key: K, rank: Option<usize>) {
        for (index, open) in self.open.iter_mut().enumerate() {
            *open = if rank == Some(index) { open.with(path) } else { open.without(path) };
        }
        let place = match self.key(path) {
            Some(before) => self.place(path, before),
            None => {
                self.keys.push(key);
                self.order.push(path.0);
                self.order.len() - 1
            }
        };
        self.keys[path.index()] = key;
        self.sort_in(place);
    }

    /// Place of a path in the order, by its key.
    fn place(&self, path: PathId, key: K) -> usize {
        let before = |other: &u8| (self.keys[usize::from(*other)], *other) < (key, path.0);
        self.order.partition_point(before)
    }

    /// Moves the path at `place`, whose key has changed, to where it belongs.
    fn sort_in(&mut self, mut place: usize) {
        let Self { keys, order, .. } = self;
        let of = |path: u8| (keys[usize::from(path)], path);
        while place > 0 && of(order[place]) < of(order[place - 1]) {
            order.swap(place, place - 1);
            place -= 1;
        }
        while place + 1 < order.len() && of(order[place + 1]) < of(order[place]) {
            order.swap(place, place + 1);
            place += 1;
        }
    }

    /// Returns the paths of the lowest rank that has one: those that are not in `carried_by`, or all if each is.
    #[inline]
    pub fn lowest_class(&self, carried_by: PathSet) -> PathSet {
        let open = self.open.iter().copied().find(|open| !open.is_empty()).unwrap_or_default();
        let untried = open.except(carried_by);
        if untried.is_empty() { open } else { untried }
    }

    /// Returns the paths of `set` in the order of their keys.
    #[inline]
    pub fn of(&self, set: PathSet) -> impl DoubleEndedIterator<Item = PathId> + '_ {
        self.order.iter().map(|path| PathId(*path)).filter(move |path| set.contains(*path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Seed;

    // Held against a search through all paths.
    #[test]
    fn the_order_follows_every_change_of_a_key_or_a_rank() {
        let mut stream = Seed(1).stream("ranking");
        let mut ranking = Ranking::new();
        let mut paths: Vec<(u64, Option<usize>)> = Vec::new();
        for round in 0..2_000 {
            let index = if round < 64 { round } else { stream.below(64) as usize };
            let rank = Some(stream.below(4) as usize).filter(|rank| *rank < RANKS);
            let path = (stream.below(8), rank);
            if index < paths.len() {
                paths[index] = path;
            } else {
                paths.push(path);
            }
            ranking.set(PathId(index as u8), path.0, path.1);
            let carried_by: PathSet =
                (0..64).filter(|_| stream.below(3) == 0).map(PathId).collect();
            let class = |index: usize| {
                let tried = usize::from(carried_by.contains(PathId(index as u8)));
                paths[index].1.map(|rank| 2 * rank + tried)
            };
            let lowest = (0..paths.len()).filter_map(class).min();
            let mut expected: Vec<usize> = (0..paths.len())
                .filter(|index| lowest.is_some() && class(*index) == lowest)
                .collect();
            expected.sort_by_key(|index| (paths[*index].0, *index));
            let found = ranking.of(ranking.lowest_class(carried_by)).map(PathId::index);
            assert_eq!(found.collect::<Vec<_>>(), expected, "round {round}");
        }
    }
}
