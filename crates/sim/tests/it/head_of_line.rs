//! Head-of-line blocking and blocking by the peer's window, compared with hand calculations.

use crate::support::*;
use skybraid_link::QueueConfig;
use skybraid_sim::{FlowSetup, LinkSetup, Outcome};
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::tcp::scoreboard::LossDetection;
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant};

/// Serialisation time of a byte at 1 Gbit/s: 8 ns.
const NS_PER_BYTE: i64 = 8;
/// A segment of 1000 bytes: IPv4, TCP and timestamps; with MPTCP also a DSS option.
const TCP_SEGMENT: i64 = 20 + 20 + 12 + 1000;
/// An acknowledgement with one SACK block.
const ACK_WITH_ONE_BLOCK: i64 = 20 + 20 + 12 + 12;

/// A message of 1000 bytes every 10 ms from 1 s on.
fn every_ten_ms(transport: TransportConfig, paths: usize) -> FlowSetup {
    let start = Instant::from_millis(1000);
    FlowSetup { start, ..flow("f", cbr(0.8, 1000), transport, paths) }
}

/// Returns the delay in ns and the head-of-line blocking in µs of each message.
fn deliveries(outcome: &Outcome) -> Vec<(i64, u32)> {
    let rows = outcome.flows[0].blocks().flatten();
    rows.filter_map(|row| Some(((row.delivered()? - row.sent()).as_nanos(), row.held_us))).collect()
}

#[test]
fn round_robin_blocks_the_fast_path_by_the_delay_difference() {
    let scheduler = SchedulerConfig::by_name("round_robin").unwrap();
    let transport =
        TransportConfig { protocol: Protocol::Mptcp, scheduler, ..TransportConfig::default() };
    let paths = vec![path("fast", 1000.0, 10), path("slow", 1000.0, 60)];
    let outcome = simulate(3, 1, paths, vec![every_ten_ms(transport, 2)]);
    // Message 2 on the fast path arrives 10 + 10 ms after message 1 left on the slow one, which takes
    // 60 ms; both take the same time to serialise.
    let serialisation = (TCP_SEGMENT + 24) * NS_PER_BYTE;
    let settled = &deliveries(&outcome)[10..190];
    for pair in settled.chunks_exact(2) {
        let mut pair = pair.to_vec();
        pair.sort_unstable();
        assert_eq!(pair, [(50_000_000 + serialisation, 40_000), (60_000_000 + serialisation, 0)]);
    }
    let held = outcome.flows[0].summary.held;
    assert_eq!(held.longest, Duration::from_millis(40));
}

#[test]
fn a_lost_segment_blocks_later_ones_until_retransmitted() {
    let mut link = path("a", 1000.0, 50);
    // Message 50 is sent at 1.5 s into an outage of a millisecond.
    link.uplink.down = vec![(Instant::from_millis(1500), Duration::from_millis(1))];
    let transport = TransportConfig {
        protocol: Protocol::Tcp,
        loss_detection: LossDetection::Sack,
        ..TransportConfig::default()
    };
    let outcome = simulate(4, 1, vec![link], vec![every_ten_ms(transport, 1)]);
    let rows = deliveries(&outcome);
    let (segment, ack) = (TCP_SEGMENT * NS_PER_BYTE, ACK_WITH_ONE_BLOCK * NS_PER_BYTE);
    // The third segment after it is sent 30 ms later; its acknowledgement triggers the retransmission.
    let late = 30_000_000 + segment + 50_000_000 + ack + 50_000_000 + segment + 50_000_000;
    assert_eq!(rows[50], (late, 0));
    for behind in 1..=13_i64 {
        let arrived = behind * 10_000_000 + segment + 50_000_000;
        let row = rows[50 + behind as usize];
        assert_eq!(row, (late - behind * 10_000_000, ((late - arrived) / 1000) as u32));
    }
    assert_eq!(rows[64].1, 0);
    let held = outcome.flows[0].summary.held;
    assert_eq!(held.messages, 13);
    let connection = outcome.flows[0].summary.connection;
    // The receiver held data from the arrival of the next message until the retransmission.
    let holding = late - (10_000_000 + segment + 50_000_000);
    assert_eq!(connection.holding.as_nanos(), 0, "a subflow holds it, not the connection");
    assert_eq!(held.longest.as_nanos(), holding);
}

fn uneven() -> Vec<LinkSetup> {
    // Source: RFC 8684 §3.3.5's rule with the numbers of the algorithm reference, §4: 8 Mbit/s at 20 ms
    // and 2 Mbit/s at 150 ms round trip need between 37.5 and 187.5 kB.
    let mut paths = vec![path("fast", 8.0, 10), path("slow", 2.0, 75)];
    for path in &mut paths {
        path.uplink.queue = QueueConfig::Bytes(Bytes::new(40_000));
    }
    paths
}

fn bulk(scheduler: &str, receive_buffer: u64) -> (f64, Duration) {
    let transport = TransportConfig {
        protocol: Protocol::Mptcp,
        scheduler: SchedulerConfig::by_name(scheduler).unwrap(),
        receive_buffer: Bytes::new(receive_buffer),
        ..TransportConfig::default()
    };
    let outcome = simulate(60, 1, uneven(), vec![flow("f", BULK, transport, 2)]);
    let blocked = outcome.flows[0].summary.connection.window_blocked;
    (goodput_mbps(&outcome, 0, 60), blocked)
}

// Source: the head-of-line check of the algorithm reference, §9.7.
#[test]
fn a_receive_buffer_of_one_paths_product_blocks() {
    let (small, blocked_small) = bulk("low_rtt", 37_500);
    let (large, blocked_large) = bulk("low_rtt", 4 * 187_500);
    assert!(small < 8.0, "{small}");
    assert!(large > 0.9 * 10.0 * 0.949, "{large}");
    assert!(blocked_small > Duration::from_secs(10), "{blocked_small}");
    assert!(blocked_large < blocked_small / 10, "{blocked_large}");
}
