//! Generic negative acknowledgements: what to send again.
//!
//! Source: RFC 4585 §6.1 and §6.2.1.

use alloc::vec::Vec;

use crate::video::octets::Octets;

/// Packets of a stream that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Who misses them.
    pub sender: u32,
    /// Whose packets they are.
    pub media: u32,
    /// Their sequence numbers. They need least room in the order in which they were sent.
    pub lost: Vec<u16>,
}

impl Nack {
    /// A packet's number (PID), and a bit for each of the sixteen after it (BLP).
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
            // Only onwards, so that reading gives the numbers in the same order.
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

    pub(super) fn parse(octets: &mut Octets<'_>) -> Option<Self> {
        let (sender, media) = (octets.u32()?, octets.u32()?);
        let mut lost = Vec::new();
        while !octets.is_empty() {
            let (first, mask) = (octets.u16()?, octets.u16()?);
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
    fn sixteen_packets_after_the_first_share_its_word() {
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
    fn any_order_is_kept() {
        let nack = Packet::Nack(Nack { sender: 1, media: 2, lost: vec![5, 8, 7, 7, 4] });
        let mut bytes = Vec::new();
        nack.write(&mut bytes).unwrap();
        assert_eq!(parse(&bytes), Ok(vec![nack]));
    }
}
