//! TCP connections of MAVLink endpoints: incoming ones, and the outgoing one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use nix::sys::socket::{getsockopt, sockopt};
use skybraid_gateway::{ChannelId, Client, Origin};
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::line::{Found, Line};
use super::{Counts, Write};
use crate::accept::accept_all;
use crate::poller::{Ready, Source};
use crate::tools::Tools;

/// Maximum connections of one listener; more are refused.
const MAX_CLIENTS: usize = 64;
/// Kernel buffer of one connection in bytes, in each direction; further data waits where it can be dropped by
/// class. One poll reads all buffered data, so that data arriving later can be dated.
const KERNEL_ROOM: usize = 64 << 10;
/// Timeout after which a connection whose peer does not acknowledge is closed.
const SILENT: std::time::Duration = std::time::Duration::from_secs(10);
/// Timeout of a connection attempt, after which it is repeated.
const RINGS: Duration = Duration::from_secs(5);

/// Connections, including serial devices, by number.
#[derive(Default)]
pub struct Lines {
    lines: Vec<Connection>,
    next: u32,
}

struct Connection {
    /// Number of its local end, and its own there.
    end: u8,
    number: u32,
    line: Line,
    /// Peer address of a connection.
    peer: Option<SocketAddr>,
    /// Start of the pending connection attempt.
    calling: Option<Instant>,
}

impl Lines {
    /// Returns the number of connections.
    pub fn connected(&self) -> usize {
        self.lines.iter().filter(|connection| connection.calling.is_none()).count()
    }

    /// Returns true if there is no connection, established or pending.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds a non-blocking descriptor.
    pub fn add(
        &mut self,
        place: u8,
        file: File,
        peer: Option<SocketAddr>,
        room: usize,
        calling: Option<Instant>,
        tools: &Tools,
    ) -> io::Result<()> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let source = Source::Client(place, number);
        tools.poller.watch(&file, source)?;
        if calling.is_some() {
            tools.poller.watch_room(&file, source, true)?;
        }
        let mut line = Line::new(file, room);
        line.watched = calling.is_some();
        self.lines.push(Connection { end: place, number, line, peer, calling });
        Ok(())
    }

    /// Accepts pending connections of a listener. Returns false if the listener must pause.
    pub fn accept(
        &mut self,
        place: u8,
        listener: &TcpListener,
        room: usize,
        tools: &Tools,
    ) -> bool {
        accept_all(listener, &mut |stream, peer| {
            if self.lines.len() < MAX_CLIENTS {
                let socket = Socket::from(stream);
                if prepare(&socket).is_ok() {
                    let file = File::from(OwnedFd::from(socket));
                    self.add(place, file, Some(peer), room, None, tools).ok();
                }
            }
        })
    }

    /// Opens a connection.
    pub fn call(
        &mut self,
        now: Instant,
        place: u8,
        to: SocketAddr,
        room: usize,
        tools: &Tools,
    ) -> io::Result<()> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(to), kind, Some(Protocol::TCP))?;
        prepare(&socket)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        self.add(place, File::from(OwnedFd::from(socket)), Some(to), room, Some(now), tools)
    }

    /// Drops expired connection attempts.
    pub fn give_up(&mut self, now: Instant) {
        self.lines.retain(|it| it.calling.is_none_or(|since| now.since(since) < RINGS));
    }

    /// Serves a ready connection. Returns the error that ended it, if one did.
    pub fn ready(
        &mut self,
        now: Instant,
        ready: Ready,
        channel: ChannelId,
        counts: &mut Counts,
        tools: &mut Tools,
        write: &mut Write<'_>,
    ) -> Option<io::Error> {
        // It may have ended since it was ready.
        let at = self.lines.iter().position(|connection| connection.source() == ready.source)?;
        let connection = self.lines.get_mut(at).promised("the connection that was found")?;
        let ended = connection.serve(now, ready, channel, counts, tools, write).err();
        if ended.is_some() {
            let mut gone = self.lines.swap_remove(at);
            counts.dropped += gone.line.lose();
        }
        ended
    }

    /// Queues a frame for each connection, to be dropped after `expires`.
    pub fn push(&mut self, frame: &[u8], control: bool, expires: Instant, counts: &mut Counts) {
        let connected = self.lines.iter_mut().filter(|it| it.calling.is_none());
        connected.for_each(|connection| connection.line.push(frame, control, expires, counts));
    }

    /// Writes as much as the descriptors accept.
    pub fn flush(&mut self, now: Instant, counts: &mut Counts, tools: &Tools) {
        self.lines.retain_mut(|connection| {
            let kept = connection.calling.is_some() || connection.flush(now, counts, tools).is_ok();
            if !kept {
                counts.dropped += connection.line.lose();
            }
            kept
        });
    }
}

impl Connection {
    const fn source(&self) -> Source {
        Source::Client(self.end, self.number)
    }

    fn serve(
        &mut self,
        now: Instant,
        ready: Ready,
        channel: ChannelId,
        counts: &mut Counts,
        tools: &mut Tools,
        write: &mut Write<'_>,
    ) -> io::Result<()> {
        if self.calling.is_some() {
            let error = getsockopt(self.line.io(), sockopt::SocketError)?;
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            self.calling = None;
        }
        if ready.readable {
            let client = Client { end: self.end, address: self.peer };
            let origin = Origin { client, arrived: tools.arrival(now) };
            let mut each = |frame: &[u8]| write(channel, &origin, frame);
            if self.line.read(&mut tools.scratch, counts, &mut each) == Found::End {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        if ready.writable { self.flush(now, counts, tools) } else { Ok(()) }
    }

    /// Writes as much as the descriptor accepts, and polls for writability while data is left.
    fn flush(&mut self, now: Instant, counts: &mut Counts, tools: &Tools) -> io::Result<()> {
        if self.line.waits() {
            self.line.flush(now, counts)?;
        }
        let waits = self.line.waits();
        if waits != self.line.watched {
            self.line.watched = waits;
            tools.poller.watch_room(self.line.io(), self.source(), waits)?;
        }
        Ok(())
    }
}

/// Opens a non-blocking listener.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(at), kind, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Connections inherit the buffer size, and their window scale depends on it.
    socket.set_recv_buffer_size(KERNEL_ROOM)?;
    socket.bind(&at.into())?;
    socket.listen(16)?;
    Ok(socket.into())
}

fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(KERNEL_ROOM)?;
    socket.set_recv_buffer_size(KERNEL_ROOM)?;
    socket.set_tcp_user_timeout(Some(SILENT))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENT).with_interval(SILENT))
}
