//! Gaussian elimination over the datagrams that are missing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::Promised;
use skybraid_units::field::{add_product, inverse, product};

use super::{MAX_COVERED, REMEMBERED, coefficients, datagram_of, head_of};
use crate::segment::{Datagram, REPAIR_HEAD, Repair};

/// Maximum equations that wait for further packets; beyond that the oldest is dropped.
const MAX_ROWS: usize = 256;

/// A recovered datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The datagram.
    pub datagram: Datagram,
    /// Payload of the datagram; empty if payloads were not decoded.
    pub payload: Vec<u8>,
}

/// Receiver of coded datagrams.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// Sequence number of the first element of `known`.
    start: u64,
    /// Symbols of the newest datagrams, a head and the payload after it.
    known: VecDeque<Option<Vec<u8>>>,
    /// Equations in reduced echelon form: no row has the first term of another.
    rows: Vec<Row>,
}

/// The sum of `terms` is `symbol`.
#[derive(Clone, Debug)]
struct Row {
    /// Missing datagrams in ascending order, with coefficients other than zero.
    terms: Vec<(u64, u8)>,
    symbol: Vec<u8>,
}

impl Row {
    fn coefficient(&self, sequence: u64) -> Option<u8> {
        let found = self.terms.binary_search_by_key(&sequence, |term| term.0).ok()?;
        self.terms.get(found).map(|term| term.1)
    }

    /// Adds `bytes` times `coefficient`.
    fn add_symbol(&mut self, bytes: &[u8], coefficient: u8) {
        if self.symbol.len() < bytes.len() {
            self.symbol.resize(bytes.len(), 0);
        }
        add_product(&mut self.symbol, bytes, coefficient);
    }

    /// Adds `other` times `coefficient`.
    fn add(&mut self, other: &Self, coefficient: u8) {
        for (sequence, factor) in &other.terms {
            let added = product(*factor, coefficient);
            match self.terms.binary_search_by_key(sequence, |term| term.0) {
                Ok(at) => self.terms[at].1 ^= added,
                Err(at) => self.terms.insert(at, (*sequence, added)),
            }
        }
        self.terms.retain(|term| term.1 != 0);
        self.add_symbol(&other.symbol, coefficient);
    }

    /// Divides the row by `divisor`.
    fn divide(&mut self, divisor: u8) {
        let factor = inverse(divisor);
        self.terms.iter_mut().for_each(|term| term.1 = product(term.1, factor));
        self.symbol.iter_mut().for_each(|byte| *byte = product(*byte, factor));
    }
}

impl Decoder {
    /// Records a datagram that arrived, and passes on those recovered by it.
    pub fn on_datagram(
        &mut self,
        datagram: &Datagram,
        payload: &[u8],
        take: &mut dyn FnMut(Recovered),
    ) {
        let symbol = [&head_of(datagram), payload].concat();
        if self.store(datagram.sequence, symbol) {
            let solved = |row: &mut Row| row.coefficient(datagram.sequence).is_some();
            let rows: Vec<Row> = self.rows.extract_if(.., solved).collect();
            rows.into_iter().for_each(|row| self.insert(row, take));
        }
    }

    /// Handles a repair packet, and passes on the datagrams recovered by it.
    pub fn on_repair(&mut self, repair: &Repair, payload: &[u8], take: &mut dyn FnMut(Recovered)) {
        let count = u64::from(repair.count);
        let Some(end) = repair.first.checked_add(count) else { return };
        if count == 0 || count > MAX_COVERED || !self.make_room(end - 1) {
            return;
        }
        let terms = (repair.first..end).zip(coefficients(repair.key)).collect();
        self.insert(Row { terms, symbol: [&repair.head, payload].concat() }, take);
    }

    /// Makes room for a datagram, for which older ones are forgotten. False if it is forgotten itself.
    fn make_room(&mut self, sequence: u64) -> bool {
        let first = (sequence + 1).saturating_sub(REMEMBERED as u64);
        if first > self.start {
            let forgotten = usize::try_from(first - self.start).unwrap_or(usize::MAX);
            self.known.drain(..forgotten.min(self.known.len()));
            self.start = first;
            self.rows.retain(|row| row.terms.first().is_some_and(|term| term.0 >= first));
        }
        sequence >= self.start
    }

    fn symbol(&self, sequence: u64) -> Option<&Vec<u8>> {
        self.known.get(usize::try_from(sequence.checked_sub(self.start)?).ok()?)?.as_ref()
    }

    /// Stores the symbol of a datagram. False if it was known or is forgotten.
    fn store(&mut self, sequence: u64, symbol: Vec<u8>) -> bool {
        if !self.make_room(sequence) || self.symbol(sequence).is_some() {
            return false;
        }
        let place = (sequence - self.start) as usize;
        if self.known.len() <= place {
            self.known.resize(place + 1, None);
        }
        if let Some(stored) = self.known.get_mut(place).promised("the place of a symbol") {
            *stored = Some(symbol);
        }
        true
    }

    /// Adds an equation, and passes on what it solves.
    fn insert(&mut self, mut row: Row, take: &mut dyn FnMut(Recovered)) {
        let terms = core::mem::take(&mut row.terms);
        for (sequence, coefficient) in terms {
            if sequence < self.start {
                return;
            }
            match self.symbol(sequence) {
                Some(symbol) => row.add_symbol(symbol, coefficient),
                None => row.terms.push((sequence, coefficient)),
            }
        }
        for other in &self.rows {
            let first = other.terms.first().map(|term| term.0);
            if let Some(coefficient) = first.and_then(|first| row.coefficient(first)) {
                row.add(other, coefficient);
            }
        }
        let Some((first, divisor)) = row.terms.first().copied() else { return };
        row.divide(divisor);
        for other in &mut self.rows {
            if let Some(coefficient) = other.coefficient(first) {
                other.add(&row, coefficient);
            }
        }
        if self.rows.len() == MAX_ROWS {
            self.rows.remove(0);
        }
        self.rows.push(row);
        let solved: Vec<Row> = self.rows.extract_if(.., |row| row.terms.len() == 1).collect();
        for Row { terms, symbol } in solved {
            let Some((sequence, _)) = terms.first() else { continue };
            if let Some(recovered) = recovered(*sequence, &symbol)
                && self.store(*sequence, symbol)
            {
                take(recovered);
            }
        }
    }
}

/// Returns the datagram of a symbol; `None` if it cannot be one.
fn recovered(sequence: u64, symbol: &[u8]) -> Option<Recovered> {
    let (head, padded) = symbol.split_first_chunk::<REPAIR_HEAD>()?;
    let datagram = datagram_of(sequence, *head)?;
    // Without payloads the symbol ends with the head.
    let payload = if padded.is_empty() { padded } else { padded.get(..datagram.len as usize)? };
    Some(Recovered { datagram, payload: payload.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::super::Encoder;
    use super::*;
    use alloc::vec;
    use skybraid_units::{Seed, Stream};

    fn datagram(sequence: u64, len: u32) -> Datagram {
        let message = (sequence as u32).wrapping_mul(7919);
        Datagram { sequence, message, len, fragment: 2, fragments: 9 }
    }

    fn payload(sequence: u64, len: u32) -> Vec<u8> {
        (0..len).map(|place| (sequence as u8).wrapping_mul(31) ^ place as u8).collect()
    }

    /// Returns the payload of a repair packet over datagrams of these lengths.
    fn coded(repair: &Repair, len: impl Fn(u64) -> u32) -> Vec<u8> {
        let mut sum = vec![0; repair.len as usize];
        let covered = repair.first..repair.first + u64::from(repair.count);
        for (sequence, coefficient) in covered.zip(coefficients(repair.key)) {
            add_product(&mut sum, &payload(sequence, len(sequence)), coefficient);
        }
        sum
    }

    fn encoder(datagrams: u64, len: impl Fn(u64) -> u32) -> Encoder {
        let mut encoder = Encoder::default();
        (0..datagrams).for_each(|sequence| encoder.on_sent(datagram(sequence, len(sequence))));
        encoder
    }

    /// Returns the rank of a matrix by elimination without any of the decoder's bookkeeping.
    fn rank(mut matrix: Vec<Vec<u8>>) -> usize {
        let columns = matrix.first().map_or(0, Vec::len);
        let mut rank = 0;
        for column in 0..columns {
            let Some(pivot) = (rank..matrix.len()).find(|row| matrix[*row][column] != 0) else {
                continue;
            };
            matrix.swap(rank, pivot);
            for row in rank + 1..matrix.len() {
                let factor = product(matrix[row][column], inverse(matrix[rank][column]));
                let pivot = matrix[rank].clone();
                add_product(&mut matrix[row], &pivot, factor);
            }
            rank += 1;
        }
        rank
    }

    // Every loss pattern of 6 datagrams and 4 repair packets over windows that slide, against the
    // rank of the full matrix: all are recovered where the missing ones' columns have full rank.
    #[test]
    fn recovery_is_that_of_full_elimination() {
        let len = |sequence: u64| 10 + 3 * sequence as u32;
        let windows = [(0, 3), (1, 4), (2, 5), (0, 5)];
        let mut encoder = encoder(6, len);
        let repairs = windows.map(|(first, last)| encoder.repair(first, last).unwrap());
        let (mut whole, mut part) = (0, 0);
        for lost in 0..1_u32 << 10 {
            let here = |place: usize| lost >> place & 1 == 0;
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for sequence in (0..6).filter(|sequence| here(*sequence as usize)) {
                let bytes = payload(sequence, len(sequence));
                decoder.on_datagram(&datagram(sequence, len(sequence)), &bytes, &mut |_| {
                    unreachable!("no repair packet yet")
                });
            }
            let columns: Vec<usize> = (0..6).filter(|column| !here(*column)).collect();
            let mut matrix = Vec::new();
            let arrived = repairs.iter().enumerate().filter(|(number, _)| here(6 + number));
            for (number, repair) in arrived {
                decoder
                    .on_repair(repair, &coded(repair, len), &mut |datagram| found.push(datagram));
                let (first, last) = windows[number];
                let mut row = [0; 6];
                for (sequence, coefficient) in (first..=last).zip(coefficients(repair.key)) {
                    row[sequence as usize] = coefficient;
                }
                matrix.push(columns.iter().map(|column| row[*column]).collect::<Vec<_>>());
            }
            let missing = columns.len();
            // A datagram is determined if a unit vector of its column does not add to the rank.
            let full = rank(matrix.clone());
            let determined = (0..missing).filter(|column| {
                let unit = (0..missing).map(|number| u8::from(number == *column)).collect();
                rank([matrix.clone(), vec![unit]].concat()) == full
            });
            assert_eq!(found.len(), determined.count(), "{lost:010b}");
            for Recovered { datagram: recovered, payload: bytes } in &found {
                assert_eq!(*recovered, datagram(recovered.sequence, len(recovered.sequence)));
                assert_eq!(*bytes, payload(recovered.sequence, len(recovered.sequence)));
            }
            whole += u32::from(missing > 0 && found.len() == missing);
            part += u32::from(!found.is_empty() && found.len() < missing);
        }
        assert!(whole > 100 && part > 10, "{whole} {part}");
    }

    /// Returns how many of `rounds` runs of `missing` datagrams are recovered by as many repair
    /// packets.
    fn recovered_runs(missing: u64, rounds: u32) -> u32 {
        let len = |_| 0;
        let mut encoder = encoder(missing, len);
        (0..rounds)
            .filter(|_| {
                let (mut decoder, mut found) = (Decoder::default(), 0);
                for _ in 0..missing {
                    let repair = encoder.repair(0, missing - 1).unwrap();
                    decoder.on_repair(&repair, &[], &mut |_| found += 1);
                }
                found == missing
            })
            .count() as u32
    }

    // Counting matrices over GF(q) without a zero that are singular, after their first row and
    // column are scaled to 1: of 1 × 1 none; of 2 × 2 one of q − 1; of 3 × 3 with N(p) pairs of the
    // other elements with product p, Σ N(p)² = (2q − 3)² + (q − 2)² + (q − 2)(q − 3)² of (q − 1)⁴.
    #[test]
    fn random_codes_fail_as_often_as_counting_says() {
        let q = 256.0_f64;
        let three = ((2.0 * q - 3.0).powi(2) + (q - 2.0).powi(2) + (q - 2.0) * (q - 3.0).powi(2))
            / (q - 1.0).powi(4);
        for (missing, singular) in [(1, 0.0), (2, 1.0 / (q - 1.0)), (3, three)] {
            let rounds = 20_000;
            let failed = f64::from(rounds - recovered_runs(missing, rounds));
            let expected = singular * f64::from(rounds);
            assert!((failed - expected).abs() <= 4.0 * expected.sqrt(), "{missing}: {failed}");
        }
    }

    fn any_repair(random: &mut Stream) -> Repair {
        let head = core::array::from_fn(|_| random.next_u64() as u8);
        let (first, count) = (random.below(3000), random.below(256) as u8);
        Repair { first, count, key: random.next_u64() as u16, head, len: 9 }
    }

    #[test]
    fn whatever_arrives_memory_is_bounded() {
        let mut random = Seed(8681).stream("any");
        let (mut decoder, mut found) = (Decoder::default(), 0);
        for _ in 0..20_000 {
            if random.below(2) == 0 {
                let sequence = random.below(3000);
                decoder.on_datagram(&datagram(sequence, 9), &[1; 9], &mut |_| found += 1);
            } else {
                decoder.on_repair(&any_repair(&mut random), &[2; 9], &mut |_| found += 1);
            }
            assert!(decoder.rows.len() <= MAX_ROWS && decoder.known.len() <= REMEMBERED);
        }
        decoder.on_datagram(&datagram(u64::MAX - 1, 9), &[1; 9], &mut |_| found += 1);
        assert!(decoder.rows.is_empty());
    }
}
