//! Round-trip time estimation and the retransmission timeout.
//!
//! Source: RFC 6298; Linux `tcp_rtt_estimator` and `tcp_set_rto` (generation 4.14); ns-3.19 `RttMeanDeviation`.

use skybraid_units::Duration;

/// Rule that derives the retransmission timeout from the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RtoRule {
    /// `max(minimum, SRTT + 4·RTTVAR)` (RFC 6298 §2).
    Rfc6298,
    /// `SRTT + max(minimum, 4·deviation)`: follows a falling round-trip time slowly.
    #[default]
    Linux,
    /// That of ns-3 until release 3.20: as RFC 6298, with gains of 1/10, a first deviation of a whole sample, whole
    /// milliseconds rounded down, and a back-off that only a sample ends.
    Ns3,
}

/// Estimator of the smoothed round-trip time, its deviation and the timeout with back-off.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    rule: RtoRule,
    minimum: Duration,
    maximum: Duration,
    srtt: Option<Duration>,
    min_rtt: Option<Duration>,
    deviation: Duration,
    /// Linux's `rttvar` (four deviations, floored) and its maximum within the window, both in ns.
    linux_margin: i64,
    linux_window_max: i64,
    backoff: u32,
    initial: Duration,
}

/// Timeout before the first sample (RFC 6298 §2.1; `TCP_TIMEOUT_INIT`).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout before the first sample if the handshake was retransmitted: the round-trip time may
/// exceed one second (RFC 6298 §5.7; `TCP_TIMEOUT_FALLBACK`).
const FALLBACK_TIMEOUT: Duration = Duration::from_secs(3);

impl RttEstimator {
    /// Creates an estimator without samples. `rule` determines what `minimum` bounds; `maximum`
    /// bounds the timeout from above.
    pub fn new(rule: RtoRule, minimum: Duration, maximum: Duration) -> Self {
        Self {
            rule,
            minimum,
            maximum,
            srtt: None,
            min_rtt: None,
            deviation: Duration::ZERO,
            linux_margin: 0,
            linux_window_max: 0,
            backoff: 0,
            initial: INITIAL_TIMEOUT,
        }
    }

    /// Adds a sample. `new_window` is true if all data outstanding at the last such call has been
    /// acknowledged since; only then does Linux shrink its margin.
    pub fn on_sample(&mut self, rtt: Duration, new_window: bool) {
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        if self.rule == RtoRule::Ns3 {
            return self.on_ns3_sample(rtt);
        }
        let floor = self.minimum.as_nanos();
        let Some(srtt) = self.srtt else {
            self.srtt = Some(rtt);
            self.deviation = rtt / 2;
            self.linux_margin = (rtt.as_nanos() * 2).max(floor);
            self.linux_window_max = self.linux_margin;
            return;
        };
        let error = (rtt - srtt).as_nanos();
        let deviation = self.deviation.as_nanos();
        let mut change = error.abs() - deviation;
        // A falling round-trip time must not raise the timeout: Linux divides the excess by eight.
        if self.rule == RtoRule::Linux && error < 0 && change > 0 {
            change /= 8;
        }
        self.deviation = Duration::from_nanos(deviation + change / 4);
        self.srtt = Some(srtt + Duration::from_nanos(error / 8));
        let four = self.deviation.as_nanos() * 4;
        if four > self.linux_window_max {
            self.linux_window_max = four;
            self.linux_margin = self.linux_margin.max(four);
        }
        if new_window {
            if self.linux_window_max < self.linux_margin {
                self.linux_margin -= (self.linux_margin - self.linux_window_max) / 4;
            }
            self.linux_window_max = floor;
        }
    }

    fn on_ns3_sample(&mut self, rtt: Duration) {
        self.backoff = 0;
        let Some(srtt) = self.srtt else {
            (self.srtt, self.deviation) = (Some(rtt), rtt);
            return;
        };
        let error = rtt - srtt;
        self.srtt = Some(srtt + error / 10);
        let distance = Duration::from_nanos(error.as_nanos().abs());
        self.deviation = self.deviation + (distance - self.deviation) / 10;
    }

    /// Smoothed round-trip time; `None` before the first sample.
    pub const fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Lowest sample; `None` before the first.
    pub const fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Deviation (RTTVAR); zero before the first sample.
    pub const fn deviation(&self) -> Duration {
        self.deviation
    }

    /// Retransmission timeout, back-off included.
    pub fn timeout(&self) -> Duration {
        let base = match (self.srtt, self.rule) {
            (None, _) => self.initial,
            (Some(srtt), RtoRule::Rfc6298) => (srtt + self.deviation * 4).max(self.minimum),
            (Some(srtt), RtoRule::Linux) => {
                srtt + Duration::from_nanos(self.linux_margin.max(self.minimum.as_nanos()))
            }
            (Some(srtt), RtoRule::Ns3) => {
                let whole = |time: Duration| time.as_nanos() / 1_000_000;
                Duration::from_millis(whole(srtt) + 4 * whole(self.deviation)).max(self.minimum)
            }
        };
        (base * (1_i64 << self.backoff.min(32))).min(self.maximum)
    }

    /// Doubles the timeout after an expiry (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(32);
    }

    /// Switches to the fallback timeout: the handshake was retransmitted and gave no sample.
    pub fn fall_back(&mut self) {
        self.initial = FALLBACK_TIMEOUT;
    }

    /// Ends the back-off after new data has been acknowledged; with ns-3's rule a sample does.
    pub fn end_back_off(&mut self) {
        if self.rule != RtoRule::Ns3 {
            self.backoff = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    // Source: RFC 6298 §5.7.
    #[test]
    fn a_repeated_handshake_raises_the_first_timeout_to_3_s() {
        let mut rtt =
            RttEstimator::new(RtoRule::Rfc6298, Duration::from_secs(1), Duration::from_secs(120));
        rtt.back_off();
        rtt.fall_back();
        rtt.end_back_off();
        assert_eq!(rtt.timeout(), Duration::from_secs(3));
        rtt.on_sample(Duration::from_millis(1180), false);
        assert_eq!(rtt.timeout(), Duration::from_millis(3540));
    }

    fn timeouts(rule: RtoRule, minimum_ms: i64, samples_ms: [i64; 3]) -> Vec<f64> {
        let minimum = Duration::from_millis(minimum_ms);
        let mut rtt = RttEstimator::new(rule, minimum, Duration::from_secs(120));
        samples_ms
            .iter()
            .map(|ms| {
                rtt.on_sample(Duration::from_millis(*ms), false);
                rtt.timeout().as_millis_f64()
            })
            .collect()
    }

    // Source: the vectors of RFC 6298 and Linux, computed by hand in the algorithm reference, §1.4.
    #[test]
    fn the_rfc_6298_timeout_follows_its_equations() {
        assert_eq!(timeouts(RtoRule::Rfc6298, 0, [100, 120, 80]), [300.0, 272.5, 249.6875]);
        assert_eq!(timeouts(RtoRule::Rfc6298, 0, [20, 20, 20]), [60.0, 50.0, 42.5]);
    }

    #[test]
    fn the_rfc_rounds_up_to_one_second() {
        assert_eq!(timeouts(RtoRule::Rfc6298, 1000, [100, 120, 80]), [1000.0; 3]);
    }

    // The reference's third value, 299.75, comes from arithmetic in whole milliseconds; Linux uses
    // microseconds, which gives 299.6875.
    #[test]
    fn linux_adds_at_least_the_minimum_to_the_smoothed_time() {
        assert_eq!(timeouts(RtoRule::Linux, 200, [100, 120, 80]), [300.0, 302.5, 299.6875]);
        assert_eq!(timeouts(RtoRule::Linux, 200, [20, 20, 20]), [220.0; 3]);
    }

    // Source: ns-3.19 `RttMeanDeviation` and `RttEstimator::AckSeq`: 1180 + 4 · 1180, then a deviation of 9/10 + 2/10.
    #[test]
    fn ns3_counts_whole_milliseconds_and_backs_off_until_a_sample() {
        let us = Duration::from_micros;
        let mut rtt =
            RttEstimator::new(RtoRule::Ns3, Duration::from_millis(200), Duration::from_secs(60));
        rtt.on_sample(us(1_180_900), false);
        assert_eq!(rtt.timeout(), Duration::from_millis(1180 + 4 * 1180));
        rtt.back_off();
        rtt.end_back_off();
        assert_eq!(rtt.timeout(), Duration::from_millis(2 * 5 * 1180));
        rtt.on_sample(us(1_200_900), false);
        assert_eq!(rtt.timeout(), Duration::from_millis(1182 + 4 * 1064));
        for _ in 0..200 {
            rtt.on_sample(us(1_180_900), false);
        }
        assert_eq!(rtt.timeout(), Duration::from_millis(1180), "less than a round trip");
    }

    #[test]
    fn back_off_doubles_up_to_the_maximum_and_ends_with_progress() {
        let mut rtt =
            RttEstimator::new(RtoRule::Rfc6298, Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
        for _ in 0..10 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), Duration::from_secs(60));
        rtt.end_back_off();
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
    }
}
