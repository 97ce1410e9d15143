//! Timers of a subflow: a timeout, a probe of a failed path, a keep-alive on an idle one.
//!
//! Source: RFC 4340 §8.1.1, RFC 4341 §5.

use skybraid_units::{Bytes, Instant};

use super::{Event, State, Subflow};
use crate::congestion::{Lost, Siblings};
use crate::endpoint::Role;

impl Subflow {
    /// Ends the back-off of a path that seemed to have failed, and makes its timer due.
    pub fn retry(&mut self, now: Instant) {
        if self.timer.has_expired() || self.handshake.is_asking() {
            self.timer.end_back_off();
            self.timer.set(now);
        }
    }

    /// Sets the timer for the next event.
    pub(super) fn arm(&mut self, now: Instant) {
        let timeout = self.timer.rtt().timeout();
        let wait = match self.handshake.state() {
            State::Closed | State::Responding => None,
            State::Requesting | State::PartOpen => Some(timeout),
            State::Open if self.sent.pipe() > 0 => Some(timeout),
            State::Open if !self.multipath => None,
            State::Open if self.timer.has_expired() => Some(timeout.min(self.probe_every)),
            State::Open if self.probe.is_in_flight() => Some(timeout),
            State::Open if self.role == Role::Client => Some(self.keep_alive),
            State::Open => None,
        };
        self.timer.set(wait.map_or(Instant::FAR_FUTURE, |wait| now + wait));
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
                if self.timer.has_expired() || self.probe.is_in_flight() {
                    self.timer.on_expired();
                    if self.tracking.is_some() {
                        self.sent.abandon();
                    }
                }
                self.probe.set_sync_due(true);
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
        self.reaction.begin(self.sent.next());
        self.totals.timeouts += 1;
        self.timer.on_expired();
        self.probe.set_sync_due(self.multipath && self.backlog.len() == 0);
        if !self.probe.is_sync_due() {
            self.arm(now);
        }
    }
}
