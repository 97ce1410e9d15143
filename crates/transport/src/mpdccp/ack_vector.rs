//! Ack vectors: which of the newest packets have arrived.
//!
//! Source: RFC 4340 §11.4 (options 38 and 39).

/// Number of packets that a vector covers.
pub const COVERED: u64 = 256;
/// Maximum cells of one option.
const CELLS_PER_OPTION: usize = 253;
const WORDS: usize = 4;

/// Ack vector of the newest 256 packets. Older packets are not covered: one that was not reported
/// by then counts as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckVector {
    /// Number of the newest received packet; 0 for none.
    newest: u64,
    /// Bit n is packet `newest - n`.
    bits: [u64; WORDS],
}

/// Position of an inserted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// After the newest, with this many missing in between.
    Ahead(u64),
    /// Among the missing packets.
    Filled,
    /// Received before, or too old.
    Known,
}

impl AckVector {
    /// The empty vector.
    pub const EMPTY: Self = Self { newest: 0, bits: [0; WORDS] };

    /// Number of the newest received packet; 0 for none.
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// Records a received packet; numbers start at 1.
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

    /// Merges another vector of the same packets. Returns the newly reported packets.
    pub fn merge(&mut self, other: &Self) -> Self {
        let mut other = *other;
        if other.newest >= self.newest {
            self.bits = shifted(&self.bits, other.newest - self.newest);
            self.newest = other.newest;
        } else {
            other.bits = shifted(&other.bits, self.newest - other.newest);
            other.newest = self.newest;
        }
        for (own, reported) in self.bits.iter_mut().zip(&mut other.bits) {
            *reported &= !*own;
            *own |= *reported;
        }
        other
    }

    /// Returns the number of the `n`-th newest received packet, from 1; 0 if fewer are covered.
    #[inline]
    pub fn nth_newest(&self, n: u32) -> u64 {
        let run = self.bits[0].trailing_ones();
        if run >= n {
            return self.newest + 1 - u64::from(n);
        }
        self.iter().nth(n.saturating_sub(1) as usize).unwrap_or(0)
    }

    /// Returns the numbers of the received packets, newest first.
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

    /// True if no packet is reported.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// Returns the cells of the option: state in two bits (0 received, 3 not received), run length
    /// less one in six bits, the newest packet first.
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

    /// Parses [`cells`](Self::cells). Returns `None` if they cover more packets than exist or more
    /// than 256, or contain another state.
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

    /// Size in bytes, as one option or several.
    pub fn wire_bytes(&self) -> u32 {
        let cells = self.cells().count();
        (cells + 2 * cells.div_ceil(CELLS_PER_OPTION)) as u32
    }

    /// Appends the options to `out`.
    pub fn write(&self, out: &mut alloc::vec::Vec<u8>) {
        let cells: alloc::vec::Vec<u8> = self.cells().collect();
        for part in cells.chunks(CELLS_PER_OPTION) {
            out.extend([38, 2 + part.len() as u8]);
            out.extend(part);
        }
    }
}

/// Returns the bits shifted up by `by` places.
fn shifted(bits: &[u64; WORDS], by: u64) -> [u64; WORDS] {
    if by == 0 {
        return *bits;
    }
    if by < 64 {
        let mut below = 0;
        return bits.map(|word| {
            let shifted = word << by | below;
            below = word >> (64 - by);
            shifted
        });
    }
    let mut out = [0; WORDS];
    let (words, places) = ((by / 64) as usize, (by % 64) as u32);
    if by < COVERED {
        for (index, slot) in out.iter_mut().enumerate().skip(words) {
            let at =
                |index: Option<usize>| index.and_then(|word| bits.get(word)).copied().unwrap_or(0);
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
    fn insertions_report_gaps_and_repetitions() {
        let mut vector = AckVector::EMPTY;
        assert_eq!(vector.insert(1), Place::Ahead(0));
        assert_eq!(vector.insert(5), Place::Ahead(3));
        assert_eq!(vector.insert(3), Place::Filled);
        assert_eq!(vector.insert(3), Place::Known);
        assert_eq!(vector.iter().collect::<Vec<_>>(), [5, 3, 1]);
    }

    // Source: RFC 4340 §11.4, whose example has runs of received (0), lost (3) and received (0)
    // packets: here the newest 10, then 2 lost, then 70 received.
    #[test]
    fn runs_are_written_as_cells_of_up_to_64_packets() {
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
    fn alternating_losses_take_two_options() {
        let mut vector = AckVector::EMPTY;
        for sequence in (1..=999).step_by(2) {
            vector.insert(sequence);
        }
        assert_eq!(vector.cells().count(), 256);
        assert_eq!(vector.wire_bytes(), 260);
    }

    proptest::proptest! {
        #[test]
        fn a_vector_and_its_cells_cover_the_last_256_packets(
            steps in proptest::collection::vec(1u64..90, 1..80),
            late in proptest::collection::vec(1u64..2000, 0..40),
        ) {
            let (mut vector, mut model, mut at) = (AckVector::EMPTY, BTreeSet::new(), 0);
            for step in steps {
                at += step;
                vector.insert(at);
                model.insert(at);
            }
            for sequence in late.into_iter().filter(|sequence| *sequence <= at) {
                vector.insert(sequence);
                model.insert(sequence);
            }
            let cells: Vec<u8> = vector.cells().collect();
            proptest::prop_assert_eq!(AckVector::from_cells(at, &cells), Some(vector));
            let covered = at.min(COVERED);
            model.retain(|sequence| *sequence > at - covered);
            let reported: Vec<u64> = vector.iter().collect();
            proptest::prop_assert_eq!(reported, model.iter().rev().copied().collect::<Vec<_>>());
            let mut states = vec![];
            for cell in vector.cells() {
                states.extend((0..=cell & 63).map(|_| cell >> 6 == 0));
            }
            let expected: Vec<bool> = (0..covered).map(|age| model.contains(&(at - age))).collect();
            proptest::prop_assert_eq!(states, expected);
        }

        #[test]
        fn merged_vectors_report_each_packet_once(
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
            let (mut known, mut reported) = (AckVector::EMPTY, BTreeSet::new());
            for vector in &vectors {
                for sequence in known.merge(vector).iter() {
                    proptest::prop_assert!(reported.insert(sequence));
                }
            }
        }
    }
}
