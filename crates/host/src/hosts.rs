//! The hosts of a run as one state machine: applications write, endpoints send and receive, the record counts.

use alloc::vec::Vec;

use skybraid_link::Cause;
use skybraid_transport::segment::Dccp;
use skybraid_transport::{Body, PathId, Segment, Transmit, split};
use skybraid_units::{Instant, Promised};

use crate::app::App;
use crate::end_host::EndHost;
use crate::ids::{DirectedLink, FlowId, Numbered, RecordId, RouteId, SideId};
use crate::population::{Population, populate};
use crate::record::{Arrival, FlowRecord, LinkWaits, Outcome, Record};
use crate::relay::Relay;
use crate::sender::record_loss;
use crate::setup::{AddressChange, Setup};
use crate::side::{End, Side};

/// The driver's side of [`Hosts`]: sends segments and keeps timers.
pub trait Carrier {
    /// Sends a segment. Returns its fate as far as it is known at once.
    fn carry(&mut self, now: Instant, outgoing: &Outgoing<'_>) -> Carried;

    /// Requests a call of [`Hosts::wake`] for `side` at `due` at the latest; [`Instant::FAR_FUTURE`] for never.
    /// Timers may be pushed back later: check [`Hosts::next_wakeup`] before waking.
    fn wake_at(&mut self, side: SideId, due: Instant);
}

/// Fate of a segment after [`Carrier::carry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// On its way: the driver passes it to the receiver, or reports its loss, later.
    InFlight,
    /// Lost on its first link.
    Lost(Cause),
    /// It arrives at this time, at the latest at [`Outgoing::settle_by`]; the driver does not pass it to the receiver.
    Settled {
        /// Time of arrival.
        at: Instant,
        /// Last link of its route.
        link: DirectedLink,
    },
}

/// An outgoing segment with its sender.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Sending side; the other side of the connection receives.
    pub side: SideId,
    /// Flow that owns the connection.
    pub flow: FlowId,
    /// Record of the segment's messages; `None` for segments sent by a proxy.
    pub record: Option<RecordId>,
    /// Route to the peer.
    pub route: RouteId,
    /// The segment and its path, in the connection's own numbering.
    pub transmit: &'a Transmit,
    /// Latest arrival that may be [settled](Carried::Settled); `None` if the receiver must get the segment.
    pub settle_by: Option<Instant>,
}

/// A segment in flight at the end of the run.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'s> {
    /// See [`Outgoing::record`].
    pub record: RecordId,
    /// The segment.
    pub segment: &'s Segment,
    /// Arrival of the message after the end of the run, if known.
    pub arrival: Option<Arrival>,
}

/// The host or the proxy at a side, looked up once for all that it does with a segment.
pub struct Participant<'a> {
    end: Reached<'a>,
    records: &'a mut [FlowRecord],
}

enum Reached<'a> {
    Host(&'a mut EndHost, &'a mut [App]),
    Proxy(&'a mut Relay, split::Side),
}

impl Participant<'_> {
    /// Receives a segment on `path`, in the connection's own numbering. `waits` is the time that the segment waited at
    /// the links, if that is known. Returns whether [`flush`](Self::flush) must be called next.
    #[inline]
    pub fn receive(
        &mut self,
        now: Instant,
        path: PathId,
        segment: &Segment,
        waits: Option<&LinkWaits>,
    ) -> bool {
        match &mut self.end {
            Reached::Host(host, _) => host.receive(now, path, segment, waits, self.records),
            Reached::Proxy(relay, at) => {
                relay.receive(now, *at, path, segment);
                true
            }
        }
    }

    /// Sends all segments that it can send, and delivers all messages that it has received.
    #[inline]
    pub fn flush(&mut self, now: Instant, carrier: &mut impl Carrier) {
        match &mut self.end {
            Reached::Host(host, apps) => host.flush(now, apps, self.records, carrier),
            Reached::Proxy(relay, _) => relay.flush(now, self.records, carrier),
        }
    }
}

/// The applications and endpoints of a run, with its record.
pub struct Hosts {
    sides: Vec<Side>,
    relays: Vec<Relay>,
    apps: Vec<App>,
    recording: Record,
    outcome: Outcome,
    end: Instant,
}

impl Hosts {
    /// Creates the hosts of `setup` before its start. A flow for which `carried` returns false gets a record, but
    /// no endpoints and no application: the driver carries it by other means.
    pub fn new(setup: &Setup, carried: impl Fn(usize) -> bool) -> Self {
        let mut outcome = Outcome::default();
        let Population { sides, relays, apps } = populate(setup, &carried, &mut outcome);
        let end = Instant::ZERO + setup.duration;
        Self { sides, relays, apps, recording: setup.record, outcome, end }
    }

    /// Returns the sides: two per connection, the initiator first.
    pub fn sides(&self) -> impl ExactSizeIterator<Item = SideId> + use<> {
        (0..self.sides.len()).map(SideId::from_index)
    }

    /// Returns the flows; each has an application.
    pub fn flows(&self) -> impl ExactSizeIterator<Item = FlowId> + use<> {
        (0..self.apps.len()).map(FlowId::from_index)
    }

    /// Flow that owns the connection of `side`.
    pub fn flow_of(&self, side: SideId) -> Option<FlowId> {
        Side::find(&self.sides, side).map(Side::flow)
    }

    /// The record so far.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The record so far, for a driver that adds to it.
    pub const fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    /// Time of the next write of the application of `flow`; [`Instant::FAR_FUTURE`] for never.
    pub fn next_write(&self, flow: FlowId) -> Instant {
        App::find(&self.apps, flow).map_or(Instant::FAR_FUTURE, |app| app.source.next_write())
    }

    /// Time at which to call [`wake`](Self::wake) for `side`.
    pub fn next_wakeup(&self, side: SideId) -> Instant {
        let due = Side::find(&self.sides, side).and_then(|side| match &side.end {
            End::Host(host) => Some(host.next_wakeup(&self.apps)),
            End::Proxy(relay, _) => Relay::find(&self.relays, *relay).map(Relay::next_wakeup),
        });
        due.unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the participant at `side`.
    #[inline]
    pub fn participant(&mut self, side: SideId) -> Option<Participant<'_>> {
        let records = &mut self.outcome.flows;
        let end = match &mut Side::find_mut(&mut self.sides, side)?.end {
            End::Host(host) => Reached::Host(host, &mut self.apps),
            End::Proxy(relay, at) => {
                Reached::Proxy(Relay::find_mut(&mut self.relays, *relay)?, *at)
            }
        };
        Some(Participant { end, records })
    }

    /// Records the loss of a segment on `path` after its first link. `record` is its [`Outgoing::record`].
    pub fn on_lost(&mut self, record: RecordId, path: PathId, segment: &Segment, cause: Cause) {
        if segment.body.payload_bytes() > 0
            && let Some(record) = FlowRecord::find_mut(&mut self.outcome.flows, record)
        {
            record_loss(record, path, segment, cause);
        }
    }

    /// Latest arrival of a datagram that the driver may settle rather than pass it to the receiver, where nothing but
    /// the record notices it; `None` if the receiver must get it. `record` is its [`Outgoing::record`].
    pub fn settle_by(&self, record: RecordId, to: SideId, segment: &Segment) -> Option<Instant> {
        let sender = Side::find(&self.sides, to.other())?.sender()?;
        if !sender.may_settle(segment) {
            return None;
        }
        FlowRecord::find(&self.outcome.flows, record)?.settle_by(segment.first_message)
    }

    /// Records that a segment arrives on `path` at `at`, at the latest at [`settle_by`](Self::settle_by), over `link`.
    pub fn on_settled(
        &mut self,
        record: RecordId,
        path: PathId,
        segment: &Segment,
        (at, link): (Instant, DirectedLink),
    ) {
        if let Some(record) = FlowRecord::find_mut(&mut self.outcome.flows, record) {
            record.on_copy_settled(segment.first_message, path, (at, link));
        }
    }

    /// Marks the links as unobserved: a loss is known only by what does not arrive.
    pub fn hide_links(&mut self) {
        for record in &mut self.outcome.flows {
            record.hide_links();
        }
    }

    /// Record of the messages that `side` receives in stream `stream`.
    pub fn record_of(&self, side: SideId, stream: u8) -> Option<RecordId> {
        match &Side::find(&self.sides, side)?.end {
            End::Host(host) => host.record_of(stream),
            End::Proxy(..) => None,
        }
    }

    /// Fires the expired timers of `side`.
    pub fn wake(&mut self, now: Instant, side: SideId, carrier: &mut impl Carrier) {
        let Some(mut participant) = self.participant(side) else { return };
        match &mut participant.end {
            Reached::Host(host, _) => host.endpoint_mut().wake(now),
            Reached::Proxy(relay, _) => relay.wake(now),
        }
        participant.flush(now, carrier);
    }

    /// Adds or removes an address of the vehicle.
    #[cold]
    pub fn change_address(
        &mut self,
        now: Instant,
        change: &AddressChange,
        carrier: &mut impl Carrier,
    ) {
        // The vehicle's side is the first of a flow; a flow that the driver carries has none.
        let flow = FlowId::from_index(change.flow);
        let Some(index) = self.sides.iter().position(|side| side.flow() == flow) else { return };
        let side = SideId::from_index(index);
        if let Some(Side { end: End::Host(host), .. }) = Side::find_mut(&mut self.sides, side) {
            let endpoint = host.endpoint_mut();
            if change.added {
                endpoint.add_path(now, change.path);
            } else {
                endpoint.remove_path(change.path);
            }
        }
        self.flush(now, side, carrier);
    }

    /// Writes the due messages of the application of `flow`. Returns the time of its next write; a bulk application,
    /// which writes whenever there is room, is never due again.
    #[inline]
    pub fn write(&mut self, now: Instant, flow: FlowId, carrier: &mut impl Carrier) -> Instant {
        let never = Instant::FAR_FUTURE;
        let Some(app) = App::find_mut(&mut self.apps, flow) else { return never };
        // Without a side, the driver carries the flow.
        let Some(id) = app.side() else { return never };
        let side = Side::find_mut(&mut self.sides, id);
        let Some(Side { end: End::Host(host), .. }) = side else { return never };
        let next = host.write(now, app, &mut self.outcome.flows);
        host.flush(now, &mut self.apps, &mut self.outcome.flows, carrier);
        next
    }

    /// Sends all segments that `side` can send, and delivers all messages that it has received.
    #[inline]
    pub fn flush(&mut self, now: Instant, side: SideId, carrier: &mut impl Carrier) {
        if let Some(mut participant) = self.participant(side) {
            participant.flush(now, carrier);
        }
    }

    /// Records the state of the subflows, and the scheduling decisions since the last call.
    #[cold]
    pub fn sample(&mut self, now: Instant) {
        let Record { decisions, subflows, .. } = self.recording;
        if !decisions && !subflows {
            return;
        }
        for side in &mut self.sides {
            if decisions {
                side.take_decisions(&mut self.outcome.decisions);
            }
            if subflows {
                side.sample(now, &self.relays, &mut self.outcome);
            }
        }
    }

    /// Moves the end of the run forward to `end`; call [`finish`](Self::finish) next.
    pub fn end_early(&mut self, end: Instant) {
        self.end = self.end.min(end);
        for record in &mut self.outcome.flows {
            record.end_early(end);
        }
    }

    /// Ends the run and returns its outcome. `in_flight` are the segments that the carrier still holds.
    pub fn finish<'s>(mut self, in_flight: impl Iterator<Item = InFlight<'s>>) -> Outcome {
        let mut coming: Vec<Vec<u32>> = alloc::vec![Vec::new(); self.outcome.flows.len()];
        for InFlight { record: index, segment, arrival } in in_flight {
            let Some(record) = FlowRecord::find_mut(&mut self.outcome.flows, index) else {
                continue;
            };
            if let Some(arrival) = arrival {
                segment.last_parts().for_each(|message| record.on_copy_due(message, &arrival));
            }
            let (Body::Datagram(datagram) | Body::Dccp(Dccp { data: datagram, .. })) = segment.body
            else {
                continue;
            };
            if datagram.fragments > 0
                && let Some(messages) = coming.get_mut(index.index()).promised("a record")
            {
                messages.push(datagram.message);
            }
        }
        for side in &self.sides {
            if let End::Host(host) = &side.end {
                host.finish(self.end, &mut self.outcome.flows, &mut coming);
            }
        }
        for (record, messages) in self.outcome.flows.iter_mut().zip(&mut coming) {
            messages.sort_unstable();
            record.finish(messages);
        }
        self.outcome
    }
}
