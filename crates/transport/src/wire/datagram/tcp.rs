//! TCP and MPTCP segments.

use alloc::vec::Vec;

use skybraid_units::Instant;

use super::fields::{Reader, check_numbers, from_short_window, put_number, put_time, short_window};
use super::{Parts, WireError};
use crate::segment::{Body, Flags, Sacks, Segment, Tcp};

/// Bits of the form byte above the payload's form: messages that end in the segment.
mod messages {
    pub const MASK: u8 = 3 << 2;
    pub const NONE: u8 = 0;
    /// One message; its number follows.
    pub const ONE: u8 = 1 << 2;
    /// No message; the number of the unfinished one follows.
    pub const UNFINISHED: u8 = 2 << 2;
    /// Several messages; the first number and the count follow.
    pub const SEVERAL: u8 = 3 << 2;
}
/// Bytes of another message follow.
const TAIL: u8 = 1 << 4;
/// An echoed timestamp follows.
const ECHO: u8 = 1 << 5;
/// The window has 32 bits instead of 16.
const EXACT: u8 = 1 << 6;
/// A byte with the bits below follows.
const MORE: u8 = 1 << 7;

/// Number of SACK blocks.
const BLOCKS: u8 = 3;
/// The first block is a D-SACK.
const DUPLICATE: u8 = 1 << 2;
const SUBFLOW: u8 = 1 << 3;
/// The data sequence number differs from the subflow's.
const DSN: u8 = 1 << 4;
/// The data acknowledgement differs from the subflow's.
const DATA_ACK: u8 = 1 << 5;
const STREAM: u8 = 1 << 6;
/// Flags other than those of an ordinary segment, or an address.
const FLAGS: u8 = 1 << 7;

/// Returns `bits` if `condition` holds, else 0.
const fn only_if(condition: bool, bits: u8) -> u8 {
    if condition { bits } else { 0 }
}

/// Data sequence number of a segment in a connection with one subflow: that of its data, or of its
/// end.
const fn default_dsn(tcp: &Tcp) -> u64 {
    if tcp.len > 0 || tcp.flags.has(Flags::FIN) { tcp.seq } else { 0 }
}

/// Writes a segment. The window is exact if `exact` is set and it has at most 32 bits.
pub fn put(segment: &Segment, tcp: &Tcp, exact: bool, out: &mut Vec<u8>) -> Result<(), WireError> {
    check_numbers(&[tcp.seq, tcp.ack, tcp.dsn, tcp.data_ack])?;
    let window = tcp.window_end.saturating_sub(tcp.data_ack);
    let exact = u32::try_from(window).ok().filter(|_| exact);
    let has_echo = tcp.echo != Instant::ZERO;
    let has_duplicate = tcp.sacks.duplicate(tcp.ack).is_some();
    let messages = match (segment.messages, segment.first_message) {
        (0, 0) => messages::NONE,
        (0, _) => messages::UNFINISHED,
        (1, _) => messages::ONE,
        _ => messages::SEVERAL,
    };
    let more = (tcp.sacks.len() as u8 & BLOCKS)
        | only_if(has_duplicate, DUPLICATE)
        | only_if(tcp.subflow != 0, SUBFLOW)
        | only_if(tcp.dsn != default_dsn(tcp), DSN)
        | only_if(tcp.data_ack != tcp.ack, DATA_ACK)
        | only_if(segment.stream != 0, STREAM)
        | only_if(tcp.flags != Flags::ACK || tcp.address != 0, FLAGS);
    out.push(
        messages
            | only_if(segment.tail, TAIL)
            | only_if(has_echo, ECHO)
            | only_if(exact.is_some(), EXACT)
            | only_if(more != 0, MORE),
    );
    if more != 0 {
        out.push(more);
    }
    if more & FLAGS != 0 {
        put_number(out, u64::from(tcp.flags.bits()));
        out.push(tcp.address);
    }
    if more & SUBFLOW != 0 {
        out.push(tcp.subflow);
    }
    put_number(out, tcp.seq);
    put_number(out, tcp.ack);
    if has_echo {
        put_time(out, tcp.echo);
    }
    if more & DSN != 0 {
        put_number(out, tcp.dsn);
    }
    if more & DATA_ACK != 0 {
        put_number(out, tcp.data_ack);
    }
    match exact {
        Some(window) => out.extend(window.to_be_bytes()),
        None => out.extend(short_window(window).to_be_bytes()),
    }
    if messages != messages::NONE {
        put_number(out, u64::from(segment.first_message));
    }
    if messages == messages::SEVERAL {
        put_number(out, u64::from(segment.messages));
    }
    if more & STREAM != 0 {
        out.push(segment.stream);
    }
    let blocks = tcp.sacks.duplicate(tcp.ack).into_iter().chain(tcp.sacks.iter(tcp.ack));
    for edge in blocks.flat_map(|(start, end)| [start, end]) {
        out.extend((edge.wrapping_sub(tcp.ack) as u32).to_be_bytes());
    }
    Ok(())
}

/// Reads a segment; the length is filled in later.
pub fn take(form: u8, reader: &mut Reader<'_>) -> Result<Parts, WireError> {
    let more = if form & MORE != 0 { reader.byte()? } else { 0 };
    let (mut flags, mut address, mut subflow) = (Flags::ACK, 0, 0);
    if more & FLAGS != 0 {
        flags = Flags::from_bits(reader.number_in("flags")?).ok_or(WireError::Field("flags"))?;
        address = reader.byte()?;
    }
    if more & SUBFLOW != 0 {
        subflow = reader.byte()?;
    }
    let (seq, ack) = (reader.number()?, reader.number()?);
    let echo = if form & ECHO != 0 { reader.time()? } else { Instant::ZERO };
    // Without a data sequence number in the datagram, it depends on the length.
    let dsn = if more & DSN != 0 { reader.number()? } else { UNKNOWN_DSN };
    let data_ack = if more & DATA_ACK != 0 { reader.number()? } else { ack };
    let window =
        if form & EXACT != 0 { u64::from(reader.u32()?) } else { from_short_window(reader.u16()?) };
    let ends = form & messages::MASK;
    let first_message = if ends == messages::NONE { 0 } else { reader.number_in("message")? };
    let messages = match ends {
        messages::SEVERAL => reader.number_in("messages")?,
        messages::ONE => 1,
        _ => 0,
    };
    let stream = if more & STREAM != 0 { reader.byte()? } else { 0 };
    let sacks = take_sacks(more, ack, reader)?;
    let window_end = data_ack + window;
    let body = Body::Tcp(Tcp {
        flags,
        subflow,
        address,
        seq,
        len: 0,
        ack,
        dsn,
        data_ack,
        window_end,
        echo,
        sacks,
    });
    Ok(Parts { first_message, messages, stream, tail: form & TAIL != 0, body })
}

/// Placeholder of [`default_dsn`] until the length is known; valid numbers are smaller.
const UNKNOWN_DSN: u64 = u64::MAX;

/// Fills in the fields that depend on the length.
pub const fn complete(tcp: &mut Tcp) {
    if tcp.dsn == UNKNOWN_DSN {
        tcp.dsn = default_dsn(tcp);
    }
}

fn take_sacks(more: u8, ack: u64, reader: &mut Reader<'_>) -> Result<Sacks, WireError> {
    let mut sacks = Sacks::NONE;
    for index in 0..more & BLOCKS {
        let (start, end) = (reader.u32()?, reader.u32()?);
        if index == 0 && more & DUPLICATE != 0 {
            let near = |offset: u32| ack.wrapping_add_signed(i64::from(offset as i32));
            sacks.report_duplicate(ack, near(start), near(end));
        } else {
            sacks.push(ack, ack + u64::from(start), ack + u64::from(end));
        }
    }
    Ok(sacks)
}
