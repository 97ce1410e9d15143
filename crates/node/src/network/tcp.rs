//! Transport for networks that block UDP: control over one TCP connection per path, everything else over one
//! of MPTCP.
//!
//! The aircraft connects to the ground. The ground learns the path of a connection from the first authentic
//! datagram on it; until then only handshakes are answered on it.

use std::io;
use std::net::{SocketAddr, TcpListener};

use skybraid_gateway::config::GatewayConfig;
use skybraid_gateway::gateway::{BUNDLE, Outgoing};
use skybraid_gateway::{Gateway, Side};
use skybraid_transport::PathId;
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};
use socket2::Socket;

use super::Losses;
use super::bundle::Endpoints;
use super::place::{Footing, Place, Remote};
use super::stream::{Stream, Taken, make};
use crate::accept::{PAUSE, accept_all};
use crate::interfaces::Interfaces;
use crate::names::Whose;
use crate::poller::{Ready, Source};
use crate::tools::Tools;
use crate::{GatewayError, PathEdge};

/// Interval at which interfaces, listeners and stalled connections are checked.
const LOOK: Duration = Duration::from_millis(250);
/// Delay before reconnecting: initial and maximum.
const BACK_OFF: Duration = Duration::from_millis(250);
const MAX_BACK_OFF: Duration = Duration::from_secs(2);
/// Maximum unauthenticated connections, and their timeout.
const MAX_STRANGERS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);

/// TCP streams of all paths.
pub struct Streams {
    paths: Vec<Path>,
    bundle: Calls,
    endpoints: Endpoints,
    listeners: Vec<Listener>,
    streams: Vec<Known>,
    next: u32,
    look: Instant,
}

/// State of a path, indexed by its number.
struct Path {
    name: String,
    place: Place,
    remote: Option<Remote>,
    used: Option<SocketAddr>,
    footing: Option<Footing>,
    calls: Calls,
    losses: Losses,
}

/// Time of the next call.
struct Calls {
    at: Instant,
    wait: Duration,
}

/// A listening address of the ground.
struct Listener {
    place: Place,
    first: PathId,
    open: Option<TcpListener>,
    /// End of the pause in accepting, due to a lack of descriptors.
    paused: Option<Instant>,
}

struct Known {
    stream: Stream,
    /// Path whose control the stream carries, or [`BUNDLE`]; `None` while unknown.
    path: Option<PathId>,
    /// First path of the listener that accepted the stream.
    socket: PathId,
    since: Instant,
}

impl Calls {
    const fn new(now: Instant) -> Self {
        Self { at: now, wait: BACK_OFF }
    }

    fn failed(&mut self, now: Instant) {
        self.at = now + self.wait;
        self.wait = (self.wait + self.wait).min(MAX_BACK_OFF);
    }

    fn answered(&mut self) {
        self.wait = BACK_OFF;
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
                listeners.push(Listener { place, first, open: None, paused: None });
            }
            let remote = path.remote.clone().filter(|_| aircraft);
            paths.push(Path {
                name: name.clone(),
                place,
                remote: remote.map(|remote| Remote::new(now, remote)),
                used: None,
                footing: None,
                calls: Calls::new(now),
                losses: Losses::default(),
            });
        }
        let (bundle, endpoints) = (Calls::new(now), Endpoints::default());
        let streams = Vec::new();
        Ok(Self { paths, bundle, endpoints, listeners, streams, next: 0, look: now })
    }

    /// Connects, listens and disconnects according to interfaces, names and timers.
    pub fn look(
        &mut self,
        now: Instant,
        interfaces: &Interfaces,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) {
        self.look = now + LOOK;
        self.listen(tools);
        self.resume(now, tools);
        for number in 0..self.paths.len() {
            let id = PathId(number as u8);
            let Some(path) = self.paths.get_mut(number).promised("a path of this gateway") else {
                continue;
            };
            let Some(stands) = path.look(now, id, interfaces, tools, gateway) else { continue };
            if !stands {
                self.hang_up(now, gateway, |known| known.path == Some(id));
            }
        }
        self.hang_up(now, gateway, |known| {
            known.stream.is_stalled(now)
                || known.path.is_none() && now.since(known.since) >= PATIENCE
        });
        self.call(now, tools);
    }

    /// Time of the next look.
    pub fn due(&self) -> Instant {
        self.look
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
        self.look = now;
    }

    fn listen(&mut self, tools: &mut Tools) {
        let closed = self.listeners.iter_mut().zip(0..).filter(|(it, _)| it.open.is_none());
        for (listener, number) in closed {
            let Some(near) = listener.place.local else { continue };
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
            let called = self.streams.iter().any(|known| known.path == Some(id));
            let Some(path) = self.paths.get_mut(number).promised("a path of this gateway") else {
                continue;
            };
            let (true, Some(to)) = (path.footing.is_some(), path.used) else { continue };
            if called || now < path.calls.at {
                continue;
            }
            path.calls.failed(now);
            let stream = Stream::call(now, self.next, &path.place, to, false, &tools.poller);
            self.keep(now, id, stream);
        }
        let called = self.streams.iter().any(|known| known.path == Some(BUNDLE));
        let connected = self.streams.iter().find(|known| known.stream.writable);
        let over = connected.and_then(|known| known.path).filter(|_| !called);
        let Some(over) = over.filter(|_| now >= self.bundle.at) else { return };
        let Some(path) = self.paths.get(over.index()) else { return };
        let Some(to) = path.used else { return };
        let others = self.paths.iter().filter(|path| path.name != self.name_of(over));
        let addresses: Vec<_> = others
            .filter_map(|other| {
                let footing = other.footing.as_ref()?;
                let local = other.place.local.map(|local| local.ip());
                let mut known = footing.addresses.iter().copied().chain(local);
                let address = known.find(|address| address.is_ipv4() == to.is_ipv4())?;
                (!address.is_loopback()).then_some((address, footing.index))
            })
            .collect();
        self.endpoints.prepare(&addresses, false, tools);
        self.bundle.failed(now);
        let stream = Stream::call(now, self.next, &path.place, to, true, &tools.poller);
        self.keep(now, BUNDLE, stream);
    }

    fn name_of(&self, path: PathId) -> &str {
        self.paths.get(path.index()).map_or("", |path| path.name.as_str())
    }

    fn keep(&mut self, now: Instant, path: PathId, stream: io::Result<Stream>) {
        match stream {
            Ok(stream) => {
                self.next = self.next.wrapping_add(1);
                let (path, socket) = (Some(path), path);
                self.streams.push(Known { stream, path, socket, since: now });
            }
            Err(error) => {
                if let Some(path) = self.paths.get_mut(path.index()) {
                    path.losses.error = error.raw_os_error();
                }
            }
        }
    }

    /// Closes connections and notifies the gateway.
    fn hang_up(
        &mut self,
        now: Instant,
        gateway: &mut Gateway,
        mut ends: impl FnMut(&Known) -> bool,
    ) {
        let Self { streams, paths, bundle, look, .. } = self;
        let mut gone = Vec::new();
        streams.retain(|known| {
            let ends = ends(known);
            gone.extend(known.path.filter(|_| ends));
            !ends
        });
        for path in gone {
            let still = streams.iter().any(|it| it.path == Some(path) && it.stream.writable);
            gateway.set_writable(path, still);
            let calls = paths.get_mut(path.index()).map_or(&mut *bundle, |path| &mut path.calls);
            *look = (*look).min(calls.at.max(now));
        }
    }

    /// Handles a ready network source.
    pub fn ready(&mut self, now: Instant, ready: Ready, tools: &mut Tools, gateway: &mut Gateway) {
        match ready.source {
            Source::Listener(number) => self.accept(now, number, tools),
            Source::Stream(number) => {
                let Some(at) = self.streams.iter().position(|it| it.stream.number == number) else {
                    return;
                };
                if let Err(error) = self.serve(now, at, ready, tools, gateway) {
                    if let Some(path) = self.streams.get(at).and_then(|known| known.path)
                        && let Some(path) = self.paths.get_mut(path.index())
                    {
                        path.losses.error = error.raw_os_error().or(path.losses.error);
                    }
                    self.hang_up(now, gateway, |known| known.stream.number == number);
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
        let Some(known) = self.streams.get_mut(at).promised("a connection that is known") else {
            return Ok(());
        };
        if ready.writable {
            known.stream.has_room(now, &tools.poller)?;
            if let (true, Some(path)) = (known.stream.writable, known.path) {
                let calls = self.paths.get_mut(path.index());
                calls.map_or(&mut self.bundle, |path| &mut path.calls).answered();
                gateway.set_writable(path, true);
                // The bundle is opened after the first path is established.
                self.look = now;
            }
        }
        if ready.readable {
            let (peer, socket) = (known.stream.peer, known.path.unwrap_or(known.socket));
            let mut claimed = None;
            known.stream.read(&mut tools.scratch, &mut |datagram| {
                if gateway.receive(now, peer, datagram, socket) {
                    claimed = gateway.path_of(datagram).or(claimed);
                }
            })?;
            if known.path.is_none()
                && let Some(path) = claimed
            {
                known.path = Some(path);
                gateway.set_writable(path, known.stream.writable);
                // The aircraft uses the newest connection of a path.
                let newest = known.stream.number;
                self.hang_up(now, gateway, |other| {
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
        let accepted = accept_all(open, &mut |socket, peer| {
            let strangers = streams.iter().filter(|known| known.path.is_none()).count();
            if strangers >= MAX_STRANGERS {
                return;
            }
            let socket = Socket::from(socket);
            if let Ok(stream) = Stream::accepted(now, *next, socket, peer, &tools.poller) {
                *next = next.wrapping_add(1);
                let socket = listener.first;
                streams.push(Known { stream, path: None, socket, since: now });
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
        let asker = self.streams.iter().position(|known| {
            known.path.is_none() && outgoing.class.is_none() && known.stream.peer == outgoing.to
        });
        let known = asker.or_else(|| self.streams.iter().position(|it| it.path == Some(path)));
        let known = known.and_then(|at| self.streams.get_mut(at));
        let taken = match known {
            None => Ok(Taken::Full),
            Some(known) => {
                let taken = known.stream.write(now, bytes, &tools.poller);
                if let (Some(path), false) = (known.path, known.stream.writable) {
                    gateway.set_writable(path, false);
                }
                taken.map_err(|_| known.stream.number)
            }
        };
        let lost = taken != Ok(Taken::Whole);
        if let Err(number) = taken {
            self.hang_up(now, gateway, |known| known.stream.number == number);
        }
        if lost && let Some(path) = self.paths.get_mut(path.index()) {
            path.losses.unsent += 1;
        }
    }

    /// Returns the counters of the paths.
    pub fn edges(&self) -> Vec<PathEdge> {
        let open = |id: usize| {
            let id = PathId(id as u8);
            self.streams.iter().any(|known| known.path == Some(id) && known.stream.writable)
        };
        let numbered = self.paths.iter().enumerate();
        numbered.map(|(id, path)| path.losses.edge(&path.name, open(id))).collect()
    }

    /// Removes the added endpoints.
    pub fn close(&mut self) {
        self.endpoints.remove();
    }
}

impl Path {
    /// Checks the interface and name of the path. Returns whether existing connections are still valid;
    /// `None` on the ground, which waits for connections.
    fn look(
        &mut self,
        now: Instant,
        id: PathId,
        interfaces: &Interfaces,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) -> Option<bool> {
        let remote = self.remote.as_mut()?;
        if remote.asks(now) {
            tools.names.ask(Whose::Path(id.0), &remote.name);
        }
        let place = &self.place;
        let fits = |address| place.near(address).is_some();
        let footing = |address: SocketAddr| place.footing(interfaces, Some(address.is_ipv4()));
        let reaches = |address| fits(address) && footing(address).is_some();
        let used = remote.choose(self.used, reaches).or_else(|| remote.choose(self.used, fits));
        let found = used.and_then(footing);
        let stands = used == self.used
            && match (&self.footing, &found) {
                (Some(before), Some(now)) => before.holds_on(now),
                _ => false,
            };
        if used != self.used {
            self.used = used;
            gateway.set_remote(id, used);
        }
        if !stands && found.is_some() {
            self.calls = Calls::new(now);
            remote.ask_soon(now);
        }
        gateway.set_path_up(now, id, found.is_some());
        self.footing = found;
        Some(stands)
    }
}
