//! Tests of the rate controls on a link, and of their configuration.

use alloc::format;
use alloc::string::String;

use skybraid_units::{Duration, Probability, Rate};

use super::link::{BOUNDS, Link};
use super::{ALL, Bounds, RateConfig, gcc, receiver_report, scream};

fn scream() -> RateConfig {
    RateConfig::Scream(scream::Config::default())
}

fn gcc() -> RateConfig {
    RateConfig::Gcc(gcc::Config::default())
}

fn receiver_report() -> RateConfig {
    RateConfig::ReceiverReport(receiver_report::Config::default())
}

/// Returns a control that takes any lasting loss for congestion.
fn any_loss() -> RateConfig {
    RateConfig::ReceiverReport(receiver_report::Config {
        unloaded: Probability::new(0.001).unwrap(),
        congested: Probability::new(0.005).unwrap(),
        ..receiver_report::Config::default()
    })
}

fn lossy(loss: f64) -> Link {
    Link { loss, ..Link::of(5.0) }
}

// Source: RFC 8298 §4.1.1.1, QDELAY_TARGET_LO: 0.1 s.
#[test]
fn scream_fills_the_link_and_keeps_the_queue_at_its_target() {
    let run = Link::of(5.0).run(&scream(), 60);
    assert!(run.throughput(20, 60) > 4.5);
    let (mean, longest) = run.waited(20, 60);
    assert!((20.0..80.0).contains(&mean), "mean wait {mean} ms");
    assert!((90.0..115.0).contains(&longest), "longest wait {longest} ms");
    assert_eq!(run.dropped(0, 60), 0);
}

#[test]
fn gcc_yields_to_a_queue_before_it_overflows() {
    let run = Link::of(5.0).run(&gcc(), 60);
    assert!(run.throughput(20, 60) > 4.25);
    let (mean, longest) = run.waited(0, 60);
    assert!(mean < 30.0 && longest < 150.0, "waits {mean} ms, at most {longest} ms of 300 ms");
    assert_eq!(run.dropped(0, 60), 0);
}

#[test]
fn the_drafts_threshold_lets_the_buffer_stay_full() {
    let bounds = Bounds { start: Rate::from_bps(5_000_000), ..BOUNDS };
    let link = Link { bounds, ..Link::of(10.0) };
    let run_with = |threshold| {
        let config = gcc::Config { threshold, ..gcc::Config::default() };
        link.run(&RateConfig::Gcc(config), 240)
    };
    let run = run_with(gcc::Threshold::Draft);
    assert!(run.waited(90, 240).0 > 250.0);
    assert!(run.dropped(0, 240) > 1000);
    let run = run_with(gcc::Threshold::Webrtc);
    assert!(run.waited(90, 240).0 < 50.0);
    assert_eq!(run.dropped(0, 240), 0);
    assert!(run.throughput(20, 240) > 9.0);
}

// Source: draft-ietf-rmcat-gcc-02 §6: nothing below 2 %, held to 10 %, down above.
#[test]
fn gcc_ignores_little_loss_and_falls_to_its_minimum_at_much() {
    let without = Link::of(5.0).run(&gcc(), 60).target(20, 60);
    assert!(lossy(0.01).run(&gcc(), 60).target(20, 60) > 0.97 * without);
    let held = lossy(0.05).run(&gcc(), 60).target(0, 60);
    assert!((0.8..2.0).contains(&held), "{held} Mbit/s after a start of 1");
    assert!(lossy(0.15).run(&gcc(), 60).target(20, 60) < 0.21);
}

// A loss takes a tenth of the rate (RFC 8298, BETA_R), at probability p per packet of 9600 bits; the ramp
// restores some of it each second. The equilibrium is √(ramp · 9600 bit / 0.1 p), for the RFC's ramp and 1 %
// of loss at 1.39 Mbit/s; far above that, loss keeps the window small.
#[test]
fn under_random_loss_screams_rate_is_the_root_of_ramp_by_loss() {
    for (ramp, loss) in [(100_000, 0.0025), (100_000, 0.01), (100_000, 0.04), (200_000, 0.01)] {
        let ramp_up = Rate::from_bps(ramp);
        let config = RateConfig::Scream(scream::Config { ramp_up, ..scream::Config::default() });
        let run = Link { loss, ..Link::of(20.0) }.run(&config, 240);
        let steady = libm::sqrt(ramp as f64 * 9600.0 / 0.1 / loss) / 1e6;
        let ratio = run.target(40, 240) / steady;
        assert!((0.88..1.02).contains(&ratio), "{ratio} of {steady} Mbit/s");
    }
}

#[test]
fn little_loss_starves_a_control_that_reacts_to_any_loss() {
    for loss in [0.01, 0.02] {
        let starved = lossy(loss).run(&any_loss(), 60).target(30, 60);
        assert!(starved < 0.5, "{starved} Mbit/s at {loss}");
        assert!(lossy(loss).run(&gcc(), 60).target(30, 60) > 4.0);
    }
    let even = Link::of(5.0).run(&any_loss(), 60).target(30, 60);
    assert!(even > 3.0, "{even} Mbit/s without loss");
    assert!(lossy(0.01).run(&receiver_report(), 60).target(30, 60) > 0.99 * even);
}

/// Returns a link that drops from 10 to 3 Mbit/s after 30 s, with a buffer of one second at 3 Mbit/s.
fn step() -> Link {
    let bounds = Bounds { start: Rate::from_bps(8_000_000), ..BOUNDS };
    Link { rates: [(0, 10.0), (30, 3.0)].into(), bounds, ..Link::of(10.0) }
}

#[test]
fn gcc_follows_a_step_down_within_two_seconds_without_drops() {
    let run = step().run(&gcc(), 60);
    assert!(run.throughput(10, 30) > 8.5);
    assert!((2.2..3.0).contains(&run.target(32, 34)));
    assert!(run.waited(30, 60).1 < 900.0);
    assert!(run.waited(37, 60).1 < 120.0);
    assert!(run.throughput(37, 60) > 2.5);
    assert_eq!(run.dropped(0, 60), 0);
}

#[test]
fn scream_follows_a_step_down_and_regains_its_queue_target() {
    let run = step().run(&scream(), 60);
    assert!(run.throughput(10, 30) > 9.0);
    assert!(run.target(32, 34) < 3.0);
    assert!(run.waited(30, 60).1 < 600.0);
    assert!(run.waited(35, 60).1 < 115.0);
    assert!(run.throughput(47, 60) > 2.7);
    assert_eq!(run.dropped(0, 60), 0);
}

#[test]
fn loss_based_control_follows_a_step_only_after_overflow() {
    let run = step().run(&receiver_report(), 60);
    assert!(run.target(32, 34) > 5.0);
    assert!(run.dropped(30, 40) > 1000);
    assert!(run.waited(35, 40).0 > 900.0);
}

#[test]
fn the_video_resumes_after_a_stall_with_or_without_loss() {
    for stalls_lose in [false, true] {
        let rates = [(0, 5.0), (30, 0.0), (32, 5.0)].into();
        let link = Link { rates, stalls_lose, ..Link::of(5.0) };
        let run = link.run(&gcc(), 60);
        assert_eq!(run.throughput(31, 32), 0.0);
        assert!(run.throughput(34, 60) > 3.8);
        assert!(run.waited(34, 60).1 < 150.0);
        // Five calm seconds, then 200 kbit/s each second.
        let run = link.run(&scream(), 60);
        assert!(run.throughput(34, 37) > 0.4);
        assert!(run.throughput(50, 60) > 3.8);
        assert!(run.waited(34, 60).1 < 115.0);
    }
}

#[test]
fn the_offset_of_the_receivers_clock_changes_nothing() {
    for config in [scream(), gcc(), receiver_report()] {
        let targets = [-3600, 0, 3600].map(|seconds| {
            let offset = Duration::from_secs(seconds) + Duration::from_nanos(7);
            Link { offset, ..lossy(0.01) }.run(&config, 30).rows
        });
        assert_eq!(targets[0], targets[1]);
        assert_eq!(targets[1], targets[2]);
    }
}

#[test]
fn the_target_never_leaves_its_bounds() {
    let bounds = Bounds { max: Rate::from_bps(3_000_000), ..BOUNDS };
    for config in [RateConfig::Constant {}, scream(), gcc(), receiver_report(), any_loss()] {
        for (megabits, loss) in [(0.1, 0.0), (100.0, 0.0), (5.0, 0.5), (5.0, 0.02)] {
            let run = Link { bounds, loss, ..Link::of(megabits) }.run(&config, 60);
            for (_, target) in &run.rows {
                assert!((bounds.min..=bounds.max).contains(target));
            }
            if megabits == 100.0 && config != (RateConfig::Constant {}) {
                assert_eq!(run.rows.last().unwrap().1, bounds.max);
            }
        }
    }
}

#[test]
fn a_constant_target_stays() {
    let run = lossy(0.1).run(&RateConfig::Constant {}, 10);
    assert!(run.rows.iter().all(|(_, target)| *target == BOUNDS.start));
}

fn read(text: &str) -> Result<RateConfig, String> {
    let config: RateConfig = toml::from_str(text).map_err(|error| format!("{error}"))?;
    config.check().map_err(|error| format!("{error}"))?;
    Ok(config)
}

#[test]
fn the_registry_lists_parameters_and_defaults() {
    let defaults = [RateConfig::Constant {}, scream(), gcc(), receiver_report()];
    assert_eq!(ALL.len(), defaults.len());
    for (kind, default) in ALL.iter().zip(defaults) {
        let mut text = format!("kind = \"{}\"\n", kind.name);
        assert_eq!(read(&text).unwrap(), default);
        for (name, _, value) in kind.parameters {
            let bare = value.parse::<f64>().is_ok() || value.parse::<bool>().is_ok();
            let quote = if bare { "" } else { "\"" };
            text += &format!("{name} = {quote}{value}{quote}\n");
        }
        assert_eq!(read(&text).unwrap(), default);
        assert!(read(&format!("{text}colour = 1\n")).unwrap_err().contains("colour"));
    }
}

#[test]
fn parameters_out_of_range_are_rejected_by_name() {
    for (text, key) in [
        ("kind = \"scream\"\nqueue_target = \"500ms\"", "queue_target"),
        ("kind = \"scream\"\nramp_up = \"0bit/s\"", "ramp_up"),
        ("kind = \"gcc\"\npacing = 0.5", "pacing"),
        ("kind = \"receiver_report\"\nsmoothing = 0", "smoothing"),
        ("kind = \"receiver_report\"\ncongested = \"1%\"", "congested"),
        ("kind = \"receiver_report\"\ndecrease = nan", "decrease"),
    ] {
        assert!(read(text).unwrap_err().contains(key));
    }
    assert!(BOUNDS.check().is_ok());
    for bounds in [
        Bounds { min: Rate::ZERO, ..BOUNDS },
        Bounds { start: Rate::from_bps(1), ..BOUNDS },
        Bounds { max: Rate::from_bps(500_000), ..BOUNDS },
    ] {
        assert!(bounds.check().is_err());
    }
}
