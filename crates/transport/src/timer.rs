//! Retransmission timer of a subflow.
//!
//! Source: RFC 6298 §5.

use skybraid_units::{Duration, Instant};

use crate::rtt::RttEstimator;

/// Retransmission timer, with the estimator of its timeout.
#[derive(Debug)]
pub struct RetransmissionTimer {
    rtt: RttEstimator,
    at: Instant,
    /// Expiries since the last progress.
    expiries: u32,
    /// Sequence number up to which data had been sent at the last sample that began a window.
    round_mark: u64,
}

impl RetransmissionTimer {
    /// Creates a stopped timer.
    pub const fn new(rtt: RttEstimator) -> Self {
        Self { rtt, at: Instant::FAR_FUTURE, expiries: 0, round_mark: 0 }
    }

    /// Round-trip time estimator.
    #[inline]
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Smoothed round-trip time, if there is a sample.
    #[inline]
    pub const fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// Instant of the next expiry; [`Instant::FAR_FUTURE`] while stopped.
    #[inline]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// True while stopped.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.at == Instant::FAR_FUTURE
    }

    /// True if the timer has expired since the last progress: the path may have failed.
    #[inline]
    pub const fn has_expired(&self) -> bool {
        self.expiries > 0
    }

    /// Starts the timer, or starts it again.
    #[inline]
    pub fn start(&mut self, now: Instant) {
        self.at = now + self.rtt.timeout();
    }

    /// Starts the timer with another timeout, or stops it.
    #[inline]
    pub const fn set(&mut self, at: Instant) {
        self.at = at;
    }

    /// Stops the timer.
    #[inline]
    pub const fn stop(&mut self) {
        self.at = Instant::FAR_FUTURE;
    }

    /// Processes a round-trip time sample of the handshake; `None` if its segments were sent more than once.
    pub fn on_handshake(&mut self, rtt: Option<Duration>) {
        match rtt {
            Some(rtt) => self.rtt.on_sample(rtt, true),
            None => self.rtt.fall_back(),
        }
    }

    /// Processes a round-trip time sample while data before `una` is acknowledged and `next` is sent next. Returns
    /// whether it begins a window.
    #[inline]
    pub fn on_sample(&mut self, rtt: Duration, una: u64, next: u64) -> bool {
        let new_window = una >= self.round_mark;
        if new_window {
            self.round_mark = next;
        }
        self.rtt.on_sample(rtt, new_window);
        new_window
    }

    /// Records that new data was acknowledged.
    #[inline]
    pub fn on_progress(&mut self) {
        self.expiries = 0;
        self.rtt.end_back_off();
    }

    /// Ends the back-off of a handshake that was answered.
    pub fn end_back_off(&mut self) {
        self.rtt.end_back_off();
    }

    /// Doubles the timeout after an expiry in the handshake.
    pub fn back_off(&mut self) {
        self.rtt.back_off();
    }

    /// Records an expiry, which doubles the timeout. Returns whether it is the first one since the last progress.
    pub fn on_expired(&mut self) -> bool {
        self.expiries += 1;
        self.rtt.back_off();
        self.expiries == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::RtoRule;

    // Source: RFC 6298 §2.2, §5.5 and §5.7.
    #[test]
    fn each_expiry_doubles_the_timeout_until_there_is_progress() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let rtt = RttEstimator::new(RtoRule::Rfc6298, ms(1000), ms(60_000));
        let mut timer = RetransmissionTimer::new(rtt);
        assert!(timer.is_stopped());
        timer.on_handshake(Some(ms(500)));
        timer.start(at(0));
        assert_eq!(timer.at(), at(1500), "SRTT + 4 · SRTT / 2");
        assert!(timer.on_expired() && !timer.on_expired() && timer.has_expired());
        timer.start(at(0));
        assert_eq!(timer.at(), at(6000));
        timer.on_progress();
        timer.start(at(0));
        assert_eq!((timer.at(), timer.has_expired()), (at(1500), false));
    }

    #[test]
    fn a_handshake_sent_twice_falls_back_to_three_seconds() {
        let ms = Duration::from_millis;
        let rtt = RttEstimator::new(RtoRule::Rfc6298, ms(200), ms(60_000));
        let mut timer = RetransmissionTimer::new(rtt);
        timer.on_handshake(None);
        timer.start(Instant::ZERO);
        assert_eq!((timer.at(), timer.srtt()), (Instant::from_millis(3000), None));
    }
}
