//! Tests of the positions of errors, and of names that are not in the scenario.

use std::path::Path;

use skybraid_scenario::Scenario;

use super::{GOOD, check, error, refused_override};

fn whole_error(text: &str) -> String {
    let scenario = Scenario::parse(text, Path::new("x.toml"), &[]);
    scenario.map_or_else(|error| error.to_string(), |_| "accepted".to_string())
}

/// Checks that the valid scenario with `bad` in place of line `line` is rejected with this excerpt after the
/// first line.
fn points_at(line: usize, bad: &str, position: &str, excerpt: &str) {
    let mut lines: Vec<&str> = GOOD.lines().collect();
    lines[line - 1] = bad;
    let error = whole_error(&lines.join("\n"));
    let (first, below) = error.split_once('\n').unwrap_or((&error, ""));
    assert!(first.starts_with(&format!("x.toml:{position}: ")), "{error}");
    assert_eq!(below, excerpt, "\n{error}");
}

#[test]
fn an_error_points_at_the_key_or_value_with_a_caret() {
    points_at(
        4,
        r#"uplink.rat = "10Mbit/s""#,
        "4:8",
        "  |\n4 | uplink.rat = \"10Mbit/s\"\n  |        ^^^",
    );
    points_at(
        11,
        r#"traffic = { kind = "cbr", rate = "2", packet = "1000B" }"#,
        "11:34",
        "   |\n11 | traffic = { kind = \"cbr\", rate = \"2\", packet = \"1000B\" }\n   |                                  ^^^",
    );
    points_at(
        12,
        r#"transport = { paths = ["lte", "loe"] }"#,
        "12:31",
        "   |\n12 | transport = { paths = [\"lte\", \"loe\"] }\n   |                               ^^^^^",
    );
    points_at(10, "", "9:7", "  |\n9 | [flow.video]\n  |       ^^^^^");
}

#[test]
fn an_error_of_toml_points_at_its_column() {
    points_at(2, "duration = 10 s", "2:12", "  |\n2 | duration = 10 s\n  |            ^^^^");
    let error = whole_error("duration = \"10s\"\n[path.lte\nrate = 1\n");
    assert!(error.starts_with("x.toml:2:10: not TOML: "), "{error}");
    assert!(error.ends_with("\n  |\n2 | [path.lte\n  |          ^"), "{error}");
}

#[test]
fn an_override_never_adds_a_path_flow_or_event() {
    refused_override(
        "path.wifi.rate",
        "1Mbit/s",
        "override `path.wifi.rate`: unknown path `wifi` (expected one of `lte`, `leo`); a new one is set whole: `path.wifi={ … }`",
    );
    refused_override(
        "path.let.uplink.rate",
        "1Mbit/s",
        "override `path.let.uplink.rate`: unknown path `let`; did you mean `lte`? (expected one of `lte`, `leo`); a new one is set whole: `path.let={ … }`",
    );
    refused_override(
        "flow.vidoe.transport.scheduler",
        "single",
        "override `flow.vidoe.transport.scheduler`: unknown flow `vidoe`; did you mean `video`? (expected `video`); a new one is set whole: `flow.vidoe={ … }`",
    );
    refused_override(
        "link.backhaul.rate",
        "1Mbit/s",
        "override `link.backhaul.rate`: unknown link `backhaul` (there is none); a new one is set whole: `link.backhaul={ … }`",
    );
    refused_override(
        "node.uav.kind",
        "vehicle",
        "override `node.uav.kind`: unknown node `uav` (there is none); a new one is set whole: `node.uav={ … }`",
    );
    let event = format!("{GOOD}[[event]]\nat = \"1s\"\npath.leo.down = \"1s\"\n");
    check(
        &error(&event, &[("event.1.at".into(), "2s".into())]),
        "override `event.1.at`: found `1`, expected a position in the list `event`, below 1",
        "event.1.at",
    );
    check(
        &error(&event, &[("event.0.path.loe.down".into(), "2s".into())]),
        "override `event[0].path.loe.down`: unknown path `loe`; did you mean `leo`? (expected one of `lte`, `leo`)",
        "event.0.path.loe.down",
    );
}

#[test]
fn a_path_set_as_a_whole_is_added() {
    let overrides = [
        ("path.wifi".to_string(), "{ preset = \"wifi\" }".to_string()),
        ("path.wifi.cost".to_string(), "3".to_string()),
    ];
    let scenario = Scenario::parse(GOOD, Path::new("x.toml"), &overrides).unwrap();
    let names: Vec<&str> = scenario.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["lte", "leo", "wifi"]);
}

#[test]
fn a_key_in_the_wrong_table_is_reported_with_the_right_one() {
    let found = |line: usize, bad: &str| {
        let mut lines: Vec<&str> = GOOD.lines().collect();
        lines.insert(line - 1, bad);
        error(&lines.join("\n"), &[])
    };
    let cases = [
        (
            11,
            "paths = [\"lte\"]",
            "scenarios/x.toml:11: flow.video.paths: unknown key `paths`; it belongs to the flow's `transport`: `transport = { paths = … }`",
        ),
        (
            11,
            "deadline = \"100ms\"",
            "scenarios/x.toml:11: flow.video.deadline: unknown key `deadline`; it belongs to the flow's `require`: `require = { deadline = … }`",
        ),
        (
            11,
            "rate = \"1Mbit/s\"",
            "scenarios/x.toml:11: flow.video.rate: unknown key `rate`; it belongs to the flow's `traffic`: `traffic = { rate = … }`",
        ),
        (
            3,
            "paths = [\"lte\"]",
            "scenarios/x.toml:3: paths: unknown key `paths`; did you mean `[path.NAME]`, one table for each path?",
        ),
        (
            3,
            "[paths.lte]\nrate = \"1Mbit/s\"",
            "scenarios/x.toml:3: paths: unknown key `paths`; did you mean `[path.NAME]`, one table for each path?",
        ),
        (
            3,
            "[[events]]\nat = \"1s\"",
            "scenarios/x.toml:3: events: unknown key `events`; did you mean `[[event]]`?",
        ),
        (
            3,
            "scheduler = \"single\"",
            "scenarios/x.toml:3: scheduler: unknown key `scheduler`; it belongs to a flow, in `[flow.NAME]`",
        ),
        (
            3,
            "uplink.rate = \"1Mbit/s\"",
            "scenarios/x.toml:3: uplink: unknown key `uplink`; it belongs to a path, in `[path.NAME]`",
        ),
    ];
    for (line, bad, expected) in cases {
        check(&found(line, bad), expected, bad);
    }
    let nested = GOOD.replace("protocol = \"mptcp\"", "deadline = \"1s\"");
    check(
        &error(&nested, &[]),
        "scenarios/x.toml:12: flow.video.transport.deadline: unknown key `deadline`; it belongs to the flow's `require`",
        "nested",
    );
}

#[test]
fn a_track_without_effect_causes_a_warning() {
    let track = "[node.vehicle]\ntrack = { waypoints = [[47.0, 7.4], [47.0, 8.2]], speed = '60m/s', altitude = '30m' }\n";
    let text = format!("{GOOD}{track}");
    let scenario = Scenario::parse(&text, Path::new("x.toml"), &[]).unwrap();
    assert_eq!(
        scenario.warnings,
        [
            "x.toml:15:1: node.vehicle.track: the track has no effect: no path or link of this node has `along`, `cells`, `coverage` or `orbit`"
        ]
    );
    let cells = text
        .replace("preset = \"starlink\"", "preset = \"lte-aerial\"\ncells = { grid = \"5km\" }");
    let scenario = Scenario::parse(&cells, Path::new("x.toml"), &[]).unwrap();
    assert_eq!(scenario.warnings, Vec::<String>::new());
}

#[test]
fn an_outage_after_the_end_of_the_run_causes_a_warning() {
    let down = "down = [[\"5s\", \"1s\"], [\"20s\", \"1s\"]]";
    let text = GOOD.replace("[path.leo]\n", &format!("[path.leo]\n{down}\n"));
    let scenario = Scenario::parse(&text, Path::new("x.toml"), &[]).unwrap();
    assert_eq!(
        scenario.warnings,
        ["x.toml:8:23: path.leo.down[1]: the outage at 20s has no effect: the run ends after 10s"]
    );
}
