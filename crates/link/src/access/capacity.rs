//! Capacity of a return link by category: constant (CRA), requested by rate (RBDC) or volume (VBDC), and free (FCA).
//!
//! A terminal sends a request at every `period`; it takes effect in the superframes that begin `latency` later. With
//! `B` the bits that wait at a request:
//!
//! - RBDC asks for the rate `min(max, B / period − CRA)`, which holds for one period;
//! - VBDC asks for the volume `B − (CRA + RBDC) · period − volume asked for and not yet granted`; granted volume is
//!   used up at the rate of the category.
//!
//! A packet's fate is decided at its admission, so requests later than that count only the packets that have arrived:
//! they are tried for the packet and computed again for the next one. A request is fixed when its time has passed.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant, Rate};

use super::ticks::Ticks;

/// Capacity of a return link, checked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Constant rate assignment.
    pub cra: Rate,
    /// Maximum rate by rate requests.
    pub rbdc: Rate,
    /// Maximum rate at which requested volume is granted.
    pub vbdc: Rate,
    /// Free capacity, assigned without a request.
    pub fca: Rate,
    /// Time between requests.
    pub period: Duration,
    /// Time from a request to its first superframe.
    pub latency: Duration,
}

impl Capacity {
    /// Whether capacity depends on requests.
    pub fn is_requested(&self) -> bool {
        self.rbdc > Rate::ZERO || self.vbdc > Rate::ZERO
    }

    /// Sum of all categories.
    pub const fn max_rate(&self) -> Rate {
        let sum = self.cra.as_bps().saturating_add(self.rbdc.as_bps());
        Rate::from_bps(sum.saturating_add(self.vbdc.as_bps()).saturating_add(self.fca.as_bps()))
    }
}

/// Capacity granted for one superframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Rate: CRA and RBDC.
    pub rate: u64,
    /// Volume in bits.
    pub volume: u64,
    /// Free rate.
    pub free: u64,
}

/// Request of a terminal.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// First superframe in which it has effect.
    frame: i64,
    /// Last instant of its rate.
    until: Instant,
    rate: u64,
    volume: u64,
}

/// Maximum number of requests tried for one packet; packets that need more are never sent.
pub(crate) const MAX_REQUESTS: usize = 100_000;

/// Requests of one terminal, and the capacity that they bring.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    capacity: Capacity,
    frames: Ticks,
    times: Ticks,
    /// Number of the next request to be tried.
    next: i64,
    /// Requests in order of time; those from `fixed` on are tried.
    requests: VecDeque<Request>,
    fixed: usize,
    /// Superframe, and the volume that is pending at its start from requests no longer in the list.
    pending: (i64, u64),
    /// Departure of each packet that has not left by the next request, and the bits admitted up to it.
    waiting: VecDeque<(Instant, u64)>,
    /// Admission and bits of the packets of the last period, and their sum.
    recent: VecDeque<(Instant, u64)>,
    recent_bits: u64,
    now: Instant,
    /// Bits admitted, and of these no longer in `waiting`.
    admitted: u64,
    gone: u64,
}

impl Demand {
    pub fn new(capacity: Capacity, frames: Ticks, times: Ticks) -> Self {
        Self {
            capacity,
            frames,
            times,
            next: 0,
            requests: VecDeque::new(),
            fixed: 0,
            pending: (0, 0),
            waiting: VecDeque::new(),
            recent: VecDeque::new(),
            recent_bits: 0,
            now: Instant::ZERO,
            admitted: 0,
            gone: 0,
        }
    }

    /// Bits that wait at `at`, of packets admitted before.
    fn backlog(&self, at: Instant) -> u64 {
        let left = self.waiting.partition_point(|(departure, _)| *departure <= at);
        let sent = left.checked_sub(1).and_then(|last| self.waiting.get(last));
        self.admitted - sent.map_or(self.gone, |(_, bits)| *bits)
    }

    /// Bits expected to arrive from the admission of the last packet to `at`, at the rate of the last period.
    fn expected(&self, at: Instant) -> u64 {
        let share = at.since(self.now).as_secs_f64() / self.capacity.period.as_secs_f64();
        (self.recent_bits as f64 * share) as u64
    }

    /// Appends the next request, with `own` bits that wait besides those admitted.
    fn request(&mut self, own: u64) {
        let at = self.times.at(self.next);
        let effect = at + self.capacity.latency;
        let bits = self.backlog(at) + own;
        let of_period = |bps: u64| Rate::from_bps(bps).bits_in(self.capacity.period);
        let cra = self.capacity.cra.as_bps();
        let seconds = self.capacity.period.as_secs_f64();
        let asked = libm::ceil(bits as f64 / seconds) as u64;
        let rate = asked.saturating_sub(cra).min(self.capacity.rbdc.as_bps());
        let mut volume = 0;
        if self.capacity.vbdc > Rate::ZERO {
            let covered =
                of_period(cra + rate).saturating_add(self.outstanding(self.frames.from(at)));
            volume = bits.saturating_sub(covered);
        }
        let until = effect + self.capacity.period;
        self.requests.push_back(Request { frame: self.frames.from(effect), until, rate, volume });
        self.next = self.next.saturating_add(1);
    }

    /// Bits of volume granted in a superframe.
    fn volume_per_frame(&self) -> u64 {
        self.capacity.vbdc.bits_in(self.frames.period())
    }

    /// Volume that is pending at the start of a superframe, by the requests with effect by then.
    fn pending_at(&self, frame: i64) -> u64 {
        let each = self.volume_per_frame();
        let (mut at, mut pending) = self.pending;
        let mut pass = |to: i64, more: u64| {
            let frames = to.saturating_sub(at).max(0) as u64;
            pending = pending.saturating_sub(each.saturating_mul(frames)).saturating_add(more);
            at = at.max(to);
        };
        for request in self.requests.iter().take_while(|request| request.frame <= frame) {
            pass(request.frame, request.volume);
        }
        pass(frame, 0);
        pending
    }

    /// Volume asked for and not granted before a superframe.
    fn outstanding(&self, frame: i64) -> u64 {
        let later = self.requests.iter().filter(|request| request.frame > frame);
        self.pending_at(frame).saturating_add(later.map(|request| request.volume).sum())
    }

    /// Fixes the requests before `now`, the admission of a packet of `own` bits. Drops the requests tried for earlier
    /// packets.
    pub fn on_admission(&mut self, now: Instant, own: u64) {
        if !self.capacity.is_requested() {
            return;
        }
        self.now = now;
        self.recent.push_back((now, own));
        self.recent_bits = self.recent_bits.saturating_add(own);
        while let Some((at, bits)) = self.recent.front()
            && *at + self.capacity.period <= now
        {
            self.recent_bits = self.recent_bits.saturating_sub(*bits);
            self.recent.pop_front();
        }
        self.next -= (self.requests.len() - self.fixed) as i64;
        self.requests.truncate(self.fixed);
        let last = self.waiting.back().map_or(Instant::ZERO, |(departure, _)| *departure);
        while self.times.at(self.next) < now.min(last) {
            self.request(0);
        }
        // Requests of an empty queue ask for nothing.
        self.next = self.next.max(self.times.from(now));
        self.fixed = self.requests.len();
        while self
            .waiting
            .front()
            .is_some_and(|(departure, _)| *departure <= self.times.at(self.next))
        {
            self.gone = self.waiting.pop_front().map_or(self.gone, |(_, bits)| bits);
        }
    }

    /// Drops requests that have no effect from this superframe on.
    fn forget(&mut self, frame: i64, start: Instant) {
        while self.fixed > 0
            && let Some(first) = self.requests.front()
            && first.until <= start
        {
            let (to, volume) = (first.frame, first.volume);
            if to > frame {
                break;
            }
            let passed = to.saturating_sub(self.pending.0).max(0) as u64;
            let granted = self.volume_per_frame().saturating_mul(passed);
            self.pending = (
                self.pending.0.max(to),
                self.pending.1.saturating_sub(granted).saturating_add(volume),
            );
            self.requests.pop_front();
            self.fixed -= 1;
        }
    }

    /// Returns the capacity of a superframe for a packet of `own` bits that has not been placed. Superframes must be
    /// in order. `None` after too many requests.
    pub fn grant(&mut self, frame: i64, own: u64) -> Option<Grant> {
        let capacity = self.capacity;
        let mut grant =
            Grant { rate: capacity.cra.as_bps(), volume: 0, free: capacity.fca.as_bps() };
        if !capacity.is_requested() {
            return Some(grant);
        }
        let start = self.frames.at(frame);
        while self.times.at(self.next) + capacity.latency <= start {
            if self.requests.len() >= MAX_REQUESTS {
                return None;
            }
            self.request(own.saturating_add(self.expected(self.times.at(self.next))));
        }
        self.forget(frame, start);
        let mut effective = self.requests.iter().rev().filter(|request| request.frame <= frame);
        let last = effective.next().filter(|request| start < request.until);
        grant.rate += last.map_or(0, |request| request.rate);
        grant.volume = self.pending_at(frame).min(self.volume_per_frame());
        Some(grant)
    }

    /// Records a packet of `own` bits that leaves the queue at `departure`.
    pub fn on_placed(&mut self, departure: Instant, own: u64) {
        if self.capacity.is_requested() {
            self.admitted = self.admitted.saturating_add(own);
            self.waiting.push_back((departure, self.admitted));
        }
    }

    /// Records that all packets have left or been removed by `now`.
    pub fn on_cut(&mut self, now: Instant) {
        for (departure, _) in &mut self.waiting {
            *departure = (*departure).min(now);
        }
    }
}
