//! Queueing and serialisation, compared with exact arithmetic.

use crate::common::{arrival_ms, lost, ms, near, uplink};
use skybraid_link::{Cause, Fate};
use skybraid_units::Bytes;

#[test]
fn an_idle_link_delays_by_serialisation_and_propagation() {
    let mut link = uplink("uplink = { rate = \"12Mbit/s\", delay = \"30ms\" }");
    near(arrival_ms(&mut link, 5.0, 1500), 5.0 + 1.0 + 30.0, 1e-9);
}

#[test]
fn overhead_is_serialised_with_every_packet() {
    let mut link = uplink("uplink = { rate = \"8Mbit/s\", overhead = \"24B\" }");
    near(arrival_ms(&mut link, 0.0, 976), 1.0, 1e-9);
}

#[test]
fn a_full_queue_of_n_packets_delays_by_n_service_times() {
    let mut link = uplink("uplink = { rate = \"12Mbit/s\", queue = { packets = 20 } }");
    let (mut delivered, mut last_delay) = (0, 0.0);
    for n in 0..40_000 {
        let at = f64::from(n) * 0.5;
        if let Fate::Delivered { at: arrival } = link.admit(ms(at), Bytes::new(1500)) {
            delivered += 1;
            last_delay = arrival.as_nanos() as f64 * 1e-6 - at;
        }
    }
    near(last_delay, 20.0, 0.5);
    near(f64::from(delivered), 20_000.0, 21.0);
}

#[test]
fn queue_limits_in_bytes_and_in_time_agree() {
    for limit in ["{ bytes = \"30kB\" }", "{ time = \"19ms\" }"] {
        let mut link = uplink(&format!("uplink = {{ rate = \"12Mbit/s\", queue = {limit} }}"));
        let accepted = (0..100).filter(|_| lost(link.admit(ms(0.0), Bytes::new(1500))).is_none());
        assert_eq!(accepted.count(), 20, "{limit}");
    }
}

#[test]
fn an_unlimited_queue_drops_nothing() {
    let mut link = uplink("uplink = { rate = \"12Mbit/s\", queue = \"unlimited\" }");
    for _ in 0..5000 {
        assert_eq!(lost(link.admit(ms(0.0), Bytes::new(1500))), None);
    }
    assert_eq!(link.backlog(ms(0.0)), Bytes::new(5000 * 1500));
    assert_eq!(link.backlog(ms(1000.0)), Bytes::new(4000 * 1500));
    assert_eq!(link.backlog(ms(5000.0)), Bytes::ZERO);
}

#[test]
fn a_packet_larger_than_the_mtu_is_lost_to_it() {
    let mut link = uplink("mtu = \"1400B\"\nuplink.rate = \"12Mbit/s\"");
    assert_eq!(lost(link.admit(ms(0.0), Bytes::new(1401))), Some(Cause::Mtu));
    assert_eq!(lost(link.admit(ms(0.0), Bytes::new(1400))), None);
}

#[test]
fn a_packet_crosses_steps_of_the_rate_bit_by_bit() {
    let mut link = uplink(
        "uplink.rate = { steps = [[\"0s\", \"8Mbit/s\"], [\"1ms\", \"0bit/s\"], [\"3ms\", \"2Mbit/s\"]] }",
    );
    // 1500 B: 1000 B in the first millisecond, nothing for two, 500 B in two.
    near(arrival_ms(&mut link, 0.0, 1500), 5.0, 1e-6);
}

#[test]
fn a_link_whose_rate_stays_zero_loses_its_packets_to_the_outage() {
    let mut link =
        uplink("uplink.rate = { steps = [[\"0s\", \"8Mbit/s\"], [\"10ms\", \"0bit/s\"]] }");
    assert_eq!(lost(link.admit(ms(0.0), Bytes::new(1000))), None);
    assert_eq!(lost(link.admit(ms(20.0), Bytes::new(1000))), Some(Cause::Outage));
    assert_eq!(lost(link.admit(ms(30.0), Bytes::new(1000))), Some(Cause::Outage));
}

#[test]
fn codel_keeps_the_standing_delay_near_its_target() {
    // CBR at 5 % overload; CoDel must drop 5 %.
    let mut link = uplink(
        "uplink = { rate = \"12Mbit/s\", queue = { codel = { target = \"5ms\", interval = \"100ms\" } } }",
    );
    let (mut delays, mut dropped) = (Vec::new(), 0);
    for n in 0..200_000 {
        let at = f64::from(n) / 1.05;
        match link.admit(ms(at), Bytes::new(1500)) {
            Fate::Delivered { at: arrival } if n > 100_000 => {
                delays.push(arrival.as_nanos() as f64 * 1e-6 - at);
            }
            Fate::Held => panic!("held"),
            Fate::Lost { cause, .. } => {
                assert_eq!(cause, Cause::Queue);
                dropped += 1;
            }
            Fate::Delivered { .. } => {}
        }
    }
    near(f64::from(dropped) / 200_000.0, 0.05 / 1.05, 0.004);
    assert!(crate::common::mean(&delays) < 30.0, "{}", crate::common::mean(&delays));
}

/// Compares the per-packet form of CoDel with RFC 8289, section 5, on a real queue, without the rule about the
/// last packet.
#[test]
fn codel_drops_the_packets_that_the_rfc_drops() {
    const TARGET: f64 = 5.0;
    const INTERVAL: f64 = 100.0;
    let mut arrivals = Vec::new();
    let mut at: f64 = 0.0;
    for n in 0..60_000u32 {
        // Overload alternates with low load, so that dropping state is entered and left many times.
        at += if (n / 1500) % 2 == 0 { 0.8 } else { 1.15 };
        arrivals.push((at * 1e6).round() / 1e6);
    }
    let mut link =
        uplink("uplink = { rate = \"12Mbit/s\", queue = { codel = { packets = 100000 } } }");
    let ours: Vec<bool> =
        arrivals.iter().map(|at| lost(link.admit(ms(*at), Bytes::new(1500))).is_some()).collect();

    let mut theirs = vec![false; arrivals.len()];
    let (mut first_above, mut drop_next, mut count, mut last_count, mut dropping) =
        (0.0, 0.0, 0u32, 0u32, false);
    let (mut clock, mut next) = (0.0f64, 0);
    let law = |from: f64, count: u32| from + INTERVAL / f64::from(count).sqrt();
    // Queue length on each arrival, in place of the bytes queued after the packet.
    let mut departures: Vec<f64> = Vec::new();
    let mut ahead = vec![0usize; arrivals.len()];
    while next < arrivals.len() {
        let mut now = clock.max(arrivals[next]);
        let mut dequeue = |next: &mut usize, now: &mut f64, departures: &[f64]| {
            let index = *next;
            if index >= arrivals.len() || arrivals[index] > *now {
                first_above = 0.0;
                return (None, false);
            }
            *next += 1;
            let gone = departures.iter().rev().take_while(|left| **left > arrivals[index]).count();
            ahead[index] = gone;
            if *now - arrivals[index] < TARGET - 1e-9 || gone <= 1 {
                first_above = 0.0;
                (Some(index), false)
            } else if first_above == 0.0 {
                first_above = *now + INTERVAL;
                (Some(index), false)
            } else {
                (Some(index), *now >= first_above - 1e-9)
            }
        };
        let (mut packet, mut may_drop) = dequeue(&mut next, &mut now, &departures);
        if dropping {
            if !may_drop {
                dropping = false;
            }
            while dropping && now >= drop_next - 1e-9 {
                theirs[packet.unwrap()] = true;
                departures.push(now);
                count += 1;
                (packet, may_drop) = dequeue(&mut next, &mut now, &departures);
                if may_drop {
                    drop_next = law(drop_next, count);
                } else {
                    dropping = false;
                }
            }
        } else if may_drop {
            theirs[packet.unwrap()] = true;
            departures.push(now);
            (packet, _) = dequeue(&mut next, &mut now, &departures);
            dropping = true;
            let gained = count.saturating_sub(last_count);
            count = if gained > 1 && now - drop_next < 16.0 * INTERVAL { gained } else { 1 };
            drop_next = law(now, count);
            last_count = count;
        }
        if packet.is_some() {
            clock = now + 1.0;
            departures.push(clock);
        }
    }
    let dropped = theirs.iter().filter(|dropped| **dropped).count();
    assert!(dropped > 500, "{dropped}");
    let first = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    assert_eq!(first, None, "first difference; {dropped} dropped");
}
