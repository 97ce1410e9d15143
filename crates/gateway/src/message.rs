//! Message header within a class: channel, time of writing, and fragment.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | the channel's number; bit 7: it is a part of a larger one |
//! | 4 | when it reached the sender's machine, by the sender's clock: microseconds, modulo 2³² |
//! | 4 | of a part: number of the message (2), which part, of how many |
//! | any | the bytes |

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const PART: u8 = 0x80;
/// Header bytes of a whole message.
pub const HEAD: usize = 5;
/// Header bytes of a fragment.
const PART_HEAD: usize = HEAD + 4;
/// Maximum incomplete messages; the oldest is dropped for a new one.
const INCOMPLETE: usize = 64;

/// Fragments messages that are too large for a datagram.
#[derive(Debug, Default)]
pub struct Fragmenter {
    number: u16,
}

impl Fragmenter {
    /// Passes the fragments of a message of `channel` written at `stamp`, each with its header, to `take`;
    /// none exceeds `max` bytes with its header. Returns false if the message is too large.
    pub fn cut(
        &mut self,
        channel: u8,
        stamp: u32,
        bytes: &[u8],
        max: usize,
        take: &mut impl FnMut([&[u8]; 2]),
    ) -> bool {
        let [a, b, c, d] = stamp.to_be_bytes();
        if bytes.len() + HEAD <= max {
            take([&[channel, a, b, c, d], bytes]);
            return true;
        }
        let size = max.saturating_sub(PART_HEAD).max(1);
        let Ok(count) = u8::try_from(bytes.len().div_ceil(size)) else { return false };
        self.number = self.number.wrapping_add(1);
        let [high, low] = self.number.to_be_bytes();
        for (part, bytes) in (0..count).zip(bytes.chunks(size)) {
            take([&[channel | PART, a, b, c, d, high, low, part, count], bytes]);
        }
        true
    }
}

/// Reassembles messages.
#[derive(Debug, Default)]
pub struct Reassembler {
    incomplete: BTreeMap<u16, Incomplete>,
    /// Count of messages begun, to find the oldest.
    begun: u64,
}

#[derive(Debug)]
struct Incomplete {
    order: u64,
    /// Channel and sender timestamp, which no message with the same number shares.
    head: [u8; HEAD],
    missing: u8,
    parts: Vec<Option<Vec<u8>>>,
}

impl Reassembler {
    /// Takes a message or fragment. Once a message is complete, writes it to `out` and returns its channel
    /// and sender timestamp.
    pub fn join(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<(u8, u32)> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let &[first, a, b, c, d] = head;
        let stamp = u32::from_be_bytes([a, b, c, d]);
        out.clear();
        if first & PART == 0 {
            out.extend_from_slice(rest);
            return Some((first, stamp));
        }
        let (&[high, low, part, count], bytes) = rest.split_first_chunk::<4>()?;
        let number = u16::from_be_bytes([high, low]);
        let is_other =
            |known: &Incomplete| known.head != *head || known.parts.len() != usize::from(count);
        if self.incomplete.get(&number).is_some_and(is_other) {
            self.incomplete.remove(&number);
        }
        if self.incomplete.len() >= INCOMPLETE && !self.incomplete.contains_key(&number) {
            let oldest = self.incomplete.iter().min_by_key(|(_, message)| message.order);
            if let Some(oldest) = oldest.map(|(number, _)| *number) {
                self.incomplete.remove(&oldest);
            }
        }
        self.begun += 1;
        let order = self.begun;
        let parts = || alloc::vec![None; usize::from(count)];
        let message = self.incomplete.entry(number).or_insert_with(|| Incomplete {
            order,
            head: *head,
            missing: count,
            parts: parts(),
        });
        let place = message.parts.get_mut(usize::from(part))?;
        if place.replace(bytes.to_vec()).is_none() {
            message.missing -= 1;
        }
        if message.missing > 0 {
            return None;
        }
        let message = self.incomplete.remove(&number)?;
        message.parts.iter().flatten().for_each(|part| out.extend_from_slice(part));
        Some((first & !PART, stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(fragmenter: &mut Fragmenter, bytes: &[u8], max: usize) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        assert!(fragmenter.cut(7, 0x8765_4321, bytes, max, &mut |part| parts.push(part.concat())));
        assert!(parts.iter().all(|part| part.len() <= max));
        parts
    }

    proptest! {
        #[test]
        fn a_message_is_put_together_from_its_parts_in_any_order(
            bytes in proptest::collection::vec(any::<u8>(), 0..3_000),
            max_len in 100_usize..1_500,
            order in any::<u64>(),
        ) {
            let mut parts = cut(&mut Fragmenter::default(), &bytes, max_len);
            let count = parts.len();
            parts.rotate_left(order as usize % count);
            parts.swap(0, order as usize / 7 % count);
            let (mut reassembler, mut out) = (Reassembler::default(), Vec::new());
            for part in &parts[1..] {
                prop_assert_eq!(reassembler.join(part, &mut out), None);
            }
            prop_assert_eq!(reassembler.join(&parts[0], &mut out), Some((7, 0x8765_4321)));
            prop_assert_eq!(out, bytes);
        }

        #[test]
        fn bytes_of_any_kind_never_panic(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..40),
        ) {
            let (mut reassembler, mut out) = (Reassembler::default(), Vec::new());
            for piece in pieces {
                reassembler.join(&[&[0x87, 0, 0, 0, 0, 0], piece.as_slice()].concat(), &mut out);
                reassembler.join(&piece, &mut out);
            }
            prop_assert!(reassembler.incomplete.len() <= INCOMPLETE);
        }
    }

    #[test]
    fn parts_of_two_messages_with_one_number_are_not_mixed() {
        let (mut fragmenter, mut reassembler) = (Fragmenter::default(), Reassembler::default());
        let mut out = Vec::new();
        let lost = cut(&mut fragmenter, &[1; 250], 100);
        assert_eq!(reassembler.join(&lost[0], &mut out), None);
        assert_eq!(reassembler.join(&lost[2], &mut out), None);
        fragmenter.number = fragmenter.number.wrapping_sub(1);
        let mut parts = Vec::new();
        fragmenter.cut(7, 0x9000_0000, &[2; 250], 100, &mut |part| parts.push(part.concat()));
        let whole: Vec<_> =
            parts.iter().filter_map(|part| reassembler.join(part, &mut out)).collect();
        assert_eq!((whole, out), (alloc::vec![(7, 0x9000_0000)], alloc::vec![2; 250]));
    }

    #[test]
    fn a_message_that_lost_a_part_makes_room_for_those_after_it() {
        let (mut fragmenter, mut reassembler, mut out) =
            (Fragmenter::default(), Reassembler::default(), Vec::new());
        for _ in 0..200 {
            let parts = cut(&mut fragmenter, &[1; 250], 100);
            assert_eq!(reassembler.join(&parts[0], &mut out), None);
        }
        assert_eq!(reassembler.incomplete.len(), INCOMPLETE);
        let parts = cut(&mut fragmenter, &[2; 250], 100);
        let whole: Vec<_> =
            parts.iter().filter_map(|part| reassembler.join(part, &mut out)).collect();
        assert_eq!((whole, out.len()), (alloc::vec![(7, 0x8765_4321)], 250));
    }
}
