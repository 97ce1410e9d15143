//! A TCP or MPTCP connection that carries datagrams.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use nix::sys::socket::{getsockopt, sockopt};
use skybraid_units::{Duration, Instant};
use socket2::{Domain, Protocol, Socket, Type};

use super::frame::{Unframer, frame};
use super::place::Place;
use crate::poller::{Poller, Source};
use skybraid_io::batch::set_int;

/// Timeout of a connection: for unacknowledged data, and for waiting data of which the connection accepts
/// nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum unsent bytes in the kernel, beyond which the connection is full. Data in the kernel can no longer
/// be overtaken by more urgent data.
const MAX_UNSENT: libc::c_int = 16 << 10;
/// Maximum consecutive reads per wakeup.
const MAX_READS: usize = 4;
/// Timeout of a connection attempt, after which it is repeated.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A TCP connection that carries sealed datagrams.
pub struct Stream {
    /// Unique number of the stream.
    pub number: u32,
    /// Peer address.
    pub peer: SocketAddr,
    /// The stream accepts datagrams.
    pub writable: bool,
    socket: Socket,
    unframer: Unframer,
    /// Unsent bytes of a datagram.
    rest: Vec<u8>,
    /// Buffer for a framed datagram.
    framed: Vec<u8>,
    /// Time at which it was called, answered, or last took something.
    moved: Instant,
    connecting: bool,
}

/// Fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The datagram is sent.
    Whole,
    /// The connection is full: the datagram is dropped, as by a full queue.
    Full,
}

impl Stream {
    /// Connects to a listener from a place; `multipath` requests MPTCP.
    pub fn connect(
        now: Instant,
        number: u32,
        place: &Place,
        to: SocketAddr,
        multipath: bool,
        poller: &Poller,
    ) -> io::Result<Self> {
        let near = place.near(to).ok_or(ErrorKind::AddrNotAvailable)?;
        let socket = make(near, multipath)?;
        place.bind(&socket, near)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        let stream = Self::new(now, number, socket, to, true);
        stream.watch(poller)?;
        Ok(stream)
    }

    /// Wraps an incoming connection.
    pub fn accepted(
        now: Instant,
        number: u32,
        socket: Socket,
        peer: SocketAddr,
        poller: &Poller,
    ) -> io::Result<Self> {
        prepare(&socket)?;
        let stream = Self::new(now, number, socket, peer, false);
        stream.watch(poller)?;
        Ok(stream)
    }

    fn new(now: Instant, number: u32, socket: Socket, peer: SocketAddr, connecting: bool) -> Self {
        Self {
            number,
            peer,
            writable: !connecting,
            socket,
            unframer: Unframer::default(),
            rest: Vec::new(),
            framed: Vec::new(),
            moved: now,
            connecting,
        }
    }

    fn watch(&self, poller: &Poller) -> io::Result<()> {
        let source = Source::Stream(self.number);
        poller.watch(&self.socket, source)?;
        if self.connecting { poller.watch_writable(&self.socket, source, true) } else { Ok(()) }
    }

    /// Returns true if waiting data makes no progress, or the connection attempt timed out.
    pub fn is_stalled(&self, now: Instant) -> bool {
        let timeout = if self.connecting { CONNECT_TIMEOUT } else { STALL_TIMEOUT };
        !self.writable && now.since(self.moved) >= timeout
    }

    /// Reads available data, within bounds, and passes on each datagram.
    ///
    /// # Errors
    /// The connection has ended, or its framing is invalid.
    pub fn read(&mut self, scratch: &mut [u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        for _ in 0..MAX_READS {
            match io::Read::read(&mut &self.socket, scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    let bytes = scratch.get(..length).unwrap_or_default();
                    let fed = self.unframer.feed(bytes, each);
                    fed.map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
                    if length < scratch.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles writability: completes a connection attempt, or continues a partly written datagram.
    ///
    /// # Errors
    /// The connection has ended or failed.
    pub fn has_room(&mut self, now: Instant, poller: &Poller) -> io::Result<()> {
        if self.connecting {
            let error = getsockopt(&self.socket, sockopt::SocketError)?;
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            self.connecting = false;
            self.moved = now;
        }
        if !self.rest.is_empty() {
            let written = self.write_some(&self.rest)?;
            if written > 0 {
                self.moved = now;
            }
            self.rest.drain(..written);
        }
        if self.rest.is_empty() && !self.writable {
            self.writable = true;
            poller.watch_writable(&self.socket, Source::Stream(self.number), false)?;
        }
        Ok(())
    }

    /// Writes a datagram after completing a partly written one.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn write(&mut self, now: Instant, datagram: &[u8], poller: &Poller) -> io::Result<Sent> {
        if !self.writable || !frame(datagram, &mut self.framed) {
            return Ok(Sent::Full);
        }
        let written = self.write_some(&self.framed)?;
        if written > 0 {
            self.moved = now;
        }
        if written == self.framed.len() {
            return Ok(Sent::Whole);
        }
        self.writable = false;
        poller.watch_writable(&self.socket, Source::Stream(self.number), true)?;
        if written == 0 {
            return Ok(Sent::Full);
        }
        self.rest.clear();
        self.rest.extend_from_slice(self.framed.get(written..).unwrap_or_default());
        Ok(Sent::Whole)
    }

    /// Writes and returns the number of accepted bytes.
    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.socket.send_with_flags(bytes, libc::MSG_NOSIGNAL) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                other => return other,
            }
        }
    }
}

/// Creates a TCP socket or, if supported by the kernel, an MPTCP socket.
pub fn make(near: SocketAddr, multipath: bool) -> io::Result<Socket> {
    let (domain, kind) = (Domain::for_address(near), Type::STREAM.nonblocking().cloexec());
    let socket = match Socket::new(domain, kind, Some(Protocol::MPTCP)) {
        Ok(socket) if multipath => socket,
        _ => Socket::new(domain, kind, Some(Protocol::TCP))?,
    };
    prepare(&socket)?;
    Ok(socket)
}

fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    // Older kernels support neither on MPTCP sockets; there the connection is dropped when it stalls.
    let timeout = std::time::Duration::from_nanos(STALL_TIMEOUT.as_nanos() as u64);
    socket.set_tcp_user_timeout(Some(timeout)).ok();
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, MAX_UNSENT).ok();
    Ok(())
}
