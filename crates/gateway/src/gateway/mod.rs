//! One end of the link as a whole.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_traffic::video::key_frames::KeyFrames;
use skybraid_traffic::video::protection::Duplicate;
use skybraid_transport::mutran::mavlink::Header;
use skybraid_transport::{PathId, PathInfo, PathSet, Role, TransportConfig};
use skybraid_units::{Duration, Instant};

use crate::brake::Brake;
use crate::carrier::Carrier;
use crate::config::{GatewayConfig, MAVLINK, Network, TUN};
use crate::event::{Event, What};
use crate::fec::{FecDecoder, FecEncoder};
use crate::health::validation::Message;
use crate::health::{Path, PeerClock, Validation};
use crate::hello::{Hello, Name};
use crate::inner::InnerAddresses;
use crate::message::{Fragmenter, Reassembler};
use crate::order::{Order, Waiting};
use crate::policy::Policy;
use crate::session::{self, Bucket, Sessions};
use crate::snapshot::RefusedSnapshot;
use crate::sources::Sources;
use crate::stats::ClassStats;
use crate::{ChannelId, Class, Random, Secrets, Side, SigningKey};

mod age;
mod local;
mod network;
mod paths;
mod queues;
mod shown;
mod validation;

use validation::Held;

/// The number of the MPTCP connection that carries everything but control in TCP mode.
pub const BUNDLE: PathId = PathId(63);
/// Events that wait to be fetched; more are dropped, the oldest first.
const EVENTS: usize = 1_000;
/// Messages for local applications that wait to be fetched; a driver fetches them after each call.
const FETCHED: usize = 65_536;

/// Buffers that are kept to be written over.
const MAX_SPARE: usize = 1_024;

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
    /// By class: messages that wait for their turn.
    queues: Vec<queues::Queue>,
    sources: Sources,
    brake: Brake,
    /// The two sources that have written control last.
    writers: [Option<queues::Writer>; 2],
    /// The longest that a datagram waited for the driver, in this window and in the one before, and when this
    /// one began.
    lag: ([Duration; 2], Instant),
    carriers: Vec<Carrier>,
    fragmenters: Vec<Fragmenter>,
    reassemblers: Vec<Reassembler>,
    /// By class, of those that have repair packets.
    fec_encoders: Vec<Option<FecEncoder>>,
    fec_decoders: Vec<FecDecoder>,
    stats: Vec<ClassStats>,
    policy: Policy,
    /// Addresses that packets of the TUN interface may bear.
    inner: InnerAddresses,
    order: Order,
    signing: Option<SigningKey>,
    waiting: Waiting,
    clock: PeerClock,
    unjudged: age::Unjudged,
    /// When the newest probe had left whose reports were heeded, in microseconds modulo 2³².
    newest_report: Option<u32>,
    /// The MPTCP connection has room (TCP mode).
    bundle_writable: bool,
    /// What the peer's silence has led to.
    silence: Silence,
    session_up: bool,
    session_age: SessionAge,
    sessions_so_far: u64,
    peer_restarts: u64,
    /// A handshake that leaves on every path, and the paths on which it still has to.
    handshake: (Vec<u8>, PathSet),
    /// Answers to challenges and proofs that are to leave, and by which path.
    responses: VecDeque<(PathId, Message)>,
    /// Copies of datagrams from elsewhere that are looked into.
    copies: Bucket,
    held: Held,
    /// Who asked last, and by which socket.
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

/// What has been told of the session's age.
#[derive(Clone, Copy, Debug, Default)]
struct SessionAge {
    overdue: bool,
    expired: bool,
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
        secrets: impl Into<Secrets>,
        random: Box<dyn Random>,
    ) -> Self {
        let Secrets { private, psk, signing } = secrets.into();
        let max_paths = PathSet::CAPACITY - 2;
        let paths: Vec<Path> = config
            .path
            .iter()
            .take(max_paths)
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
        let queue = |class: Class| {
            let max = config.class.transport(class).tx_queue();
            queues::Queue::new(max as usize)
        };
        let carriers = paths.len() + usize::from(config.network == Network::Tcp);
        let mut gateway = Self {
            started: now,
            sessions: Sessions::new(now, setup, random),
            wire: alloc::vec![None; paths.len()],
            paths_by_wire: [None; PathSet::CAPACITY],
            channels_by_wire: Vec::new(),
            queues: Class::ALL.map(queue).into(),
            sources: Sources::default(),
            brake: Brake::default(),
            writers: [None; 2],
            lag: ([Duration::ZERO; 2], now),
            carriers: Vec::new(),
            fragmenters: Vec::new(),
            reassemblers: Vec::new(),
            fec_encoders: Vec::new(),
            fec_decoders: Vec::new(),
            stats: Class::ALL.map(|class| ClassStats::new(class, carriers)).into(),
            policy: Policy::new(&config.messages, &config.rule),
            inner,
            order: Order::default(),
            signing,
            waiting: Waiting::default(),
            clock: PeerClock::default(),
            unjudged: age::Unjudged::default(),
            newest_report: None,
            bundle_writable: false,
            silence: Silence::default(),
            session_up: false,
            session_age: SessionAge::default(),
            sessions_so_far: 0,
            peer_restarts: 0,
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
        gateway.begin_anew();
        gateway
    }

    /// Replaces the connections of all classes after a restart of the peer.
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
        self.fragmenters = Class::ALL.map(|_| Fragmenter::default()).into();
        self.reassemblers = Class::ALL.map(|_| Reassembler::default()).into();
        let repair = |class: Class| {
            let repair = self.config.class.of(class).repair?;
            (self.config.network == Network::Udp).then(|| FecEncoder::new(repair))
        };
        self.fec_encoders = Class::ALL.map(repair).into();
        self.fec_decoders = Class::ALL.map(|_| FecDecoder::default()).into();
        self.order = Order::default();
        self.waiting = Waiting::default();
        self.clock = PeerClock::default();
        self.unjudged = age::Unjudged::default();
        self.newest_report = None;
        self.held = Held::default();
        self.paths.iter_mut().for_each(Path::forget_peer);
        self.refresh_usable();
    }

    /// A session stands: at the start, after a change of keys, after a restart of the peer.
    fn session_stands(&mut self, now: Instant, hello: &[u8], restarted: bool) {
        self.session_up = true;
        self.session_age = SessionAge::default();
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

    /// The session has ended, since no handshake got through.
    fn session_expired(&mut self, now: Instant) {
        self.session_up = false;
        self.session_age.expired = true;
        let life = self.config.session.lifetime();
        let text = format!(
            "the session has ended: its keys could not be changed for {life}; nothing is sent or \
             accepted until a handshake gets through"
        );
        self.tell(now, What::Alarm { text });
    }

    /// Says that a change of keys is overdue, once.
    fn watch_session_age(&mut self, now: Instant) {
        if self.session_age.overdue || !self.sessions.is_overdue(now) {
            return;
        }
        self.session_age.overdue = true;
        let left = self.sessions.time_left(now).unwrap_or_default();
        let text = format!(
            "the session's keys could not be changed, since no handshake gets through: it ends in {} s",
            left.as_nanos() / 1_000_000_000
        );
        self.tell(now, What::Alarm { text });
    }

    /// Numbers on the wire are the aircraft's: its paths and channels in the order of its file.
    fn match_names(&mut self, now: Instant, hello: &[u8]) {
        let Some(peer) = Hello::read(hello) else {
            let text = "the peer speaks another version of the protocol";
            return self.tell(now, What::Alarm { text: text.into() });
        };
        let aircraft_is_here = self.config.side == Side::Aircraft;
        let number = |here: usize, name: &str, theirs: &[Name]| {
            let there = theirs.iter().position(|other| other.is(name));
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
        let mut alarms: Vec<String> = self.inner.set_peer(peer.tun).err().into_iter().collect();
        let mine: Vec<&str> = self.paths.iter().map(|path| path.name.as_str()).collect();
        let own: Vec<&str> = self.channels.iter().map(|channel| channel.name.as_str()).collect();
        for (what, mine, theirs) in [("path", mine, &peer.paths), ("channel", own, &peer.channels)]
        {
            let here = mine.iter().copied().filter(|name| !theirs.iter().any(|it| it.is(name)));
            let not_here = theirs.iter().filter(|name| !mine.iter().any(|own| name.is(own)));
            let there = not_here.clone().filter_map(|name| match name {
                Name::Text(text) => Some(text.as_str()),
                Name::Digest(_) => None,
            });
            let unnamed = not_here.filter(|name| matches!(name, Name::Digest(_))).count();
            if unnamed > 0 {
                let text = "at the peer and not here, whose names the peer tells at its own end";
                alarms.push(format!("there are {unnamed} names of a {what} {text}"));
            }
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
            // Challenges that cannot leave are not waited for.
            let validates = self.session_up && path.present;
            let validation = if validates { &path.validation } else { &Validation::IDLE };
            probe.min(path.watch.next_wakeup(health)).min(validation.next_wakeup())
        });
        let first = self.sessions.next_wakeup().min(self.measure_at);
        let first = first.min(self.waiting.next_wakeup()).min(self.brake_wakeup());
        let fec_encoders = self.fec_encoders.iter().flatten().map(FecEncoder::due);
        let first = fec_encoders.fold(first, Instant::min);
        carriers.chain(paths).fold(first, Instant::min)
    }

    /// Time has passed. Calling it early does no harm.
    pub fn wake(&mut self, now: Instant) {
        self.sessions.wake(now);
        self.settle_session(now);
        self.wake_paths(now);
        self.settle_addresses(now);
        self.watch_session_age(now);
        for class in Class::ALL {
            if let Some(carrier) = self.carriers.get_mut(class.index()) {
                carrier.wake(now);
                if let Some(Some(fec_encoder)) = self.fec_encoders.get_mut(class.index()) {
                    fec_encoder
                        .wake(now, &mut |packet| carrier.write_packet(now, now, packet, false));
                }
            }
            self.drain(now, class);
        }
        if now >= self.measure_at {
            self.measure_at = now + Duration::from_millis(200);
            self.paths.iter_mut().for_each(|path| path.measure(now));
            self.watch_round_trip(now);
            self.stats.iter_mut().for_each(|stats| stats.measure(now));
            let loss_of =
                |path: PathId| self.paths.get(path.index()).map_or(0.0, Path::outgoing_loss);
            self.fec_encoders
                .iter_mut()
                .flatten()
                .for_each(|fec_encoder| fec_encoder.heed(loss_of));
        }
    }
}

/// The header of a frame that fills `bytes` exactly.
fn frame_header(bytes: &[u8]) -> Option<Header> {
    Header::parse(bytes).ok().filter(|header| header.frame() == bytes.len())
}
