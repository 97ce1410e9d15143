//! A link with the packets that are on it.

use alloc::collections::VecDeque;

use skybraid_link::{Cause, Fate, Link};
use skybraid_transport::{PathId, Segment};
use skybraid_units::{Bytes, Duration, Instant};

use skybraid_host::record::{Arrival, LinkTotal, LinkWaits};

use crate::routes::Ahead;

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// When it arrives.
    pub arrives: Instant,
    /// Where to.
    pub address: Address,
    /// What it carries.
    pub segment: Segment,
    /// Its waits at this link and those before.
    pub waits: LinkWaits,
}

impl Packet {
    /// Its arrival, as far as delays go.
    pub const fn arrival(&self) -> Arrival {
        Arrival {
            at: self.arrives,
            sent_at: self.segment.sent_at,
            path: self.address.path.0,
            waits: Some(self.waits),
        }
    }
}

/// Whose packet it is.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// Which endpoint gets it.
    pub to: u32,
    /// Which flow it counts for.
    pub flow: u16,
    /// The path by the connection's own numbering.
    pub path: PathId,
    /// Where it goes after this wire.
    pub ahead: Ahead,
}

/// Packets and bytes within a sample, and losses by cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Packets that have arrived.
    pub delivered: u32,
    /// Bytes that have arrived.
    pub delivered_bytes: u64,
    /// Packets lost, in the order of [`Cause::ALL`], counted when they entered.
    pub lost: [u32; Cause::ALL.len()],
}

/// A link with the packets that are on it.
#[derive(Debug)]
pub struct Wire {
    /// The link.
    pub link: Link,
    /// The wire of the same link in the other direction.
    pub sibling: usize,
    counters: Counters,
    /// Up to the last call of [`take_counters`](Self::take_counters).
    pub total: LinkTotal,
    /// In order of arrival.
    on_the_way: VecDeque<Packet>,
    has_radio: bool,
}

impl Wire {
    /// An empty wire.
    pub fn new(link: Link, sibling: usize) -> Self {
        let has_radio = link.radio().is_some();
        Self {
            link,
            sibling,
            counters: Counters::default(),
            total: LinkTotal::default(),
            // Grows as it must: where there are thousands of wires, most carry little at a time.
            on_the_way: VecDeque::new(),
            has_radio,
        }
    }

    /// Hands a packet to the link; `before` are its waits at earlier links. True when the packet became the
    /// next to arrive.
    #[inline]
    pub fn admit(
        &mut self,
        now: Instant,
        segment: &Segment,
        address: Address,
        before: LinkWaits,
    ) -> (Fate, bool) {
        let busy_until = self.link.busy_until();
        let fate = self.link.admit(now, Bytes::new(u64::from(segment.size)));
        match fate {
            Fate::Delivered { at } => {
                let first = self.on_the_way.is_empty();
                let ends = segment.messages > 0;
                let waits = if ends { self.waits(now, busy_until, before) } else { before };
                // A link that reorders may let a packet overtake others.
                let overtakes = self.on_the_way.back().is_some_and(|last| last.arrives > at);
                if !overtakes {
                    let packet = Packet { arrives: at, address, segment: *segment, waits };
                    self.on_the_way.push_back(packet);
                    return (fate, first);
                }
                let place = self.on_the_way.partition_point(|other| other.arrives <= at);
                let packet = Packet { arrives: at, address, segment: *segment, waits };
                self.on_the_way.insert(place, packet);
                (fate, place == 0)
            }
            Fate::Lost { cause, .. } => {
                if let Some(count) = self.counters.lost.get_mut(cause as usize) {
                    *count += 1;
                }
                (fate, false)
            }
        }
    }

    /// The waits of a packet that was admitted at `now`, when the link had work until `busy_until`, together
    /// with those `before`.
    #[inline]
    fn waits(&self, now: Instant, busy_until: Instant, before: LinkWaits) -> LinkWaits {
        let queued = (busy_until - now).max(Duration::ZERO);
        let (halt, resumed) = self.link.last_halt();
        if resumed <= now {
            return LinkWaits { queued: before.queued + queued, ..before };
        }
        let halted = resumed - halt.max(now);
        // A halt ahead of the queue's end is part of the wait behind others.
        let behind = if halt < busy_until { (queued - halted).max(Duration::ZERO) } else { queued };
        LinkWaits { queued: before.queued + behind, halted: before.halted + halted }
    }

    /// What happened since the last call.
    pub fn take_counters(&mut self) -> Counters {
        let counters = core::mem::take(&mut self.counters);
        self.total.delivered += u64::from(counters.delivered);
        self.total.delivered_bytes += counters.delivered_bytes;
        for (total, lost) in self.total.lost.iter_mut().zip(counters.lost) {
            *total += u64::from(lost);
        }
        counters
    }

    /// The two directions share a radio, whose state follows the traffic of both.
    pub const fn has_radio(&self) -> bool {
        self.has_radio
    }

    /// The packet that arrives next.
    #[inline]
    pub fn front(&self) -> Option<&Packet> {
        self.on_the_way.front()
    }

    /// When the next packet arrives.
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        self.on_the_way.front().map_or(Instant::FAR_FUTURE, |packet| packet.arrives)
    }

    /// The packet of [`front`](Self::front) has arrived.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.on_the_way.pop_front()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(packet.segment.size);
        Some(packet)
    }

    /// Packets that have not arrived.
    pub fn on_the_way(&self) -> impl Iterator<Item = &Packet> {
        self.on_the_way.iter()
    }
}
