//! Path model of rate-based controls: maximum bandwidth and minimum round-trip time over a window,
//! rounds, and aggregation of acknowledgements.
//!
//! Source: draft-cardwell-iccrg-bbr-congestion-control-00 §4.1; draft-ietf-ccwg-bbr-06 §5.5.

use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Duration, Instant, Rate};

/// Maximum filter over a window of ticks.
#[derive(Debug)]
pub(super) struct MaxFilter<T> {
    /// Ticks and values in descending order of values: each may still become the maximum.
    kept: VecDeque<(u64, T)>,
}

impl<T: Copy + PartialOrd + Default> MaxFilter<T> {
    pub(super) const fn new() -> Self {
        Self { kept: VecDeque::new() }
    }

    /// Adds a value. The filter covers `window` ticks, this one included.
    pub(super) fn update(&mut self, tick: u64, value: T, window: u64) {
        while self.kept.back().is_some_and(|(_, smaller)| *smaller <= value) {
            self.kept.pop_back();
        }
        self.kept.push_back((tick, value));
        while self.kept.front().is_some_and(|(at, _)| at + window <= tick) {
            self.kept.pop_front();
        }
    }

    /// Maximum in the window; the default without a value.
    pub(super) fn max(&self) -> T {
        self.kept.front().map_or(T::default(), |(_, value)| *value)
    }
}

/// Minimum filter of the round-trip time with a limited age.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinRtt {
    pub(super) value: Option<Duration>,
    /// Time of the measurement.
    pub(super) at: Instant,
}

impl MinRtt {
    /// True if no sample was as low for longer than `window`.
    pub(super) fn has_expired(&self, now: Instant, window: Duration) -> bool {
        self.value.is_some() && now > self.at + window
    }

    /// Adds a sample. Returns true if the old value had expired.
    ///
    /// Only a lower sample refreshes the value, as in later Linux: an equal one would postpone the
    /// measurement forever on a path with constant delay.
    pub(super) fn update(&mut self, now: Instant, rtt: Option<Duration>, window: Duration) -> bool {
        let expired = self.has_expired(now, window);
        if let Some(rtt) = rtt
            && (expired || self.value.is_none_or(|min| rtt < min))
        {
            *self = Self { value: Some(rtt), at: now };
        }
        expired
    }
}

/// Round counter: a round ends when a segment sent after the end of the previous one is
/// acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    pub(super) count: u64,
    /// True if the current acknowledgement ended a round.
    pub(super) started: bool,
    next_delivered: Bytes,
}

impl Rounds {
    /// Processes the acknowledgement of a segment that was sent when `prior` bytes were delivered;
    /// now `delivered` are.
    pub(super) fn update(&mut self, prior: Bytes, delivered: Bytes) {
        self.started = prior >= self.next_delivered;
        if self.started {
            self.count += 1;
            self.restart(delivered);
        }
    }

    /// Starts a new round.
    pub(super) fn restart(&mut self, delivered: Bytes) {
        self.next_delivered = delivered;
    }
}

/// Range of data sent while the control itself limited the flow: its delivery rates count as
/// application-limited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lull {
    span: Option<(Bytes, Bytes)>,
}

impl Lull {
    /// Extends the range by the data in flight.
    pub(super) fn extend(&mut self, delivered: Bytes, in_flight: Bytes) {
        let from =
            self.span.filter(|(_, end)| *end >= delivered).map_or(delivered, |(from, _)| from);
        self.span = Some((from, delivered + in_flight));
    }

    /// True if the segment that was sent when `prior_delivered` bytes were delivered is in the
    /// range.
    pub(super) fn covers(&self, prior_delivered: Bytes) -> bool {
        self.span.is_some_and(|(from, end)| (from..=end).contains(&prior_delivered))
    }
}

/// Acknowledged data in excess of the bandwidth (`extra_acked`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    since: Instant,
    acked: Bytes,
}

impl Aggregation {
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { since: now, acked: Bytes::ZERO };
    }

    /// Adds `acked` bytes. Returns the bytes in excess of `bandwidth` since the excess was last
    /// zero. The count restarts at `max` acknowledged bytes.
    pub(super) fn update(
        &mut self,
        now: Instant,
        acked: Bytes,
        bandwidth: Rate,
        max: Bytes,
    ) -> Bytes {
        let expected = Bytes::new(bandwidth.bits_in(now.since(self.since)) / 8);
        if self.acked <= expected || self.acked + acked >= max {
            self.restart(now);
            self.acked += acked;
            return self.acked;
        }
        self.acked += acked;
        self.acked - expected
    }
}

/// Returns `gain` bandwidth-delay products in bytes.
pub(super) fn bdp(bandwidth: Rate, rtt: Duration, gain: f64) -> f64 {
    gain * bandwidth.as_bps() as f64 / 8.0 * rtt.as_secs_f64()
}

/// Returns `gain` times a rate.
pub(super) fn times(rate: Rate, gain: f64) -> Rate {
    Rate::from_bps((rate.as_bps() as f64 * gain) as u64)
}

/// Initial pacing rate: `gain` windows per round-trip time, or per 1 ms without a sample.
pub(super) fn initial_pace(window: u64, rtt: Option<Duration>, gain: f64) -> Rate {
    let rtt = rtt.filter(|rtt| rtt.is_positive()).unwrap_or(Duration::from_millis(1));
    Rate::from_bps((gain * window as f64 * 8.0 / rtt.as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_expires_after_its_window() {
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
    fn a_higher_rtt_counts_only_once_the_minimum_has_expired() {
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
    fn data_acknowledged_above_the_bandwidth_is_extra() {
        let mut clump = Aggregation::default();
        let bandwidth = Rate::from_mbps(8.0);
        let mut after = |ms, bytes| {
            let at = Instant::from_millis(ms);
            clump.update(at, Bytes::new(bytes), bandwidth, Bytes::new(u64::MAX)).get()
        };
        // 1000 bytes are expected per millisecond.
        assert_eq!(after(10, 4000), 4000);
        assert_eq!(after(11, 4000), 7000);
        assert_eq!(after(12, 0), 6000);
        assert_eq!(after(18, 1000), 1000);
    }

    #[test]
    fn a_lull_covers_the_data_sent_during_it() {
        let mut lull = Lull::default();
        lull.extend(Bytes::new(100), Bytes::new(10));
        lull.extend(Bytes::new(105), Bytes::new(10));
        let covered = [0, 99, 100, 115, 116].map(|prior| lull.covers(Bytes::new(prior)));
        assert_eq!(covered, [false, false, true, true, false]);
    }
}
