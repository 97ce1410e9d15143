//! Ack vectors: which of the newest packets have arrived.
//!
//! Source: RFC 4340 §11.4 (options 38 and 39).

/// How many packets a vector tells of.
pub const COVERED: u64 = 256;
/// Bytes of cells that fit into one option.
const CELLS_PER_OPTION: usize = 253;
const WORDS: usize = 4;

/// Which of the newest 256 packets have arrived. What is older is forgotten: a packet that has not
/// been told of by then counts as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckVector {
    /// Number of the newest packet that has arrived; 0 for none.
    newest: u64,
    /// Bit n stands for packet `newest - n`.
    bits: [u64; WORDS],
}

/// What an insertion found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind the newest, with this many missing between.
    Ahead(u64),
    /// Among those that were missing.
    Filled,
    /// Known already, or too old to tell.
    Known,
}

impl AckVector {
    /// Nothing has arrived.
    pub const EMPTY: Self = Self { newest: 0, bits: [0; WORDS] };

    /// Number of the newest packet that has arrived; 0 for none.
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// Takes note of a packet, numbered from 1.
    pub fn insert(&mut self, sequence: u64) -> Place {
        if sequence > self.newest {
            let ahead = sequence - self.newest;
            self.bits = shifted(&self.bits, ahead);
            self.bits[0] |= 1;
            self.newest = sequence;
            return Place::Ahead(ahead - 1);
        }
        let age = self.newest - sequence;
        let Some(word) = self.bits.get_mut((age / 64) as usize) else {
            return Place::Known;
        };
        let bit = 1 << (age % 64);
        if *word & bit != 0 {
            return Place::Known;
        }
        *word |= bit;
        Place::Filled
    }

    /// Takes in what another vector of the same packets tells, and returns what was new.
    pub fn merge(&mut self, other: &Self) -> Self {
        let mut other = *other;
        if other.newest >= self.newest {
            self.bits = shifted(&self.bits, other.newest - self.newest);
            self.newest = other.newest;
        } else {
            other.bits = shifted(&other.bits, self.newest - other.newest);
            other.newest = self.newest;
        }
        for (own, told) in self.bits.iter_mut().zip(&mut other.bits) {
            *told &= !*own;
            *own |= *told;
        }
        other
    }

    /// Numbers of the packets that have arrived, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.bits.iter().enumerate().flat_map(move |(index, word)| {
            let first = self.newest.saturating_sub(64 * index as u64);
            let mut left = *word;
            core::iter::from_fn(move || {
                let age = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(first.saturating_sub(u64::from(age)))
            })
        })
    }

    /// True when no packet is told of.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// The cells of the option: state in two bits (0 received, 3 not received), length of the run
    /// less one in six, the newest packet first.
    pub fn cells(&self) -> impl Iterator<Item = u8> + '_ {
        let covered = self.newest.min(COVERED) as u32;
        let mut place = 0;
        core::iter::from_fn(move || {
            if place >= covered {
                return None;
            }
            let (word, offset) = ((place / 64) as usize, place % 64);
            let at = |index: usize| self.bits.get(index).copied().unwrap_or(0);
            let above = at(word + 1).checked_shl(64 - offset).unwrap_or(0);
            let window = (at(word) >> offset) | above;
            let received = window & 1 != 0;
            let run = if received { window.trailing_ones() } else { window.trailing_zeros() };
            let run = run.min(64).min(covered - place);
            place += run;
            Some(if received { 0 } else { 0xc0 } | (run - 1) as u8)
        })
    }

    /// The vector that [`cells`](Self::cells) tells of; `None` where they tell of more packets than
    /// there are, of more than 256, or of a state that no cell has here.
    pub fn from_cells(newest: u64, cells: &[u8]) -> Option<Self> {
        let mut vector = Self { newest, bits: [0; WORDS] };
        let mut place = 0;
        for cell in cells {
            let run = u64::from(cell & 63) + 1;
            if place + run > newest.min(COVERED) {
                return None;
            }
            match cell >> 6 {
                0 => {
                    for age in place..place + run {
                        *vector.bits.get_mut((age / 64) as usize)? |= 1 << (age % 64);
                    }
                }
                3 => {}
                _ => return None,
            }
            place += run;
        }
        Some(vector)
    }

    /// Bytes that the vector takes as one option, or as several if it is long.
    pub fn wire_bytes(&self) -> u32 {
        let cells = self.cells().count();
        (cells + 2 * cells.div_ceil(CELLS_PER_OPTION)) as u32
    }

    /// Writes the options.
    pub fn write(&self, out: &mut alloc::vec::Vec<u8>) {
        let cells: alloc::vec::Vec<u8> = self.cells().collect();
        for part in cells.chunks(CELLS_PER_OPTION) {
            out.extend([38, 2 + part.len() as u8]);
            out.extend(part);
        }
    }
}

/// The bits moved up by `by` places.
fn shifted(bits: &[u64; WORDS], by: u64) -> [u64; WORDS] {
    if by == 0 {
        return *bits;
    }
    let mut out = [0; WORDS];
    let (words, places) = ((by / 64) as usize, (by % 64) as u32);
    if by < COVERED {
        for (index, slot) in out.iter_mut().enumerate().skip(words) {
            let at = |index: Option<usize>| index.and_then(|it| bits.get(it)).copied().unwrap_or(0);
            let from = index - words;
            let below = at(from.checked_sub(1)).checked_shr(64 - places).unwrap_or(0);
            *slot = (at(Some(from)) << places) | below;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn insertions_tell_of_gaps_and_of_repetitions() {
        let mut vector = AckVector::EMPTY;
        assert_eq!(vector.insert(1), Place::Ahead(0));
        assert_eq!(vector.insert(5), Place::Ahead(3));
        assert_eq!(vector.insert(3), Place::Filled);
        assert_eq!(vector.insert(3), Place::Known);
        assert_eq!(vector.iter().collect::<Vec<_>>(), [5, 3, 1]);
    }

    // Source: RFC 4340 §11.4, whose example is the vector of packets received (0), lost (3) and
    // received (0): here the newest 10, then 2 lost, then 70 received.
    #[test]
    fn runs_are_written_as_cells_of_up_to_sixty_four() {
        let mut vector = AckVector::EMPTY;
        for sequence in (1..=70).chain(73..=82) {
            vector.insert(sequence);
        }
        assert_eq!(vector.cells().collect::<Vec<_>>(), [9, 0xc1, 63, 5]);
        let mut bytes = Vec::new();
        vector.write(&mut bytes);
        assert_eq!(bytes, [38, 6, 9, 0xc1, 63, 5]);
        assert_eq!(vector.wire_bytes(), 6);
    }

    #[test]
    fn every_second_packet_lost_takes_two_options() {
        let mut vector = AckVector::EMPTY;
        for sequence in (1..=999).step_by(2) {
            vector.insert(sequence);
        }
        assert_eq!(vector.cells().count(), 256);
        assert_eq!(vector.wire_bytes(), 260);
    }

    proptest::proptest! {
        #[test]
        fn a_vector_knows_the_last_256_packets_and_cells_tell_the_same(
            steps in proptest::collection::vec(1u64..90, 1..80),
            late in proptest::collection::vec(1u64..2000, 0..40),
        ) {
            let (mut vector, mut model, mut at) = (AckVector::EMPTY, BTreeSet::new(), 0);
            for step in steps {
                at += step;
                vector.insert(at);
                model.insert(at);
            }
            for sequence in late.into_iter().filter(|it| *it <= at) {
                vector.insert(sequence);
                model.insert(sequence);
            }
            let cells: Vec<u8> = vector.cells().collect();
            proptest::prop_assert_eq!(AckVector::from_cells(at, &cells), Some(vector));
            let covered = at.min(COVERED);
            model.retain(|it| *it > at - covered);
            let told: Vec<u64> = vector.iter().collect();
            proptest::prop_assert_eq!(told, model.iter().rev().copied().collect::<Vec<_>>());
            let mut states = vec![];
            for cell in vector.cells() {
                states.extend((0..=cell & 63).map(|_| cell >> 6 == 0));
            }
            let expected: Vec<bool> = (0..covered).map(|age| model.contains(&(at - age))).collect();
            proptest::prop_assert_eq!(states, expected);
        }

        #[test]
        fn merging_vectors_tells_each_packet_once(
            sequences in proptest::collection::vec(1u64..600, 1..200),
            cuts in proptest::collection::vec(0usize..200, 1..6),
        ) {
            let (mut vectors, mut vector) = (vec![], AckVector::EMPTY);
            for (index, sequence) in sequences.iter().enumerate() {
                vector.insert(*sequence);
                if cuts.contains(&index) {
                    vectors.push(vector);
                }
            }
            vectors.reverse();
            let (mut known, mut told) = (AckVector::EMPTY, BTreeSet::new());
            for vector in &vectors {
                for sequence in known.merge(vector).iter() {
                    proptest::prop_assert!(told.insert(sequence));
                }
            }
        }
    }
}
