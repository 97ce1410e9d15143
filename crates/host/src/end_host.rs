//! A side with applications: an endpoint, the records of its messages, and its duties.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_transport::{Body, ConnectionTotals, Delivered, Endpoint, PathId, Segment};
use skybraid_units::{Duration, Instant, Promised};

use crate::app::App;
use crate::duties::{Duties, Duty};
use crate::hosts::Carrier;
use crate::ids::{FlowId, Numbered, RecordId};
use crate::machine::Machine;
use crate::record::{Arrival, FlowRecord, LinkWaits};
use crate::sender::{Sender, Streams};

/// One end of a connection with its applications.
pub struct EndHost {
    endpoint: Endpoint,
    sender: Sender,
    /// Records of the messages that it receives.
    received: Streams,
    /// `None` if received messages are only recorded.
    duties: Option<Box<Duties>>,
    /// Number of applications that may still write.
    writers: u32,
}

impl EndHost {
    /// Creates an end without streams.
    pub const fn new(endpoint: Endpoint, sender: Sender) -> Self {
        Self { endpoint, sender, received: Streams::new(), duties: None, writers: 0 }
    }

    /// Adds a stream, whose written and received messages belong to these records. Returns its number.
    pub fn add_stream(&mut self, writes: RecordId, gets: RecordId) -> u8 {
        self.sender.add_stream(writes);
        self.received.add(gets)
    }

    /// Adds a duty in a stream.
    pub fn add_duty(&mut self, duty: Duty) {
        self.duties.get_or_insert_default().add(duty);
    }

    /// Adds the application of `flow`; one that `fills` keeps the send buffer full.
    pub fn add_writer(&mut self, flow: FlowId, fills: bool) {
        self.writers += 1;
        if fills {
            self.duties.get_or_insert_default().add_filler(flow);
        }
    }

    /// Sender of its segments.
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Protocol machine of the connection.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Protocol machine of the connection.
    pub const fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Whether it only records what it receives: a receiver of datagrams that never sends.
    pub fn is_passive(&self) -> bool {
        let receives =
            matches!(&self.endpoint, Endpoint::Datagrams(machine) if machine.only_receives());
        receives && self.writers == 0 && self.duties.is_none()
    }

    /// Sets whether the peer [only records](Self::is_passive) what it receives.
    pub const fn set_peer_is_passive(&mut self, passive: bool) {
        self.sender.set_peer_is_passive(passive);
    }

    /// Whether it sends data.
    pub fn sends(&self) -> bool {
        self.writers > 0 || self.duties.as_ref().is_some_and(|duties| duties.answers())
    }

    /// Record of the messages that it receives in `stream`.
    #[inline]
    pub fn record_of(&self, stream: u8) -> Option<RecordId> {
        self.received.get(stream)
    }

    /// Time at which [`Endpoint::wake`] and [`flush`](Self::flush) must be called.
    #[inline]
    pub fn next_wakeup(&self, apps: &[App]) -> Instant {
        let due = self.endpoint.next_wakeup();
        match &self.duties {
            None => due,
            Some(duties) => due.min(duties.next_report(apps)),
        }
    }

    /// Receives a segment on `path`. Returns whether [`flush`](Self::flush) must be called next.
    #[inline(always)]
    pub fn receive(
        &mut self,
        now: Instant,
        path: PathId,
        segment: &Segment,
        waits: Option<&LinkWaits>,
        records: &mut [FlowRecord],
    ) -> bool {
        // Built where a late message needs it.
        let arrival = || {
            let (sent_at, waits) = (segment.sent_at, waits.copied());
            Arrival { at: now, sent_at, path: path.0, waits }
        };
        if self.duties.is_none()
            && let (Endpoint::Datagrams(machine), Body::Datagram(datagram)) =
                (&mut self.endpoint, &segment.body)
            && machine.only_receives()
        {
            let message = machine.receive_only(path, datagram);
            let record = self.received.get(segment.stream);
            let record = record.and_then(|record| FlowRecord::find_mut(records, record));
            match (record, message) {
                (Some(record), Some(message)) if segment.messages > 0 => {
                    record.on_arrived_whole(now, message, arrival);
                }
                (Some(record), message) => {
                    segment.last_parts().for_each(|id| record.on_copy_arrived(now, id, arrival));
                    message.and_then(|message| record.on_delivered(now, message));
                }
                (None, _) => {}
            }
            return false;
        }
        if segment.messages > 0
            && let Some(record) = self.record_of(segment.stream)
            && let Some(record) = FlowRecord::find_mut(records, record)
        {
            for id in segment.last_parts() {
                record.on_copy_arrived(now, id, arrival);
            }
        }
        match (&mut self.endpoint, &segment.body) {
            (Endpoint::Stream(machine), Body::Tcp(tcp)) if self.duties.is_none() => {
                machine.receive_into(now, path, (segment, tcp), &mut |message| {
                    self.received.on_delivered(now, message, records);
                });
            }
            (endpoint, _) => endpoint.receive(now, path, segment),
        }
        true
    }

    /// Writes the due messages of `app`. Returns the time of its next write; a bulk application, which writes whenever
    /// there is room, is never due again.
    #[inline]
    pub fn write(&mut self, now: Instant, app: &mut App, records: &mut [FlowRecord]) -> Instant {
        if app.fills() {
            return Instant::FAR_FUTURE;
        }
        app.write_due(now, &mut self.endpoint, records);
        let next = app.source.next_write();
        if next == Instant::FAR_FUTURE {
            self.on_finished();
        }
        next
    }

    /// Closes the connection once its last application has finished.
    #[cold]
    fn on_finished(&mut self) {
        self.writers = self.writers.saturating_sub(1);
        let writes_back = self.duties.as_ref().is_some_and(|duties| duties.writes_back());
        if self.writers == 0 && !writes_back {
            self.endpoint.close();
        }
    }

    /// Sends all segments that it can send, and delivers all messages that it has received.
    #[inline]
    pub fn flush(
        &mut self,
        now: Instant,
        apps: &mut [App],
        records: &mut [FlowRecord],
        carrier: &mut impl Carrier,
    ) {
        let Self { endpoint, sender, received, duties, .. } = self;
        let due = match (duties, endpoint) {
            (None, Endpoint::Datagrams(machine)) => {
                exchange(now, machine.as_mut(), sender, received, records, carrier)
            }
            (None, Endpoint::Stream(machine)) => {
                // What arrives is recorded at once.
                send(now, machine.as_mut(), sender, records, carrier);
                machine.next_wakeup()
            }
            (None, Endpoint::Parallel(machine)) => {
                exchange(now, machine.as_mut(), sender, received, records, carrier)
            }
            (None, Endpoint::Dccp(machine)) => {
                exchange(now, machine.as_mut(), sender, received, records, carrier)
            }
            (Some(duties), endpoint) => {
                let streams = (&*sender, &*received);
                exchange_with_duties(now, endpoint, streams, duties, apps, records, carrier)
            }
        };
        carrier.wake_at(sender.side(), due);
    }

    /// Completes the records at the end of the run: totals of the connection, and in `coming`, by record, the messages
    /// that wait to be sent.
    pub fn finish(&self, end: Instant, records: &mut [FlowRecord], coming: &mut [Vec<u32>]) {
        let written = self.sender.records();
        if let Some(first) = written.get(0).promised("the first stream of a host")
            && let Some(messages) = coming.get_mut(first.index()).promised("a record")
        {
            self.endpoint.waiting(&mut |message| messages.push(message));
        }
        let totals = self.endpoint.totals(end);
        let sent = ConnectionTotals { holding: Duration::ZERO, ..totals };
        let received = ConnectionTotals { holding: totals.holding, ..ConnectionTotals::default() };
        for (ids, totals) in [(written, sent), (&self.received, received)] {
            for id in ids.iter() {
                if let Some(record) = FlowRecord::find_mut(records, id) {
                    record.summary.connection += totals;
                }
            }
        }
        if let Some(forecast) = self.endpoint.forecast() {
            for id in written.iter() {
                if let Some(record) = FlowRecord::find_mut(records, id) {
                    **record.summary.forecast.get_or_insert_default() += forecast;
                }
            }
        }
    }
}

/// Sends and delivers all that `machine` can, for a host without duties. Returns the time of the next wake-up.
#[inline]
fn exchange(
    now: Instant,
    machine: &mut impl Machine,
    sender: &Sender,
    received: &Streams,
    records: &mut [FlowRecord],
    carrier: &mut impl Carrier,
) -> Instant {
    send(now, machine, sender, records, carrier);
    while deliver(now, machine, received, records).is_some() {}
    machine.next_wakeup()
}

/// As [`exchange`], for a host with duties, which writes what it owes as well.
#[inline(never)]
fn exchange_with_duties(
    now: Instant,
    endpoint: &mut Endpoint,
    (sender, received): (&Sender, &Streams),
    duties: &Duties,
    apps: &mut [App],
    records: &mut [FlowRecord],
    carrier: &mut impl Carrier,
) -> Instant {
    loop {
        send(now, endpoint, sender, records, carrier);
        let mut wrote = false;
        while let Some((message, sent)) = deliver(now, endpoint, received, records) {
            if let Some(sent) = sent {
                wrote |= duties.on_delivered(now, endpoint, (message, sent), apps, records);
            }
        }
        wrote |= duties.write(now, endpoint, apps, records);
        if !wrote {
            return endpoint.next_wakeup().min(duties.next_report(apps));
        }
    }
}

/// Sends all segments that `machine` can send, and records the messages that it has dropped.
#[inline]
fn send(
    now: Instant,
    machine: &mut impl Machine,
    sender: &Sender,
    records: &mut [FlowRecord],
    carrier: &mut impl Carrier,
) {
    machine.send_all(now, |transmit| sender.send(now, transmit, records, carrier));
    if machine.has_refused()
        && let Some(first) = sender.records().get(0).promised("the first stream of a host")
        && let Some(record) = FlowRecord::find_mut(records, first)
    {
        machine.take_refused(&mut |message| record.on_dropped(now, message));
    }
}

/// Records the next message that `machine` has received, if there is one. Returns it with the time of its writing; that
/// is `None` for a message that was delivered before, or of an unknown stream.
#[inline]
fn deliver(
    now: Instant,
    machine: &mut impl Machine,
    received: &Streams,
    records: &mut [FlowRecord],
) -> Option<(Delivered, Option<Instant>)> {
    let message = machine.poll_delivered()?;
    Some((message, received.on_delivered(now, message, records)))
}
