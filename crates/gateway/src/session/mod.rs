//! Noise session with a peer: everything between plaintext and network datagrams.
//!
//! Several peers may be trusted, but only one at a time holds the session. Another may take the session over
//! after [`TAKEOVER`] without an authentic datagram from the holder.
//!
//! The aircraft starts handshakes, the ground responds; both seal and open. Since datagrams under old keys
//! are still in flight during a key change, each end keeps several sessions: the *current* one, used to seal;
//! *earlier* ones, still opened; and at the ground *pending* ones, which become current with their first
//! authentic datagram. A replayed init is therefore harmless: nobody without the keys can confirm its
//! session.
//!
//! **After every call that takes `&mut self`, the driver must call
//! [`poll_handshake`](Sessions::poll_handshake) and [`poll_event`](Sessions::poll_event) until they return
//! `None`, and then query [`next_wakeup`](Sessions::next_wakeup) again.**

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use crate::gateway::BUNDLE;
use crate::{PresharedKey, PrivateKey, PublicKey, Random, Side};

#[cfg(target_arch = "x86_64")]
mod cipher;
mod envelope;
mod fingerprint;
mod guard;
mod handshake;
mod holder;
mod keyed;
mod noise;

pub use envelope::{MAX_HELLO, OVERHEAD, path_of};
pub use noise::public_key;

use envelope::Envelope;
pub(crate) use guard::Bucket;
use guard::Guard;
use handshake::Attempt;
use holder::Holder;
use keyed::Session;

/// Time for which an earlier session is still opened and a pending session waits for confirmation.
const LINGER: Duration = Duration::from_secs(30);
/// Silence of the peer that holds the session after which another trusted peer may take it over.
pub const TAKEOVER: Duration = Duration::from_secs(1);
/// Maximum earlier sessions; reached only if handshakes outrun confirmation.
const EARLIER: usize = 16;
/// Maximum pending sessions.
const PENDING: usize = 128;
/// Datagrams under one key, in both directions, after which keys are changed.
const REKEY_AFTER_DATAGRAMS: u64 = 1 << 40;
/// Maximum datagrams sealed and opened under one key.
const MAX_DATAGRAMS: u64 = 1 << 41;
/// Replies per second to datagrams of unknown sessions.
const UNKNOWN_ANSWERS: i64 = 10;
/// Maximum replies waiting to be polled.
const REPLIES: usize = 64;

/// Setup of a gateway's sessions.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Side of this end.
    pub side: Side,
    /// The private key of this end.
    pub private: PrivateKey,
    /// Public keys of the trusted peers.
    pub peers: Vec<PublicKey>,
    /// Pre-shared key of both ends.
    pub psk: Option<PresharedKey>,
    /// Hello, carried encrypted in each handshake and truncated to [`MAX_HELLO`].
    pub hello: Vec<u8>,
    /// Rekeying interval; at least 1 s.
    pub rekey: Duration,
    /// Maximum age of keys for sealing and opening; at least `rekey`.
    pub lifetime: Duration,
}

/// Proof of the address at which the aircraft receives.
pub type Proof = [u8; 16];

/// Result of opening a datagram from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Decrypted message of the peer.
    Message {
        /// Path that the peer sent it on.
        path: PathId,
        /// Number on that path in its session.
        number: u64,
        /// Whether it is of the current session, rather than of one before.
        current: bool,
        /// Whether this is the newest datagram of the current session on that path, so that the peer's
        /// address may be learnt.
        newest: bool,
    },
    /// Handshake message, already processed.
    Handshake,
    /// Unusable datagram.
    Refused(Refusal),
}

/// Reason for refusing a datagram. The counters of [`RefusedSnapshot`](crate::snapshot::RefusedSnapshot) have
/// the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Wrong format, or unknown session.
    Foreign,
    /// Not authentic.
    Forged,
    /// Seen before, or too old to tell.
    Replayed,
    /// Handshake from someone other than the peer.
    Stranger,
    /// Init over the rate limit, answered by a cookie at most.
    Cookie,
}

/// Destination of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// To the peer on every path.
    OnEveryPath,
    /// To this address, from the socket that received the last datagram.
    Reply {
        /// Address of the sender.
        to: SocketAddr,
    },
}

/// A change of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A new session is current. The aircraft must seal a datagram at once: the ground keeps the old session
    /// until it receives a datagram under the new one.
    Established {
        /// Hello of the peer.
        hello: Vec<u8>,
        /// Whether the peer started since the last session, or this is the first: all known peer state is
        /// obsolete. From now on datagrams of earlier sessions are refused.
        restarted: bool,
    },
    /// The current session has expired without a new handshake: there is no session now.
    Expired,
}

/// No session to seal under, invalid path, or message longer than 65,519 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no session with the peer stands")]
pub struct NoSession;

/// Sessions of a gateway with its peer.
pub struct Sessions {
    setup: Setup,
    random: Box<dyn Random>,
    guard: Guard,
    holder: Holder,
    /// Cookie of the last response: returning it proves reception at the address it was sent to.
    proof: Option<Proof>,
    current: Option<Session>,
    /// Oldest first.
    earlier: Vec<Session>,
    /// Oldest first.
    pending: Vec<Session>,
    attempt: Option<Attempt>,
    /// Time at which the last init left on every path.
    asked_at: Option<Instant>,
    rekey_at: Instant,
    unknown: Bucket,
    cookies: Bucket,
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Response that leaves on every path, too.
    response: Option<Vec<u8>>,
    events: VecDeque<SessionEvent>,
}

impl Sessions {
    /// Creates the sessions of a gateway. The aircraft asks for one at once.
    pub fn new(now: Instant, mut setup: Setup, mut random: Box<dyn Random>) -> Self {
        setup.hello.truncate(MAX_HELLO);
        setup.rekey = setup.rekey.max(Duration::from_secs(1));
        setup.lifetime = setup.lifetime.max(setup.rekey);
        let mut instance = [0; 8];
        random.fill(&mut instance);
        let mut sessions = Self {
            guard: Guard::new(&setup.private, &setup.peers),
            setup,
            random,
            holder: Holder::new(instance),
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
            response: None,
            events: VecDeque::new(),
        };
        sessions.renew(now);
        sessions
    }

    /// Opens one datagram from the network, including its envelope. The message replaces `plain`, which is
    /// left empty without one.
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
                        self.send_unknown_session(now, from, session, path, number);
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

    /// Returns `None` if the session is unknown.
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
        // The MPTCP connection carries no control, whose age has a bound.
        let is_uncertain = |current: &Session| current.is_silent(now, path) && path != BUNDLE;
        if self.current.as_ref().is_some_and(|current| is_it(current) && is_uncertain(current)) {
            // New keys are certain at once.
            self.retry_soon(now);
            return None;
        }
        let opened = if let Some(current) = self.current.as_mut().filter(|known| is_it(known)) {
            let first = !current.heard;
            let opened = current.open(now, path, number, sealed, plain);
            if first && opened.is_ok() {
                // From now on the peer seals under this session.
                for earlier in &mut self.earlier {
                    earlier.until = earlier.until.min(now + LINGER);
                }
            }
            opened
        } else if let Some(at) = self.pending.iter().position(is_it) {
            let Session { peer, instances, .. } = *self.pending.get(at)?;
            if !self.may_hold(now, peer) || self.holder.is_second(now, peer, instances.peer) {
                return Some(Opened::Refused(Refusal::Stranger));
            }
            let opened = self.pending.get_mut(at)?.open(now, path, number, sealed, plain);
            if opened.is_ok() {
                // Older sessions are superseded; younger ones may yet be confirmed.
                let confirmed = self.pending.drain(..=at).next_back()?;
                self.establish(now, confirmed);
            }
            opened
        } else {
            let earlier = self.earlier.iter_mut().find(|known| is_it(known))?;
            earlier.open(now, path, number, sealed, plain).map(|_| false)
        };
        if opened.is_ok() {
            // Earlier sessions also belong to the holder.
            self.holder.on_heard(now);
        }
        Some(match opened {
            Ok(newest) => {
                let current = self.current.as_ref().is_some_and(is_it);
                Opened::Message { path, number, current, newest }
            }
            Err(refusal) => Opened::Refused(refusal),
        })
    }

    /// Seals a message for the peer into `out`. Returns the datagram's number on the path.
    ///
    /// # Errors
    /// There is no session; `out` is left empty.
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

    /// Overwrites `out` with the next handshake message to send.
    pub fn poll_handshake(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Handshake> {
        if let Some((to, bytes)) = self.replies.pop_front() {
            *out = bytes;
            return Some(Handshake::Reply { to });
        }
        if let Some(bytes) = self.response.take() {
            *out = bytes;
            return Some(Handshake::OnEveryPath);
        }
        self.ask(now, out).then_some(Handshake::OnEveryPath)
    }

    /// Returns the next change of the session.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// Takes the proof from the last response, to be returned sealed on the path that carried it.
    pub fn take_proof(&mut self) -> Option<Proof> {
        self.proof.take()
    }

    /// Whether the ground has sent this proof to that address, in the last two to four minutes.
    pub fn is_proof(&mut self, now: Instant, from: SocketAddr, proof: &Proof) -> bool {
        self.guard.is_cookie(now, from, proof)
    }

    /// Returns eight unguessable bytes.
    pub fn draw_token(&mut self) -> [u8; 8] {
        let mut token = [0; 8];
        self.random.fill(&mut token);
        token
    }

    /// Returns the path of a datagram that duplicates a recently opened one of the current session, else
    /// `None`. `scratch` is overwritten.
    pub fn path_of_copy(&self, bytes: &[u8], scratch: &mut Vec<u8>) -> Option<PathId> {
        let Some(Envelope::Sealed { session, path, number, sealed }) = Envelope::read(bytes) else {
            return None;
        };
        let current = self.current.as_ref().filter(|current| current.number == session)?;
        current.is_recent_copy(path, number, sealed, scratch).then_some(path)
    }

    /// Whether there is a session, so that [`seal`](Self::seal) succeeds.
    pub const fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// Returns the time until the current session ends unless rekeyed; `None` without a session.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        Some((self.current.as_ref()?.born + self.setup.lifetime).since(now))
    }

    /// Whether a key change is overdue: a quarter of the time left for it has passed.
    pub fn is_overdue(&self, now: Instant) -> bool {
        let Setup { rekey, lifetime, .. } = self.setup;
        let max_age = rekey + Duration::from_nanos((lifetime - rekey).as_nanos() / 4);
        self.current.as_ref().is_some_and(|current| now.since(current.born) >= max_age)
    }

    /// Starts a new handshake of the aircraft after silence, unless one is in progress, and keeps the
    /// session. The ground waits.
    pub fn renew(&mut self, now: Instant) {
        if self.attempt.is_none() {
            self.retry_soon(now);
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

    /// Handles expired timers.
    pub fn wake(&mut self, now: Instant) {
        self.expire(now);
        self.earlier.retain(|session| now < session.until);
        self.pending.retain(|session| now < session.until);
        if self.rekey_at <= now {
            self.renew(now);
        }
    }

    /// Drops expired sessions.
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

    /// Returns true if two gateways with the peer's key are heard.
    pub fn is_peer_duplicated(&self, now: Instant) -> bool {
        self.holder.is_duplicated(now)
    }

    /// Whether a trusted peer may hold the session: it is the holder, or no holder is heard.
    fn may_hold(&self, now: Instant, peer: usize) -> bool {
        let holder = self.current.as_ref().map(|current| current.peer);
        !self.holder.is_heard(now) || holder.is_none_or(|holder| holder == peer)
    }

    /// Makes a session the current one.
    fn establish(&mut self, now: Instant, mut session: Session) {
        let replaced = self.holder.establish(now, session.peer, session.instances);
        let restarted = replaced.is_some();
        let until = if session.heard { now + LINGER } else { Instant::FAR_FUTURE };
        session.until = Instant::FAR_FUTURE;
        if let Some(own) = replaced.and_then(|replaced| replaced.own) {
            // A peer with such an answer would keep its transports, while this end resets them.
            self.pending.retain(|pending| pending.instances.own != own);
        }
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

    /// Notifies the aircraft that its session is unknown here.
    fn send_unknown_session(
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

    /// Iterates over all known sessions.
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
        // No response arrives.
        aircraft.current.as_mut().unwrap().count = MAX_DATAGRAMS - 1;
        aircraft.seal(later, PathId(0), b"the last", &mut out).unwrap();
        assert_eq!(aircraft.seal(later, PathId(0), b"one more", &mut out), Err(NoSession));
        assert!(!aircraft.is_up());
    }
}
