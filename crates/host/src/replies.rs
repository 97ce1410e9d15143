//! What a host writes because of what it received: answers, receiver reports, and video that follows a report.

use skybraid_transport::{Delivered, Endpoint, Message};
use skybraid_units::{Instant, Promised};

use crate::population::{App, Stream, StreamRole, write_copies, write_message};
use crate::record::{FlowRecord, Outcome};
use crate::reports::Reports;

/// Reacts to a message that was sent at `sent` and is more than recorded; `app` is the application of its flow, and
/// `record` is of what this side writes. Returns whether it wrote something.
pub fn react(
    now: Instant,
    endpoint: &mut Endpoint,
    (role, message): (StreamRole, Delivered),
    sent: Instant,
    app: &mut App,
    record: &mut FlowRecord,
) -> bool {
    match role {
        StreamRole::Plain => false,
        StreamRole::Answers => {
            // The answer carries the time of the question, so its delay is the round trip.
            write_back(now, endpoint, app, record, (sent, app.answer_bytes));
            true
        }
        StreamRole::SendsReports => {
            let reports = app.reports.as_mut().promised("the reports of a reported flow");
            if let Some(reports) = reports {
                reports.on_packet(now, message.id);
            }
            false
        }
        StreamRole::ReadsReports => {
            let source = &mut app.source;
            if let Some(reports) = app.reports.as_mut().promised("the reports of a reported flow") {
                reports.on_report(message.id, |report| source.on_feedback(now, report));
            }
            let mut wrote = false;
            while let Some(written) = app.source.write(now) {
                write_message(now, app, endpoint, record, written);
                wrote = true;
            }
            wrote
        }
    }
}

/// Time of the next receiver report that must be sent in one of `streams`.
pub fn report_due(streams: &[Stream], apps: &[App]) -> Instant {
    let reporting = streams.iter().filter(|stream| stream.role == StreamRole::SendsReports);
    let reports = reporting.filter_map(|stream| {
        let reports = apps.get(stream.flow).and_then(|app| app.reports.as_ref());
        reports.promised("the reports of a reported flow")
    });
    reports.map(Reports::due).min().unwrap_or(Instant::FAR_FUTURE)
}

/// Writes the receiver reports that are due. Returns whether one was.
pub fn send_reports(
    now: Instant,
    endpoint: &mut Endpoint,
    streams: &[Stream],
    apps: &mut [App],
    outcome: &mut Outcome,
) -> bool {
    let mut wrote = false;
    for stream in streams.iter().filter(|stream| stream.role == StreamRole::SendsReports) {
        let app = apps.get_mut(stream.flow).promised("the application of a stream");
        let record = outcome.flows.get_mut(stream.writes).promised("a record");
        let (Some(app), Some(record)) = (app, record) else { continue };
        let reports = app.reports.as_mut().promised("the reports of a reported flow");
        let bytes = reports.and_then(|reports| reports.report(now, record.next_id()));
        if let Some(bytes) = bytes {
            write_back(now, endpoint, app, record, (now, bytes));
            wrote = true;
        }
    }
    wrote
}

/// Writes an answer or a report of `bytes` bytes, recorded as written at `at`.
fn write_back(
    now: Instant,
    endpoint: &mut Endpoint,
    app: &App,
    record: &mut FlowRecord,
    (at, bytes): (Instant, u32),
) {
    let (stream, id, class) = (app.stream, record.next_id(), app.class);
    record.on_written(at, bytes);
    write_copies(now, endpoint, Message { stream, id, class, bytes, deadline: None }, app.copies);
}
