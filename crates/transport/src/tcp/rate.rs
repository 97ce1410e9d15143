//! Delivery rate estimation.
//!
//! Source: draft-ietf-ccwg-bbr §4.1 (delivery rate estimation), as in Linux `tcp_rate.c`.

use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::congestion::RateSample;

/// State of the sampler when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateAtSending {
    /// Bytes delivered so far.
    delivered: u64,
    /// Time of the last delivery.
    delivered_at: Instant,
    /// Time of sending of the first segment of the sampled window.
    first_sent: Instant,
    in_flight: u64,
    lost: u64,
    app_limited: bool,
}

/// Delivery rate sampler of one subflow.
#[derive(Debug, Default)]
pub struct RateSampler {
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// The flow is application-limited until this many bytes are delivered; 0 if it is not.
    app_limited_until: u64,
    /// Newest segment of the current acknowledgement: time of sending, and the sampler's state
    /// then.
    newest: Option<(Instant, RateAtSending)>,
}

impl RateSampler {
    /// Bytes delivered since the start.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Restarts the intervals: data is sent with nothing in flight.
    pub fn restart(&mut self, now: Instant) {
        self.first_sent = now;
        self.delivered_at = now;
    }

    /// Returns the state to remember for a segment sent now. `in_flight` includes the segment.
    pub const fn at_sending(&self, in_flight: u64, lost: u64) -> RateAtSending {
        RateAtSending {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight,
            lost,
            app_limited: self.is_app_limited(),
        }
    }

    /// Marks the flow as application-limited: the window is open but there is nothing to send.
    pub fn note_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// True if the flow is application-limited.
    pub const fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// Records the first acknowledgement of a segment of `bytes`, sent at `sent_at`.
    pub fn on_delivered(
        &mut self,
        now: Instant,
        bytes: u64,
        sent_at: Instant,
        then: &RateAtSending,
    ) {
        self.delivered += bytes;
        self.delivered_at = now;
        if self.newest.is_none_or(|(at, _)| sent_at >= at) {
            self.newest = Some((sent_at, *then));
        }
    }

    /// Ends an acknowledgement and returns its sample. An interval below the minimum round-trip
    /// time gives none.
    pub fn sample(&mut self, min_rtt: Duration, lost: u64) -> Option<RateSample> {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let (sent_at, then) = self.newest.take()?;
        self.first_sent = sent_at;
        let send_elapsed = sent_at.since(then.first_sent);
        let ack_elapsed = self.delivered_at.since(then.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        if interval < min_rtt || !interval.is_positive() {
            return None;
        }
        let bits = (self.delivered - then.delivered) as f64 * 8.0;
        Some(RateSample {
            rate: Rate::from_bps((bits / interval.as_secs_f64()) as u64),
            interval,
            prior_delivered: Bytes::new(then.delivered),
            app_limited: then.app_limited,
            sent_in_flight: Bytes::new(then.in_flight),
            lost: Bytes::new(lost.saturating_sub(then.lost)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    // Source: the delivery-rate vector of the algorithm reference, §2.7.
    fn sampler() -> RateSampler {
        let mut sampler = RateSampler { delivered: 20_000, ..RateSampler::default() };
        let then = RateAtSending {
            delivered: 20_000,
            delivered_at: at(90),
            first_sent: at(40),
            ..sampler.at_sending(0, 0)
        };
        sampler.on_delivered(at(150), 10_000, at(100), &then);
        sampler
    }

    #[test]
    fn the_rate_is_the_delivered_data_over_the_interval() {
        let sample = sampler().sample(Duration::from_millis(50), 0).unwrap();
        assert_eq!(sample.interval, Duration::from_millis(60));
        assert_eq!(sample.rate.as_bps(), 10_000 * 8 * 1000 / 60);
    }

    #[test]
    fn a_sample_shorter_than_the_minimum_rtt_is_discarded() {
        assert!(sampler().sample(Duration::from_millis(70), 0).is_none());
    }

    #[test]
    fn a_flow_is_app_limited_until_its_flight_has_arrived() {
        let mut sampler = RateSampler::default();
        sampler.note_app_limited(3000);
        assert!(sampler.at_sending(0, 0).app_limited);
        sampler.on_delivered(at(10), 3000, at(0), &RateAtSending::default());
        sampler.sample(Duration::ZERO, 0);
        assert!(sampler.at_sending(0, 0).app_limited);
        sampler.on_delivered(at(11), 1, at(5), &RateAtSending::default());
        sampler.sample(Duration::ZERO, 0);
        assert!(!sampler.at_sending(0, 0).app_limited);
    }
}
