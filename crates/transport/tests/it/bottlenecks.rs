//! Goals of coupled congestion control over shared queues.
//!
//! Source: RFC 6356 §2 (the three goals); the algorithm reference, §3 and §9.7.

use skybraid_transport::congestion::CongestionConfig;
use skybraid_units::Duration;

use crate::network::{Measured, Network, Wire};

/// Measures flows, given by the name of their congestion control and the wires of their subflows.
fn measure(wires: impl Into<Vec<Wire>>, flows: &[(&str, &[usize])]) -> Measured {
    let mut network = Network::new(wires.into());
    for (name, wires) in flows {
        network = network.flow(CongestionConfig::by_name(name).unwrap(), wires);
    }
    network.measure(Duration::from_secs(60), Duration::from_secs(300))
}

fn quiet(rtt_ms: i64, rate: f64, limit: u32) -> Wire {
    Wire::bottleneck(Duration::from_millis(rtt_ms), rate, limit)
}

fn wire(rtt_ms: i64, rate: f64, limit: u32, name: &str) -> Wire {
    quiet(rtt_ms, rate, limit).with_jitter(Duration::from_millis(10), name)
}

fn assert_between(found: f64, low: f64, high: f64, what: &str) {
    assert!((low..high).contains(&found), "{what}: {found:.3} is not between {low} and {high}");
}

#[test]
fn the_total_is_at_least_that_of_one_tcp_on_the_best_path() {
    // Both wires carry a TCP already; the first one has more capacity left.
    let wires = || [wire(50, 1000.0, 50, "fast"), wire(100, 400.0, 40, "slow")];
    let single = measure(wires(), &[("reno", &[0]), ("reno", &[1]), ("reno", &[0])]).total(2);
    for name in ["lia", "olia", "balia"] {
        let all = measure(wires(), &[("reno", &[0]), ("reno", &[1]), (name, &[0, 1])]);
        assert!(all.total(2) > 0.9 * single, "{name}: {:.1} against {single:.1}", all.total(2));
    }
}

#[test]
fn coupled_subflows_take_half_of_a_bottleneck_shared_with_tcp() {
    let share = |name: &str| {
        let measured =
            measure([wire(100, 1000.0, 50, "shared")], &[("reno", &[0]), (name, &[0; 2])]);
        measured.total(1) / (measured.total(0) + measured.total(1))
    };
    for name in ["lia", "olia", "balia", "ewtcp"] {
        assert_between(share(name), 0.45, 0.55, name);
    }
    assert_between(share("reno"), 0.63, 0.70, "uncoupled");
}

#[test]
fn traffic_moves_off_the_congested_path() {
    // Three TCPs against one.
    let rates = |name: &str| {
        let wires = [wire(100, 1000.0, 50, "congested"), wire(100, 1000.0, 50, "other")];
        let tcps: [(&str, &[usize]); 4] =
            [("reno", &[0]), ("reno", &[0]), ("reno", &[0]), ("reno", &[1])];
        let flows = [&tcps[..], &[(name, &[0, 1])]].concat();
        measure(wires, &flows).rates.pop().unwrap()
    };
    let uncoupled = rates("reno");
    for (name, max) in [("lia", 0.6), ("balia", 0.5), ("olia", 0.3)] {
        let coupled = rates(name);
        let left = coupled[0] / uncoupled[0];
        assert!(left < max, "{name}: {left:.2} of uncoupled traffic is on the congested path");
        assert_between(coupled[1] / uncoupled[1], 0.8, 1.05, name);
    }
}

// Source: Cao, Xu, Fu 2012: queueing delays are equal in equilibrium. Ten segments are queued, in
// proportion to rates: 10 / 1250 s.
#[test]
fn wvegas_keeps_equal_queueing_delays_on_paths_of_unequal_rates() {
    let measured =
        measure([quiet(100, 1000.0, 100), quiet(100, 250.0, 100)], &[("wvegas", &[0, 1])]);
    for path in [0, 1] {
        assert_between(measured.queueing[path], 0.0076, 0.0084, "queueing delay");
        assert_between(
            measured.rates[0][path],
            [990.0, 247.0][path],
            [1001.0, 251.0][path],
            "rate",
        );
    }
    assert_eq!(measured.dropped, [0.0, 0.0]);
}

// Source: Cao, Xu, Fu 2012. A flow with a wire of its own keeps its minimum, two segments, in the
// shared queue; the other flow, which has no choice, keeps ten there: 2 : 10.
#[test]
fn wvegas_leaves_a_shared_path_to_the_flow_without_another() {
    let wires = [quiet(100, 1000.0, 100), quiet(100, 1000.0, 100)];
    let measured = measure(wires, &[("wvegas", &[0]), ("wvegas", &[0, 1])]);
    let shared = measured.rates[1][0] / (measured.rates[0][0] + measured.rates[1][0]);
    assert_between(shared, 0.14, 0.20, "share");
    assert_between(measured.rates[1][1], 990.0, 1001.0, "its own wire");
}
