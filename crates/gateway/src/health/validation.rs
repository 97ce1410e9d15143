//! Choice of the peer address of a path (path validation as in RFC 9000 §8.2 and §9).
//!
//! A datagram from a new address may come from the peer behind a new address translation, or from someone who
//! forwards copies faster than the originals. Both addresses are challenged, each with its own token. The
//! address in use stays while it responds. A new address that has responded takes over if the address in use
//! has not responded in half as much time again; if the former address responds later, it returns to use. An
//! address that has not responded receives only challenges, and at most three times the bytes received from
//! it.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version (3 bits), kind 5 (3 bits), 0 |
//! | 1 | 0: challenge, 1: response, 2: proof of a handshake |
//! | 8; 16 | token; proof |

use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::wire::datagram::VERSION;
use skybraid_units::{Duration, Instant};

use crate::session::{OVERHEAD, Proof};

/// First byte of a challenge or response.
pub const FIRST: u8 = VERSION << 5 | 5 << 2;
/// Bytes of a challenge or response.
const LENGTH: usize = 10;
/// Length on the network in bytes, without IP and UDP headers.
const DATAGRAM: u64 = (OVERHEAD + LENGTH) as u64;
/// Maximum bytes sent to an address per byte received (RFC 9000 §8.1).
const MAX_AMPLIFICATION: u64 = 3;
/// Maximum addresses validated at once; the longest silent one is replaced.
const MAX_RIVALS: usize = 8;
/// Divisor of the round-trip time for the first pause between challenges, which then doubles.
const FIRST_PAUSE_SHARE: i64 = 8;
const MIN_PAUSE: Duration = Duration::from_millis(5);
/// Maximum pause.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// Round-trip time assumed before the first measurement (RFC 9002 §6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// Wait for the address in use to respond, as a ratio of the path's lowest round-trip time or the new
/// address's response time, if longer.
const RESPONSE_WAIT: (i64, i64) = (3, 2);
/// Extra wait beyond `RESPONSE_WAIT`.
const GRANULARITY: Duration = Duration::from_millis(10);
/// Minimum time to wait for a response, also from an address in use that was replaced meanwhile.
const LIFE: Duration = Duration::from_secs(3);
/// Minimum time between one validation and the next.
const REST: Duration = Duration::from_millis(250);

/// Random bytes that only their receiver knows.
pub type Token = [u8; 8];

/// Validation message before sealing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Token to be returned at once.
    Challenge(Token),
    /// The token of a challenge.
    Response(Token),
    /// Proof received with the response to an init, at the sending address.
    Proof(Proof),
}

impl Message {
    /// Overwrites `out` with the message.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, token) = match self {
            Self::Challenge(token) => (0, token.as_slice()),
            Self::Response(token) => (1, token.as_slice()),
            Self::Proof(proof) => (2, proof.as_slice()),
        };
        out.clear();
        out.extend([FIRST, kind]);
        out.extend(token);
    }

    /// Parses a message; `None` if invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&[FIRST, kind], token) = bytes.split_first_chunk::<2>()? else { return None };
        match kind {
            0 => token.try_into().ok().map(Self::Challenge),
            1 => token.try_into().ok().map(Self::Response),
            2 => token.try_into().ok().map(Self::Proof),
            _ => None,
        }
    }
}

/// An address that is not in use.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    address: SocketAddr,
    heard_at: Instant,
    received: u64,
    sent: u64,
    token: Option<Token>,
    answered_at: Option<Instant>,
}

/// Validation in progress.
#[derive(Clone, Copy, Debug)]
struct InProgress {
    started: Instant,
    /// The token of the address in use.
    token: Option<Token>,
    /// Time of the next challenges.
    next_at: Instant,
    pause: Duration,
    /// The lowest round-trip time of the path.
    rtt: Duration,
    end_at: Instant,
    /// Position in the current round of challenges: the address in use, then the candidates.
    round: usize,
}

/// Candidate addresses of a path and the state of their validation.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    candidates: Vec<Candidate>,
    validation: Option<InProgress>,
    /// Replaced address, its token, and the deadline for its response.
    former: Option<(SocketAddr, Token, Instant)>,
    /// Former address that has responded.
    returned: Option<SocketAddr>,
    rest_until: Option<Instant>,
}

impl Validation {
    /// None in progress.
    pub const IDLE: Self = Self {
        candidates: Vec::new(),
        validation: None,
        former: None,
        returned: None,
        rest_until: None,
    };

    /// Records an authentic datagram of `bytes` from an address that is not in use. `rtt` is the lowest
    /// round-trip time of the path.
    pub fn on_received(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: usize,
        rtt: Option<Duration>,
    ) {
        let place = self.candidates.iter().position(|candidate| candidate.address == from);
        let place = place.unwrap_or_else(|| {
            if self.candidates.len() >= MAX_RIVALS {
                let oldest =
                    self.candidates.iter().enumerate().min_by_key(|(_, known)| known.heard_at);
                let oldest = oldest.map_or(0, |(at, _)| at);
                self.candidates.remove(oldest);
            }
            self.candidates.push(Candidate {
                address: from,
                heard_at: now,
                received: 0,
                sent: 0,
                token: None,
                answered_at: None,
            });
            self.candidates.len() - 1
        });
        if let Some(candidate) = self.candidates.get_mut(place) {
            candidate.heard_at = now;
            candidate.received += bytes as u64;
        }
        if self.validation.is_some() || self.rest_until.is_some_and(|until| now < until) {
            return;
        }
        let rtt = rtt.unwrap_or(INITIAL_RTT);
        let pause = Duration::from_nanos(rtt.as_nanos() / FIRST_PAUSE_SHARE).max(MIN_PAUSE);
        self.validation = Some(InProgress {
            started: now,
            token: None,
            next_at: now,
            pause,
            rtt,
            end_at: now + LIFE.max(rtt * 4),
            round: 0,
        });
    }

    /// Whether the peer's address is unsettled.
    pub const fn is_open(&self) -> bool {
        self.validation.is_some() || self.former.is_some()
    }

    /// Returns the start of the validation under way.
    pub fn started(&self) -> Option<Instant> {
        self.validation.map(|validation| validation.started)
    }

    /// Returns the next challenge and its address. `used` is the address in use, `draw` makes a token.
    pub fn poll_challenge(
        &mut self,
        now: Instant,
        used: Option<SocketAddr>,
        draw: &mut dyn FnMut() -> Token,
    ) -> Option<(SocketAddr, Token)> {
        let validation = self.validation.as_mut().filter(|validation| validation.next_at <= now)?;
        loop {
            let place = validation.round;
            validation.round += 1;
            if place == 0 {
                let Some(used) = used else { continue };
                return Some((used, *validation.token.get_or_insert_with(&mut *draw)));
            }
            let Some(candidate) = self.candidates.get_mut(place - 1) else { break };
            let fits = candidate.sent + DATAGRAM <= MAX_AMPLIFICATION * candidate.received;
            if candidate.answered_at.is_none() && fits {
                candidate.sent += DATAGRAM;
                return Some((candidate.address, *candidate.token.get_or_insert_with(&mut *draw)));
            }
        }
        validation.round = 0;
        validation.next_at = now + validation.pause;
        validation.pause = (validation.pause + validation.pause).min(MAX_PAUSE);
        None
    }

    /// Records the response to a challenge.
    pub fn on_response(&mut self, now: Instant, token: Token) {
        if let Some((address, ..)) = self.former.filter(|(_, former, _)| *former == token) {
            self.former = None;
            self.returned = Some(address);
            return self.end(now);
        }
        let Some(validation) = &self.validation else { return };
        if validation.token == Some(token) {
            return self.on_alive(now);
        }
        if let Some(candidate) =
            self.candidates.iter_mut().find(|candidate| candidate.token == Some(token))
        {
            candidate.answered_at.get_or_insert(now);
        }
    }

    /// Records that an address was validated by the proof from a handshake's response.
    pub fn on_proof(&mut self, now: Instant, from: SocketAddr) {
        if let Some(candidate) =
            self.candidates.iter_mut().find(|candidate| candidate.address == from)
        {
            candidate.answered_at.get_or_insert(now);
        }
    }

    /// Ends the validation: the peer received a datagram sent to the address in use since the start, so the
    /// address stays.
    pub fn on_alive(&mut self, now: Instant) {
        self.end(now);
    }

    /// Returns the address that replaces `used`, once settled.
    pub fn settle(&mut self, now: Instant, used: Option<SocketAddr>) -> Option<SocketAddr> {
        self.former = self.former.filter(|(.., until)| now < *until);
        if let Some(address) = self.returned.take() {
            return Some(address);
        }
        let validation = self.validation.as_ref()?;
        let settled =
            |candidate: &&Candidate| validation.switch_at(candidate).is_some_and(|at| at <= now);
        let answered = |candidate: &&Candidate| used.is_none() && candidate.answered_at.is_some();
        let winner =
            self.candidates.iter().find(|candidate| settled(candidate) || answered(candidate));
        if let Some(address) = winner.map(|winner| winner.address) {
            let former = used.zip(validation.token);
            self.former = former.map(|(address, token)| (address, token, validation.end_at));
            self.end(now);
            return Some(address);
        }
        if now >= validation.end_at {
            self.end(now);
        }
        None
    }

    /// Time at which to poll for challenges and results again.
    pub fn next_wakeup(&self) -> Instant {
        let former = self.former.map_or(Instant::FAR_FUTURE, |(.., until)| until);
        let Some(validation) = &self.validation else { return former };
        let settle = self.candidates.iter().filter_map(|candidate| validation.switch_at(candidate));
        settle.fold(former.min(validation.next_at).min(validation.end_at), Instant::min)
    }

    fn end(&mut self, now: Instant) {
        self.validation = None;
        self.candidates.clear();
        self.rest_until = Some(now + REST);
    }
}

impl InProgress {
    /// Time at which an address that has answered replaces the one in use.
    fn switch_at(&self, candidate: &Candidate) -> Option<Instant> {
        let took = candidate.answered_at?.since(self.started).max(self.rtt);
        let (times, of) = RESPONSE_WAIT;
        let patience = Duration::from_nanos(took.as_nanos() * times / of);
        Some(self.started + patience + GRANULARITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RTT: Option<Duration> = Some(Duration::from_millis(80));

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, number], 5000))
    }

    /// Returns the challenges sent at an instant.
    fn challenges(
        validation: &mut Validation,
        now: Instant,
        used: Option<SocketAddr>,
        count: &mut u8,
    ) -> Vec<(SocketAddr, Token)> {
        let mut draw = || {
            *count += 1;
            [*count; 8]
        };
        core::iter::from_fn(|| validation.poll_challenge(now, used, &mut draw)).collect()
    }

    #[test]
    fn the_first_address_is_used_once_it_has_answered() {
        let (mut validation, mut count) = (Validation::default(), 0);
        validation.on_received(at(0), address(1), 60, None);
        let left = challenges(&mut validation, at(0), None, &mut count);
        assert_eq!(left, [(address(1), [1; 8])]);
        assert_eq!(validation.settle(at(50), None), None);
        validation.on_response(at(50), [9; 8]);
        assert_eq!(validation.settle(at(50), None), None);
        validation.on_response(at(60), [1; 8]);
        assert_eq!(validation.settle(at(60), None), Some(address(1)));
        assert!(!validation.is_open());
    }

    #[test]
    fn the_address_in_use_stays_while_it_answers_whoever_is_faster() {
        let (mut validation, mut count, used) = (Validation::default(), 0, Some(address(1)));
        validation.on_received(at(0), address(6), 60, RTT);
        let left = challenges(&mut validation, at(0), used, &mut count);
        assert_eq!(left, [(address(1), [1; 8]), (address(6), [2; 8])]);
        validation.on_response(at(30), [2; 8]);
        assert_eq!(validation.settle(at(79), used), None);
        validation.on_response(at(80), [1; 8]);
        assert_eq!(validation.settle(at(500), used), None);
        // No new validation begins for a while.
        validation.on_received(at(200), address(6), 60, RTT);
        assert!(!validation.is_open());
        validation.on_received(at(330), address(6), 60, RTT);
        assert!(validation.is_open());
    }

    #[test]
    fn an_answering_address_replaces_a_silent_one() {
        let (mut validation, mut count, used) = (Validation::default(), 0, Some(address(1)));
        validation.on_received(at(0), address(6), 60, RTT);
        challenges(&mut validation, at(0), used, &mut count);
        validation.on_response(at(80), [2; 8]);
        assert_eq!(validation.settle(at(129), used), None);
        assert_eq!(validation.next_wakeup(), at(10), "challenges go on");
        challenges(&mut validation, at(120), used, &mut count);
        assert_eq!(validation.next_wakeup(), at(130));
        assert_eq!(validation.settle(at(130), used), Some(address(6)));
        // The former address was only slow.
        let used = Some(address(6));
        assert!(validation.is_open());
        validation.on_response(at(1_000), [1; 8]);
        assert_eq!(validation.settle(at(1_000), used), Some(address(1)));
        assert!(!validation.is_open());
    }

    #[test]
    fn a_replaced_address_is_forgotten_after_three_seconds() {
        let (mut validation, mut count, used) = (Validation::default(), 0, Some(address(1)));
        validation.on_received(at(0), address(6), 60, RTT);
        challenges(&mut validation, at(0), used, &mut count);
        validation.on_response(at(80), [2; 8]);
        assert_eq!(validation.settle(at(130), used), Some(address(6)));
        assert_eq!(validation.next_wakeup(), at(3_000));
        assert_eq!(validation.settle(at(3_000), Some(address(6))), None);
        validation.on_response(at(3_000), [1; 8]);
        assert_eq!(validation.settle(at(3_000), Some(address(6))), None);
    }

    #[test]
    fn nothing_changes_when_nobody_answers() {
        let (mut validation, mut count, used) = (Validation::default(), 0, Some(address(1)));
        validation.on_received(at(0), address(6), 60, RTT);
        let mut left = 0;
        for ms in 0..3_000 {
            left += challenges(&mut validation, at(ms), used, &mut count).len();
            assert_eq!(validation.settle(at(ms), used), None);
        }
        // The address in use gets challenges every 250 ms; the other gets five, the amplification limit.
        assert!((15..25).contains(&left), "{left}");
        assert_eq!(validation.settle(at(3_000), used), None);
        assert_eq!(validation.next_wakeup(), Instant::FAR_FUTURE);
    }

    proptest! {
        #[test]
        fn no_address_gets_more_than_three_times_what_came_from_it(
            steps in proptest::collection::vec((0_i64..200, 0_u8..20, 27_usize..200), 1..300),
        ) {
            let (mut validation, mut count, mut now) = (Validation::default(), 0, at(0));
            let (mut received, mut sent) = ([0; 20], [0; 20]);
            for (pause, from, bytes) in steps {
                now += Duration::from_millis(pause);
                validation.on_received(now, address(from), bytes, RTT);
                received[usize::from(from)] += bytes;
                let used = Some(address(100));
                for (to, _) in challenges(&mut validation, now, used, &mut count) {
                    if Some(to) != used {
                        let SocketAddr::V4(to) = to else { unreachable!() };
                        sent[usize::from(to.ip().octets()[3])] += OVERHEAD + LENGTH;
                    }
                }
                prop_assert!(validation.candidates.len() <= MAX_RIVALS);
                validation.settle(now, used);
            }
            for (received, sent) in received.into_iter().zip(sent) {
                prop_assert!(sent <= 3 * received);
            }
        }

        #[test]
        fn a_message_reads_back_and_other_bytes_are_refused(
            token in any::<Token>(), bytes in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut out = Vec::new();
            for message in [Message::Challenge(token), Message::Response(token)] {
                message.write(&mut out);
                prop_assert_eq!(out.len(), LENGTH);
                prop_assert_eq!(Message::read(&out), Some(message));
            }
            let read = Message::read(&[&[FIRST][..], &bytes].concat());
            let length = |kind: u8| [9, 9, 17].get(usize::from(kind)).copied();
            let known = bytes.first().and_then(|kind| length(*kind)) == Some(bytes.len());
            prop_assert_eq!(read.is_some(), known);
        }
    }
}
