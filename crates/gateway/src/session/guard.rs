//! Protection against handshake floods: before any Diffie-Hellman, an init proves that its sender knows the
//! responder's public key and, under load, that the sender receives at its address. Both ideas are those of
//! WireGuard (NDSS 2017, §5.3 and 5.4.7); the hashed data differ.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use skybraid_units::{Duration, Instant};
use snow::types::Hash;

use super::envelope::Mac;
use super::noise::{self, Secret};
use crate::{PrivateKey, PublicKey, Random};

/// Maximum rate per second, and burst, of inits read without a cookie.
const INITS: i64 = 20;
/// Repeated inits per second that get their stored response.
const REPEATS: i64 = 100;
/// Lifetime of the secret of the cookies; the one before it is still accepted.
const SECRET_LIFE: Duration = Duration::from_secs(120);
/// Minimum interval of a source with a cookie.
const SOURCE_PAUSE: Duration = Duration::from_millis(200);
/// Maximum sources per network (24 bits of IPv4, 48 of IPv6) in `SOURCE_PAUSE`. Networks share no limit: many
/// addresses in one network do not crowd out others.
const NETWORK_SOURCES: usize = 4;
/// Maximum sources remembered; beyond, the oldest is forgotten and may be heard again sooner.
const MAX_SOURCES: usize = 1024;

/// Token bucket with a capacity of one second.
#[derive(Debug)]
pub(crate) struct Bucket {
    every: Duration,
    /// Time at which it has all tokens but one.
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

/// Hash keys of one peer.
struct PeerKeys {
    /// Key for inits to the peer.
    init: Secret,
    /// Key for responses, known only to both ends.
    response: Secret,
}

/// Keyed hashes and cookies of one end.
pub(super) struct Guard {
    hash: Option<Box<dyn Hash>>,
    /// Key for received inits.
    init_key: Secret,
    /// Keys in the order of the peers.
    peers: Vec<PeerKeys>,
    inits: Bucket,
    repeats: Bucket,
    secret: Option<Secret>,
    former_secret: Option<Secret>,
    drawn_at: Instant,
    /// Recently heard sources, oldest first.
    sources: VecDeque<(Source, Instant)>,
}

impl Guard {
    pub fn new(private: &PrivateKey, peers: &[PublicKey]) -> Self {
        let mut guard = Self {
            hash: noise::hash(),
            init_key: Secret::default(),
            peers: Vec::new(),
            inits: Bucket::per_second(INITS),
            repeats: Bucket::per_second(REPEATS),
            secret: None,
            former_secret: None,
            drawn_at: Instant::ZERO,
            sources: VecDeque::new(),
        };
        // Without keys, nothing is accepted.
        if guard.derive(private, peers).is_none() {
            guard.hash = None;
        }
        guard
    }

    fn derive(&mut self, private: &PrivateKey, peers: &[PublicKey]) -> Option<()> {
        let hash = self.hash.as_mut()?;
        let mut key = |label: &[u8], of: &[u8]| {
            let mut key = Secret::default();
            hash.reset();
            hash.input(label);
            hash.input(of);
            hash.result(&mut *key);
            key
        };
        let (init, response) = (b"skybraid gateway 2 init", b"skybraid gateway 2 response");
        self.init_key = key(init, &noise::public_key(private)?.0);
        for peer in peers {
            let (_, shared) = noise::diffie_hellman(private, peer)?;
            let keys = PeerKeys { init: key(init, &peer.0), response: key(response, &*shared) };
            self.peers.push(keys);
        }
        Some(())
    }

    /// Returns the keyed hash of an init to a peer.
    pub fn of_init(&mut self, peer: usize, covered: &[u8]) -> Option<Mac> {
        let Self { hash, peers, .. } = self;
        keyed(hash, &peers.get(peer)?.init, covered)
    }

    /// Returns the keyed hash of a response to or from a peer.
    pub fn of_response(&mut self, peer: usize, covered: &[u8]) -> Option<Mac> {
        let Self { hash, peers, .. } = self;
        keyed(hash, &peers.get(peer)?.response, covered)
    }

    /// Whether the sender of an init knows our public key.
    pub fn knows_init(&mut self, covered: &[u8], mac: &Mac) -> bool {
        let Self { hash, init_key, .. } = self;
        keyed(hash, init_key, covered).is_some_and(|wanted| same(&wanted, mac))
    }

    /// Whether a response comes from a peer.
    pub fn knows_response(&mut self, peer: usize, covered: &[u8], mac: &Mac) -> bool {
        self.of_response(peer, covered).is_some_and(|wanted| same(&wanted, mac))
    }

    /// Whether to process an init (or a repeated one): inits are few, or it has the cookie of its source.
    pub fn admits(&mut self, now: Instant, from: SocketAddr, repeated: bool, cookie: &Mac) -> bool {
        let bucket = if repeated { &mut self.repeats } else { &mut self.inits };
        bucket.take(now) || (self.is_cookie(now, from, cookie) && self.source(now, from.ip()))
    }

    /// Returns the cookie of a source.
    pub fn cookie(
        &mut self,
        now: Instant,
        from: SocketAddr,
        random: &mut dyn Random,
    ) -> Option<Mac> {
        let age = now.since(self.drawn_at);
        if self.secret.is_none() || age >= SECRET_LIFE {
            let mut secret = Secret::default();
            random.fill(&mut *secret);
            let former = self.secret.replace(secret);
            self.former_secret = former.filter(|_| age < SECRET_LIFE + SECRET_LIFE);
            self.drawn_at = now;
        }
        let Self { hash, secret, .. } = self;
        keyed(hash, secret.as_ref()?, &place(from))
    }

    /// Whether `cookie` is that of a source.
    pub fn is_cookie(&mut self, now: Instant, from: SocketAddr, cookie: &Mac) -> bool {
        if *cookie == [0; 16] || now.since(self.drawn_at) >= SECRET_LIFE + SECRET_LIFE {
            return false;
        }
        let Self { hash, secret, former_secret, .. } = self;
        secret.iter().chain(former_secret.iter()).any(|secret| {
            keyed(hash, secret, &place(from)).is_some_and(|wanted| same(&wanted, cookie))
        })
    }

    /// Whether a source that has a cookie may be heard.
    fn source(&mut self, now: Instant, ip: IpAddr) -> bool {
        let past = |heard: &Instant| now.since(*heard) >= SOURCE_PAUSE;
        while self.sources.front().is_some_and(|(_, heard)| past(heard)) {
            self.sources.pop_front();
        }
        let source = Source::of(ip);
        let known = self.sources.iter().any(|(other, _)| *other == source);
        let mut same = self.sources.iter().filter(|(other, _)| other.network == source.network);
        if known || same.nth(NETWORK_SOURCES - 1).is_some() {
            return false;
        }
        if self.sources.len() >= MAX_SOURCES {
            self.sources.pop_front();
        }
        self.sources.push_back((source, now));
        true
    }
}

/// A source: an IPv4 address, or the 64 bits of an IPv6 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    /// Network that many sources share.
    network: [u8; 16],
    host: [u8; 2],
}

impl Source {
    fn of(ip: IpAddr) -> Self {
        let whole = address_bytes(ip);
        let (is_v4, mut network, mut host) = (ip.to_canonical().is_ipv4(), whole, [0; 2]);
        let bytes = if is_v4 { 15 } else { 6 };
        for (at, byte) in network.iter_mut().enumerate().skip(bytes) {
            if let Some(host) = host.get_mut(at - bytes) {
                *host = *byte;
            }
            *byte = 0;
        }
        Self { network, host }
    }
}

fn keyed(hash: &mut Option<Box<dyn Hash>>, key: &Secret, data: &[u8]) -> Option<Mac> {
    let mut whole = [0; 32];
    hash.as_mut()?.hmac(&**key, data, &mut whole);
    whole.first_chunk().copied()
}

fn address_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Content of a cookie.
fn place(from: SocketAddr) -> [u8; 18] {
    let mut place = [0; 18];
    if let Some((ip, port)) = place.split_first_chunk_mut() {
        *ip = address_bytes(from.ip());
        port.copy_from_slice(&from.port().to_be_bytes());
    }
    place
}

/// Compares in constant time.
fn same(one: &Mac, other: &Mac) -> bool {
    one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1, 2, 3, …
    struct Counting(u8);

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) {
            self.0 += 1;
            bytes.fill(self.0);
        }
    }

    fn guard() -> Guard {
        Guard::new(&PrivateKey([1; 32]), &[PublicKey([9; 32])])
    }

    #[test]
    fn a_cookie_is_valid_at_one_address_for_two_secrets() {
        let (mut guard, mut random) = (guard(), Counting(0));
        let from: SocketAddr = "192.0.2.7:5000".parse().unwrap();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let first = guard.cookie(at(0), from, &mut random).unwrap();
        assert_eq!(guard.cookie(at(119), from, &mut random), Some(first));
        assert!(guard.is_cookie(at(119), from, &first));
        for other in ["192.0.2.7:5001", "192.0.2.8:5000", "[2001:db8::1]:5000"] {
            assert!(!guard.is_cookie(at(119), other.parse().unwrap(), &first), "{other}");
        }
        let second = guard.cookie(at(120), from, &mut random).unwrap();
        assert_ne!(first, second);
        assert!(guard.is_cookie(at(239), from, &first) && guard.is_cookie(at(239), from, &second));
        guard.cookie(at(240), from, &mut random).unwrap();
        assert!(!guard.is_cookie(at(240), from, &first) && guard.is_cookie(at(240), from, &second));
        // After a long time without a flood, even the last one has expired.
        assert!(!guard.is_cookie(at(480), from, &second));
    }

    #[test]
    fn a_bucket_gives_what_a_second_brings_and_then_one_by_one() {
        let mut bucket = Bucket::per_second(20);
        let mut taken = |millis, tries: usize| {
            let now = Instant::from_millis(millis);
            (0..tries).filter(|_| bucket.take(now)).count()
        };
        assert_eq!(taken(0, 100), 20);
        assert_eq!(taken(49, 100), 0);
        assert_eq!(taken(50, 100), 1);
        assert_eq!(taken(150, 100), 2);
        assert_eq!(taken(60_000, 100), 20);
    }

    #[test]
    fn sources_of_one_network_take_no_place_of_others() {
        let mut guard = guard();
        let mut heard = |ms: i64, ip: core::net::Ipv4Addr| {
            guard.source(Instant::from_millis(ms), IpAddr::V4(ip))
        };
        let own = |host: u8| core::net::Ipv4Addr::new(198, 51, 100, host);
        let of_one = (0..=255).filter(|host| heard(0, own(*host))).count();
        assert_eq!(of_one, NETWORK_SOURCES);
        // 10,000 networks are heard, and with them the aircraft.
        let others = (0..10_000).map(|at| core::net::Ipv4Addr::from_bits(0x0b00_0001 + (at << 8)));
        assert_eq!(others.filter(|ip| heard(1, *ip)).count(), 10_000);
        let aircraft = core::net::Ipv4Addr::new(203, 0, 113, 7);
        assert!(heard(2, aircraft) && !heard(3, aircraft) && heard(202, aircraft));
        assert!(guard.sources.len() <= MAX_SOURCES);
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let mut guard = guard();
        let mut heard = |ip: &str| guard.source(Instant::ZERO, ip.parse().unwrap());
        assert!(heard("2001:db8::1"));
        assert!(!heard("2001:db8::2"));
        assert!(heard("2001:db8:0:1::1"));
        assert!(heard("192.0.2.1") && heard("::ffff:192.0.2.2"));
        assert!(!heard("::ffff:192.0.2.1"));
        assert!(heard("2001:db8:0:2::1") && heard("2001:db8:0:3::1"));
        assert!(!heard("2001:db8:0:4::1") && heard("2001:db8:1::1"), "48 bits are one network");
    }
}
