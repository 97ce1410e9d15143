//! Control next to data that would fill the queues of the networks, and data after an outage.

use crate::field::commands::{delays, ms, talk};
use crate::field::{AIRCRAFT, Fault, Field, GROUND, Shape};
use skybraid_units::{Duration, Rate};

/// Control and all else of it on one channel each.
const EXTRA: &str = "[[mavlink]]\nserial = \"-\"\n[udp.video]\nsend_to = \"127.0.0.1:1\"\n";
const VIDEO: u8 = 1;

/// Three networks of this rate.
fn shapes(rate: Rate) -> [Shape; 3] {
    ["dish", "lte1", "lte2"].map(|name| Shape(name, rate, Duration::from_millis(20), 1_500))
}

/// Writes 1.5 Mbit/s of video next to commands until `until_ms`.
fn film(field: &mut Field, until_ms: i64, mut each: impl FnMut(&mut Field, i64)) {
    talk(field, until_ms, |field, at| {
        each(field, at);
        (0..3).for_each(|_| field.write(AIRCRAFT, VIDEO, &[7; 1_250]));
    });
}

/// Number of packets of video that arrived in these milliseconds.
fn filmed(field: &Field, from_ms: i64, until_ms: i64) -> usize {
    let video = field.handed[GROUND].iter().filter(|(_, channel, _)| channel.0 == VIDEO);
    video.filter(|(at, ..)| (ms(from_ms)..ms(until_ms)).contains(at)).count()
}

#[test]
fn control_is_fast_next_to_video_that_no_network_carries() {
    let mut field = Field::new(3, &shapes(Rate::from_mbps(0.2)), EXTRA);
    film(&mut field, 22_000, |_, _| {});
    let delays: Vec<f64> = delays(&field, GROUND)
        .into_iter()
        .filter(|(number, _)| (4_000..20_000).contains(number))
        .map(|(_, delay)| delay)
        .collect();
    let in_time = delays.iter().filter(|delay| **delay <= 300.0).count();
    assert!(in_time >= 792, "{in_time} of 800 within 300 ms");
    // Control and probes leave about 125 of 200 kbit/s of each network, which is 37 packets a second in total.
    let filmed = filmed(&field, 4_000, 20_000);
    assert!(filmed > 16 * 37 / 3, "{filmed} packets of video");
}

#[test]
fn video_is_back_at_once_after_an_outage_of_a_minute() {
    let mut field = Field::new(4, &shapes(Rate::from_mbps(5.0)), EXTRA);
    film(&mut field, 70_000, |field, at| {
        let silent = (3_000..63_000).contains(&at);
        for way in &mut field.ways {
            way.faults = [Fault { silent, ..Fault::default() }; 2];
        }
    });
    assert_eq!(filmed(&field, 4_000, 63_000), 0);
    let filmed = filmed(&field, 64_000, 69_000);
    assert!(filmed > 740, "{filmed} of 750");
}

#[test]
fn copies_of_control_do_not_fill_a_slow_network_for_good() {
    let mut shapes = shapes(Rate::from_mbps(5.0));
    shapes[1].1 = Rate::from_mbps(0.06);
    let mut field = Field::new(5, &shapes, EXTRA);
    talk(&mut field, 60_000, |_, _| {});
    let slow = field.snapshot(AIRCRAFT).paths[1].outgoing_delay_ms;
    assert!(slow.is_some_and(|ms| ms < 3_000.0), "{slow:?}");
}

/// Share of the commands of these milliseconds that arrive within 300 ms, next to video in this many packets of 1250 B
/// each 20 ms, if the rates of all networks fall from 5 to `mbps` Mbit/s at 6 s.
fn in_time_after_a_fall(mbps: f64, packets: u32, sent: core::ops::Range<u32>) -> f64 {
    let mut field = Field::new(6, &shapes(Rate::from_mbps(5.0)), EXTRA);
    talk(&mut field, 10_000, |field, at| {
        if at == 6_000 {
            let fallen = shapes(Rate::from_mbps(mbps));
            (0..3).for_each(|path| field.reshape(path, &fallen[path]));
        }
        (0..packets).for_each(|_| field.write(AIRCRAFT, VIDEO, &[7; 1_250]));
    });
    let all = sent.len() as f64 / 20.0;
    let delays = delays(&field, GROUND).into_iter().filter(|(number, _)| sent.contains(number));
    delays.filter(|(_, delay)| *delay <= 300.0).count() as f64 / all
}

#[test]
fn control_is_soon_fast_again_after_all_rates_have_fallen() {
    let share = in_time_after_a_fall(0.2, 8, 7_000..9_000);
    assert!(share >= 0.99, "{share} after a second");
    let share = in_time_after_a_fall(0.2, 8, 6_000..7_000);
    assert!(share >= 0.5, "{share} in the first second");
    let share = in_time_after_a_fall(0.5, 12, 6_000..6_500);
    assert!(share >= 0.9, "{share} in half a second after a smaller fall");
}
