//! Processing of acknowledgements and timers: round-trip times, losses, recovery, and the events of
//! congestion control.
//!
//! Source: RFC 6582 and RFC 6675 (recovery), RFC 8985 (RACK-TLP), RFC 9937 (the window in
//! recovery), RFC 6298 (the timer).

use skybraid_units::{Bytes, Duration, Instant, Rate};

use super::handshake::Repeat;
use super::{Event, Recovery, Subflow};
use crate::congestion::{Acked, ControlState, Lost, Siblings};
use crate::segment::{Flags, Tcp};
use crate::tcp::prr::Reduction;
use crate::tcp::scoreboard::{Acknowledgement, LossDetection, Progress};
use crate::tcp::tail_probe::{TailProbe, Verdict};

impl Subflow {
    pub(super) fn process_ack(&mut self, now: Instant, tcp: &Tcp, siblings: Siblings<'_>) {
        if self.board.is_empty() || !tcp.flags.has(Flags::ACK) {
            return;
        }
        let lost = self.loss(now);
        let in_flight = self.board.in_flight();
        let undelivered = in_flight + self.board.lost();
        let limited = self.window_use.is_limited(tcp.ack, self.window, self.threshold);
        let may_be_duplicate = tcp.flags == Flags::ACK;
        let empty = tcp.len == 0 && tcp.sacks.is_empty();
        let bare = may_be_duplicate && empty && tcp.ack == self.board.una();
        let progress = if tcp.len == 0 || tcp.ack > self.board.una() || !tcp.sacks.is_empty() {
            self.board.acknowledge(&Acknowledgement {
                now,
                ack: tcp.ack,
                sacks: &tcp.sacks,
                echo: tcp.echo,
                may_be_duplicate,
                recovering: self.is_recovering(),
                srtt: self.srtt(),
            })
        } else {
            Progress::default()
        };
        self.totals.acked_bytes += progress.delivered;
        self.loss_intervals.on_acked(progress.delivered);
        self.take_sample(&progress);
        self.window_use.on_acked(self.board.una(), in_flight, self.board.next());
        let acked = Acked {
            now,
            bytes: Bytes::new(progress.delivered),
            delivered: Bytes::new(self.board.delivered()),
            srtt: self.srtt(),
            rtt: progress.rtt,
            latest_rtt: progress.latest_rtt,
            in_flight: Bytes::new(in_flight),
            in_flight_after: Bytes::new(self.board.in_flight()),
            lost: Bytes::new(progress.lost + core::mem::take(&mut self.lost_between)),
            window_limited: (limited || !self.validates_window) && !self.is_capped(),
            recovering: self.is_recovering(),
            rate: progress.rate,
        };
        let news = progress.delivered > 0 || progress.lost > 0;
        if news {
            self.control.on_delivery(&acked, siblings);
        }
        if progress.advanced > 0 {
            self.timeouts = 0;
            self.rtt.end_back_off();
        }
        if progress.advanced > 0
            && let Some(before) = self.undo.on_advanced(progress.original_arrived)
            && self.is_recovering()
        {
            self.undo_reaction(now, &before);
        }
        self.leave_recovery(now, &progress);
        let duplicate = tcp.sacks.duplicate(tcp.ack).map(|(_, end)| end);
        if self.tail.on_ack(tcp.ack, duplicate, bare) == Verdict::RepairedLoss
            && self.recovery == Recovery::Open
        {
            self.loss_intervals.on_loss();
            self.control.on_loss(&lost, siblings);
            self.control.on_recovered(now);
        }
        if progress.found_loss && self.recovery == Recovery::Open {
            self.enter_recovery(&lost, undelivered, siblings);
        } else if progress.delivered > 0 && !matches!(self.recovery, Recovery::Fast(_)) {
            self.control.on_ack(&acked, siblings);
        }
        if news {
            self.read_control();
        }
        if let (Recovery::Fast(_), Some(reduction)) = (self.recovery, &mut self.reduction) {
            let safe = progress.advanced > 0 && !progress.found_loss;
            let in_flight = self.board.in_flight();
            let window = reduction.on_ack(progress.delivered, in_flight, safe);
            self.window = window.max(u64::from(self.segment));
        }
        if progress.advanced > 0 {
            self.restart_timer(now);
            self.arm_tail_probe(now);
        }
    }

    fn take_sample(&mut self, progress: &Progress) {
        let Some(rtt) = progress.rtt else { return };
        self.tail.on_rtt_sample();
        let new_round = self.board.una() >= self.round_mark;
        if new_round {
            self.round_mark = self.board.next();
        }
        self.rtt.on_sample(rtt, new_round);
        if let (Some(ceiling), Some(srtt), Some(min_rtt)) =
            (&mut self.ceiling, self.rtt.srtt(), self.rtt.min_rtt())
        {
            ceiling.on_rtt_sample(new_round, self.window, srtt, min_rtt);
        }
    }

    fn leave_recovery(&mut self, now: Instant, progress: &Progress) {
        match self.recovery {
            Recovery::Fast(point) | Recovery::Timeout(point) if self.board.una() >= point => {
                self.recovery = Recovery::Open;
                self.reduction = None;
                self.board.on_recovered();
                self.control.on_recovered(now);
            }
            Recovery::Fast(_)
                if progress.advanced > 0 && self.detection == LossDetection::NewReno =>
            {
                self.board.mark_first_lost();
            }
            _ => {}
        }
    }

    fn enter_recovery(&mut self, lost: &Lost, undelivered: u64, siblings: Siblings<'_>) {
        self.recovery = Recovery::Fast(self.board.next());
        self.totals.fast_recoveries += 1;
        self.first_retransmission = true;
        self.tail.abandon();
        self.probe_at = Instant::FAR_FUTURE;
        self.loss_intervals.on_loss();
        self.undo.on_recovery_started(self.before());
        self.control.on_loss(lost, siblings);
        if self.proportional && !self.governs_recovery {
            let target = self.control.window().get();
            let segment = u64::from(self.segment);
            self.reduction = Some(Reduction::new(segment, undelivered, target));
        }
    }

    fn before(&self) -> ControlState {
        ControlState {
            window: self.control.window(),
            threshold: self.control.slow_start_threshold(),
        }
    }

    /// Ends a spurious recovery as if it had not begun.
    fn undo_reaction(&mut self, now: Instant, before: &ControlState) {
        self.board.undo_losses();
        self.recovery = Recovery::Open;
        self.reduction = None;
        self.totals.undone += 1;
        self.control.on_spurious(before);
        self.control.on_recovered(now);
    }

    /// True if the ceiling limits the window, not the network.
    fn is_capped(&self) -> bool {
        self.ceiling.as_ref().is_some_and(|ceiling| ceiling.bytes() <= self.window)
    }

    const fn is_recovering(&self) -> bool {
        !matches!(self.recovery, Recovery::Open)
    }

    pub(super) fn srtt(&self) -> Duration {
        self.rtt.srtt().unwrap_or(Duration::ZERO)
    }

    /// Reads window, threshold and pacing rate from the congestion control.
    pub(super) fn read_control(&mut self) {
        self.window = self.control.window().get();
        self.threshold = self.control.slow_start_threshold().get();
        let mut pace = self.control.pacing_rate();
        if pace.is_none() && self.paces_windows && self.rtt.srtt().is_some() {
            pace = Some(window_pace(self.window, self.window < self.threshold, self.srtt()));
        }
        self.pacer.set_rate(pace);
        if let Some(ceiling) = &self.ceiling {
            self.window = self.window.min(ceiling.bytes());
        }
    }

    /// Returns the loss event for congestion control. By the letter of RFC 5681, data that has left
    /// the network but is not acknowledged in order is outstanding, but at most one window was in
    /// flight.
    fn loss(&self, now: Instant) -> Lost {
        let outstanding = self.board.next() - self.board.una();
        Lost { now, in_flight: Bytes::new(outstanding).min(Bytes::new(self.window)) }
    }

    pub(super) fn restart_timer(&mut self, now: Instant) {
        self.rto_at =
            if self.board.is_empty() { Instant::FAR_FUTURE } else { now + self.rtt.timeout() };
    }

    /// Sets the tail loss probe timer (RFC 8985 §7.2).
    pub(super) fn arm_tail_probe(&mut self, now: Instant) {
        self.probe_at = Instant::FAR_FUTURE;
        let quiet = self.recovery == Recovery::Open && !self.board.has_sacked();
        if self.detection == LossDetection::Rack
            && quiet
            && !self.board.is_empty()
            && self.tail.is_allowed()
        {
            let alone = self.board.in_flight() <= u64::from(self.segment);
            let left = self.rto_at.since(now);
            let srtt = self.rtt.srtt();
            self.probe_at = now + TailProbe::timeout(srtt, alone, self.peer_ack_delay, left);
        }
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        if self.is_removed() {
            return Instant::FAR_FUTURE;
        }
        // The waiting data may have been acknowledged or taken back in the meantime.
        let pace = if self.may_send() { self.pacer.next_wakeup() } else { Instant::FAR_FUTURE };
        self.rto_at
            .min(self.receiver.next_wakeup())
            .min(pace)
            .min(self.probe_at)
            .min(self.board.detect_at())
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant, siblings: Siblings<'_>) -> Option<Event> {
        self.receiver.wake(now, &self.rtt);
        if self.board.detect_at() <= now {
            let lost = self.loss(now);
            let undelivered = self.board.in_flight() + self.board.lost();
            let before = self.board.lost();
            let found = self.board.detect(now, self.is_recovering(), self.srtt());
            self.lost_between += self.board.lost() - before;
            if found && self.recovery == Recovery::Open {
                self.enter_recovery(&lost, undelivered, siblings);
                self.read_control();
                if let Some(reduction) = &mut self.reduction {
                    let window = reduction.on_ack(0, self.board.in_flight(), false);
                    self.window = window.max(u64::from(self.segment));
                }
            }
        }
        if self.probe_at <= now {
            self.probe_at = Instant::FAR_FUTURE;
            self.tail_due = !self.board.is_empty();
            if self.rto_at > now {
                self.restart_timer(now);
            }
        }
        if now < self.rto_at {
            return None;
        }
        match self.handshake.on_timeout() {
            Repeat::Syn => {
                self.rtt.back_off();
                self.rto_at = Instant::FAR_FUTURE;
                return Some(Event::Unanswered);
            }
            Repeat::ThirdAck => {
                self.rtt.back_off();
                self.receiver.acknowledge_now();
                self.rto_at = now + self.rtt.timeout();
                return None;
            }
            Repeat::Nothing => {
                self.rto_at = Instant::FAR_FUTURE;
                return None;
            }
            Repeat::Data => {}
        }
        if self.board.is_empty() {
            self.rto_at = Instant::FAR_FUTURE;
            return None;
        }
        let lost = self.loss(now);
        self.loss_intervals.on_loss();
        if self.timeouts == 0 {
            self.undo.on_recovery_started(self.before());
        }
        self.control.on_timeout(&lost, self.timeouts > 0, siblings);
        self.board.on_timeout(now, self.is_recovering(), self.srtt());
        self.recovery = Recovery::Timeout(self.board.next());
        self.reduction = None;
        self.first_retransmission = true;
        self.tail.abandon();
        self.tail_due = false;
        self.probe_at = Instant::FAR_FUTURE;
        self.read_control();
        self.timeouts += 1;
        self.totals.timeouts += 1;
        self.rtt.back_off();
        self.rto_at = now + self.rtt.timeout();
        (self.timeouts == 1).then_some(Event::TimedOut)
    }
}

/// Pacing rate of Linux for a window-based control: two windows per round trip in slow start, 1.2
/// windows afterwards (`tcp_update_pacing_rate`).
fn window_pace(window: u64, slow_start: bool, srtt: Duration) -> Rate {
    let gain = if slow_start { 2.0 } else { 1.2 };
    let seconds = srtt.as_secs_f64().max(1e-6);
    Rate::from_bps((gain * window as f64 * 8.0 / seconds) as u64)
}
