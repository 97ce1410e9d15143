//! A link that replays a series gives the series back.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{mean, measurement, ms, near};
use skybraid_link::trace::{Quantity, csv};
use skybraid_link::{DelaySource, Fate, Link, LinkConfig, QueueConfig, RateSource, Series};
use skybraid_units::{Bytes, Duration, Rate, Seed};

fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    product(a, mean_a, b, mean_b)
        / (product(a, mean_a, a, mean_a) * product(b, mean_b, b, mean_b)).sqrt()
}

fn link(config: &LinkConfig) -> Link {
    Link::new(config, "p", "uplink", Seed(1))
}

/// A measured series, or a made-up one of the same kind where there are no measurements.
fn series(file: &str, unit: &str, quantity: Quantity, low: f64, high: f64) -> Arc<Series> {
    let text = measurement(file).unwrap_or_else(|| {
        let mut stream = Seed(5).stream("made up");
        (0..300).map(|n| format!("{n},{}\n", stream.between(low, high))).collect()
    });
    Arc::new(csv::read(&text, &csv::column(None, Some(unit)), quantity).unwrap())
}

#[test]
fn a_saturated_link_delivers_the_rates_of_its_series() {
    let series = series("baltaci2023_inputs/bitrate_dl.csv", "Mbit/s", Quantity::Rate, 5.0, 50.0);
    let seconds = series.values().len().min(300);
    let mut config = LinkConfig::plain(RateSource::Series(Arc::clone(&series)), Duration::ZERO);
    config.queue = QueueConfig::Packets(50);
    let mut link = link(&config);
    let mut delivered = vec![0.0; seconds + 1];
    for n in 0..seconds * 6000 {
        let at = n as f64 / 6.0;
        if let Fate::Delivered { at } = link.admit(ms(at), Bytes::new(1250)) {
            delivered[(at.as_secs_f64() as usize).min(seconds)] += 1250.0 * 8.0;
        }
    }
    let configured = &series.values()[..seconds];
    assert!(pearson(configured, &delivered[..seconds]) > 0.999);
    for (second, (configured, delivered)) in configured.iter().zip(&delivered).enumerate().skip(1) {
        near(*delivered, *configured, 3e4 + 0.002 * configured);
        assert_eq!(
            link.conditions(ms(second as f64 * 1000.0)).rate,
            Rate::from_bps(*configured as u64)
        );
    }
}

#[test]
fn packets_see_the_delays_of_the_series() {
    let series = series("baltaci2023_inputs/latency_ul.csv", "ms", Quantity::Delay, 30.0, 90.0);
    let mut config =
        LinkConfig::plain(RateSource::Constant(Rate::from_mbps(1000.0)), Duration::ZERO);
    config.delay = DelaySource::Series(Arc::clone(&series));
    config.reorder = true;
    let mut link = link(&config);
    let seen: Vec<f64> = (0..series.values().len())
        .map(|second| {
            let at = ms(second as f64 * 1000.0 + 500.0);
            match link.admit(at, Bytes::new(125)) {
                Fate::Delivered { at: arrival } => (arrival - at).as_nanos() as f64,
                Fate::Lost { .. } => panic!("lost"),
            }
        })
        .collect();
    assert!(pearson(series.values(), &seen) > 0.999_999);
    near(mean(&seen), mean(series.values()) + 1000.0, 1.0);
}

#[test]
fn losses_follow_a_series_of_loss() {
    let text = "0,0\n10,10\n20,50\n30,0\n";
    let series = csv::read(text, &csv::column(None, Some("%")), Quantity::Loss).unwrap();
    let mut config =
        LinkConfig::plain(RateSource::Constant(Rate::from_mbps(1000.0)), Duration::ZERO);
    config.losses = vec![skybraid_link::LossSource::Series(Arc::new(series))];
    let mut link = link(&config);
    let mut lost = [0.0; 4];
    for n in 0..400_000 {
        let at = f64::from(n) * 0.1;
        if common::lost(link.admit(ms(at), Bytes::new(125))).is_some() {
            lost[(at / 10_000.0) as usize] += 1e-5;
        }
    }
    for (found, expected) in lost.iter().zip([0.0, 0.1, 0.5, 0.0]) {
        near(*found, expected, 0.007);
    }
}
