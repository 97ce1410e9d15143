//! A bidirectional stream of MAVLink frames: a TCP connection or a serial device.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use nix::sys::uio::writev;
use skybraid_units::Instant;

use super::Counts;
use super::frames::Framer;
use super::queue::Queue;

/// Maximum consecutive reads from one stream per wakeup.
const MAX_READS: usize = 4;

/// A non-blocking stream of frames. Data that cannot be written is in a bounded queue.
pub struct FrameStream {
    io: File,
    framer: Framer,
    queue: Queue,
    /// The poller watches for writability.
    pub watched: bool,
}

/// Result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// All available bytes, possibly none.
    Bytes,
    /// The other end has disconnected.
    End,
}

impl FrameStream {
    /// Creates a line over a non-blocking descriptor, with a queue of `room` bytes.
    pub fn new(io: File, room: usize) -> Self {
        Self { io, framer: Framer::new(), queue: Queue::new(room), watched: false }
    }

    /// Returns the descriptor.
    pub const fn io(&self) -> &File {
        &self.io
    }

    /// Reads available data, within bounds, and passes on each frame.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        counts: &mut Counts,
        each: &mut dyn FnMut(&[u8]),
    ) -> ReadResult {
        for _ in 0..MAX_READS {
            match self.io.read(scratch) {
                Ok(0) => return ReadResult::End,
                Ok(length) => {
                    let bytes = scratch.get(..length).unwrap_or_default();
                    counts.foreign_bytes += self.framer.feed(bytes, each);
                    if length < scratch.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return ReadResult::End,
            }
        }
        ReadResult::Bytes
    }

    /// Queues a frame.
    pub fn push(&mut self, frame: &[u8], control: bool, expires: Instant, counts: &mut Counts) {
        counts.dropped += self.queue.push(frame, control, expires);
    }

    /// Returns true if data is queued for writing.
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Writes as much as the descriptor accepts.
    ///
    /// # Errors
    /// The other end has disconnected.
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
