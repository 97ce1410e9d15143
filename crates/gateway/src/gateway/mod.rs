//! One end of the link.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::{PathId, PathInfo, Role, TransportConfig};
use skybraid_units::{Duration, Instant};

use crate::class::ByClass;
use crate::config::{GatewayConfig, Network};
use crate::event::Event;
use crate::health::{Path, Validation};
use crate::hello::{Hello, Name};
use crate::link::{ClassLink, Connection};
use crate::session::{self, Sessions};
use crate::{Class, Random, Secrets, Side};

mod age;
mod channels;
mod control_limit;
mod deliveries;
mod handshakes;
mod local;
mod network;
mod path_set;
mod paths;
mod peer;
mod queues;
mod record;
mod rules;
mod session_status;
mod validation;
mod view;

use channels::{Channels, Kind};
use control_limit::ControlLimit;
use deliveries::Deliveries;
use handshakes::Handshakes;
use path_set::Paths;
use peer::Peer;
use record::Record;
use rules::Rules;
use session_status::SessionStatus;
use validation::Addresses;

/// Number of the MPTCP connection that carries all but control in TCP mode.
pub const BUNDLE: PathId = PathId(63);

/// One end of the link: local applications on one side, the networks on the other.
///
/// After any call that takes the time, a driver calls [`poll_send`](Self::poll_send) and
/// [`poll_local`](Self::poll_local) until they return `None`, and then calls
/// [`next_wakeup`](Self::next_wakeup) again.
pub struct Gateway {
    config: GatewayConfig,
    sessions: Sessions,
    /// State of the session, and the alarms about it.
    session: SessionStatus,
    /// What is known of the peer since its start.
    peer: Peer,
    paths: Paths,
    channels: Channels,
    classes: ByClass<ClassLink>,
    rules: Rules,
    control: ControlLimit,
    handshakes: Handshakes,
    addresses: Addresses,
    deliveries: Deliveries,
    record: Record,
    measure_at: Instant,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Path; [`BUNDLE`] for the MPTCP connection.
    pub path: PathId,
    /// Address; without meaning over TCP.
    pub to: SocketAddr,
    /// Class that it carries; `None` for handshakes and probes.
    pub class: Option<Class>,
}

impl core::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gateway").field("name", &self.config.name).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway that has just been started. Paths after the 62nd and channels after the 127th are ignored.
    pub fn new(
        now: Instant,
        config: &GatewayConfig,
        secrets: impl Into<Secrets>,
        random: Box<dyn Random>,
    ) -> Self {
        let Secrets { private, psk, signing } = secrets.into();
        let paths = config.path.iter().map(|(name, path)| Path::new(now, name, path));
        let paths = Paths::new(config.network, paths);
        let channels = Channels::new(config);
        let rules = Rules::new(config, signing);
        let hello = Hello {
            paths: paths.iter().map(|path| Name::from(path.name.as_str())).collect(),
            channels: channels.iter().map(|channel| Name::from(channel.name.as_str())).collect(),
            tun: rules.inner().own(),
        };
        let setup = session::Setup {
            side: config.side,
            private,
            peers: config.peer.0.clone(),
            psk,
            hello: hello.to_bytes(),
            rekey: config.session.rekey,
            lifetime: config.session.lifetime(),
        };
        let carriers = paths.len() + usize::from(config.network == Network::Tcp);
        let link = |class: Class| {
            let max_queue = config.class.transport(class).tx_queue() as usize;
            connect(config, &paths, class, |connection| {
                ClassLink::new(connection, max_queue, carriers)
            })
        };
        let mut gateway = Self {
            sessions: Sessions::new(now, setup, random),
            session: SessionStatus::default(),
            peer: Peer::default(),
            classes: ByClass::new(link),
            rules,
            control: ControlLimit::new(now),
            handshakes: Handshakes::default(),
            addresses: Addresses::default(),
            deliveries: Deliveries::default(),
            record: Record::new(now),
            measure_at: now,
            paths,
            channels,
            config: config.clone(),
        };
        gateway.refresh_usable();
        gateway
    }

    /// Replaces the connections of all classes after a restart of the peer.
    fn reconnect(&mut self) {
        for class in Class::ALL {
            let link = &mut self.classes[class];
            connect(&self.config, &self.paths, class, |connection| link.reconnect(connection));
        }
        self.peer = Peer::default();
        self.addresses.forget_held();
        self.paths.iter_mut().for_each(Path::forget_peer);
        self.refresh_usable();
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.record.poll_event()
    }

    /// Time of the next call of [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        let health = &self.config.health;
        let is_up = self.session.is_up();
        // What waits in them cannot leave without a session.
        let links = self.classes.iter().filter(|_| is_up).map(ClassLink::next_wakeup);
        let paths = self.paths.iter().map(|path| {
            let probe = if is_up { path.probe_at } else { Instant::FAR_FUTURE };
            // Challenges that cannot be sent need no wakeup.
            let validates = is_up && path.present;
            let validation = if validates { &path.validation } else { &Validation::IDLE };
            probe.min(path.watch.next_wakeup(health)).min(validation.next_wakeup())
        });
        let first = self.sessions.next_wakeup().min(self.measure_at);
        let first = first.min(self.peer.waiting.next_wakeup()).min(self.control_wakeup());
        links.chain(paths).fold(first, Instant::min)
    }

    /// Fires expired timers. An early call does no harm.
    pub fn wake(&mut self, now: Instant) {
        self.sessions.wake(now);
        self.settle_session(now);
        self.wake_paths(now);
        self.settle_addresses(now);
        self.watch_session_age(now);
        for class in Class::ALL {
            self.classes[class].wake(now);
            self.drain(now, class);
        }
        if now >= self.measure_at {
            self.measure_at = now + Duration::from_millis(200);
            self.paths.iter_mut().for_each(|path| path.traffic.measure(now));
            self.watch_round_trip(now);
            let loss_of =
                |id: PathId| self.paths.get(id).map_or(0.0, |path| path.reports.outgoing_loss());
            self.classes.iter_mut().for_each(|link| link.measure(now, loss_of));
            for class in Class::ALL {
                let link = &mut self.classes[class];
                let alarms = [link.take_forecast_alarm(), link.take_unanswered_alarm(now)];
                for text in alarms.into_iter().flatten() {
                    self.record.alarm(now, text);
                }
            }
        }
    }
}

/// Passes the connection of a class to `to`.
fn connect<T>(
    config: &GatewayConfig,
    paths: &Paths,
    class: Class,
    to: impl FnOnce(&Connection<'_>) -> T,
) -> T {
    let transport = config.class.transport(class);
    let (stream, bundle) = (TransportConfig::default(), [PathInfo::default()]);
    // Control uses every path, whatever the cost.
    let info = |path: &Path| {
        let info = path.info();
        PathInfo { backup: info.backup && class != Class::Control, ..info }
    };
    let infos: Vec<PathInfo> = paths.iter().map(info).collect();
    let bundled = config.network.bundles(class);
    to(&Connection {
        class,
        transport: if bundled { &stream } else { &transport },
        life: config.class.deadline(class),
        paths: if bundled { &bundle } else { &infos },
        role: match config.side {
            Side::Aircraft => Role::Client,
            Side::Ground => Role::Server,
        },
        repair: config.class.of(class).repair.filter(|_| config.network == Network::Udp),
    })
}
