//! One subflow: handshake, acknowledgements, congestion window and timers of a DCCP connection over
//! one path.
//!
//! Source: RFC 4340 §8.1 (handshake), RFC 4341 (windows, loss, timeout), RFC 9897 §3.3 (joining).

use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Duration, Instant, Rate};

use super::ack_ratio::AckRatio;
use super::ack_vector::Place;
use super::receiver::Receiver;
use super::sent_packets::{Progress, SentPackets};
use crate::congestion::{
    Acked, CongestionConfig, CongestionWindow, IdleRestart, Lost, PathBasics, Sibling, Siblings,
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

mod handshake;
mod outgoing;
mod queue_limit;
mod rtt_report;
mod tracking;

use handshake::{Handshake, State, Step};
use queue_limit::QueueLimit;
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
    /// Limit by the path's queue, as the driver measures it.
    limit: QueueLimit,
    /// Maximum payload of a packet; in windows, each packet counts as much.
    segment: u32,
    handshake: Handshake,
    sent: SentPackets,
    receiver: Receiver,
    ratio: AckRatio,
    /// Ack Ratio confirmed by the peer.
    confirmed_ratio: u32,
    rtt_report: RttReport,
    peer_priority: Option<u8>,
    window: CongestionWindow,
    backlog: VecDeque<Datagram>,
    /// Further copies before a deadline: they leave first, and pacing does not hold them back.
    copies: VecDeque<Datagram>,
    /// Packets from this number on were sent after the last reaction to a loss.
    reaction: u64,
    recovering: bool,
    /// Packets below this number were outstanding when the window last limited sending.
    limited_mark: u64,
    /// Last packet of the handshake, or the current Sync: number and time of sending.
    probe: Option<(u64, Instant)>,
    sync_due: bool,
    sync_ack_due: bool,
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
            limit: QueueLimit::default(),
            segment,
            handshake: Handshake::new(role, multipath),
            sent: SentPackets::new(segment, control.reads_rates()),
            receiver: Receiver::new(config.ack_every, ack_delay),
            ratio,
            confirmed_ratio: config.ack_every,
            rtt_report: RttReport::new(reported_rtt),
            peer_priority: None,
            window: CongestionWindow::new(control, Pacer::default(), IdleRestart::default()),
            backlog: VecDeque::new(),
            copies: VecDeque::new(),
            reaction: 0,
            recovering: false,
            limited_mark: 0,
            probe: None,
            sync_due: false,
            sync_ack_due: false,
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

    /// Processes a measurement of the path's queue.
    pub fn on_queue(&mut self, share: Option<f64>) {
        self.limit.on_queue(share, self.sent.in_flight(), u64::from(self.segment));
    }

    /// Time until the next datagram assigned could leave, by the pace.
    pub fn pacing_delay(&self) -> Duration {
        let ahead = Bytes::new((self.waiting() + 1) * u64::from(self.segment));
        let pace = self.window.pacer().rate().filter(|rate| *rate > Rate::ZERO);
        pace.map_or(Duration::ZERO, |rate| rate.time_for(ahead))
    }

    /// Ends the back-off of a path that seemed to have failed, and makes its timer due.
    pub fn retry(&mut self, now: Instant) {
        if self.timer.has_expired() || self.handshake.is_asking() {
            self.timer.end_back_off();
            self.timer.set(now);
        }
    }

    /// True if another packet may be assigned.
    #[inline]
    pub fn has_room(&self) -> bool {
        let ahead = self.sent.in_flight() + self.waiting() * u64::from(self.segment);
        let limit = self.limit.bytes();
        if ahead == 0 {
            return limit > 0;
        }
        ahead + u64::from(self.segment) <= self.window.bytes().min(limit) && !self.pace_is_full()
    }

    /// True if the pacer's queue is full.
    fn pace_is_full(&self) -> bool {
        let packets = |quantum| quantum / u64::from(self.segment);
        let max = self.window.pacer().quantum(self.segment).map(packets);
        max.is_some_and(|max| self.backlog.len() as u64 >= max)
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
            queued: Bytes::new(self.waiting() * u64::from(self.segment)),
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
        self.backlog.push_back(datagram);
    }

    /// Queues a further copy of a datagram.
    pub fn assign_copy(&mut self, datagram: Datagram) {
        self.copies.push_back(datagram);
    }

    /// Number of datagrams that wait to be sent.
    fn waiting(&self) -> u64 {
        (self.backlog.len() + self.copies.len()) as u64
    }

    /// Records that the window holds data back.
    pub fn note_limited(&mut self) {
        self.limited_mark = self.sent.next();
    }

    /// Marks the delivery rate as application-limited if there is nothing to send.
    pub fn note_app_limited(&mut self) {
        if self.handshake.state() == State::Open && self.waiting() == 0 && self.has_room() {
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
            DccpKind::Sync => self.sync_ack_due = true,
            DccpKind::SyncAck => {
                let age = self.probe.map(|(_, at)| now.since(at));
                if self.end_probe(now, dccp) {
                    if let (Some(tracking), Some(age)) = (&mut self.tracking, age) {
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
                self.confirmed_ratio = u32::from(dccp.ack_ratio);
            }
        }
        event
    }

    fn advance_handshake(&mut self, now: Instant, dccp: &Dccp) -> Option<Event> {
        let step = self.handshake.on_packet(dccp, self.sent.next());
        match step {
            Step::Unchanged => return None,
            Step::Unconfirmed => {
                self.receiver.acknowledge_now();
                return None;
            }
            Step::Answered => {
                self.end_probe(now, dccp);
                self.timer.end_back_off();
            }
            Step::Accepted => {
                self.end_probe(now, dccp);
                self.receiver.acknowledge_now();
                self.arm(now);
            }
            Step::Confirmed => {
                if dccp.kind.has_ack_number() {
                    self.end_probe(now, dccp);
                }
                self.probe = None;
                self.timer.end_back_off();
                self.arm(now);
            }
        }
        let established = match step {
            Step::Answered => !self.multipath,
            Step::Confirmed => self.multipath,
            _ => true,
        };
        established.then_some(Event::Established)
    }

    fn sample_rtt(&mut self, rtt: Duration) {
        self.rtt_report.on_sample(rtt);
        self.timer.on_handshake(Some(rtt));
    }

    /// Takes a round-trip time sample if the packet acknowledges the probe. Every packet has a
    /// number of its own, so that a repeated one is not confused with the original (Karn's
    /// algorithm).
    fn end_probe(&mut self, now: Instant, dccp: &Dccp) -> bool {
        let Some((_, at)) = self.probe.filter(|probe| probe.0 == dccp.acks.newest()) else {
            return false;
        };
        self.probe = None;
        self.sample_rtt(now.since(at) - dccp.elapsed);
        true
    }

    fn on_progress(&mut self, now: Instant) {
        self.timer.on_progress();
        self.sync_due = false;
        self.probe = None;
        self.arm(now);
    }

    fn process_acks(
        &mut self,
        now: Instant,
        sent_at: Instant,
        dccp: &Dccp,
        siblings: Siblings<'_>,
    ) {
        let before = self.sent.in_flight();
        let progress = self.sent.on_ack(now, &dccp.acks);
        if !progress.news {
            return;
        }
        if let (Some(tracking), Some(age)) = (&mut self.tracking, progress.newest_age) {
            tracking.on_acked(now, sent_at, dccp, age);
        }
        let rtt = progress.newest_age.map(|age| age - dccp.elapsed);
        if let Some(rtt) = rtt {
            self.sample_rtt(rtt);
        }
        self.on_progress(now);
        self.totals.acked_bytes += progress.payload;
        self.window.on_acked(u64::from(progress.delivered) * u64::from(self.segment));
        if progress.delivered > 0 || progress.lost > 0 {
            self.update_control(now, before, rtt, &progress, siblings);
        }
        let window = self.window_in_packets();
        let newest = self.sent.newest_known();
        self.ratio.on_ack(newest, progress.delivered, self.sent.next(), window);
        self.window.control_mut().set_ack_ratio(self.ratio.get());
    }

    fn update_control(
        &mut self,
        now: Instant,
        before: u64,
        rtt: Option<Duration>,
        progress: &Progress,
        siblings: Siblings<'_>,
    ) {
        let in_bytes = |packets: u32| Bytes::new(u64::from(packets) * u64::from(self.segment));
        let (window, threshold) = (self.window.bytes(), self.window.threshold());
        let acked = Acked {
            now,
            bytes: in_bytes(progress.delivered),
            delivered: Bytes::new(self.sent.delivered()),
            srtt: self.timer.srtt().unwrap_or(Duration::ZERO),
            rtt,
            latest_rtt: rtt,
            in_flight: Bytes::new(before),
            in_flight_after: Bytes::new(self.sent.in_flight()),
            lost: in_bytes(progress.lost),
            window_limited: progress.first.is_some_and(|first| first < self.limited_mark)
                || window < threshold && window < 2 * before,
            recovering: self.recovering,
            rate: progress.rate,
        };
        self.window.control_mut().on_delivery(&acked, siblings);
        if self.recovering && self.sent.newest_known() >= self.reaction {
            self.recovering = false;
            self.window.control_mut().on_recovered(now);
        }
        // One reaction per window of data: to losses among packets sent after the last reaction.
        if progress.last_lost.is_some_and(|lost| lost >= self.reaction) {
            self.reaction = self.sent.next();
            self.recovering = true;
            self.totals.fast_recoveries += 1;
            self.window.on_loss(&Lost { now, in_flight: Bytes::new(before) }, siblings);
            self.window.update(self.timer.srtt());
            self.on_reduction(false);
        } else if progress.delivered > 0 {
            // Nothing is retransmitted, so that the window may grow in recovery.
            self.window.control_mut().on_ack(&acked, siblings);
            self.window.update(self.timer.srtt());
        }
    }

    const fn window_in_packets(&self) -> u32 {
        (self.window.bytes() / self.segment as u64) as u32
    }

    fn on_reduction(&mut self, timeout: bool) {
        self.ratio.on_reduction(self.window_in_packets(), timeout);
        self.window.control_mut().set_ack_ratio(self.ratio.get());
    }

    /// Sets the timer for the next event.
    fn arm(&mut self, now: Instant) {
        let timeout = self.timer.rtt().timeout();
        let wait = match self.handshake.state() {
            State::Closed | State::Responding => None,
            State::Requesting | State::PartOpen => Some(timeout),
            State::Open if self.sent.pipe() > 0 => Some(timeout),
            State::Open if !self.multipath => None,
            State::Open if self.timer.has_expired() => Some(timeout.min(self.probe_every)),
            State::Open if self.probe.is_some() => Some(timeout),
            State::Open if self.role == Role::Client => Some(self.keep_alive),
            State::Open => None,
        };
        self.timer.set(wait.map_or(Instant::FAR_FUTURE, |wait| now + wait));
    }

    /// True if [`poll_send`](Self::poll_send) may return a packet.
    pub fn may_send(&self) -> bool {
        self.handshake.is_due() || self.sync_due || self.sync_ack_due || self.waiting() > 0
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
        if core::mem::take(&mut self.sync_ack_due) {
            return Some(self.control_packet(now, DccpKind::SyncAck, DccpOptions::NONE));
        }
        if core::mem::take(&mut self.sync_due) {
            self.probe = Some((self.sent.next(), now));
            return Some(self.control_packet(now, DccpKind::Sync, DccpOptions::NONE));
        }
        if !self.is_established() || self.waiting() == 0 {
            return None;
        }
        let pacer = self.window.pacer_mut();
        if self.limit.bytes() == 0 {
            pacer.release();
            return None;
        }
        if !self.copies.is_empty() {
            pacer.release();
        } else if pacer.holds_back(now, true) {
            return None;
        }
        let in_flight = self.sent.in_flight();
        if in_flight > 0 && in_flight + u64::from(self.segment) > self.window.bytes() {
            self.note_limited();
            return None;
        }
        let datagram = self.copies.pop_front().or_else(|| self.backlog.pop_front())?;
        Some(self.send_data(now, datagram))
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        self.timer.at().min(self.receiver.next_wakeup()).min(self.window.pacer().next_wakeup())
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant, siblings: Siblings<'_>) -> Option<Event> {
        self.receiver.wake(now);
        if now < self.timer.at() {
            return None;
        }
        self.timer.stop();
        match self.handshake.state() {
            State::Closed | State::Responding => {}
            State::Requesting | State::PartOpen => {
                self.timer.back_off();
                return self.handshake.on_timeout().then_some(Event::Unanswered);
            }
            State::Open if self.sent.pipe() > 0 => self.on_timeout(now, siblings),
            State::Open => {
                // A path without a response to a keep-alive has failed.
                if self.timer.has_expired() || self.probe.is_some() {
                    self.timer.on_expired();
                    if self.tracking.is_some() {
                        self.sent.abandon();
                    }
                }
                self.sync_due = true;
            }
        }
        None
    }

    /// Handles a timeout: no packet was acknowledged (RFC 4341 §5).
    fn on_timeout(&mut self, now: Instant, siblings: Siblings<'_>) {
        let lost = Lost { now, in_flight: Bytes::new(self.sent.in_flight()) };
        self.window.on_timeout(&lost, self.timer.has_expired(), siblings);
        self.window.update(self.timer.srtt());
        self.on_reduction(true);
        self.sent.abandon();
        self.reaction = self.sent.next();
        self.recovering = true;
        self.totals.timeouts += 1;
        self.timer.on_expired();
        self.sync_due = self.multipath && self.waiting() == 0;
        if !self.sync_due {
            self.arm(now);
        }
    }
}
