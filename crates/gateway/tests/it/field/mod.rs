//! Two gateways in virtual time, joined by links that can be made to fail.

pub mod commands;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

use skybraid_gateway::{
    ChannelId, Client, Gateway, GatewayConfig, Origin, PrivateKey, Random, Secrets, Side,
    SigningKey, Snapshot,
};
use skybraid_link::{Fate, Link, LinkConfig, RateSource};
use skybraid_sim::{FlowSetup, Host};
use skybraid_testing::Config;
use skybraid_traffic::TrafficConfig;
use skybraid_transport::{Class, PathId, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed, Stream};

/// The aircraft's number in pairs, and the ground's.
pub const AIRCRAFT: usize = 0;
pub const GROUND: usize = 1;

/// Secrets that a test can draw again.
pub struct Drawn(Stream);

impl Random for Drawn {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.0.below(256) as u8);
    }
}

/// Faults of a path in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fault {
    /// Nothing arrives.
    pub silent: bool,
    /// Everything takes longer by this.
    pub slower: Duration,
    /// Share of datagrams that is lost.
    pub loss: f64,
    /// Larger IP packets than this many bytes do not arrive; 0 for no limit.
    pub limit: u64,
    /// Maximum additional delay, drawn for each datagram, so that they overtake each other.
    pub scatter: Duration,
    /// Share of datagrams that arrive twice.
    pub twice: f64,
    /// Share of datagrams in which a byte is changed.
    pub corrupt: f64,
}

/// One path: a link each way, what is wrong with them, and the aircraft's address as the ground sees it.
pub struct Way {
    links: [Link; 2],
    pub faults: [Fault; 2],
    pub aircraft: SocketAddr,
    pub ground: SocketAddr,
    /// Bytes of IP packets that entered, each way.
    pub bytes: [u64; 2],
    /// IP packets that entered, each way.
    pub packets: [u64; 2],
}

/// A path's rate, delay and MTU.
#[derive(Clone, Copy)]
pub struct Shape(pub &'static str, pub Rate, pub Duration, pub u64);

pub const LTE: fn() -> Shape =
    || Shape("lte", Rate::from_mbps(20.0), Duration::from_millis(30), 1_500);
pub const LEO: fn() -> Shape =
    || Shape("leo", Rate::from_mbps(50.0), Duration::from_millis(45), 1_500);
pub const GEO: fn() -> Shape =
    || Shape("geo", Rate::from_mbps(2.0), Duration::from_millis(280), 1_400);

struct Crossing {
    to: usize,
    from: SocketAddr,
    path: PathId,
    bytes: Vec<u8>,
}

/// A delivered message: time, channel, bytes.
pub type Handed = (Instant, ChannelId, Vec<u8>);

/// The whole.
pub struct Field {
    pub now: Instant,
    pub ends: [Gateway; 2],
    pub ways: Vec<Way>,
    pub handed: [Vec<Handed>; 2],
    configs: [GatewayConfig; 2],
    pub secrets: [Secrets; 2],
    on_the_way: BinaryHeap<Reverse<(Instant, u64)>>,
    crossings: BTreeMap<u64, Crossing>,
    count: u64,
    random: Stream,
    seed: u64,
    /// A second copy of every datagram arrives a little later.
    pub duplicates: bool,
    /// Somebody forwards a copy of each datagram of the aircraft that overtakes the original.
    pub copier: Option<Copier>,
    /// Whoever is on the way lets no handshake through.
    pub blocks_handshakes: bool,
    /// Bytes that the copier sent to the ground and got from it.
    pub copied: Copied,
    /// Number of newest datagrams that an attacker on the way can replay.
    pub remembers: usize,
    /// These, with the side and the path that they went to.
    pub heard: VecDeque<(usize, usize, Vec<u8>)>,
    /// The aircraft's clock runs fast by so many parts per million.
    pub drift_ppm: i64,
    /// Total time for which a side's clock was paused.
    paused: [Duration; 2],
    /// Datagrams in the kernel for a side whose process is stopped, with their arrival times.
    stopped: [Option<Vec<(Instant, Waits)>>; 2],
}

/// Somebody on the way from the aircraft to the ground.
#[derive(Clone, Copy, Debug)]
pub struct Copier {
    /// Source address of its copies.
    pub address: SocketAddr,
    /// Whether it relays the ground's messages to the aircraft.
    pub relays: bool,
}

/// Bytes of datagrams that the ground got from a copier, and sent to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    pub received: usize,
    pub sent: usize,
}

/// Datagrams in the kernel for a stopped process.
enum Waits {
    Datagram(Crossing),
    Written(u8, u8, Vec<u8>),
}

/// The clock of the aircraft is ahead of the ground's by this.
pub const APART: Duration = Duration::from_secs(7_000);

impl Field {
    /// Two gateways as `extra` lines of TOML say, over paths of these shapes. A line that begins with `#aircraft` or
    /// `#ground` is of that end alone.
    pub fn new(seed: u64, shapes: &[Shape], extra: &str) -> Self {
        let mut random = Seed(seed).stream("field");
        let mut secret = || PrivateKey(core::array::from_fn(|_| random.below(256) as u8));
        let keys = [secret(), secret()];
        let public = keys.clone().map(|key| key.public());
        let config = |side: usize| {
            let name = ["aircraft", "ground"][side];
            let peer = public[1 - side];
            let mut text = format!("side = \"{name}\"\nkey = \"-\"\npeer = \"{peer}\"\n{extra}\n");
            if !extra.contains("[[mavlink]]") {
                text += "[[mavlink]]\nserial = \"-\"\n";
            }
            for Shape(path, ..) in shapes {
                if !extra.contains(&format!("[path.{path}]")) {
                    text += &format!("[path.{path}]\n");
                }
            }
            // Each end has an address of its own.
            let text = text.replace("10.77.0.X", ["10.77.0.2", "10.77.0.1"][side]);
            let text = text.replace(["#aircraft ", "#ground "][side], "");
            GatewayConfig::parse(&text).unwrap()
        };
        let configs: [GatewayConfig; 2] = [config(AIRCRAFT), config(GROUND)];
        let mut shapes: Vec<&Shape> = shapes.iter().collect();
        shapes.sort_by_key(|shape| shape.0);
        let way = |(index, Shape(name, rate, delay, mtu)): (usize, &&Shape)| Way {
            links: links(&Shape(name, *rate, *delay, *mtu), seed),
            faults: [Fault::default(); 2],
            aircraft: format!("10.{index}.0.1:5000").parse().unwrap(),
            ground: format!("192.0.2.1:{}", 4100 + index).parse().unwrap(),
            bytes: [0; 2],
            packets: [0; 2],
        };
        let ways: Vec<Way> = shapes.iter().enumerate().map(way).collect();
        let now = Instant::ZERO;
        let secrets = keys.map(Secrets::from);
        let start =
            |side: usize| gateway(side, clock(side, now), &configs[side], &secrets[side], seed);
        let ends = [start(AIRCRAFT), start(GROUND)];
        let mut field = Self {
            now,
            ends,
            ways,
            handed: [Vec::new(), Vec::new()],
            configs,
            secrets,
            on_the_way: BinaryHeap::new(),
            crossings: BTreeMap::new(),
            count: 0,
            random,
            seed,
            duplicates: false,
            copier: None,
            blocks_handshakes: false,
            copied: Copied::default(),
            remembers: 0,
            heard: VecDeque::new(),
            drift_ppm: 0,
            paused: [Duration::ZERO; 2],
            stopped: [None, None],
        };
        field.announce_addresses();
        field
    }

    /// Both gateways begin again with the key of signed MAVLink frames.
    pub fn know_signing_key(&mut self, key: &SigningKey) {
        for side in [AIRCRAFT, GROUND] {
            self.secrets[side].signing = Some(key.clone());
            self.restart(side);
        }
    }

    fn announce_addresses(&mut self) {
        for (at, way) in self.ways.iter().enumerate() {
            self.ends[AIRCRAFT].set_remote(PathId(at as u8), Some(way.ground));
        }
    }

    /// The process of a side ends without a word and starts again.
    pub fn restart(&mut self, side: usize) {
        self.seed += 1;
        let now = self.clock(side, self.now);
        let secrets = &self.secrets[side];
        self.ends[side] = gateway(side, now, &self.configs[side], secrets, self.seed);
        if side == AIRCRAFT {
            self.announce_addresses();
        }
        self.pump(side);
    }

    /// A local application of a side writes.
    pub fn write(&mut self, side: usize, channel: u8, bytes: &[u8]) {
        self.write_by(side, channel, 0, bytes);
    }

    /// A local application of a side, known by the number of its end, writes.
    pub fn write_by(&mut self, side: usize, channel: u8, end: u8, bytes: &[u8]) {
        if let Some(waits) = &mut self.stopped[side] {
            return waits.push((self.now, Waits::Written(channel, end, bytes.to_vec())));
        }
        self.write_at(side, self.now, channel, end, bytes);
        self.pump(side);
    }

    fn write_at(&mut self, side: usize, arrived: Instant, channel: u8, end: u8, bytes: &[u8]) {
        let (now, arrived) = (self.clock(side, self.now), self.clock(side, arrived));
        let origin = Origin { client: Client { end, address: None }, arrived };
        self.ends[side].write_from(now, ChannelId(channel), &origin, bytes);
    }

    /// The process of a side is stopped; datagrams and what local applications write wait in the kernel.
    pub fn stop(&mut self, side: usize) {
        self.stopped[side].get_or_insert_default();
    }

    /// The process of a side goes on: first with its timers, then with what waits, local ends last.
    pub fn go_on(&mut self, side: usize) {
        let waits = self.stopped[side].take().unwrap_or_default();
        let now = self.clock(side, self.now);
        self.ends[side].wake(now);
        self.pump(side);
        let mut written = Vec::new();
        for (arrived, waits) in waits {
            match waits {
                Waits::Datagram(Crossing { from, path, bytes, .. }) => {
                    let arrived = self.clock(side, arrived);
                    self.ends[side].receive_at(now, arrived, from, &bytes, path);
                }
                Waits::Written(channel, end, bytes) => written.push((arrived, channel, end, bytes)),
            }
        }
        for (arrived, channel, end, bytes) in written {
            self.write_at(side, arrived, channel, end, &bytes);
        }
        self.pump(side);
    }

    /// Pauses the machine of a side with its clock; what is sent to it arrives when it resumes.
    pub fn begin_pause(&mut self, side: usize) {
        self.stop(side);
        self.paused[side] -= self.now.since(Instant::ZERO);
    }

    /// Resumes the machine of a side.
    pub fn end_pause(&mut self, side: usize) {
        self.paused[side] += self.now.since(Instant::ZERO);
        let waits = self.stopped[side].iter_mut().flatten();
        waits.for_each(|(arrived, _)| *arrived = self.now);
        self.go_on(side);
    }

    /// The clock of a side leaps ahead, as that of a virtual machine that is moved.
    pub fn leap(&mut self, side: usize, by: Duration) {
        self.paused[side] -= by;
    }

    /// A path has this shape from now on; what waits in its queues leaves as before.
    pub fn reshape(&mut self, path: usize, shape: &Shape) {
        self.relink(path, links(shape, self.seed));
    }

    /// A path has these links from now on, the aircraft's first; what waits in its queues leaves as before.
    pub fn relink(&mut self, path: usize, links: [Link; 2]) {
        self.ways[path].links = links;
    }

    /// A path's interface at the aircraft goes away or comes back.
    pub fn set_interface(&mut self, path: usize, up: bool) {
        self.ends[AIRCRAFT].set_path_up(self.clock(AIRCRAFT, self.now), PathId(path as u8), up);
        self.pump(AIRCRAFT);
    }

    /// The aircraft is seen at another address from now on.
    pub fn rebind(&mut self, path: usize) {
        let way = &mut self.ways[path];
        way.aircraft.set_port(way.aircraft.port() + 1);
    }

    /// Time goes by until `until`.
    pub fn run(&mut self, until: Instant) {
        self.pump(AIRCRAFT);
        self.pump(GROUND);
        loop {
            let wakes = [AIRCRAFT, GROUND].map(|side| match self.stopped[side] {
                Some(_) => Instant::FAR_FUTURE,
                None => self.when(side, self.ends[side].next_wakeup()),
            });
            let arrival = self.on_the_way.peek().map_or(Instant::FAR_FUTURE, |next| next.0.0);
            let next = wakes[0].min(wakes[1]).min(arrival).max(self.now);
            if next > until {
                break;
            }
            self.now = next;
            if arrival == next {
                self.arrive();
            }
            for side in [AIRCRAFT, GROUND] {
                if wakes[side] <= next {
                    self.ends[side].wake(self.clock(side, next));
                    self.pump(side);
                }
            }
        }
        self.now = until;
    }

    fn arrive(&mut self) {
        let Some(Reverse((_, number))) = self.on_the_way.pop() else { return };
        let Some(crossing) = self.crossings.remove(&number) else { return };
        if let Some(waits) = &mut self.stopped[crossing.to] {
            return waits.push((self.now, Waits::Datagram(crossing)));
        }
        let Crossing { to, from, path, bytes } = crossing;
        self.ends[to].receive(self.clock(to, self.now), from, &bytes, path);
        self.pump(to);
    }

    /// Puts a datagram into the hands of a side, as the network, or an enemy, would.
    pub fn inject(&mut self, to: usize, path: usize, from: SocketAddr, bytes: &[u8]) {
        if let Some(waits) = &mut self.stopped[to] {
            let (path, bytes) = (PathId(path as u8), bytes.to_vec());
            return waits.push((self.now, Waits::Datagram(Crossing { to, from, path, bytes })));
        }
        self.ends[to].receive(self.clock(to, self.now), from, bytes, PathId(path as u8));
        self.pump(to);
    }

    /// Takes what a gateway wants to send or to deliver.
    fn pump(&mut self, side: usize) {
        if self.stopped[side].is_some() {
            return;
        }
        let now = self.clock(side, self.now);
        let mut out = Vec::new();
        while let Some(outgoing) = self.ends[side].poll_send(now, &mut out) {
            let path = outgoing.path.index();
            let way = &mut self.ways[path];
            let fault = way.faults[side];
            // What is sent to an address that is no longer the aircraft's goes nowhere.
            if side == GROUND && outgoing.to != way.aircraft {
                let copier = self.copier.filter(|copier| copier.address == outgoing.to);
                self.copied.sent += copier.map_or(0, |_| out.len());
                if !copier.is_some_and(|copier| copier.relays) {
                    continue;
                }
            }
            if self.remembers > 0 {
                self.heard.truncate(self.remembers - 1);
                self.heard.push_front((1 - side, path, out.clone()));
            }
            let size = Bytes::new(out.len() as u64 + 28);
            way.bytes[side] += size.get();
            way.packets[side] += 1;
            let Fate::Delivered { at } = way.links[side].admit(self.now, size) else { continue };
            // Kind 4 is a sealed datagram.
            if self.blocks_handshakes && out[0] != 0x30 {
                continue;
            }
            let swallowed = fault.limit > 0 && size.get() > fault.limit;
            if fault.silent || swallowed || self.random.unit() < fault.loss {
                continue;
            }
            let from = if side == AIRCRAFT { way.aircraft } else { way.ground };
            if let Some(copier) = self.copier.filter(|_| side == AIRCRAFT) {
                let (to, from, bytes) = (GROUND, copier.address, out.clone());
                self.crossings
                    .insert(self.count, Crossing { to, from, path: outgoing.path, bytes });
                self.on_the_way.push(Reverse((at - Duration::from_millis(5), self.count)));
                self.count += 1;
                self.copied.received += out.len();
            }
            let is_twice = self.duplicates || self.happens(fault.twice);
            for copy in 0..=i64::from(is_twice) {
                let at = at
                    + fault.slower
                    + Duration::from_millis(3) * copy
                    + self.scatter(fault.scatter);
                let (to, mut bytes) = (1 - side, out.clone());
                if self.happens(fault.corrupt) {
                    let place = self.random.below(bytes.len() as u64) as usize;
                    bytes[place] ^= 1 << self.random.below(8);
                }
                self.crossings
                    .insert(self.count, Crossing { to, from, path: outgoing.path, bytes });
                self.on_the_way.push(Reverse((at, self.count)));
                self.count += 1;
            }
        }
        while let Some(channel) = self.ends[side].poll_local(&mut out) {
            self.handed[side].push((self.now, channel, out.clone()));
        }
    }

    /// Draws whether something happens with this probability; nothing is drawn where it is zero.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.unit() < probability
    }

    /// Draws a time up to `max`; nothing is drawn where that is zero.
    fn scatter(&mut self, max: Duration) -> Duration {
        if max.is_positive() { max.mul_f64(self.random.unit()) } else { Duration::ZERO }
    }

    /// The time by a side's clock.
    fn clock(&self, side: usize, at: Instant) -> Instant {
        let drift = Duration::from_nanos(at.as_nanos() / 1_000_000 * self.drift_ppm);
        let at = at - self.paused[side];
        if side == AIRCRAFT { clock(side, at) + drift } else { at }
    }

    /// The first time at which a side's clock shows `local`.
    fn when(&self, side: usize, local: Instant) -> Instant {
        let zero = clock(side, Instant::ZERO).since(Instant::ZERO) - self.paused[side];
        if side == GROUND || self.drift_ppm == 0 || local == Instant::FAR_FUTURE {
            return local - zero;
        }
        let mut at = Instant::from_nanos(
            (local - zero).as_nanos() / (1_000_000 + self.drift_ppm) * 1_000_000,
        );
        while self.clock(side, at) < local {
            let missing = local.since(self.clock(side, at));
            at += missing.max(Duration::from_nanos(1));
        }
        at
    }

    /// State of a side.
    pub fn snapshot(&self, side: usize) -> Snapshot {
        self.ends[side].snapshot(self.clock(side, self.now))
    }
}

/// A link each way.
fn links(Shape(name, rate, delay, mtu): &Shape, seed: u64) -> [Link; 2] {
    let plain = LinkConfig::plain(RateSource::Constant(*rate), *delay);
    let config = LinkConfig { mtu: Bytes::new(*mtu), ..plain };
    ["uplink", "downlink"].map(|direction| Link::new(&config, name, direction, Seed(seed)))
}

fn clock(side: usize, at: Instant) -> Instant {
    if side == AIRCRAFT { at + APART } else { at }
}

fn gateway(
    side: usize,
    now: Instant,
    config: &GatewayConfig,
    secrets: &Secrets,
    seed: u64,
) -> Gateway {
    assert_eq!(config.side == Side::Ground, side == GROUND);
    let random = Drawn(Seed(seed).stream(["aircraft", "ground"][side]));
    Gateway::new(now, config, secrets.clone(), Box::new(random))
}

/// A MAVLink 2 frame of a message from a system, with a number in its payload.
pub fn frame(system: u8, message: u32, number: u32) -> Vec<u8> {
    let [low, middle, high, _] = message.to_le_bytes();
    let mut frame = vec![0xfd, 8, 0, 0, number as u8, system, 1, low, middle, high];
    frame.extend(number.to_le_bytes());
    frame.extend([1; 4]);
    frame.extend([0, 0]);
    frame
}

/// The message and the number of a frame of [`frame`].
pub fn read(frame: &[u8]) -> (u32, u32) {
    let message = u32::from_le_bytes([frame[7], frame[8], frame[9], 0]);
    (message, u32::from_le_bytes([frame[10], frame[11], frame[12], frame[13]]))
}

/// Returns a flow of data over the first two paths, for the simulator next to the gateways.
pub fn simulated_flow(
    name: &str,
    from: Host,
    traffic: TrafficConfig,
    transport: TransportConfig,
) -> FlowSetup {
    FlowSetup {
        name: name.into(),
        group: name.into(),
        from,
        class: Class::Data,
        start: Instant::ZERO,
        stop: Instant::FAR_FUTURE,
        traffic,
        transport: transport.into(),
        paths: vec![0, 1],
        deadline: None,
        judged_by: Vec::new(),
        frames_within: Vec::new(),
        judges_delays: false,
        rides_with: None,
        copies: 1,
        proxies: Vec::new(),
    }
}
