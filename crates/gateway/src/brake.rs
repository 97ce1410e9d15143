//! How many control messages a second may leave.
//!
//! Control leaves on every path at once and under no congestion control. So that a source that writes
//! thousands a second does not fill the queues of the networks, or the buffers of a peer that is slower,
//! with messages that those of others then wait behind, the rate is cut while probes show such a queue. It
//! is never cut below [`MIN_RATE`], which is more than pilots and autopilots need, and not limited at all
//! while nothing waits.

use skybraid_units::{Duration, Instant};

/// Messages a second that may leave whatever waits elsewhere.
pub const MIN_RATE: f64 = 500.0;
/// Messages that may leave at once after a pause.
const BURST: f64 = 16.0;
/// A wait at the networks or at the peer from which on the rate is cut.
const WAIT: Duration = Duration::from_millis(2);
/// The rate is cut to this share of what left, once in so long and a round trip.
const CUT: f64 = 0.7;
const CUT_EVERY: Duration = Duration::from_millis(50);
/// A wait must become shorter by so much of the time, or the rate is cut again.
const DRAIN: f64 = 0.1;
/// Growth of the rate while nothing waits: this factor each time that so long has passed.
const GROWTH: f64 = 1.007;
const GROW_EVERY: Duration = Duration::from_millis(100);
/// The limit is lifted when so long less than half of it was used.
const IDLE: Duration = Duration::from_secs(2);
/// Window over which the sending rate is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// The limit of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brake {
    /// Messages a second; `None` for no limit.
    rate: Option<f64>,
    tokens: f64,
    refilled: Instant,
    /// Messages since the window began, and a second in the one before.
    left: u32,
    window: Instant,
    measured: f64,
    /// The wait when the rate was cut, or left since it drained, the last time, and when that was.
    waited: Duration,
    checked: Instant,
    /// Times of the last change of the rate, and of the last use of more than half of it.
    changed: Instant,
    used: Instant,
}

impl Brake {
    /// A message may leave now, and does.
    pub fn take(&mut self, now: Instant) -> bool {
        self.measure(now);
        if let Some(rate) = self.rate {
            let elapsed = now.since(self.refilled).as_secs_f64().max(0.0);
            self.tokens = (self.tokens + rate * elapsed).min(BURST);
            self.refilled = now;
            if self.tokens < 1.0 {
                return false;
            }
            self.tokens -= 1.0;
        }
        self.left += 1;
        true
    }

    /// The message that [`take`](Self::take) let through does not leave after all.
    pub fn give_back(&mut self) {
        self.tokens += 1.0;
        self.left = self.left.saturating_sub(1);
    }

    /// Time at which the next message may leave, if the limit has refused the last one.
    pub fn next(&self) -> Instant {
        match self.rate {
            Some(rate) if self.tokens < 1.0 => {
                // The next microsecond, so that rounding does not wake it in vain.
                let wait = (1.0 - self.tokens) / rate * 1e9 + 1_000.0;
                self.refilled + Duration::from_nanos(wait as i64)
            }
            _ => Instant::FAR_FUTURE,
        }
    }

    /// A probe reports how long what leaves now waits on its way and at the peer, beyond what it must take,
    /// and the round-trip time after which a change shows.
    pub fn heed(&mut self, now: Instant, wait: Duration, rtt: Duration) {
        self.measure(now);
        if wait > WAIT {
            let since = now.since(self.checked);
            if since >= CUT_EVERY + rtt {
                // While it drains as it should the last cut was enough.
                let drained = (self.waited - wait).as_secs_f64();
                if self.rate.is_none() || drained < DRAIN * since.as_secs_f64() {
                    let rate = self.rate.map_or(self.measured, |rate| rate.min(self.measured));
                    self.rate = Some((CUT * rate).max(MIN_RATE));
                }
                (self.changed, self.checked, self.waited) = (now, now, wait);
            }
        } else if let Some(rate) = self.rate {
            if self.measured > rate / 2.0 {
                self.used = now;
            }
            if now.since(self.used) >= IDLE {
                self.rate = None;
            } else if now.since(self.changed) >= GROW_EVERY {
                self.rate = Some(rate * GROWTH);
                self.changed = now;
            }
        }
    }

    /// Messages a second that may leave; `None` while nothing limits them.
    pub const fn rate(&self) -> Option<f64> {
        self.rate
    }

    fn measure(&mut self, now: Instant) {
        let elapsed = now.since(self.window);
        if elapsed >= WINDOW {
            self.measured = f64::from(self.left) / elapsed.as_secs_f64();
            (self.left, self.window) = (0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as much as it may for so many milliseconds over a way that carries so many messages a second,
    /// probed each 50 ms; gives how many left and the longest wait in the last second, in milliseconds.
    fn flood(brake: &mut Brake, from_ms: i64, ms: i64, demand: f64, capacity: f64) -> (u32, f64) {
        let (mut left, mut queue, mut worst, mut wants) = (0, 0.0_f64, 0.0_f64, 0.0_f64);
        for step in 0..ms * 10 {
            let now = Instant::from_nanos(from_ms * 1_000_000 + step * 100_000);
            wants = (wants + demand / 10_000.0).min(100.0);
            let mut wants = demand / 10_000.0 + if step == 0 { 1.0 } else { 0.0 };
            while wants >= 1.0 && brake.take(now) {
                (left, queue, wants) = (left + 1, queue + 1.0, wants - 1.0);
            }
            queue = (queue - capacity / 10_000.0).max(0.0);
            let wait_ms = queue / capacity * 1_000.0;
            if step % 500 == 0 {
                let wait = Duration::from_micros((wait_ms * 1_000.0) as i64);
                brake.heed(now, wait, Duration::from_millis(60));
            }
            if step > (ms - 1_000) * 10 {
                worst = worst.max(wait_ms);
            }
        }
        (left, worst)
    }

    #[test]
    fn without_a_queue_there_is_no_limit() {
        let mut brake = Brake::default();
        let (left, _) = flood(&mut brake, 0, 2_000, 20_000.0, 30_000.0);
        assert!(left >= 39_000, "{left}");
        assert_eq!(brake.rate(), None);
    }

    #[test]
    fn a_flood_settles_at_what_is_carried_without_a_queue() {
        let mut brake = Brake::default();
        flood(&mut brake, 0, 5_000, 30_000.0, 10_000.0);
        let (left, worst) = flood(&mut brake, 5_000, 10_000, 30_000.0, 10_000.0);
        assert!(worst < 15.0, "{worst} ms");
        assert!(left > 60_000, "{left} of 100,000");
    }

    #[test]
    fn the_least_rate_is_left_whatever_waits_and_the_limit_is_lifted() {
        let mut brake = Brake::default();
        for at in 0..200 {
            brake.heed(Instant::from_millis(50 * at), Duration::from_secs(1), Duration::ZERO);
        }
        assert_eq!(brake.rate(), Some(MIN_RATE));
        let now = Instant::from_millis(10_000);
        assert!((0..16).all(|_| brake.take(now)) && !brake.take(now));
        assert!(brake.next() > now && brake.next() <= now + Duration::from_millis(3));
        assert!(brake.take(brake.next()));
        for at in 200..300 {
            brake.heed(Instant::from_millis(50 * at), Duration::ZERO, Duration::ZERO);
        }
        assert_eq!(brake.rate(), None);
    }
}
