//! A peer with the right keys that sends any bytes, and local applications that write any bytes: a
//! gateway neither panics nor hangs, and delivers no more than was written.
#![no_main]

use std::net::SocketAddr;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use skybraid_gateway::session::{Handshake, Opened, Sessions, Setup};
use skybraid_gateway::{ChannelId, Gateway, PrivateKey, Random};
use skybraid_scenario::GatewayFile;
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant, Seed, Stream};

struct Dice(Stream);

impl Random for Dice {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.next_u64() as u8);
    }
}

const CONFIG: &str = r#"
side = "ground"
key = "-"
peer = "{peer}"
[path.a]
listen = "127.0.0.1:1"
[path.b]
listen = "127.0.0.1:2"
[[mavlink]]
serial = "/dev/ttyS0"
[udp.video]
listen = "127.0.0.1:5600"
[tun]
address = "10.0.0.1/24"
[[rule]]
port = 5600
class = "video"
"#;

/// A gateway and a peer of its with a session between them.
fn meet() -> (Gateway, Sessions) {
    let [ours, theirs] = [1, 2].map(|byte| PrivateKey([byte; 32]));
    let text = CONFIG.replace("{peer}", &theirs.public().to_string());
    let file = GatewayFile::parse(&text, Path::new("fuzz.toml"));
    let config = file.unwrap_or_else(|error| panic!("{error}")).config;
    let (now, dice) = (Instant::ZERO, |name| Box::new(Dice(Seed(1).stream(name))));
    let mut gateway = Gateway::new(now, &config, ours.clone(), dice("gateway"));
    let setup = Setup {
        side: skybraid_gateway::Side::Aircraft,
        private: theirs,
        peers: vec![ours.public()],
        psk: None,
        hello: b"skybraid gateway 2\n\na\tb\nmavlink\ttun\tvideo".to_vec(),
        rekey: Duration::from_secs(3_600),
        lifetime: Duration::from_secs(1 << 30),
    };
    let mut peer = Sessions::new(now, setup, dice("peer"));
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    peer.wake(now);
    while let Some(handshake) = peer.poll_handshake(now, &mut out) {
        assert_eq!(handshake, Handshake::OnEveryPath);
        gateway.receive(now, from(), &out, PathId(0));
    }
    while gateway.poll_send(now, &mut out).is_some() {
        peer.open(now, from(), &out, &mut plain);
    }
    assert!(peer.is_up());
    (gateway, peer)
}

fn from() -> SocketAddr {
    ([127, 0, 0, 1], 9).into()
}

fuzz_target!(|bytes: &[u8]| {
    let (mut gateway, mut peer) = meet();
    let (mut now, mut out, mut plain) = (Instant::ZERO, Vec::new(), Vec::new());
    let mut rest = bytes;
    while let [what, length, behind @ ..] = rest {
        let (piece, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        match what % 8 {
            0..=3 => {
                if peer.seal(now, PathId(what / 8 % 4), piece, &mut out).is_ok() {
                    gateway.receive(now, from(), &out, PathId(0));
                }
            }
            4 => gateway.write(now, ChannelId(what / 8 % 3), piece),
            5 => gateway.write(now, ChannelId(what / 8 % 3), &piece.repeat(20)),
            6 => now = now + Duration::from_millis(i64::from(what / 8) * 10),
            _ => gateway.set_path_up(now, PathId(what / 8 % 2), what & 128 == 0),
        }
        if gateway.next_wakeup() <= now {
            gateway.wake(now);
        }
        for _ in 0..10_000 {
            if gateway.poll_send(now, &mut out).is_none() {
                break;
            }
            if let Opened::Message { .. } = peer.open(now, from(), &out, &mut plain) {
                assert!(out.len() <= 1_500, "a datagram of {} bytes", out.len());
            }
        }
        assert!(gateway.poll_send(now, &mut out).is_none(), "it sends without end");
        while gateway.poll_local(&mut out).is_some() {}
        gateway.snapshot(now);
    }
});
