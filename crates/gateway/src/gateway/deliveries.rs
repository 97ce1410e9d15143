//! Messages for local applications until the driver fetches them, and buffers for reuse.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::Instant;

use crate::ChannelId;

/// Maximum messages pending; a driver fetches them after each call.
const MAX_PENDING: usize = 65_536;
/// Maximum spare buffers kept for reuse.
const MAX_SPARE: usize = 1_024;

/// Messages for local applications.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Each with its channel, and the time at which it becomes too old.
    pending: VecDeque<(ChannelId, Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// Content of the datagram that is being sent or received.
    pub datagram: Vec<u8>,
    /// Message that is being received.
    pub message: Vec<u8>,
}

impl Deliveries {
    /// Queues a message. It is dropped if the driver has fetched none for very long.
    #[inline]
    pub fn push(&mut self, channel: ChannelId, expires: Instant, bytes: &[u8]) {
        if self.pending.len() < MAX_PENDING {
            let copy = self.copy(bytes);
            self.pending.push_back((channel, expires, copy));
        }
    }

    /// Returns the next message; its bytes take the place of those in `out`.
    #[inline]
    pub fn poll(&mut self, out: &mut Vec<u8>) -> Option<(ChannelId, Instant)> {
        let (channel, expires, bytes) = self.pending.pop_front()?;
        let used = core::mem::replace(out, bytes);
        self.recycle(used);
        Some((channel, expires))
    }

    /// Returns a copy, most often in a buffer used before.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    /// Keeps a buffer for reuse.
    #[inline]
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_fetched_in_order_and_their_buffers_used_again() {
        let mut deliveries = Deliveries::default();
        deliveries.push(ChannelId(1), Instant::ZERO, b"first");
        deliveries.push(ChannelId(2), Instant::FAR_FUTURE, b"second");
        let mut out = Vec::with_capacity(999);
        assert_eq!(deliveries.poll(&mut out), Some((ChannelId(1), Instant::ZERO)));
        assert_eq!(out, b"first");
        assert_eq!(deliveries.copy(b"third").capacity(), 999);
        assert_eq!(deliveries.poll(&mut out), Some((ChannelId(2), Instant::FAR_FUTURE)));
        assert_eq!((out.as_slice(), deliveries.poll(&mut Vec::new())), (&b"second"[..], None));
    }
}
