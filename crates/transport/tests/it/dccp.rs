//! MP-DCCP between two endpoints on wires that lose, delay, reorder and duplicate packets.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::reordering::{EngineConfig, ReorderingConfig};
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Protocol, Role, Segment, TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant};

/// Fate of a packet on a wire: number of copies, and delay in milliseconds.
type Fate = (usize, i64);

struct Pair {
    ends: [Endpoint; 2],
    wires: BTreeMap<(Instant, usize), (usize, PathId, Segment)>,
    sent: usize,
    fates: Vec<Fate>,
    delivered: [Vec<u32>; 2],
    refused: [Vec<u32>; 2],
}

impl Pair {
    fn new(config: &TransportConfig, fates: Vec<Fate>) -> Self {
        let info = PathInfo { mtu: Bytes::new(600), priority: 5, ..PathInfo::default() };
        let paths = [info, PathInfo::default(), PathInfo::default()];
        Self {
            ends: [Role::Client, Role::Server].map(|role| Endpoint::new(config, &paths, role)),
            wires: BTreeMap::new(),
            sent: 0,
            fates,
            delivered: Default::default(),
            refused: Default::default(),
        }
    }

    fn settle(&mut self, now: Instant, side: usize) {
        while let Some(transmit) = self.ends[side].poll_send(now) {
            let (copies, delay_ms) = self.fates[self.sent % self.fates.len()];
            let mtu = if transmit.path == PathId(0) { 600 } else { 1500 };
            assert!(transmit.segment.size <= mtu, "{:?}", transmit.segment);
            for copy in 0..copies {
                let at = now + Duration::from_millis(10 + delay_ms * (1 + copy as i64));
                let packet = (1 - side, transmit.path, transmit.segment);
                self.wires.insert((at, 4 * self.sent + copy), packet);
            }
            self.sent += 1;
        }
        self.ends[side].take_refused(&mut |message| self.refused[side].push(message));
        while let Some(message) = self.ends[side].poll_delivered() {
            self.delivered[side].push(message.id);
        }
    }

    /// Writes a message in each direction every `every_ms` for ten seconds, and runs for another ten.
    fn run(&mut self, every_ms: i64, bytes: u32) -> u32 {
        let mut written = 0;
        let mut next_write = Instant::ZERO;
        loop {
            let arrival = self.wires.keys().next().map(|(at, _)| *at);
            let timers = self.ends.iter().map(Endpoint::next_wakeup);
            let now = timers.chain(arrival).chain([next_write]).min().unwrap();
            if now > Instant::from_millis(20_000) {
                return written;
            }
            if now == next_write {
                for side in [0, 1] {
                    let message = Message {
                        stream: 0,
                        id: written,
                        class: Class::Data,
                        bytes,
                        deadline: None,
                    };
                    self.ends[side].write(now, message);
                    self.settle(now, side);
                }
                written += 1;
                next_write = now + Duration::from_millis(every_ms);
                if next_write > Instant::from_millis(10_000) {
                    next_write = Instant::FAR_FUTURE;
                }
            }
            while let Some(entry) = self.wires.first_entry().filter(|entry| entry.key().0 <= now) {
                let (side, path, segment) = entry.remove();
                self.ends[side].receive(now, path, &segment);
                self.settle(now, side);
            }
            for side in [0, 1] {
                self.ends[side].wake(now);
                self.settle(now, side);
            }
        }
    }
}

fn config(scheduler: &str, congestion: &str, reordering: &str) -> TransportConfig {
    TransportConfig {
        protocol: Protocol::MpDccp,
        scheduler: SchedulerConfig::by_name(scheduler).unwrap(),
        congestion: CongestionConfig::by_name(congestion).unwrap(),
        reordering: ReorderingConfig(EngineConfig::by_name(reordering).unwrap()),
        ..TransportConfig::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_message_arrives_twice_or_after_it_was_refused(
        fates in proptest::collection::vec(
            (prop_oneof![3 => Just(1usize), 1 => Just(0), 1 => Just(2)], 0i64..80), 1..60),
        scheduler in prop_oneof![Just("redundant"), Just("round_robin"), Just("low_rtt")],
        congestion in prop_oneof![Just("ccid2"), Just("cubic")],
        reordering in prop_oneof![Just("none"), Just("fixed"), Just("adaptive"), Just("equalised")],
        every_ms in 1i64..60,
        bytes in 1u32..3000,
        drop_expired in any::<bool>(),
    ) {
        let config = TransportConfig { drop_expired, ..config(scheduler, congestion, reordering) };
        let mut pair = Pair::new(&config, fates);
        let written = pair.run(every_ms, bytes);
        for side in [0, 1] {
            let arrived: BTreeSet<u32> = pair.delivered[side].iter().copied().collect();
            prop_assert_eq!(arrived.len(), pair.delivered[side].len());
            let refused = &pair.refused[1 - side];
            prop_assert!(refused.iter().all(|message| !arrived.contains(message)));
            prop_assert!(arrived.iter().chain(refused).all(|message| *message < written));
        }
    }

    #[test]
    fn on_sound_wires_every_message_that_was_not_refused_arrives(
        delays in proptest::collection::vec(0i64..30, 1..20),
        scheduler in prop_oneof![Just("redundant"), Just("round_robin"), Just("low_rtt")],
        reordering in prop_oneof![Just("none"), Just("fixed"), Just("adaptive"), Just("equalised")],
        every_ms in 1i64..60,
        bytes in 1u32..3000,
    ) {
        let fates = delays.into_iter().map(|delay| (1, delay)).collect();
        let mut pair = Pair::new(&config(scheduler, "ccid2", reordering), fates);
        let written = pair.run(every_ms, bytes) as usize;
        for side in [0, 1] {
            prop_assert_eq!(pair.delivered[side].len() + pair.refused[1 - side].len(), written);
        }
    }
}

// Source: RFC 4340 §8.1 and RFC 9897 §3.3: Request, Response, Ack and, with several paths, another
// Ack; further subflows only then.
#[test]
fn a_second_subflow_joins_after_the_fourth_packet_of_the_first() {
    let mut pair = Pair::new(&config("low_rtt", "ccid2", "none"), vec![(1, 0)]);
    let mut seen = Vec::new();
    for round in 0..8 {
        let now = Instant::from_millis(10 * round);
        while let Some(entry) = pair.wires.first_entry().filter(|entry| entry.key().0 <= now) {
            let (side, path, segment) = entry.remove();
            pair.ends[side].receive(now, path, &segment);
        }
        for side in [0, 1] {
            while let Some(transmit) = pair.ends[side].poll_send(now) {
                let Body::Dccp(dccp) = transmit.segment.body else { continue };
                seen.push((round, side, transmit.path.0, format!("{:?}", dccp.kind)));
                let at = now + Duration::from_millis(10);
                pair.wires.insert((at, seen.len()), (1 - side, transmit.path, transmit.segment));
            }
        }
    }
    let expected = [
        (0, 0, 0, "Request"),
        (1, 1, 0, "Response"),
        (2, 0, 0, "Ack"),
        (3, 1, 0, "Ack"),
        (4, 0, 1, "Request"),
        (4, 0, 2, "Request"),
        (5, 1, 1, "Response"),
        (5, 1, 2, "Response"),
        (6, 0, 1, "Ack"),
        (6, 0, 2, "Ack"),
        (7, 1, 1, "Ack"),
        (7, 1, 2, "Ack"),
    ];
    let expected = expected.map(|(round, side, path, kind)| (round, side, path, kind.to_string()));
    assert_eq!(seen, expected);
}
