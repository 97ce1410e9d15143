//! Families of flights, and correlation between paths.

use skybraid_host::record::Record;
use skybraid_link::{Link, LinkConfig, RateSource};
use skybraid_scenario::Scenario;
use skybraid_units::{Duration, Instant, Rate, Seed};

const FLOW: &str = "[flow.control]\nfrom = \"ground\"\ntraffic = { kind = \"cbr\", rate = \"1Mbit/s\", packet = \"125B\" }\n";

fn scenario(text: &str) -> Result<Scenario, String> {
    let text = format!("duration = \"1min\"\n{text}\n{FLOW}");
    Scenario::parse(&text, "x.toml".as_ref(), &[]).map_err(|error| error.to_string())
}

fn uplinks(scenario: &Scenario, seed: u64) -> Vec<LinkConfig> {
    let setup = scenario.setup(Seed(seed), Record::default());
    setup.links.into_iter().map(|link| link.uplink).collect()
}

fn median(link: &LinkConfig) -> f64 {
    let RateSource::Process(process) = &link.rate else { panic!("found {:?}", link.rate) };
    process.value(0.5) * 1e-6
}

#[test]
fn each_run_draws_its_flight_and_the_scenario_overrides_it() {
    let families = [
        "lte-drone-urban",
        "lte-drone-rural",
        "lte-car",
        "5g-road",
        "starlink-car",
        "starlink-ship",
    ];
    for family in families {
        let read =
            scenario(&format!("[path.a]\npreset = \"{family}\"\ndownlink.rate = \"9Mbit/s\""))
                .unwrap();
        assert!(read.is_random());
        let medians: Vec<f64> = (0..20).map(|seed| median(&uplinks(&read, seed)[0])).collect();
        assert!(medians.iter().any(|other| *other != medians[0]), "{family}: {medians:?}");
        assert_eq!(median(&uplinks(&read, 3)[0]), medians[3]);
        let own = RateSource::Constant(Rate::from_mbps(9.0));
        assert_eq!(read.links[0].downlink.rate, own);
        let fixed =
            scenario(&format!("[path.a]\npreset = \"{family}\"\ndraw = \"median\"")).unwrap();
        assert_eq!(uplinks(&fixed, 1), uplinks(&fixed, 2));
    }
}

#[test]
fn a_preset_may_be_a_file_next_to_the_scenario() {
    let folder = std::env::temp_dir().join(format!("skybraid-families-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("fit.toml", "uplink.rate = \"5Mbit/s\"\ndownlink.rate = \"7Mbit/s\"\n");
    write("broken.toml", "mtu = \"1500B\"\nuplink.rat = \"5Mbit/s\"\n");
    let text = |file: &str| format!("duration = \"1s\"\n[path.a]\npreset = \"{file}\"\n{FLOW}");
    let read = |file: &str| Scenario::parse(&text(file), &folder.join("x.toml"), &[]);
    let found = read("fit.toml").unwrap();
    assert_eq!(found.links[0].uplink.rate, RateSource::Constant(Rate::from_mbps(5.0)));
    assert_eq!(found.inputs[0].file, "fit.toml");
    let error = read("broken.toml").unwrap_err().to_string();
    assert!(error.contains("broken.toml:2") && error.contains("rat"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn correlated_paths_have_slow_rates_with_their_rank_correlation() {
    let rate =
        "{ process = [[0, \"0Mbit/s\"], [1, \"100Mbit/s\"]], slow = \"5s\", slow_share = 1 }";
    let paths: String = ["a", "b", "c"]
        .map(|name| format!("[path.{name}]\nuplink.rate = {rate}\ndownlink.rate = {rate}\n"))
        .concat();
    let text =
        format!("{paths}[[correlation]]\npaths = [\"a\", \"b\"]\nslow = 0.4\ntime = \"5s\"\n");
    let read = scenario(&text).unwrap();
    let configs = uplinks(&read, 1);
    let series = |number: usize| {
        let name = &read.links[number].name;
        let mut link = Link::new(&configs[number], name, "uplink", Seed(1));
        let at = |second| link.conditions(Instant::ZERO + Duration::from_secs(second)).rate;
        (0..200_000).map(at).map(|rate| rate.as_bps() as f64 * 1e-8 - 0.5).collect::<Vec<_>>()
    };
    let [a, b, c] = [0, 1, 2].map(series);
    // The variance of a uniform distribution on 0..1 is 1/12. 200 000 s with a correlation time of 5 s are 20 000
    // independent values.
    let correlation = |a: &[f64], b: &[f64]| {
        a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64 * 12.0
    };
    assert!((correlation(&a, &b) - 0.4).abs() < 0.03, "{}", correlation(&a, &b));
    assert!(correlation(&a, &c).abs() < 0.03, "{}", correlation(&a, &c));
}

#[test]
fn correlated_paths_draw_their_flights_together() {
    let paths = "[path.a]\npreset = \"lte-car\"\n[path.b]\npreset = \"lte-car\"\n";
    let same = |strength: &str| {
        let text =
            format!("{paths}[[correlation]]\npaths = [\"a\", \"b\"]\nflights = {strength}\n");
        let read = scenario(&text).unwrap();
        let equal = |seed: &u64| {
            let links = uplinks(&read, *seed);
            let tables = links.iter().map(|link| match &link.rate {
                RateSource::Process(process) => process.quantiles.clone(),
                rate => panic!("found {rate:?}"),
            });
            let tables: Vec<_> = tables.collect();
            tables[0] == tables[1]
        };
        (0..200).filter(equal).count()
    };
    assert_eq!(same("1.0"), 200);
    assert_eq!(same("[1.0, 1.0]"), 200);
    // Twenty flights: the same one by chance in a twentieth of the runs.
    assert!((2..30).contains(&same("0.0")));
}

#[test]
fn an_impossible_correlation_is_named() {
    let paths = "[path.a]\npreset = \"lte-car\"\n[path.b]\nrate = \"9Mbit/s\"\n[[correlation]]\npaths = [\"a\", \"b\"]\n";
    for (keys, problem) in [
        ("", "`slow`, `flights` or both"),
        ("slow = 0.4", "expected a rate with a `process` in `b`"),
        ("flights = 0.4", "expected a family of flights in `b`"),
        ("slow = 1.4", "expected a rank correlation, 0 to 1"),
        ("slow = [0.5]", "found 1 loadings for 2 paths"),
        ("slow = [0.5, -2.0]", "expected loadings from -1 to 1"),
        ("slow = 0.1\ntime = \"0s\"", "expected a time above zero"),
    ] {
        let error = scenario(&format!("{paths}{keys}")).unwrap_err();
        assert!(error.contains(problem), "{keys}: {error}");
    }
}
