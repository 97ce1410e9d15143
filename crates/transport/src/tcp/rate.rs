//! Delivery rate estimation.
//!
//! Source: draft-ietf-ccwg-bbr §4.1 (delivery rate estimation), as in Linux `tcp_rate.c`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Duration, Instant, Promised, Rate};

use crate::congestion::RateSample;

/// State of the sampler when a packet was sent.
#[derive(Clone, Copy, Debug, Default)]
struct AtSending {
    /// Bytes delivered so far.
    delivered: u64,
    /// Time of the last delivery.
    delivered_at: Instant,
    /// Time of sending of the first packet of the sampled window.
    first_sent: Instant,
    in_flight: u64,
    lost: u64,
    app_limited: bool,
}

/// Delivery rate sampler of one subflow. Its packets are in a queue: those sent are appended, the oldest are removed.
#[derive(Debug)]
pub struct RateSampler {
    delivered: u64,
    /// The flow is application-limited until this many bytes are delivered; 0 if it is not.
    app_limited_until: u64,
    /// `None` if the congestion control reads no rates.
    intervals: Option<Box<Intervals>>,
}

/// Intervals of sending and delivery.
#[derive(Debug, Default)]
struct Intervals {
    delivered_at: Instant,
    first_sent: Instant,
    /// State at the sending of each packet in the queue.
    sent: VecDeque<AtSending>,
    /// Newest packet of the current acknowledgement: time of sending, and the sampler's state
    /// then.
    newest: Option<(Instant, AtSending)>,
}

impl RateSampler {
    /// Creates the sampler of an empty queue. Without `samples`, it counts bytes only.
    pub fn new(samples: bool) -> Self {
        Self {
            delivered: 0,
            app_limited_until: 0,
            intervals: samples.then(|| Box::new(Intervals::default())),
        }
    }

    /// Bytes delivered since the start.
    #[inline]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Restarts the intervals: data is sent with nothing in flight.
    #[inline]
    pub fn restart(&mut self, now: Instant) {
        if let Some(intervals) = &mut self.intervals {
            intervals.first_sent = now;
            intervals.delivered_at = now;
        }
    }

    /// Records that a packet was sent and appended to the queue. `in_flight` includes the packet.
    #[inline]
    pub fn on_sent(&mut self, in_flight: u64, lost: u64) {
        if let Some(now) = self.at_sending(in_flight, lost)
            && let Some(intervals) = &mut self.intervals
        {
            intervals.sent.push_back(now);
        }
    }

    /// Records that the packet at `index` of the queue was sent again.
    #[inline]
    pub fn on_resent(&mut self, index: usize, in_flight: u64, lost: u64) {
        if let Some(now) = self.at_sending(in_flight, lost)
            && let Some(intervals) = &mut self.intervals
            && let Some(then) = intervals.sent.get_mut(index).promised(IN_QUEUE)
        {
            *then = now;
        }
    }

    /// Records that the `count` oldest packets were removed from the queue.
    #[inline]
    pub fn on_removed(&mut self, count: usize) {
        if let Some(intervals) = &mut self.intervals {
            for _ in 0..count {
                intervals.sent.pop_front();
            }
        }
    }

    fn at_sending(&self, in_flight: u64, lost: u64) -> Option<AtSending> {
        let intervals = self.intervals.as_ref()?;
        Some(AtSending {
            delivered: self.delivered,
            delivered_at: intervals.delivered_at,
            first_sent: intervals.first_sent,
            in_flight,
            lost,
            app_limited: self.is_app_limited(),
        })
    }

    /// Marks the flow as application-limited: the window is open but there is nothing to send.
    #[inline]
    pub fn note_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// True if the flow is application-limited.
    #[inline]
    pub const fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// Records the first acknowledgement of the packet at `index` of the queue, of `bytes` and sent at `sent_at`.
    #[inline]
    pub fn on_delivered(&mut self, now: Instant, index: usize, bytes: u64, sent_at: Instant) {
        self.delivered += bytes;
        if let Some(intervals) = &mut self.intervals {
            intervals.on_delivered(now, index, sent_at);
        }
    }

    /// Ends an acknowledgement and returns its sample. An interval below the minimum round-trip
    /// time gives none.
    #[inline]
    pub fn sample(&mut self, min_rtt: Duration, lost: u64) -> Option<RateSample> {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        self.intervals.as_mut()?.sample(self.delivered, min_rtt, lost)
    }
}

const IN_QUEUE: &str = "the state at the sending of a packet in the queue";

impl Intervals {
    fn on_delivered(&mut self, now: Instant, index: usize, sent_at: Instant) {
        self.delivered_at = now;
        if self.newest.is_none_or(|(at, _)| sent_at >= at)
            && let Some(then) = self.sent.get(index).promised(IN_QUEUE)
        {
            self.newest = Some((sent_at, *then));
        }
    }

    fn sample(&mut self, delivered: u64, min_rtt: Duration, lost: u64) -> Option<RateSample> {
        let (sent_at, then) = self.newest.take()?;
        self.first_sent = sent_at;
        let send_elapsed = sent_at.since(then.first_sent);
        let ack_elapsed = self.delivered_at.since(then.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        if interval < min_rtt || !interval.is_positive() {
            return None;
        }
        let bits = (delivered - then.delivered) as f64 * 8.0;
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
        let mut sampler = RateSampler { delivered: 20_000, ..RateSampler::new(true) };
        let intervals = sampler.intervals.as_mut().unwrap();
        (intervals.delivered_at, intervals.first_sent) = (at(90), at(40));
        sampler.on_sent(0, 0);
        sampler.on_delivered(at(150), 0, 10_000, at(100));
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
        for samples in [false, true] {
            let mut sampler = RateSampler::new(samples);
            sampler.note_app_limited(3000);
            assert!(sampler.is_app_limited());
            (0..2).for_each(|_| sampler.on_sent(3000, 0));
            sampler.on_delivered(at(10), 0, 3000, at(0));
            let sample = sampler.sample(Duration::ZERO, 0);
            assert_eq!(sample.map(|sample| sample.app_limited), samples.then_some(true));
            assert!(sampler.is_app_limited());
            sampler.on_delivered(at(11), 1, 1, at(5));
            sampler.sample(Duration::ZERO, 0);
            assert!(!sampler.is_app_limited());
        }
    }
}
