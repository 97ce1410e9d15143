//! Delivery opportunities, compared with mahimahi's own rules.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::{arrival_ms, lost, measurement, ms, near};
use skybraid_link::trace::mahimahi;
use skybraid_link::{Fate, Link, LinkConfig, QueueConfig, RateSource};
use skybraid_units::{Bytes, Duration, Seed};

fn replay(trace: &str) -> Link {
    let opportunities = Arc::new(mahimahi::read(trace).unwrap());
    let mut config =
        LinkConfig::plain(RateSource::Opportunities(opportunities.into()), Duration::ZERO);
    config.queue = QueueConfig::Unlimited;
    Link::new(&config, "p", "uplink", Seed(1))
}

/// Reference: mahimahi's `link_queue.cc`, a millisecond at a time. Opportunities up to the present are used up
/// before a packet is enqueued. Takes (ms, bytes) in order and returns the ms of each departure.
fn reference(trace: &str, packets: &[(i64, u64)], until_ms: i64) -> Vec<Option<i64>> {
    let times: Vec<i64> = trace.lines().map(|line| line.parse().unwrap()).collect();
    let period = *times.last().unwrap();
    let mut departures = vec![None; packets.len()];
    let mut queue: VecDeque<(usize, u64)> = VecDeque::new();
    let (mut index, mut base, mut next) = (0, 0, 0);
    for now in 0..until_ms {
        while base + times[index] <= now {
            let at = base + times[index];
            index += 1;
            if index == times.len() {
                index = 0;
                base += period;
            }
            let mut left = 1504;
            while left > 0 {
                let Some((packet, bytes)) = queue.front_mut() else { break };
                let sent = left.min(*bytes);
                *bytes -= sent;
                left -= sent;
                if *bytes == 0 {
                    departures[*packet] = Some(at);
                    queue.pop_front();
                }
            }
        }
        while next < packets.len() && packets[next].0 == now {
            queue.push_back((next, packets[next].1 + 4));
            next += 1;
        }
    }
    departures
}

/// Packets of mixed sizes at mixed intervals, at about `load_bps`.
fn traffic(load_bps: f64, until_ms: i64) -> Vec<(i64, u64)> {
    let mut stream = Seed(3).stream("traffic");
    let (mut at, mut packets) = (0.0, Vec::new());
    loop {
        let bytes = match stream.below(4) {
            0 => 40 + stream.below(200),
            1 => 600,
            _ => 1500,
        };
        packets.push((at as i64, bytes));
        // Occasional pauses, so that opportunities are unused.
        at += stream.exponential(bytes as f64 * 8e3 / load_bps);
        if stream.unit() < 0.001 {
            at += stream.exponential(300.0);
        }
        if at >= until_ms as f64 {
            return packets;
        }
    }
}

fn compare(trace: &str, load_bps: f64, until_ms: i64) {
    let packets = traffic(load_bps, until_ms);
    let expected = reference(trace, &packets, until_ms);
    let mut link = replay(trace);
    let mut delivered = 0;
    for ((at, bytes), expected) in packets.iter().zip(expected) {
        let Fate::Delivered { at: left } = link.admit(ms(*at as f64), Bytes::new(*bytes)) else {
            panic!("lost at {at} ms");
        };
        match expected {
            Some(expected) => {
                assert_eq!(left, ms(expected as f64), "{bytes} B that came at {at} ms");
                delivered += 1;
            }
            None => assert!(left >= ms(until_ms as f64), "{bytes} B that came at {at} ms"),
        }
    }
    assert!(delivered * 10 > packets.len(), "{delivered} of {}", packets.len());
}

#[test]
fn one_opportunity_a_millisecond_carries_12_megabits() {
    let mut link = replay("1\n");
    let last = (0..1000).map(|_| arrival_ms(&mut link, 0.0, 1500)).last().unwrap();
    near(last, 1000.0, 1e-9);
    near(1000.0 * 1504.0 * 8.0 / (last * 1e3), 12.032, 1e-9);
}

#[test]
fn three_opportunities_in_ten_milliseconds_carry_3_6_megabits() {
    let mut link = replay("5\n10\n10\n");
    let times: Vec<f64> = (0..6).map(|_| arrival_ms(&mut link, 0.0, 1500)).collect();
    assert_eq!(times, [5.0, 10.0, 10.0, 15.0, 20.0, 20.0]);
    let last = (0..3000 - 6).map(|_| arrival_ms(&mut link, 0.0, 1500)).last().unwrap();
    near(3000.0 * 1504.0 * 8.0 / (last * 1e3), 3.6096, 1e-9);
}

#[test]
fn small_packets_share_an_opportunity_and_continue_in_the_next() {
    let mut link = replay("1\n");
    let times: Vec<f64> = (0..5).map(|_| arrival_ms(&mut link, 0.0, 600)).collect();
    // 604 bytes each: 2.49 fit in 1504.
    assert_eq!(times, [1.0, 1.0, 2.0, 2.0, 3.0]);
}

#[test]
fn a_packet_cannot_use_an_opportunity_of_its_own_millisecond() {
    let mut link = replay("5\n10\n");
    near(arrival_ms(&mut link, 5.0, 100), 10.0, 1e-9);
    let mut link = replay("5\n10\n");
    near(arrival_ms(&mut link, 5.9, 100), 10.0, 1e-9);
    let mut link = replay("5\n10\n");
    near(arrival_ms(&mut link, 4.9, 100), 5.0, 1e-9);
}

#[test]
fn an_unused_opportunity_is_lost() {
    let mut link = replay("1\n2\n3\n4\n5\n100\n");
    near(arrival_ms(&mut link, 50.0, 1500), 100.0, 1e-9);
    near(arrival_ms(&mut link, 50.0, 1500), 101.0, 1e-9);
}

#[test]
fn synthetic_traces_are_replayed_byte_for_byte() {
    for trace in ["1\n", "5\n10\n10\n", "0\n0\n3\n3\n3\n17\n", "2\n2\n2\n2\n2\n2\n40\n"] {
        for load in [0.5e6, 3e6, 20e6] {
            compare(trace, load, 20_000);
        }
    }
}

#[test]
fn measured_traces_are_replayed_byte_for_byte() {
    for (name, load) in [
        ("aux_mahimahi_lte/ATT-LTE-driving-2016.down", 4.5e6),
        ("aux_mahimahi_lte/ATT-LTE-driving-2016.up", 1.5e6),
        ("aux_mahimahi_lte/TMobile-LTE-short.down", 15e6),
        ("aux_mahimahi_lte/TMobile-LTE-short.up", 12e6),
        ("aux_mahimahi_lte/Verizon-LTE-short.down", 5e6),
        ("aux_mahimahi_lte/Verizon-LTE-short.up", 9e6),
        ("leocc_starlink/bw_example.txt", 40e6),
    ] {
        let Some(trace) = measurement(name) else { return };
        let lines: Vec<&str> = trace.lines().map(str::trim).collect();
        // Longer than the trace, so that it starts over.
        compare(&lines.join("\n"), load, 200_000);
    }
}

#[test]
fn halts_waste_opportunities_and_outages_empty_the_queue() {
    let opportunities = Arc::new(mahimahi::read("1\n").unwrap());
    let mut config =
        LinkConfig::plain(RateSource::Opportunities(opportunities.into()), Duration::ZERO);
    config.down = vec![(ms(10.0), Duration::from_millis(5))];
    let mut link = Link::new(&config, "p", "uplink", Seed(1));
    let fates: Vec<_> = (0..20).map(|_| lost(link.admit(ms(0.0), Bytes::new(1500)))).collect();
    assert_eq!(fates.iter().filter(|fate| fate.is_none()).count(), 9);
    near(arrival_ms(&mut link, 15.0, 1500), 16.0, 1e-9);
}
