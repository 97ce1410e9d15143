//! Packets that a receiver holds for later ones.

use std::collections::VecDeque;

use crate::support::*;
use skybraid_link::{Direction, Fate, Link, PathConfig};
use skybraid_sim::{PacketEvent, run};
use skybraid_testing::Config;
use skybraid_transport::Protocol;
use skybraid_units::{Bytes, Instant, Seed};

/// A terminal whose receiver holds five bursts for a missing one; one burst in a hundred is lost.
const STACKED: &str = r#"
uplink.access = { kind = "dvb", rules = "opensand", frame = "1ms", waveform = 12, cra = "18.6Mbit/s", frame_loss = "1%", terminal_delay = "9ms", gateway_delay = "9ms", reorder_stack = 5 }
downlink = { rate = "10Mbit/s", delay = "20ms" }
"#;

/// Counts what is held and what is released.
#[derive(Default)]
struct Counts {
    held: usize,
    released: Vec<(Instant, Instant)>,
}

impl skybraid_sim::Observer for Counts {
    fn wants_packets(&self) -> bool {
        true
    }

    fn packet(&mut self, event: &PacketEvent<'_>) {
        self.held += usize::from(event.fate == Fate::Held);
    }

    fn released(&mut self, event: &PacketEvent<'_>) {
        if let Fate::Delivered { at } = event.fate {
            self.released.push((event.entered, at));
        }
    }
}

/// Each packet of the run arrives when a link of its own says so, and each message with its packet.
#[test]
fn packets_arrive_when_the_receiver_releases_them() {
    let config = PathConfig::parse(STACKED).unwrap();
    let [uplink, downlink] =
        [Direction::Uplink, Direction::Downlink].map(|to| config.link(to).unwrap());
    let mut link = Link::new(&uplink, "a", "uplink", Seed(5));
    let path = skybraid_sim::LinkSetup { uplink, downlink, ..path("a", 1.0, 0) };
    let flows = vec![flow("f", cbr(0.1, 100), transport(Protocol::Udp), 1)];
    let mut setup = setup(60, 5, vec![path], flows);
    setup.record.packets = true;
    let mut counts = Counts::default();
    let outcome = run(&setup, &mut counts).unwrap();

    let rows: Vec<_> = outcome.packets.iter().filter(|row| row.link == 0).collect();
    let mut expected = vec![None; rows.len()];
    let mut held = VecDeque::new();
    for (index, row) in rows.iter().enumerate() {
        let fate = link.admit(row.entered, Bytes::new(u64::from(row.bytes)));
        while let Some(release) = link.release() {
            for packet in held.drain(..release.packets) {
                expected[packet] = Some(release.at);
            }
        }
        match fate {
            Fate::Delivered { at } => expected[index] = Some(at),
            Fate::Held => held.push_back(index),
            Fate::Lost { .. } => assert!(row.cause.is_some(), "packet {index}"),
        }
    }
    let delivered = |row: &skybraid_sim::record::PacketRow| {
        (row.cause.is_none() && row.left < Instant::FAR_FUTURE).then_some(row.left)
    };
    assert!(rows.iter().zip(&expected).all(|(row, at)| delivered(row) == *at));
    let released = counts.released.len();
    assert!(released > 200 && counts.held == released + held.len(), "{} held", counts.held);
    // A message in five datagrams behind a lost one waits for the sixth, 8 ms apart.
    let longest = counts.released.iter().map(|(entered, at)| at.since(*entered)).max().unwrap();
    assert!((50.0..90.0).contains(&longest.as_millis_f64()), "{longest}");
    let arrived =
        expected.iter().flatten().filter(|at| **at < Instant::from_millis(60_000)).count();
    assert_eq!(outcome.flows[0].summary.delivered, arrived as u64);
}
