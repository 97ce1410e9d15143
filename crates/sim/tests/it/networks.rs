//! Properties of any network of nodes and links.

use crate::support::*;
use proptest::prelude::*;
use skybraid_link::{LossSource, QueueConfig};
use skybraid_sim::record::Record;
use skybraid_sim::{
    DirectedLink, FlowSetup, Forwarding, Host, LinkSetup, Outcome, PathSetup, ProxySetup, Route,
    Setup, Silent, run,
};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::split::Cache;
use skybraid_transport::{PathInfo, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Probability, Seed};

/// Layers of nodes, each linked to all nodes of the next layer; the first and the last layer are one host each.
struct Layers {
    links: Vec<LinkSetup>,
    /// Nodes of each layer.
    nodes: Vec<Vec<usize>>,
}

impl Layers {
    fn new(widths: &[usize], link: impl Fn(usize) -> LinkSetup) -> Self {
        let mut count = 0;
        let layer = |width: &usize| {
            let first = count;
            count += width;
            (first..count).collect::<Vec<usize>>()
        };
        let widths: Vec<usize> = [&[1], widths, &[1]].concat();
        let nodes: Vec<Vec<usize>> = widths.iter().map(layer).collect();
        let mut links = Vec::new();
        for pair in nodes.windows(2) {
            for a in &pair[0] {
                for b in &pair[1] {
                    let number = links.len();
                    links.push(LinkSetup {
                        name: format!("l{number}"),
                        ends: [*a, *b],
                        ..link(number)
                    });
                }
            }
        }
        Self { links, nodes }
    }

    fn last(&self) -> usize {
        self.nodes.last().unwrap()[0]
    }

    /// Returns the directed links of each node towards the last layer, or towards the first.
    fn forwarding(&self, away: bool, in_turn: bool) -> Forwarding {
        let mut next = vec![Vec::new(); self.last() + 1];
        for (number, link) in self.links.iter().enumerate() {
            let [uplink, downlink] = DirectedLink::both(number);
            if away {
                next[link.ends[0]].push(uplink);
            } else {
                next[link.ends[1]].push(downlink);
            }
        }
        Forwarding { next, in_turn }
    }

    /// Returns one of the routes, selected by a number.
    fn way(&self, away: bool, mut choice: usize) -> Vec<DirectedLink> {
        let forwarding = self.forwarding(away, false);
        let mut node = if away { 0 } else { self.last() };
        let mut way = Vec::new();
        while let [_, ..] = forwarding.next[node].as_slice() {
            let links = &forwarding.next[node];
            let link = links[choice % links.len()];
            choice /= 2;
            way.push(link);
            node = self.far_end(link);
        }
        way
    }

    /// Returns the node at the end of a directed link.
    fn far_end(&self, link: DirectedLink) -> usize {
        link.orient(self.links[link.link()].ends)[1]
    }
}

/// Creates a run over `layers`, with forwarding per packet or with fixed routes.
fn setup_over(layers: &Layers, flows: Vec<FlowSetup>, spread: Option<bool>) -> Setup {
    let route = |away: bool, choice: usize| match spread {
        Some(_) => {
            Route::Spread { from: if away { 0 } else { layers.last() }, table: usize::from(!away) }
        }
        None => Route::Fixed(layers.way(away, choice)),
    };
    let path = |number: usize| PathSetup {
        name: format!("p{number}"),
        uplink: route(true, number * 7),
        downlink: route(false, number * 5),
        info: PathInfo::default(),
    };
    let in_turn = spread == Some(true);
    Setup {
        paths: (0..2).map(path).collect(),
        forwarding: vec![layers.forwarding(true, in_turn), layers.forwarding(false, in_turn)],
        flows,
        record: Record { packets: true, messages: true, ..Record::default() },
        ..setup(20, 1, layers.links.clone(), vec![])
    }
}

fn flown(setup: &Setup) -> Outcome {
    run(setup, &mut Silent).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_packet_is_forwarded_delivered_or_lost(
        widths in proptest::collection::vec(1usize..4, 1..4),
        rates in proptest::collection::vec(3u32..200, 8),
        loss in 0.0..0.1,
        packets in 2u64..40,
        spread in proptest::option::of(any::<bool>()),
        seed in 0u64..1000,
    ) {
        let layers = Layers::new(&widths, |number| {
            let mut link = path("l", f64::from(rates[number % rates.len()]) / 10.0, 7);
            for direction in [&mut link.uplink, &mut link.downlink] {
                direction.losses = vec![LossSource::Uniform(Probability::new(loss).unwrap())];
                direction.queue = QueueConfig::Packets(packets);
            }
            link
        });
        let scheduler = SchedulerConfig::by_name("redundant").unwrap();
        let udp = TransportConfig { scheduler, ..TransportConfig::default() };
        let down = FlowSetup { from: Host::Ground, ..flow("d", cbr(1.0, 700), udp.clone(), 2) };
        let flows = vec![
            flow("u", cbr(2.0, 1000), udp, 2),
            down,
            flow("t", BULK, transport(Protocol::Mptcp), 2),
        ];
        let mut setup = setup_over(&layers, flows, spread);
        setup.seed = Seed(seed);
        let end = Instant::ZERO + setup.duration;
        let outcome = flown(&setup);
        let mut entered = vec![0i64; layers.last() + 1];
        let mut left = entered.clone();
        for row in &outcome.packets {
            let link = DirectedLink::from_index(usize::from(row.link));
            left[layers.far_end(link.reverse())] += 1;
            if row.cause.is_none() && row.left <= end {
                entered[layers.far_end(link)] += 1;
            }
        }
        for node in 1..layers.last() {
            prop_assert_eq!(entered[node], left[node], "at node {}", node);
        }
        prop_assert_eq!(outcome.packets.len() as u64, outcome.packet_hops);
        for record in &outcome.flows {
            let summary = &record.summary;
            prop_assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
        }
        // The losses counted by the flows are those of the links.
        let flows = outcome.flows[..2].iter();
        let lost: u64 = flows.flat_map(|flow| flow.summary.lost_packets).sum();
        let of_datagrams = outcome.packets.iter().filter(|row| row.flow < 2 && row.bytes > 500);
        prop_assert_eq!(lost, of_datagrams.filter(|row| row.cause.is_some()).count() as u64);
    }
}

#[test]
fn round_robin_forwarding_splits_packets_exactly() {
    let layers = Layers::new(&[4], |_| path("l", 100.0, 10));
    let udp = TransportConfig::default();
    let setup = setup_over(&layers, vec![flow("u", cbr(1.0, 1000), udp, 1)], Some(true));
    let outcome = flown(&setup);
    let first_hops = (0..4)
        .map(|link| outcome.packets.iter().filter(|row| usize::from(row.link) == 2 * link).count());
    let first_hops: Vec<usize> = first_hops.collect();
    assert!(
        first_hops.iter().max().unwrap() - first_hops.iter().min().unwrap() <= 1,
        "{first_hops:?}"
    );
}

/// One flow whose transport takes the links to carry packets of 1552 B.
fn over_fragments(
    layers: &Layers,
    sent: (TrafficConfig, TransportConfig),
    fragment_size: Option<u32>,
) -> Outcome {
    let mut setup = setup_over(layers, vec![flow("f", sent.0, sent.1, 1)], Some(false));
    for path in &mut setup.paths {
        path.info.mtu = Bytes::new(1552);
    }
    setup.fragment_size = fragment_size;
    flown(&setup)
}

#[test]
fn long_packets_are_delivered_once_their_fragments_are() {
    let layers = Layers::new(&[3, 2], |_| path("l", 10.0, 10));
    let segment = Some(Bytes::new(1500));
    let tcp = TransportConfig { segment, ..transport(Protocol::Tcp) };
    let entered = |outcome: &Outcome, bytes: u32| {
        let first_hops = outcome.packets.iter().filter(|row| [0, 2, 4].contains(&row.link));
        first_hops.filter(|row| row.bytes == bytes).count()
    };
    let outcome = over_fragments(&layers, (BULK, tcp.clone()), Some(1500));
    // RFC 791: 1480 B of the 1532 B after the IP header, then 52.
    assert!(entered(&outcome, 1500) > 1000, "{} long fragments", entered(&outcome, 1500));
    assert_eq!(entered(&outcome, 1500), entered(&outcome, 72));
    assert_eq!(entered(&outcome, 1552), 0);
    assert!(outcome.flows[0].summary.delivered_bytes > 1000 * 1500);
    let whole = over_fragments(&layers, (BULK, tcp), None);
    assert_eq!((entered(&whole, 1500), entered(&whole, 72)), (0, 0));
}

#[test]
fn a_packet_is_lost_with_any_of_its_fragments() {
    let layers = Layers::new(&[1], |_| {
        let mut link = path("l", 10.0, 10);
        link.uplink.losses = vec![LossSource::Uniform(Probability::new(0.002).unwrap())];
        link.uplink.mtu = Bytes::new(1552);
        link
    });
    let udp = (cbr(1.0, 1500), TransportConfig::default());
    // Fragments of 68 B carry 48 of the 1508 B after the IP header: 32 fragments, over two lossy links.
    for (fragment_size, lossy_hops) in [(None, 2), (Some(68), 64)] {
        let summary = over_fragments(&layers, udp.clone(), fragment_size).flows[0].summary.clone();
        assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
        let expected = 1.0 - 0.998f64.powi(lossy_hops);
        let lost = summary.lost as f64 / summary.sent as f64;
        let spread = (expected * (1.0 - expected) / summary.sent as f64).sqrt();
        assert!((lost - expected).abs() < 4.0 * spread, "{lost}, expected {expected}");
    }
}

#[test]
fn a_chain_delays_by_the_sum_of_its_links() {
    let layers = Layers::new(&[1, 1], |number| path("l", 8.0, 10 * (number as i64 + 1)));
    let udp = TransportConfig::default();
    let setup = setup_over(&layers, vec![flow("u", cbr(0.1, 972), udp, 1)], None);
    let outcome = flown(&setup);
    let row = outcome.flows[0].blocks().flatten().next().unwrap();
    // 972 bytes, 28 of headers: 1 ms of serialisation at 8 Mbit/s on each of three links.
    let expected = Duration::from_millis(10 + 20 + 30 + 3);
    assert_eq!(row.delivered().unwrap() - row.sent(), expected);
}

/// A file over a long lossless and a short lossy link, with a proxy between them or without.
fn split_file(from: Host, split: bool) -> (Outcome, Setup) {
    let mut links = vec![path("near", 4.0, 5), path("far", 4.0, 250)];
    links[0].ends = [0, 1];
    links[1].ends = [1, 2];
    let near = &mut links[0];
    for direction in [&mut near.uplink, &mut near.downlink] {
        direction.losses = vec![LossSource::Uniform(Probability::new(0.01).unwrap())];
    }
    let file = TrafficConfig::File { size: Bytes::new(2_000_000) };
    let mut flow = FlowSetup { from, ..flow("f", file, transport(Protocol::Tcp), 1) };
    let mut paths = PathSetup::over_each(&links);
    if split {
        flow.proxies = vec![ProxySetup {
            name: "truck".into(),
            cache: Cache::Packets(200),
            transport: transport(Protocol::Tcp),
            paths: vec![1],
        }];
    } else {
        paths = vec![PathSetup {
            name: "whole".into(),
            uplink: Route::Fixed([0, 2].map(DirectedLink::from_index).into()),
            downlink: Route::Fixed([3, 1].map(DirectedLink::from_index).into()),
            info: PathInfo::default(),
        }];
    }
    let setup = Setup { paths, ..setup(300, 5, links, vec![flow]) };
    (flown(&setup), setup)
}

#[test]
fn a_proxy_between_lossy_and_long_links_speeds_a_transfer_up() {
    for from in [Host::Vehicle, Host::Ground] {
        let taken = [true, false].map(|split| {
            let (outcome, _) = split_file(from, split);
            let summary = &outcome.flows[0].summary;
            assert_eq!((summary.delivered, summary.delivered_bytes), (summary.sent, 2_000_000));
            outcome.flows[0].blocks().flatten().filter_map(|row| row.delivered()).max().unwrap()
        });
        assert!(taken[0] < taken[1], "{taken:?}");
    }
}

#[test]
fn windows_are_sampled_on_each_sending_side_of_a_proxy() {
    let ends = |from| {
        let (outcome, _) = split_file(from, true);
        let mut ends: Vec<u8> = outcome.subflows.iter().map(|row| row.end).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    };
    // 0 the vehicle, 1 the ground, 2 the proxy towards the vehicle, 3 towards the ground.
    assert_eq!(ends(Host::Vehicle), [0, 3]);
    assert_eq!(ends(Host::Ground), [1, 2]);
}

#[test]
fn shares_of_paths_are_those_of_each_end_s_own_connection() {
    for from in [Host::Vehicle, Host::Ground] {
        let mut links = vec![path("near", 8.0, 5), path("b", 4.0, 20), path("c", 4.0, 20)];
        links[0].ends = [0, 1];
        links[1].ends = [1, 2];
        links[2].ends = [1, 2];
        let proxies = vec![ProxySetup {
            name: "truck".into(),
            cache: Cache::Packets(200),
            transport: TransportConfig {
                scheduler: SchedulerConfig::by_name("low_rtt").unwrap(),
                ..transport(Protocol::Mptcp)
            },
            paths: vec![1, 2],
        }];
        let flow = flow("f", cbr(6.0, 1000), transport(Protocol::Tcp), 1);
        let flow = FlowSetup { from, proxies, ..flow };
        let paths = PathSetup::over_each(&links);
        let outcome = flown(&Setup { paths, ..setup(10, 5, links, vec![flow]) });
        let summary = &outcome.flows[0].summary;
        assert_eq!(summary.won_by_path.iter().sum::<u64>(), summary.delivered);
        // The ground's connection has two paths, the vehicle's has one.
        let two =
            if from == Host::Vehicle { &summary.won_by_path } else { &summary.packets_by_path };
        assert!(two.len() == 2 && two.iter().all(|count| *count > 100), "{two:?}");
        let one =
            if from == Host::Vehicle { &summary.packets_by_path } else { &summary.won_by_path };
        assert!(one.len() == 1 && one[0] > 100, "{one:?}");
    }
}
