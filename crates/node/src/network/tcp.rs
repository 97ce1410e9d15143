//! Transport for networks that block UDP: control over one TCP connection per path, everything else over one
//! of MPTCP.
//!
//! The aircraft connects to the ground. The ground learns the path of a connection from the first authentic
//! datagram on it; until then only handshakes are answered on it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use skybraid_gateway::config::GatewayConfig;
use skybraid_gateway::gateway::{BUNDLE, Outgoing};
use skybraid_gateway::{Gateway, Side};
use skybraid_transport::PathId;
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};
use socket2::Socket;

use super::DropCounters;
use super::bundle::Endpoints;
use super::place::{LocalAddresses, Place};
use super::stream::{Sent, Stream, make};
use crate::accept::{PAUSE, accept_all, source_of};
use crate::interfaces::Interfaces;
use crate::names::NameOwner;
use crate::poller::{Ready, Source};
use crate::remote::Remote;
use crate::tools::Tools;
use crate::{GatewayError, PathCounters};

/// Interval at which interfaces, listeners and stalled connections are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Delay before reconnecting: initial and maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Maximum unauthenticated connections, and their timeout. Beyond, the source that has most loses its oldest.
const MAX_UNAUTHENTICATED: usize = 64;
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);

/// TCP streams of all paths.
pub struct Streams {
    paths: Vec<Path>,
    bundle: Backoff,
    endpoints: Endpoints,
    listeners: Vec<Listener>,
    streams: Vec<Connection>,
    next: u32,
    next_check: Instant,
}

/// State of a path, indexed by its number.
struct Path {
    name: String,
    place: Place,
    remote: Option<Remote>,
    used: Option<SocketAddr>,
    local_addresses: Option<LocalAddresses>,
    backoff: Backoff,
    losses: DropCounters,
}

/// Time and delay of the next connection attempt.
struct Backoff {
    at: Instant,
    wait: Duration,
}

/// A listening address of the ground.
struct Listener {
    place: Place,
    first: PathId,
    open: Option<TcpListener>,
    /// Index of the interface that it is bound to; zero without one.
    index: u32,
    /// End of the pause in accepting, due to a lack of descriptors.
    paused: Option<Instant>,
}

struct Connection {
    stream: Stream,
    /// Path whose control the stream carries, or [`BUNDLE`]; `None` while unknown.
    path: Option<PathId>,
    /// First path of the listener that accepted the stream.
    socket: PathId,
    since: Instant,
}

impl Backoff {
    const fn new(now: Instant) -> Self {
        Self { at: now, wait: MIN_BACKOFF }
    }

    fn failed(&mut self, now: Instant) {
        self.at = now + self.wait;
        self.wait = (self.wait + self.wait).min(MAX_BACKOFF);
    }

    fn connected(&mut self) {
        self.wait = MIN_BACKOFF;
    }
}

impl Streams {
    /// Creates the paths without opening them.
    ///
    /// # Errors
    /// A configured address is invalid.
    pub fn new(now: Instant, config: &GatewayConfig) -> Result<Self, GatewayError> {
        let (mut paths, mut listeners) = (Vec::new(), Vec::<Listener>::new());
        for (number, (name, path)) in (0..).zip(&config.path) {
            let aircraft = config.side == Side::Aircraft;
            let place = if aircraft { Place::of_aircraft(path) } else { Place::of_ground(path) };
            let wrong = |error| GatewayError::Setup { what: format!("[path.{name}]"), error };
            let place = place.map_err(wrong)?;
            if !aircraft && !listeners.iter().any(|listener| listener.place == place) {
                let (place, first) = (place.clone(), PathId(number));
                listeners.push(Listener { place, first, open: None, index: 0, paused: None });
            }
            let remote = path.remote.clone().filter(|_| aircraft);
            paths.push(Path {
                name: name.clone(),
                place,
                remote: remote.map(|remote| Remote::new(now, remote)),
                used: None,
                local_addresses: None,
                backoff: Backoff::new(now),
                losses: DropCounters::default(),
            });
        }
        let (bundle, endpoints) = (Backoff::new(now), Endpoints::default());
        let streams = Vec::new();
        Ok(Self { paths, bundle, endpoints, listeners, streams, next: 0, next_check: now })
    }

    /// Connects, listens and disconnects according to interfaces, names and timers.
    pub fn refresh(
        &mut self,
        now: Instant,
        interfaces: &Interfaces,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) {
        self.next_check = now + CHECK_INTERVAL;
        self.listen(interfaces, tools);
        self.resume(now, tools);
        for number in 0..self.paths.len() {
            let id = PathId(number as u8);
            let Some(path) = self.paths.get_mut(number).promised("a path of this gateway") else {
                continue;
            };
            let Some(unchanged) = path.refresh(now, id, interfaces, tools, gateway) else {
                continue;
            };
            if !unchanged {
                self.close_streams(now, gateway, |connection| connection.path == Some(id));
                self.join_bundle(id, tools);
            }
        }
        self.close_streams(now, gateway, |connection| {
            connection.stream.is_stalled(now)
                || connection.path.is_none()
                    && now.since(connection.since) >= AUTHENTICATION_TIMEOUT
        });
        self.call(now, tools);
    }

    /// Time of the next check.
    pub fn due(&self) -> Instant {
        self.next_check
    }

    /// Handles the resolved name of the ground on a path.
    pub fn resolved(
        &mut self,
        now: Instant,
        path: u8,
        addresses: io::Result<Vec<SocketAddr>>,
        tools: &mut Tools,
    ) {
        let path = self.paths.get_mut(usize::from(path)).promised("a path of this gateway");
        let Some(remote) = path.and_then(|path| path.remote.as_mut()) else { return };
        remote.on_resolved(now, addresses, &mut tools.alarms);
        self.next_check = now;
    }

    /// Opens listeners, again if their interface has come back with another index.
    fn listen(&mut self, interfaces: &Interfaces, tools: &mut Tools) {
        for (listener, number) in self.listeners.iter_mut().zip(0..) {
            let Some(near) = listener.place.local else { continue };
            let found = listener.place.local_addresses(interfaces, None);
            let index = found.map_or(listener.index, |found| found.index);
            if listener.open.is_some() && index == listener.index {
                continue;
            }
            (listener.open, listener.paused, listener.index) = (None, None, index);
            let key = format!("listen {near}");
            let opened = make(near, true).and_then(|socket| {
                socket.set_reuse_address(true)?;
                listener.place.bind(&socket, near)?;
                socket.listen(64)?;
                tools.poller.watch(&socket, Source::Listener(number))?;
                Ok(socket.into())
            });
            match opened {
                Ok(socket) => {
                    listener.open = Some(socket);
                    tools.alarms.clear(&key);
                    if !near.ip().is_unspecified() && !near.ip().is_loopback() {
                        self.endpoints.prepare(&[(near.ip(), 0)], true, tools);
                    }
                }
                Err(error) => {
                    tools.alarms.raise(&key, format!("nobody can call {near}: {error}"));
                }
            }
        }
    }

    /// Connects on each path without a connection.
    fn call(&mut self, now: Instant, tools: &mut Tools) {
        for number in 0..self.paths.len() {
            let id = PathId(number as u8);
            let called = self.streams.iter().any(|connection| connection.path == Some(id));
            let Some(path) = self.paths.get_mut(number).promised("a path of this gateway") else {
                continue;
            };
            let (true, Some(to)) = (path.local_addresses.is_some(), path.used) else { continue };
            if called || now < path.backoff.at {
                continue;
            }
            path.backoff.failed(now);
            let stream = Stream::connect(now, self.next, &path.place, to, false, &tools.poller);
            self.keep(now, id, stream);
        }
        let called = self.streams.iter().any(|connection| connection.path == Some(BUNDLE));
        let connected = self.streams.iter().find(|connection| connection.stream.writable);
        let over = connected.and_then(|connection| connection.path).filter(|_| !called);
        let Some(over) = over.filter(|_| now >= self.bundle.at) else { return };
        let Some(path) = self.paths.get(over.index()) else { return };
        let Some(to) = path.used else { return };
        let others = self.paths.iter().filter(|path| path.name != self.name_of(over));
        let addresses: Vec<_> = others.filter_map(|other| other.endpoint(to)).collect();
        self.endpoints.prepare(&addresses, false, tools);
        self.bundle.failed(now);
        let stream = Stream::connect(now, self.next, &path.place, to, true, &tools.poller);
        self.keep(now, BUNDLE, stream);
    }

    /// Lets an open bundle use the address of a path whose interface has come back.
    fn join_bundle(&mut self, path: PathId, tools: &mut Tools) {
        let is_open = self.streams.iter().any(|connection| connection.path == Some(BUNDLE));
        let address = self.paths.get(path.index()).and_then(|path| path.endpoint(path.used?));
        if let Some(address) = address.filter(|_| is_open) {
            self.endpoints.prepare(&[address], false, tools);
        }
    }

    fn name_of(&self, path: PathId) -> &str {
        self.paths.get(path.index()).map_or("", |path| path.name.as_str())
    }

    fn keep(&mut self, now: Instant, path: PathId, stream: io::Result<Stream>) {
        match stream {
            Ok(stream) => {
                self.next = self.next.wrapping_add(1);
                let (path, socket) = (Some(path), path);
                self.streams.push(Connection { stream, path, socket, since: now });
            }
            Err(error) => {
                if let Some(path) = self.paths.get_mut(path.index()) {
                    path.losses.error = error.raw_os_error();
                }
            }
        }
    }

    /// Closes connections and notifies the gateway.
    fn close_streams(
        &mut self,
        now: Instant,
        gateway: &mut Gateway,
        mut ends: impl FnMut(&Connection) -> bool,
    ) {
        let Self { streams, paths, bundle, next_check, .. } = self;
        let mut gone = Vec::new();
        streams.retain(|connection| {
            let ends = ends(connection);
            gone.extend(connection.path.filter(|_| ends));
            !ends
        });
        for path in gone {
            let still = streams
                .iter()
                .any(|connection| connection.path == Some(path) && connection.stream.writable);
            gateway.set_writable(path, still);
            let backoff =
                paths.get_mut(path.index()).map_or(&mut *bundle, |path| &mut path.backoff);
            *next_check = (*next_check).min(backoff.at.max(now));
        }
    }

    /// Handles a ready network source.
    pub fn ready(&mut self, now: Instant, ready: Ready, tools: &mut Tools, gateway: &mut Gateway) {
        match ready.source {
            Source::Listener(number) => self.accept(now, number, tools),
            Source::Stream(number) => {
                let Some(at) =
                    self.streams.iter().position(|connection| connection.stream.number == number)
                else {
                    return;
                };
                if let Err(error) = self.serve(now, at, ready, tools, gateway) {
                    if let Some(path) = self.streams.get(at).and_then(|connection| connection.path)
                        && let Some(path) = self.paths.get_mut(path.index())
                    {
                        path.losses.error = error.raw_os_error().or(path.losses.error);
                    }
                    self.close_streams(now, gateway, |connection| {
                        connection.stream.number == number
                    });
                }
            }
            _ => {}
        }
    }

    fn serve(
        &mut self,
        now: Instant,
        at: usize,
        ready: Ready,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) -> io::Result<()> {
        let Some(connection) = self.streams.get_mut(at).promised("a stream of this gateway") else {
            return Ok(());
        };
        if ready.writable {
            connection.stream.has_room(now, &tools.poller)?;
            if let (true, Some(path)) = (connection.stream.writable, connection.path) {
                let backoff = self.paths.get_mut(path.index());
                backoff.map_or(&mut self.bundle, |path| &mut path.backoff).connected();
                gateway.set_writable(path, true);
                // The bundle is opened after the first path is established.
                self.next_check = now;
            }
        }
        if ready.readable {
            let (peer, socket) =
                (connection.stream.peer, connection.path.unwrap_or(connection.socket));
            let mut claimed = None;
            connection.stream.read(&mut tools.scratch, &mut |datagram| {
                if gateway.receive(now, peer, datagram, socket) {
                    claimed = gateway.path_of(datagram).or(claimed);
                }
            })?;
            if connection.path.is_none()
                && let Some(path) = claimed
            {
                connection.path = Some(path);
                gateway.set_writable(path, connection.stream.writable);
                // The aircraft uses the newest connection of a path.
                let newest = connection.stream.number;
                self.close_streams(now, gateway, |other| {
                    other.path == Some(path) && other.stream.number != newest
                });
            }
        }
        Ok(())
    }

    fn accept(&mut self, now: Instant, number: u8, tools: &mut Tools) {
        let Self { listeners, streams, next, .. } = self;
        let Some(listener) =
            listeners.get_mut(usize::from(number)).promised("a listener of a path")
        else {
            return;
        };
        let Some(open) = &listener.open else { return };
        let accepted = accept_all(open, 0, &mut |socket, peer| {
            let waiting: Vec<(usize, IpAddr)> = streams
                .iter()
                .enumerate()
                .filter(|(_, connection)| connection.path.is_none())
                .map(|(at, connection)| (at, connection.stream.peer.ip()))
                .collect();
            if waiting.len() >= MAX_UNAUTHENTICATED
                && let Some(at) = oldest_of_largest(&waiting)
            {
                streams.remove(at);
            }
            let socket = Socket::from(socket);
            if let Ok(stream) = Stream::accepted(now, *next, socket, peer, &tools.poller) {
                *next = next.wrapping_add(1);
                let socket = listener.first;
                streams.push(Connection { stream, path: None, socket, since: now });
            }
        });
        if !accepted && tools.poller.pause(open, Source::Listener(number)).is_ok() {
            listener.paused = Some(now + PAUSE);
        }
    }

    /// Resumes listeners whose pause has ended.
    fn resume(&mut self, now: Instant, tools: &Tools) {
        for (listener, number) in self.listeners.iter_mut().zip(0..) {
            if let Some(open) = &listener.open
                && listener.paused.is_some_and(|until| now >= until)
                && tools.poller.resume(open, Source::Listener(number)).is_ok()
            {
                listener.paused = None;
            }
        }
    }

    /// Sends a datagram: on the connection that carried the request, or on that of the path.
    pub fn send(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        bytes: &[u8],
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) {
        let path = outgoing.path;
        let asker = self.streams.iter().position(|connection| {
            connection.path.is_none()
                && outgoing.class.is_none()
                && connection.stream.peer == outgoing.to
        });
        let connection = asker
            .or_else(|| self.streams.iter().position(|connection| connection.path == Some(path)));
        let connection = connection.and_then(|at| self.streams.get_mut(at));
        let sent = match connection {
            None => Ok(Sent::Full),
            Some(connection) => {
                let sent = connection.stream.write(now, bytes, &tools.poller);
                if let (Some(path), false) = (connection.path, connection.stream.writable) {
                    gateway.set_writable(path, false);
                }
                sent.map_err(|_| connection.stream.number)
            }
        };
        let lost = sent != Ok(Sent::Whole);
        if let Err(number) = sent {
            self.close_streams(now, gateway, |connection| connection.stream.number == number);
        }
        if lost && let Some(path) = self.paths.get_mut(path.index()) {
            path.losses.unsent += 1;
        }
    }

    /// Returns the counters of the paths.
    pub fn edges(&mut self) -> Vec<PathCounters> {
        let Self { paths, streams, .. } = self;
        let open = |id: usize| {
            let id = PathId(id as u8);
            streams
                .iter()
                .any(|connection| connection.path == Some(id) && connection.stream.writable)
        };
        let numbered = paths.iter_mut().enumerate();
        numbered.map(|(id, path)| path.losses.edge(&path.name, open(id))).collect()
    }

    /// Removes the added endpoints.
    pub fn close(&mut self) {
        self.endpoints.remove();
    }
}

/// Returns the first connection of the source that has most, among connections from the oldest to the newest.
fn oldest_of_largest(waiting: &[(usize, IpAddr)]) -> Option<usize> {
    let count = |source| waiting.iter().filter(|(_, ip)| source_of(*ip) == source).count();
    // Of equal ones, the last is found.
    let largest = waiting.iter().rev().max_by_key(|(_, ip)| count(source_of(*ip)));
    largest.map(|(at, _)| *at)
}

impl Path {
    /// Returns the local address of the path towards `to`, with the index of its interface.
    fn endpoint(&self, to: SocketAddr) -> Option<(IpAddr, u32)> {
        let local_addresses = self.local_addresses.as_ref()?;
        let local = self.place.local.map(|local| local.ip());
        let mut candidates = local_addresses.addresses.iter().copied().chain(local);
        let address = candidates.find(|address| address.is_ipv4() == to.is_ipv4())?;
        (!address.is_loopback()).then_some((address, local_addresses.index))
    }

    /// Checks the interface and name of the path. Returns whether existing connections are still valid;
    /// `None` on the ground, which waits for connections.
    fn refresh(
        &mut self,
        now: Instant,
        id: PathId,
        interfaces: &Interfaces,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) -> Option<bool> {
        let remote = self.remote.as_mut()?;
        if remote.asks(now) {
            tools.names.ask(NameOwner::Path(id.0), &remote.name);
        }
        let place = &self.place;
        let used = place.choose(now, remote, self.used, gateway.is_heard(id), interfaces);
        let found = used.and_then(|used| place.local_addresses(interfaces, Some(used.ip())));
        let unchanged = used == self.used
            && match (&self.local_addresses, &found) {
                (Some(before), Some(now)) => before.is_kept_by(now),
                _ => false,
            };
        if used != self.used {
            self.used = used;
            gateway.set_remote(id, used);
        }
        if !unchanged && found.is_some() {
            self.backoff = Backoff::new(now);
            remote.ask_soon(now);
        }
        gateway.set_path_up(now, id, found.is_some());
        self.local_addresses = found;
        Some(unchanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_connections_makes_room_for_other_sources() {
        let ips = |texts: &[&str]| -> Vec<(usize, IpAddr)> {
            texts.iter().map(|text| text.parse().unwrap()).enumerate().collect()
        };
        let [flood, aircraft] = ["192.0.2.1", "198.51.100.7"];
        assert_eq!(oldest_of_largest(&ips(&[aircraft, flood, flood])), Some(1));
        assert_eq!(oldest_of_largest(&ips(&[flood, aircraft, "::ffff:192.0.2.1"])), Some(0));
        let network = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        assert_eq!(
            oldest_of_largest(&ips(&[aircraft, network[2], network[0], network[1]])),
            Some(2)
        );
        assert_eq!(oldest_of_largest(&ips(&[aircraft, flood])), Some(0));
        assert_eq!(oldest_of_largest(&[]), None);
    }
}
