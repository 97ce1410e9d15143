//! Parallel TCP connections, one on each path, compared with one connection and with MPTCP.
//!
//! Source: Pedrazzi 2020, the TCP case: one stream of messages, split equally over k connections.

use crate::support::*;
use skybraid_sim::Outcome;
use skybraid_transport::Protocol;
use skybraid_units::{Duration, Instant};

fn fly(protocol: Protocol, paths: usize) -> Outcome {
    let all = vec![path("a", 10.0, 20), path("b", 10.0, 20)];
    simulate(30, 1, all, vec![flow("f", BULK, transport(protocol), paths)])
}

#[test]
fn two_equal_paths_carry_twice_what_one_does() {
    let one = goodput_mbps(&fly(Protocol::Tcp, 1), 0, 30);
    let both = goodput_mbps(&fly(Protocol::ParallelTcp, 2), 0, 30);
    assert!((both / one - 2.0).abs() < 0.02, "{both} of {one}");
    // Plain TCP on a path of 10 Mbit/s: 1448 B of payload in 1500 B.
    assert!((one / (10.0 * 1448.0 / 1500.0) - 1.0).abs() < 0.02, "{one}");
}

#[test]
fn on_one_path_it_is_plain_tcp() {
    let rows = |outcome: Outcome| -> Vec<_> {
        outcome.flows[0].blocks().flatten().map(|row| (row.sent(), row.delivered())).collect()
    };
    assert_eq!(rows(fly(Protocol::ParallelTcp, 1)), rows(fly(Protocol::Tcp, 1)));
}

#[test]
fn an_outage_of_one_path_delays_its_own_half_alone() {
    let mut paths = vec![path("a", 10.0, 20), path("b", 10.0, 20)];
    let (from, length) = (Instant::from_millis(5_000), Duration::from_secs(3));
    paths[1].uplink.down = vec![(from, length)];
    let late = {
        let flows = vec![flow("f", cbr(1.0, 1_000), transport(Protocol::ParallelTcp), 2)];
        let outcome = simulate(30, 1, paths.clone(), flows);
        let summary = &outcome.flows[0].summary;
        assert_eq!((summary.lost, summary.sent - summary.delivered), (0, summary.in_flight));
        let rows: Vec<_> = outcome.flows[0].blocks().flatten().copied().collect();
        let mut late = [0, 0];
        for (id, row) in rows.iter().enumerate() {
            let waited = row.delivered().map_or(Duration::ZERO, |at| at.since(row.sent()));
            let connected = row.sent() > Instant::from_millis(100);
            late[id % 2] += usize::from(connected && waited > Duration::from_millis(25));
        }
        late
    };
    let [others, own] = late;
    assert_eq!(others, 0);
    // Message 2k + 1 leaves on path b every 16 ms: an outage of 3 s holds up 187 of them, and
    // those that follow wait for the timer, which has doubled to at most the outage's length.
    assert!((187..=375).contains(&own), "{own}");
}

#[test]
fn every_message_arrives_once_and_on_its_own_path() {
    let paths = vec![lossy(path("a", 10.0, 20), 0.02), lossy(path("b", 5.0, 60), 0.05)];
    let stop = Instant::from_millis(20_000);
    // Three sizes: several messages in a segment, one, and several segments in a message.
    for packet in [100, 1_448, 4_000] {
        let mut one = flow("f", cbr(1.0, packet), transport(Protocol::ParallelTcp), 2);
        one.stop = stop;
        let outcome = simulate(60, 7, paths.clone(), vec![one]);
        let summary = &outcome.flows[0].summary;
        assert_eq!((summary.sent, summary.in_flight), (summary.delivered, 0), "{packet} B");
        let rows: Vec<_> = outcome.flows[0].blocks().flatten().copied().collect();
        assert!(rows.iter().enumerate().all(|(id, row)| usize::from(row.path) == id % 2));
        for path in [0, 1] {
            let own = rows.iter().skip(path).step_by(2).filter_map(|row| row.delivered());
            assert!(own.is_sorted(), "{packet} B on path {path}");
        }
        assert!(summary.packets_by_path.iter().all(|packets| *packets > 0));
    }
}
