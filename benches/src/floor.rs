//! The floor: what it costs to move packets over two links with nothing else.

use std::collections::VecDeque;

use skybraid_link::{Fate, Link};
use skybraid_scenario::Scenario;
use skybraid_units::{Bytes, Duration, Instant, Seed};

use crate::simulated::{INTERVAL, PACKET};

/// State of a packet of the bare loop.
#[derive(Clone, Copy)]
struct Packet {
    sent: Instant,
    number: u64,
}

/// Sends packets at a steady pace over two links and takes them out again. Returns packet-hops.
pub fn run(scenario: &Scenario, duration: Duration) -> u64 {
    let [first, second, ..] = scenario.links.as_slice() else { return 0 };
    let mut links =
        [first, second].map(|path| Link::new(&path.uplink, &path.name, "uplink", Seed(1)));
    let mut in_flight: [VecDeque<(Instant, Packet)>; 2] = [VecDeque::new(), VecDeque::new()];
    let mut next_send = [Instant::ZERO; 2];
    let (mut hops, mut arrived, mut delay) = (0, 0_u64, Duration::ZERO);
    let end = Instant::ZERO + duration;
    loop {
        let arrival =
            [0, 1].map(|side| in_flight[side].front().map_or(Instant::FAR_FUTURE, |(at, _)| *at));
        let (mut source, mut now) = (0, arrival[0]);
        for (index, at) in [arrival[1], next_send[0], next_send[1]].into_iter().enumerate() {
            if at < now {
                (source, now) = (index + 1, at);
            }
        }
        if now > end {
            break;
        }
        if source < 2 {
            if let Some((at, packet)) = in_flight[source].pop_front() {
                arrived += packet.number & 1;
                delay += at - packet.sent;
            }
        } else {
            let side = source - 2;
            hops += 1;
            if let Fate::Delivered { at } = links[side].admit(now, Bytes::new(PACKET + 28)) {
                in_flight[side].push_back((at, Packet { sent: now, number: hops }));
            }
            next_send[side] = now + INTERVAL;
        }
    }
    std::hint::black_box((arrived, delay));
    hops
}
