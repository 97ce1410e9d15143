//! Tests of satellites of paths and links.

use std::fs;
use std::path::Path;

use skybraid_link::{Cause, DelaySource, Direction, Fate, Link};
use skybraid_scenario::{Scenario, load_orbit};
use skybraid_units::{Bytes, Duration, Instant, Seed};

use crate::common::first_line;

const PLACES: &str = "[node.vehicle]\n\
                      track = { circle = { centre = [47.0, 7.4], radius = '20km', speed = '40m/s' } }\n\
                      [node.ground]\n\
                      position = { latitude = 45.46, longitude = 9.19 }\n";
const PATH: &str = "[path.sat]\nuplink.rate = '1Gbit/s'\ndownlink.rate = '1Gbit/s'\n";

fn parse(text: &str) -> Result<Scenario, String> {
    let text = format!("duration = '600s'\n{text}");
    Scenario::parse(&text, Path::new("x.toml"), &[]).map_err(|error| first_line(&error.to_string()))
}

fn with_orbit(orbit: &str) -> Result<Scenario, String> {
    parse(&format!("{PLACES}{PATH}[path.sat.orbit]\n{orbit}"))
}

fn admit(link: &mut Link, at: Instant) -> Fate {
    link.admit(at, Bytes::new(125))
}

#[test]
fn a_packet_has_the_delay_of_the_serving_satellite() {
    let scenario = with_orbit("constellation = 'starlink-550'\nchoice = 'epoch'\n").unwrap();
    let sat = &scenario.links[0];
    let service = &sat.orbit.as_ref().unwrap().service;
    assert!(service.gaps.is_empty() && service.handovers.len() > 10);
    for direction in Direction::ALL {
        let config = if direction == Direction::Uplink { &sat.uplink } else { &sat.downlink };
        let mut link = Link::new(config, "sat", direction.name(), Seed(1));
        for samples in service.samples.windows(2).step_by(11) {
            // 125 bytes take a microsecond; the delay is that of the sample at their departure.
            let Fate::Delivered { at } = admit(&mut link, samples[0].at) else { panic!("lost") };
            let expected = samples[0].at + Duration::from_micros(1) + samples[0].delay;
            assert!((at - expected).abs() <= Duration::from_nanos(1), "{at} {expected}");
        }
    }
}

#[test]
fn gaps_are_outages_and_handovers_are_halts() {
    let shell = "walker = '53deg:80/10/4@550km'\nmask = '15deg'\nhandover_gap = '300ms'\n";
    let scenario = with_orbit(shell).unwrap();
    let sat = &scenario.links[0];
    let service = &sat.orbit.as_ref().unwrap().service;
    assert!(!service.gaps.is_empty());
    assert_eq!(sat.uplink.down, service.gaps);
    assert_eq!(sat.uplink.halts, sat.downlink.halts);
    let halts: Vec<_> =
        service.handovers.iter().map(|handover| (handover.at, handover.gap)).collect();
    assert_eq!(sat.uplink.halts, halts);
    let mut link = Link::new(&sat.uplink, "sat", "uplink", Seed(1));
    let (from, length) = service.gaps[0];
    let lost = admit(&mut link, from + length / 2);
    assert!(matches!(lost, Fate::Lost { cause: Cause::Outage, .. }), "{lost:?}");
    assert!(matches!(admit(&mut link, from + length), Fate::Delivered { .. }));
}

#[test]
fn satellites_replace_a_presets_delay_and_keep_its_losses() {
    let text = "elevation_loss = [['25deg', '2%'], ['90deg', '1%']]\nchoice = 'nearest'\n\
                constellation = 'starlink'\n";
    let path = "[path.sat]\npreset = 'starlink'\n[path.sat.orbit]\n";
    let scenario = parse(&format!("{PLACES}{path}{text}")).unwrap();
    let preset = parse(&format!("{PLACES}[path.sat]\npreset = 'starlink'\n")).unwrap();
    let (own, plain) = (&scenario.links[0].uplink, &preset.links[0].uplink);
    assert!(own.reconfiguration.is_none() && plain.reconfiguration.is_some());
    assert!(matches!(own.delay, DelaySource::Series(_)));
    assert_eq!(own.losses.len(), plain.losses.len() + 1);
    assert_eq!((&own.rate, &own.queue), (&plain.rate, &plain.queue));
    assert!(preset.links[0].orbit.is_none());
}

#[test]
fn each_pair_of_nodes_has_its_own_satellite_service() {
    let text = "[node.drone]\ncount = 2\nkind = 'vehicle'\nposition = { latitude = 47, longitude = 7 }\n\
                [node.core]\nposition = { latitude = 46, longitude = 8 }\n\
                [link.sat]\nfrom = 'core'\nto = 'drone'\nrate = '10Mbit/s'\n\
                [link.sat.orbit]\ngeostationary = '13deg'\n";
    let scenario = parse(text).unwrap();
    assert_eq!(scenario.links.len(), 2);
    for link in &scenario.links {
        let service = &link.orbit.as_ref().unwrap().service;
        let delays = service.delays().unwrap();
        // 35 786 km up and down take 239 ms from right below, and 12 % more at 36° of elevation.
        assert!(delays.min > Duration::from_millis(250), "{delays:?}");
        assert!(delays.max < Duration::from_millis(260), "{delays:?}");
        assert_eq!(delays.min, delays.max);
        assert_eq!(service.serving.len(), 1);
    }
}

#[test]
fn element_sets_are_inputs_of_the_scenario() {
    let folder = std::env::temp_dir().join(format!("skybraid-orbits-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let iss = "ISS (ZARYA)\n\
               1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992\n\
               2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008\n";
    fs::write(folder.join("iss.tle"), iss).unwrap();
    fs::write(folder.join("bad.tle"), iss.replace("51.6461", "51.6462")).unwrap();
    let read = |name: &str| {
        let orbit = format!("elements = '{name}'\nstart = 2020-07-13T00:00:00Z\n");
        let text = format!("duration = '6h'\n{PLACES}{PATH}[path.sat.orbit]\n{orbit}");
        Scenario::parse(&text, &folder.join("x.toml"), &[])
            .map_err(|error| first_line(&error.to_string()))
    };
    let scenario = read("iss.tle").unwrap();
    assert_eq!(scenario.inputs.len(), 1);
    assert_eq!(scenario.warnings, Vec::<String>::new());
    assert_eq!(scenario.inputs[0].file, "iss.tle");
    let service = &scenario.links[0].orbit.as_ref().unwrap().service;
    assert!(service.serving.iter().all(|serving| serving.satellite == "ISS (ZARYA)"));
    let error = read("bad.tle").unwrap_err();
    assert!(error.contains("bad.tle:3: found `2 25544  51.6462"), "{error}");
    assert!(error.contains("expected the checksum 9 in column 69"), "{error}");
    assert!(error.ends_with("(named by path.sat.orbit.elements)"), "{error}");
    assert!(read("none.tle").unwrap_err().contains("none.tle: there is no such file"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn invalid_values_are_reported_at_their_keys() {
    for (text, expected) in [
        (
            format!("{PATH}[path.sat.orbit]\nconstellation = 'iridium'\n"),
            "path.sat.orbit: found an end without a place, expected `position` or `track` of both",
        ),
        (
            format!(
                "{PLACES}[path.sat]\npreset = 'geo'\ndelay = '5ms'\norbit.geostationary = '0deg'\n"
            ),
            "path.sat.delay: found `orbit` too, which gives it over time; expected either",
        ),
        (
            format!("{PLACES}{PATH}reconfiguration = 'off'\norbit.geostationary = '0deg'\n"),
            "path.sat.reconfiguration: found `orbit` too",
        ),
        (
            format!("{PLACES}{PATH}orbit.constellation = 'iridum'\n"),
            "path.sat.orbit.constellation: found \"iridum\", expected one of starlink",
        ),
        (
            format!("{PLACES}{PATH}orbit = {{ constellation = 'o3b', choise = 'nearest' }}\n"),
            "path.sat.orbit.choise: unknown key `choise`; did you mean `choice`?",
        ),
        (
            format!("{PLACES}{PATH}orbit = {{ constellation = 'o3b', choice = 'next' }}\n"),
            "path.sat.orbit.choice: ",
        ),
        (
            format!("{PLACES}{PATH}orbit = {{ constellation = 'o3b', start = 'now' }}\n"),
            "expected a date and time, for example 2026-01-01T00:00:00Z",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_terminal_without_a_scenario_needs_place_and_gateway() {
    let request = |text: &str| {
        load_orbit(text, Path::new("x.toml")).map_err(|error| first_line(&error.to_string()))
    };
    let orbit = "duration = '10s'\norbit = { geostationary = '13deg' }\n";
    let here = "terminal.position = { latitude = 47, longitude = 7 }\n";
    let error = request(&format!("{orbit}{here}")).unwrap_err();
    assert!(
        error.contains("orbit.gateways: found nothing, expected at least one gateway"),
        "{error}"
    );
    let error = request(&format!("{orbit}[terminal]\n")).unwrap_err();
    assert!(error.contains("terminal: expected `position` or `track`"), "{error}");
    let there = "other.position = { latitude = 46, longitude = 8 }\n";
    let found = request(&format!("{orbit}{here}{there}")).unwrap();
    assert_eq!(found.service.serving.len(), 1);
}

#[test]
fn a_link_with_an_es_n0_adapts_its_coding_to_the_rain() {
    let access = "uplink.rate = '1Gbit/s'\ndownlink.access = { kind = 'dvb', frame = '1ms', \
                  symbol_rate = '10MHz', es_n0 = { clear_sky = '17dB' } }\n";
    let orbit = "[path.sat.orbit]\nconstellation = 'starlink-550'\n\
                 rain = { rate = '25mm/h', frequency = '20GHz', margin = '1dB', from = '100s' }\n";
    let scenario = parse(&format!("{PLACES}[path.sat]\n{access}{orbit}")).unwrap();
    let sat = &scenario.links[0];
    // Without an access layer the rain is above the margin, and the link down.
    assert!(!sat.uplink.down.is_empty());
    assert!(sat.downlink.down.is_empty());
    let mut link = Link::new(&sat.downlink, "sat", "downlink", Seed(1));
    let dry = link.conditions(Instant::from_millis(50_000)).rate.as_bps();
    let wet = link.conditions(Instant::from_millis(150_000));
    // 32APSK 9/10 in the clear: 10 Mbaud at 4.453 bits.
    assert!(dry.abs_diff(44_530_000) < 10_000, "{dry}");
    assert!(wet.rate.as_bps() < dry / 2 && wet.up && wet.loss.ratio() == 0.0, "{wet:?}");
}
