//! Track files and their errors.

use proptest::prelude::*;
use skybraid_track::file::{Format, read};
use skybraid_track::{Position, Track};
use skybraid_units::{Duration, Speed};

const CSV: &str = "\
# of a test flight
time_s,latitude,longitude,altitude_m
100.5, 47.0, 7.0, 500
110.5, 47.1, 7.0, 600
120.5, 47.1, 7.2, 600
";

const GPX: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<gpx version="1.1" creator="test" xmlns="http://www.topografix.com/GPX/1/1">
  <trk><name>a</name>
    <trkseg>
      <trkpt lat="47.0" lon="7.0"><ele>500</ele><time>2026-01-01T00:00:00Z</time></trkpt>
      <trkpt lat="47.1" lon="7.0"><ele>600</ele><time>2026-01-01T00:00:10Z</time></trkpt>
      <trkpt lat="47.1" lon="7.0"><ele>600</ele><time>2026-01-01T00:00:10Z</time></trkpt>
    </trkseg>
    <trkseg>
      <trkpt lat="47.1" lon="7.2"><ele>600</ele><time>2026-01-01T01:00:20+01:00</time></trkpt>
    </trkseg>
  </trk>
</gpx>"#;

const KML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2" xmlns:gx="http://www.google.com/kml/ext/2.2">
<Document><Placemark><gx:Track>
  <when>2026-01-01T00:00:00Z</when>
  <when>2026-01-01T00:00:05Z</when>
  <when>2026-01-01T00:00:10Z</when>
  <when>2026-01-01T00:00:20Z</when>
  <gx:coord>7.0 47.0 500</gx:coord>
  <gx:coord></gx:coord>
  <gx:coord>7.0 47.1 600</gx:coord>
  <gx:coord>7.2 47.1 600</gx:coord>
</gx:Track></Placemark></Document></kml>"#;

const LINE: &str = r#"<kml xmlns="http://www.opengis.net/kml/2.2"><Placemark><LineString>
  <coordinates>7.0,47.0,500
    7.0,47.1,600 7.2,47.1,600</coordinates></LineString></Placemark></kml>"#;

/// A plan as QGroundControl writes it: take-off, an action, a change of speed, two way points, and a return.
const PLAN: &str = r#"{
    "fileType": "Plan",
    "groundStation": "QGroundControl",
    "mission": {
        "cruiseSpeed": 15,
        "firmwareType": 12,
        "hoverSpeed": 5,
        "items": [
            { "autoContinue": true, "command": 22, "frame": 3,
              "params": [0, 0, 0, null, 47.0, 7.0, 50], "type": "SimpleItem" },
            { "autoContinue": true, "command": 206, "frame": 2,
              "params": [25, 0, 1, 0, 0, 0, 0], "type": "SimpleItem" },
            { "autoContinue": true, "command": 16, "frame": 3,
              "params": [0, 0, 0, null, 47.1, 7.0, 150], "type": "SimpleItem" },
            { "complexItemType": "survey", "type": "ComplexItem", "TransectStyleComplexItem": { "Items": [
                { "command": 16, "frame": 0, "params": [0, 0, 0, null, 47.1, 7.2, 600], "type": "SimpleItem" }
            ] } },
            { "autoContinue": true, "command": 20, "frame": 2,
              "params": [0, 0, 0, 0, 0, 0, 0], "type": "SimpleItem" }
        ],
        "plannedHomePosition": [47.0, 7.0, 450],
        "vehicleType": 2,
        "version": 2
    },
    "version": 1
}"#;

fn place(latitude: f64, longitude: f64, altitude: f64) -> Position {
    Position::new(latitude, longitude, altitude).unwrap()
}

fn expected() -> Track {
    let points = [(0, 47.0, 7.0, 500.0), (10, 47.1, 7.0, 600.0), (20, 47.1, 7.2, 600.0)];
    let timed = points.map(|(at, latitude, longitude, altitude)| {
        (Duration::from_secs(at), place(latitude, longitude, altitude))
    });
    Track::through(&timed).unwrap()
}

#[test]
fn csv_gpx_and_kml_give_the_same_track() {
    assert_eq!(read(CSV, Format::Csv, None).unwrap(), expected());
    assert_eq!(read(GPX, Format::Gpx, None).unwrap(), expected());
    assert_eq!(read(KML, Format::Kml, None).unwrap(), expected());
}

#[test]
fn csv_columns_may_be_in_any_order_next_to_others() {
    let text = "\u{feff}longitude;note;latitude;altitude_m;time_s\n7;x;47;500;0\n7;;47.1;600;10\n7.2;;47.1;600;20";
    assert_eq!(read(text, Format::Csv, None).unwrap(), expected());
}

#[test]
fn points_without_times_need_a_speed() {
    let speed = Speed::from_metres_per_second(100.0);
    let points = [place(47.0, 7.0, 500.0), place(47.1, 7.0, 600.0), place(47.1, 7.2, 600.0)];
    let flown = Track::waypoints(&points, speed).unwrap();
    assert_eq!(read(LINE, Format::Kml, Some(speed)).unwrap(), flown);
    let route = "<gpx><rte><rtept lat='47.0' lon='7.0'><ele>500</ele></rtept>\
                 <rtept lat='47.1' lon='7.0'><ele>600</ele></rtept>\
                 <rtept lat='47.1' lon='7.2'><ele>600</ele></rtept></rte></gpx>";
    assert_eq!(read(route, Format::Gpx, Some(speed)).unwrap(), flown);
    for (text, format) in [(LINE, Format::Kml), (route, Format::Gpx)] {
        let error = read(text, format, None).unwrap_err().to_string();
        assert!(error.contains("expected a `speed`"), "{error}");
    }
    assert!(read(GPX, Format::Gpx, Some(speed)).unwrap_err().to_string().contains("have times"));
}

#[test]
fn a_plan_gives_the_places_that_its_mission_flies_to() {
    let route = [
        place(47.0, 7.0, 500.0),
        place(47.1, 7.0, 600.0),
        place(47.1, 7.2, 600.0),
        place(47.0, 7.0, 600.0),
    ];
    let flown = |speed| Track::waypoints(&route, Speed::from_metres_per_second(speed)).unwrap();
    assert_eq!(read(PLAN, Format::Plan, None).unwrap(), flown(5.0));
    let winged = PLAN.replace("\"vehicleType\": 2", "\"vehicleType\": 1");
    assert_eq!(read(&winged, Format::Plan, None).unwrap(), flown(15.0));
    let fast = Speed::from_metres_per_second(60.0);
    assert_eq!(read(PLAN, Format::Plan, Some(fast)).unwrap(), flown(60.0));
}

#[test]
fn a_plan_begins_at_home_and_ends_with_its_landing_pattern() {
    let return_to_launch = r#"{ "autoContinue": true, "command": 20, "frame": 2,
              "params": [0, 0, 0, 0, 0, 0, 0], "type": "SimpleItem" }"#;
    assert!(PLAN.contains(return_to_launch));
    let away = PLAN.replace("null, 47.0, 7.0, 50]", "null, 47.01, 7.0, 50]").replace(
        return_to_launch,
        r#"{ "complexItemType": "fwLandingPattern", "landCoordinate": [47.0, 7.1, 0], "altitudesAreRelative": true,
             "landingApproachCoordinate": [47.05, 7.1, 40], "type": "ComplexItem" }"#,
    );
    let route = [
        place(47.0, 7.0, 450.0),
        place(47.01, 7.0, 500.0),
        place(47.1, 7.0, 600.0),
        place(47.1, 7.2, 600.0),
        place(47.05, 7.1, 490.0),
        place(47.0, 7.1, 450.0),
    ];
    let flown = Track::waypoints(&route, Speed::from_metres_per_second(5.0)).unwrap();
    assert_eq!(read(&away, Format::Plan, None).unwrap(), flown);
}

#[test]
fn an_error_in_a_plan_names_the_item_or_the_line() {
    for (old, new, expected) in [
        ("\"version\": 1\n", "", "line 25: trailing comma"),
        (
            "\"mission\"",
            "\"missions\"",
            "missing field `mission`, expected a plan of QGroundControl",
        ),
        ("\"command\": 206", "\"command\": 177", "mission.items[1]: found a jump to another item"),
        ("47.1, 7.0, 150", "97.1, 7.0, 150", "mission.items[2]: found the latitude 97.1, expected"),
        ("[0, 0, 0, null, 47.1, 7.0, 150]", "[0]", "mission.items[2]: found no `command`"),
        ("TransectStyleComplexItem", "x", "mission.items[3]: found `survey`"),
        ("7.0, 450", "700, 450", "mission.plannedHomePosition: found the longitude 700"),
        ("\"hoverSpeed\": 5", "\"hoverSpeed\": 0", "expected a `speed`"),
    ] {
        assert_ne!(PLAN.replace(old, new), PLAN, "{old}");
        let error = read(&PLAN.replace(old, new), Format::Plan, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{new}\n{error}\n{expected}");
    }
}

#[test]
fn the_format_follows_the_file_extension() {
    assert_eq!(Format::of_name("flights/One.GPX"), Some(Format::Gpx));
    assert_eq!(Format::of_name("a.csv"), Some(Format::Csv));
    assert_eq!(Format::of_name("a.txt"), None);
    assert_eq!(Format::of_name("gpx"), None);
}

#[test]
fn an_error_names_the_line_and_what_was_expected() {
    let csv = |row: &str| format!("time_s,latitude,longitude,altitude_m\n0,47,7,500\n{row}\n");
    let gpx = |point: &str| {
        format!(
            "<gpx>\n<trkpt lat='0' lon='0'><time>2026-01-01T00:00:10Z</time></trkpt>\n{point}</gpx>"
        )
    };
    for (text, format, expected) in [
        (String::new(), Format::Csv, "holds no point; expected the heading"),
        ("0,47,7,500\n".into(), Format::Csv, "line 1: found `0,47,7,500`, expected the heading"),
        (csv("").replace("0,47,7,500", ""), Format::Csv, "a line below the heading"),
        (csv("1,47,7"), Format::Csv, "line 3: found `1,47,7`, expected 4 fields"),
        (csv("1,x,7,0"), Format::Csv, "line 3: found `x`, expected a latitude in degrees"),
        (
            csv("1,95,7,0"),
            Format::Csv,
            "line 3: found `the latitude 95`, expected -90 to 90 degrees",
        ),
        (csv("0,47,7,0"), Format::Csv, "line 3: found `0`, expected a time later"),
        (csv("inf,47,7,0"), Format::Csv, "line 3: found `inf`, expected a time in seconds"),
        ("<gpx><trk></gpx>".into(), Format::Gpx, "line 1: "),
        ("<kml/>".into(), Format::Gpx, "found `kml`, expected the element `gpx`"),
        ("<gpx/>".into(), Format::Gpx, "expected points `trkpt`"),
        (gpx("<trkpt lat='0'/>"), Format::Gpx, "line 3: found `a point without `time``"),
        (
            gpx("<trkpt lat='0'><time>2026-01-01T00:00:11Z</time></trkpt>"),
            Format::Gpx,
            "`lat` and `lon`",
        ),
        (
            gpx("<trkpt lat='0' lon='0'><time>noon</time></trkpt>"),
            Format::Gpx,
            "line 3: found `noon`, expected a time such as",
        ),
        (
            gpx("<trkpt lat='0' lon='0'><time>2026-01-01T00:00:09Z</time></trkpt>"),
            Format::Gpx,
            "not before",
        ),
        (
            "<kml><LineString><coordinates>7</coordinates></LineString></kml>".into(),
            Format::Kml,
            "found `7`, expected `longitude,latitude,altitude`",
        ),
        (
            "<kml><Track><when>2026-01-01T00:00:09Z</when></Track></kml>".into(),
            Format::Kml,
            "found `1 `when` and 0 `gx:coord``",
        ),
    ] {
        let error = read(&text, format, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
    }
}

#[test]
fn deeply_nested_elements_do_not_overflow_the_stack() {
    let deep = format!("<gpx>{}{}</gpx>", "<a>".repeat(100_000), "</a>".repeat(100_000));
    assert!(read(&deep, Format::Gpx, None).is_err());
    let open = "<gpx>".repeat(100_000);
    assert!(read(&open, Format::Gpx, None).is_err());
}

/// A valid text with pieces of other texts spliced in.
fn spliced() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        ".{0,12}",
        Just("<trkpt lat='1e308' lon='-0'>".to_string()),
        Just("<![CDATA[".to_string()),
        Just("&lol;".to_string()),
        Just("-99999999999999999999,nan,inf,1e999".to_string()),
        Just("2026-01-01T00:00:00-".to_string()),
    ];
    let good = prop_oneof![Just(CSV), Just(GPX), Just(KML), Just(LINE), Just(PLAN)];
    (good, proptest::collection::vec((any::<prop::sample::Index>(), 0..40usize, piece), 0..6))
        .prop_map(|(good, changes)| {
            let mut characters: Vec<char> = good.chars().collect();
            for (place, cut, piece) in changes {
                let from = place.index(characters.len() + 1);
                let to = (from + cut).min(characters.len());
                characters.splice(from..to, piece.chars());
            }
            characters.into_iter().collect()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_panics(text in prop_oneof![spliced(), "\\PC{0,60}"], fast in any::<bool>()) {
        let speed = fast.then_some(Speed::from_metres_per_second(50.0));
        for format in Format::ALL {
            if let Ok(track) = read(&text, format, speed) {
                for at in [i64::MIN, -1, 0, 5_000_000_000, i64::MAX] {
                    track.at(Duration::from_nanos(at));
                }
            }
        }
    }
}
