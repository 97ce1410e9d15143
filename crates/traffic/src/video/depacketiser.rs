//! Depacketiser: NAL units from RTP payloads.
//!
//! Source: RFC 6184 §5.6 to §5.8 (single NAL unit, STAP-A, FU-A), RFC 7798 §4.4 (single NAL unit,
//! AP, FU; `sprop-max-don-diff` 0, hence no decoding order numbers).

use alloc::vec::Vec;

use skybraid_units::invariant::Promised as _;

use super::byte_reader::ByteReader;
use super::fragment::{AP, Codec, END, FU_A, FU_H265, STAP_A, START};

/// Maximum length of a reassembled NAL unit in bytes; above the largest frame of level 6.2.
pub const MAX_UNIT_BYTES: usize = 16 << 20;

/// Highest NAL unit types of single NAL unit packets.
const LAST_SINGLE_H264: u8 = 23;
const LAST_SINGLE_H265: u8 = 47;

/// The forbidden_zero_bit, set in incomplete NAL units (RFC 6184 §5.8, RFC 7798 §4.4.3).
pub const FORBIDDEN: u8 = 0x80;

/// A NAL unit from RTP payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Bytes of the unit from its header on.
    pub bytes: Vec<u8>,
    /// Whether the unit is complete. If not, `bytes` ends before the first gap and has the
    /// [`FORBIDDEN`] bit set.
    pub whole: bool,
    /// Whether something was lost between the previous unit and this one.
    pub gap: bool,
}

/// Error in an RTP payload. The packet counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload ends within a header or within a unit of an aggregation packet.
    #[error("the payload ends too early")]
    Short,
    /// The packetisation mode has no such payload type.
    #[error("payload type {0} is not of this packetisation mode")]
    Unsupported(u8),
    /// The fragment is both first and last, or of another type than those before it.
    #[error("the fragment does not fit its neighbours")]
    Fragment,
    /// The fragments add up to more than [`MAX_UNIT_BYTES`].
    #[error("the unit is too long")]
    TooLong,
}

/// Payload structure, from the first bytes.
enum Kind {
    Single,
    Aggregate,
    Fragment,
}

/// Reassembles NAL units from the payloads of one RTP stream, in sequence number order.
#[derive(Clone, Debug)]
pub struct Depacketiser {
    codec: Codec,
    last: Option<u64>,
    /// The unit whose last fragment has not arrived yet.
    open: Option<Unit>,
    /// Whether something was lost since the last unit.
    gap: bool,
}

impl Depacketiser {
    /// Creates a depacketiser at the start of a stream.
    pub const fn new(codec: Codec) -> Self {
        Self { codec, last: None, open: None, gap: false }
    }

    /// Handles the payload of the packet with this unwrapped sequence number, and appends the units that
    /// it completes. A packet that is not after the last one is ignored: reorder packets before.
    ///
    /// # Errors
    /// The payload is invalid and counts as lost. Units before the error are appended.
    pub fn push(
        &mut self,
        sequence: u64,
        payload: &[u8],
        units: &mut Vec<Unit>,
    ) -> Result<(), PayloadError> {
        if self.last.is_some_and(|last| last >= sequence) {
            return Ok(());
        }
        if self.last.is_some_and(|last| last + 1 < sequence) {
            self.on_gap(units);
        }
        self.last = Some(sequence);
        let read = self.read(payload, units);
        if read.is_err() {
            self.on_gap(units);
        }
        read
    }

    /// Ends the stream: an unfinished unit is appended as incomplete.
    pub fn finish(&mut self, units: &mut Vec<Unit>) {
        if self.open.is_some() {
            self.on_gap(units);
        }
    }

    /// Records a gap. The fragments before it are appended as an incomplete unit.
    fn on_gap(&mut self, units: &mut Vec<Unit>) {
        if let Some(mut unit) = self.open.take() {
            if let Some(header) = unit.bytes.first_mut() {
                *header |= FORBIDDEN;
            }
            units.push(unit);
        }
        self.gap = true;
    }

    fn read(&mut self, payload: &[u8], units: &mut Vec<Unit>) -> Result<(), PayloadError> {
        match kind(self.codec, payload)? {
            Kind::Single => {
                self.finish(units);
                self.push_whole(payload, units);
                Ok(())
            }
            Kind::Aggregate => {
                self.finish(units);
                self.read_aggregate(payload, units)
            }
            Kind::Fragment => self.read_fragment(payload, units),
        }
    }

    fn push_whole(&mut self, bytes: &[u8], units: &mut Vec<Unit>) {
        let gap = core::mem::take(&mut self.gap);
        units.push(Unit { bytes: bytes.to_vec(), whole: true, gap });
    }

    /// Reads an aggregation packet: a payload header, then each unit after its length.
    fn read_aggregate(
        &mut self,
        payload: &[u8],
        units: &mut Vec<Unit>,
    ) -> Result<(), PayloadError> {
        let mut reader = ByteReader(payload);
        let header = self.codec.unit_header_bytes() as usize;
        reader.take(header).ok_or(PayloadError::Short)?;
        while !reader.is_empty() {
            let bytes = reader.u16().and_then(|length| reader.take(usize::from(length)));
            match bytes {
                Some(bytes) if bytes.len() >= header => self.push_whole(bytes, units),
                _ => return Err(PayloadError::Short),
            }
        }
        Ok(())
    }

    fn read_fragment(&mut self, payload: &[u8], units: &mut Vec<Unit>) -> Result<(), PayloadError> {
        let (header, ends, part) =
            read_fragment_header(self.codec, payload).ok_or(PayloadError::Short)?;
        if ends == START | END {
            return Err(PayloadError::Fragment);
        }
        if ends == START {
            self.finish(units);
            let gap = core::mem::take(&mut self.gap);
            let mut bytes = Vec::with_capacity(2 * part.len());
            bytes.extend(header.as_slice());
            self.open = Some(Unit { bytes, whole: false, gap });
        }
        let Some(unit) = &mut self.open else {
            // The first fragment is missing, so that the whole unit is lost.
            self.gap = true;
            return Ok(());
        };
        if !unit.bytes.starts_with(header.as_slice()) {
            return Err(PayloadError::Fragment);
        }
        if unit.bytes.len() + part.len() > MAX_UNIT_BYTES {
            return Err(PayloadError::TooLong);
        }
        unit.bytes.extend(part);
        if ends == END {
            unit.whole = true;
            units.extend(self.open.take());
        }
        Ok(())
    }
}

/// Returns the first bytes, at most 18, of the NAL unit that starts in a payload; `None` within a unit.
pub(super) fn first_unit(codec: Codec, payload: &[u8]) -> Option<Vec<u8>> {
    const MAX_BYTES: usize = 18;
    let (header, rest) = match kind(codec, payload).ok()? {
        Kind::Single => (UnitHeader([0; 2], 0), payload),
        Kind::Aggregate => {
            let mut reader = ByteReader(payload);
            reader.take(codec.unit_header_bytes() as usize)?;
            let length = reader.u16()?;
            (UnitHeader([0; 2], 0), reader.take(usize::from(length))?)
        }
        Kind::Fragment => {
            let (header, ends, part) = read_fragment_header(codec, payload)?;
            (ends & START != 0).then_some((header, part))?
        }
    };
    Some(header.as_slice().iter().chain(rest).copied().take(MAX_BYTES).collect())
}

/// NAL unit header: bytes and length.
#[derive(Clone, Copy)]
struct UnitHeader([u8; 2], usize);

impl UnitHeader {
    fn as_slice(&self) -> &[u8] {
        self.0.get(..self.1).promised("a unit header of at most 2 bytes").unwrap_or_default()
    }
}

fn kind(codec: Codec, payload: &[u8]) -> Result<Kind, PayloadError> {
    match (codec, payload) {
        (Codec::H264, [first, ..]) => match first & 0x1f {
            1..=LAST_SINGLE_H264 => Ok(Kind::Single),
            STAP_A => Ok(Kind::Aggregate),
            FU_A => Ok(Kind::Fragment),
            other => Err(PayloadError::Unsupported(other)),
        },
        (Codec::H265, [first, _, ..]) => match first >> 1 & 0x3f {
            0..=LAST_SINGLE_H265 => Ok(Kind::Single),
            AP => Ok(Kind::Aggregate),
            FU_H265 => Ok(Kind::Fragment),
            other => Err(PayloadError::Unsupported(other)),
        },
        _ => Err(PayloadError::Short),
    }
}

/// Reads a fragment: the header of its unit, its start and end bits, and its part of the unit.
fn read_fragment_header(codec: Codec, payload: &[u8]) -> Option<(UnitHeader, u8, &[u8])> {
    match (codec, payload) {
        (Codec::H264, [indicator, fu, part @ ..]) => {
            let header = UnitHeader([indicator & 0xe0 | fu & 0x1f, 0], 1);
            Some((header, fu & (START | END), part))
        }
        (Codec::H265, [high, low, fu, part @ ..]) => {
            let header = UnitHeader([high & 0x81 | (fu & 0x3f) << 1, *low], 2);
            Some((header, fu & (START | END), part))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::fragment::{fragments, write_payload};
    use skybraid_units::{Seed, Stream};

    fn read(codec: Codec, payloads: &[(u64, &[u8])]) -> Vec<Unit> {
        let mut depacketiser = Depacketiser::new(codec);
        let mut units = Vec::new();
        for (sequence, payload) in payloads {
            depacketiser.push(*sequence, payload, &mut units).unwrap();
        }
        depacketiser.finish(&mut units);
        units
    }

    fn unit(bytes: &[u8], whole: bool, gap: bool) -> Unit {
        Unit { bytes: bytes.to_vec(), whole, gap }
    }

    // Source: RFC 6184 §5.7.1: STAP-A header, then 16-bit sizes and units.
    #[test]
    fn an_aggregation_packet_holds_several_units() {
        let stap = [0x78, 0, 3, 0x67, 1, 2, 0, 2, 0x68, 3];
        let both = [unit(&[0x67, 1, 2], true, false), unit(&[0x68, 3], true, false)];
        assert_eq!(read(Codec::H264, &[(1, &stap)]), both);
        // Source: RFC 7798 §4.4.2: payload header of type 48, then the same.
        let ap = [0x60, 0x01, 0, 3, 0x42, 1, 2, 0, 3, 0x44, 1, 3];
        let both = [unit(&[0x42, 1, 2], true, false), unit(&[0x44, 1, 3], true, false)];
        assert_eq!(read(Codec::H265, &[(1, &ap)]), both);
    }

    const FIRST: &[u8] = &[0x7c, 0x85, 1, 2];
    const MIDDLE: &[u8] = &[0x7c, 0x05, 3];
    const LAST: &[u8] = &[0x7c, 0x45, 4];
    const SINGLE: &[u8] = &[0x41, 9];

    #[test]
    fn fragments_make_the_unit_with_its_header() {
        let whole = unit(&[0x65, 1, 2, 3, 4], true, false);
        assert_eq!(read(Codec::H264, &[(7, FIRST), (8, MIDDLE), (9, LAST)]), [whole]);
    }

    // Source: RFC 6184 §5.8: the fragments before a loss may make an incomplete unit, whose
    // forbidden_zero_bit must be set; those after it are discarded.
    #[test]
    fn a_unit_with_a_gap_is_marked_incomplete() {
        let head = unit(&[0xe5, 1, 2], false, false);
        let next = unit(&[0x41, 9], true, true);
        assert_eq!(read(Codec::H264, &[(7, FIRST), (9, LAST), (10, SINGLE)]), [head, next]);
        let next = unit(&[0x41, 9], true, true);
        assert_eq!(read(Codec::H264, &[(8, MIDDLE), (9, LAST), (10, SINGLE)]), [next]);
        let head = unit(&[0xe5, 1, 2, 3], false, false);
        let next = unit(&[0x41, 9], true, true);
        assert_eq!(read(Codec::H264, &[(7, FIRST), (8, MIDDLE), (10, SINGLE)]), [head, next]);
        let lone = unit(&[0x41, 9], true, false);
        let next = unit(&[0x41, 9], true, true);
        assert_eq!(read(Codec::H264, &[(1, SINGLE), (3, SINGLE)]), [lone, next]);
        assert_eq!(read(Codec::H264, &[(7, FIRST)]), [unit(&[0xe5, 1, 2], false, false)]);
    }

    #[test]
    fn duplicate_and_late_packets_change_nothing() {
        let whole = unit(&[0x65, 1, 2, 3, 4], true, false);
        let order = [(7, FIRST), (8, MIDDLE), (8, MIDDLE), (7, FIRST), (9, LAST), (9, LAST)];
        assert_eq!(read(Codec::H264, &order), [whole]);
    }

    #[test]
    fn invalid_payloads_count_as_lost() {
        let mut depacketiser = Depacketiser::new(Codec::H264);
        let mut units = Vec::new();
        let mut next = 0;
        let mut push = |payload: &[u8]| {
            next += 1;
            depacketiser.push(next, payload, &mut units)
        };
        assert_eq!(push(&[]), Err(PayloadError::Short));
        assert_eq!(push(&[0x7c]), Err(PayloadError::Short));
        assert_eq!(push(&[0x7d, 0x85]), Err(PayloadError::Unsupported(29)));
        assert_eq!(push(&[0x7c, 0xc5, 1]), Err(PayloadError::Fragment));
        assert_eq!(push(&[0x78, 0, 2, 0x67]), Err(PayloadError::Short));
        assert_eq!(push(&[0x78, 0, 0]), Err(PayloadError::Short));
        assert_eq!(push(FIRST), Ok(()));
        assert_eq!(push(&[0x7c, 0x41, 4]), Err(PayloadError::Fragment));
        assert_eq!(push(SINGLE), Ok(()));
        assert_eq!(units, [unit(&[0xe5, 1, 2], false, true), unit(&[0x41, 9], true, true)]);
    }

    fn random_unit(codec: Codec, random: &mut Stream) -> Vec<u8> {
        let length = 2 + random.below(4000) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        let header = match codec {
            Codec::H264 => (32 * random.below(4) + 1 + random.below(23)) as u8,
            Codec::H265 => (random.below(48) << 1 | random.below(2)) as u8,
        };
        bytes[0] = header;
        bytes
    }

    /// Returns the payloads of all units, each with the number of its unit.
    fn fragmented(codec: Codec, units: &[Vec<u8>], max_payload: u32) -> Vec<(usize, Vec<u8>)> {
        let mut payloads = Vec::new();
        for (number, unit) in units.iter().enumerate() {
            for fragment in fragments(codec, unit.len() as u32, max_payload) {
                let mut payload = Vec::new();
                write_payload(codec, unit, fragment, &mut payload).unwrap();
                payloads.push((number, payload));
            }
        }
        payloads
    }

    #[test]
    fn under_loss_exactly_the_complete_units_are_whole() {
        let mut random = Seed(7798).stream("depacketise");
        for round in 0..400 {
            let codec = if round % 2 == 0 { Codec::H264 } else { Codec::H265 };
            let units: Vec<_> = (0..12).map(|_| random_unit(codec, &mut random)).collect();
            let payloads = fragmented(codec, &units, 100 + random.below(1400) as u32);
            let loss = random.below(5);
            let kept: Vec<bool> = payloads.iter().map(|_| random.below(20) >= loss).collect();
            let mut depacketiser = Depacketiser::new(codec);
            let mut given = Vec::new();
            let mut complete = [true; 12];
            for (sequence, ((number, payload), kept)) in payloads.iter().zip(&kept).enumerate() {
                if *kept {
                    depacketiser.push(sequence as u64, payload, &mut given).unwrap();
                } else {
                    complete[*number] = false;
                }
            }
            let whole: Vec<&Vec<u8>> =
                given.iter().filter(|unit| unit.whole).map(|unit| &unit.bytes).collect();
            let expected: Vec<&Vec<u8>> =
                units.iter().zip(complete).filter(|(_, all)| *all).map(|(unit, _)| unit).collect();
            assert_eq!(whole, expected);
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Seed(1).stream("any");
        for codec in [Codec::H264, Codec::H265] {
            let mut depacketiser = Depacketiser::new(codec);
            let (mut sequence, mut pushed, mut given) = (0, 0, 0);
            for _ in 0..50_000 {
                let length = random.below(40) as usize;
                let payload: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
                sequence += random.below(3);
                let mut units = Vec::new();
                // The kind of error does not matter here.
                let _ = depacketiser.push(sequence, &payload, &mut units);
                pushed += length;
                given += units.iter().map(|unit| unit.bytes.len()).sum::<usize>();
            }
            assert!(given > 0 && given <= pushed);
        }
    }
}
