//! The event loop.

use alloc::vec::Vec;

use skybraid_link::{Fate, Link};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::scheduler::Choice;
use skybraid_transport::segment::{Dccp, DccpKind, Flags};
use skybraid_transport::{Body, ConnectionTotals, Delivered, Message, Segment, Transmit};
use skybraid_units::{Duration, Instant};

use crate::agenda::Agenda;
use crate::population::{App, Population, Side, Stream, populate, write_message};
use crate::record::samples::SAMPLE_INTERVAL;
use crate::record::{
    DecisionRow, FlowRecord, LinkRow, LinkTotal, PacketKind, PacketRow, Record, SubflowRow,
};
use crate::setup::{AddressChange, Setup};
use crate::wire::{Address, Packet, Wire};

/// Looks on while a run goes on.
pub trait Observer {
    /// The run has come to `now`. Answers whether to go on.
    fn progress(&mut self, now: Instant) -> bool {
        let _ = now;
        true
    }

    /// [`packet`](Self::packet) is wanted.
    fn wants_packets(&self) -> bool {
        false
    }

    /// A packet entered a link.
    fn packet(&mut self, event: &PacketEvent<'_>) {
        let _ = event;
    }
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// A packet that entered a link.
#[derive(Clone, Copy, Debug)]
pub struct PacketEvent<'a> {
    /// When it entered.
    pub entered: Instant,
    /// What becomes of it.
    pub fate: Fate,
    /// The path, as a position in the scenario.
    pub path: usize,
    /// From vehicle to ground.
    pub uplink: bool,
    /// The flow, as a position in the scenario.
    pub flow: usize,
    /// What it carries.
    pub segment: &'a Segment,
}

/// The observer said to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How far the run had come.
    pub at: Instant,
}

/// What a run leaves behind.
#[derive(Debug)]
pub struct Outcome {
    /// The flows of the scenario, in its order; behind them, for each answered flow, its answers.
    pub flows: Vec<FlowRecord>,
    /// For each record in `flows` behind the scenario's own: the flow that it answers.
    pub answers: Vec<usize>,
    /// Samples of the links.
    pub links: Vec<LinkRow>,
    /// What each link carried and lost over the whole run, in the order of [`LinkRow::link`].
    pub link_totals: Vec<LinkTotal>,
    /// Samples of the subflows.
    pub subflows: Vec<SubflowRow>,
    /// Scheduling decisions.
    pub decisions: Vec<DecisionRow>,
    /// Packets.
    pub packets: Vec<PacketRow>,
    /// Packets times the links that they entered.
    pub packet_hops: u64,
}

/// Simulates `setup` from start to end.
///
/// # Errors
/// The observer said to stop.
pub fn run(setup: &Setup, observer: &mut dyn Observer) -> Result<Outcome, Stopped> {
    Simulation::new(setup, observer).run()
}

struct Simulation<'a> {
    setup: &'a Setup,
    /// Two per flow: vehicle, ground.
    sides: Vec<Side>,
    apps: Vec<App>,
    world: World<'a>,
    end: Instant,
}

/// All that a side touches when it sends and delivers.
struct World<'a> {
    observer: &'a mut dyn Observer,
    record: Record,
    watch_packets: bool,
    /// Sources: wires, then sides, then applications, then the sampler, then changes of addresses.
    agenda: Agenda,
    wires: Vec<Wire>,
    outcome: Outcome,
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, observer: &'a mut dyn Observer) -> Self {
        let end = Instant::ZERO + setup.duration;
        let mut wires = Vec::new();
        for path in &setup.paths {
            for (direction, config) in [("uplink", &path.uplink), ("downlink", &path.downlink)] {
                let link = Link::new(config, &path.name, direction, setup.seed);
                wires.push(Wire::new(link, wires.len() ^ 1));
            }
        }
        let mut outcome = Outcome {
            flows: Vec::new(),
            answers: Vec::new(),
            links: Vec::new(),
            link_totals: Vec::new(),
            subflows: Vec::new(),
            decisions: Vec::new(),
            packets: Vec::new(),
            packet_hops: 0,
        };
        let Population { sides, apps } = populate(setup, &mut outcome);
        let agenda = Agenda::new(wires.len() + sides.len() + apps.len() + 2);
        let watch_packets = observer.wants_packets() || setup.record.packets;
        let record = setup.record;
        let world = World { observer, record, watch_packets, agenda, wires, outcome };
        Self { setup, sides, apps, world, end }
    }

    fn run(mut self) -> Result<Outcome, Stopped> {
        let first_side = self.world.wires.len();
        let first_app = first_side + self.sides.len();
        let sampler = first_app + self.apps.len();
        for (index, app) in self.apps.iter().enumerate() {
            self.world.agenda.set(first_app + index, app.source.next_write());
        }
        for side in 0..self.sides.len() {
            self.settle(Instant::ZERO, side);
        }
        self.world.agenda.set(sampler, Instant::ZERO);
        let mut changes = self.setup.address_changes.iter().peekable();
        let next_change = changes.peek().map_or(Instant::FAR_FUTURE, |change| change.at);
        self.world.agenda.set(sampler + 1, next_change);
        loop {
            let (source, now) = self.world.agenda.next();
            if now > self.end {
                break;
            }
            if source < first_side {
                self.arrive(now, source);
            } else if source < first_app {
                self.wake(now, source - first_side);
            } else if source < sampler {
                self.write(now, source - first_app);
            } else if source > sampler {
                if let Some(change) = changes.next() {
                    self.change_address(now, change);
                }
                let next = changes.peek().map_or(Instant::FAR_FUTURE, |change| change.at);
                self.world.agenda.set(source, next);
            } else {
                self.sample(now);
                self.world.agenda.set(source, now + SAMPLE_INTERVAL);
                if !self.world.observer.progress(now) {
                    return Err(Stopped { at: now });
                }
            }
        }
        self.finish();
        Ok(self.world.outcome)
    }

    /// The next packet on a wire arrives.
    fn arrive(&mut self, now: Instant, wire: usize) {
        let world = &mut self.world;
        let Some(state) = world.wires.get_mut(wire) else { return };
        let Some(Packet { address, segment, .. }) = state.front() else { return };
        let index = address.to as usize;
        if segment.messages > 0
            && let Some(record) = world.outcome.flows.get_mut(usize::from(address.flow))
        {
            for offset in 0..u32::from(segment.messages) {
                record.copy_arrived(segment.first_message.wrapping_add(offset));
            }
        }
        if let Some(side) = self.sides.get_mut(index) {
            side.endpoint.receive(now, address.path, segment);
        }
        state.pop();
        world.agenda.set(wire, state.next_arrival());
        self.settle(now, index);
    }

    /// An address of the vehicle comes or goes.
    fn change_address(&mut self, now: Instant, change: &AddressChange) {
        let vehicle = |side: &Side| side.flow == change.flow;
        let Some(index) = self.sides.iter().position(vehicle) else { return };
        if let Some(side) = self.sides.get_mut(index) {
            if change.added {
                side.endpoint.add_path(now, change.path);
            } else {
                side.endpoint.remove_path(change.path);
            }
        }
        self.settle(now, index);
    }

    /// A timer of an endpoint expires.
    fn wake(&mut self, now: Instant, index: usize) {
        let source = self.world.wires.len() + index;
        let Some(side) = self.sides.get_mut(index) else { return };
        let due = side.endpoint.next_wakeup();
        if due > now {
            // Timers are often pushed back; the agenda hears of that only when the old time comes.
            self.world.agenda.set(source, due);
            return;
        }
        self.world.agenda.set(source, Instant::FAR_FUTURE);
        side.endpoint.wake(now);
        self.settle(now, index);
    }

    /// An application writes what is due.
    fn write(&mut self, now: Instant, number: usize) {
        let source = self.world.wires.len() + self.sides.len() + number;
        let Some(app) = self.apps.get_mut(number) else { return };
        let index = app.side;
        let Some(side) = self.sides.get_mut(index) else { return };
        let fills = side.fillers.contains(&number);
        if fills {
            // From its start on, the source writes whenever there is room.
            self.world.agenda.set(source, Instant::FAR_FUTURE);
        } else if let Some(stream) = side.streams.get(usize::from(app.stream))
            && let Some(record) = self.world.outcome.flows.get_mut(stream.writes)
        {
            while let Some(bytes) = app.source.write(now) {
                write_message(now, app, side, record, bytes);
            }
            let next = app.source.next_write();
            self.world.agenda.set(source, next);
            if next == Instant::FAR_FUTURE {
                side.writers -= 1;
                if side.writers == 0 && !side.streams.iter().any(|stream| stream.answers) {
                    side.endpoint.close();
                }
            }
        }
        self.settle(now, index);
    }

    /// Lets an endpoint send and deliver all that it can.
    fn settle(&mut self, now: Instant, index: usize) {
        let Some(side) = self.sides.get_mut(index) else { return };
        loop {
            // Looked at where it lies: a segment is large enough for copies to count.
            while let Some(transmit) = &side.endpoint.poll_send(now) {
                self.world.transmit(now, index, side, transmit);
            }
            if let Some(stream) = side.streams.first()
                && let Some(record) = self.world.outcome.flows.get_mut(stream.writes)
            {
                side.endpoint.take_refused(&mut |message| record.refused(message));
            }
            let mut wrote = false;
            while let Some(message) = side.endpoint.poll_delivered() {
                let Some(stream) = side.streams.get(usize::from(message.stream)).copied() else {
                    continue;
                };
                let sent = self.world.deliver(now, stream, message);
                if stream.answers
                    && let Some(sent) = sent
                {
                    let number = message.stream;
                    wrote |= self.world.answer(now, side, number, stream, sent, self.setup);
                }
            }
            for filler in 0..side.fillers.len() {
                let Some(filler) = side.fillers.get(filler).copied() else { continue };
                let Some(app) = self.apps.get_mut(filler) else { continue };
                let Some(record) = self.world.outcome.flows.get_mut(filler) else { continue };
                while side.endpoint.unacknowledged() < app.ahead
                    && let Some(bytes) = app.source.write(now)
                {
                    write_message(now, app, side, record, bytes);
                    wrote = true;
                }
            }
            if !wrote {
                break;
            }
        }
        let (source, due) = (self.world.wires.len() + index, side.endpoint.next_wakeup());
        if due < self.world.agenda.due(source) {
            self.world.agenda.set(source, due);
        }
    }

    fn sample(&mut self, now: Instant) {
        for (index, wire) in self.world.wires.iter_mut().enumerate() {
            let counters = wire.take_counters();
            if !self.world.record.links {
                continue;
            }
            let conditions = wire.link.conditions(now);
            self.world.outcome.links.push(LinkRow {
                at: now,
                link: index as u16,
                rate_bps: conditions.rate.as_bps(),
                delay: conditions.delay,
                loss: conditions.loss.ratio(),
                up: conditions.up,
                queue_bytes: wire.link.backlog(now).get(),
                delivered: counters.delivered,
                delivered_bytes: counters.delivered_bytes,
                lost: counters.lost,
            });
        }
        for (index, side) in self.sides.iter_mut().enumerate() {
            let vehicle = index.is_multiple_of(2);
            let flow = side.flow as u16;
            if self.world.record.decisions {
                let decisions = &mut self.world.outcome.decisions;
                side.endpoint.take_decisions(&mut |decision| {
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
            let writes = self.apps.iter().any(|app| app.side == index);
            if !self.world.record.subflows
                || !(writes || side.streams.iter().any(|stream| stream.answers))
            {
                continue;
            }
            let (subflows, sampled, wires) =
                (&mut self.world.outcome.subflows, &mut side.sampled, &side.wires);
            side.endpoint.samples(&mut |sample| {
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
                let Some(last) = sampled.get_mut(place) else { return };
                let before = core::mem::replace(last, totals);
                let since = |which: usize| {
                    let value = |of: &[u64; 4]| of.get(which).copied().unwrap_or(0);
                    value(&totals) - value(&before)
                };
                let wire = wires.get(sample.path.index()).copied().unwrap_or(0);
                subflows.push(SubflowRow {
                    at: now,
                    flow,
                    vehicle,
                    path: (wire / 2) as u16,
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
                });
            });
        }
    }

    fn finish(&mut self) {
        let mut on_the_way: Vec<Vec<u32>> = alloc::vec![Vec::new(); self.world.outcome.flows.len()];
        for packet in self.world.wires.iter().flat_map(Wire::on_the_way) {
            let (Body::Datagram(datagram) | Body::Dccp(Dccp { data: datagram, .. })) =
                packet.segment.body
            else {
                continue;
            };
            if let Some(messages) = on_the_way.get_mut(usize::from(packet.address.flow))
                && datagram.fragments > 0
            {
                messages.push(datagram.message);
            }
        }
        for side in &self.sides {
            if let Some(stream) = side.streams.first()
                && let Some(messages) = on_the_way.get_mut(stream.writes)
            {
                side.endpoint.waiting(&mut |message| messages.push(message));
            }
            let totals = side.endpoint.totals(self.end);
            for stream in &side.streams {
                let flows = &mut self.world.outcome.flows;
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
        for wire in &mut self.world.wires {
            wire.take_counters();
            self.world.outcome.link_totals.push(wire.total);
        }
        for (record, messages) in self.world.outcome.flows.iter_mut().zip(&mut on_the_way) {
            messages.sort_unstable();
            record.finish(messages);
        }
    }
}

impl World<'_> {
    /// Puts a segment on its wire.
    fn transmit(&mut self, now: Instant, index: usize, side: &Side, transmit: &Transmit) {
        let Some(wire_index) = side.wires.get(transmit.path.index()).copied() else { return };
        let Some(wire) = self.wires.get_mut(wire_index) else { return };
        let segment = &transmit.segment;
        let stream = side.streams.get(usize::from(segment.stream));
        let record = stream.map_or(usize::MAX, |stream| stream.writes);
        let address = Address { to: (index ^ 1) as u32, flow: record as u16, path: transmit.path };
        let (fate, next) = wire.admit(now, segment, address);
        if next {
            self.agenda.set(wire_index, wire.next_arrival());
        }
        self.outcome.packet_hops += 1;
        if wire.has_radio() {
            let (radio, sibling) = (wire.link.radio(), wire.sibling);
            if let (Some(radio), Some(other)) = (radio, self.wires.get_mut(sibling)) {
                other.link.set_radio(radio);
            }
        }
        if payload_bytes(segment) > 0
            && let Some(record) = self.outcome.flows.get_mut(record)
        {
            for offset in 0..u32::from(segment.messages) {
                record.copy_sent(segment.first_message.wrapping_add(offset));
            }
            if let Some(count) = record.summary.packets_by_path.get_mut(transmit.path.index()) {
                *count += 1;
            }
            if let Fate::Lost { cause, .. } = fate
                && let Some(count) = record.summary.lost_packets.get_mut(cause as usize)
            {
                *count += 1;
            }
        }
        if self.watch_packets {
            self.note_packet(now, wire_index, side.flow, segment, fate);
        }
    }

    #[cold]
    fn note_packet(
        &mut self,
        now: Instant,
        wire: usize,
        flow: usize,
        segment: &Segment,
        fate: Fate,
    ) {
        if self.record.packets {
            let (left, cause) = match fate {
                Fate::Delivered { at } => (at, None),
                Fate::Lost { at, cause } => (at, Some(cause)),
            };
            self.outcome.packets.push(PacketRow {
                entered: now,
                left,
                link: wire as u16,
                flow: flow as u16,
                bytes: segment.size,
                kind: kind_of(segment),
                cause,
            });
        }
        if self.observer.wants_packets() {
            self.observer.packet(&PacketEvent {
                entered: now,
                fate,
                path: wire / 2,
                uplink: wire.is_multiple_of(2),
                flow,
                segment,
            });
        }
    }

    /// An endpoint hands a message to its application. Returns when it was sent, unless it is known.
    fn deliver(&mut self, now: Instant, stream: Stream, message: Delivered) -> Option<Instant> {
        self.outcome.flows.get_mut(stream.gets)?.delivered(now, message)
    }

    /// The application answers a message that was sent at `sent`. True if it did.
    fn answer(
        &mut self,
        now: Instant,
        side: &mut Side,
        number: u8,
        stream: Stream,
        sent: Instant,
        setup: &Setup,
    ) -> bool {
        let Some(flow) = setup.flows.get(stream.flow) else { return false };
        let TrafficConfig::Ping { packet, .. } = &flow.traffic else { return false };
        let Some(answers) = self.outcome.flows.get_mut(stream.writes) else { return false };
        let (id, bytes) = (answers.next_id(), packet.get() as u32);
        // The answer carries the question's time, so that its delay is the round trip.
        answers.written(sent, bytes);
        let (stream, class, deadline) = (number, flow.class, None);
        side.write(now, Message { stream, id, class, bytes, deadline }, flow.copies);
        true
    }
}

fn payload_bytes(segment: &Segment) -> u32 {
    match &segment.body {
        Body::Datagram(datagram) => datagram.len,
        Body::Report(_) => 0,
        Body::Tcp(tcp) => tcp.len,
        Body::Dccp(dccp) => dccp.data.len,
    }
}

fn kind_of(segment: &Segment) -> PacketKind {
    match &segment.body {
        Body::Datagram(datagram) if datagram.fragments > 0 => PacketKind::Data,
        Body::Datagram(_) | Body::Report(_) => PacketKind::Report,
        Body::Tcp(tcp) if tcp.flags.has(Flags::SYN) => PacketKind::Handshake,
        Body::Tcp(tcp) if tcp.len > 0 => PacketKind::Data,
        Body::Tcp(_) => PacketKind::Ack,
        Body::Dccp(dccp) => match dccp.kind {
            DccpKind::Request | DccpKind::Response => PacketKind::Handshake,
            DccpKind::Data | DccpKind::DataAck => PacketKind::Data,
            DccpKind::Ack => PacketKind::Ack,
            DccpKind::Sync | DccpKind::SyncAck => PacketKind::Report,
        },
    }
}
