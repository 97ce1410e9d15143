//! IPv4 fragmentation (RFC 791 §2.3): a longer packet travels as several, each routed by itself, and is delivered once
//! all of them have arrived.

use alloc::collections::BTreeMap;

use skybraid_host::SideId;
use skybraid_transport::segment::IPV4_HEADER;
use skybraid_transport::{Body, Segment};
use skybraid_units::{Instant, Promised};

use crate::wire::Address;

/// Packets whose fragments are on their way.
#[derive(Debug)]
pub struct Fragments {
    max_size: u32,
    partial: BTreeMap<Key, Partial>,
}

/// Identification of a packet: all of its fragments have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    sent_at: Instant,
    to: usize,
    path: u8,
    number: u64,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Partial {
    /// Size of the packet in bytes.
    size: u32,
    /// Fragments on their way.
    left: u32,
    lost: bool,
}

impl Fragments {
    /// Creates the table for fragments of at most `max_size` bytes.
    pub const fn new(max_size: u32) -> Self {
        Self { max_size, partial: BTreeMap::new() }
    }

    /// True if the segment is longer than a fragment.
    #[inline]
    pub const fn splits(&self, segment: &Segment) -> bool {
        segment.size > self.max_size
    }

    /// Splits a segment to `to` on `path`. Returns the sizes of its fragments.
    pub fn split(
        &mut self,
        segment: &Segment,
        address: &Address,
    ) -> impl Iterator<Item = u32> + use<> {
        // Offsets are in units of 8 bytes.
        let most = ((self.max_size - IPV4_HEADER) & !7).max(8);
        let payload = segment.size - IPV4_HEADER;
        let count = payload.div_ceil(most);
        let partial = Partial { size: segment.size, left: count, lost: false };
        self.partial.insert(Key::of(segment, address), partial);
        (0..count).map(move |number| IPV4_HEADER + most.min(payload - number * most))
    }

    /// Records the arrival of a packet or fragment. Returns the segment to deliver, if it is complete.
    pub fn on_arrived(&mut self, segment: &Segment, address: &Address) -> Option<Segment> {
        let key = Key::of(segment, address);
        let Some(partial) = self.partial.get(&key).copied() else { return Some(*segment) };
        self.remove_one(key, partial);
        let complete = partial.left == 1 && !partial.lost;
        complete.then_some(Segment { size: partial.size, ..*segment })
    }

    /// Records the loss of a packet or fragment. Returns whether the segment was not known to be lost.
    pub fn on_lost(&mut self, segment: &Segment, address: &Address) -> bool {
        let key = Key::of(segment, address);
        let Some(partial) = self.partial.get(&key).copied() else { return true };
        self.remove_one(key, Partial { lost: true, ..partial });
        !partial.lost
    }

    /// True if the arrival of this packet or fragment completes its segment.
    pub fn completes(&self, segment: &Segment, address: &Address) -> bool {
        self.partial
            .get(&Key::of(segment, address))
            .is_none_or(|partial| partial.left == 1 && !partial.lost)
    }

    fn remove_one(&mut self, key: Key, partial: Partial) {
        if partial.left == 1 {
            self.partial.remove(&key).promised("a packet in fragments");
        } else {
            self.partial.insert(key, Partial { left: partial.left - 1, ..partial });
        }
    }
}

impl Key {
    fn of(segment: &Segment, address: &Address) -> Self {
        let number = match segment.body {
            Body::Tcp(tcp) => tcp.seq,
            Body::Datagram(datagram) => datagram.sequence,
            Body::Repair(repair) => repair.first,
            Body::Dccp(dccp) => dccp.sequence,
            Body::Report(_) => 0,
        };
        Self {
            sent_at: segment.sent_at,
            to: SideId::index(address.to),
            path: address.path.0,
            number,
            len: segment.body.payload_bytes(),
        }
    }
}
