//! Chunks that were assigned to a subflow but not sent yet.

use alloc::collections::VecDeque;

use crate::tcp::scoreboard::Chunk;

/// Queue of assigned chunks.
#[derive(Debug, Default)]
pub struct Backlog {
    chunks: VecDeque<Chunk>,
    bytes: u64,
}

impl Backlog {
    /// Appends a chunk.
    #[inline]
    pub fn push(&mut self, chunk: Chunk) {
        self.bytes += u64::from(chunk.len);
        self.chunks.push_back(chunk);
    }

    /// Returns the oldest chunk that ends after `data_una`; older ones, which arrived by other subflows, are dropped.
    #[inline]
    pub fn front_after(&mut self, data_una: u64) -> Option<Chunk> {
        loop {
            let chunk = *self.chunks.front()?;
            if chunk.end() > data_una {
                return Some(chunk);
            }
            self.pop();
        }
    }

    /// Removes the oldest chunk.
    #[inline]
    pub fn pop(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.bytes -= u64::from(chunk.len);
        }
    }

    /// Takes all chunks.
    pub fn take(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.bytes = 0;
        self.chunks.drain(..)
    }

    /// All chunks, oldest first.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.chunks.iter().copied()
    }

    /// Bytes in the queue.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSet;

    #[test]
    fn chunks_acknowledged_meanwhile_are_dropped() {
        let mut backlog = Backlog::default();
        for number in 0..4 {
            backlog.push(Chunk {
                dsn: 100 * number,
                len: 100,
                first_message: 0,
                messages: 0,
                stream: 0,
                tail: false,
                carried_by: PathSet::EMPTY,
            });
        }
        assert_eq!(backlog.front_after(200).map(|chunk| chunk.dsn), Some(200));
        assert_eq!(backlog.bytes(), 200);
        backlog.pop();
        assert_eq!(backlog.take().map(|chunk| chunk.dsn).collect::<alloc::vec::Vec<_>>(), [300]);
        assert!(backlog.is_empty() && backlog.bytes() == 0 && backlog.front_after(0).is_none());
    }
}
