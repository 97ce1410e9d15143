//! Wires: links with the packets in flight on them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_link::{Cause, Fate, Link};
use skybraid_transport::{PathId, Segment};
use skybraid_units::{Duration, Instant, Promised};

use skybraid_host::record::samples::SAMPLE_INTERVAL;
use skybraid_host::record::{Arrival, LinkTotal, LinkWaits};
use skybraid_host::{DirectedLink, Numbered, RecordId, SideId};

use crate::fragments::Identification;
use crate::ring::Ring;
use crate::routes::Ahead;

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Time of arrival.
    pub arrives: Instant,
    /// Destination and route.
    pub address: Address,
    /// Segment that it carries.
    pub segment: Segment,
    /// Waits at this link and at earlier links.
    pub waits: LinkWaits,
}

impl Packet {
    /// Returns its arrival at the end of this link.
    pub const fn arrival(&self) -> Arrival {
        Arrival {
            at: self.arrives,
            sent_at: self.segment.sent_at,
            path: self.address.path.0,
            waits: Some(self.waits),
        }
    }
}

/// Destination, record and route of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// Side that receives it.
    pub to: SideId,
    /// Record of its messages; `None` if a proxy sent it.
    pub record: Option<RecordId>,
    /// Path, in the connection's own numbering.
    pub path: PathId,
    /// Rest of the route after this wire.
    pub ahead: Ahead,
    /// Packet that it is a fragment of; `None` for a whole one.
    pub fragment_of: Option<Identification>,
}

/// Packets whose arrivals are settled, from one sample to the next.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// Time of the sample that counts them.
    until: Instant,
    packets: u64,
    bytes: u64,
}

/// A directed link with the packets in flight on it.
#[derive(Debug)]
pub struct Wire {
    /// Model of the link.
    pub link: Link,
    has_radio: bool,
    /// Whether the receiver may hold packets.
    may_hold: bool,
    /// Packets in order of arrival.
    in_flight: Ring<Packet>,
    /// Packets in flight that the receiver holds, the last ones.
    held: usize,
    /// Packets that the last admission has released.
    pub released: Vec<Packet>,
    /// Packets that are neither in flight nor delivered yet: those of the last sample that has any, and those of the
    /// samples before it, in order of arrival.
    settling: Settled,
    settled: VecDeque<Settled>,
    /// Packets that have arrived or, counted at admission, were lost.
    total: LinkTotal,
    /// Totals at the last sample.
    sampled: LinkTotal,
}

impl Numbered for Wire {
    type Id = DirectedLink;
    const EXPECTED: &'static str = "a wire of this number";
}

impl Wire {
    /// Creates a wire without packets.
    pub fn new(link: Link) -> Self {
        let (has_radio, may_hold) = (link.radio().is_some(), link.may_hold());
        Self {
            link,
            has_radio,
            may_hold,
            // Not preallocated: in networks of thousands of wires, most carry few packets at a time.
            in_flight: Ring::new(),
            held: 0,
            released: Vec::new(),
            settling: Settled { until: Instant::ZERO, packets: 0, bytes: 0 },
            settled: VecDeque::new(),
            total: LinkTotal::default(),
            sampled: LinkTotal::default(),
        }
    }

    /// Counts a packet that the link has lost.
    #[inline]
    pub fn on_lost(&mut self, cause: Cause) {
        let count = self.total.lost.get_mut(cause as usize).promised("a count per cause");
        if let Some(count) = count {
            *count += 1;
        }
    }

    /// Keeps an admitted packet in flight until it arrives at `at`. Returns whether it is the next to arrive.
    #[inline(always)]
    pub fn carry(
        &mut self,
        at: Instant,
        segment: &Segment,
        address: Address,
        waits: LinkWaits,
    ) -> bool {
        let first = self.in_flight.is_empty();
        // On a link that reorders, a packet may overtake others.
        let overtakes = self.in_flight.back().is_some_and(|last| last.arrives > at);
        self.in_flight.push_back(|| Packet { arrives: at, address, segment: *segment, waits });
        first || overtakes && self.in_flight.move_back_before(|other| other.arrives > at) == 0
    }

    /// Counts a packet of `size` bytes that arrives at `at`, after all that were counted before, and forgets it.
    #[inline(always)]
    pub fn settle(&mut self, now: Instant, at: Instant, size: u32) {
        if at > self.settling.until {
            self.begin_settled(now, at);
        }
        self.settling.packets += 1;
        self.settling.bytes += u64::from(size);
    }

    /// Begins the count of the sample after `at`.
    #[cold]
    fn begin_settled(&mut self, now: Instant, at: Instant) {
        // The sample at `now` may not have been taken yet.
        self.count_settled(now - Duration::from_nanos(1));
        let interval = SAMPLE_INTERVAL.as_nanos();
        let samples = at.as_nanos() / interval + i64::from(at.as_nanos() % interval > 0);
        let until = Instant::from_nanos(samples * interval);
        let before =
            core::mem::replace(&mut self.settling, Settled { until, packets: 0, bytes: 0 });
        if before.packets > 0 {
            self.settled.push_back(before);
        }
    }

    /// Counts the settled packets that the samples until `now` count.
    fn count_settled(&mut self, now: Instant) {
        while let Some(first) = self.settled.front().filter(|first| first.until <= now) {
            self.total.delivered += first.packets;
            self.total.delivered_bytes += first.bytes;
            self.settled.pop_front();
        }
        if self.settling.until <= now {
            self.total.delivered += core::mem::take(&mut self.settling.packets);
            self.total.delivered_bytes += core::mem::take(&mut self.settling.bytes);
        }
    }

    /// Sets the arrival of the packets that the receiver releases after an admission of this fate: the first of those
    /// held, which are the last in flight. Returns whether there are any.
    pub fn release_held(&mut self, fate: Fate) -> bool {
        self.released.clear();
        while let Some(release) = self.link.release() {
            let oldest = self.in_flight.len() - self.held;
            for place in oldest..oldest + release.packets {
                let packet = self.in_flight.get_mut(place).promised("a packet that is held");
                let Some(packet) = packet else { continue };
                packet.arrives = release.at;
                self.released.push(*packet);
            }
            self.held -= release.packets;
        }
        self.held += usize::from(fate == Fate::Held);
        !self.released.is_empty()
    }

    /// Returns the waits, including those `before`, of a packet admitted at `now` to a link busy until `busy_until`.
    #[inline]
    pub fn waits(&self, now: Instant, busy_until: Instant, before: LinkWaits) -> LinkWaits {
        let (halt, resumed) = self.link.last_halt();
        if busy_until <= now && resumed <= now {
            return before;
        }
        let queued = busy_until.since(now);
        if resumed <= now {
            return LinkWaits { queued: before.queued + queued, ..before };
        }
        let halted = resumed - halt.max(now);
        // A halt before the end of the queue also delayed the packets ahead: it is not counted twice.
        let queued = if halt < busy_until { (queued - halted).max(Duration::ZERO) } else { queued };
        LinkWaits { queued: before.queued + queued, halted: before.halted + halted }
    }

    /// Returns the counts since the last sample.
    pub fn sample(&mut self, now: Instant) -> LinkTotal {
        self.count_settled(now);
        self.total.since(&core::mem::replace(&mut self.sampled, self.total))
    }

    /// Returns the counts of the whole run.
    pub fn finish(&mut self) -> LinkTotal {
        self.count_settled(Instant::FAR_FUTURE);
        self.total
    }

    /// Whether the two directions of the link share a radio, whose state follows the traffic of both.
    pub const fn has_radio(&self) -> bool {
        self.has_radio
    }

    /// Whether the receiver may hold packets.
    pub const fn may_hold(&self) -> bool {
        self.may_hold
    }

    /// Next packet to arrive.
    #[inline]
    pub fn front(&self) -> Option<&Packet> {
        self.in_flight.front()
    }

    /// Time of the next arrival.
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        self.in_flight.front().map_or(Instant::FAR_FUTURE, |packet| packet.arrives)
    }

    /// Removes the packet of [`front`](Self::front), of `size` bytes, and counts it as delivered. Returns the time of
    /// the next arrival.
    #[inline]
    pub fn remove_front(&mut self, size: u32) -> Instant {
        self.in_flight.pop_front();
        self.total.delivered += 1;
        self.total.delivered_bytes += u64::from(size);
        self.next_arrival()
    }

    /// Packets that have not arrived.
    pub fn in_flight(&self) -> impl Iterator<Item = &Packet> {
        self.in_flight.iter()
    }
}
