//! Path tables: parsing, presets and validation.

use crate::common::{path, span};
use skybraid_link::presets;
use skybraid_link::{Direction, Link, PathConfig, RateSource, Switch};
use skybraid_testing::{Config, print_path};
use skybraid_units::{Bytes, Instant, Rate, Seed};

/// A path with every key in every form.
const EVERYTHING: &str = r#"
mtu = "1400B"
cost = 2
backup = true
down = [["10min", "20s"]]
uplink.rate = { steps = [["0s", "10Mbit/s"], ["5s", "2Mbit/s"]] }
uplink.delay = { mean = "20ms", sd = "4ms", plus = "10ms" }
uplink.reorder = true
uplink.queue = { codel = { target = "4ms" } }
uplink.loss = [
    { uniform = "0.006%" },
    { bit_errors = 1e-7 },
    { gilbert_elliott = { good_to_bad = "1%", bad_to_good = "20%" } },
    { on_off = { on = { mean = "6s", sd = "0.7071s" }, off = "1s", off_loss = "1%", on_bit_errors = 1e-8 } },
    { trace = "loss.csv", column = "loss", unit = "%", repeat = false },
]
uplink.harq = { loss = "0.5%", round_trip = "8ms", catch_up = "1Gbit/s" }
uplink.overhead = "24B"
downlink.rate = { trace = "rate.csv", column = "2", unit = "Mbit/s", time = "1", time_unit = "ms" }
downlink.delay = { trace = "delay.log", format = "ping", every = "200ms" }
downlink.queue = { bytes = "64kB" }
drx = { inactivity = "100ms" }
stall = { interval = { exponentials = [{ weight = 0.8, mean = "2s" }, { weight = 0.2, mean = "60s" }] }, length = { pareto = "50ms", alpha = 1.2, max = "10s" } }
outage = { interval = { mean = "10min" }, length = { median = "800ms", sigma = 1.2, max = "30s" } }
handover = { interval = { mean = "20.04s", sd = "4.872s" }, interruption = { mixture = "lte-aerial" } }

[reconfiguration]
delay_step = { min = "0ms", max = "20ms" }
interruption = { mixture = [{ weight = 0.8, mean = "2ms", sd = "0.25ms" }, { weight = 0.2, mean = "9ms", sd = "1ms" }] }
loss = "1%"
"#;

#[test]
fn a_path_parses_from_its_text() {
    let config = path(EVERYTHING);
    let printed = print_path(&config).unwrap();
    assert_eq!(path(&printed), config, "{printed}");
    let opportunities = path(
        "uplink.rate = { opportunities = \"f.up\" }\nuplink.queue = \"unlimited\"\ndrx = \"off\"",
    );
    assert_eq!(path(&print_path(&opportunities).unwrap()), opportunities);
}

#[test]
fn processes_parse_from_their_text() {
    let config = path(
        r#"
uplink.rate = { process = [[0, "0Mbit/s"], [0.5, "20Mbit/s"], [1, "60Mbit/s"]], slow = "40s", fast = "3s", slow_share = 0.6, step = "500ms", scale = 1.5, both_ways = 0.4 }
uplink.delay = { process = [[0, "0ms"], [0.99, "40ms"], [1, "300ms"]], plus = "30ms" }
downlink.rate = { process = [[0, "5Mbit/s"], [1, "60Mbit/s"]] }
downlink.delay = { quantiles = [[0, "1ms"], [1, "9ms"]], plus = "2ms" }
"#,
    );
    let printed = print_path(&config).unwrap();
    assert_eq!(path(&printed), config, "{printed}");
    let up = config.link(Direction::Uplink).unwrap();
    let RateSource::Process(rate) = &up.rate else { panic!("found {:?}", up.rate) };
    assert_eq!((rate.min(), rate.max(), rate.value(0.5)), (0.0, 9e7, 3e7));
    assert_eq!((rate.step, rate.fast), (span("500ms"), span("3s")));
    let link = Link::new(&up, "p", "uplink", Seed(1));
    assert_eq!(link.min_delay(), span("30ms"));
}

#[test]
fn a_path_lists_its_files_and_runs_once_they_are_loaded() {
    let mut config = path(EVERYTHING);
    let error = config.link(Direction::Downlink).unwrap_err().to_string();
    assert_eq!(error, "`downlink.rate`: expected the trace `rate.csv` to have been read");
    let mut names = Vec::new();
    for source in config.traces_mut() {
        names.push(source.file.trace.clone());
        let text = match source.file.trace.as_str() {
            "loss.csv" => "t,loss\n0,1\n1,2\n",
            "rate.csv" => "0,10\n500,20\n",
            _ => "64 bytes from a: icmp_seq=1 ttl=1 time=40 ms\n",
        };
        source.load(text).unwrap();
        assert!(source.is_loaded());
    }
    assert_eq!(names, ["loss.csv", "rate.csv", "delay.log"]);
    let down = config.link(Direction::Downlink).unwrap();
    let mut link = Link::new(&down, "p", "downlink", Seed(1));
    assert_eq!(link.conditions(Instant::from_millis(600)).rate, Rate::from_mbps(20.0));
    let delay = link.conditions(Instant::from_millis(600)).delay;
    assert!(
        delay >= span("20ms") && delay <= span("40ms"),
        "half a round trip and an epoch's step"
    );
    let up = config.link(Direction::Uplink).unwrap();
    assert!(!Link::new(&up, "p", "uplink", Seed(1)).keeps_order());
    assert_eq!(up.losses.len(), 5);
    assert_eq!(up.mtu, Bytes::new(1400));
}

#[test]
fn a_preset_provides_the_missing_keys_of_a_path() {
    let base = path(presets::find("lte-aerial").unwrap().text);
    let own = path(
        "uplink.rate = \"8Mbit/s\"\nuplink.harq = { loss = \"1%\" }\n\
         handover = { interval = { mean = \"5s\" } }\ndrx = \"off\"\ndownlink.harq = \"off\"",
    );
    let merged = own.with_defaults(&base);
    let up = merged.link(Direction::Uplink).unwrap();
    assert_eq!(up.rate, RateSource::Constant(Rate::from_mbps(8.0)));
    assert_eq!(up.harq.unwrap().round_trip, span("8ms"));
    assert_eq!(up.harq.unwrap().loss.ratio(), 0.01);
    assert_eq!(up.overhead, Bytes::new(24));
    assert!(up.drx.is_none());
    let handover = up.handover.unwrap();
    assert_eq!(handover.interval, skybraid_link::Distribution::exponential(span("5s")));
    assert_eq!(handover.at_least, span("1s"));
    let down = merged.link(Direction::Downlink).unwrap();
    assert_eq!(down.rate, RateSource::Constant(Rate::from_mbps(25.0)));
    assert!(down.harq.is_none());
    assert_eq!(merged.drx, Some(Switch::Off));
}

#[test]
fn every_preset_runs_and_gives_the_source_of_every_number() {
    for preset in presets::ALL {
        let config = path(preset.text);
        for direction in Direction::ALL {
            let link = config.link(direction);
            let link = link.unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            let mut link = Link::new(&link, preset.name, direction.name(), Seed(1));
            for n in 0..10_000 {
                link.admit(Instant::from_millis(n * 10), Bytes::new(1200));
            }
            assert!(link.keeps_order());
        }
        let mut commented = false;
        for line in preset.text.lines().map(str::trim) {
            let numbered = line.split('#').next().unwrap_or_default().contains(char::is_numeric);
            assert!(
                !numbered || line.contains('#') || commented,
                "{}: no source for `{line}`",
                preset.name
            );
            // A comment on its own line covers the lines up to the next blank one.
            commented = (commented || line.starts_with('#')) && !line.is_empty();
        }
        assert_eq!(presets::find(preset.name), Some(preset));
    }
    assert_eq!(presets::find("carrier-pigeon"), None);
}

#[test]
fn the_aerial_preset_has_the_published_numbers() {
    let config = path(presets::find("lte-aerial").unwrap().text);
    let down = config.link(Direction::Downlink).unwrap();
    let mut link = Link::new(&down, "lte", "downlink", Seed(1));
    let conditions = link.conditions(Instant::ZERO);
    assert_eq!((conditions.rate, conditions.delay), (Rate::from_mbps(25.0), span("45ms")));
    crate::common::near(conditions.loss.ratio(), 6e-5, 1e-12);
    let interval = down.handover.unwrap().interval;
    let skybraid_link::Shape::Normal { mean, sd } = interval.shape else { panic!("not normal") };
    crate::common::near(mean.as_secs_f64(), 20.04, 1e-9);
    crate::common::near(sd.as_secs_f64().powi(2), 23.74, 1e-3);
}

#[test]
fn the_starlink_preset_has_the_measured_total_loss() {
    let config = path(presets::find("starlink").unwrap().text);
    let mut link =
        Link::new(&config.link(Direction::Downlink).unwrap(), "leo", "downlink", Seed(1));
    let (mut loss, mut delay) = (0.0, 0.0);
    let count = 3_000_000;
    for n in 0..count {
        let conditions = link.conditions(Instant::from_millis(n * 10));
        loss += conditions.loss.ratio() / count as f64;
        delay += conditions.delay.as_millis_f64() / count as f64;
    }
    crate::common::near(loss, 0.0017, 2e-6);
    crate::common::near(delay, 28.4, 0.4);
}

#[test]
fn invalid_values_are_rejected_with_their_key() {
    let refused = |text: &str| match PathConfig::parse(text) {
        Err(error) => error,
        Ok(config) => config.link(Direction::Uplink).unwrap_err().to_string(),
    };
    for (text, part) in [
        ("", "`uplink.rate`: expected a rate"),
        ("uplink.rate = 10", "expected a rate with a unit"),
        ("uplink.rate = \"0bit/s\"", "`uplink.rate`: expected a rate above zero"),
        ("uplink.rat = \"1Mbit/s\"", "unknown field `rat`"),
        ("uplink.rate = { steps = [[\"1s\", \"1Mbit/s\"]] }", "the first time to be zero"),
        ("uplink.rate = { steps = [], trace = \"f\" }", "`steps` and `trace` exclude one another"),
        ("uplink.rate = { opportunities = \"f\", unit = \"ms\" }", "belong to `trace`"),
        (
            "uplink.rate = {}",
            "expected one of the keys `steps`, `process`, `trace`, `opportunities`",
        ),
        ("mtu = \"0B\"\nuplink.rate = \"1Mbit/s\"", "`mtu`: expected a size above zero"),
        ("uplink = { rate = \"1Mbit/s\", delay = \"-5ms\" }", "out of range"),
        ("uplink = { rate = \"1Mbit/s\", delay = { sd = \"5ms\" } }", "`mean`"),
        (
            "uplink = { rate = \"1Mbit/s\", delay = { min = \"5ms\", max = \"1ms\" } }",
            "lies above `max`",
        ),
        ("uplink = { rate = \"1Mbit/s\", delay = { mean = \"5ms\", trace = \"f\" } }", "exclude"),
        ("uplink = { rate = \"1Mbit/s\", queue = { packets = 0 } }", "`uplink.queue`"),
        (
            "uplink = { rate = \"1Mbit/s\", queue = \"endless\" }",
            "found `endless`, expected \"unlimited\"",
        ),
        ("uplink = { rate = \"1Mbit/s\", loss = { uniform = 0.1 } }", "a probability with a unit"),
        (
            "uplink = { rate = \"1Mbit/s\", loss = { uniform = \"1%\", bit_errors = 1e-7 } }",
            "exclude",
        ),
        ("uplink = { rate = \"1Mbit/s\", loss = { bit_errors = 2 } }", "from 0 to 1"),
        (
            "uplink = { rate = \"1Mbit/s\", harq = {} }",
            "`uplink.harq.loss`: expected a probability",
        ),
        ("uplink = { rate = \"1Mbit/s\", harq = { loss = \"100%\" } }", "less than 100%"),
        ("uplink = { rate = \"1Mbit/s\", harq = \"on\" }", "expected a table or \"off\""),
        ("handover = {}\nuplink.rate = \"1Mbit/s\"", "`handover.interval`"),
        ("drx = { listen = \"0s\" }\nuplink.rate = \"1Mbit/s\"", "`drx.listen`"),
        (
            "reconfiguration = { phase = \"15s\" }\nuplink.rate = \"1Mbit/s\"",
            "`reconfiguration.phase`",
        ),
        ("handover.interruption = { mixture = \"moon\" }", "`moon` is not a known mixture"),
    ] {
        let found = refused(text);
        assert!(found.contains(part), "{text}\nsaid: {found}\nnot: {part}");
    }
}
