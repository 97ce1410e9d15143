//! Radio effects: DRX, HARQ, handovers and satellite reconfiguration.

use crate::common::{arrival_ms, direction, downlink, fates, lost, mean, ms, near, sd, uplink};
use skybraid_link::{Cause, Direction, Fate};
use skybraid_units::Bytes;

/// DRX with its defaults, on a link without other delay; a packet is serialised in a nanosecond.
const DRX: &str = "drx = {}\ndownlink.rate = \"100Gbit/s\"\nuplink.rate = \"100Gbit/s\"";

#[test]
fn a_packet_waits_for_the_window_of_the_current_drx_state() {
    for (at, wait) in [
        (100.0, 0.0),
        (199.0, 0.0),
        (205.5, 0.0),
        (1000.0, 3.0),
        (3000.0, 1.0),
        (20_000.0, 45.0 + 70.0),
    ] {
        near(arrival_ms(&mut downlink(DRX), at, 100) - at, wait, 2e-3);
    }
    // The uplink is not paged.
    near(arrival_ms(&mut uplink(DRX), 20_000.0, 100), 20_070.0, 2e-3);
    near(arrival_ms(&mut uplink(DRX), 1000.0, 100), 1003.0, 2e-3);
}

#[test]
fn mean_drx_wait_is_half_the_squared_sleep_over_the_cycle() {
    let waits = |from: f64, cycle: f64| {
        let count = 2000;
        let all: Vec<f64> = (0..count)
            .map(|n| {
                let at = from + cycle * (f64::from(n) + 0.5) / f64::from(count);
                arrival_ms(&mut downlink(DRX), at, 100) - at
            })
            .collect();
        mean(&all)
    };
    near(waits(200.0 + 600.0, 6.0), 2.083, 0.01);
    near(waits(2498.0 + 1200.0, 12.0), 5.042, 0.01);
    near(waits(10_346.0 + 500.0, 50.0) - 70.0, 24.01, 0.02);
}

#[test]
fn activity_in_one_direction_keeps_the_other_awake() {
    let (mut up, mut down) = (uplink(DRX), downlink(DRX));
    for n in 0..100 {
        up.admit(ms(f64::from(n) * 100.0), Bytes::new(100));
        down.set_radio(up.radio().unwrap());
    }
    near(arrival_ms(&mut down, 10_000.0, 100), 10_000.0, 2e-3);
    // Without the other direction it would be in long DRX: 7502 mod 12 = 2, so 9 ms to the window.
    near(arrival_ms(&mut downlink(DRX), 10_000.0, 100), 10_009.0, 2e-3);
}

#[test]
fn packets_queued_during_a_wake_up_do_not_wait_again() {
    let mut link = downlink(DRX);
    near(arrival_ms(&mut link, 20_000.0, 100), 20_115.0, 2e-3);
    near(arrival_ms(&mut link, 20_001.0, 100), 20_115.0, 4e-3);
    let mut other = uplink(DRX);
    other.set_radio(link.radio().unwrap());
    near(arrival_ms(&mut other, 20_050.0, 100), 20_115.0, 4e-3);
}

#[test]
fn the_rate_rises_linearly_after_the_connection_is_set_up() {
    let mut link = uplink("drx = {}\nuplink = { rate = \"45Mbit/s\", queue = \"unlimited\" }");
    // From 20.070 s on, 5 to 45 Mbit/s over 500 ms: after t seconds, 5·t + 40·t² Mbit have departed.
    let arrivals: Vec<f64> =
        (0..2000).map(|_| arrival_ms(&mut link, 20_000.0, 1250) - 20_070.0).collect();
    let bits_by = |t: f64| arrivals.iter().filter(|at| **at <= t).count() as f64 * 1e4;
    near(bits_by(500.0), 12.5e6, 0.02e6);
    near(bits_by(250.0), 3.75e6, 0.03e6);
    near(bits_by(100.0), 0.9e6, 0.02e6);
    // 45 Mbit/s afterwards.
    near(bits_by(600.0) - bits_by(500.0), 4.5e6, 0.02e6);
}

#[test]
fn harq_delays_are_geometric_in_round_trips() {
    let mut link = uplink("uplink = { rate = \"1Gbit/s\", harq = { loss = \"0.5%\" } }");
    let count = 1_000_000;
    let extra: Vec<f64> = (0..count)
        .map(|n| {
            let at = f64::from(n) * 100.0;
            arrival_ms(&mut link, at, 1250) - at - 0.01
        })
        .collect();
    let above = |min: f64| extra.iter().filter(|ms| **ms >= min - 1e-3).count() as f64 / 1e6;
    near(above(8.0), 0.005, 4.0 * (0.005f64 / 1e6).sqrt());
    near(above(16.0), 2.5e-5, 4.0 * (2.5e-5f64 / 1e6).sqrt());
    near(mean(&extra), 8.0 * 0.005 / 0.995, 0.003);
    assert!(extra.iter().all(|ms| (ms / 8.0 - (ms / 8.0).round()).abs() < 1e-3));
}

#[test]
fn packets_after_a_harq_retransmission_catch_up_in_order() {
    let mut link = uplink(
        "uplink = { rate = \"10Mbit/s\", delay = \"20ms\", harq = { loss = \"2%\", catch_up = \"1Gbit/s\" } }",
    );
    let arrivals: Vec<f64> =
        (0..100_000).map(|n| arrival_ms(&mut link, f64::from(n) * 1.1, 1250)).collect();
    assert!(arrivals.windows(2).all(|pair| pair[0] <= pair[1]));
    let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // A retransmission adds a gap of 8 ms; later packets follow 10 µs apart until they are on time.
    let held = gaps.iter().position(|gap| *gap > 8.0).unwrap();
    near(gaps[held], 8.0 + 1.1, 1e-3);
    let following = gaps.iter().skip(held + 1).take(5);
    assert!(following.into_iter().all(|gap| (gap - 0.01).abs() < 1e-6));
    // A packet that catches up draws no retransmission of its own: a retransmission delays 8 ms / 1.1 ms of
    // packets per draw.
    let repetitions = gaps.iter().filter(|gap| **gap > 8.0).count() as f64;
    near(repetitions / 1e5, 0.02 / (1.0 + 0.02 * 8.0 / 0.98 / 1.1), 0.0015);
}

#[test]
fn handovers_halt_service_and_both_directions_alike() {
    let toml = "handover = { interval = { mean = \"20.04s\", sd = \"4.8724s\" }, interruption = \"50ms\" }\n\
                uplink.rate = \"1Gbit/s\"\ndownlink.rate = \"1Gbit/s\"";
    let starts = |way: Direction| {
        let mut link = direction(toml, way, 7);
        let mut starts = Vec::new();
        let mut halted = false;
        for n in 0..4_000_000 {
            let at = f64::from(n) * 10.0;
            let delay = arrival_ms(&mut link, at, 125) - at;
            if delay > 1.0 && !halted {
                starts.push(at + delay - 50.0);
            }
            halted = delay > 1.0;
        }
        starts
    };
    let (up, down) = (starts(Direction::Uplink), starts(Direction::Downlink));
    assert_eq!(up.len(), down.len());
    assert!(up.iter().zip(&down).all(|(up, down)| (up - down).abs() < 0.01));
    let intervals: Vec<f64> = up.windows(2).map(|pair| (pair[1] - pair[0]) / 1000.0).collect();
    near(mean(&intervals), 20.04, 0.35);
    near(sd(&intervals), 4.8724, 0.25);
    assert!(intervals.iter().all(|interval| *interval >= 1.0));
}

#[test]
fn service_resumes_after_a_handover_and_the_queue_overflows() {
    let toml = "handover = { interval = \"1s\", interruption = \"100ms\" }\n\
                uplink = { rate = \"12Mbit/s\", queue = { packets = 50 } }";
    let mut link = uplink(toml);
    // Half of it is sent before the handover at 1 s.
    near(arrival_ms(&mut link, 999.5, 1500), 1100.5, 1e-6);
    let causes: Vec<_> =
        (0..90).map(|n| lost(link.admit(ms(1000.0 + f64::from(n)), Bytes::new(1500)))).collect();
    assert_eq!(causes.iter().filter(|cause| cause.is_none()).count(), 49);
    assert!(causes.iter().flatten().all(|cause| *cause == Cause::Queue));
    near(arrival_ms(&mut link, 1150.0, 1500), 1151.0, 1e-6);
}

#[test]
fn reconfiguration_repeats_from_its_phase_at_its_interval() {
    let toml = "reconfiguration = { delay_step = { min = \"0ms\", max = \"20ms\" }, loss = \"100%\", loss_for = \"100ms\" }\n\
                uplink = { rate = \"1Gbit/s\", delay = \"20ms\" }";
    let mut link = uplink(toml);
    let (mut steps, mut losses, mut last) = (Vec::new(), Vec::new(), None);
    for n in 0..30_000 {
        let at = f64::from(n) * 10.0;
        match link.admit(ms(at), Bytes::new(125)) {
            Fate::Delivered { at: arrival } => {
                let delay = arrival.as_nanos() as f64 * 1e-6 - at;
                // After a decrease of the delay, packets arrive together at first, since the order is kept.
                if last.is_some_and(|last: f64| (last - delay).abs() > 0.1) {
                    steps.push(at);
                }
                last = Some(delay);
            }
            Fate::Held => panic!("held"),
            Fate::Lost { cause, .. } => {
                assert_eq!(cause, Cause::Handover);
                losses.push(at);
            }
        }
    }
    let boundaries: Vec<f64> = (0..20).map(|k| 12_000.0 + 15_000.0 * f64::from(k)).collect();
    // A packet at the boundary itself belongs to the new epoch.
    for boundary in &boundaries {
        for n in 0..10 {
            assert!(losses.contains(&(boundary + f64::from(n) * 10.0)), "{boundary} + {n}0 ms");
        }
    }
    assert_eq!(losses.len(), 200);
    for step in steps {
        let since = (step - 12_000.0).rem_euclid(15_000.0);
        assert!(since < 130.0, "a step at {step} ms");
    }
}

#[test]
fn a_reconfiguration_may_interrupt_service() {
    let mut link = uplink("reconfiguration.interruption = \"80ms\"\nuplink.rate = \"1Gbit/s\"");
    near(arrival_ms(&mut link, 11_990.0, 125), 11_990.001, 1e-6);
    near(arrival_ms(&mut link, 12_000.0, 125), 12_080.001, 1e-6);
    near(arrival_ms(&mut link, 27_079.0, 125), 27_080.001, 1e-6);
}

#[test]
fn delay_steps_are_the_same_in_both_directions() {
    let toml = "reconfiguration.delay_step = { min = \"0ms\", max = \"20ms\" }\n\
                uplink.rate = \"1Gbit/s\"\ndownlink.rate = \"1Gbit/s\"";
    let steps = |way| {
        let mut link = direction(toml, way, 3);
        let at = |n: u32| 5000.0 + 15_000.0 * f64::from(n);
        (0..100).map(|n| arrival_ms(&mut link, at(n), 125) - at(n)).collect::<Vec<_>>()
    };
    assert_eq!(steps(Direction::Uplink), steps(Direction::Downlink));
    near(mean(&steps(Direction::Uplink)), 10.0, 2.0);
}

#[test]
fn enabling_harq_or_handovers_changes_no_other_draws() {
    let base = "uplink = { rate = \"50Mbit/s\", loss = { uniform = \"1%\" }";
    let plain = fates(&mut uplink(&format!("{base} }}")), 20_000, 1.0, 500);
    let harq =
        fates(&mut uplink(&format!("{base}, harq = {{ loss = \"3%\" }} }}")), 20_000, 1.0, 500);
    assert!(plain == harq);
    let extra = |loss: &str| {
        let toml = format!(
            "uplink = {{ rate = \"50Mbit/s\", loss = {loss}, harq = {{ loss = \"3%\" }} }}"
        );
        let mut link = uplink(&toml);
        let arrivals = (0..20_000).map(|n| link.admit(ms(f64::from(n)), Bytes::new(500)));
        arrivals.collect::<Vec<_>>()
    };
    let with_loss = extra("{ uniform = \"5%\" }");
    for (with, without) in with_loss.iter().zip(extra("[]")) {
        assert!(lost(*with).is_some() || *with == without);
    }
}
