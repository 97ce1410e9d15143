//! Which RTP packets are of key frames, of a stream that something else has made.
//!
//! Source: RFC 6184 §5.4 to §5.8 and ITU-T H.264 table 7-1, RFC 7798 §4.4 and ITU-T H.265 table 7-1
//! (types of NAL units), RFC 5761 §4 (RTCP on the port of RTP).

use super::octets::Octets;
use super::packetise::{AP, Codec, FU_A, FU_H265, STAP_A};
use super::rtp::Header;

/// Payload types that RTCP has where it shares the port of RTP.
const RTCP: core::ops::RangeInclusive<u8> = 64..=95;

/// Tells packets of key frames from others, packet by packet.
///
/// A frame is a key frame from the first packet on that has a slice of one, or the parameter sets that
/// encoders write in front of it; the rest of the frame has the same time stamp. What is encrypted
/// (SRTP) shows none, nor has a stream with intra refresh any.
#[derive(Clone, Debug)]
pub struct KeyFrames {
    codec: Codec,
    /// Source and time stamp of the last key frame.
    last: Option<(u32, u32)>,
}

impl KeyFrames {
    /// At the start of a stream.
    pub const fn new(codec: Codec) -> Self {
        Self { codec, last: None }
    }

    /// Whether a datagram is an RTP packet of a key frame, as far as can be told from it and those
    /// before it.
    pub fn has(&mut self, datagram: &[u8]) -> bool {
        let Ok((header, payload)) = Header::parse(datagram) else { return false };
        if RTCP.contains(&header.payload_type) {
            return false;
        }
        let frame = Some((header.ssrc, header.timestamp));
        if frame == self.last {
            return true;
        }
        let begins = begins(self.codec, payload);
        if begins {
            self.last = frame;
        }
        begins
    }
}

/// Whether a payload has a slice of a key frame, or a parameter set.
fn begins(codec: Codec, payload: &[u8]) -> bool {
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
            let mut octets = Octets(rest);
            while let Some(unit) = octets.u16().and_then(|length| octets.take(length.into())) {
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
    use super::super::packetise::{fragments, write_payload};
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

    /// The RTP packets of a unit.
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
    fn a_key_frame_goes_from_its_parameter_sets_to_its_last_slice() {
        for (codec, set, key, other) in [
            (Codec::H264, vec![0x67, 1], [vec![0x65], vec![7; 250]].concat(), vec![0x41, 3]),
            (Codec::H265, vec![0x40, 1, 5], [vec![0x26, 1], vec![7; 250]].concat(), vec![2, 1, 3]),
        ] {
            let mut keys = KeyFrames::new(codec);
            let frames = [(1_000, vec![&set, &key]), (4_000, vec![&other]), (7_000, vec![&key])];
            let mut said = Vec::new();
            for (timestamp, units) in frames {
                let sent = units.iter().flat_map(|unit| packets(codec, timestamp, unit));
                said.extend(sent.map(|packet| keys.has(&packet)));
            }
            assert_eq!(said, [true, true, true, true, false, true, true, true], "{codec:?}");
        }
    }

    // Source: RFC 6184 §5.7.1: a header, then each unit with its length before it.
    #[test]
    fn an_aggregate_with_a_parameter_set_begins_one() {
        let mut keys = KeyFrames::new(Codec::H264);
        let other = [0x78, 0, 2, 0x09, 0x10, 0, 2, 0x41, 1];
        assert!(!keys.has(&packet(1, 96, &other)));
        let sets = [0x78, 0, 2, 0x67, 1, 0, 2, 0x68, 1];
        assert!(keys.has(&packet(2, 96, &sets)));
        assert!(keys.has(&packet(2, 96, &[0x06, 1])), "the rest of the frame");
        assert!(!keys.has(&packet(3, 96, &[0x06, 1])));
    }

    #[test]
    fn control_packets_of_rtp_are_of_no_frame() {
        let mut keys = KeyFrames::new(Codec::H264);
        assert!(!keys.has(&packet(1, 72, &[0x65, 1])));
    }

    #[test]
    fn whatever_comes_nothing_panics() {
        let mut random = Seed(1).stream("packets");
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
            for codec in [Codec::H264, Codec::H265] {
                KeyFrames::new(codec).has(&bytes);
                KeyFrames::new(codec).has(&packet(1, 96, &bytes));
            }
        }
    }
}
