//! RTCP packets.
//!
//! Source: RFC 3550 §6 (reports, compound packets, BYE).

use alloc::vec::Vec;

use skybraid_units::invariant::Promised as _;

use super::byte_reader::ByteReader;

mod reception;
mod report;

pub use reception::Reception;
pub use report::{
    Description, Name, ReceiverReport, ReportBlock, SenderReport, ntp_middle, ntp_timestamp,
};

const VERSION: u8 = 2;

/// Packet types.
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const DESCRIPTION: u8 = 202;
const BYE: u8 = 203;

/// An RTCP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Sender report (SR).
    SenderReport(SenderReport),
    /// Receiver report (RR).
    ReceiverReport(ReceiverReport),
    /// Source description (SDES).
    Description(Description),
    /// Goodbye of a source (BYE). One that names several sources is read as that of the first; its reason is
    /// ignored.
    Bye {
        /// SSRC of the source.
        ssrc: u32,
    },
    /// A packet of another type, whose contents are ignored.
    Other {
        /// Packet type.
        kind: u8,
    },
}

/// Error in an RTCP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtcpError {
    /// The bytes end within a packet.
    #[error("the packet ends too early")]
    Short,
    /// The version is not 2.
    #[error("version {0} instead of 2")]
    Version(u8),
    /// The padding is not in the last packet, or has an invalid length.
    #[error("the padding is not in the last packet, or has a wrong length")]
    Padding,
    /// The contents do not match the length of the packet.
    #[error("the contents of a packet of type {0} do not fit its length")]
    Contents(u8),
}

/// Error in writing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The packet has more blocks, names or bytes than its fields can count.
    #[error("the packet has more blocks, names or bytes than its counters can hold")]
    TooLong,
    /// The packet type is unknown.
    #[error("a packet of type {0} cannot be written")]
    Unknown(u8),
}

/// Returns whether a packet on a port shared with RTP is RTCP, by its second byte (RFC 5761 §4).
pub fn is_rtcp(packet: &[u8]) -> bool {
    packet.get(1).is_some_and(|kind| (192..=223).contains(kind))
}

impl Packet {
    /// Appends the packet.
    ///
    /// # Errors
    /// The packet holds more than its fields can count; then nothing is appended.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), WriteError> {
        let start = out.len();
        // Count, type and length are filled in after the contents.
        out.extend([0; 4]);
        let written = match self {
            Self::SenderReport(report) => report.write(out).map(|n| (n, SENDER_REPORT)),
            Self::ReceiverReport(report) => report.write(out).map(|n| (n, RECEIVER_REPORT)),
            Self::Description(names) => names.write(out).map(|n| (n, DESCRIPTION)),
            Self::Bye { ssrc } => {
                out.extend(ssrc.to_be_bytes());
                Ok((1, BYE))
            }
            Self::Other { kind } => Err(WriteError::Unknown(*kind)),
        };
        let framed = written.and_then(|(count, kind)| {
            let words = (out.len() - start) / 4 - 1;
            let [high, low] = u16::try_from(words).map_err(|_| WriteError::TooLong)?.to_be_bytes();
            if let Some(header) = out.get_mut(start..start + 4).promised("the header just written")
            {
                header.copy_from_slice(&[VERSION << 6 | count, kind, high, low]);
            }
            Ok(())
        });
        if framed.is_err() {
            out.truncate(start);
        }
        framed
    }

    fn parse(count: u8, kind: u8, mut contents: ByteReader<'_>) -> Option<Self> {
        let reader = &mut contents;
        Some(match (kind, count) {
            (SENDER_REPORT, _) => Self::SenderReport(SenderReport::parse(count, reader)?),
            (RECEIVER_REPORT, _) => Self::ReceiverReport(ReceiverReport::parse(count, reader)?),
            (DESCRIPTION, _) => Self::Description(Description::parse(count, reader)?),
            (BYE, 1..) => Self::Bye { ssrc: reader.u32()? },
            _ => Self::Other { kind },
        })
    }
}

/// Returns the packets of a compound packet. A single feedback packet is accepted too (RFC 5506).
///
/// # Errors
/// The bytes are not RTCP.
pub fn parse(bytes: &[u8]) -> Result<Vec<Packet>, RtcpError> {
    let mut reader = ByteReader(bytes);
    let mut packets = Vec::new();
    while !reader.is_empty() {
        let [first, kind] = reader.array().ok_or(RtcpError::Short)?;
        if first >> 6 != VERSION {
            return Err(RtcpError::Version(first >> 6));
        }
        let words = reader.u16().ok_or(RtcpError::Short)?;
        let mut contents = reader.take(4 * usize::from(words)).ok_or(RtcpError::Short)?;
        if first & 0x20 != 0 {
            let padding = contents.last().copied().unwrap_or(0);
            let kept = contents.len().checked_sub(usize::from(padding));
            let whole = padding > 0 && padding.is_multiple_of(4) && reader.is_empty();
            contents = kept
                .filter(|_| whole)
                .and_then(|kept| contents.get(..kept))
                .ok_or(RtcpError::Padding)?;
        }
        let packet = Packet::parse(first & 0x1f, kind, ByteReader(contents));
        packets.push(packet.ok_or(RtcpError::Contents(kind))?);
    }
    if packets.is_empty() { Err(RtcpError::Short) } else { Ok(packets) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skybraid_units::{Seed, Stream};

    fn block(random: &mut Stream) -> ReportBlock {
        ReportBlock {
            ssrc: random.next_u64() as u32,
            fraction_lost: random.next_u64() as u8,
            lost: (random.next_u64() as i32) >> 8,
            highest: random.next_u64() as u32,
            jitter: random.next_u64() as u32,
            last_report: random.next_u64() as u32,
            delay: random.next_u64() as u32,
        }
    }

    fn packet(random: &mut Stream) -> Packet {
        let ssrc = random.next_u64() as u32;
        let count = random.below(32);
        match random.below(4) {
            0 => Packet::SenderReport(SenderReport {
                ssrc,
                ntp: random.next_u64(),
                timestamp: random.next_u64() as u32,
                packets: random.next_u64() as u32,
                bytes: random.next_u64() as u32,
                blocks: (0..count).map(|_| block(random)).collect(),
            }),
            1 => Packet::ReceiverReport(ReceiverReport {
                ssrc,
                blocks: (0..count).map(|_| block(random)).collect(),
            }),
            2 => Packet::Description(Description {
                names: (0..count)
                    .map(|ssrc| Name {
                        ssrc: ssrc as u32,
                        cname: (0..random.below(256)).map(|_| 'a').collect(),
                    })
                    .collect(),
            }),
            _ => Packet::Bye { ssrc },
        }
    }

    // Source: RFC 3550 §6.6.
    #[test]
    fn a_goodbye_matches_the_figure_of_rfc_3550() {
        let mut bytes = Vec::new();
        Packet::Bye { ssrc: 0x0102_0304 }.write(&mut bytes).unwrap();
        assert_eq!(bytes, [0x81, 203, 0, 1, 1, 2, 3, 4]);
        let two_with_reason = [0x82, 203, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 3, b'e', b'n', b'd'];
        assert_eq!(parse(&two_with_reason), Ok(vec![Packet::Bye { ssrc: 0x0102_0304 }]));
        assert_eq!(parse(&[0x80, 203, 0, 0]), Ok(vec![Packet::Other { kind: 203 }]));
    }

    #[test]
    fn written_packets_are_read_back() {
        let mut random = Seed(3550).stream("rtcp");
        for _ in 0..2000 {
            let packets: Vec<Packet> = (0..=random.below(4)).map(|_| packet(&mut random)).collect();
            let mut bytes = Vec::new();
            packets.iter().for_each(|packet| packet.write(&mut bytes).unwrap());
            assert!(is_rtcp(&bytes) && bytes.len().is_multiple_of(4));
            assert_eq!(parse(&bytes), Ok(packets));
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Seed(8888).stream("any");
        let mut read = 0;
        for _ in 0..50_000 {
            let mut bytes = Vec::new();
            packet(&mut random).write(&mut bytes).unwrap();
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            bytes.truncate(1 + random.below(bytes.len() as u64 * 2) as usize);
            read += u32::from(parse(&bytes).is_ok());
        }
        assert!(read > 1000);
    }

    #[test]
    fn packets_that_are_not_rtcp_are_rejected() {
        assert_eq!(parse(&[]), Err(RtcpError::Short));
        assert_eq!(parse(&[0x80, 201, 0]), Err(RtcpError::Short));
        assert_eq!(parse(&[0x40, 201, 0, 0]), Err(RtcpError::Version(1)));
        assert_eq!(parse(&[0x80, 201, 0, 2, 0, 0, 0, 1]), Err(RtcpError::Short));
        assert_eq!(parse(&[0x81, 201, 0, 1, 0, 0, 0, 1]), Err(RtcpError::Contents(201)));
        assert_eq!(parse(&[0x80, 204, 0, 0]), Ok(vec![Packet::Other { kind: 204 }]));
        // Padding counts itself and is in the last packet only (RFC 3550 §6.4.1).
        let padded = [0xa0, 201, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4];
        let report = Packet::ReceiverReport(ReceiverReport { ssrc: 1, blocks: vec![] });
        assert_eq!(parse(&padded), Ok(vec![report]));
        let twice = [padded, padded].concat();
        assert_eq!(parse(&twice), Err(RtcpError::Padding));
        assert_eq!(parse(&[0xa0, 201, 0, 1, 0, 0, 0, 8]), Err(RtcpError::Padding));
    }
}
