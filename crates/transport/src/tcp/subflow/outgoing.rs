//! Outgoing segments of a subflow: headers and sizes.
//!
//! Source: RFC 9293 §3.1, RFC 7323, RFC 2018, RFC 8684 §3.

use skybraid_units::{Bytes, Instant};

use super::{Due, Stamp, Subflow};
use crate::segment::{
    Body, DSS_ACK_OPTION, DSS_MAPPING_OPTION, Flags, IPV4_HEADER, Sacks, Segment, TCP_HEADER,
    TIMESTAMP_OPTION, Tcp,
};
use crate::tcp::scoreboard::{Chunk, LossDetection};

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

impl Subflow {
    /// Maximum payload of a segment on a path with this MTU.
    pub fn segment_for(mtu: Bytes, multipath: bool) -> u32 {
        let headers = IPV4_HEADER
            + TCP_HEADER
            + TIMESTAMP_OPTION
            + if multipath { DSS_MAPPING_OPTION } else { 0 };
        u32::try_from(mtu.get()).unwrap_or(u32::MAX).saturating_sub(headers).max(1)
    }

    /// Marks the delivery rate as application-limited if the subflow has nothing to send although
    /// the window has room, until the data in flight has been delivered (draft-ietf-ccwg-bbr-06
    /// §4.1.2.4, `CheckIfApplicationLimited`).
    pub fn note_starved(&mut self) {
        let waiting = !self.backlog.is_empty() || self.board.lost() > 0;
        if !waiting && self.board.in_flight() + u64::from(self.segment) <= self.window {
            self.board.note_app_limited();
        }
    }

    /// Builds the segment that [`poll_send`](Self::poll_send) returned.
    pub fn send(&mut self, now: Instant, stamp: &Stamp, due: &Due) -> Segment {
        match *due {
            Due::Syn => self.send_syn(now, stamp),
            Due::Data(seq, chunk) => self.data_segment(now, stamp, seq, chunk),
            Due::Probe => {
                let mut segment = self.ack_segment(now, stamp);
                if let Body::Tcp(tcp) = &mut segment.body {
                    tcp.seq = tcp.seq.saturating_sub(1);
                }
                segment
            }
        }
    }

    fn send_syn(&mut self, now: Instant, stamp: &Stamp) -> Segment {
        self.rto_at = now + self.rtt.timeout();
        let flags = self.handshake.on_syn_sent(now);
        // MP_CAPABLE or MP_JOIN, on SYN and SYN/ACK (RFC 8684 §3.1, §3.2).
        let multipath_option = match (self.multipath, self.handshake.joins(), flags.has(Flags::ACK))
        {
            (false, ..) => 0,
            (true, false, false) => 4,
            (true, false, true) | (true, true, false) => 12,
            (true, true, true) => 16,
        };
        let mut segment = self.ack_segment(now, stamp);
        segment.size = IPV4_HEADER + TCP_HEADER + SYN_OPTIONS + multipath_option;
        if let Body::Tcp(tcp) = &mut segment.body {
            tcp.flags = flags;
            tcp.sacks = Sacks::NONE;
        }
        segment
    }

    pub(super) fn data_segment(
        &mut self,
        now: Instant,
        stamp: &Stamp,
        seq: u64,
        chunk: Chunk,
    ) -> Segment {
        self.last_sent = now;
        self.pacer.on_sent(now, chunk.len);
        self.receiver.on_data_sent(now);
        let headers = IPV4_HEADER
            + TCP_HEADER
            + TIMESTAMP_OPTION
            + if self.multipath { DSS_MAPPING_OPTION } else { 0 };
        let mut sacks = self.acknowledge(if self.multipath { 0 } else { SACK_BLOCKS });
        if u64::from(headers + chunk.len + sacks.wire_bytes()) > self.info.mtu.get() {
            sacks = Sacks::NONE;
        }
        Segment {
            size: headers + chunk.len + sacks.wire_bytes(),
            sent_at: now,
            first_message: chunk.first_message,
            messages: chunk.messages,
            stream: chunk.stream,
            tail: chunk.tail,
            body: Body::Tcp(Tcp {
                flags: Flags::ACK,
                subflow: self.id.0,
                address: 0,
                seq,
                len: chunk.len,
                ack: self.receiver.next(),
                dsn: chunk.dsn,
                data_ack: stamp.data_ack,
                window_end: stamp.window_end,
                echo: self.receiver.echo(),
                sacks,
            }),
        }
    }

    /// Clears the pending acknowledgement. Returns at most `max` SACK blocks for it.
    fn acknowledge(&mut self, max: u8) -> Sacks {
        self.receiver.acknowledge().first(match self.detection {
            LossDetection::NewReno => 0,
            LossDetection::Rack | LossDetection::Sack => max,
        })
    }

    /// Builds an acknowledgement that carries a connection-level signal.
    pub fn signal_segment(&mut self, now: Instant, stamp: &Stamp, flags: Flags) -> Segment {
        let mut segment = self.bare_ack(now, stamp, flags);
        segment.size += if flags.has(Flags::ECHO_ADDRESS) {
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
        segment
    }

    /// Builds the third acknowledgement of a joining subflow, with the client's HMAC; it is
    /// repeated until the server answers (RFC 8684 §3.2).
    fn third_ack(&mut self, now: Instant, stamp: &Stamp) -> Segment {
        self.receiver.acknowledge();
        let mut segment = self.bare_ack(now, stamp, Flags::JOIN);
        segment.size += JOIN_HMAC_OPTION - DSS_ACK_OPTION;
        segment
    }

    /// Builds an acknowledgement without SACK blocks: other options take their space.
    fn bare_ack(&self, now: Instant, stamp: &Stamp, flags: Flags) -> Segment {
        let mut segment = self.acknowledgement(now, stamp, Sacks::NONE);
        if let Body::Tcp(tcp) = &mut segment.body {
            tcp.flags = tcp.flags.and(flags);
        }
        segment
    }

    pub(super) fn ack_segment(&mut self, now: Instant, stamp: &Stamp) -> Segment {
        if self.handshake.awaits_fourth_ack() {
            return self.third_ack(now, stamp);
        }
        let room = if self.multipath { SACK_BLOCKS_WITH_DATA_ACK } else { SACK_BLOCKS };
        let sacks = self.acknowledge(room);
        self.acknowledgement(now, stamp, sacks)
    }

    fn acknowledgement(&self, now: Instant, stamp: &Stamp, sacks: Sacks) -> Segment {
        let options =
            TIMESTAMP_OPTION + sacks.wire_bytes() + if self.multipath { DSS_ACK_OPTION } else { 0 };
        Segment {
            size: IPV4_HEADER + TCP_HEADER + options,
            sent_at: now,
            first_message: 0,
            messages: 0,
            stream: 0,
            tail: false,
            body: Body::Tcp(Tcp {
                flags: Flags::ACK,
                subflow: self.id.0,
                address: 0,
                seq: self.board.next(),
                len: 0,
                ack: self.receiver.next(),
                dsn: 0,
                data_ack: stamp.data_ack,
                window_end: stamp.window_end,
                echo: self.receiver.echo(),
                sacks,
            }),
        }
    }
}
