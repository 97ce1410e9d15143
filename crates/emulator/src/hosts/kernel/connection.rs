//! One end of a flow's connection: a socket with its outgoing and incoming messages.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::{PollFd, PollFlags};
use skybraid_host::Outcome;
use skybraid_traffic::Write;
use skybraid_transport::{Delivered, PathId};
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};
use socket2::Socket;

use super::framing::{Application, Arrived, FramingError, Incoming, Outgoing};
use super::sampling::Subflows;

/// Maximum bytes written, and read, by one step at an end, so that no flow blocks the others.
pub const STEP: usize = 1024 * 1024;
/// Maximum bytes of one read.
pub const READ: usize = 256 * 1024;

/// Readiness interest in a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// Socket.
    pub socket: BorrowedFd<'a>,
    /// Step when the socket is readable.
    pub readable: bool,
    /// Step when the socket is writable.
    pub writable: bool,
}

impl<'a> Interest<'a> {
    /// Converts the interest for `poll`.
    pub fn polled(&self) -> PollFd<'a> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.readable);
        flags.set(PollFlags::POLLOUT, self.writable);
        PollFd::new(self.socket, flags)
    }
}

/// Error at an end.
#[derive(Debug)]
pub enum ConnectionError {
    /// Socket error: the operation and the kernel's error.
    Io(&'static str, io::Error),
    /// Framing error in received data.
    Framing(FramingError),
}

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    /// Socket, once opened.
    pub socket: Option<Socket>,
    /// Messages to be sent.
    pub outgoing: Outgoing,
    incoming: Incoming,
    /// Indices of the records of written and received messages.
    pub writes: Option<usize>,
    gets: Option<usize>,
    /// Replies to each message.
    answers: bool,
    /// Bytes of every reply, and copies of every message.
    bytes: u32,
    copies: u8,
    /// Path of all messages, or 255 if unknown.
    path: PathId,
    /// No more messages will be written.
    pub finished: bool,
    shut: bool,
    ended: bool,
    /// Subflows of the connection.
    pub subflows: Subflows,
    /// Payload bytes accepted by the socket, by second of the run.
    pub sent_by_second: Vec<u64>,
    /// Payload bytes read from the socket, by second of the run.
    pub received_by_second: Vec<u64>,
}

/// Role of an end.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Index of the record of written messages.
    pub writes: Option<usize>,
    /// Index of the record of received messages.
    pub gets: Option<usize>,
    /// Replies to each message.
    pub answers: bool,
    /// Bytes of every reply.
    pub bytes: u32,
    /// Number of copies of each message.
    pub copies: u8,
    /// Path of all messages, or 255 if unknown.
    pub path: PathId,
}

impl End {
    /// Creates an end without a socket.
    pub fn new(part: Part, subflows: Subflows) -> Self {
        let Part { writes, gets, answers, bytes, copies, path } = part;
        Self {
            socket: None,
            outgoing: Outgoing::default(),
            incoming: Incoming::new(copies),
            writes,
            gets,
            answers,
            bytes,
            copies,
            path,
            finished: false,
            shut: false,
            ended: false,
            subflows,
            sent_by_second: Vec::new(),
            received_by_second: Vec::new(),
        }
    }

    /// Queues a message from the application, which claims `sent` as its time.
    pub fn write(&mut self, sent: Instant, written: Write, outcome: &mut Outcome) {
        let record = self
            .writes
            .and_then(|writes| outcome.flows.get_mut(writes).promised("a flow of this run"));
        let Some(record) = record else { return };
        self.outgoing.push(record.next_id(), written.bytes, sent, self.copies);
        record.on_written(sent, written);
    }

    /// Writes as much as the socket accepts; shuts down its write side after the last message. Returns the
    /// number of bytes written.
    pub fn send(&mut self, now: Instant, outcome: &mut Outcome) -> Result<usize, ConnectionError> {
        let Some(socket) = &self.socket else { return Ok(0) };
        let mut record = self
            .writes
            .and_then(|writes| outcome.flows.get_mut(writes).promised("a flow of this run"));
        let taken = self.outgoing.write(
            STEP,
            |data| socket.send_with_flags(data, libc::MSG_NOSIGNAL),
            |number| {
                if let Some(record) = &mut record {
                    record.on_copy_sent(now, number, PathId(u8::MAX));
                }
            },
        );
        let taken = taken.map_err(|error| ConnectionError::Io("sending", error))?;
        add(&mut self.sent_by_second, now, taken as u64);
        if self.finished && !self.shut && self.outgoing.is_empty() {
            self.shut = true;
            // The subflows of a closed connection disappear, so they are sampled now.
            self.subflows.sample(socket).ok();
            let closed = socket.shutdown(std::net::Shutdown::Write);
            closed.map_err(|error| ConnectionError::Io("closing", error))?;
        }
        Ok(taken)
    }

    /// Reads available data and delivers complete messages.
    pub fn receive(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        outcome: &mut Outcome,
    ) -> Result<(), ConnectionError> {
        let mut total = 0;
        while !self.ended && total < STEP {
            let Some(mut socket) = self.socket.as_ref() else { return Ok(()) };
            match socket.read(buffer) {
                Ok(0) => {
                    self.ended = true;
                    let record = self
                        .gets
                        .and_then(|gets| outcome.flows.get(gets).promised("a flow of this run"));
                    let written = record.map_or(0, |record| record.next_id());
                    self.incoming.end(written).map_err(ConnectionError::Framing)?;
                    // All its replies have been written.
                    self.finished = true;
                }
                Ok(length) => {
                    total += length;
                    add(&mut self.received_by_second, now, length as u64);
                    let data = buffer.get(..length).unwrap_or(&[]);
                    self.deliver(now, data, outcome).map_err(ConnectionError::Framing)?;
                    if length < buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ConnectionError::Io("receiving", error)),
            }
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        now: Instant,
        data: &[u8],
        outcome: &mut Outcome,
    ) -> Result<(), FramingError> {
        let Self { incoming, outgoing, gets, writes, path, bytes, copies, answers, .. } = self;
        let Some(gets) = *gets else { return Ok(()) };
        let answers = answers.then_some(writes.as_ref().copied()).flatten();
        let (bytes, copies, path) = (*bytes, *copies, *path);
        incoming
            .read(data, &mut Getting { outcome, gets, answers, outgoing, bytes, copies, path, now })
    }

    /// Abandons the connection.
    pub fn abort(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.subflows.sample(&socket).ok();
        }
    }

    /// Number of copies of each message.
    pub fn copies(&self) -> u8 {
        self.copies.max(1)
    }

    /// Returns the readiness events to step on; `fills` means that there is always data to send.
    pub fn interest(&self, fills: bool) -> Option<Interest<'_>> {
        let socket = self.socket.as_ref()?.as_fd();
        let writable = !self.shut && (fills || !self.outgoing.is_empty());
        let readable = !self.ended;
        (readable || writable).then_some(Interest { socket, readable, writable })
    }
}

/// Records received messages and replies to them.
struct Getting<'a> {
    outcome: &'a mut Outcome,
    gets: usize,
    /// Index of the record of replies, if any.
    answers: Option<usize>,
    outgoing: &'a mut Outgoing,
    /// Bytes of each reply.
    bytes: u32,
    copies: u8,
    path: PathId,
    now: Instant,
}

impl Application for Getting<'_> {
    fn bytes_of(&self, number: u32) -> u32 {
        self.outcome
            .flows
            .get(self.gets)
            .promised("a flow of this run")
            .map_or(1, |record| record.bytes_of(number))
    }

    fn arrived(&mut self, message: Arrived) {
        let id = message.number;
        let Some(record) = self.outcome.flows.get_mut(self.gets).promised("a flow of this run")
        else {
            return;
        };
        record.on_copy_arrived_unseen(self.now, id, self.path);
        let arrived = Delivered { stream: 0, id, held: Duration::ZERO, path: self.path };
        let Some(sent) = record.on_delivered(self.now, arrived) else { return };
        let answers = self
            .answers
            .and_then(|answers| self.outcome.flows.get_mut(answers).promised("a flow of this run"));
        if let Some(record) = answers {
            // The reply carries the request's time, so that its delay is the round trip.
            self.outgoing.push(record.next_id(), self.bytes, sent, self.copies);
            record.on_written(sent, self.bytes);
        }
    }
}

/// Adds to the counter of the second that contains `now`.
fn add(seconds: &mut Vec<u64>, now: Instant, amount: u64) {
    if amount == 0 {
        return;
    }
    let second = usize::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(0);
    if seconds.len() <= second {
        seconds.resize(second + 1, 0);
    }
    if let Some(count) = seconds.get_mut(second) {
        *count += amount;
    }
}
