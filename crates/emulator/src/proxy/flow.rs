//! Buffered bytes of one direction of the proxy.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use socket2::Socket;

/// Proxy buffer per direction, in addition to the kernel's buffers of both sockets, which cover the
/// bandwidth-delay product.
pub(super) const BUFFER: usize = 64 << 10;
/// Maximum reads and writes of a direction before the next one is served.
const ROUNDS: usize = 8;

/// Data in one direction of a split connection.
pub(super) struct Flow {
    buffer: Box<[u8]>,
    /// Bytes read but not yet written.
    held: std::ops::Range<usize>,
    /// The sender has sent its FIN.
    ended: bool,
    /// The FIN was forwarded.
    shut: bool,
    /// Bytes written.
    pub passed: u64,
    /// Maximum bytes held.
    pub max_held: usize,
}

impl Flow {
    pub fn new() -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self { buffer, held: 0..0, ended: false, shut: false, passed: 0, max_held: 0 }
    }

    /// Returns true if the FIN was forwarded, so that no more data follows.
    pub const fn is_over(&self) -> bool {
        self.shut
    }

    /// Reads available data into the free part of the buffer. Returns true if there was any.
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

    /// Writes as much as the receiver accepts. Returns true if it accepted any.
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

    /// Forwards data and the FIN as far as possible. Returns true if more can be done at once.
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

/// Returns `None` if the socket is not ready.
fn unless_it_blocks(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
