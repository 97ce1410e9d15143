//! A local MAVLink endpoint.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

use nix::sys::termios::BaudRate;
use skybraid_gateway::config::MavlinkConfig;
use skybraid_gateway::{ChannelId, Client, Origin};
use skybraid_units::Instant;
use socket2::Socket;

use super::connections::{Connections, listen};
use super::frames::cut;
use super::senders::Senders;
use super::{Counts, MAVLINK_BUFFER, Write, address, any_like, is_stranded, send, serial, udp};
use crate::GatewayError;
use crate::arrival::Drained;
use crate::names::NameOwner;
use crate::poller::{Ready, Source};
use crate::remote::Remote;
use crate::tools::Tools;
use skybraid_io::batch::{Outbox, overflowed};

/// Queue size in bytes for a slow reader.
const QUEUE_BYTES: usize = 256 << 10;
/// Maximum addresses of a name that are tried one after another.
const MAX_ADDRESSES: usize = 8;

/// A local MAVLink endpoint.
pub struct End {
    /// Kind and address.
    pub name: String,
    /// Counters of the endpoint.
    pub counts: Counts,
    /// RADIO_STATUS is sent to this endpoint.
    pub radio_status: bool,
    channel: ChannelId,
    place: u8,
    sequence: u8,
    kind: Kind,
}

enum Kind {
    /// UDP server: sends to all addresses from which datagrams have been received.
    UdpListen { socket: Socket, drained: Drained, outbox: Outbox, senders: Senders },
    /// UDP client: sends to and receives from one address.
    UdpSend {
        remote: Remote,
        open: Option<(Socket, SocketAddr, Drained)>,
        /// Nobody has the port at the address in use.
        refused: bool,
        outbox: Outbox,
    },
    /// TCP server.
    TcpListen { listener: TcpListener, connections: Connections, paused: bool },
    /// TCP client that reconnects, to any address of a name.
    TcpConnect { to: String, untried: VecDeque<SocketAddr>, connections: Connections },
    /// Serial device.
    Serial { device: String, speed: BaudRate, room: usize, connections: Connections },
}

impl End {
    /// Opens the endpoint as far as possible now.
    pub fn open(
        now: Instant,
        place: u8,
        channel: ChannelId,
        config: &MavlinkConfig,
        tools: &mut Tools,
    ) -> Result<Self, GatewayError> {
        let (key, value) = [
            ("serial", &config.serial),
            ("udp_listen", &config.udp_listen),
            ("udp_connect", &config.udp_connect),
            ("tcp_listen", &config.tcp_listen),
            ("tcp_connect", &config.tcp_connect),
        ]
        .into_iter()
        .find_map(|(key, value)| Some((key, value.clone()?)))
        .unwrap_or(("udp_connect", String::new()));
        let name = format!("{key} {value}");
        let wrong = |error| GatewayError::Setup { what: format!("[[mavlink]] {name}"), error };
        let baud = config.baud.unwrap_or(serial::DEFAULT_BAUD);
        let kind = Kind::open(now, key, value, baud, tools).map_err(wrong)?;
        let source = Source::Mavlink(place);
        match &kind {
            Kind::UdpListen { socket, .. } => tools.poller.watch(socket, source).map_err(wrong)?,
            Kind::TcpListen { listener, .. } => {
                tools.poller.watch(listener, source).map_err(wrong)?;
            }
            _ => {}
        }
        let (counts, radio_status) = (Counts::default(), config.radio_status);
        let mut end = Self { name, counts, radio_status, channel, place, sequence: 0, kind };
        end.retry(now, tools);
        Ok(end)
    }

    /// Returns the number of clients.
    pub fn clients(&self) -> usize {
        match &self.kind {
            Kind::UdpListen { senders, .. } => senders.len(),
            Kind::UdpSend { open, .. } => usize::from(open.is_some()),
            Kind::TcpListen { connections, .. }
            | Kind::TcpConnect { connections, .. }
            | Kind::Serial { connections, .. } => connections.connected(),
        }
    }

    /// Returns the number of datagrams that came to the socket faster than they could be read; streams hold theirs
    /// back.
    pub fn unread(&self) -> u32 {
        match &self.kind {
            Kind::UdpListen { socket, .. } | Kind::UdpSend { open: Some((socket, ..)), .. } => {
                overflowed(socket)
            }
            _ => 0,
        }
    }

    /// Returns the sequence number of the next RADIO_STATUS.
    pub fn next_radio(&mut self) -> u8 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Handles readiness for reading or writing. Returns true if there may be more to read.
    pub fn ready(
        &mut self,
        now: Instant,
        ready: Ready,
        tools: &mut Tools,
        write: &mut Write<'_>,
    ) -> bool {
        let (channel, end, counts) = (self.channel, self.place, &mut self.counts);
        match &mut self.kind {
            Kind::UdpListen { socket, drained, senders, .. } => {
                return tools.take(socket, drained, &mut |taken| {
                    let client = Client { end, address: taken.source };
                    let origin = Origin { client, arrived: taken.arrived };
                    let mut frames = 0;
                    counts.foreign_bytes += cut(taken.bytes, &mut |frame| {
                        frames += 1;
                        write(channel, &origin, frame);
                    });
                    if let Some(source) = taken.source.filter(|_| frames > 0) {
                        senders.on_received(now, source);
                    }
                });
            }
            Kind::UdpSend { open: Some((socket, _, drained)), refused, .. } => {
                let error = socket.take_error().ok().flatten();
                *refused |= error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
                return tools.take(socket, drained, &mut |taken| {
                    let client = Client { end, address: taken.source };
                    let origin = Origin { client, arrived: taken.arrived };
                    counts.foreign_bytes +=
                        cut(taken.bytes, &mut |frame| write(channel, &origin, frame));
                });
            }
            Kind::UdpSend { open: None, .. } => {}
            Kind::TcpListen { listener, connections, paused } => {
                let source = Source::Mavlink(self.place);
                if ready.source == source {
                    if connections.accept(self.place, listener, QUEUE_BYTES, tools) {
                        tools.alarms.clear(&self.name);
                    } else {
                        *paused = tools.poller.pause(listener, source).is_ok();
                        let text = format!("{}: no descriptors are left for clients", self.name);
                        tools.alarms.raise(&self.name, text);
                    }
                } else {
                    connections.ready(now, ready, channel, counts, tools, write);
                }
            }
            Kind::TcpConnect { untried, connections, .. } => {
                let failed = connections.ready(now, ready, channel, counts, tools, write).is_some();
                if connections.connected() > 0 {
                    untried.clear();
                    connections.drop_attempts();
                } else if failed {
                    connect_next(now, end, untried, connections, tools);
                }
            }
            Kind::Serial { connections, .. } => {
                if let Some(error) = connections.ready(now, ready, channel, counts, tools, write) {
                    tools.alarms.raise(&self.name, format!("{} is gone: {error}", self.name));
                }
            }
        }
        false
    }

    /// Sends a frame to all clients; it is dropped after `expires`.
    pub fn deliver(&mut self, frame: &[u8], control: bool, expires: Instant, tools: &Tools) {
        let counts = &mut self.counts;
        match &mut self.kind {
            Kind::UdpListen { socket, outbox, senders, .. } => {
                for sender in senders.addresses() {
                    outbox.copy_in(frame, sender);
                    outbox.expire_last(expires);
                    if outbox.is_full() {
                        send(outbox, socket, counts, tools, |_| {});
                    }
                }
            }
            Kind::UdpSend { open, outbox, .. } => {
                let Some((_, to, _)) = open else { return };
                outbox.copy_in(frame, *to);
                outbox.expire_last(expires);
                if outbox.is_full() {
                    send_to_program(open, outbox, counts, tools);
                }
            }
            Kind::TcpListen { connections, .. }
            | Kind::TcpConnect { connections, .. }
            | Kind::Serial { connections, .. } => connections.push(frame, control, expires, counts),
        }
    }

    /// Returns true if the endpoint uses streams or a device.
    pub const fn has_streams(&self) -> bool {
        match &self.kind {
            Kind::UdpListen { .. } | Kind::UdpSend { .. } => false,
            Kind::TcpListen { .. } | Kind::TcpConnect { .. } | Kind::Serial { .. } => true,
        }
    }

    /// Sends queued data.
    pub fn flush(&mut self, now: Instant, tools: &Tools) {
        let counts = &mut self.counts;
        match &mut self.kind {
            Kind::UdpListen { socket, outbox, .. } => send(outbox, socket, counts, tools, |_| {}),
            Kind::UdpSend { open, outbox, .. } => send_to_program(open, outbox, counts, tools),
            Kind::TcpListen { connections, .. }
            | Kind::TcpConnect { connections, .. }
            | Kind::Serial { connections, .. } => connections.flush(now, counts, tools),
        }
    }

    /// Retries missing devices and peers, and removes silent senders.
    pub fn retry(&mut self, now: Instant, tools: &mut Tools) {
        match &mut self.kind {
            Kind::UdpListen { senders, .. } => senders.drop_silent(now),
            Kind::UdpSend { remote, open, refused, .. } => {
                if open.is_none() || remote.asks(now) {
                    tools.names.ask(NameOwner::Mavlink(self.place), &remote.name);
                }
                let used = open.as_ref().filter(|_| std::mem::take(refused)).map(|(_, to, _)| *to);
                if let Some(to) = used.and_then(|used| remote.next_after(used, |_| true))
                    && let Ok((socket, drained)) = connect(to, Source::Mavlink(self.place), tools)
                {
                    *open = Some((socket, to, drained));
                }
            }
            Kind::TcpListen { listener, paused, .. } => {
                if *paused {
                    *paused = tools.poller.resume(listener, Source::Mavlink(self.place)).is_err();
                }
            }
            Kind::TcpConnect { to, untried, connections } => {
                connections.drop_expired_attempts(now);
                if connections.is_empty() && untried.is_empty() {
                    tools.names.ask(NameOwner::Mavlink(self.place), to);
                }
                // An address that does not answer holds none of the next ones up.
                connect_next(now, self.place, untried, connections, tools);
            }
            Kind::Serial { device, speed, room, connections } => {
                if !connections.is_empty() {
                    return;
                }
                let opened = serial::open(device, *speed)
                    .and_then(|file| connections.add(self.place, file, None, *room, None, tools));
                match opened {
                    Ok(()) => tools.alarms.clear(&self.name),
                    Err(error) => tools
                        .alarms
                        .raise(&self.name, format!("{} cannot be opened: {error}", self.name)),
                }
            }
        }
    }

    /// Handles the resolved name of the peer program.
    pub fn resolved(
        &mut self,
        now: Instant,
        addresses: io::Result<Vec<SocketAddr>>,
        tools: &mut Tools,
    ) {
        let result = match &mut self.kind {
            Kind::UdpSend { remote, open, .. } => {
                remote.on_resolved(now, addresses, &mut tools.alarms);
                let used = open.as_ref().map(|(_, to, _)| *to);
                match remote.choose(used, |_| true) {
                    Some(to) if used != Some(to) => connect(to, Source::Mavlink(self.place), tools)
                        .map(|(socket, drained)| *open = Some((socket, to, drained))),
                    _ => Ok(()),
                }
            }
            Kind::TcpConnect { untried, connections, .. } if connections.is_empty() => addresses
                .map(|addresses| {
                    *untried = addresses.into_iter().take(MAX_ADDRESSES).collect();
                    connect_next(now, self.place, untried, connections, tools);
                }),
            _ => Ok(()),
        };
        match result {
            Ok(()) => tools.alarms.clear(&self.name),
            Err(error) => tools.alarms.raise(&self.name, format!("{}: {error}", self.name)),
        }
    }
}

impl Kind {
    fn open(now: Instant, key: &str, value: String, baud: u32, tools: &Tools) -> io::Result<Self> {
        let outbox = Outbox::default();
        Ok(match key {
            "serial" => Self::Serial {
                device: value,
                speed: serial::speed(baud)?,
                room: serial::room(baud, QUEUE_BYTES),
                connections: Connections::default(),
            },
            "udp_listen" => {
                let socket = udp(address(&value)?, MAVLINK_BUFFER)?;
                Self::UdpListen {
                    socket,
                    drained: tools.drained(),
                    outbox,
                    senders: Senders::default(),
                }
            }
            "tcp_listen" => {
                let (listener, connections) = (listen(address(&value)?)?, Connections::default());
                Self::TcpListen { listener, connections, paused: false }
            }
            "tcp_connect" => Self::TcpConnect {
                to: value,
                untried: VecDeque::new(),
                connections: Connections::default(),
            },
            _ => Self::UdpSend {
                remote: Remote::new(now, value),
                open: None,
                refused: false,
                outbox,
            },
        })
    }
}

/// Begins to connect to the next untried address. A missing peer is normal until a program is started.
fn connect_next(
    now: Instant,
    place: u8,
    untried: &mut VecDeque<SocketAddr>,
    connections: &mut Connections,
    tools: &Tools,
) {
    while let Some(to) = untried.pop_front() {
        if connections.connect(now, place, to, QUEUE_BYTES, tools).is_ok() {
            return;
        }
    }
}

/// Opens a socket that sends to a program and receives only from it.
fn connect(to: SocketAddr, source: Source, tools: &Tools) -> io::Result<(Socket, Drained)> {
    let socket = udp(any_like(to), MAVLINK_BUFFER)?;
    socket.connect(&to.into())?;
    tools.poller.watch(&socket, source)?;
    Ok((socket, tools.drained()))
}

/// Sends queued frames to the program that the socket is connected to; closes the socket, to be opened again, if
/// it has lost its local address or its route: a connected socket keeps the address that it began with.
fn send_to_program(
    open: &mut Option<(Socket, SocketAddr, Drained)>,
    outbox: &mut Outbox,
    counts: &mut Counts,
    tools: &Tools,
) {
    let Some((socket, ..)) = open else {
        outbox.clear();
        return;
    };
    let mut stranded = false;
    send(outbox, socket, counts, tools, |errno| stranded |= is_stranded(errno));
    if stranded {
        *open = None;
    }
}
