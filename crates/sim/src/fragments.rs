//! IPv4 fragmentation (RFC 791 §2.3): a longer packet travels as several, each routed by itself, and is delivered once
//! all of them have arrived.

use alloc::collections::BTreeMap;
use core::num::NonZeroU32;

use skybraid_transport::Segment;
use skybraid_transport::segment::IPV4_HEADER;
use skybraid_units::Promised;

/// Identification of a packet, which all of its fragments carry.
pub type Identification = NonZeroU32;

/// Packets whose fragments are on their way.
#[derive(Debug)]
pub struct Fragments {
    max_size: u32,
    next: Identification,
    partial: BTreeMap<Identification, Partial>,
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
        Self { max_size, next: Identification::MIN, partial: BTreeMap::new() }
    }

    /// True if a packet of `size` bytes is longer than a fragment.
    #[inline]
    pub const fn splits(&self, size: u32) -> bool {
        size > self.max_size
    }

    /// Splits a packet of `size` bytes. Returns its identification and the sizes of its fragments.
    pub fn split(&mut self, size: u32) -> (Identification, impl Iterator<Item = u32> + use<>) {
        // Offsets are in units of 8 bytes.
        let max_len = ((self.max_size - IPV4_HEADER) & !7).max(8);
        let payload = size - IPV4_HEADER;
        let count = payload.div_ceil(max_len);
        let identification = self.next;
        self.next = identification.checked_add(1).unwrap_or(Identification::MIN);
        self.partial.insert(identification, Partial { size, left: count, lost: false });
        let sizes = move |number| IPV4_HEADER + max_len.min(payload - number * max_len);
        (identification, (0..count).map(sizes))
    }

    /// Records the arrival of a fragment. Returns the segment to deliver, if it is complete.
    pub fn on_arrived(
        &mut self,
        segment: &Segment,
        identification: Identification,
    ) -> Option<Segment> {
        let before = self.on_settled(identification, false)?;
        let complete = before.left == 1 && !before.lost;
        complete.then_some(Segment { size: before.size, ..*segment })
    }

    /// Records the loss of a fragment. Returns true if it is the first of its packet.
    pub fn on_lost(&mut self, identification: Identification) -> bool {
        self.on_settled(identification, true).is_some_and(|before| !before.lost)
    }

    /// True if the arrival of this fragment completes its packet.
    pub fn completes(&self, identification: Identification) -> bool {
        let partial = self.partial.get(&identification).promised("a packet in fragments");
        partial.is_some_and(|partial| partial.left == 1 && !partial.lost)
    }

    /// Returns the packet's state before.
    fn on_settled(&mut self, identification: Identification, lost: bool) -> Option<Partial> {
        let partial = self.partial.get_mut(&identification).promised("a packet in fragments")?;
        let before = *partial;
        partial.left -= 1;
        partial.lost |= lost;
        if partial.left == 0 {
            self.partial.remove(&identification);
        }
        Some(before)
    }
}
