//! Tests that the gateway's guide lists the keys and defaults that the parser accepts, and that its examples
//! and those of the packages are valid.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use skybraid_gateway::Class;
use skybraid_scenario::GatewayFile;
use skybraid_transport::Protocol;
use skybraid_transport::congestion::CongestionConfig;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn guide() -> String {
    fs::read_to_string(root().join("docs/gateway.md")).unwrap()
}

/// Returns the default of each key in the table of a section.
fn table(heading: &str) -> BTreeMap<String, String> {
    let text = guide();
    let (_, section) = text.split_once(&format!("\n### {heading}\n")).unwrap();
    let (_, rows) =
        section.split_once("| key | default | range | meaning |\n|---|---|---|---|\n").unwrap();
    let rows = rows.lines().take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_string()).collect();
        (cells[1].trim_matches('`').to_string(), cells[2].trim_matches('`').to_string())
    };
    rows.map(cells).collect()
}

/// Returns the error of the ground station's file with `added`.
fn error(added: &str) -> String {
    let text = format!(
        "side = 'ground'\nkey = 'k'\npeer = '{KEY}'\n[path.one]\nlisten = '[::]:9417'\n{added}"
    );
    let read = GatewayFile::parse(&text, Path::new("g.toml"));
    read.err().map(|error| error.to_string()).unwrap_or_default()
}

/// Returns the keys that the parser accepts in a table, from its error on an unknown key.
fn accepted_keys(header: &str) -> Vec<String> {
    let said = match header {
        "" => GatewayFile::parse("nothing = 1", Path::new("g.toml")).err().unwrap().to_string(),
        _ => error(&format!("{header}\nnothing = 1\n")),
    };
    let (_, listed) = said.rsplit_once("(expected ").unwrap_or_else(|| panic!("{said}"));
    let mut keys: Vec<String> = listed.split('`').skip(1).step_by(2).map(str::to_string).collect();
    keys.sort();
    keys
}

const TABLES: [&str; 12] = [
    "path", "mavlink", "udp", "tun", "class", "messages", "rule", "health", "session", "status",
    "log", "signing",
];

const PLACES: [(&str, &str, &str); 9] = [
    ("`[path.NAME]`", "[path.two]", "listen = '[::]:1'"),
    ("`[[mavlink]]`", "[[mavlink]]", "serial = '/dev/tty1'"),
    ("`[udp.NAME]`", "[udp.video]", "listen = '[::]:1'"),
    ("`[tun]`", "[tun]", "address = '10.0.0.1/8'"),
    ("`[class.NAME]`", "[class.bulk]", ""),
    ("`[messages]`", "[messages]", ""),
    ("`[[rule]]`", "[[rule]]", "port = 1\nclass = 'bulk'"),
    ("`[health]`", "[health]", ""),
    ("`[signing]`", "[signing]", "key = 'k'"),
];

#[test]
fn the_guide_lists_the_keys_that_the_parser_accepts() {
    for (heading, header, _) in PLACES {
        let named: Vec<String> = table(heading).into_keys().collect();
        assert_eq!(named, accepted_keys(header), "{heading}");
    }
    let mut top: Vec<String> = table("The file").into_keys().collect();
    top.extend(TABLES.map(str::to_string));
    top.sort();
    assert_eq!(top, accepted_keys(""));
    let rest = table("`[session]`, `[status]`, `[log]`");
    for name in ["session", "status", "log"] {
        let named = rest.keys().filter_map(|key| key.strip_prefix(&format!("{name}.")));
        assert_eq!(named.collect::<Vec<_>>(), accepted_keys(&format!("[{name}]")), "{name}");
    }
}

#[test]
fn the_guides_defaults_are_accepted_by_the_parser() {
    for (heading, header, needed) in PLACES {
        for (key, default) in table(heading) {
            if ["none", "required", "by class"].contains(&default.as_str()) || needed.contains(&key)
            {
                continue;
            }
            let said = error(&format!("{header}\n{needed}\n{key} = {default}\n"));
            assert_eq!(said, "", "{heading} {key} = {default}");
        }
    }
    for (key, default) in table("`[session]`, `[status]`, `[log]`") {
        let (section, key) = key.split_once('.').unwrap();
        let needed = if section == "log" { "file = 'x'\n" } else { "" };
        let value =
            if ["required", "none"].contains(&default.as_str()) { continue } else { default };
        assert_eq!(
            error(&format!("[{section}]\n{needed}{key} = {value}\n")),
            "",
            "{section}.{key}"
        );
    }
}

#[test]
fn the_guides_defaults_are_those_of_the_code() {
    let text = format!(
        "side = 'ground'\nkey = 'k'\npeer = '{KEY}'\n[path.one]\nlisten = '[::]:9417'\n[tun]\naddress = '10.0.0.1/8'\n[log]\nfile = 'x'\n"
    );
    let config = GatewayFile::parse(&text, Path::new("g.toml")).unwrap().config;
    let (path, tun) = (&config.path["one"], config.tun.as_ref().unwrap());
    let said = |heading: &str, key: &str| table(heading)[key].trim_matches('"').to_string();
    let rest = "`[session]`, `[status]`, `[log]`";
    for (heading, key, value) in [
        ("The file", "name", config.name.clone()),
        ("`[path.NAME]`", "cost", path.cost.to_string()),
        ("`[path.NAME]`", "priority", path.priority.to_string()),
        ("`[path.NAME]`", "mtu", path.mtu.to_string()),
        ("`[tun]`", "name", tun.name.clone()),
        ("`[tun]`", "mtu", tun.mtu.to_string()),
        ("`[health]`", "probe", config.health.probe.to_string()),
        ("`[health]`", "give_up", config.health.give_up.to_string()),
        ("`[health]`", "probation", config.health.probation.to_string()),
        (rest, "session.rekey", config.session.rekey.to_string()),
        (rest, "status.listen", config.status.listen.clone()),
        (rest, "log.max_size", config.log.as_ref().unwrap().max_size.to_string()),
        (rest, "log.max_age", config.log.as_ref().unwrap().max_age.to_string()),
        (rest, "log.keep", config.log.as_ref().unwrap().keep.to_string()),
        (rest, "log.every", config.log.as_ref().unwrap().every.to_string()),
    ] {
        assert_eq!(said(heading, key), value, "{heading} {key}");
    }
}

#[test]
fn the_guide_lists_the_transport_of_each_class() {
    let text =
        format!("side = 'ground'\nkey = 'k'\npeer = '{KEY}'\n[path.one]\nlisten = '[::]:9417'\n");
    let classes = GatewayFile::parse(&text, Path::new("g.toml")).unwrap().config.class;
    let code = |name: &str| format!("`{name}`");
    for class in Class::ALL {
        let config = classes.transport(class);
        let congestion = match &config.congestion {
            CongestionConfig::Ccid5(ccid5) if ccid5.radio => "{ name = \"ccid5\", radio = true }",
            other => other.name(),
        };
        let controlled = config.protocol != Protocol::Udp;
        let row = [
            code(class.name()),
            code(config.protocol.name()),
            code(config.scheduler.name()),
            if controlled { code(congestion) } else { "none".to_string() },
            classes.deadline(class).map_or("none".to_string(), |time| code(&time.to_string())),
            config.tx_queue().to_string(),
        ];
        let row = format!("| {} |", row.join(" | "));
        assert!(guide().lines().any(|line| line == row), "{row}");
    }
}

#[test]
fn the_examples_are_valid_and_match_one_another() {
    let text = guide();
    let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut examples: Vec<String> = blocks.map(str::to_string).collect();
    assert_eq!(examples.len(), 2);
    for (file, placeholder) in [
        ("aircraft", "PASTE-THE-GROUND-STATIONS-PUBLIC-KEY="),
        ("ground", "PASTE-THE-AIRCRAFTS-PUBLIC-KEY="),
    ] {
        let file = root().join(format!("packaging/{file}.toml"));
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(placeholder));
        examples.push(text.replace(placeholder, KEY));
    }
    for pair in examples.chunks(2) {
        let read = |text: &String| GatewayFile::parse(text, Path::new("example.toml")).unwrap();
        let (aircraft, ground) = (read(&pair[0]), read(&pair[1]));
        assert_eq!((aircraft.warnings, ground.warnings), (Vec::new(), Vec::new()));
        assert!(aircraft.config.path.keys().eq(ground.config.path.keys()));
        assert_eq!(aircraft.config.channels(), ground.config.channels());
    }
}
