//! One class's messages on their way: the transport's endpoint, which knows messages by number and
//! length, and their bytes next to it.

use alloc::vec::Vec;

use skybraid_transport::segment::{Body, Datagram, Segment};
use skybraid_transport::wire::datagram::{Decoded, Header, Payload, encode, excess};
use skybraid_transport::{Delivered, Endpoint, Message, PathId, PathInfo, Role, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant};

use crate::Class;
use crate::fec::Packet;
use crate::session::OVERHEAD;

/// Messages whose bytes are kept at each end: more than wait in any queue.
const KEPT: usize = 4096;

/// One end of a class's connection.
#[derive(Debug)]
pub struct Carrier {
    class: Class,
    endpoint: Endpoint,
    leaving: Ring,
    arriving: Ring,
    next: u32,
    life: Option<Duration>,
    /// Messages that were given up unsent since they were last asked for.
    refused: Refused,
    /// Copies of messages that arrived, and messages among them.
    copies: u64,
    messages: u64,
}

/// Messages that a transport gave up unsent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// For want of room.
    pub full: u64,
    /// Older than their class allows.
    pub late: u64,
}

/// A message that has arrived; its bytes are in [`Carrier::bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its number in its class.
    pub id: u32,
    /// The path of its first copy.
    pub path: PathId,
}

impl Carrier {
    /// One end of a connection over `paths`.
    pub fn new(
        class: Class,
        config: &TransportConfig,
        life: Option<Duration>,
        paths: &[PathInfo],
        role: Role,
    ) -> Self {
        let around = u64::from(excess(config.protocol)) + OVERHEAD as u64;
        let inside = |path: &PathInfo| PathInfo { mtu: path.mtu - Bytes::new(around), ..*path };
        let paths: Vec<PathInfo> = paths.iter().map(inside).collect();
        Self {
            class,
            endpoint: Endpoint::new(config, &paths, role),
            leaving: Ring::default(),
            arriving: Ring::default(),
            next: 0,
            life,
            refused: Refused::default(),
            copies: 0,
            messages: 0,
        }
    }

    /// Writes a message made of `parts` whose age counts from `arrived`. One that is `vital` is control to
    /// the scheduler: where the class has messages duplicated, every path gets a copy.
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
                deadline: self.life.map(|life| arrived + life),
            },
        );
    }

    /// Writes a packet of a class that has repair packets. Copies of these would be of little use.
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

    /// Messages that wait in the transport's queue.
    pub fn waiting(&self) -> usize {
        let mut waiting = 0;
        self.endpoint.waiting(&mut |_| waiting += 1);
        waiting
    }

    /// The next datagram to leave, written to `out`, and its path.
    pub fn poll_send(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PathId> {
        loop {
            let transmit = self.endpoint.poll_send(now);
            self.note_refused(now);
            let transmit = transmit?;
            let header = Header { connection: self.class.index() as u16 };
            let datagram = matches!(transmit.segment.body, Body::Datagram(_));
            let bytes = match part_of(&transmit.segment) {
                Some(part) => match self.leaving.get_mut(part.message) {
                    // It waited for a path. One under congestion control leaves, and is dropped by the
                    // receiver: its number is taken, and a gap would count as a loss.
                    Some(slot)
                        if datagram && self.life.is_some_and(|life| slot.at + life < now) =>
                    {
                        self.refused.late += u64::from(!slot.late);
                        slot.late = true;
                        continue;
                    }
                    Some(slot) => slot.bytes.as_slice(),
                    // Overtaken by thousands of others: lost at the sender.
                    None => continue,
                },
                None => &[],
            };
            if encode(&transmit.segment, &header, Payload::Bytes(bytes), out).is_ok() {
                return Some(transmit.path);
            }
        }
    }

    /// A datagram of this class has arrived; `plain` is all of it.
    pub fn receive(&mut self, now: Instant, path: PathId, decoded: &Decoded, plain: &[u8]) {
        if let Some(part) = part_of(&decoded.segment) {
            // Messages are cut before they are written, so none comes in parts of the transport's own.
            if part.fragments != 1 {
                return;
            }
            self.copies += 1;
            let bytes = plain.get(decoded.payload.clone()).unwrap_or_default();
            self.arriving.put_once(part.message, now, bytes);
        }
        self.endpoint.receive(now, path, &decoded.segment);
    }

    /// The next message that has arrived. The caller [frees](Self::free) it.
    pub fn poll_delivered(&mut self) -> Option<Arrived> {
        loop {
            let Delivered { id, path, .. } = self.endpoint.poll_delivered()?;
            self.messages += 1;
            if self.arriving.get(id).is_some() {
                return Some(Arrived { id, path });
            }
        }
    }

    /// The bytes of a message that has arrived.
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.arriving.get(id).map_or(&[], |slot| &slot.bytes)
    }

    /// The bytes of a message are no longer needed.
    pub fn free(&mut self, id: u32) {
        self.arriving.free(id);
    }

    /// Copies that arrived behind the first.
    pub const fn duplicates(&self) -> u64 {
        self.copies.saturating_sub(self.messages)
    }

    /// How many messages have been given up unsent since the last call.
    pub fn take_refused(&mut self, now: Instant) -> Refused {
        self.note_refused(now);
        core::mem::take(&mut self.refused)
    }

    /// The newest messages, for which there was no room, give their numbers back: bytes are kept by
    /// number, and a flood of refused ones must not take the places of those that wait.
    fn note_refused(&mut self, now: Instant) {
        let Self { endpoint, refused, next, leaving, life, .. } = self;
        endpoint.take_refused(&mut |id| {
            let at = leaving.get(id).map(|slot| slot.at);
            match at.zip(*life) {
                Some((at, life)) if at + life < now => refused.late += 1,
                _ => refused.full += 1,
            }
            if id == next.wrapping_sub(1) {
                *next = id;
            }
        });
    }

    /// Whether `path` may carry messages.
    pub fn set_usable(&mut self, path: PathId, usable: bool) {
        self.endpoint.set_usable(path, usable);
    }

    /// When to call [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        self.endpoint.next_wakeup()
    }

    /// Time has passed.
    pub fn wake(&mut self, now: Instant) {
        self.endpoint.wake(now);
    }
}

/// The part of a message that a segment carries, if it does.
fn part_of(segment: &Segment) -> Option<&Datagram> {
    let part = match &segment.body {
        Body::Datagram(part) => part,
        Body::Dccp(packet) => &packet.data,
        Body::Report(_) | Body::Tcp(_) => return None,
    };
    (part.fragments > 0).then_some(part)
}

/// The bytes of the newest messages, by number.
#[derive(Debug, Default)]
struct Ring {
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    id: u32,
    held: bool,
    /// It was too old when it was to leave, and has been counted.
    late: bool,
    at: Instant,
    bytes: Vec<u8>,
}

impl Ring {
    fn slot(&mut self, id: u32) -> Option<&mut Slot> {
        let place = id as usize % KEPT;
        if self.slots.len() <= place {
            // Grows as far as numbers do, so that a quiet class stays small.
            self.slots.resize_with((place + 1).next_power_of_two().min(KEPT), Slot::default);
        }
        self.slots.get_mut(place)
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

    /// Keeps the first copy. A copy that comes when its place is another's is too old to matter.
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

    /// Its number stays, so that a later copy does not take the place of a newer message.
    fn free(&mut self, id: u32) {
        if let Some(slot) = self.slots.get_mut(id as usize % KEPT)
            && slot.id == id
        {
            slot.bytes.clear();
        }
    }
}
