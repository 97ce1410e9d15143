//! RTCP: what receivers and senders tell each other about the media.
//!
//! Source: RFC 3550 §6 (reports, compound packets), RFC 4585 §6.2.1 (generic NACK), RFC 8888 §3.1
//! (congestion control feedback).

use alloc::vec::Vec;

use super::octets::Octets;

mod congestion;
mod nack;
mod report;

pub use congestion::{
    Arrival, CongestionFeedback, MOST_METRICS, OFFSET_OVER_RANGE, OFFSET_UNKNOWN, StreamReport,
    arrival_offset, duration_of,
};
pub use nack::Nack;
pub use report::{
    Description, Name, ReceiverReport, ReportBlock, SenderReport, ntp_middle, ntp_timestamp,
};

const VERSION: u8 = 2;

/// Packet types.
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const DESCRIPTION: u8 = 202;
const TRANSPORT_FEEDBACK: u8 = 205;

/// Formats of transport layer feedback.
const NACK: u8 = 1;
const CONGESTION: u8 = 11;

/// One packet of a compound packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// From who sends media.
    SenderReport(SenderReport),
    /// From who only receives.
    ReceiverReport(ReceiverReport),
    /// The names of sources.
    Description(Description),
    /// Packets to send again.
    Nack(Nack),
    /// Which packets arrived, and when.
    Congestion(CongestionFeedback),
    /// A packet of another type or format, which is passed over.
    Other {
        /// Its packet type.
        kind: u8,
    },
}

/// Why bytes are no RTCP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtcpError {
    /// They end within a packet.
    #[error("the packet ends too early")]
    Short,
    /// They are of another version, or no RTCP at all.
    #[error("version {0} instead of 2")]
    Version(u8),
    /// Padding in another packet than the last, or of a wrong length.
    #[error("the padding is wrong")]
    Padding,
    /// The contents do not fit the length of the packet.
    #[error("the contents of a packet of type {0} do not fit its length")]
    Contents(u8),
}

/// Why a packet cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// More blocks, names, octets or metrics than its counters can tell.
    #[error("the packet has more than its counters can tell")]
    TooLong,
    /// A compound packet begins with a report (RFC 3550 §6.1).
    #[error("a compound packet begins with a sender or receiver report")]
    NoReport,
    /// A packet of an unknown type has no contents to write.
    #[error("a packet of type {0} cannot be written")]
    Unknown(u8),
}

/// Tells RTCP from RTP on a shared port: by the second octet (RFC 5761 §4).
pub fn is_rtcp(packet: &[u8]) -> bool {
    packet.get(1).is_some_and(|kind| (192..=223).contains(kind))
}

impl Packet {
    /// Appends the packet.
    ///
    /// # Errors
    /// It holds more than its counters can tell; then nothing is appended.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), WriteError> {
        let start = out.len();
        // The first octet's count, the type and the length follow when the contents are known.
        out.extend([0; 4]);
        let written = match self {
            Self::SenderReport(report) => report.write(out).map(|n| (n, SENDER_REPORT)),
            Self::ReceiverReport(report) => report.write(out).map(|n| (n, RECEIVER_REPORT)),
            Self::Description(names) => names.write(out).map(|n| (n, DESCRIPTION)),
            Self::Nack(nack) => {
                nack.write(out);
                Ok((NACK, TRANSPORT_FEEDBACK))
            }
            Self::Congestion(feedback) => {
                feedback.write(out).map(|()| (CONGESTION, TRANSPORT_FEEDBACK))
            }
            Self::Other { kind } => Err(WriteError::Unknown(*kind)),
        };
        let framed = written.and_then(|(count, kind)| {
            let words = (out.len() - start) / 4 - 1;
            let [high, low] = u16::try_from(words).map_err(|_| WriteError::TooLong)?.to_be_bytes();
            if let Some(header) = out.get_mut(start..start + 4) {
                header.copy_from_slice(&[VERSION << 6 | count, kind, high, low]);
            }
            Ok(())
        });
        if framed.is_err() {
            out.truncate(start);
        }
        framed
    }

    fn parse(count: u8, kind: u8, mut contents: Octets<'_>) -> Option<Self> {
        let octets = &mut contents;
        Some(match (kind, count) {
            (SENDER_REPORT, _) => Self::SenderReport(SenderReport::parse(count, octets)?),
            (RECEIVER_REPORT, _) => Self::ReceiverReport(ReceiverReport::parse(count, octets)?),
            (DESCRIPTION, _) => Self::Description(Description::parse(count, octets)?),
            (TRANSPORT_FEEDBACK, NACK) => Self::Nack(Nack::parse(octets)?),
            (TRANSPORT_FEEDBACK, CONGESTION) => {
                Self::Congestion(CongestionFeedback::parse(octets)?)
            }
            _ => Self::Other { kind },
        })
    }
}

/// Appends a compound packet as RFC 3550 §6.1 wants it: a sender or receiver report, the names of
/// the sources, then the `others`.
///
/// # Errors
/// `report` is none, or a packet cannot be written; then nothing is appended.
pub fn write_compound(
    report: &Packet,
    names: &Description,
    others: &[Packet],
    out: &mut Vec<u8>,
) -> Result<(), WriteError> {
    if !matches!(report, Packet::SenderReport(_) | Packet::ReceiverReport(_)) {
        return Err(WriteError::NoReport);
    }
    let start = out.len();
    let names = Packet::Description(names.clone());
    let written =
        [report, &names].into_iter().chain(others).try_for_each(|packet| packet.write(out));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// Reads all packets of a compound packet. A single feedback packet is read too (RFC 5506).
///
/// # Errors
/// The bytes are no RTCP packet.
pub fn parse(bytes: &[u8]) -> Result<Vec<Packet>, RtcpError> {
    let mut octets = Octets(bytes);
    let mut packets = Vec::new();
    while !octets.is_empty() {
        let [first, kind] = octets.array().ok_or(RtcpError::Short)?;
        if first >> 6 != VERSION {
            return Err(RtcpError::Version(first >> 6));
        }
        let words = octets.u16().ok_or(RtcpError::Short)?;
        let mut contents = octets.take(4 * usize::from(words)).ok_or(RtcpError::Short)?;
        if first & 0x20 != 0 {
            let padding = contents.last().copied().unwrap_or(0);
            let kept = contents.len().checked_sub(usize::from(padding));
            let whole = padding > 0 && padding.is_multiple_of(4) && octets.is_empty();
            contents = kept
                .filter(|_| whole)
                .and_then(|kept| contents.get(..kept))
                .ok_or(RtcpError::Padding)?;
        }
        let packet = Packet::parse(first & 0x1f, kind, Octets(contents));
        packets.push(packet.ok_or(RtcpError::Contents(kind))?);
    }
    if packets.is_empty() { Err(RtcpError::Short) } else { Ok(packets) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
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
        match random.below(5) {
            0 => Packet::SenderReport(SenderReport {
                ssrc,
                ntp: random.next_u64(),
                timestamp: random.next_u64() as u32,
                packets: random.next_u64() as u32,
                octets: random.next_u64() as u32,
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
            3 => {
                let mut next = random.next_u64() as u16;
                let lost = (0..=count).map(|_| {
                    next = next.wrapping_add(1 + random.below(30) as u16);
                    next
                });
                Packet::Nack(Nack { sender: ssrc, media: 7, lost: lost.collect() })
            }
            _ => Packet::Congestion(CongestionFeedback {
                sender: ssrc,
                streams: (0..random.below(4))
                    .map(|ssrc| StreamReport {
                        ssrc: ssrc as u32,
                        begin: random.next_u64() as u16,
                        packets: (0..random.below(40))
                            .map(|_| {
                                (random.below(3) > 0).then(|| Arrival {
                                    ecn: random.below(4) as u8,
                                    offset: random.below(0x2000) as u16,
                                })
                            })
                            .collect(),
                    })
                    .collect(),
                timestamp: random.next_u64() as u32,
            }),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
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
    fn no_bytes_make_the_reader_panic() {
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

    // Source: RFC 3550 §6.1: a report first, CNAME in each compound packet.
    #[test]
    fn a_compound_packet_begins_with_a_report_and_names_its_source() {
        let names = Description { names: vec![Name { ssrc: 1, cname: String::from("uav") }] };
        let nack = Packet::Nack(Nack { sender: 1, media: 2, lost: vec![5] });
        let mut bytes = Vec::new();
        let refused = write_compound(&nack, &names, &[], &mut bytes);
        assert_eq!((refused, bytes.len()), (Err(WriteError::NoReport), 0));
        let report = Packet::ReceiverReport(ReceiverReport { ssrc: 1, blocks: vec![] });
        write_compound(&report, &names, core::slice::from_ref(&nack), &mut bytes).unwrap();
        assert_eq!(
            parse(&bytes),
            Ok(vec![report.clone(), Packet::Description(names.clone()), nack])
        );
        let length = bytes.len();
        let other = [Packet::Other { kind: 204 }];
        let refused = write_compound(&report, &names, &other, &mut bytes);
        assert_eq!((refused, bytes.len()), (Err(WriteError::Unknown(204)), length));
    }

    #[test]
    fn what_is_no_rtcp_is_named_so() {
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
