//! RTCP congestion control feedback: arrival time and ECN mark of each packet.
//!
//! Source: RFC 8888 §3.1, with erratum 8166 (`num_reports` is the count of metric blocks).

use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::WriteError;
use crate::video::byte_reader::ByteReader;

/// Maximum number of packets of one stream in a report.
pub const MAX_METRICS: usize = 16_384;

/// Arrival time offset of a packet received more than 8189/1024 s before the report.
pub const OFFSET_OVER_RANGE: u16 = 0x1ffe;

/// Arrival time offset of a packet whose arrival time is unknown or after the report.
pub const OFFSET_UNKNOWN: u16 = 0x1fff;

const RECEIVED: u16 = 0x8000;

/// Congestion control feedback on one or more streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionFeedback {
    /// SSRC of the receiver, which sends the report.
    pub sender: u32,
    /// Report blocks, one per stream.
    pub streams: Vec<StreamReport>,
    /// Report timestamp: the middle 32 bits of an NTP timestamp, in 1/65536 s.
    pub timestamp: u32,
}

/// Report block of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// SSRC of the stream.
    pub ssrc: u32,
    /// Sequence number of the first of `packets`.
    pub begin: u16,
    /// Consecutive packets from `begin` on; `None` for those not received. At most [`MAX_METRICS`].
    pub packets: Vec<Option<Arrival>>,
}

/// Metric block of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The two bits of its ECN field.
    pub ecn: u8,
    /// Arrival time offset: time from arrival to report in 1/1024 s, 13 bits; or [`OFFSET_OVER_RANGE`] or
    /// [`OFFSET_UNKNOWN`].
    pub offset: u16,
}

/// Returns the arrival time offset of a packet received at `arrived`, in a report made at `reported`. Both
/// times are of the clock of the report timestamp.
pub fn arrival_offset(arrived: Instant, reported: Instant) -> u16 {
    let scaled = (i128::from(reported.as_nanos()) - i128::from(arrived.as_nanos())) << 10;
    match u128::try_from(scaled) {
        Err(_) => OFFSET_UNKNOWN,
        Ok(scaled) if scaled > 8189 * 1_000_000_000 => OFFSET_OVER_RANGE,
        Ok(scaled) => (scaled / 1_000_000_000) as u16,
    }
}

/// Returns the time from arrival to report, `None` if the offset encodes none.
pub fn duration_of(offset: u16) -> Option<Duration> {
    let nanos = (i64::from(offset) * 1_000_000_000) >> 10;
    (offset < OFFSET_OVER_RANGE).then_some(Duration::from_nanos(nanos))
}

impl CongestionFeedback {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), WriteError> {
        out.extend(self.sender.to_be_bytes());
        for stream in &self.streams {
            if stream.packets.len() > MAX_METRICS {
                return Err(WriteError::TooLong);
            }
            out.extend(stream.ssrc.to_be_bytes());
            out.extend(stream.begin.to_be_bytes());
            out.extend((stream.packets.len() as u16).to_be_bytes());
            for packet in &stream.packets {
                let metric = packet.map_or(0, |arrival| {
                    let ecn = u16::from(arrival.ecn & 3);
                    RECEIVED | ecn << 13 | arrival.offset & 0x1fff
                });
                out.extend(metric.to_be_bytes());
            }
            if !stream.packets.len().is_multiple_of(2) {
                out.extend([0; 2]);
            }
        }
        out.extend(self.timestamp.to_be_bytes());
        Ok(())
    }

    pub(super) fn parse(reader: &mut ByteReader<'_>) -> Option<Self> {
        let sender = reader.u32()?;
        let mut streams = Vec::new();
        while reader.len() > 4 {
            streams.push(parse_stream(reader)?);
        }
        Some(Self { sender, streams, timestamp: reader.u32()? })
    }
}

fn parse_stream(reader: &mut ByteReader<'_>) -> Option<StreamReport> {
    let (ssrc, begin, count) = (reader.u32()?, reader.u16()?, reader.u16()?);
    let metrics = reader.take(2 * usize::from(count))?;
    reader.take(2 * usize::from(count % 2))?;
    let mut metrics = ByteReader(metrics);
    let packets = core::iter::from_fn(|| metrics.u16()).map(|metric| {
        (metric & RECEIVED != 0)
            .then_some(Arrival { ecn: (metric >> 13 & 3) as u8, offset: metric & 0x1fff })
    });
    Some(StreamReport { ssrc, begin, packets: packets.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::rtcp::{Packet, RtcpError, parse};
    use alloc::vec;

    // Source: RFC 8888 §3.1, the drawing: R, ECN (2), offset (13); an odd count is padded.
    #[test]
    fn the_feedback_matches_the_figure_of_rfc_8888() {
        let arrived = |ecn, offset| Some(Arrival { ecn, offset });
        let first = StreamReport {
            ssrc: 2,
            begin: 65_535,
            packets: vec![arrived(3, 1), None, arrived(1, 0x1fff)],
        };
        let second = StreamReport { ssrc: 3, begin: 7, packets: vec![arrived(0, 0x400), None] };
        let third = StreamReport { ssrc: 4, begin: 9, packets: vec![] };
        let feedback = Packet::Congestion(CongestionFeedback {
            sender: 1,
            streams: vec![first, second, third],
            timestamp: 0x0a0b_0c0d,
        });
        let mut bytes = Vec::new();
        feedback.write(&mut bytes).unwrap();
        let mut drawn = vec![0x8b, 205, 0, 11, 0, 0, 0, 1];
        drawn.extend([0, 0, 0, 2, 0xff, 0xff, 0, 3, 0xe0, 0x01, 0, 0, 0xbf, 0xff, 0, 0]);
        drawn.extend([0, 0, 0, 3, 0, 7, 0, 2, 0x84, 0, 0, 0]);
        drawn.extend([0, 0, 0, 4, 0, 9, 0, 0]);
        drawn.extend([0x0a, 0x0b, 0x0c, 0x0d]);
        assert_eq!(bytes, drawn);
        assert_eq!(parse(&bytes), Ok(vec![feedback]));
    }

    // Source: RFC 8888 §3.1: 1/1024 s; above 8189/1024 s 0x1FFE, after the report 0x1FFF.
    #[test]
    fn offsets_count_1024ths_of_a_second_back_from_the_report() {
        let report = Instant::from_millis(20_000);
        let offset = |ms| arrival_offset(Instant::from_millis(ms), report);
        assert_eq!(offset(20_000), 0);
        assert_eq!(offset(19_500), 512);
        assert_eq!(offset(20_001), OFFSET_UNKNOWN);
        assert_eq!(offset(20_000 - 7_998), OFFSET_OVER_RANGE);
        assert_eq!(offset(20_000 - 7_997), 8188);
        assert_eq!(offset(0), OFFSET_OVER_RANGE);
        assert_eq!(duration_of(512), Some(Duration::from_millis(500)));
        assert_eq!(duration_of(8189), Some(Duration::from_nanos(7_997_070_312)));
        assert_eq!((duration_of(0x1ffe), duration_of(0x1fff)), (None, None));
    }

    #[test]
    fn a_count_beyond_the_packet_is_rejected() {
        let short = [0x8b, 205, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(parse(&short), Err(RtcpError::Contents(205)));
        let stream = StreamReport { ssrc: 2, begin: 0, packets: vec![None; MAX_METRICS + 1] };
        let feedback = CongestionFeedback { sender: 1, streams: vec![stream], timestamp: 0 };
        let mut out = Vec::new();
        assert_eq!(Packet::Congestion(feedback).write(&mut out), Err(WriteError::TooLong));
        assert!(out.is_empty());
    }
}
