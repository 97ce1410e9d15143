//! Messages that wait to be sent, cut into datagrams.

use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Instant};

use crate::Message;
use crate::segment::Datagram;

/// Messages that wait to be sent. One that is larger than a datagram is split.
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
    /// An empty one; a datagram carries at most `payload` bytes.
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

    fn fragments(&self, message: &Message) -> u16 {
        let size = message.bytes.max(1);
        if size <= self.payload {
            1
        } else {
            size.div_ceil(self.payload).min(u32::from(u16::MAX)) as u16
        }
    }

    /// Puts a message last in line.
    pub fn write(&mut self, message: Message) {
        self.unsent += u64::from(message.bytes.max(1));
        self.packets += u64::from(self.fragments(&message));
        self.queue.push_back(message);
    }

    /// Bytes written and not yet sent; a message counts until its last part has left.
    pub const fn unsent(&self) -> Bytes {
        Bytes::new(self.unsent)
    }

    /// The numbers of the messages of which a part waits.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().map(|message| message.id)
    }

    /// Datagrams that wait.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The datagram that leaves next, and the message that it belongs to.
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

    /// The datagram of [`peek`](Self::peek) leaves.
    pub fn advance(&mut self) {
        let Some(message) = self.queue.front() else { return };
        self.sequence += 1;
        self.packets -= 1;
        self.fragment += 1;
        if self.fragment == self.fragments(message) {
            self.fragment = 0;
            self.unsent -= u64::from(message.bytes.max(1));
            self.queue.pop_front();
        }
    }

    /// Takes out the newest messages as long as `limit` datagrams or more wait ahead of them.
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

    /// Takes out messages at the head of the line whose deadline has passed.
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

    #[test]
    fn a_message_is_split_into_parts_that_add_up_to_it() {
        let mut outbox = Outbox::new(1000);
        outbox.write(message(7, 2500));
        let mut parts = Vec::new();
        while let Some((_, datagram)) = outbox.peek() {
            outbox.advance();
            parts.push((datagram.sequence, datagram.fragment, datagram.fragments, datagram.len));
        }
        assert_eq!(parts, [(0, 0, 3, 1000), (1, 1, 3, 1000), (2, 2, 3, 500)]);
        assert_eq!((outbox.unsent(), outbox.packets()), (Bytes::ZERO, 0));
    }

    #[test]
    fn a_full_queue_refuses_the_newest_and_never_what_has_begun_to_leave() {
        let mut outbox = Outbox::new(1000);
        for (id, bytes) in [(0, 9000), (1, 100), (2, 100), (3, 3000), (4, 100)] {
            outbox.write(message(id, bytes));
        }
        for _ in 0..6 {
            outbox.advance();
        }
        let mut refused = Vec::new();
        // Three parts of message 0 are left; message 3 finds five datagrams ahead.
        outbox.refuse_beyond(5, &mut |id| refused.push(id));
        assert_eq!(refused, [4, 3]);
        assert_eq!((outbox.packets(), outbox.unsent()), (5, Bytes::new(9200)));
    }

    #[test]
    fn messages_past_their_deadline_leave_the_line() {
        let mut outbox = Outbox::new(1000);
        for id in 0..4 {
            outbox.write(message(id, 1500));
        }
        outbox.advance();
        let mut dropped = Vec::new();
        outbox.drop_expired(Instant::from_millis(15), &mut |id| dropped.push(id));
        assert_eq!(dropped, [0, 1]);
        assert_eq!(outbox.packets(), 4);
        assert_eq!(outbox.peek().unwrap().1.fragment, 0);
    }
}
