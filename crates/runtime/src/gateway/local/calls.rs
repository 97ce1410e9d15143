//! TCP connections of MAVLink ends: those that come in, and the one that goes out.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use nix::sys::socket::{getsockopt, sockopt};
use skybraid_gateway::ChannelId;
use skybraid_units::{Duration, Instant};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::line::{Found, Line};
use super::{Counts, Write};
use crate::gateway::poller::{Ready, Source};
use crate::gateway::tools::Tools;

/// Connections of one listener; more are refused.
const MOST_CLIENTS: usize = 64;
/// Bytes that wait in the kernel for one connection; the rest waits where it can be dropped by class.
const KERNEL_ROOM: usize = 64 << 10;
/// A connection whose other end does not even acknowledge for so long is closed.
const SILENT: std::time::Duration = std::time::Duration::from_secs(10);
/// A call that is not answered by then is made anew.
const RINGS: Duration = Duration::from_secs(5);

/// Connections, serial devices included, by number.
#[derive(Default)]
pub struct Lines {
    lines: Vec<Connection>,
    next: u32,
}

struct Connection {
    number: u32,
    line: Line,
    /// It is being called, since then.
    calling: Option<Instant>,
}

impl Lines {
    /// How many are connected.
    pub fn connected(&self) -> usize {
        self.lines.iter().filter(|connection| connection.calling.is_none()).count()
    }

    /// There is none, not even one that is being called.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds a descriptor that does not block.
    pub fn add(
        &mut self,
        place: u8,
        file: File,
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
        self.lines.push(Connection { number, line, calling });
        Ok(())
    }

    /// Takes all connections that wait at a listener.
    pub fn accept(&mut self, place: u8, listener: &TcpListener, room: usize, tools: &Tools) {
        while let Ok((stream, _)) = listener.accept() {
            if self.lines.len() < MOST_CLIENTS {
                let socket = Socket::from(stream);
                if prepare(&socket).is_ok() {
                    self.add(place, File::from(OwnedFd::from(socket)), room, None, tools).ok();
                }
            }
        }
    }

    /// Calls somebody.
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
        self.add(place, File::from(OwnedFd::from(socket)), room, Some(now), tools)
    }

    /// Gives calls up that nobody answers.
    pub fn give_up(&mut self, now: Instant) {
        self.lines.retain(|it| it.calling.is_none_or(|since| now.since(since) < RINGS));
    }

    /// A connection is ready. `Some` if it has ended.
    pub fn ready(
        &mut self,
        ready: Ready,
        channel: ChannelId,
        counts: &mut Counts,
        tools: &mut Tools,
        write: &mut Write<'_>,
    ) -> Option<io::Error> {
        let Source::Client(place, number) = ready.source else { return None };
        let at = self.lines.iter().position(|connection| connection.number == number)?;
        let connection = self.lines.get_mut(at)?;
        let ended = connection.serve(place, ready, channel, counts, tools, write).err();
        if ended.is_some() {
            let mut gone = self.lines.swap_remove(at);
            counts.dropped += gone.line.lose();
        }
        ended
    }

    /// Puts a frame into the queue of each.
    pub fn push(&mut self, frame: &[u8], control: bool, counts: &mut Counts) {
        let connected = self.lines.iter_mut().filter(|it| it.calling.is_none());
        connected.for_each(|connection| connection.line.push(frame, control, counts));
    }

    /// Writes what the descriptors take.
    pub fn flush(&mut self, place: u8, counts: &mut Counts, tools: &Tools) {
        self.lines.retain_mut(|connection| {
            let kept = connection.calling.is_some() || connection.flush(place, tools).is_ok();
            if !kept {
                counts.dropped += connection.line.lose();
            }
            kept
        });
    }
}

impl Connection {
    fn serve(
        &mut self,
        place: u8,
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
            let mut each = |frame: &[u8]| write(channel, frame);
            if self.line.read(&mut tools.scratch, counts, &mut each) == Found::End {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        if ready.writable { self.flush(place, tools) } else { Ok(()) }
    }

    /// Writes what the descriptor takes, and watches for room while something is left.
    fn flush(&mut self, place: u8, tools: &Tools) -> io::Result<()> {
        if self.line.waits() {
            self.line.flush()?;
        }
        let waits = self.line.waits();
        if waits != self.line.watched {
            self.line.watched = waits;
            let source = Source::Client(place, self.number);
            tools.poller.watch_room(self.line.io(), source, waits)?;
        }
        Ok(())
    }
}

/// A listener that does not block.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(at), kind, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(16)?;
    Ok(socket.into())
}

fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(KERNEL_ROOM)?;
    socket.set_tcp_user_timeout(Some(SILENT))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENT).with_interval(SILENT))
}
