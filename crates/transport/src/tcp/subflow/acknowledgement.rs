//! Processing of acknowledgements and expired timers: round-trip times, losses and the phases of recovery.
//!
//! Source: RFC 6582 and RFC 6675 (recovery), RFC 8985 (RACK-TLP), RFC 6298 (the timer).

use skybraid_units::{Bytes, Duration, Instant};

use super::handshake::Repeat;
use super::{Event, Subflow};
use crate::config::FlightSize;
use crate::congestion::{Acked, ControlState, Lost, Siblings};
use crate::segment::{Flags, Tcp};
use crate::tcp::prr::Reduction;
use crate::tcp::scoreboard::{Acknowledgement, Progress};
use crate::tcp::tail_probe::Verdict;

/// What the scoreboard has outstanding at one time.
#[derive(Clone, Copy)]
struct Outstanding {
    una: u64,
    in_flight: u64,
    lost: u64,
}

impl Subflow {
    /// Processes the acknowledgement of outstanding data. Not inlined: most segments with data acknowledge none.
    #[inline(never)]
    pub(super) fn process_ack(&mut self, now: Instant, tcp: &Tcp, siblings: Siblings<'_>) {
        let before = self.outstanding_now();
        let window = &self.window;
        let limited = self.window_use.is_limited(tcp.ack, window.bytes(), window.threshold());
        let may_be_duplicate = tcp.flags == Flags::ACK;
        let empty = tcp.len == 0 && tcp.sacks.is_empty();
        let bare = may_be_duplicate && empty && tcp.ack == before.una;
        let progress = if tcp.len == 0 || tcp.ack > before.una || !tcp.sacks.is_empty() {
            self.board.acknowledge(&Acknowledgement {
                now,
                ack: tcp.ack,
                sacks: &tcp.sacks,
                echo: tcp.echo,
                may_be_duplicate,
                recovering: !self.recovery.is_open(),
                srtt: self.srtt(),
            })
        } else {
            Progress::default()
        };
        self.totals.acked_bytes += progress.delivered;
        self.window.on_acked(progress.delivered);
        self.take_sample(&progress);
        self.window_use.on_acked(self.board.una(), before.in_flight, self.board.next());
        let acked = Acked {
            now,
            bytes: Bytes::new(progress.delivered),
            delivered: Bytes::new(self.board.delivered()),
            srtt: self.srtt(),
            rtt: progress.rtt,
            latest_rtt: progress.latest_rtt,
            in_flight: Bytes::new(before.in_flight),
            in_flight_after: Bytes::new(self.board.in_flight()),
            lost: Bytes::new(progress.lost + core::mem::take(&mut self.lost_between)),
            window_limited: limited && !self.window.is_capped(),
            recovering: !self.recovery.is_open(),
            rate: progress.rate,
        };
        let news = progress.delivered > 0 || progress.lost > 0;
        if news {
            self.window.control_mut().on_delivery(&acked, siblings);
        }
        if progress.advanced > 0 {
            self.timer.on_progress();
            if let Some(before) = self.recovery.on_advanced(progress.original_arrived) {
                self.undo_reaction(now, &before);
            }
        }
        self.leave_recovery(now, &progress);
        let duplicate = tcp.sacks.duplicate(tcp.ack).map(|(_, end)| end);
        if self.tail.on_ack(tcp.ack, duplicate, bare) == Verdict::RepairedLoss
            && self.recovery.is_open()
        {
            self.window.on_loss(&self.lost(now, before), siblings);
            self.window.control_mut().on_recovered(now);
        }
        if progress.found_loss && self.recovery.is_open() {
            self.enter_recovery(now, before, siblings);
        } else if progress.delivered > 0 && !self.recovery.is_fast() {
            self.window.control_mut().on_ack(&acked, siblings);
        }
        if news {
            self.window.update(self.timer.srtt());
        }
        let safe = progress.advanced > 0 && !progress.found_loss;
        self.reduce_window(progress.delivered, safe);
        if progress.advanced > 0 {
            self.restart_timer(now);
            self.arm_tail_probe(now);
        }
    }

    fn take_sample(&mut self, progress: &Progress) {
        let Some(rtt) = progress.rtt else { return };
        self.tail.on_rtt_sample();
        let new_round = self.timer.on_sample(rtt, self.board.una(), self.board.next());
        let estimator = self.timer.rtt();
        if let (Some(srtt), Some(min_rtt)) = (estimator.srtt(), estimator.min_rtt()) {
            self.window.on_rtt_sample(new_round, srtt, min_rtt);
        }
    }

    fn leave_recovery(&mut self, now: Instant, progress: &Progress) {
        if self.recovery.is_complete(self.board.una()) {
            self.recovery.end();
            self.board.on_recovered();
            self.window.control_mut().on_recovered(now);
        } else if self.recovery.is_fast() && progress.advanced > 0 {
            self.board.on_partial_ack();
        }
    }

    #[cold]
    fn enter_recovery(&mut self, now: Instant, before: Outstanding, siblings: Siblings<'_>) {
        self.recovery.begin(self.board.next(), self.window.state());
        self.totals.fast_recoveries += 1;
        self.tail.abandon();
        let lost = match self.flight_size {
            FlightSize::InFlight => self.lost(now, self.outstanding_now()),
            _ => self.lost(now, before),
        };
        self.window.on_loss(&lost, siblings);
        if self.proportional && !self.window.governs_recovery() {
            let target = self.window.control().window().get();
            let segment = u64::from(self.segment);
            let undelivered = before.in_flight + before.lost;
            self.recovery.reduce(Reduction::new(segment, undelivered, target));
        }
    }

    /// Ends a spurious recovery as if it had not begun.
    #[cold]
    fn undo_reaction(&mut self, now: Instant, before: &ControlState) {
        self.board.undo_losses();
        self.recovery.end();
        self.totals.undone += 1;
        self.window.control_mut().on_spurious(before);
        self.window.control_mut().on_recovered(now);
    }

    /// Sets the window of a fast recovery after `delivered` bytes were acknowledged.
    fn reduce_window(&mut self, delivered: u64, safe: bool) {
        if let Some(window) = self.recovery.window(delivered, self.board.in_flight(), safe) {
            self.window.set_in_recovery(window.max(u64::from(self.segment)));
        }
    }

    fn srtt(&self) -> Duration {
        self.timer.srtt().unwrap_or(Duration::ZERO)
    }

    /// Returns what is outstanding now.
    const fn outstanding_now(&self) -> Outstanding {
        Outstanding {
            una: self.board.una(),
            in_flight: self.board.in_flight(),
            lost: self.board.lost(),
        }
    }

    /// Returns the loss that is found at `now`, with what was outstanding `before`. By the letter of RFC 5681, data
    /// that has left the network but is not acknowledged in order is outstanding, but at most one window was in flight
    /// unless `flight_size` is the letter.
    fn lost(&self, now: Instant, before: Outstanding) -> Lost {
        let (outstanding, window) = (self.board.next() - before.una, self.window.bytes());
        let in_flight = match self.flight_size {
            FlightSize::Window => outstanding.min(window),
            FlightSize::Outstanding => outstanding,
            FlightSize::InFlight => before.in_flight,
            FlightSize::CongestionWindow => window,
        };
        Lost { now, in_flight: Bytes::new(in_flight) }
    }

    pub(super) fn restart_timer(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timer.stop();
        } else {
            self.timer.start(now);
        }
    }

    /// Plans the tail loss probe (RFC 8985 §7.2).
    pub(super) fn arm_tail_probe(&mut self, now: Instant) {
        if self.recovery.is_open() && !self.board.has_sacked() && !self.board.is_empty() {
            let alone = self.board.in_flight() <= u64::from(self.segment);
            self.tail.arm(now, self.timer.srtt(), alone, self.timer.at());
        } else {
            self.tail.disarm();
        }
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    #[inline]
    pub fn next_wakeup(&self) -> Instant {
        if self.is_removed() {
            return Instant::FAR_FUTURE;
        }
        let pace = self.window.pacer().next_wakeup();
        // The waiting data may have been acknowledged or taken back in the meantime.
        if pace < Instant::FAR_FUTURE && self.may_send() {
            return self.timers().min(pace);
        }
        self.timers()
    }

    /// Earliest expiry of a timer; a pacer's time to send is none.
    #[inline]
    fn timers(&self) -> Instant {
        self.timer
            .at()
            .min(self.receiver.next_wakeup())
            .min(self.tail.at())
            .min(self.board.detect_at())
    }

    /// True if [`wake`](Self::wake) has something to do.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.timers() <= now
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant, siblings: Siblings<'_>) -> Option<Event> {
        self.receiver.wake(now, self.timer.rtt());
        if self.board.detect_at() <= now {
            self.detect_losses(now, siblings);
        }
        if self.tail.wake(now, !self.board.is_empty()) && self.timer.at() > now {
            self.restart_timer(now);
        }
        if now < self.timer.at() {
            return None;
        }
        self.timer.stop();
        match self.handshake.on_timeout() {
            Repeat::Syn => {
                self.timer.back_off();
                return Some(Event::Unanswered);
            }
            Repeat::ThirdAck => {
                self.timer.back_off();
                self.receiver.acknowledge_now();
                self.timer.start(now);
            }
            Repeat::Data if !self.board.is_empty() => return self.on_timeout(now, siblings),
            Repeat::Data | Repeat::Nothing => {}
        }
        None
    }

    #[cold]
    fn detect_losses(&mut self, now: Instant, siblings: Siblings<'_>) {
        let before = self.outstanding_now();
        let found = self.board.detect(now, !self.recovery.is_open(), self.srtt());
        self.lost_between += self.board.lost() - before.lost;
        if found && self.recovery.is_open() {
            self.enter_recovery(now, before, siblings);
            self.window.update(self.timer.srtt());
            self.reduce_window(0, false);
        }
    }

    #[cold]
    fn on_timeout(&mut self, now: Instant, siblings: Siblings<'_>) -> Option<Event> {
        let lost = self.lost(now, self.outstanding_now());
        let repeated = self.timer.has_expired();
        let before = (!repeated).then(|| self.window.state());
        self.window.on_timeout(&lost, repeated, siblings);
        self.board.on_timeout(now, !self.recovery.is_open(), self.srtt());
        self.recovery.on_timeout(self.board.next(), before);
        self.tail.cancel();
        self.window.update(self.timer.srtt());
        self.totals.timeouts += 1;
        let first = self.timer.on_expired();
        self.timer.start(now);
        first.then_some(Event::TimedOut)
    }
}
