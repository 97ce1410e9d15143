//! Tests of trace files: lookup, sharing, and errors with file and line.

use std::fs;
use std::path::{Path, PathBuf};

use skybraid_link::{DelaySource, Direction, Fate, Link, RateSource};
use skybraid_scenario::{Scenario, load_path};
use skybraid_units::{Bytes, Duration, Instant, Seed};

use crate::common::first_line;

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("skybraid-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// Parses a scenario of 10 s whose uplink has these keys. Errors lack the folder's name.
    fn scenario(&self, uplink: &str) -> Result<Scenario, String> {
        let text = format!(
            "duration = '10s'\n\
             [path.lte]\n\
             downlink.rate = '10Mbit/s'\n\
             {uplink}\n\
             [flow.data]\n\
             from = 'vehicle'\n\
             traffic = {{ kind = 'bulk' }}\ntransport = {{ protocol = 'mp_dccp' }}\n"
        );
        let folder = format!("{}/", self.0.display());
        Scenario::parse(&text, &self.0.join("x.toml"), &[])
            .map_err(|error| first_line(&error.to_string().replace(&folder, "")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const RATE: &str = "uplink.rate = { trace = 'r.csv', column = 'rate', unit = 'Mbit/s' }";

#[test]
fn an_invalid_line_of_a_trace_is_reported_with_its_file() {
    let folder = Folder::new("wrong-line");
    for (trace, expected) in [
        (
            "time,rate\n0,1\n1,NaN\n",
            "r.csv:3: found `NaN`, expected a number in column 2 (named by path.lte.uplink.rate)",
        ),
        (
            "time,rate\n0,1\n1,-2\n",
            "r.csv:3: found `-2`, expected a rate from 0 to 1000 Tbit/s \
             (named by path.lte.uplink.rate)",
        ),
        (
            "time,rate\n0,1\n2,1\n1,1\n",
            "r.csv:4: found `1,1`, expected a time later than on the line before \
             (named by path.lte.uplink.rate)",
        ),
        (
            "",
            "r.csv: the trace holds no samples; expected lines such as `0.1,25.4` \
             (named by path.lte.uplink.rate)",
        ),
    ] {
        folder.write("r.csv", trace);
        assert_eq!(folder.scenario(RATE).unwrap_err(), expected);
    }
}

#[test]
fn invalid_options_of_a_trace_are_reported_at_their_keys() {
    let folder = Folder::new("beside");
    folder.write("r.csv", "time,rate\n0,1\n20,1\n");
    let refused = |keys: &str, expected: &str| {
        let rate = format!("uplink.rate = {{ trace = 'r.csv', {keys} }}");
        assert_eq!(folder.scenario(&rate).unwrap_err(), expected);
    };
    refused(
        "column = 'rat', unit = 'Mbit/s'",
        "x.toml:4: path.lte.uplink.rate.column: found `rat`, expected a column of time, rate \
         (to read `r.csv`)",
    );
    refused(
        "column = 'rate', unit = 'MB'",
        "x.toml:4: path.lte.uplink.rate.unit: found `MB`, expected one of bit/s, kbit/s, Mbit/s, \
         Gbit/s, kB/s, MB/s (to read `r.csv`)",
    );
    refused(
        "format = 'hypatia'",
        "x.toml:4: path.lte.uplink.rate.format: found `hypatia`, expected csv; a Hypatia file holds \
         delays only (to read `r.csv`)",
    );
}

#[test]
fn a_trace_shorter_than_the_run_must_repeat() {
    let folder = Folder::new("shorter");
    folder.write("r.csv", "time,rate\n0,1\n1,2\n");
    assert_eq!(
        folder.scenario(RATE).unwrap_err(),
        "x.toml:4: path.lte.uplink.rate: the trace `r.csv` lasts 2s, shorter than the run of 10s; \
         expected a longer trace, or `repeat = true` to start it over"
    );
    let repeated = RATE.replace(" }", ", repeat = true }");
    assert!(folder.scenario(&repeated).is_ok());
    folder.write("r.csv", "time,rate\n0,1\n5,2\n");
    assert!(folder.scenario(RATE).is_ok(), "the last sample lasts as long as the one before");
    folder.write("m.up", "1\n5\n");
    assert!(folder.scenario("uplink.rate = { opportunities = 'm.up' }").is_ok());
}

#[test]
fn a_missing_unit_of_both_directions_is_located() {
    let folder = Folder::new("unit");
    folder.write("d.csv", "time,delay\n0,10\n20,20\n");
    let delay = "uplink.rate = '1Mbit/s'\ndelay = { trace = 'd.csv', column = 'delay' }";
    let error = folder.scenario(delay).unwrap_err();
    assert!(error.starts_with("x.toml:5: path.lte.delay.unit: found nothing, expected"), "{error}");
    let error = folder.scenario(&delay.replace("d.csv", "e.csv")).unwrap_err();
    assert_eq!(error, "e.csv: there is no such file (named by path.lte.delay)");
}

#[test]
fn a_missing_or_binary_file_is_reported() {
    let folder = Folder::new("unreadable");
    let error = folder.scenario(RATE).unwrap_err();
    assert!(error.starts_with("r.csv: there is no such file"), "{error}");
    assert!(error.ends_with(" (named by path.lte.uplink.rate)"), "{error}");
    folder.write("r.csv", b"PAR1....");
    assert_eq!(
        folder.scenario(RATE).unwrap_err(),
        "r.csv: found Parquet, expected text; convert it with `skybraid trace convert` \
         (named by path.lte.uplink.rate)"
    );
    folder.write("r.csv", b"time,rate\n0,\xff\n");
    assert_eq!(
        folder.scenario(RATE).unwrap_err(),
        "r.csv: found bytes that are not UTF-8 at offset 12, expected text \
         (named by path.lte.uplink.rate)"
    );
    let error = folder.scenario(&RATE.replace("r.csv", ".")).unwrap_err();
    assert!(error.contains("found a folder, expected a file"), "{error}");
    assert!(Scenario::load(folder.0.join("absent.toml"), &[]).is_err());
}

#[test]
fn each_format_is_read() {
    let folder = Folder::new("formats");
    folder.write("d.csv", "0 10\n6 20\n");
    folder.write("h.csv", "0,0,30000000\n0,6000000000,40000000\n");
    folder.write(
        "p.txt",
        "64 bytes from 10.0.0.1: icmp_seq=1 ttl=44 time=30.0 ms\n\
         64 bytes from 10.0.0.1: icmp_seq=3 ttl=44 time=40.0 ms\n",
    );
    let first_delay = |delay: &str| {
        let rate = "uplink.rate = '1Mbit/s'";
        let scenario = folder.scenario(&format!("{rate}\nuplink.delay = {{ {delay} }}")).unwrap();
        match &scenario.links[0].uplink.delay {
            DelaySource::Series(series) => series.data.values()[0] * 1e-6,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(first_delay("trace = 'd.csv', column = '2', unit = 'ms'"), 10.0);
    assert_eq!(first_delay("trace = 'h.csv', format = 'hypatia'"), 15.0);
    assert_eq!(first_delay("trace = 'p.txt', format = 'ping', repeat = true"), 15.0);
}

/// One probe per second, of which probes 3 to 13 are lost: 11 s without any reply.
const GAP: &str = "64 bytes from a: icmp_seq=1 ttl=44 time=30.0 ms\n\
                   64 bytes from a: icmp_seq=2 ttl=44 time=40.0 ms\n\
                   64 bytes from a: icmp_seq=14 ttl=44 time=50.0 ms\n\
                   64 bytes from a: icmp_seq=15 ttl=44 time=50.0 ms\n";

#[test]
fn a_ping_log_as_delay_includes_its_lost_probes() {
    let folder = Folder::new("ping-gap");
    folder.write("p.txt", GAP);
    let lost_at = |keys: &str| {
        let text = format!("uplink.rate = '10Mbit/s'\n{keys}");
        let path = load_path(&text, &folder.0).unwrap();
        let config = path.link(Direction::Uplink).unwrap();
        let mut link = Link::new(&config, "p", "uplink", Seed(1));
        let at = (0..300).map(|tenth| Instant::from_millis(100 * tenth));
        let lost = |at: &Instant| matches!(link.admit(*at, Bytes::new(100)), Fate::Lost { .. });
        at.filter(lost).map(|at| at.as_nanos() / 100_000_000).collect::<Vec<_>>()
    };
    let delay = "uplink.delay = { trace = 'p.txt', format = 'ping', repeat = true }";
    let loss = "uplink.loss = { trace = 'p.txt', format = 'ping', repeat = true }";
    // The gap is from 2 s to 13 s of each 15 s.
    let gap: Vec<i64> = (20..130).chain(170..280).collect();
    assert_eq!(lost_at(delay), gap);
    assert_eq!(lost_at(loss), gap, "one clock, also after the log has started over");
    assert_eq!(lost_at(&format!("{delay}\n{loss}")), gap, "no loss counts twice");
}

#[test]
fn a_file_that_is_too_large_is_rejected_with_the_limit() {
    let folder = Folder::new("large");
    // A sparse file takes no disk space.
    let file = fs::File::create(folder.0.join("r.csv")).unwrap();
    file.set_len(1_000_000_001).unwrap();
    assert_eq!(
        folder.scenario(RATE).unwrap_err(),
        "r.csv: found more than 1000 MB, expected at most so much (named by path.lte.uplink.rate)"
    );
    let file = fs::File::create(folder.0.join("large.toml")).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let error = Scenario::load(folder.0.join("large.toml"), &[]).unwrap_err().to_string();
    assert!(error.contains("found more than 16 MB"), "{error}");
}

#[test]
fn a_file_is_read_once_and_its_data_shared() {
    let folder = Folder::new("shared");
    folder.write("r.csv", "time,rate,loss\n0,1,0\n9,2,1\n");
    let loss = "loss = { trace = 'r.csv', column = 'loss', unit = '%' }";
    let keys = format!(
        "{RATE}\nuplink.{loss}\ndownlink.{loss}\n[path.leo]\nuplink.rate = '1Mbit/s'\n{}",
        RATE.replace("uplink", "downlink")
    );
    let scenario = folder.scenario(&keys).unwrap();
    assert_eq!(scenario.inputs.len(), 1);
    assert_eq!(scenario.inputs[0].file, "r.csv");
    // sha256sum of the text above.
    assert_eq!(
        scenario.inputs[0].sha256,
        "74970f3f09371faac7af7bdacce8525d1cb06b13577124a901b54fb5c775e8e2"
    );
    let rate_of = |rate: &RateSource| match rate {
        RateSource::Series(series) => std::sync::Arc::clone(&series.data),
        other => panic!("{other:?}"),
    };
    let first = rate_of(&scenario.links[0].uplink.rate);
    let second = rate_of(&scenario.links[1].downlink.rate);
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert_eq!(first.end(), Instant::from_millis(18_000));
}

#[test]
fn a_variant_has_the_traces_of_the_scenario_it_was_made_of() {
    let folder = Folder::new("variant");
    folder.write("r.csv", "time,rate,loss\n0,1,0\n9,2,1\n");
    let scenario = folder.scenario(RATE).unwrap();
    let changed = |key: &str, value: &str| {
        let overrides = [(key.to_string(), value.to_string())];
        scenario.parse_variant(scenario.toml(), &overrides).map_err(|error| error.to_string())
    };
    let read_again = Scenario::parse(scenario.toml(), &folder.0.join("x.toml"), &[]).unwrap();
    assert_eq!(scenario.parse_variant(scenario.toml(), &[]).unwrap(), read_again);

    // Once the file has changed, loaded columns are kept, and loading a further one is an error.
    folder.write("r.csv", "time,rate,loss\n0,8,0\n9,9,1\n");
    let faster = changed("path.lte.downlink.rate", "20Mbit/s").unwrap();
    assert_eq!(faster.links[0].uplink.rate, scenario.links[0].uplink.rate);
    assert_eq!(faster.inputs, scenario.inputs);
    let loss = "{ trace = 'r.csv', column = 'loss', unit = '%' }";
    let error = changed("path.lte.uplink.loss", loss).unwrap_err();
    assert!(error.contains("has changed since it was first read"), "{error}");
}

#[test]
fn a_single_path_is_read_with_its_preset_and_traces() {
    let folder = Folder::new("alone");
    folder.write("r.csv", "time,rate\n0,1\n1,2\n");
    let text = format!("preset = 'starlink'\n{RATE}");
    let path = load_path(&text, &folder.0).unwrap();
    let link = path.link(skybraid_link::Direction::Uplink).unwrap();
    assert!(matches!(link.rate, RateSource::Series(_)));
    let error = load_path("preset = 'starlnk'", Path::new(".")).unwrap_err().to_string();
    let error = first_line(&error);
    assert!(error.starts_with("path:1: preset: unknown preset `starlnk`; did you mean"), "{error}");
}

/// Parses a scenario of 10 s with a trace of 20 s, whose sampling has these keys.
fn sampled(folder: &Folder, keys: &str, top: &str) -> Result<Scenario, String> {
    folder.write("r.csv", "time,rate\n0,1\n10,2\n");
    let uplink = RATE.replace(" }", &format!(", {keys} }}"));
    let text = format!(
        "{top}\nduration = '10s'\n[path.lte]\ndownlink.rate = '10Mbit/s'\n{uplink}\n[flow.data]\n\
         from = 'vehicle'\ntraffic = {{ kind = 'cbr', rate = '1Mbit/s', packet = '100B' }}\n\
         transport = {{ protocol = 'udp' }}\n"
    );
    let prefix = format!("{}/", folder.0.display());
    Scenario::parse(&text, &folder.0.join("x.toml"), &[])
        .map_err(|error| error.to_string().replace(&prefix, ""))
}

#[test]
fn a_scenario_sets_the_start_of_runs_in_its_traces() {
    let folder = Folder::new("starts");
    let of = |keys: &str, top: &str| {
        let scenario = sampled(&folder, keys, top).unwrap();
        (scenario.is_random(), scenario.unplaced_traces)
    };
    let unsaid = vec!["r.csv".to_string()];
    assert_eq!(of("", ""), (false, unsaid));
    assert_eq!(of("together = 'drive'", "").1, ["drive"]);
    assert_eq!(of("", "traces = 'replay'"), (false, vec![]));
    assert_eq!(of("", "traces = 'random'"), (true, vec![]));
    assert_eq!(of("start = '0s'", "traces = 'random'"), (false, vec![]), "a trace's word counts");
    assert_eq!(of("start = 'random'", "traces = 'replay'"), (true, vec![]));
    assert_eq!(of("resample = '5s'", ""), (true, vec![]));
    let error = sampled(&folder, "", "traces = 'often'").unwrap_err();
    assert!(first_line(&error).starts_with("x.toml:1: traces: "), "{error}");
}

#[test]
fn invalid_keys_of_sampling_are_reported() {
    let folder = Folder::new("sampling");
    let error = |keys: &str| first_line(&sampled(&folder, keys, "").unwrap_err());
    let at = "x.toml:5: path.lte.uplink.rate";
    assert_eq!(
        error("start = '20s'"),
        format!("{at}.start: found `20s`, expected a time below the length of 20s")
    );
    assert_eq!(
        error("start = '12s'"),
        format!(
            "{at}: the trace `r.csv` lasts 8s from 12s on, shorter than the run of 10s; expected a \
             longer trace, or `repeat = true` to start it over"
        )
    );
    assert!(sampled(&folder, "start = '12s', repeat = true", "").is_ok());
    assert_eq!(
        error("resample = '21s'"),
        format!("{at}.resample: found `21s`, expected a time from 1s to the length of 20s")
    );
    assert!(error("resample = '5s', start = '1s'").contains("expected `resample` alone"));
}

#[test]
fn traces_measured_together_repeat_after_the_shortest() {
    let folder = Folder::new("together");
    folder.write("a.csv", "0,1\n10,2\n");
    folder.write("b.csv", "0,1\n9,2\n");
    let keys = "column = '2', repeat = true, together = 'drive'";
    let rate = format!("uplink.rate = {{ trace = 'a.csv', unit = 'Mbit/s', {keys} }}");
    let delay = format!("downlink.delay = {{ trace = 'b.csv', unit = 'ms', {keys} }}");
    let scenario = folder.scenario(&format!("{rate}\n{delay}")).unwrap();
    let link = &scenario.links[0];
    let (RateSource::Series(rate), DelaySource::Series(delay)) =
        (&link.uplink.rate, &link.downlink.delay)
    else {
        panic!("expected series")
    };
    assert_eq!((rate.length, delay.length), (Duration::from_secs(18), Duration::from_secs(18)));
}

#[test]
fn delays_of_an_access_layer_may_be_traces() {
    let folder = Folder::new("access");
    folder.write("d.csv", "time,delay\n0,9\n20,9\n");
    let access = |terminal: &str| {
        folder.scenario(&format!(
            "uplink.access = {{ kind = 'dvb', frame = '26ms', waveform = 12, cra = '1Mbit/s', \
             gateway_delay = '9ms', terminal_delay = {terminal} }}"
        ))
    };
    let found = access("{ trace = 'd.csv', unit = 'ms' }").unwrap();
    assert_eq!(found.inputs.len(), 1);
    // Errors name the key within the table.
    folder.write("d.csv", "time,delay\n0,9\n1,9\n");
    let refused = access("{ trace = 'd.csv', unit = 'ms' }").unwrap_err();
    assert!(refused.contains("path.lte.uplink.access.terminal_delay"), "{refused}");
}
