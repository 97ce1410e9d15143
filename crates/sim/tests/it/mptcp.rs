//! MPTCP subflows: creation, removal, fallback, and blocking of one subflow by another.

use crate::support::*;
use skybraid_link::QueueConfig;
use skybraid_sim::record::SubflowRow;
use skybraid_sim::{AddressChange, Host, LinkSetup, Outcome, Setup, Silent, run};
use skybraid_transport::mptcp::path_manager::PathManager;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::tcp::scoreboard::LossDetection;
use skybraid_transport::{Class, PathId, PathInfo, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant};

fn mptcp(scheduler: &str) -> TransportConfig {
    let scheduler = SchedulerConfig::by_name(scheduler).unwrap();
    TransportConfig { scheduler, ..transport(Protocol::Mptcp) }
}

fn two_paths() -> Vec<LinkSetup> {
    vec![path("near", 10.0, 10), path("far", 10.0, 40)]
}

/// A bulk transfer of 10 s over two paths.
fn bulk(transport: TransportConfig) -> Outcome {
    simulate(10, 1, two_paths(), vec![flow("f", BULK, transport, 2)])
}

fn packets(outcome: &Outcome) -> [u64; 2] {
    let by_path = &outcome.flows[0].summary.packets_by_path;
    [by_path[0], by_path[1]]
}

/// Bytes acknowledged on a path between two instants in seconds.
fn acked(outcome: &Outcome, path: u16, from_s: i64, to_s: i64) -> u64 {
    let within = |row: &&SubflowRow| {
        row.path == path
            && row.at > Instant::from_millis(from_s * 1000)
            && row.at <= Instant::from_millis(to_s * 1000)
    };
    outcome.subflows.iter().filter(within).map(|row| row.acked_bytes).sum()
}

// Source: RFC 8684 §3.7.
#[test]
fn without_mptcp_at_the_peer_a_connection_falls_back_to_tcp() {
    let fallback = bulk(TransportConfig { peer_multipath: false, ..mptcp("round_robin") });
    assert_eq!(packets(&fallback)[1], 0);
    let tcp = simulate(10, 1, two_paths(), vec![flow("f", BULK, transport(Protocol::Tcp), 1)]);
    assert_eq!(fallback.flows[0].summary.delivered_bytes, tcp.flows[0].summary.delivered_bytes);
}

// Source: Linux out-of-tree MPTCP, mptcp_ndiffports.c.
#[test]
fn subflows_by_ports_share_the_first_path() {
    let config = TransportConfig { path_manager: PathManager::Ports(3), ..mptcp("low_rtt") };
    let outcome = bulk(config);
    assert_eq!(packets(&outcome)[1], 0);
    let subflows: std::collections::BTreeSet<u8> =
        outcome.subflows.iter().filter(|row| row.acked_bytes > 0).map(|row| row.subflow).collect();
    assert_eq!(subflows.len(), 3);
}

// Source: RFC 8684 §3.4.1.
#[test]
fn an_announced_address_is_joined_like_a_known_one() {
    let config = TransportConfig { path_manager: PathManager::Announced, ..mptcp("low_rtt") };
    let announced = bulk(config).flows[0].summary.delivered_bytes as f64;
    let known = bulk(mptcp("low_rtt")).flows[0].summary.delivered_bytes as f64;
    assert!((announced / known - 1.0).abs() < 0.02, "{announced} against {known}");
}

// Source: RFC 8684 §3.4.2.
#[test]
fn removed_and_added_addresses_end_and_begin_subflows() {
    let at = |s: i64| Instant::from_millis(s * 1000);
    let change = |s, added| AddressChange { at: at(s), flow: 0, path: PathId(1), added };
    let flows = vec![flow("f", BULK, mptcp("low_rtt"), 2)];
    let setup = Setup {
        address_changes: vec![change(4, false), change(8, true)],
        ..setup(12, 1, two_paths(), flows)
    };
    let outcome = run(&setup, &mut Silent).unwrap();
    assert!(acked(&outcome, 1, 2, 4) > 1_000_000);
    assert_eq!(acked(&outcome, 1, 5, 8), 0);
    assert!(acked(&outcome, 1, 9, 12) > 1_000_000);
    let subflows: std::collections::BTreeSet<u8> =
        outcome.subflows.iter().filter(|row| row.path == 1).map(|row| row.subflow).collect();
    assert_eq!(subflows.into_iter().collect::<Vec<_>>(), [1, 2]);
    let delivered = outcome.flows[0].blocks().flatten().map(|row| row.delivered().is_some());
    let in_order = delivered.collect::<Vec<_>>();
    assert!(in_order.is_sorted_by(|before, after| before >= after), "nothing is missing between");
}

// Source: RFC 8684 §3.3.3; edge case 15 of the algorithm reference, §12.
#[test]
fn a_connection_outlives_the_loss_of_all_its_addresses() {
    let change = |ms, path, added| AddressChange {
        at: Instant::from_millis(ms),
        flow: 0,
        path: PathId(path),
        added,
    };
    let changes = vec![change(3000, 0, false), change(3001, 1, false), change(5000, 1, true)];
    let flows = vec![flow("f", BULK, mptcp("low_rtt"), 2)];
    let setup = Setup { address_changes: changes, ..setup(10, 1, two_paths(), flows) };
    let outcome = run(&setup, &mut Silent).unwrap();
    assert_eq!(acked(&outcome, 0, 4, 10) + acked(&outcome, 1, 4, 5), 0);
    assert!(acked(&outcome, 1, 6, 10) > 3_000_000);
}

// Source: edge case 11 of the algorithm reference, §12.
#[test]
fn data_on_two_subflows_is_no_duplicate_acknowledgement() {
    for loss_detection in [LossDetection::Rack, LossDetection::NewReno] {
        let config = TransportConfig { loss_detection, ..mptcp("redundant") };
        let flows = vec![flow("f", cbr(4.0, 1200), config, 2)];
        let outcome = simulate(10, 1, two_paths(), flows);
        let sum = |of: fn(&SubflowRow) -> u64| outcome.subflows.iter().map(of).sum::<u64>();
        assert_eq!((sum(|row| row.retransmitted), sum(|row| row.reductions)), (0, 0));
        assert!(packets(&outcome).iter().all(|count| *count > 3000));
    }
}

// Source: RFC 8684 §2.5.
#[test]
fn a_backup_path_is_used_only_while_the_other_is_down() {
    let mut paths = two_paths();
    paths[1].info = PathInfo { backup: true, ..paths[1].info };
    let outage = vec![(Instant::from_millis(4000), Duration::from_secs(3))];
    paths[0].uplink.down.clone_from(&outage);
    paths[0].downlink.down = outage;
    let outcome = simulate(12, 1, paths, vec![flow("f", BULK, mptcp("low_rtt"), 2)]);
    assert_eq!(acked(&outcome, 1, 0, 4), 0);
    assert!(acked(&outcome, 1, 5, 7) > 500_000);
    assert!(acked(&outcome, 0, 9, 12) > 2_000_000);
    assert!(outcome.flows[0].summary.connection.reinjections > 0);
}

// Source: Raiciu et al. 2012 §4; the algorithm reference, §5.1.
#[test]
fn opportunistic_retransmission_helps_in_a_small_buffer() {
    let goodput = |helps: bool| {
        let config = TransportConfig {
            receive_buffer: Bytes::new(37_500),
            opportunistic_retransmission: helps,
            penalisation: helps,
            ..mptcp("low_rtt")
        };
        let mut paths = vec![path("fast", 8.0, 10), path("slow", 2.0, 75)];
        for path in &mut paths {
            path.uplink.queue = QueueConfig::Packets(10);
        }
        let outcome = simulate(30, 1, paths, vec![flow("f", BULK, config, 2)]);
        assert_eq!(outcome.flows[0].summary.connection.opportunistic > 0, helps);
        goodput_mbps(&outcome, 0, 30)
    };
    let (with, without) = (goodput(true), goodput(false));
    assert!(with > 1.1 * without, "{with} against {without}");
}

// Source: Raiciu et al. 2012 §4 ("capping the window").
#[test]
fn window_capping_bounds_the_queue_of_a_bloated_path() {
    let worst_srtt_ms = |bufferbloat_mitigation| {
        let config = TransportConfig { bufferbloat_mitigation, ..mptcp("low_rtt") };
        let paths = vec![path("bloated", 5.0, 30), path("other", 5.0, 30)];
        let outcome = simulate(30, 1, paths, vec![flow("f", BULK, config, 2)]);
        let settled = outcome.subflows.iter().filter(|row| row.at > Instant::from_millis(5000));
        settled.filter_map(|row| row.srtt).max().unwrap().as_millis_f64()
    };
    let (capped, free) = (worst_srtt_ms(true), worst_srtt_ms(false));
    assert!(capped < 2.5 * 60.0, "{capped} ms");
    assert!(free > 10.0 * 60.0, "{free} ms");
}

#[test]
fn flows_that_share_a_connection_keep_their_own_order() {
    let video = flow("video", cbr(4.0, 1200), mptcp("low_rtt"), 2);
    let rider = |name: &str, from| skybraid_sim::FlowSetup {
        name: name.into(),
        from,
        class: Class::Control,
        rides_with: Some(0),
        ..flow(name, cbr(0.1, 125), TransportConfig::default(), 2)
    };
    let flows = vec![video, rider("up", Host::Vehicle), rider("down", Host::Ground)];
    let paths = vec![lossy(path("a", 10.0, 10), 0.01), lossy(path("b", 10.0, 40), 0.01)];
    let outcome = simulate(20, 1, paths, flows);
    for record in &outcome.flows {
        let summary = &record.summary;
        assert!(summary.delivered > 0 && summary.lost == 0);
        let times: Vec<Instant> =
            record.blocks().flatten().filter_map(|row| row.delivered()).collect();
        assert!(times.is_sorted());
        assert!(summary.in_flight < 200, "{}", summary.in_flight);
    }
}
