//! A connection that ends at a proxy: chunks go in and come out instead of messages.
//!
//! Source: Palazzi 2007 §1.1 (the window is half of the free memory); RFC 9293 §3.8.6.2.2 (the window
//! is announced in steps of a segment).

use skybraid_units::{Bytes, Instant};

use super::connection::{Connection, Written};
use crate::endpoint::{Role, Transmit};
use crate::segment::{Flags, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;
use crate::{Class, PathInfo, TransportConfig};

/// Where a message ends whose end has not come yet.
const OPEN: u64 = u64::MAX;

/// What a connection knows of proxies: whether it ends at one on this side, and on the other.
#[derive(Debug, Default)]
pub struct Relay {
    here: bool,
    there: bool,
    /// Largest payload that a path carries in one segment.
    segment: u64,
    /// Bytes that have been taken and still lie in the memory.
    stored: u64,
    /// The right edge of the window that the peer has last been told.
    told: u64,
}

impl Relay {
    /// The window when `free` bytes of receive memory hold nothing. A proxy gives half of what is free.
    /// The edge is then half of the memory plus what has arrived plus what the next hop has
    /// acknowledged, and neither of these falls: only data beyond a hole would pull it back.
    pub(super) const fn window(&self, free: u64) -> u64 {
        if self.here { free.saturating_sub(self.stored) / 2 } else { free }
    }

    pub(super) const fn note_peer(&mut self, flags: Flags) {
        self.there |= flags.has(Flags::SYN.and(Flags::PROXY));
    }
}

impl Connection {
    /// One end of a connection that a proxy forwards to and from another one. Its receive memory is
    /// `config.receive_buffer`, but at least two segments: half of less would never admit one.
    pub fn relaying(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        let mut connection = Self::new(config, paths, role);
        let segment = full_segment(paths);
        connection.receive_buffer = connection.receive_buffer.max(2 * segment);
        connection.advertised = connection.receive_buffer / 2;
        connection.relay = Relay { here: true, segment, ..Relay::default() };
        connection.reassembly.relay();
        connection
    }

    /// The next chunk that has arrived in order. Its bytes leave the receive memory, but see
    /// [`note_stored`](Self::note_stored).
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        self.reassembly.take_chunk()
    }

    /// Writes a chunk of another connection behind what has been written, with the messages that end in
    /// it; its data sequence number is of no account. Where in the chunk they end is not known: each is
    /// taken to end as late as it may, so that none is delivered before its last byte has come.
    pub fn forward(&mut self, chunk: &Chunk) {
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

    /// Bytes that have been taken from this connection and still lie in its memory, since the next hop
    /// has not acknowledged them.
    pub fn note_stored(&mut self, bytes: Bytes) {
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

    /// Takes note of a segment that leaves, and marks a SYN as a proxy's.
    pub(crate) fn note_leaving(&mut self, tcp: &mut Tcp) {
        self.relay.told = self.relay.told.max(tcp.window_end);
        if tcp.flags.has(Flags::SYN) {
            tcp.flags = tcp.flags.and(Flags::PROXY);
        }
    }

    /// The segment lies within the window that the peer has been told.
    pub(crate) const fn admits(&self, tcp: &Tcp) -> bool {
        tcp.len == 0 || tcp.dsn.saturating_add(tcp.len as u64) <= self.relay.told
    }

    /// A window update, if the window has grown by a segment since the peer was last told, or now admits
    /// a segment and did not then. To be asked when nothing else leaves that would carry it.
    pub(crate) fn poll_window(&mut self, now: Instant) -> Option<Transmit> {
        let (edge, next) = (self.stamp().window_end, self.reassembly.next());
        let Relay { told, segment, .. } = self.relay;
        let due = edge >= told + segment || (told < next + segment && next + segment <= edge);
        if due { self.signal(now, Flags::WINDOW, |_| {}) } else { None }
    }

    /// The peer is a proxy: what it acknowledges may still be lost on its way to the far end.
    pub const fn is_split(&self) -> bool {
        self.relay.there
    }
}

/// The largest payload of a TCP segment on any of `paths`.
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
    /// The last byte at which message number `offset` of those that end in the chunk can end, when the
    /// chunk starts at `start`: every later one, and the tail, has at least one byte.
    pub(crate) fn message_end(&self, offset: u16, start: u64) -> u64 {
        let later = u64::from(self.messages.saturating_sub(offset + 1)) + u64::from(self.tail);
        start + u64::from(self.len).saturating_sub(later).max(1)
    }
}
