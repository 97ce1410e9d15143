//! The agenda: which source of events is due next.

use alloc::vec::Vec;

use skybraid_units::Instant;

/// One due time per source of events, in a tournament tree: the earliest stands at the top, and a
/// change costs one match per level. Sources that are due at the same instant take turns in order of
/// their numbers, so that runs repeat.
#[derive(Debug)]
pub struct Agenda {
    due: Vec<Instant>,
    /// Winners; the children of node n are 2n and 2n + 1, and the leaves stand behind the last node.
    winners: Vec<u32>,
    leaves: usize,
}

impl Agenda {
    /// An agenda for `sources` sources, none of them due.
    pub fn new(sources: usize) -> Self {
        let leaves = sources.next_power_of_two().max(2);
        let mut winners: Vec<u32> = alloc::vec![0; leaves];
        winners.extend(0..leaves as u32);
        let mut agenda = Self { due: alloc::vec![Instant::FAR_FUTURE; leaves], winners, leaves };
        for node in (1..leaves).rev() {
            agenda.play(node);
        }
        agenda
    }

    /// When `source` is due.
    #[inline]
    pub fn due(&self, source: usize) -> Instant {
        self.due.get(source).copied().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Lets `source` be due at `at`; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub fn set(&mut self, source: usize, at: Instant) {
        let Some(due) = self.due.get_mut(source) else {
            return;
        };
        if *due == at {
            return;
        }
        *due = at;
        let mut node = (source + self.leaves) / 2;
        while node > 0 {
            self.play(node);
            node /= 2;
        }
    }

    #[inline]
    fn play(&mut self, node: usize) {
        let contender = |child: usize| self.winners.get(child).copied().unwrap_or(0);
        let (left, right) = (contender(2 * node), contender(2 * node + 1));
        let winner = if self.due(right as usize) < self.due(left as usize) { right } else { left };
        if let Some(slot) = self.winners.get_mut(node) {
            *slot = winner;
        }
    }

    /// The source that is due first, and when.
    #[inline]
    pub fn next(&self) -> (usize, Instant) {
        let source = self.winners.get(1).copied().unwrap_or(0) as usize;
        (source, self.due(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_earliest_source_is_next_and_ties_go_to_the_lowest_number(
            sources in 1usize..20,
            changes in proptest::collection::vec((0usize..20, 0i64..50), 1..100)
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
