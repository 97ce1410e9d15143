//! Messages in a stream of bytes, each within its own size.
//!
//! A message of at least [`HEADER`] bytes begins with its number (32 bit), its length (32 bit) and the
//! time at which it was written (ns of the run's clock, 64 bit), all big-endian; filler follows. A shorter
//! one is filler alone and known by its length. The receiving end knows the length of each message, from the
//! record of the run that it shares with the sender.

use std::collections::VecDeque;
use std::io;

use skybraid_units::Instant;

/// Bytes of a message's header.
pub const HEADER: usize = 16;
/// What is handed to the socket at once.
pub const STAGE: usize = 64 * 1024;

/// What is wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// Another message than the next one.
    #[error("expected message {expected}, found message {found}")]
    Number {
        /// The number that is next.
        expected: u32,
        /// What the header says.
        found: u32,
    },
    /// A message of another size.
    #[error("message {number}: expected a length of {expected} B, found {found} B")]
    Length {
        /// The message.
        number: u32,
        /// The flow's size of messages.
        expected: u32,
        /// What the header says.
        found: u32,
    },
    /// The stream ended early or late.
    #[error(
        "the stream ended: expected {expected} messages, found {found} and {rest} B of another"
    )]
    Count {
        /// Messages written.
        expected: u32,
        /// Messages arrived whole.
        found: u32,
        /// Bytes behind them.
        rest: u64,
    },
}

/// The messages of one direction that the socket has not taken yet.
#[derive(Debug)]
pub struct Outgoing {
    queue: VecDeque<Message>,
    /// Bytes of the first message's present copy that are staged.
    staged: u32,
    /// What is offered to the socket: `start..end` of it.
    stage: Box<[u8]>,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    number: u32,
    bytes: u32,
    sent: Instant,
    /// How many times it is still to be written.
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
        let stage = vec![0; STAGE].into_boxed_slice();
        Self { queue: VecDeque::new(), staged: 0, stage, start: 0, end: 0 }
    }
}

impl Outgoing {
    /// Message `number` of `bytes` bytes, written at `sent`, is to go out so many times, at least once.
    pub fn push(&mut self, number: u32, bytes: u32, sent: Instant, copies: u8) {
        self.queue.push_back(Message { number, bytes, sent, copies: copies.max(1) });
    }

    /// The socket has taken everything.
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.queue.is_empty()
    }

    /// Offers bytes to the socket (`send` answers how many it took) until it takes no more, nothing is
    /// left, or `limit` bytes are gone. Answers how many are. `last` hears the number of a message as the
    /// last byte of a copy is offered for the first time.
    ///
    /// # Errors
    /// What `send` answers, except for [`io::ErrorKind::WouldBlock`], which ends it, and
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

    /// Fills the empty stage. Only headers are written: what lies there otherwise is filler.
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

/// A message that has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub number: u32,
    /// When it was written, if the header says so.
    pub sent: Option<Instant>,
}

/// Who gets the messages of a stream.
pub trait Application {
    /// How long a message is, in bytes, at least 1.
    fn bytes_of(&self, number: u32) -> u32;

    /// A copy of a message is whole.
    fn arrived(&mut self, message: Arrived);
}

/// The messages of one direction as they come out of the stream.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Size of the message that is coming.
    bytes: u32,
    /// How many times each one comes.
    copies: u8,
    /// The message that is coming, which copy of it, and how much of that is there.
    number: u32,
    copy: u8,
    got: u32,
    header: [u8; HEADER],
}

impl Incoming {
    /// Nothing has come of messages that come so many times, at least once.
    pub fn new(copies: u8) -> Self {
        Self { bytes: 1, copies: copies.max(1), number: 0, copy: 0, got: 0, header: [0; HEADER] }
    }

    /// More of the stream; the application hears of every copy that is whole now.
    ///
    /// # Errors
    /// A header says something else than expected; the stream is of no use any more.
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

    /// The stream has ended after `written` messages.
    ///
    /// # Errors
    /// Not all of them are there, or more.
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

    /// Messages of one size, and who hears of them.
    struct OfSize<F>(u32, F);

    impl<F: FnMut(Arrived)> Application for OfSize<F> {
        fn bytes_of(&self, _: u32) -> u32 {
            self.0
        }

        fn arrived(&mut self, message: Arrived) {
            self.1(message);
        }
    }

    /// The stream of so many messages through a socket that takes a few bytes at a time.
    fn stream(messages: u32, bytes: u32, copies: u8, takes: &[usize]) -> (Vec<u8>, Vec<u32>) {
        let mut outgoing = Outgoing::default();
        (0..messages).for_each(|number| outgoing.push(number, bytes, at(number), copies));
        let (mut stream, mut last) = (Vec::new(), Vec::new());
        let mut takes = takes.iter().cycle();
        while !outgoing.is_empty() {
            let send = |data: &[u8]| match takes.next() {
                Some(0) | None => Err(io::ErrorKind::WouldBlock.into()),
                Some(most) => {
                    let taken = data.len().min(*most);
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
        fn messages_come_out_as_they_went_in_wherever_writes_and_reads_are_cut(
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
    fn messages_without_room_for_a_header_are_counted_by_their_length() {
        let mut incoming = Incoming::new(1);
        let mut count = 0;
        incoming.read(&[0xff; 30], &mut OfSize(10, |_| count += 1)).unwrap();
        assert_eq!(count, 3);
        assert_eq!(incoming.end(4), Err(FramingError::Count { expected: 4, found: 3, rest: 0 }));
    }
}
