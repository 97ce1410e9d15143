//! The bytes of one direction on their way through the proxy.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use socket2::Socket;

/// What the proxy itself holds of one direction. The kernel's buffers of both sockets come on top;
/// they are what covers the long way.
pub(super) const BUFFER: usize = 64 << 10;
/// So often a direction is read and written before the next one has its turn.
const ROUNDS: usize = 8;

/// Bytes in one direction of a split connection.
pub(super) struct Flow {
    buffer: Box<[u8]>,
    /// Read and not yet written.
    held: std::ops::Range<usize>,
    /// The sender has sent its FIN.
    ended: bool,
    /// The FIN was passed on.
    shut: bool,
    /// Bytes written.
    pub passed: u64,
    /// The most bytes held.
    pub max_held: usize,
}

impl Flow {
    pub fn new() -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self { buffer, held: 0..0, ended: false, shut: false, passed: 0, max_held: 0 }
    }

    /// The FIN was passed on, so that nothing more comes.
    pub const fn is_over(&self) -> bool {
        self.shut
    }

    /// Reads what there is, as long as there is room. True if there was something.
    pub fn fill(&mut self, mut from: &Socket) -> io::Result<bool> {
        if self.held.is_empty() {
            self.held = 0..0;
        }
        let room = self.buffer.get_mut(self.held.end..).unwrap_or_default();
        if self.ended || room.is_empty() {
            return Ok(false);
        }
        let Some(count) = unless_it_blocks(from.read(room))? else { return Ok(false) };
        self.ended = count == 0;
        self.held.end += count;
        self.max_held = self.max_held.max(self.held.len());
        Ok(count > 0)
    }

    /// Writes what the receiver takes. True if it took something.
    fn drain(&mut self, mut to: &Socket) -> io::Result<bool> {
        let held = self.buffer.get(self.held.clone()).unwrap_or_default();
        if held.is_empty() {
            return Ok(false);
        }
        let Some(count) = unless_it_blocks(to.write(held))? else { return Ok(false) };
        self.held.start += count;
        self.passed += count as u64;
        Ok(count > 0)
    }

    /// Passes on what it can, the FIN too. True if there is more to do at once.
    pub fn pass(&mut self, from: &Socket, to: &Socket) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            let read = self.fill(from)?;
            let wrote = self.drain(to)?;
            if !(read || wrote) {
                if self.ended && self.held.is_empty() && !self.shut {
                    to.shutdown(Shutdown::Write)?;
                    self.shut = true;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// `None` if the socket is not ready.
fn unless_it_blocks(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
