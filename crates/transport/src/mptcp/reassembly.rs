//! Putting the chunks of several subflows back in the order of their data sequence numbers.
//!
//! Source: RFC 8684 §3.3.1: the first arrival of a range counts, later ones are dropped.

use alloc::collections::VecDeque;

use crate::tcp::scoreboard::Chunk;
use crate::{Delivered, PathId};

/// The receiving half of a connection.
#[derive(Debug, Default)]
pub struct Reassembly {
    next: u64,
    /// Chunks beyond a hole, ascending, with the path that brought them.
    beyond: VecDeque<(Chunk, PathId)>,
    held: u64,
}

impl Reassembly {
    /// Next data sequence number expected (the data ACK).
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Bytes held beyond a hole.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Takes a chunk that `path` brought; messages that are complete and in order go to `deliver`.
    pub fn insert(&mut self, chunk: Chunk, path: PathId, deliver: &mut impl FnMut(Delivered)) {
        if chunk.end() <= self.next {
            return;
        }
        if chunk.dsn > self.next {
            let place = self.beyond.partition_point(|(held, _)| held.dsn < chunk.dsn);
            let known = self.beyond.get(place).is_some_and(|(held, _)| held.dsn == chunk.dsn);
            if !known {
                self.held += u64::from(chunk.len);
                self.beyond.insert(place, (chunk, path));
            }
            return;
        }
        self.hand_over(chunk, path, deliver);
        while let Some((chunk, path)) = self.beyond.front().copied() {
            if chunk.dsn > self.next {
                break;
            }
            self.beyond.pop_front();
            self.held -= u64::from(chunk.len);
            if chunk.end() > self.next {
                self.hand_over(chunk, path, deliver);
            }
        }
    }

    fn hand_over(&mut self, chunk: Chunk, path: PathId, deliver: &mut impl FnMut(Delivered)) {
        self.next = chunk.end();
        for offset in 0..u32::from(chunk.messages) {
            deliver(Delivered { id: chunk.first_message.wrapping_add(offset), path });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSet;
    use alloc::vec::Vec;

    fn insert(stream: &mut Reassembly, number: u32, path: u8) -> Vec<(u32, u8)> {
        let chunk = Chunk {
            dsn: u64::from(number) * 100,
            len: 100,
            first_message: number,
            messages: 1,
            carried_by: PathSet::EMPTY,
        };
        let mut out = Vec::new();
        stream.insert(chunk, PathId(path), &mut |message| out.push((message.id, message.path.0)));
        out
    }

    #[test]
    fn the_first_copy_counts_and_the_second_is_dropped() {
        let mut stream = Reassembly::default();
        assert_eq!(insert(&mut stream, 0, 0), [(0, 0)]);
        assert_eq!(insert(&mut stream, 0, 1), []);
        assert_eq!(insert(&mut stream, 2, 1), []);
        assert_eq!(insert(&mut stream, 2, 0), []);
        assert_eq!(stream.held(), 100);
        assert_eq!(insert(&mut stream, 1, 0), [(1, 0), (2, 1)]);
        assert_eq!((stream.next(), stream.held()), (300, 0));
    }
}
