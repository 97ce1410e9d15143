//! Receiver side of rate control: reports of packet arrivals.
//!
//! Source: RFC 8888 §3.1 (one status for each packet of a range without gaps);
//! draft-ietf-rmcat-gcc-02 §3 and RFC 8298 §4.2.2 (report interval).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

use super::{Arrival, Report};

/// Maximum number of packets of one stream in a report (RFC 8888 §3.1).
const MAX_PACKETS: u64 = 16_384;

/// Collects arrivals and reports them at an interval.
///
/// A report starts at the first packet not yet reported, or at a late packet that was reported missing, and ends at the
/// last arrival. Of a longer range than one report holds, the next reports follow at once. Without arrivals there is no
/// report; the first arrival after a silence is reported at once. On the wire, arrival times are rounded to 1/1024 s
/// before the report (RFC 8888 §3.1); here they are exact.
#[derive(Clone, Debug)]
pub struct Reporter {
    interval: Duration,
    /// Arrival times of the packets from `first` on, as far back as a late packet may still arrive.
    arrivals: VecDeque<Option<Instant>>,
    first: u64,
    /// First packet of the next report.
    begin: u64,
    due: Instant,
    /// Earliest time of the next report.
    earliest: Instant,
    report: Vec<Arrival>,
}

impl Reporter {
    /// Default report interval: 50 ms, between the 20 ms that RFC 8298 §4.2.2 prefers at high rates and the
    /// 100 ms that §3 of the Google draft allows at most.
    pub const INTERVAL: Duration = Duration::from_millis(50);

    /// Creates a reporter with the given interval. The first packet has number `first`.
    pub const fn new(interval: Duration, first: u64) -> Self {
        Self {
            interval,
            arrivals: VecDeque::new(),
            first,
            begin: first,
            due: Instant::FAR_FUTURE,
            earliest: Instant::from_nanos(i64::MIN),
            report: Vec::new(),
        }
    }

    /// Records the arrival of a packet. A duplicate, or a packet that is too late for any report, is ignored.
    pub fn on_received(&mut self, now: Instant, number: u64) {
        let Some(index) = number.checked_sub(self.first) else { return };
        // A leap of numbers would otherwise make a report of any length.
        if index >= 4 * MAX_PACKETS {
            self.arrivals.clear();
            self.first = number;
            self.begin = number;
        }
        let index = (number - self.first) as usize;
        if index >= self.arrivals.len() {
            self.arrivals.resize(index + 1, None);
        }
        let slot = self.arrivals.get_mut(index).promised("a slot for the arrival");
        let Some(slot @ None) = slot else { return };
        *slot = Some(now);
        self.begin = self.begin.min(number);
        if self.due == Instant::FAR_FUTURE {
            self.due = self.earliest.max(now);
        }
    }

    /// Returns the time of the next report; [`Instant::FAR_FUTURE`] while nothing new has arrived.
    pub const fn next_wakeup(&self) -> Instant {
        self.due
    }

    /// Returns the report that is due by `now`, if any.
    pub fn report(&mut self, now: Instant) -> Option<Report<'_>> {
        if now < self.due {
            return None;
        }
        let newest = self.first.saturating_add(self.arrivals.len() as u64);
        let begin = self.begin;
        let end = newest.min(begin.saturating_add(MAX_PACKETS));
        let skip = (begin - self.first) as usize;
        self.report.clear();
        self.report.extend(
            (begin..end)
                .zip(self.arrivals.iter().skip(skip))
                .map(|(number, at)| Arrival { number, at: *at }),
        );
        self.begin = end;
        if end == newest {
            self.due = Instant::FAR_FUTURE;
            self.earliest = now + self.interval;
        }
        let kept = end.saturating_sub(MAX_PACKETS);
        while self.first < kept && self.arrivals.pop_front().is_some() {
            self.first += 1;
        }
        Some(Report { reported: now, arrivals: &self.report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    fn reported(reporter: &mut Reporter, now: Instant) -> Vec<(u64, Option<Instant>)> {
        let report = reporter.report(now).unwrap();
        assert_eq!(report.reported, now);
        report.arrivals.iter().map(|arrival| (arrival.number, arrival.at)).collect()
    }

    #[test]
    fn a_late_packet_is_reported_again_with_all_after_it() {
        let mut reporter = Reporter::new(Reporter::INTERVAL, 7);
        assert_eq!(reporter.next_wakeup(), Instant::FAR_FUTURE);
        reporter.on_received(ms(10), 7);
        assert_eq!(reported(&mut reporter, ms(10)), [(7, Some(ms(10)))]);
        reporter.on_received(ms(11), 8);
        reporter.on_received(ms(12), 10);
        assert_eq!(reporter.next_wakeup(), ms(60));
        assert!(reporter.report(ms(59)).is_none());
        assert_eq!(
            reported(&mut reporter, ms(60)),
            [(8, Some(ms(11))), (9, None), (10, Some(ms(12)))]
        );
        assert!(reporter.report(ms(200)).is_none());
        reporter.on_received(ms(201), 9);
        reporter.on_received(ms(201), 8);
        assert_eq!(reported(&mut reporter, ms(201)), [(9, Some(ms(201))), (10, Some(ms(12)))]);
    }

    #[test]
    fn a_leap_of_numbers_never_makes_too_long_a_report() {
        let mut reporter = Reporter::new(Reporter::INTERVAL, 0);
        for number in [0, MAX_PACKETS + 9, 1 << 40, (1 << 40) + MAX_PACKETS, 3] {
            reporter.on_received(ms(1), number);
            let report = reporter.report(ms(1_000)).map_or(0, |report| report.arrivals.len());
            assert!(report as u64 <= MAX_PACKETS);
        }
    }

    // Source: RFC 8888 §3.1: a report has a status for each packet of a range without gaps, at most 16,384;
    // longer ranges take several reports.
    #[test]
    fn every_packet_of_a_long_gap_is_reported_once() {
        for gap in [MAX_PACKETS - 1, MAX_PACKETS, MAX_PACKETS + 1, 40_000, 4 * MAX_PACKETS - 2] {
            let mut reporter = Reporter::new(Reporter::INTERVAL, 0);
            reporter.on_received(ms(1), 0);
            reporter.on_received(ms(2), gap + 1);
            let mut numbers = Vec::new();
            while let Some(report) = reporter.report(ms(60)) {
                assert!(report.arrivals.len() as u64 <= MAX_PACKETS);
                numbers.extend(report.arrivals.iter().map(|arrival| arrival.number));
            }
            assert_eq!(numbers, (0..gap + 2).collect::<Vec<_>>());
            assert_eq!(reporter.next_wakeup(), Instant::FAR_FUTURE);
        }
    }

    // Source: RFC 8888 §3.1: RTCP header and sender's SSRC 8, SSRC and range 8, two bytes each,
    // padded to 32 bits, timestamp 4.
    #[test]
    fn a_report_of_three_packets_takes_28_bytes() {
        let arrivals = [Arrival { number: 0, at: None }; 3];
        let size = |count| Report { reported: ms(0), arrivals: &arrivals[..count] }.wire_size();
        assert_eq!([size(1), size(2), size(3)].map(skybraid_units::Bytes::get), [24, 24, 28]);
    }
}
