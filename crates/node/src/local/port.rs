//! A UDP port whose datagrams are carried unchanged.

use std::io;
use std::net::SocketAddr;

use skybraid_gateway::config::PortConfig;
use skybraid_gateway::{ChannelId, Client, Origin};
use skybraid_units::Instant;
use socket2::Socket;

use super::{Counts, Write, address, any_like, is_stranded, send, udp};
use crate::GatewayError;
use crate::arrival::Drained;
use crate::names::NameOwner;
use crate::poller::Source;
use crate::remote::Remote;
use crate::tools::Tools;
use skybraid_io::batch::{BUFFER, Outbox, overflowed};

/// A UDP port of a local application.
pub struct Port {
    /// Name and address of the port.
    pub name: String,
    /// Counters of the port.
    pub counts: Counts,
    channel: ChannelId,
    place: u8,
    socket: Option<(Socket, Drained)>,
    outbox: Outbox,
    /// The port of the socket is configured.
    listens: bool,
    /// Configured destination of datagrams.
    remote: Option<Remote>,
    /// Destination of datagrams: the configured one, or the last sender.
    to: Option<SocketAddr>,
    /// Nobody has the port at `to`, or no way leads there.
    refused: bool,
}

impl Port {
    /// Opens a port.
    pub fn open(
        now: Instant,
        place: u8,
        channel: ChannelId,
        name: &str,
        config: &PortConfig,
        tools: &mut Tools,
    ) -> Result<Self, GatewayError> {
        let wrong = |error| {
            let listen = config.listen.as_deref().unwrap_or_default();
            GatewayError::Setup { what: format!("[udp.{name}] listen {listen}"), error }
        };
        let socket = config.listen.as_deref().map(|text| udp(address(text)?, BUFFER)).transpose();
        let socket = socket.map_err(wrong)?;
        if let Some(socket) = &socket {
            tools.poller.watch(socket, Source::Port(place)).map_err(wrong)?;
        }
        let mut port = Self {
            name: format!("udp {name}"),
            counts: Counts::default(),
            channel,
            place,
            socket: socket.map(|socket| (socket, tools.drained())),
            outbox: Outbox::default(),
            listens: config.listen.is_some(),
            remote: config.send_to.clone().map(|name| Remote::new(now, name)),
            to: None,
            refused: false,
        };
        port.retry(now, tools);
        Ok(port)
    }

    /// Returns the number of known destinations.
    pub fn clients(&self) -> usize {
        usize::from(self.to.is_some())
    }

    /// Returns the number of datagrams that came to the socket faster than they could be read.
    pub fn unread(&self) -> u32 {
        self.socket.as_ref().map_or(0, |(socket, _)| overflowed(socket))
    }

    /// Receives a batch of datagrams. Returns true if there may be more.
    pub fn read(&mut self, tools: &mut Tools, write: &mut Write<'_>) -> bool {
        let Self { socket: Some((socket, drained)), channel, place, to, remote, refused, .. } =
            self
        else {
            return false;
        };
        let error = socket.take_error().ok().flatten();
        *refused |= error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        tools.take(socket, drained, &mut |taken| {
            let client = Client { end: *place, address: taken.source };
            write(*channel, &Origin { client, arrived: taken.arrived }, taken.bytes);
            if remote.is_none() {
                *to = taken.source.or(*to);
            }
        })
    }

    /// Queues a datagram, to be dropped after `expires`; leaves another buffer in `bytes`.
    pub fn deliver(&mut self, bytes: &mut Vec<u8>, expires: Instant, tools: &Tools) {
        let Some(to) = self.to else {
            self.counts.dropped += 1;
            return;
        };
        self.outbox.swap_in(bytes, to, 0, 0);
        self.outbox.expire_last(expires);
        if self.outbox.is_full() {
            self.flush(tools);
        }
    }

    /// Sends queued data.
    pub fn flush(&mut self, tools: &Tools) {
        if let Some((socket, _)) = &self.socket {
            send(&mut self.outbox, socket, &mut self.counts, tools, |errno| {
                self.refused |= is_stranded(errno) || errno == libc::ECONNREFUSED;
            });
        }
    }

    /// Resolves the program's address when that is due.
    pub fn retry(&mut self, now: Instant, tools: &mut Tools) {
        if let Some(remote) = &mut self.remote
            && (self.to.is_none() || remote.asks(now))
        {
            tools.names.ask(NameOwner::Port(self.place), &remote.name);
        }
        let used = self.to.filter(|_| std::mem::take(&mut self.refused));
        let next = self.remote.as_ref().zip(used).and_then(|(remote, used)| {
            remote.next_after(used, |to| !self.listens || self.is_alike(to))
        });
        if let Some(next) = next {
            self.direct_to(next, tools).ok();
        }
    }

    /// Handles the resolved name of the peer program.
    pub fn resolved(
        &mut self,
        now: Instant,
        addresses: io::Result<Vec<SocketAddr>>,
        tools: &mut Tools,
    ) {
        if let Some(remote) = &mut self.remote {
            remote.on_resolved(now, addresses, &mut tools.alarms);
        }
        let Some(remote) = &self.remote else { return };
        let result = match remote.choose(self.to, |to| !self.listens || self.is_alike(to)) {
            Some(to) => self.direct_to(to, tools),
            None if remote.is_known() => {
                let text = "its program's address is of another kind than the one it listens on";
                Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text))
            }
            None => Ok(()),
        };
        match result {
            Ok(()) => tools.alarms.clear(&self.name),
            Err(error) => tools.alarms.raise(&self.name, format!("{}: {error}", self.name)),
        }
    }

    /// Returns true if the socket is open and has the address family of `to`.
    fn is_alike(&self, to: SocketAddr) -> bool {
        let bound = self.socket.as_ref().and_then(|(socket, _)| socket.local_addr().ok());
        bound
            .and_then(|bound| bound.as_socket())
            .is_some_and(|bound| bound.is_ipv4() == to.is_ipv4())
    }

    /// Sends to this address from now on.
    fn direct_to(&mut self, to: SocketAddr, tools: &Tools) -> io::Result<()> {
        // A connected socket hears that nobody has the port, and takes no answers from elsewhere.
        let connects = !self.listens && self.remote.as_ref().is_some_and(Remote::has_several);
        if connects || !self.is_alike(to) {
            let socket = udp(any_like(to), BUFFER)?;
            if connects {
                socket.connect(&to.into())?;
            }
            tools.poller.watch(&socket, Source::Port(self.place))?;
            self.socket = Some((socket, tools.drained()));
        }
        self.to = Some(to);
        Ok(())
    }
}
