//! One subflow: handshake, retransmission, congestion window and timers of a TCP connection over
//! one path.
//!
//! Source: RFC 6675 and RFC 6582 (recovery), RFC 6298 (timer). Parts of its own: `handshake`, `backlog` and
//! `window_use`; `outgoing` builds segments, `recovery` processes acknowledgements and timers.

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant};

use crate::congestion::{Congestion, Idle, IdleRestart, PathBasics, Siblings};
use crate::mptcp::buffers::Buffers;
use crate::pacing::Pacer;
use crate::rtt::RttEstimator;
use crate::segment::{Flags, Segment, Tcp};
use crate::tcp::acks::{AckRule, Acks, MAX_DELAY};
use crate::tcp::ceiling::Ceiling;
use crate::tcp::prr::Reduction;
use crate::tcp::receiver::Receiver;
use crate::tcp::receiver_rtt::ReceiverRtt;
use crate::tcp::scoreboard::{Chunk, LossDetection, Scoreboard};
use crate::tcp::spurious::Undo;
use crate::tcp::tail_probe::TailProbe;
use crate::{PathId, PathInfo, Role, TransportConfig};

mod backlog;
mod handshake;
mod outgoing;
mod recovery;
mod view;
mod window_use;

use backlog::Backlog;
use handshake::{Handshake, Step};
use window_use::{LossIntervals, WindowUse};

/// Maximum retransmission timeout (`TCP_RTO_MAX`).
const RTO_MAX: Duration = Duration::from_secs(120);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    Open,
    /// Fast recovery until this sequence number is acknowledged.
    Fast(u64),
    /// Recovery from a timeout until this sequence number is acknowledged.
    Timeout(u64),
}

/// Connection-level fields of each segment.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Next data sequence number expected from the peer.
    pub data_ack: u64,
    /// First data sequence number beyond the receive window of this end.
    pub window_end: u64,
    /// Oldest own data sequence number that the peer has not acknowledged.
    pub data_una: u64,
}

/// Totals of a subflow since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Segments marked lost; a segment counts once per loss.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Recoveries undone because they were spurious.
    pub undone: u64,
    /// Window reductions after duplicate or selective acknowledgements.
    pub fast_recoveries: u64,
}

/// Segment that a subflow must send next.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// A SYN.
    Syn,
    /// A chunk at this sequence number.
    Data(u64, Chunk),
    /// A window probe, which the peer answers with its window.
    Probe,
}

/// Event of a subflow that concerns the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The subflow is established: data may be sent.
    Established,
    /// The retransmission timer expired for the first time since the last progress.
    TimedOut,
    /// The SYN went unanswered.
    Unanswered,
}

/// One subflow.
#[derive(Debug)]
pub struct Subflow {
    /// Number within the connection, which schedulers use as the path's.
    pub id: PathId,
    /// Path of the subflow.
    pub path: PathId,
    info: PathInfo,
    multipath: bool,
    segment: u32,
    detection: LossDetection,
    handshake: Handshake,
    board: Scoreboard,
    receiver: Receiver,
    /// Measured if it tunes the receive buffer.
    receiver_rtt: Option<ReceiverRtt>,
    rtt: RttEstimator,
    control: Box<dyn Congestion>,
    /// Window and slow start threshold in bytes, as of the control's last event.
    window: u64,
    threshold: u64,
    coupled: bool,
    governs_recovery: bool,
    backlog: Backlog,
    recovery: Recovery,
    rto_at: Instant,
    timeouts: u32,
    probe_due: bool,
    /// The first retransmission of a recovery ignores the window (RFC 6675 §5 step 4.3).
    first_retransmission: bool,
    last_sent: Instant,
    /// Sequence number up to which data had been sent at the last round-trip sample that began a
    /// window.
    round_mark: u64,
    window_use: WindowUse,
    loss_intervals: LossIntervals,
    /// Bytes marked lost by a timer since the last acknowledgement.
    lost_between: u64,
    pacer: Pacer,
    /// Paces a control that sets only a window.
    paces_windows: bool,
    /// Upper bound of the window, if bufferbloat is mitigated.
    ceiling: Option<Ceiling>,
    idle_restart: IdleRestart,
    /// A window that is not used does not grow.
    validates_window: bool,
    /// True if recoveries reduce the window by RFC 9937; `reduction` is that of the current
    /// recovery.
    proportional: bool,
    reduction: Option<Reduction>,
    undo: Undo,
    tail: TailProbe,
    probe_at: Instant,
    /// A tail loss probe is due, regardless of the window.
    tail_due: bool,
    peer_ack_delay: Duration,
    totals: Totals,
}

impl Subflow {
    /// Creates a closed subflow.
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
        let acks = Acks::new(config.ack_rule, config.ack_every, config.ack_delay);
        let mut pacer = Pacer::default();
        pacer.set_rate(control.pacing_rate());
        Self {
            id,
            path,
            info,
            multipath: config.is_multipath(),
            segment,
            detection: config.loss_detection,
            handshake: Handshake::default(),
            board: Scoreboard::new(u64::from(segment), config.loss_detection),
            receiver: Receiver::new(acks),
            receiver_rtt: (config.buffers == Buffers::Auto).then(ReceiverRtt::default),
            rtt: RttEstimator::new(config.rto_rule, config.rto_min, RTO_MAX),
            window: control.window().get(),
            threshold: control.slow_start_threshold().get(),
            coupled: control.is_coupled(),
            governs_recovery: control.governs_recovery(),
            control,
            backlog: Backlog::default(),
            recovery: Recovery::Open,
            rto_at: Instant::FAR_FUTURE,
            timeouts: 0,
            probe_due: false,
            first_retransmission: false,
            last_sent: Instant::ZERO,
            round_mark: 0,
            window_use: WindowUse::default(),
            loss_intervals: LossIntervals::default(),
            lost_between: 0,
            pacer,
            paces_windows: config.pacing,
            ceiling: config.bufferbloat_mitigation.then(|| Ceiling::new(u64::from(segment))),
            idle_restart: config.idle_restart,
            validates_window: config.window_validation,
            proportional: config.proportional_reduction,
            reduction: None,
            undo: Undo::new(config.undo),
            tail: TailProbe::default(),
            probe_at: Instant::FAR_FUTURE,
            tail_due: false,
            peer_ack_delay: match config.ack_rule {
                AckRule::Fixed => config.ack_delay,
                AckRule::Linux => MAX_DELAY,
            },
            totals: Totals::default(),
        }
    }

    /// Starts the handshake. `joins` is true to join an existing connection, false to open a new
    /// one.
    pub fn open(&mut self, joins: bool) {
        self.handshake.open(joins);
    }

    /// True in the initial state.
    pub fn is_closed(&self) -> bool {
        self.handshake.is_closed()
    }

    /// Removes the subflow for good because its address was removed. The connection reinjects its
    /// data.
    pub fn remove(&mut self) {
        self.handshake.remove();
        self.tail_due = false;
        self.rto_at = Instant::FAR_FUTURE;
        self.probe_at = Instant::FAR_FUTURE;
        self.pacer.release();
    }

    /// True once the address of the subflow was removed.
    pub fn is_removed(&self) -> bool {
        self.handshake.is_removed()
    }

    /// Congestion window in bytes, including the reduction of a recovery.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// True if data may be sent.
    pub fn is_established(&self) -> bool {
        self.handshake.is_established()
    }

    /// True if established and not suspected of having failed.
    pub fn is_usable(&self) -> bool {
        self.is_established() && self.timeouts == 0
    }

    /// True if `bytes` more may be assigned.
    pub fn has_room(&self, bytes: u32) -> bool {
        let ahead = self.board.in_flight() + self.board.lost() + self.backlog.bytes();
        ahead == 0
            || (self.tail_due && self.backlog.is_empty())
            || (ahead + u64::from(bytes) <= self.window && !self.pace_is_full())
    }

    /// True if the pacer's queue is full.
    fn pace_is_full(&self) -> bool {
        self.pacer.quantum(self.segment).is_some_and(|quantum| self.backlog.bytes() >= quantum)
    }

    /// True if nothing is outstanding or queued.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty() && self.backlog.is_empty()
    }

    /// Bytes received beyond a hole in the subflow's sequence space.
    pub fn held(&self) -> u64 {
        self.receiver.held()
    }

    /// Round-trip time that the receive side has measured; none unless it tunes the receive buffer.
    pub fn receiver_rtt(&self) -> Option<Duration> {
        self.receiver_rtt.as_ref().and_then(ReceiverRtt::get)
    }

    /// Totals since the start.
    pub fn totals(&self) -> Totals {
        Totals { lost: self.board.losses(), ..self.totals }
    }

    /// Congestion control, for its window, threshold and pacing rate.
    pub fn control(&self) -> &dyn Congestion {
        &*self.control
    }

    /// Round-trip time estimator.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.board.in_flight()
    }

    /// Queues a chunk.
    pub fn assign(&mut self, chunk: Chunk) {
        self.backlog.push(chunk);
    }

    /// Takes all queued chunks back.
    pub fn take_backlog(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.backlog.take()
    }

    /// Smoothed round-trip time; the maximum duration before the first sample.
    pub fn srtt_or_max(&self) -> Duration {
        self.rtt.srtt().unwrap_or(Duration::MAX)
    }

    /// Halves the window because the subflow delays the others, unless a recovery is in progress.
    pub fn penalise(&mut self) {
        if self.recovery == Recovery::Open {
            self.control.on_penalty();
            self.read_control();
        }
    }

    /// Requests an immediate acknowledgement.
    pub fn acknowledge_now(&mut self) {
        self.receiver.acknowledge_now();
    }

    /// Returns the chunks sent but not cumulatively acknowledged, oldest first.
    pub fn outstanding(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.board.outstanding()
    }

    /// True if the chunk at `dsn` is outstanding or queued here.
    pub fn has_chunk(&self, dsn: u64) -> bool {
        self.outstanding().chain(self.backlog.chunks()).any(|chunk| chunk.dsn == dsn)
    }

    /// Records that the window holds data back.
    pub fn note_limited(&mut self) {
        self.window_use.on_limited(self.board.next());
    }

    /// Requests a window probe.
    pub fn probe(&mut self) {
        self.probe_due = true;
    }

    /// Processes a segment. Chunks in order go to `deliver`, with their times of arrival.
    pub fn receive(
        &mut self,
        now: Instant,
        segment: &Segment,
        tcp: &Tcp,
        siblings: Siblings<'_>,
        deliver: &mut impl FnMut(Chunk, Instant),
    ) -> Option<Event> {
        let mut event = None;
        if tcp.flags.has(Flags::SYN) {
            event = self.receive_syn(now, tcp);
        } else {
            if self.is_removed() {
                return None;
            }
            let step = self.handshake.on_segment();
            if step != Step::Unchanged {
                if step == Step::Accepted {
                    self.sample_handshake(now);
                } else {
                    self.rtt.end_back_off();
                }
                self.rto_at = Instant::FAR_FUTURE;
                event = Some(Event::Established);
            }
            if tcp.flags.has(Flags::JOIN) {
                self.receiver.acknowledge_now();
            }
            self.process_ack(now, tcp, siblings);
        }
        if tcp.len > 0 {
            if let Some(rtt) = &mut self.receiver_rtt {
                rtt.on_segment(now, tcp.len, tcp.echo);
            }
            let chunk = Chunk {
                dsn: tcp.dsn,
                len: tcp.len,
                first_message: segment.first_message,
                messages: segment.messages,
                stream: segment.stream,
                tail: segment.tail,
                carried_by: crate::PathSet::only(self.id),
            };
            let receiver = &mut self.receiver;
            receiver.receive(now, tcp.seq, chunk, segment.sent_at, &self.rtt, deliver);
        } else if tcp.seq < self.receiver.next() {
            self.receiver.acknowledge_now();
        } else if self.receiver_rtt.is_some() {
            // A peer that tunes its buffer measures by what its acknowledgements are echoed.
            self.receiver.on_pure_ack(tcp.seq, segment.sent_at);
        }
        if event == Some(Event::Established) {
            self.control.on_established(now, self.rtt.srtt());
            self.read_control();
        }
        event
    }

    /// Takes the round-trip time of the handshake, unless it was retransmitted.
    fn sample_handshake(&mut self, now: Instant) {
        match self.handshake.round_trip(now) {
            Some(rtt) => self.rtt.on_sample(rtt, true),
            None => self.rtt.fall_back(),
        }
    }

    fn receive_syn(&mut self, now: Instant, tcp: &Tcp) -> Option<Event> {
        let step = self.handshake.on_syn(tcp.flags);
        if tcp.flags.has(Flags::ACK) {
            // A repeated SYN/ACK means that the acknowledgement was lost.
            self.receiver.acknowledge_now();
        }
        if step == Step::Unchanged {
            return None;
        }
        self.sample_handshake(now);
        self.rtt.end_back_off();
        self.rto_at = Instant::FAR_FUTURE;
        if step == Step::Joining {
            self.rto_at = now + self.rtt.timeout();
            return None;
        }
        Some(Event::Established)
    }

    /// True if [`poll_send`](Self::poll_send) may return something.
    pub fn may_send(&self) -> bool {
        self.handshake.syn_due()
            || (self.is_established()
                && (self.board.lost() > 0 || !self.backlog.is_empty() || self.probe_due))
    }

    /// True if [`poll_ack`](Self::poll_ack) will return an acknowledgement.
    pub fn owes_ack(&self) -> bool {
        self.receiver.must_acknowledge()
            && (self.is_established() || self.handshake.awaits_fourth_ack())
    }

    /// Returns the next segment to build with [`send`](Self::send), if one may be sent now. Pure
    /// acknowledgements come last, through [`poll_ack`](Self::poll_ack), so that data can carry
    /// them.
    pub fn poll_send(&mut self, now: Instant, stamp: &Stamp) -> Option<Due> {
        if self.handshake.syn_due() {
            return Some(Due::Syn);
        }
        if !self.is_established() {
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
            self.board.on_retransmitted(now);
            self.totals.retransmitted += 1;
            self.on_data_sent(chunk.len);
            if seq == self.board.una() {
                self.restart_timer(now);
            }
            return Some(Due::Data(seq, chunk));
        }
        if let Some(chunk) = self.backlog.front_after(stamp.data_una) {
            let ahead = self.board.in_flight() + self.board.lost();
            if ahead > 0 && ahead + u64::from(chunk.len) > self.window && !self.tail_due {
                self.note_limited();
                return None;
            }
            self.backlog.pop();
            if self.board.is_empty() && self.board.is_app_limited() {
                self.control.on_restart(now);
                self.read_control();
            }
            if self.board.is_empty() && self.idle_restart != IdleRestart::Off {
                self.restart_after_idle(now);
            }
            let seq = self.board.on_sent(now, chunk);
            self.window_use.on_sent(self.board.in_flight());
            if self.rto_at == Instant::FAR_FUTURE {
                self.restart_timer(now);
            }
            self.on_data_sent(chunk.len);
            if self.tail_due {
                self.tail_due = false;
                self.tail.on_sent(self.board.next(), false);
            } else {
                self.arm_tail_probe(now);
            }
            return Some(Due::Data(seq, chunk));
        }
        core::mem::take(&mut self.probe_due).then_some(Due::Probe)
    }

    fn restart_after_idle(&mut self, now: Instant) {
        let (span, timeout) = (now.since(self.last_sent), self.rtt.timeout());
        if span > timeout {
            self.control.on_idle(&Idle { now, span, timeout, rule: self.idle_restart });
            self.read_control();
        }
    }

    fn on_data_sent(&mut self, bytes: u32) {
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent(u64::from(bytes));
        }
    }

    /// Returns a tail loss probe that repeats the newest segment, if one is due and no new data was
    /// sent in its place.
    pub fn poll_tail_probe(&mut self, now: Instant, stamp: &Stamp) -> Option<Segment> {
        if !core::mem::take(&mut self.tail_due) {
            return None;
        }
        let (seq, chunk) = self.board.resend_newest(now)?;
        self.totals.retransmitted += 1;
        self.tail.on_sent(self.board.next(), true);
        Some(self.data_segment(now, stamp, seq, chunk))
    }

    /// True if [`poll_tail_probe`](Self::poll_tail_probe) may return a segment.
    pub const fn owes_tail_probe(&self) -> bool {
        self.tail_due
    }

    /// Returns a pure acknowledgement, if one is due.
    pub fn poll_ack(&mut self, now: Instant, stamp: &Stamp) -> Option<Segment> {
        self.owes_ack().then(|| self.ack_segment(now, stamp))
    }
}
