//! What keeps handshakes cheap: an init proves that its sender knows the responder's public key before
//! any Diffie-Hellman, and when there are too many of them, that it receives at its address. The idea of
//! both is that of WireGuard (NDSS 2017, §5.3 and 5.4.7); what is hashed differs.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::net::{IpAddr, SocketAddr};

use skybraid_units::{Duration, Instant};
use snow::types::Hash;

use super::envelope::Mac;
use super::noise;
use crate::{PrivateKey, PublicKey, Random};

/// Inits a second that are read without a cookie, and how many of them at once.
const INITS: i64 = 20;
/// Repetitions a second of inits that have been answered: the answer is there already.
const REPEATS: i64 = 100;
/// How often the secret behind the cookies changes; the one before is still accepted.
const SECRET_LIFE: Duration = Duration::from_secs(120);
/// A source with a cookie is heard so often …
const SOURCE_PAUSE: Duration = Duration::from_millis(200);
/// … and so many of them in that time.
const SOURCES: usize = 40;

/// A token bucket that holds what a second brings.
pub(super) struct Bucket {
    every: Duration,
    /// When it would be full but for one token.
    due: Instant,
}

impl Bucket {
    pub const fn per_second(rate: i64) -> Self {
        Self { every: Duration::from_nanos(1_000_000_000 / rate), due: Instant::ZERO }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let due = self.due.max(now);
        let there = due.since(now) + self.every <= Duration::from_secs(1);
        if there {
            self.due = due + self.every;
        }
        there
    }
}

/// Keyed hashes and cookies of one end.
pub(super) struct Guard {
    hash: Option<Box<dyn Hash>>,
    /// The key of inits that come here, and of those that go to the peer.
    init_keys: [[u8; 32]; 2],
    /// The key of responses: only the two ends know it.
    response_key: [u8; 32],
    inits: Bucket,
    repeats: Bucket,
    secret: Option<[u8; 32]>,
    former_secret: Option<[u8; 32]>,
    drawn_at: Instant,
    sources: BTreeMap<[u8; 16], Instant>,
}

impl Guard {
    pub fn new(private: &PrivateKey, peer: &PublicKey) -> Self {
        let mut guard = Self {
            hash: noise::hash(),
            init_keys: [[0; 32]; 2],
            response_key: [0; 32],
            inits: Bucket::per_second(INITS),
            repeats: Bucket::per_second(REPEATS),
            secret: None,
            former_secret: None,
            drawn_at: Instant::ZERO,
            sources: BTreeMap::new(),
        };
        match (noise::agree(private, peer), &mut guard.hash) {
            (Some((public, shared)), Some(hash)) => {
                let mut key = |label: &[u8], of: &[u8]| {
                    let mut key = [0; 32];
                    hash.reset();
                    hash.input(label);
                    hash.input(of);
                    hash.result(&mut key);
                    key
                };
                let label = b"skybraid gateway 1 init";
                guard.init_keys = [key(label, &public.0), key(label, &peer.0)];
                guard.response_key = key(b"skybraid gateway 1 response", &shared);
            }
            // Without keys nothing is believed.
            _ => guard.hash = None,
        }
        guard
    }

    /// The keyed hash of an init that goes to the peer.
    pub fn of_init(&mut self, covered: &[u8]) -> Option<Mac> {
        let [_, to_peer] = self.init_keys;
        self.keyed(&to_peer, covered)
    }

    /// The keyed hash of a response, in either direction.
    pub fn of_response(&mut self, covered: &[u8]) -> Option<Mac> {
        let key = self.response_key;
        self.keyed(&key, covered)
    }

    /// Whether an init comes from somebody who knows whom it is for.
    pub fn knows_init(&mut self, covered: &[u8], mac: &Mac) -> bool {
        let [to_here, _] = self.init_keys;
        self.keyed(&to_here, covered).is_some_and(|wanted| same(&wanted, mac))
    }

    /// Whether a response comes from the peer.
    pub fn knows_response(&mut self, covered: &[u8], mac: &Mac) -> bool {
        self.of_response(covered).is_some_and(|wanted| same(&wanted, mac))
    }

    /// Whether an init (or the repetition of one) is dealt with: there are few of them, or it has the
    /// cookie of its source.
    pub fn admits(&mut self, now: Instant, from: SocketAddr, repeated: bool, cookie: &Mac) -> bool {
        let bucket = if repeated { &mut self.repeats } else { &mut self.inits };
        bucket.take(now) || (self.is_cookie(now, from, cookie) && self.source(now, from.ip()))
    }

    /// The cookie of a source.
    pub fn cookie(
        &mut self,
        now: Instant,
        from: SocketAddr,
        random: &mut dyn Random,
    ) -> Option<Mac> {
        let age = now.since(self.drawn_at);
        if self.secret.is_none() || age >= SECRET_LIFE {
            let mut secret = [0; 32];
            random.fill(&mut secret);
            let former = self.secret.replace(secret);
            self.former_secret = former.filter(|_| age < SECRET_LIFE + SECRET_LIFE);
            self.drawn_at = now;
        }
        let secret = self.secret?;
        self.keyed(&secret, &place(from))
    }

    fn is_cookie(&mut self, now: Instant, from: SocketAddr, cookie: &Mac) -> bool {
        if *cookie == [0; 16] || now.since(self.drawn_at) >= SECRET_LIFE + SECRET_LIFE {
            return false;
        }
        [self.secret, self.former_secret].into_iter().flatten().any(|secret| {
            self.keyed(&secret, &place(from)).is_some_and(|wanted| same(&wanted, cookie))
        })
    }

    /// Whether a source that has a cookie may be heard.
    fn source(&mut self, now: Instant, ip: IpAddr) -> bool {
        self.sources.retain(|_, heard| now.since(*heard) < SOURCE_PAUSE);
        let mut source = octets(ip);
        let ip = ip.to_canonical();
        if let (IpAddr::V6(_), [_, _, _, _, _, _, _, _, host @ ..]) = (ip, &mut source) {
            // Whoever has one address of an IPv6 network has all of them.
            host.fill(0);
        }
        let heard = self.sources.len() < SOURCES && !self.sources.contains_key(&source);
        if heard {
            self.sources.insert(source, now);
        }
        heard
    }

    fn keyed(&mut self, key: &[u8; 32], data: &[u8]) -> Option<Mac> {
        let mut whole = [0; 32];
        self.hash.as_mut()?.hmac(key, data, &mut whole);
        whole.first_chunk().copied()
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// What a cookie is made of.
fn place(from: SocketAddr) -> [u8; 18] {
    let mut place = [0; 18];
    if let Some((ip, port)) = place.split_first_chunk_mut() {
        *ip = octets(from.ip());
        port.copy_from_slice(&from.port().to_be_bytes());
    }
    place
}

/// Compares in a time that does not tell where the difference is.
fn same(one: &Mac, other: &Mac) -> bool {
    one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}
