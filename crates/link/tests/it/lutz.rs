//! Land-mobile-satellite channel, compared with its closed forms.
//!
//! Source: Lutz et al., IEEE Transactions on Vehicular Technology 40(2), 1991.

use crate::common::{direction, lost, ms, near};
use skybraid_link::{Cause, Direction, Link, Lutz, LutzConfig, PathConfig};
use skybraid_testing::{Config, print_path};
use skybraid_units::{Bytes, Seed};

fn model(keys: &str) -> Lutz {
    LutzConfig::parse(keys).unwrap().resolve().unwrap()
}

const SHADOW: &str = "shadow_mean = \"-7.7dB\"\nshadow_sd = \"6dB\"\ngood = \"3s\"\nbad = \"1s\"\n\
                      coherence = \"3ms\"\n";

fn link(keys: &str, way: Direction) -> Link {
    let loss = format!("loss = {{ lutz = {{ {keys} }} }}");
    let toml = format!("{} = {{ rate = \"1Gbit/s\", {loss} }}", way.name());
    direction(&toml, way, 7)
}

/// Cumulative Rician power distribution about a line of sight of power 1, integrated by Simpson's rule over the
/// amplitude: density c · exp(−c (s + 1)) · I0(2 c √s).
fn rice(c: f64, threshold: f64) -> f64 {
    let bessel = |x: f64| {
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..1000 {
            term *= (x / 2.0 / f64::from(k)).powi(2);
            sum += term;
        }
        sum
    };
    let density = |u: f64| 2.0 * u * c * (-c * (u * u + 1.0)).exp() * bessel(2.0 * c * u);
    let (steps, end) = (2000, threshold.sqrt());
    let width = end / f64::from(steps);
    let weight = |k| if k == 0 || k == steps { 1.0 } else { f64::from(2 + 2 * (k % 2)) };
    (0..=steps).map(|k| weight(k) * density(f64::from(k) * width)).sum::<f64>() * width / 3.0
}

#[test]
fn loss_in_the_good_state_is_one_minus_marcums_q() {
    for (factor, margin) in [(-3.0103, 0.0), (3.9, 6.0), (11.9, 3.0), (15.0, 2.0), (24.0, -1.0)] {
        let keys = format!("rice_factor = \"{factor}dB\"\nmargin = \"{margin}dB\"\n{SHADOW}");
        let found = model(&keys).loss_in_good();
        near(found, rice(10f64.powf(factor / 10.0), 10f64.powf(-margin / 10.0)), 1e-9);
    }
    // Q1(1, 1) = 0.73287980 (tables of Marcum's function): c = 1/2 and no margin.
    let keys = format!("rice_factor = \"-3.0102999566dB\"\nmargin = \"0dB\"\n{SHADOW}");
    near(model(&keys).loss_in_good(), 1.0 - 0.732_879_80, 1e-8);
}

#[test]
fn loss_in_the_bad_state_is_rayleigh_over_a_lognormal_mean() {
    // With a constant mean: 1 − exp(−s / m); at a margin equal to the shadowing, 1 − 1/e.
    let keys = "rice_factor = \"5dB\"\nmargin = \"8dB\"\nshadow_mean = \"-8dB\"\nshadow_sd = \"0dB\"\n\
                good = \"1s\"\nbad = \"1s\"\ncoherence = \"1ms\"";
    near(model(keys).loss_in_bad(), 1.0 - (-1f64).exp(), 1e-12);
    // With a lognormal mean: the integral by SciPy's `quad`, and the average over draws of the local mean.
    let spread = keys.replace("shadow_sd = \"0dB\"", "shadow_sd = \"6dB\"");
    let mut stream = Seed(3).stream("test");
    let draws: Vec<f64> = (0..400_000)
        .map(|_| 1.0 - (-10f64.powf(-0.8 - stream.normal(-8.0, 6.0) / 10.0)).exp())
        .collect();
    for (environment, margin, expected) in
        [("city", 3, 0.992_866), ("city", 15, 0.375_408), ("highway", 6, 0.688_315)]
    {
        let keys =
            format!("environment = \"{environment}\"\nspeed = \"9m/s\"\nmargin = \"{margin}dB\"");
        near(model(&keys).loss_in_bad(), expected, 1e-6);
    }
    near(
        model(&spread).loss_in_bad(),
        crate::common::mean(&draws),
        4.0 * crate::common::sd(&draws) / 632.0,
    );
}

/// Source: the algorithm reference, §8.3: A = D_b / (D_g + D_b), 29/119 on a highway and 70/79 in a city.
#[test]
fn the_share_of_time_in_the_shadow_follows_the_distances() {
    let share = |name: &str, speed: &str| {
        model(&format!("environment = \"{name}\"\nspeed = \"{speed}\"\nmargin = \"6dB\""))
            .shadowed()
    };
    near(share("highway", "30m/s"), 29.0 / 119.0, 1e-8);
    near(share("city", "50km/h"), 70.0 / 79.0, 1e-8);
}

#[test]
fn the_channel_agrees_with_its_closed_forms() {
    let keys = "environment = \"highway\", speed = \"30m/s\", margin = \"6dB\"";
    let expected = model(&keys.replace(", ", "\n"));
    let mut link = link(keys, Direction::Uplink);
    let (packets, every) = (4_000_000u32, 10.0);
    let (mut random, mut burst) = (0.0, 0.0);
    for n in 0..packets {
        match lost(link.admit(ms(f64::from(n) * every), Bytes::new(125))) {
            Some(Cause::Random) => random += 1.0,
            Some(Cause::Burst) => burst += 1.0,
            other => assert_eq!(other, None),
        }
    }
    let (packets, shadowed) = (f64::from(packets), expected.shadowed());
    let (good, bad) = (3f64, 29f64 / 30.0);
    let seconds = packets * every / 1000.0;
    // Of an alternating process of exponential times: Var(share) ≈ 2 μ_g² μ_b² / (μ_g + μ_b)³ / T.
    let sd_of_share = (2.0 * (good * bad) * (good * bad) / (good + bad).powi(3) / seconds).sqrt();
    let loss_in_good = expected.loss_in_good();
    near(
        random / packets,
        (1.0 - shadowed) * loss_in_good,
        4.0 * (sd_of_share * loss_in_good + (loss_in_good / packets).sqrt()),
    );
    // Each bad state has one local mean; the standard deviation of their losses is at most one half.
    let states = seconds / (good + bad);
    let loss_in_bad = expected.loss_in_bad();
    let within = 4.0 * (sd_of_share * loss_in_bad + shadowed * 0.5 * (2.0 / states).sqrt());
    assert!(within < 0.02, "{within}");
    near(burst / packets, shadowed * loss_in_bad, within);
    near((random + burst) / packets, expected.loss(), within);
}

#[test]
fn packets_within_a_coherence_block_share_their_fate() {
    // 0.1 m at 10 m/s: blocks of 10 ms, with ten packets each.
    let keys = "environment = \"city\", speed = \"10m/s\", margin = \"9dB\"";
    let mut link = link(keys, Direction::Uplink);
    let mut mixed = 0;
    for block in 0..5000 {
        let fates: Vec<_> = (0..10)
            .map(|n| lost(link.admit(ms(f64::from(block * 10 + n) + 0.05), Bytes::new(125))))
            .collect();
        mixed += usize::from(fates.iter().any(|fate| *fate != fates[0]));
    }
    // A state may change within a block: 5 s of states with means of 0.9 s and 7 s.
    assert!(mixed < 60, "{mixed}");
}

#[test]
fn the_channel_depends_on_time_and_not_on_traffic() {
    let keys = "environment = \"highway\", speed = \"60m/s\", margin = \"6dB\"";
    let (mut busy, mut idle) = (link(keys, Direction::Uplink), link(keys, Direction::Uplink));
    for n in 0..200_000 {
        let fate = busy.admit(ms(f64::from(n) * 0.5), Bytes::new(125));
        if n % 100 == 0 {
            assert_eq!(fate, idle.admit(ms(f64::from(n) * 0.5), Bytes::new(125)));
        }
    }
}

#[test]
fn both_directions_are_shadowed_together() {
    let keys = "environment = \"highway\", speed = \"30m/s\", margin = \"6dB\"";
    let (mut up, mut down) = (link(keys, Direction::Uplink), link(keys, Direction::Downlink));
    let (mut apart, mut losses) = (0, 0);
    for n in 0..20_000 {
        let at = ms(f64::from(n) * 10.0);
        assert_eq!(up.conditions(at).loss, down.conditions(at).loss);
        let fates = [&mut up, &mut down].map(|link| lost(link.admit(at, Bytes::new(125))));
        losses += usize::from(fates[0].is_some());
        apart += usize::from(fates[0].is_some() != fates[1].is_some());
    }
    assert!(apart > losses / 10, "the echoes differ: {apart} of {losses}");
}

#[test]
fn keys_survive_a_round_trip_and_are_checked() {
    let text = "downlink.loss = { lutz = { environment = \"city\", bad = \"2s\", speed = \"20m/s\", margin = \"6dB\" } }";
    let path = PathConfig::parse(text).unwrap();
    let again = PathConfig::parse(&print_path(&path).unwrap()).unwrap();
    assert_eq!(again, path);
    for (keys, expected) in [
        ("environment = \"city\", margin = \"6dB\"", "`speed`: expected one"),
        (
            "environment = \"city\", speed = \"0m/s\", margin = \"6dB\"",
            "`speed`: expected above zero",
        ),
        ("environment = \"city\", speed = \"9m/s\"", "`margin`: expected one"),
        (
            "environment = \"city\", speed = \"9m/s\", margin = \"99dB\"",
            "`margin`: expected -10dB to 60dB",
        ),
        ("speed = \"9m/s\", margin = \"6dB\"", "`rice_factor`: expected it, or `environment`"),
        (
            "environment = \"city\", good = \"1us\", speed = \"9m/s\", margin = \"6dB\"",
            "`good`: expected at least",
        ),
        (
            "environment = \"city\", good = \"9dB\", speed = \"9m/s\", margin = \"6dB\"",
            "expected a way or a time",
        ),
        ("environment = \"sea\", margin = \"6dB\"", "unknown variant `sea`"),
    ] {
        let text = format!("uplink.loss = {{ lutz = {{ {keys} }} }}");
        let error = PathConfig::parse(&text).unwrap_err();
        assert!(error.contains(expected), "{keys}: {error}");
    }
}
