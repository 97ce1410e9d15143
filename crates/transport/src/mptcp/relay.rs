//! Connections that end at a proxy: chunks instead of messages go in and out.
//!
//! Source: Palazzi 2007 §1.1 (the window is half of the free memory); RFC 9293 §3.8.6.2.2 (the
//! window is announced in steps of a segment).

use crate::PathInfo;
use crate::segment::{Flags, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;

/// Proxy state of a connection: whether this end is a proxy, and whether the peer is.
#[derive(Debug, Default)]
pub struct Relay {
    is_proxy: bool,
    peer_is_proxy: bool,
    /// Maximum payload of a segment over all paths.
    segment: u64,
    /// Bytes taken from the connection that still occupy its memory.
    stored: u64,
    /// Right edge of the window last announced to the peer.
    announced: u64,
}

impl Relay {
    /// Creates the state of a proxy's end whose segments carry at most `segment` bytes.
    pub fn proxy(segment: u64) -> Self {
        Self { is_proxy: true, segment, ..Self::default() }
    }

    /// Returns the window to announce for `free` bytes of receive memory. A proxy announces half of
    /// the free memory. The right edge is then half of the memory plus the data received plus the
    /// data that the next hop has acknowledged. Neither of them decreases: only data beyond a hole
    /// would move the edge left.
    #[inline]
    pub const fn window(&self, free: u64) -> u64 {
        if self.is_proxy { free.saturating_sub(self.stored) / 2 } else { free }
    }

    /// Processes the flags of a segment of the peer.
    #[inline]
    pub const fn on_peer_flags(&mut self, flags: Flags) {
        self.peer_is_proxy |= flags.has(Flags::SYN.and(Flags::PROXY));
    }

    /// True if the peer is a proxy.
    pub const fn peer_is_proxy(&self) -> bool {
        self.peer_is_proxy
    }

    /// Sets the bytes taken from the connection that still occupy its memory.
    pub const fn set_stored(&mut self, bytes: u64) {
        self.stored = bytes;
    }

    /// Records an outgoing segment, and marks a SYN as a proxy's.
    pub fn on_sent(&mut self, tcp: &mut Tcp) {
        self.announced = self.announced.max(tcp.window_end);
        if tcp.flags.has(Flags::SYN) {
            tcp.flags = tcp.flags.and(Flags::PROXY);
        }
    }

    /// True if the segment is within the announced window.
    pub const fn admits(&self, tcp: &Tcp) -> bool {
        tcp.len == 0 || tcp.dsn.saturating_add(tcp.len as u64) <= self.announced
    }

    /// True if the window that ends at `edge` must be announced while the data before `next` has arrived: it has
    /// grown by a segment since the last announcement, or admits a segment that it did not admit then.
    pub const fn owes_window(&self, edge: u64, next: u64) -> bool {
        let Self { announced, segment, .. } = *self;
        edge >= announced + segment || (announced < next + segment && next + segment <= edge)
    }
}

/// Maximum payload of a TCP segment over all of `paths`.
pub fn full_segment(paths: &[PathInfo]) -> u64 {
    paths.iter().map(|path| u64::from(Subflow::segment_for(path.mtu, false))).max().unwrap_or(1)
}

impl Chunk {
    /// Position at which message number `offset` of those that end in the chunk ends at the latest,
    /// if the chunk starts at `start`: every later message, and the tail, has at least one byte.
    pub(crate) fn message_end(&self, offset: u16, start: u64) -> u64 {
        let later = u64::from(self.messages.saturating_sub(offset + 1)) + u64::from(self.tail);
        start + u64::from(self.len).saturating_sub(later).max(1)
    }
}
