//! One subflow: handshake, retransmission, congestion window and timers of a TCP connection over one
//! path.
//!
//! Source: RFC 9293 (handshake), RFC 6675 and RFC 6582 (recovery), RFC 6298 (timer), RFC 8684 §3.2
//! (a joined subflow waits for the fourth acknowledgement).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use crate::congestion::{Congestion, PathBasics, Siblings};
use crate::pacing::Pacer;
use crate::rtt::RttEstimator;
use crate::segment::{Flags, Segment, Tcp};
use crate::tcp::ceiling::Ceiling;
use crate::tcp::prr::Reduction;
use crate::tcp::receiver::Receiver;
use crate::tcp::scoreboard::{Chunk, LossDetection, Scoreboard};
use crate::tcp::spurious::Undo;
use crate::tcp::tail_probe::TailProbe;
use crate::{PathId, PathInfo, Role, TransportConfig};

mod outgoing;
mod recovery;
mod shown;

/// Longest retransmission timeout (`TCP_RTO_MAX`).
const RTO_MAX: Duration = Duration::from_secs(120);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has happened yet.
    Closed,
    /// A SYN is to be sent or has been.
    SynSent,
    /// A SYN has arrived.
    SynReceived,
    /// The SYN of a joined subflow has been answered, but the peer does not know that we know.
    AwaitingFourthAck,
    /// Data may flow.
    Established,
    /// Its address is gone.
    Removed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    Open,
    /// Fast recovery until this sequence number is acknowledged.
    Fast(u64),
    /// Recovery from a timeout until this sequence number is acknowledged.
    Timeout(u64),
}

/// What the connection puts into each segment of its subflows.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Next data sequence number expected from the peer.
    pub data_ack: u64,
    /// First data sequence number that the peer may not send yet.
    pub window_end: u64,
    /// Oldest of our own data sequence numbers that the peer has not acknowledged.
    pub data_una: u64,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments taken for lost, each time anew.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Recoveries taken back because nothing had been lost.
    pub undone: u64,
    /// Times that the congestion window was reduced after duplicate or selective acknowledgements.
    pub fast_recoveries: u64,
}

/// What is to leave a subflow.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// A SYN.
    Syn,
    /// A chunk at this sequence number.
    Data(u64, Chunk),
    /// A segment that makes the peer answer with its window.
    Probe,
}

/// What happened to a subflow that the connection must act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data may flow.
    Established,
    /// The retransmission timer expired for the first time since the last progress.
    TimedOut,
    /// The SYN went unanswered.
    Unanswered,
}

/// One subflow.
#[derive(Debug)]
pub struct Subflow {
    /// Its number within the connection, by which schedulers know it.
    pub id: PathId,
    /// The path that it takes.
    pub path: PathId,
    info: PathInfo,
    multipath: bool,
    joins: bool,
    segment: u32,
    detection: LossDetection,
    state: State,
    syn_due: bool,
    syn_at: Instant,
    syn_repeated: bool,
    board: Scoreboard,
    receiver: Receiver,
    rtt: RttEstimator,
    control: Box<dyn Congestion>,
    /// The control's answers since its last event: window and slow start threshold in bytes.
    window: u64,
    threshold: u64,
    coupled: bool,
    governs_recovery: bool,
    backlog: VecDeque<Chunk>,
    backlog_bytes: u64,
    recovery: Recovery,
    rto_at: Instant,
    timeouts: u32,
    probe_due: bool,
    /// The first retransmission of a recovery does not wait for room (RFC 6675 §5 step 4.3).
    first_retransmission: bool,
    last_sent: Instant,
    /// Sequence numbers below this were sent when the last round-trip sample's flight began.
    flight_mark: u64,
    /// Data below this was outstanding when the window last held data back.
    limited_mark: u64,
    /// Most bytes in flight in this round trip and the last one.
    peak: [u64; 2],
    peak_mark: u64,
    /// Bytes acknowledged since the last loss, and between it and the one before.
    since_loss: u64,
    /// Bytes found lost by time since the last acknowledgement.
    lost_between: u64,
    between_losses: u64,
    pacer: Pacer,
    /// Windows are paced although the control sets no pace.
    paces_windows: bool,
    /// Bounds the window where bufferbloat is mitigated.
    ceiling: Option<Ceiling>,
    idle_restart: bool,
    /// Recoveries reduce the window by RFC 9937, and the one under way.
    proportional: bool,
    reduction: Option<Reduction>,
    undo: Undo,
    tail: TailProbe,
    probe_at: Instant,
    /// A tail loss probe must leave, whether the window has room or not.
    tail_due: bool,
    peer_ack_delay: Duration,
    totals: Totals,
}

impl Subflow {
    /// A subflow that has not been opened.
    pub fn new(
        config: &TransportConfig,
        role: Role,
        id: PathId,
        path: PathId,
        info: PathInfo,
        segment: u32,
    ) -> Self {
        let sack = config.loss_detection != LossDetection::NewReno;
        let basics = PathBasics::of(config, role, id, segment, sack);
        let control = config.congestion.build(&basics);
        let mut pacer = Pacer::default();
        pacer.set_rate(control.pacing_rate());
        Self {
            id,
            path,
            info,
            multipath: config.is_multipath(),
            joins: false,
            segment,
            detection: config.loss_detection,
            state: State::Closed,
            syn_due: false,
            syn_at: Instant::ZERO,
            syn_repeated: false,
            board: Scoreboard::new(u64::from(segment), config.loss_detection),
            receiver: Receiver::new(config.ack_every, config.ack_delay),
            rtt: RttEstimator::new(config.rto_rule, config.rto_min, RTO_MAX),
            window: control.window().get(),
            threshold: control.slow_start_threshold().get(),
            coupled: control.is_coupled(),
            governs_recovery: control.governs_recovery(),
            control,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            recovery: Recovery::Open,
            rto_at: Instant::FAR_FUTURE,
            timeouts: 0,
            probe_due: false,
            first_retransmission: false,
            last_sent: Instant::ZERO,
            flight_mark: 0,
            limited_mark: 0,
            peak: [0; 2],
            peak_mark: 0,
            since_loss: 0,
            lost_between: 0,
            between_losses: 0,
            pacer,
            paces_windows: config.pacing,
            ceiling: config.bufferbloat_mitigation.then(|| Ceiling::new(u64::from(segment))),
            idle_restart: config.idle_restart,
            proportional: config.proportional_reduction,
            reduction: None,
            undo: Undo::new(config.undo),
            tail: TailProbe::default(),
            probe_at: Instant::FAR_FUTURE,
            tail_due: false,
            peer_ack_delay: config.ack_delay,
            totals: Totals::default(),
        }
    }

    /// Sends a SYN. `joins` an existing connection, or opens a new one.
    pub fn open(&mut self, joins: bool) {
        if self.state == State::Closed {
            self.joins = joins;
            self.state = State::SynSent;
            self.syn_due = true;
        }
    }

    /// Nothing has been tried yet.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Gives the subflow up for good: its address is gone. What it carried is up to the connection.
    pub fn remove(&mut self) {
        self.state = State::Removed;
        self.syn_due = false;
        self.tail_due = false;
        self.rto_at = Instant::FAR_FUTURE;
        self.probe_at = Instant::FAR_FUTURE;
        self.pacer.release();
    }

    /// Its address is gone.
    pub fn is_removed(&self) -> bool {
        self.state == State::Removed
    }

    /// Congestion window in bytes, as reduced in a recovery.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Data may flow.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Established and making progress.
    pub fn is_usable(&self) -> bool {
        self.is_established() && self.timeouts == 0
    }

    /// `bytes` more may leave at once.
    pub fn has_room(&self, bytes: u32) -> bool {
        let ahead = self.board.in_flight() + self.board.lost() + self.backlog_bytes;
        ahead == 0
            || (self.tail_due && self.backlog.is_empty())
            || (ahead + u64::from(bytes) <= self.window && !self.pace_is_full())
    }

    /// As much waits for its turn in the pace as may.
    fn pace_is_full(&self) -> bool {
        self.pacer.quantum(self.segment).is_some_and(|quantum| self.backlog_bytes >= quantum)
    }

    /// Nothing is outstanding or waiting.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty() && self.backlog.is_empty()
    }

    /// Bytes held beyond a hole in the subflow's own sequence space.
    pub fn held(&self) -> u64 {
        self.receiver.held()
    }

    /// Totals since the start.
    pub fn totals(&self) -> Totals {
        Totals { lost: self.board.losses(), ..self.totals }
    }

    /// Congestion window, slow start threshold, and the pacing rate where there is one.
    pub fn control(&self) -> &dyn Congestion {
        &*self.control
    }

    /// The round-trip time estimator.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.board.in_flight()
    }

    /// Puts a chunk in line to be sent.
    pub fn assign(&mut self, chunk: Chunk) {
        self.backlog_bytes += u64::from(chunk.len);
        self.backlog.push_back(chunk);
    }

    /// Takes back what has been put in line and not sent.
    pub fn take_backlog(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.backlog_bytes = 0;
        self.backlog.drain(..)
    }

    /// The smoothed round-trip time; the longest time before the first sample.
    pub fn srtt_or_max(&self) -> Duration {
        self.rtt.srtt().unwrap_or(Duration::MAX)
    }

    /// The connection takes half of the window away because the subflow holds up the others. Not while
    /// it repairs a loss.
    pub fn penalise(&mut self) {
        if self.recovery == Recovery::Open {
            self.control.on_penalty();
            self.ask_control();
        }
    }

    /// Asks for an acknowledgement to be sent.
    pub fn acknowledge_now(&mut self) {
        self.receiver.acknowledge_now();
    }

    /// Chunks that are sent and not cumulatively acknowledged, oldest first.
    pub fn outstanding(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.board.outstanding()
    }

    /// The chunk that begins at `dsn` is outstanding here or in line.
    pub fn holds(&self, dsn: u64) -> bool {
        self.outstanding().chain(self.backlog.iter().copied()).any(|chunk| chunk.dsn == dsn)
    }

    /// The application has more to send than the window lets out.
    pub fn note_limited(&mut self) {
        self.limited_mark = self.board.next();
    }

    /// Sends a segment that makes the peer answer with its window.
    pub fn probe(&mut self) {
        self.probe_due = true;
    }

    /// Takes a segment from the peer. Chunks that are in order go to `hand_over`.
    pub fn receive(
        &mut self,
        now: Instant,
        segment: &Segment,
        tcp: &Tcp,
        siblings: Siblings<'_>,
        hand_over: &mut impl FnMut(Chunk, Instant),
    ) -> Option<Event> {
        let mut event = None;
        if tcp.flags.has(Flags::SYN) {
            event = self.receive_syn(now, tcp);
        } else {
            match self.state {
                State::SynReceived => {
                    self.state = State::Established;
                    event = Some(Event::Established);
                    self.time_handshake(now);
                    self.syn_at = Instant::FAR_FUTURE;
                    self.rto_at = Instant::FAR_FUTURE;
                }
                State::AwaitingFourthAck => {
                    self.state = State::Established;
                    self.rtt.end_back_off();
                    self.rto_at = Instant::FAR_FUTURE;
                    event = Some(Event::Established);
                }
                State::Closed | State::SynSent | State::Established => {}
                State::Removed => return None,
            }
            if tcp.flags.has(Flags::JOIN) {
                self.receiver.acknowledge_now();
            }
            self.process_ack(now, tcp, siblings);
        }
        if tcp.len > 0 {
            let chunk = Chunk {
                dsn: tcp.dsn,
                len: tcp.len,
                first_message: segment.first_message,
                messages: segment.messages,
                stream: segment.stream,
                tail: segment.tail,
                carried_by: crate::PathSet::only(self.id),
            };
            self.receiver.receive(now, tcp.seq, chunk, segment.sent_at, hand_over);
        } else if tcp.seq < self.receiver.next() {
            self.receiver.acknowledge_now();
        }
        if event == Some(Event::Established) {
            self.control.on_established(now, self.rtt.srtt());
            self.ask_control();
        }
        event
    }

    /// The handshake gives the first sample, unless it had to be repeated.
    fn time_handshake(&mut self, now: Instant) {
        if self.syn_repeated {
            self.rtt.fall_back();
        } else {
            self.rtt.sample(now.since(self.syn_at), true);
        }
    }

    fn receive_syn(&mut self, now: Instant, tcp: &Tcp) -> Option<Event> {
        if !tcp.flags.has(Flags::ACK) {
            if matches!(self.state, State::Closed | State::SynReceived) {
                self.joins = tcp.flags.has(Flags::JOIN);
                self.syn_repeated |= self.state == State::SynReceived;
                self.state = State::SynReceived;
                self.syn_due = true;
            }
            return None;
        }
        // A SYN/ACK that comes again means that the acknowledgement was lost.
        self.receiver.acknowledge_now();
        if self.state != State::SynSent {
            return None;
        }
        self.time_handshake(now);
        self.rtt.end_back_off();
        self.syn_at = Instant::FAR_FUTURE;
        self.rto_at = Instant::FAR_FUTURE;
        self.syn_due = false;
        if self.joins {
            self.state = State::AwaitingFourthAck;
            self.rto_at = now + self.rtt.timeout();
            return None;
        }
        self.state = State::Established;
        Some(Event::Established)
    }

    /// There is something that [`poll_send`](Self::poll_send) might send.
    pub fn may_send(&self) -> bool {
        self.syn_due
            || (self.state == State::Established
                && (self.board.lost() > 0 || !self.backlog.is_empty() || self.probe_due))
    }

    /// There is something that [`poll_ack`](Self::poll_ack) will send.
    pub fn owes_ack(&self) -> bool {
        self.receiver.must_acknowledge()
            && matches!(self.state, State::Established | State::AwaitingFourthAck)
    }

    /// What leaves next, if something may leave now; it must be [sent](Self::send). Acknowledgements
    /// that stand alone come last, through [`poll_ack`](Self::poll_ack), so that they can ride on data.
    pub fn poll_send(&mut self, now: Instant, stamp: &Stamp) -> Option<Due> {
        if self.syn_due {
            return Some(Due::Syn);
        }
        if self.state != State::Established {
            return None;
        }
        let waiting = self.board.lost() > 0 || !self.backlog.is_empty();
        if self.tail_due {
            self.pacer.release();
        } else if self.pacer.holds_back(now, waiting) {
            return None;
        }
        if self.board.lost() > 0
            && let Some((seq, chunk)) = self.board.next_lost()
            && (self.first_retransmission
                || self.board.in_flight() == 0
                || self.board.in_flight() + u64::from(chunk.len) <= self.window)
        {
            self.first_retransmission = false;
            self.board.retransmit(now);
            self.totals.retransmitted += 1;
            self.note_sent(chunk.len);
            if seq == self.board.una() {
                self.restart_timer(now);
            }
            return Some(Due::Data(seq, chunk));
        }
        while let Some(chunk) = self.backlog.front().copied() {
            if chunk.end() <= stamp.data_una {
                self.backlog.pop_front();
                self.backlog_bytes -= u64::from(chunk.len);
                continue;
            }
            let ahead = self.board.in_flight() + self.board.lost();
            if ahead > 0 && ahead + u64::from(chunk.len) > self.window && !self.tail_due {
                self.note_limited();
                return None;
            }
            self.backlog.pop_front();
            self.backlog_bytes -= u64::from(chunk.len);
            if self.board.is_empty() && self.board.is_app_limited() {
                self.control.on_restart(now);
                self.ask_control();
            }
            let idle = self.idle_restart && self.board.is_empty();
            if idle && now.since(self.last_sent) > self.rtt.timeout() {
                self.control.on_idle(now);
                self.ask_control();
            }
            let seq = self.board.send(now, chunk);
            self.peak[0] = self.peak[0].max(self.board.in_flight());
            if self.rto_at == Instant::FAR_FUTURE {
                self.restart_timer(now);
            }
            self.note_sent(chunk.len);
            if self.tail_due {
                self.tail_due = false;
                self.tail.sent(self.board.next(), false);
            } else {
                self.arm_tail_probe(now);
            }
            return Some(Due::Data(seq, chunk));
        }
        core::mem::take(&mut self.probe_due).then_some(Due::Probe)
    }

    fn note_sent(&mut self, bytes: u32) {
        if let Some(reduction) = &mut self.reduction {
            reduction.sent(u64::from(bytes));
        }
    }

    /// A tail loss probe that repeats the newest segment, if one is due and there is nothing new to send
    /// in its place.
    pub fn poll_tail_probe(&mut self, now: Instant, stamp: &Stamp) -> Option<Segment> {
        if !core::mem::take(&mut self.tail_due) {
            return None;
        }
        let (seq, chunk) = self.board.probe(now)?;
        self.totals.retransmitted += 1;
        self.tail.sent(self.board.next(), true);
        Some(self.data_segment(now, stamp, seq, chunk))
    }

    /// [`poll_tail_probe`](Self::poll_tail_probe) may have something.
    pub const fn owes_tail_probe(&self) -> bool {
        self.tail_due
    }

    /// An acknowledgement that stands alone, if one is due.
    pub fn poll_ack(&mut self, now: Instant, stamp: &Stamp) -> Option<Segment> {
        self.owes_ack().then(|| self.ack_segment(now, stamp))
    }
}
