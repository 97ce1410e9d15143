//! Flows over small networks, compared with hand calculations.

use crate::support::*;
use skybraid_link::{Change, LossSource, QueueConfig, RateSource};
use skybraid_sim::record::SubflowRow;
use skybraid_sim::{Host, Outcome, Setup};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::config::FlightSize;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::reordering::ReorderingConfig;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::tcp::scoreboard::LossDetection;
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate};

fn with_scheduler(protocol: Protocol, scheduler: &str) -> TransportConfig {
    let scheduler = SchedulerConfig::by_name(scheduler).unwrap();
    TransportConfig { scheduler, ..transport(protocol) }
}

fn delay_ms(outcome: &Outcome, flow: usize, quantile: f64) -> f64 {
    let delays = &outcome.flows[flow].summary.delays;
    let rank = ((delays.total() as f64 * quantile).ceil() as u64).max(1);
    delays.at_rank(rank).unwrap().as_millis_f64()
}

#[test]
fn a_datagram_takes_its_serialisation_and_propagation_time() {
    let flows = vec![flow("f", cbr(1.0, 1222), transport(Protocol::Udp), 1)];
    let outcome = simulate(10, 1, vec![path("a", 10.0, 20)], flows);
    // 1222 B and 28 B of headers at 10 Mbit/s take 1 ms.
    let row = outcome.flows[0].blocks().next().unwrap()[5];
    assert_eq!(row.delivered().unwrap() - row.sent(), Duration::from_millis(21));
    assert_eq!(outcome.flows[0].summary.lost, 0);
}

#[test]
fn a_redundant_scheduler_delivers_while_either_path_is_up() {
    let mut paths = vec![path("a", 10.0, 20), path("b", 10.0, 30)];
    let sure = Probability::ONE;
    let at = skybraid_units::Instant::from_millis(3000);
    paths[0].uplink.down = vec![(at, Duration::from_secs(2))];
    let at = skybraid_units::Instant::from_millis(6000);
    paths[1].uplink.down = vec![(at, Duration::from_secs(2))];
    let flows = vec![flow("f", cbr(1.0, 500), with_scheduler(Protocol::Udp, "redundant"), 2)];
    let outcome = simulate(10, 1, paths.clone(), flows.clone());
    assert_eq!(outcome.flows[0].summary.lost, 0);
    paths[1].uplink.losses = vec![LossSource::Uniform(sure)];
    let outcome = simulate(10, 1, paths, flows);
    assert!(outcome.flows[0].summary.lost > 400);
}

#[test]
fn redundant_loss_is_the_product_of_the_losses() {
    let paths = vec![lossy(path("a", 50.0, 20), 0.05), lossy(path("b", 50.0, 20), 0.05)];
    let flows = vec![flow("f", cbr(4.0, 100), with_scheduler(Protocol::Udp, "redundant"), 2)];
    let outcome = simulate(200, 3, paths, flows);
    let summary = &outcome.flows[0].summary;
    let loss = summary.lost as f64 / summary.sent as f64;
    assert!((loss - 0.0025).abs() < 0.0002, "{loss}");
    assert_eq!(summary.packets_by_path, [summary.sent, summary.sent]);
}

#[test]
fn lowest_rtt_over_datagrams_leaves_a_dead_path() {
    let mut paths = vec![path("slow", 10.0, 60), path("fast", 10.0, 10)];
    let at = skybraid_units::Instant::from_millis(10_000);
    paths[1].uplink.down = vec![(at, Duration::from_secs(10))];
    let flows = vec![flow("f", cbr(1.0, 500), with_scheduler(Protocol::Udp, "low_rtt"), 2)];
    let outcome = simulate(30, 1, paths, flows);
    let summary = &outcome.flows[0].summary;
    let share = summary.packets_by_path[1] as f64 / summary.sent as f64;
    assert!(share > 0.6 && share < 0.7, "{share}");
    // 250 messages a second: the path is left after three missing reports, within 0.7 s.
    assert!(summary.lost < 175, "{} lost", summary.lost);
}

#[test]
fn reordering_restores_the_order_within_its_limit() {
    let paths = vec![path("near", 10.0, 10), path("far", 10.0, 40)];
    let order_kept = |reordering| {
        let transport =
            TransportConfig { reordering, ..with_scheduler(Protocol::Udp, "round_robin") };
        let flows = vec![flow("f", cbr(1.0, 500), transport, 2)];
        let outcome = simulate(10, 1, paths.clone(), flows);
        assert_eq!(outcome.flows[0].summary.lost, 0);
        let arrivals: Vec<_> =
            outcome.flows[0].blocks().flatten().filter_map(|row| row.delivered()).collect();
        arrivals.is_sorted()
    };
    assert!(!order_kept(ReorderingConfig::none()));
    assert!(order_kept(ReorderingConfig::fixed(Duration::from_millis(50))));
    assert!(!order_kept(ReorderingConfig::fixed(Duration::from_millis(20))));
}

#[test]
fn tcp_fills_a_link_up_to_its_headers() {
    let flows = vec![flow("f", BULK, transport(Protocol::Tcp), 1)];
    let mut bottleneck = path("a", 10.0, 20);
    bottleneck.uplink.queue = skybraid_link::QueueConfig::Packets(50);
    let outcome = simulate(30, 1, vec![bottleneck], flows);
    let ideal = 10.0 * 1448.0 / 1500.0;
    let goodput = goodput_mbps(&outcome, 0, 30);
    assert!(goodput > 0.97 * ideal && goodput <= ideal, "{goodput}");
}

#[test]
fn mptcp_over_two_equal_paths_carries_nearly_twice_as_much() {
    let mut paths = vec![path("a", 10.0, 20), path("b", 10.0, 20)];
    for path in &mut paths {
        path.uplink.queue = skybraid_link::QueueConfig::Packets(60);
    }
    for scheduler in ["low_rtt", "round_robin"] {
        let flows = vec![flow("f", BULK, with_scheduler(Protocol::Mptcp, scheduler), 2)];
        let outcome = simulate(30, 1, paths.clone(), flows);
        let goodput = goodput_mbps(&outcome, 0, 30);
        assert!(goodput > 0.9 * 20.0 * 0.949, "{scheduler}: {goodput}");
    }
}

#[test]
fn the_preferred_path_grows_to_carry_almost_everything() {
    let paths = vec![path("far", 40.0, 45), path("near", 18.0, 28)];
    let transport = with_scheduler(Protocol::Mptcp, "low_rtt");
    let outcome = simulate(60, 1, paths, vec![flow("f", cbr(10.0, 1200), transport, 2)]);
    let summary = &outcome.flows[0].summary;
    let share = summary.packets_by_path[1] as f64 / summary.sent as f64;
    assert!(share > 0.95, "{share}");
}

#[test]
fn redundant_mptcp_hides_the_losses_of_the_worse_path() {
    let paths = vec![path("a", 20.0, 30), lossy(path("b", 20.0, 10), 0.02)];
    let single = with_scheduler(Protocol::Mptcp, "single");
    let redundant = with_scheduler(Protocol::Mptcp, "redundant");
    let alone = simulate(60, 1, vec![paths[1].clone()], vec![flow("f", cbr(2.0, 1200), single, 1)]);
    let mut flow_over_both = flow("f", cbr(2.0, 1200), redundant, 2);
    // The first messages would wait for the handshake.
    flow_over_both.start = skybraid_units::Instant::from_millis(1000);
    let both = simulate(60, 1, paths, vec![flow_over_both]);
    let (worst_alone, worst_both) = (delay_ms(&alone, 0, 0.999), delay_ms(&both, 0, 0.999));
    assert!(worst_both < 31.0 && worst_alone > 100.0, "{worst_alone} {worst_both}");
}

/// Returns the delay in milliseconds of the first lost message, at 50 ms each way with a segment every 10 ms.
/// Asserts that the segments received after it are delivered with it.
fn delay_of_a_lost_segment(loss_detection: LossDetection) -> f64 {
    let mut link = path("a", 1000.0, 50);
    link.uplink.losses = vec![LossSource::Uniform(Probability::new(0.01).unwrap())];
    let transport = TransportConfig { loss_detection, ..transport(Protocol::Tcp) };
    let flows = vec![flow("f", cbr(0.8, 1000), transport, 1)];
    let outcome = simulate(20, 5, vec![link], flows);
    let rows: Vec<_> = outcome.flows[0].blocks().flatten().copied().collect();
    let resent = rows.iter().position(|row| row.copies_sent == 2).unwrap();
    assert_eq!(rows[resent + 12].delivered(), rows[resent].delivered());
    assert!(rows[resent + 14].delivered() > rows[resent].delivered());
    (rows[resent].delivered().unwrap() - rows[resent].sent()).as_millis_f64()
}

// Source: RFC 6675. The third segment after the lost one is acknowledged after 30 + 100 ms, and the
// retransmission takes another 50 ms.
#[test]
fn counting_retransmits_after_three_segments_and_a_round_trip() {
    let delay = delay_of_a_lost_segment(LossDetection::Sack);
    assert!((delay - 180.0).abs() < 0.1, "{delay}");
}

// Source: RFC 8985 §6.2. The segment after the lost one is acknowledged after 10 + 100 ms; the segment is
// marked as lost a quarter of the round trip after its own acknowledgement was due.
#[test]
fn rack_retransmits_after_a_round_trip_and_a_quarter() {
    let delay = delay_of_a_lost_segment(LossDetection::Rack);
    assert!((delay - 175.0).abs() < 0.1, "{delay}");
}

#[test]
fn a_reliable_stream_survives_the_outage_of_either_path() {
    let mut paths = vec![path("a", 10.0, 20), path("b", 10.0, 40)];
    for (path, at) in paths.iter_mut().zip([5000, 15_000]) {
        let at = skybraid_units::Instant::from_millis(at);
        path.uplink.down = vec![(at, Duration::from_secs(4))];
        path.downlink.down = path.uplink.down.clone();
    }
    // Schedulers bound to a path wait for the end of its outage.
    let bound = ["single", "by_class"];
    let names = SchedulerConfig::ALL.iter().map(|about| about.name);
    for scheduler in names.filter(|name| !bound.contains(name)) {
        let flows = vec![flow("f", cbr(2.0, 1000), with_scheduler(Protocol::Mptcp, scheduler), 2)];
        let outcome = simulate(40, 2, paths.clone(), flows);
        let record = &outcome.flows[0];
        let late = record
            .blocks()
            .flatten()
            .filter(|row| {
                row.sent() < skybraid_units::Instant::from_millis(38_000)
                    && row.delivered().is_none()
            })
            .count();
        assert_eq!(late, 0, "{scheduler}");
        assert!(delay_ms(&outcome, 0, 1.0) < 2000.0, "{scheduler}");
    }
}

#[test]
fn a_small_receive_buffer_stalls_the_fast_path() {
    // 8 Mbit/s at 20 ms and 2 Mbit/s at 150 ms: RFC 8684 §3.3.5 asks for ΣBW · max RTT.
    let paths = || {
        let mut paths = vec![path("fast", 8.0, 10), path("slow", 2.0, 75)];
        for path in &mut paths {
            path.uplink.queue = skybraid_link::QueueConfig::Packets(30);
        }
        paths
    };
    let goodput = |buffer| {
        let transport = TransportConfig {
            receive_buffer: Bytes::new(buffer),
            ..with_scheduler(Protocol::Mptcp, "round_robin")
        };
        let flows = vec![flow("f", BULK, transport, 2)];
        goodput_mbps(&simulate(60, 1, paths(), flows), 0, 60)
    };
    // Source: the head-of-line check of the algorithm reference, §9.7. A full queue on the slow path
    // makes its round trip 330 ms, so 2 · ΣBW · max RTT is 825 kB.
    // Taking turns, the fast path must wait for the slow one within 37.5 kB: less than it had alone.
    let fast_alone = 8.0 * 0.949;
    let (small, ample) = (goodput(37_500), goodput(825_000));
    assert!(small < 0.7 * fast_alone, "{small}");
    assert!(ample > 0.92 * (8.0 + 2.0) * 0.949, "{ample}");
}

#[test]
fn a_pings_answer_measures_the_round_trip_time() {
    let ping = TrafficConfig::Ping { every: Duration::from_millis(100), packet: Bytes::new(56) };
    let mut probe = flow("ping", ping, transport(Protocol::Udp), 1);
    probe.from = Host::Ground;
    let outcome = simulate(10, 1, vec![path("a", 1000.0, 30)], vec![probe]);
    assert_eq!(outcome.answers, [0]);
    assert_eq!(outcome.flows[0].summary.delivered, 100);
    let round_trip = delay_ms(&outcome, 1, 0.5);
    assert!((round_trip - 60.0).abs() < 0.1, "{round_trip}");
}

#[test]
fn traffic_in_both_directions_at_once_is_kept_apart() {
    let mut down = flow("down", cbr(1.0, 125), transport(Protocol::Udp), 1);
    down.from = Host::Ground;
    let up = flow("up", cbr(8.0, 1200), transport(Protocol::Tcp), 1);
    let outcome = simulate(10, 1, vec![path("a", 10.0, 20)], vec![up, down]);
    assert_eq!(outcome.flows[1].summary.lost, 0);
    assert!(delay_ms(&outcome, 1, 0.5) < 21.0);
    assert!(outcome.flows[0].summary.delivered > 8000);
}

#[test]
fn every_packet_is_delivered_lost_or_in_flight() {
    let paths = vec![lossy(path("a", 5.0, 20), 0.01), lossy(path("b", 3.0, 80), 0.02)];
    let flows = vec![
        flow("f", BULK, with_scheduler(Protocol::Mptcp, "low_rtt"), 2),
        flow("g", cbr(1.0, 3000), with_scheduler(Protocol::Udp, "round_robin"), 2),
    ];
    let outcome = simulate(20, 9, paths, flows);
    let counted: u64 = outcome
        .links
        .iter()
        .map(|row| u64::from(row.delivered) + row.lost.iter().map(|n| u64::from(*n)).sum::<u64>())
        .sum();
    assert!(outcome.packet_hops - counted < 3000, "{} {counted}", outcome.packet_hops);
    for record in &outcome.flows {
        let summary = &record.summary;
        assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
    }
}

fn windows(rows: &[SubflowRow]) -> Vec<(u16, u64)> {
    rows.iter().map(|row| (row.path, row.window)).collect()
}

#[test]
fn the_same_seed_gives_the_same_tables_and_another_seed_others() {
    let run = |seed| {
        let paths = vec![lossy(path("a", 5.0, 20), 0.01), lossy(path("b", 3.0, 80), 0.02)];
        let flows = vec![flow("f", BULK, with_scheduler(Protocol::Mptcp, "low_rtt"), 2)];
        let outcome = simulate(20, seed, paths, flows);
        let sent: Vec<_> = outcome.flows[0]
            .blocks()
            .flatten()
            .map(|row| (row.sent(), row.delivered(), row.path))
            .collect();
        (sent, windows(&outcome.subflows))
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

// Data queued on a failing path moves to another path; if that fails too, the first path has never carried it.
#[test]
fn data_that_waits_for_its_pace_is_not_lost_when_its_path_fails() {
    let mut paths = vec![lossy(path("a", 2.8, 381), 0.05), path("b", 0.2, 238)];
    paths[0].downlink.losses = paths[0].uplink.losses.clone();
    for path in &mut paths {
        path.uplink.queue = QueueConfig::Packets(1);
        path.downlink.queue = QueueConfig::Packets(1);
    }
    let transport = TransportConfig {
        congestion: CongestionConfig::by_name("bbr").unwrap(),
        receive_buffer: Bytes::new(14_240),
        loss_detection: LossDetection::NewReno,
        ack_every: 1,
        ..with_scheduler(Protocol::Mptcp, "low_rtt")
    };
    let traffic = TrafficConfig::File { size: Bytes::new(12_817) };
    let delivered = (0..40).map(|seed| {
        let flows = vec![flow("f", traffic.clone(), transport.clone(), 2)];
        simulate(120, seed, paths.clone(), flows).flows[0].summary.delivered
    });
    assert_eq!(delivered.sum::<u64>(), 40);
}

// Until the first loss, runs with the same seed are the same.
#[test]
fn the_flight_size_decides_what_a_loss_leaves() {
    let after_loss = |flight_size| {
        let mut link = path("a", 20.0, 100);
        link.uplink.losses = vec![LossSource::Uniform(Probability::new(0.0005).unwrap())];
        let transport = TransportConfig {
            congestion: CongestionConfig::by_name("reno").unwrap(),
            loss_detection: LossDetection::Sack,
            proportional_reduction: false,
            flight_size,
            ..transport(Protocol::Tcp)
        };
        let outcome = simulate(20, 1, vec![link], vec![flow("f", BULK, transport, 1)]);
        let first = outcome.subflows.iter().find(|row| row.reductions > 0);
        first.expect("a loss").threshold as f64 / 1448.0
    };
    let window = after_loss(FlightSize::Window);
    let less = window - after_loss(FlightSize::InFlight);
    assert!((0.4..2.1).contains(&less), "{window} segments and {less} less");
    assert!((after_loss(FlightSize::CongestionWindow) - window).abs() < 0.6);
}

// Source: RFC 3522 and RFC 4015.
#[test]
fn a_spurious_timeout_is_undone() {
    let stall = |loss_detection| {
        let mut link = path("a", 10.0, 20);
        let rate = |kbps: u64| Change::Rate(RateSource::Constant(Rate::from_bps(kbps * 1000)));
        link.uplink.changes =
            vec![(Instant::from_millis(5000), rate(1)), (Instant::from_millis(5500), rate(10_000))];
        let transport = TransportConfig { loss_detection, ..transport(Protocol::Tcp) };
        let outcome = simulate(10, 1, vec![link], vec![flow("f", cbr(4.0, 1400), transport, 1)]);
        let window_at = |ms: i64| {
            let row = outcome.subflows.iter().find(|row| row.at >= Instant::from_millis(ms));
            row.unwrap().window
        };
        let reductions: u64 = outcome.subflows.iter().map(|row| row.reductions).sum();
        let retransmitted: u64 = outcome.subflows.iter().map(|row| row.retransmitted).sum();
        assert!(reductions > 0, "the timer expires");
        assert!(window_at(5800) >= window_at(4900), "{loss_detection:?}");
        retransmitted
    };
    // About a hundred segments were in flight; a timeout retransmits one, which its probe may retransmit too.
    for loss_detection in [LossDetection::Rack, LossDetection::Sack, LossDetection::NewReno] {
        let retransmitted = stall(loss_detection);
        assert!((1..5).contains(&retransmitted), "{loss_detection:?}: {retransmitted}");
    }
}

#[test]
fn without_undoing_a_spurious_timeout_the_window_stays_small() {
    let mut link = path("a", 10.0, 20);
    let rate = |kbps: u64| Change::Rate(RateSource::Constant(Rate::from_bps(kbps * 1000)));
    link.uplink.changes =
        vec![(Instant::from_millis(5000), rate(1)), (Instant::from_millis(5500), rate(10_000))];
    let transport = TransportConfig { undo: false, ..transport(Protocol::Tcp) };
    let outcome = simulate(10, 1, vec![link], vec![flow("f", cbr(4.0, 1400), transport, 1)]);
    let threshold_at = |ms: i64| {
        let row = outcome.subflows.iter().find(|row| row.at >= Instant::from_millis(ms));
        row.unwrap().threshold
    };
    assert!(threshold_at(5800) < threshold_at(4900) / 2);
}

#[test]
fn a_socket_that_refuses_when_full_bounds_the_delay() {
    let fly = |refuse_when_full| {
        let transport = TransportConfig {
            refuse_when_full,
            send_buffer: Bytes::new(100_000),
            ..transport(Protocol::Tcp)
        };
        let outcome = simulate(
            20,
            1,
            vec![path("a", 1.0, 20)],
            vec![flow("f", cbr(2.0, 1000), transport, 1)],
        );
        let summary = &outcome.flows[0].summary;
        (goodput_mbps(&outcome, 0, 20), summary.refused, summary.lost, delay_ms(&outcome, 0, 1.0))
    };
    // 100 kB at 1 Mbit/s take 800 ms, plus headers. Half of the messages fit.
    let (goodput, refused, lost, longest_ms) = fly(true);
    assert!((0.9..0.97).contains(&goodput), "{goodput}");
    assert!((2500..2750).contains(&refused), "{refused}");
    assert_eq!(refused, lost);
    assert!((700.0..950.0).contains(&longest_ms), "{longest_ms}");
    let (goodput, refused, _, longest_ms) = fly(false);
    assert!((0.9..0.97).contains(&goodput), "{goodput}");
    assert_eq!(refused, 0);
    assert!(longest_ms > 8000.0, "{longest_ms}");
}

// Source: RFC 6298 §5.7: without it, data would time out before its first acknowledgement, like the SYN.
#[test]
fn a_round_trip_longer_than_a_second_ends_no_slow_start() {
    for undo in [true, false] {
        let transport = TransportConfig { undo, ..transport(Protocol::Tcp) };
        let outcome =
            simulate(15, 1, vec![path("a", 100.0, 590)], vec![flow("f", BULK, transport, 1)]);
        assert_eq!(outcome.subflows.iter().map(|row| row.reductions).sum::<u64>(), 0);
        assert_eq!(outcome.subflows.iter().map(|row| row.retransmitted).sum::<u64>(), 0);
    }
}

#[test]
fn a_run_too_large_for_its_numbers_is_refused() {
    let one = flow("f", cbr(1.0, 500), transport(Protocol::Tcp), 1);
    let with = |flows| setup(1, 1, vec![path("a", 10.0, 20)], flows);
    let riding = |count: usize| {
        let mut flows = vec![one.clone(); count];
        flows.iter_mut().skip(1).for_each(|flow| flow.rides_with = Some(0));
        with(flows)
    };
    assert_eq!(riding(Setup::MAX_STREAMS).check(), Ok(()));
    let refused = riding(Setup::MAX_STREAMS + 1).check().unwrap_err();
    assert_eq!(refused.to_string(), "found 257 flows in one connection, expected at most 256");
    assert_eq!(with(vec![one.clone(); Setup::MAX_RECORDS]).check(), Ok(()));
    // Each ping has a record of its answers besides.
    let ping = TrafficConfig::Ping { every: Duration::from_secs(1), packet: Bytes::new(56) };
    let mut flows = vec![one; Setup::MAX_RECORDS];
    flows[7].traffic = ping;
    assert_eq!(with(flows).check().unwrap_err().found, 65_536);
}
