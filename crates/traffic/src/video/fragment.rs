//! Fragmentation of NAL units into RTP payloads: one unit or one fragment per packet, in decoding
//! order.
//!
//! Source: RFC 6184 §5.6 and §5.8 (packetisation mode 1, FU-A), RFC 7798 §4.4.1 and §4.4.3.

use alloc::vec::Vec;
use skybraid_units::named;

named! {
    /// Video codec.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Codec {
        /// ITU-T H.264, with the payload format of RFC 6184.
        #[default]
        H264 = "h264",
        /// ITU-T H.265, with the payload format of RFC 7798.
        H265 = "h265",
    }
}

impl Codec {
    /// Bytes of the NAL unit header, which fragments leave out.
    pub const fn unit_header_bytes(self) -> u32 {
        match self {
            Self::H264 => 1,
            Self::H265 => 2,
        }
    }

    /// Bytes of headers before each fragment: FU indicator or payload header, then FU header.
    pub const fn fragment_header_bytes(self) -> u32 {
        self.unit_header_bytes() + 1
    }
}

/// Minimum `max_payload` in bytes: a fragment with one byte of its unit. Smaller values are raised to
/// it.
pub const MIN_PAYLOAD: u32 = 4;

/// NAL unit types of fragmentation units.
pub(super) const FU_A: u8 = 28;
pub(super) const FU_H265: u8 = 49;
/// NAL unit types of aggregation packets.
pub(super) const STAP_A: u8 = 24;
pub(super) const AP: u8 = 48;

/// Bits of a FU header.
pub(super) const START: u8 = 0x80;
pub(super) const END: u8 = 0x40;

/// The part of a NAL unit in one RTP packet; the whole unit if `offset` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset within the unit.
    pub offset: u32,
    /// Bytes of the unit in this packet.
    pub bytes: u32,
    /// Bytes of the RTP payload, fragment header included.
    pub payload_bytes: u32,
}

/// Error: the fragment is not part of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a unit of {unit} B has no fragment at {offset}")]
pub struct NotOfUnit {
    /// Offset of the fragment.
    pub offset: u32,
    /// Bytes of the unit.
    pub unit: usize,
}

/// Returns the fragments of a NAL unit of `unit_bytes` bytes in payloads of at most `max_payload` bytes,
/// all full but the last. A unit that fits stays whole; an empty unit has no fragment.
pub fn fragments(
    codec: Codec,
    unit_bytes: u32,
    max_payload: u32,
) -> impl Iterator<Item = Fragment> + Clone {
    let max_payload = max_payload.max(MIN_PAYLOAD);
    let (start, header) = if unit_bytes <= max_payload {
        (0, 0)
    } else {
        (codec.unit_header_bytes(), codec.fragment_header_bytes())
    };
    let room = max_payload - header;
    (start..unit_bytes).step_by(room as usize).map(move |offset| {
        let bytes = room.min(unit_bytes - offset);
        Fragment { offset, bytes, payload_bytes: bytes + header }
    })
}

/// Appends the RTP payload of `fragment` of `unit`.
///
/// # Errors
/// The fragment is not part of the unit; then nothing is appended.
pub fn write_payload(
    codec: Codec,
    unit: &[u8],
    fragment: Fragment,
    out: &mut Vec<u8>,
) -> Result<(), NotOfUnit> {
    let not_of_unit = NotOfUnit { offset: fragment.offset, unit: unit.len() };
    let start = fragment.offset as usize;
    let end = start.saturating_add(fragment.bytes as usize);
    let part = unit.get(start..end).ok_or(not_of_unit)?;
    if start == 0 {
        if end < unit.len() {
            return Err(not_of_unit);
        }
        out.extend(part);
        return Ok(());
    }
    if fragment.offset < codec.unit_header_bytes() {
        return Err(not_of_unit);
    }
    let first = fragment.offset == codec.unit_header_bytes();
    let last = end == unit.len();
    let ends = if first { START } else { 0 } | if last { END } else { 0 };
    match (codec, unit) {
        (Codec::H264, [header, ..]) => {
            out.extend([header & 0xe0 | FU_A, ends | header & 0x1f]);
        }
        (Codec::H265, [high, low, ..]) => {
            out.extend([high & 0x81 | FU_H265 << 1, *low, ends | high >> 1 & 0x3f]);
        }
        _ => return Err(not_of_unit),
    }
    out.extend(part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Seed;

    fn payload(codec: Codec, unit: &[u8], fragment: Fragment) -> Vec<u8> {
        let mut out = Vec::new();
        write_payload(codec, unit, fragment, &mut out).unwrap();
        assert_eq!(out.len(), fragment.payload_bytes as usize);
        out
    }

    fn payloads(codec: Codec, unit: &[u8], max_payload: u32) -> Vec<Vec<u8>> {
        let fragments = fragments(codec, unit.len() as u32, max_payload);
        fragments.map(|fragment| payload(codec, unit, fragment)).collect()
    }

    // Source: RFC 6184 §5.6: a single NAL unit packet is the NAL unit.
    #[test]
    fn a_unit_that_fits_is_sent_unchanged() {
        assert_eq!(payloads(Codec::H264, &[0x65, 1, 2, 3, 4], 5), [[0x65, 1, 2, 3, 4]]);
        assert_eq!(payloads(Codec::H265, &[0x26, 1, 2, 3, 4], 5), [[0x26, 1, 2, 3, 4]]);
        assert!(payloads(Codec::H264, &[], 5).is_empty());
    }

    // Source: RFC 6184 §5.8: FU indicator F|NRI|28, FU header S|E|R|type; an IDR slice of NRI 3
    // (0x65) has the indicator 0x7c. The unit's header is not part of the fragments.
    #[test]
    fn fu_a_marks_the_first_and_the_last_fragment() {
        assert_eq!(
            payloads(Codec::H264, &[0x65, 1, 2, 3, 4, 5, 6, 7], 5),
            [[0x7c, 0x85, 1, 2, 3].as_slice(), &[0x7c, 0x05, 4, 5, 6], &[0x7c, 0x45, 7]]
        );
    }

    // Source: RFC 7798 §4.4.3: payload header with type 49 and the unit's layer and temporal id,
    // FU header S|E|FuType. An IDR_W_RADL (19) of temporal id 1 is 26 01 on the wire.
    #[test]
    fn an_h265_fragment_keeps_layer_and_temporal_id() {
        assert_eq!(
            payloads(Codec::H265, &[0x26, 0x01, 1, 2, 3, 4, 5], 6),
            [[0x62, 0x01, 0x93, 1, 2, 3].as_slice(), &[0x62, 0x01, 0x53, 4, 5]]
        );
    }

    #[test]
    fn fragments_cover_the_unit_once_within_the_limit() {
        let mut random = Seed(6184).stream("fragments");
        for _ in 0..20_000 {
            let codec = if random.below(2) == 0 { Codec::H264 } else { Codec::H265 };
            let (unit, max_payload) = (random.below(5000) as u32, random.below(1500) as u32);
            let all: Vec<Fragment> = fragments(codec, unit, max_payload).collect();
            let max_payload = max_payload.max(MIN_PAYLOAD);
            let header = if unit > max_payload { codec.unit_header_bytes() } else { 0 };
            assert_eq!(all.iter().map(|part| part.bytes).sum::<u32>(), unit - header.min(unit));
            let mut next = header;
            for part in &all {
                assert_eq!(part.offset, next);
                assert!(part.bytes > 0 && part.payload_bytes <= max_payload);
                next += part.bytes;
            }
            // Start and end must not be in one FU (RFC 6184 §5.8).
            assert!(unit <= max_payload || all.len() >= 2);
        }
    }

    #[test]
    fn fragments_outside_the_unit_are_rejected() {
        let mut out = Vec::new();
        let part = |offset, bytes| Fragment { offset, bytes, payload_bytes: bytes };
        for (codec, fragment) in [
            (Codec::H264, part(0, 3)),
            (Codec::H264, part(3, 2)),
            (Codec::H264, part(u32::MAX, u32::MAX)),
            (Codec::H265, part(1, 2)),
        ] {
            let rejected = Err(NotOfUnit { offset: fragment.offset, unit: 4 });
            assert_eq!(write_payload(codec, &[1, 2, 3, 4], fragment, &mut out), rejected);
        }
        assert!(out.is_empty());
    }
}
