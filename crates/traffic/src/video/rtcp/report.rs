//! Sender and receiver reports, and source descriptions.
//!
//! Source: RFC 3550 §6.4.1 (SR), §6.4.2 (RR), §6.5 (SDES), §4 (NTP timestamps).

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::WriteError;
use crate::video::byte_reader::ByteReader;

/// Maximum number of report blocks of a report and of names of a description: the count field has five bits.
const MAX_BLOCKS: usize = 31;

const END: u8 = 0;
const CNAME: u8 = 1;

/// Sender report (SR).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderReport {
    /// SSRC of the sender of the report.
    pub ssrc: u32,
    /// Sending time of the report as an NTP timestamp: seconds in the upper 32 bits.
    pub ntp: u64,
    /// Sending time of the report, in ticks of the media clock.
    pub timestamp: u32,
    /// Number of packets sent.
    pub packets: u32,
    /// Number of payload bytes sent.
    pub bytes: u32,
    /// Report blocks on sources that the sender receives, at most 31.
    pub blocks: Vec<ReportBlock>,
}

/// Receiver report (RR).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// SSRC of the sender of the report.
    pub ssrc: u32,
    /// Report blocks on received sources, at most 31.
    pub blocks: Vec<ReportBlock>,
}

/// Reception report block on one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportBlock {
    /// SSRC of the source.
    pub ssrc: u32,
    /// Fraction of packets lost since the previous report, in 1/256.
    pub fraction_lost: u8,
    /// Cumulative number of packets lost, negative with duplicates; limited to ±2²³ on the wire.
    pub lost: i32,
    /// Extended highest sequence number received: the cycle count is in the upper 16 bits.
    pub highest: u32,
    /// Interarrival jitter, in ticks of the media clock.
    pub jitter: u32,
    /// Middle 32 bits of the NTP timestamp of the last sender report (LSR); 0 if there was none.
    pub last_report: u32,
    /// Delay between receiving that report and sending this one (DLSR), in 1/65536 s.
    pub delay: u32,
}

/// Source description (SDES): names that stay the same when an SSRC changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Names of sources, at most 31.
    pub names: Vec<Name>,
}

/// Canonical name (CNAME) of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// SSRC of the source.
    pub ssrc: u32,
    /// Name of at most 255 bytes; empty if the description has none.
    pub cname: String,
}

/// Returns the NTP timestamp of an instant of the run, counted from the start of the run: a sender without
/// wall clock may use elapsed time (RFC 3550 §6.4.1).
pub fn ntp_timestamp(at: Instant) -> u64 {
    let nanos = at.as_nanos().max(0) as u128;
    ((nanos << 32) / 1_000_000_000) as u64
}

/// Returns the middle 32 bits of an NTP timestamp, in 1/65536 s.
pub const fn ntp_middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

impl ReportBlock {
    /// Returns the round-trip time of a sender that receives this block at `now` (middle 32 bits of an NTP
    /// timestamp). `None` if there was no sender report, or if the times contradict each other.
    pub fn round_trip(&self, now: u32) -> Option<Duration> {
        let away = now.wrapping_sub(self.last_report).checked_sub(self.delay)?;
        let nanos = (i64::from(away) * 1_000_000_000) >> 16;
        (self.last_report != 0).then_some(Duration::from_nanos(nanos))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let lost = self.lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
        let second = u32::from(self.fraction_lost) << 24 | lost;
        for word in [self.ssrc, second, self.highest, self.jitter, self.last_report, self.delay] {
            out.extend(word.to_be_bytes());
        }
    }

    fn parse(reader: &mut ByteReader<'_>) -> Option<Self> {
        let ssrc = reader.u32()?;
        let second = reader.u32()?;
        Some(Self {
            ssrc,
            fraction_lost: (second >> 24) as u8,
            lost: ((second << 8) as i32) >> 8,
            highest: reader.u32()?,
            jitter: reader.u32()?,
            last_report: reader.u32()?,
            delay: reader.u32()?,
        })
    }
}

fn count(length: usize) -> Result<u8, WriteError> {
    if length > MAX_BLOCKS { Err(WriteError::TooLong) } else { Ok(length as u8) }
}

fn parse_blocks(count: u8, reader: &mut ByteReader<'_>) -> Option<Vec<ReportBlock>> {
    (0..count).map(|_| ReportBlock::parse(reader)).collect()
}

impl SenderReport {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        out.extend(self.ssrc.to_be_bytes());
        out.extend(self.ntp.to_be_bytes());
        for word in [self.timestamp, self.packets, self.bytes] {
            out.extend(word.to_be_bytes());
        }
        self.blocks.iter().for_each(|block| block.write(out));
        count(self.blocks.len())
    }

    pub(super) fn parse(count: u8, reader: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self {
            ssrc: reader.u32()?,
            ntp: reader.u64()?,
            timestamp: reader.u32()?,
            packets: reader.u32()?,
            bytes: reader.u32()?,
            blocks: parse_blocks(count, reader)?,
        })
    }
}

impl ReceiverReport {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        out.extend(self.ssrc.to_be_bytes());
        self.blocks.iter().for_each(|block| block.write(out));
        count(self.blocks.len())
    }

    pub(super) fn parse(count: u8, reader: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self { ssrc: reader.u32()?, blocks: parse_blocks(count, reader)? })
    }
}

impl Description {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        for name in &self.names {
            let length = u8::try_from(name.cname.len()).map_err(|_| WriteError::TooLong)?;
            out.extend(name.ssrc.to_be_bytes());
            out.extend([CNAME, length]);
            out.extend(name.cname.bytes());
            // At least one null byte ends the list of items and pads it to a word.
            let items = 2 + usize::from(length);
            out.extend(core::iter::repeat_n(END, 4 - items % 4));
        }
        count(self.names.len())
    }

    pub(super) fn parse(count: u8, reader: &mut ByteReader<'_>) -> Option<Self> {
        let names = (0..count).map(|_| parse_name(reader)).collect::<Option<_>>()?;
        Some(Self { names })
    }
}

fn parse_name(reader: &mut ByteReader<'_>) -> Option<Name> {
    let mut name = Name { ssrc: reader.u32()?, cname: String::new() };
    let before = reader.len();
    loop {
        let item = reader.u8()?;
        if item == END {
            let read = before - reader.len();
            reader.take(read.next_multiple_of(4) - read)?;
            return Some(name);
        }
        let length = reader.u8()?;
        let text = reader.take(usize::from(length))?;
        if item == CNAME {
            name.cname = String::from_utf8_lossy(text).into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::rtcp::{Packet, RtcpError, parse};
    use alloc::vec;

    const BLOCK: ReportBlock = ReportBlock {
        ssrc: 0x0102_0304,
        fraction_lost: 0x40,
        lost: -2,
        highest: 0x0001_fffe,
        jitter: 0x1122_3344,
        last_report: 0x5566_7788,
        delay: 0x0001_8000,
    };

    const BLOCK_BYTES: [u8; 24] = [
        1, 2, 3, 4, 0x40, 0xff, 0xff, 0xfe, 0, 1, 0xff, 0xfe, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
        0x77, 0x88, 0, 1, 0x80, 0,
    ];

    fn bytes(packet: &Packet) -> Vec<u8> {
        let mut out = Vec::new();
        packet.write(&mut out).unwrap();
        out
    }

    // Source: RFC 3550 §6.4.1 and §6.4.2, the drawings.
    #[test]
    fn reports_match_the_figures_of_rfc_3550() {
        let report = SenderReport {
            ssrc: 9,
            ntp: 0xb44d_b705_2000_0000,
            timestamp: 0x0a0b_0c0d,
            packets: 5,
            bytes: 6000,
            blocks: vec![BLOCK],
        };
        let mut drawn = vec![0x81, 200, 0, 12, 0, 0, 0, 9, 0xb4, 0x4d, 0xb7, 0x05, 0x20, 0, 0, 0];
        drawn.extend([0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 5, 0, 0, 0x17, 0x70]);
        drawn.extend(BLOCK_BYTES);
        assert_eq!(bytes(&Packet::SenderReport(report)), drawn);
        let report = ReceiverReport { ssrc: 9, blocks: vec![BLOCK, BLOCK] };
        let drawn =
            [&[0x82, 201, 0, 13, 0, 0, 0, 9], BLOCK_BYTES.as_slice(), &BLOCK_BYTES].concat();
        assert_eq!(bytes(&Packet::ReceiverReport(report)), drawn);
    }

    // Source: RFC 3550 §6.5: items end with a null byte, chunks at a word.
    #[test]
    fn a_name_ends_with_at_least_one_null_byte() {
        let named = |cname: &str| {
            let name = Name { ssrc: 7, cname: String::from(cname) };
            bytes(&Packet::Description(Description { names: vec![name] }))
        };
        let header = [0x81, 202, 0, 3, 0, 0, 0, 7, 1];
        assert_eq!(named("a@bc"), [header.as_slice(), &[4, b'a', b'@', b'b', b'c', 0, 0]].concat());
        assert_eq!(named("a@b.c"), [header.as_slice(), b"\x05a@b.c\0"].concat());
        assert_eq!(named("a@b.cd").len(), 20);
        assert_eq!(named("a@b.cd")[16..], [0; 4]);
    }

    #[test]
    fn other_items_of_a_description_are_skipped() {
        let chunk = [0x81, 202, 0, 4, 0, 0, 0, 7, 6, 2, b'v', b'1', 1, 1, b'u', 0, 0, 0, 0, 0];
        let name = Name { ssrc: 7, cname: String::from("u") };
        let read = Packet::Description(Description { names: vec![name] });
        assert_eq!(parse(&chunk), Ok(vec![read]));
        let endless = [0x81, 202, 0, 2, 0, 0, 0, 7, 1, 2, b'u', b'v'];
        assert_eq!(parse(&endless), Err(RtcpError::Contents(202)));
    }

    // Source: RFC 3550 §6.4.1, figure 2: 46864.500 s − 46853.125 s − 5.250 s = 6.125 s.
    #[test]
    fn the_round_trip_time_is_that_of_figure_2() {
        let block = ReportBlock { last_report: 0xb705_2000, delay: 0x0005_4000, ..BLOCK };
        assert_eq!(block.round_trip(0xb710_8000), Some(Duration::from_millis(6125)));
        assert_eq!(ntp_middle(0xb44d_b705_2000_0000), 0xb705_2000);
        let none = ReportBlock { last_report: 0, ..block };
        assert_eq!(none.round_trip(0xb710_8000), None);
        assert_eq!(block.round_trip(0xb705_2000), None);
    }

    #[test]
    fn timestamps_count_from_the_start_of_the_run() {
        assert_eq!(ntp_timestamp(Instant::from_millis(1500)), 0x0000_0001_8000_0000);
        assert_eq!(ntp_middle(ntp_timestamp(Instant::from_millis(1500))), 0x0001_8000);
    }

    #[test]
    fn too_many_blocks_and_too_long_names_are_rejected() {
        let mut out = vec![1, 2];
        let report = ReceiverReport { ssrc: 1, blocks: vec![BLOCK; 32] };
        assert_eq!(Packet::ReceiverReport(report).write(&mut out), Err(WriteError::TooLong));
        let name = Name { ssrc: 1, cname: "n".repeat(256) };
        let names = Description { names: vec![name] };
        assert_eq!(Packet::Description(names).write(&mut out), Err(WriteError::TooLong));
        assert_eq!(out, [1, 2]);
    }
}
