//! DCCP and MP-DCCP packets.

use alloc::vec::Vec;

use skybraid_units::{Duration, Promised};

use super::fields::{Reader, check_numbers, put_number};
use super::udp::{has_message, no_parts, parts_of, put_fragment, take_fragment};
use super::{Parts, WireError};
use crate::mpdccp::AckVector;
use crate::segment::{Body, Datagram, Dccp, DccpKind, DccpOptions};

const KIND_SHIFT: u8 = 2;

/// Kind of data, in the form byte above the kind of packet.
mod data {
    pub const SHIFT: u8 = 5;
    pub const NONE: u8 = 0;
    /// A whole message with the datagram's own number.
    pub const NUMBERED_ALIKE: u8 = 1;
    /// A whole message.
    pub const WHOLE: u8 = 2;
    /// A fragment of a message.
    pub const FRAGMENT: u8 = 3;
}
/// A byte with the options and the bits below follows.
const MORE: u8 = 1 << 7;

/// Bits of what follows; all others are options.
const RTT: u8 = 1 << 5;
const ELAPSED: u8 = 1 << 6;

const NO_DATA: Datagram = Datagram { sequence: 0, message: 0, len: 0, fragment: 0, fragments: 0 };

const fn data_form(data: &Datagram) -> u8 {
    match data.fragments {
        0 => data::NONE,
        1 if has_message(data) => data::WHOLE,
        1 => data::NUMBERED_ALIKE,
        _ => data::FRAGMENT,
    }
}

pub fn put(dccp: &Dccp, out: &mut Vec<u8>) -> Result<(), WireError> {
    let newest = dccp.acks.newest();
    check_numbers(&[dccp.sequence, newest])?;
    let form = data_form(&dccp.data);
    if form == data::NONE && dccp.data.len > 0 {
        return Err(WireError::Field("length"));
    }
    let elapsed_us = u64::try_from(dccp.elapsed.as_nanos() / 1000).unwrap_or(0);
    let has_elapsed = dccp.kind.has_ack_number() && elapsed_us > 0;
    let more = dccp.options.bits()
        | if dccp.rtt_us > 0 { RTT } else { 0 }
        | if has_elapsed { ELAPSED } else { 0 };
    let kind = DccpKind::ALL.iter().position(|kind| *kind == dccp.kind);
    let kind = kind.promised("a kind of packet").unwrap_or_default() as u8;
    out.push(kind << KIND_SHIFT | form << data::SHIFT | if more != 0 { MORE } else { 0 });
    if more != 0 {
        out.push(more);
    }
    put_number(out, dccp.sequence);
    if dccp.kind.has_ack_number() {
        put_number(out, newest);
    }
    if dccp.kind.has_ack_vector() {
        put_number(out, dccp.acks.cells().count() as u64);
        out.extend(dccp.acks.cells());
    }
    if has_elapsed {
        put_number(out, elapsed_us);
    }
    if more & RTT != 0 {
        put_number(out, u64::from(dccp.rtt_us));
    }
    if dccp.options.has(DccpOptions::PRIORITY) {
        out.push(dccp.priority);
    }
    if dccp.options.has(DccpOptions::RATIO) {
        out.push(dccp.ack_ratio);
    }
    match form {
        data::NONE => Ok(()),
        data::NUMBERED_ALIKE => put_fragment(&dccp.data, false, false, out),
        data::WHOLE => put_fragment(&dccp.data, true, false, out),
        _ => put_fragment(&dccp.data, true, true, out),
    }
}

pub fn take(form: u8, reader: &mut Reader<'_>) -> Result<Parts, WireError> {
    let kind = DccpKind::ALL.get(usize::from(form >> KIND_SHIFT & 7));
    let kind = *kind.ok_or(WireError::Field("kind of packet"))?;
    let more = if form & MORE != 0 { reader.byte()? } else { 0 };
    if more & ELAPSED != 0 && !kind.has_ack_number() {
        return Err(WireError::Field("options"));
    }
    let options = DccpOptions::from_bits(more & !(RTT | ELAPSED));
    let options = options.ok_or(WireError::Field("options"))?;
    let sequence = reader.number()?;
    let newest = if kind.has_ack_number() { reader.number()? } else { 0 };
    let acks = if kind.has_ack_vector() {
        let count = reader.number_in("ack vector")?;
        let cells = reader.take(count)?;
        AckVector::from_cells(newest, cells).ok_or(WireError::Field("ack vector"))?
    } else {
        let mut acks = AckVector::EMPTY;
        if newest > 0 {
            acks.insert(newest);
        }
        acks
    };
    let elapsed_us: i64 = if more & ELAPSED != 0 { reader.number_in("elapsed time")? } else { 0 };
    let elapsed_ns = elapsed_us.checked_mul(1000).ok_or(WireError::Field("elapsed time"))?;
    let rtt_us = if more & RTT != 0 { reader.number_in("round-trip time")? } else { 0 };
    let priority = if options.has(DccpOptions::PRIORITY) { reader.byte()? } else { 0 };
    let ack_ratio = if options.has(DccpOptions::RATIO) { reader.byte()? } else { 0 };
    let data = match form >> data::SHIFT & 3 {
        data::NONE => NO_DATA,
        data::NUMBERED_ALIKE => take_fragment(false, false, reader)?,
        data::WHOLE => take_fragment(true, false, reader)?,
        _ => match take_fragment(true, true, reader)? {
            Datagram { fragments: 0, .. } => return Err(WireError::Field("parts")),
            fragment => fragment,
        },
    };
    let elapsed = Duration::from_nanos(elapsed_ns);
    let dccp = Dccp { sequence, acks, elapsed, data, rtt_us, kind, options, priority, ack_ratio };
    let body = Body::Dccp(dccp);
    Ok(if data.fragments > 0 { parts_of(&data, body) } else { no_parts(body) })
}
