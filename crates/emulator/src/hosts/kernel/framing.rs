//! Messages in a byte stream, framed within their own size.
//!
//! A message of at least [`HEADER`] bytes starts with its number (32 bit), its length (32 bit) and the time
//! at which it was written (ns of the run's clock, 64 bit), all big-endian; filler follows. A shorter message
//! is filler only and identified by its length. The receiver knows the length of each message from the record
//! of the run that it shares with the sender.

use std::collections::VecDeque;
use std::io;

use skybraid_units::Instant;

/// Length of a message header in bytes.
pub const HEADER: usize = 16;
/// Maximum bytes passed to the socket at once.
pub const MAX_WRITE: usize = 64 * 1024;

/// Framing error of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A message out of sequence.
    #[error("expected message {expected}, found message {found}")]
    Number {
        /// Next message number.
        expected: u32,
        /// Value in the header.
        found: u32,
    },
    /// A message of another length.
    #[error("message {number}: expected a length of {expected} B, found {found} B")]
    Length {
        /// Message number.
        number: u32,
        /// Expected message length of the flow.
        expected: u32,
        /// Value in the header.
        found: u32,
    },
    /// The stream ended early or late.
    #[error(
        "the stream ended: expected {expected} messages, found {found} and {rest} B of another"
    )]
    Count {
        /// Messages written.
        expected: u32,
        /// Messages received completely.
        found: u32,
        /// Bytes after the last complete message.
        rest: u64,
    },
}

/// Messages of one direction not yet accepted by the socket.
#[derive(Debug)]
pub struct Outgoing {
    queue: VecDeque<Message>,
    /// Staged bytes of the first message's current copy.
    staged: u32,
    /// Staging buffer, of which `start..end` is offered to the socket.
    stage: Box<[u8]>,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    number: u32,
    bytes: u32,
    sent: Instant,
    /// Number of remaining copies.
    copies: u8,
}

impl Message {
    fn header(&self) -> [u8; HEADER] {
        let number = u128::from(self.number) << 96;
        let length = u128::from(self.bytes) << 64;
        (number | length | u128::from(self.sent.as_nanos().cast_unsigned())).to_be_bytes()
    }
}

impl Default for Outgoing {
    fn default() -> Self {
        let stage = vec![0; MAX_WRITE].into_boxed_slice();
        Self { queue: VecDeque::new(), staged: 0, stage, start: 0, end: 0 }
    }
}

impl Outgoing {
    /// Queues message `number` of `bytes` bytes, written at `sent`, with `copies` copies, at least one.
    pub fn push(&mut self, number: u32, bytes: u32, sent: Instant, copies: u8) {
        self.queue.push_back(Message { number, bytes, sent, copies: copies.max(1) });
    }

    /// Returns true if the socket has accepted everything.
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.queue.is_empty()
    }

    /// Writes through `send`, which returns the number of accepted bytes, until it would block, nothing is
    /// left, or `limit` bytes are written. Returns the number written. `last` receives the number of a
    /// message when the last byte of a copy is first offered.
    ///
    /// # Errors
    /// Errors of `send`, except [`io::ErrorKind::WouldBlock`], which ends the call, and
    /// [`io::ErrorKind::Interrupted`].
    pub fn write(
        &mut self,
        limit: usize,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
        mut last: impl FnMut(u32),
    ) -> io::Result<usize> {
        let mut gone = 0;
        while gone < limit {
            if self.start == self.end {
                self.stage_more(&mut last);
            }
            let Some(offered) = self.stage.get(self.start..self.end) else { break };
            if offered.is_empty() {
                break;
            }
            match send(offered) {
                Ok(taken) => {
                    self.start = (self.start + taken).min(self.end);
                    gone += taken;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// Fills the empty staging buffer. Only headers are written; the other contents serve as filler.
    fn stage_more(&mut self, last: &mut impl FnMut(u32)) {
        (self.start, self.end) = (0, 0);
        while let Some(message) = self.queue.front_mut()
            && let Some(room) = self.stage.get_mut(self.end..)
            && !room.is_empty()
        {
            let missing = message.bytes - self.staged;
            let length = room.len().min(missing as usize);
            if message.bytes as usize >= HEADER
                && let Some(rest) = message.header().get(self.staged as usize..)
            {
                room.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            }
            self.end += length;
            self.staged += length as u32;
            if self.staged == message.bytes {
                self.staged = 0;
                message.copies -= 1;
                last(message.number);
                if message.copies == 0 {
                    self.queue.pop_front();
                }
            }
        }
    }
}

/// A completely received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Message number.
    pub number: u32,
    /// Time at which the message was written, if it has a header.
    pub sent: Option<Instant>,
}

/// Receiver of the messages of a stream.
pub trait Application {
    /// Returns the length of a message in bytes, at least 1.
    fn bytes_of(&self, number: u32) -> u32;

    /// Handles a complete copy of a message.
    fn arrived(&mut self, message: Arrived);
}

/// Reassembler for the messages of one direction.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Length of the current message.
    bytes: u32,
    /// Number of copies of each message.
    copies: u8,
    /// Number of the current message, index of its copy, and bytes received of it.
    number: u32,
    copy: u8,
    got: u32,
    header: [u8; HEADER],
}

impl Incoming {
    /// Creates a reassembler for messages with `copies` copies each, at least one.
    pub fn new(copies: u8) -> Self {
        Self { bytes: 1, copies: copies.max(1), number: 0, copy: 0, got: 0, header: [0; HEADER] }
    }

    /// Reads further stream data; the application receives every complete copy.
    ///
    /// # Errors
    /// A header differs from the expected one; the stream is unusable from then on.
    pub fn read(
        &mut self,
        mut data: &[u8],
        application: &mut impl Application,
    ) -> Result<(), FramingError> {
        while !data.is_empty() {
            if self.got == 0 {
                self.bytes = application.bytes_of(self.number).max(1);
            }
            let has_header = self.bytes as usize >= HEADER;
            let in_header = has_header && (self.got as usize) < HEADER;
            let until = if in_header { HEADER as u32 } else { self.bytes };
            let length = data.len().min((until - self.got) as usize);
            let (part, rest) = data.split_at_checked(length).unwrap_or((data, &[]));
            if in_header {
                let room = self.header.iter_mut().skip(self.got as usize);
                room.zip(part).for_each(|(to, from)| *to = *from);
            }
            data = rest;
            self.got += length as u32;
            if in_header && self.got as usize == HEADER {
                self.check()?;
            }
            if self.got == self.bytes {
                let sent = has_header.then(|| self.sent());
                application.arrived(Arrived { number: self.number, sent });
                self.got = 0;
                self.copy += 1;
                if self.copy == self.copies {
                    self.copy = 0;
                    self.number = self.number.wrapping_add(1);
                }
            }
        }
        Ok(())
    }

    /// Checks that the stream has ended after `written` messages.
    ///
    /// # Errors
    /// Messages or bytes are missing or surplus.
    pub fn end(&self, written: u32) -> Result<(), FramingError> {
        let rest = u64::from(self.copy) * u64::from(self.bytes) + u64::from(self.got);
        if self.number == written && rest == 0 {
            return Ok(());
        }
        Err(FramingError::Count { expected: written, found: self.number, rest })
    }

    fn check(&self) -> Result<(), FramingError> {
        let header = u128::from_be_bytes(self.header);
        let (found, length) = ((header >> 96) as u32, (header >> 64) as u32);
        if found != self.number {
            return Err(FramingError::Number { expected: self.number, found });
        }
        if length != self.bytes {
            let (number, expected) = (self.number, self.bytes);
            return Err(FramingError::Length { number, expected, found: length });
        }
        Ok(())
    }

    fn sent(&self) -> Instant {
        Instant::from_nanos((u128::from_be_bytes(self.header) as u64).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(number: u32) -> Instant {
        Instant::from_nanos(-5 + 1000 * i64::from(number))
    }

    /// Messages of one size, and the callback that receives them.
    struct OfSize<F>(u32, F);

    impl<F: FnMut(Arrived)> Application for OfSize<F> {
        fn bytes_of(&self, _: u32) -> u32 {
            self.0
        }

        fn arrived(&mut self, message: Arrived) {
            self.1(message);
        }
    }

    /// Returns the stream of `messages` messages through a socket that accepts a few bytes at a time.
    fn stream(messages: u32, bytes: u32, copies: u8, takes: &[usize]) -> (Vec<u8>, Vec<u32>) {
        let mut outgoing = Outgoing::default();
        (0..messages).for_each(|number| outgoing.push(number, bytes, at(number), copies));
        let (mut stream, mut last) = (Vec::new(), Vec::new());
        let mut takes = takes.iter().cycle();
        while !outgoing.is_empty() {
            let send = |data: &[u8]| match takes.next() {
                Some(0) | None => Err(io::ErrorKind::WouldBlock.into()),
                Some(max) => {
                    let taken = data.len().min(*max);
                    stream.extend_from_slice(&data[..taken]);
                    Ok(taken)
                }
            };
            outgoing.write(100_000, send, |number| last.push(number)).unwrap();
        }
        (stream, last)
    }

    proptest! {
        #[test]
        fn messages_are_restored_however_writes_and_reads_are_cut(
            messages in 0u32..12,
            bytes in prop_oneof![1u32..40, 1000u32..3000, 65_000u32..70_000],
            copies in 1u8..4,
            takes in prop::collection::vec(1usize..70_000, 4..8),
            reads in prop::collection::vec(1usize..5000, 4..8),
        ) {
            let (stream, last) = stream(messages, bytes, copies, &takes);
            prop_assert_eq!(stream.len() as u64, u64::from(messages * bytes) * u64::from(copies));
            let mut incoming = Incoming::new(copies);
            let (mut rest, mut arrived) = (&stream[..], Vec::new());
            for read in reads.iter().cycle() {
                let (part, more) = rest.split_at(rest.len().min(*read));
                incoming.read(part, &mut OfSize(bytes, |message| arrived.push(message))).unwrap();
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(incoming.end(messages), Ok(()));
            let expected: Vec<u32> =
                (0..messages).flat_map(|number| vec![number; usize::from(copies)]).collect();
            prop_assert_eq!(&last, &expected);
            let numbers: Vec<u32> = arrived.iter().map(|message| message.number).collect();
            prop_assert_eq!(numbers, expected);
            for message in arrived {
                let sent = (bytes as usize >= HEADER).then(|| at(message.number));
                prop_assert_eq!(message.sent, sent);
            }
        }
    }

    #[test]
    fn messages_may_each_have_a_size_of_their_own() {
        struct Packets(Vec<u32>);
        impl Application for Packets {
            fn bytes_of(&self, number: u32) -> u32 {
                [1200, 14, 700][number as usize]
            }
            fn arrived(&mut self, message: Arrived) {
                self.0.push(message.number);
            }
        }
        let (mut outgoing, mut stream) = (Outgoing::default(), Vec::new());
        for (number, bytes) in (0..).zip([1200, 14, 700]) {
            outgoing.push(number, bytes, at(number), 1);
        }
        let send = |data: &[u8]| {
            stream.extend_from_slice(data);
            Ok(data.len())
        };
        outgoing.write(100_000, send, |_| {}).unwrap();
        let (mut incoming, mut packets) = (Incoming::new(1), Packets(Vec::new()));
        stream.chunks(333).for_each(|part| incoming.read(part, &mut packets).unwrap());
        assert_eq!(packets.0, [0, 1, 2]);
    }

    #[test]
    fn a_socket_without_room_keeps_the_rest_for_later() {
        let (stream, _) = stream(3, 100, 1, &[7, 0]);
        assert_eq!(stream.len(), 300);
    }

    #[test]
    fn a_missing_a_longer_and_a_cut_message_are_found() {
        let (stream, _) = stream(3, 100, 1, &[1000]);
        let mut incoming = Incoming::new(1);
        incoming.read(&stream[..100], &mut OfSize(100, |_| {})).unwrap();
        let skipped = incoming.clone().read(&stream[200..], &mut OfSize(100, |_| {}));
        assert_eq!(skipped, Err(FramingError::Number { expected: 1, found: 2 }));
        let other = Incoming::new(1).read(&stream, &mut OfSize(80, |_| {})).unwrap_err();
        assert_eq!(other.to_string(), "message 0: expected a length of 80 B, found 100 B");
        incoming.read(&stream[100..130], &mut OfSize(100, |_| {})).unwrap();
        let early = incoming.end(3);
        assert_eq!(early, Err(FramingError::Count { expected: 3, found: 1, rest: 30 }));
    }

    #[test]
    fn messages_too_short_for_a_header_are_counted_by_length() {
        let mut incoming = Incoming::new(1);
        let mut count = 0;
        incoming.read(&[0xff; 30], &mut OfSize(10, |_| count += 1)).unwrap();
        assert_eq!(count, 3);
        assert_eq!(incoming.end(4), Err(FramingError::Count { expected: 4, found: 3, rest: 0 }));
    }
}
