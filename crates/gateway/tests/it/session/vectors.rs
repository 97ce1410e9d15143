//! The test vectors of `docs/protocol.md` are what the code does.

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use skybraid_gateway::session::{Opened, Sessions, Setup, public_key};
use skybraid_gateway::{PresharedKey, PrivateKey, Random, Side};
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::field::{address, ground};

const BEGIN: &str = "kept by a test of the gateway crate; SKYBRAID_UPDATE_DOCS=1 rewrites it -->\n";

/// Random values that an end draws, in this order.
const DRAWN: [&str; 4] =
    ["instance", "ephemeral private key", "number of the session", "secret of the cookies"];

/// Bytes that count up, and a record of what was drawn.
struct Counting {
    next: u8,
    drawn: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes.iter_mut() {
            *byte = self.next;
            self.next = self.next.wrapping_add(1);
        }
        self.drawn.lock().unwrap().push(bytes.to_vec());
    }
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| {
        let line: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("    {line}\n")
    });
    lines.collect()
}

/// An end with the static key of 32 bytes `own`, and what it draws.
fn end(side: Side, own: u8, peer: u8, psk: Option<u8>) -> (Sessions, Arc<Mutex<Vec<Vec<u8>>>>) {
    let drawn = Arc::new(Mutex::new(Vec::new()));
    let hello = match side {
        Side::Aircraft => b"skybraid gateway 2\n\nlte\nmavlink".to_vec(),
        Side::Ground => b"skybraid gateway 2\n10.77.0.2\nlte\nmavlink".to_vec(),
    };
    let setup = Setup {
        side,
        private: PrivateKey([own; 32]),
        peers: vec![public_key(&PrivateKey([peer; 32])).unwrap()],
        psk: psk.map(|byte| PresharedKey([byte; 32])),
        hello,
        rekey: Duration::from_secs(120),
        lifetime: Duration::from_secs(600),
    };
    let next = if side == Side::Aircraft { 0x20 } else { 0xa0 };
    let random = Counting { next, drawn: Arc::clone(&drawn) };
    (Sessions::new(Instant::ZERO, setup, Box::new(random)), drawn)
}

/// A handshake and a datagram each way, in words and hexadecimal.
fn vectors(psk: Option<u8>) -> String {
    let (mut aircraft, of_aircraft) = end(Side::Aircraft, 1, 2, psk);
    let (mut ground_end, of_ground) = end(Side::Ground, 2, 1, psk);
    let (now, path) = (Instant::ZERO, PathId(0));
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    let mut text = String::new();
    let mut say = |name: &str, bytes: &[u8]| write!(text, "{name}\n{}", hex(bytes)).unwrap();
    say("private key of the aircraft", &[1; 32]);
    say("private key of the ground station", &[2; 32]);
    if let Some(byte) = psk {
        say("shared key", &[byte; 32]);
    }
    aircraft.wake(now);
    aircraft.poll_handshake(now, &mut out).unwrap();
    for (name, drawn) in DRAWN.iter().zip(&*of_aircraft.lock().unwrap()) {
        say(&format!("{name} of the aircraft"), drawn);
    }
    say("init", &out);
    assert_eq!(ground_end.open(now, address(path), &out, &mut plain), Opened::Handshake);
    ground_end.poll_handshake(now, &mut out).unwrap();
    for (name, drawn) in DRAWN.iter().zip(&*of_ground.lock().unwrap()) {
        say(&format!("{name} of the ground station"), drawn);
    }
    say("response", &out);
    assert_eq!(aircraft.open(now, ground(), &out, &mut plain), Opened::Handshake);
    aircraft.seal(now, path, b"to the ground", &mut out).unwrap();
    say("first datagram of the aircraft on path 0, `to the ground`", &out);
    let opened = ground_end.open(now, address(path), &out, &mut plain);
    assert!(matches!(opened, Opened::Message { number: 0, .. }));
    assert_eq!(plain, b"to the ground");
    ground_end.seal(now, path, b"to the aircraft", &mut out).unwrap();
    say("first datagram of the ground station on path 0, `to the aircraft`", &out);
    aircraft.open(now, ground(), &out, &mut plain);
    assert_eq!(plain, b"to the aircraft");
    text
}

fn hold(name: &str, expected: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (begin, end) = (format!("<!-- {name}: {BEGIN}"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(begin.as_str()).unwrap();
    let (found, after) = rest.split_once(end.as_str()).unwrap();
    let expected = format!("```text\n{expected}```\n");
    if std::env::var_os("SKYBRAID_UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{before}{begin}{expected}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(found, expected, "SKYBRAID_UPDATE_DOCS=1 rewrites it");
}

#[test]
fn the_specifications_test_vectors_are_what_the_code_does() {
    hold("vectors", &vectors(None));
    hold("vectors with a shared key", &vectors(Some(3)));
}
