//! Receive side of a connection: reassembly, delivered messages and the receive window.
//!
//! Source: RFC 8684 §3.3.4 (one window for all subflows); RFC 9293 §3.10.7.4 (data beyond it is dropped).

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant};

use super::buffers::ReceiveTuning;
use super::reassembly::{Arrived, Reassembly};
use crate::Delivered;
use crate::segment::Tcp;
use crate::tcp::scoreboard::Chunk;

/// Receive side of a connection.
#[derive(Debug)]
pub struct ReceiveSide {
    /// Receive memory in bytes.
    buffer: u64,
    /// Tuning of `buffer`, if it grows.
    tuning: Option<Box<ReceiveTuning>>,
    reassembly: Reassembly,
    /// Right edge of the window: it never moves left.
    advertised: u64,
}

impl ReceiveSide {
    /// Creates the receive side of a connection with `buffer` bytes of memory, all of which it advertises.
    pub fn new(buffer: u64) -> Self {
        Self { buffer, tuning: None, reassembly: Reassembly::default(), advertised: buffer }
    }

    /// Creates the receive side of a connection whose memory grows.
    pub fn tuned(tuning: ReceiveTuning) -> Self {
        let buffer = tuning.buffer();
        Self { tuning: Some(Box::new(tuning)), ..Self::new(buffer) }
    }

    /// Grows the memory with what has been read, if it is tuned. `rtt` is the receiver's round-trip time. Returns true
    /// if it grew.
    #[inline]
    pub fn tune(&mut self, now: Instant, rtt: impl FnOnce() -> Option<Duration>) -> bool {
        let Some(tuning) = &mut self.tuning else { return false };
        tuning.on_read(now, self.reassembly.next(), rtt());
        let before = core::mem::replace(&mut self.buffer, tuning.buffer());
        self.buffer != before
    }

    /// Creates the receive side of a proxy, which passes chunks on and advertises half of its memory.
    pub fn relaying(buffer: u64) -> Self {
        let mut side = Self { advertised: buffer / 2, ..Self::new(buffer) };
        side.reassembly.relay();
        side
    }

    /// Receive memory in bytes.
    #[inline]
    pub const fn buffer(&self) -> u64 {
        self.buffer
    }

    /// Next data sequence number expected (the data ACK).
    #[inline]
    pub const fn next(&self) -> u64 {
        self.reassembly.next()
    }

    /// Bytes held for reassembly, or until a proxy takes them.
    #[inline]
    pub const fn held(&self) -> u64 {
        self.reassembly.held()
    }

    /// Total time of head-of-line blocking up to `now`.
    pub fn holding(&self, now: Instant) -> Duration {
        self.reassembly.holding(now)
    }

    /// Moves the right edge of the window to `window` bytes beyond the expected one, but never left. Returns it.
    #[inline]
    pub fn advertise(&mut self, window: u64) -> u64 {
        self.advertised = self.advertised.max(self.reassembly.next() + window);
        self.advertised
    }

    /// True if the segment's data is within the window.
    #[inline]
    pub const fn admits(&self, tcp: &Tcp) -> bool {
        tcp.len == 0 || tcp.dsn.saturating_add(tcp.len as u64) <= self.advertised
    }

    /// Inserts a chunk. Messages that are complete and in order go to `deliver`.
    #[inline]
    pub fn insert(&mut self, now: Instant, arrived: &Arrived, deliver: &mut impl FnMut(Delivered)) {
        self.reassembly.insert(now, arrived, deliver);
    }

    /// Takes the next chunk in order, at a proxy.
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        self.reassembly.take_chunk()
    }

    /// Consumes the data sequence number of the peer's DATA_FIN (RFC 8684 §3.3.3).
    pub const fn take_fin(&mut self) {
        self.reassembly.take_fin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathId, PathSet};

    fn arrived(dsn: u64) -> Arrived {
        let chunk = Chunk {
            dsn,
            len: 100,
            first_message: (dsn / 100) as u32,
            messages: 1,
            stream: 0,
            tail: false,
            carried_by: PathSet::EMPTY,
        };
        Arrived { chunk, path: PathId(0), at: Instant::ZERO }
    }

    #[test]
    fn the_right_edge_of_the_window_never_moves_left() {
        let (mut side, mut ids) = (ReceiveSide::new(1000), alloc::vec::Vec::new());
        let mut deliver = |message: Delivered| ids.push(message.id);
        side.insert(Instant::ZERO, &arrived(200), &mut deliver);
        assert_eq!(side.advertise(1000 - side.held()), 1000);
        (0..2).for_each(|number| {
            side.insert(Instant::ZERO, &arrived(100 * number), &mut deliver);
        });
        assert_eq!((side.next(), side.held(), side.advertise(1000)), (300, 0, 1300));
        assert_eq!(ids, [0, 1, 2]);
    }
}
