//! Outgoing packets of a subflow: headers and sizes.
//!
//! Source: RFC 4340 §5, RFC 9897 §3.2.

use skybraid_units::{Bytes, Instant};

use super::{State, Subflow};
use crate::mpdccp::wire;
use crate::segment::{Body, Datagram, Dccp, DccpKind, DccpOptions, IPV4_HEADER, Segment};

/// Priority of a path that announces none (RFC 9897 §3.2.10).
const DEFAULT_PRIORITY: u8 = 3;

impl Subflow {
    /// Maximum payload of a packet on a path with this MTU, with space for the options that may
    /// accompany data.
    pub fn segment_for(mtu: Bytes, multipath: bool, reports_rtt: bool, tracks: bool) -> u32 {
        let options = wire::RATIO
            + if multipath { wire::MP_SEQ } else { 0 }
            + if reports_rtt { wire::MP_RTT } else { 0 }
            + if tracks { wire::TIMESTAMP } else { 0 };
        let headers = IPV4_HEADER + wire::data_header(options);
        u32::try_from(mtu.get()).unwrap_or(u32::MAX).saturating_sub(headers).max(1)
    }

    pub(super) fn send_handshake(&mut self, now: Instant, kind: DccpKind) -> Segment {
        self.probe.on_sent(self.sent.next(), now);
        if kind == DccpKind::Ack {
            self.receiver.on_ack_sent(true);
        }
        let announced = kind != DccpKind::Request && self.info.priority != DEFAULT_PRIORITY;
        let options = DccpOptions::JOIN
            .only_if(self.handshake.joins())
            .and(DccpOptions::PRIORITY.only_if(self.multipath && announced));
        let segment = self.control_packet(now, kind, options);
        self.arm(now);
        segment
    }

    pub(super) fn send_data(&mut self, now: Instant, datagram: Datagram) -> Segment {
        let idle = self.sent.pipe() == 0;
        if idle {
            let (app_limited, rtt) = (self.sent.is_app_limited(), self.timer.rtt());
            if self.window.on_restart(now, app_limited, rtt.timeout(), rtt.srtt()) {
                self.limit.on_restart(u64::from(self.segment), rtt.min_rtt());
            }
        }
        self.window.on_sent(now, self.segment);
        let mut options = DccpOptions::NONE;
        if !self.ratio.is_confirmed() {
            options = options.and(DccpOptions::RATIO);
        }
        let mut dccp = self.packet(now, DccpKind::Data, options);
        dccp.data = datagram;
        dccp.rtt_us = self.rtt_report.take(now, self.timer.rtt());
        // Data carries an acknowledgement if it fits; the confirmation of a ratio is sent alone.
        let (_, confirms) = self.receiver.ratio();
        if self.receiver.has_unacknowledged() && !confirms
            || self.handshake.state() == State::PartOpen
        {
            let options = dccp.options.and(self.timestamp());
            let with = Dccp { kind: DccpKind::DataAck, options, ..dccp };
            if u64::from(IPV4_HEADER + wire::header_bytes(&with) + datagram.len)
                <= self.info.mtu.get()
            {
                dccp = with;
                self.receiver.on_ack_sent(false);
            }
        }
        dccp.sequence = self.sent.on_sent(now, datagram.sequence, datagram.len);
        self.tracking.iter_mut().for_each(|tracking| tracking.on_sent(now));
        if idle {
            self.arm(now);
        }
        segment(now, dccp)
    }

    /// Returns a pure acknowledgement, if one is due.
    pub fn poll_ack(&mut self, now: Instant) -> Option<Segment> {
        if !self.owes_ack() {
            return None;
        }
        let (_, confirms) = self.receiver.ratio();
        self.receiver.on_ack_sent(true);
        let options = DccpOptions::RATIO.only_if(confirms);
        Some(self.control_packet(now, DccpKind::Ack, options))
    }

    /// Builds a packet without data.
    pub(super) fn control_packet(
        &mut self,
        now: Instant,
        kind: DccpKind,
        options: DccpOptions,
    ) -> Segment {
        let answers = matches!(kind, DccpKind::Ack | DccpKind::SyncAck);
        let options = options.and(self.timestamp().only_if(answers));
        let mut dccp = self.packet(now, kind, options);
        dccp.ack_ratio = self.receiver.ratio().0 as u8;
        dccp.sequence = match &mut self.tracking {
            Some(tracking) if kind == DccpKind::Sync => {
                tracking.on_sent(now);
                self.sent.on_probe_sent(now)
            }
            _ => self.sent.on_control_sent(now),
        };
        if kind == DccpKind::Sync {
            self.arm(now);
        }
        segment(now, dccp)
    }

    /// Timestamp of an acknowledgement, if the peer needs it for one-way delays.
    fn timestamp(&self) -> DccpOptions {
        DccpOptions::TIMESTAMP.only_if(self.tracking.is_some())
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
