//! Faults while an emulation runs: interfaces, connections, disks. Takes root.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use skybraid_emulator::emulation::{Emulated, Emulation, EmulationError, Options};
use skybraid_host::record::{FlowRecord, Record};
use skybraid_io::netlink::Namespace;
use skybraid_link::Cause;
use skybraid_scenario::Scenario;
use skybraid_units::{Instant, Seed};

/// Two paths of 20 ms. What is lost at `near` is not sent again by `near_udp` and is by `near_tcp`; `both`
/// can do without it, and has room for what is out of order: where that fills the receive buffer of 128 KiB, Linux
/// 6.18 never takes what is missing, although it has come.
const FLIGHT: &str = r#"
name = "Faults"
duration = "3s"

[path.near]
uplink.rate = "20Mbit/s"
uplink.delay = "20ms"
downlink.rate = "20Mbit/s"
downlink.delay = "20ms"

[path.far]
uplink.rate = "20Mbit/s"
uplink.delay = "20ms"
downlink.rate = "20Mbit/s"
downlink.delay = "20ms"

[flow.near_udp]
from = "vehicle"
traffic = { kind = "cbr", rate = "800kbit/s", packet = "1000B" }
transport = { protocol = "udp", paths = ["near"] }
require = { deadline = "500ms", share = "10%" }

[flow.near_down]
from = "ground"
traffic = { kind = "cbr", rate = "800kbit/s", packet = "1000B" }
transport = { protocol = "udp", paths = ["near"] }

[flow.near_tcp]
from = "vehicle"
traffic = { kind = "cbr", rate = "800kbit/s", packet = "1000B" }
transport = { protocol = "tcp", paths = ["near"], stack = "kernel", congestion = "cubic" }

[flow.both]
from = "vehicle"
traffic = { kind = "cbr", rate = "800kbit/s", packet = "1000B" }
transport = { protocol = "mptcp", scheduler = "linux", stack = "kernel", congestion = "cubic", receive_buffer = "2MB" }

[flow.far_udp]
from = "vehicle"
traffic = { kind = "cbr", rate = "800kbit/s", packet = "1000B" }
transport = { protocol = "udp", paths = ["far"] }
"#;

const FLOWS: [&str; 5] = ["near_udp", "near_down", "near_tcp", "both", "far_udp"];

/// The emulation of `text`; `None`, with a word, without the rights.
fn build(text: &str, options: Options) -> Option<Emulation> {
    if let Err(error) = Namespace::create("probe") {
        println!("skipped: {error}");
        return None;
    }
    let scenario = Scenario::parse(text, Path::new("faults.toml"), &[]).unwrap();
    let record = Record { messages: true, links: true, ..Record::default() };
    let setup = scenario.setup(Seed(1), record);
    Some(Emulation::build(setup, &scenario.testbed, options).unwrap())
}

/// Flies with something happening at each of these times, in ms, and then goes on to the end.
fn fly(emulation: &mut Emulation, events: &mut [(i64, &mut dyn FnMut())]) -> Emulated {
    let mut next = 0;
    let flown = emulation.fly(&mut |now| {
        while let Some((at_ms, act)) = events.get_mut(next).filter(|event| now >= ms(event.0)) {
            println!("at {at_ms} ms");
            act();
            next += 1;
        }
        true
    });
    let flown = flown.unwrap();
    assert_eq!(next, events.len());
    check(&flown);
    flown
}

/// Every packet and every message has its place.
fn check(flown: &Emulated) {
    for account in &flown.forwarded.accounts {
        assert!(account.adds_up(), "{account:?}");
        assert_eq!(account.lost_by_emulator(), 0, "{account:?}");
    }
    for record in &flown.outcome.flows {
        let summary = &record.summary;
        assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
    }
}

fn ms(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

fn flow<'a>(flown: &'a Emulated, name: &str) -> &'a FlowRecord {
    let number = FLOWS.iter().position(|known| *known == name).unwrap();
    &flown.outcome.flows[number]
}

/// Of the messages written from `from` to `to`, in ms, how many were delivered and how many there were.
fn delivered(record: &FlowRecord, from: i64, to: i64) -> (usize, usize) {
    let rows = record.blocks().flatten().filter(|row| (ms(from)..ms(to)).contains(&row.sent()));
    let rows: Vec<_> = rows.collect();
    (rows.iter().filter(|row| row.delivered().is_some()).count(), rows.len())
}

fn all(record: &FlowRecord, from: i64, to: i64) -> bool {
    let (came, sent) = delivered(record, from, to);
    println!("{came} of {sent} written from {from} to {to} ms");
    sent > 0 && came == sent
}

fn index(place: &Namespace, interface: &str) -> u32 {
    place.netlink().unwrap().link(interface).unwrap().index
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("skybraid-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// An interface goes down at 1 s and comes up again at 1.6 s.
///
/// Linux gives a subflow's data to another one only while that one has nothing under way, so that what `both` sent over
/// `near` waits for this subflow's own timeout, which doubles each time: the flight is long enough for one that began
/// with 1.5 s.
fn down_and_up(node: &str) {
    let patient = FLIGHT.replace("duration = \"3s\"", "duration = \"6s\"");
    let Some(mut emulation) = build(&patient, Options::default()) else { return };
    let place = emulation.node(node).unwrap().try_clone().unwrap();
    let interface = index(&place, "near");
    let mut netlink = place.netlink().unwrap();
    let mut down = || netlink.set_down(interface).unwrap();
    let mut netlink = place.netlink().unwrap();
    let mut up = || netlink.set_up(interface).unwrap();
    let flown = fly(&mut emulation, &mut [(1000, &mut down), (1600, &mut up)]);
    for name in ["near_udp", "near_down"] {
        let near = flow(&flown, name);
        assert!(all(near, 100, 900) && all(near, 1900, 2900), "{name}");
        assert!(near.summary.lost > 0, "{name}: {:?}", near.summary);
    }
    assert!(all(flow(&flown, "far_udp"), 0, 2900));
    let other = if node == "vehicle" { 1 } else { 0 };
    let lost = flown.forwarded.accounts[other].lost[Cause::Outage as usize];
    assert!(lost > 10, "{:?}", flown.forwarded.accounts);
    for carried in &flown.carried {
        let ended = carried.connection.as_ref().and_then(|connection| connection.ended.clone());
        assert_eq!(ended, None);
    }
    for name in ["near_tcp", "both"] {
        let record = flow(&flown, name);
        let last = record.blocks().flatten().filter_map(|row| row.delivered()).max();
        assert!(
            all(record, 0, 1500),
            "{name}: the last message came at {last:?}: {:?}",
            record.summary
        );
    }
}

#[test]
fn traffic_returns_with_an_interface_of_the_vehicle() {
    down_and_up("vehicle");
}

#[test]
fn traffic_returns_with_an_interface_of_the_ground() {
    down_and_up("ground");
}

#[test]
fn without_one_interface_the_other_paths_go_on() {
    for node in ["vehicle", "ground"] {
        let Some(mut emulation) = build(FLIGHT, Options::default()) else { return };
        let place = emulation.node(node).unwrap().try_clone().unwrap();
        let interface = index(&place, "near");
        let mut delete = || place.netlink().unwrap().delete_link(interface).unwrap();
        let flown = fly(&mut emulation, &mut [(1000, &mut delete)]);
        assert!(all(flow(&flown, "far_udp"), 0, 2900), "{node}");
        assert!(all(flow(&flown, "near_udp"), 0, 900), "{node}");
        assert_eq!(delivered(flow(&flown, "near_udp"), 1200, 2900).0, 0, "{node}");
        assert!(all(flow(&flown, "near_tcp"), 0, 900), "{node}");
        assert!(all(flow(&flown, "both"), 0, 900), "{node}");
    }
}

#[test]
fn a_killed_connection_ends_its_flow_alone_with_an_error() {
    for node in ["vehicle", "ground"] {
        let Some(mut emulation) = build(FLIGHT, Options::default()) else { return };
        let place = emulation.node(node).unwrap().try_clone().unwrap();
        let mut killed = true;
        // Of near_tcp, the only one of plain TCP.
        let mut kill = || {
            let words = ["-K", "-t", "-H", "state", "established", "src", "10.0.0.0/24"];
            let result = place.run(|| Command::new("ss").args(words).output()).unwrap();
            killed = result.is_ok_and(|result| {
                let result = String::from_utf8_lossy(&result.stdout).into_owned();
                println!("{result}");
                !result.trim().is_empty()
            });
        };
        let flown = fly(&mut emulation, &mut [(1000, &mut kill)]);
        if !killed {
            println!("skipped: `ss -K` kills no sockets here");
            return;
        }
        let ended = flown.carried[2].connection.as_ref().unwrap().ended.clone().unwrap();
        println!("{ended}");
        let result = ended.to_string();
        assert!(result.starts_with("flow `near_tcp`, vehicle 10.0.0.1:"), "{result}");
        assert!(result.contains(" failed: "), "{result}");
        assert!(all(flow(&flown, "near_tcp"), 0, 900), "{node}");
        assert!(flow(&flown, "near_tcp").summary.lost > 100);
        for name in ["near_udp", "near_down", "far_udp"] {
            assert!(all(flow(&flown, name), 0, 2900), "{node}: {name}");
        }
    }
}

#[test]
fn a_run_that_ends_early_is_judged_by_its_duration() {
    let Some(mut emulation) = build(FLIGHT, Options::default()) else { return };
    let flown = emulation.fly(&mut |now| now < ms(1000)).unwrap();
    check(&flown);
    let stopped = flown.stopped.unwrap();
    assert!((ms(1000)..ms(1400)).contains(&stopped));
    for name in FLOWS {
        let summary = &flow(&flown, name).summary;
        assert_eq!(summary.lost, 0, "{name}: {summary:?}");
        assert!(summary.in_flight > 0, "{name}: {summary:?}");
    }
    let judged = flow(&flown, "near_udp");
    let deadline = &judged.summary.deadlines[0];
    let rows = judged.blocks().flatten();
    let due = rows.filter(|row| row.sent() + deadline.limit <= stopped).count();
    assert!(due > 0);
    assert_eq!((deadline.trials, deadline.met), (due as u64, due as u64));
    assert!(flown.outcome.links.iter().all(|row| row.at <= stopped));
}

#[test]
fn a_disk_that_is_full_is_a_plain_error() {
    let folder = folder("full");
    // Whatever is written to this device, there is no space left on it.
    symlink("/dev/full", folder.join("near-vehicle.pcapng")).unwrap();
    let options = Options { captures: Some(folder.clone()), ..Options::default() };
    let Some(mut emulation) = build(FLIGHT, options) else { return };
    let error = emulation.fly(&mut |now| now < ms(500)).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("near-vehicle.pcapng"), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_impossible_control_socket_or_capture_is_an_error() {
    let folder = folder("nowhere");
    let nowhere = folder.join("missing");
    let control = Options { control: Some(nowhere.join("x.sock")), ..Options::default() };
    let captures = Options { captures: Some(nowhere.clone()), ..Options::default() };
    for (options, expected) in [(control, "x.sock"), (captures, "near-vehicle.pcapng")] {
        let Some(mut emulation) = build(FLIGHT, options) else { return };
        let error = emulation.fly(&mut |_| true).unwrap_err();
        assert!(matches!(error, EmulationError::System(_)));
        let message = error.to_string();
        println!("{message}");
        assert!(message.contains(expected) && message.contains("No such file"), "{message}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::remove_dir_all(folder).unwrap();
}
