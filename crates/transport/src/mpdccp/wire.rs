//! DCCP packets as bytes: headers, options and their sizes.
//!
//! Source: RFC 4340 §5 and §11, RFC 9897 §3.2. Simulated connections exchange no keys, so that
//! captures show fixed keys and hash values of zeros.

use alloc::vec::Vec;

use skybraid_units::{Instant, Promised};

use crate::segment::{Dccp, DccpKind, DccpOptions};
use crate::wire::{CLIENT_KEY, SERVER_KEY};

/// Size of a generic header with a sequence number of 48 bits, in bytes (RFC 4340 §5.1).
const GENERIC: u32 = 16;
/// Size of an acknowledgement number with its padding, in bytes (RFC 4340 §5.3).
const ACKNOWLEDGEMENT: u32 = 8;
/// Size of a service code in bytes (RFC 4340 §5.6).
const SERVICE_CODE: u32 = 4;
/// Size of MP_SEQ in bytes (RFC 9897 §3.2.5).
pub const MP_SEQ: u32 = 9;
/// Size of MP_RTT in bytes (RFC 9897 §3.2.7).
pub const MP_RTT: u32 = 12;
/// Size of a change of the Ack Ratio feature in bytes (RFC 4340 §6.1).
pub const RATIO: u32 = 5;

/// Size of Timestamp in bytes (RFC 4340 §13.1).
pub const TIMESTAMP: u32 = 6;

const MULTIPATH: u8 = 46;

/// Size of a data packet's header with `options` bytes of options.
pub const fn data_header(options: u32) -> u32 {
    GENERIC + options.next_multiple_of(4)
}

/// Returns the elapsed time in the option's unit of 10 µs.
fn elapsed(dccp: &Dccp) -> u32 {
    u32::try_from(dccp.elapsed.as_nanos() / 10_000).unwrap_or(0)
}

/// Size of a packet's DCCP header in bytes, options included.
pub fn header_bytes(dccp: &Dccp) -> u32 {
    let has = |options| dccp.options.has(options);
    let mut options = 0;
    let opens = matches!(dccp.kind, DccpKind::Request | DccpKind::Response);
    if opens {
        options += 4;
        if has(DccpOptions::MULTIPATH) {
            options += if dccp.kind == DccpKind::Request { 4 } else { 5 };
            options += if has(DccpOptions::JOIN) { 12 } else { 17 };
        }
    }
    if has(DccpOptions::JOIN) && dccp.kind != DccpKind::Request {
        options += 23;
    }
    if has(DccpOptions::MULTIPATH) && (dccp.data.fragments > 0 || has(DccpOptions::PRIORITY)) {
        options += MP_SEQ;
    }
    if has(DccpOptions::PRIORITY) {
        options += 4;
    }
    if dccp.rtt_us > 0 {
        options += MP_RTT;
    }
    if has(DccpOptions::RATIO) {
        options += RATIO;
    }
    if has(DccpOptions::TIMESTAMP) {
        options += TIMESTAMP;
    }
    if dccp.kind.has_ack_vector() {
        options += dccp.acks.wire_bytes();
        options += match elapsed(dccp) {
            0 => 0,
            1..=0xffff => 4,
            _ => 6,
        };
    }
    let number = if dccp.kind.has_ack_number() { ACKNOWLEDGEMENT } else { 0 };
    data_header(options) + number + if opens { SERVICE_CODE } else { 0 }
}

fn write_options(dccp: &Dccp, sent_at: Instant, out: &mut Vec<u8>) {
    let has = |options| dccp.options.has(options);
    let request = dccp.kind == DccpKind::Request;
    if request || dccp.kind == DccpKind::Response {
        // Send Ack Vector, Multipath Capable: requested and confirmed.
        out.extend([if request { 34 } else { 33 }, 4, 6, 1]);
        if has(DccpOptions::MULTIPATH) {
            out.extend(if request { &[34, 4, 10, 0][..] } else { &[33, 5, 10, 0, 0][..] });
            if has(DccpOptions::JOIN) {
                out.extend([MULTIPATH, 12, 1, 1]);
                out.extend([0; 8]);
            } else {
                let key = if request { CLIENT_KEY } else { SERVER_KEY };
                out.extend([MULTIPATH, 17, 3, 0, 0, 0, 0, 1, 0]);
                out.extend(key);
            }
        }
    }
    if has(DccpOptions::JOIN) && !request {
        out.extend([MULTIPATH, 23, 5]);
        out.extend([0; 20]);
    }
    if has(DccpOptions::MULTIPATH) && (dccp.data.fragments > 0 || has(DccpOptions::PRIORITY)) {
        out.extend([MULTIPATH, MP_SEQ as u8, 4]);
        out.extend(number(dccp.data.sequence));
    }
    if has(DccpOptions::PRIORITY) {
        out.extend([MULTIPATH, 4, 9, dccp.priority & 15]);
    }
    if dccp.rtt_us > 0 {
        out.extend([MULTIPATH, MP_RTT as u8, 6, 0]);
        out.extend((dccp.rtt_us / 1000).to_be_bytes());
        out.extend(1_u32.to_be_bytes());
    }
    if has(DccpOptions::RATIO) {
        let change = if dccp.kind.has_ack_vector() && dccp.data.fragments == 0 { 35 } else { 32 };
        out.extend([change, RATIO as u8, 5, 0, dccp.ack_ratio]);
    }
    if has(DccpOptions::TIMESTAMP) {
        let ticks = sent_at.as_nanos() / 10_000;
        out.extend([41, TIMESTAMP as u8]);
        out.extend((ticks as u32).to_be_bytes());
    }
    if dccp.kind.has_ack_vector() {
        dccp.acks.write(out);
        match elapsed(dccp) {
            0 => {}
            short @ 1..=0xffff => {
                out.extend([43, 4]);
                out.extend((short as u16).to_be_bytes());
            }
            long => {
                out.extend([43, 6]);
                out.extend(long.to_be_bytes());
            }
        }
    }
}

/// Returns the low 48 bits of a number in network order.
fn number(value: u64) -> impl Iterator<Item = u8> {
    value.to_be_bytes().into_iter().skip(2)
}

/// Builds the DCCP header of a packet sent at `sent_at`, with the checksum of a payload of zeros. `ports` and
/// `addresses` are source and destination.
pub fn header(
    dccp: &Dccp,
    sent_at: Instant,
    ports: (u16, u16),
    addresses: ([u8; 4], [u8; 4]),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend(ports.0.to_be_bytes());
    out.extend(ports.1.to_be_bytes());
    // Data offset and checksum are filled in below.
    out.extend([0; 4]);
    let kind: u8 = match dccp.kind {
        DccpKind::Request => 0,
        DccpKind::Response => 1,
        DccpKind::Data => 2,
        DccpKind::Ack => 3,
        DccpKind::DataAck => 4,
        DccpKind::Sync => 8,
        DccpKind::SyncAck => 9,
    };
    out.extend([kind << 1 | 1, 0]);
    out.extend(number(dccp.sequence));
    if dccp.kind.has_ack_number() {
        out.extend([0, 0]);
        out.extend(number(dccp.acks.newest()));
    }
    if matches!(dccp.kind, DccpKind::Request | DccpKind::Response) {
        out.extend(*b"SKYB");
    }
    write_options(dccp, sent_at, &mut out);
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
    let words = out.len() / 4;
    if let Some(offset) = out.get_mut(4).promised("the data offset") {
        *offset = words as u8;
    }
    let (from, to) = addresses;
    let length = out.len() as u32 + dccp.data.len;
    let pseudo = [from, to, [0, 33, (length >> 8) as u8, length as u8]];
    let pairs = pseudo.as_flattened().chunks(2).chain(out.chunks(2));
    let sum: u32 = pairs
        .map(|pair| match pair {
            [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
            _ => 0,
        })
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    for (slot, byte) in out.iter_mut().skip(6).zip(checksum.to_be_bytes()) {
        *slot = byte;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpdccp::AckVector;
    use crate::segment::Datagram;
    use skybraid_units::Duration;

    fn packet(kind: DccpKind, options: DccpOptions, len: u32) -> Dccp {
        let mut acks = AckVector::EMPTY;
        acks.insert(300);
        let fragments = u16::from(len > 0);
        Dccp {
            sequence: 0x0102_0304_0506,
            acks,
            elapsed: Duration::from_millis(2),
            data: Datagram { sequence: 7, message: 7, len, fragment: 0, fragments },
            rtt_us: 0,
            kind,
            options,
            priority: 3,
            ack_ratio: 2,
        }
    }

    // Source: RFC 4340 §5.1 and RFC 9897 §3.2.5.
    #[test]
    fn a_data_packet_is_its_generic_header_and_mp_seq() {
        let dccp = packet(DccpKind::Data, DccpOptions::MULTIPATH, 100);
        let bytes = header(&dccp, Instant::ZERO, (0x1111, 0x2222), ([10, 0, 0, 1], [10, 0, 0, 2]));
        assert_eq!(bytes[..6], [0x11, 0x11, 0x22, 0x22, 7, 0]);
        assert_eq!(bytes[8..16], [5, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(bytes[16..], [46, 9, 4, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    }

    // Source: RFC 9897 §3.2.2 to §3.2.6 for the lengths of the options: MP_KEY 17 with one plain key,
    // MP_JOIN 12, MP_HMAC 23.
    #[test]
    fn handshakes_have_the_lengths_of_their_options() {
        let multipath = DccpOptions::MULTIPATH;
        let join = multipath.and(DccpOptions::JOIN);
        for (kind, options, expected) in [
            (DccpKind::Request, DccpOptions::NONE, 16 + 4 + 4),
            (DccpKind::Request, multipath, 16 + 4 + 28),
            (DccpKind::Response, multipath, 16 + 8 + 4 + 28),
            (DccpKind::Request, join, 16 + 4 + 20),
            (DccpKind::Response, join, 16 + 8 + 4 + 44),
        ] {
            assert_eq!(header_bytes(&packet(kind, options, 0)), expected, "{kind:?} {options:?}");
        }
    }

    #[test]
    fn every_packet_is_as_long_as_its_header_says() {
        for kind in DccpKind::ALL {
            for bits in 0..64 {
                let flag = |bit: u8, option: DccpOptions| option.only_if(bits >> bit & 1 == 1);
                let options = flag(0, DccpOptions::MULTIPATH)
                    .and(flag(1, DccpOptions::JOIN))
                    .and(flag(2, DccpOptions::PRIORITY))
                    .and(flag(3, DccpOptions::RATIO))
                    .and(flag(5, DccpOptions::TIMESTAMP));
                for (rtt_us, elapsed_ms) in [(0, 0), (30_000, 2), (0, 900)] {
                    let mut dccp = packet(kind, options, 100 * (bits >> 4 & 1));
                    dccp.rtt_us = rtt_us;
                    dccp.elapsed = Duration::from_millis(elapsed_ms);
                    let bytes =
                        header(&dccp, Instant::ZERO, (1, 2), ([10, 0, 0, 1], [10, 0, 0, 2]));
                    assert_eq!(bytes.len() as u32, header_bytes(&dccp), "{dccp:?}");
                    assert_eq!(u32::from(bytes[4]) * 4, header_bytes(&dccp));
                }
            }
        }
    }
}
