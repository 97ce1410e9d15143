//! Delivery rate samples: how fast the network delivers.
//!
//! Source: draft-ietf-ccwg-bbr §4.1 (delivery rate estimation), as in Linux `tcp_rate.c`.

use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::congestion::RateSample;

/// What is remembered of the moment in which a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// Bytes delivered until then.
    delivered: u64,
    /// When the last of them was.
    delivered_at: Instant,
    /// When the first segment of the sampled flight was sent.
    first_sent: Instant,
    in_flight: u64,
    lost: u64,
    app_limited: bool,
}

/// The sampler of one subflow.
#[derive(Debug, Default)]
pub struct RateSampler {
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// The flow counts as limited by the application until this much has been delivered; 0 for not.
    app_limited_until: u64,
    /// The newest segment of the acknowledgement in progress: when it was sent, and what was so then.
    newest: Option<(Instant, Sending)>,
}

impl RateSampler {
    /// Bytes delivered since the start.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Data leaves after a time in which nothing was in flight.
    pub fn restart(&mut self, now: Instant) {
        self.first_sent = now;
        self.delivered_at = now;
    }

    /// What a segment remembers that leaves now. `in_flight` includes it.
    pub const fn sending(&self, in_flight: u64, lost: u64) -> Sending {
        Sending {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight,
            lost,
            app_limited: self.is_app_limited(),
        }
    }

    /// The application has nothing to send although the window is open.
    pub fn note_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// The flow counts as limited by the application.
    pub const fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// A segment of `bytes`, sent at `sent_at`, is acknowledged for the first time.
    pub fn arrived(&mut self, now: Instant, bytes: u64, sent_at: Instant, sending: &Sending) {
        self.delivered += bytes;
        self.delivered_at = now;
        if self.newest.is_none_or(|(at, _)| sent_at >= at) {
            self.newest = Some((sent_at, *sending));
        }
    }

    /// Ends an acknowledgement. A sample over less than the least round-trip time says nothing and is
    /// left out.
    pub fn sample(&mut self, least_rtt: Duration, lost: u64) -> Option<RateSample> {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let (sent_at, sending) = self.newest.take()?;
        self.first_sent = sent_at;
        let send_elapsed = sent_at.since(sending.first_sent);
        let ack_elapsed = self.delivered_at.since(sending.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        if interval < least_rtt || !interval.is_positive() {
            return None;
        }
        let bits = (self.delivered - sending.delivered) as f64 * 8.0;
        Some(RateSample {
            rate: Rate::from_bps((bits / interval.as_secs_f64()) as u64),
            interval,
            prior_delivered: Bytes::new(sending.delivered),
            app_limited: sending.app_limited,
            sent_in_flight: Bytes::new(sending.in_flight),
            lost: Bytes::new(lost.saturating_sub(sending.lost)),
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
        let sending = Sending {
            delivered: 20_000,
            delivered_at: at(90),
            first_sent: at(40),
            ..sampler.sending(0, 0)
        };
        sampler.arrived(at(150), 10_000, at(100), &sending);
        sampler
    }

    #[test]
    fn ten_packets_in_sixty_milliseconds_are_166_packets_a_second() {
        let sample = sampler().sample(Duration::from_millis(50), 0).unwrap();
        assert_eq!(sample.interval, Duration::from_millis(60));
        assert_eq!(sample.rate.as_bps(), 10_000 * 8 * 1000 / 60);
    }

    #[test]
    fn a_sample_shorter_than_the_least_round_trip_time_is_discarded() {
        assert!(sampler().sample(Duration::from_millis(70), 0).is_none());
    }

    #[test]
    fn a_flow_counts_as_limited_by_its_application_until_what_was_in_flight_has_arrived() {
        let mut sampler = RateSampler::default();
        sampler.note_app_limited(3000);
        assert!(sampler.sending(0, 0).app_limited);
        sampler.arrived(at(10), 3000, at(0), &Sending::default());
        sampler.sample(Duration::ZERO, 0);
        assert!(sampler.sending(0, 0).app_limited);
        sampler.arrived(at(11), 1, at(5), &Sending::default());
        sampler.sample(Duration::ZERO, 0);
        assert!(!sampler.sending(0, 0).app_limited);
    }
}
