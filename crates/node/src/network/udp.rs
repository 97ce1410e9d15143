//! UDP transport: one socket per path of the aircraft, one per listening address of the ground.

use std::io;
use std::net::SocketAddr;

use skybraid_gateway::config::GatewayConfig;
use skybraid_gateway::gateway::Outgoing;
use skybraid_gateway::{Gateway, Side};
use skybraid_transport::PathId;
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};
use socket2::Socket;

use super::place::{LocalAddresses, Place};
use super::{DropCounters, traffic_class};
use crate::arrival::Drained;
use crate::interfaces::Interfaces;
use crate::names::NameOwner;
use crate::poller::{Ready, Source};
use crate::remote::Remote;
use crate::tools::Tools;
use crate::{GatewayError, PathCounters};
use skybraid_io::batch::{Outbox, overflowed};

/// Interval at which a socket that cannot be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// UDP sockets of all paths.
pub struct Sockets {
    paths: Vec<Path>,
    bindings: Vec<Binding>,
    retry: Instant,
}

/// State of a path, indexed by its number.
struct Path {
    name: String,
    /// Index of the path's binding.
    binding: usize,
    losses: DropCounters,
}

/// A socket that is open or must be opened.
struct Binding {
    place: Place,
    /// Address of the ground; aircraft only.
    remote: Option<Remote>,
    /// Current address of the ground.
    used: Option<SocketAddr>,
    /// First path of the binding.
    first: PathId,
    open: Option<Open>,
    outbox: Outbox,
}

struct Open {
    socket: Socket,
    near: SocketAddr,
    local_addresses: LocalAddresses,
    drained: Drained,
}

impl Sockets {
    /// Creates the paths without opening them.
    ///
    /// # Errors
    /// A configured address is invalid.
    pub fn new(now: Instant, config: &GatewayConfig) -> Result<Self, GatewayError> {
        let (mut paths, mut bindings) = (Vec::new(), Vec::<Binding>::new());
        for (number, (name, path)) in (0..).zip(&config.path) {
            let (place, remote) = match config.side {
                Side::Aircraft => (Place::of_aircraft(path), path.remote.clone()),
                Side::Ground => (Place::of_ground(path), None),
            };
            let wrong = |error| GatewayError::Setup { what: format!("[path.{name}]"), error };
            let place = place.map_err(wrong)?;
            // Paths of the ground may share a socket.
            let shared = bindings
                .iter()
                .position(|binding| config.side == Side::Ground && binding.place == place);
            let binding = shared.unwrap_or(bindings.len());
            if shared.is_none() {
                bindings.push(Binding {
                    place,
                    remote: remote.map(|remote| Remote::new(now, remote)),
                    used: None,
                    first: PathId(number),
                    open: None,
                    outbox: Outbox::default(),
                });
            }
            paths.push(Path { name: name.clone(), binding, losses: DropCounters::default() });
        }
        Ok(Self { paths, bindings, retry: now })
    }

    /// Opens and closes sockets according to interfaces and names.
    pub fn refresh(
        &mut self,
        now: Instant,
        interfaces: &Interfaces,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) {
        self.retry = now + RETRY;
        for (number, binding) in self.bindings.iter_mut().enumerate() {
            let source = Source::Socket(number as u8);
            let name = self.paths.get(binding.first.index()).map_or("", |path| path.name.as_str());
            if let Some(remote) = binding.remote.as_mut()
                && remote.asks(now)
            {
                tools.names.ask(NameOwner::Path(binding.first.0), &remote.name);
            }
            let heard = gateway.is_heard(binding.first);
            let used = binding.remote.as_mut().and_then(|remote| {
                binding.place.choose(now, remote, binding.used, heard, interfaces)
            });
            if used != binding.used {
                binding.used = used;
                gateway.set_remote(binding.first, used);
            }
            let was_open = binding.open.is_some();
            let changed = match binding.reopen(interfaces, source, tools) {
                Ok(changed) => {
                    tools.alarms.clear(name);
                    changed
                }
                Err(error) => {
                    tools.alarms.raise(name, format!("path `{name}` has no socket: {error}"));
                    was_open
                }
            };
            let is_open = binding.open.is_some();
            if !was_open
                && is_open
                && let Some(remote) = binding.remote.as_mut()
            {
                remote.ask_soon(now);
            }
            let numbered = (0..).zip(&self.paths).filter(|(_, path)| path.binding == number);
            for (path, _) in numbered {
                if changed && was_open && is_open {
                    // The state learned on the old socket does not apply to the new one.
                    gateway.set_path_up(now, PathId(path), false);
                }
                gateway.set_path_up(now, PathId(path), is_open);
            }
        }
    }

    /// Time of the next look.
    pub fn due(&self) -> Instant {
        self.retry
    }

    /// Handles the resolved name of the ground on a path.
    pub fn resolved(
        &mut self,
        now: Instant,
        path: u8,
        addresses: io::Result<Vec<SocketAddr>>,
        tools: &mut Tools,
    ) {
        let binding = self.bindings.iter_mut().find(|binding| binding.first == PathId(path));
        let Some(remote) = binding.and_then(|binding| binding.remote.as_mut()) else { return };
        remote.on_resolved(now, addresses, &mut tools.alarms);
        self.retry = now;
    }

    /// Receives a batch of datagrams. Returns true if there may be more.
    pub fn ready(
        &mut self,
        now: Instant,
        ready: Ready,
        tools: &mut Tools,
        gateway: &mut Gateway,
    ) -> bool {
        let Source::Socket(number) = ready.source else { return false };
        let binding = self.bindings.get_mut(usize::from(number));
        let Some(Binding { open: Some(open), first, .. }) = binding else { return false };
        tools.take(&open.socket, &mut open.drained, &mut |taken| {
            if let Some(source) = taken.source {
                gateway.receive_at(now, taken.arrived_by, source, taken.bytes, *first);
            }
        })
    }

    /// Queues a datagram for [`flush`](Self::flush); leaves another buffer in `bytes`.
    pub fn send(&mut self, outgoing: &Outgoing, bytes: &mut Vec<u8>) {
        let path = self.paths.get_mut(outgoing.path.index()).promised("a path of this gateway");
        let binding = path
            .and_then(|path| self.bindings.get_mut(path.binding).promised("a socket of a path"));
        let Some(binding) = binding else { return };
        let class = traffic_class(outgoing.class);
        binding.outbox.swap_in(bytes, outgoing.to, class, outgoing.path.0);
        if binding.outbox.is_full() {
            binding.flush(&mut self.paths);
        }
    }

    /// Sends all queued datagrams.
    pub fn flush(&mut self) {
        self.bindings.iter_mut().for_each(|binding| binding.flush(&mut self.paths));
    }

    /// Returns the counters of the paths.
    pub fn edges(&mut self) -> Vec<PathCounters> {
        let Self { bindings, paths, .. } = self;
        let edge = |(number, path): (u8, &mut Path)| {
            let binding = bindings.get(path.binding).promised("a socket of a path");
            let open = binding.and_then(|binding| binding.open.as_ref());
            let owns = binding.is_some_and(|binding| binding.first == PathId(number));
            let unread = open.filter(|_| owns).map_or(0, |open| overflowed(&open.socket));
            PathCounters { unread: unread.into(), ..path.losses.edge(&path.name, open.is_some()) }
        };
        (0..).zip(paths.iter_mut()).map(edge).collect()
    }
}

impl Binding {
    /// Opens a socket if its interface and address exist; returns true if it is new.
    fn reopen(
        &mut self,
        interfaces: &Interfaces,
        source: Source,
        tools: &Tools,
    ) -> io::Result<bool> {
        // An aircraft's socket has the address family of the ground's address.
        let (near, far) = match (&self.remote, self.used) {
            (Some(_), Some(used)) => (self.place.near(used), Some(used.ip())),
            (Some(_), None) => (None, None),
            (None, _) => (self.place.local, None),
        };
        let local_addresses = near.and_then(|_| self.place.local_addresses(interfaces, far));
        let (Some(near), Some(local_addresses)) = (near, local_addresses) else {
            self.open = None;
            return Ok(false);
        };
        if let Some(open) = &mut self.open
            && open.near == near
            && open.local_addresses.is_kept_by(&local_addresses)
        {
            open.local_addresses = local_addresses;
            return Ok(false);
        }
        self.open = None;
        let socket = self.place.udp(near)?;
        tools.poller.watch(&socket, source)?;
        self.open = Some(Open { socket, near, local_addresses, drained: tools.drained() });
        Ok(true)
    }

    fn flush(&mut self, paths: &mut [Path]) {
        if self.outbox.is_empty() {
            return;
        }
        let mut note = |mark: u8, errno| {
            if let Some(path) = paths.get_mut(usize::from(mark)).promised("a path of this gateway")
            {
                path.losses.note(errno);
            }
        };
        match &self.open {
            Some(open) => self.outbox.send(&open.socket, &mut note),
            None => {
                self.outbox.clear();
            }
        }
    }
}
