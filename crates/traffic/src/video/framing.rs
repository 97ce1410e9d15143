//! Framing of RTP and RTCP packets in a byte stream.
//!
//! Source: RFC 4571 §2: each packet follows its length in two bytes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes of the length field.
pub const LENGTH_BYTES: usize = 2;

/// Error: the packet is longer than 65 535 B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {0} B does not fit a length of 16 bits")]
pub struct TooLong(pub usize);

/// Appends `packet` after its length.
///
/// # Errors
/// The packet is longer than 65 535 B; then nothing is appended.
pub fn write(packet: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    let length = u16::try_from(packet.len()).map_err(|_| TooLong(packet.len()))?;
    out.extend(length.to_be_bytes());
    out.extend(packet);
    Ok(())
}

/// Splits a byte stream into packets. The stream may arrive in pieces of any size.
///
/// The reader buffers unread bytes; a packet needs at most 65 537 B of them.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    bytes: VecDeque<u8>,
}

impl Reader {
    /// Appends received bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Returns the next packet once it is complete. Null packets, of length zero, are skipped.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        loop {
            let length = [*self.bytes.front()?, *self.bytes.get(1)?];
            let end = LENGTH_BYTES + usize::from(u16::from_be_bytes(length));
            if self.bytes.len() < end {
                return None;
            }
            let packet: Vec<u8> = self.bytes.drain(..end).skip(LENGTH_BYTES).collect();
            if !packet.is_empty() {
                return Some(packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skybraid_units::Seed;

    #[test]
    fn the_length_comes_first_in_network_byte_order() {
        let mut stream = Vec::new();
        write(&[7; 258], &mut stream).unwrap();
        assert_eq!(stream[..3], [1, 2, 7]);
        assert_eq!(stream.len(), 260);
        assert_eq!(write(&[0; 65_536], &mut stream), Err(TooLong(65_536)));
        assert_eq!(stream.len(), 260);
    }

    #[test]
    fn packets_stay_whole_however_the_stream_is_split() {
        let mut random = Seed(4571).stream("framing");
        let lengths = [1, 65_535, 1200, 0, 3, 256, 255, 0, 0, 20];
        let packets: Vec<Vec<u8>> =
            lengths.iter().map(|&length| vec![length as u8; length]).collect();
        let mut stream = Vec::new();
        packets.iter().for_each(|packet| write(packet, &mut stream).unwrap());
        let sent: Vec<Vec<u8>> = packets.into_iter().filter(|packet| !packet.is_empty()).collect();
        for max_piece in [1, 2, 7, 1460, 100_000] {
            let mut reader = Reader::default();
            let mut rest = stream.as_slice();
            let mut received = Vec::new();
            while !rest.is_empty() {
                let (piece, after) =
                    rest.split_at(rest.len().min(1 + random.below(max_piece) as usize));
                reader.push(piece);
                received.extend(core::iter::from_fn(|| reader.take()));
                rest = after;
            }
            assert_eq!(received, sent);
        }
    }
}
