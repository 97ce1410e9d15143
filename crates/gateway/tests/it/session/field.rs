//! Two ends, the paths between them, and a clock.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use skybraid_gateway::session::{
    Handshake, Opened, Refusal, SessionEvent, Sessions, Setup, public_key,
};
use skybraid_gateway::{PresharedKey, PrivateKey, PublicKey, Random, Side};
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant, Probability, Seed, Stream};

pub const AIRCRAFT: usize = 0;
pub const GROUND: usize = 1;
/// Both ends show a sign of life so often on every path, as the gateway does.
pub const PROBE: Duration = Duration::from_millis(50);

/// Randomness that repeats.
pub struct Dice(pub Stream);

impl Random for Dice {
    fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            let drawn = self.0.next_u64().to_le_bytes();
            eight.copy_from_slice(&drawn[..eight.len()]);
        }
    }
}

pub fn dice(name: &str) -> Box<Dice> {
    Box::new(Dice(Seed(77).stream(name)))
}

pub fn private(name: &str) -> PrivateKey {
    let mut key = [0; 32];
    dice(name).fill(&mut key);
    PrivateKey(key)
}

pub fn public(name: &str) -> PublicKey {
    public_key(&private(name)).unwrap()
}

/// An end that trusts several peers, with a shared key if there is one.
pub fn start_trusting(
    now: Instant,
    side: Side,
    own: &str,
    peers: &[&str],
    psk: Option<u8>,
) -> Sessions {
    let setup = Setup {
        side,
        private: private(own),
        peers: peers.iter().map(|peer| public(peer)).collect(),
        psk: psk.map(|byte| PresharedKey([byte; 32])),
        hello: format!("{own} one").into_bytes(),
        rekey: Duration::from_secs(120),
        lifetime: Duration::from_secs(600),
    };
    Sessions::new(now, setup, dice(&format!("{own} one")))
}

pub fn start(now: Instant, side: Side, own: &str, peer: &str, start: &str) -> Sessions {
    let setup = Setup {
        side,
        private: private(own),
        peers: vec![public(peer)],
        psk: None,
        hello: format!("{own} {start}").into_bytes(),
        rekey: Duration::from_secs(120),
        lifetime: Duration::from_secs(600),
    };
    Sessions::new(now, setup, dice(&format!("{own} {start}")))
}

/// Source address of the aircraft's path as the ground sees it.
pub fn address(path: PathId) -> SocketAddr {
    (Ipv4Addr::new(10, 0, path.0, 1), 14_550).into()
}

/// The ground has a single address.
pub fn ground() -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1), 14_550).into()
}

/// Behaviour of a path.
#[derive(Clone, Copy)]
pub struct Weather {
    pub loss: f64,
    pub repeat: f64,
    /// Least and most delay: datagrams overtake each other.
    pub delay_ms: (i64, i64),
    /// Towards the aircraft, towards the ground.
    pub dead: [bool; 2],
}

impl Weather {
    pub const fn fine(delay_ms: i64) -> Self {
        Self { loss: 0.0, repeat: 0.0, delay_ms: (delay_ms, delay_ms), dead: [false; 2] }
    }
}

/// A datagram on its way.
#[derive(Clone)]
pub struct Flying {
    pub to: usize,
    pub path: PathId,
    pub bytes: Vec<u8>,
}

pub struct Field {
    pub now: Instant,
    pub ends: [Sessions; 2],
    pub paths: Vec<Weather>,
    /// Whoever is on the way lets no handshake through.
    pub blocks_handshakes: bool,
    /// All that was ever sent, for those who listen.
    pub heard: Vec<(Instant, Flying)>,
    /// Messages that arrived at each end, probes left out.
    pub messages: [Vec<Vec<u8>>; 2],
    pub refused: [Vec<(Instant, Refusal)>; 2],
    pub events: [Vec<(Instant, SessionEvent)>; 2],
    /// Arrival time of the last message, probes included, at each end.
    pub last: [Instant; 2],
    flying: BTreeMap<(Instant, u64), Flying>,
    random: Stream,
    sent: u64,
    probe_at: Instant,
}

impl Field {
    pub fn new(paths: &[Weather], seed: u64) -> Self {
        let now = Instant::ZERO;
        Self {
            now,
            ends: [
                start(now, Side::Aircraft, "aircraft", "ground", "one"),
                start(now, Side::Ground, "ground", "aircraft", "one"),
            ],
            paths: paths.to_vec(),
            blocks_handshakes: false,
            heard: Vec::new(),
            messages: Default::default(),
            refused: Default::default(),
            events: Default::default(),
            last: [now; 2],
            flying: BTreeMap::new(),
            random: Seed(seed).stream("field"),
            sent: 0,
            probe_at: now,
        }
    }

    /// Restarts an end.
    pub fn restart(&mut self, end: usize, name: &str) {
        self.ends[end] = match end {
            AIRCRAFT => start(self.now, Side::Aircraft, "aircraft", "ground", name),
            _ => start(self.now, Side::Ground, "ground", "aircraft", name),
        };
        self.settle(end, None);
    }

    /// Sends a message, if there is a session.
    pub fn send(&mut self, end: usize, path: PathId, message: &[u8]) -> bool {
        let mut out = Vec::new();
        let sealed = self.ends[end].seal(self.now, path, message, &mut out).is_ok();
        if sealed {
            self.pass(Flying { to: 1 - end, path, bytes: out });
        }
        sealed
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random.chance(Probability::new(probability).unwrap())
    }

    fn pass(&mut self, flying: Flying) {
        self.heard.push((self.now, flying.clone()));
        // Kind 4 is a sealed datagram.
        if self.blocks_handshakes && flying.bytes[0] != 0x30 {
            return;
        }
        let weather = self.paths[flying.path.index()];
        let copies = 1 + usize::from(self.chance(weather.repeat));
        for _ in 0..copies {
            if self.chance(weather.loss) || weather.dead[flying.to] {
                continue;
            }
            let (least, most) = weather.delay_ms;
            let more = self.random.between(0.0, (most - least) as f64);
            let delay = Duration::from_millis(least) + Duration::from_secs_f64(more / 1e3);
            self.sent += 1;
            self.flying.insert((self.now + delay, self.sent), flying.clone());
        }
    }

    /// An end gets a datagram; all that it has to say to that leaves.
    pub fn receive(&mut self, flying: Flying) -> Opened {
        let Flying { to, path, bytes } = flying;
        let from = if to == GROUND { address(path) } else { ground() };
        let mut plain = vec![1, 2, 3];
        let opened = self.ends[to].open(self.now, from, &bytes, &mut plain);
        match opened {
            Opened::Message { path: said, .. } => {
                assert_eq!(said, path);
                self.last[to] = self.now;
                if !plain.is_empty() {
                    self.messages[to].push(plain);
                }
            }
            Opened::Handshake => assert!(plain.is_empty()),
            Opened::Refused(refusal) => {
                assert!(plain.is_empty(), "nothing of a refused datagram is left");
                self.refused[to].push((self.now, refusal));
            }
        }
        self.settle(to, Some(path));
        opened
    }

    /// Sends an end's datagrams; a reply takes the path of its request.
    fn settle(&mut self, end: usize, asked: Option<PathId>) {
        let mut out = Vec::new();
        while let Some(to) = self.ends[end].poll_handshake(self.now, &mut out) {
            let paths = match to {
                Handshake::OnEveryPath => {
                    (0..self.paths.len()).map(|index| PathId(index as u8)).collect()
                }
                Handshake::Reply { to } => {
                    let path = asked.unwrap();
                    assert_eq!(to, if end == GROUND { address(path) } else { ground() });
                    vec![path]
                }
            };
            for path in paths {
                self.pass(Flying { to: 1 - end, path, bytes: out.clone() });
            }
        }
        while let Some(event) = self.ends[end].poll_event() {
            self.events[end].push((self.now, event));
        }
    }

    /// Lets time pass up to an instant.
    pub fn run_until(&mut self, until: Instant) {
        loop {
            let next_packet = self.flying.keys().next().map_or(Instant::FAR_FUTURE, |(at, _)| *at);
            let wakeups = self.ends.each_ref().map(Sessions::next_wakeup);
            let next = wakeups.into_iter().fold(next_packet.min(self.probe_at), Instant::min);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            if next == next_packet {
                let (_, flying) = self.flying.pop_first().unwrap();
                self.receive(flying);
            } else if next == self.probe_at {
                self.probe_at = next + PROBE;
                for end in [AIRCRAFT, GROUND] {
                    for path in 0..self.paths.len() {
                        self.send(end, PathId(path as u8), &[]);
                    }
                }
            } else {
                for end in [AIRCRAFT, GROUND] {
                    self.ends[end].wake(self.now);
                    self.settle(end, None);
                }
            }
        }
    }

    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// A field whose session is established at both ends.
    pub fn flying_link(paths: &[Weather]) -> Self {
        let mut field = Self::new(paths, 1);
        field.run_for(Duration::from_secs(2));
        assert!(field.ends.iter().all(Sessions::is_up));
        field
    }

    /// Whether each end was notified of a restart of the other, session by session.
    pub fn restarts(&self, end: usize) -> Vec<bool> {
        let restarted = |(_, event): &(_, SessionEvent)| match event {
            SessionEvent::Established { restarted, .. } => Some(*restarted),
            SessionEvent::Expired => None,
        };
        self.events[end].iter().filter_map(restarted).collect()
    }

    /// The inits that were heard.
    pub fn inits(&self) -> Vec<Flying> {
        let inits =
            self.heard.iter().filter(|(_, it)| it.to == GROUND && it.bytes[..2] == [0x34, 0]);
        inits.map(|(_, flying)| flying.clone()).collect()
    }
}
