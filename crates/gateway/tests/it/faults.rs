//! Faults of networks that touch every datagram: losses, copies, disorder, broken bytes, small packets, new addresses.

use crate::field::commands::{delays, ms, talk};
use crate::field::{AIRCRAFT, Fault, Field, GROUND, Shape};
use skybraid_units::{Duration, Rate};

/// Control and video on one channel each.
const EXTRA: &str = "[[mavlink]]\nserial = \"-\"\n[udp.video]\nsend_to = \"127.0.0.1:1\"\n";
const VIDEO: u8 = 1;
/// Time at which a fault begins, and that at which the flight ends.
const FAULT_MS: i64 = 2_000;
const END_MS: i64 = 12_000;

fn shapes(mbps: f64) -> [Shape; 3] {
    ["dish", "lte1", "lte2"]
        .map(|name| Shape(name, Rate::from_mbps(mbps), Duration::from_millis(20), 1_500))
}

/// What arrived of what was written from two seconds after the beginning of a fault on.
#[derive(Debug)]
struct Flown {
    /// Shares that arrived.
    control: f64,
    video: f64,
    /// Longest delay of control, the 95th percentile of that of video and its longest, in milliseconds.
    control_ms: f64,
    video_ms: f64,
    video_max_ms: f64,
    /// Messages that were delivered twice.
    twice: usize,
}

/// Commands both ways and `packets` of 1250 B of video upwards each 20 ms; `each` is called before them.
fn fly(
    seed: u64,
    mbps: f64,
    packets: i64,
    mut each: impl FnMut(&mut Field, i64),
) -> (Flown, Field) {
    let mut field = Field::new(seed, &shapes(mbps), EXTRA);
    field.run(ms(500));
    talk(&mut field, END_MS, |field, at| {
        each(field, at);
        for number in 0..packets {
            let mut packet = (at * 100 + number).to_be_bytes().to_vec();
            packet.resize(1_250, 7);
            field.write(AIRCRAFT, VIDEO, &packet);
        }
    });
    field.run(ms(END_MS + 1_000));
    let from_ms = FAULT_MS + 2_000;
    let control = delays(&field, GROUND).into_iter().filter(|seen| i64::from(seen.0) >= from_ms);
    let mut control: Vec<(i64, f64)> = control.map(|(at, delay)| (at.into(), delay)).collect();
    let video = field.handed[GROUND].iter().filter(|(_, channel, _)| channel.0 == VIDEO);
    let video = video.map(|(at, _, packet)| {
        let number = i64::from_be_bytes(packet[..8].try_into().unwrap());
        (number, at.since(ms(number / 100)).as_millis_f64())
    });
    let mut video: Vec<(i64, f64)> = video.filter(|(number, _)| number / 100 >= from_ms).collect();
    let (all, mut twice) = ([control.len(), video.len()], 0);
    for (seen, count) in [&mut control, &mut video].into_iter().zip(all) {
        seen.sort_by_key(|(number, _)| *number);
        seen.dedup_by_key(|(number, _)| *number);
        twice += count - seen.len();
    }
    let percentile = |seen: &[(i64, f64)], share: f64| {
        let mut delays: Vec<f64> = seen.iter().map(|(_, delay)| *delay).collect();
        delays.sort_by(f64::total_cmp);
        delays.get(((delays.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::NAN)
    };
    let ticks = (from_ms..END_MS).step_by(20).count() as f64;
    let flown = Flown {
        control: control.len() as f64 / ticks,
        video: video.len() as f64 / (ticks * packets as f64),
        control_ms: percentile(&control, 1.0),
        video_ms: percentile(&video, 0.95),
        video_max_ms: percentile(&video, 1.0),
        twice,
    };
    (flown, field)
}

/// A flight all of whose paths have this fault, both ways.
fn fly_with(seed: u64, mbps: f64, packets: i64, fault: Fault) -> Flown {
    let each = |field: &mut Field, at| {
        let fault = if at >= FAULT_MS { fault } else { Fault::default() };
        field.ways.iter_mut().for_each(|way| way.faults = [fault; 2]);
    };
    fly(seed, mbps, packets, each).0
}

#[test]
fn video_loses_what_the_networks_lose_and_no_more() {
    for (mbps, packets) in [(5.0, 3), (5.0, 12), (20.0, 20)] {
        for (loss, share) in [(0.1, 0.95), (0.2, 0.95), (0.3, 0.93), (0.4, 0.6)] {
            let fault = Fault { loss, ..Fault::default() };
            let flown = fly_with(1, mbps, packets, fault);
            let all = 1.0 - loss;
            assert!(flown.video > share * all, "{mbps} Mbit/s, {packets}, {loss}: {flown:?}");
        }
    }
}

// BBR would drain all paths at once for 200 ms, 10 s after the beginning.
#[test]
fn video_waits_for_no_measurement_of_the_round_trip() {
    for seed in 1..=5 {
        let flown = fly_with(seed, 20.0, 4, Fault { loss: 0.01, ..Fault::default() });
        assert!(flown.video_max_ms < 60.0, "{flown:?}");
    }
}

#[test]
fn half_of_all_datagrams_twice_is_no_fault() {
    let flown = fly_with(2, 5.0, 6, Fault { twice: 0.5, ..Fault::default() });
    assert_eq!((flown.control, flown.video, flown.twice), (1.0, 1.0, 0));
    assert!(flown.control_ms < 30.0 && flown.video_ms < 40.0, "{flown:?}");
}

#[test]
fn disorder_of_100_ms_costs_neither_control_nor_video() {
    let scatter = Duration::from_millis(100);
    let flown = fly_with(3, 5.0, 6, Fault { scatter, ..Fault::default() });
    assert!(flown.control == 1.0 && flown.control_ms < 125.0 && flown.twice == 0, "{flown:?}");
    assert!(flown.video > 0.9, "{flown:?}");
}

#[test]
fn broken_bytes_are_losses() {
    let flown = fly_with(4, 5.0, 6, Fault { corrupt: 0.05, ..Fault::default() });
    assert!(flown.control > 0.999 && flown.twice == 0, "{flown:?}");
    assert!(flown.video > 0.93, "{flown:?}");
}

#[test]
fn a_path_mtu_that_falls_in_flight_costs_no_control() {
    let (flown, field) = fly(5, 5.0, 6, |field, at| {
        let limit = if at >= FAULT_MS { 1_000 } else { 0 };
        let fault = Fault { limit, ..Fault::default() };
        field.ways.iter_mut().for_each(|way| way.faults = [fault; 2]);
    });
    assert!(flown.control == 1.0, "{flown:?}");
    assert!(flown.video > 0.8, "{flown:?}");
    let mtu: Vec<u32> = field.snapshot(AIRCRAFT).paths.iter().map(|path| path.mtu).collect();
    assert!(mtu.iter().all(|mtu| (850..=1_000).contains(mtu)), "{mtu:?}");
}

#[test]
fn new_addresses_every_five_seconds_cost_no_control() {
    for paths in [1, 3] {
        let (flown, _) = fly(6, 5.0, 6, |field, at| {
            if at % 5_000 < 20 {
                (0..paths).for_each(|path| field.rebind(path));
            }
        });
        assert!(flown.control == 1.0 && flown.video > 0.99, "{paths} paths: {flown:?}");
    }
}

#[test]
fn twenty_restarts_in_a_minute_leave_control_between_them() {
    for side in [AIRCRAFT, GROUND] {
        let mut field = Field::new(7, &shapes(5.0), EXTRA);
        talk(&mut field, 63_000, |field, at| {
            if (3_000..60_001).contains(&at) && at % 3_000 == 0 {
                field.restart(side);
            }
        });
        for at in [AIRCRAFT, GROUND] {
            let seen = delays(&field, at);
            let share = seen.len() as f64 / (63_000.0 / 20.0);
            assert!(share > 0.9, "restarts of {side}: {share} at {at}");
        }
        assert_eq!(field.snapshot(1 - side).peer_restarts, 20);
    }
}

#[test]
fn a_flood_of_junk_changes_nothing() {
    let mut field = Field::new(8, &shapes(5.0), EXTRA);
    field.run(ms(1_000));
    let from = "203.0.113.7:666".parse().unwrap();
    talk(&mut field, 3_000, |field, at| {
        for number in 0..2_000_u32 {
            let junk: Vec<u8> = (0..200)
                .map(|place| (number.wrapping_mul(2_654_435_761) >> (place % 24)) as u8)
                .collect();
            field.inject((at / 20 % 2) as usize, (number % 3) as usize, from, &junk);
        }
    });
    for side in [AIRCRAFT, GROUND] {
        assert_eq!(delays(&field, side).len(), 99);
    }
}
