//! The event loop of a simulation.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use skybraid_host::record::samples::SAMPLE_INTERVAL;
use skybraid_host::record::{LinkRow, LinkWaits, Outcome, PacketKind, PacketRow, Record};
use skybraid_host::{
    Carried, Carrier, DirectedLink, FlowId, Hosts, InFlight, Numbered, Outgoing, RouteId, Setup,
    SideId,
};
use skybraid_link::{Direction, Fate, Link};
use skybraid_transport::Segment;
use skybraid_units::{Bytes, Instant, Promised};

use crate::agenda::Agenda;
use crate::fragments::{Fragments, Identification};
use crate::routes::{Ahead, Routes};
use crate::sources::{Source, Sources};
use crate::wire::{Address, Packet, Wire};

/// Observer of a run in progress.
pub trait Observer {
    /// Called at every sample. Returns whether the run continues.
    fn progress(&mut self, now: Instant) -> bool {
        let _ = now;
        true
    }

    /// Whether [`packet`](Self::packet) must be called.
    fn wants_packets(&self) -> bool {
        false
    }

    /// Called when a packet enters a link.
    fn packet(&mut self, event: &PacketEvent<'_>) {
        let _ = event;
    }

    /// Called when the arrival of a packet is known that was [`Fate::Held`] when it entered.
    fn released(&mut self, event: &PacketEvent<'_>) {
        let _ = event;
    }
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// A packet that entered a link.
#[derive(Clone, Copy, Debug)]
pub struct PacketEvent<'a> {
    /// Time of admission.
    pub entered: Instant,
    /// Fate of the packet.
    pub fate: Fate,
    /// Link, as a position in [`Setup::links`].
    pub link: usize,
    /// Whether the packet travels from the link's first node to its second.
    pub uplink: bool,
    /// Flow, as a position in [`Setup::flows`].
    pub flow: usize,
    /// Segment that the packet carries.
    pub segment: &'a Segment,
}

/// Error of a run that its observer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Time at which the run stopped.
    pub at: Instant,
}

/// Simulates `setup` from start to end.
///
/// # Errors
/// The observer stopped the run.
pub fn run(setup: &Setup, observer: &mut dyn Observer) -> Result<Outcome, Stopped> {
    Simulation::new(setup, observer).run()
}

struct Simulation<'a> {
    setup: &'a Setup,
    hosts: Hosts,
    network: Network<'a>,
    end: Instant,
}

/// The network of a run: wires, routes and the agenda, with the observer and the tables.
struct Network<'a> {
    observer: &'a mut dyn Observer,
    record: Record,
    watch_packets: bool,
    /// Whether arrivals may be settled: every link keeps the order, and its fates are known at admission.
    settles: bool,
    agenda: Agenda,
    sources: Sources,
    wires: Vec<Wire>,
    routes: Routes,
    /// Packets that are cut into fragments, if any are.
    fragments: Option<Fragments>,
    links: Vec<LinkRow>,
    packets: Vec<PacketRow>,
    /// Watched packets that receivers hold, by link.
    held: BTreeMap<usize, VecDeque<Held>>,
    packet_hops: u64,
}

/// A watched packet that a receiver holds.
struct Held {
    entered: Instant,
    flow: usize,
    /// Row of the packet, if rows are kept.
    row: usize,
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, observer: &'a mut dyn Observer) -> Self {
        let end = Instant::ZERO + setup.duration;
        let mut wires = Vec::new();
        for pair in &setup.links {
            for (direction, config) in [("uplink", &pair.uplink), ("downlink", &pair.downlink)] {
                let link = Link::new(config, &pair.name, direction, setup.seed);
                wires.push(Wire::new(link));
            }
        }
        let hosts = Hosts::new(setup, |_| true);
        let sources = Sources::new(wires.len(), hosts.sides().len(), hosts.flows().len());
        let agenda = Agenda::new(sources.count());
        let watch_packets = observer.wants_packets() || setup.record.packets;
        let network = Network {
            observer,
            record: setup.record,
            watch_packets,
            settles: wires.iter().all(|wire| wire.link.keeps_order() && !wire.link.may_hold()),
            agenda,
            sources,
            wires,
            routes: Routes::new(setup),
            fragments: setup.fragment_size.map(Fragments::new),
            links: Vec::new(),
            packets: Vec::new(),
            held: BTreeMap::new(),
            packet_hops: 0,
        };
        Self { setup, hosts, network, end }
    }

    fn run(mut self) -> Result<Outcome, Stopped> {
        let sources = self.network.sources;
        for flow in self.hosts.flows() {
            self.network.set(Source::App(flow), self.hosts.next_write(flow));
        }
        for side in self.hosts.sides() {
            self.hosts.flush(Instant::ZERO, side, &mut self.network);
        }
        self.network.set(Source::Sampler, Instant::ZERO);
        let mut changes = self.setup.address_changes.iter().peekable();
        let next_change = changes.peek().map_or(Instant::FAR_FUTURE, |change| change.at);
        self.network.set(Source::AddressChange, next_change);
        loop {
            let (index, now) = self.network.agenda.next();
            if now > self.end {
                break;
            }
            if let Some(wire) = sources.wire(index) {
                self.on_arrival(now, wire);
            } else if let Some(app) = sources.app(index) {
                let next = self.hosts.write(now, app, &mut self.network);
                self.network.agenda.set(index, next);
            } else if let Some(side) = sources.side(index) {
                self.on_timer(now, side);
            } else if index == sources.index(Source::Sampler) {
                self.network.sample_links(now);
                self.hosts.sample(now);
                self.network.agenda.set(index, now + SAMPLE_INTERVAL);
                if !self.network.observer.progress(now) {
                    return Err(Stopped { at: now });
                }
            } else {
                if let Some(change) = changes.next() {
                    self.hosts.change_address(now, change, &mut self.network);
                }
                let next = changes.peek().map_or(Instant::FAR_FUTURE, |change| change.at);
                self.network.agenda.set(index, next);
            }
        }
        Ok(self.finish())
    }

    /// Handles the arrival of the next packet on `link`.
    #[inline]
    fn on_arrival(&mut self, now: Instant, link: DirectedLink) {
        let network = &mut self.network;
        let Some(wire) = Wire::find_mut(&mut network.wires, link) else { return };
        let packet = wire.front().promised("a packet that is due");
        let Some(Packet { address, segment, waits, .. }) = packet else { return };
        if address.ahead != Ahead::NOTHING || address.fragment_of.is_some() {
            return self.forward(now, link);
        }
        let mut participant = self.hosts.participant(address.to);
        let reacts = participant.as_mut().is_some_and(|participant| {
            participant.receive(now, address.path, segment, Some(waits))
        });
        let next = wire.remove_front(segment.size);
        network.agenda.set(link.index(), next);
        if reacts && let Some(mut participant) = participant {
            participant.flush(now, network);
        }
    }

    /// Forwards the next packet on `link` from the node at its end.
    #[inline(never)]
    fn forward(&mut self, now: Instant, link: DirectedLink) {
        let network = &mut self.network;
        let Some(wire) = Wire::find_mut(&mut network.wires, link) else { return };
        let packet = wire.front().copied().promised("a packet that is due");
        let Some(Packet { mut address, segment, waits, .. }) = packet else { return };
        let next = wire.remove_front(segment.size);
        network.agenda.set(link.index(), next);
        let Some((next, ahead)) = network.routes.next(link, address.ahead) else {
            // No further link: this node is the destination.
            let segment = match (address.fragment_of, &mut network.fragments) {
                (Some(packet), Some(fragments)) => fragments.on_arrived(&segment, packet),
                _ => Some(segment),
            };
            let Some(segment) = segment else { return };
            let Some(mut participant) = self.hosts.participant(address.to) else { return };
            if participant.receive(now, address.path, &segment, Some(&waits)) {
                participant.flush(now, network);
            }
            return;
        };
        let flow = network.watch_packets.then(|| self.hosts.flow_of(address.to)).flatten();
        address.ahead = ahead;
        let record = address.record;
        let settle_by = record
            .filter(|_| ahead == Ahead::NOTHING)
            .and_then(|record| self.hosts.settle_by(record, address.to, &segment));
        let carried = network.enter(now, next, (&segment, address, waits), settle_by, flow);
        let is_known = matches!(carried, Carried::Lost(_))
            && address.fragment_of.is_some_and(|packet| !network.on_fragment_lost(packet));
        let Some(record) = record.filter(|_| !is_known) else { return };
        match carried {
            Carried::InFlight => {}
            Carried::Lost(cause) => self.hosts.on_lost(record, address.path, &segment, cause),
            Carried::Settled { at, link } => {
                self.hosts.on_settled(record, address.path, &segment, (at, link));
            }
        }
    }

    /// Fires the timer of a side.
    fn on_timer(&mut self, now: Instant, side: SideId) {
        let due = self.hosts.next_wakeup(side);
        if due > now {
            // A timer that was pushed back keeps its old entry in the agenda until that expires.
            self.network.set(Source::Side(side), due);
            return;
        }
        self.network.set(Source::Side(side), Instant::FAR_FUTURE);
        self.hosts.wake(now, side, &mut self.network);
    }

    fn finish(self) -> Outcome {
        let (mut wires, fragments) = (self.network.wires, self.network.fragments);
        let completes = |packet: &&Packet| match (packet.address.fragment_of, &fragments) {
            (Some(packet), Some(fragments)) => fragments.completes(packet),
            _ => true,
        };
        let in_flight = wires.iter().flat_map(Wire::in_flight).filter(completes);
        let in_flight = in_flight.filter_map(|packet| {
            let (segment, arrival) = (&packet.segment, Some(packet.arrival()));
            packet.address.record.map(|record| InFlight { record, segment, arrival })
        });
        let mut outcome = self.hosts.finish(in_flight);
        for wire in &mut wires {
            outcome.link_totals.push(wire.finish());
        }
        outcome.links = self.network.links;
        outcome.packets = self.network.packets;
        outcome.packet_hops = self.network.packet_hops;
        outcome
    }
}

impl Carrier for Network<'_> {
    /// Sends a segment into the first wire of its route. Inlined: a load of what the caller has just stored in parts
    /// waits for all stores before.
    #[inline(always)]
    fn carry(&mut self, now: Instant, outgoing: &Outgoing<'_>) -> Carried {
        let Outgoing { side, record, route, transmit, flow, settle_by } = *outgoing;
        let (to, path, segment) = (side.other(), transmit.path, &transmit.segment);
        let size = segment.size;
        if let Some(fragments) = self.fragments.as_mut().filter(|cut| cut.splits(size)) {
            let (packet, sizes) = fragments.split(size);
            let (ahead, fragment_of) = (Ahead::NOTHING, Some(packet));
            let address = Address { to, record, path, ahead, fragment_of };
            return self.carry_fragments(now, (segment, address), (route, flow), sizes);
        }
        let first = self.routes.first(route).promised("a first hop");
        let Some((link, ahead)) = first else { return Carried::InFlight };
        let address = Address { to, record, path, ahead, fragment_of: None };
        self.enter(now, link, (segment, address, LinkWaits::default()), settle_by, Some(flow))
    }

    #[inline]
    fn wake_at(&mut self, side: SideId, due: Instant) {
        self.agenda.set_earlier(self.sources.index(Source::Side(side)), due);
    }
}

impl Network<'_> {
    /// Sends a segment of `flow` in fragments of `sizes`, each into the first wire of `route`.
    #[cold]
    fn carry_fragments(
        &mut self,
        now: Instant,
        (segment, address): (&Segment, Address),
        (route, flow): (RouteId, FlowId),
        sizes: impl Iterator<Item = u32>,
    ) -> Carried {
        let mut result = Carried::InFlight;
        for size in sizes {
            let first = self.routes.first(route).promised("a first hop");
            let Some((link, ahead)) = first else { continue };
            let (segment, address) = (Segment { size, ..*segment }, Address { ahead, ..address });
            let fragment = (&segment, address, LinkWaits::default());
            let carried = self.enter(now, link, fragment, None, Some(flow));
            if matches!(carried, Carried::Lost(_))
                && address.fragment_of.is_some_and(|packet| self.on_fragment_lost(packet))
            {
                result = carried;
            }
        }
        result
    }

    /// Records the loss of a fragment. Returns true if it is the first of its packet.
    fn on_fragment_lost(&mut self, packet: Identification) -> bool {
        self.fragments.as_mut().is_some_and(|fragments| fragments.on_lost(packet))
    }

    /// Sets the due time of a source.
    #[inline]
    fn set(&mut self, source: Source, at: Instant) {
        self.agenda.set(self.sources.index(source), at);
    }

    /// Sends a segment of `flow` into `link`, with its address and its waits at earlier links. An arrival until
    /// `settle_by` at the end of the route is settled.
    #[inline(always)]
    fn enter(
        &mut self,
        now: Instant,
        link: DirectedLink,
        (segment, address, before): (&Segment, Address, LinkWaits),
        settle_by: Option<Instant>,
        flow: Option<FlowId>,
    ) -> Carried {
        let settle_by = settle_by.filter(|_| self.settles && address.ahead == Ahead::NOTHING);
        let Some(wire) = Wire::find_mut(&mut self.wires, link) else { return Carried::InFlight };
        let busy_until = wire.link.busy_until();
        let fate = wire.link.admit(now, Bytes::new(u64::from(segment.size)));
        self.packet_hops += 1;
        if wire.has_radio() || wire.may_hold() || self.watch_packets {
            self.on_admitted(now, link, segment, flow, fate);
        }
        let Some(wire) = Wire::find_mut(&mut self.wires, link) else { return Carried::InFlight };
        let at = match fate {
            Fate::Delivered { at } => at,
            Fate::Held => Instant::FAR_FUTURE,
            Fate::Lost { cause, .. } => {
                wire.on_lost(cause);
                return Carried::Lost(cause);
            }
        };
        if settle_by.is_some_and(|latest| at <= latest) {
            wire.settle(now, at, segment.size);
            return Carried::Settled { at, link };
        }
        let ends = segment.messages > 0;
        let waits = if ends { wire.waits(now, busy_until, before) } else { before };
        if wire.carry(at, segment, address, waits) {
            self.agenda.set(link.index(), wire.next_arrival());
        }
        Carried::InFlight
    }

    /// Handles what an admission to `link` means for other packets, for the other direction and for the tables.
    #[inline(never)]
    fn on_admitted(
        &mut self,
        now: Instant,
        link: DirectedLink,
        segment: &Segment,
        flow: Option<FlowId>,
        fate: Fate,
    ) {
        let Some(wire) = Wire::find_mut(&mut self.wires, link) else { return };
        if wire.may_hold() && wire.release_held(fate) {
            self.agenda.set(link.index(), wire.next_arrival());
        }
        if wire.has_radio() {
            self.share_radio(link);
        }
        if self.watch_packets {
            self.record_packet(now, link, segment, flow, fate);
        }
    }

    /// Copies the radio of `link`, which a packet has just entered, to the other direction.
    fn share_radio(&mut self, link: DirectedLink) {
        let radio = Wire::find(&self.wires, link).and_then(|wire| wire.link.radio());
        let other = Wire::find_mut(&mut self.wires, link.reverse());
        if let (Some(radio), Some(other)) = (radio, other) {
            other.link.set_radio(radio);
        }
    }

    #[cold]
    fn sample_links(&mut self, now: Instant) {
        if !self.record.links {
            return;
        }
        for (index, wire) in self.wires.iter_mut().enumerate() {
            let counts = wire.sample(now);
            let conditions = wire.link.conditions(now);
            self.links.push(LinkRow {
                at: now,
                link: index as u16,
                rate_bps: conditions.rate.as_bps(),
                delay: conditions.delay,
                loss: conditions.loss.ratio(),
                up: conditions.up,
                queue_bytes: wire.link.backlog(now).get(),
                delivered: counts.delivered as u32,
                delivered_bytes: counts.delivered_bytes,
                lost: counts.lost.map(|lost| lost as u32),
            });
        }
    }

    #[cold]
    fn record_packet(
        &mut self,
        now: Instant,
        link: DirectedLink,
        segment: &Segment,
        flow: Option<FlowId>,
        fate: Fate,
    ) {
        self.record_releases(link);
        let flow = flow.map_or(0, FlowId::index);
        if fate == Fate::Held {
            let held = Held { entered: now, flow, row: self.packets.len() };
            self.held.entry(link.index()).or_default().push_back(held);
        }
        if self.record.packets {
            let (left, cause) = match fate {
                Fate::Delivered { at } => (at, None),
                Fate::Held => (Instant::FAR_FUTURE, None),
                Fate::Lost { at, cause } => (at, Some(cause)),
            };
            self.packets.push(PacketRow {
                entered: now,
                left,
                link: link.index() as u16,
                flow: flow as u16,
                bytes: segment.size,
                kind: PacketKind::of(segment),
                cause,
            });
        }
        if self.observer.wants_packets() {
            self.observer.packet(&PacketEvent {
                entered: now,
                fate,
                link: link.link(),
                uplink: link.direction() == Direction::Uplink,
                flow,
                segment,
            });
        }
    }

    /// Records when the packets arrive that the receiver of `link` has just released.
    fn record_releases(&mut self, link: DirectedLink) {
        let Some(wire) = Wire::find(&self.wires, link) else { return };
        for packet in &wire.released {
            let held = self.held.get_mut(&link.index()).and_then(VecDeque::pop_front);
            let Some(held) = held.promised("a record of a held packet") else { return };
            if self.record.packets
                && let Some(row) = self.packets.get_mut(held.row).promised("its row")
            {
                row.left = packet.arrives;
            }
            if self.observer.wants_packets() {
                self.observer.released(&PacketEvent {
                    entered: held.entered,
                    fate: Fate::Delivered { at: packet.arrives },
                    link: link.link(),
                    uplink: link.direction() == Direction::Uplink,
                    flow: held.flow,
                    segment: &packet.segment,
                });
            }
        }
    }
}
