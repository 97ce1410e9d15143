//! The event loop.

use alloc::vec::Vec;

use skybraid_host::record::samples::SAMPLE_INTERVAL;
use skybraid_host::record::{LinkRow, LinkWaits, Outcome, PacketKind, PacketRow, Record};
use skybraid_host::{Carrier, Hosts, Leaving, OnTheWay, Setup};
use skybraid_link::{Cause, Fate, Link};
use skybraid_transport::Segment;
use skybraid_units::Instant;

use crate::agenda::Agenda;
use crate::routes::{Ahead, Routes};
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
    /// The link, as a position in [`Setup::links`].
    pub link: usize,
    /// From its first node to its second.
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

/// Simulates `setup` from start to end.
///
/// # Errors
/// The observer said to stop.
pub fn run(setup: &Setup, observer: &mut dyn Observer) -> Result<Outcome, Stopped> {
    Simulation::new(setup, observer).run()
}

struct Simulation<'a> {
    setup: &'a Setup,
    hosts: Hosts<'a>,
    world: World<'a>,
    end: Instant,
}

/// The wires, the agenda, and who looks on.
struct World<'a> {
    observer: &'a mut dyn Observer,
    record: Record,
    watch_packets: bool,
    /// Sources: wires, then sides, then applications, then the sampler, then changes of addresses.
    agenda: Agenda,
    wires: Vec<Wire>,
    routes: Routes,
    links: Vec<LinkRow>,
    packets: Vec<PacketRow>,
    packet_hops: u64,
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, observer: &'a mut dyn Observer) -> Self {
        let end = Instant::ZERO + setup.duration;
        let mut wires = Vec::new();
        for pair in &setup.links {
            for (direction, config) in [("uplink", &pair.uplink), ("downlink", &pair.downlink)] {
                let link = Link::new(config, &pair.name, direction, setup.seed);
                wires.push(Wire::new(link, wires.len() ^ 1));
            }
        }
        let hosts = Hosts::new(setup, |_| true);
        let agenda = Agenda::new(wires.len() + hosts.sides() + hosts.apps() + 2);
        let watch_packets = observer.wants_packets() || setup.record.packets;
        let world = World {
            observer,
            record: setup.record,
            watch_packets,
            agenda,
            wires,
            routes: Routes::new(setup),
            links: Vec::new(),
            packets: Vec::new(),
            packet_hops: 0,
        };
        Self { setup, hosts, world, end }
    }

    fn run(mut self) -> Result<Outcome, Stopped> {
        let first_side = self.world.wires.len();
        let first_app = first_side + self.hosts.sides();
        let sampler = first_app + self.hosts.apps();
        for app in 0..self.hosts.apps() {
            self.world.agenda.set(first_app + app, self.hosts.next_write(app));
        }
        for side in 0..self.hosts.sides() {
            self.hosts.settle(Instant::ZERO, side, &mut self.world);
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
                let next = self.hosts.write(now, source - first_app, &mut self.world);
                self.world.agenda.set(source, next);
            } else if source > sampler {
                if let Some(change) = changes.next() {
                    self.hosts.change_address(now, change, &mut self.world);
                }
                let next = changes.peek().map_or(Instant::FAR_FUTURE, |change| change.at);
                self.world.agenda.set(source, next);
            } else {
                self.world.sample_links(now);
                self.hosts.sample(now);
                self.world.agenda.set(source, now + SAMPLE_INTERVAL);
                if !self.world.observer.progress(now) {
                    return Err(Stopped { at: now });
                }
            }
        }
        Ok(self.finish())
    }

    /// The next packet on a wire arrives.
    fn arrive(&mut self, now: Instant, wire: usize) {
        let world = &mut self.world;
        let Some(state) = world.wires.get_mut(wire) else { return };
        let Some(Packet { address, segment, waits, .. }) = state.front() else { return };
        if address.ahead != Ahead::NOTHING {
            return self.forward(now, wire);
        }
        let side = address.to as usize;
        self.hosts.receive(now, side, address.path, segment, Some(*waits));
        state.pop();
        world.agenda.set(wire, state.next_arrival());
        self.hosts.settle(now, side, world);
    }

    /// The next packet on a wire has come to a node on its way.
    fn forward(&mut self, now: Instant, wire: usize) {
        let world = &mut self.world;
        let Some(state) = world.wires.get_mut(wire) else { return };
        let Some(Packet { address, segment, waits, .. }) = state.pop() else { return };
        world.agenda.set(wire, state.next_arrival());
        let side = address.to as usize;
        let Some((link, ahead)) = world.routes.next(wire, address.ahead) else {
            // The forwarding table ends here: the packet has arrived.
            self.hosts.receive(now, side, address.path, &segment, Some(waits));
            return self.hosts.settle(now, side, world);
        };
        let flow = if world.watch_packets { self.hosts.flow_of(side).unwrap_or(0) } else { 0 };
        let lost = world.enter(now, link, &segment, Address { ahead, ..address }, waits, flow);
        if let Some(cause) = lost {
            let record = usize::from(address.flow);
            self.hosts.lost_on_the_way(record, address.path, &segment, cause);
        }
    }

    /// A timer of an endpoint expires.
    fn wake(&mut self, now: Instant, side: usize) {
        let source = self.world.wires.len() + side;
        let due = self.hosts.next_wakeup(side);
        if due > now {
            // Timers are often pushed back; the agenda hears of that only when the old time comes.
            self.world.agenda.set(source, due);
            return;
        }
        self.world.agenda.set(source, Instant::FAR_FUTURE);
        self.hosts.wake(now, side, &mut self.world);
    }

    fn finish(self) -> Outcome {
        let mut wires = self.world.wires;
        let on_the_way = wires.iter().flat_map(Wire::on_the_way);
        let on_the_way = on_the_way.map(|packet| OnTheWay {
            record: usize::from(packet.address.flow),
            segment: &packet.segment,
            arrival: Some(packet.arrival()),
        });
        let mut outcome = self.hosts.finish(on_the_way);
        for wire in &mut wires {
            wire.take_counters();
            outcome.link_totals.push(wire.total);
        }
        outcome.links = self.world.links;
        outcome.packets = self.world.packets;
        outcome.packet_hops = self.world.packet_hops;
        outcome
    }
}

impl Carrier for World<'_> {
    /// Puts a segment on the first wire of its route.
    fn carry(&mut self, now: Instant, leaving: &Leaving<'_>) -> Option<Cause> {
        let (link, ahead) = self.routes.first(leaving.route)?;
        let address = Address {
            to: (leaving.side ^ 1) as u32,
            flow: leaving.record as u16,
            path: leaving.transmit.path,
            ahead,
        };
        let before = LinkWaits::default();
        self.enter(now, link, &leaving.transmit.segment, address, before, leaving.flow)
    }

    fn wake_at(&mut self, side: usize, due: Instant) {
        let source = self.wires.len() + side;
        if due < self.agenda.due(source) {
            self.agenda.set(source, due);
        }
    }
}

impl World<'_> {
    /// Puts a segment of `flow` on wire number `link`. Answers why it is lost, if it is.
    #[inline]
    fn enter(
        &mut self,
        now: Instant,
        link: usize,
        segment: &Segment,
        address: Address,
        before: LinkWaits,
        flow: usize,
    ) -> Option<Cause> {
        let wire = self.wires.get_mut(link)?;
        let (fate, next) = wire.admit(now, segment, address, before);
        if next {
            self.agenda.set(link, wire.next_arrival());
        }
        self.packet_hops += 1;
        if wire.has_radio() {
            let (radio, sibling) = (wire.link.radio(), wire.sibling);
            if let (Some(radio), Some(other)) = (radio, self.wires.get_mut(sibling)) {
                other.link.set_radio(radio);
            }
        }
        if self.watch_packets {
            self.note_packet(now, link, segment, flow, fate);
        }
        match fate {
            Fate::Delivered { .. } => None,
            Fate::Lost { cause, .. } => Some(cause),
        }
    }

    fn sample_links(&mut self, now: Instant) {
        for (index, wire) in self.wires.iter_mut().enumerate() {
            let counters = wire.take_counters();
            if !self.record.links {
                continue;
            }
            let conditions = wire.link.conditions(now);
            self.links.push(LinkRow {
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
    }

    #[cold]
    fn note_packet(
        &mut self,
        now: Instant,
        link: usize,
        segment: &Segment,
        flow: usize,
        fate: Fate,
    ) {
        if self.record.packets {
            let (left, cause) = match fate {
                Fate::Delivered { at } => (at, None),
                Fate::Lost { at, cause } => (at, Some(cause)),
            };
            self.packets.push(PacketRow {
                entered: now,
                left,
                link: link as u16,
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
                link: link / 2,
                uplink: link.is_multiple_of(2),
                flow,
                segment,
            });
        }
    }
}
