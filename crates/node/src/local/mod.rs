//! Local applications: MAVLink over UDP, TCP and serial devices, UDP ports, TUN.

mod connections;
mod frame_stream;
pub(crate) mod frames;
mod mavlink;
pub(crate) mod offload;
mod port;
mod queue;
mod radio;
mod senders;
mod serial;
mod tun;

use std::io;
use std::net::SocketAddr;

use skybraid_gateway::config::GatewayConfig;
use skybraid_gateway::policy::Policy;
use skybraid_gateway::{ChannelId, Class, Origin, Snapshot};
use skybraid_transport::mutran::Header;
use skybraid_units::{Duration, Instant};

use self::mavlink::End;
pub use self::offload::HEAD;
use self::port::Port;
use self::tun::Tun;
use super::interfaces::Interfaces;
use super::names::NameOwner;
use super::poller::{Ready, Source};
use super::tools::Tools;
use super::{GatewayError, LocalCounters};
use skybraid_io::batch::Outbox;

/// Interval at which missing devices and programs are tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Interval of the reports on paths, for ends that ask for them.
const RADIO: Duration = Duration::from_secs(1);

/// Counters of an end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Bytes outside of frames.
    pub foreign_bytes: u64,
    /// Frames and datagrams dropped because the receiver was too slow.
    pub dropped: u64,
    /// Frames that expired while queued.
    pub late: u64,
}

/// Receives data written by a local application.
pub type Write<'a> = dyn FnMut(ChannelId, &Origin, &[u8]) + 'a;

/// Kernel buffer in bytes for datagrams of a MAVLink endpoint: several thousand frames, more than a second of
/// any vehicle's. Older data is of no use.
const MAVLINK_BUFFER: usize = 4 << 20;

/// All local endpoints of a gateway.
pub struct Local {
    ends: Vec<End>,
    ports: Vec<Port>,
    tun: Option<Tun>,
    /// Kind of each channel, by its number.
    channels: Vec<Channel>,
    policy: Policy,
    retry: Instant,
    radio: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Mavlink,
    Tun,
    Port(usize),
}

impl Local {
    /// Opens all endpoints of the configuration. Missing devices and programs are retried.
    ///
    /// # Errors
    /// A port is in use, an address is not local, or permissions for the TUN interface are missing.
    pub fn open(
        now: Instant,
        config: &GatewayConfig,
        tools: &mut Tools,
    ) -> Result<Self, GatewayError> {
        let mut channels = Vec::new();
        if !config.mavlink.is_empty() {
            channels.push(Channel::Mavlink);
        }
        if config.tun.is_some() {
            channels.push(Channel::Tun);
        }
        channels.extend((0..config.udp.len()).map(Channel::Port));
        let number = |wanted| {
            let found = channels.iter().position(|channel| *channel == wanted);
            ChannelId(found.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX))
        };
        let numbered = (0..).zip(&config.mavlink);
        let mavlink = number(Channel::Mavlink);
        let ends = numbered.map(|(place, end)| End::open(now, place, mavlink, end, tools));
        let ends = ends.collect::<Result<_, _>>()?;
        let numbered = (0..).zip(&config.udp);
        let ports = numbered.map(|(place, (name, port))| {
            Port::open(now, place, number(Channel::Port(place.into())), name, port, tools)
        });
        let ports = ports.collect::<Result<_, _>>()?;
        let tun = config.tun.as_ref().map(|tun| Tun::open(number(Channel::Tun), tun, tools));
        let tun = tun.transpose()?;
        let policy = Policy::new(&config.messages, &[]);
        Ok(Self { ends, ports, tun, channels, policy, retry: now + RETRY, radio: now + RADIO })
    }

    /// Handles a ready source of this side. Returns true if there may be more to read.
    pub fn ready(
        &mut self,
        now: Instant,
        ready: Ready,
        tools: &mut Tools,
        write: &mut Write<'_>,
    ) -> bool {
        match ready.source {
            Source::Mavlink(place) | Source::Client(place, _) => {
                let end = self.ends.get_mut(usize::from(place));
                end.is_some_and(|end| end.ready(now, ready, tools, write))
            }
            Source::Port(place) => {
                let port = self.ports.get_mut(usize::from(place));
                port.is_some_and(|port| port.read(tools, write))
            }
            Source::Tun => self.tun.as_mut().is_some_and(|tun| tun.read(now, tools, write)),
            _ => false,
        }
    }

    /// Delivers data from the peer on a channel, to be dropped after `expires`; `bytes` may be swapped for
    /// another buffer.
    pub fn deliver(
        &mut self,
        now: Instant,
        channel: ChannelId,
        expires: Instant,
        bytes: &mut Vec<u8>,
        tools: &Tools,
    ) {
        match self.channels.get(usize::from(channel.0)) {
            Some(Channel::Mavlink) => {
                let header = Header::parse(bytes);
                let control = header
                    .is_ok_and(|header| self.policy.of_frame(now, &header).class == Class::Control);
                self.ends.iter_mut().for_each(|end| end.deliver(bytes, control, expires, tools));
            }
            Some(Channel::Port(place)) => {
                if let Some(port) = self.ports.get_mut(*place) {
                    port.deliver(bytes, expires, tools);
                }
            }
            Some(Channel::Tun) => {
                if let Some(tun) = &mut self.tun {
                    if tools.poller.now() <= expires {
                        tun.deliver(bytes);
                    } else {
                        tun.counts.late += 1;
                    }
                }
            }
            None => {}
        }
    }

    /// Sends queued data.
    pub fn flush(&mut self, now: Instant, tools: &mut Tools) {
        self.ends.iter_mut().for_each(|end| end.flush(now, tools));
        self.ports.iter_mut().for_each(|port| port.flush(tools));
        self.tun.iter_mut().for_each(Tun::flush);
    }

    /// Returns true if some endpoints are streams or devices, which have no kernel timestamps.
    pub fn has_streams(&self) -> bool {
        self.tun.is_some() || self.ends.iter().any(End::has_streams)
    }

    /// A name has been resolved.
    pub fn resolved(
        &mut self,
        now: Instant,
        whose: NameOwner,
        addresses: io::Result<Vec<SocketAddr>>,
        tools: &mut Tools,
    ) {
        match whose {
            NameOwner::Mavlink(place) => {
                if let Some(end) = self.ends.get_mut(usize::from(place)) {
                    end.resolved(now, addresses, tools);
                }
            }
            NameOwner::Port(place) => {
                if let Some(port) = self.ports.get_mut(usize::from(place)) {
                    port.resolved(now, addresses, tools);
                }
            }
            NameOwner::Path(_) => {}
        }
    }

    /// Adapts the MTU of the TUN interface to that of the paths.
    pub fn follow_mtu(&mut self, unfragmented: u32) {
        if let Some(tun) = &mut self.tun {
            tun.follow(unfragmented);
        }
    }

    /// Raises an alarm while the TUN interface is down or lacks its address.
    pub fn watch_tun(&mut self, interfaces: &Interfaces, tools: &mut Tools) {
        if let Some(tun) = &mut self.tun {
            tun.watch(interfaces, tools);
        }
    }

    /// Time of the next call of [`wake`](Self::wake).
    pub fn due(&self) -> Instant {
        self.retry.min(self.radio)
    }

    /// Handles expired timers: retries missing endpoints and sends RADIO_STATUS.
    pub fn wake(&mut self, now: Instant, tools: &mut Tools, snapshot: impl FnOnce() -> Snapshot) {
        if now >= self.retry {
            self.retry = now + RETRY;
            self.ends.iter_mut().for_each(|end| end.retry(now, tools));
            self.ports.iter_mut().for_each(|port| port.retry(now, tools));
            self.tun.iter_mut().for_each(|tun| tun.retry(tools));
        }
        if now >= self.radio {
            self.radio = now + RADIO;
            if self.ends.iter().any(|end| end.radio_status) {
                let snapshot = snapshot();
                for end in self.ends.iter_mut().filter(|end| end.radio_status) {
                    let frame = radio::radio_status(end.next_radio(), &snapshot);
                    end.deliver(&frame, false, Instant::FAR_FUTURE, tools);
                }
                self.ends.iter_mut().for_each(|end| end.flush(now, tools));
            }
        }
    }

    /// Returns the counters of all ends.
    pub fn edges(&self) -> Vec<LocalCounters> {
        let edge = |name: &str, clients: usize, unread: u32, counts: Counts| LocalCounters {
            name: name.to_owned(),
            clients: clients as u64,
            unread: unread.into(),
            foreign_bytes: counts.foreign_bytes,
            dropped: counts.dropped,
            late: counts.late,
        };
        let ends =
            self.ends.iter().map(|end| edge(&end.name, end.clients(), end.unread(), end.counts));
        let ports = self.ports.iter();
        let ports = ports.map(|port| edge(&port.name, port.clients(), port.unread(), port.counts));
        let tun = self.tun.iter();
        let tun = tun.map(|tun| edge(&tun.name, usize::from(tun.exists()), 0, tun.counts));
        ends.chain(ports).chain(tun).collect()
    }
}

/// Opens a non-blocking UDP socket with buffers of this size and kernel timestamps.
fn udp(at: SocketAddr, buffer: usize) -> io::Result<socket2::Socket> {
    use socket2::{Domain, Protocol, Socket, Type};
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(at), kind, Some(Protocol::UDP))?;
    skybraid_io::batch::set_buffers(&socket, buffer)?;
    skybraid_io::batch::stamp_arrivals(&socket)?;
    skybraid_io::batch::join_arrivals(&socket);
    socket.bind(&at.into())?;
    Ok(socket)
}

/// Sends queued datagrams, except those expired since. Passes the error of each that cannot be sent to `on_error`.
fn send(
    outbox: &mut Outbox,
    socket: &socket2::Socket,
    counts: &mut Counts,
    tools: &Tools,
    mut on_error: impl FnMut(i32),
) {
    if !outbox.is_empty() {
        counts.late += outbox.drop_expired(tools.poller.now());
        outbox.send(socket, &mut |_, errno| {
            counts.dropped += 1;
            on_error(errno);
        });
    }
}

/// Whether an error of sending says that a connected socket has lost its local address or its route.
const fn is_stranded(errno: i32) -> bool {
    matches!(errno, libc::EINVAL | libc::EADDRNOTAVAIL | libc::ENETUNREACH)
}

/// Returns the unspecified address and port of the same family.
fn any_like(address: SocketAddr) -> SocketAddr {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Parses the address of a configuration key.
fn address(text: &str) -> io::Result<SocketAddr> {
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarms::Alarms;
    use crate::poller::Poller;
    use skybraid_io::clock::Clock;
    use std::net::UdpSocket;
    use std::path::Path;
    use std::sync::mpsc::sync_channel;

    const FILE: &str = "side = 'ground'\nkey = 'k'\npeer = 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='\n\
                        [path.one]\nlisten = '127.0.0.1:9417'\n[[mavlink]]\nudp_connect = '127.0.0.1:9'\n\
                        [udp.video]\nsend_to = '127.0.0.1:9'\n";

    fn tools() -> Tools {
        let poller = Poller::new(Clock::starting_now()).unwrap();
        Tools::new(poller, Alarms::new(sync_channel(9).0)).unwrap()
    }

    #[test]
    fn a_program_whose_name_has_moved_is_reached() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut tools = tools();
        let config = skybraid_scenario::GatewayFile::parse(FILE, Path::new("g.toml")).unwrap();
        let mut local = Local::open(at(0), &config.config, &mut tools).unwrap();
        let asked = |tools: &mut Tools| std::iter::from_fn(|| tools.names.answer()).count();
        assert_eq!(asked(&mut tools), 2);
        let learn = |local: &mut Local, tools: &mut Tools, addresses: &[SocketAddr]| {
            for owner in [NameOwner::Mavlink(0), NameOwner::Port(0)] {
                local.resolved(at(0), owner, Ok(addresses.to_vec()), tools);
            }
        };
        let reaches = |local: &mut Local, tools: &mut Tools, program: &UdpSocket| {
            for channel in 0..2 {
                let expires = Instant::FAR_FUTURE;
                local.deliver(at(0), ChannelId(channel), expires, &mut vec![channel; 9], tools);
            }
            local.flush(at(0), tools);
            let mut channels = [(); 2].map(|()| {
                let mut bytes = [9; 9];
                program.recv(&mut bytes).ok();
                bytes[0]
            });
            channels.sort_unstable();
            channels == [0, 1]
        };
        let programs = ["127.0.0.1:0", "127.0.0.1:0", "[::1]:0"].map(|near| {
            let program = UdpSocket::bind(near).unwrap();
            program.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
            program
        });
        let addresses = programs.each_ref().map(|program| program.local_addr().unwrap());
        for (program, address) in programs.iter().zip(addresses) {
            learn(&mut local, &mut tools, &[address]);
            assert!(reaches(&mut local, &mut tools, program));
        }
        // An address in use is kept while the name has it, and somebody the port.
        learn(&mut local, &mut tools, &addresses);
        assert!(reaches(&mut local, &mut tools, &programs[2]));
        for (seconds, expected) in [(59, 0), (61, 2)] {
            local.wake(at(seconds), &mut tools, || unreachable!("no endpoint has RADIO_STATUS"));
            assert_eq!(asked(&mut tools), expected);
        }
    }

    /// A gateway with one MAVLink endpoint, whose name has been resolved.
    fn with_end(key: &str, addresses: Vec<SocketAddr>) -> (Local, Tools) {
        let mut tools = tools();
        let file =
            FILE.replace("udp_connect = '127.0.0.1:9'", &format!("{key} = 'name.invalid:9'"));
        let config = skybraid_scenario::GatewayFile::parse(&file, Path::new("g.toml")).unwrap();
        let mut local = Local::open(Instant::ZERO, &config.config, &mut tools).unwrap();
        local.resolved(Instant::ZERO, NameOwner::Mavlink(0), Ok(addresses), &mut tools);
        (local, tools)
    }

    /// Serves what becomes ready, with timers once a second, until `is_done`.
    fn serve(local: &mut Local, tools: &mut Tools, mut is_done: impl FnMut(&mut Local) -> bool) {
        for round in 0..100 {
            if is_done(local) {
                return;
            }
            let (now, mut ready) = (tools.poller.now(), Vec::new());
            tools.poller.wait(now, now + Duration::from_millis(50), &mut ready).unwrap();
            let later = Instant::ZERO + Duration::from_secs(round / 10 + 2);
            ready.into_iter().for_each(|ready| {
                local.ready(later, ready, tools, &mut |_, _, _| {});
            });
            local.wake(later, tools, || unreachable!("no endpoint has RADIO_STATUS"));
            local.flush(later, tools);
        }
        panic!("nothing came in 5 s");
    }

    fn closed_port() -> SocketAddr {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn tcp_connect_tries_every_address_of_a_name() {
        let program = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        program.set_nonblocking(true).unwrap();
        // Of documentation, where nobody answers; and one that refuses.
        let silent = "192.0.2.1:9".parse().unwrap();
        let addresses = vec![silent, closed_port(), program.local_addr().unwrap()];
        let (mut local, mut tools) = with_end("tcp_connect", addresses);
        let mut accepted = None;
        serve(&mut local, &mut tools, |local| {
            accepted = accepted.take().or_else(|| program.accept().ok());
            accepted.is_some() && local.ends[0].clients() == 1
        });
    }

    #[test]
    fn udp_leaves_an_address_that_refuses() {
        for (owner, channel) in [(NameOwner::Mavlink(0), 0), (NameOwner::Port(0), 1)] {
            let program = UdpSocket::bind("127.0.0.1:0").unwrap();
            program.set_nonblocking(true).unwrap();
            let addresses = vec![closed_port(), program.local_addr().unwrap()];
            let (mut local, mut tools) = with_end("udp_connect", addresses.clone());
            local.resolved(Instant::ZERO, owner, Ok(addresses), &mut tools);
            let idle = self::tools();
            serve(&mut local, &mut tools, |local| {
                let message = &mut vec![7; 9];
                local.deliver(
                    Instant::ZERO,
                    ChannelId(channel),
                    Instant::FAR_FUTURE,
                    message,
                    &idle,
                );
                program.recv(&mut [0; 9]).is_ok()
            });
        }
    }
}
