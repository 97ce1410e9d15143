//! Segments as bytes: the TCP options that captures show.
//!
//! Source: RFC 9293 §3.1, RFC 7323 §3, RFC 2018 §3, RFC 8684 §3.

use alloc::vec::Vec;

use skybraid_units::Instant;

use crate::segment::{Flags, Segment, Tcp};

/// The key of the end that opens a connection, as captures show it: simulated connections exchange
/// none.
pub const CLIENT_KEY: [u8; 8] = *b"skybraid";
/// The key of the end that answers.
pub const SERVER_KEY: [u8; 8] = *b"ground01";
/// The token of the server's key: the first 32 bits of its SHA-256.
pub const SERVER_TOKEN: [u8; 4] = [0x57, 0x82, 0xdf, 0x3f];

const KIND_MPTCP: u8 = 30;

/// Which MPTCP option a segment carries; told by the room that its size leaves.
const fn mptcp_room(segment: &Segment, tcp: &Tcp) -> u32 {
    let fixed = if tcp.flags.has(Flags::SYN) { 60 } else { 52 + tcp.sacks.wire_bytes() };
    segment.size.saturating_sub(fixed + tcp.len)
}

fn timestamp(at: Instant) -> [u8; 4] {
    // Milliseconds, as most stacks count; the low 32 bits, as on the wire.
    ((at.as_nanos() / 1_000_000) as u32).to_be_bytes()
}

/// The options of a TCP header, padded to whole words. At most 40 bytes.
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
    let answers = tcp.flags.has(Flags::ACK);
    match (mptcp_room(segment, tcp), syn, tcp.flags.has(Flags::JOIN), answers) {
        (0, ..) => {}
        (_, true, false, false) => options.extend([KIND_MPTCP, 4, 0x01, 0x01]),
        (_, true, false, true) => {
            options.extend([KIND_MPTCP, 12, 0x01, 0x01]);
            options.extend(SERVER_KEY);
        }
        (_, true, true, false) => {
            options.extend([KIND_MPTCP, 12, 0x10, 1]);
            options.extend(SERVER_TOKEN);
            options.extend([0; 4]);
        }
        (_, true, true, true) => {
            options.extend([KIND_MPTCP, 16, 0x10, 1]);
            options.extend([0; 12]);
        }
        (8, false, ..) => {
            options.extend([KIND_MPTCP, 8, 0x20, 0x01]);
            options.extend((tcp.data_ack as u32).to_be_bytes());
        }
        (_, false, ..) => {
            options.extend([KIND_MPTCP, 22, 0x20, 0x01 | 0x04 | 0x08]);
            options.extend((tcp.data_ack as u32).to_be_bytes());
            options.extend(tcp.dsn.to_be_bytes());
            options.extend((tcp.seq.wrapping_add(1) as u32).to_be_bytes());
            options.extend((tcp.len as u16).to_be_bytes());
        }
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
    fn a_data_segment_carries_a_dss_with_four_byte_ack_and_eight_byte_sequence_number() {
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
    fn an_acknowledgement_with_three_blocks_and_a_data_ack_fills_forty_bytes_at_most() {
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
