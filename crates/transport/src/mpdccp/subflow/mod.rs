//! One subflow: handshake, acknowledgements, congestion window and timers of a DCCP connection over
//! one path.
//!
//! Source: RFC 4340 §8.1 (handshake), RFC 4341 (windows, loss, timeout), RFC 9897 §3.3 (joining).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Duration, Instant};

use super::ack_ratio::AckRatio;
use super::ack_vector::Place;
use super::flight::{Flight, Progress};
use super::receiver::Receiver;
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

/// Longest timeout (RFC 4340 §8.1.1: a Request's).
const TIMEOUT_MAX: Duration = Duration::from_secs(64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has happened yet.
    Closed,
    /// A Request is to be sent or has been.
    Requesting,
    /// A Request has arrived and is answered.
    Responding,
    /// The Response has arrived, but the peer does not know that it has.
    PartOpen,
    /// Both ends know of each other.
    Open,
}

/// What happened to a subflow that the connection must act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data may flow.
    Established,
    /// The Request went unanswered.
    Unanswered,
}

/// One subflow.
#[derive(Debug)]
pub struct Subflow {
    /// Its path.
    pub id: PathId,
    info: PathInfo,
    role: Role,
    multipath: bool,
    joins: bool,
    /// The driver has not said that the path is gone.
    allowed: bool,
    segment: u32,
    state: State,
    /// A packet of the handshake is to be sent.
    handshake_due: bool,
    /// Number of the packet that told a client that the server is open.
    opened_with: u64,
    flight: Flight,
    receiver: Receiver,
    ratio: AckRatio,
    /// The ratio that the peer has confirmed.
    confirmed_ratio: u32,
    rtt: RttEstimator,
    last_rtt: Duration,
    most_rtt: Duration,
    /// Which round-trip time to tell the peer, and when next.
    tells_rtt: Option<RttKind>,
    tell_at: Instant,
    peer_priority: Option<u8>,
    control: Box<dyn Congestion>,
    /// The control's answers since its last event, in bytes; each packet counts as a full segment.
    window: u64,
    threshold: u64,
    coupled: bool,
    backlog: VecDeque<Datagram>,
    /// Packets from this one on were sent after the last reaction to a loss.
    reaction: u64,
    recovering: bool,
    /// Packets below this were outstanding when the window last held data back.
    limited_mark: u64,
    /// The last packet of the handshake, or a Sync on its way: its number, and when it was sent.
    probe: Option<(u64, Instant)>,
    sync_due: bool,
    sync_ack_due: bool,
    /// The timer: a timeout, a probe of a failed path, a sign of life on an idle one.
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
    /// A subflow that has not been opened; `segment` is the largest payload of a packet.
    pub fn new(
        config: &TransportConfig,
        id: PathId,
        info: PathInfo,
        role: Role,
        multipath: bool,
        segment: u32,
        tells_rtt: Option<RttKind>,
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
            flight: Flight::new(segment),
            receiver: Receiver::new(config.ack_every, config.ack_delay),
            ratio: AckRatio::new(config.ack_every, compat),
            confirmed_ratio: config.ack_every,
            rtt: RttEstimator::new(config.rto_rule, config.rto_min, TIMEOUT_MAX),
            last_rtt: Duration::ZERO,
            most_rtt: Duration::ZERO,
            tells_rtt,
            tell_at: Instant::ZERO,
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
        new.ask_control();
        new
    }

    /// Sends a Request. `joins` an existing connection, or opens a new one.
    pub fn open(&mut self, joins: bool) {
        if self.state == State::Closed {
            self.joins = joins;
            self.state = State::Requesting;
            self.handshake_due = true;
        }
    }

    /// Nothing has been tried yet.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Data may flow. A subflow of several waits until the peer has proved to know it (RFC 9897
    /// §3.3).
    pub fn is_established(&self) -> bool {
        self.state == State::Open || self.state == State::PartOpen && !self.multipath
    }

    /// Established and making progress.
    pub fn is_usable(&self) -> bool {
        self.is_established() && self.timeouts == 0 && self.allowed
    }

    /// Whether it may carry new messages, as far as the driver is concerned.
    pub const fn set_allowed(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// Another packet may leave at once.
    pub fn has_room(&self) -> bool {
        let ahead = self.flight.in_flight() + self.backlog.len() as u64 * u64::from(self.segment);
        ahead == 0 || ahead + u64::from(self.segment) <= self.window && !self.pace_is_full()
    }

    /// As much waits for its turn in the pace as may.
    fn pace_is_full(&self) -> bool {
        let packets = |quantum| quantum / u64::from(self.segment);
        let most = self.pacer.quantum(self.segment).map(packets);
        most.is_some_and(|most| self.backlog.len() as u64 >= most)
    }

    /// Congestion window, slow start threshold, and the pacing rate where there is one.
    pub fn control(&self) -> &dyn Congestion {
        &*self.control
    }

    /// The round-trip time estimator.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Bytes in flight, each packet counted as a full segment.
    pub fn in_flight(&self) -> u64 {
        self.flight.in_flight()
    }

    /// Totals since the start.
    pub fn totals(&self) -> Totals {
        Totals { lost: self.flight.losses(), ..self.totals }
    }

    /// The congestion control reads its siblings.
    pub fn is_coupled(&self) -> bool {
        self.coupled
    }

    /// The subflow as a scheduler sees it. `none_better` says that no other makes progress either.
    pub fn view(&self, none_better: bool) -> PathView {
        PathView {
            id: self.id,
            usable: self.is_usable() || none_better && self.is_established(),
            has_room: self.is_established() && self.has_room(),
            srtt: self.rtt.srtt(),
            rtt_deviation: self.rtt.deviation(),
            min_rtt: self.rtt.least(),
            window: Bytes::new(self.window),
            threshold: Bytes::new(self.threshold),
            pacing: self.pacer.rate(),
            in_flight: Bytes::new(self.flight.in_flight()),
            queued: Bytes::new(self.backlog.len() as u64 * u64::from(self.segment)),
            segment: Bytes::new(u64::from(self.segment)),
            cost: self.info.cost,
            backup: self.info.backup,
            priority: self.peer_priority.unwrap_or(self.info.priority),
        }
    }

    /// The subflow as the congestion control of another sees it.
    pub fn sibling(&self) -> Sibling {
        Sibling {
            counts: self.is_usable() && self.rtt.srtt().is_some(),
            window: Bytes::new(self.window),
            acked_since_loss: Bytes::new(self.since_loss),
            acked_between_losses: Bytes::new(self.between_losses),
            srtt: self.rtt.srtt().unwrap_or(Duration::MAX),
            segment: Bytes::new(u64::from(self.segment)),
        }
    }

    /// Puts a datagram in line to be sent.
    pub fn assign(&mut self, datagram: Datagram) {
        self.backlog.push_back(datagram);
    }

    /// There is more to send than the window lets out.
    pub fn note_limited(&mut self) {
        self.limited_mark = self.flight.next();
    }

    /// There is nothing to send.
    pub fn note_app_limited(&mut self) {
        if self.state == State::Open && self.backlog.is_empty() && self.has_room() {
            self.flight.note_app_limited();
        }
    }

    /// Takes a packet from the peer.
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
            self.ask_control();
        }
        match dccp.kind {
            DccpKind::Sync => self.sync_ack_due = true,
            DccpKind::SyncAck => {
                if self.end_probe(now, dccp) {
                    self.note_progress(now);
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
                self.opened_with = self.flight.next();
                self.receiver.acknowledge_now();
                self.arm(now);
                return Some(Event::Established);
            }
            (State::PartOpen, _) => {
                if dccp.kind.answers() {
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
        self.most_rtt = self.most_rtt.max(rtt);
        self.rtt.sample(rtt, true);
    }

    /// Takes the round-trip time if the packet answers the probe: every packet has a number of its
    /// own, so a repeated one is not mistaken for the first (Karn).
    fn end_probe(&mut self, now: Instant, dccp: &Dccp) -> bool {
        let Some((_, at)) = self.probe.filter(|probe| probe.0 == dccp.acks.newest()) else {
            return false;
        };
        self.probe = None;
        self.sample_rtt(now.since(at) - dccp.elapsed);
        true
    }

    fn note_progress(&mut self, now: Instant) {
        self.timeouts = 0;
        self.sync_due = false;
        self.probe = None;
        self.rtt.end_back_off();
        self.arm(now);
    }

    fn process_acks(&mut self, now: Instant, dccp: &Dccp, siblings: Siblings<'_>) {
        let before = self.flight.in_flight();
        let progress = self.flight.acknowledge(now, &dccp.acks);
        if !progress.news {
            return;
        }
        let rtt = progress.newest_age.map(|age| age - dccp.elapsed);
        if let Some(rtt) = rtt {
            self.sample_rtt(rtt);
        }
        self.note_progress(now);
        self.totals.acked_bytes += progress.payload;
        self.since_loss += u64::from(progress.delivered) * u64::from(self.segment);
        if progress.delivered > 0 || progress.lost > 0 {
            self.tell_control(now, before, rtt, &progress, siblings);
        }
        let window = (self.window / u64::from(self.segment)) as u32;
        let newest = self.flight.newest_known();
        self.ratio.on_ack(newest, progress.delivered, self.flight.next(), window);
        self.control.set_ack_ratio(self.ratio.get());
    }

    fn tell_control(
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
            delivered: Bytes::new(self.flight.delivered()),
            srtt: self.rtt.srtt().unwrap_or(Duration::ZERO),
            rtt,
            latest_rtt: rtt,
            in_flight: Bytes::new(before),
            in_flight_after: Bytes::new(self.flight.in_flight()),
            lost: in_bytes(progress.lost),
            window_limited: progress.first.is_some_and(|first| first < self.limited_mark)
                || slow_start && self.window < 2 * before,
            recovering: self.recovering,
            rate: progress.rate,
        };
        self.control.on_delivery(&acked, siblings);
        if self.recovering && self.flight.newest_known() >= self.reaction {
            self.recovering = false;
            self.control.on_recovered(now);
        }
        // One reaction to the losses among what was sent before it.
        if progress.last_lost.is_some_and(|lost| lost >= self.reaction) {
            self.reaction = self.flight.next();
            self.recovering = true;
            self.totals.fast_recoveries += 1;
            self.between_losses = core::mem::take(&mut self.since_loss);
            self.control.on_loss(&Lost { now, in_flight: Bytes::new(before) }, siblings);
            self.ask_control();
            self.note_reduction(false);
        } else if progress.delivered > 0 {
            // Nothing is sent again, so the window grows at once.
            self.control.on_ack(&acked, siblings);
            self.ask_control();
        }
    }

    fn ask_control(&mut self) {
        self.window = self.control.window().get();
        self.threshold = self.control.slow_start_threshold().get();
        self.pacer.set_rate(self.control.pacing_rate());
    }

    fn note_reduction(&mut self, timeout: bool) {
        self.ratio.on_reduction((self.window / u64::from(self.segment)) as u32, timeout);
        self.control.set_ack_ratio(self.ratio.get());
    }

    /// Sets the timer for what comes next.
    fn arm(&mut self, now: Instant) {
        let timeout = self.rtt.timeout();
        self.timer_at = match self.state {
            State::Closed | State::Responding => Instant::FAR_FUTURE,
            State::Requesting | State::PartOpen => now + timeout,
            State::Open if self.flight.pipe() > 0 => now + timeout,
            State::Open if !self.multipath => Instant::FAR_FUTURE,
            State::Open if self.timeouts > 0 => now + timeout.min(self.probe_every),
            State::Open if self.probe.is_some() => now + timeout,
            State::Open if self.role == Role::Client => now + self.keep_alive,
            State::Open => Instant::FAR_FUTURE,
        };
    }

    /// There is something that [`poll_send`](Self::poll_send) might send.
    pub fn may_send(&self) -> bool {
        self.handshake_due || self.sync_due || self.sync_ack_due || !self.backlog.is_empty()
    }

    /// There is something that [`poll_ack`](Self::poll_ack) will send.
    pub fn owes_ack(&self) -> bool {
        self.receiver.must_acknowledge() && self.is_established()
    }

    /// The next packet to leave, if one may leave now. Acknowledgements that stand alone come last,
    /// through [`poll_ack`](Self::poll_ack), so that they can ride on data.
    pub fn poll_send(&mut self, now: Instant) -> Option<Segment> {
        if core::mem::take(&mut self.handshake_due) {
            return self.send_handshake(now);
        }
        if core::mem::take(&mut self.sync_ack_due) {
            return Some(self.control_packet(now, DccpKind::SyncAck, DccpOptions::NONE));
        }
        if core::mem::take(&mut self.sync_due) {
            self.probe = Some((self.flight.next(), now));
            return Some(self.control_packet(now, DccpKind::Sync, DccpOptions::NONE));
        }
        if !self.is_established() || self.backlog.is_empty() {
            return None;
        }
        if self.pacer.holds_back(now, true) {
            return None;
        }
        let in_flight = self.flight.in_flight();
        if in_flight > 0 && in_flight + u64::from(self.segment) > self.window {
            self.note_limited();
            return None;
        }
        let datagram = self.backlog.pop_front()?;
        Some(self.send_data(now, datagram))
    }

    /// The earliest instant at which [`wake`](Self::wake) has something to do.
    pub fn next_wakeup(&self) -> Instant {
        self.timer_at.min(self.receiver.next_wakeup()).min(self.pacer.next_wakeup())
    }

    /// Lets timers expire.
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
            State::Open if self.flight.pipe() > 0 => self.time_out(now, siblings),
            State::Open => {
                // A path that does not answer a sign of life has failed.
                if self.timeouts > 0 || self.probe.is_some() {
                    self.timeouts += 1;
                    self.rtt.back_off();
                }
                self.sync_due = true;
            }
        }
        None
    }

    /// Nothing was acknowledged for a timeout (RFC 4341 §5).
    fn time_out(&mut self, now: Instant, siblings: Siblings<'_>) {
        let lost = Lost { now, in_flight: Bytes::new(self.flight.in_flight()) };
        self.between_losses = core::mem::take(&mut self.since_loss);
        self.control.on_timeout(&lost, self.timeouts > 0, siblings);
        self.ask_control();
        self.note_reduction(true);
        self.flight.abandon();
        self.reaction = self.flight.next();
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
