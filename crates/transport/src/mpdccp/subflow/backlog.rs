//! Datagrams that a subflow is to send.

use alloc::collections::VecDeque;

use crate::segment::Datagram;

/// Datagrams assigned to a subflow and not sent yet.
#[derive(Debug, Default)]
pub struct Backlog {
    datagrams: VecDeque<Datagram>,
    /// Further copies before a deadline: they leave first, and pacing does not hold them back.
    copies: VecDeque<Datagram>,
}

impl Backlog {
    /// Adds a datagram.
    pub fn push(&mut self, datagram: Datagram) {
        self.datagrams.push_back(datagram);
    }

    /// Adds a further copy of a datagram.
    pub fn push_copy(&mut self, copy: Datagram) {
        self.copies.push_back(copy);
    }

    /// Number of datagrams and copies.
    #[inline]
    pub fn len(&self) -> u64 {
        (self.datagrams.len() + self.copies.len()) as u64
    }

    /// Number of datagrams that the pace holds back.
    #[inline]
    pub fn paced(&self) -> u64 {
        self.datagrams.len() as u64
    }

    /// True if a copy is next.
    #[inline]
    pub fn has_copy(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Takes the next one.
    pub fn pop(&mut self) -> Option<Datagram> {
        self.copies.pop_front().or_else(|| self.datagrams.pop_front())
    }
}
