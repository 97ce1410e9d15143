//! One subflow: handshake, acknowledgements, congestion window and timers of a DCCP connection over
//! one path.
//!
//! Source: RFC 4340 §8.1 (handshake), RFC 4341 (windows, loss, timeout), RFC 9897 §3.3 (joining).

use skybraid_units::{Bytes, Duration, Instant, Rate};

use super::ack_ratio::AckRatio;
use super::ack_vector::Place;
use super::receiver::Receiver;
use super::sent_packets::SentPackets;
use crate::congestion::{
    CongestionConfig, CongestionWindow, IdleRestart, PathBasics, Sibling, Siblings,
};
use crate::endpoint::{Role, SubflowSample};
use crate::pacing::Pacer;
use crate::registry::Compat;
use crate::reordering::RttKind;
use crate::rtt::RttEstimator;
use crate::segment::{Datagram, Dccp, DccpKind, DccpOptions, Segment};
use crate::tcp::subflow::Totals;
use crate::timer::RetransmissionTimer;
use crate::{PathId, PathInfo, PathView, Protocol, SubflowId, TransportConfig};

mod acknowledgement;
mod backlog;
mod handshake;
mod outgoing;
mod probe;
mod queue_limit;
mod reaction;
mod rtt_report;
mod timers;
mod tracking;

use backlog::Backlog;
use handshake::{Handshake, State};
use probe::Probe;
use queue_limit::QueueLimit;
use reaction::Reaction;
use rtt_report::RttReport;
use tracking::Tracking;

/// Maximum timeout (RFC 4340 §8.1.1: that of a Request).
const MAX_TIMEOUT: Duration = Duration::from_secs(64);

/// Event of a subflow that concerns the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The subflow is established: data may be sent.
    Established,
    /// The Request went unanswered.
    Unanswered,
}

/// One subflow.
#[derive(Debug)]
pub struct Subflow {
    /// Path of the subflow, and its number within the connection.
    id: PathId,
    info: PathInfo,
    role: Role,
    multipath: bool,
    /// False if the driver has excluded the path.
    allowed: bool,
    /// Limit by the path's queue, as the driver measures it, and after an idle time.
    limit: QueueLimit,
    /// Maximum payload of a packet; in windows, each packet counts as much.
    segment: u32,
    handshake: Handshake,
    sent: SentPackets,
    receiver: Receiver,
    ratio: AckRatio,
    rtt_report: RttReport,
    peer_priority: Option<u8>,
    window: CongestionWindow,
    backlog: Backlog,
    /// Data that may wait for the pace.
    pace_queue: Duration,
    reaction: Reaction,
    /// Packets below this number were outstanding when the window last limited sending.
    limited_mark: u64,
    probe: Probe,
    /// Timer for a timeout, a probe of a failed path, or a keep-alive on an idle path.
    timer: RetransmissionTimer,
    probe_every: Duration,
    keep_alive: Duration,
    totals: Totals,
    /// None if the scheduler does not learn from single packets.
    tracking: Option<Tracking>,
}

impl Subflow {
    /// Creates a closed subflow. `segment` is the maximum payload of a packet.
    pub fn new(
        config: &TransportConfig,
        id: PathId,
        info: PathInfo,
        role: Role,
        segment: u32,
        reported_rtt: Option<RttKind>,
        ack_delay: Duration,
    ) -> Self {
        let multipath = config.protocol == Protocol::MpDccp;
        let basics = PathBasics::of(config, role, SubflowId::from_path(id), segment, true);
        let compat = match &config.congestion {
            CongestionConfig::Ccid2(ccid2) => ccid2.compat,
            _ => Compat::Paper,
        };
        let ratio = AckRatio::new(config.ack_every, compat);
        let mut control = config.congestion.build(&basics);
        control.set_ack_ratio(ratio.get());
        let rtt = RttEstimator::new(config.rto_rule, config.rto_min, MAX_TIMEOUT);
        Self {
            id,
            info,
            role,
            multipath,
            allowed: true,
            limit: QueueLimit::new(config.restart_window),
            segment,
            handshake: Handshake::new(role, multipath),
            sent: SentPackets::new(segment, control.reads_rates()),
            receiver: Receiver::new(config.ack_every, ack_delay),
            ratio,
            rtt_report: RttReport::new(reported_rtt),
            peer_priority: None,
            window: CongestionWindow::new(control, Pacer::default(), IdleRestart::default()),
            backlog: Backlog::default(),
            pace_queue: config.pace_queue,
            reaction: Reaction::default(),
            limited_mark: 0,
            probe: Probe::default(),
            timer: RetransmissionTimer::new(rtt),
            probe_every: config.probe_every,
            keep_alive: config.keep_alive,
            totals: Totals::default(),
            tracking: None,
        }
    }

    /// Path of the subflow, and its number within the connection.
    #[inline]
    pub const fn id(&self) -> PathId {
        self.id
    }

    /// Starts the handshake. `joins` is true to join an existing connection, false to open a new
    /// one.
    pub fn open(&mut self, joins: bool) {
        self.handshake.open(joins);
    }

    /// True in the initial state.
    pub fn is_closed(&self) -> bool {
        self.handshake.state() == State::Closed
    }

    /// True if data may be sent.
    pub fn is_established(&self) -> bool {
        self.handshake.is_established()
    }

    /// True if established, allowed by the driver and not suspected of having failed.
    pub fn is_usable(&self) -> bool {
        self.is_established() && !self.timer.has_expired() && self.allowed
    }

    /// Allows or forbids new messages.
    pub const fn set_allowed(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// Processes a measurement of the path's queue. Where it is measured, disorder is no sign of congestion.
    pub fn on_queue(&mut self, now: Instant, share: Option<f64>) {
        self.sent.follow_reordering();
        self.limit.on_queue(share, self.sent.in_flight(), u64::from(self.segment));
        self.check_age(now);
    }

    /// Pauses the subflow if acknowledgements are overdue.
    fn check_age(&mut self, now: Instant) {
        let age = self.sent.sent_after_reported(QueueLimit::OVERDUE).map(|at| now.since(at));
        self.limit.on_age(now, age, self.timer.rtt().min_rtt());
    }

    /// Time until the next datagram assigned could leave, by the pace.
    pub fn pacing_delay(&self) -> Duration {
        let ahead = Bytes::new((self.backlog.len() + 1) * u64::from(self.segment));
        let pace = self.window.pacer().rate().filter(|rate| *rate > Rate::ZERO);
        pace.map_or(Duration::ZERO, |rate| rate.time_for(ahead))
    }

    /// True if another packet may be assigned.
    #[inline]
    pub fn has_room(&self) -> bool {
        let ahead = self.sent.in_flight() + self.backlog.len() * u64::from(self.segment);
        let limit = self.limit.bytes();
        if ahead == 0 {
            return limit > 0;
        }
        ahead + u64::from(self.segment) <= self.window.bytes().min(limit) && !self.pace_is_full()
    }

    /// True if the pacer's queue is full.
    fn pace_is_full(&self) -> bool {
        let packets = |quantum| quantum / u64::from(self.segment);
        let max = self.window.pacer().quantum(self.pace_queue, self.segment).map(packets);
        max.is_some_and(|max| self.backlog.paced() >= max)
    }

    /// Smoothed round-trip time, if there is a sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.timer.srtt()
    }

    /// Returns the state of the subflow for tables. DCCP counts packets: windows and bytes in flight are full segments
    /// for each packet.
    pub fn sample(&self) -> SubflowSample {
        let control = self.window.control();
        SubflowSample {
            subflow: self.id.0,
            path: self.id,
            window: control.window(),
            threshold: control.slow_start_threshold(),
            pacing: control.pacing_rate(),
            srtt: self.timer.srtt(),
            in_flight: Bytes::new(self.sent.in_flight()),
            totals: Totals { lost: self.sent.losses(), ..self.totals },
        }
    }

    /// True if the congestion control reads its siblings.
    pub fn is_coupled(&self) -> bool {
        self.window.is_coupled()
    }

    /// Returns the view of a scheduler. `none_better` is true if no subflow makes progress.
    pub fn view(&self, none_better: bool) -> PathView {
        let rtt = self.timer.rtt();
        PathView {
            id: self.id,
            usable: self.is_usable() || none_better && self.is_established(),
            has_room: self.is_established() && self.has_room(),
            srtt: rtt.srtt(),
            rtt_deviation: rtt.deviation(),
            min_rtt: rtt.min_rtt(),
            window: Bytes::new(self.window.bytes()),
            threshold: Bytes::new(self.window.threshold()),
            pacing: self.window.pacer().rate(),
            in_flight: Bytes::new(self.sent.in_flight()),
            queued: Bytes::new(self.backlog.len() * u64::from(self.segment)),
            segment: Bytes::new(u64::from(self.segment)),
            cost: self.info.cost,
            backup: self.info.backup,
            priority: self.peer_priority.unwrap_or(self.info.priority),
        }
    }

    /// Returns the view of a sibling's congestion control.
    pub fn sibling(&self) -> Sibling {
        self.window.sibling(self.is_usable(), self.timer.srtt(), self.segment)
    }

    /// Queues a datagram.
    pub fn assign(&mut self, datagram: Datagram) {
        self.backlog.push(datagram);
    }

    /// Queues a further copy of a datagram.
    pub fn assign_copy(&mut self, datagram: Datagram) {
        self.backlog.push_copy(datagram);
    }

    /// Records that the window holds data back.
    pub fn note_limited(&mut self) {
        self.limited_mark = self.sent.next();
    }

    /// Marks the delivery rate as application-limited if there is nothing to send.
    pub fn note_app_limited(&mut self) {
        if self.handshake.state() == State::Open && self.backlog.len() == 0 && self.has_room() {
            self.sent.note_app_limited();
        }
    }

    /// Processes a packet that the peer sent at `sent_at` by its clock.
    pub fn receive(
        &mut self,
        now: Instant,
        sent_at: Instant,
        dccp: &Dccp,
        siblings: Siblings<'_>,
    ) -> Option<Event> {
        if dccp.sequence == 0 {
            return None;
        }
        let has_data = dccp.data.fragments > 0;
        if let Place::Ahead(1..) = self.receiver.receive(now, dccp.sequence, has_data) {
            self.ratio.on_ack_lost();
        }
        if dccp.options.has(DccpOptions::PRIORITY) {
            self.peer_priority = Some(dccp.priority);
        }
        let event = self.advance_handshake(now, dccp);
        if event == Some(Event::Established) {
            self.window.on_established(now, self.timer.srtt());
        }
        match dccp.kind {
            DccpKind::Sync => self.probe.on_sync(),
            DccpKind::SyncAck => {
                if let Some(age) = self.end_probe(now, dccp) {
                    if let Some(tracking) = &mut self.tracking {
                        tracking.on_acked(now, sent_at, dccp, age);
                        self.sent.on_probe_acked(dccp.acks.newest());
                    }
                    self.on_progress(now);
                }
            }
            DccpKind::Ack | DccpKind::DataAck => self.process_acks(now, sent_at, dccp, siblings),
            DccpKind::Request | DccpKind::Response | DccpKind::Data => {}
        }
        if dccp.options.has(DccpOptions::RATIO) {
            if has_data {
                self.receiver.set_ratio(dccp.ack_ratio);
            } else {
                self.ratio.on_confirmed(dccp.ack_ratio);
            }
        }
        event
    }

    /// True if [`poll_send`](Self::poll_send) may return a packet.
    pub fn may_send(&self) -> bool {
        self.handshake.is_due() || self.probe.is_due() || self.backlog.len() > 0
    }

    /// True if [`poll_ack`](Self::poll_ack) will return an acknowledgement.
    pub fn owes_ack(&self) -> bool {
        self.receiver.must_acknowledge() && self.is_established()
    }

    /// Returns the next packet, if one may be sent now. Pure acknowledgements come last, through
    /// [`poll_ack`](Self::poll_ack), so that data can carry them.
    pub fn poll_send(&mut self, now: Instant) -> Option<Segment> {
        if let Some(kind) = self.handshake.take_due() {
            return Some(self.send_handshake(now, kind));
        }
        if let Some(kind) = self.probe.take_due() {
            if kind == DccpKind::Sync {
                self.probe.on_sent(self.sent.next(), now);
            }
            return Some(self.control_packet(now, kind, DccpOptions::NONE));
        }
        if !self.is_established() || self.backlog.len() == 0 {
            return None;
        }
        let pacer = self.window.pacer_mut();
        if self.limit.bytes() == 0 {
            pacer.release();
            return None;
        }
        if self.backlog.has_copy() {
            pacer.release();
        } else if pacer.holds_back(now, true) {
            return None;
        }
        let in_flight = self.sent.in_flight();
        if in_flight > 0 && in_flight + u64::from(self.segment) > self.window.bytes() {
            self.note_limited();
            return None;
        }
        let datagram = self.backlog.pop()?;
        Some(self.send_data(now, datagram))
    }
}
