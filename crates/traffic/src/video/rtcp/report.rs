//! Sender and receiver reports, and the names of sources.
//!
//! Source: RFC 3550 §6.4.1 (SR), §6.4.2 (RR), §6.5 (SDES), §4 (time stamps of NTP).

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::WriteError;
use crate::video::octets::Octets;

/// Most blocks of a report and names of a description: their counter has five bits.
const MOST_BLOCKS: usize = 31;

const END: u8 = 0;
const CNAME: u8 = 1;

/// What a source has sent, and what it has received of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderReport {
    /// Who sends the report.
    pub ssrc: u32,
    /// When it was sent, as a time stamp of NTP: seconds in the upper 32 bits.
    pub ntp: u64,
    /// The same time, in ticks of the media's clock.
    pub timestamp: u32,
    /// Packets sent so far.
    pub packets: u32,
    /// Octets of payload sent so far.
    pub octets: u32,
    /// What it has received, at most 31.
    pub blocks: Vec<ReportBlock>,
}

/// What a receiver has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// Who sends the report.
    pub ssrc: u32,
    /// What it has received, at most 31.
    pub blocks: Vec<ReportBlock>,
}

/// What was received of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportBlock {
    /// The source.
    pub ssrc: u32,
    /// Share of packets lost since the report before, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost so far; below zero with duplicates. Kept within ±2²³ on the wire.
    pub lost: i32,
    /// Highest sequence number, with the count of cycles above its 16 bits.
    pub highest: u32,
    /// Mean deviation of transit times, in ticks of the media's clock.
    pub jitter: u32,
    /// The middle of the last sender report's NTP time stamp; 0 if there was none.
    pub last_report: u32,
    /// From that report's arrival to this one's sending, in 1/65536 s.
    pub delay: u32,
}

/// Names of sources that stay the same when their SSRC changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// At most 31.
    pub names: Vec<Name>,
}

/// The canonical name of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The source.
    pub ssrc: u32,
    /// At most 255 octets. Empty if the description does not give one.
    pub cname: String,
}

/// The NTP time stamp of an instant of the run, counted from the run's beginning: a sender without
/// wall clock uses the time that has passed (RFC 3550 §6.4.1).
pub fn ntp_timestamp(at: Instant) -> u64 {
    let nanos = at.as_nanos().max(0) as u128;
    ((nanos << 32) / 1_000_000_000) as u64
}

/// The middle 32 bits of an NTP time stamp: 1/65536 s.
pub const fn ntp_middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

impl ReportBlock {
    /// The round trip of a sender who gets this block at `now` (an NTP time stamp's middle).
    /// `None` if no sender report had come, or if the times contradict.
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

    fn parse(octets: &mut Octets<'_>) -> Option<Self> {
        let ssrc = octets.u32()?;
        let second = octets.u32()?;
        Some(Self {
            ssrc,
            fraction_lost: (second >> 24) as u8,
            lost: ((second << 8) as i32) >> 8,
            highest: octets.u32()?,
            jitter: octets.u32()?,
            last_report: octets.u32()?,
            delay: octets.u32()?,
        })
    }
}

fn count(length: usize) -> Result<u8, WriteError> {
    if length > MOST_BLOCKS { Err(WriteError::TooLong) } else { Ok(length as u8) }
}

fn parse_blocks(count: u8, octets: &mut Octets<'_>) -> Option<Vec<ReportBlock>> {
    (0..count).map(|_| ReportBlock::parse(octets)).collect()
}

impl SenderReport {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        out.extend(self.ssrc.to_be_bytes());
        out.extend(self.ntp.to_be_bytes());
        for word in [self.timestamp, self.packets, self.octets] {
            out.extend(word.to_be_bytes());
        }
        self.blocks.iter().for_each(|block| block.write(out));
        count(self.blocks.len())
    }

    pub(super) fn parse(count: u8, octets: &mut Octets<'_>) -> Option<Self> {
        Some(Self {
            ssrc: octets.u32()?,
            ntp: octets.u64()?,
            timestamp: octets.u32()?,
            packets: octets.u32()?,
            octets: octets.u32()?,
            blocks: parse_blocks(count, octets)?,
        })
    }
}

impl ReceiverReport {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        out.extend(self.ssrc.to_be_bytes());
        self.blocks.iter().for_each(|block| block.write(out));
        count(self.blocks.len())
    }

    pub(super) fn parse(count: u8, octets: &mut Octets<'_>) -> Option<Self> {
        Some(Self { ssrc: octets.u32()?, blocks: parse_blocks(count, octets)? })
    }
}

impl Description {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        for name in &self.names {
            let length = u8::try_from(name.cname.len()).map_err(|_| WriteError::TooLong)?;
            out.extend(name.ssrc.to_be_bytes());
            out.extend([CNAME, length]);
            out.extend(name.cname.bytes());
            // At least one null ends the list of items, up to the next word.
            let items = 2 + usize::from(length);
            out.extend(core::iter::repeat_n(END, 4 - items % 4));
        }
        count(self.names.len())
    }

    pub(super) fn parse(count: u8, octets: &mut Octets<'_>) -> Option<Self> {
        let names = (0..count).map(|_| parse_name(octets)).collect::<Option<_>>()?;
        Some(Self { names })
    }
}

fn parse_name(octets: &mut Octets<'_>) -> Option<Name> {
    let mut name = Name { ssrc: octets.u32()?, cname: String::new() };
    let before = octets.len();
    loop {
        let item = octets.u8()?;
        if item == END {
            let read = before - octets.len();
            octets.take(read.next_multiple_of(4) - read)?;
            return Some(name);
        }
        let length = octets.u8()?;
        let text = octets.take(usize::from(length))?;
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
    fn reports_lie_on_the_wire_as_rfc_3550_draws_them() {
        let report = SenderReport {
            ssrc: 9,
            ntp: 0xb44d_b705_2000_0000,
            timestamp: 0x0a0b_0c0d,
            packets: 5,
            octets: 6000,
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

    // Source: RFC 3550 §6.5: items end with a null octet, chunks at a word.
    #[test]
    fn a_name_ends_with_at_least_one_null() {
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
    fn other_items_of_a_description_are_passed_over() {
        let chunk = [0x81, 202, 0, 4, 0, 0, 0, 7, 6, 2, b'v', b'1', 1, 1, b'u', 0, 0, 0, 0, 0];
        let name = Name { ssrc: 7, cname: String::from("u") };
        let read = Packet::Description(Description { names: vec![name] });
        assert_eq!(parse(&chunk), Ok(vec![read]));
        let endless = [0x81, 202, 0, 2, 0, 0, 0, 7, 1, 2, b'u', b'v'];
        assert_eq!(parse(&endless), Err(RtcpError::Contents(202)));
    }

    // Source: RFC 3550 §6.4.1, figure 2: 46864.500 s − 46853.125 s − 5.250 s = 6.125 s.
    // The figure is of a report of a link with much delay, seen at 0xb710:8000.
    #[test]
    fn the_round_trip_is_that_of_figure_2() {
        let block = ReportBlock { last_report: 0xb705_2000, delay: 0x0005_4000, ..BLOCK };
        assert_eq!(block.round_trip(0xb710_8000), Some(Duration::from_millis(6125)));
        assert_eq!(ntp_middle(0xb44d_b705_2000_0000), 0xb705_2000);
        let none = ReportBlock { last_report: 0, ..block };
        assert_eq!(none.round_trip(0xb710_8000), None);
        assert_eq!(block.round_trip(0xb705_2000), None);
    }

    #[test]
    fn time_stamps_count_from_the_beginning_of_the_run() {
        assert_eq!(ntp_timestamp(Instant::from_millis(1500)), 0x0000_0001_8000_0000);
        assert_eq!(ntp_middle(ntp_timestamp(Instant::from_millis(1500))), 0x0001_8000);
    }

    #[test]
    fn more_than_31_blocks_or_255_octets_of_a_name_are_refused() {
        let mut out = vec![1, 2];
        let report = ReceiverReport { ssrc: 1, blocks: vec![BLOCK; 32] };
        assert_eq!(Packet::ReceiverReport(report).write(&mut out), Err(WriteError::TooLong));
        let name = Name { ssrc: 1, cname: "n".repeat(256) };
        let names = Description { names: vec![name] };
        assert_eq!(Packet::Description(names).write(&mut out), Err(WriteError::TooLong));
        assert_eq!(out, [1, 2]);
    }
}
