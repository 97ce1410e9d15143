//! What the receiver of a video tells its sender, for rate control.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_traffic::TrafficConfig;
use skybraid_traffic::video::rate::{Arrival, Report, Reporter};
use skybraid_units::Instant;

use crate::setup::FlowSetup;

/// The reports on one flow. They travel as messages; what they say is kept here until they arrive.
pub struct Reports {
    reporter: Reporter,
    /// Reports on their way: number of the message, when it was made, what it says.
    coming: VecDeque<(u32, Instant, Vec<Arrival>)>,
}

impl Reports {
    /// The reports that a flow needs, if it needs any.
    pub fn on(flow: &FlowSetup) -> Option<Self> {
        let TrafficConfig::Video(video) = &flow.traffic else { return None };
        let reporter = || Reporter::new(Reporter::INTERVAL, 0);
        video.is_reported().then(|| Self { reporter: reporter(), coming: VecDeque::new() })
    }

    /// Packet `number` of the video has arrived.
    pub fn arrived(&mut self, now: Instant, number: u32) {
        self.reporter.arrived(now, number.into());
    }

    /// When the next report is due.
    pub const fn due(&self) -> Instant {
        self.reporter.next_wakeup()
    }

    /// The report that is due at `now`, if one is, leaves as message `message`: its bytes.
    pub fn report(&mut self, now: Instant, message: u32) -> Option<u32> {
        let report = self.reporter.report(now)?;
        let bytes = report.wire_size().get() as u32;
        self.coming.push_back((message, now, report.arrivals.to_vec()));
        Some(bytes)
    }

    /// Message `message` has come back: `hear` gets what it says. Reports that it overtook are forgotten.
    pub fn came_back(&mut self, message: u32, hear: impl FnOnce(&Report<'_>)) {
        while let Some((number, reported, arrivals)) = self.coming.pop_front() {
            if number == message {
                return hear(&Report { reported, arrivals: &arrivals });
            }
            if number > message {
                return self.coming.push_front((number, reported, arrivals));
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
    fn a_report_says_what_it_said_when_it_was_made_and_one_that_was_overtaken_says_nothing() {
        let reporter = Reporter::new(Reporter::INTERVAL, 0);
        let mut reports = Reports { reporter, coming: VecDeque::new() };
        for (ms, message) in [(10, 0), (60, 1), (110, 2)] {
            reports.arrived(at(ms), message);
            // 20 bytes and one arrival, padded.
            assert_eq!(reports.report(at(ms), message), Some(24));
        }
        let mut heard = Vec::new();
        for message in [1, 0, 2] {
            let mut hear = |report: &Report<'_>| heard.push(report.arrivals[0].number);
            reports.came_back(message, &mut hear);
        }
        assert_eq!(heard, [1, 2]);
    }
}
