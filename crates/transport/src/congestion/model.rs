//! What congestion controls measure that model their path: the largest bandwidth and the least
//! round-trip time of a window, rounds, and how acknowledgements clump.
//!
//! Source: draft-cardwell-iccrg-bbr-congestion-control-00 §4.1; draft-ietf-ccwg-bbr-06 §5.5.

use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Duration, Instant, Rate};

/// The largest value of the last so many ticks of some counter.
#[derive(Debug)]
pub(super) struct MaxFilter<T> {
    /// Ticks and values, the values falling: each may still become the largest.
    kept: VecDeque<(u64, T)>,
}

impl<T: Copy + PartialOrd + Default> MaxFilter<T> {
    pub(super) const fn new() -> Self {
        Self { kept: VecDeque::new() }
    }

    /// Takes a value in. Values of `window` ticks count, this one included.
    pub(super) fn update(&mut self, tick: u64, value: T, window: u64) {
        while self.kept.back().is_some_and(|(_, smaller)| *smaller <= value) {
            self.kept.pop_back();
        }
        self.kept.push_back((tick, value));
        while self.kept.front().is_some_and(|(at, _)| at + window <= tick) {
            self.kept.pop_front();
        }
    }

    /// The largest value; the default without any.
    pub(super) fn max(&self) -> T {
        self.kept.front().map_or(T::default(), |(_, value)| *value)
    }
}

/// The least round-trip time, forgotten when it has not been reached again for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinRtt {
    pub(super) value: Option<Duration>,
    /// When it was measured.
    pub(super) at: Instant,
}

impl MinRtt {
    /// Nothing that low has been measured for longer than `window`.
    pub(super) fn has_expired(&self, now: Instant, window: Duration) -> bool {
        self.value.is_some() && now > self.at + window
    }

    /// Takes a sample in. Answers whether the old value had expired.
    ///
    /// Only a lower sample refreshes it, as in later Linux: an equal one would put off measuring
    /// for ever on a path of constant delay.
    pub(super) fn update(&mut self, now: Instant, rtt: Option<Duration>, window: Duration) -> bool {
        let expired = self.has_expired(now, window);
        if let Some(rtt) = rtt
            && (expired || self.value.is_none_or(|least| rtt < least))
        {
            *self = Self { value: Some(rtt), at: now };
        }
        expired
    }
}

/// Round trips counted by packets: one is over when something is acknowledged that was sent after
/// the last one ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    pub(super) count: u64,
    /// The acknowledgement in hand ended a round.
    pub(super) started: bool,
    next_delivered: Bytes,
}

impl Rounds {
    /// An acknowledgement came for a segment that was sent when `prior` had been delivered; now
    /// `delivered` has been.
    pub(super) fn update(&mut self, prior: Bytes, delivered: Bytes) {
        self.started = prior >= self.next_delivered;
        if self.started {
            self.count += 1;
            self.restart(delivered);
        }
    }

    /// A round begins now.
    pub(super) fn restart(&mut self, delivered: Bytes) {
        self.next_delivered = delivered;
    }
}

/// The stretch of data that was sent while the control itself held the flow down, so that its
/// delivery rates count as limited by the application.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lull {
    span: Option<(Bytes, Bytes)>,
}

impl Lull {
    /// The flow is held down now.
    pub(super) fn note(&mut self, delivered: Bytes, in_flight: Bytes) {
        let from =
            self.span.filter(|(_, end)| *end >= delivered).map_or(delivered, |(from, _)| from);
        self.span = Some((from, delivered + in_flight));
    }

    /// A segment was sent during the lull: that much had been delivered then.
    pub(super) fn covers(&self, prior_delivered: Bytes) -> bool {
        self.span.is_some_and(|(from, end)| (from..=end).contains(&prior_delivered))
    }
}

/// Acknowledgements beyond what the bandwidth explains (`extra_acked`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    since: Instant,
    acked: Bytes,
}

impl Aggregation {
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { since: now, acked: Bytes::ZERO };
    }

    /// Takes `acked` bytes in. Answers how much has come in excess of `bandwidth` since it last
    /// fell short of it. `most` acknowledged bytes begin the count anew.
    pub(super) fn update(
        &mut self,
        now: Instant,
        acked: Bytes,
        bandwidth: Rate,
        most: Bytes,
    ) -> Bytes {
        let expected = Bytes::new(bandwidth.bits_in(now.since(self.since)) / 8);
        if self.acked <= expected || self.acked + acked >= most {
            self.restart(now);
            self.acked += acked;
            return self.acked;
        }
        self.acked += acked;
        self.acked - expected
    }
}

/// `gain` bandwidth-delay products in bytes.
pub(super) fn bdp(bandwidth: Rate, rtt: Duration, gain: f64) -> f64 {
    gain * bandwidth.as_bps() as f64 / 8.0 * rtt.as_secs_f64()
}

/// `gain` times a rate.
pub(super) fn times(rate: Rate, gain: f64) -> Rate {
    Rate::from_bps((rate.as_bps() as f64 * gain) as u64)
}

/// The pace before anything is known of the bandwidth: `gain` windows in a round-trip time, which
/// counts as 1 ms as long as it is unknown.
pub(super) fn initial_pace(window: u64, rtt: Option<Duration>, gain: f64) -> Rate {
    let rtt = rtt.filter(|rtt| rtt.is_positive()).unwrap_or(Duration::from_millis(1));
    Rate::from_bps((gain * window as f64 * 8.0 / rtt.as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_forgotten_after_its_window() {
        let mut filter = MaxFilter::new();
        let largest: [u64; 7] = [9, 3, 5, 1, 1, 1, 1].map({
            let mut tick = 0;
            move |value| {
                tick += 1;
                filter.update(tick, value, 3);
                filter.max()
            }
        });
        assert_eq!(largest, [9, 9, 9, 5, 5, 1, 1]);
    }

    #[test]
    fn a_higher_round_trip_time_counts_only_once_the_least_has_expired() {
        let (mut filter, window) = (MinRtt::default(), Duration::from_secs(10));
        let mut after = |ms, rtt| {
            let rtt = Some(Duration::from_millis(rtt));
            let expired = filter.update(Instant::from_millis(ms), rtt, window);
            (expired, filter.value.unwrap().as_millis_f64())
        };
        assert_eq!(after(0, 50), (false, 50.0));
        assert_eq!(after(9_000, 60), (false, 50.0));
        assert_eq!(after(9_500, 50), (false, 50.0));
        assert_eq!(after(10_001, 60), (true, 60.0));
    }

    #[test]
    fn what_comes_faster_than_the_bandwidth_is_extra() {
        let mut clump = Aggregation::default();
        let bandwidth = Rate::from_mbps(8.0);
        let mut after = |ms, bytes| {
            let at = Instant::from_millis(ms);
            clump.update(at, Bytes::new(bytes), bandwidth, Bytes::new(u64::MAX)).get()
        };
        // 1000 bytes in a millisecond are expected.
        assert_eq!(after(10, 4000), 4000);
        assert_eq!(after(11, 4000), 7000);
        assert_eq!(after(12, 0), 6000);
        assert_eq!(after(18, 1000), 1000);
    }

    #[test]
    fn a_lull_covers_what_was_sent_from_its_first_note_until_its_last_flight_has_arrived() {
        let mut lull = Lull::default();
        lull.note(Bytes::new(100), Bytes::new(10));
        lull.note(Bytes::new(105), Bytes::new(10));
        let covered = [0, 99, 100, 115, 116].map(|prior| lull.covers(Bytes::new(prior)));
        assert_eq!(covered, [false, false, true, true, false]);
    }
}
