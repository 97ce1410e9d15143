//! The agenda: the next event of each source, and the earliest of all.

use alloc::vec::Vec;

use skybraid_units::{Instant, Promised};

/// Entries per match. A scan of neighbours costs less than the mispredicted branches of a binary tree.
const WIDTH: usize = 1 << PLACE_BITS;
/// Bits of a key that hold the place in the match.
const PLACE_BITS: u32 = 4;
/// Entries of a match whose winner it keeps.
const GROUP: usize = 4;
/// Time of an entry that is never due, and the end of the agenda's range: 36 years.
const NEVER: u64 = u64::MAX >> PLACE_BITS;

/// The entries of a match: due time in nanoseconds, then the place in the match. The minimum is the winner, and among
/// entries due at the same instant the lowest place.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Match {
    keys: [u64; WIDTH],
    /// The winner of each group of neighbours: a change compares one group, and the winner is one of four.
    winners: [u64; WIDTH / GROUP],
}

impl Match {
    const EMPTY: Self = {
        let (mut keys, mut winners) = ([0; WIDTH], [0; WIDTH / GROUP]);
        let mut place = 0;
        while place < WIDTH {
            keys[place] = (NEVER << PLACE_BITS) | place as u64;
            place += 1;
        }
        let mut group = 0;
        while group < WIDTH / GROUP {
            winners[group] = keys[group * GROUP];
            group += 1;
        }
        Self { keys, winners }
    };

    /// Returns the key of the winner.
    #[inline]
    fn winner(&self) -> u64 {
        let [a, b, c, d] = self.winners;
        a.min(b).min(c.min(d))
    }

    /// Due time of the entry at `place`, as [`ticks`] has it.
    #[inline]
    const fn due(&self, place: usize) -> u64 {
        self.keys[place % WIDTH] >> PLACE_BITS
    }

    /// Sets the due time of the entry at `place`.
    #[inline]
    fn set(&mut self, place: usize, time: u64) {
        let place = place % WIDTH;
        self.keys[place] = (time << PLACE_BITS) | place as u64;
        let first = place - place % GROUP;
        let pair = |place: usize| self.keys[place].min(self.keys[place + 1]);
        self.winners[place / GROUP] = pair(first).min(pair(first + 2));
    }
}

/// Returns a due time in the unit of the keys: nanoseconds, at most [`NEVER`].
#[inline]
fn ticks(at: Instant) -> u64 {
    (at.as_nanos().max(0) as u64).min(NEVER)
}

/// Due time in a key.
#[inline]
const fn time_of(key: u64) -> Instant {
    match key >> PLACE_BITS {
        NEVER => Instant::FAR_FUTURE,
        nanos => Instant::from_nanos(nanos as i64),
    }
}

/// One due time per source of events, in a tournament tree of wide matches: a change costs one match per level above
/// the lowest, and small simulations have only one level. Among sources due at the same instant the lowest number is
/// first, so runs are reproducible.
#[derive(Debug)]
pub struct Agenda {
    /// Due times by source.
    lowest: Vec<Match>,
    /// Per level, the winners of the matches of the level below. The last level is a single match.
    upper: Vec<Vec<Match>>,
}

impl Agenda {
    /// Creates an agenda for `sources` sources, none of them due.
    pub fn new(sources: usize) -> Self {
        let matches = |entries: usize| alloc::vec![Match::EMPTY; entries.div_ceil(WIDTH).max(1)];
        let lowest = matches(sources);
        let mut upper = Vec::new();
        let mut below = lowest.len();
        while below > 1 {
            let level = matches(below);
            below = level.len();
            upper.push(level);
        }
        Self { lowest, upper }
    }

    /// Sets the due time of `source` unless it is due earlier.
    #[inline]
    pub fn set_earlier(&mut self, source: usize, at: Instant) {
        let entries = self.lowest.get(source / WIDTH).promised("a source of events");
        if entries.is_some_and(|entries| ticks(at) < entries.due(source % WIDTH)) {
            self.set(source, at);
        }
    }

    /// Sets the due time of `source`; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub fn set(&mut self, source: usize, at: Instant) {
        let time = ticks(at);
        let mut place = source / WIDTH;
        let Some(entries) = self.lowest.get_mut(place).promised("a source of events") else {
            return;
        };
        entries.set(source % WIDTH, time);
        if self.upper.is_empty() {
            return;
        }
        let mut winner = entries.winner() >> PLACE_BITS;
        for level in &mut self.upper {
            let entries = level.get_mut(place / WIDTH).promised("a match of the agenda");
            let Some(entries) = entries else { return };
            if entries.keys[place % WIDTH] >> PLACE_BITS == winner {
                return;
            }
            entries.set(place % WIDTH, winner);
            winner = entries.winner() >> PLACE_BITS;
            place /= WIDTH;
        }
    }

    /// Returns the source that is due first, with its due time.
    #[inline]
    pub fn next(&self) -> (usize, Instant) {
        let mut place = 0;
        for level in self.upper.iter().rev() {
            place = place_of_winner(level, place).0;
        }
        let (source, key) = place_of_winner(&self.lowest, place);
        (source, time_of(key))
    }
}

/// Returns the winner of match number `number`: its position in the level, and its key.
#[inline]
fn place_of_winner(level: &[Match], number: usize) -> (usize, u64) {
    let entries = level.get(number).promised("a match of the agenda");
    let key = entries.map_or(u64::MAX, Match::winner);
    (number * WIDTH + key as usize % WIDTH, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_earliest_source_is_next_and_ties_go_to_the_lowest(
            sources in 1usize..600,
            changes in proptest::collection::vec((0usize..600, 0i64..50, proptest::bool::ANY), 1..100)
        ) {
            let mut agenda = Agenda::new(sources);
            let mut due = alloc::vec![i64::MAX; sources];
            for (source, at, only_earlier) in changes {
                let source = source % sources;
                if only_earlier {
                    due[source] = due[source].min(at);
                    agenda.set_earlier(source, Instant::from_nanos(at));
                } else {
                    due[source] = at;
                    agenda.set(source, Instant::from_nanos(at));
                }
                let earliest = *due.iter().min().unwrap();
                let first = due.iter().position(|at| *at == earliest).unwrap();
                proptest::prop_assert_eq!(agenda.next(), (first, Instant::from_nanos(earliest)));
            }
        }
    }
}
