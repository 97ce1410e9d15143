//! One end of the link.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::mutran::mavlink::Header;
use skybraid_transport::{PathId, PathInfo, PathSet, Role, TransportConfig};
use skybraid_units::{Duration, Instant};

use crate::class::ByClass;
use crate::config::{GatewayConfig, Network};
use crate::event::{Event, What};
use crate::health::validation::Message;
use crate::health::{Path, PeerClock, Validation};
use crate::hello::{Hello, Name};
use crate::inner::InnerAddresses;
use crate::link::{ClassLink, Connection};
use crate::order::{Order, Waiting};
use crate::policy::Policy;
use crate::rate_limiter::RateLimiter;
use crate::session::{self, Bucket, Sessions};
use crate::snapshot::RefusedSnapshot;
use crate::sources::Sources;
use crate::{ChannelId, Class, Random, Secrets, Side, SigningKey};

mod age;
mod channels;
mod local;
mod network;
mod path_set;
mod paths;
mod peer;
mod queues;
mod validation;
mod view;

use channels::{Channels, Kind};
use path_set::Paths;
use validation::Held;

/// Number of the MPTCP connection that carries all but control in TCP mode.
pub const BUNDLE: PathId = PathId(63);
/// Maximum number of pending events; the oldest are dropped first.
const EVENTS: usize = 1_000;
/// Maximum messages pending for local applications; a driver fetches them after each call.
const FETCHED: usize = 65_536;

/// Maximum spare buffers kept for reuse.
const MAX_SPARE: usize = 1_024;

/// One end of the link: local applications on one side, the networks on the other.
///
/// After any call that takes the time, a driver calls [`poll_send`](Self::poll_send) and
/// [`poll_local`](Self::poll_local) until they return `None`, and then calls
/// [`next_wakeup`](Self::next_wakeup) again.
pub struct Gateway {
    config: GatewayConfig,
    started: Instant,
    sessions: Sessions,
    paths: Paths,
    channels: Channels,
    classes: ByClass<ClassLink>,
    sources: Sources,
    limiter: RateLimiter,
    /// Last two sources of control.
    writers: [Option<queues::Writer>; 2],
    /// Max wait of a datagram for the driver, in this and the previous window, and start of this window.
    lag: ([Duration; 2], Instant),
    policy: Policy,
    /// Addresses allowed in packets of the TUN interface.
    inner: InnerAddresses,
    order: Order,
    signing: Option<SigningKey>,
    waiting: Waiting,
    clock: PeerClock,
    unknown_age: age::UnknownAge,
    /// Send time of the newest probe whose reports count, in microseconds modulo 2³².
    newest_report: Option<u32>,
    /// The MPTCP connection is writable (TCP mode).
    bundle_writable: bool,
    /// Reaction to silence of the peer.
    silence: Silence,
    session_up: bool,
    session_age: SessionAge,
    sessions_so_far: u64,
    peer_restarts: u64,
    /// The alarm about duplicates of the peer has been raised.
    duplicate_reported: bool,
    /// Handshake message for every path, and the remaining paths.
    handshake: (Vec<u8>, PathSet),
    /// Responses to challenges, and proofs, that wait to leave, each with its path.
    responses: VecDeque<(PathId, Message)>,
    /// Limit of the copies from other addresses that are examined.
    copies: Bucket,
    held: Held,
    /// Senders of the last handshakes, each with its socket.
    askers: VecDeque<(SocketAddr, PathId)>,
    local: VecDeque<(ChannelId, Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    events: VecDeque<Event>,
    refused: RefusedSnapshot,
    measure_at: Instant,
    /// Reused buffers.
    plain: Vec<u8>,
    whole: Vec<u8>,
}

/// Reaction to silence of the peer on all paths.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    reported: bool,
    renewed: Option<Instant>,
}

/// Alarms about the session's age that have been raised.
#[derive(Clone, Copy, Debug, Default)]
struct SessionAge {
    overdue: bool,
    expired: bool,
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
        let paths = Paths::new(config.path.iter().map(|(name, path)| Path::new(now, name, path)));
        let channels = Channels::new(config);
        let inner = InnerAddresses::new(config.tun.as_ref());
        let hello = Hello {
            paths: paths.iter().map(|path| Name::from(path.name.as_str())).collect(),
            channels: channels.iter().map(|channel| Name::from(channel.name.as_str())).collect(),
            tun: inner.own(),
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
            started: now,
            sessions: Sessions::new(now, setup, random),
            classes: ByClass::new(link),
            sources: Sources::default(),
            limiter: RateLimiter::default(),
            writers: [None; 2],
            lag: ([Duration::ZERO; 2], now),
            policy: Policy::new(&config.messages, &config.rule),
            inner,
            order: Order::default(),
            signing,
            waiting: Waiting::default(),
            clock: PeerClock::default(),
            unknown_age: age::UnknownAge::default(),
            newest_report: None,
            bundle_writable: false,
            silence: Silence::default(),
            session_up: false,
            session_age: SessionAge::default(),
            sessions_so_far: 0,
            peer_restarts: 0,
            duplicate_reported: false,
            handshake: (Vec::new(), PathSet::EMPTY),
            responses: VecDeque::new(),
            copies: Bucket::per_second(validation::COPIES),
            held: Held::default(),
            askers: VecDeque::new(),
            local: VecDeque::new(),
            spare: Vec::new(),
            events: VecDeque::new(),
            refused: RefusedSnapshot::default(),
            measure_at: now,
            plain: Vec::new(),
            whole: Vec::new(),
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
        self.order = Order::default();
        self.waiting = Waiting::default();
        self.clock = PeerClock::default();
        self.unknown_age = age::UnknownAge::default();
        self.newest_report = None;
        self.held = Held::default();
        self.paths.iter_mut().for_each(Path::forget_peer);
        self.refresh_usable();
    }

    /// Records an event for [`poll_event`](Self::poll_event).
    fn record_event(&mut self, at: Instant, what: What) {
        if self.events.len() >= EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event { at, what });
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time of the next call of [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        let health = &self.config.health;
        let links = self.classes.iter().map(ClassLink::next_wakeup);
        let paths = self.paths.iter().map(|path| {
            let probe = if self.session_up { path.probe_at } else { Instant::FAR_FUTURE };
            // Challenges that cannot be sent need no wakeup.
            let validates = self.session_up && path.present;
            let validation = if validates { &path.validation } else { &Validation::IDLE };
            probe.min(path.watch.next_wakeup(health)).min(validation.next_wakeup())
        });
        let first = self.sessions.next_wakeup().min(self.measure_at);
        let first = first.min(self.waiting.next_wakeup()).min(self.limiter_wakeup());
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
            self.paths.iter_mut().for_each(|path| path.measure(now));
            self.watch_round_trip(now);
            let loss_of = |id: PathId| self.paths.get(id).map_or(0.0, Path::outgoing_loss);
            self.classes.iter_mut().for_each(|link| link.measure(now, loss_of));
            for class in Class::ALL {
                let link = &mut self.classes[class];
                let alarms = [link.take_forecast_alarm(), link.take_unanswered_alarm(now)];
                for text in alarms.into_iter().flatten() {
                    self.record_event(now, What::Alarm { text });
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
    let bundled = config.network == Network::Tcp && class != Class::Control;
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

/// Parses the header of a frame that fills `bytes` exactly.
fn frame_header(bytes: &[u8]) -> Option<Header> {
    Header::parse(bytes).ok().filter(|header| header.frame() == bytes.len())
}
