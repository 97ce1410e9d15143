//! Sleeping until something must be done, and being there in time.
//!
//! A sleeping thread wakes late: on an idle machine by some 50 µs, mostly the way out of the
//! processor's sleep. The pacer learns by how much, sets its alarm that much earlier, and spins what
//! is then left. Spinning has a budget, so that many packets do not cost a whole core.

#![allow(unsafe_code, reason = "ppoll takes a pointer to an array")]

use std::hint::spin_loop;
use std::os::fd::RawFd;
use std::ptr::null;

use skybraid_units::{Duration, Instant};

use skybraid_io::clock::Clock;

/// The alarm is never set earlier than this.
const MAX_LEAD: Duration = Duration::from_micros(250);
/// What a precise pacer at least spins before each packet.
const PRECISE_LEAD: Duration = Duration::from_micros(120);
/// Share of the time that may be spent spinning: one part in so many.
const BUDGET_PARTS: i64 = 64;
/// Most time to spin that is saved up.
const MAX_SAVED: Duration = Duration::from_millis(4);

/// Timer and spinning that wake the engine in time.
pub(super) struct Pacer {
    clock: Clock,
    precise: bool,
    /// How much earlier the alarm is set.
    lead: Duration,
    /// Time left to spin; negative when more was spent than saved.
    saved: Duration,
    saved_at: Instant,
    polled: Vec<libc::pollfd>,
}

impl Pacer {
    /// A pacer that watches these descriptors.
    pub fn new(clock: Clock, precise: bool, watched: impl Iterator<Item = RawFd>) -> Self {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        Self {
            clock,
            precise,
            lead: Duration::from_micros(60),
            saved: MAX_SAVED,
            saved_at: clock.now(),
            polled: watched.map(entry).collect(),
        }
    }

    /// Whether the watched descriptor wakes the sleeper when there is something to read. Order as in
    /// [`new`](Self::new).
    pub fn wake_by(&mut self, index: usize, wakes: bool) {
        if let Some(entry) = self.polled.get_mut(index) {
            entry.events = if wakes { libc::POLLIN } else { 0 };
        }
    }

    /// Returns at `exact`, or at about `roughly` if that is earlier, or when one of the descriptors that
    /// wake has something to read. `now` was read just before.
    pub fn wait(&mut self, now: Instant, exact: Instant, roughly: Instant) {
        self.save(now);
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

    /// Adds to what may be spent spinning.
    fn save(&mut self, now: Instant) {
        let earned = Duration::from_nanos((now - self.saved_at).as_nanos() / BUDGET_PARTS);
        self.saved = (self.saved + earned).min(MAX_SAVED);
        self.saved_at = now;
    }

    /// The alarm went off so much late. The lead follows a quantile of that: a high one while there is
    /// time to spin, a low one when there is not.
    fn learn(&mut self, late: Duration) {
        let step = (self.lead.as_nanos() / 32).max(500);
        let quantile = if self.precise || self.saved > MAX_SAVED / 2 { 95 } else { 25 };
        let change = if late > self.lead { step * quantile } else { step * (quantile - 100) } / 100;
        let least = if self.precise { PRECISE_LEAD } else { Duration::ZERO };
        self.lead = (self.lead + Duration::from_nanos(change)).max(least).min(MAX_LEAD);
    }

    /// Sleeps; true if a descriptor woke it.
    fn sleep(&mut self, span: Duration) -> bool {
        let nanos = span.as_nanos().max(0);
        let timeout =
            libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: the array has `count` entries and, like the timeout, outlives the call.
        let ready = unsafe { libc::ppoll(self.polled.as_mut_ptr(), count, &timeout, null()) };
        ready != 0
    }
}
