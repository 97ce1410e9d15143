//! MuTran and the systems that it is compared with, on paths that allow hand calculations.

use crate::support::*;
use skybraid_link::{Change, LossSource, QueueConfig};
use skybraid_sim::record::MessageRow;
use skybraid_sim::{FlowSetup, LinkSetup, Outcome};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::{Class, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate};

fn over(protocol: Protocol, scheduler: &str) -> TransportConfig {
    let scheduler = SchedulerConfig::by_name(scheduler).unwrap();
    let mut transport = TransportConfig { scheduler, ..transport(protocol) };
    if protocol == Protocol::MpDccp {
        transport.congestion = CongestionConfig::by_name("ccid2").unwrap();
    }
    transport
}

/// A message of 125 bytes every 100 ms, from one second on, when connections are open.
fn control(transport: TransportConfig, paths: usize) -> FlowSetup {
    let start = Instant::from_millis(1000);
    let traffic = TrafficConfig::Cbr { rate: Rate::from_bps(10_000), packet: Bytes::new(125) };
    FlowSetup { class: Class::Control, start, ..flow("control", traffic, transport, paths) }
}

fn rows(outcome: &Outcome, flow: usize) -> Vec<MessageRow> {
    outcome.flows[flow].blocks().flatten().copied().collect()
}

fn delay(row: &MessageRow) -> Option<Duration> {
    row.delivered().map(|at| at - row.sent())
}

/// Returns the minimum of two optional delays; `None` if both are.
fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

// Source: the algorithm reference, §5.8: loss is the product of the paths' losses, delay the minimum of their
// delays, cost (n − 1) · control bytes. Each link loses the same packets whatever the traffic on the other
// links, so this holds for every single message.
#[test]
fn redundant_control_has_the_best_fate_of_both_paths() {
    let paths = [lossy(path("a", 10.0, 20), 0.1), lossy(path("b", 10.0, 50), 0.2)];
    let fly = |paths: Vec<LinkSetup>| {
        let flow = control(over(Protocol::Udp, "redundant"), paths.len());
        simulate(2000, 5, paths, vec![flow])
    };
    let both = fly(paths.to_vec());
    let (a, b) = (fly(vec![paths[0].clone()]), fly(vec![paths[1].clone()]));
    let (both_rows, a_rows, b_rows) = (rows(&both, 0), rows(&a, 0), rows(&b, 0));
    assert_eq!(both_rows.len(), 19_990);
    for ((both, a), b) in both_rows.iter().zip(&a_rows).zip(&b_rows) {
        assert_eq!(delay(both), earlier(delay(a), delay(b)));
    }
    let summary = &both.flows[0].summary;
    let (found, expected) = (summary.lost as f64 / summary.sent as f64, 0.1 * 0.2);
    let deviation = (expected * (1.0 - expected) / summary.sent as f64).sqrt();
    assert!((found - expected).abs() < 3.0 * deviation, "{found}");
    assert_eq!(summary.packets_by_path, [summary.sent; 2]);
    assert_eq!(a.packet_hops + summary.sent, both.packet_hops);
}

// Source: lee2021mutran, LEE-V2 (figures 2 and 3).
#[test]
fn mutran_sends_a_copy_on_each_interface() {
    let paths = vec![path("a", 20.0, 30), path("b", 20.0, 10), path("c", 20.0, 50)];
    let data = flow("data", cbr(5.0, 1200), over(Protocol::Mptcp, "mutran"), 3);
    let rides = FlowSetup { rides_with: Some(0), ..control(TransportConfig::default(), 3) };
    let outcome = simulate(20, 1, paths, vec![data, rides]);
    let summary = &outcome.flows[1].summary;
    assert_eq!((summary.sent, summary.lost, summary.in_flight), (190, 0, 0));
    assert_eq!(summary.packets_by_path, [190; 3]);
    assert_eq!(summary.won_by_path, [0, 190, 0]);
    for row in rows(&outcome, 1).iter().take(180) {
        assert_eq!((row.copies_sent, row.copies_arrived, row.path), (3, 3, 1));
        // 10 ms plus the wait behind data: at most two segments of 1500 B, 0.6 ms each.
        assert!(delay(row).unwrap() < Duration::from_micros(11_500), "{:?}", delay(row));
    }
    assert!(rows(&outcome, 0).iter().skip(5000).all(|row| row.copies_sent == 1));
}

/// Returns whether the third control message, sent just before link 1 fails, arrives within 100 ms.
fn third_is_in_time(scheduler: &str, copies: u8) -> bool {
    let mut paths = vec![path("link-1", 10.0, 20), path("link-2", 10.0, 25)];
    // The third message, of 1.2 s, is lost in flight; the fourth and fifth are sent later.
    let sure = Change::Loss(vec![LossSource::Uniform(Probability::ONE)]);
    let first = &mut paths[0];
    for link in [&mut first.uplink, &mut first.downlink] {
        link.changes.push((Instant::from_millis(1190), sure.clone()));
    }
    let control = FlowSetup {
        copies,
        stop: Instant::from_millis(1450),
        ..control(over(Protocol::Mptcp, scheduler), 2)
    };
    let outcome = simulate(20, 1, paths, vec![control]);
    let rows = rows(&outcome, 0);
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row.delivered().is_some()), "{scheduler}");
    let in_time = |row: &MessageRow| delay(row).unwrap() < Duration::from_millis(100);
    assert!(rows[..2].iter().all(in_time), "{scheduler}");
    in_time(&rows[2])
}

// Source: lee2021mutran figure 1 (LEE-V1).
#[test]
fn only_copies_on_the_other_link_survive_a_failure() {
    assert!(!third_is_in_time("low_rtt", 1), "(a) MPTCP alone");
    assert!(third_is_in_time("redundant", 1), "(b) all packets copied");
    assert!(!third_is_in_time("low_rtt", 2), "(c) plain duplicates on one subflow");
    assert!(third_is_in_time("mutran", 1), "(d) MuTran");

    let goodput = |scheduler| {
        let mut paths = vec![path("link-1", 10.0, 20), path("link-2", 10.0, 20)];
        for path in &mut paths {
            path.uplink.queue = QueueConfig::Packets(60);
        }
        let transport = over(Protocol::Mptcp, scheduler);
        goodput_mbps(&simulate(30, 1, paths, vec![flow("data", BULK, transport, 2)]), 0, 30)
    };
    let (all, mutran) = (goodput("redundant"), goodput("mutran"));
    assert!((all / mutran - 0.5).abs() < 0.02, "{all} {mutran}");
}

#[test]
fn a_duplicated_message_counts_once_over_every_protocol() {
    let protocols = [
        (Protocol::Udp, "single"),
        (Protocol::Udp, "round_robin"),
        (Protocol::Tcp, "single"),
        (Protocol::Mptcp, "low_rtt"),
        (Protocol::ParallelTcp, "single"),
        (Protocol::MpDccp, "round_robin"),
    ];
    for (protocol, scheduler) in protocols {
        for bytes in [125, 3000] {
            let count = if protocol == Protocol::Tcp { 1 } else { 2 };
            let paths = vec![path("a", 10.0, 20), path("b", 10.0, 40)];
            let traffic =
                TrafficConfig::Cbr { rate: Rate::from_bps(80 * bytes), packet: Bytes::new(bytes) };
            let stop = Instant::from_millis(9000);
            let flow =
                FlowSetup { copies: 2, stop, traffic, ..control(over(protocol, scheduler), count) };
            let outcome = simulate(10, 1, paths, vec![flow]);
            let (summary, name) = (&outcome.flows[0].summary, protocol.name());
            assert_eq!((summary.sent, summary.delivered), (80, 80), "{name}");
            assert_eq!((summary.lost, summary.in_flight, summary.refused), (0, 0, 0), "{name}");
            assert_eq!(summary.delivered_bytes, 80 * bytes, "{name}");
            for row in rows(&outcome, 0) {
                assert_eq!((row.copies_sent, row.copies_arrived), (2, 2), "{name} {bytes} B");
            }
        }
    }
}

#[test]
fn duplicates_on_one_path_are_lost_independently() {
    let flow = FlowSetup { copies: 2, ..control(over(Protocol::Udp, "single"), 1) };
    let outcome = simulate(2000, 3, vec![lossy(path("a", 10.0, 20), 0.1)], vec![flow]);
    let summary = &outcome.flows[0].summary;
    let (found, expected) = (summary.lost as f64 / summary.sent as f64, 0.1 * 0.1);
    let deviation = (expected * (1.0 - expected) / summary.sent as f64).sqrt();
    assert!((found - expected).abs() < 3.0 * deviation, "{found}");
    assert_eq!(summary.packets_by_path, [2 * summary.sent]);
}

#[test]
fn a_duplicated_ping_is_answered_once_in_two_copies() {
    let traffic = TrafficConfig::Ping { every: Duration::from_millis(100), packet: Bytes::new(56) };
    let ping = FlowSetup { copies: 2, ..flow("ping", traffic, transport(Protocol::Udp), 1) };
    let outcome = simulate(10, 1, vec![path("a", 10.0, 20)], vec![ping]);
    let (asked, answered) = (&outcome.flows[0].summary, &outcome.flows[1].summary);
    assert_eq!((asked.sent, asked.delivered), (100, 100));
    assert_eq!((answered.sent, answered.delivered), (100, 100));
    assert_eq!((asked.packets_by_path[0], answered.packets_by_path[0]), (200, 200));
}

#[test]
fn a_small_window_refuses_copies_before_messages() {
    let refused = |copies| {
        let mut flow = control(over(Protocol::MpDccp, "low_rtt"), 2);
        flow.traffic = cbr(1.0, 1000);
        flow.copies = copies;
        let paths = vec![path("a", 0.5, 20), path("b", 0.5, 40)];
        let outcome = simulate(30, 1, paths, vec![flow]);
        let summary = &outcome.flows[0].summary;
        assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
        assert!(summary.in_flight > 0 && summary.delivered > 1000);
        summary.refused
    };
    let (once, twice) = (refused(1), refused(2));
    assert!(once > 0 && twice > once, "{once} {twice}");
}

// Source: RFC 8684 §3.3.6: data acknowledged only at the subflow level may have to be sent again on another subflow.
#[test]
fn a_path_may_fail_with_segments_acknowledged_past_a_gap() {
    for seed in 0..8 {
        let mut paths = vec![path("good", 20.0, 2), path("bad", 20.0, 2)];
        let half = vec![LossSource::Uniform(Probability::new(0.5).unwrap())];
        paths[1].uplink.changes.push((Instant::from_millis(5000), Change::Loss(half)));
        let down = (Instant::from_millis(5100), Duration::from_secs(100));
        let bad = &mut paths[1];
        for link in [&mut bad.uplink, &mut bad.downlink] {
            link.down.push(down);
        }
        let transport = TransportConfig {
            receive_buffer: Bytes::new(128_000),
            send_buffer: Bytes::new(128_000),
            ..over(Protocol::Mptcp, "low_rtt")
        };
        let outcome = simulate(20, seed, paths, vec![flow("data", BULK, transport, 2)]);
        let late = |row: &&MessageRow| row.delivered() > Some(Instant::from_millis(10_000));
        let bytes: u64 =
            rows(&outcome, 0).iter().filter(late).map(|row| u64::from(row.bytes)).sum();
        let mbps = bytes as f64 * 8.0 / 10.0 / 1e6;
        assert!(mbps > 0.98 * 20.0 * 1424.0 / 1500.0, "seed {seed}: {mbps}");
    }
}
