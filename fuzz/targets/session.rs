//! Any bytes, and valid datagrams that were changed, at both ends of a session. Nothing that was not sealed
//! by the peer is ever opened, nothing is opened twice, and the session stands all the while.
#![no_main]

use std::collections::BTreeSet;
use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use skybraid_gateway::session::{Opened, Sessions, Setup, public_key};
use skybraid_gateway::{PrivateKey, Random, Side};
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant, Seed, Stream};

struct Dice(Stream);

impl Random for Dice {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.next_u64() as u8);
    }
}

struct Field {
    now: Instant,
    ends: [Sessions; 2],
    /// Datagrams that each end has sent; the other end receives a copy, or a changed copy.
    sent: [Vec<Vec<u8>>; 2],
    sealed: [BTreeSet<Vec<u8>>; 2],
    sealings: u32,
    plain: Vec<u8>,
}

impl Field {
    fn new() -> Self {
        let privates = [1, 2].map(|byte| PrivateKey([byte; 32]));
        let publics = privates.each_ref().map(|key| public_key(key).unwrap());
        let now = Instant::ZERO;
        let ends = [(Side::Aircraft, 0), (Side::Ground, 1)].map(|(side, own)| {
            let (private, peers) = (privates[own].clone(), vec![publics[1 - own]]);
            let (hello, rekey) = (vec![own as u8; 20], Duration::from_secs(2));
            let lifetime = Duration::from_secs(1 << 30);
            let dice = Dice(Seed(1).stream(side.name()));
            Sessions::new(
                now,
                Setup { side, private, peers, psk: None, hello, rekey, lifetime },
                Box::new(dice),
            )
        });
        let (sent, sealed, plain) = Default::default();
        let mut field = Self { now, ends, sent, sealed, sealings: 0, plain };
        field.settle(0);
        field.connect();
        assert!(field.ends[0].is_up() && field.ends[1].is_up());
        field
    }

    /// The newest handshake, and a datagram that confirms it, arrive.
    fn connect(&mut self) {
        for end in [0, 1] {
            if let Some(bytes) = self.sent[end].last().cloned() {
                self.receive(1 - end, 0, &bytes);
            }
        }
        if self.seal(0, 0) {
            let confirmation = self.sent[0].last().cloned().unwrap_or_default();
            self.receive(1, 0, &confirmation);
        }
    }

    fn seal(&mut self, end: usize, path: u8) -> bool {
        self.sealings += 1;
        let mut out = Vec::new();
        let message = self.sealings.to_be_bytes();
        let up = self.ends[end].seal(self.now, PathId(path % 64), &message, &mut out).is_ok();
        if up {
            self.sealed[end].insert(message.to_vec());
            self.sent[end].push(out);
        }
        up
    }

    fn receive(&mut self, end: usize, from: u8, bytes: &[u8]) {
        let from = SocketAddr::from(([192, 0, 2, from], 14_550));
        let opened = self.ends[end].open(self.now, from, bytes, &mut self.plain);
        match opened {
            Opened::Message { .. } => assert!(self.sealed[1 - end].remove(&self.plain)),
            _ => assert!(self.plain.is_empty()),
        }
        self.settle(end);
    }

    fn settle(&mut self, end: usize) {
        let mut out = Vec::new();
        while self.ends[end].poll_handshake(self.now, &mut out).is_some() {
            self.sent[end].push(out.clone());
        }
        while self.ends[end].poll_event().is_some() {}
    }
}

fuzz_target!(|script: &[u8]| {
    let mut field = Field::new();
    let mut script = script;
    while let [step, which, at, change, rest @ ..] = script {
        script = rest;
        let (end, path) = (usize::from(*step & 1), *which);
        match step >> 1 & 7 {
            0 => {
                // The next bytes as they are.
                let (bytes, left) = rest.split_at(rest.len().min(usize::from(*at)));
                script = left;
                field.receive(end, *which, bytes);
            }
            1 => {
                // … behind an envelope of some kind.
                let (bytes, left) = rest.split_at(rest.len().min(usize::from(*at)));
                script = left;
                let bytes = [&[1 << 5 | (change & 7) << 2, *which], bytes].concat();
                field.receive(end, *which, &bytes);
            }
            2 => {
                field.seal(end, path);
            }
            step @ (3 | 4 | 5) => {
                // Something that the other end has sent, once more, or changed.
                let sent = &field.sent[1 - end];
                let picked = sent.len().checked_sub(1 + usize::from(*which) % sent.len().max(1));
                let Some(mut bytes) = picked.and_then(|picked| sent.get(picked).cloned()) else {
                    continue;
                };
                let place = usize::from(*at) % bytes.len().max(1);
                match step {
                    3 => {}
                    4 => bytes[place] ^= change,
                    _ => bytes.truncate(place),
                }
                field.receive(end, *change, &bytes);
            }
            6 => {
                field.now += Duration::from_millis(i64::from(*at) * i64::from(*change));
                for end in [0, 1] {
                    field.ends[end].wake(field.now);
                    field.settle(end);
                }
            }
            _ => {
                field.ends[0].renew(field.now);
                field.settle(0);
            }
        }
        assert!(field.ends[0].is_up() && field.ends[1].is_up());
    }
    // After all that a handshake still goes through.
    field.now += Duration::from_secs(60);
    for end in [0, 1] {
        field.ends[end].wake(field.now);
        field.settle(end);
    }
    field.ends[0].renew(field.now);
    field.settle(0);
    field.connect();
    for end in [0, 1] {
        assert!(field.seal(end, 1));
        let message = field.sent[end].last().cloned().unwrap_or_default();
        let left = field.sealed[end].len();
        field.receive(1 - end, 0, &message);
        assert_eq!(field.sealed[end].len(), left - 1, "both ends understand each other");
    }
});
