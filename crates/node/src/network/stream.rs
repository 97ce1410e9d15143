//! One TCP or MPTCP connection that carries datagrams.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use nix::sys::socket::{getsockopt, sockopt};
use skybraid_units::{Duration, Instant};
use socket2::{Domain, Protocol, Socket, Type};

use super::frame::{Unframer, frame};
use super::place::Place;
use crate::poller::{Poller, Source};
use skybraid_io::batch::set_int;

/// A connection is dead when what was sent has not been acknowledged for so long, and when it has taken
/// nothing for so long while something waited.
const STALLED: Duration = Duration::from_secs(2);
/// Bytes that the kernel holds before they have been sent; with more the connection is full. What waits
/// here can no longer be overtaken by what is more urgent.
const UNSENT: libc::c_int = 16 << 10;
/// Reads in a row in one wake-up.
const MAX_READS: usize = 4;
/// A call that is not answered by then is made again.
const RINGS: Duration = Duration::from_secs(5);

/// A TCP connection that carries sealed datagrams.
pub struct Stream {
    /// Its number, which no other has had.
    pub number: u32,
    /// The other end.
    pub peer: SocketAddr,
    /// It takes datagrams.
    pub writable: bool,
    socket: Socket,
    unframer: Unframer,
    /// Unsent bytes of a datagram.
    rest: Vec<u8>,
    /// Room to frame one.
    framed: Vec<u8>,
    /// Time at which it was called, answered, or last took something.
    moved: Instant,
    calling: bool,
}

/// Fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It leaves.
    Whole,
    /// The connection is full: it is lost, as it would be in a full queue.
    Full,
}

impl Stream {
    /// Calls a listener from a place; `multipath` asks for MPTCP.
    pub fn call(
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
        let stream = Self::over(now, number, socket, to, true);
        stream.watch(poller)?;
        Ok(stream)
    }

    /// A connection that has come in.
    pub fn accepted(
        now: Instant,
        number: u32,
        socket: Socket,
        peer: SocketAddr,
        poller: &Poller,
    ) -> io::Result<Self> {
        prepare(&socket)?;
        let stream = Self::over(now, number, socket, peer, false);
        stream.watch(poller)?;
        Ok(stream)
    }

    fn over(now: Instant, number: u32, socket: Socket, peer: SocketAddr, calling: bool) -> Self {
        Self {
            number,
            peer,
            writable: !calling,
            socket,
            unframer: Unframer::default(),
            rest: Vec::new(),
            framed: Vec::new(),
            moved: now,
            calling,
        }
    }

    fn watch(&self, poller: &Poller) -> io::Result<()> {
        let source = Source::Stream(self.number);
        poller.watch(&self.socket, source)?;
        if self.calling { poller.watch_room(&self.socket, source, true) } else { Ok(()) }
    }

    /// It takes nothing although something waits, or nobody answers.
    pub fn is_stalled(&self, now: Instant) -> bool {
        let patience = if self.calling { RINGS } else { STALLED };
        !self.writable && now.since(self.moved) >= patience
    }

    /// Reads what is there, within bounds, and gives each datagram.
    ///
    /// # Errors
    /// The connection has ended, or carries something else.
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

    /// There is room to write: a call has been answered, or what was begun goes on.
    ///
    /// # Errors
    /// The connection has ended or could not be made.
    pub fn has_room(&mut self, now: Instant, poller: &Poller) -> io::Result<()> {
        if self.calling {
            let error = getsockopt(&self.socket, sockopt::SocketError)?;
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            self.calling = false;
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
            poller.watch_room(&self.socket, Source::Stream(self.number), false)?;
        }
        Ok(())
    }

    /// Writes a datagram; what is begun is finished before anything else.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn write(&mut self, now: Instant, datagram: &[u8], poller: &Poller) -> io::Result<Taken> {
        if !self.writable || !frame(datagram, &mut self.framed) {
            return Ok(Taken::Full);
        }
        let written = self.write_some(&self.framed)?;
        if written > 0 {
            self.moved = now;
        }
        if written == self.framed.len() {
            return Ok(Taken::Whole);
        }
        self.writable = false;
        poller.watch_room(&self.socket, Source::Stream(self.number), true)?;
        if written == 0 {
            return Ok(Taken::Full);
        }
        self.rest.clear();
        self.rest.extend_from_slice(self.framed.get(written..).unwrap_or_default());
        Ok(Taken::Whole)
    }

    /// Bytes that the kernel takes at once.
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

/// A socket of TCP or, if the kernel has it, MPTCP.
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
    // Older kernels know neither of MPTCP sockets; there the connection is given up when it stalls.
    let timeout = std::time::Duration::from_nanos(STALLED.as_nanos() as u64);
    socket.set_tcp_user_timeout(Some(timeout)).ok();
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT).ok();
    Ok(())
}
