//! Scripted halts.

use crate::common::{arrival_ms, lost, ms, near};
use skybraid_link::{Cause, Link, LinkConfig, QueueConfig, RateSource};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

/// A link of 12 Mbit/s, on which 1500 bytes take 1 ms, with these halts in ms.
fn halting(halts: &[(i64, i64)]) -> LinkConfig {
    let span = |(start, length): &(i64, i64)| {
        (Instant::from_millis(*start), Duration::from_millis(*length))
    };
    LinkConfig {
        halts: halts.iter().map(span).collect(),
        ..LinkConfig::plain(RateSource::Constant(Rate::from_mbps(12.0)), Duration::from_millis(20))
    }
}

fn link(config: &LinkConfig) -> Link {
    Link::new(config, "p", "uplink", Seed(7))
}

#[test]
fn a_packet_in_a_halt_departs_after_it() {
    let mut link = link(&halting(&[(1000, 100), (5000, 300)]));
    near(arrival_ms(&mut link, 900.0, 1500), 921.0, 1e-6);
    // Half of the packet is sent before the halt, the other half after it.
    near(arrival_ms(&mut link, 999.5, 1500), 1100.5 + 20.0, 1e-6);
    near(arrival_ms(&mut link, 1050.0, 1500), 1101.5 + 20.0, 1e-6);
    near(arrival_ms(&mut link, 5000.0, 1500), 5301.0 + 20.0, 1e-6);
    near(arrival_ms(&mut link, 9000.0, 1500), 9021.0, 1e-6);
}

#[test]
fn a_halt_loses_only_packets_that_overflow_the_queue() {
    let halt = [(1000, 100)];
    let come = |queue| {
        let mut link = link(&LinkConfig { queue, ..halting(&halt) });
        let fate = |n: i32| lost(link.admit(ms(1000.0 + f64::from(n)), Bytes::new(1500)));
        (0..90).map(fate).collect::<Vec<_>>()
    };
    assert!(come(QueueConfig::Unlimited).iter().all(Option::is_none));
    let full = come(QueueConfig::Packets(50));
    assert_eq!(full.iter().filter(|cause| cause.is_none()).count(), 50);
    assert!(full.iter().flatten().all(|cause| *cause == Cause::Queue));
}

#[test]
fn in_a_halt_the_rate_is_zero_but_the_link_is_up() {
    let mut link = link(&halting(&[(1000, 100)]));
    for (at, mbps) in [(999.9, 12.0), (1000.0, 0.0), (1099.9, 0.0), (1100.0, 12.0)] {
        let shown = link.conditions(ms(at));
        assert_eq!((shown.rate, shown.up), (Rate::from_mbps(mbps), true), "at {at} ms");
    }
}

#[test]
fn halts_may_overlap_and_come_in_any_order() {
    let mut one = link(&halting(&[(1000, 300)]));
    let mut many = link(&halting(&[(1200, 100), (1000, 50), (1040, 200), (1100, 0)]));
    for n in 0..200 {
        let at = f64::from(n) * 7.0;
        near(arrival_ms(&mut many, at, 1500), arrival_ms(&mut one, at, 1500), 1e-9);
    }
}
