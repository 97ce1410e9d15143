//! UDP datagrams: fragments of messages, receiver reports, and repair packets.

use alloc::vec::Vec;

use super::fields::{Reader, check_numbers, put_number, put_time};
use super::{Parts, WireError, form};
use crate::segment::{AckedDatagrams, Body, Datagram, Repair, Report};

/// Bits of the form byte above the payload's form.
const MESSAGE: u8 = 1 << 2;
const FRAGMENTS: u8 = 1 << 3;
const ACKED: u8 = 1 << 2;
const RECOVERED: u8 = 1 << 3;
const REPAIR: u8 = 1 << 4;

/// Writes the fields of a fragment: sequence number, the message's number if `message`, and index
/// and number of fragments if `fragments`.
pub fn put_fragment(
    datagram: &Datagram,
    message: bool,
    fragments: bool,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    check_numbers(&[datagram.sequence])?;
    put_number(out, datagram.sequence);
    if message {
        put_number(out, u64::from(datagram.message));
    }
    if fragments {
        put_number(out, u64::from(datagram.fragment));
        put_number(out, u64::from(datagram.fragments));
    }
    Ok(())
}

/// True if the message's number differs from the datagram's.
pub const fn has_message(datagram: &Datagram) -> bool {
    datagram.message as u64 != datagram.sequence
}

/// Reads the fields of [`put_fragment`]; the length is filled in later.
pub fn take_fragment(
    message: bool,
    fragments: bool,
    reader: &mut Reader<'_>,
) -> Result<Datagram, WireError> {
    let sequence = reader.number()?;
    let message = if message {
        reader.number_in("message")?
    } else {
        u32::try_from(sequence).map_err(|_| WireError::Field("message"))?
    };
    let (fragment, fragments) =
        if fragments { (reader.number_in("part")?, reader.number_in("parts")?) } else { (0, 1) };
    if fragment >= fragments && (fragment, fragments) != (0, 0) {
        return Err(WireError::Field("part"));
    }
    Ok(Datagram { sequence, message, len: 0, fragment, fragments })
}

/// Returns the parts of a segment with a fragment: the message ends with its last fragment.
pub fn parts_of(datagram: &Datagram, body: Body) -> Parts {
    let Datagram { message, fragment, fragments, .. } = *datagram;
    let messages = u16::from(fragments > 0 && fragment + 1 == fragments);
    Parts { first_message: message, messages, stream: 0, tail: false, body }
}

/// Returns the parts of a segment without messages.
pub const fn no_parts(body: Body) -> Parts {
    Parts { first_message: 0, messages: 0, stream: 0, tail: false, body }
}

pub fn put_datagram(datagram: &Datagram, out: &mut Vec<u8>) -> Result<(), WireError> {
    let (message, fragments) = (has_message(datagram), datagram.fragments != 1);
    let form = if message { MESSAGE } else { 0 } | if fragments { FRAGMENTS } else { 0 };
    out.push(form);
    put_fragment(datagram, message, fragments, out)
}

pub fn take_datagram(form: u8, reader: &mut Reader<'_>) -> Result<Parts, WireError> {
    if form & !(form::MASK | MESSAGE | FRAGMENTS) != 0 {
        return Err(WireError::Field("form"));
    }
    let datagram = take_fragment(form & MESSAGE != 0, form & FRAGMENTS != 0, reader)?;
    Ok(parts_of(&datagram, Body::Datagram(datagram)))
}

pub fn put_report(report: &Report, out: &mut Vec<u8>) -> Result<(), WireError> {
    check_numbers(&[report.received])?;
    let form = |acked: Option<_>, bit| acked.map_or(0, |_: AckedDatagrams| bit);
    out.push(form(report.acked, ACKED) | form(report.recovered, RECOVERED));
    put_time(out, report.echo);
    put_time(out, report.arrived);
    put_number(out, report.received);
    for acked in [report.acked, report.recovered].into_iter().flatten() {
        check_numbers(&[acked.newest])?;
        put_number(out, acked.newest);
        out.extend(acked.before.to_be_bytes());
    }
    Ok(())
}

pub fn take_report(form: u8, reader: &mut Reader<'_>) -> Result<Parts, WireError> {
    if form & !(form::MASK | ACKED | RECOVERED) != 0 {
        return Err(WireError::Field("form"));
    }
    let (echo, arrived) = (reader.time()?, reader.time()?);
    let received = reader.number()?;
    let mut acked = |bit: u8| {
        if form & bit == 0 {
            return Ok(None);
        }
        let newest = reader.number()?;
        Ok(Some(AckedDatagrams { newest, before: u64::from_be_bytes(reader.array()?) }))
    };
    let (acked, recovered) = (acked(ACKED)?, acked(RECOVERED)?);
    Ok(no_parts(Body::Report(Report { echo, arrived, received, acked, recovered })))
}

/// True if a form byte is that of a repair packet, not of a report.
pub const fn is_repair(form: u8) -> bool {
    form & REPAIR != 0
}

pub fn put_repair(repair: &Repair, out: &mut Vec<u8>) -> Result<(), WireError> {
    check_numbers(&[repair.first])?;
    out.push(REPAIR);
    put_number(out, repair.first);
    out.push(repair.count);
    out.extend(repair.key.to_be_bytes());
    out.extend(repair.head);
    Ok(())
}

pub fn take_repair(form: u8, reader: &mut Reader<'_>) -> Result<Parts, WireError> {
    if form & !(form::MASK | REPAIR) != 0 {
        return Err(WireError::Field("form"));
    }
    let (first, count) = (reader.number()?, reader.byte()?);
    let (key, head) = (u16::from_be_bytes(reader.array()?), reader.array()?);
    Ok(no_parts(Body::Repair(Repair { first, count, key, head, len: 0 })))
}
