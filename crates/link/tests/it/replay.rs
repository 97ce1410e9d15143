//! Replay of series by a link.

use std::sync::Arc;

use crate::common::{mean, measurement, ms, near};
use skybraid_link::trace::{Quantity, csv, hypatia};
use skybraid_link::{Cause, DelaySource, Fate, Link, LinkConfig, QueueConfig, RateSource, Series};
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

/// A measured series, or a synthetic one of the same kind if there are no measurements.
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
    let mut config =
        LinkConfig::plain(RateSource::Series(Arc::clone(&series).into()), Duration::ZERO);
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
    config.delay = DelaySource::Series(Arc::clone(&series).into());
    config.reorder = true;
    let mut link = link(&config);
    let seen: Vec<f64> = (0..series.values().len())
        .map(|second| {
            let at = ms(second as f64 * 1000.0 + 500.0);
            match link.admit(at, Bytes::new(125)) {
                Fate::Delivered { at: arrival } => (arrival - at).as_nanos() as f64,
                Fate::Held | Fate::Lost { .. } => panic!("not delivered"),
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
    config.losses = vec![skybraid_link::LossSource::Series(Arc::new(series).into())];
    let mut link = link(&config);
    let mut lost = [0.0; 4];
    for n in 0..400_000 {
        let at = f64::from(n) * 0.1;
        if crate::common::lost(link.admit(ms(at), Bytes::new(125))).is_some() {
            lost[(at / 10_000.0) as usize] += 1e-5;
        }
    }
    for (found, expected) in lost.iter().zip([0.0, 0.1, 0.5, 0.0]) {
        near(*found, expected, 0.007);
    }
}

#[test]
fn a_hypatia_series_is_replayed_exactly_with_its_gaps() {
    let text = "0,25331740.0\n100000000,27000000.0\n200000000,0.0\n300000000,25000002.0\n";
    let series = Arc::new(hypatia::read_one_way(text, true).unwrap());
    // Serialisation of 125 bytes takes 1 ns, so a packet departs 1 ns after its admission.
    let rate = RateSource::Constant(Rate::from_bps(1_000_000_000_000));
    let plain = LinkConfig::plain(rate, Duration::ZERO);
    let config = LinkConfig { delay: DelaySource::Series(series.into()), reorder: true, ..plain };
    let mut link = link(&config);
    let delays = [Some(12_665_870), Some(13_500_000), None, Some(12_500_001)];
    for n in 0..1200 {
        let at = ms(f64::from(n));
        let expected = delays[n as usize / 100 % 4];
        let shown = link.conditions(at);
        assert_eq!(shown.up, expected.is_some());
        assert_eq!(shown.delay.as_nanos(), expected.unwrap_or(0));
        let sent = at + Duration::from_nanos(1);
        let fate = match expected {
            Some(delay) => Fate::Delivered { at: sent + Duration::from_nanos(delay) },
            None => Fate::Lost { at: sent, cause: Cause::Outage },
        };
        assert_eq!(link.admit(at, Bytes::new(125)), fate, "{n} ms");
    }
}
