//! A UDP port whose datagrams are carried unchanged.

use std::io;
use std::net::SocketAddr;

use skybraid_gateway::config::PortConfig;
use skybraid_gateway::{ChannelId, Client, Origin};
use skybraid_units::Instant;
use socket2::Socket;

use super::{Counts, Write, address, any_like, udp};
use crate::GatewayError;
use crate::arrival::Drained;
use crate::names::NameOwner;
use crate::poller::Source;
use crate::tools::Tools;
use skybraid_io::batch::{BUFFER, Outbox};

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
    /// Configured destination of datagrams.
    send_to: Option<String>,
    /// Destination of datagrams: the configured one, or the last sender.
    to: Option<SocketAddr>,
}

impl Port {
    /// Opens a port.
    pub fn open(
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
        let port = Self {
            name: format!("udp {name}"),
            counts: Counts::default(),
            channel,
            place,
            socket: socket.map(|socket| (socket, tools.drained())),
            outbox: Outbox::default(),
            send_to: config.send_to.clone(),
            to: None,
        };
        port.retry(tools);
        Ok(port)
    }

    /// Returns the number of known destinations.
    pub fn clients(&self) -> usize {
        usize::from(self.to.is_some())
    }

    /// Receives a batch of datagrams. Returns true if there may be more.
    pub fn read(&mut self, tools: &mut Tools, write: &mut Write<'_>) -> bool {
        let Self { socket: Some((socket, drained)), channel, place, to, send_to, .. } = self else {
            return false;
        };
        tools.take(socket, drained, &mut |taken| {
            let client = Client { end: *place, address: taken.source };
            write(*channel, &Origin { client, arrived: taken.arrived }, taken.bytes);
            if send_to.is_none() {
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
        if let Some((socket, _)) = &self.socket
            && !self.outbox.is_empty()
        {
            self.counts.late += self.outbox.drop_expired(tools.poller.now());
            self.counts.dropped += self.outbox.send_counting(socket);
        }
    }

    /// Resolves the program's address again while it is unknown.
    pub fn retry(&self, tools: &mut Tools) {
        if let (Some(name), None) = (&self.send_to, self.to) {
            tools.names.ask(NameOwner::Port(self.place), name);
        }
    }

    /// Handles the resolved name of the peer program.
    pub fn resolved(&mut self, addresses: io::Result<Vec<SocketAddr>>, tools: &mut Tools) {
        let result = addresses.and_then(|addresses| {
            // A listening socket already has its address family.
            let bound = self.socket.as_ref().and_then(|(socket, _)| socket.local_addr().ok());
            let bound = bound.and_then(|bound| bound.as_socket());
            let fits = |to: &&SocketAddr| bound.is_none_or(|bound| bound.is_ipv4() == to.is_ipv4());
            let Some(to) = addresses.iter().find(fits).copied() else {
                let text = "its program's address is of another kind than the one it listens on";
                return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
            };
            if self.socket.is_none() {
                let socket = udp(any_like(to), BUFFER)?;
                tools.poller.watch(&socket, Source::Port(self.place))?;
                self.socket = Some((socket, tools.drained()));
            }
            self.to = Some(to);
            Ok(())
        });
        match result {
            Ok(()) => tools.alarms.clear(&self.name),
            Err(error) => tools.alarms.raise(&self.name, format!("{}: {error}", self.name)),
        }
    }
}
