//! Random processes of rate and delay, stalls and random outages, as packets meet them.

use crate::common::{arrival_ms, direction, lost, ms, near, path, uplink};
use skybraid_link::{Cause, Direction, Factor, Fate, Link};
use skybraid_units::{Bytes, Duration, Instant, Seed};

const OUTAGES: &str = r#"
uplink.rate = "12Mbit/s"
uplink.delay = "20ms"
downlink.rate = "12Mbit/s"
outage = { interval = { mean = "10s" }, length = { exponentials = [{ weight = 1, mean = "1s" }] } }
"#;

#[test]
fn a_rate_process_carries_its_mean() {
    let mut link = uplink(
        r#"
uplink.rate = { process = [[0, "0Mbit/s"], [0.1, "0Mbit/s"], [1, "18Mbit/s"]], slow = "5s", fast = "1s" }
uplink.queue = "unlimited"
"#,
    );
    let mut last = 0.0;
    let count = 2_000_000;
    for _ in 0..count {
        last = arrival_ms(&mut link, 0.0, 1500);
    }
    // 0.9 · 9 Mbit/s; 3000 s with a correlation time of some 3 s are about 500 independent values of a relative
    // standard deviation of 0.6.
    near(f64::from(count) * 12_000.0 / (last * 1e-3) / 8.1e6, 1.0, 0.1);
}

#[test]
fn a_second_without_rate_delays_and_loses_nothing() {
    let mut link = uplink(
        r#"
uplink.rate = { process = [[0, "0Mbit/s"], [0.4, "0Mbit/s"], [0.401, "10Mbit/s"], [1, "10Mbit/s"]], slow_share = 0, fast = "0s" }
uplink.queue = "unlimited"
"#,
    );
    let mut waited = 0;
    for second in 0..1000 {
        let at = 1000.0 * f64::from(second) + 500.0;
        let delay = arrival_ms(&mut link, at, 1250) - at;
        let shown = link.conditions(ms(at));
        assert!(shown.up);
        match shown.rate.as_bps() {
            0 => {
                // What waited leaves at the next second with a rate, in the order of its arrival.
                assert!(delay >= 500.0 && (delay - 500.0) % 1000.0 < 20.0, "{delay}");
                waited += 1;
            }
            _ => near(delay, 1.0, 20.0),
        }
    }
    // Binomial with 1000 trials of 0.4: a standard deviation of 15.5.
    near(f64::from(waited), 400.0, 62.0);
}

#[test]
fn a_delay_process_keeps_its_value_for_a_step() {
    let text = r#"
uplink.rate = "1Gbit/s"
uplink.delay = { process = [[0, "0ms"], [1, "80ms"]], plus = "30ms", slow_share = 0, fast = "0s", step = "500ms" }
"#;
    let mut link = uplink(text);
    let (mut sum, steps) = (0.0, 4000);
    for step in 0..steps {
        let start = 500.0 * f64::from(step);
        let delays =
            [100.0, 300.0].map(|after| arrival_ms(&mut link, start + after, 125) - start - after);
        near(delays[0], delays[1], 1e-3);
        assert!((30.0..110.01).contains(&delays[0]));
        sum += delays[0];
    }
    // Uniform on 30..110 ms.
    near(sum / f64::from(steps), 70.0, 4.0 * 80.0 / (12.0 * f64::from(steps)).sqrt());
    let expected = Duration::from_millis(30);
    assert_eq!(link.min_delay(), expected);
}

#[test]
fn after_a_stall_the_delay_falls_with_slope_minus_one() {
    let mut link = uplink(
        r#"
uplink.rate = "1Gbit/s"
uplink.delay = "20ms"
downlink.rate = "1Gbit/s"
stall = { interval = { mean = "20s" }, length = "2s" }
"#,
    );
    let delays: Vec<f64> = (0..20_000)
        .map(|n| {
            let at = 10.0 * f64::from(n);
            arrival_ms(&mut link, at, 125) - at
        })
        .collect();
    let stalled: Vec<_> = delays.windows(2).filter(|pair| pair[0] > 40.0).collect();
    assert!(stalled.len() > 500, "{}", stalled.len());
    for pair in stalled {
        // Each packet waits 10 ms less than the one before; packets leave together, 1 us each.
        near(pair[1] - pair[0], -10.0, 1.1);
    }
    let longest = delays.iter().copied().fold(0.0, f64::max);
    assert!((2010.0..2020.1).contains(&longest), "{longest}");
}

#[test]
fn stalls_have_their_share_of_time_in_both_directions() {
    let text = r#"
uplink.rate = "1Gbit/s"
downlink.rate = "1Gbit/s"
stall = { interval = { exponentials = [{ weight = 0.8, mean = "2s" }, { weight = 0.2, mean = "42s" }] }, length = "500ms" }
"#;
    let [mut up, mut down] =
        [Direction::Uplink, Direction::Downlink].map(|way| direction(text, way, 3));
    let mut halted = 0;
    let count = 2_000_000;
    for n in 0..count {
        let at = ms(20.0 * f64::from(n));
        let rates = (up.conditions(at).rate, down.conditions(at).rate);
        assert_eq!(rates.0, rates.1);
        halted += u32::from(rates.0.as_bps() == 0);
    }
    // 0.5 s of every 10 s; 4000 intervals whose standard deviation is twice their mean. A stall that would overlap
    // the one before starts after it, so that none is lost.
    near(f64::from(halted) / f64::from(count), 0.05, 4.0 * 0.05 * 2.0 / 4000.0_f64.sqrt());
}

#[test]
fn a_stall_of_one_direction_leaves_the_other_alone() {
    let spans = r#"interval = { mean = "10s" }, length = "1s""#;
    let path = |only: &str| {
        format!(
            "uplink.rate = \"1Gbit/s\"\ndownlink.rate = \"1Gbit/s\"\nstall = {{ {spans}{only} }}"
        )
    };
    let halted = |text: &str, way| {
        let mut link = direction(text, way, 3);
        (0..100_000)
            .map(|n| link.conditions(ms(10.0 * f64::from(n))).rate.as_bps() == 0)
            .collect::<Vec<_>>()
    };
    let both = halted(&path(""), Direction::Uplink);
    assert!(both.contains(&true));
    let up = path(r#", direction = "uplink""#);
    assert_eq!(halted(&up, Direction::Uplink), both);
    assert!(!halted(&up, Direction::Downlink).contains(&true));
}

#[test]
fn an_outage_loses_and_lasts_by_its_law() {
    let mut link = uplink(OUTAGES);
    let (mut lost_count, mut runs, mut before) = (0u32, 0u32, false);
    let count = 4_000_000;
    for n in 0..count {
        let fate = link.admit(ms(10.0 * f64::from(n)), Bytes::new(125));
        let down = match lost(fate) {
            None => false,
            Some(Cause::Outage) => true,
            Some(cause) => panic!("lost to {cause:?}"),
        };
        lost_count += u32::from(down);
        runs += u32::from(down && !before);
        before = down;
    }
    // 40 000 s: 4000 outages of a mean of 1 s. One in eleven would start within the one before; it follows 1 ms after
    // its end.
    near(f64::from(lost_count) / f64::from(count), 0.1, 0.1 * 4.0 * (2.0 / 4000.0_f64).sqrt());
    assert!((3300..4000).contains(&runs), "{runs}");
}

#[test]
fn outages_cut_packets_in_flight_and_show_the_link_down() {
    let config = path(OUTAGES).link(Direction::Uplink).unwrap();
    let mut link = Link::new(&config, "p", "uplink", Seed(7));
    let mut at = Instant::ZERO;
    let cut = loop {
        at += Duration::from_micros(1100);
        match link.admit(at, Bytes::new(1500)) {
            Fate::Held => panic!("held"),
            Fate::Lost { at: lost, cause } => break (lost, cause),
            Fate::Delivered { .. } => {}
        }
    };
    assert_eq!(cut.1, Cause::Outage);
    assert!(cut.0 >= at, "a packet in service is lost when the outage starts");
    assert!(link.conditions(cut.0 - Duration::from_millis(1)).up);
    assert!(!link.conditions(cut.0).up);
}

/// Factors of 1 for 1000 s, 8 for 1000 s and 0 for 1000 s, over and over.
fn factors(count: u64) -> Factor {
    Factor::new((0..3 * count).map(|part| {
        let factor = [1.0, 8.0, 0.0][(part % 3) as usize];
        (Duration::from_secs(1000 * part as i64), factor)
    }))
}

#[test]
fn events_follow_the_factor_along_the_route() {
    let rounds = 200;
    let mut read = path(
        r#"
uplink.rate = "1Gbit/s"
downlink.rate = "1Gbit/s"
handover = { interval = { exponentials = [{ weight = 1, mean = "25s" }] }, interruption = "1s", at_least = "1ms" }
"#,
    );
    read.factors.handover = factors(rounds);
    let mut link = Link::new(&read.link(Direction::Uplink).unwrap(), "p", "uplink", Seed(7));
    let mut halted = [0u32; 3];
    for half in 0..rounds * 6000 {
        if link.conditions(ms(500.0 * half as f64)).rate.as_bps() == 0 {
            halted[(half / 2000 % 3) as usize] += 1;
        }
    }
    // Each halt is met twice. One that would overlap another starts at its end, so that with intervals `T` of mean `m`
    // they are `E[max(T, 1 s)]` apart, `1 + m exp(-1/m)`. Poisson: 7,800 halts have a standard deviation of 1.1 %.
    let per_round = |index: usize| f64::from(halted[index]) / 2.0 / rounds as f64;
    let expected = |mean: f64| 1000.0 / (1.0 + mean * (-1.0 / mean).exp());
    near(per_round(0), expected(25.0), 2.0);
    near(per_round(1), expected(3.125), 6.0);
    near(per_round(2), 0.0, 1.0);
}

#[test]
fn a_rate_follows_the_factor_along_the_route() {
    let text = "uplink.rate = \"8Mbit/s\"\ndownlink.rate = { process = [[0, \"2Mbit/s\"], [1, \"4Mbit/s\"]] }";
    let mut read = path(text);
    read.factors.rate = factors(1);
    for (way, means) in
        [(Direction::Uplink, [8.0, 64.0, 0.0]), (Direction::Downlink, [3.0, 24.0, 0.0])]
    {
        let mut link = Link::new(&read.link(way).unwrap(), "p", way.name(), Seed(7));
        for (part, mean) in means.into_iter().enumerate() {
            let rates = (0..1000).map(|second| {
                let at = ms(1e3 * f64::from(second + 1000 * part as u32) + 1.0);
                link.conditions(at).rate.as_bps() as f64 * 1e-6
            });
            let found = rates.sum::<f64>() / 1000.0;
            // A correlation time of some 15 s leaves about 60 values of a relative standard deviation of 0.19.
            near(found, mean, 0.1 * mean + 1e-9);
        }
    }
}
