//! The two hosts at work: applications write, endpoints carry, arrivals are recorded.

use alloc::vec::Vec;

use skybraid_link::Cause;
use skybraid_traffic::TrafficConfig;
use skybraid_transport::scheduler::Choice;
use skybraid_transport::segment::Dccp;
use skybraid_transport::{
    Body, ConnectionTotals, Delivered, Endpoint, Message, PathId, Segment, SubflowSample, Transmit,
    split,
};
use skybraid_units::{Duration, Instant};

use crate::population::{
    App, End, Population, Relay, Side, Stream, populate, write_copies, write_message,
};
use crate::record::{Arrival, DecisionRow, FlowRecord, LinkWaits, Outcome, Record, SubflowRow};
use crate::reports::Reports;
use crate::setup::{AddressChange, Host, Setup};

/// Carries what leaves the hosts and keeps their timers.
pub trait Carrier {
    /// A segment leaves. Answers why it is lost, where that is known at once.
    fn carry(&mut self, now: Instant, leaving: &Leaving<'_>) -> Option<Cause>;

    /// Side number `side` wants [`Hosts::wake`] at `due` at the latest; [`Instant::FAR_FUTURE`] for
    /// never. Its timers may since be pushed back: [`Hosts::next_wakeup`] tells.
    fn wake_at(&mut self, side: usize, due: Instant);
}

/// A segment that leaves a host.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// The side that sends; its peer has the number `side ^ 1`.
    pub side: usize,
    /// The flow whose connection it belongs to.
    pub flow: usize,
    /// The record in [`Outcome::flows`] that its messages count for.
    pub record: usize,
    /// The route: path number times 2, plus 1 for ground to vehicle.
    pub route: usize,
    /// The path, by the connection's own numbering, and the segment.
    pub transmit: &'a Transmit,
}

/// A segment that the carrier still holds when the run has ended.
#[derive(Clone, Copy, Debug)]
pub struct OnTheWay<'s> {
    /// Its [`Leaving::record`].
    pub record: usize,
    /// The segment.
    pub segment: &'s Segment,
    /// Its arrival, where that is known.
    pub arrival: Option<Arrival>,
}

/// The applications and endpoints of a run, and what is recorded of them.
pub struct Hosts<'a> {
    setup: &'a Setup,
    sides: Vec<Side>,
    relays: Vec<Relay>,
    apps: Vec<App>,
    /// By flow, of those that have any.
    reports: Vec<Option<Reports>>,
    recording: Record,
    outcome: Outcome,
    end: Instant,
}

impl<'a> Hosts<'a> {
    /// The hosts of `setup` before its start. Flows for which `carried` answers false get a record but
    /// neither endpoints nor an application here: the driver carries them by other means.
    pub fn new(setup: &'a Setup, carried: impl Fn(usize) -> bool) -> Self {
        let mut outcome = Outcome::default();
        let Population { sides, relays, apps } = populate(setup, &carried, &mut outcome);
        let end = Instant::ZERO + setup.duration;
        let reports = setup.flows.iter().map(Reports::on).collect();
        Self { setup, sides, relays, apps, reports, recording: setup.record, outcome, end }
    }

    /// How many sides there are, two per connection: that which opens it, the other.
    pub fn sides(&self) -> usize {
        self.sides.len()
    }

    /// How many applications there are, one per flow.
    pub fn apps(&self) -> usize {
        self.apps.len()
    }

    /// The flow whose connection side number `side` belongs to.
    pub fn flow_of(&self, side: usize) -> Option<usize> {
        self.sides.get(side).map(|side| side.flow)
    }

    /// What has been recorded so far.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// What has been recorded so far, for the driver's own records.
    pub const fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    /// When application number `app` next has something to write; [`Instant::FAR_FUTURE`] for never.
    pub fn next_write(&self, app: usize) -> Instant {
        self.apps.get(app).map_or(Instant::FAR_FUTURE, |app| app.source.next_write())
    }

    /// When to call [`wake`](Self::wake) for side number `side`.
    pub fn next_wakeup(&self, side: usize) -> Instant {
        let Some(side) = self.sides.get(side) else { return Instant::FAR_FUTURE };
        match &side.end {
            End::Host(endpoint) => endpoint.next_wakeup().min(self.report_due(side)),
            End::Proxy(relay, _) => {
                let relay = self.relays.get(*relay);
                relay.map_or(Instant::FAR_FUTURE, |relay| relay.proxy.next_wakeup())
            }
        }
    }

    /// When a side next has to report what it gets.
    fn report_due(&self, side: &Side) -> Instant {
        let reporting = side.streams.iter().filter(|stream| stream.reports);
        let due =
            reporting.filter_map(|stream| Some(self.reports.get(stream.flow)?.as_ref()?.due()));
        due.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// A segment arrived at side number `side` on `path`, by the connection's own numbering, after `waits` at
    /// the links, where these are known. [`settle`](Self::settle) comes next.
    #[inline]
    pub fn receive(
        &mut self,
        now: Instant,
        side: usize,
        path: PathId,
        segment: &Segment,
        waits: Option<LinkWaits>,
    ) {
        let Some(side) = self.sides.get_mut(side) else { return };
        if segment.messages > 0
            && let Some(stream) = side.streams.get(usize::from(segment.stream))
            && let Some(record) = self.outcome.flows.get_mut(stream.gets)
        {
            let arrival = Arrival { at: now, sent_at: segment.sent_at, path: path.0, waits };
            for offset in 0..u32::from(segment.messages) {
                record.copy_arrived(segment.first_message.wrapping_add(offset), &arrival);
            }
        }
        match &mut side.end {
            End::Host(endpoint) => endpoint.receive(now, path, segment),
            End::Proxy(relay, at) => {
                if let Some(relay) = self.relays.get_mut(*relay) {
                    relay.proxy.receive(now, *at, path, segment);
                }
            }
        }
    }

    /// A segment was lost on `path` behind its first link. `record` is its [`Leaving::record`].
    pub fn lost_on_the_way(
        &mut self,
        record: usize,
        path: PathId,
        segment: &Segment,
        cause: Cause,
    ) {
        if segment.body.payload_bytes() > 0
            && let Some(record) = self.outcome.flows.get_mut(record)
        {
            note_loss(record, path, segment, cause);
        }
    }

    /// What happens to packets on the links is not known here: a loss shows by what does not arrive.
    pub fn hide_links(&mut self) {
        for record in &mut self.outcome.flows {
            record.hide_links();
        }
    }

    /// The record of the messages that reach side number `side` in stream number `stream`.
    pub fn record_of(&self, side: usize, stream: u8) -> Option<usize> {
        let stream = self.sides.get(side)?.streams.get(usize::from(stream))?;
        Some(stream.gets)
    }

    /// A timer of side number `side` has expired.
    pub fn wake(&mut self, now: Instant, side: usize, carrier: &mut impl Carrier) {
        match self.sides.get_mut(side).map(|side| &mut side.end) {
            Some(End::Host(endpoint)) => endpoint.wake(now),
            Some(End::Proxy(relay, _)) => {
                if let Some(relay) = self.relays.get_mut(*relay) {
                    relay.proxy.wake(now);
                }
            }
            None => return,
        }
        self.settle(now, side, carrier);
    }

    /// An address of the vehicle comes or goes.
    pub fn change_address(
        &mut self,
        now: Instant,
        change: &AddressChange,
        carrier: &mut impl Carrier,
    ) {
        let vehicle = |side: &Side| side.flow == change.flow;
        let Some(index) = self.sides.iter().position(vehicle) else { return };
        if let Some(End::Host(endpoint)) = self.sides.get_mut(index).map(|side| &mut side.end) {
            if change.added {
                endpoint.add_path(now, change.path);
            } else {
                endpoint.remove_path(change.path);
            }
        }
        self.settle(now, index, carrier);
    }

    /// Application number `number` writes what is due. Answers when it next has something to write;
    /// one that writes whenever there is room is never due again.
    pub fn write(&mut self, now: Instant, number: usize, carrier: &mut impl Carrier) -> Instant {
        let mut next = Instant::FAR_FUTURE;
        let Some(app) = self.apps.get_mut(number) else { return next };
        let index = app.side;
        let Some(side) = self.sides.get_mut(index) else { return next };
        let fills = side.fillers.contains(&number);
        if !fills
            && let Some(stream) = side.streams.get(usize::from(app.stream))
            && let Some(record) = self.outcome.flows.get_mut(stream.writes)
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
                    && !side.streams.iter().any(|stream| stream.answers || stream.reports)
                    && let End::Host(endpoint) = &mut side.end
                {
                    endpoint.close();
                }
            }
        }
        self.settle(now, index, carrier);
        next
    }

    /// Lets side number `index` send and deliver all that it can.
    pub fn settle(&mut self, now: Instant, index: usize, carrier: &mut impl Carrier) {
        let Some(side) = self.sides.get_mut(index) else { return };
        let outcome = &mut self.outcome;
        let endpoint = match &mut side.end {
            End::Host(endpoint) => endpoint,
            End::Proxy(relay, _) => {
                let relay = *relay;
                return self.settle_relay(now, relay, carrier);
            }
        };
        loop {
            // Looked at where it lies: a segment is large enough for copies to count.
            while let Some(transmit) = &endpoint.poll_send(now) {
                let from =
                    Sender { index, flow: side.flow, routes: &side.routes, streams: &side.streams };
                send(now, from, transmit, outcome, carrier);
            }
            if let Some(stream) = side.streams.first()
                && let Some(record) = outcome.flows.get_mut(stream.writes)
            {
                endpoint.take_refused(&mut |message| record.dropped(now, message));
            }
            let mut wrote = false;
            while let Some(message) = endpoint.poll_delivered() {
                let Some(stream) = side.streams.get(usize::from(message.stream)).copied() else {
                    continue;
                };
                let sent = deliver(now, stream, message, outcome);
                let Some(sent) = sent else { continue };
                if stream.answers {
                    let number = message.stream;
                    wrote |= answer(now, endpoint, number, stream, sent, self.setup, outcome);
                } else if let Some(Some(reports)) = self.reports.get_mut(stream.flow) {
                    if stream.reports {
                        reports.arrived(now, message.id);
                    } else if let Some(app) = self.apps.get_mut(stream.flow)
                        && let Some(record) = outcome.flows.get_mut(stream.writes)
                    {
                        reports.came_back(message.id, |it| app.source.feedback(now, it));
                        while let Some(written) = app.source.write(now) {
                            write_message(now, app, endpoint, record, written);
                            wrote = true;
                        }
                    }
                }
            }
            for (number, stream) in (0..).zip(&side.streams) {
                let reports = stream.reports.then(|| self.reports.get_mut(stream.flow)).flatten();
                if let Some(Some(reports)) = reports
                    && let Some(record) = outcome.flows.get_mut(stream.writes)
                    && let Some(flow) = self.setup.flows.get(stream.flow)
                    && let Some(bytes) = reports.report(now, record.next_id())
                {
                    let (id, class, deadline) = (record.next_id(), flow.class, None);
                    record.written(now, bytes);
                    let message = Message { stream: number, id, class, bytes, deadline };
                    write_copies(now, endpoint, message, flow.copies);
                    wrote = true;
                }
            }
            for filler in 0..side.fillers.len() {
                let Some(filler) = side.fillers.get(filler).copied() else { continue };
                let Some(app) = self.apps.get_mut(filler) else { continue };
                let Some(record) = outcome.flows.get_mut(filler) else { continue };
                while endpoint.unacknowledged() < app.ahead
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
        carrier.wake_at(index, self.next_wakeup(index));
    }

    /// Lets a proxy send all that it can, on either side.
    fn settle_relay(&mut self, now: Instant, relay: usize, carrier: &mut impl Carrier) {
        let Some(relay) = self.relays.get_mut(relay) else { return };
        let [upstream, downstream] = relay.sides;
        while let Some((at, transmit)) = &relay.proxy.poll_send(now) {
            let index = if *at == split::Side::Upstream { upstream } else { downstream };
            let Some(side) = self.sides.get(index) else { return };
            let from = Sender { index, flow: side.flow, routes: &side.routes, streams: &[] };
            send(now, from, transmit, &mut self.outcome, carrier);
        }
        carrier.wake_at(upstream, relay.proxy.next_wakeup());
    }

    /// Notes how the subflows stand, and what the schedulers decided since the last call.
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
                End::Host(_) => side.writes || side.streams.iter().any(|stream| stream.answers),
                // Data leave a proxy on the side that the sender is not on.
                End::Proxy(_, at) => {
                    let flow = self.setup.flows.get(side.flow);
                    flow.is_some_and(|flow| match flow.from {
                        Host::Vehicle => at == split::Side::Downstream,
                        Host::Ground => at == split::Side::Upstream,
                    })
                }
            };
            if self.recording.subflows && sends {
                let (rows, sampled) = (&mut self.outcome.subflows, &mut side.sampled);
                let (routes, whose) = (&side.routes, (flow, side.place));
                let mut note = |sample: SubflowSample| {
                    let route = routes.get(sample.path.index()).copied().unwrap_or(0);
                    rows.push(subflow_row(now, whose, route / 2, sample, sampled));
                };
                match &side.end {
                    End::Host(endpoint) => endpoint.samples(&mut note),
                    End::Proxy(relay, at) => {
                        let relay = self.relays.get(*relay);
                        relay.into_iter().flat_map(|it| it.proxy.samples(*at)).for_each(note);
                    }
                }
            }
        }
    }

    /// The run ends before its time, at `end`; [`finish`](Self::finish) comes next.
    pub fn end_early(&mut self, end: Instant) {
        self.end = self.end.min(end);
        for record in &mut self.outcome.flows {
            record.end_early(end);
        }
    }

    /// The run has ended. `on_the_way` are the segments that the carrier still holds.
    pub fn finish<'s>(mut self, on_the_way: impl Iterator<Item = OnTheWay<'s>>) -> Outcome {
        let mut coming: Vec<Vec<u32>> = alloc::vec![Vec::new(); self.outcome.flows.len()];
        for OnTheWay { record, segment, arrival } in on_the_way {
            if let (Some(arrival), Some(record)) = (arrival, self.outcome.flows.get_mut(record)) {
                for offset in 0..u32::from(segment.messages) {
                    record.copy_arrives_later(segment.first_message.wrapping_add(offset), &arrival);
                }
            }
            let (Body::Datagram(datagram) | Body::Dccp(Dccp { data: datagram, .. })) = segment.body
            else {
                continue;
            };
            if let Some(messages) = coming.get_mut(record)
                && datagram.fragments > 0
            {
                messages.push(datagram.message);
            }
        }
        for side in &self.sides {
            let End::Host(endpoint) = &side.end else { continue };
            if let Some(stream) = side.streams.first()
                && let Some(messages) = coming.get_mut(stream.writes)
            {
                endpoint.waiting(&mut |message| messages.push(message));
            }
            let totals = endpoint.totals(self.end);
            for stream in &side.streams {
                let flows = &mut self.outcome.flows;
                if let Some(record) = flows.get_mut(stream.writes) {
                    record.summary.connection +=
                        ConnectionTotals { holding: Duration::ZERO, ..totals };
                }
                if let Some(record) = flows.get_mut(stream.gets) {
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

/// The side that a segment leaves.
struct Sender<'a> {
    index: usize,
    flow: usize,
    routes: &'a [usize],
    streams: &'a [Stream],
}

/// Hands a segment to the carrier and counts it.
#[inline]
fn send(
    now: Instant,
    from: Sender<'_>,
    transmit: &Transmit,
    outcome: &mut Outcome,
    carrier: &mut impl Carrier,
) {
    let Some(route) = from.routes.get(transmit.path.index()).copied() else { return };
    let segment = &transmit.segment;
    let stream = from.streams.get(usize::from(segment.stream));
    let record = stream.map_or(usize::MAX, |stream| stream.writes);
    let leaving = Leaving { side: from.index, flow: from.flow, record, route, transmit };
    let lost = carrier.carry(now, &leaving);
    if segment.body.payload_bytes() > 0
        && let Some(record) = outcome.flows.get_mut(record)
    {
        for offset in 0..u32::from(segment.messages) {
            let message = segment.first_message.wrapping_add(offset);
            record.copy_sent(now, message, transmit.path);
        }
        if let Some(count) = record.summary.packets_by_path.get_mut(transmit.path.index()) {
            *count += 1;
        }
        if let Some(cause) = lost {
            note_loss(record, transmit.path, segment, cause);
        }
    }
}

/// Notes a segment with payload that was lost on `path`, and each message of which it carried a part.
#[cold]
#[inline(never)]
fn note_loss(record: &mut FlowRecord, path: PathId, segment: &Segment, cause: Cause) {
    if let Some(count) = record.summary.lost_packets.get_mut(cause as usize) {
        *count += 1;
    }
    let ends = u32::from(segment.messages);
    let parts = if ends == 0 || segment.tail { ends + 1 } else { ends };
    for offset in 0..parts {
        record.copy_lost(segment.first_message.wrapping_add(offset), path, Some(cause));
    }
}

/// An endpoint hands a message to its application. Returns when it was sent, unless it is known.
#[inline]
fn deliver(
    now: Instant,
    stream: Stream,
    message: Delivered,
    outcome: &mut Outcome,
) -> Option<Instant> {
    outcome.flows.get_mut(stream.gets)?.delivered(now, message)
}

/// The application answers a message that was sent at `sent`. True if it did.
fn answer(
    now: Instant,
    endpoint: &mut Endpoint,
    number: u8,
    stream: Stream,
    sent: Instant,
    setup: &Setup,
    outcome: &mut Outcome,
) -> bool {
    let Some(flow) = setup.flows.get(stream.flow) else { return false };
    let TrafficConfig::Ping { packet, .. } = &flow.traffic else { return false };
    let Some(answers) = outcome.flows.get_mut(stream.writes) else { return false };
    let (id, bytes) = (answers.next_id(), packet.get() as u32);
    // The answer carries the question's time, so that its delay is the round trip.
    answers.written(sent, bytes);
    let (stream, class, deadline) = (number, flow.class, None);
    write_copies(now, endpoint, Message { stream, id, class, bytes, deadline }, flow.copies);
    true
}

/// A row of a subflow, with what happened since the last one in `sampled`.
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
    let before = match sampled.get_mut(place) {
        Some(last) => core::mem::replace(last, totals),
        None => totals,
    };
    let since = |which: usize| {
        let value = |of: &[u64; 4]| of.get(which).copied().unwrap_or(0);
        value(&totals) - value(&before)
    };
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
        acked_bytes: since(0),
        retransmitted: since(1),
        lost: since(2),
        reductions: since(3),
        pacing_bps: sample.pacing.map(|rate| rate.as_bps()),
    }
}
