//! The endpoint of a class: the transport's, which knows messages by number and length, and their bytes.

use alloc::vec;
use alloc::vec::Vec;

use skybraid_transport::coding::{Recovered, coefficients};
use skybraid_transport::scheduler::forecast::Forecast;
use skybraid_transport::segment::{Body, Datagram, Repair, Segment};
use skybraid_transport::wire::datagram::{Decoded, Header, Payload, encode, excess};
use skybraid_transport::{Delivered, Endpoint, Message, PathId, PathInfo};
use skybraid_units::field::add_product;
use skybraid_units::invariant::Promised;
use skybraid_units::{Bytes, Duration, Instant};

use crate::Class;
use crate::fec::Packet;
use crate::link::Connection;
use crate::session::OVERHEAD;

/// Messages whose bytes are kept at each end, more than any queue holds.
const KEPT: usize = 4096;

/// One end of the connection of a class.
#[derive(Debug)]
pub struct ClassEndpoint {
    class: Class,
    endpoint: Endpoint,
    leaving: Ring,
    arriving: Ring,
    next: u32,
    life: Option<Duration>,
    min_delay: Duration,
    /// Messages given up unsent since the last call of [`take_refused`](Self::take_refused).
    refused: Refused,
    /// Copies that arrived, and distinct messages among them.
    copies: u64,
    messages: u64,
}

/// Messages that a transport dropped unsent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Queue full.
    pub full: u64,
    /// Past the class's deadline.
    pub late: u64,
}

/// A delivered message; its bytes are in [`ClassEndpoint::bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Number within the class.
    pub id: u32,
    /// Path of the first copy.
    pub path: PathId,
}

impl ClassEndpoint {
    /// One end of a connection.
    pub fn new(connection: &Connection<'_>) -> Self {
        let Connection { class, transport, life, paths, role, .. } = *connection;
        let around = u64::from(excess(transport.protocol)) + OVERHEAD as u64;
        let inside = |path: &PathInfo| PathInfo { mtu: path.mtu - Bytes::new(around), ..*path };
        let paths: Vec<PathInfo> = paths.iter().map(inside).collect();
        Self {
            class,
            endpoint: Endpoint::new(transport, &paths, role),
            leaving: Ring::default(),
            arriving: Ring::default(),
            next: 0,
            life,
            min_delay: Duration::ZERO,
            refused: Refused::default(),
            copies: 0,
            messages: 0,
        }
    }

    /// Writes a message made of `parts`; its age counts from `arrived`. The scheduler treats a `vital`
    /// message as control: if the class duplicates messages, every path gets a copy.
    pub fn write(&mut self, now: Instant, arrived: Instant, parts: [&[u8]; 2], vital: bool) {
        let id = self.next;
        self.next = id.wrapping_add(1);
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.leaving.put(id, arrived, parts);
        let class = if vital { Class::Control } else { self.class };
        self.endpoint.write(
            now,
            Message {
                stream: 0,
                id,
                class: class.in_transports(),
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                deadline: self.max_age().map(|max_age| arrived + max_age),
            },
        );
    }

    /// Sets the time from the network here to the peer: a message that cannot be there in time does not leave, and
    /// takes no window from those that can.
    pub fn set_min_delay(&mut self, min_delay: Duration) {
        self.min_delay = min_delay + self.endpoint.pacing_delay();
    }

    /// Maximum age of a message that leaves.
    pub fn max_age(&self) -> Option<Duration> {
        self.life.map(|life| life - self.min_delay)
    }

    /// Writes a packet of a class with FEC. Duplicate repair packets would be of little use.
    pub fn write_packet(
        &mut self,
        now: Instant,
        arrived: Instant,
        packet: Packet<'_>,
        vital: bool,
    ) {
        match packet {
            Packet::Piece(parts) => self.write(now, arrived, parts, vital),
            Packet::Repair(parts) => self.write(now, now, parts, false),
        }
    }

    /// Overhead of a repair packet of the transport over the largest datagram, in bytes.
    pub const fn repair_overhead(&self) -> usize {
        self.endpoint.repair_overhead() as usize
    }

    /// Number of messages in the transport's queue.
    pub fn waiting(&self) -> usize {
        let mut waiting = 0;
        self.endpoint.waiting(&mut |_| waiting += 1);
        waiting
    }

    /// Writes the next datagram to `out` and returns its path.
    pub fn poll_send(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PathId> {
        let max_age = self.max_age();
        loop {
            let transmit = self.endpoint.poll_send(now);
            self.note_refused(now);
            let transmit = transmit?;
            let header = Header { connection: self.class.index() as u16 };
            let datagram = matches!(transmit.segment.body, Body::Datagram(_));
            if let Body::Repair(repair) = &transmit.segment.body {
                let payload = self.repair_payload(repair);
                let written = payload.is_some_and(|payload| {
                    encode(&transmit.segment, &header, Payload::Bytes(&payload), out).is_ok()
                });
                if written {
                    return Some(transmit.path);
                }
                continue;
            }
            let bytes = match part_of(&transmit.segment) {
                Some(part) => match self.leaving.get_mut(part.message) {
                    // Expired in the queue. Congestion-controlled messages are sent even so, for the receiver
                    // to drop: a gap in the numbers would count as a loss.
                    Some(slot)
                        if datagram && max_age.is_some_and(|max_age| slot.at + max_age < now) =>
                    {
                        self.refused.late += u64::from(!slot.late);
                        slot.late = true;
                        continue;
                    }
                    Some(slot) => slot.bytes.as_slice(),
                    // Overwritten by thousands of others: lost at the sender.
                    None => continue,
                },
                None => &[],
            };
            if encode(&transmit.segment, &header, Payload::Bytes(bytes), out).is_ok() {
                return Some(transmit.path);
            }
        }
    }

    /// Handles a datagram of this class; `plain` is all of it.
    pub fn receive(&mut self, now: Instant, path: PathId, decoded: &Decoded, plain: &[u8]) {
        let payload = plain.get(decoded.payload.clone()).promised("the payload that was decoded");
        let payload = payload.unwrap_or_default();
        if let Some(part) = part_of(&decoded.segment) {
            // Messages are fragmented before they are written, so none has fragments of the transport's own.
            if part.fragments != 1 {
                return;
            }
            self.copies += 1;
            self.arriving.put_once(part.message, now, payload);
        }
        self.endpoint.receive_with(now, path, &decoded.segment, payload);
        while let Some(Recovered { datagram, payload }) = self.endpoint.take_recovered() {
            if datagram.fragments == 1 {
                self.copies += 1;
                self.arriving.put_once(datagram.message, now, &payload);
            }
        }
    }

    /// Returns the sum of the payloads that a repair packet covers; `None` if one is overwritten.
    fn repair_payload(&self, repair: &Repair) -> Option<Vec<u8>> {
        let mut sum = vec![0; repair.len as usize];
        let covered = repair.first..repair.first + u64::from(repair.count);
        for (sequence, coefficient) in covered.zip(coefficients(repair.key)) {
            let slot = self.leaving.get(self.endpoint.sent(sequence)?.message)?;
            add_product(&mut sum, &slot.bytes, coefficient);
        }
        Some(sum)
    }

    /// Returns the next delivered message, which the caller [frees](Self::free).
    pub fn poll_delivered(&mut self) -> Option<Arrived> {
        loop {
            let Delivered { id, path, .. } = self.endpoint.poll_delivered()?;
            self.messages += 1;
            if self.arriving.get(id).is_some() {
                return Some(Arrived { id, path });
            }
        }
    }

    /// Bytes of a delivered message.
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.arriving.get(id).map_or(&[], |slot| &slot.bytes)
    }

    /// Releases the bytes of a message.
    pub fn free(&mut self, id: u32) {
        self.arriving.free(id);
    }

    /// Share of the messages that the scheduler expects in time, if it estimates it.
    pub fn forecast(&self) -> Option<Forecast> {
        self.endpoint.forecast()
    }

    /// True if the scheduler needs reports of the peer and none has come for `time` after a packet.
    pub fn never_answered(&self, now: Instant, time: Duration) -> bool {
        self.endpoint.never_answered(now, time)
    }

    /// Number of copies that arrived after the first.
    pub const fn duplicates(&self) -> u64 {
        self.copies.saturating_sub(self.messages)
    }

    /// Returns the messages given up unsent since the last call.
    pub fn take_refused(&mut self, now: Instant) -> Refused {
        self.note_refused(now);
        core::mem::take(&mut self.refused)
    }

    /// Counts refused messages and reuses the numbers of the newest: bytes are stored by number, and a flood
    /// of refused messages must not overwrite those in the queue.
    fn note_refused(&mut self, now: Instant) {
        let max_age = self.max_age();
        let Self { endpoint, refused, next, leaving, .. } = self;
        endpoint.take_refused(&mut |id| {
            let at = leaving.get(id).map(|slot| slot.at);
            match at.zip(max_age) {
                Some((at, max_age)) if at + max_age < now => refused.late += 1,
                _ => refused.full += 1,
            }
            if id == next.wrapping_sub(1) {
                *next = id;
            }
        });
    }

    /// The transport, for what the driver knows of its paths.
    pub const fn transport_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Time of the next call of [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        self.endpoint.next_wakeup()
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        self.endpoint.wake(now);
    }
}

/// Returns the message part in a segment, if any.
fn part_of(segment: &Segment) -> Option<&Datagram> {
    let part = match &segment.body {
        Body::Datagram(part) => part,
        Body::Dccp(packet) => &packet.data,
        Body::Report(_) | Body::Repair(_) | Body::Tcp(_) => return None,
    };
    (part.fragments > 0).then_some(part)
}

/// Bytes of the newest messages, by number.
#[derive(Debug, Default)]
struct Ring {
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    id: u32,
    held: bool,
    /// Expired before it was sent, and already counted.
    late: bool,
    at: Instant,
    bytes: Vec<u8>,
}

impl Ring {
    fn slot(&mut self, id: u32) -> Option<&mut Slot> {
        let place = id as usize % KEPT;
        if self.slots.len() <= place {
            // Grows with the numbers, so that a quiet class stays small.
            self.slots.resize_with((place + 1).next_power_of_two().min(KEPT), Slot::default);
        }
        self.slots.get_mut(place).promised("a slot of the ring")
    }

    fn put(&mut self, id: u32, at: Instant, parts: [&[u8]; 2]) {
        let Some(slot) = self.slot(id) else { return };
        slot.id = id;
        slot.held = true;
        slot.late = false;
        slot.at = at;
        slot.bytes.clear();
        parts.iter().for_each(|part| slot.bytes.extend_from_slice(part));
    }

    /// Keeps the first copy. If a newer message has taken the slot, a copy is too old to matter.
    fn put_once(&mut self, id: u32, at: Instant, bytes: &[u8]) {
        let newer = |slot: &Slot| slot.held && id.wrapping_sub(slot.id).cast_signed() <= 0;
        if !self.slot(id).is_some_and(|slot| newer(slot)) {
            self.put(id, at, [bytes, &[]]);
        }
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut Slot> {
        self.slots.get_mut(id as usize % KEPT).filter(|slot| slot.held && slot.id == id)
    }

    fn get(&self, id: u32) -> Option<&Slot> {
        self.slots.get(id as usize % KEPT).filter(|slot| slot.held && slot.id == id)
    }

    /// Frees the bytes and keeps the number, so that a late copy replaces no newer message.
    fn free(&mut self, id: u32) {
        if let Some(slot) = self.slots.get_mut(id as usize % KEPT)
            && slot.id == id
        {
            slot.bytes.clear();
        }
    }
}
