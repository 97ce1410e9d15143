//! Generic NACK: requests for retransmission.
//!
//! Source: RFC 4585 §6.1 and §6.2.1.

use alloc::vec::Vec;

use crate::video::byte_reader::ByteReader;

/// Generic NACK: packets of a stream that were not received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// SSRC of the receiver, which sends the NACK.
    pub sender: u32,
    /// SSRC of the media source.
    pub media: u32,
    /// Sequence numbers of the lost packets. The encoding is shortest in sending order.
    pub lost: Vec<u16>,
}

impl Nack {
    /// Appends for each group of losses a sequence number (PID) and a bit for each of the sixteen after it (BLP).
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.sender.to_be_bytes());
        out.extend(self.media.to_be_bytes());
        let mut rest = self.lost.iter().copied().peekable();
        while let Some(first) = rest.next() {
            let after = |next: u16| match next.wrapping_sub(first) {
                distance @ 1..=16 => Some(1_u16 << (distance - 1)),
                _ => None,
            };
            let mut mask = 0;
            // Only ascending, so that reading returns the numbers in the same order.
            while let Some(bit) =
                rest.peek().and_then(|&next| after(next)).filter(|bit| *bit > mask)
            {
                mask |= bit;
                rest.next();
            }
            out.extend(first.to_be_bytes());
            out.extend(mask.to_be_bytes());
        }
    }

    pub(super) fn parse(reader: &mut ByteReader<'_>) -> Option<Self> {
        let (sender, media) = (reader.u32()?, reader.u32()?);
        let mut lost = Vec::new();
        while !reader.is_empty() {
            let (first, mask) = (reader.u16()?, reader.u16()?);
            lost.push(first);
            let after = (0..16).filter(|bit| mask >> bit & 1 == 1);
            lost.extend(after.map(|bit| first.wrapping_add(bit + 1)));
        }
        Some(Self { sender, media, lost })
    }
}

#[cfg(test)]
mod tests {
    use crate::video::rtcp::{Nack, Packet, parse};
    use alloc::vec;
    use alloc::vec::Vec;

    // Source: RFC 4585 §6.2.1: bit i of BLP, counted from the least, is PID + i + 1.
    #[test]
    fn sixteen_packets_after_the_first_share_its_entry() {
        let lost = vec![65_535, 0, 15, 16, 40];
        let nack = Packet::Nack(Nack { sender: 1, media: 2, lost });
        let mut bytes = Vec::new();
        nack.write(&mut bytes).unwrap();
        let drawn = [
            0x81, 205, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xff, 0x80, 0x01, 0, 16, 0, 0, 0, 40, 0,
            0,
        ];
        assert_eq!(bytes, drawn);
        assert_eq!(parse(&bytes), Ok(vec![nack]));
    }

    #[test]
    fn the_order_of_losses_is_kept() {
        let nack = Packet::Nack(Nack { sender: 1, media: 2, lost: vec![5, 8, 7, 7, 4] });
        let mut bytes = Vec::new();
        nack.write(&mut bytes).unwrap();
        assert_eq!(parse(&bytes), Ok(vec![nack]));
    }
}
