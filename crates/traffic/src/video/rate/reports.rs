//! The receiver's half: which packets arrived, and when.
//!
//! Source: RFC 8888 §3.1 (one status for each packet of a range without gaps); how often:
//! draft-ietf-rmcat-gcc-02 §3, RFC 8298 §4.2.2.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::{Arrival, Report};

/// RFC 8888 §3.1: at most so many packets in a report of one stream.
const MOST: u64 = 16_384;

/// Gathers arrivals and makes a report of them at an interval.
///
/// A report begins with the first packet not yet reported, or with a late one that was reported
/// missing, and ends with the last that arrived. Nothing is reported while nothing arrives, and the
/// first arrival after a silence is reported at once. The wire
/// rounds arrivals to 1/1024 s before the report (RFC 8888 §3.1); here they are exact.
#[derive(Clone, Debug)]
pub struct Reporter {
    interval: Duration,
    /// When each packet from `first` on arrived, as far back as one may still come late.
    arrivals: VecDeque<Option<Instant>>,
    first: u64,
    /// Where the next report begins.
    begin: u64,
    due: Instant,
    /// No report before.
    earliest: Instant,
    report: Vec<Arrival>,
}

impl Reporter {
    /// How often to report unless said otherwise: 50 ms, between the
    /// 20 ms that RFC 8298 §4.2.2 prefers at high rates and the 100 ms that the Google draft's §3
    /// allows at most.
    pub const INTERVAL: Duration = Duration::from_millis(50);

    /// Reports every `interval`. The first packet is number `first`.
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

    /// A packet arrived. A second copy, or one that is too late for any report, says nothing.
    pub fn arrived(&mut self, now: Instant, number: u64) {
        let Some(index) = number.checked_sub(self.first) else { return };
        // A number far ahead would otherwise make a report of any length.
        if index >= 4 * MOST {
            self.arrivals.clear();
            self.first = number;
            self.begin = number;
        }
        let index = (number - self.first) as usize;
        if index >= self.arrivals.len() {
            self.arrivals.resize(index + 1, None);
        }
        let Some(slot @ None) = self.arrivals.get_mut(index) else { return };
        *slot = Some(now);
        self.begin = self.begin.min(number);
        if self.due == Instant::FAR_FUTURE {
            self.due = self.earliest.max(now);
        }
    }

    /// When the next report is due; [`Instant::FAR_FUTURE`] while nothing new arrived.
    pub const fn next_wakeup(&self) -> Instant {
        self.due
    }

    /// The report that is due by `now`, if there is one.
    pub fn report(&mut self, now: Instant) -> Option<Report<'_>> {
        if now < self.due {
            return None;
        }
        let end = self.first.saturating_add(self.arrivals.len() as u64);
        let begin = self.begin.max(end.saturating_sub(MOST));
        let skip = (begin - self.first) as usize;
        self.report.clear();
        self.report.extend(
            (begin..end)
                .zip(self.arrivals.iter().skip(skip))
                .map(|(number, at)| Arrival { number, at: *at }),
        );
        self.begin = end;
        self.due = Instant::FAR_FUTURE;
        self.earliest = now + self.interval;
        while self.arrivals.len() as u64 > MOST {
            self.arrivals.pop_front();
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
    fn each_packet_is_reported_once_and_a_late_one_again_with_all_after_it() {
        let mut reporter = Reporter::new(Reporter::INTERVAL, 7);
        assert_eq!(reporter.next_wakeup(), Instant::FAR_FUTURE);
        reporter.arrived(ms(10), 7);
        assert_eq!(reported(&mut reporter, ms(10)), [(7, Some(ms(10)))]);
        reporter.arrived(ms(11), 8);
        reporter.arrived(ms(12), 10);
        assert_eq!(reporter.next_wakeup(), ms(60));
        assert!(reporter.report(ms(59)).is_none());
        assert_eq!(
            reported(&mut reporter, ms(60)),
            [(8, Some(ms(11))), (9, None), (10, Some(ms(12)))]
        );
        assert!(reporter.report(ms(200)).is_none());
        reporter.arrived(ms(201), 9);
        reporter.arrived(ms(201), 8);
        assert_eq!(reported(&mut reporter, ms(201)), [(9, Some(ms(201))), (10, Some(ms(12)))]);
    }

    #[test]
    fn a_leap_of_numbers_never_makes_a_report_that_the_wire_cannot_carry() {
        let mut reporter = Reporter::new(Reporter::INTERVAL, 0);
        for number in [0, MOST + 9, 1 << 40, (1 << 40) + MOST, 3] {
            reporter.arrived(ms(1), number);
            let report = reporter.report(ms(1_000)).map_or(0, |report| report.arrivals.len());
            assert!(report as u64 <= MOST);
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
