//! MPTCP over two pairs of UDP sockets: a file crosses the loopback interface in order, over both paths.
//! Run it with `cargo run --package skybraid-transport --example mptcp_over_udp`.

#![allow(clippy::disallowed_methods, reason = "a driver has a clock")]

use std::io;
use std::net::UdpSocket;
use std::time;

use skybraid_transport::segment::Body;
use skybraid_transport::wire::datagram::{Header, Payload, decode, encode};
use skybraid_transport::{
    Class, Endpoint, Message, PathId, PathInfo, Protocol, Role, TransportConfig,
};
use skybraid_units::Instant;

const PATHS: [PathId; 2] = [PathId(0), PathId(1)];

/// One end: the state machine, a connected socket for each path, and the stream's bytes by their place in it.
struct End {
    endpoint: Endpoint,
    sockets: Vec<UdpSocket>,
    stream: Vec<u8>,
}

impl End {
    fn new(config: &TransportConfig, role: Role, sockets: Vec<UdpSocket>, stream: Vec<u8>) -> Self {
        let paths = PATHS.map(|_| PathInfo::default());
        Self { endpoint: Endpoint::new(config, &paths, role), sockets, stream }
    }

    /// Feeds the endpoint with time and datagrams, sends what it asks for, and returns whether the message is whole.
    fn step(&mut self, now: Instant, buffer: &mut Vec<u8>) -> io::Result<bool> {
        for (socket, path) in self.sockets.iter().zip(PATHS) {
            let mut datagram = [0; 2048];
            while let Ok(len) = socket.recv(&mut datagram) {
                let Ok(read) = decode(&datagram[..len], now) else { continue };
                if let Body::Tcp(tcp) = &read.segment.body {
                    let start = tcp.dsn as usize;
                    let place = self.stream.get_mut(start..start + read.payload.len());
                    if let Some(place) = place.filter(|place| !place.is_empty()) {
                        place.copy_from_slice(&datagram[read.payload]);
                    }
                }
                self.endpoint.receive(now, path, &read.segment);
            }
        }
        if self.endpoint.next_wakeup() <= now {
            self.endpoint.wake(now);
        }
        while let Some(transmit) = self.endpoint.poll_send(now) {
            let Body::Tcp(tcp) = &transmit.segment.body else { continue };
            let start = if tcp.len == 0 { 0 } else { tcp.dsn as usize };
            let payload = Payload::Bytes(&self.stream[start..start + tcp.len as usize]);
            encode(&transmit.segment, &Header::default(), payload, buffer)
                .map_err(io::Error::other)?;
            self.sockets[transmit.path.index()].send(buffer)?;
        }
        Ok(self.endpoint.poll_delivered().is_some())
    }
}

/// Carries `file` from one end to the other and returns it as it arrived.
pub fn carry(file: &[u8]) -> io::Result<Vec<u8>> {
    let config = TransportConfig { protocol: Protocol::Mptcp, ..TransportConfig::default() };
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in PATHS {
        let [one, other] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        one.connect(other.local_addr()?)?;
        other.connect(one.local_addr()?)?;
        near.push(one);
        far.push(other);
    }
    near.iter().chain(&far).try_for_each(|socket| socket.set_nonblocking(true))?;
    let mut sender = End::new(&config, Role::Client, near, file.to_vec());
    let mut receiver = End::new(&config, Role::Server, far, vec![0; file.len()]);
    let bytes = u32::try_from(file.len()).map_err(io::Error::other)?;
    let message = Message { stream: 0, id: 0, class: Class::Data, bytes, deadline: None };
    sender.endpoint.write(Instant::ZERO, message);

    let (start, mut buffer) = (time::Instant::now(), Vec::new());
    loop {
        let now = Instant::from_nanos(start.elapsed().as_nanos() as i64);
        sender.step(now, &mut buffer)?;
        if receiver.step(now, &mut buffer)? {
            return Ok(receiver.stream);
        }
        std::thread::yield_now();
    }
}

/// Carries a megabyte.
pub fn main() -> io::Result<()> {
    let file: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let whole = carry(&file)? == file;
    println!("1 MB over two paths: {}", if whole { "whole" } else { "damaged" });
    Ok(())
}
