//! TCP connections of MAVLink endpoints: incoming ones, and the outgoing one.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use nix::sys::socket::{getsockopt, sockopt};
use skybraid_gateway::{ChannelId, Client, Origin};
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::frame_stream::{FrameStream, ReadResult};
use super::{Counts, Write};
use crate::accept::{FOR_OWN, accept_all, source_of};
use crate::poller::{Ready, Source};
use crate::tools::Tools;

/// Maximum connections of one listener. Another one replaces one of the source that has most: the oldest that has
/// never sent a frame, else the newest, unless its own source would then have as many.
const MAX_CLIENTS: usize = 64;
/// Kernel buffer of one connection in bytes, in each direction; further data waits where it can be dropped by
/// class. One poll reads all buffered data, so that data arriving later can be dated.
const KERNEL_BUFFER: usize = 64 << 10;
/// Timeout after which a connection whose peer does not acknowledge is closed.
const ACK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// Timeout of a connection attempt, after which it is repeated.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections, including serial devices, by number.
#[derive(Default)]
pub struct Connections {
    connections: Vec<Connection>,
    next: u32,
}

struct Connection {
    /// Number of its local end, and its own there.
    end: u8,
    number: u32,
    stream: FrameStream,
    /// Peer address of a connection.
    peer: Option<SocketAddr>,
    /// Start of the pending connection attempt.
    connecting_since: Option<Instant>,
    /// A frame has been received.
    heard: bool,
}

impl Connections {
    /// Returns the number of connections.
    pub fn connected(&self) -> usize {
        self.connections.iter().filter(|connection| connection.connecting_since.is_none()).count()
    }

    /// Returns true if there is no connection, established or pending.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Adds a non-blocking descriptor.
    pub fn add(
        &mut self,
        place: u8,
        file: File,
        peer: Option<SocketAddr>,
        room: usize,
        connecting_since: Option<Instant>,
        tools: &Tools,
    ) -> io::Result<()> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let source = Source::Client(place, number);
        tools.poller.watch(&file, source)?;
        if connecting_since.is_some() {
            tools.poller.watch_writable(&file, source, true)?;
        }
        let mut stream = FrameStream::new(file, room);
        stream.watched = connecting_since.is_some();
        let (end, heard) = (place, false);
        self.connections.push(Connection { end, number, stream, peer, connecting_since, heard });
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
        accept_all(listener, FOR_OWN, &mut |stream, peer| {
            if self.connections.len() >= MAX_CLIENTS
                && let Some(at) = self.to_replace(source_of(peer.ip()))
            {
                self.connections.swap_remove(at);
            }
            if self.connections.len() < MAX_CLIENTS {
                let socket = Socket::from(stream);
                if prepare(&socket).is_ok() {
                    let file = File::from(OwnedFd::from(socket));
                    self.add(place, file, Some(peer), room, None, tools).ok();
                }
            }
        })
    }

    /// Returns the place of the connection that gives way to one of `newcomer`.
    fn to_replace(&self, newcomer: IpAddr) -> Option<usize> {
        let source = |known: &Connection| known.peer.map(|peer| source_of(peer.ip()));
        let sources: Vec<_> = self.connections.iter().map(source).collect();
        let count = |wanted| sources.iter().filter(|source| **source == wanted).count();
        let rank = |(_, known): &(usize, &Connection)| {
            let age = i64::from(known.number) * if known.heard { -1 } else { 1 };
            (Reverse(count(source(known))), known.heard, age)
        };
        let (at, known) = self.connections.iter().enumerate().min_by_key(rank)?;
        let is_fair = count(source(known)) > count(Some(newcomer)) + 1;
        (!known.heard || is_fair).then_some(at)
    }

    /// Opens a connection.
    pub fn connect(
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
    pub fn drop_expired_attempts(&mut self, now: Instant) {
        self.connections.retain(|connection| {
            connection.connecting_since.is_none_or(|since| now.since(since) < CONNECT_TIMEOUT)
        });
    }

    /// Drops the connection attempts, as one has succeeded.
    pub fn drop_attempts(&mut self) {
        self.connections.retain(|connection| connection.connecting_since.is_none());
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
        let at =
            self.connections.iter().position(|connection| connection.source() == ready.source)?;
        let connection = self.connections.get_mut(at).promised("the connection that was found")?;
        let ended = connection.serve(now, ready, channel, counts, tools, write).err();
        if ended.is_some() {
            let mut gone = self.connections.swap_remove(at);
            counts.dropped += gone.stream.lose();
        }
        ended
    }

    /// Queues a frame for each connection, to be dropped after `expires`.
    pub fn push(&mut self, frame: &[u8], control: bool, expires: Instant, counts: &mut Counts) {
        let connected =
            self.connections.iter_mut().filter(|connection| connection.connecting_since.is_none());
        connected.for_each(|connection| connection.stream.push(frame, control, expires, counts));
    }

    /// Writes as much as the descriptors accept.
    pub fn flush(&mut self, now: Instant, counts: &mut Counts, tools: &Tools) {
        self.connections.retain_mut(|connection| {
            let kept = connection.connecting_since.is_some()
                || connection.flush(now, counts, tools).is_ok();
            if !kept {
                counts.dropped += connection.stream.lose();
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
        if self.connecting_since.is_some() {
            let error = getsockopt(self.stream.io(), sockopt::SocketError)?;
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            self.connecting_since = None;
        }
        if ready.readable {
            let client = Client { end: self.end, address: self.peer };
            let origin = Origin { client, arrived: tools.arrival(now) };
            let heard = &mut self.heard;
            let mut each = |frame: &[u8]| {
                *heard = true;
                write(channel, &origin, frame);
            };
            if self.stream.read(&mut tools.scratch, counts, &mut each) == ReadResult::End {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        if ready.writable { self.flush(now, counts, tools) } else { Ok(()) }
    }

    /// Writes as much as the descriptor accepts, and polls for writability while data is left.
    fn flush(&mut self, now: Instant, counts: &mut Counts, tools: &Tools) -> io::Result<()> {
        if self.stream.waits() {
            self.stream.flush(now, counts)?;
        }
        let waits = self.stream.waits();
        if waits != self.stream.watched {
            self.stream.watched = waits;
            tools.poller.watch_writable(self.stream.io(), self.source(), waits)?;
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
    socket.set_recv_buffer_size(KERNEL_BUFFER)?;
    socket.bind(&at.into())?;
    socket.listen(16)?;
    Ok(socket.into())
}

fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(KERNEL_BUFFER)?;
    socket.set_recv_buffer_size(KERNEL_BUFFER)?;
    socket.set_tcp_user_timeout(Some(ACK_TIMEOUT))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(ACK_TIMEOUT).with_interval(ACK_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarms::Alarms;
    use crate::poller::Poller;
    use skybraid_io::clock::Clock;
    use std::net::TcpStream;

    #[test]
    fn one_host_with_talking_connections_keeps_no_other_out() {
        let poller = Poller::new(Clock::starting_now()).unwrap();
        let alarms = Alarms::new(std::sync::mpsc::sync_channel(9).0);
        let tools = Tools::new(poller, alarms).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = listener.local_addr().unwrap();
        let mut connections = Connections::default();
        // Whether a connection from a host is accepted.
        let mut open = |from: &str, talks: bool| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&format!("{from}:0").parse::<SocketAddr>().unwrap().into()).unwrap();
            socket.connect(&to.into()).unwrap();
            let stream = TcpStream::from(socket);
            let near = stream.local_addr().unwrap();
            let Connections { next, .. } = connections;
            connections.accept(0, &listener, 1_000, &tools);
            let known = connections.connections.iter_mut().find(|known| known.peer == Some(near));
            let known = known?;
            assert!(connections.next == next + 1);
            known.heard = talks;
            Some(stream)
        };
        let [flood, pilot] = ["127.0.0.1", "127.0.0.2"];
        let held: Vec<_> = (0..MAX_CLIENTS).filter_map(|_| open(flood, true)).collect();
        assert_eq!(held.len(), MAX_CLIENTS);
        let pilots = [open(pilot, false), open(pilot, true)];
        assert!(pilots.iter().all(Option::is_some));
        // Its own host gets no more, though one of the pilot's has not talked yet.
        assert!(open(flood, true).is_none());
        let hosts = connections.connections.iter().map(|known| known.peer.unwrap().ip());
        assert_eq!(hosts.filter(|host| host.to_string() == pilot).count(), 2);
        assert_eq!(connections.connected(), MAX_CLIENTS);
    }
}
