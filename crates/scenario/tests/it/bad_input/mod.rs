//! Tests that invalid input is rejected with file, line, key, and the values found and expected.

mod links_and_events;
mod places;

use std::path::Path;

use skybraid_scenario::Scenario;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::registry::About;
use skybraid_transport::scheduler::SchedulerConfig;

use crate::common::first_line;

const GOOD: &str = r#"name = "test"
duration = "10s"
[path.lte]
uplink.rate = "10Mbit/s"
uplink.delay = "20ms"
downlink.rate = "10Mbit/s"
[path.leo]
preset = "starlink"
[flow.video]
from = "vehicle"
traffic = { kind = "cbr", rate = "2Mbit/s", packet = "1000B" }
transport = { protocol = "mptcp", scheduler = "low_rtt", congestion = "cubic" }
require = { deadline = "300ms", share = "90%" }
"#;

fn error(text: &str, overrides: &[(String, String)]) -> String {
    let scenario = Scenario::parse(text, Path::new("scenarios/x.toml"), overrides);
    scenario.map_or_else(|error| first_line(&error.to_string()), |_| "accepted".to_string())
}

/// Checks that the valid scenario with `bad` in place of a line is rejected.
fn refused_at_line(line: usize, bad: &str, expected: &str) {
    let mut lines: Vec<&str> = GOOD.lines().collect();
    lines[line - 1] = bad;
    check(&error(&lines.join("\n"), &[]), expected, bad);
}

/// Checks that the valid scenario with `added` from line 14 on is rejected.
fn refused_at_end(added: &str, expected: &str) {
    check(&error(&format!("{GOOD}{added}"), &[]), expected, added);
}

/// Checks that the valid scenario with an override is rejected.
fn refused_override(key: &str, value: &str, expected: &str) {
    check(&error(GOOD, &[(key.into(), value.into())]), expected, key);
}

/// Returns the names of a registry as listed in an error.
fn names(all: &[About]) -> String {
    all.iter().map(|about| format!("`{}`", about.name)).collect::<Vec<_>>().join(", ")
}

fn check(found: &str, expected: &str, input: &str) {
    assert_eq!(found, expected, "\n{input}");
}

#[test]
fn an_unknown_key_is_reported_with_a_suggestion() {
    refused_at_line(
        4,
        r#"uplnk.rate = "10Mbit/s""#,
        "scenarios/x.toml:4: path.lte.uplnk: unknown key `uplnk`; did you mean `uplink`? (expected one of `from`, `to`, `weight`, `preset`, `mtu`, `cost`, `backup`, `priority`, `down`, `rate`, `delay`, `reorder`, `queue`, `loss`, `harq`, `overhead`, `uplink`, `downlink`, `drx`, `handover`, `stall`, `outage`, `reconfiguration`, `flight`, `spread`, `draw`, `along`, `cells`, `coverage`, `orbit`)",
    );
    refused_at_line(
        4,
        r#"uplink.rat = "10Mbit/s""#,
        "scenarios/x.toml:4: path.lte.uplink.rat: unknown key `rat`; did you mean `rate`? (expected one of `rate`, `access`, `delay`, `reorder`, `queue`, `loss`, `harq`, `overhead`)",
    );
    refused_at_line(
        2,
        r#"durations = "10s""#,
        "scenarios/x.toml:2: durations: unknown key `durations`; did you mean `duration`? (expected one of `name`, `duration`, `seed`, `traces`, `path`, `node`, `link`, `routing`, `route`, `flow`, `event`, `outages`, `correlation`, `testbed`, `sweep`)",
    );
    refused_at_line(
        11,
        r#"traffic = { kind = "cbr", rate = "2Mbit/s", pakcet = "1000B" }"#,
        "scenarios/x.toml:11: flow.video.traffic.pakcet: unknown key `pakcet`; did you mean `packet`? (expected one of `rate`, `packet`)",
    );
    refused_at_line(
        12,
        r#"transport = { scheduler = { name = "single", pth = 1 } }"#,
        "scenarios/x.toml:12: flow.video.transport.scheduler.pth: unknown key `pth`; did you mean `path`? (expected `path`)",
    );
    refused_at_line(
        12,
        r#"transport = { congestion_control = "reno" }"#,
        "scenarios/x.toml:12: flow.video.transport.congestion_control: unknown key `congestion_control`; did you mean `congestion`? (expected one of `profile`, `paths`, `subflows`, `initial_threshold`, `max_in_flight`, `segment`, `protocol`, `scheduler`, `congestion`, `reordering`, `receive_buffer`, `send_buffer`, `buffers`, `refuse_when_full`, `initial_window`, `loss_detection`, `proportional_reduction`, `undo`, `pacing`, `idle_restart`, `window_validation`, `ack_rule`, `ack_every`, `ack_delay`, `rto_min`, `rto_rule`, `flight_size`, `retransmission_restarts_timer`, `report_every`, `path_manager`, `join_after`, `peer_multipath`, `opportunistic_retransmission`, `penalisation`, `bufferbloat_mitigation`, `tx_queue`, `drop_expired`, `restart_window`, `pace_queue`, `keep_alive`, `probe_every`, `stack`)",
    );
}

#[test]
fn an_unknown_name_is_reported_with_the_known_ones() {
    refused_at_line(
        8,
        r#"preset = "starlnk""#,
        "scenarios/x.toml:8: path.leo.preset: unknown preset `starlnk`; did you mean `starlink`? (expected one of `lte-drone-urban`, `lte-drone-rural`, `lte-car`, `5g-road`, `starlink-car`, `starlink-ship`, `testbed-lte-aerial`, `testbed-lte-ground`, `testbed-starlink`, `testbed-leo`, `testbed-article-satellite`, `testbed-article-lte`, `testbed-thesis-satellite`, `testbed-thesis-lte`, `geo-dvb`, `meo`, `geo`, `wifi`, `ethernet`, `lte-aerial`, `lte-ground`, `starlink`, `leo`)",
    );
    refused_at_line(
        10,
        r#"from = "vehicel""#,
        "scenarios/x.toml:10: flow.video.from: unknown host `vehicel`; did you mean `vehicle`? (expected one of `vehicle`, `ground`)",
    );
    refused_at_line(
        11,
        r#"traffic = { kind = "cbrr", rate = "2Mbit/s", packet = "1000B" }"#,
        "scenarios/x.toml:11: flow.video.traffic.kind: unknown kind of traffic `cbrr`; did you mean `cbr`? (expected one of `cbr`, `bulk`, `on_off`, `file`, `ping`, `video`)",
    );
    refused_at_line(
        12,
        r#"transport = { protocol = "mptpc" }"#,
        "scenarios/x.toml:12: flow.video.transport.protocol: unknown protocol `mptpc`; did you mean `mptcp`? (expected one of `udp`, `tcp`, `mptcp`, `parallel_tcp`, `dccp`, `mp-dccp`, `mp_dccp`)",
    );
    refused_at_line(
        12,
        r#"transport = { scheduler = "low-rtt" }"#,
        &format!(
            "scenarios/x.toml:12: flow.video.transport.scheduler: unknown scheduler `low-rtt`; did you mean `low_rtt`? (expected one of {})",
            names(SchedulerConfig::ALL)
        ),
    );
    refused_at_line(
        12,
        r#"transport = { scheduler = "psychic" }"#,
        &format!(
            "scenarios/x.toml:12: flow.video.transport.scheduler: unknown scheduler `psychic` (expected one of {})",
            names(SchedulerConfig::ALL)
        ),
    );
    refused_at_line(
        12,
        r#"transport = { congestion = "cubik" }"#,
        &format!(
            "scenarios/x.toml:12: flow.video.transport.congestion: unknown congestion control `cubik`; did you mean `cubic`? (expected one of {})",
            names(CongestionConfig::ALL)
        ),
    );
    refused_at_line(
        12,
        r#"transport = { reordering = "fixd" }"#,
        "scenarios/x.toml:12: flow.video.transport.reordering: unknown reordering engine `fixd`; did you mean `fixed`? (expected one of `none`, `fixed`, `adaptive`, `equalised`)",
    );
    refused_at_line(
        12,
        r#"transport = { reordering = { name = "fixd" } }"#,
        "scenarios/x.toml:12: flow.video.transport.reordering.name: unknown name `fixd`; did you mean `fixed`? (expected one of `none`, `fixed`, `adaptive`, `equalised`)",
    );
    refused_at_line(
        12,
        r#"transport = { paths = ["lte", "loe"] }"#,
        "scenarios/x.toml:12: flow.video.transport.paths[1]: unknown path `loe`; did you mean `leo`? (expected one of `lte`, `leo`)",
    );
}

#[test]
fn a_missing_or_wrong_unit_is_rejected_with_an_example() {
    refused_at_line(
        2,
        "duration = 10",
        r#"scenarios/x.toml:2: duration: found integer `10`, expected a time with a unit, for example "30ms""#,
    );
    refused_at_line(
        4,
        "uplink.rate = 10",
        r#"scenarios/x.toml:4: path.lte.uplink.rate: found integer `10`, expected a rate with a unit, for example "10Mbit/s", or a table with `steps`, `process`, `trace` or `opportunities`"#,
    );
    refused_at_line(
        4,
        r#"uplink.rate = "10""#,
        "scenarios/x.toml:4: path.lte.uplink.rate: `10` has no unit; expected one of bit/s, kbit/s, Mbit/s, Gbit/s, for example `10Mbit/s`",
    );
    refused_at_line(
        4,
        r#"uplink.rate = "10MB""#,
        "scenarios/x.toml:4: path.lte.uplink.rate: `MB` in `10MB` is not a unit of rate; expected one of bit/s, kbit/s, Mbit/s, Gbit/s",
    );
    refused_at_line(
        11,
        r#"traffic = { kind = "cbr", rate = "2", packet = "1000B" }"#,
        "scenarios/x.toml:11: flow.video.traffic.rate: `2` has no unit; expected one of bit/s, kbit/s, Mbit/s, Gbit/s, for example `10Mbit/s`",
    );
    refused_at_line(
        11,
        r#"traffic = { kind = "cbr", rate = "2Mbit/s", packet = 1000 }"#,
        r#"scenarios/x.toml:11: flow.video.traffic.packet: found integer `1000`, expected a size with a unit, for example "1200B""#,
    );
    refused_at_line(
        12,
        r#"transport = { reordering = { fixed = "15" } }"#,
        "scenarios/x.toml:12: flow.video.transport.reordering.fixed: `15` has no unit; expected one of ns, us, ms, s, min, h, for example `30ms`",
    );
    refused_at_line(
        13,
        r#"require = { deadline = "300ms", share = 0.9 }"#,
        r#"scenarios/x.toml:13: flow.video.require.share: found floating point `0.9`, expected a probability with a unit, for example "0.17%""#,
    );
}

#[test]
fn a_value_out_of_range_is_rejected() {
    refused_at_line(
        2,
        r#"duration = "0s""#,
        "scenarios/x.toml:2: duration: found `0s`, expected a time above zero",
    );
    refused_at_line(
        1,
        "seed = -1",
        "scenarios/x.toml:1: seed: found integer `-1`, expected a whole number, 0 or more",
    );
    refused_at_line(
        4,
        r#"uplink.rate = "-10Mbit/s""#,
        "scenarios/x.toml:4: path.lte.uplink.rate: `-10Mbit/s` is out of range: a rate is from 0bit/s to 1000000Gbit/s",
    );
    refused_at_line(
        4,
        r#"uplink.rate = "0Mbit/s""#,
        "scenarios/x.toml:4: path.lte.uplink.rate: found `0Mbit/s`, expected a rate above zero; an outage is written with `down`",
    );
    refused_at_line(
        5,
        "cost = -1",
        "scenarios/x.toml:5: path.lte.cost: found integer `-1`, expected a whole number, 0 or more",
    );
    refused_at_line(
        5,
        r#"mtu = "0B""#,
        "scenarios/x.toml:5: path.lte.mtu: found `0B`, expected a size above zero",
    );
    refused_at_line(
        11,
        r#"traffic = { kind = "cbr", rate = "0Mbit/s", packet = "1000B" }"#,
        "scenarios/x.toml:11: flow.video.traffic.rate: found `0Mbit/s`, expected above zero",
    );
    for (traffic, found) in [
        (r#"kind = "cbr", rate = "1000000Gbit/s", packet = "1000B""#, "1.2e12"),
        (r#"kind = "on_off", rate = "1Gbit/s", packet = "1B", on = "9s", off = "1s""#, "1.1e9"),
        (r#"kind = "ping", every = "1ns""#, "1.0e10"),
    ] {
        let bad = format!("traffic = {{ {traffic} }}");
        let said = error(&GOOD.replace(GOOD.lines().nth(10).unwrap(), &bad), &[]);
        let problem = format!("expected at most 1e9 messages within the run; found {found}");
        assert!(said.starts_with("scenarios/x.toml:11: flow.video.traffic."), "{said}");
        assert!(said.ends_with(&problem), "{said}");
    }
    refused_at_line(
        12,
        "transport = { ack_every = 0 }",
        "scenarios/x.toml:12: flow.video.transport.ack_every: found `0`, expected above zero",
    );
    refused_at_line(
        12,
        r#"transport = { congestion = { name = "cubic", beta = 3.0 } }"#,
        "scenarios/x.toml:12: flow.video.transport.congestion.beta: found `3`, expected a number between 0 and 1",
    );
    refused_at_line(
        12,
        r#"transport = { scheduler = { name = "single", path = 2 } }"#,
        "scenarios/x.toml:12: flow.video.transport.scheduler.path: found path 2, expected a position from 0 to 1",
    );
    refused_at_line(
        13,
        r#"require = { deadline = "300ms", share = "120%" }"#,
        "scenarios/x.toml:13: flow.video.require.share: `120%` is out of range: a probability is from 0% to 100%",
    );
    refused_at_line(
        13,
        r#"require = { deadline = "0ms", share = "99%" }"#,
        "scenarios/x.toml:13: flow.video.require.deadline: found `0ms`, expected above zero",
    );
}

#[test]
fn missing_keys_are_reported() {
    refused_at_line(2, "", "scenarios/x.toml: the key `duration` is missing");
    refused_at_line(
        4,
        "",
        r#"scenarios/x.toml:5: path.lte.uplink.rate: found nothing, expected a rate, for example "10Mbit/s", or a preset"#,
    );
    refused_at_line(10, "", "scenarios/x.toml:9: flow.video: the key `from` is missing");
    refused_at_line(
        11,
        r#"traffic = { kind = "cbr", rate = "2Mbit/s" }"#,
        "scenarios/x.toml:11: flow.video.traffic: the key `packet` is missing",
    );
    refused_at_line(
        11,
        r#"traffic = { rate = "2Mbit/s", packet = "1000B" }"#,
        "scenarios/x.toml:11: flow.video.traffic: the key `kind` is missing",
    );
    refused_at_line(
        12,
        "transport = { scheduler = { path = 1 } }",
        "scenarios/x.toml:12: flow.video.transport.scheduler: the key `name` is missing",
    );
    refused_at_line(
        13,
        r#"require = { deadline = "300ms" }"#,
        r#"scenarios/x.toml:13: flow.video.require.deadline: found `300ms`, expected together with `share`, for example "99.9%""#,
    );
    refused_at_line(
        13,
        "require = {}",
        "scenarios/x.toml:13: flow.video.require: expected `deadline` and `share`, `delay` and `percentile`, `goodput`, or `rlp`; \
         of a video also `frames` and `within`, `frame_rate`, `worst_frame_rate`, `freezes`, or `ssim` and \
         `ssim_share`",
    );
    refused_at_line(
        13,
        r#"require = [{ goodput = "1Mbit/s" }, { percentile = "95%" }]"#,
        r#"scenarios/x.toml:13: flow.video.require[1].percentile: found `95%`, expected together with `delay`, for example "100ms""#,
    );
    refused_at_line(
        12,
        "transport = { paths = [] }",
        "scenarios/x.toml:12: flow.video.transport.paths: found an empty list, expected at least one path",
    );
}

#[test]
fn contradictions_are_rejected() {
    refused_at_line(
        4,
        r#"uplink.rate = { steps = [["0s", "1Mbit/s"]], trace = "x" }"#,
        "scenarios/x.toml:4: path.lte.uplink.rate.steps: `steps` and `trace` exclude one another",
    );
    refused_at_line(
        4,
        r#"uplink.rate = { unit = "Mbit/s", steps = [["0s", "1Mbit/s"]] }"#,
        "scenarios/x.toml:4: path.lte.uplink.rate: `format`, `column`, `unit`, `time`, `time_unit`, `every`, `repeat`, `start`, `together` and `resample` belong to `trace`",
    );
    refused_at_line(
        5,
        r#"uplink.queue = { packets = 3, bytes = "3kB" }"#,
        "scenarios/x.toml:5: path.lte.uplink.queue: found several keys, expected exactly one",
    );
    refused_at_line(
        5,
        r#"uplink.delay = { min = "5ms", max = "1ms" }"#,
        "scenarios/x.toml:5: path.lte.uplink.delay.min: `min` 5ms lies above `max` 1ms",
    );
    refused_at_line(
        12,
        r#"transport = { protocol = "tcp" }"#,
        "scenarios/x.toml:12: flow.video.transport.paths: tcp uses one path, found 2 (lte, leo); name one with `paths`, or use protocol `mptcp` or `parallel_tcp`",
    );
    refused_at_line(
        12,
        r#"transport = { protocol = "tcp", paths = ["lte", "leo"] }"#,
        "scenarios/x.toml:12: flow.video.transport.paths: tcp uses one path, found 2 (lte, leo); name one with `paths`, or use protocol `mptcp` or `parallel_tcp`",
    );
    refused_at_line(
        12,
        r#"transport = { protocol = "dccp" }"#,
        "scenarios/x.toml:12: flow.video.transport.paths: dccp uses one path, found 2 (lte, leo); name one with `paths`, or use protocol `mp_dccp`",
    );
    refused_at_line(
        12,
        r#"transport = { reordering = { name = "adaptive", loss_inference = 4 } }"#,
        "scenarios/x.toml:12: flow.video.transport.reordering.loss_inference: found `4`, expected 0 to 3",
    );
    refused_at_line(
        12,
        r#"transport = { paths = ["lte", "lte"] }"#,
        "scenarios/x.toml:12: flow.video.transport.paths[1]: `lte` is named twice",
    );
    refused_at_line(
        12,
        r#"transport = { scheduler = { path = 2, name = "single" } }"#,
        "scenarios/x.toml:12: flow.video.transport.scheduler.path: found path 2, expected a position from 0 to 1",
    );
    refused_at_line(
        13,
        "start = \"5s\"\nstop = \"4s\"",
        "scenarios/x.toml:14: flow.video.stop: found 4s, expected later than `start` 5s",
    );
    refused_at_line(
        13,
        r#"start = "50s""#,
        "scenarios/x.toml:13: flow.video.start: found 50s, expected before the end of the run of 10s",
    );
}

#[test]
fn text_that_is_not_toml_is_rejected_at_its_line() {
    refused_at_line(
        1,
        r#"name = "x"#,
        r#"scenarios/x.toml:1: not TOML: invalid basic string, expected `"`"#,
    );
    refused_at_line(
        1,
        "= 3",
        "scenarios/x.toml:1: not TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`",
    );
    refused_at_line(1, "name = \"x\"\nname = \"y\"", "scenarios/x.toml:2: not TOML: duplicate key");
}

#[test]
fn a_name_with_other_characters_is_rejected() {
    refused_at_end(
        "[path.\"x y\"]\npreset = \"geo\"",
        r#"scenarios/x.toml:14: path."x y": found the name "x y", expected letters, digits, `-` and `_`"#,
    );
    refused_at_end(
        "[flow.\"é\"]\nfrom = \"ground\"\ntraffic = { kind = \"bulk\" }",
        r#"scenarios/x.toml:14: flow."é": found the name "é", expected letters, digits, `-` and `_`"#,
    );
}

#[test]
fn a_number_of_copies_out_of_range_is_rejected() {
    for copies in ["0", "9", "256"] {
        refused_at_line(
            13,
            &format!("copies = {copies}"),
            &format!("scenarios/x.toml:13: flow.video.copies: found {copies}, expected 1 to 8"),
        );
    }
    refused_at_line(
        13,
        "copies = -1",
        "scenarios/x.toml:13: flow.video.copies: found integer `-1`, expected a whole number, 0 or more",
    );
}

#[test]
fn an_invalid_override_is_reported_by_its_key() {
    refused_override(
        "path.lte.uplnk.rate",
        "1Mbit/s",
        "override `path.lte.uplnk.rate`: unknown key `uplnk`; did you mean `uplink`? (expected one of `from`, `to`, `weight`, `preset`, `mtu`, `cost`, `backup`, `priority`, `down`, `rate`, `delay`, `reorder`, `queue`, `loss`, `harq`, `overhead`, `uplink`, `downlink`, `drx`, `handover`, `stall`, `outage`, `reconfiguration`, `flight`, `spread`, `draw`, `along`, `cells`, `coverage`, `orbit`)",
    );
    refused_override(
        "path.lte.uplink.rate",
        "5",
        r#"override `path.lte.uplink.rate`: found integer `5`, expected a rate with a unit, for example "10Mbit/s", or a table with `steps`, `process`, `trace` or `opportunities`"#,
    );
    refused_override(
        "path.lte.uplink.rate.trace",
        "x.csv",
        "override `path.lte.uplink.rate.trace`: `rate` is not a table, so that it holds no keys",
    );
    refused_override(
        "path.lte.uplink.harq.round_trip",
        "1ms",
        "override `path.lte.uplink.harq.round_trip`: path.lte.uplink.harq.loss: found nothing, expected a probability",
    );
    refused_override(
        "flow.video.transport.scheduler",
        "psychic",
        &format!(
            "override `flow.video.transport.scheduler`: unknown scheduler `psychic` (expected one of {})",
            names(SchedulerConfig::ALL)
        ),
    );
    refused_override(
        "seed",
        "x",
        r#"override `seed`: found string "x", expected a whole number, 0 or more"#,
    );
    refused_override(
        "",
        "3",
        "override ``: not a key: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`",
    );
    refused_override(
        "a..b",
        "3",
        "override `a..b`: not a key: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`",
    );
    refused_override(
        "event.0.at",
        "3s",
        "override `event.0.at`: found no `[[event]]` in the scenario, expected at least one",
    );
    refused_override(
        "duration",
        "0s",
        "override `duration`: found `0s`, expected a time above zero",
    );
    refused_override(
        "flow.video.require.share",
        "101%",
        "override `flow.video.require.share`: `101%` is out of range: a probability is from 0% to 100%",
    );
    refused_override(
        "path.leo.preset",
        "starlnk",
        "override `path.leo.preset`: unknown preset `starlnk`; did you mean `starlink`? (expected one of `lte-drone-urban`, `lte-drone-rural`, `lte-car`, `5g-road`, `starlink-car`, `starlink-ship`, `testbed-lte-aerial`, `testbed-lte-ground`, `testbed-starlink`, `testbed-leo`, `testbed-article-satellite`, `testbed-article-lte`, `testbed-thesis-satellite`, `testbed-thesis-lte`, `geo-dvb`, `meo`, `geo`, `wifi`, `ethernet`, `lte-aerial`, `lte-ground`, `starlink`, `leo`)",
    );
}

#[test]
fn the_valid_scenario_is_valid() {
    assert_eq!(error(GOOD, &[]), "accepted");
}

#[test]
fn a_scenario_without_path_or_flow_is_rejected() {
    assert_eq!(
        error("duration = '1s'", &[]),
        "scenarios/x.toml: path: found no path, expected at least one table `[path.NAME]`"
    );
    let links = "duration = '1s'\n[path.lte]\npreset = 'lte-aerial'";
    let links = Scenario::parse(links, Path::new("scenarios/x.toml"), &[]).unwrap();
    assert_eq!(
        links.needs_flows().unwrap_err().to_string(),
        "scenarios/x.toml: flow: found no flow, expected at least one table `[flow.NAME]`"
    );
}

#[test]
fn invalid_shared_connections_and_addresses_are_rejected() {
    let ping = "traffic = { kind = \"ping\", every = \"1s\" }";
    let control = |with: &str| format!("[flow.control]\nfrom = \"ground\"\n{ping}\n{with}");
    refused_at_end(
        &control("with = \"vidoe\""),
        "scenarios/x.toml:17: flow.control.with: unknown flow `vidoe`; did you mean `video`? (expected one of `video`, `control`)",
    );
    refused_at_end(
        &control("with = \"control\""),
        "scenarios/x.toml:17: flow.control.with: found the flow itself, expected another one",
    );
    refused_at_end(
        &control("with = \"video\"\ntransport = { protocol = \"udp\" }"),
        "scenarios/x.toml:18: flow.control.transport: found it and `with`, expected one of them: `with` means the transport of the other flow",
    );
    refused_at_end(
        &format!("{}\n[[event]]\nat = \"1s\"\nflow.control.remove_path = \"leo\"", control("")),
        "scenarios/x.toml:20: event[0].flow.control.remove_path: found `leo`, expected a flow with an mptcp connection of its own",
    );
    refused_at_end(
        "[[event]]\nat = \"1s\"\nflow.video.remove_path = \"loe\"",
        "scenarios/x.toml:16: event[0].flow.video.remove_path: unknown path `loe`; did you mean `leo`? (expected one of `lte`, `leo`)",
    );
}
