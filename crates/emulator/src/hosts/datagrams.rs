//! Segments over UDP sockets: one socket per path on each side, in the format of `docs/wire.md`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use skybraid_transport::wire::datagram::{Decoded, Header, Payload, decode, encode};
use skybraid_transport::{PathId, Segment};
use skybraid_units::Instant;
use socket2::{Domain, Protocol, Socket, Type};

use skybraid_io::batch::{BATCH, Inbox, SLOT, set_int, widen};

/// Maximum consecutive system calls for one socket, so that a flood on one path does not starve the others.
const MAX_BATCHES: usize = 16;

/// Result of sending a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The segment was sent.
    Left,
    /// The queue of the socket or the interface is full: the segment is lost at the sender.
    Full,
    /// The peer is unreachable for now, or has no socket yet: the segment is lost at the sender.
    Unreachable,
}

/// Result of [`PathSockets::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Number of segments delivered.
    pub segments: u64,
    /// Number of malformed datagrams.
    pub unreadable: u64,
}

/// UDP socket of one path on one side.
#[derive(Debug)]
pub struct PathSocket {
    socket: Socket,
    local: SocketAddr,
    remote: SocketAddr,
}

impl PathSocket {
    /// Binds `local` and connects to `remote`, in the network namespace of the calling thread. The socket is
    /// non-blocking, its buffers are large, and its packets may be fragmented.
    ///
    /// # Errors
    ///
    /// An error of the kernel, with both addresses and the failed operation.
    pub fn open(local: SocketAddr, remote: SocketAddr) -> io::Result<Self> {
        let context = |what: &str, error: io::Error| in_words(local, remote, what, &error);
        let socket = Socket::new(
            Domain::for_address(local),
            Type::DGRAM.nonblocking().cloexec(),
            Some(Protocol::UDP),
        )
        .map_err(|error| context("cannot be made", error))?;
        widen(&socket).map_err(|error| context("cannot have its buffers enlarged", error))?;
        allow_fragments(&socket, local)
            .map_err(|error| context("cannot have its packets fragmented", error))?;
        socket.bind(&local.into()).map_err(|error| context("cannot be bound", error))?;
        socket.connect(&remote.into()).map_err(|error| context("cannot be connected", error))?;
        let bound = socket.local_addr().map_err(|error| context("has no address", error))?;
        Ok(Self { socket, local: bound.as_socket().unwrap_or(local), remote })
    }

    /// Returns the bound address, with the port chosen by the kernel if none was given.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the connected address.
    pub const fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn send(&self, bytes: &[u8]) -> io::Result<Sent> {
        loop {
            let Err(error) = self.socket.send(bytes) else { return Ok(Sent::Left) };
            return match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EAGAIN | libc::ENOBUFS) => Ok(Sent::Full),
                _ if is_passing(&error) => Ok(Sent::Unreachable),
                _ => Err(in_words(self.local, self.remote, "cannot send", &error)),
            };
        }
    }
}

impl AsFd for PathSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sockets of one side, indexed by path.
pub struct PathSockets {
    sockets: Vec<PathSocket>,
    outbox: Vec<u8>,
    inbox: Inbox,
}

impl PathSockets {
    /// Creates the set from the sockets of the paths, in order.
    pub fn new(sockets: Vec<PathSocket>) -> Self {
        Self { sockets, outbox: Vec::with_capacity(SLOT), inbox: Inbox::default() }
    }

    /// Returns the sockets for polling: one is readable while datagrams are queued in it.
    pub fn sockets(&self) -> &[PathSocket] {
        &self.sockets
    }

    /// Sends a segment of a connection on `path`, with filler as payload.
    ///
    /// # Errors
    ///
    /// The path has no socket, the segment does not fit into a datagram, or the kernel reports an error other
    /// than a full queue or an unreachable peer.
    pub fn send(&mut self, path: PathId, connection: u16, segment: &Segment) -> io::Result<Sent> {
        let Some(socket) = self.sockets.get(path.index()) else {
            let count = self.sockets.len();
            let what = format!("path {} has no socket; there are {count} paths", path.0);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let header = Header { connection };
        encode(segment, &header, Payload::Filler, &mut self.outbox).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            in_words(socket.local, socket.remote, "cannot send", &error)
        })?;
        socket.send(&self.outbox)
    }

    /// Receives datagrams, path by path, and passes on their contents: path, connection, segment and payload
    /// (filler, possibly shorter than the segment states). `now` is the reference for times. On a path with
    /// very many datagrams, some are left for the next call.
    ///
    /// # Errors
    ///
    /// An error of the kernel, other than an empty queue or an unreachable peer.
    pub fn receive(
        &mut self,
        now: Instant,
        mut take: impl FnMut(PathId, u16, &Segment, &[u8]),
    ) -> io::Result<Received> {
        let mut received = Received::default();
        for (index, socket) in self.sockets.iter().enumerate() {
            let path = PathId(u8::try_from(index).unwrap_or(u8::MAX));
            for _ in 0..MAX_BATCHES {
                let taken = match self.inbox.take(&socket.socket) {
                    Ok(taken) => taken,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // An ICMP error about a sent datagram; received datagrams may follow.
                    Err(error) if is_passing(&error) => continue,
                    Err(error) => {
                        return Err(in_words(
                            socket.local,
                            socket.remote,
                            "cannot receive",
                            &error,
                        ));
                    }
                };
                for datagram in self.inbox.datagrams(taken) {
                    let bytes = datagram.bytes;
                    let Ok(Decoded { header, segment, payload }) = decode(bytes, now) else {
                        received.unreadable += 1;
                        continue;
                    };
                    received.segments += 1;
                    let payload = bytes.get(payload).unwrap_or_default();
                    take(path, header.connection, &segment, payload);
                }
                if taken < BATCH {
                    break;
                }
            }
        }
        Ok(received)
    }
}

/// Returns true for transient errors of the network rather than the socket: an interface, its address or a
/// route is gone (the kernel reports a removed source address as invalid), or a router refused.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EACCES
                | libc::EADDRNOTAVAIL
                | libc::ECONNREFUSED
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EINTR
                | libc::EINVAL
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::ENODEV
                | libc::ENOPROTOOPT
                | libc::EPROTO
        )
    )
}

fn in_words(local: SocketAddr, remote: SocketAddr, what: &str, error: &io::Error) -> io::Error {
    let text = format!("the UDP socket {local} to {remote} {what}: {error}");
    io::Error::new(error.kind(), text)
}

/// Clears the DF bit: a datagram larger than a link's MTU is fragmented, not refused.
fn allow_fragments(socket: &Socket, local: SocketAddr) -> io::Result<()> {
    let (level, name) = match local {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    set_int(socket, level, name, libc::IP_PMTUDISC_DONT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_io::batch::get_int;
    use skybraid_io::clock::Clock;
    use skybraid_transport::segment::{Body, Datagram};
    use skybraid_transport::{
        Class, Endpoint, Message, PathInfo, Protocol as Wires, Role, TransportConfig,
    };
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

    const NOW: Instant = Instant::from_millis(5_000);

    fn segment(sequence: u64, len: u32) -> Segment {
        let message = sequence as u32;
        let data = Datagram { sequence, message, len, fragment: 0, fragments: 1 };
        let (size, sent_at, body) = (28 + len, NOW, Body::Datagram(data));
        let (first_message, messages, stream, tail) = (message, 1, 0, false);
        Segment { size, sent_at, first_message, messages, stream, tail, body }
    }

    fn any_port(v6: bool) -> SocketAddr {
        if v6 { (Ipv6Addr::LOCALHOST, 0).into() } else { (Ipv4Addr::LOCALHOST, 0).into() }
    }

    /// Returns both ends of a path over loopback.
    fn pair(v6: bool) -> (PathSocket, PathSocket) {
        // A port is free while nobody is bound to it: one end reserves the other's.
        let reserved = UdpSocket::bind(any_port(v6)).unwrap();
        let address = reserved.local_addr().unwrap();
        let first = PathSocket::open(any_port(v6), address).unwrap();
        drop(reserved);
        let second = PathSocket::open(address, first.local()).unwrap();
        (first, second)
    }

    fn sides(paths: usize, v6: bool) -> [PathSockets; 2] {
        let (vehicle, ground) = (0..paths).map(|_| pair(v6)).unzip();
        [PathSockets::new(vehicle), PathSockets::new(ground)]
    }

    #[test]
    fn segments_cross_on_their_paths_in_packets_of_their_size() {
        for v6 in [false, true] {
            let [mut vehicle, mut ground] = sides(2, v6);
            for number in 0..100 {
                let path = PathId((number % 2) as u8);
                let sent = vehicle.send(path, 9, &segment(number, 1_000)).unwrap();
                assert_eq!(sent, Sent::Left);
            }
            let mut seen = Vec::new();
            let mut take = |path: PathId, connection: u16, it: &Segment, payload: &[u8]| {
                assert!(payload.len() < 1_000 && payload.iter().all(|octet| *octet == 0));
                assert_eq!((connection, it), (9, &segment(u64::from(it.first_message), 1_000)));
                seen.push((path.0, it.first_message));
            };
            let mut received = Received::default();
            while received.segments < 100 {
                let more = ground.receive(NOW, &mut take).unwrap();
                assert_eq!(more.unreadable, 0);
                received.segments += more.segments;
            }
            let expected = |path| (0..50).map(move |number| (path, 2 * number + u32::from(path)));
            assert_eq!(seen, expected(0).chain(expected(1)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn endpoints_speak_to_each_other_over_sockets() {
        for protocol in Wires::ALL {
            let config =
                TransportConfig { protocol, tx_queue: Some(500), ..TransportConfig::default() };
            let mut sockets = sides(2, false);
            let paths = [PathInfo::default(); 2];
            let mut ends =
                [Role::Client, Role::Server].map(|role| Endpoint::new(&config, &paths, role));
            let clock = Clock::starting_now();
            for id in 0..50 {
                let (class, deadline) = (Class::Data, None);
                let message = Message { stream: 0, id, class, bytes: 3_000, deadline };
                ends[0].write(clock.now(), message);
            }
            let mut delivered = Vec::new();
            while delivered.len() < 50 {
                assert!(clock.now() < Instant::from_millis(5_000), "{protocol:?}: {delivered:?}");
                for (end, sockets) in ends.iter_mut().zip(&mut sockets) {
                    let now = clock.now();
                    let take = |path, _, it: &Segment, _: &[u8]| end.receive(now, path, it);
                    sockets.receive(now, take).unwrap();
                    end.wake(now);
                    while let Some(transmit) = end.poll_send(now) {
                        let sent = sockets.send(transmit.path, 1, &transmit.segment).unwrap();
                        assert_eq!(sent, Sent::Left);
                    }
                    while let Some(message) = end.poll_delivered() {
                        delivered.push(message.id);
                    }
                }
            }
            delivered.sort_unstable();
            assert_eq!(delivered, (0..50).collect::<Vec<_>>(), "{protocol:?}");
        }
    }

    #[test]
    fn bytes_of_others_are_counted_and_nothing_else() {
        let [vehicle, mut ground] = sides(1, false);
        let socket = &vehicle.sockets()[0];
        for bytes in [&b"hello"[..], &[], &[0x20; 3]] {
            socket.socket.send(bytes).unwrap();
        }
        let received = ground.receive(NOW, |_, _, _, _| unreachable!()).unwrap();
        assert_eq!(received, Received { segments: 0, unreadable: 3 });
    }

    #[test]
    fn a_peer_that_is_not_there_yet_is_no_error() {
        let ([mut vehicle, ground], number) = (sides(1, false), 3);
        drop(ground);
        // Loopback responds to the first datagram with "port unreachable", which the next call returns.
        let sent = [0; 4].map(|_| vehicle.send(PathId(0), 1, &segment(number, 100)).unwrap());
        assert_eq!(sent[0], Sent::Left);
        assert!(sent.contains(&Sent::Unreachable), "{sent:?}");
        vehicle.send(PathId(0), 1, &segment(number, 100)).unwrap();
        assert_eq!(vehicle.receive(NOW, |_, _, _, _| unreachable!()).unwrap(), Received::default());
    }

    #[test]
    fn the_largest_datagram_crosses_and_a_larger_one_is_refused() {
        let [mut vehicle, mut ground] = sides(1, false);
        assert_eq!(vehicle.send(PathId(0), 1, &segment(1, 65_507)).unwrap(), Sent::Left);
        let mut lengths = Vec::new();
        ground.receive(NOW, |_, _, it, payload| lengths.push((it.size, payload.len()))).unwrap();
        assert_eq!(lengths, [(65_535, 65_507 - 11)]);
        let error = vehicle.send(PathId(0), 1, &segment(1, 65_508)).unwrap_err().to_string();
        let (local, remote) = (vehicle.sockets()[0].local(), vehicle.sockets()[0].remote());
        let said = format!("the UDP socket {local} to {remote} cannot send: ");
        assert!(error.starts_with(&said), "{error}");
    }

    #[test]
    fn errors_name_the_addresses() {
        let taken = UdpSocket::bind(any_port(false)).unwrap();
        let local = taken.local_addr().unwrap();
        let remote: SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
        let error = PathSocket::open(local, remote).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let said = format!("the UDP socket {local} to {remote} cannot be bound: ");
        assert!(error.to_string().starts_with(&said), "{error}");
        let error = PathSockets::new(vec![]).send(PathId(3), 1, &segment(1, 1)).unwrap_err();
        assert_eq!(error.to_string(), "path 3 has no socket; there are 0 paths");
    }

    #[test]
    fn the_df_bit_is_not_set() {
        for (v6, level, name) in [
            (false, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            (true, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        ] {
            let (socket, _) = pair(v6);
            let value = get_int(&socket, level, name).unwrap();
            assert_eq!(value, libc::IP_PMTUDISC_DONT);
        }
    }
}
