//! Receiver reports of a video flow, for rate control.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_traffic::TrafficConfig;
use skybraid_traffic::video::rate::{Arrival, Report, Reporter};
use skybraid_units::Instant;

use crate::setup::FlowSetup;

/// The reports on one flow. A report travels as a message of its size; its content is kept here until then.
pub struct Reports {
    reporter: Reporter,
    /// Reports in flight: message number, time of the report, arrivals.
    in_flight: VecDeque<(u32, Instant, Vec<Arrival>)>,
}

impl Reports {
    /// Returns the reports of `flow` if its sender needs them.
    pub fn of(flow: &FlowSetup) -> Option<Self> {
        let TrafficConfig::Video(video) = &flow.traffic else { return None };
        let reporter = || Reporter::new(Reporter::INTERVAL, 0);
        video.is_reported().then(|| Self { reporter: reporter(), in_flight: VecDeque::new() })
    }

    /// Records the arrival of video packet `number`.
    pub fn on_packet(&mut self, now: Instant, number: u32) {
        self.reporter.on_received(now, number.into());
    }

    /// Time of the next report.
    pub const fn due(&self) -> Instant {
        self.reporter.next_wakeup()
    }

    /// Sends the report that is due at `now` as message `message`. Returns its size in bytes, or `None` if no
    /// report is due.
    pub fn report(&mut self, now: Instant, message: u32) -> Option<u32> {
        let report = self.reporter.report(now)?;
        let bytes = report.wire_size().get() as u32;
        self.in_flight.push_back((message, now, report.arrivals.to_vec()));
        Some(bytes)
    }

    /// Passes the report that arrived as message `message` to `read`, and forgets the reports that it overtook.
    pub fn on_report(&mut self, message: u32, read: impl FnOnce(&Report<'_>)) {
        while let Some((number, reported, arrivals)) = self.in_flight.pop_front() {
            if number == message {
                return read(&Report { reported, arrivals: &arrivals });
            }
            if number > message {
                return self.in_flight.push_front((number, reported, arrivals));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn an_overtaken_report_is_forgotten() {
        let reporter = Reporter::new(Reporter::INTERVAL, 0);
        let mut reports = Reports { reporter, in_flight: VecDeque::new() };
        for (ms, message) in [(10, 0), (60, 1), (110, 2)] {
            reports.on_packet(at(ms), message);
            // 20 bytes and one arrival, padded.
            assert_eq!(reports.report(at(ms), message), Some(24));
        }
        let mut first_arrivals = Vec::new();
        for message in [1, 0, 2] {
            let mut read = |report: &Report<'_>| first_arrivals.push(report.arrivals[0].number);
            reports.on_report(message, &mut read);
        }
        assert_eq!(first_arrivals, [1, 2]);
    }
}
