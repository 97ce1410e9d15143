//! One end of a flow's connection: a socket, what it is to send, and what has come.

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

/// The most bytes that one step writes, and reads, at an end, so that no flow holds up the others.
pub const STEP: usize = 1024 * 1024;
/// The most bytes of one read.
pub const READ: usize = 256 * 1024;

/// A wish for a descriptor's readiness.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// … is worth a step when it can be read.
    pub readable: bool,
    /// … is worth a step when it can be written.
    pub writable: bool,
}

impl<'a> Interest<'a> {
    /// In the form that `poll` takes.
    pub fn polled(&self) -> PollFd<'a> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.readable);
        flags.set(PollFlags::POLLOUT, self.writable);
        PollFd::new(self.socket, flags)
    }
}

/// What went wrong at an end.
#[derive(Debug)]
pub enum Trouble {
    /// The socket: what was going on, and what the kernel said.
    Io(&'static str, io::Error),
    /// What came through it.
    Framing(FramingError),
}

/// One end.
#[derive(Debug)]
pub struct End {
    /// Its socket, once there is one.
    pub socket: Option<Socket>,
    /// What must be sent.
    pub outgoing: Outgoing,
    incoming: Incoming,
    /// The records of the messages that this end writes and of those that it gets.
    pub writes: Option<usize>,
    gets: Option<usize>,
    /// It answers each message.
    answers: bool,
    /// Bytes of every answer, and copies of every message.
    bytes: u32,
    copies: u8,
    /// The path that all messages take, or 255 where it is not known.
    path: PathId,
    /// Nothing more will be written.
    pub finished: bool,
    shut: bool,
    ended: bool,
    /// Its subflows.
    pub subflows: Subflows,
    /// Payload bytes that the socket took, by seconds of the run.
    pub sent_by_second: Vec<u64>,
    /// Payload bytes that came out of the socket, by seconds of the run.
    pub received_by_second: Vec<u64>,
}

/// What an end is there for.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The record of the messages that it writes.
    pub writes: Option<usize>,
    /// The record of the messages that it gets.
    pub gets: Option<usize>,
    /// It answers each message.
    pub answers: bool,
    /// Bytes of every answer.
    pub bytes: u32,
    /// How many times each message is written.
    pub copies: u8,
    /// The path that all messages take, or 255 where it is not known.
    pub path: PathId,
}

impl End {
    /// An end without a socket.
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

    /// The application writes a message, at `sent` by its own account.
    pub fn write(&mut self, sent: Instant, written: Write, outcome: &mut Outcome) {
        let record = self
            .writes
            .and_then(|writes| outcome.flows.get_mut(writes).promised("a flow of this run"));
        let Some(record) = record else { return };
        self.outgoing.push(record.next_id(), written.bytes, sent, self.copies);
        record.on_written(sent, written);
    }

    /// Hands the socket what it takes; shuts its writing side down behind the last message. Answers how
    /// many bytes it took.
    pub fn send(&mut self, now: Instant, outcome: &mut Outcome) -> Result<usize, Trouble> {
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
        let taken = taken.map_err(|error| Trouble::Io("sending", error))?;
        add(&mut self.sent_by_second, now, taken as u64);
        if self.finished && !self.shut && self.outgoing.is_empty() {
            self.shut = true;
            // The subflows of a closed connection are gone: this is the time to look at them.
            self.subflows.look(socket).ok();
            let closed = socket.shutdown(std::net::Shutdown::Write);
            closed.map_err(|error| Trouble::Io("closing", error))?;
        }
        Ok(taken)
    }

    /// Reads what has come and delivers what is whole.
    pub fn receive(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        outcome: &mut Outcome,
    ) -> Result<(), Trouble> {
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
                    self.incoming.end(written).map_err(Trouble::Framing)?;
                    // What it has to answer is answered already.
                    self.finished = true;
                }
                Ok(length) => {
                    total += length;
                    add(&mut self.received_by_second, now, length as u64);
                    let data = buffer.get(..length).unwrap_or(&[]);
                    self.deliver(now, data, outcome).map_err(Trouble::Framing)?;
                    if length < buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble::Io("receiving", error)),
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

    /// Gives its connection up.
    pub fn abandon(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.subflows.look(&socket).ok();
        }
    }

    /// How many times each message is written.
    pub fn copies(&self) -> u8 {
        self.copies.max(1)
    }

    /// What its socket is worth a step for; `fills` says that there is always something to send.
    pub fn interest(&self, fills: bool) -> Option<Interest<'_>> {
        let socket = self.socket.as_ref()?.as_fd();
        let writable = !self.shut && (fills || !self.outgoing.is_empty());
        let readable = !self.ended;
        (readable || writable).then_some(Interest { socket, readable, writable })
    }
}

/// What an end has got goes into the record, and may be answered.
struct Getting<'a> {
    outcome: &'a mut Outcome,
    gets: usize,
    /// The record of the answers, if there are any.
    answers: Option<usize>,
    outgoing: &'a mut Outgoing,
    /// Of each answer.
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
            // The answer carries the question's time, so that its delay is the round trip.
            self.outgoing.push(record.next_id(), self.bytes, sent, self.copies);
            record.on_written(sent, self.bytes);
        }
    }
}

/// Adds to the count of the second in which `now` falls.
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
