//! Sending part of a side: segments enter the network, and their messages are recorded.

use alloc::vec::Vec;

use skybraid_link::Cause;
use skybraid_transport::{Body, Delivered, PathId, Segment, Transmit};
use skybraid_units::{Instant, Promised};

use crate::hosts::{Carried, Carrier, Outgoing};
use crate::ids::{FlowId, Numbered, RecordId, RouteId, SideId};
use crate::record::FlowRecord;

/// Records of messages, by stream. Nearly all connections carry one stream, whose record is next to its side.
#[derive(Default)]
pub struct Streams {
    first: Option<RecordId>,
    others: Vec<RecordId>,
}

impl Streams {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self { first: None, others: Vec::new() }
    }

    /// Adds the next stream. Returns its number.
    pub fn add(&mut self, record: RecordId) -> u8 {
        if self.first.is_none() {
            self.first = Some(record);
            return 0;
        }
        self.others.push(record);
        self.others.len() as u8
    }

    /// Record of `stream`.
    #[inline]
    pub fn get(&self, stream: u8) -> Option<RecordId> {
        match usize::from(stream).checked_sub(1) {
            None => self.first,
            Some(place) => self.others.get(place).copied(),
        }
    }

    /// Records the delivery of a message. Returns the time of its writing; `None` if it was delivered before, or is of
    /// an unknown stream.
    #[inline]
    pub fn on_delivered(
        &self,
        now: Instant,
        message: Delivered,
        records: &mut [FlowRecord],
    ) -> Option<Instant> {
        FlowRecord::find_mut(records, self.get(message.stream)?)?.on_delivered(now, message)
    }

    /// Records of all streams, in order.
    pub fn iter(&self) -> impl Iterator<Item = RecordId> + '_ {
        self.first.into_iter().chain(self.others.iter().copied())
    }
}

/// Sends the segments of one side.
pub struct Sender {
    side: SideId,
    flow: FlowId,
    /// Outgoing route, by the connection's own path numbers.
    routes: Vec<RouteId>,
    /// Records of the messages that the side writes; empty at a proxy.
    records: Streams,
    /// Whether the other side only records what it receives.
    peer_is_passive: bool,
}

impl Sender {
    /// Creates the sender of `side`, whose connection belongs to `flow`.
    pub const fn new(side: SideId, flow: FlowId, routes: Vec<RouteId>) -> Self {
        Self { side, flow, routes, records: Streams::new(), peer_is_passive: false }
    }

    /// Adds a stream whose written messages belong to `record`.
    pub fn add_stream(&mut self, record: RecordId) {
        self.records.add(record);
    }

    /// Side that sends.
    pub const fn side(&self) -> SideId {
        self.side
    }

    /// Records of the messages that the side writes.
    pub const fn records(&self) -> &Streams {
        &self.records
    }

    /// Returns the path of the setup that is `path` in the connection's own numbering.
    pub fn path(&self, path: PathId) -> usize {
        let route = self.routes.get(path.index()).promised("the route of a path");
        route.map_or(0, |route| route.path())
    }

    /// Sets whether the other side only records what it receives.
    pub const fn set_peer_is_passive(&mut self, passive: bool) {
        self.peer_is_passive = passive;
    }

    /// Whether the arrival of `segment` means the delivery of one message, and nothing else.
    #[inline]
    pub const fn may_settle(&self, segment: &Segment) -> bool {
        self.peer_is_passive
            && matches!(&segment.body, Body::Datagram(datagram) if datagram.fragments == 1)
    }

    /// Sends a segment through the carrier and records it.
    #[inline]
    pub fn send(
        &self,
        now: Instant,
        transmit: &Transmit,
        records: &mut [FlowRecord],
        carrier: &mut impl Carrier,
    ) {
        let Transmit { path, segment } = transmit;
        let route = self.routes.get(path.index()).promised("the route of a path");
        let Some(route) = route.copied() else { return };
        let record = self.records.get(segment.stream);
        let (side, flow, settle_by) = (self.side, self.flow, None);
        let mut outgoing = Outgoing { side, flow, record, route, transmit, settle_by };
        let record = record.filter(|_| segment.body.payload_bytes() > 0);
        let mut record = record.and_then(|record| FlowRecord::find_mut(records, record));
        if let Some(record) = &mut record {
            let count = record.summary.packets_by_path.get_mut(path.index());
            if let Some(count) = count.promised("a count per path") {
                *count += 1;
            }
        }
        // The carrier's code is inlined, so it is called in few places.
        let carried = match &mut record {
            Some(record) if self.may_settle(segment) => {
                record.send_copy(now, segment.first_message, *path, |settle_by| {
                    outgoing.settle_by = settle_by;
                    carrier.carry(now, &outgoing)
                })
            }
            _ => {
                if let Some(record) = &mut record {
                    let messages = segment.last_parts();
                    messages.for_each(|message| record.on_copy_sent(now, message, *path));
                }
                carrier.carry(now, &outgoing)
            }
        };
        if let (Carried::Lost(cause), Some(record)) = (carried, record) {
            record_loss(record, *path, segment, cause);
        }
    }
}

/// Records the loss of a segment with payload on `path`, and of each message that it carried a part of.
#[cold]
#[inline(never)]
pub fn record_loss(record: &mut FlowRecord, path: PathId, segment: &Segment, cause: Cause) {
    let count = record.summary.lost_packets.get_mut(cause as usize);
    if let Some(count) = count.promised("a count per cause") {
        *count += 1;
    }
    let ends = u32::from(segment.messages);
    let parts = if ends == 0 || segment.tail { ends + 1 } else { ends };
    for offset in 0..parts {
        record.on_copy_lost(segment.first_message.wrapping_add(offset), path, Some(cause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Host;
    use skybraid_transport::segment::Datagram;
    use skybraid_units::Duration;

    /// A network that loses every packet in a queue.
    struct Full(Vec<usize>);

    impl Carrier for Full {
        fn carry(&mut self, _: Instant, outgoing: &Outgoing<'_>) -> Carried {
            self.0.push(outgoing.route.path());
            Carried::Lost(Cause::Queue)
        }

        fn wake_at(&mut self, _: SideId, _: Instant) {}
    }

    #[test]
    fn a_segment_lost_on_its_first_link_was_sent_and_lost() {
        let routes = [4, 7].map(|path| RouteId::new(path, Host::Vehicle)).to_vec();
        let mut sender = Sender::new(SideId::from_index(0), FlowId::from_index(0), routes);
        sender.add_stream(RecordId::from_index(0));
        let end = Instant::from_millis(1000);
        let mut records = [FlowRecord::new(false, false, end, 2, &[Duration::from_millis(300)])];
        records[0].on_written(Instant::ZERO, 100);
        let data = Datagram { sequence: 0, message: 0, len: 100, fragment: 0, fragments: 1 };
        let segment = Segment {
            size: 128,
            sent_at: Instant::ZERO,
            first_message: 0,
            messages: 1,
            stream: 0,
            tail: false,
            body: Body::Datagram(data),
        };
        let mut network = Full(Vec::new());
        let transmit = Transmit { path: PathId(1), segment };
        sender.send(Instant::ZERO, &transmit, &mut records, &mut network);
        records[0].finish(&[]);
        assert_eq!((network.0.as_slice(), sender.path(PathId(1))), (&[7][..], 7));
        let summary = &records[0].summary;
        assert_eq!(summary.packets_by_path, [0, 1]);
        assert_eq!((summary.lost, summary.lost_packets[Cause::Queue as usize]), (1, 1));
    }
}
