//! Session handshake: the aircraft initiates, the ground responds.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_units::{Duration, Instant};
use snow::HandshakeState;

use super::envelope::{self, Envelope, Mac};
use super::keyed::{Instance, Instances, Session};
use super::noise::{self, PROLOGUE, Secret};
use super::{LINGER, Opened, PENDING, Refusal, Sessions, Setup};
use crate::Side;

/// First pause before an init is repeated; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after an init that had no path to leave by.
const UNSENT_PAUSE: Duration = Duration::from_millis(20);
/// Minimum time between inits that network messages trigger.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// Time to repeat the same init.
const CALL_LIFE: Duration = Duration::from_secs(5);
/// Maximum cookies answered per second.
pub(super) const COOKIES: i64 = 20;

/// Attempt of the aircraft to establish a session.
pub(super) struct Attempt {
    /// Time at which the next init leaves.
    pub send_at: Instant,
    pause: Duration,
    /// Unanswered inits, one per peer.
    calls: Vec<PendingInit>,
    /// Peers left to ask in this round.
    round: Vec<usize>,
}

impl Attempt {
    /// Passes the creation time of each init to `note`.
    pub(super) fn note_calls(&self, note: &mut dyn FnMut(Instant)) {
        self.calls.iter().for_each(|call| note(call.made_at));
    }

    /// Describes the attempt without its times: pause, remaining peers and unanswered inits.
    pub(super) fn described(&self) -> String {
        let calls = self.calls.iter().map(|call| (call.peer, call.number, call.mac));
        alloc::format!("{} {:?} {:?}", self.pause, self.round, calls.collect::<Vec<_>>())
    }
}

/// Unanswered init.
struct PendingInit {
    made_at: Instant,
    /// Index of the peer among the trusted peers.
    peer: usize,
    /// Our number for the new session, and the instance sent with it.
    number: u16,
    instance: Instance,
    /// Keyed hash, echoed by responses.
    mac: Mac,
    /// The datagram up to the cookie.
    init: Vec<u8>,
    noise: HandshakeState,
}

/// Payload of either message.
struct HandshakePayload<'a> {
    instance: Instance,
    number: u16,
    hello: &'a [u8],
}

impl<'a> HandshakePayload<'a> {
    fn read(payload: &'a [u8]) -> Option<Self> {
        let (instance, rest) = payload.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let hello = rest.get(..usize::from(u16::from_be_bytes(*length)))?;
        Some(Self { instance: *instance, number: u16::from_be_bytes(*number), hello })
    }

    /// Encodes the payload, with the hello zero-padded to `least` bytes.
    fn write(&self, min_len: usize) -> Vec<u8> {
        let length = (self.hello.len() as u16).to_be_bytes();
        let padding = alloc::vec![0; min_len.saturating_sub(self.hello.len())];
        let number = self.number.to_be_bytes();
        [&self.instance, &number[..], &length, self.hello, &padding].concat()
    }
}

impl Sessions {
    pub(super) fn take_handshake(
        &mut self,
        now: Instant,
        from: SocketAddr,
        envelope: Envelope<'_>,
    ) -> Opened {
        let taken = match (self.setup.side, envelope) {
            (Side::Ground, Envelope::Init { noise, covered, mac, cookie }) => {
                if self.guard.knows_init(covered, mac) {
                    self.answer(now, from, noise, mac, cookie)
                } else {
                    Err(Refusal::Forged)
                }
            }
            (Side::Aircraft, Envelope::Response { echo, noise, covered, mac, cookie }) => {
                let taken = if self.known().any(|session| session.asked == *echo) {
                    // Same response over another path.
                    Ok(())
                } else if let Some(peer) = self.call_of(echo).map(|call| call.peer) {
                    if !self.guard.knows_response(peer, covered, mac) {
                        Err(Refusal::Forged)
                    } else if !self.may_hold(now, peer) {
                        Err(Refusal::Stranger)
                    } else {
                        self.complete(now, echo, noise)
                    }
                } else {
                    Err(Refusal::Foreign)
                };
                if taken.is_ok() && *cookie != Mac::default() {
                    self.proof = Some(*cookie);
                }
                taken
            }
            (Side::Aircraft, Envelope::Cookie { echo, cookie }) => {
                let again = self.call_of(echo).map(|call| [&call.init[..], cookie].concat());
                match again {
                    Some(again) if self.cookies.take(now) => {
                        self.reply(from, again);
                        Ok(())
                    }
                    _ => Err(Refusal::Foreign),
                }
            }
            (Side::Aircraft, Envelope::Unknown { session }) => {
                let is_current =
                    self.current.as_ref().is_some_and(|current| current.peer_number == session);
                // The other one of two gateways with one key never knows it.
                if is_current && !self.holder.is_contested(now) {
                    self.retry_soon(now);
                    Ok(())
                } else {
                    Err(Refusal::Foreign)
                }
            }
            _ => Err(Refusal::Foreign),
        };
        taken.map_or_else(Opened::Refused, |()| Opened::Handshake)
    }

    /// Schedules the aircraft's init as soon as allowed.
    pub(super) fn retry_soon(&mut self, now: Instant) {
        if self.setup.side != Side::Aircraft {
            return;
        }
        let soonest = self.asked_at.map_or(now, |asked_at| now.max(asked_at + MIN_PAUSE));
        let new =
            Attempt { send_at: soonest, pause: FIRST_PAUSE, calls: Vec::new(), round: Vec::new() };
        let attempt = self.attempt.get_or_insert(new);
        attempt.send_at = attempt.send_at.min(soonest);
    }

    /// Records that the last handshake had no path to leave by: it is tried again soon.
    pub fn on_handshake_unsent(&mut self, now: Instant) {
        if let Some(attempt) = &mut self.attempt {
            attempt.send_at = attempt.send_at.min(now + UNSENT_PAUSE);
            attempt.pause = FIRST_PAUSE;
            self.asked_at = None;
        }
    }

    /// Writes an init into `out`, if one is due: to the holder of the session while it is heard, else to
    /// every trusted peer in turn.
    pub(super) fn ask(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some(mut attempt) = self.attempt.take() else { return false };
        if now >= attempt.send_at {
            attempt.send_at = now + attempt.pause;
            attempt.pause = (attempt.pause + attempt.pause).min(MAX_RETRY_INTERVAL);
            attempt.round = (0..self.setup.peers.len()).rev().collect();
            attempt.round.retain(|peer| self.may_hold(now, *peer));
            attempt.calls.retain(|call| now.since(call.made_at) < CALL_LIFE);
        }
        let mut asks = false;
        while let Some(peer) = attempt.round.pop() {
            if !attempt.calls.iter().any(|call| call.peer == peer) {
                attempt.calls.extend(self.call(now, peer));
            }
            if let Some(call) = attempt.calls.iter().find(|call| call.peer == peer) {
                self.asked_at = Some(now);
                out.clear();
                out.extend_from_slice(&call.init);
                out.extend_from_slice(&Mac::default());
                asks = true;
                break;
            }
        }
        self.attempt = Some(attempt);
        asks
    }

    /// Makes a new init for a peer.
    fn call(&mut self, now: Instant, peer: usize) -> Option<PendingInit> {
        let (secret, number) = self.draw();
        let instance = self.instance_for(peer, None);
        let payload = self.own_payload(instance, number);
        let Setup { private, peers, psk, .. } = &self.setup;
        let public = peers.get(peer)?;
        let (noise, message) =
            noise::ask(PROLOGUE, private, public, psk.is_some(), secret, &payload).ok()?;
        let mut init = envelope::init(&message);
        let mac = self.guard.of_init(peer, &init)?;
        init.extend_from_slice(&mac);
        Some(PendingInit { made_at: now, peer, number, instance, mac, init, noise })
    }

    fn call_of(&self, mac: &Mac) -> Option<&PendingInit> {
        self.attempt.as_ref()?.calls.iter().find(|call| call.mac == *mac)
    }

    /// Completes a session from a ground's response to the init `echo` (aircraft).
    fn complete(&mut self, now: Instant, echo: &Mac, message: &[u8]) -> Result<(), Refusal> {
        let calls =
            self.attempt.as_mut().map(|attempt| &mut attempt.calls).ok_or(Refusal::Foreign)?;
        let place = calls.iter().position(|call| call.mac == *echo).ok_or(Refusal::Foreign)?;
        let noise = calls.get_mut(place).map(|call| &mut call.noise).ok_or(Refusal::Foreign)?;
        let psk = self.setup.psk.as_ref();
        let payload = noise::read_response(noise, psk, message).map_err(|_| Refusal::Forged)?;
        let call = calls.swap_remove(place);
        let theirs = HandshakePayload::read(&payload).ok_or(Refusal::Forged)?;
        let instances = Instances { own: call.instance, peer: theirs.instance };
        if self.holder.is_second(now, call.peer, instances.peer) {
            return Err(Refusal::Stranger);
        }
        if self.holder.is_replaced_one(call.peer, instances) {
            if self.holder.is_heard(now) {
                // The first one is still there.
                self.holder.on_returned(now);
                return Err(Refusal::Stranger);
            }
            // The next init has another instance.
            let own = self.draw_token();
            self.holder.renew(own);
            self.retry_soon(now);
            return Err(Refusal::Stranger);
        }
        let keys = noise::keys(call.noise).map_err(|_| Refusal::Forged)?;
        let session = Session {
            peer: call.peer,
            number: call.number,
            peer_number: theirs.number,
            instances,
            hello: theirs.hello.to_vec(),
            asked: call.mac,
            answer: Vec::new(),
            heard: false,
            born: now,
            until: Instant::FAR_FUTURE,
            count: 0,
            keys: keys.into(),
        };
        self.attempt = None;
        self.establish(now, session);
        Ok(())
    }

    /// Responds to an init with a correct keyed hash (ground).
    fn answer(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &[u8],
        mac: &Mac,
        cookie: &Mac,
    ) -> Result<(), Refusal> {
        let former = self.known().find(|session| session.asked == *mac);
        let former = former.map(|session| session.answer.clone());
        if !self.guard.admits(now, from, former.is_some(), cookie) {
            if let Some(cookie) = self.guard.cookie(now, from, &mut *self.random) {
                self.reply(from, envelope::cookie(mac, &cookie));
            }
            return Err(Refusal::Cookie);
        }
        if let Some(answer) = former {
            self.answer_with_cookie(now, from, answer);
            return Ok(());
        }
        let (secret, number) = self.draw();
        let Setup { private, peers, psk, .. } = &self.setup;
        let (mut noise, public, payload) =
            noise::read_init(PROLOGUE, private, psk.is_some(), secret, message)
                .map_err(|_| Refusal::Forged)?;
        let peer = peers.iter().position(|known| Some(*known) == public);
        let peer = peer.filter(|peer| self.may_hold(now, *peer)).ok_or(Refusal::Stranger)?;
        let theirs = HandshakePayload::read(&payload).ok_or(Refusal::Forged)?;
        if self.holder.is_second(now, peer, theirs.instance) {
            return Err(Refusal::Stranger);
        }
        let own = self.instance_for(peer, Some(theirs.instance));
        let instances = Instances { own, peer: theirs.instance };
        let written =
            noise::respond(&mut noise, self.setup.psk.as_ref(), &self.own_payload(own, number))
                .map_err(|_| Refusal::Forged)?;
        let keys = noise::keys(noise).map_err(|_| Refusal::Forged)?;
        let mut answer = envelope::response(mac, &written);
        let proof = self.guard.of_response(peer, &answer).ok_or(Refusal::Forged)?;
        answer.extend_from_slice(&proof);
        self.answer_with_cookie(now, from, answer.clone());
        // The path of the init may carry nothing back, while another one does.
        if self.current.as_ref().is_some_and(|current| current.peer == peer) {
            self.response = Some([&answer[..], &Mac::default()].concat());
        }
        let session = Session {
            peer,
            number,
            peer_number: theirs.number,
            instances,
            hello: theirs.hello.to_vec(),
            asked: *mac,
            answer,
            heard: false,
            born: now,
            until: now + LINGER,
            count: 0,
            keys: keys.into(),
        };
        if self.pending.len() >= PENDING {
            self.pending.remove(0);
        }
        self.pending.push(session);
        Ok(())
    }

    /// Sends a response with the cookie of the address that it goes to.
    fn answer_with_cookie(&mut self, now: Instant, to: SocketAddr, mut answer: Vec<u8>) {
        let cookie = self.guard.cookie(now, to, &mut *self.random).unwrap_or_default();
        answer.extend_from_slice(&cookie);
        self.reply(to, answer);
    }

    /// Returns this end's instance for a peer, a new one if needed. `theirs` is the peer's instance, if known.
    fn instance_for(&mut self, peer: usize, theirs: Option<Instance>) -> Instance {
        self.holder.instance_for(peer, theirs).unwrap_or_else(|| self.draw_token())
    }

    /// Hello of this end.
    fn own_payload(&self, instance: Instance, number: u16) -> Vec<u8> {
        let min_len = if self.setup.side == Side::Aircraft { envelope::MIN_INIT_HELLO } else { 0 };
        HandshakePayload { instance, number, hello: &self.setup.hello }.write(min_len)
    }

    /// Draws randomness for a handshake and an unused session number.
    fn draw(&mut self) -> (Secret, u16) {
        let (mut secret, mut number) = (Secret::default(), [0; 2]);
        self.random.fill(&mut *secret);
        self.random.fill(&mut number);
        let mut number = u16::from_be_bytes(number);
        while self.known().any(|session| session.number == number) {
            number = number.wrapping_add(1);
        }
        (secret, number)
    }
}
