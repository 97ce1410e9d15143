//! Queue that holds the delay, as in the LTE emulator of MoonGen.

use skybraid_link::{Cause, Direction, Fate, Link};
use skybraid_units::{Bytes, Seed};

use crate::common::{arrival_ms, lost, measurement, ms, near, path, uplink};

/// 10 Mbit/s: a packet of 1250 B takes 1 ms.
const LINE: &str = "uplink = { rate = \"10Mbit/s\", delay = \"50ms\", queue = { packets = 20, holds_delay = true } }";

#[test]
fn packets_that_wait_for_their_delay_fill_the_queue() {
    let mut link = uplink(LINE);
    // One packet is in hand; the next twenty fill the queue although the link is idle.
    let fates: Vec<Fate> =
        (0..30).map(|n| link.admit(ms(f64::from(n)), Bytes::new(1250))).collect();
    let dropped: Vec<_> = fates.iter().map(|fate| lost(*fate)).collect();
    assert!(dropped[..21].iter().all(Option::is_none), "{dropped:?}");
    assert!(dropped[21..].iter().all(|cause| *cause == Some(Cause::Queue)), "{dropped:?}");
    // Delay first, then the rate.
    for (n, fate) in fates.iter().take(21).enumerate() {
        let Fate::Delivered { at } = fate else { panic!("lost") };
        near(at.as_nanos() as f64 * 1e-6, 51.0 + n as f64, 1e-6);
    }
}

#[test]
fn packets_behind_a_long_delay_leave_back_to_back() {
    let steps = "uplink = { rate = \"10Mbit/s\", delay = { steps = [[\"0s\", \"10ms\"], [\"1s\", \"500ms\"], [\"2s\", \"10ms\"]] }, queue = { packets = 1000, holds_delay = true } }";
    let mut link = uplink(steps);
    let mut arrivals = Vec::new();
    for n in 0..300 {
        arrivals.push(arrival_ms(&mut link, f64::from(n) * 10.0, 1250));
    }
    // Taken after 1 s: a wait of 500 ms, one after the other. The packet of 990 ms is taken before.
    near(arrivals[99], 990.0 + 11.0, 1e-6);
    near(arrivals[100], 1000.0 + 501.0, 1e-6);
    // Taken at 1.5 s, when it has waited 490 ms; later ones wait the whole delay of their row again.
    near(arrivals[101], 1510.0 + 1.0, 1e-6);
    // The row changes after 2 s with the next packet taken; what has waited leaves at the link's rate.
    let backlog = arrivals.windows(2).skip(150).filter(|pair| pair[1] - pair[0] < 1.0001);
    assert!(backlog.count() > 40);
    near(arrivals[299], 2990.0 + 11.0, 1e-6);
}

#[test]
fn a_row_of_the_trace_lasts_for_at_least_one_packet() {
    // Rows of 10 ms; a packet every 30 ms steps through them one by one.
    let steps = "uplink = { rate = \"10Mbit/s\", delay = { steps = [[\"0s\", \"1ms\"], [\"10ms\", \"2ms\"], [\"20ms\", \"3ms\"], [\"30ms\", \"4ms\"], [\"40ms\", \"5ms\"]] }, queue = { packets = 10, holds_delay = true } }";
    let mut link = uplink(steps);
    for (n, delay) in [1.0, 2.0, 3.0, 4.0, 5.0, 5.0].into_iter().enumerate() {
        let at = n as f64 * 30.0;
        near(arrival_ms(&mut link, at, 1250), at + delay + 1.0, 1e-6);
    }
}

#[test]
fn a_handover_adds_its_remainder_to_the_packet_in_hand() {
    let text = format!("{LINE}\nhandover = {{ interval = \"1s\", interruption = \"30ms\" }}");
    let mut link = uplink(&text);
    // Taken 10 ms into the handover: 50 ms, the 20 ms that are left, and 1 ms of service.
    near(arrival_ms(&mut link, 1010.0, 1250), 1010.0 + 50.0 + 20.0 + 1.0, 1e-6);
    near(arrival_ms(&mut link, 1500.0, 1250), 1551.0, 1e-6);
}

#[test]
fn harq_delays_a_packet_and_the_others_catch_up() {
    let text = LINE.replace("queue", "harq = { loss = \"50%\" }, queue");
    let mut link = uplink(&text);
    let delays: Vec<f64> = (0..200)
        .map(|n| f64::from(n) * 200.0)
        .map(|at| arrival_ms(&mut link, at, 1250) - at - 51.0)
        .collect();
    // Alone on the link, a packet waits whole round trips of 8 ms, one on average; a delayed one leaves at 1 Gbit/s.
    let trips = delays.iter().map(|delay| (delay / 8.0).ceil()).sum::<f64>() / 200.0;
    near(trips, 1.0, 0.4);
}

#[test]
fn time_asleep_is_added_to_the_delay() {
    let text = format!("drx = {{}}\n{LINE}");
    let mut link = uplink(&text);
    // Long DRX at 3 s: 1 ms until the window. The delay line alone would absorb it.
    near(arrival_ms(&mut link, 3000.0, 1250), 3000.0 + 1.0 + 50.0 + 1.0, 1e-6);
}

/// Prototype of the testbed's facts: 0.450 % of the packets of 10 Mbit/s are dropped, in 89 bursts of up to 993, as the
/// delay of one row reaches 2.85 s.
#[test]
fn measured_delays_overflow_the_line_of_the_testbed() {
    let (Some(rate), Some(delay)) = (
        measurement("baltaci2023_inputs/bitrate_ul.csv"),
        measurement("baltaci2023_inputs/latency_ul.csv"),
    ) else {
        return;
    };
    let mut config = path(
        r#"
uplink.rate = { trace = "rate", unit = "Mbit/s", start = "33s" }
uplink.delay = { trace = "delay", unit = "ms", start = "33s" }
uplink.overhead = "24B"
uplink.queue = { packets = 350, holds_delay = true }
uplink.harq.loss = "0.5%"
"#,
    );
    for source in config.traces_mut() {
        source.load(if source.file.trace == "rate" { &rate } else { &delay }).unwrap();
    }
    let config = config.link(Direction::Uplink).unwrap();
    let mut link = Link::new(&config, "lte", "uplink", Seed(1));
    let (mut dropped, mut bursts, mut in_a_row, mut longest) = (0, 0, 0, 0);
    let count = 1_666_666;
    for n in 0..count {
        match link.admit(ms(f64::from(n) * 1.08), Bytes::new(1350)) {
            Fate::Held => panic!("held"),
            Fate::Lost { cause, .. } => {
                assert_eq!(cause, Cause::Queue);
                dropped += 1;
                bursts += i32::from(in_a_row == 0);
                in_a_row += 1;
                longest = longest.max(in_a_row);
            }
            Fate::Delivered { .. } => in_a_row = 0,
        }
    }
    eprintln!("dropped {dropped} of {count} in {bursts} bursts, the longest of {longest}");
    near(f64::from(dropped) / f64::from(count), 0.0045, 0.0004);
    assert!((75..=105).contains(&bursts), "{bursts}");
    assert!((900..1100).contains(&longest), "{longest}");
}
