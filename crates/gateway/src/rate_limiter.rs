//! Rate limit for control messages.
//!
//! Control is sent on every path at once, without congestion control. A source that writes thousands of messages a
//! second would fill the queues of the networks, or the buffers of a slower peer, and delay the messages of other
//! sources. The rate is therefore cut while probes show such a queue. The rate is never cut below [`MIN_RATE`], more
//! than pilots and autopilots need, and unlimited while there is no queue. A burst of more than pilots and autopilots
//! write (a mission, a program gone wild) would fill the queues before any probe can show it: it leaves at a rate that
//! grows by half each round trip until there is a queue.

use skybraid_units::{Duration, Instant};

/// Minimum rate in messages per second, whatever the queues.
pub const MIN_RATE: f64 = 500.0;
/// Maximum burst after a pause, in messages.
const BURST: f64 = 16.0;
/// Messages in a window of 100 ms that leave at once, and the rate at which further ones begin to leave.
const MAX_AT_ONCE: u32 = 50;
const START_RATE: f64 = 2_000.0;
/// Messages in a window, as a multiple of those of the last one, that leave at once besides.
const START_USUAL: f64 = 2.0;
/// Growth factor of the rate of a burst while there is no queue, if a probe that left `START_EVERY` after the last
/// growth has seen none.
const START_GROWTH: f64 = 1.5;
const START_EVERY: Duration = Duration::from_millis(10);
/// Maximum queueing delay, in the network or at the peer, before a cut.
const WAIT: Duration = Duration::from_millis(2);
/// Share of the measured rate kept by a cut, once per `CUT_EVERY` plus RTT.
const CUT: f64 = 0.7;
const CUT_EVERY: Duration = Duration::from_millis(50);
/// Minimum decrease of the delay per elapsed time, or the rate is cut again.
const DRAIN: f64 = 0.1;
/// Growth factor of the rate per `GROW_EVERY` while there is no queue.
const GROWTH: f64 = 1.007;
const GROW_EVERY: Duration = Duration::from_millis(100);
/// Time of less than half use after which the limit is lifted.
const IDLE: Duration = Duration::from_secs(2);
/// Window over which the sending rate is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// Rate limiter of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateLimiter {
    /// Messages per second; `None` for no limit.
    rate: Option<f64>,
    /// A burst has begun, and no queue been seen since.
    starting: bool,
    tokens: f64,
    refilled: Instant,
    /// Messages sent in this window, and rate of the previous one.
    left: u32,
    window: Instant,
    measured: f64,
    /// Delay at the last decision whether to cut, and time of that decision.
    waited: Duration,
    checked: Instant,
    /// Times of the last change of the rate, and of the last use of more than half of it.
    changed: Instant,
    used: Instant,
}

impl RateLimiter {
    /// Admits a message to be sent now.
    pub fn take(&mut self, now: Instant) -> bool {
        self.measure(now);
        // Twice the rate of the last window is no burst: no queue was seen.
        let usual = (START_USUAL * self.measured * WINDOW.as_secs_f64()) as u32;
        if self.rate.is_none() && self.left >= MAX_AT_ONCE.saturating_add(usual) {
            let rate = START_RATE.max(self.measured);
            (self.rate, self.starting, self.tokens) = (Some(rate), true, 0.0);
            (self.refilled, self.changed, self.used) = (now, now, now);
            // What left at once has to drain first.
            (self.checked, self.waited) = (now, Duration::ZERO);
        }
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

    /// Refunds a message admitted by [`take`](Self::take) but not sent.
    pub fn refund(&mut self) {
        self.tokens += 1.0;
        self.left = self.left.saturating_sub(1);
    }

    /// Time at which the next message may leave, if the limit has refused the last one.
    pub fn next(&self) -> Instant {
        match self.rate {
            Some(rate) if self.tokens < 1.0 => {
                // Adds 1 µs so that rounding causes no early wakeup.
                let wait = (1.0 - self.tokens) / rate * 1e9 + 1_000.0;
                self.refilled + Duration::from_nanos(wait as i64)
            }
            _ => Instant::FAR_FUTURE,
        }
    }

    /// Handles a probe's report: queueing delay of outgoing messages, in the network and at the peer, and the
    /// round-trip time after which a change takes effect, and the time at which the probe left.
    pub fn on_queueing_delay(
        &mut self,
        now: Instant,
        wait: Duration,
        rtt: Duration,
        probed: Instant,
    ) {
        self.measure(now);
        if wait > WAIT {
            let since = now.since(self.checked);
            if since >= CUT_EVERY + rtt {
                // If the queue drains fast enough, the last cut sufficed.
                let drained = (self.waited - wait).as_secs_f64();
                if self.rate.is_none() || drained < DRAIN * since.as_secs_f64() {
                    let rate = self.rate.map_or(self.measured, |rate| rate.min(self.measured));
                    // A network for which the first rate is too high is slow.
                    let is_slow = self.starting && rate <= START_RATE;
                    let cut = if is_slow { CUT / START_GROWTH } else { CUT };
                    self.rate = Some((cut * rate).max(MIN_RATE));
                    self.starting = false;
                }
                (self.changed, self.checked, self.waited) = (now, now, wait);
            }
        } else if let Some(rate) = self.rate {
            if self.measured > rate / 2.0 {
                self.used = now;
            }
            if now.since(self.used) >= IDLE {
                (self.rate, self.starting) = (None, false);
            } else if self.starting {
                let is_used =
                    self.measured.max(f64::from(self.left) / WINDOW.as_secs_f64()) > rate / 2.0;
                if is_used && probed >= self.changed + START_EVERY {
                    self.rate = Some(rate * START_GROWTH);
                    self.changed = now;
                }
            } else if now.since(self.changed) >= GROW_EVERY {
                self.rate = Some(rate * GROWTH);
                self.changed = now;
            }
        }
    }

    /// True if a burst has begun, and no queue been seen since.
    pub const fn is_starting(&self) -> bool {
        self.starting
    }

    /// Returns the limit in messages per second; `None` if unlimited.
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

    /// Sends as allowed for `ms` over a path of `capacity` messages per second, probed every 50 ms. Returns
    /// the number of sent messages and the max delay in the last second, in milliseconds.
    fn flood(
        limiter: &mut RateLimiter,
        from_ms: i64,
        ms: i64,
        demand: f64,
        capacity: f64,
    ) -> (u32, f64) {
        let (mut left, mut queue, mut worst, mut wants) = (0, 0.0_f64, 0.0_f64, 0.0_f64);
        for step in 0..ms * 10 {
            let now = Instant::from_nanos(from_ms * 1_000_000 + step * 100_000);
            wants = (wants + demand / 10_000.0).min(100.0);
            let mut wants = demand / 10_000.0 + if step == 0 { 1.0 } else { 0.0 };
            while wants >= 1.0 && limiter.take(now) {
                (left, queue, wants) = (left + 1, queue + 1.0, wants - 1.0);
            }
            queue = (queue - capacity / 10_000.0).max(0.0);
            let wait_ms = queue / capacity * 1_000.0;
            if step % 500 == 0 {
                let wait = Duration::from_micros((wait_ms * 1_000.0) as i64);
                let rtt = Duration::from_millis(60);
                limiter.on_queueing_delay(now, wait, rtt, now - rtt);
            }
            if step > (ms - 1_000) * 10 {
                worst = worst.max(wait_ms);
            }
        }
        (left, worst)
    }

    #[test]
    fn without_a_queue_a_burst_is_let_on_within_two_seconds() {
        let mut limiter = RateLimiter::default();
        flood(&mut limiter, 0, 2_000, 20_000.0, 30_000.0);
        let (left, _) = flood(&mut limiter, 2_000, 2_000, 20_000.0, 30_000.0);
        assert!(left >= 39_000, "{left}");
        assert!(limiter.rate().is_none_or(|rate| rate > 20_000.0), "{:?}", limiter.rate());
    }

    #[test]
    fn a_burst_leaves_at_once_up_to_a_limit_and_then_in_time() {
        let mut limiter = RateLimiter::default();
        let mut taken = |at_ms| {
            let now = Instant::from_millis(at_ms);
            core::iter::from_fn(|| limiter.take(now).then_some(())).take(10_000).count()
        };
        assert_eq!([1_000, 1_001, 1_005].map(&mut taken), [50, 2, 8]);
        // What an autopilot writes is never held back.
        let mut limiter = RateLimiter::default();
        assert!((0..2_000).all(|tick| limiter.take(Instant::from_millis(tick * 4))));
        assert_eq!(limiter.rate(), None);
    }

    #[test]
    fn a_flood_settles_at_what_is_carried_without_a_queue() {
        let mut limiter = RateLimiter::default();
        flood(&mut limiter, 0, 5_000, 30_000.0, 10_000.0);
        let (left, worst) = flood(&mut limiter, 5_000, 10_000, 30_000.0, 10_000.0);
        assert!(worst < 15.0, "{worst} ms");
        assert!(left > 60_000, "{left} of 100,000");
    }

    #[test]
    fn the_minimum_rate_holds_and_the_limit_is_lifted() {
        let mut limiter = RateLimiter::default();
        for at in 0..200 {
            limiter.on_queueing_delay(
                Instant::from_millis(50 * at),
                Duration::from_secs(1),
                Duration::ZERO,
                Instant::from_millis(50 * at),
            );
        }
        assert_eq!(limiter.rate(), Some(MIN_RATE));
        let now = Instant::from_millis(10_000);
        assert!((0..16).all(|_| limiter.take(now)) && !limiter.take(now));
        assert!(limiter.next() > now && limiter.next() <= now + Duration::from_millis(3));
        assert!(limiter.take(limiter.next()));
        for at in 200..300 {
            limiter.on_queueing_delay(
                Instant::from_millis(50 * at),
                Duration::ZERO,
                Duration::ZERO,
                Instant::from_millis(50 * at),
            );
        }
        assert_eq!(limiter.rate(), None);
    }
}
