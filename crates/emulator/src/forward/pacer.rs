//! Precise sleeping until the next event.
//!
//! A sleeping thread wakes late: on an idle machine by some 50 µs, mostly the exit from the processor's sleep
//! state. The pacer estimates this latency, sets its timer that much earlier, and spins for the remaining
//! time. Spinning has a budget, so that many packets do not use a whole core.

#![allow(unsafe_code, reason = "ppoll takes a pointer to an array")]

use std::hint::spin_loop;
use std::os::fd::RawFd;
use std::ptr::null;

use skybraid_units::{Duration, Instant};

use skybraid_io::clock::Clock;

/// Maximum lead of the timer.
const MAX_LEAD: Duration = Duration::from_micros(250);
/// Minimum spinning time of a precise pacer before each packet.
const PRECISE_LEAD: Duration = Duration::from_micros(120);
/// Inverse share of the time that may be spent spinning.
const BUDGET_PARTS: i64 = 64;
/// Maximum accumulated spinning time.
const MAX_SAVED: Duration = Duration::from_millis(4);

/// Timer and spinning that wake the engine on time.
pub(super) struct Pacer {
    clock: Clock,
    precise: bool,
    /// Current lead of the timer.
    lead: Duration,
    /// Remaining spinning budget; negative if overspent.
    saved: Duration,
    saved_at: Instant,
    polled: Vec<libc::pollfd>,
    /// The last wait looked at the descriptors.
    looked: bool,
}

impl Pacer {
    /// Creates a pacer that polls these descriptors.
    pub fn new(clock: Clock, precise: bool, watched: impl Iterator<Item = RawFd>) -> Self {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        Self {
            clock,
            precise,
            lead: Duration::from_micros(60),
            saved: MAX_SAVED,
            saved_at: clock.now(),
            polled: watched.map(entry).collect(),
            looked: false,
        }
    }

    /// Sets whether the watched descriptor wakes the sleeper when readable. Indices as in [`new`](Self::new).
    pub fn wake_by(&mut self, index: usize, wakes: bool) {
        if let Some(entry) = self.polled.get_mut(index) {
            entry.events = if wakes { libc::POLLIN } else { 0 };
        }
    }

    /// Returns true if the watched descriptor wakes the sleeper when readable.
    pub fn wakes_by(&self, index: usize) -> bool {
        self.polled.get(index).is_some_and(|entry| entry.events != 0)
    }

    /// Returns false if the last wait has found that the descriptor, which wakes the sleeper, is not readable.
    pub fn may_be_readable(&self, index: usize) -> bool {
        !self.looked || self.polled.get(index).is_some_and(|entry| entry.revents != 0)
    }

    /// Forgets what the last wait found; all descriptors may be readable again.
    pub fn forget(&mut self) {
        self.looked = false;
    }

    /// Waits until `exact`, or about `roughly` if that is earlier, or until one of the enabled descriptors is
    /// readable. `now` was read just before.
    pub fn wait(&mut self, now: Instant, exact: Instant, roughly: Instant) {
        self.save(now);
        self.looked = false;
        let mut now = now;
        let alarm = exact - self.lead;
        let until = alarm.min(roughly);
        if until > now {
            let asleep = until - now;
            let woken = self.sleep(asleep);
            now = self.clock.now();
            if woken {
                return;
            }
            if alarm <= roughly {
                self.learn(now - until);
            }
        }
        if exact > now && alarm <= roughly {
            let from = now;
            if self.precise || self.saved.is_positive() {
                while now < exact {
                    spin_loop();
                    now = self.clock.now();
                }
                self.saved -= now - from;
            } else {
                self.sleep(exact - now);
            }
        }
    }

    /// Adds to the spinning budget.
    fn save(&mut self, now: Instant) {
        let earned = Duration::from_nanos((now - self.saved_at).as_nanos() / BUDGET_PARTS);
        self.saved = (self.saved + earned).min(MAX_SAVED);
        self.saved_at = now;
    }

    /// Adapts the lead to the latency of the timer. The lead follows a quantile of the latency: a high one
    /// while spinning budget is left, otherwise a low one.
    fn learn(&mut self, late: Duration) {
        let step = (self.lead.as_nanos() / 32).max(500);
        let quantile = if self.precise || self.saved > MAX_SAVED / 2 { 95 } else { 25 };
        let change = if late > self.lead { step * quantile } else { step * (quantile - 100) } / 100;
        let min = if self.precise { PRECISE_LEAD } else { Duration::ZERO };
        self.lead = (self.lead + Duration::from_nanos(change)).max(min).min(MAX_LEAD);
    }

    /// Sleeps; returns true if woken by a descriptor.
    fn sleep(&mut self, span: Duration) -> bool {
        let nanos = span.as_nanos().max(0);
        let timeout =
            libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: the array has `count` entries and, like the timeout, outlives the call.
        let ready = unsafe { libc::ppoll(self.polled.as_mut_ptr(), count, &timeout, null()) };
        self.looked = ready >= 0;
        ready != 0
    }
}
