//! Send queue of an unreliable flow.

use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Instant, Promised};

use crate::scheduler::Unit;
use crate::segment::Datagram;
use crate::{Message, PathSet};

/// Queue of messages to be sent, fragmented into datagrams.
#[derive(Debug)]
pub struct Outbox {
    payload: u32,
    queue: VecDeque<Message>,
    unsent: u64,
    packets: u64,
    fragment: u16,
    sequence: u64,
}

impl Outbox {
    /// Creates an empty queue. A datagram carries at most `payload` bytes.
    pub fn new(payload: u32) -> Self {
        Self {
            payload: payload.max(1),
            queue: VecDeque::new(),
            unsent: 0,
            packets: 0,
            fragment: 0,
            sequence: 0,
        }
    }

    #[inline]
    fn fragments(&self, message: &Message) -> u16 {
        let size = message.bytes.max(1);
        if size <= self.payload {
            1
        } else {
            size.div_ceil(self.payload).min(u32::from(u16::MAX)) as u16
        }
    }

    /// Appends a message.
    #[inline]
    pub fn write(&mut self, message: Message) {
        self.unsent += u64::from(message.bytes.max(1));
        self.packets += u64::from(self.fragments(&message));
        self.queue.push_back(message);
    }

    /// Bytes written but not yet sent; a message counts until its last fragment is sent.
    pub const fn unsent(&self) -> Bytes {
        Bytes::new(self.unsent)
    }

    /// Returns the numbers of the messages that are wholly or partly unsent.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().map(|message| message.id)
    }

    /// Number of datagrams in the queue.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// True if the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the next datagram and its message.
    #[inline]
    pub fn peek(&self) -> Option<(Message, Datagram)> {
        let message = *self.queue.front()?;
        let size = message.bytes.max(1);
        let datagram = Datagram {
            sequence: self.sequence,
            message: message.id,
            len: self.payload.min(size - self.payload * u32::from(self.fragment)),
            fragment: self.fragment,
            fragments: self.fragments(&message),
        };
        Some((message, datagram))
    }

    /// Returns the datagram of [`peek`](Self::peek) as schedulers see it.
    #[inline]
    pub fn unit(&self, message: &Message, datagram: &Datagram) -> Unit {
        let bytes = Bytes::new(u64::from(datagram.len));
        let unlimited = Bytes::new(u64::MAX);
        Unit {
            bytes,
            class: message.class,
            deadline: message.deadline,
            carried_by: PathSet::EMPTY,
            backlog: self.unsent() - bytes,
            window_room: unlimited,
            window: unlimited,
            blocked: 0,
        }
    }

    /// Removes the `datagram` of [`peek`](Self::peek).
    #[inline]
    pub fn advance(&mut self, datagram: &Datagram) {
        self.sequence += 1;
        self.packets -= 1;
        self.fragment = datagram.fragment + 1;
        if self.fragment == datagram.fragments
            && let Some(message) = self.queue.pop_front().promised("the message of `peek`")
        {
            self.fragment = 0;
            self.unsent -= u64::from(message.bytes.max(1));
        }
    }

    /// Drops the newest messages while at least `limit` datagrams are queued before them.
    pub fn refuse_beyond(&mut self, limit: u64, refused: &mut impl FnMut(u32)) {
        while self.packets > limit
            && self.queue.len() > 1
            && let Some(message) = self.queue.back()
        {
            let (size, count) = (message.bytes.max(1), u64::from(self.fragments(message)));
            if self.packets - count < limit {
                break;
            }
            refused(message.id);
            self.packets -= count;
            self.unsent -= u64::from(size);
            self.queue.pop_back();
        }
    }

    /// Drops messages at the head of the queue whose deadline has passed.
    pub fn drop_expired(&mut self, now: Instant, dropped: &mut impl FnMut(u32)) {
        while let Some(message) = self.queue.front()
            && message.deadline.is_some_and(|deadline| deadline < now)
        {
            dropped(message.id);
            self.packets -= u64::from(self.fragments(message) - self.fragment);
            self.unsent -= u64::from(message.bytes.max(1));
            self.fragment = 0;
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use alloc::vec::Vec;

    fn message(id: u32, bytes: u32) -> Message {
        let deadline = Some(Instant::from_millis(10 * i64::from(id)));
        Message { stream: 0, id, class: Class::Data, bytes, deadline }
    }

    /// Takes the next datagram.
    fn send_next(outbox: &mut Outbox) -> Datagram {
        let (_, datagram) = outbox.peek().unwrap();
        outbox.advance(&datagram);
        datagram
    }

    #[test]
    fn a_message_is_split_into_fragments_that_add_up_to_it() {
        let mut outbox = Outbox::new(1000);
        outbox.write(message(7, 2500));
        let mut parts = Vec::new();
        while !outbox.is_empty() {
            let datagram = send_next(&mut outbox);
            parts.push((datagram.sequence, datagram.fragment, datagram.fragments, datagram.len));
        }
        assert_eq!(parts, [(0, 0, 3, 1000), (1, 1, 3, 1000), (2, 2, 3, 500)]);
        assert_eq!((outbox.unsent(), outbox.packets()), (Bytes::ZERO, 0));
    }

    #[test]
    fn a_full_queue_refuses_the_newest_but_never_a_started_one() {
        let mut outbox = Outbox::new(1000);
        for (id, bytes) in [(0, 9000), (1, 100), (2, 100), (3, 3000), (4, 100)] {
            outbox.write(message(id, bytes));
        }
        for _ in 0..6 {
            send_next(&mut outbox);
        }
        let mut refused = Vec::new();
        // Three fragments of message 0 are left; five datagrams are queued before message 3.
        outbox.refuse_beyond(5, &mut |id| refused.push(id));
        assert_eq!(refused, [4, 3]);
        assert_eq!((outbox.packets(), outbox.unsent()), (5, Bytes::new(9200)));
    }

    #[test]
    fn messages_past_their_deadline_are_dropped() {
        let mut outbox = Outbox::new(1000);
        for id in 0..4 {
            outbox.write(message(id, 1500));
        }
        send_next(&mut outbox);
        let mut dropped = Vec::new();
        outbox.drop_expired(Instant::from_millis(15), &mut |id| dropped.push(id));
        assert_eq!(dropped, [0, 1]);
        assert_eq!(outbox.packets(), 4);
        assert_eq!(outbox.peek().unwrap().1.fragment, 0);
    }
}
