//! Tests of valid scenarios: the shipped ones, the presets, and the example of the design.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use skybraid_link::{Change, RateSource, presets};
use skybraid_scenario::{Host, Requirement, Scenario, ScenarioError};
use skybraid_transport::reordering::{EngineConfig, ReorderingConfig};
use skybraid_transport::{Class, Protocol};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed};

fn parse(text: &str) -> Scenario {
    Scenario::parse(text, Path::new("x.toml"), &[]).unwrap()
}

fn set(text: &str, overrides: &[(&str, &str)]) -> Scenario {
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    Scenario::parse(text, Path::new("x.toml"), &overrides).unwrap()
}

/// The example of the design with existing algorithms and without its trace.
const FLIGHT: &str = r#"
name = "Remote piloting over LTE and Starlink"
duration = "30min"
seed = 7

[path.lte]
preset = "lte-aerial"                     # fills in every key below
uplink.loss = { uniform = "0.006%" }
handover = { interval = { mean = "20.04s" }, interruption = { mixture = "lte-aerial" } }

[path.leo]
preset = "starlink"
cost = 5
backup = true

[flow.video]
from = "vehicle"
traffic = { kind = "cbr", rate = "10Mbit/s", packet = "1200B" }
transport = { protocol = "mptcp", scheduler = "low_rtt", congestion = "reno" }
require = { deadline = "300ms", share = "90%" }

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "redundant", paths = ["leo", "lte"] }
require = [
    { deadline = "300ms", share = "99.999%" },
    { deadline = "200ms", share = "99%", goodput = "0.9Mbit/s" },
    { delay = "100ms", percentile = "95%" },
]

[[event]]
at = "10min"
path.leo.down = "20s"

[[event]]
at = "11min"
path.lte.uplink.rate = "5Mbit/s"
path.leo.loss = { uniform = "1%" }
"#;

#[test]
fn the_example_of_the_design_is_read() {
    let flight = parse(FLIGHT);
    assert_eq!(flight.name, "Remote piloting over LTE and Starlink");
    assert_eq!(flight.duration, Duration::from_secs(1800));
    assert_eq!(flight.seed, Seed(7));
    assert_eq!(flight.warnings, Vec::<String>::new());
    let names: Vec<&str> = flight.links.iter().map(|path| path.name.as_str()).collect();
    assert_eq!(names, ["lte", "leo"], "paths keep the order of the file");

    let (lte, leo) = (&flight.links[0], &flight.links[1]);
    assert!(lte.uplink.handover.is_some());
    assert!(lte.uplink.drx.is_some(), "the preset fills in what the scenario leaves out");
    assert_eq!((leo.info.cost, leo.info.backup, leo.info.mtu.get()), (5, true, 1500));

    let video = &flight.flows[0];
    assert_eq!(
        (video.from, video.class, &video.interfaces),
        (Host::Vehicle, Class::Video, &vec![Some(0), Some(1)])
    );
    assert_eq!(video.transport.protocol, Protocol::Mptcp);
    assert_eq!(video.stop, Instant::ZERO + flight.duration);
    let control = &flight.flows[1];
    assert_eq!((control.from, control.class), (Host::Ground, Class::Control));
    assert_eq!(control.interfaces, [Some(1), Some(0)], "paths keep the order of the transport");
    assert_eq!(control.deadline, Some(Duration::from_millis(200)), "the smallest one");
    let share = |text| Probability::from_text(text).unwrap();
    let ms = Duration::from_millis;
    assert_eq!(
        control.requirements,
        [
            Requirement::Share { deadline: Some(ms(300)), share: share("99.999%") },
            Requirement::Share { deadline: Some(ms(200)), share: share("99%") },
            Requirement::Goodput { rate: Rate::from_bps(900_000) },
            Requirement::Delay { percentile: share("95%"), delay: ms(100) },
        ]
    );
}

#[test]
fn events_become_outages_and_changes_of_paths() {
    let flight = parse(FLIGHT);
    let at = |minutes: i64| Instant::ZERO + Duration::from_secs(60 * minutes);
    let (lte, leo) = (&flight.links[0], &flight.links[1]);
    for link in [&leo.uplink, &leo.downlink] {
        assert_eq!(link.down, [(at(10), Duration::from_secs(20))]);
        assert!(matches!(link.changes.as_slice(), [(from, Change::Loss(_))] if *from == at(11)));
    }
    let slow = Change::Rate(RateSource::Constant(Rate::from_mbps(5.0)));
    assert_eq!(lte.uplink.changes, [(at(11), slow)]);
    assert!(lte.downlink.changes.is_empty());
}

#[test]
fn mp_dccp_and_its_reordering_are_read_in_every_form() {
    let transport = |keys: &str| {
        let text = format!(
            "duration = '1s'\n[path.a]\nuplink.rate = '1Mbit/s'\ndownlink.rate = '1Mbit/s'\n\
             [flow.x]\nfrom = 'ground'\n\
             traffic = {{ kind = 'cbr', rate = '1Mbit/s', packet = '1000B' }}\n\
             transport = {{ {keys} }}"
        );
        parse(&text).flows[0].transport.clone()
    };
    for name in ["mp_dccp", "mp-dccp"] {
        let read = transport(&format!("protocol = '{name}', congestion = 'ccid2', tx_queue = 20"));
        assert_eq!((read.protocol, read.tx_queue), (Protocol::MpDccp, Some(20)));
    }
    let reordering = |form: &str| transport(&format!("reordering = {form}")).reordering.clone();
    let fifteen = ReorderingConfig::fixed(Duration::from_millis(15));
    for form in ["'fixed'", "{ fixed = '15ms' }", "{ name = 'fixed', timeout = '15ms' }"] {
        assert_eq!(reordering(form), fifteen, "{form}");
    }
    for form in ["'none'", "'default'", "{ name = 'none' }"] {
        assert_eq!(reordering(form), ReorderingConfig::none(), "{form}");
    }
    let EngineConfig::Equalised(read) = reordering("{ name = 'equalised', max = '80ms' }").0 else {
        panic!("another engine");
    };
    assert_eq!(read.0.max, Duration::from_millis(80));
}

#[test]
fn missing_keys_have_defaults() {
    let short = parse(
        "duration = '1s'\n[path.a]\nuplink.rate = '1Mbit/s'\ndownlink.rate = '1Mbit/s'\n\
         [flow.x]\nfrom = 'ground'\ntraffic = { kind = 'file', size = '1MB' }",
    );
    assert_eq!((short.name.as_str(), short.seed), ("x", Seed(1)));
    let flow = &short.flows[0];
    assert_eq!((flow.class, flow.deadline, flow.start), (Class::Data, None, Instant::ZERO));
    assert!(flow.requirements.is_empty());
    assert_eq!(short.links[0].uplink.mtu, Bytes::new(1500));
}

#[test]
fn overrides_replace_and_add_values_and_keep_comments() {
    let flight = set(
        FLIGHT,
        &[
            ("duration", "20min"),
            ("path.lte.preset", "lte-ground"),
            ("path.lte.uplink.queue.packets", "7"),
            ("flow.control.transport.scheduler", "single"),
            ("flow.control.require.1.deadline", "50ms"),
            ("event.0.at", "5min"),
            ("path.sat", "{ preset = 'geo' }"),
            ("seed", "9"),
        ],
    );
    assert_eq!((flight.duration, flight.seed), (Duration::from_secs(1200), Seed(9)));
    assert_eq!(flight.links.len(), 3);
    assert_eq!(flight.flows[1].deadline, Some(Duration::from_millis(50)));
    assert_eq!(flight.flows[1].transport.scheduler.name(), "single");
    assert_eq!(flight.links[1].uplink.down[0].0, Instant::ZERO + Duration::from_secs(300));
    let written = "preset = \"lte-ground\"                     # fills in every key below\n";
    assert!(flight.toml().contains(written), "{}", flight.toml());
    assert_eq!(parse(flight.toml()), flight);
}

#[test]
fn a_path_that_no_flow_uses_causes_a_warning() {
    let two = "duration = '1s'\n[path.a]\nrate = '1Mbit/s'\n[path.b]\nrate = '1Mbit/s'\n";
    let flow = "[flow.x]\nfrom = 'vehicle'\ntraffic = { kind = 'ping', every = '100ms' }\n";
    assert_eq!(parse(two).warnings, Vec::<String>::new());
    assert_eq!(parse(&format!("{two}{flow}")).warnings, Vec::<String>::new());
    assert_eq!(
        parse(&format!("{two}{flow}transport = {{ paths = ['b'] }}")).warnings,
        ["x.toml:2:7: path.a: no flow uses this path"]
    );
}

#[test]
fn a_deadline_below_the_propagation_delay_causes_a_warning() {
    let late = "duration = '1s'\n\
                [path.a]\nuplink = { rate = '1Mbit/s', delay = '40ms' }\ndownlink.rate = '1Mbit/s'\n\
                [path.b]\nuplink = { rate = '1Mbit/s', delay = '30ms' }\ndownlink.rate = '1Mbit/s'\n\
                [flow.x]\nfrom = 'vehicle'\ntraffic = { kind = 'ping', every = '100ms' }\n\
                require = { deadline = '20ms', share = '90%' }";
    assert_eq!(
        parse(late).warnings,
        [
            "flow.x.require: no message can arrive within 20ms, since every path delays it by 30ms or \
          more"
        ]
    );
    assert!(set(late, &[("flow.x.require.deadline", "30ms")]).warnings.is_empty());
    assert!(set(late, &[("flow.x.from", "ground")]).warnings.is_empty());
}

#[test]
fn every_preset_defines_a_path_in_both_directions() {
    for preset in presets::ALL {
        let mut text = FLIGHT.replace("lte-aerial\"       ", &format!("{}\"       ", preset.name));
        if preset.text.contains(".access") {
            let error = Scenario::parse(&text, Path::new("x.toml"), &[]).unwrap_err().to_string();
            assert!(error.contains("path.lte.uplink.rate: an event sets it"), "{error}");
            text = text.replace("path.lte.uplink.rate = \"5Mbit/s\"\n", "");
        }
        let scenario = parse(&text);
        assert_eq!(scenario.links[0].config.preset.as_deref(), Some(preset.name));
    }
}

/// Returns whether a file belongs to a study and is not a scenario: `study.toml` and experiments such as
/// `PED-E09.toml`.
fn is_of_a_study(file: &Path) -> bool {
    let name = file.file_stem().unwrap().to_string_lossy();
    let experiment = name.starts_with(|first: char| first.is_ascii_uppercase());
    name == "study" || name == "index" || experiment && file.with_file_name("study.toml").exists()
}

#[test]
fn every_shipped_scenario_is_read_back_from_its_text() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut folders = vec![root];
    let (mut found, mut wrong) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for file in entries {
            if file.is_dir() {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "toml")
                && !is_of_a_study(&file)
            {
                found += 1;
                match Scenario::load(&file, &[]) {
                    Ok(scenario) => {
                        let again = Scenario::parse(scenario.toml(), &file, &[]).unwrap();
                        assert_eq!(again, scenario, "{}", file.display());
                    }
                    Err(ScenarioError::Unreadable { file: input, problem, .. })
                        if problem == "there is no such file" =>
                    {
                        println!("skipped {}: {input} is absent", file.display());
                    }
                    Err(error) => wrong.push(error.to_string()),
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(found >= 3, "found {found} scenarios");
}

/// Pieces of scenarios, so that random texts pass the first checks.
const PIECES: [&str; 28] = [
    "duration = '1s'\n",
    "duration = 1\n",
    "[path.a]\n",
    "[path.b]\npreset = 'geo'\n",
    "[flow.x]\n",
    "from = 'vehicle'\n",
    "traffic = { kind = 'bulk' }\n",
    "uplink.rate = '1Mbit/s'\n",
    "downlink.rate = '1Mbit/s'\n",
    "uplink.delay = { mean = '1ms', sd = '2ms' }\n",
    "uplink = {}\n",
    "[[event]]\nat = '0.5s'\n",
    "path.a.down = '1ms'\n",
    "path.b.uplink.loss = []\n",
    "x = 1\n",
    "require = [{ share = '9%' }]\n",
    "transport = { protocol = 'tcp' }\n",
    "handover = 'off'\n",
    "\"\" = { a.b = [1, { c = nan }] }\n",
    "path = 3\n",
    "flow = []\n",
    "name = 1979-05-27\n",
    "🦀 = 1\n",
    "uplink.queue = { codel = {} }\n",
    "down = [['0s','1s']]\n",
    "uplink.loss = { bit_errors = 2 }\n",
    "seed = -1\n",
    "uplink.rate = { steps = [['0s', '1Mbit/s'], ['0s', '2Mbit/s']] }\n",
];

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = Scenario::parse(&text, Path::new("absent/x.toml"), &[]);
    }

    #[test]
    fn no_pieces_panic_and_valid_ones_are_read_back(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..14),
        key in "(path\\.a\\.uplink\\.rate|seed|event\\.0\\.at|flow\\.x\\.\\PC{0,6}|\\PC{0,12})",
        value in "(\"1Mbit/s\"|3|\\PC{0,12})",
    ) {
        let text = pieces.concat();
        for overrides in [vec![], vec![(key, value)]] {
            if let Ok(scenario) = Scenario::parse(&text, Path::new("absent/x.toml"), &overrides) {
                let again = Scenario::parse(scenario.toml(), Path::new("absent/x.toml"), &[]);
                prop_assert_eq!(again.unwrap(), scenario);
            }
        }
    }

    #[test]
    fn changing_any_byte_of_a_scenario_never_panics(place in 0..FLIGHT.len(), letter in "\\PC") {
        let mut text = FLIGHT.to_string();
        if text.is_char_boundary(place) {
            text.insert_str(place, &letter);
            let _ = Scenario::parse(&text, Path::new("absent/x.toml"), &[]);
        }
    }
}

#[test]
fn parallel_tcp_uses_all_paths() {
    for paths in [r#"["leo"]"#, r#"["leo", "lte"]"#] {
        let transport = format!(r#"{{ protocol = "parallel_tcp", paths = {paths} }}"#);
        let flight = set(FLIGHT, &[("flow.video.transport", &transport)]);
        assert_eq!(flight.flows[0].transport.protocol, Protocol::ParallelTcp);
        let interfaces = if paths.contains("lte") { vec![Some(1), Some(0)] } else { vec![Some(1)] };
        assert_eq!(flight.flows[0].interfaces, interfaces);
    }
}

#[test]
fn a_flow_writes_each_message_once_by_default() {
    let traffic = "traffic = { kind = 'cbr', rate = '800bit/s', packet = '50B' }";
    let whole = format!("{{ from = 'vehicle', with = 'video', {traffic} }}");
    let riding = [("flow.x", whole.as_str())];
    assert_eq!(set(FLIGHT, &riding).flows[2].copies, 1);
    let copied = set(FLIGHT, &[&riding[..], &[("flow.x.copies", "2")]].concat());
    assert_eq!((copied.flows[2].copies, copied.flows[0].copies), (2, 1));
    assert_eq!(copied.flows[2].rides_with, Some(0));
}

#[test]
fn scenarios_that_differ_only_in_the_sweep_are_the_same() {
    let swept =
        format!("{FLIGHT}\n[sweep]\nvary = {{ \"path.lte.uplink.rate\" = [\"1Mbit/s\"] }}\n");
    assert_eq!(parse(FLIGHT).toml().trim(), parse(&swept).toml().trim());
}

#[test]
fn a_bulk_source_needs_a_transport_with_a_limit() {
    let flown = |protocol: &str| {
        let transport = format!("{{ protocol = '{protocol}' }}");
        let keys =
            [("flow.video.traffic", "{ kind = 'bulk' }"), ("flow.video.transport", &transport)];
        let overrides: Vec<(String, String)> =
            keys.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Scenario::parse(FLIGHT, Path::new("x.toml"), &overrides)
    };
    for protocol in ["mptcp", "mp_dccp"] {
        assert!(flown(protocol).is_ok(), "{protocol}");
    }
    let refused = flown("udp").unwrap_err().to_string();
    assert!(refused.contains("`bulk` writes as much as the transport takes"), "{refused}");
}

/// Scenario of one path whose control flow requires `require`.
fn requiring(require: &str) -> Result<Scenario, ScenarioError> {
    let text = format!(
        "duration = \"10s\"\n[path.lte]\nrate = \"1Mbit/s\"\n[flow.control]\nfrom = \"ground\"\n\
         traffic = {{ kind = \"cbr\", rate = \"8kbit/s\", packet = \"100B\" }}\n\
         transport = {{ protocol = \"udp\" }}\nrequire = {require}\n"
    );
    Scenario::parse(&text, Path::new("rlp.toml"), &[])
}

#[test]
fn a_required_link_performance_has_four_parameters() {
    let table = r#"{ rlp = { expiration = "3s", continuity = "99.9%", availability = "99.5%", integrity = "99.99%",
        lost_after = "5s", check_bits = 32 } }"#;
    let scenario = requiring(&table.replace('\n', " ")).unwrap();
    let flow = &scenario.flows[0];
    let Requirement::LinkPerformance(found) = flow.requirements[0] else { panic!() };
    let ms = Duration::from_millis;
    let share = |text: &str| Probability::from_text(text).unwrap();
    assert_eq!((found.expiration, found.lost_after), (ms(3000), ms(5000)));
    assert_eq!((found.continuity, found.availability), (share("99.9%"), Some(share("99.5%"))));
    assert_eq!((found.integrity, found.check_bits), (Some(share("99.99%")), Some(32)));
    // A message that expired is of no use to its receiver.
    assert_eq!(flow.deadline, Some(ms(3000)));
}

#[test]
fn a_required_link_performance_says_what_it_lacks() {
    for (rlp, expected) in [
        (r#"expiration = "3s""#, "continuity"),
        (r#"expiration = "0s", continuity = "99%""#, "rlp.expiration"),
        (r#"expiration = "3s", continuity = "99%", check_bits = 0"#, "expected 1 to 512"),
        (r#"expiration = "3s", continuity = "99%", lost = "1s""#, "lost_after"),
    ] {
        let error = requiring(&format!("{{ rlp = {{ {rlp} }} }}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
