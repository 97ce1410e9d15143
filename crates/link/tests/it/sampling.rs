//! Sampling of a measurement by runs: fixed start, random start, and random blocks.

use crate::common::span;
use skybraid_link::{Conditions, Direction, Link, PathConfig, Sampling, TraceSource};
use skybraid_testing::Config;
use skybraid_units::{Instant, Seed};

/// A minute with a value per second: in second n, the delay is n ms and the rate n + 1 Mbit/s.
fn minute(keys: &str, files: &[&str]) -> PathConfig {
    let table = |file: &str, column: &str, unit: &str| {
        format!("{{ trace = '{file}', column = '{column}', unit = '{unit}', {keys} }}")
    };
    let [delay, rate] = files else { panic!("a file of delays and one of rates") };
    let text = format!(
        "uplink.delay = {}\nuplink.rate = {}\nuplink.queue = 'unlimited'",
        table(delay, "2", "ms"),
        table(rate, "3", "Mbit/s")
    );
    let mut config = crate::common::path(&text);
    let lines: Vec<String> = (0..60).map(|at| format!("{at},{at},{}", at + 1)).collect();
    for source in config.traces_mut() {
        source.load(&lines.join("\n")).unwrap();
    }
    config
}

/// Delay in ms and rate in Mbit/s in the middle of each second.
fn seen(config: &PathConfig, seed: u64, seconds: i64) -> (Vec<i64>, Vec<i64>) {
    let config = config.link(Direction::Uplink).unwrap();
    let mut link = Link::new(&config, "p", "uplink", Seed(seed));
    let at = (0..seconds).map(|second| Instant::from_millis(1000 * second + 500));
    let seen = at.map(|at| link.conditions(at));
    let numbers = |seen: Conditions| {
        (seen.delay.as_nanos() / 1_000_000, seen.rate.as_bps() as i64 / 1_000_000)
    };
    seen.map(numbers).unzip()
}

#[test]
fn a_run_begins_at_start_and_wraps() {
    let config = minute("start = '12s'", &["f.csv", "f.csv"]);
    let (delays, rates) = seen(&config, 1, 60);
    assert_eq!(delays, (12..60).chain(0..12).collect::<Vec<i64>>());
    assert_eq!(rates, delays.iter().map(|delay| delay + 1).collect::<Vec<i64>>());
    assert_eq!(
        seen(&config, 2, 60).0,
        delays,
        "a place that is stated does not depend on the seed"
    );
}

#[test]
fn a_random_start_is_the_same_for_all_of_one_file() {
    let config = minute("start = 'random'", &["a/../f.csv", "./f.csv"]);
    let mut starts = Vec::new();
    for seed in 0..300 {
        let (delays, rates) = seen(&config, seed, 130);
        assert_eq!(
            rates,
            delays.iter().map(|delay| delay + 1).collect::<Vec<i64>>(),
            "seed {seed}"
        );
        for pair in delays.windows(2) {
            assert_eq!((pair[0] + 1) % 60, pair[1], "wrapped in whole, seed {seed}");
        }
        assert_eq!(
            seen(&config, seed, 130),
            (delays.clone(), rates),
            "a pure function of the seed"
        );
        starts.push(delays[0]);
    }
    // Uniform over the minute: 300 draws miss 60 e^-5 of the 60 seconds.
    starts.sort_unstable();
    let mean = starts.iter().sum::<i64>() as f64 / 300.0;
    assert!((mean - 29.5).abs() < 4.0 * 17.3 / 300f64.sqrt(), "{mean}");
    starts.dedup();
    assert!(starts.len() > 50, "{}", starts.len());
}

#[test]
fn files_that_were_measured_together_share_a_place() {
    let differs = |keys: &str| {
        let config = minute(keys, &["delay.csv", "rate.csv"]);
        (0..20)
            .filter(|seed| {
                let (delays, rates) = seen(&config, *seed, 1);
                delays[0] + 1 != rates[0]
            })
            .count()
    };
    assert_eq!(differs("start = 'random', together = 'drive'"), 0);
    assert_eq!(differs("resample = '7s', together = 'drive'"), 0);
    assert!(differs("start = 'random'") > 15);
}

#[test]
fn blocks_are_drawn_with_replacement_from_all_places() {
    let config = minute("resample = '10s'", &["f.csv", "f.csv"]);
    let (mut starts, mut repeated) = (Vec::new(), 0);
    for seed in 0..50 {
        let (delays, rates) = seen(&config, seed, 600);
        assert_eq!(
            rates,
            delays.iter().map(|delay| delay + 1).collect::<Vec<i64>>(),
            "seed {seed}"
        );
        for block in delays.chunks(10) {
            starts.push(block[0]);
            for pair in block.windows(2) {
                assert_eq!((pair[0] + 1) % 60, pair[1], "one stretch, wrapped in whole");
            }
        }
        let mut of_run: Vec<i64> = delays.iter().step_by(10).copied().collect();
        of_run.sort_unstable();
        of_run.dedup();
        repeated += 60 - of_run.len();
    }
    // 3000 draws from 60 seconds; the mean's error is 17.3 / sqrt(3000), four times that is 1.3.
    let mean = starts.iter().sum::<i64>() as f64 / starts.len() as f64;
    assert!((mean - 29.5).abs() < 1.3, "{mean}");
    assert!(repeated > 0, "with replacement");
    let late = |from: i64| {
        let link = config.link(Direction::Uplink).unwrap();
        let mut link = Link::new(&link, "p", "uplink", Seed(3));
        link.conditions(Instant::from_millis(1000 * from + 500)).delay
    };
    let (all, _) = seen(&config, 3, 600);
    for from in [59, 123, 599] {
        assert_eq!(late(from).as_nanos() / 1_000_000, all[from as usize], "also after a jump");
    }
}

#[test]
fn opportunities_begin_at_the_place_of_their_clock() {
    // One packet at each whole second of a minute, but none from 20 s to 40 s.
    let times: Vec<String> = (1..=60)
        .filter(|at| !(20..40).contains(at))
        .map(|at: i64| (at * 1000).to_string())
        .collect();
    let link = |keys: &str, seed| {
        let text = format!(
            "uplink.rate = {{ opportunities = 'f.up', {keys} }}\nuplink.queue = 'unlimited'"
        );
        let mut config = crate::common::path(&text);
        for source in config.traces_mut() {
            source.load(&times.join("\n")).unwrap();
        }
        Link::new(&config.link(Direction::Uplink).unwrap(), "p", "uplink", Seed(seed))
    };
    let departures = |mut link: Link, count: usize| {
        (0..count).map(|_| crate::common::arrival_ms(&mut link, 0.0, 1500)).collect::<Vec<f64>>()
    };
    let replayed = departures(link("start = '0s'", 1), 41);
    assert_eq!((replayed[0], replayed[19], replayed[40]), (1000.0, 40_000.0, 61_000.0));
    let later = departures(link("start = '15s'", 1), 41);
    // From 15 s on: 16 to 19 s, then 40 to 60 s.
    assert_eq!((later[0], later[3], later[4], later[24]), (1000.0, 4000.0, 25_000.0, 45_000.0));
    assert_eq!(later[25], 46_000.0, "the second at which the period ends and the next one begins");
    for seed in 0..20 {
        let random = departures(link("start = 'random'", seed), 80);
        assert_eq!(random[40] - random[0], 60_000.0, "a whole period has 40 of them");
        let composed = departures(link("resample = '10s'", seed), 400);
        assert!(composed.windows(2).all(|pair| pair[0] <= pair[1]));
        // 40 in 60 s: 400 take 600 s on average, with an sd of about 40 s.
        assert!((composed[399] - 600_000.0).abs() < 200_000.0, "{}", composed[399]);
        assert_eq!(composed, departures(link("resample = '10s'", seed), 400));
    }
}

#[test]
fn series_on_one_clock_start_over_together() {
    let mut config = minute("start = 'random', together = 'drive'", &["a.csv", "b.csv"]);
    for source in config.traces_mut() {
        source.set_length(span("50s"));
    }
    let (delays, _) = seen(&config, 5, 120);
    for pair in delays.windows(2) {
        assert_eq!((pair[0] + 1) % 50, pair[1]);
    }
}

#[test]
fn the_keys_of_sampling_belong_to_a_measurement() {
    let error = |text: &str| PathConfig::parse(text).unwrap_err();
    assert!(
        error("uplink.delay = { mean = '5ms', start = 'random' }").contains("belong to `trace`")
    );
    assert!(
        error("uplink.rate = { steps = [['0s', '1Mbit/s']], together = 'a' }")
            .contains("belong to `trace`")
    );
    assert!(
        error("uplink.rate = { opportunities = 'f.up', start = 'soon' }")
            .contains("for example \"12s\"")
    );
}

#[test]
fn badness_increases_as_a_link_gets_worse() {
    let mut config = minute("start = 'random'", &["f.csv", "f.csv"]);
    let badness: Vec<Vec<f64>> = config
        .traces_mut()
        .iter()
        .map(|source| source.badness(span("0s"), span("20s")).take(4).collect())
        .collect();
    assert!(badness.contains(&vec![19e6, 39e6, 59e6, 19e6]), "delays in ns: {badness:?}");
    assert!(
        badness.contains(&vec![-20e6, -40e6, -60e6, -20e6]),
        "capacities in bit/s: {badness:?}"
    );

    let mut opportunities = TraceSource::opportunities("f.down".to_string(), Sampling::default());
    opportunities.load("100\n100\n150\n900\n1000\n").unwrap();
    let badness = opportunities.badness(span("0s"), span("500ms"));
    assert_eq!(badness.take(3).collect::<Vec<f64>>(), [-3.0, -2.0, -3.0]);
}
