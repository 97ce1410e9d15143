//! The packets that a subflow sends: their headers and sizes.
//!
//! Source: RFC 4340 §5, RFC 9897 §3.2.

use skybraid_units::{Bytes, Duration, Instant};

use super::{State, Subflow};
use crate::mpdccp::wire;
use crate::reordering::RttKind;
use crate::segment::{Body, Datagram, Dccp, DccpKind, DccpOptions, IPV4_HEADER, Segment};

/// The priority of a path for which none is told (RFC 9897 §3.2.10).
const USUAL_PRIORITY: u8 = 3;

impl Subflow {
    /// The largest payload of a packet on a path of that MTU, so that the options that may come with
    /// data fit in.
    pub fn segment_for(mtu: Bytes, multipath: bool, tells_rtt: bool) -> u32 {
        let options = wire::RATIO
            + if multipath { wire::MP_SEQ } else { 0 }
            + if tells_rtt { wire::MP_RTT } else { 0 };
        let headers = IPV4_HEADER + wire::data_header(options);
        u32::try_from(mtu.get()).unwrap_or(u32::MAX).saturating_sub(headers).max(1)
    }

    pub(super) fn send_handshake(&mut self, now: Instant) -> Option<Segment> {
        let kind = match self.state {
            State::Requesting => DccpKind::Request,
            State::Responding => DccpKind::Response,
            State::PartOpen => DccpKind::Ack,
            State::Closed | State::Open => return None,
        };
        self.probe = Some((self.flight.next(), now));
        if kind == DccpKind::Ack {
            self.receiver.acknowledged(true);
        }
        let told = kind != DccpKind::Request && self.info.priority != USUAL_PRIORITY;
        let options = DccpOptions::JOIN
            .only_if(self.joins)
            .and(DccpOptions::PRIORITY.only_if(self.multipath && told));
        let segment = self.control_packet(now, kind, options);
        self.arm(now);
        Some(segment)
    }

    pub(super) fn send_data(&mut self, now: Instant, datagram: Datagram) -> Segment {
        if self.flight.pipe() == 0 && self.flight.is_app_limited() {
            self.control.on_restart(now);
            self.ask_control();
        }
        if self.flight.pipe() == 0 && now.since(self.last_sent) > self.rtt.timeout() {
            self.control.on_idle(now);
            self.ask_control();
        }
        self.last_sent = now;
        self.pacer.sent(now, self.segment);
        let mut options = DccpOptions::NONE;
        if self.ratio.get() != self.confirmed_ratio {
            options = options.and(DccpOptions::RATIO);
        }
        let mut dccp = self.packet(now, DccpKind::Data, options);
        dccp.data = datagram;
        if now >= self.tell_at {
            dccp.rtt_us = self.rtt_to_tell();
        }
        if dccp.rtt_us > 0 {
            self.tell_at = now + self.rtt.srtt().unwrap_or(Duration::ZERO);
        }
        // An acknowledgement rides along if it fits in; a confirmation goes alone.
        let (_, confirms) = self.receiver.ratio();
        if self.receiver.has_news() && !confirms || self.state == State::PartOpen {
            let with = Dccp { kind: DccpKind::DataAck, ..dccp };
            if u64::from(IPV4_HEADER + wire::header_bytes(&with) + datagram.len)
                <= self.info.mtu.get()
            {
                dccp = with;
                self.receiver.acknowledged(false);
            }
        }
        let idle = self.flight.pipe() == 0;
        dccp.sequence = self.flight.send(now, datagram.len);
        if idle {
            self.arm(now);
        }
        segment(now, dccp)
    }

    /// An acknowledgement that stands alone, if one is due.
    pub fn poll_ack(&mut self, now: Instant) -> Option<Segment> {
        if !self.owes_ack() {
            return None;
        }
        let (_, confirms) = self.receiver.ratio();
        self.receiver.acknowledged(true);
        let options = DccpOptions::RATIO.only_if(confirms);
        Some(self.control_packet(now, DccpKind::Ack, options))
    }

    /// A packet without data.
    pub(super) fn control_packet(
        &mut self,
        now: Instant,
        kind: DccpKind,
        options: DccpOptions,
    ) -> Segment {
        let mut dccp = self.packet(now, kind, options);
        dccp.ack_ratio = self.receiver.ratio().0 as u8;
        dccp.sequence = self.flight.send_control(now);
        if kind == DccpKind::Sync {
            self.arm(now);
        }
        segment(now, dccp)
    }

    fn rtt_to_tell(&self) -> u32 {
        let rtt = match self.tells_rtt {
            None => return 0,
            Some(RttKind::Raw) => self.last_rtt,
            Some(RttKind::Min) => self.rtt.least().unwrap_or(Duration::ZERO),
            Some(RttKind::Max) => self.most_rtt,
            Some(RttKind::Smoothed) => self.rtt.srtt().unwrap_or(Duration::ZERO),
        };
        u32::try_from(rtt.as_nanos() / 1000).unwrap_or(0)
    }

    fn packet(&self, now: Instant, kind: DccpKind, options: DccpOptions) -> Dccp {
        Dccp {
            sequence: 0,
            acks: self.receiver.vector(),
            elapsed: self.receiver.elapsed(now),
            data: Datagram { sequence: 0, message: 0, len: 0, fragment: 0, fragments: 0 },
            rtt_us: 0,
            kind,
            options: options.and(DccpOptions::MULTIPATH.only_if(self.multipath)),
            priority: self.info.priority,
            ack_ratio: self.ratio.get() as u8,
        }
    }
}

fn segment(now: Instant, dccp: Dccp) -> Segment {
    let Datagram { len, message, fragment, fragments, .. } = dccp.data;
    Segment {
        size: IPV4_HEADER + wire::header_bytes(&dccp) + len,
        sent_at: now,
        first_message: message,
        messages: u16::from(fragments > 0 && fragment + 1 == fragments),
        stream: 0,
        tail: false,
        body: Body::Dccp(dccp),
    }
}
