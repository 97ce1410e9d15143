//! The hosts of a run as one state machine: applications write, endpoints send and receive, the record counts.

use alloc::vec::Vec;

use skybraid_link::Cause;
use skybraid_transport::scheduler::Choice;
use skybraid_transport::segment::Dccp;
use skybraid_transport::{Body, ConnectionTotals, PathId, Segment, SubflowSample, Transmit, split};
use skybraid_units::{Duration, Instant, Promised};

use crate::ids::RouteId;
use crate::population::{
    App, End, Population, Relay, Side, Stream, StreamRole, populate, write_message,
};
use crate::record::{Arrival, DecisionRow, FlowRecord, LinkWaits, Outcome, Record, SubflowRow};
use crate::replies::{react, report_due, send_reports};
use crate::setup::{AddressChange, Host, Setup};

/// The driver's side of [`Hosts`]: sends segments and keeps timers.
pub trait Carrier {
    /// Sends a segment. Returns the cause of its loss if that is known at once.
    fn carry(&mut self, now: Instant, outgoing: &Outgoing<'_>) -> Option<Cause>;

    /// Requests a call of [`Hosts::wake`] for side `side` at `due` at the latest; [`Instant::FAR_FUTURE`] for
    /// never. Timers may be pushed back later: check [`Hosts::next_wakeup`] before waking.
    fn wake_at(&mut self, side: usize, due: Instant);
}

/// An outgoing segment with its sender.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Sending side; see [`peer`](Self::peer).
    pub side: usize,
    /// Flow that owns the connection.
    pub flow: usize,
    /// Record in [`Outcome::flows`] of the segment's messages; `None` for segments sent by a proxy.
    pub record: Option<usize>,
    /// Route to the peer.
    pub route: RouteId,
    /// The segment and its path, in the connection's own numbering.
    pub transmit: &'a Transmit,
}

impl Outgoing<'_> {
    /// Returns the receiving side: the two sides of a connection have neighbouring numbers.
    pub const fn peer(&self) -> usize {
        self.side ^ 1
    }
}

/// A segment in flight at the end of the run.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'s> {
    /// See [`Outgoing::record`].
    pub record: usize,
    /// The segment.
    pub segment: &'s Segment,
    /// Its arrival after the end of the run, if that is known.
    pub arrival: Option<Arrival>,
}

/// The applications and endpoints of a run, with its record.
pub struct Hosts<'a> {
    setup: &'a Setup,
    sides: Vec<Side>,
    relays: Vec<Relay>,
    apps: Vec<App>,
    recording: Record,
    outcome: Outcome,
    end: Instant,
}

impl<'a> Hosts<'a> {
    /// Creates the hosts of `setup` before its start. A flow for which `carried` returns false gets a record, but
    /// no endpoints and no application: the driver carries it by other means.
    pub fn new(setup: &'a Setup, carried: impl Fn(usize) -> bool) -> Self {
        let mut outcome = Outcome::default();
        let Population { sides, relays, apps } = populate(setup, &carried, &mut outcome);
        let end = Instant::ZERO + setup.duration;
        Self { setup, sides, relays, apps, recording: setup.record, outcome, end }
    }

    /// Number of sides: two per connection, the initiator first.
    pub fn sides(&self) -> usize {
        self.sides.len()
    }

    /// Number of applications, one per flow.
    pub fn apps(&self) -> usize {
        self.apps.len()
    }

    /// Flow that owns the connection of side `side`.
    pub fn flow_of(&self, side: usize) -> Option<usize> {
        self.sides.get(side).promised("a side of this number").map(|side| side.flow)
    }

    /// The record so far.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The record so far, for a driver that adds to it.
    pub const fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    /// Time of the next write of application `app`; [`Instant::FAR_FUTURE`] for never.
    pub fn next_write(&self, app: usize) -> Instant {
        let app = self.apps.get(app).promised("an application of this number");
        app.map_or(Instant::FAR_FUTURE, |app| app.source.next_write())
    }

    /// Time at which to call [`wake`](Self::wake) for side `side`.
    pub fn next_wakeup(&self, side: usize) -> Instant {
        let Some(side) = self.sides.get(side).promised("a side of this number") else {
            return Instant::FAR_FUTURE;
        };
        match &side.end {
            End::Host(endpoint) if side.reports => {
                endpoint.next_wakeup().min(report_due(&side.streams, &self.apps))
            }
            End::Host(endpoint) => endpoint.next_wakeup(),
            End::Proxy(relay, _) => {
                let relay = self.relays.get(*relay).promised("the proxy of this side");
                relay.map_or(Instant::FAR_FUTURE, |relay| relay.proxy.next_wakeup())
            }
        }
    }

    /// Receives a segment at side `side` on `path`, in the connection's own numbering; call
    /// [`flush`](Self::flush) next. `waits` is the time that the segment waited at the links, if that is known.
    #[inline]
    pub fn receive(
        &mut self,
        now: Instant,
        side: usize,
        path: PathId,
        segment: &Segment,
        waits: Option<LinkWaits>,
    ) {
        let Some(side) = self.sides.get_mut(side).promised("a side of this number") else { return };
        if segment.messages > 0
            && let Some(stream) = side.streams.get(usize::from(segment.stream))
            && let Some(record) = self.outcome.flows.get_mut(stream.gets).promised("a record")
        {
            let arrival = Arrival { at: now, sent_at: segment.sent_at, path: path.0, waits };
            for offset in 0..u32::from(segment.messages) {
                record.on_copy_arrived(segment.first_message.wrapping_add(offset), &arrival);
            }
        }
        match &mut side.end {
            End::Host(endpoint) => endpoint.receive(now, path, segment),
            End::Proxy(relay, at) => {
                if let Some(relay) = self.relays.get_mut(*relay).promised("the proxy of this side")
                {
                    relay.proxy.receive(now, *at, path, segment);
                }
            }
        }
    }

    /// Records the loss of a segment on `path` after its first link. `record` is its [`Outgoing::record`].
    pub fn on_lost(&mut self, record: usize, path: PathId, segment: &Segment, cause: Cause) {
        if segment.body.payload_bytes() > 0
            && let Some(record) = self.outcome.flows.get_mut(record).promised("a record")
        {
            record_loss(record, path, segment, cause);
        }
    }

    /// Marks the links as unobserved: a loss is known only by what does not arrive.
    pub fn hide_links(&mut self) {
        for record in &mut self.outcome.flows {
            record.hide_links();
        }
    }

    /// Record of the messages that side `side` receives in stream `stream`.
    pub fn record_of(&self, side: usize, stream: u8) -> Option<usize> {
        let side = self.sides.get(side).promised("a side of this number")?;
        side.streams.get(usize::from(stream)).map(|stream| stream.gets)
    }

    /// Fires the expired timers of side `side`.
    pub fn wake(&mut self, now: Instant, side: usize, carrier: &mut impl Carrier) {
        let end = self.sides.get_mut(side).map(|side| &mut side.end);
        match end.promised("a side of this number") {
            Some(End::Host(endpoint)) => endpoint.wake(now),
            Some(End::Proxy(relay, _)) => {
                if let Some(relay) = self.relays.get_mut(*relay).promised("the proxy of this side")
                {
                    relay.proxy.wake(now);
                }
            }
            None => return,
        }
        self.flush(now, side, carrier);
    }

    /// Adds or removes an address of the vehicle.
    pub fn change_address(
        &mut self,
        now: Instant,
        change: &AddressChange,
        carrier: &mut impl Carrier,
    ) {
        // The vehicle's side is the first of a flow; a flow that the driver carries has none.
        let mut sides = self.sides.iter_mut().enumerate();
        let Some((index, side)) = sides.find(|(_, side)| side.flow == change.flow) else { return };
        if let End::Host(endpoint) = &mut side.end {
            if change.added {
                endpoint.add_path(now, change.path);
            } else {
                endpoint.remove_path(change.path);
            }
        }
        self.flush(now, index, carrier);
    }

    /// Writes the due messages of application `number`. Returns the time of its next write; a bulk application,
    /// which writes whenever there is room, is never due again.
    pub fn write(&mut self, now: Instant, number: usize, carrier: &mut impl Carrier) -> Instant {
        let mut next = Instant::FAR_FUTURE;
        let Some(app) = self.apps.get_mut(number).promised("an application of this number") else {
            return next;
        };
        // Without a side, the driver carries the flow.
        let Some(index) = app.side else { return next };
        let Some(side) = self.sides.get_mut(index).promised("the side of an application") else {
            return next;
        };
        let fills = side.fillers.contains(&number);
        if !fills
            && let Some(stream) = side.streams.get(usize::from(app.stream)).promised("a stream")
            && let Some(record) = self.outcome.flows.get_mut(stream.writes).promised("a record")
        {
            if let End::Host(endpoint) = &mut side.end {
                while let Some(written) = app.source.write(now) {
                    write_message(now, app, endpoint, record, written);
                }
            }
            next = app.source.next_write();
            if next == Instant::FAR_FUTURE {
                side.writers -= 1;
                if side.writers == 0
                    && !side.streams.iter().any(Stream::writes_back)
                    && let End::Host(endpoint) = &mut side.end
                {
                    endpoint.close();
                }
            }
        }
        self.flush(now, index, carrier);
        next
    }

    /// Sends all segments that side `index` can send, and delivers all messages that it has received.
    pub fn flush(&mut self, now: Instant, index: usize, carrier: &mut impl Carrier) {
        let Some(side) = self.sides.get_mut(index).promised("a side of this number") else {
            return;
        };
        let outcome = &mut self.outcome;
        let endpoint = match &mut side.end {
            End::Host(endpoint) => endpoint,
            End::Proxy(relay, _) => {
                let relay = *relay;
                return self.flush_relay(now, relay, carrier);
            }
        };
        loop {
            // Borrowed rather than moved: a segment is large enough for copies to cost.
            while let Some(transmit) = &endpoint.poll_send(now) {
                let from =
                    Sender { index, flow: side.flow, routes: &side.routes, streams: &side.streams };
                send(now, from, transmit, outcome, carrier);
            }
            if endpoint.has_refused()
                && let Some(stream) = side.streams.first().promised("the first stream of a host")
                && let Some(record) = outcome.flows.get_mut(stream.writes).promised("a record")
            {
                endpoint.take_refused(&mut |message| record.on_dropped(now, message));
            }
            let mut wrote = false;
            while let Some(message) = endpoint.poll_delivered() {
                let Some(stream) = side.streams.get(usize::from(message.stream)).copied() else {
                    continue;
                };
                let record = outcome.flows.get_mut(stream.gets).promised("a record");
                let Some(sent) = record.and_then(|record| record.on_delivered(now, message)) else {
                    continue;
                };
                if stream.role == StreamRole::Plain {
                    continue;
                }
                let app = self.apps.get_mut(stream.flow).promised("the application of a stream");
                let written = outcome.flows.get_mut(stream.writes).promised("a record");
                if let (Some(app), Some(written)) = (app, written) {
                    wrote |= react(now, endpoint, (stream.role, message), sent, app, written);
                }
            }
            if side.reports {
                wrote |= send_reports(now, endpoint, &side.streams, &mut self.apps, outcome);
            }
            for filler in &side.fillers {
                let app = self.apps.get_mut(*filler).promised("a bulk application");
                let record = outcome.flows.get_mut(*filler).promised("a record");
                let (Some(app), Some(record)) = (app, record) else { continue };
                while endpoint.unacknowledged() < app.ahead_of(endpoint)
                    && let Some(written) = app.source.write(now)
                {
                    write_message(now, app, endpoint, record, written);
                    wrote = true;
                }
            }
            if !wrote {
                break;
            }
        }
        let mut due = endpoint.next_wakeup();
        if side.reports {
            due = due.min(report_due(&side.streams, &self.apps));
        }
        carrier.wake_at(index, due);
    }

    /// Sends all segments that a proxy can send, on either side.
    fn flush_relay(&mut self, now: Instant, relay: usize, carrier: &mut impl Carrier) {
        let Some(relay) = self.relays.get_mut(relay).promised("a proxy of this number") else {
            return;
        };
        let [upstream, downstream] = relay.sides;
        while let Some((at, transmit)) = &relay.proxy.poll_send(now) {
            let index = if *at == split::Side::Upstream { upstream } else { downstream };
            let Some(side) = self.sides.get(index).promised("a side of a proxy") else { return };
            let from = Sender { index, flow: side.flow, routes: &side.routes, streams: &[] };
            send(now, from, transmit, &mut self.outcome, carrier);
        }
        carrier.wake_at(upstream, relay.proxy.next_wakeup());
    }

    /// Records the state of the subflows, and the scheduling decisions since the last call.
    pub fn sample(&mut self, now: Instant) {
        if !self.recording.decisions && !self.recording.subflows {
            return;
        }
        for side in &mut self.sides {
            let flow = side.flow as u16;
            if self.recording.decisions
                && let End::Host(endpoint) = &mut side.end
            {
                let (decisions, vehicle) = (&mut self.outcome.decisions, side.place == 0);
                endpoint.take_decisions(&mut |decision| {
                    let (paths, reason, waits_for, until) = match decision.choice {
                        Choice::Send(paths, reason) => (paths.bits(), reason, None, None),
                        Choice::Wait { reason, path, until } => (0, reason, path, until),
                    };
                    decisions.push(DecisionRow {
                        at: decision.at,
                        flow,
                        vehicle,
                        message: decision.first_message,
                        paths,
                        reason,
                        waits_for,
                        until,
                    });
                });
            }
            let sends = match side.end {
                End::Host(_) => {
                    let answers = |stream: &Stream| stream.role == StreamRole::Answers;
                    side.writes || side.streams.iter().any(answers)
                }
                // A proxy sends data on the side away from the flow's sender.
                End::Proxy(_, at) => {
                    let flow = self.setup.flows.get(side.flow).promised("the flow of a side");
                    flow.is_some_and(|flow| match flow.from {
                        Host::Vehicle => at == split::Side::Downstream,
                        Host::Ground => at == split::Side::Upstream,
                    })
                }
            };
            if self.recording.subflows && sends {
                let (rows, sampled) = (&mut self.outcome.subflows, &mut side.sampled);
                let (routes, sender) = (&side.routes, (flow, side.place));
                let mut record = |sample: SubflowSample| {
                    let route = routes.get(sample.path.index()).promised("the route of a subflow");
                    let path = route.map_or(0, |route| route.path());
                    rows.push(subflow_row(now, sender, path, sample, sampled));
                };
                match &side.end {
                    End::Host(endpoint) => endpoint.samples(&mut record),
                    End::Proxy(relay, at) => {
                        if let Some(relay) = self.relays.get(*relay).promised("a proxy") {
                            relay.proxy.samples(*at).for_each(record);
                        }
                    }
                }
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
            let Some(record) = self.outcome.flows.get_mut(index).promised("a record") else {
                continue;
            };
            if let Some(arrival) = arrival {
                for offset in 0..u32::from(segment.messages) {
                    record.on_copy_due(segment.first_message.wrapping_add(offset), &arrival);
                }
            }
            let (Body::Datagram(datagram) | Body::Dccp(Dccp { data: datagram, .. })) = segment.body
            else {
                continue;
            };
            if datagram.fragments > 0
                && let Some(messages) = coming.get_mut(index)
            {
                messages.push(datagram.message);
            }
        }
        for side in &self.sides {
            let End::Host(endpoint) = &side.end else { continue };
            if let Some(stream) = side.streams.first().promised("the first stream of a host")
                && let Some(messages) = coming.get_mut(stream.writes).promised("a record")
            {
                endpoint.waiting(&mut |message| messages.push(message));
            }
            let totals = endpoint.totals(self.end);
            for stream in &side.streams {
                let flows = &mut self.outcome.flows;
                if let Some(record) = flows.get_mut(stream.writes).promised("a record") {
                    record.summary.connection +=
                        ConnectionTotals { holding: Duration::ZERO, ..totals };
                }
                if let Some(record) = flows.get_mut(stream.gets).promised("a record") {
                    record.summary.connection +=
                        ConnectionTotals { holding: totals.holding, ..ConnectionTotals::default() };
                }
            }
        }
        for (record, messages) in self.outcome.flows.iter_mut().zip(&mut coming) {
            messages.sort_unstable();
            record.finish(messages);
        }
        self.outcome
    }
}

/// Sending side of a segment.
struct Sender<'a> {
    index: usize,
    flow: usize,
    routes: &'a [RouteId],
    streams: &'a [Stream],
}

/// Sends a segment through the carrier and records it.
#[inline]
fn send(
    now: Instant,
    from: Sender<'_>,
    transmit: &Transmit,
    outcome: &mut Outcome,
    carrier: &mut impl Carrier,
) {
    let route = from.routes.get(transmit.path.index()).copied();
    let Some(route) = route.promised("the route of a path") else { return };
    let segment = &transmit.segment;
    let stream = from.streams.get(usize::from(segment.stream));
    let record = stream.map(|stream| stream.writes);
    let outgoing = Outgoing { side: from.index, flow: from.flow, record, route, transmit };
    let lost = carrier.carry(now, &outgoing);
    if segment.body.payload_bytes() > 0
        && let Some(record) = record
        && let Some(record) = outcome.flows.get_mut(record).promised("a record")
    {
        for offset in 0..u32::from(segment.messages) {
            let message = segment.first_message.wrapping_add(offset);
            record.on_copy_sent(now, message, transmit.path);
        }
        if let Some(count) = record.summary.packets_by_path.get_mut(transmit.path.index()) {
            *count += 1;
        }
        if let Some(cause) = lost {
            record_loss(record, transmit.path, segment, cause);
        }
    }
}

/// Records the loss of a segment with payload on `path`, and of each message of which it carried a part.
#[cold]
#[inline(never)]
fn record_loss(record: &mut FlowRecord, path: PathId, segment: &Segment, cause: Cause) {
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

/// Returns the row of a subflow, with its counts since the previous row; `sampled` keeps the totals.
fn subflow_row(
    at: Instant,
    (flow, end): (u16, u8),
    path: usize,
    sample: SubflowSample,
    sampled: &mut Vec<[u64; 4]>,
) -> SubflowRow {
    let totals = [
        sample.totals.acked_bytes,
        sample.totals.retransmitted,
        sample.totals.lost,
        sample.totals.fast_recoveries + sample.totals.timeouts,
    ];
    let place = usize::from(sample.subflow);
    if sampled.len() <= place {
        sampled.resize(place + 1, [0; 4]);
    }
    let before = match sampled.get_mut(place).promised("totals of a subflow") {
        Some(last) => core::mem::replace(last, totals),
        None => totals,
    };
    let mut since = totals;
    since.iter_mut().zip(before).for_each(|(count, before)| *count -= before);
    let [acked_bytes, retransmitted, lost, reductions] = since;
    SubflowRow {
        at,
        flow,
        end,
        path: path as u16,
        subflow: sample.subflow,
        window: sample.window.get(),
        threshold: sample.threshold.get(),
        srtt: sample.srtt,
        in_flight: sample.in_flight.get(),
        acked_bytes,
        retransmitted,
        lost,
        reductions,
        pacing_bps: sample.pacing.map(|rate| rate.as_bps()),
    }
}
