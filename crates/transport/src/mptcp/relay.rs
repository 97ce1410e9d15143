//! Connections that end at a proxy: chunks instead of messages go in and out.
//!
//! Source: Palazzi 2007 §1.1 (the window is half of the free memory); RFC 9293 §3.8.6.2.2 (the
//! window is announced in steps of a segment).

use skybraid_units::{Bytes, Instant};

use super::connection::{Connection, Written};
use crate::endpoint::{Role, Transmit};
use crate::segment::{Flags, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;
use crate::{Class, PathInfo, TransportConfig};

/// End of a message whose last byte has not arrived yet.
const OPEN: u64 = u64::MAX;

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
    /// Returns the window to announce for `free` bytes of receive memory. A proxy announces half of
    /// the free memory. The right edge is then half of the memory plus the data received plus the
    /// data that the next hop has acknowledged. Neither of them decreases: only data beyond a hole
    /// would move the edge left.
    pub(super) const fn window(&self, free: u64) -> u64 {
        if self.is_proxy { free.saturating_sub(self.stored) / 2 } else { free }
    }

    pub(super) const fn on_peer_flags(&mut self, flags: Flags) {
        self.peer_is_proxy |= flags.has(Flags::SYN.and(Flags::PROXY));
    }
}

impl Connection {
    /// Creates one end of a connection that a proxy joins to another one. The receive memory is
    /// `config.receive_buffer`, but at least two segments: half of less could not admit one.
    pub fn relaying(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        let mut connection = Self::new(config, paths, role);
        let segment = full_segment(paths);
        connection.receive_buffer = connection.receive_buffer.max(2 * segment);
        connection.advertised = connection.receive_buffer / 2;
        connection.relay = Relay { is_proxy: true, segment, ..Relay::default() };
        connection.reassembly.relay();
        connection
    }

    /// Takes the next chunk in order. Its bytes leave the receive memory unless
    /// [`set_stored`](Self::set_stored) counts them.
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        self.reassembly.take_chunk()
    }

    /// Queues a chunk of another connection with the messages that end in it; its data sequence
    /// number is ignored. The positions of the ends within the chunk are unknown: each message ends
    /// as late as possible, so that none is delivered before its last byte has arrived.
    pub fn write_chunk(&mut self, chunk: &Chunk) {
        let start = self.write_end;
        self.write_end += u64::from(chunk.len);
        if self.written.back().is_some_and(|message| message.end == OPEN) {
            self.written.pop_back();
        }
        let ended = (0..chunk.messages)
            .map(|offset| written(chunk, offset, chunk.message_end(offset, start)));
        self.written.extend(ended);
        if chunk.tail || chunk.messages == 0 {
            self.written.push_back(written(chunk, chunk.messages, OPEN));
        }
    }

    /// Sets the bytes taken from this connection that still occupy its memory because the next hop
    /// has not acknowledged them.
    pub fn set_stored(&mut self, bytes: Bytes) {
        self.relay.stored = bytes.get();
    }

    /// Bytes in the receive memory that have not been taken.
    pub fn buffered(&self) -> Bytes {
        Bytes::new(self.held())
    }

    /// Size of the receive memory.
    pub const fn memory(&self) -> Bytes {
        Bytes::new(self.receive_buffer)
    }

    /// Records an outgoing segment, and marks a SYN as a proxy's.
    pub(crate) fn on_sent(&mut self, tcp: &mut Tcp) {
        self.relay.announced = self.relay.announced.max(tcp.window_end);
        if tcp.flags.has(Flags::SYN) {
            tcp.flags = tcp.flags.and(Flags::PROXY);
        }
    }

    /// True if the segment is within the announced window.
    pub(crate) const fn admits(&self, tcp: &Tcp) -> bool {
        tcp.len == 0 || tcp.dsn.saturating_add(tcp.len as u64) <= self.relay.announced
    }

    /// Returns a window update if the window has grown by a segment since the last announcement, or
    /// admits a segment that it did not admit then. To be called when no other segment is due.
    pub(crate) fn poll_window(&mut self, now: Instant) -> Option<Transmit> {
        let (edge, next) = (self.stamp().window_end, self.reassembly.next());
        let Relay { announced, segment, .. } = self.relay;
        let due =
            edge >= announced + segment || (announced < next + segment && next + segment <= edge);
        if due { self.signal(now, Flags::WINDOW, |_| {}) } else { None }
    }

    /// True if the peer is a proxy: data that it acknowledges may still be lost before the far end.
    pub const fn is_split(&self) -> bool {
        self.relay.peer_is_proxy
    }
}

/// Maximum payload of a TCP segment over all of `paths`.
pub fn full_segment(paths: &[PathInfo]) -> u64 {
    paths.iter().map(|path| u64::from(Subflow::segment_for(path.mtu, false))).max().unwrap_or(1)
}

fn written(chunk: &Chunk, offset: u16, end: u64) -> Written {
    Written {
        end,
        stream: chunk.stream,
        id: chunk.first_message.wrapping_add(u32::from(offset)),
        class: Class::Data,
        deadline: None,
    }
}

impl Chunk {
    /// Position at which message number `offset` of those that end in the chunk ends at the latest,
    /// if the chunk starts at `start`: every later message, and the tail, has at least one byte.
    pub(crate) fn message_end(&self, offset: u16, start: u64) -> u64 {
        let later = u64::from(self.messages.saturating_sub(offset + 1)) + u64::from(self.tail);
        start + u64::from(self.len).saturating_sub(later).max(1)
    }
}
