//! The agenda: which source of events is due next.

use alloc::vec::Vec;
use core::hint::select_unpredictable;

use skybraid_units::Instant;

/// How many entries compete in one match. Looking through so many neighbours costs less than the
/// mispredicted branches of a binary tree.
const WIDTH: usize = 16;

/// One due time per source of events, in a tournament of wide matches: a change costs one match per
/// level above the lowest, and small simulations have one level only. Sources that are due at the
/// same instant take turns in order of their numbers, so that runs repeat.
#[derive(Debug)]
pub struct Agenda {
    /// Due times by source, then the earliest of each match of the level below, and so on; the last
    /// level is a single match.
    levels: Vec<Vec<Instant>>,
}

impl Agenda {
    /// An agenda for `sources` sources, none of them due.
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

    /// When `source` is due.
    #[inline]
    pub fn due(&self, source: usize) -> Instant {
        let lowest = self.levels.first();
        lowest.and_then(|due| due.get(source)).copied().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Lets `source` be due at `at`; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub fn set(&mut self, source: usize, at: Instant) {
        let Some((due, above)) = self.levels.split_first_mut() else { return };
        let Some(slot) = due.get_mut(source) else { return };
        *slot = at;
        let (mut below, mut place) = (due, source / WIDTH);
        for level in above {
            let earliest = first_of(below, place).1;
            let Some(slot) = level.get_mut(place) else { return };
            if *slot == earliest {
                return;
            }
            *slot = earliest;
            (below, place) = (level, place / WIDTH);
        }
    }

    /// The source that is due first, and when.
    #[inline]
    pub fn next(&self) -> (usize, Instant) {
        let (mut place, mut at) = (0, Instant::FAR_FUTURE);
        for level in self.levels.iter().rev() {
            (place, at) = first_of(level, place);
        }
        (place, at)
    }
}

/// The winner of a match: its place in the level, and when it is due.
#[inline]
fn first_of(level: &[Instant], game: usize) -> (usize, Instant) {
    let start = game * WIDTH;
    let entries = level.get(start..level.len().min(start + WIDTH)).unwrap_or_default();
    let (mut winner, mut earliest) = (start, Instant::FAR_FUTURE);
    for (place, at) in entries.iter().enumerate() {
        // Which source comes next follows no pattern that a branch predictor could learn.
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
        fn the_earliest_source_is_next_and_ties_go_to_the_lowest_number(
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
