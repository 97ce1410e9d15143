//! The sending application of a flow.

use alloc::boxed::Box;

use skybraid_traffic::{Source, TrafficConfig, Write};
use skybraid_transport::{Class, Endpoint, Message};
use skybraid_units::{Bytes, Duration, Instant};

use crate::ids::{FlowId, Numbered, RecordId, SideId};
use crate::record::FlowRecord;
use crate::reports::Reports;
use crate::setup::FlowSetup;

/// The sending application of a flow.
pub struct App {
    /// Source of its messages.
    pub source: Source,
    /// Receiver reports on the flow, if its source reads them.
    pub reports: Option<Box<Reports>>,
    /// Side that it writes to; `None` if the driver carries the flow.
    side: Option<SideId>,
    /// Record of its messages.
    record: RecordId,
    stream: u8,
    class: Class,
    deadline: Option<Duration>,
    /// Number of times that each message is written.
    copies: u8,
    /// Size of an answer; 0 if messages are not answered.
    answer_bytes: u32,
    /// Send buffer: a bulk source keeps it full.
    ahead: Bytes,
    /// Whether a message that does not fit into the send buffer is refused rather than queued.
    refuses: bool,
    /// Whether the source keeps the send buffer full, rather than writing at times of its own.
    fills: bool,
}

impl Numbered for App {
    type Id = FlowId;
    const EXPECTED: &'static str = "the application of a flow";
}

impl App {
    /// Creates the application of `flow`, which writes to `stream` of `side` until `end`.
    pub fn new(
        flow: &FlowSetup,
        record: RecordId,
        (side, stream): (Option<SideId>, u8),
        end: Instant,
    ) -> Self {
        let fills = matches!(flow.traffic, TrafficConfig::Bulk { .. });
        Self {
            source: Source::new(&flow.traffic, flow.start, flow.stop.min(end)),
            reports: Reports::of(flow).map(Box::new),
            side,
            record,
            stream,
            class: flow.class,
            deadline: flow.deadline,
            copies: flow.copies.max(1),
            answer_bytes: match &flow.traffic {
                TrafficConfig::Ping { packet, .. } => packet.get() as u32,
                _ => 0,
            },
            ahead: flow.transport.send_buffer,
            refuses: flow.transport.refuse_when_full
                && flow.transport.protocol.is_reliable()
                && !fills,
            fills,
        }
    }

    /// Side that it writes to; `None` if the driver carries the flow.
    pub const fn side(&self) -> Option<SideId> {
        self.side
    }

    /// Whether the source keeps the send buffer full.
    pub const fn fills(&self) -> bool {
        self.fills
    }

    /// Writes the due messages of its source. Returns whether there was one.
    #[inline]
    pub fn write_due(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        records: &mut [FlowRecord],
    ) -> bool {
        let Some(record) = FlowRecord::find_mut(records, self.record) else { return false };
        let mut wrote = false;
        while let Some(written) = self.source.write(now) {
            self.write(now, endpoint, record, written);
            wrote = true;
        }
        wrote
    }

    /// Writes messages of a bulk source while the send buffer has room. Returns whether it wrote one.
    pub fn fill(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        records: &mut [FlowRecord],
    ) -> bool {
        let Some(record) = FlowRecord::find_mut(records, self.record) else { return false };
        let mut wrote = false;
        while endpoint.unacknowledged() < self.ahead_of(endpoint)
            && let Some(written) = self.source.write(now)
        {
            self.write(now, endpoint, record, written);
            wrote = true;
        }
        wrote
    }

    /// Unacknowledged bytes up to which the application writes into `endpoint`.
    fn ahead_of(&self, endpoint: &Endpoint) -> Bytes {
        endpoint.send_buffer().map_or(self.ahead, |buffer| buffer.min(self.ahead))
    }

    /// Writes an answer to a message sent at `sent`: it carries that time, so its delay is the round trip.
    pub fn answer(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
        record: &mut FlowRecord,
        sent: Instant,
    ) {
        self.write_back(now, endpoint, record, (sent, self.answer_bytes));
    }

    /// Writes the receiver report on the flow, if one is due. Returns whether one was.
    pub fn report(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        record: &mut FlowRecord,
    ) -> bool {
        let reports = self.reports.as_mut();
        let bytes = reports.and_then(|reports| reports.report(now, record.next_id()));
        if let Some(bytes) = bytes {
            self.write_back(now, endpoint, record, (now, bytes));
        }
        bytes.is_some()
    }

    /// Records a message and writes it into the endpoint.
    #[inline]
    fn write(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
        record: &mut FlowRecord,
        written: Write,
    ) {
        let bytes = written.bytes;
        let id = record.next_id();
        let deadline = written.deadline.or_else(|| self.deadline.map(|span| now + span));
        let copies = self.copies.max(written.copies);
        record.on_written(now, written);
        if self.refuses {
            let waiting = endpoint.unacknowledged() + Bytes::new(u64::from(bytes));
            if waiting > self.ahead_of(endpoint) {
                (0..copies).for_each(|_| record.on_refused(id));
                return;
            }
        }
        for _ in 0..copies {
            endpoint.write(now, self.message(id, bytes, deadline));
        }
    }

    #[inline]
    const fn message(&self, id: u32, bytes: u32, deadline: Option<Instant>) -> Message {
        Message { stream: self.stream, id, class: self.class, bytes, deadline }
    }

    /// Writes an answer or a report of `bytes` bytes, recorded as written at `at`.
    fn write_back(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
        record: &mut FlowRecord,
        (at, bytes): (Instant, u32),
    ) {
        let id = record.next_id();
        record.on_written(at, bytes);
        for _ in 0..self.copies {
            endpoint.write(now, self.message(id, bytes, None));
        }
    }
}
