//! One end of the link as a whole.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_traffic::video::keys::KeyFrames;
use skybraid_traffic::video::protect::Duplicate;
use skybraid_transport::mutran::mavlink::Header;
use skybraid_transport::{PathId, PathInfo, PathSet, Role, TransportConfig};
use skybraid_units::{Duration, Instant};

use crate::carrier::Carrier;
use crate::config::{GatewayConfig, MAVLINK, Network, TUN};
use crate::event::{Event, What};
use crate::health::{Path, PeerClock};
use crate::hello::Hello;
use crate::mend::{Mender, Protector};
use crate::message::{Cutter, Joiner};
use crate::order::{Order, Waiting};
use crate::policy::Policy;
use crate::session::{self, Sessions};
use crate::snapshot::RefusedSnapshot;
use crate::stats::ClassStats;
use crate::{ChannelId, Class, PrivateKey, Random, Side};

mod local;
mod network;
mod paths;
mod shown;

/// The number of the MPTCP connection that carries everything but control in TCP mode.
pub const BUNDLE: PathId = PathId(63);
/// Events that wait to be fetched; more are dropped, the oldest first.
const EVENTS: usize = 1_000;
/// Messages for local applications that wait to be fetched; a driver fetches them after each call.
const FETCHED: usize = 65_536;

/// One end of the link: local applications on one side, the networks on the other.
///
/// After any call that takes the time, a driver calls [`poll_send`](Self::poll_send) and
/// [`poll_local`](Self::poll_local) until they answer `None`, and then asks
/// [`next_wakeup`](Self::next_wakeup) again.
pub struct Gateway {
    config: GatewayConfig,
    started: Instant,
    sessions: Sessions,
    paths: Vec<Path>,
    /// For each path its number on the wire, and the other way round.
    wire: Vec<Option<u8>>,
    paths_by_wire: [Option<PathId>; PathSet::CAPACITY],
    channels: Vec<Channel>,
    channels_by_wire: Vec<Option<ChannelId>>,
    carriers: Vec<Carrier>,
    cutters: Vec<Cutter>,
    joiners: Vec<Joiner>,
    /// By class, of those that have repair packets.
    protectors: Vec<Option<Protector>>,
    menders: Vec<Mender>,
    stats: Vec<ClassStats>,
    policy: Policy,
    order: Order,
    waiting: Waiting,
    clock: PeerClock,
    /// When the newest probe had left whose reports were heeded, in microseconds modulo 2³².
    newest_report: Option<u32>,
    /// The MPTCP connection has room (TCP mode).
    bundle_writable: bool,
    /// What the peer's silence has led to.
    silence: Silence,
    session_up: bool,
    sessions_so_far: u64,
    peer_restarts: u64,
    /// A handshake that leaves on every path, and the paths on which it still has to.
    handshake: (Vec<u8>, PathSet),
    /// Who asked last, and by which socket.
    askers: VecDeque<(SocketAddr, PathId)>,
    local: VecDeque<(ChannelId, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    events: VecDeque<Event>,
    refused: RefusedSnapshot,
    measure_at: Instant,
    /// Reused buffers.
    plain: Vec<u8>,
    whole: Vec<u8>,
}

/// A way by which local applications reach the gateway.
#[derive(Debug)]
struct Channel {
    name: String,
    kind: Kind,
    /// Of a port of a class of which key frames leave on every path.
    keys: Option<KeyFrames>,
    wire: Option<u8>,
    written: u64,
    delivered: u64,
}

/// What comes by a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mavlink,
    Packets,
    Datagrams(Class),
}

/// What the peer's silence on all paths has led to.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    told: bool,
    renewed: Option<Instant>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// By which path; [`BUNDLE`] for the MPTCP connection.
    pub path: PathId,
    /// To whom; of no meaning over TCP.
    pub to: SocketAddr,
    /// What it carries; `None` for handshakes and signs of life.
    pub class: Option<Class>,
}

impl core::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gateway").field("name", &self.config.name).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway that has just been started. Of more than 62 paths or 127 channels the rest is ignored.
    pub fn new(
        now: Instant,
        config: &GatewayConfig,
        private: PrivateKey,
        random: Box<dyn Random>,
    ) -> Self {
        let most_paths = PathSet::CAPACITY - 2;
        let paths: Vec<Path> = config
            .path
            .iter()
            .take(most_paths)
            .map(|(name, path)| Path::new(now, name, path))
            .collect();
        let kind = |name: &str| match name {
            MAVLINK => Kind::Mavlink,
            TUN => Kind::Packets,
            _ => Kind::Datagrams(config.udp.get(name).map_or(Class::Bulk, |port| port.class)),
        };
        let keys = |name: &str| {
            let port = config.udp.get(name)?;
            let duplicate = config.class.of(port.class).duplicate;
            (duplicate == Some(Duplicate::Keys)).then(|| KeyFrames::new(port.codec))
        };
        let channels: Vec<Channel> = config
            .channels()
            .into_iter()
            .take(127)
            .map(|name| {
                let (kind, keys) = (kind(&name), keys(&name));
                Channel { name, kind, keys, wire: None, written: 0, delivered: 0 }
            })
            .collect();
        let hello = Hello {
            paths: paths.iter().map(|path| path.name.clone()).collect(),
            channels: channels.iter().map(|channel| channel.name.clone()).collect(),
        };
        let setup = session::Setup {
            side: config.side,
            private,
            peer: config.peer,
            hello: hello.to_bytes(),
            rekey: config.session.rekey,
        };
        let carriers = paths.len() + usize::from(config.network == Network::Tcp);
        let mut gateway = Self {
            started: now,
            sessions: Sessions::new(now, setup, random),
            wire: alloc::vec![None; paths.len()],
            paths_by_wire: [None; PathSet::CAPACITY],
            channels_by_wire: Vec::new(),
            carriers: Vec::new(),
            cutters: Vec::new(),
            joiners: Vec::new(),
            protectors: Vec::new(),
            menders: Vec::new(),
            stats: Class::ALL.map(|class| ClassStats::new(class, carriers)).into(),
            policy: Policy::new(&config.messages, &config.rule),
            order: Order::default(),
            waiting: Waiting::default(),
            clock: PeerClock::default(),
            newest_report: None,
            bundle_writable: false,
            silence: Silence::default(),
            session_up: false,
            sessions_so_far: 0,
            peer_restarts: 0,
            handshake: (Vec::new(), PathSet::EMPTY),
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
        gateway.begin_anew();
        gateway
    }

    /// Connections of all classes begin anew, since the peer has.
    fn begin_anew(&mut self) {
        let role = match self.config.side {
            Side::Aircraft => Role::Client,
            Side::Ground => Role::Server,
        };
        let infos: Vec<PathInfo> = self.paths.iter().map(Path::info).collect();
        // Every path carries control, whatever it costs.
        let regular = |info: &PathInfo| PathInfo { backup: false, ..*info };
        let regular: Vec<PathInfo> = infos.iter().map(regular).collect();
        let carrier = |class: Class| {
            let classes = &self.config.class;
            let (transport, life) = (classes.transport(class), classes.deadline(class));
            match (self.config.network, class) {
                (_, Class::Control) => Carrier::new(class, &transport, life, &regular, role),
                (Network::Udp, _) => Carrier::new(class, &transport, life, &infos, role),
                (Network::Tcp, _) => {
                    let stream = TransportConfig::default();
                    Carrier::new(class, &stream, life, &[PathInfo::default()], role)
                }
            }
        };
        self.carriers = Class::ALL.map(carrier).into();
        self.cutters = Class::ALL.map(|_| Cutter::default()).into();
        self.joiners = Class::ALL.map(|_| Joiner::default()).into();
        let repair = |class: Class| {
            let repair = self.config.class.of(class).repair?;
            (self.config.network == Network::Udp).then(|| Protector::new(repair))
        };
        self.protectors = Class::ALL.map(repair).into();
        self.menders = Class::ALL.map(|_| Mender::default()).into();
        self.order = Order::default();
        self.waiting = Waiting::default();
        self.clock = PeerClock::default();
        self.newest_report = None;
        self.paths.iter_mut().for_each(Path::forget_peer);
        self.refresh_usable();
    }

    /// A session stands: at the start, after a change of keys, after a restart of the peer.
    fn session_stands(&mut self, now: Instant, hello: &[u8], restarted: bool) {
        self.session_up = true;
        self.sessions_so_far += 1;
        self.tell(now, What::Session { restarted });
        if restarted {
            self.peer_restarts += u64::from(self.sessions_so_far > 1);
            self.match_names(now, hello);
            self.begin_anew();
        }
        self.paths.iter_mut().for_each(Path::restart_numbers);
        self.probe_at_once(now);
    }

    /// Numbers on the wire are the aircraft's: its paths and channels in the order of its file.
    fn match_names(&mut self, now: Instant, hello: &[u8]) {
        let Some(peer) = Hello::read(hello) else {
            let text = "the peer speaks another version of the protocol";
            return self.tell(now, What::Alarm { text: text.into() });
        };
        let aircraft_is_here = self.config.side == Side::Aircraft;
        let number = |here: usize, name: &str, theirs: &[String]| {
            let there = theirs.iter().position(|other| other == name);
            if aircraft_is_here { there.map(|_| here) } else { there }
        };
        self.paths_by_wire = [None; PathSet::CAPACITY];
        for (here, path) in self.paths.iter().enumerate() {
            let wire =
                number(here, &path.name, &peer.paths).and_then(|wire| u8::try_from(wire).ok());
            let place = wire.and_then(|wire| self.paths_by_wire.get_mut(usize::from(wire)));
            if let Some(place) = place {
                *place = Some(PathId(here as u8));
            }
            if let Some(mine) = self.wire.get_mut(here) {
                *mine = wire;
            }
        }
        self.channels_by_wire = alloc::vec![None; 128];
        for (here, channel) in self.channels.iter_mut().enumerate() {
            let wire = number(here, &channel.name, &peer.channels);
            channel.wire = wire.and_then(|wire| u8::try_from(wire).ok());
            if let Some(place) = wire.and_then(|wire| self.channels_by_wire.get_mut(wire)) {
                *place = Some(ChannelId(here as u8));
            }
        }
        let lacks = |names: Vec<&str>, what: &str, here: bool| {
            let (has, not) = if here { ("here", "at the peer") } else { ("at the peer", "here") };
            let names = names.join("`, `");
            format!("{what} `{names}` is {has} and not {not}: give it one name in both files")
        };
        let mut alarms = Vec::new();
        let mine: Vec<&str> = self.paths.iter().map(|path| path.name.as_str()).collect();
        let own: Vec<&str> = self.channels.iter().map(|channel| channel.name.as_str()).collect();
        for (what, mine, theirs) in [("path", mine, &peer.paths), ("channel", own, &peer.channels)]
        {
            let here = mine.iter().copied().filter(|name| !theirs.iter().any(|it| it == name));
            let there = theirs.iter().map(String::as_str).filter(|name| !mine.contains(name));
            for (names, at_home) in [(here.collect::<Vec<_>>(), true), (there.collect(), false)] {
                if !names.is_empty() {
                    alarms.push(lacks(names, what, at_home));
                }
            }
        }
        for text in alarms {
            self.tell(now, What::Alarm { text });
        }
    }

    /// Something happened that people want to know of.
    fn tell(&mut self, at: Instant, what: What) {
        if self.events.len() >= EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event { at, what });
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        let health = &self.config.health;
        let carriers = self.carriers.iter().map(Carrier::next_wakeup);
        let paths = self.paths.iter().map(|path| {
            let probe = if self.session_up { path.probe_at } else { Instant::FAR_FUTURE };
            probe.min(path.watch.next_wakeup(health))
        });
        let first = self.sessions.next_wakeup().min(self.measure_at);
        let first = first.min(self.waiting.next_wakeup());
        let protectors = self.protectors.iter().flatten().map(Protector::due);
        let first = protectors.fold(first, Instant::min);
        carriers.chain(paths).fold(first, Instant::min)
    }

    /// Time has passed. Calling it early does no harm.
    pub fn wake(&mut self, now: Instant) {
        self.sessions.wake(now);
        self.settle_session(now);
        self.wake_paths(now);
        for class in Class::ALL {
            if let Some(carrier) = self.carriers.get_mut(class.index()) {
                carrier.wake(now);
                if let Some(Some(protector)) = self.protectors.get_mut(class.index()) {
                    protector.wake(now, &mut |packet| carrier.write_packet(now, packet, false));
                }
            }
            self.drain(now, class);
        }
        if now >= self.measure_at {
            self.measure_at = now + Duration::from_millis(200);
            self.paths.iter_mut().for_each(|path| path.measure(now));
            self.stats.iter_mut().for_each(|stats| stats.measure(now));
            let loss_of =
                |path: PathId| self.paths.get(path.index()).map_or(0.0, Path::outgoing_loss);
            self.protectors.iter_mut().flatten().for_each(|protector| protector.heed(loss_of));
        }
    }
}

/// The header of a frame that fills `bytes` exactly.
fn frame_header(bytes: &[u8]) -> Option<Header> {
    Header::parse(bytes).ok().filter(|header| header.frame() == bytes.len())
}
