//! Tests that an invalid gateway's file is rejected with file, line, key, and the values found and expected.

mod keys;

use std::path::Path;

use skybraid_scenario::GatewayFile;
use skybraid_transport::scheduler::SchedulerConfig;

use crate::common::first_line;

const AIRCRAFT: &str = r#"name = "kite"
side = "aircraft"
key = "aircraft.key"
peer = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
[path.lte]
interface = "wwan0"
remote = "ground.example.org:9417"
[path.dish]
interface = "eth1"
remote = "192.0.2.1:9417"
[[mavlink]]
serial = "/dev/ttyAMA0"
baud = 921600
[udp.video]
listen = "127.0.0.1:5600"
[tun]
address = "10.77.0.1/24"
[status]
listen = "127.0.0.1:9418"
"#;

const GROUND: &str = r#"side = "ground"
key = "ground.key"
peer = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
[path.lte]
listen = "0.0.0.0:9417"
[path.dish]
listen = "0.0.0.0:9417"
[[mavlink]]
udp_listen = "127.0.0.1:14550"
"#;

fn outcome_of(text: &str) -> String {
    let read = GatewayFile::parse(text, Path::new("kite.toml"));
    read.map_or_else(
        |error| first_line(&error.to_string()),
        |read| format!("accepted, warnings: {:?}", read.warnings),
    )
}

fn rejected(good: &str, line: usize, bad: &str, expected: &str) {
    let mut lines: Vec<&str> = good.lines().collect();
    lines[line - 1] = bad;
    assert_eq!(outcome_of(&lines.join("\n")), format!("kite.toml:{expected}"), "\n{bad}");
}

/// Checks that the aircraft's file with `bad` in place of a line is rejected.
fn aircraft(line: usize, bad: &str, expected: &str) {
    rejected(AIRCRAFT, line, bad, expected);
}

/// Checks that the ground station's file with `bad` in place of a line is rejected.
fn ground(line: usize, bad: &str, expected: &str) {
    rejected(GROUND, line, bad, expected);
}

/// Checks that the aircraft's file with `added` from line 20 on is rejected.
fn more(added: &str, expected: &str) {
    assert_eq!(
        outcome_of(&format!("{AIRCRAFT}{added}")),
        format!("kite.toml:{expected}"),
        "\n{added}"
    );
}

#[test]
fn a_valid_file_is_accepted() {
    assert_eq!(outcome_of(AIRCRAFT), "accepted, warnings: []");
    assert_eq!(outcome_of(GROUND), "accepted, warnings: []");
}

#[test]
fn an_unknown_name_is_reported_with_a_suggestion() {
    aircraft(
        1,
        r#"nmae = "kite""#,
        "1: nmae: unknown key `nmae`; did you mean `name`? (expected one of `name`, `side`, `key`, `peer`, `psk`, `network`, `path`, `mavlink`, `udp`, `tun`, `class`, `messages`, `rule`, `health`, `session`, `signing`, `status`, `log`)",
    );
    aircraft(
        2,
        r#"side = "air""#,
        "2: side: unknown side `air`; did you mean `aircraft`? (expected one of `aircraft`, `ground`)",
    );
    aircraft(
        6,
        r#"iface = "wwan0""#,
        "6: path.lte.iface: unknown key `iface` (expected one of `interface`, `address`, `remote`, `listen`, `cost`, `priority`, `backup`, `data_cap`, `mtu`)",
    );
    more(
        "[class.video]\nprotocol = \"mp-dcp\"",
        "21: class.video.protocol: unknown protocol `mp-dcp`; did you mean `mp-dccp`? (expected one of `udp`, `tcp`, `mptcp`, `parallel_tcp`, `dccp`, `mp-dccp`, `mp_dccp`)",
    );
    more(
        "[class.video]\nprotocol = \"tcp\"",
        "21: class.video.protocol: found `tcp`, expected `udp`, `mp_dccp` or `dccp`",
    );
    let schedulers: Vec<String> =
        SchedulerConfig::ALL.iter().map(|about| format!("`{}`", about.name)).collect();
    more(
        "[class.video]\nscheduler = \"low-rtt\"",
        &format!(
            "21: class.video.scheduler: unknown scheduler `low-rtt`; did you mean `low_rtt`? (expected \
             one of {})",
            schedulers.join(", ")
        ),
    );
    more(
        "[class.vidio]\nscheduler = \"low_rtt\"",
        "20: class.vidio: unknown key `vidio`; did you mean `video`? (expected one of `control`, `telemetry`, `video`, `bulk`)",
    );
    more(
        "[udp.log]\nsend_to = \"127.0.0.1:1\"\nclass = \"bluk\"",
        "22: udp.log.class: unknown class `bluk`; did you mean `bulk`? (expected one of `control`, `telemetry`, `video`, `bulk`)",
    );
    more(
        "[messages]\ncontrol = [\"COMAND_LONG\"]",
        "21: messages.control[0]: unknown message `COMAND_LONG`; did you mean `COMMAND_LONG`? (one without a name here is given by its number, such as 76 for COMMAND_LONG)",
    );
    more(
        "[messages]\ncontrol = [\"psychic\"]",
        "21: messages.control[0]: unknown message `psychic` (one without a name here is given by its number, such as 76 for COMMAND_LONG)",
    );
    more(
        "[sweep]\nseeds = \"1..9\"",
        "20: sweep: unknown key `sweep` (expected one of `name`, `side`, `key`, `peer`, `psk`, `network`, `path`, `mavlink`, `udp`, `tun`, `class`, `messages`, `rule`, `health`, `session`, `signing`, `status`, `log`)",
    );
}

#[test]
fn missing_keys_are_reported() {
    aircraft(2, "", " the key `side` is missing");
    aircraft(3, "", " the key `key` is missing");
    aircraft(4, "", " the key `peer` is missing");
    aircraft(
        7,
        "",
        "5: path.lte.remote: found nothing, expected a host and a port, for example `ground.example.org:9417`, `192.0.2.1:9417` or `[2001:db8::1]:9417`",
    );
    aircraft(17, "", "16: tun: the key `address` is missing");
    ground(
        5,
        "",
        "4: path.lte.listen: found nothing, expected an address and a port, for example `0.0.0.0:9417` or `[::]:9417`",
    );
    more(
        "[[mavlink]]\nradio_status = true",
        "20: mavlink[1]: found none, expected exactly one of `serial`, `udp_listen`, `udp_connect`, `tcp_listen`, `tcp_connect`; each has a table `[[mavlink]]` of its own",
    );
    more(
        "[udp.log]\nclass = \"bulk\"",
        "20: udp.log: found neither `listen`, for datagrams that are to be carried, nor `send_to`, for those that arrive; expected one or both",
    );
    more(
        "[[rule]]\nclass = \"bulk\"",
        "20: rule[0]: found neither `dscp` nor `port`, expected one or both",
    );
    more("[log]\nevery = \"1s\"", "20: log: the key `file` is missing");
}

#[test]
fn each_side_has_its_own_keys_of_a_path() {
    aircraft(
        6,
        r#"listen = "0.0.0.0:9417""#,
        "6: path.lte.listen: found a key of the ground station, expected `remote`, the address of the ground station",
    );
    ground(
        5,
        r#"remote = "192.0.2.1:9417""#,
        "5: path.lte.remote: found a key of the aircraft, expected `listen`, an address of this machine",
    );
    ground(
        5,
        "listen = \"0.0.0.0:9417\"\naddress = \"192.0.2.1\"",
        "6: path.lte.address: the address of a path of the ground station is that of `listen`",
    );
    assert_eq!(
        outcome_of(
            "side = \"ground\"\nkey = \"k\"\npeer = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\npath = {}"
        ),
        "kite.toml:4: path: found no path, expected at least one table `[path.NAME]`"
    );
    let many: String =
        (0..33).map(|at| format!("[path.p{at}]\nlisten = \"[::]:9417\"\n")).collect();
    assert_eq!(
        outcome_of(&format!("{GROUND}{many}")),
        "kite.toml:4: path: found 35 paths, expected at most 32"
    );
}

#[test]
fn an_invalid_address_is_rejected() {
    aircraft(
        7,
        r#"remote = "ground.example.org""#,
        "7: path.lte.remote: found `ground.example.org`, expected a host and a port, for example `ground.example.org:9417`, `192.0.2.1:9417` or `[2001:db8::1]:9417`",
    );
    aircraft(
        7,
        r#"remote = "2001:db8::1:9417""#,
        "7: path.lte.remote: found `2001:db8::1:9417`, expected a host and a port, for example `ground.example.org:9417`, `192.0.2.1:9417` or `[2001:db8::1]:9417`",
    );
    aircraft(
        7,
        r#"remote = "0.0.0.0:9417""#,
        "7: path.lte.remote: found `0.0.0.0:9417`, expected the ground station's address; this one stands for any",
    );
    aircraft(
        6,
        r#"interface = "wwan0/1""#,
        "6: path.lte.interface: found `wwan0/1`, expected the name of a network interface, 1 to 15 characters, for example `wwan0`",
    );
    aircraft(
        6,
        r#"address = "wwan0""#,
        "6: path.lte.address: found `wwan0`, expected an address of this machine, for example `192.0.2.7`",
    );
    aircraft(
        9,
        r#"address = "2001:db8::7""#,
        "9: path.dish.address: an address of IPv6 cannot reach a `remote` of IPv4",
    );
    aircraft(
        5,
        "[path.\"l t e\"]",
        r#"5: path."l t e": found the name `l t e`, expected a name of up to 32 letters, digits, `-` and `_`"#,
    );
    aircraft(
        12,
        r#"serial = "ttyAMA0""#,
        "12: mavlink[0].serial: found `ttyAMA0`, expected a serial device, for example `/dev/ttyAMA0`",
    );
    aircraft(
        12,
        r#"udp_connect = "127.0.0.1""#,
        "12: mavlink[0].udp_connect: found `127.0.0.1`, expected a host and a port, for example `ground.example.org:9417`, `192.0.2.1:9417` or `[2001:db8::1]:9417`",
    );
    aircraft(
        15,
        r#"listen = "localhost:5600""#,
        "15: udp.video.listen: found `localhost:5600`, expected an address and a port, for example `0.0.0.0:9417` or `[::]:9417`",
    );
    aircraft(
        17,
        r#"address = "10.77.0.1""#,
        "17: tun.address: found `10.77.0.1`, expected an address with its prefix, for example `10.77.0.1/24` or `fd77::1/64`",
    );
    aircraft(
        17,
        "address = \"192.0.2.7/24\"",
        "10: path.dish.remote: found 192.0.2.1, which is in 192.0.2.7/24, the network of `[tun]` itself",
    );
    aircraft(
        17,
        "address = \"10.77.0.1/24\"\nname = \"wwan0\"",
        "6: path.lte.interface: found `wwan0`, which is this gateway's own `[tun]`, expected a network's",
    );
    aircraft(
        18,
        "allowed = [\"10.0.0.0/8\", \"10.0.0.1\"]\n[status]",
        "18: tun.allowed[1]: found `10.0.0.1`, expected a network, for example `192.168.1.0/24`, `fd01::/64` or `10.0.0.7/32`",
    );
    aircraft(
        19,
        r#"listen = "9418""#,
        r#"19: status.listen: found `9418`, expected an address and a port, for example `127.0.0.1:9418`, or nothing (`""`)"#,
    );
    aircraft(
        19,
        r#"hosts = ["tower", "tower:9418"]"#,
        "19: status.hosts[1]: found `tower:9418`, expected a host's name without a port, for example `tower.example.org`",
    );
    ground(
        5,
        r#"listen = "0.0.0.0:0""#,
        "5: path.lte.listen: found `0.0.0.0:0`, expected an address and a port, for example `0.0.0.0:9417` or `[::]:9417`",
    );
}

#[test]
fn kinds_of_mavlink_endpoints_exclude_one_another() {
    aircraft(
        12,
        "serial = \"/dev/ttyAMA0\"\nudp_listen = \"127.0.0.1:1\"",
        "11: mavlink[0]: found `serial` and `udp_listen`, expected exactly one of `serial`, `udp_listen`, `udp_connect`, `tcp_listen`, `tcp_connect`; each has a table `[[mavlink]]` of its own",
    );
    aircraft(
        12,
        r#"udp_listen = "127.0.0.1:14550""#,
        "13: mavlink[0].baud: `baud` is of `serial`, found `udp_listen`",
    );
    aircraft(
        13,
        "baud = 12345",
        "13: mavlink[0].baud: found `12345`, expected one of 1200, 2400, 4800, 9600, 19200, 38400, 57600, 115200, 230400, 460800, 500000, 576000, 921600, 1000000, 1152000, 1500000, 2000000, 2500000, 3000000, 3500000, 4000000",
    );
}

#[test]
fn names_and_ports_are_unique() {
    more(
        "[udp.mavlink]\nlisten = \"127.0.0.1:1\"",
        "20: udp.mavlink: found the name `mavlink`, which is that of another channel",
    );
    more(
        "[udp.tun]\nlisten = \"127.0.0.1:1\"",
        "20: udp.tun: found the name `tun`, which is that of another channel",
    );
    more(
        "[udp.more]\nlisten = \"0.0.0.0:5600\"",
        "15: udp.video.listen: found `127.0.0.1:5600`, but udp.more.listen listens on `0.0.0.0:5600` already",
    );
    ground(
        9,
        r#"udp_listen = "127.0.0.1:9417""#,
        "9: mavlink[0].udp_listen: found `127.0.0.1:9417`, but path.dish.listen listens on `0.0.0.0:9417` already",
    );
    more(
        "[messages]\ncontrol = [\"PARAM_VALUE\"]\nbulk = [22]",
        "22: messages.bulk[0]: is also in messages.control[0], expected in one list",
    );
    let many: String =
        (0..60).map(|at| format!("[udp.u{at}]\nlisten = \"127.0.0.1:{}\"\n", 100 + at)).collect();
    assert_eq!(
        outcome_of(&format!("{GROUND}{many}")),
        "kite.toml:10: udp: found 61 channels, expected at most 60"
    );
}

#[test]
fn a_value_out_of_range_is_rejected() {
    aircraft(
        4,
        r#"peer = "AAEC""#,
        "4: peer: found `AAEC`, expected a key: 44 characters of Base64",
    );
    aircraft(1, r#"name = """#, "1: name: found ``, expected 1 to 64 characters on a line");
    aircraft(
        3,
        r#"key = """#,
        "3: key: found ``, expected the file of the private key; `skybraid-node keygen FILE` makes one",
    );
    aircraft(6, "priority = 16", "6: path.lte.priority: found `16`, expected 0 to 15");
    aircraft(6, "mtu = \"500B\"", "6: path.lte.mtu: found `500B`, expected 576B to 9000B");
    aircraft(
        6,
        "mtu = 1500",
        r#"6: path.lte.mtu: found integer `1500`, expected a size with a unit, for example "1200B""#,
    );
    aircraft(6, "data_cap = \"0B\"", "6: path.lte.data_cap: found `0B`, expected above zero");
    aircraft(
        10,
        "remote = \"[2001:db8::1]:9417\"\nmtu = \"1000B\"",
        "11: path.dish.mtu: found `1000B`, expected 1280B to 9000B, as IPv6 needs",
    );
    aircraft(
        17,
        "address = \"fd77::1/64\"\nmtu = \"1000B\"",
        "18: tun.mtu: found `1000B`, expected 1280B to 9000B, as IPv6 needs",
    );
    more(
        "[class.video]\ndeadline = \"0ms\"",
        "21: class.video.deadline: found `0ms`, expected above zero",
    );
    more(
        "[class.video]\ndeadline = 500",
        r#"21: class.video.deadline: found integer `500`, expected a time with a unit, for example "30ms""#,
    );
    more("[class.bulk]\nqueue = 0", "21: class.bulk.queue: found `0`, expected above zero");
    more(
        "[class.bulk]\nprotocol = \"dccp\"",
        "21: class.bulk.protocol: dccp uses one path, found 2 (dish, lte); `mp_dccp` uses several",
    );
    more(
        "[class.bulk]\nscheduler = { name = \"single\", path = 2 }",
        "21: class.bulk.scheduler.path: found path 2, expected a position from 0 to 1",
    );
    more(
        "[class.video]\nrepair = { group = 101 }",
        "21: class.video.repair.group: found `101`, expected 1 to 100",
    );
    more(
        "[class.video]\nrepair = { share = \"20%\", fails = \"1%\" }",
        "21: class.video.repair.fails: found `1%`, expected without `share`",
    );
    more(
        "[class.video]\nduplicate = \"keys\"\nscheduler = \"redundant\"",
        "21: class.video.duplicate: found with `scheduler`, which says itself what leaves on every path",
    );
    more(
        "[class.control]\nduplicate = \"all\"",
        "21: class.control.duplicate: found for control, which leaves on every path as it is",
    );
    more(
        "[class.video]\nduplicate = \"key\"",
        "21: class.video.duplicate: unknown duplicate `key`; did you mean `keys`? (expected one of `none`, `keys`, `all`)",
    );
    more(
        "[class.bulk]\nscheduler = \"python:mine\"",
        "21: class.bulk.scheduler: an algorithm in Python is for the simulator alone",
    );
    more(
        "[messages]\ncontrol = [-1]",
        "21: messages.control[0]: found integer `-1`, expected the name or the number of a MAVLink message",
    );
    more(
        "[messages]\ncontrol = [16777216]",
        "21: messages.control[0]: found `16777216`, expected at most 16777215",
    );
    more(
        "[messages]\ncontrol = [true]",
        "21: messages.control[0]: found boolean `true`, expected the name or the number of a MAVLink message",
    );
    more("[[rule]]\ndscp = 64\nclass = \"bulk\"", "21: rule[0].dscp: found `64`, expected 0 to 63");
    more(
        "[[rule]]\nport = 0\nclass = \"bulk\"",
        "21: rule[0].port: found `0`, expected 1 to 65535",
    );
    more(
        "[[rule]]\nport = 70000\nclass = \"bulk\"",
        "21: rule[0].port: found integer `70000`, expected a whole number, 0 to 65535",
    );
    more("[health]\nprobe = \"1ms\"", "21: health.probe: found `1ms`, expected 5ms to 1s");
    more(
        "[health]\nprobe = \"100ms\"",
        "20: health.give_up: found 200ms, expected at least three times `probe` (300ms), so that a single lost probe is no outage",
    );
    more("[health]\ngive_up = \"11s\"", "21: health.give_up: found `11s`, expected 150ms to 10s");
    more(
        "[health]\nprobation = \"2min\"",
        "21: health.probation: found `2min`, expected 0s to 1min",
    );
    more("[session]\nrekey = \"5s\"", "21: session.rekey: found `5s`, expected 10s to 1h");
    more(
        "[log]\nfile = \"\"",
        "21: log.file: found ``, expected the name of a file, for example `/var/log/skybraid/flight.jsonl`",
    );
    more(
        "[session]\nrekey = \"10min\"\nlifetime = \"15min\"",
        "22: session.lifetime: found `15min`, expected 20min to 24h",
    );
    more(
        "[signing]\nkey = \"\"",
        "21: signing.key: found ``, expected the file of the key of signed MAVLink frames",
    );
    more(
        "[log]\nfile = \"x.jsonl\"\nevery = \"1ms\"",
        "22: log.every: found `1ms`, expected 100ms to 1h",
    );
    more(
        "[log]\nfile = \"a.jsonl\"\nmax_size = \"1kB\"",
        "22: log.max_size: found `1kB`, expected 1MB to 1000GB",
    );
    more(
        "[log]\nfile = \"a.jsonl\"\nmax_age = \"1s\"",
        "22: log.max_age: found `1s`, expected 1min to 8760h",
    );
    more(
        "[log]\nfile = \"a.jsonl\"\nkeep = \"1MB\"",
        "22: log.keep: found `1MB`, expected at least `max_size` (64MB)",
    );
}

fn warned(text: &str, expected: &[&str]) {
    let read = GatewayFile::parse(text, Path::new("kite.toml")).unwrap();
    assert_eq!(read.warnings, expected, "\n{text}");
}

#[test]
fn unintended_settings_cause_warnings() {
    let open = AIRCRAFT.replace("127.0.0.1:9418", "0.0.0.0:9418");
    warned(
        &open,
        &[
            "status.listen: everybody who can reach 0.0.0.0:9418 sees the state of this gateway (and can \
           change nothing)",
        ],
    );
    warned(
        &GROUND.replace("127.0.0.1:14550", "0.0.0.0:14550"),
        &[
            "mavlink[0].udp_listen: everybody who can reach 0.0.0.0:14550 may send MAVLink to the other \
           end",
        ],
    );
    let same = AIRCRAFT.replace("eth1", "wwan0");
    warned(
        &same,
        &["path.lte: it leaves this machine as dish does, by the same interface and address; \
           `interface` or `address` keeps them apart"],
    );
    let (head, _) = GROUND.split_once("[[mavlink]]").unwrap();
    warned(
        &format!("{head}[[rule]]\nport = 22\nclass = \"bulk\"\n[health]\ngive_up = \"1s\"\n"),
        &[
            "there is nothing to carry: no `[[mavlink]]`, no `[udp.NAME]` and no `[tun]`",
            "rule: rules are for packets of `[tun]`, and there is none",
            "health.give_up: video and other data may stand still for 1s when a path falls silent",
        ],
    );
    warned(
        &format!("{AIRCRAFT}[class.control]\nprotocol = \"mp_dccp\"\nscheduler = \"low_rtt\"\n"),
        &[
            "class.control.protocol: under mp_dccp control waits while a window is full; over `udp` it \
             never waits",
            "class.control.scheduler: with low_rtt a control message that is lost with its path is \
             lost; `redundant` sends it on every path",
        ],
    );
}
