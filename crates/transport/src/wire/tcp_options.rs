//! TCP options, as captures show them.
//!
//! Source: RFC 9293 §3.1, RFC 7323 §3, RFC 2018 §3, RFC 8684 §3.

use alloc::vec::Vec;

use skybraid_units::Instant;

use crate::segment::{Flags, Segment, Tcp};

/// Key of the client in captures: simulated connections exchange no keys.
pub const CLIENT_KEY: [u8; 8] = *b"skybraid";
/// Key of the server in captures.
pub const SERVER_KEY: [u8; 8] = *b"ground01";
/// Token of the server's key: the first 32 bits of its SHA-256.
pub const SERVER_TOKEN: [u8; 4] = [0x57, 0x82, 0xdf, 0x3f];

const KIND_MPTCP: u8 = 30;

/// Size of the MPTCP option that a segment carries, derived from the segment's size.
const fn mptcp_bytes(segment: &Segment, tcp: &Tcp) -> u32 {
    let fixed = if tcp.flags.has(Flags::SYN) { 60 } else { 52 + tcp.sacks.wire_bytes() };
    segment.size.saturating_sub(fixed + tcp.len)
}

/// True if the segment carries an MPTCP option.
pub const fn carries_mptcp(segment: &Segment, tcp: &Tcp) -> bool {
    mptcp_bytes(segment, tcp) > 0
}

fn timestamp(at: Instant) -> [u8; 4] {
    // Milliseconds, as in most stacks; the low 32 bits, as on the wire.
    ((at.as_nanos() / 1_000_000) as u32).to_be_bytes()
}

fn mptcp_options(tcp: &Tcp, options: &mut Vec<u8>) {
    let has = |flags| tcp.flags.has(flags);
    match (has(Flags::SYN), has(Flags::JOIN), has(Flags::ACK)) {
        (true, false, false) => options.extend([KIND_MPTCP, 4, 0x01, 0x01]),
        (true, false, true) => {
            options.extend([KIND_MPTCP, 12, 0x01, 0x01]);
            options.extend(SERVER_KEY);
        }
        (true, true, false) => {
            options.extend([KIND_MPTCP, 12, 0x10, tcp.subflow]);
            options.extend(SERVER_TOKEN);
            options.extend([0; 4]);
        }
        (true, true, true) => {
            options.extend([KIND_MPTCP, 16, 0x10, tcp.subflow]);
            options.extend([0; 12]);
        }
        (false, true, _) => {
            options.extend([KIND_MPTCP, 24, 0x10, 0]);
            options.extend([0; 20]);
        }
        (false, false, _) if tcp.len > 0 || has(Flags::FIN) => {
            let fin = if has(Flags::FIN) { 0x10 } else { 0 };
            options.extend([KIND_MPTCP, 22, 0x20, 0x01 | 0x04 | 0x08 | fin]);
            options.extend((tcp.data_ack as u32).to_be_bytes());
            options.extend(tcp.dsn.to_be_bytes());
            // A DATA_FIN without data: subflow sequence number 0, length 1 (RFC 8684 §3.3.3).
            let alone = tcp.len == 0;
            let seq = if alone { 0 } else { tcp.seq.wrapping_add(1) as u32 };
            options.extend(seq.to_be_bytes());
            options.extend((if alone { 1 } else { tcp.len as u16 }).to_be_bytes());
        }
        (false, false, _) => {
            options.extend([KIND_MPTCP, 8, 0x20, 0x01]);
            options.extend((tcp.data_ack as u32).to_be_bytes());
            address_options(tcp, options);
        }
    }
}

/// Appends ADD_ADDR for IPv4 with its HMAC, its echo, or REMOVE_ADDR.
fn address_options(tcp: &Tcp, options: &mut Vec<u8>) {
    let address = [10, tcp.address, 0, 2];
    if tcp.flags.has(Flags::ECHO_ADDRESS) {
        options.extend([KIND_MPTCP, 8, 0x31, tcp.address]);
        options.extend(address);
    } else if tcp.flags.has(Flags::ADD_ADDRESS) {
        options.extend([KIND_MPTCP, 16, 0x30, tcp.address]);
        options.extend(address);
        options.extend([0; 8]);
    } else if tcp.flags.has(Flags::REMOVE_ADDRESS) {
        options.extend([KIND_MPTCP, 4, 0x40, tcp.address]);
    }
}

/// Builds the options of a TCP header, padded to whole words. At most 40 bytes.
pub fn tcp_options(segment: &Segment, tcp: &Tcp) -> Vec<u8> {
    let mut options = Vec::with_capacity(40);
    let syn = tcp.flags.has(Flags::SYN);
    if syn {
        options.extend([2, 4, 0x05, 0xb4, 4, 2]);
    } else {
        options.extend([1, 1]);
    }
    options.extend([8, 10]);
    options.extend(timestamp(segment.sent_at));
    options.extend(timestamp(tcp.echo));
    if syn {
        options.extend([1, 3, 3, 8]);
    }
    if !tcp.sacks.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * tcp.sacks.len() as u8]);
        for (start, end) in tcp.sacks.duplicate(tcp.ack).into_iter().chain(tcp.sacks.iter(tcp.ack))
        {
            options.extend((start as u32).to_be_bytes());
            options.extend((end as u32).to_be_bytes());
        }
    }
    if carries_mptcp(segment, tcp) {
        mptcp_options(tcp, &mut options);
    }
    while !options.len().is_multiple_of(4) {
        options.push(0);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Body, Sacks};

    fn segment(size: u32, tcp: Tcp) -> Segment {
        Segment {
            size,
            sent_at: Instant::from_millis(258),
            first_message: 0,
            messages: 0,
            stream: 0,
            tail: false,
            body: Body::Tcp(tcp),
        }
    }

    const ACK: Tcp = Tcp {
        flags: Flags::ACK,
        subflow: 0,
        address: 0,
        seq: 100,
        len: 0,
        ack: 1000,
        dsn: 0,
        data_ack: 5,
        window_end: 0,
        echo: Instant::ZERO,
        sacks: Sacks::NONE,
    };

    #[test]
    fn a_data_segment_carries_a_dss_with_ack_and_sequence_number() {
        let tcp = Tcp { len: 1000, dsn: 0x0102, ..ACK };
        let options = tcp_options(&segment(40 + 12 + 24 + 1000, tcp), &tcp);
        assert_eq!(options.len(), 36);
        let expected = [
            1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 0, 0, // timestamps
            30, 22, 0x20, 0x0d, 0, 0, 0, 5, // data ACK
            0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 101, 0x03, 0xe8, 0, 0,
        ];
        assert_eq!(options, expected);
    }

    #[test]
    fn signalling_options_fill_the_segment_s_size() {
        for (flags, extra, kind_at, subtype) in [
            (Flags::ADD_ADDRESS, 8 + 16, 20, 0x30),
            (Flags::ADD_ADDRESS.and(Flags::ECHO_ADDRESS), 8 + 8, 20, 0x31),
            (Flags::REMOVE_ADDRESS, 8 + 4, 20, 0x40),
            (Flags::FIN, 24, 12, 0x20),
            (Flags::JOIN, 24, 12, 0x10),
        ] {
            let tcp = Tcp { flags: Flags::ACK.and(flags), ..ACK };
            let options = tcp_options(&segment(40 + 12 + extra, tcp), &tcp);
            assert_eq!(options.len() as u32, 12 + extra, "{flags:?}");
            assert_eq!((options[kind_at], options[kind_at + 2]), (30, subtype), "{flags:?}");
        }
    }

    #[test]
    fn three_sack_blocks_and_a_data_ack_take_at_most_40_bytes() {
        let mut sacks = Sacks::NONE;
        for block in [(2000, 3000), (4000, 5000), (6000, 7000)] {
            sacks.push(1000, block.0, block.1);
        }
        let tcp = Tcp { sacks, ..ACK };
        let plain = tcp_options(&segment(40 + 12 + 28, tcp), &tcp);
        assert_eq!(plain.len(), 40);
        assert_eq!(plain[12..20], [1, 1, 5, 26, 0, 0, 0x07, 0xd0]);
    }
}
