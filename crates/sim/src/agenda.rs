//! The agenda: the next event of each source, and the earliest of all.

use alloc::vec::Vec;
use core::hint::select_unpredictable;

use skybraid_units::{Instant, Promised};

/// Entries per match. A scan of so many neighbours costs less than the mispredicted branches of a binary tree.
const WIDTH: usize = 16;

/// One due time per source of events, in a tournament tree of wide matches: a change costs one match per level above
/// the lowest, and small simulations have only one level. Among sources due at the same instant the lowest number is
/// first, so runs are reproducible.
#[derive(Debug)]
pub struct Agenda {
    /// Due times by source; then, per level, the earliest time of each match of the level below. The last level is
    /// a single match.
    levels: Vec<Vec<Instant>>,
}

impl Agenda {
    /// Creates an agenda for `sources` sources, none of them due.
    pub fn new(sources: usize) -> Self {
        let mut levels = Vec::new();
        let mut entries = sources;
        loop {
            levels.push(alloc::vec![Instant::FAR_FUTURE; entries]);
            if entries <= WIDTH {
                return Self { levels };
            }
            entries = entries.div_ceil(WIDTH);
        }
    }

    /// Due time of `source`.
    #[inline]
    pub fn due(&self, source: usize) -> Instant {
        let lowest = self.levels.first();
        let due = lowest.and_then(|due| due.get(source)).promised("a source of events");
        due.copied().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Sets the due time of `source`; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub fn set(&mut self, source: usize, at: Instant) {
        let Some((due, above)) = self.levels.split_first_mut().promised("a level") else { return };
        let Some(slot) = due.get_mut(source).promised("a source of events") else { return };
        *slot = at;
        let (mut below, mut place) = (due, source / WIDTH);
        for level in above {
            let earliest = first_of(below, place).1;
            let Some(slot) = level.get_mut(place).promised("a match of the agenda") else { return };
            if *slot == earliest {
                return;
            }
            *slot = earliest;
            (below, place) = (level, place / WIDTH);
        }
    }

    /// Returns the source that is due first, with its due time.
    #[inline]
    pub fn next(&self) -> (usize, Instant) {
        let (mut place, mut at) = (0, Instant::FAR_FUTURE);
        for level in self.levels.iter().rev() {
            (place, at) = first_of(level, place);
        }
        (place, at)
    }
}

/// Returns the winner of a match: its position in the level and its due time.
#[inline]
fn first_of(level: &[Instant], game: usize) -> (usize, Instant) {
    let start = game * WIDTH;
    let entries = level.get(start..level.len().min(start + WIDTH));
    let entries = entries.promised("a match of the agenda").unwrap_or_default();
    let (mut winner, mut earliest) = (start, Instant::FAR_FUTURE);
    for (place, at) in entries.iter().enumerate() {
        // Selected without branches: the order of the sources is unpredictable.
        let earlier = *at < earliest;
        winner = select_unpredictable(earlier, start + place, winner);
        earliest = select_unpredictable(earlier, *at, earliest);
    }
    (winner, earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_earliest_source_is_next_and_ties_go_to_the_lowest(
            sources in 1usize..600,
            changes in proptest::collection::vec((0usize..600, 0i64..50), 1..100)
        ) {
            let mut agenda = Agenda::new(sources);
            let mut due = alloc::vec![i64::MAX; sources];
            for (source, at) in changes {
                let source = source % sources;
                due[source] = at;
                agenda.set(source, Instant::from_nanos(at));
                let earliest = *due.iter().min().unwrap();
                let first = due.iter().position(|at| *at == earliest).unwrap();
                proptest::prop_assert_eq!(agenda.next(), (first, Instant::from_nanos(earliest)));
            }
        }
    }
}
