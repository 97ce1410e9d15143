//! RTP headers and sequence numbers.
//!
//! Source: RFC 3550 §5.1 (header), §5.3.1 (extension), §A.1 (sequence numbers).

use alloc::vec::Vec;

use super::byte_reader::ByteReader;

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 12;

/// Rate of the timestamps of video, in Hz (RFC 6184 §8.2.1, RFC 7798 §7.1).
pub const VIDEO_CLOCK_HZ: u32 = 90_000;

const VERSION: u8 = 2;

/// The fixed RTP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Marker bit; in video the last packet of a frame.
    pub marker: bool,
    /// Payload type, 0 to 127.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Capture time of the frame, in ticks of the payload's clock.
    pub timestamp: u32,
    /// Synchronisation source.
    pub ssrc: u32,
}

/// Error in an RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtpError {
    /// The packet ends within the header, the list of contributing sources or the extension.
    #[error("the packet ends within its header")]
    Short,
    /// The version is not 2.
    #[error("version {0} instead of 2")]
    Version(u8),
    /// The padding is zero bytes long, or longer than the payload.
    #[error("padding of {0} bytes")]
    Padding(u8),
}

impl Header {
    /// Appends the fixed header: [`HEADER_BYTES`] bytes without padding, extension or contributing source.
    /// Only the low seven bits of the payload type are written.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(VERSION << 6);
        out.push(u8::from(self.marker) << 7 | self.payload_type & 0x7f);
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.timestamp.to_be_bytes());
        out.extend(self.ssrc.to_be_bytes());
    }

    /// Returns the header of `packet` and its payload without contributing sources, extension and
    /// padding.
    ///
    /// # Errors
    /// The bytes are not an RTP packet.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), RtpError> {
        let mut reader = ByteReader(packet);
        let (header, first) = Self::read(&mut reader).ok_or(RtpError::Short)?;
        if first >> 6 != VERSION {
            return Err(RtpError::Version(first >> 6));
        }
        let sources = usize::from(first & 0x0f);
        reader.take(4 * sources).ok_or(RtpError::Short)?;
        if first & 0x10 != 0 {
            skip_extension(&mut reader).ok_or(RtpError::Short)?;
        }
        let mut payload = reader.0;
        if first & 0x20 != 0 {
            let padding = payload.last().copied().ok_or(RtpError::Padding(0))?;
            let kept = payload.len().checked_sub(usize::from(padding));
            payload = kept
                .filter(|_| padding > 0)
                .and_then(|kept| payload.get(..kept))
                .ok_or(RtpError::Padding(padding))?;
        }
        Ok((header, payload))
    }

    fn read(reader: &mut ByteReader<'_>) -> Option<(Self, u8)> {
        let [first, second] = reader.array()?;
        let header = Self {
            marker: second & 0x80 != 0,
            payload_type: second & 0x7f,
            sequence: reader.u16()?,
            timestamp: reader.u32()?,
            ssrc: reader.u32()?,
        };
        Some((header, first))
    }
}

fn skip_extension(reader: &mut ByteReader<'_>) -> Option<()> {
    reader.u16()?;
    let words = reader.u16()?;
    reader.take(4 * usize::from(words)).map(|_| ())
}

/// Extends numbers of `BITS` bits, which wrap around, to 64 bits: sequence numbers (16) and timestamps (32).
///
/// A number is taken as the one nearest to the highest seen, so that packets may be reordered by up to
/// half a cycle. The first one is placed in the second cycle, so that what was sent before it has a number
/// too; the low bits are always those of the packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwrapper<const BITS: u32> {
    highest: Option<u64>,
}

impl<const BITS: u32> Unwrapper<BITS> {
    /// Returns the extended `number` without taking it into account.
    pub fn nearest(&self, number: u32) -> u64 {
        let highest = self.highest.unwrap_or(1 << BITS | u64::from(number));
        let unused = 64 - BITS;
        let ahead = (u64::from(number).wrapping_sub(highest) << unused) as i64 >> unused;
        highest.saturating_add_signed(ahead)
    }

    /// Returns the extended `number` of a packet.
    pub fn unwrap(&mut self, number: u32) -> u64 {
        let found = self.nearest(number);
        self.highest = Some(self.highest.map_or(found, |highest| highest.max(found)));
        found
    }

    /// Returns the highest number so far.
    pub const fn highest(&self) -> Option<u64> {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skybraid_units::Seed;

    const HEADER: Header = Header {
        marker: true,
        payload_type: 96,
        sequence: 0x1234,
        timestamp: 0x89ab_cdef,
        ssrc: 0xdead_beef,
    };

    // Source: RFC 3550 §5.1: version 2, no padding, no extension, no contributing source.
    #[test]
    fn the_header_matches_the_figure_of_rfc_3550() {
        let mut bytes = Vec::new();
        HEADER.write(&mut bytes);
        let drawn = [0x80, 0xe0, 0x12, 0x34, 0x89, 0xab, 0xcd, 0xef, 0xde, 0xad, 0xbe, 0xef];
        assert_eq!(bytes, drawn);
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(Header::parse(&bytes), Ok((HEADER, [].as_slice())));
    }

    // Source: RFC 3550 §5.1: padding's last byte counts itself; §5.3.1: the extension's length
    // counts words after its own first word.
    #[test]
    fn sources_extension_and_padding_are_skipped() {
        let mut bytes = vec![0x80 | 0x20 | 0x10 | 2, 0xe0, 0x12, 0x34, 0x89, 0xab, 0xcd, 0xef];
        bytes.extend([0xde, 0xad, 0xbe, 0xef]);
        bytes.extend([1; 8]);
        bytes.extend([0xbe, 0xde, 0, 1, 9, 9, 9, 9]);
        bytes.extend(b"video");
        bytes.extend([0, 0, 3]);
        assert_eq!(Header::parse(&bytes), Ok((HEADER, b"video".as_slice())));
    }

    #[test]
    fn packets_that_are_not_rtp_are_rejected() {
        let mut bytes = Vec::new();
        HEADER.write(&mut bytes);
        assert_eq!(Header::parse(&bytes[..11]), Err(RtpError::Short));
        let with = |first: u8, rest: &[u8]| {
            let mut changed = bytes.clone();
            changed[0] = first;
            changed.extend(rest);
            Header::parse(&changed).map(|(_, payload)| payload.len())
        };
        assert_eq!(with(0x40, &[]), Err(RtpError::Version(1)));
        assert_eq!(with(0x81, &[0; 3]), Err(RtpError::Short));
        assert_eq!(with(0x90, &[0, 0, 0, 2, 0, 0, 0, 0]), Err(RtpError::Short));
        assert_eq!(with(0xa0, &[]), Err(RtpError::Padding(0)));
        assert_eq!(with(0xa0, &[1, 0]), Err(RtpError::Padding(0)));
        assert_eq!(with(0xa0, &[1, 3]), Err(RtpError::Padding(3)));
        assert_eq!(with(0xa0, &[1, 2]), Ok(0));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut stream = Seed(3550).stream("rtp");
        for _ in 0..20_000 {
            let length = stream.below(48) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| stream.next_u64() as u8).collect();
            if let Some(first) = bytes.first_mut() {
                *first = *first & 0x3f | 0x80;
            }
            if let Ok((_, payload)) = Header::parse(&bytes) {
                assert!(payload.len() + HEADER_BYTES <= length);
            }
        }
    }

    #[test]
    fn sequence_numbers_are_extended_past_the_wrap_in_any_order() {
        let mut stream = Seed(1).stream("sequence");
        let mut unwrapper = Unwrapper::<16>::default();
        let first = 1 << 16 | 65_000;
        assert_eq!(unwrapper.unwrap(65_000), first);
        let mut sent: u64 = first;
        for _ in 0..200_000 {
            sent += stream.below(30);
            let late = sent.saturating_sub(stream.below(5000)).max(first - 500);
            assert_eq!(unwrapper.unwrap(late as u16 as u32), late);
        }
        assert!(sent > first + 20 * 65_536);
        assert!(unwrapper.highest() <= Some(sent));
    }
}
