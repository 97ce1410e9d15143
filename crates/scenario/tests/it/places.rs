//! Tests of places of nodes, cells of their links, and outages shared by links.

use std::fs;
use std::path::{Path, PathBuf};

use skybraid_host::record::Record;
use skybraid_link::LinkConfig;
use skybraid_scenario::Scenario;
use skybraid_units::{Duration, Instant, Seed};

use crate::common::first_line;

const PATH: &str = "uplink.rate = '10Mbit/s'\ndownlink.rate = '10Mbit/s'\n";

/// A track eastwards from the ground station over 60 km in 1000 s.
const TRACK: &str = "[node.vehicle]\n\
                     track = { waypoints = [[47.0, 7.4], [47.0, 8.2]], speed = '60m/s', altitude = '30m' }\n\
                     [node.ground]\n\
                     position = { latitude = 47.0, longitude = 7.4 }\n";

fn parse(text: &str) -> Result<Scenario, String> {
    let text = format!("duration = '900s'\n{text}");
    Scenario::parse(&text, Path::new("x.toml"), &[]).map_err(|error| first_line(&error.to_string()))
}

fn links(scenario: &Scenario, seed: u64) -> Vec<[LinkConfig; 2]> {
    let setup = scenario.setup(Seed(seed), Record::default());
    setup.links.into_iter().map(|link| [link.uplink, link.downlink]).collect()
}

fn total(spans: &[(Instant, Duration)]) -> f64 {
    spans.iter().map(|(_, length)| length.as_secs_f64()).sum()
}

/// The middle of two stations 5 km apart is passed by 389.3 m before the handover, see the cells' own
/// tests: 2889.3 m at 60 m/s are 48.2 s, the time to trigger is 160 ms.
#[test]
fn a_moving_vehicle_halts_at_each_handover() {
    let cells = "[path.lte.cells]\ngrid = '5km'\ninterruption = '50ms'\n";
    let scenario = parse(&format!("{TRACK}[path.lte]\n{PATH}{cells}")).unwrap();
    assert!(scenario.tracks.iter().all(Option::is_some));
    let [up, down] = &links(&scenario, 1)[0];
    assert_eq!(up.halts, down.halts);
    // The great circle leaves the parallel, and with it the row of stations, by little.
    assert_eq!(up.halts.len(), 11, "{:?}", up.halts);
    for (index, (at, length)) in up.halts.iter().enumerate() {
        let expected = (index as f64 * 5000.0 + 2889.3) / 60.0 + 0.16;
        assert!((at.as_secs_f64() - expected).abs() < 1.0, "{at} {expected}");
        assert_eq!(*length, Duration::from_millis(50));
    }
    assert!(parse(&format!("[path.lte]\n{PATH}")).unwrap().links[0].cells.is_none());
}

#[test]
fn cells_replace_a_presets_handovers_with_its_interruptions() {
    let cells = "[path.lte.cells]\ngrid = '2km'\nshadowing = '6dB'\n";
    let scenario = parse(&format!("{TRACK}[path.lte]\npreset = 'lte-aerial'\n{cells}")).unwrap();
    let halts = |seed| links(&scenario, seed)[0][0].halts.clone();
    assert!(links(&scenario, 1)[0][0].handover.is_none());
    assert!(halts(1).len() > 30, "{}", halts(1).len());
    let mean = total(&halts(1)) / halts(1).len() as f64;
    // The mixture's mean is 5.8 ms; one of its components has 203 ms.
    assert!((0.001..0.06).contains(&mean), "{mean}");
    assert_eq!(halts(1), halts(1));
    assert_ne!(halts(1), halts(2));
}

/// Two links of one network, each with its own shadowing; the moving node is the terminal.
#[test]
fn each_link_of_a_network_has_its_own_cells() {
    let text = "[node.drone]\ncount = 2\nkind = 'vehicle'\n\
                track = { circle = { centre = [47.0, 7.4], radius = '10km', speed = '50m/s' } }\n\
                [node.core]\n[link.radio]\nfrom = 'core'\nto = 'drone'\nrate = '10Mbit/s'\n\
                [link.radio.cells]\ngrid = '3km'\nshadowing = '4dB'\ninterruption = '20ms'\n";
    let scenario = parse(text).unwrap();
    let all = links(&scenario, 1);
    assert_eq!(all.len(), 2);
    assert!(all[0][0].halts.len() > 5);
    assert_ne!(all[0][0].halts, all[1][0].halts);
}

#[test]
fn a_track_is_read_from_a_file_next_to_the_scenario() {
    let folder = std::env::temp_dir().join(format!("skybraid-flight-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let load = |track: &str| {
        fs::write(folder.join("t.csv"), track).unwrap();
        let text = format!(
            "duration = '9s'\n[node.vehicle]\ntrack = {{ file = 't.csv' }}\n[path.a]\n{PATH}"
        );
        let file: PathBuf = folder.join("x.toml");
        let name = format!("{}/", folder.display());
        Scenario::parse(&text, &file, &[])
            .map_err(|error| first_line(&error.to_string().replace(&name, "")))
    };
    let scenario = load("time_s,latitude,longitude,altitude_m\n0,47,7,500\n10,47,8,600\n").unwrap();
    let place = scenario.tracks[0].as_ref().unwrap().at(Duration::from_secs(5));
    assert!((place.altitude() - 550.0).abs() < 1e-9);
    assert_eq!(scenario.inputs[0].file, "t.csv");
    let error = load("time_s,latitude,longitude,altitude_m\n0,97,7,500\n").unwrap_err();
    assert_eq!(
        error,
        "t.csv:2: found `the latitude 97`, expected -90 to 90 degrees (named by node.vehicle.track)"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn paths_with_shared_outages_fail_together() {
    let outages = |together: &str| {
        let text = format!(
            "[path.a]\n{PATH}[path.b]\n{PATH}[path.c]\n{PATH}\
             [[outages]]\npaths = ['a', 'b']\nup = '9s'\ndown = {{ mean = '1s' }}\ntogether = {together}\n"
        );
        parse(&text).unwrap()
    };
    let always = links(&outages("10"), 1);
    assert_eq!(always, links(&outages("'always'"), 1));
    let half = links(&outages("'always'\ntakes_part = [1, 0.5]"), 1);
    assert_eq!(half[0], always[0]);
    assert!(half[1][0].down.iter().all(|span| always[0][0].down.contains(span)));
    // A binomial number of 90 or so, halved.
    assert!(half[1][0].down.len().abs_diff(always[0][0].down.len() / 2) < 20);
    assert!(always[0][0].down.len() > 40);
    assert_eq!(always[0], always[1]);
    assert_eq!(always[0][0].down, always[0][1].down, "both directions");
    assert!(always[2][0].down.is_empty());
    let chance = links(&outages("1"), 1);
    assert_ne!(chance[0], chance[1]);
    assert_ne!(links(&outages("1"), 2), chance);
    // 90 outages of 1 s with a standard deviation of 1 s each in 900 s.
    assert!((total(&chance[0][0].down) - 90.0).abs() < 4.0 * (2.0 * 90f64).sqrt());
}

#[test]
fn shared_outages_are_added_to_scripted_ones() {
    let text = format!(
        "[path.a]\ndown = [['5s', '2s']]\n{PATH}\
         [[outages]]\npaths = ['a']\nup = '100s'\ndown = '1s'\n"
    );
    let down = links(&parse(&text).unwrap(), 1)[0][0].down.clone();
    assert!(down.contains(&(Instant::from_millis(5000), Duration::from_secs(2))));
    assert!(down.len() > 3);
}

#[test]
fn invalid_values_are_reported_at_their_keys() {
    let cells = |keys: &str| format!("{TRACK}[path.lte]\n{PATH}{keys}");
    let outages = |keys: &str| format!("[path.lte]\n{PATH}[[outages]]\n{keys}\n");
    for (text, expected) in [
        (
            cells("cells = { grid = '5km' }"),
            "path.lte.cells.interruption: found nothing, expected a distribution",
        ),
        (
            cells("cells = { interruption = '5ms' }"),
            "path.lte.cells.grid: found nothing, expected a length",
        ),
        (
            cells("cells = { grid = '0m', interruption = '5ms' }"),
            "path.lte.cells.grid: found `0m`, expected 1m",
        ),
        (
            cells("cells = { grid = '5km', interruption = '5ms', exponent = 0 }"),
            "path.lte.cells.exponent",
        ),
        (
            cells("cells = { grid = '5km', interruption = '5ms', origin = [99, 0] }"),
            "path.lte.cells.origin: found the latitude 99",
        ),
        (cells("cells = { gird = '5km' }"), "did you mean `grid`"),
        (
            cells("cells = { grid = '5km' }\nhandover = { interval = '9s', interruption = '5ms' }"),
            "path.lte.handover: found `cells` too",
        ),
        (
            format!("[path.lte]\n{PATH}cells = {{ grid = '5km', interruption = '5ms' }}"),
            "path.lte.cells: expected a `track`",
        ),
        (
            format!("[node.vehicle]\ntrack = {{ file = 'a.doc' }}\n[path.lte]\n{PATH}"),
            "node.vehicle.track: found the file a.doc",
        ),
        (
            format!(
                "[node.vehicle]\nposition = {{ latitude = 0, longitude = 0 }}\ntrack = {{ file = 'a.csv' }}\n[path.lte]\n{PATH}"
            ),
            "node.vehicle.track: `position` and `track` exclude",
        ),
        (
            outages("paths = ['lta']\nup = '9s'\ndown = '1s'"),
            "outages[0].paths: unknown path `lta`; did you mean `lte`",
        ),
        (
            outages("paths = ['lte', 'lte']\nup = '9s'\ndown = '1s'"),
            "outages[0].paths: `lte` is named twice",
        ),
        (outages("paths = []\nup = '9s'\ndown = '1s'"), "outages[0].paths: found an empty list"),
        (outages("links = ['lte']\nup = '9s'\ndown = '1s'"), "outages[0].links: expected `paths`"),
        (
            outages("paths = ['lte']\nup = '9s'\ndown = '1s'\ntogether = 11"),
            "outages[0].together: found 11, expected 0 to 10",
        ),
        (
            outages("paths = ['lte']\nup = '9s'\ndown = '1s'\ntogether = 'often'"),
            "outages[0].together: found `often`, expected a ratio or \"always\"",
        ),
        (
            outages("paths = ['lte']\nup = '9s'\ndown = '1s'\ntakes_part = [1, 0.5]"),
            "outages[0].takes_part: found 2 probabilities for 1 names",
        ),
        (
            outages("paths = ['lte']\nup = '0s'\ndown = '1s'"),
            "outages[0].up: found `0s`, expected at least 1ms",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
    }
}

/// A climb from 500 m to 620 m above sea level in 120 s of 1 m/s, then a flight of 20 m/s at that altitude.
const CLIMB: &str = "time_s,latitude,longitude,altitude_m\n0,47,7.4,500\n120,47,7.4,620\n\
                     620,47.08993,7.4,620\n";

#[test]
fn height_speed_and_hour_of_a_track_feed_the_processes() {
    let folder = std::env::temp_dir().join(format!("skybraid-along-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("climb.csv"), CLIMB).unwrap();
    let parse = |along: &str| {
        let text = format!(
            "duration = '620s'\n[node.vehicle]\ntrack = {{ file = 'climb.csv' }}\n\
             [path.lte]\npreset = 'lte-drone-urban'\n[path.lte.along]\n{along}"
        );
        Scenario::parse(&text, &folder.join("x.toml"), &[])
            .map_err(|error| first_line(&error.to_string()))
    };
    let scenario = parse(
        "ground = '500m'\nhour = 23.9\noutage.speed = [['0m/s', 1], ['10m/s', 2]]\nrate.hour = [[0, 0.5], [20, 1]]",
    )
    .unwrap();
    let along = &scenario.links[0].config.factors;
    let times = |factor: &skybraid_link::Factor| -> Vec<f64> {
        factor.entries().iter().map(|(at, _)| at.as_secs_f64().round()).collect()
    };
    // The preset's own heights: 10 m, 40 m and 80 m above ground, a metre a second.
    assert_eq!(times(&along.handover), [0.0, 10.0, 40.0, 80.0]);
    // The track ends after 620 s.
    assert_eq!(times(&along.outage), [0.0, 120.0, 620.0]);
    assert_eq!(times(&along.rate), [0.0, 360.0]);
    assert!(along.stall.is_one());
    let wrong = parse("handover.height = [['0m', 1]]").unwrap_err();
    let expected = "along.handover.height: expected `ground` too";
    assert!(wrong.ends_with(expected), "{wrong}");
    let wrong = parse("ground = '500m'\nrate.speed = [['0m/s', -1]]").unwrap_err();
    assert!(
        wrong.contains("along.rate.speed: found the factor -1, expected 0 to 10000"),
        "{wrong}"
    );
    fs::remove_dir_all(folder).unwrap();
}
