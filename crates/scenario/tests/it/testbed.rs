//! Tests of `[testbed]`.

use std::path::Path;

use skybraid_scenario::{KernelCongestion, Scenario, ScenarioError};
use skybraid_units::Duration;

use crate::common::first_line;

const PATHS: &str =
    "duration = '1s'\n[path.lte]\npreset = 'lte-aerial'\n[path.leo]\npreset = 'starlink'\n";

fn parse(testbed: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(&format!("{PATHS}{testbed}"), Path::new("x.toml"), &[])
}

#[test]
fn without_the_table_the_testbed_is_plain() {
    assert!(parse("").unwrap().testbed.is_plain());
    assert!(!parse("[testbed.server]").unwrap().testbed.is_plain());
}

#[test]
fn each_path_has_its_delays_and_proxies() {
    let scenario = parse(
        "[testbed]\nserver.delay = '10ms'\n[testbed.path.leo]\nground_delay = '9ms'\n\
         proxy.vehicle = {}\nproxy.ground = { congestion = 'bbr' }",
    );
    let testbed = scenario.unwrap().testbed;
    assert_eq!(testbed.server.unwrap().delay, Duration::from_millis(10));
    let leo = testbed.paths[1];
    assert_eq!((leo.vehicle_delay, leo.ground_delay), (Duration::ZERO, Duration::from_millis(9)));
    assert_eq!(leo.proxy.vehicle.unwrap().congestion, KernelCongestion::Cubic);
    assert_eq!(leo.proxy.ground.unwrap().congestion, KernelCongestion::Bbr);
    assert!(testbed.paths[0].proxy.vehicle.is_none());
}

#[test]
fn invalid_testbeds_are_rejected() {
    for (testbed, expected) in [
        (
            "[testbed.path.let]\nground_delay = '10ms'",
            "x.toml:6: testbed.path.let: unknown path `let`; did you mean `lte`? (expected one of `lte`, `leo`)",
        ),
        (
            "[testbed.path.leo]\nground_delay = '-10ms'",
            "x.toml:7: testbed.path.leo.ground_delay: `-10ms` is out of range: a time is from 0ns to 292 years",
        ),
        (
            "[testbed.path.leo]\nproxy.vehicle = { congestion = 'vegas' }",
            "x.toml:7: testbed.path.leo.proxy.vehicle.congestion: unknown congestion control `vegas` (expected one of `reno`, `cubic`, `bbr`)",
        ),
    ] {
        assert_eq!(first_line(&parse(testbed).unwrap_err().to_string()), expected);
    }
}
