//! One subflow: a TCP connection over one path. In the order in which the files explain it:
//!
//! 1. `handshake`: SYN, SYN/ACK and, for a joining subflow, two more acknowledgements;
//! 2. `backlog`: chunks that were assigned but not sent; `headers`: the segments that carry them;
//! 3. `window_use`: whether the window holds data back; `recovery`: what follows a loss;
//! 4. `acknowledgement`: what acknowledgements and timers change in all of these; `view`: what schedulers and sibling
//!    controls see.
//!
//! Each part owns its fields; the subflow alone sees several parts at once.

use skybraid_units::{Bytes, Duration, Instant};

use crate::config::FlightSize;
use crate::congestion::ceiling::Ceiling;
use crate::congestion::{CongestionWindow, PathBasics, Siblings};
use crate::mptcp::buffers::Buffers;
use crate::pacing::{Pacer, QUANTUM};
use crate::rtt::RttEstimator;
use crate::segment::{Flags, Segment, Tcp};
use crate::tcp::acks::{AckRule, Acks, MAX_DELAY};
use crate::tcp::receiver::Receiver;
use crate::tcp::scoreboard::{Chunk, LossDetection, Scoreboard};
use crate::tcp::tail_probe::TailProbe;
use crate::timer::RetransmissionTimer;
use crate::{PathId, PathInfo, Role, SubflowId, TransportConfig};

mod acknowledgement;
mod backlog;
mod handshake;
mod headers;
mod recovery;
mod view;
mod window_use;

use backlog::Backlog;
use handshake::{Handshake, Step};
use headers::Headers;
use recovery::Recovery;
use window_use::WindowUse;

/// Maximum retransmission timeout (`TCP_RTO_MAX`).
const RTO_MAX: Duration = Duration::from_secs(120);

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
    id: SubflowId,
    path: PathId,
    info: PathInfo,
    /// Maximum payload of a segment in bytes.
    segment: u32,
    /// Maximum bytes sent beyond what is acknowledged in order, whatever the window.
    max_in_flight: u64,
    flight_size: FlightSize,
    /// True if the retransmission of the first outstanding segment starts the timer again.
    retransmission_restarts_timer: bool,
    handshake: Handshake,
    receiver: Receiver,
    headers: Headers,
    backlog: Backlog,
    /// A window probe is due.
    probe_due: bool,
    board: Scoreboard,
    /// Bytes marked lost by a timer since the last acknowledgement.
    lost_between: u64,
    timer: RetransmissionTimer,
    tail: TailProbe,
    window: CongestionWindow,
    window_use: WindowUse,
    recovery: Recovery,
    /// True if recoveries reduce the window by RFC 9937.
    proportional: bool,
    totals: Totals,
}

impl Subflow {
    /// Creates a closed subflow over `path`, whose segments carry at most `segment` bytes.
    pub fn new(
        config: &TransportConfig,
        role: Role,
        id: SubflowId,
        (path, info): (PathId, PathInfo),
        segment: u32,
    ) -> Self {
        let detection = config.loss_detection;
        let sack = detection != LossDetection::NewReno;
        let control = config.congestion.build(&PathBasics::of(config, role, id, segment, sack));
        let window =
            CongestionWindow::new(control, Pacer::of_windows(config.pacing), config.idle_restart);
        let ceiling = config.bufferbloat_mitigation.then(|| Ceiling::new(u64::from(segment)));
        let mut acks = Acks::new(config.ack_rule, config.ack_every, config.ack_delay);
        if config.buffers == Buffers::Fixed {
            acks.set_room(config.receive_buffer.get());
        }
        let peer_ack_delay = match config.ack_rule {
            AckRule::Fixed => config.ack_delay,
            AckRule::Linux => MAX_DELAY,
        };
        let rtt = RttEstimator::new(config.rto_rule, config.rto_min, RTO_MAX);
        Self {
            id,
            path,
            info,
            segment,
            max_in_flight: config.max_in_flight.map_or(u64::MAX, Bytes::get),
            flight_size: config.flight_size,
            retransmission_restarts_timer: config.retransmission_restarts_timer,
            handshake: Handshake::default(),
            receiver: Receiver::new(acks, config.buffers == Buffers::Auto),
            headers: Headers::new(id, config.is_multipath(), sack, info.mtu),
            backlog: Backlog::default(),
            probe_due: false,
            board: Scoreboard::new(u64::from(segment), detection, window.reads_rates()),
            lost_between: 0,
            timer: RetransmissionTimer::new(rtt),
            tail: TailProbe::new(detection == LossDetection::Rack, peer_ack_delay),
            window: window.below(ceiling),
            window_use: WindowUse::new(config.window_validation),
            recovery: Recovery::new(config.undo),
            proportional: config.proportional_reduction,
            totals: Totals::default(),
        }
    }

    /// Maximum payload of a segment on a path with this MTU.
    pub fn segment_for(mtu: Bytes, multipath: bool) -> u32 {
        Headers::max_payload(mtu, multipath)
    }

    /// Number of the subflow.
    #[inline]
    pub const fn id(&self) -> SubflowId {
        self.id
    }

    /// Path of the subflow.
    #[inline]
    pub const fn path(&self) -> PathId {
        self.path
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
    #[cold]
    pub fn remove(&mut self) {
        self.handshake.remove();
        self.tail.cancel();
        self.timer.stop();
        self.window.pacer_mut().release();
    }

    /// True once the address of the subflow was removed.
    pub fn is_removed(&self) -> bool {
        self.handshake.is_removed()
    }

    /// Congestion window in bytes, including the reduction of a recovery.
    pub const fn window(&self) -> u64 {
        self.window.bytes()
    }

    /// True if data may be sent.
    pub fn is_established(&self) -> bool {
        self.handshake.is_established()
    }

    /// True if established and not suspected of having failed.
    pub fn is_usable(&self) -> bool {
        self.is_established() && !self.timer.has_expired()
    }

    /// True if `bytes` more may be assigned.
    pub fn has_room(&self, bytes: u32) -> bool {
        let ahead = self.board.in_flight() + self.board.lost() + self.backlog.bytes();
        ahead == 0
            || (self.tail.is_due() && self.backlog.is_empty())
            || (ahead + u64::from(bytes) <= self.window.bytes()
                && self.fits_peer(bytes)
                && !self.pace_is_full())
    }

    /// True if the peer's unscaled receive window takes `bytes` more.
    fn fits_peer(&self, bytes: u32) -> bool {
        let outstanding = self.board.next() - self.board.una() + self.backlog.bytes();
        outstanding + u64::from(bytes) <= self.max_in_flight
    }

    /// True if the pacer's queue is full.
    fn pace_is_full(&self) -> bool {
        let quantum = self.window.pacer().quantum(QUANTUM, self.segment);
        quantum.is_some_and(|quantum| self.backlog.bytes() >= quantum)
    }

    /// True if no segment waits, or will wait, for its time to be sent.
    #[inline]
    pub const fn is_unpaced(&self) -> bool {
        self.window.pacer().is_off()
    }

    /// True if nothing is outstanding or queued.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty() && self.backlog.is_empty()
    }

    /// Bytes received beyond a hole in the subflow's sequence space.
    #[inline]
    pub fn held(&self) -> u64 {
        self.receiver.held()
    }

    /// Round-trip time that the receive side has measured; none unless it tunes the receive buffer.
    pub fn receiver_rtt(&self) -> Option<Duration> {
        self.receiver.rtt()
    }

    /// Sets the size of the receive buffer in bytes.
    pub const fn set_receive_buffer(&mut self, bytes: u64) {
        self.receiver.set_buffer(bytes);
    }

    /// Retransmission timeout.
    pub fn timeout(&self) -> Duration {
        self.timer.rtt().timeout()
    }

    /// Queues a chunk.
    pub fn assign(&mut self, chunk: Chunk) {
        self.backlog.push(chunk);
    }

    /// True if [`send_chunk`](Self::send_chunk) may send `len` bytes: a chunk queued now would be sent next.
    #[inline]
    pub fn sends_at_once(&self, len: u32) -> bool {
        let ahead = self.board.in_flight();
        self.is_established()
            && !self.handshake.syn_due()
            && self.board.lost() == 0
            && self.backlog.is_empty()
            && self.window.pacer().is_off()
            && (ahead == 0 || ahead + u64::from(len) <= self.window.bytes() || self.tail.is_due())
    }

    /// Sends a chunk that has not been queued.
    #[inline]
    pub fn send_chunk(&mut self, now: Instant, stamp: &Stamp, chunk: &Chunk) -> Segment {
        let seq = self.send_new(now, chunk);
        self.send_data(now, stamp, (seq, chunk))
    }

    /// Takes all queued chunks back.
    pub fn take_backlog(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.backlog.take()
    }

    /// Smoothed round-trip time; the maximum duration before the first sample.
    pub fn srtt_or_max(&self) -> Duration {
        self.timer.srtt().unwrap_or(Duration::MAX)
    }

    /// Halves the window because the subflow delays the others, unless a recovery is in progress.
    pub fn penalise(&mut self) {
        if self.recovery.is_open() {
            self.window.on_penalty(self.timer.srtt());
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
                    self.timer.on_handshake(self.handshake.round_trip(now));
                } else {
                    self.timer.end_back_off();
                }
                self.timer.stop();
                event = Some(Event::Established);
            }
            if tcp.flags.has(Flags::JOIN) {
                self.receiver.acknowledge_now();
            }
            if !self.board.is_empty() && tcp.flags.has(Flags::ACK) {
                self.process_ack(now, tcp, siblings);
            }
        }
        self.receiver.receive(now, segment, tcp, self.timer.rtt(), deliver);
        if event == Some(Event::Established) {
            self.window.on_established(now, self.timer.srtt());
        }
        event
    }

    #[cold]
    fn receive_syn(&mut self, now: Instant, tcp: &Tcp) -> Option<Event> {
        let step = self.handshake.on_syn(tcp.flags);
        if tcp.flags.has(Flags::ACK) {
            // A repeated SYN/ACK means that the acknowledgement was lost.
            self.receiver.acknowledge_now();
        }
        if step == Step::Unchanged {
            return None;
        }
        self.timer.on_handshake(self.handshake.round_trip(now));
        self.timer.end_back_off();
        if step == Step::Joining {
            self.timer.start(now);
            return None;
        }
        self.timer.stop();
        Some(Event::Established)
    }

    /// True if [`poll_send`](Self::poll_send) may return something.
    pub fn may_send(&self) -> bool {
        self.handshake.syn_due()
            || (self.is_established()
                && (self.board.lost() > 0 || !self.backlog.is_empty() || self.probe_due))
    }

    /// True if there is nothing to send but perhaps an acknowledgement: no data, probe or SYN.
    #[inline]
    pub fn sends_acks_only(&self) -> bool {
        self.backlog.is_empty()
            && self.board.lost() == 0
            && !self.tail.is_due()
            && !self.probe_due
            && !self.handshake.syn_due()
    }

    /// True if a pure acknowledgement is due and may be sent.
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.receiver.must_acknowledge()
            && (self.is_established() || self.handshake.awaits_fourth_ack())
    }

    /// Returns the next segment to build with [`send`](Self::send), if one may be sent now. Pure
    /// acknowledgements come last, through [`send_ack`](Self::send_ack), so that data can carry
    /// them.
    pub fn poll_send(&mut self, now: Instant, stamp: &Stamp) -> Option<Due> {
        if self.handshake.syn_due() {
            return Some(Due::Syn);
        }
        if !self.is_established() {
            return None;
        }
        let waiting = self.board.lost() > 0 || !self.backlog.is_empty();
        if self.tail.is_due() {
            self.window.pacer_mut().release();
        } else if self.window.pacer_mut().holds_back(now, waiting) {
            return None;
        }
        if self.board.lost() > 0
            && let Some((seq, chunk)) = self.board.next_lost()
            && (self.recovery.ignores_window()
                || self.board.in_flight() == 0
                || self.board.in_flight() + u64::from(chunk.len) <= self.window.bytes())
        {
            self.recovery.on_retransmitted();
            self.board.on_retransmitted(now);
            self.totals.retransmitted += 1;
            self.recovery.on_sent(chunk.len);
            let restarts = self.retransmission_restarts_timer || self.timer.is_stopped();
            if seq == self.board.una() && restarts {
                self.restart_timer(now);
            }
            return Some(Due::Data(seq, chunk));
        }
        if let Some(chunk) = self.backlog.front_after(stamp.data_una) {
            let ahead = self.board.in_flight() + self.board.lost();
            let fits = ahead == 0 || ahead + u64::from(chunk.len) <= self.window.bytes();
            if !fits && !self.tail.is_due() {
                self.note_limited();
                return None;
            }
            self.backlog.pop();
            return Some(Due::Data(self.send_new(now, &chunk), chunk));
        }
        core::mem::take(&mut self.probe_due).then_some(Due::Probe)
    }

    /// Records the transmission of new data. Returns its sequence number.
    fn send_new(&mut self, now: Instant, chunk: &Chunk) -> u64 {
        if self.board.is_empty() {
            let (app_limited, rtt) = (self.board.is_app_limited(), self.timer.rtt());
            self.window.on_restart(now, app_limited, rtt.timeout(), rtt.srtt());
        }
        let seq = self.board.on_sent(now, *chunk);
        self.window_use.on_sent(self.board.in_flight());
        let flight = (self.board.in_flight(), u64::from(self.segment));
        self.window.on_used(now, flight, !self.recovery.is_open(), self.timer.rtt());
        if self.timer.is_stopped() {
            self.restart_timer(now);
        }
        self.recovery.on_sent(chunk.len);
        if self.tail.is_due() {
            self.tail.on_sent(self.board.next(), false);
        } else {
            self.arm_tail_probe(now);
        }
        seq
    }

    /// Builds the segment that [`poll_send`](Self::poll_send) returned.
    pub fn send(&mut self, now: Instant, stamp: &Stamp, due: &Due) -> Segment {
        match *due {
            Due::Syn => {
                self.timer.start(now);
                let flags = self.handshake.on_syn_sent(now);
                self.headers.syn(now, stamp, flags, &mut self.receiver)
            }
            Due::Data(seq, ref chunk) => self.send_data(now, stamp, (seq, chunk)),
            Due::Probe => {
                let seq = self.board.next().saturating_sub(1);
                self.headers.ack(now, stamp, seq, &mut self.receiver)
            }
        }
    }

    fn send_data(&mut self, now: Instant, stamp: &Stamp, data: (u64, &Chunk)) -> Segment {
        self.window.on_sent(now, data.1.len);
        self.receiver.on_data_sent(now);
        self.headers.data(now, stamp, data, &mut self.receiver)
    }

    /// Returns a tail loss probe that repeats the newest segment, if one is due and no new data was
    /// sent in its place.
    #[cold]
    pub fn poll_tail_probe(&mut self, now: Instant, stamp: &Stamp) -> Option<Segment> {
        if !self.tail.take_due() {
            return None;
        }
        let (seq, chunk) = self.board.resend_newest(now)?;
        self.totals.retransmitted += 1;
        self.tail.on_sent(self.board.next(), true);
        Some(self.send_data(now, stamp, (seq, &chunk)))
    }

    /// True if [`poll_tail_probe`](Self::poll_tail_probe) may return a segment.
    pub const fn owes_tail_probe(&self) -> bool {
        self.tail.is_due()
    }

    /// Builds the pure acknowledgement that the subflow [owes](Self::owes_ack).
    #[inline]
    pub fn send_ack(&mut self, now: Instant, stamp: &Stamp) -> Segment {
        let (seq, receiver) = (self.board.next(), &mut self.receiver);
        if self.handshake.awaits_fourth_ack() {
            self.headers.third_ack(now, stamp, seq, receiver)
        } else {
            self.headers.ack(now, stamp, seq, receiver)
        }
    }

    /// Builds an acknowledgement that carries a connection-level signal.
    #[cold]
    pub fn signal_segment(&self, now: Instant, stamp: &Stamp, flags: Flags) -> Segment {
        self.headers.signal(now, stamp, (self.board.next(), flags), &self.receiver)
    }

    /// Marks the delivery rate as application-limited if the subflow has nothing to send although
    /// the window has room, until the data in flight has been delivered (draft-ietf-ccwg-bbr-06
    /// §4.1.2.4, `CheckIfApplicationLimited`). Only a control that reads rates needs the mark.
    #[inline]
    pub fn note_starved(&mut self) {
        if !self.window.reads_rates() {
            return;
        }
        let waiting = !self.backlog.is_empty() || self.board.lost() > 0;
        if !waiting && self.board.in_flight() + u64::from(self.segment) <= self.window.bytes() {
            self.board.note_app_limited();
        }
    }
}
