//! Headers and sizes of a subflow's segments.
//!
//! Source: RFC 9293 §3.1, RFC 7323, RFC 2018, RFC 8684 §3.

use skybraid_units::{Bytes, Instant};

use super::Stamp;
use crate::SubflowId;
use crate::segment::{
    Body, DSS_ACK_OPTION, DSS_MAPPING_OPTION, Flags, IPV4_HEADER, Sacks, Segment, TCP_HEADER,
    TIMESTAMP_OPTION, Tcp,
};
use crate::tcp::receiver::Receiver;
use crate::tcp::scoreboard::Chunk;

/// Size of the options of a SYN in bytes: maximum segment size, SACK permitted, timestamps, window
/// scale.
const SYN_OPTIONS: u32 = 20;

/// Maximum SACK blocks in 40 bytes of options with timestamps and, for MPTCP, a data ACK. A data
/// sequence mapping leaves space for none.
const SACK_BLOCKS: u8 = 3;
const SACK_BLOCKS_WITH_DATA_ACK: u8 = 2;

/// Sizes in bytes of ADD_ADDR for IPv4 with its HMAC, of its echo, and of REMOVE_ADDR (RFC 8684
/// §3.4).
const ADD_ADDRESS_OPTION: u32 = 16;
const ADDRESS_ECHO_OPTION: u32 = 8;
const REMOVE_ADDRESS_OPTION: u32 = 4;
/// Size in bytes of MP_JOIN on the third acknowledgement (RFC 8684 §3.2).
const JOIN_HMAC_OPTION: u32 = 24;

/// Header fields common to a subflow's segments.
#[derive(Debug)]
pub struct Headers {
    subflow: SubflowId,
    multipath: bool,
    /// True if acknowledgements report what arrived beyond a hole.
    sack: bool,
    mtu: Bytes,
}

impl Headers {
    /// Creates the headers of a subflow over a path with this MTU.
    pub const fn new(subflow: SubflowId, multipath: bool, sack: bool, mtu: Bytes) -> Self {
        Self { subflow, multipath, sack, mtu }
    }

    /// Maximum payload of a segment on a path with this MTU.
    pub fn max_payload(mtu: Bytes, multipath: bool) -> u32 {
        u32::try_from(mtu.get()).unwrap_or(u32::MAX).saturating_sub(data_headers(multipath)).max(1)
    }

    /// Builds a SYN or SYN/ACK.
    pub fn syn(
        &self,
        now: Instant,
        stamp: &Stamp,
        flags: Flags,
        receiver: &mut Receiver,
    ) -> Segment {
        // MP_CAPABLE or MP_JOIN, on SYN and SYN/ACK (RFC 8684 §3.1, §3.2).
        let multipath_option = match (self.multipath, flags.has(Flags::JOIN), flags.has(Flags::ACK))
        {
            (false, ..) => 0,
            (true, false, false) => 4,
            (true, false, true) | (true, true, false) => 12,
            (true, true, true) => 16,
        };
        receiver.acknowledge();
        let mut tcp = self.fields(stamp, 0, receiver);
        tcp.flags = flags;
        segment(now, SYN_OPTIONS + multipath_option, tcp)
    }

    /// Builds a segment that carries `chunk` at sequence number `seq`, with an acknowledgement.
    #[inline]
    pub fn data(
        &self,
        now: Instant,
        stamp: &Stamp,
        (seq, chunk): (u64, &Chunk),
        receiver: &mut Receiver,
    ) -> Segment {
        let headers = data_headers(self.multipath);
        let mut sacks = self.acknowledge(if self.multipath { 0 } else { SACK_BLOCKS }, receiver);
        if u64::from(headers + chunk.len + sacks.wire_bytes()) > self.mtu.get() {
            sacks = Sacks::NONE;
        }
        let fields = self.fields(stamp, seq, receiver);
        Segment {
            size: headers + chunk.len + sacks.wire_bytes(),
            sent_at: now,
            first_message: chunk.first_message,
            messages: chunk.messages,
            stream: chunk.stream,
            tail: chunk.tail,
            body: Body::Tcp(Tcp { len: chunk.len, dsn: chunk.dsn, sacks, ..fields }),
        }
    }

    /// Builds a pure acknowledgement; `seq` is the next sequence number to send.
    #[inline(always)]
    pub fn ack(&self, now: Instant, stamp: &Stamp, seq: u64, receiver: &mut Receiver) -> Segment {
        let max = if self.multipath { SACK_BLOCKS_WITH_DATA_ACK } else { SACK_BLOCKS };
        let sacks = self.acknowledge(max, receiver);
        let tcp = Tcp { sacks, ..self.fields(stamp, seq, receiver) };
        segment(now, self.ack_options() + sacks.wire_bytes(), tcp)
    }

    /// Builds the third acknowledgement of a joining subflow, with the client's HMAC; it is
    /// repeated until the server answers (RFC 8684 §3.2).
    pub fn third_ack(
        &self,
        now: Instant,
        stamp: &Stamp,
        seq: u64,
        receiver: &mut Receiver,
    ) -> Segment {
        receiver.acknowledge();
        let mut third = self.signal(now, stamp, (seq, Flags::JOIN), receiver);
        third.size += JOIN_HMAC_OPTION - DSS_ACK_OPTION;
        third
    }

    /// Builds an acknowledgement that carries a connection-level signal; its option takes the space of SACK blocks.
    pub fn signal(
        &self,
        now: Instant,
        stamp: &Stamp,
        (seq, flags): (u64, Flags),
        receiver: &Receiver,
    ) -> Segment {
        let option = if flags.has(Flags::ECHO_ADDRESS) {
            ADDRESS_ECHO_OPTION
        } else if flags.has(Flags::ADD_ADDRESS) {
            ADD_ADDRESS_OPTION
        } else if flags.has(Flags::REMOVE_ADDRESS) {
            REMOVE_ADDRESS_OPTION
        } else if self.multipath && flags.has(Flags::FIN) {
            DSS_MAPPING_OPTION - DSS_ACK_OPTION
        } else {
            0
        };
        let mut tcp = self.fields(stamp, seq, receiver);
        tcp.flags = tcp.flags.and(flags);
        segment(now, self.ack_options() + option, tcp)
    }

    const fn ack_options(&self) -> u32 {
        TIMESTAMP_OPTION + if self.multipath { DSS_ACK_OPTION } else { 0 }
    }

    /// Clears the pending acknowledgement. Returns at most `max` SACK blocks for it.
    #[inline]
    fn acknowledge(&self, max: u8, receiver: &mut Receiver) -> Sacks {
        receiver.acknowledge().first(if self.sack { max } else { 0 })
    }

    /// Fields of an acknowledgement without SACK blocks.
    #[inline]
    const fn fields(&self, stamp: &Stamp, seq: u64, receiver: &Receiver) -> Tcp {
        Tcp {
            flags: Flags::ACK,
            subflow: self.subflow.number(),
            address: 0,
            seq,
            len: 0,
            ack: receiver.next(),
            dsn: 0,
            data_ack: stamp.data_ack,
            window_end: stamp.window_end,
            echo: receiver.echo(),
            sacks: Sacks::NONE,
        }
    }
}

/// Size of the headers of a segment with data and no SACK blocks.
const fn data_headers(multipath: bool) -> u32 {
    IPV4_HEADER + TCP_HEADER + TIMESTAMP_OPTION + if multipath { DSS_MAPPING_OPTION } else { 0 }
}

/// Builds a segment without data, with `options` bytes of options.
#[inline]
const fn segment(now: Instant, options: u32, tcp: Tcp) -> Segment {
    Segment {
        size: IPV4_HEADER + TCP_HEADER + options,
        sent_at: now,
        first_message: 0,
        messages: 0,
        stream: 0,
        tail: false,
        body: Body::Tcp(tcp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::acks::{AckRule, Acks};
    use skybraid_units::Duration;

    const STAMP: Stamp = Stamp { data_ack: 0, window_end: 0, data_una: 0 };

    // Source: RFC 9293 §3.1, RFC 7323 §3.2, RFC 8684 §3: 20 + 20 + 12 bytes, and the options of MPTCP.
    #[test]
    fn sizes_are_those_of_the_headers_and_options() {
        let mut receiver =
            Receiver::new(Acks::new(AckRule::Fixed, 2, Duration::from_millis(40)), false);
        let now = Instant::ZERO;
        let of = |multipath| Headers::new(SubflowId::FIRST, multipath, true, Bytes::new(1500));
        let sizes = [false, true].map(|multipath| {
            let headers = of(multipath);
            [
                headers.syn(now, &STAMP, Flags::SYN, &mut receiver).size,
                headers.syn(now, &STAMP, Flags::SYN.and(Flags::ACK), &mut receiver).size,
                headers.ack(now, &STAMP, 0, &mut receiver).size,
                headers.third_ack(now, &STAMP, 0, &mut receiver).size,
                headers.signal(now, &STAMP, (0, Flags::ADD_ADDRESS), &receiver).size,
                1500 - Headers::max_payload(Bytes::new(1500), multipath),
            ]
        });
        assert_eq!(sizes, [[60, 60, 52, 68, 68, 52], [64, 72, 60, 76, 76, 76]]);
    }
}
