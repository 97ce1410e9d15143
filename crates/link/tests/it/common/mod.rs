//! Helpers for the tests of the link.

use std::path::PathBuf;

use skybraid_link::{Cause, Direction, Fate, Link, PathConfig};
use skybraid_testing::Config;
use skybraid_units::{Bytes, Duration, Instant, Seed};

pub fn path(toml: &str) -> PathConfig {
    PathConfig::parse(toml).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the uplink of a path table with seed 7.
pub fn uplink(toml: &str) -> Link {
    direction(toml, Direction::Uplink, 7)
}

pub fn downlink(toml: &str) -> Link {
    direction(toml, Direction::Downlink, 7)
}

pub fn direction(toml: &str, direction: Direction, seed: u64) -> Link {
    let config = path(toml).link(direction).unwrap_or_else(|error| panic!("{error}"));
    Link::new(&config, "p", direction.name(), Seed(seed))
}

pub fn ms(millis: f64) -> Instant {
    Instant::from_nanos((millis * 1e6).round() as i64)
}

pub fn span(text: &str) -> Duration {
    Duration::from_text(text).unwrap()
}

/// Returns the arrival in ms of a packet that must be delivered.
pub fn arrival_ms(link: &mut Link, at_ms: f64, bytes: u64) -> f64 {
    match link.admit(ms(at_ms), Bytes::new(bytes)) {
        Fate::Delivered { at } => at.as_nanos() as f64 * 1e-6,
        Fate::Held => panic!("held"),
        Fate::Lost { cause, .. } => panic!("lost to {}", cause.name()),
    }
}

pub fn lost(fate: Fate) -> Option<Cause> {
    match fate {
        Fate::Delivered { .. } | Fate::Held => None,
        Fate::Lost { cause, .. } => Some(cause),
    }
}

/// Returns the causes of loss of `count` packets `every_ms` apart; `None` for a delivered packet.
pub fn fates(link: &mut Link, count: u64, every_ms: f64, bytes: u64) -> Vec<Option<Cause>> {
    (0..count).map(|n| lost(link.admit(ms(n as f64 * every_ms), Bytes::new(bytes)))).collect()
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn sd(values: &[f64]) -> f64 {
    let middle = mean(values);
    mean(&values.iter().map(|value| (value - middle).powi(2)).collect::<Vec<_>>()).sqrt()
}

pub fn near(found: f64, expected: f64, within: f64) {
    assert!((found - expected).abs() <= within, "found {found}, expected {expected} ± {within}");
}

/// Returns a file of the measurements folder; `None` with a message if there is no such folder.
pub fn measurement(name: &str) -> Option<String> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("SKYBRAID_TRACES").map_or(beside, PathBuf::from);
    let text = std::fs::read_to_string(folder.join(name)).ok();
    if text.is_none() {
        eprintln!(
            "skipped: no measurement `{name}`; set SKYBRAID_TRACES to the folder that has it"
        );
    }
    text
}

/// Returns every file of the measurements folder with this suffix, with its text; none, with a message, if
/// there is no such folder.
pub fn measurements(suffix: &str) -> Vec<(String, String)> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let mut folders = vec![std::env::var_os("SKYBRAID_TRACES").map_or(beside, PathBuf::from)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(suffix)
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                found.push((name, text));
            }
        }
    }
    if found.is_empty() {
        eprintln!("skipped: no measurement `*{suffix}`; set SKYBRAID_TRACES to the folder of them");
    }
    found
}
