//! Segments as UDP datagrams, for real networks. `docs/wire.md` specifies the format.
//!
//! One datagram carries one segment. Numbers are sent in full, so that a datagram is read without
//! those before it; only times are read relative to the clock. If the header fits the space of the
//! simulated one, the datagram is padded, and its IPv4 packet has the size [`Segment::size`].

use alloc::vec::Vec;
use core::ops::Range;

use skybraid_units::{Instant, Promised};

use crate::Protocol;
use crate::segment::{Body, IPV4_HEADER, Segment, UDP_HEADER};

mod dccp;
mod fields;
mod tcp;
mod udp;

use fields::{Reader, put_time};

/// Version of the format.
pub const VERSION: u8 = 1;
/// Size of the IPv4 and UDP headers around a datagram, in bytes.
pub const OUTER_HEADERS: u32 = IPV4_HEADER + UDP_HEADER;
/// Maximum size of a datagram in an IPv4 packet, in bytes.
pub const MAX_DATAGRAM: usize = u16::MAX as usize - OUTER_HEADERS as usize;

/// Length of the payload after the header: the low two bits of the form byte.
mod form {
    /// The payload is the rest of the datagram.
    pub const WHOLE: u8 = 0;
    /// The payload is the rest of the datagram without its last byte.
    pub const ALL_BUT_ONE: u8 = 1;
    /// The payload's length follows; padding follows the payload.
    pub const PADDED: u8 = 2;
    /// The payload's length follows; the rest of the datagram is filler in its place, and shorter.
    pub const FILLER: u8 = 3;
    pub const MASK: u8 = 3;
}

/// Reason why bytes are not a datagram of this format, or a segment cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The datagram ends within its header.
    #[error("the datagram ends before its header does")]
    Truncated,
    /// Another version of the format.
    #[error("version {0} of the datagram format; this is version {VERSION}")]
    Version(u8),
    /// An unknown kind of segment.
    #[error("unknown kind {0} of segment")]
    Kind(u8),
    /// A field is out of range.
    #[error("the datagram's {0} is out of range")]
    Field(&'static str),
}

/// Header of a datagram, apart from its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Number of the connection.
    pub connection: u16,
}

impl Header {
    /// Reads only the header, which identifies the connection.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        Self::take(&mut Reader::new(bytes, Instant::ZERO)).map(|(header, _)| header)
    }

    /// Writes the header for a segment of the given kind.
    fn put(&self, kind: u8, out: &mut Vec<u8>) {
        out.push(VERSION << 5 | kind << 2);
        out.extend(self.connection.to_be_bytes());
    }

    /// Reads the header and the segment's kind.
    fn take(reader: &mut Reader<'_>) -> Result<(Self, u8), WireError> {
        let first = reader.byte()?;
        if first >> 5 != VERSION {
            return Err(WireError::Version(first >> 5));
        }
        if first & 3 != 0 {
            return Err(WireError::Field("flags"));
        }
        Ok((Self { connection: reader.u16()? }, first >> 2 & 7))
    }
}

/// Application data of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Zeros in place of data that nobody reads. The header takes its space from them.
    Filler,
    /// Data, as long as the segment says.
    Bytes(&'a [u8]),
}

/// A decoded datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Header, apart from the segment.
    pub header: Header,
    /// The segment; its size is that of the IPv4 packet.
    pub segment: Segment,
    /// Position of the payload in the datagram; shorter than the segment says if it is filler.
    pub payload: Range<usize>,
}

/// Maximum bytes by which an IPv4 packet with all application data exceeds [`Segment::size`]. A
/// gateway subtracts them from the path MTU of an endpoint. Valid for streams of up to 32 GiB and
/// 2²⁸ packets and messages.
pub const fn excess(protocol: Protocol) -> u32 {
    match protocol {
        Protocol::Udp => 22,
        Protocol::Tcp | Protocol::ParallelTcp => 14,
        Protocol::Mptcp => 0,
        Protocol::Dccp => 18,
        Protocol::MpDccp => 7,
    }
}

/// Encodes a segment as a datagram, which replaces the content of `out`. Returns the position of
/// the payload; bytes after it are padding.
pub fn encode(
    segment: &Segment,
    header: &Header,
    payload: Payload<'_>,
    out: &mut Vec<u8>,
) -> Result<Range<usize>, WireError> {
    let len = segment.body.payload_bytes() as usize;
    let bytes = match payload {
        Payload::Filler => None,
        Payload::Bytes(bytes) if bytes.len() == len => Some(bytes),
        Payload::Bytes(_) => return Err(WireError::Field("payload")),
    };
    if len > MAX_DATAGRAM {
        return Err(WireError::Field("length"));
    }
    // Size that makes the packet as large as the simulated one.
    let target = segment.size.saturating_sub(OUTER_HEADERS) as usize;
    if target > MAX_DATAGRAM {
        return Err(WireError::Field("size"));
    }
    let min_payload = bytes.map_or(0, <[u8]>::len);
    let mut form_at = put_head(segment, header, true, out)?;
    if out.len() + min_payload > target {
        form_at = put_head(segment, header, false, out)?;
    }
    let room = target.saturating_sub(out.len());
    let (form, carried) = match bytes {
        None if room < len => (form::FILLER, room.saturating_sub(2)),
        _ => match room.saturating_sub(len) {
            0 => (form::WHOLE, len),
            1 => (form::ALL_BUT_ONE, len),
            _ => (form::PADDED, len),
        },
    };
    if let Some(byte) = out.get_mut(form_at).promised("the form byte") {
        *byte |= form;
    }
    if form >= form::PADDED {
        out.extend((len as u16).to_be_bytes());
    }
    let start = out.len();
    match bytes {
        Some(bytes) => out.extend_from_slice(bytes),
        None => out.resize(start + carried, 0),
    }
    let end = out.len();
    out.resize(end.max(target), 0);
    if out.len() > MAX_DATAGRAM {
        return Err(WireError::Field("size"));
    }
    Ok(start..end)
}

/// Writes everything before the payload's length. Returns the position of the form byte.
fn put_head(
    segment: &Segment,
    header: &Header,
    exact_window: bool,
    out: &mut Vec<u8>,
) -> Result<usize, WireError> {
    out.clear();
    let kind = match &segment.body {
        Body::Datagram(_) => 0,
        Body::Report(_) | Body::Repair(_) => 1,
        Body::Tcp(_) => 2,
        Body::Dccp(_) => 3,
    };
    header.put(kind, out);
    put_time(out, segment.sent_at);
    let form_at = out.len();
    match &segment.body {
        Body::Datagram(datagram) => udp::put_datagram(datagram, out)?,
        Body::Report(report) => udp::put_report(report, out)?,
        Body::Tcp(tcp) => tcp::put(segment, tcp, exact_window, out)?,
        Body::Dccp(dccp) => dccp::put(dccp, out)?,
        Body::Repair(repair) => udp::put_repair(repair, out)?,
    }
    Ok(form_at)
}

/// A decoded body with the fields of its segment.
struct Parts {
    first_message: u32,
    messages: u16,
    stream: u8,
    tail: bool,
    body: Body,
}

/// Decodes a datagram. Times are resolved to those nearest to `now`, the receiver's time.
///
/// The sender is not authenticated: datagrams that a network carries sealed must be opened first.
pub fn decode(bytes: &[u8], now: Instant) -> Result<Decoded, WireError> {
    let mut reader = Reader::new(bytes, now);
    let (header, kind) = Header::take(&mut reader)?;
    let sent_at = reader.time()?;
    let form = reader.byte()?;
    let mut parts = match kind {
        0 => udp::take_datagram(form, &mut reader)?,
        1 if udp::is_repair(form) => udp::take_repair(form, &mut reader)?,
        1 => udp::take_report(form, &mut reader)?,
        2 => tcp::take(form, &mut reader)?,
        3 => dccp::take(form, &mut reader)?,
        unknown => return Err(WireError::Kind(unknown)),
    };
    let (len, carried) = take_length(form & form::MASK, &mut reader)?;
    match &mut parts.body {
        Body::Datagram(datagram) => datagram.len = len,
        Body::Repair(repair) => repair.len = len,
        Body::Tcp(tcp) => tcp.len = len,
        Body::Dccp(dccp) if dccp.data.fragments > 0 => dccp.data.len = len,
        Body::Report(_) | Body::Dccp(_) if len == 0 => {}
        Body::Report(_) | Body::Dccp(_) => return Err(WireError::Field("length")),
    }
    if let Body::Tcp(tcp) = &mut parts.body {
        tcp::complete(tcp);
    }
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let Parts { first_message, messages, stream, tail, body } = parts;
    let size = size.saturating_add(OUTER_HEADERS);
    let segment = Segment { size, sent_at, first_message, messages, stream, tail, body };
    let start = reader.position();
    Ok(Decoded { header, segment, payload: start..start + carried })
}

/// Reads the payload's length, and how much of it is present.
fn take_length(form: u8, reader: &mut Reader<'_>) -> Result<(u32, usize), WireError> {
    let len = match form {
        form::WHOLE => reader.left(),
        form::ALL_BUT_ONE => reader.left().checked_sub(1).ok_or(WireError::Truncated)?,
        _ => usize::from(reader.u16()?),
    };
    let left = reader.left();
    match form {
        form::FILLER if left > len || len > MAX_DATAGRAM => Err(WireError::Field("length")),
        form::FILLER => Ok((len as u32, left)),
        _ if len > left => Err(WireError::Truncated),
        _ => Ok((len as u32, len)),
    }
}
