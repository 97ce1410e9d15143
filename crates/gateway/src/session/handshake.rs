//! How a session comes about: the aircraft asks, the ground answers.

use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_units::{Duration, Instant};
use snow::HandshakeState;

use super::envelope::{self, Envelope, Mac};
use super::keyed::{Session, Start};
use super::noise::{self, PROLOGUE, Secret};
use super::{LINGER, Opened, PENDING, Refusal, Sessions};
use crate::Side;

/// An init is repeated after so long, then after twice as long, and so on …
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Inits that something the network says causes leave at least so far apart.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
/// The same init is repeated for so long.
const CALL_LIFE: Duration = Duration::from_secs(5);
/// Cookies that are answered in a second.
pub(super) const COOKIES: i64 = 20;

/// The aircraft asks for a session until it is answered.
pub(super) struct Attempt {
    /// When the next init leaves.
    pub send_at: Instant,
    pause: Duration,
    call: Option<Call>,
}

/// An init that is out.
struct Call {
    made_at: Instant,
    /// Our number of the session to be.
    number: u16,
    /// Its keyed hash, by which answers name it.
    mac: Mac,
    /// The datagram up to the cookie.
    init: Vec<u8>,
    noise: HandshakeState,
}

/// What the payload of either message says.
struct Told<'a> {
    instance: [u8; 8],
    number: u16,
    hello: &'a [u8],
}

impl<'a> Told<'a> {
    fn read(payload: &'a [u8]) -> Option<Self> {
        let (instance, rest) = payload.split_first_chunk()?;
        let (number, hello) = rest.split_first_chunk()?;
        Some(Self { instance: *instance, number: u16::from_be_bytes(*number), hello })
    }

    fn write(&self) -> Vec<u8> {
        [&self.instance, &self.number.to_be_bytes()[..], self.hello].concat()
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
            (Side::Aircraft, Envelope::Response { echo, noise, covered, mac }) => {
                if self.known().any(|session| session.asked == *echo) {
                    // The same answer over another path.
                    Ok(())
                } else if self.call_of(echo).is_none() {
                    Err(Refusal::Foreign)
                } else if self.guard.knows_response(covered, mac) {
                    self.complete(now, noise)
                } else {
                    Err(Refusal::Forged)
                }
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
                if self.current.as_ref().is_some_and(|current| current.peer_number == session) {
                    self.hurry(now);
                    Ok(())
                } else {
                    Err(Refusal::Foreign)
                }
            }
            _ => Err(Refusal::Foreign),
        };
        taken.map_or_else(Opened::Refused, |()| Opened::Handshake)
    }

    /// The aircraft sends an init as soon as it may.
    pub(super) fn hurry(&mut self, now: Instant) {
        if self.setup.side != Side::Aircraft {
            return;
        }
        let soonest = self.asked_at.map_or(now, |asked_at| now.max(asked_at + LEAST_PAUSE));
        let new = Attempt { send_at: soonest, pause: FIRST_PAUSE, call: None };
        let attempt = self.attempt.get_or_insert(new);
        attempt.send_at = attempt.send_at.min(soonest);
    }

    /// Writes an init into `out`, if one is due.
    pub(super) fn ask(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.attempt.as_ref().is_none_or(|attempt| now < attempt.send_at) {
            return false;
        }
        let Some(mut attempt) = self.attempt.take() else { return false };
        if attempt.call.as_ref().is_none_or(|call| now.since(call.made_at) >= CALL_LIFE) {
            attempt.call = self.call(now);
        }
        attempt.send_at = now + attempt.pause;
        attempt.pause = (attempt.pause + attempt.pause).min(LONGEST_PAUSE);
        self.asked_at = Some(now);
        let asks = attempt.call.as_ref().map(|call| {
            out.clear();
            out.extend_from_slice(&call.init);
            out.extend_from_slice(&Mac::default());
        });
        self.attempt = Some(attempt);
        asks.is_some()
    }

    /// Makes a new init.
    fn call(&mut self, now: Instant) -> Option<Call> {
        let (secret, number) = self.draw();
        let payload = self.told(number);
        let setup = &self.setup;
        let (noise, message) =
            noise::ask(PROLOGUE, &setup.private, &setup.peer, secret, &payload).ok()?;
        let mut init = envelope::init(&message);
        let mac = self.guard.of_init(&init)?;
        init.extend_from_slice(&mac);
        Some(Call { made_at: now, number, mac, init, noise })
    }

    fn call_of(&self, mac: &Mac) -> Option<&Call> {
        self.attempt.as_ref()?.call.as_ref().filter(|call| call.mac == *mac)
    }

    /// The aircraft reads the ground's answer and has a session.
    fn complete(&mut self, now: Instant, message: &[u8]) -> Result<(), Refusal> {
        let call =
            self.attempt.as_mut().map(|attempt| &mut attempt.call).ok_or(Refusal::Foreign)?;
        let noise = call.as_mut().map(|call| &mut call.noise).ok_or(Refusal::Foreign)?;
        let payload = noise::read(noise, message).map_err(|_| Refusal::Forged)?;
        let call = call.take().ok_or(Refusal::Foreign)?;
        let told = Told::read(&payload).ok_or(Refusal::Forged)?;
        let keys = noise::keys(call.noise).map_err(|_| Refusal::Forged)?;
        let start = Start {
            number: call.number,
            peer_number: told.number,
            instance: told.instance,
            hello: told.hello.to_vec(),
            asked: call.mac,
            answer: Vec::new(),
            until: Instant::FAR_FUTURE,
        };
        self.attempt = None;
        self.establish(now, Session::new(start, keys));
        Ok(())
    }

    /// The ground answers an init whose keyed hash is right.
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
            self.reply(from, answer);
            return Ok(());
        }
        let (secret, number) = self.draw();
        let (mut noise, peer, payload) =
            noise::hear(PROLOGUE, &self.setup.private, secret, message)
                .map_err(|_| Refusal::Forged)?;
        if peer != Some(self.setup.peer) {
            return Err(Refusal::Stranger);
        }
        let told = Told::read(&payload).ok_or(Refusal::Forged)?;
        let written = noise::write(&mut noise, &self.told(number)).map_err(|_| Refusal::Forged)?;
        let keys = noise::keys(noise).map_err(|_| Refusal::Forged)?;
        let mut answer = envelope::response(mac, &written);
        let proof = self.guard.of_response(&answer).ok_or(Refusal::Forged)?;
        answer.extend_from_slice(&proof);
        self.reply(from, answer.clone());
        let start = Start {
            number,
            peer_number: told.number,
            instance: told.instance,
            hello: told.hello.to_vec(),
            asked: *mac,
            answer,
            until: now + LINGER,
        };
        if self.pending.len() >= PENDING {
            self.pending.remove(0);
        }
        self.pending.push(Session::new(start, keys));
        Ok(())
    }

    /// What this end tells in a handshake.
    fn told(&self, number: u16) -> Vec<u8> {
        Told { instance: self.instance, number, hello: &self.setup.hello }.write()
    }

    /// Randomness for a handshake, and a number that no session has.
    fn draw(&mut self) -> (Secret, u16) {
        let (mut secret, mut number) = (Secret::default(), [0; 2]);
        self.random.fill(&mut secret);
        self.random.fill(&mut number);
        let mut number = u16::from_be_bytes(number);
        while self.known().any(|session| session.number == number) {
            number = number.wrapping_add(1);
        }
        (secret, number)
    }
}
