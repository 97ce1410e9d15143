//! Detection of key frames in an RTP stream of any encoder.
//!
//! Source: RFC 6184 §5.4 to §5.8 and ITU-T H.264 table 7-1, RFC 7798 §4.4 and ITU-T H.265 table 7-1
//! (types of NAL units), RFC 5761 §4 (RTCP on the port of RTP).

use super::byte_reader::ByteReader;
use super::fragment::{AP, Codec, FU_A, FU_H265, STAP_A};
use super::rtp::Header;

/// Payload types that RTCP packets show where they share the port of RTP.
const RTCP: core::ops::RangeInclusive<u8> = 64..=95;

/// Detector of the packets of key frames.
///
/// A frame is a key frame from its first packet that holds a slice of one, or the parameter sets that
/// encoders write before it; all later packets with the same timestamp belong to it. Encrypted streams
/// (SRTP) and streams with intra refresh show no key frame.
#[derive(Clone, Debug)]
pub struct KeyFrames {
    codec: Codec,
    /// SSRC and timestamp of the last key frame.
    last: Option<(u32, u32)>,
}

impl KeyFrames {
    /// Creates a detector at the start of a stream.
    pub const fn new(codec: Codec) -> Self {
        Self { codec, last: None }
    }

    /// Returns whether a datagram is an RTP packet of a key frame, as far as it and the packets before it
    /// show.
    pub fn is_key_frame(&mut self, datagram: &[u8]) -> bool {
        let Ok((header, payload)) = Header::parse(datagram) else { return false };
        if RTCP.contains(&header.payload_type) {
            return false;
        }
        let frame = Some((header.ssrc, header.timestamp));
        if frame == self.last {
            return true;
        }
        let starts = starts_key_frame(self.codec, payload);
        if starts {
            self.last = frame;
        }
        starts
    }
}

/// Returns whether a payload holds a slice of a key frame or a parameter set.
fn starts_key_frame(codec: Codec, payload: &[u8]) -> bool {
    let kind = |first: u8| match codec {
        Codec::H264 => first & 0x1f,
        Codec::H265 => first >> 1 & 0x3f,
    };
    let is_key = |kind: u8| match codec {
        Codec::H264 => matches!(kind, 5 | 7 | 8),
        Codec::H265 => matches!(kind, 16..=21 | 32..=34),
    };
    let header = codec.unit_header_bytes() as usize;
    let Some((first, rest)) =
        payload.first().and_then(|first| Some((*first, payload.get(header..)?)))
    else {
        return false;
    };
    match (codec, kind(first)) {
        (Codec::H264, FU_A) => rest.first().is_some_and(|first| is_key(first & 0x1f)),
        (Codec::H265, FU_H265) => rest.first().is_some_and(|first| is_key(first & 0x3f)),
        (Codec::H264, STAP_A) | (Codec::H265, AP) => {
            let mut reader = ByteReader(rest);
            while let Some(unit) = reader.u16().and_then(|length| reader.take(length.into())) {
                if unit.first().is_some_and(|first| is_key(kind(*first))) {
                    return true;
                }
            }
            false
        }
        (_, kind) => is_key(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fragment::{fragments, write_payload};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use skybraid_units::Seed;

    fn packet(timestamp: u32, payload_type: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Header { marker: false, payload_type, sequence: 0, timestamp, ssrc: 9 }.write(&mut out);
        out.extend(payload);
        out
    }

    /// Returns the RTP packets of a unit.
    fn packets(codec: Codec, timestamp: u32, unit: &[u8]) -> Vec<Vec<u8>> {
        let parts = fragments(codec, unit.len() as u32, 100);
        let whole = parts.map(|part| {
            let mut payload = Vec::new();
            write_payload(codec, unit, part, &mut payload).unwrap();
            packet(timestamp, 96, &payload)
        });
        whole.collect()
    }

    #[test]
    fn a_key_frame_starts_with_its_parameter_sets() {
        for (codec, set, key, other) in [
            (Codec::H264, vec![0x67, 1], [vec![0x65], vec![7; 250]].concat(), vec![0x41, 3]),
            (Codec::H265, vec![0x40, 1, 5], [vec![0x26, 1], vec![7; 250]].concat(), vec![2, 1, 3]),
        ] {
            let mut detector = KeyFrames::new(codec);
            let frames = [(1_000, vec![&set, &key]), (4_000, vec![&other]), (7_000, vec![&key])];
            let mut found = Vec::new();
            for (timestamp, units) in frames {
                let sent = units.iter().flat_map(|unit| packets(codec, timestamp, unit));
                found.extend(sent.map(|packet| detector.is_key_frame(&packet)));
            }
            assert_eq!(found, [true, true, true, true, false, true, true, true], "{codec:?}");
        }
    }

    // Source: RFC 6184 §5.7.1: a header, then each unit with its length before it.
    #[test]
    fn an_aggregate_with_a_parameter_set_starts_a_key_frame() {
        let mut detector = KeyFrames::new(Codec::H264);
        let other = [0x78, 0, 2, 0x09, 0x10, 0, 2, 0x41, 1];
        assert!(!detector.is_key_frame(&packet(1, 96, &other)));
        let sets = [0x78, 0, 2, 0x67, 1, 0, 2, 0x68, 1];
        assert!(detector.is_key_frame(&packet(2, 96, &sets)));
        assert!(detector.is_key_frame(&packet(2, 96, &[0x06, 1])), "the rest of the frame");
        assert!(!detector.is_key_frame(&packet(3, 96, &[0x06, 1])));
    }

    #[test]
    fn rtcp_packets_are_of_no_frame() {
        let mut detector = KeyFrames::new(Codec::H264);
        assert!(!detector.is_key_frame(&packet(1, 72, &[0x65, 1])));
    }

    #[test]
    fn random_packets_never_panic() {
        let mut random = Seed(1).stream("packets");
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
            for codec in [Codec::H264, Codec::H265] {
                KeyFrames::new(codec).is_key_frame(&bytes);
                KeyFrames::new(codec).is_key_frame(&packet(1, 96, &bytes));
            }
        }
    }
}
