//! Everything between plaintext datagrams and what leaves on a network: a Noise session with a peer.
//!
//! Several peers may be trusted, and one at a time holds the session. Another may take it over once nothing
//! authentic has come from the holder for [`TAKEOVER`].
//!
//! The aircraft begins handshakes, the ground answers them; both seal and open. Keys are changed while
//! datagrams of the old ones are still on their way, so each end knows several sessions at a time: the
//! *current* one, under which it seals; *earlier* ones, which it still opens; and at the ground *pending*
//! ones, which become current with the first authentic datagram under them. An init that somebody else
//! sends again therefore disturbs nothing: without the keys nobody confirms its session.
//!
//! **After every call that takes `&mut self`, the driver calls [`poll_handshake`](Sessions::poll_handshake)
//! and [`poll_event`](Sessions::poll_event) until they answer `None`, and then asks
//! [`next_wakeup`](Sessions::next_wakeup) again.**

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use crate::{PresharedKey, PrivateKey, PublicKey, Random, Side};

#[cfg(target_arch = "x86_64")]
mod cipher;
mod envelope;
mod fingerprint;
mod guard;
mod handshake;
mod keyed;
mod noise;
mod window;

pub use envelope::{LARGEST_HELLO, OVERHEAD, path_of};
pub use noise::public_key;

use envelope::Envelope;
pub(crate) use guard::Bucket;
use guard::Guard;
use handshake::Attempt;
use keyed::Session;

/// What is still on its way under an earlier session may arrive for so long, and so long a pending one
/// waits for its confirmation.
const LINGER: Duration = Duration::from_secs(30);
/// After so long without anything authentic from the peer that holds the session, another trusted one may
/// take it over.
pub const TAKEOVER: Duration = Duration::from_secs(1);
/// Most earlier sessions; more only where handshakes outrun their confirmation.
const EARLIER: usize = 16;
/// Most pending sessions.
const PENDING: usize = 128;
/// Datagrams under one key, both ways together, after which the keys are changed.
const REKEY_AFTER_DATAGRAMS: u64 = 1 << 40;
/// … and after which nothing is sealed or opened under it.
const MAX_DATAGRAMS: u64 = 1 << 41;
/// Datagrams of unknown sessions that are answered in a second.
const UNKNOWN_ANSWERS: i64 = 10;
/// Most replies that wait to be polled.
const REPLIES: usize = 64;

/// Setup of a gateway's sessions.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Side of this end.
    pub side: Side,
    /// The private key of this end.
    pub private: PrivateKey,
    /// The public keys of the ends that are trusted as the other one.
    pub peers: Vec<PublicKey>,
    /// A key that both ends share besides.
    pub psk: Option<PresharedKey>,
    /// Contents of the hello that each handshake carries, encrypted. What exceeds [`LARGEST_HELLO`] is cut off.
    pub hello: Vec<u8>,
    /// Keys are changed so often; at least 1 s.
    pub rekey: Duration,
    /// Age at which nothing is sealed or opened under keys any more; at least `rekey`.
    pub lifetime: Duration,
}

/// Proof of the address at which the aircraft receives.
pub type Proof = [u8; 16];

/// Result of opening a datagram from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A message of the peer, decrypted.
    Message {
        /// The path that the peer sent it on.
        path: PathId,
        /// Its number on that path under its session.
        number: u64,
        /// No later datagram of the current session has arrived on that path: the peer's address may be
        /// learnt from this one.
        newest: bool,
    },
    /// Part of a handshake; it has been dealt with.
    Handshake,
    /// Nothing that can be used.
    Refused(Refusal),
}

/// Why a datagram is refused. The counters of [`RefusedSnapshot`](crate::snapshot::RefusedSnapshot) have
/// the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not of the format, or of no session.
    Foreign,
    /// Not authentic.
    Forged,
    /// Seen before, or too old to know.
    Replayed,
    /// A handshake of somebody else than the peer.
    Stranger,
    /// An init among too many, answered by a cookie at most.
    Cookie,
}

/// Destination of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// To the peer on every path.
    OnEveryPath,
    /// To this address, by the socket that brought the last datagram.
    Reply {
        /// Address of the sender.
        to: SocketAddr,
    },
}

/// A change of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A new session is the current one. The aircraft has to seal a datagram at once, since the ground
    /// goes on under the old one until it has heard under the new one.
    Established {
        /// Hello of the peer.
        hello: Vec<u8>,
        /// The peer has been started since the last session, or it is the first: what is known of its
        /// state no longer holds. Datagrams of earlier sessions are refused from now on.
        restarted: bool,
    },
    /// The current session has reached the end of its life, and no handshake has made another: none
    /// stands now.
    Expired,
}

/// There is no session to seal under, the path is no path, or the message is beyond 65,519 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no session with the peer stands")]
pub struct NoSession;

/// The sessions of a gateway with its one peer.
pub struct Sessions {
    setup: Setup,
    random: Box<dyn Random>,
    guard: Guard,
    /// Of this start of the gateway; it tells a change of keys from a restart.
    instance: [u8; 8],
    /// The last peer's place among those that are trusted, and its instance.
    peer_instance: Option<(usize, [u8; 8])>,
    /// The cookie of the last response: whoever returns it has received at the address that it went to.
    proof: Option<Proof>,
    /// Time at which the peer that holds the session was last heard.
    heard_at: Option<Instant>,
    current: Option<Session>,
    /// The oldest first.
    earlier: Vec<Session>,
    /// The oldest first.
    pending: Vec<Session>,
    attempt: Option<Attempt>,
    /// Time at which the last init left on every path.
    asked_at: Option<Instant>,
    rekey_at: Instant,
    unknown: Bucket,
    cookies: Bucket,
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<SessionEvent>,
}

impl Sessions {
    /// Sessions of a gateway that starts. The aircraft asks for one at once.
    pub fn new(now: Instant, mut setup: Setup, mut random: Box<dyn Random>) -> Self {
        setup.hello.truncate(LARGEST_HELLO);
        setup.rekey = setup.rekey.max(Duration::from_secs(1));
        setup.lifetime = setup.lifetime.max(setup.rekey);
        let mut instance = [0; 8];
        random.fill(&mut instance);
        let mut sessions = Self {
            guard: Guard::new(&setup.private, &setup.peers),
            setup,
            random,
            instance,
            peer_instance: None,
            heard_at: None,
            proof: None,
            current: None,
            earlier: Vec::new(),
            pending: Vec::new(),
            attempt: None,
            asked_at: None,
            rekey_at: Instant::FAR_FUTURE,
            unknown: Bucket::per_second(UNKNOWN_ANSWERS),
            cookies: Bucket::per_second(handshake::COOKIES),
            replies: VecDeque::new(),
            events: VecDeque::new(),
        };
        sessions.renew(now);
        sessions
    }

    /// Takes one datagram from the network, envelope included. Its message replaces `plain`, which is
    /// left empty where there is none.
    pub fn open(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Opened {
        self.expire(now);
        let opened = match Envelope::read(bytes) {
            Some(Envelope::Sealed { session, path, number, sealed }) => {
                match self.open_sealed(now, session, path, number, sealed, plain) {
                    Some(opened) => opened,
                    None => {
                        self.tell_unknown(now, from, session, path, number);
                        Opened::Refused(Refusal::Foreign)
                    }
                }
            }
            Some(handshake) => self.take_handshake(now, from, handshake),
            None => Opened::Refused(Refusal::Foreign),
        };
        if !matches!(opened, Opened::Message { .. }) {
            plain.clear();
        }
        opened
    }

    /// `None` where the session is unknown.
    fn open_sealed(
        &mut self,
        now: Instant,
        session: u16,
        path: PathId,
        number: u64,
        sealed: &[u8],
        plain: &mut Vec<u8>,
    ) -> Option<Opened> {
        let is_it = |known: &Session| known.number == session;
        let opened = if let Some(current) = self.current.as_mut().filter(|known| is_it(known)) {
            let first = !current.heard;
            let opened = current.open(path, number, sealed, plain);
            if first && opened.is_ok() {
                // From here on the peer seals under this session.
                for earlier in &mut self.earlier {
                    earlier.until = earlier.until.min(now + LINGER);
                }
            }
            opened
        } else if let Some(at) = self.pending.iter().position(is_it) {
            let peer = self.pending.get(at)?.peer;
            if !self.may_hold(now, peer) {
                return Some(Opened::Refused(Refusal::Stranger));
            }
            let opened = self.pending.get_mut(at)?.open(path, number, sealed, plain);
            if opened.is_ok() {
                // Older ones have been overtaken; younger ones may yet be confirmed.
                let confirmed = self.pending.drain(..=at).next_back()?;
                self.establish(now, confirmed);
            }
            opened
        } else {
            let earlier = self.earlier.iter_mut().find(|known| is_it(known))?;
            earlier.open(path, number, sealed, plain).map(|_| false)
        };
        if opened.is_ok() {
            // Earlier sessions are the holder's, too.
            self.heard_at = Some(now);
        }
        Some(match opened {
            Ok(newest) => Opened::Message { path, number, newest },
            Err(refusal) => Opened::Refused(refusal),
        })
    }

    /// Seals a message for the peer: the datagram replaces `out`. Returns its number on the path.
    ///
    /// # Errors
    /// No session stands, and `out` is left empty.
    pub fn seal(
        &mut self,
        now: Instant,
        path: PathId,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u64, NoSession> {
        self.expire(now);
        let sealed = self.current.as_mut().ok_or(NoSession).and_then(|current| {
            let number = current.seal(path, plain, out)?;
            if current.count >= REKEY_AFTER_DATAGRAMS {
                self.rekey_at = Instant::ZERO;
            }
            Ok(number)
        });
        if sealed.is_err() {
            out.clear();
        }
        sealed
    }

    /// The next bytes of a handshake that have to leave, which replace `out`.
    pub fn poll_handshake(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Handshake> {
        if let Some((to, bytes)) = self.replies.pop_front() {
            *out = bytes;
            return Some(Handshake::Reply { to });
        }
        self.ask(now, out).then_some(Handshake::OnEveryPath)
    }

    /// Returns the next change of the session.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// What the response said that was taken last: to be returned, sealed, by the path that brought it.
    pub fn take_proof(&mut self) -> Option<Proof> {
        self.proof.take()
    }

    /// Whether the ground has sent this proof to that address, in the last two to four minutes.
    pub fn is_proof(&mut self, now: Instant, from: SocketAddr, proof: &Proof) -> bool {
        self.guard.is_cookie(now, from, proof)
    }

    /// Eight bytes that nobody can guess.
    pub fn draw_token(&mut self) -> [u8; 8] {
        let mut token = [0; 8];
        self.random.fill(&mut token);
        token
    }

    /// The path of a datagram that is a copy of one of the last that were opened under the current
    /// session; `None` where it is none. `scratch` is overwritten.
    pub fn path_of_copy(&self, bytes: &[u8], scratch: &mut Vec<u8>) -> Option<PathId> {
        let Some(Envelope::Sealed { session, path, number, sealed }) = Envelope::read(bytes) else {
            return None;
        };
        let current = self.current.as_ref().filter(|current| current.number == session)?;
        current.is_recent_copy(path, number, sealed, scratch).then_some(path)
    }

    /// Whether a session stands, so that [`seal`](Self::seal) succeeds.
    pub const fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// Time until the current session ends unless its keys are changed; `None` where none stands.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        Some((self.current.as_ref()?.born + self.setup.lifetime).since(now))
    }

    /// Whether a change of keys is overdue: a quarter of the time has passed that is left for it.
    pub fn is_overdue(&self, now: Instant) -> bool {
        let Setup { rekey, lifetime, .. } = self.setup;
        let most = rekey + Duration::from_nanos((lifetime - rekey).as_nanos() / 4);
        self.current.as_ref().is_some_and(|current| now.since(current.born) >= most)
    }

    /// Nothing is heard from the peer: the aircraft begins a new handshake, unless one is under way, and
    /// keeps the session. The ground waits.
    pub fn renew(&mut self, now: Instant) {
        if self.attempt.is_none() {
            self.hurry(now);
        }
    }

    /// Time of the next call of [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        let ask = match &self.attempt {
            Some(attempt) => attempt.send_at,
            None if self.setup.side == Side::Aircraft => self.rekey_at,
            None => Instant::FAR_FUTURE,
        };
        let forget = self.earlier.iter().chain(&self.pending).map(|session| session.until);
        let expires = self.current.as_ref().map(|current| current.born + self.setup.lifetime);
        forget.chain(expires).fold(ask, Instant::min)
    }

    /// Time has passed.
    pub fn wake(&mut self, now: Instant) {
        self.expire(now);
        self.earlier.retain(|session| now < session.until);
        self.pending.retain(|session| now < session.until);
        if self.rekey_at <= now {
            self.renew(now);
        }
    }

    /// Forgets sessions at the end of their life.
    fn expire(&mut self, now: Instant) {
        let lifetime = self.setup.lifetime;
        let lives =
            |session: &Session| now.since(session.born) < lifetime && session.count < MAX_DATAGRAMS;
        self.earlier.retain(lives);
        self.pending.retain(lives);
        if self.current.as_ref().is_some_and(|current| !lives(current)) {
            self.current = None;
            self.events.push_back(SessionEvent::Expired);
            self.renew(now);
        }
    }

    /// The public key of the peer that holds the session.
    pub fn peer(&self) -> Option<&PublicKey> {
        self.setup.peers.get(self.current.as_ref()?.peer)
    }

    /// Whether a trusted peer may hold the session: it does, or nobody who does is heard.
    fn may_hold(&self, now: Instant, peer: usize) -> bool {
        let holder = self.current.as_ref().map(|current| current.peer);
        let heard = self.heard_at.is_some_and(|heard| now.since(heard) < TAKEOVER);
        !heard || holder.is_none_or(|holder| holder == peer)
    }

    /// Makes a session the current one.
    fn establish(&mut self, now: Instant, mut session: Session) {
        let peer = (session.peer, session.instance);
        let restarted = self.peer_instance != Some(peer);
        self.heard_at = Some(now);
        let until = if session.heard { now + LINGER } else { Instant::FAR_FUTURE };
        session.until = Instant::FAR_FUTURE;
        self.peer_instance = Some(peer);
        let hello = core::mem::take(&mut session.hello);
        self.earlier.extend(self.current.replace(session));
        for earlier in &mut self.earlier {
            earlier.until = earlier.until.min(until);
        }
        if restarted {
            self.earlier.clear();
        } else if self.earlier.len() > EARLIER {
            self.earlier.remove(0);
        }
        self.rekey_at = now + self.setup.rekey;
        self.events.push_back(SessionEvent::Established { hello, restarted });
    }

    /// Tells the aircraft that its session is not known here (any more).
    fn tell_unknown(
        &mut self,
        now: Instant,
        from: SocketAddr,
        session: u16,
        path: PathId,
        number: u64,
    ) {
        if self.setup.side == Side::Ground && self.unknown.take(now) {
            self.reply(from, envelope::unknown(session, path, number));
        }
    }

    fn reply(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.replies.len() < REPLIES {
            self.replies.push_back((to, bytes));
        }
    }

    /// Every session that is known.
    fn known(&self) -> impl Iterator<Item = &Session> {
        self.current.iter().chain(&self.earlier).chain(&self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sevens;

    impl Random for Sevens {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    #[test]
    fn keys_are_changed_before_their_numbers_run_out() {
        let keys = [PrivateKey([1; 32]), PrivateKey([2; 32])];
        let publics = keys.each_ref().map(|key| public_key(key).unwrap());
        let (now, from) = (Instant::ZERO, SocketAddr::from(([192, 0, 2, 1], 1)));
        let [mut aircraft, mut ground] =
            [(Side::Aircraft, 0), (Side::Ground, 1)].map(|(side, own)| {
                let (private, peer) = (keys[own].clone(), publics[1 - own]);
                let rekey = Duration::from_secs(120);
                let lifetime = Duration::from_secs(600);
                let (peers, hello) = (alloc::vec![peer], Vec::new());
                let setup = Setup { side, private, peers, psk: None, hello, rekey, lifetime };
                Sessions::new(now, setup, Box::new(Sevens))
            });
        let (mut out, mut plain) = (Vec::new(), Vec::new());
        aircraft.poll_handshake(now, &mut out).unwrap();
        assert_eq!(ground.open(now, from, &out, &mut plain), Opened::Handshake);
        ground.poll_handshake(now, &mut out).unwrap();
        assert_eq!(aircraft.open(now, from, &out, &mut plain), Opened::Handshake);
        assert!(aircraft.is_up());
        aircraft.current.as_mut().unwrap().count = REKEY_AFTER_DATAGRAMS - 2;
        for due in [false, true] {
            aircraft.seal(now, PathId(0), b"position", &mut out).unwrap();
            assert_eq!(aircraft.next_wakeup() <= now, due);
        }
        let later = now + Duration::from_secs(1);
        aircraft.wake(later);
        assert_eq!(aircraft.poll_handshake(later, &mut out), Some(Handshake::OnEveryPath));
        // No answer comes.
        aircraft.current.as_mut().unwrap().count = MAX_DATAGRAMS - 1;
        aircraft.seal(later, PathId(0), b"the last", &mut out).unwrap();
        assert_eq!(aircraft.seal(later, PathId(0), b"one more", &mut out), Err(NoSession));
        assert!(!aircraft.is_up());
    }
}
