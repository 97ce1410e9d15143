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
        Guard::new(&PrivateKey([1; 32]), &PublicKey([9; 32]))
    }

    #[test]
    fn a_cookie_is_good_at_one_address_until_the_secret_has_changed_twice() {
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
        // After a long time without a flood even the last one is too old.
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
    fn an_ipv6_network_is_one_source() {
        let mut guard = guard();
        let mut heard = |ip: &str| guard.source(Instant::ZERO, ip.parse().unwrap());
        assert!(heard("2001:db8::1"));
        assert!(!heard("2001:db8::2"));
        assert!(heard("2001:db8:0:1::1"));
        assert!(heard("192.0.2.1") && heard("::ffff:192.0.2.2"));
        assert!(!heard("::ffff:192.0.2.1"));
        let more = (0..100).filter(|at| heard(&alloc::format!("198.51.100.{at}"))).count();
        assert_eq!(more, 40 - 4);
    }
}
