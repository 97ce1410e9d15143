//! Goodput of schedulers.

use crate::support::*;
use skybraid_link::QueueConfig;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::Bytes;

/// Returns the goodput in Mbit/s of a bulk transfer over 8 Mbit/s at a round trip of 20 ms and 2 Mbit/s at 150
/// ms, with buffers of these sizes in bytes.
fn goodput(scheduler: &str, receive_buffer: u64, send_buffer: u64) -> f64 {
    let transport = TransportConfig {
        scheduler: SchedulerConfig::by_name(scheduler).unwrap(),
        receive_buffer: Bytes::new(receive_buffer),
        send_buffer: Bytes::new(send_buffer),
        ..transport(Protocol::Mptcp)
    };
    let mut paths = vec![path("fast", 8.0, 10), path("slow", 2.0, 75)];
    paths[0].uplink.queue = QueueConfig::Packets(10);
    paths[1].uplink.queue = QueueConfig::Packets(20);
    let outcome = simulate(60, 1, paths, vec![flow("f", BULK, transport, 2)]);
    goodput_mbps(&outcome, 0, 60)
}

// Source: the head-of-line blocking check of the algorithm reference, §9.7. 37.5 kB are the bandwidth
// delay product of the slow path alone. ECF waits only while little is left to send, so the send
// buffer is two windows.
#[test]
fn only_waiting_schedulers_avoid_blocking_in_a_small_buffer() {
    let fast_alone = goodput("single", 37_500, 75_000);
    let lowest_rtt = goodput("low_rtt", 37_500, 75_000);
    assert!(lowest_rtt < 0.5 * fast_alone, "{lowest_rtt} against {fast_alone}");
    for scheduler in ["blest", "ecf", "low_rtt_wait"] {
        let waiting = goodput(scheduler, 37_500, 75_000);
        assert!(waiting > 0.95 * fast_alone, "{scheduler}: {waiting} against {fast_alone}");
    }
}

// 375 kB are twice the sum of the rates times the longest round trip.
#[test]
fn with_large_buffers_the_slow_path_adds_to_the_fast_one() {
    let fast_alone = goodput("single", 375_000, 4_000_000);
    for scheduler in ["low_rtt", "blest", "ecf", "otias", "linux"] {
        let both = goodput(scheduler, 375_000, 4_000_000);
        assert!(both > 1.1 * fast_alone, "{scheduler}: {both} against {fast_alone}");
    }
}
