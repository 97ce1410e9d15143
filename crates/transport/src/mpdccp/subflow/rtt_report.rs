//! Round-trip times that a sender reports to its peer, whose reordering uses them.
//!
//! Source: RFC 9897 §3.2.7 (MP_RTT).

use skybraid_units::{Duration, Instant};

use crate::reordering::RttKind;
use crate::rtt::RttEstimator;

/// Reports of one subflow: one per round trip.
#[derive(Debug)]
pub struct RttReport {
    /// Kind of round-trip time to report; none if the peer wants none.
    kind: Option<RttKind>,
    next: Instant,
    last: Duration,
    max: Duration,
}

impl RttReport {
    /// Creates the state before the first sample.
    pub const fn new(kind: Option<RttKind>) -> Self {
        Self { kind, next: Instant::ZERO, last: Duration::ZERO, max: Duration::ZERO }
    }

    /// Records a sample.
    #[inline]
    pub fn on_sample(&mut self, rtt: Duration) {
        self.last = rtt;
        self.max = self.max.max(rtt);
    }

    /// Returns the microseconds to report with a packet of data; 0 for no report.
    #[inline]
    pub fn take(&mut self, now: Instant, estimator: &RttEstimator) -> u32 {
        let Some(kind) = self.kind.filter(|_| now >= self.next) else { return 0 };
        let srtt = estimator.srtt().unwrap_or(Duration::ZERO);
        let rtt = match kind {
            RttKind::Raw => self.last,
            RttKind::Min => estimator.min_rtt().unwrap_or(Duration::ZERO),
            RttKind::Max => self.max,
            RttKind::Smoothed => srtt,
        };
        let micros = u32::try_from(rtt.as_nanos() / 1000).unwrap_or(0);
        if micros > 0 {
            self.next = now + srtt;
        }
        micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::RtoRule;

    #[test]
    fn each_kind_is_reported_once_per_round_trip() {
        let ms = Duration::from_millis;
        let mut estimator = RttEstimator::new(RtoRule::Rfc6298, ms(200), ms(60_000));
        let samples = [40, 80, 48].map(ms);
        samples.iter().for_each(|rtt| estimator.on_sample(*rtt, true));
        let kinds = [RttKind::Raw, RttKind::Min, RttKind::Max, RttKind::Smoothed];
        let reports = kinds.map(|kind| {
            let mut report = RttReport::new(Some(kind));
            assert_eq!(RttReport::new(Some(RttKind::Max)).take(Instant::ZERO, &estimator), 0);
            samples.iter().for_each(|rtt| report.on_sample(*rtt));
            let first = report.take(Instant::ZERO, &estimator);
            assert_eq!(report.take(Instant::from_millis(45), &estimator), 0);
            assert_eq!(report.take(Instant::from_millis(46), &estimator), first);
            first
        });
        // 40 + (80 - 40) / 8 = 45 ms, then 45 + (48 - 45) / 8.
        assert_eq!(reports, [48_000, 40_000, 80_000, 45_375]);
        assert_eq!(RttReport::new(None).take(Instant::ZERO, &estimator), 0);
    }
}
