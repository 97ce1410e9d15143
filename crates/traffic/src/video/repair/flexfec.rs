//! FlexFEC repair packets of one protected stream. The RTP header of a repair packet has the SSRC of that
//! stream as its only contributing source
//! ([`Header::write_with_source`](crate::video::rtp::Header::write_with_source)).
//!
//! Source: RFC 8627 §4.2.2 (header), §6.2 (encoding), §6.3 (recovery).

use alloc::vec::Vec;

use crate::video::byte_reader::ByteReader;
use crate::video::rtp::HEADER_BYTES;

/// Number of packets that a mask can cover: the base and 109 after it.
pub const MAX_MASKED: u32 = 110;

/// R and F bits of the first byte.
const RETRANSMISSION: u8 = 0x80;
const FIXED: u8 = 0x40;

/// Set of packets that a repair packet covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// Flexible mask over 110 packets (§4.2.2.1).
    Mask {
        /// Sequence number of the packet of bit 0.
        base: u16,
        /// Bit i, counted from the least significant, covers the packet `base` + i. Below 2¹¹⁰, above 0.
        mask: u128,
    },
    /// Fixed row or column (§4.2.2.2).
    Fixed {
        /// Sequence number of the first packet.
        base: u16,
        /// L, above 0: number of packets of a row.
        columns: u8,
        /// D: number of packets of a column. 0 (rows only) and 1 (columns follow) denote a row.
        rows: u8,
    },
}

/// FEC header: the exclusive or of fields of the protected packets' headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FecHeader {
    /// Padding recovery bit.
    pub padding: bool,
    /// Extension recovery bit.
    pub extension: bool,
    /// CSRC count recovery field, 0 to 15.
    pub source_count: u8,
    /// Marker recovery bit.
    pub marker: bool,
    /// Payload type recovery field, 0 to 127.
    pub payload_type: u8,
    /// Length recovery field: lengths without the 12 bytes of the fixed header.
    pub length: u16,
    /// Timestamp recovery field.
    pub timestamp: u32,
    /// Packets covered.
    pub cover: Cover,
}

/// Error in forming or using a repair packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlexFecError {
    /// The bytes end within a header.
    #[error("the packet ends within its header")]
    Short,
    /// The R bit is set: a retransmission (§4.2.2.3), not a repair packet.
    #[error("a retransmission, not a repair packet")]
    Retransmission,
    /// The mask is empty or has more than 110 bits, or there is no column.
    #[error("the packets covered cannot be told")]
    Cover,
    /// The packet is not covered.
    #[error("packet {0} is not covered")]
    NotCovered(u16),
    /// The number of missing packets is not one.
    #[error("{0} packets are missing instead of one")]
    Missing(usize),
    /// A packet is longer than 65 547 B, or than the repair packet allows.
    #[error("the lengths of the packets contradict each other")]
    Length,
}

impl Cover {
    /// Returns the sequence numbers of the packets covered.
    pub fn sequences(self) -> impl Iterator<Item = u16> + Clone {
        let (base, step, count, mask) = match self {
            Self::Mask { base, mask } => (base, 1, MAX_MASKED as u16, mask),
            Self::Fixed { base, columns, rows: 0 | 1 } => (base, 1, columns.into(), u128::MAX),
            Self::Fixed { base, columns, rows } => (base, columns.into(), rows.into(), u128::MAX),
        };
        (0..count)
            .filter(move |bit| mask.checked_shr(u32::from(*bit)).is_none_or(|rest| rest & 1 == 1))
            .map(move |index| base.wrapping_add(index.wrapping_mul(step)))
    }

    fn check(self) -> Result<(), FlexFecError> {
        let is_valid = match self {
            Self::Mask { mask, .. } => mask != 0 && mask >> MAX_MASKED == 0,
            Self::Fixed { columns, .. } => columns > 0,
        };
        if is_valid { Ok(()) } else { Err(FlexFecError::Cover) }
    }
}

/// Returns `count` bits of `mask` from `from` on; the least significant bit comes first on the wire.
fn mask_bits(mask: u128, from: u32, count: u32) -> u64 {
    (from..from + count).fold(0, |word, bit| word << 1 | (mask >> bit & 1) as u64)
}

/// Returns the mask whose bits [`mask_bits`] wrote as `word`.
fn from_mask_bits(word: u64, from: u32, count: u32) -> u128 {
    (0..count).fold(0, |mask, bit| mask | u128::from(word >> (count - 1 - bit) & 1) << (from + bit))
}

impl FecHeader {
    /// Appends the header: 12, 16 or 24 bytes.
    ///
    /// # Errors
    /// The set of covered packets is invalid; then nothing is appended.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), FlexFecError> {
        self.cover.check()?;
        let fixed = if matches!(self.cover, Cover::Fixed { .. }) { FIXED } else { 0 };
        let bits = u8::from(self.padding) << 5 | u8::from(self.extension) << 4;
        out.push(fixed | bits | self.source_count & 0x0f);
        out.push(u8::from(self.marker) << 7 | self.payload_type & 0x7f);
        out.extend(self.length.to_be_bytes());
        out.extend(self.timestamp.to_be_bytes());
        match self.cover {
            Cover::Fixed { base, columns, rows } => {
                out.extend(base.to_be_bytes());
                out.extend([columns, rows]);
            }
            Cover::Mask { base, mask } => {
                out.extend(base.to_be_bytes());
                // A set k bit announces a further part of the mask.
                let (second, third) = (mask >> 15 != 0, mask >> 46 != 0);
                let word = mask_bits(mask, 0, 15) as u16 | u16::from(second) << 15;
                out.extend(word.to_be_bytes());
                if second {
                    let word = mask_bits(mask, 15, 31) as u32 | u32::from(third) << 31;
                    out.extend(word.to_be_bytes());
                }
                if third {
                    out.extend(mask_bits(mask, 46, 64).to_be_bytes());
                }
            }
        }
        Ok(())
    }

    /// Returns the header of a repair packet's payload and its repair bits.
    ///
    /// # Errors
    /// The bytes are not a repair packet.
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), FlexFecError> {
        let mut reader = ByteReader(payload);
        let header = Self::read(&mut reader).ok_or(FlexFecError::Short)?;
        if payload.first().is_some_and(|first| first & RETRANSMISSION != 0) {
            return Err(FlexFecError::Retransmission);
        }
        header.cover.check()?;
        Ok((header, reader.0))
    }

    fn read(reader: &mut ByteReader<'_>) -> Option<Self> {
        let [first, second] = reader.array()?;
        let (length, timestamp, base) = (reader.u16()?, reader.u32()?, reader.u16()?);
        let cover = if first & FIXED != 0 {
            Cover::Fixed { base, columns: reader.u8()?, rows: reader.u8()? }
        } else {
            let word = reader.u16()?;
            let mut mask = from_mask_bits(word.into(), 0, 15);
            if word >> 15 == 1 {
                let word = reader.u32()?;
                mask |= from_mask_bits(word.into(), 15, 31);
                if word >> 31 == 1 {
                    mask |= from_mask_bits(reader.u64()?, 46, 64);
                }
            }
            Cover::Mask { base, mask }
        };
        Some(Self {
            padding: first & 0x20 != 0,
            extension: first & 0x10 != 0,
            source_count: first & 0x0f,
            marker: second & 0x80 != 0,
            payload_type: second & 0x7f,
            length,
            timestamp,
            cover,
        })
    }
}

/// Exclusive or of packets (§6.2): of the first eight bytes of the header, with the length in place of the
/// sequence number, and of everything after the fixed header.
struct Sum {
    head: [u8; 8],
    rest: Vec<u8>,
}

impl Sum {
    fn add(&mut self, head: [u8; 8], rest: &[u8]) {
        self.head.iter_mut().zip(head).for_each(|(sum, byte)| *sum ^= byte);
        if self.rest.len() < rest.len() {
            self.rest.resize(rest.len(), 0);
        }
        self.rest.iter_mut().zip(rest).for_each(|(sum, byte)| *sum ^= byte);
    }

    /// Adds an RTP packet and returns its sequence number.
    fn add_packet(&mut self, packet: &[u8]) -> Result<u16, FlexFecError> {
        let mut reader = ByteReader(packet);
        let [a, b, high, low, stamp @ ..] = reader.array::<8>().ok_or(FlexFecError::Short)?;
        reader.take(HEADER_BYTES - 8).ok_or(FlexFecError::Short)?;
        let length = u16::try_from(reader.len()).map_err(|_| FlexFecError::Length)?;
        self.add(head(a, b, length, u32::from_be_bytes(stamp)), reader.0);
        Ok(u16::from_be_bytes([high, low]))
    }
}

/// Returns the first eight bytes of a header, with `middle` in place of the sequence number.
fn head(first: u8, second: u8, middle: u16, timestamp: u32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (middle.to_be_bytes(), timestamp.to_be_bytes());
    [first, second, a, b, c, d, e, f]
}

/// Returns the covered sequence numbers missing from `packets`, and the sum of `packets`.
fn sum_of(cover: Cover, packets: &[&[u8]]) -> Result<(Vec<u16>, Sum), FlexFecError> {
    let mut missing: Vec<u16> = cover.sequences().collect();
    let mut sum = Sum { head: [0; 8], rest: Vec::new() };
    for packet in packets {
        let sequence = sum.add_packet(packet)?;
        let place = missing.iter().position(|missing| *missing == sequence);
        missing.remove(place.ok_or(FlexFecError::NotCovered(sequence))?);
    }
    Ok((missing, sum))
}

/// Returns the payload of the repair packet that covers these RTP packets.
///
/// # Errors
/// The packets are not exactly those of `cover`, or one is too long.
pub fn protect(cover: Cover, packets: &[&[u8]]) -> Result<Vec<u8>, FlexFecError> {
    cover.check()?;
    let (missing, sum) = sum_of(cover, packets)?;
    if !missing.is_empty() {
        return Err(FlexFecError::Missing(missing.len()));
    }
    let [first, second, high, low, stamp @ ..] = sum.head;
    let header = FecHeader {
        padding: first & 0x20 != 0,
        extension: first & 0x10 != 0,
        source_count: first & 0x0f,
        marker: second & 0x80 != 0,
        payload_type: second & 0x7f,
        length: u16::from_be_bytes([high, low]),
        timestamp: u32::from_be_bytes(stamp),
        cover,
    };
    let mut payload = Vec::new();
    header.write(&mut payload)?;
    payload.extend(sum.rest);
    Ok(payload)
}

/// Returns the only missing RTP packet of those that a repair packet covers, from the payload of the repair
/// packet and the `others`, for the stream `ssrc`.
///
/// # Errors
/// The number of missing packets is not one, or the packets contradict each other.
pub fn recover(payload: &[u8], others: &[&[u8]], ssrc: u32) -> Result<Vec<u8>, FlexFecError> {
    let (header, bits) = FecHeader::parse(payload)?;
    let (missing, mut sum) = sum_of(header.cover, others)?;
    let [sequence] = missing[..] else { return Err(FlexFecError::Missing(missing.len())) };
    if sum.rest.len() > bits.len() {
        return Err(FlexFecError::Length);
    }
    let mut repair = ByteReader(payload);
    sum.add(repair.array().ok_or(FlexFecError::Short)?, bits);
    let [first, second, high, low, stamp @ ..] = sum.head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let content = sum.rest.get(..length).ok_or(FlexFecError::Length)?;
    let mut packet = Vec::with_capacity(HEADER_BYTES + length);
    let version = 0x80 | first & 0x3f;
    packet.extend(head(version, second, sequence, u32::from_be_bytes(stamp)));
    packet.extend(ssrc.to_be_bytes());
    packet.extend(content);
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::rtp::Header;
    use alloc::vec;
    use skybraid_units::Seed;

    const HEADER: FecHeader = FecHeader {
        padding: true,
        extension: false,
        source_count: 3,
        marker: true,
        payload_type: 0x15,
        length: 0x1234,
        timestamp: 0x89ab_cdef,
        cover: Cover::Fixed { base: 0xa0b0, columns: 5, rows: 7 },
    };

    fn bytes(cover: Cover) -> Vec<u8> {
        let mut out = Vec::new();
        FecHeader { cover, ..HEADER }.write(&mut out).unwrap();
        out
    }

    const FRONT: [u8; 8] = [0x23, 0x95, 0x12, 0x34, 0x89, 0xab, 0xcd, 0xef];

    // Source: RFC 8627 §4.2.2.2, the drawing: R = 0, F = 1, base, L, D.
    #[test]
    fn the_fixed_header_matches_the_figure_of_rfc_8627() {
        let mut drawn = FRONT.to_vec();
        drawn[0] |= 0x40;
        drawn.extend([0xa0, 0xb0, 5, 7]);
        assert_eq!(bytes(HEADER.cover), drawn);
        assert_eq!(FecHeader::parse(&drawn), Ok((HEADER, [].as_slice())));
    }

    // Source: RFC 8627 §4.2.2.1, the drawing: k and Mask [0-14], k and Mask [15-45], Mask [46-109];
    // the packet of the base is the highest bit of the first.
    #[test]
    fn the_mask_is_no_longer_than_needed() {
        let bit = |bit: u32| 1_u128 << bit;
        for (mask, drawn) in [
            (bit(0) | bit(14), [0x40, 0x01].as_slice()),
            (bit(1) | bit(15) | bit(45), &[0xa0, 0, 0x40, 0, 0, 0x01]),
            (bit(0) | bit(46) | bit(109), &[0xc0, 0, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 1]),
        ] {
            let cover = Cover::Mask { base: 0xa0b0, mask };
            assert_eq!(bytes(cover), [FRONT.as_slice(), &[0xa0, 0xb0], drawn].concat());
            let header = FecHeader { cover, ..HEADER };
            let written = [bytes(cover), vec![1, 2]].concat();
            assert_eq!(FecHeader::parse(&written), Ok((header, [1, 2].as_slice())));
            assert_eq!(FecHeader::parse(&written[..9 + drawn.len()]), Err(FlexFecError::Short));
        }
    }

    // Source: RFC 8627 §4.2.2.2: D = 0 and D = 1 rows, D > 1 columns; L = 0 is reserved.
    #[test]
    fn rows_and_columns_wrap_with_the_sequence_numbers() {
        let fixed = |columns, rows| Cover::Fixed { base: 65_534, columns, rows };
        let sequences = |cover: Cover| cover.sequences().collect::<Vec<u16>>();
        assert_eq!(sequences(fixed(4, 0)), [65_534, 65_535, 0, 1]);
        assert_eq!(sequences(fixed(4, 1)), [65_534, 65_535, 0, 1]);
        assert_eq!(sequences(fixed(4, 3)), [65_534, 2, 6]);
        assert_eq!(sequences(fixed(200, 200)).len(), 200);
        assert_eq!(sequences(Cover::Mask { base: 65_534, mask: 0b1101 }), [65_534, 0, 1]);
        let mut out = Vec::new();
        for cover in
            [fixed(0, 3), Cover::Mask { base: 0, mask: 0 }, Cover::Mask { base: 0, mask: 1 << 110 }]
        {
            let rejected = FecHeader { cover, ..HEADER }.write(&mut out);
            assert_eq!((rejected, out.len()), (Err(FlexFecError::Cover), 0));
        }
    }

    fn packet(sequence: u16, random: &mut skybraid_units::Stream) -> Vec<u8> {
        let header = Header {
            marker: random.below(2) == 1,
            payload_type: 96 + random.below(2) as u8,
            sequence,
            timestamp: random.next_u64() as u32,
            ssrc: 77,
        };
        let mut packet = Vec::new();
        header.write(&mut packet);
        packet.extend((0..random.below(60)).map(|_| random.next_u64() as u8));
        // A third of the packets has padding.
        if random.below(3) == 0 {
            packet[0] |= 0x20;
            packet.push(1);
        }
        packet
    }

    #[test]
    fn the_missing_packet_is_recovered_with_its_header() {
        let mut random = Seed(8627).stream("flexfec");
        for round in 0..3000 {
            let base = random.next_u64() as u16;
            let cover = match round % 3 {
                0 => Cover::Mask { base, mask: u128::from(random.next_u64()) << 46 | 1 },
                1 => Cover::Fixed { base, columns: 1 + random.below(20) as u8, rows: 1 },
                _ => Cover::Fixed { base, columns: 5, rows: 2 + random.below(9) as u8 },
            };
            let packets: Vec<Vec<u8>> =
                cover.sequences().map(|sequence| packet(sequence, &mut random)).collect();
            let mut others: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
            let payload = protect(cover, &others).unwrap();
            let lost = others.swap_remove(random.below(others.len() as u64) as usize);
            assert_eq!(recover(&payload, &others, 77).as_deref(), Ok(lost));
            others.push(lost);
            assert_eq!(recover(&payload, &others, 77), Err(FlexFecError::Missing(0)));
        }
    }

    #[test]
    fn packets_that_cannot_be_recovered_are_rejected() {
        let mut random = Seed(1).stream("flexfec");
        let cover = Cover::Fixed { base: 10, columns: 3, rows: 0 };
        let packets: Vec<Vec<u8>> = (10..14).map(|number| packet(number, &mut random)).collect();
        let [a, b, c, other] = [0, 1, 2, 3].map(|index: usize| packets[index].as_slice());
        let payload = protect(cover, &[a, b, c]).unwrap();
        assert_eq!(protect(cover, &[a, b]), Err(FlexFecError::Missing(1)));
        assert_eq!(protect(cover, &[a, b, b]), Err(FlexFecError::NotCovered(11)));
        assert_eq!(recover(&payload, &[a], 77), Err(FlexFecError::Missing(2)));
        assert_eq!(recover(&payload, &[a, other], 77), Err(FlexFecError::NotCovered(13)));
        assert_eq!(recover(&payload, &[a, &b[..11]], 77), Err(FlexFecError::Short));
        assert_eq!(recover(&payload[..12], &[a, b], 77), Err(FlexFecError::Length));
        let mut again = payload.clone();
        again[0] |= 0x80;
        assert_eq!(recover(&again, &[a, b], 77), Err(FlexFecError::Retransmission));
    }

    #[test]
    fn random_packets_never_panic() {
        let mut random = Seed(3).stream("any");
        let mut read = 0;
        for _ in 0..50_000 {
            let length = random.below(40);
            let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
            if let Some(first) = bytes.first_mut() {
                *first &= 0x7f;
            }
            let cover = FecHeader::parse(&bytes).map(|(header, _)| header.cover);
            let Some(sequence) = cover.ok().and_then(|cover| cover.sequences().next()) else {
                continue;
            };
            let one = packet(sequence, &mut random);
            read += u32::from(recover(&bytes, &[&one], 1).is_ok_and(|found| !found.is_empty()));
            read += u32::from(recover(&bytes, &[], 1).is_err());
        }
        assert!(read > 1000);
    }
}
