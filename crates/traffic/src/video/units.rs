//! NAL units of H.264 and H.265 streams: their types and the boundaries of frames.
//!
//! Source: ITU-T H.264 table 7-1, §9.1 and §D.1.8, ITU-T H.265 table 7-1.

use super::fragment::Codec;

/// Role of a NAL unit in its frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitKind {
    /// Whether it is a slice of a key frame (IDR in H.264, IRAP in H.265).
    pub key: bool,
    /// Frames until the picture is intact, if the unit is a recovery point of H.264.
    pub recovery_frames: Option<u32>,
    /// Whether a frame begins with it: a delimiter, the first of the parameter sets, or the slice of the
    /// first block.
    pub first: bool,
}

/// Returns the role of a unit, by its first bytes; that of an unknown type if it is too short.
pub fn unit_kind(codec: Codec, unit: &[u8]) -> UnitKind {
    let first_block = |place: usize| unit.get(place).is_some_and(|byte| byte & 0x80 != 0);
    match (codec, unit) {
        (Codec::H265, [header, ..]) => {
            let kind = header >> 1 & 0x3f;
            let first = matches!(kind, 32 | 35) || kind < 32 && first_block(2);
            UnitKind { key: matches!(kind, 16..=23), recovery_frames: None, first }
        }
        // A message (SEI) that is a recovery point.
        (Codec::H264, [header, 6, _, payload @ ..]) if header & 0x1f == 6 => {
            UnitKind { recovery_frames: exp_golomb(payload), ..UnitKind::default() }
        }
        (Codec::H264, [header, ..]) => {
            let kind = header & 0x1f;
            let first = matches!(kind, 7 | 9) || matches!(kind, 1 | 5) && first_block(1);
            UnitKind { key: kind == 5, recovery_frames: None, first }
        }
        (_, []) => UnitKind::default(),
    }
}

/// Decodes an unsigned Exp-Golomb number below 2¹⁶ - 1 (H.264 §9.1). `None` if it is larger or truncated.
///
/// Emulation prevention bytes (§7.4.1) need not be taken out: none comes before the fifth byte of such a
/// number.
fn exp_golomb(data: &[u8]) -> Option<u32> {
    let word = data.iter().take(8).enumerate();
    let word = word.fold(0u64, |word, (place, byte)| word | u64::from(*byte) << (56 - 8 * place));
    let zeros = word.leading_zeros();
    let bits = 2 * zeros + 1;
    if zeros >= 16 || bits as usize > 8 * data.len() {
        return None;
    }
    Some((word >> (64 - bits)) as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(codec: Codec, unit: &[u8]) -> (bool, bool) {
        let kind = unit_kind(codec, unit);
        (kind.key, kind.first)
    }

    // Source: ITU-T H.264 table 7-1: 5 IDR slice, 1 other slice, 7 and 8 parameter sets, 9 delimiter; the
    // first bit of a slice's contents is set if it starts at block 0.
    #[test]
    fn slices_of_the_first_block_begin_a_frame_in_h264() {
        assert_eq!(kind(Codec::H264, &[0x65, 0x88]), (true, true));
        assert_eq!(kind(Codec::H264, &[0x65, 0x08]), (true, false));
        assert_eq!(kind(Codec::H264, &[0x41, 0x9a]), (false, true));
        assert_eq!(kind(Codec::H264, &[0x41]), (false, false));
        assert_eq!(kind(Codec::H264, &[0x67, 0]), (false, true));
        assert_eq!(kind(Codec::H264, &[0x68, 0]), (false, false));
        assert_eq!(kind(Codec::H264, &[0x09, 0]), (false, true));
        assert_eq!(kind(Codec::H264, &[]), (false, false));
    }

    // Source: ITU-T H.265 table 7-1: 16 to 23 IRAP, 32 to 34 parameter sets, 35 delimiter; the header has two
    // bytes.
    #[test]
    fn slices_of_the_first_block_begin_a_frame_in_h265() {
        assert_eq!(kind(Codec::H265, &[19 << 1, 1, 0x80]), (true, true));
        assert_eq!(kind(Codec::H265, &[19 << 1, 1, 0x00]), (true, false));
        assert_eq!(kind(Codec::H265, &[1 << 1, 1, 0x80]), (false, true));
        assert_eq!(kind(Codec::H265, &[32 << 1, 1, 0x00]), (false, true));
        assert_eq!(kind(Codec::H265, &[33 << 1, 1, 0x00]), (false, false));
    }

    // Source: ITU-T H.264 table 9-1: 1 is 0, 010 is 1, 011 is 2, 00100 is 3, 0001010 is 9.
    #[test]
    fn numbers_are_those_of_the_table_of_exp_golomb_codes() {
        for (code, value) in [(0x80, 0), (0x40, 1), (0x60, 2), (0x20, 3), (0b0001_0100, 9)] {
            assert_eq!(exp_golomb(&[code]), Some(value));
            let unit = [0x06, 6, 1, code, 0x80];
            assert_eq!(unit_kind(Codec::H264, &unit).recovery_frames, Some(value));
        }
        assert_eq!(exp_golomb(&[0x00, 0x80, 0x80]), Some(256));
        assert_eq!(exp_golomb(&[0x00, 0x80]), None);
        assert_eq!(exp_golomb(&[0x00]), None);
        assert_eq!(exp_golomb(&[]), None);
    }
}
