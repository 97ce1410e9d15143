//! A stream of MAVLink frames both ways: a TCP connection, a serial device.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use nix::sys::uio::writev;
use skybraid_units::Instant;

use super::Counts;
use super::frames::Framer;
use super::queue::Queue;

/// Reads in a row from one stream in one wake-up.
const MAX_READS: usize = 4;

/// A stream of frames. It never waits: what cannot be written is in a bounded queue.
pub struct Line {
    io: File,
    framer: Framer,
    queue: Queue,
    /// The poller watches for room to write.
    pub watched: bool,
}

/// Result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Whatever was there.
    Bytes,
    /// The other end is gone.
    End,
}

impl Line {
    /// A line over a descriptor that does not block, with a queue of so many bytes.
    pub fn new(io: File, room: usize) -> Self {
        Self { io, framer: Framer::new(), queue: Queue::new(room), watched: false }
    }

    /// The descriptor.
    pub const fn io(&self) -> &File {
        &self.io
    }

    /// Reads what is there, within bounds, and gives each frame.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        counts: &mut Counts,
        each: &mut dyn FnMut(&[u8]),
    ) -> Found {
        for _ in 0..MAX_READS {
            match self.io.read(scratch) {
                Ok(0) => return Found::End,
                Ok(length) => {
                    let bytes = scratch.get(..length).unwrap_or_default();
                    counts.foreign_bytes += self.framer.feed(bytes, each);
                    if length < scratch.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Found::End,
            }
        }
        Found::Bytes
    }

    /// Puts a frame into the queue.
    pub fn push(&mut self, frame: &[u8], control: bool, expires: Instant, counts: &mut Counts) {
        counts.dropped += self.queue.push(frame, control, expires);
    }

    /// Something waits to be written.
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Writes what the descriptor takes.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn flush(&mut self, now: Instant, counts: &mut Counts) -> io::Result<()> {
        counts.late += self.queue.drop_expired(now);
        let io = &self.io;
        self.queue.flush(|slices| Ok(writev(io, slices)?)).map(|_| ())
    }

    /// Returns the number of frames that are lost with it.
    pub fn lose(&mut self) -> u64 {
        self.queue.clear()
    }
}
