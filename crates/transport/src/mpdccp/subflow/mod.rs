//! One subflow: handshake, acknowledgements, congestion window and timers of a DCCP connection over
//! one path.
//!
//! Source: RFC 4340 §8.1 (handshake), RFC 4341 (windows, loss, timeout), RFC 9897 §3.3 (joining).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Duration, Instant};

use super::ack_ratio::AckRatio;
use super::ack_vector::Place;
use super::receiver::Receiver;
use super::sent_packets::{Progress, SentPackets};
use crate::congestion::{Acked, Congestion, CongestionConfig, Lost, PathBasics, Sibling, Siblings};
use crate::endpoint::Role;
use crate::pacing::Pacer;
use crate::registry::Compat;
use crate::reordering::RttKind;
use crate::rtt::RttEstimator;
use crate::segment::{Datagram, Dccp, DccpKind, DccpOptions, Segment};
use crate::tcp::subflow::Totals;
use crate::{PathId, PathInfo, PathView, TransportConfig};

mod outgoing;

/// Maximum timeout (RFC 4340 §8.1.1: that of a Request).
const MAX_TIMEOUT: Duration = Duration::from_secs(64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Initial state.
    Closed,
    /// A Request is due or has been sent.
    Requesting,
    /// A Request has been received.
    Responding,
    /// A Response has been received; the peer has not confirmed the acknowledgement.
    PartOpen,
    /// The handshake is complete.
    Open,
}

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
    pub id: PathId,
    info: PathInfo,
    role: Role,
    multipath: bool,
    joins: bool,
    /// False if the driver has excluded the path.
    allowed: bool,
    segment: u32,
    state: State,
    /// True if a packet of the handshake is due.
    handshake_due: bool,
    /// Number of the packet that told the client that the server is open.
    opened_with: u64,
    sent: SentPackets,
    receiver: Receiver,
    ratio: AckRatio,
    /// Ack Ratio confirmed by the peer.
    confirmed_ratio: u32,
    rtt: RttEstimator,
    last_rtt: Duration,
    max_rtt: Duration,
    /// Kind of round-trip time to report to the peer, and the time of the next report.
    reported_rtt: Option<RttKind>,
    report_at: Instant,
    peer_priority: Option<u8>,
    control: Box<dyn Congestion>,
    /// Window and slow start threshold in bytes, as of the control's last event; each packet counts
    /// as a full segment.
    window: u64,
    threshold: u64,
    coupled: bool,
    backlog: VecDeque<Datagram>,
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
    timer_at: Instant,
    timeouts: u32,
    probe_every: Duration,
    keep_alive: Duration,
    last_sent: Instant,
    pacer: Pacer,
    since_loss: u64,
    between_losses: u64,
    totals: Totals,
}

impl Subflow {
    /// Creates a closed subflow. `segment` is the maximum payload of a packet.
    pub fn new(
        config: &TransportConfig,
        id: PathId,
        info: PathInfo,
        role: Role,
        multipath: bool,
        segment: u32,
        reported_rtt: Option<RttKind>,
    ) -> Self {
        let basics = PathBasics::of(config, role, id, segment, true);
        let control = config.congestion.build(&basics);
        let compat = match &config.congestion {
            CongestionConfig::Ccid2(ccid2) => ccid2.compat,
            _ => Compat::Paper,
        };
        let mut new = Self {
            id,
            info,
            role,
            multipath,
            joins: false,
            allowed: true,
            segment,
            state: State::Closed,
            handshake_due: false,
            opened_with: 0,
            sent: SentPackets::new(segment),
            receiver: Receiver::new(config.ack_every, config.ack_delay),
            ratio: AckRatio::new(config.ack_every, compat),
            confirmed_ratio: config.ack_every,
            rtt: RttEstimator::new(config.rto_rule, config.rto_min, MAX_TIMEOUT),
            last_rtt: Duration::ZERO,
            max_rtt: Duration::ZERO,
            reported_rtt,
            report_at: Instant::ZERO,
            peer_priority: None,
            window: 0,
            threshold: 0,
            coupled: control.is_coupled(),
            control,
            backlog: VecDeque::new(),
            reaction: 0,
            recovering: false,
            limited_mark: 0,
            probe: None,
            sync_due: false,
            sync_ack_due: false,
            timer_at: Instant::FAR_FUTURE,
            timeouts: 0,
            probe_every: config.probe_every,
            keep_alive: config.keep_alive,
            last_sent: Instant::ZERO,
            pacer: Pacer::default(),
            since_loss: 0,
            between_losses: 0,
            totals: Totals::default(),
        };
        new.control.set_ack_ratio(new.ratio.get());
        new.read_control();
        new
    }

    /// Starts the handshake. `joins` is true to join an existing connection, false to open a new
    /// one.
    pub fn open(&mut self, joins: bool) {
        if self.state == State::Closed {
            self.joins = joins;
            self.state = State::Requesting;
            self.handshake_due = true;
        }
    }

    /// True in the initial state.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// True if data may be sent. With several subflows, the peer must have confirmed the handshake
    /// first (RFC 9897 §3.3).
    pub fn is_established(&self) -> bool {
        self.state == State::Open || self.state == State::PartOpen && !self.multipath
    }

    /// True if established, allowed by the driver and not suspected of having failed.
    pub fn is_usable(&self) -> bool {
        self.is_established() && self.timeouts == 0 && self.allowed
    }

    /// Allows or forbids new messages.
    pub const fn set_allowed(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// True if another packet may be assigned.
    pub fn has_room(&self) -> bool {
        let ahead = self.sent.in_flight() + self.backlog.len() as u64 * u64::from(self.segment);
        ahead == 0 || ahead + u64::from(self.segment) <= self.window && !self.pace_is_full()
    }

    /// True if the pacer's queue is full.
    fn pace_is_full(&self) -> bool {
        let packets = |quantum| quantum / u64::from(self.segment);
        let max = self.pacer.quantum(self.segment).map(packets);
        max.is_some_and(|max| self.backlog.len() as u64 >= max)
    }

    /// Congestion control, for its window, threshold and pacing rate.
    pub fn control(&self) -> &dyn Congestion {
        &*self.control
    }

    /// Round-trip time estimator.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Bytes in flight, each packet counted as a full segment.
    pub fn in_flight(&self) -> u64 {
        self.sent.in_flight()
    }

    /// Totals since the start.
    pub fn totals(&self) -> Totals {
        Totals { lost: self.sent.losses(), ..self.totals }
    }

    /// True if the congestion control reads its siblings.
    pub fn is_coupled(&self) -> bool {
        self.coupled
    }

    /// Returns the view of a scheduler. `none_better` is true if no subflow makes progress.
    pub fn view(&self, none_better: bool) -> PathView {
        PathView {
            id: self.id,
            usable: self.is_usable() || none_better && self.is_established(),
            has_room: self.is_established() && self.has_room(),
            srtt: self.rtt.srtt(),
            rtt_deviation: self.rtt.deviation(),
            min_rtt: self.rtt.min_rtt(),
            window: Bytes::new(self.window),
            threshold: Bytes::new(self.threshold),
            pacing: self.pacer.rate(),
            in_flight: Bytes::new(self.sent.in_flight()),
            queued: Bytes::new(self.backlog.len() as u64 * u64::from(self.segment)),
            segment: Bytes::new(u64::from(self.segment)),
            cost: self.info.cost,
            backup: self.info.backup,
            priority: self.peer_priority.unwrap_or(self.info.priority),
        }
    }

    /// Returns the view of a sibling's congestion control.
    pub fn sibling(&self) -> Sibling {
        Sibling {
            active: self.is_usable() && self.rtt.srtt().is_some(),
            window: Bytes::new(self.window),
            acked_since_loss: Bytes::new(self.since_loss),
            acked_between_losses: Bytes::new(self.between_losses),
            srtt: self.rtt.srtt().unwrap_or(Duration::MAX),
            segment: Bytes::new(u64::from(self.segment)),
        }
    }

    /// Queues a datagram.
    pub fn assign(&mut self, datagram: Datagram) {
        self.backlog.push_back(datagram);
    }

    /// Records that the window holds data back.
    pub fn note_limited(&mut self) {
        self.limited_mark = self.sent.next();
    }

    /// Marks the delivery rate as application-limited if there is nothing to send.
    pub fn note_app_limited(&mut self) {
        if self.state == State::Open && self.backlog.is_empty() && self.has_room() {
            self.sent.note_app_limited();
        }
    }

    /// Processes a packet.
    pub fn receive(&mut self, now: Instant, dccp: &Dccp, siblings: Siblings<'_>) -> Option<Event> {
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
            self.control.on_established(now, self.rtt.srtt());
            self.read_control();
        }
        match dccp.kind {
            DccpKind::Sync => self.sync_ack_due = true,
            DccpKind::SyncAck => {
                if self.end_probe(now, dccp) {
                    self.on_progress(now);
                }
            }
            DccpKind::Ack | DccpKind::DataAck => self.process_acks(now, dccp, siblings),
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
        match (self.state, dccp.kind) {
            (State::Closed | State::Responding, DccpKind::Request) => {
                self.joins = dccp.options.has(DccpOptions::JOIN);
                self.state = State::Responding;
                self.handshake_due = true;
            }
            (State::Requesting, DccpKind::Response) => {
                self.end_probe(now, dccp);
                self.rtt.end_back_off();
                self.state = State::PartOpen;
                self.handshake_due = true;
                return (!self.multipath).then_some(Event::Established);
            }
            // The acknowledgement was lost.
            (State::PartOpen, DccpKind::Response) => self.handshake_due = true,
            (State::Responding, DccpKind::Ack | DccpKind::DataAck) => {
                self.end_probe(now, dccp);
                self.state = State::Open;
                self.opened_with = self.sent.next();
                self.receiver.acknowledge_now();
                self.arm(now);
                return Some(Event::Established);
            }
            (State::PartOpen, _) => {
                if dccp.kind.has_ack_number() {
                    self.end_probe(now, dccp);
                }
                self.probe = None;
                self.rtt.end_back_off();
                self.state = State::Open;
                self.handshake_due = false;
                self.arm(now);
                return self.multipath.then_some(Event::Established);
            }
            // The client does not know yet that this end is open.
            (State::Open, DccpKind::Ack)
                if self.role == Role::Server && dccp.acks.newest() < self.opened_with =>
            {
                self.receiver.acknowledge_now();
            }
            _ => {}
        }
        None
    }

    fn sample_rtt(&mut self, rtt: Duration) {
        self.last_rtt = rtt;
        self.max_rtt = self.max_rtt.max(rtt);
        self.rtt.on_sample(rtt, true);
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
        self.timeouts = 0;
        self.sync_due = false;
        self.probe = None;
        self.rtt.end_back_off();
        self.arm(now);
    }

    fn process_acks(&mut self, now: Instant, dccp: &Dccp, siblings: Siblings<'_>) {
        let before = self.sent.in_flight();
        let progress = self.sent.on_ack(now, &dccp.acks);
        if !progress.news {
            return;
        }
        let rtt = progress.newest_age.map(|age| age - dccp.elapsed);
        if let Some(rtt) = rtt {
            self.sample_rtt(rtt);
        }
        self.on_progress(now);
        self.totals.acked_bytes += progress.payload;
        self.since_loss += u64::from(progress.delivered) * u64::from(self.segment);
        if progress.delivered > 0 || progress.lost > 0 {
            self.update_control(now, before, rtt, &progress, siblings);
        }
        let window = (self.window / u64::from(self.segment)) as u32;
        let newest = self.sent.newest_known();
        self.ratio.on_ack(newest, progress.delivered, self.sent.next(), window);
        self.control.set_ack_ratio(self.ratio.get());
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
        let slow_start = self.window < self.threshold;
        let acked = Acked {
            now,
            bytes: in_bytes(progress.delivered),
            delivered: Bytes::new(self.sent.delivered()),
            srtt: self.rtt.srtt().unwrap_or(Duration::ZERO),
            rtt,
            latest_rtt: rtt,
            in_flight: Bytes::new(before),
            in_flight_after: Bytes::new(self.sent.in_flight()),
            lost: in_bytes(progress.lost),
            window_limited: progress.first.is_some_and(|first| first < self.limited_mark)
                || slow_start && self.window < 2 * before,
            recovering: self.recovering,
            rate: progress.rate,
        };
        self.control.on_delivery(&acked, siblings);
        if self.recovering && self.sent.newest_known() >= self.reaction {
            self.recovering = false;
            self.control.on_recovered(now);
        }
        // One reaction per window of data: to losses among packets sent after the last reaction.
        if progress.last_lost.is_some_and(|lost| lost >= self.reaction) {
            self.reaction = self.sent.next();
            self.recovering = true;
            self.totals.fast_recoveries += 1;
            self.between_losses = core::mem::take(&mut self.since_loss);
            self.control.on_loss(&Lost { now, in_flight: Bytes::new(before) }, siblings);
            self.read_control();
            self.on_reduction(false);
        } else if progress.delivered > 0 {
            // Nothing is retransmitted, so that the window may grow in recovery.
            self.control.on_ack(&acked, siblings);
            self.read_control();
        }
    }

    fn read_control(&mut self) {
        self.window = self.control.window().get();
        self.threshold = self.control.slow_start_threshold().get();
        self.pacer.set_rate(self.control.pacing_rate());
    }

    fn on_reduction(&mut self, timeout: bool) {
        self.ratio.on_reduction((self.window / u64::from(self.segment)) as u32, timeout);
        self.control.set_ack_ratio(self.ratio.get());
    }

    /// Sets the timer for the next event.
    fn arm(&mut self, now: Instant) {
        let timeout = self.rtt.timeout();
        self.timer_at = match self.state {
            State::Closed | State::Responding => Instant::FAR_FUTURE,
            State::Requesting | State::PartOpen => now + timeout,
            State::Open if self.sent.pipe() > 0 => now + timeout,
            State::Open if !self.multipath => Instant::FAR_FUTURE,
            State::Open if self.timeouts > 0 => now + timeout.min(self.probe_every),
            State::Open if self.probe.is_some() => now + timeout,
            State::Open if self.role == Role::Client => now + self.keep_alive,
            State::Open => Instant::FAR_FUTURE,
        };
    }

    /// True if [`poll_send`](Self::poll_send) may return a packet.
    pub fn may_send(&self) -> bool {
        self.handshake_due || self.sync_due || self.sync_ack_due || !self.backlog.is_empty()
    }

    /// True if [`poll_ack`](Self::poll_ack) will return an acknowledgement.
    pub fn owes_ack(&self) -> bool {
        self.receiver.must_acknowledge() && self.is_established()
    }

    /// Returns the next packet, if one may be sent now. Pure acknowledgements come last, through
    /// [`poll_ack`](Self::poll_ack), so that data can carry them.
    pub fn poll_send(&mut self, now: Instant) -> Option<Segment> {
        if core::mem::take(&mut self.handshake_due) {
            return self.send_handshake(now);
        }
        if core::mem::take(&mut self.sync_ack_due) {
            return Some(self.control_packet(now, DccpKind::SyncAck, DccpOptions::NONE));
        }
        if core::mem::take(&mut self.sync_due) {
            self.probe = Some((self.sent.next(), now));
            return Some(self.control_packet(now, DccpKind::Sync, DccpOptions::NONE));
        }
        if !self.is_established() || self.backlog.is_empty() {
            return None;
        }
        if self.pacer.holds_back(now, true) {
            return None;
        }
        let in_flight = self.sent.in_flight();
        if in_flight > 0 && in_flight + u64::from(self.segment) > self.window {
            self.note_limited();
            return None;
        }
        let datagram = self.backlog.pop_front()?;
        Some(self.send_data(now, datagram))
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        self.timer_at.min(self.receiver.next_wakeup()).min(self.pacer.next_wakeup())
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant, siblings: Siblings<'_>) -> Option<Event> {
        self.receiver.wake(now);
        if now < self.timer_at {
            return None;
        }
        self.timer_at = Instant::FAR_FUTURE;
        match self.state {
            State::Closed | State::Responding => {}
            State::Requesting | State::PartOpen => {
                self.rtt.back_off();
                self.handshake_due = true;
                let unanswered = self.state == State::Requesting;
                return unanswered.then_some(Event::Unanswered);
            }
            State::Open if self.sent.pipe() > 0 => self.on_timeout(now, siblings),
            State::Open => {
                // A path without a response to a keep-alive has failed.
                if self.timeouts > 0 || self.probe.is_some() {
                    self.timeouts += 1;
                    self.rtt.back_off();
                }
                self.sync_due = true;
            }
        }
        None
    }

    /// Handles a timeout: no packet was acknowledged (RFC 4341 §5).
    fn on_timeout(&mut self, now: Instant, siblings: Siblings<'_>) {
        let lost = Lost { now, in_flight: Bytes::new(self.sent.in_flight()) };
        self.between_losses = core::mem::take(&mut self.since_loss);
        self.control.on_timeout(&lost, self.timeouts > 0, siblings);
        self.read_control();
        self.on_reduction(true);
        self.sent.abandon();
        self.reaction = self.sent.next();
        self.recovering = true;
        self.timeouts += 1;
        self.totals.timeouts += 1;
        self.rtt.back_off();
        self.sync_due = self.multipath && self.backlog.is_empty();
        if !self.sync_due {
            self.arm(now);
        }
    }
}
