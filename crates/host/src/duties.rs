//! Messages that a side writes without an application's clock: answers, receiver reports, video after reports, and bulk
//! data while there is room. Most sides have no such duty.

use alloc::vec::Vec;

use skybraid_transport::{Delivered, Endpoint};
use skybraid_units::{Instant, Promised};

use crate::app::App;
use crate::ids::{FlowId, Numbered, RecordId};
use crate::record::FlowRecord;
use crate::reports::Reports;

/// Messages that a side writes in reply to those it receives in a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StreamRole {
    /// Answers each one.
    Answers,
    /// Reports on them to the sender.
    SendsReports,
    /// Passes them, which are reports, to the application.
    ReadsReports,
}

/// The duty of a side in one stream.
#[derive(Clone, Copy)]
pub struct Duty {
    /// Number of the stream.
    pub stream: u8,
    /// Role of the side in the stream.
    pub role: StreamRole,
    /// Flow of the stream.
    pub flow: FlowId,
    /// Record of the messages that this side writes.
    pub writes: RecordId,
}

/// The duties of a side.
#[derive(Default)]
pub struct Duties {
    /// Duties in the streams that have one.
    streams: Vec<Duty>,
    /// Bulk applications that keep this side's send buffer full.
    fillers: Vec<FlowId>,
}

impl Duties {
    /// Adds the duty in a stream.
    pub fn add(&mut self, duty: Duty) {
        self.streams.push(duty);
    }

    /// Adds a bulk application.
    pub fn add_filler(&mut self, flow: FlowId) {
        self.fillers.push(flow);
    }

    /// Whether the side answers a stream.
    pub fn answers(&self) -> bool {
        self.streams.iter().any(|duty| duty.role == StreamRole::Answers)
    }

    /// Whether the side writes in a stream because of what it receives.
    pub fn writes_back(&self) -> bool {
        self.answers() || self.reporting().next().is_some()
    }

    fn reporting(&self) -> impl Iterator<Item = &Duty> {
        self.streams.iter().filter(|duty| duty.role == StreamRole::SendsReports)
    }

    /// Time of the next receiver report that must be sent.
    pub fn next_report(&self, apps: &[App]) -> Instant {
        let reports = self.reporting().filter_map(|duty| {
            let reports = App::find(apps, duty.flow).and_then(|app| app.reports.as_deref());
            reports.promised("the reports of a reported flow")
        });
        reports.map(Reports::due).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Reacts to a message that was sent at `sent`. Returns whether it wrote something.
    pub fn on_delivered(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
        (message, sent): (Delivered, Instant),
        apps: &mut [App],
        records: &mut [FlowRecord],
    ) -> bool {
        let duty = self.streams.iter().find(|duty| duty.stream == message.stream);
        let Some(duty) = duty else { return false };
        let Some(app) = App::find_mut(apps, duty.flow) else { return false };
        if duty.role == StreamRole::Answers {
            let record = FlowRecord::find_mut(records, duty.writes);
            return record.map(|record| app.answer(now, endpoint, record, sent)).is_some();
        }
        let reports = app.reports.as_mut().promised("the reports of a reported flow");
        let Some(reports) = reports else { return false };
        if duty.role == StreamRole::SendsReports {
            reports.on_packet(now, message.id);
            return false;
        }
        let source = &mut app.source;
        reports.on_report(message.id, |report| source.on_feedback(now, report));
        app.write_due(now, endpoint, records)
    }

    /// Writes the receiver reports that are due, and what bulk applications have room for. Returns whether it wrote
    /// something.
    pub fn write(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
        apps: &mut [App],
        records: &mut [FlowRecord],
    ) -> bool {
        let mut wrote = false;
        for duty in self.reporting() {
            let app = App::find_mut(apps, duty.flow);
            let record = FlowRecord::find_mut(records, duty.writes);
            if let (Some(app), Some(record)) = (app, record) {
                wrote |= app.report(now, endpoint, record);
            }
        }
        for filler in &self.fillers {
            if let Some(app) = App::find_mut(apps, *filler) {
                wrote |= app.fill(now, endpoint, records);
            }
        }
        wrote
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_reports_keep_a_side_writing_but_bulk_does_not() {
        let (flow, writes) = (FlowId::from_index(0), RecordId::from_index(1));
        let writes_back = |role| {
            let mut duties = Duties::default();
            duties.add_filler(flow);
            duties.add(Duty { stream: 2, role, flow, writes });
            duties.writes_back()
        };
        assert!(!Duties { fillers: alloc::vec![flow], ..Duties::default() }.writes_back());
        assert!(writes_back(StreamRole::Answers));
        assert!(writes_back(StreamRole::SendsReports));
        assert!(!writes_back(StreamRole::ReadsReports));
    }
}
