//! Ledger of the data that a proxy has acknowledged but not yet delivered.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::Bytes;

use crate::tcp::scoreboard::Chunk;

/// Data that a proxy has acknowledged to the sender and that is not known to have reached the next
/// hop. If the proxy fails, this data is lost, except for segments already on their way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Size of the data.
    pub bytes: Bytes,
    /// Messages whose last byte is part of the data.
    pub messages: Vec<LostMessages>,
}

/// Messages with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostMessages {
    /// Stream of the messages.
    pub stream: u8,
    /// Number of the first message.
    pub first: u32,
    /// Number of messages.
    pub count: u32,
}

/// Ledger of one direction. Both connections use the same byte numbers, from 0.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Bytes received in order.
    received: u64,
    /// Part of `received` acknowledged to the sender.
    acknowledged: u64,
    /// Part of `received` acknowledged by the next hop.
    delivered: u64,
    /// Chunks in which messages end, with their start offsets, that the next hop has not fully
    /// acknowledged.
    chunks: VecDeque<(u64, Chunk)>,
}

impl Ledger {
    /// Records a chunk received in order.
    pub fn store(&mut self, chunk: &Chunk) {
        if chunk.messages > 0 {
            self.chunks.push_back((self.received, *chunk));
        }
        self.received += u64::from(chunk.len);
    }

    /// Records that all data below `data_ack` was acknowledged to the sender. The sequence number
    /// of a FIN does not count.
    pub fn acknowledge(&mut self, data_ack: u64) {
        self.acknowledged = self.acknowledged.max(data_ack.min(self.received));
    }

    /// Records that the next hop has acknowledged all but the last `bytes`.
    pub fn release(&mut self, bytes: Bytes) {
        self.delivered = self.received.saturating_sub(bytes.get());
        let delivered = self.delivered;
        let is_delivered =
            |(start, chunk): &(u64, Chunk)| start + u64::from(chunk.len) <= delivered;
        while self.chunks.front().is_some_and(is_delivered) {
            self.chunks.pop_front();
        }
    }

    /// Returns the data that was acknowledged but not delivered.
    pub fn owed(&self) -> Loss {
        let mut messages: Vec<LostMessages> = Vec::new();
        for (start, chunk) in &self.chunks {
            for offset in 0..chunk.messages {
                let end = chunk.message_end(offset, *start);
                if end <= self.delivered || end > self.acknowledged {
                    continue;
                }
                let (stream, id) = (chunk.stream, chunk.first_message.wrapping_add(offset.into()));
                match messages.last_mut() {
                    Some(run)
                        if run.stream == stream && run.first.wrapping_add(run.count) == id =>
                    {
                        run.count += 1;
                    }
                    _ => messages.push(LostMessages { stream, first: id, count: 1 }),
                }
            }
        }
        let bytes = Bytes::new(self.acknowledged.saturating_sub(self.delivered));
        Loss { bytes, messages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSet;

    fn chunk(first_message: u32, messages: u16, tail: bool) -> Chunk {
        let carried_by = PathSet::EMPTY;
        Chunk { dsn: 0, len: 100, first_message, messages, stream: 3, tail, carried_by }
    }

    #[test]
    fn acknowledged_but_undelivered_data_is_owed() {
        let mut ledger = Ledger::default();
        ledger.store(&chunk(7, 2, false));
        ledger.store(&chunk(9, 0, true));
        ledger.store(&chunk(9, 1, true));
        ledger.release(Bytes::new(300));
        assert_eq!(ledger.owed(), Loss::default());
        ledger.acknowledge(200);
        let run = |first, count| alloc::vec![LostMessages { stream: 3, first, count }];
        assert_eq!(ledger.owed(), Loss { bytes: Bytes::new(200), messages: run(7, 2) });
        // The FIN takes the sequence number after the last byte.
        ledger.acknowledge(301);
        assert_eq!(ledger.owed(), Loss { bytes: Bytes::new(300), messages: run(7, 3) });
        // Message 7 ends at byte 99 at the latest, message 8 at byte 100, message 9 at byte 299.
        ledger.release(Bytes::new(201));
        assert_eq!(ledger.owed(), Loss { bytes: Bytes::new(201), messages: run(8, 2) });
        ledger.release(Bytes::new(1));
        assert_eq!(ledger.owed(), Loss { bytes: Bytes::new(1), messages: Vec::new() });
    }
}
