//! `skybraid-node check`: plain description of a gateway's configuration.

use std::fmt::Write;
use std::path::Path;

use nix::unistd::geteuid;
use skybraid_gateway::config::{
    ClassesConfig, MavlinkConfig, MessageName, Network, PathConfig, PortConfig,
};
use skybraid_gateway::{Class, GatewayConfig, PublicKey, Side};
use skybraid_scenario::GatewayFile;
use skybraid_transport::{Protocol, TransportConfig};

use super::error::NodeError;

/// Reads `file` and its keys, and returns a description of the gateway and its warnings.
pub fn check(file: &Path) -> Result<String, NodeError> {
    let read = GatewayFile::load(file)?;
    let secrets = read.secrets(geteuid().as_raw())?;
    let mut text = describe(&read.config, secrets.private.public());
    if let Some(log) = &read.config.log {
        let path = read.resolve(&log.file);
        line(&mut text, "log", &format!("{}, the state every {}", path.display(), log.every));
    }
    let mut warnings = read.warnings.clone();
    warnings.extend(missing(&read.config));
    if warnings.is_empty() {
        text.push_str("\nNothing to warn of.\n");
    } else {
        text.push_str("\nWarnings:\n");
        for warning in warnings {
            let _ = writeln!(text, "  {warning}");
        }
    }
    Ok(text)
}

/// Appends a line of a section: a name and its description.
fn line(text: &mut String, name: &str, what: &str) {
    // Writing to a string never fails.
    let _ = writeln!(text, "  {name:<12} {what}");
}

fn describe(config: &GatewayConfig, own: PublicKey) -> String {
    let side = match config.side {
        Side::Aircraft => "the aircraft's end",
        Side::Ground => "the ground station's end",
    };
    let over = match config.network {
        Network::Udp => "UDP",
        Network::Tcp => "TCP (control), MPTCP (the rest)",
    };
    let mut text = format!("{}: {side}, over {over}\n", config.name);
    line(&mut text, "public key", &own.to_string());
    for peer in &config.peer.0 {
        line(&mut text, "peer", &peer.to_string());
    }
    if config.psk.is_some() {
        line(&mut text, "shared key", "needed besides (Noise IKpsk2)");
    }
    text.push_str("\nPaths:\n");
    for (name, path) in &config.path {
        line(&mut text, name, &path_summary(path));
    }
    text.push_str("\nLocal ends:\n");
    for mavlink in &config.mavlink {
        line(&mut text, "mavlink", &mavlink_endpoint(mavlink));
    }
    for (name, port) in &config.udp {
        line(&mut text, name, &udp_port(port));
    }
    if let Some(tun) = &config.tun {
        line(
            &mut text,
            "tun",
            &format!(
                "interface {}, {}, MTU {}; behind the other end: {}",
                tun.name,
                tun.address,
                tun.mtu,
                if tun.allowed.is_empty() { "nothing else".into() } else { tun.allowed.join(", ") }
            ),
        );
    }
    text.push_str("\nClasses:\n");
    for class in Class::ALL {
        line(&mut text, class.name(), &class_transport(&config.class, class));
    }
    overrides(&mut text, config);
    let health = &config.health;
    text.push_str("\nOtherwise:\n");
    line(
        &mut text,
        "health",
        &format!(
            "a path is probed every {}, given up after {} of silence, and on probation for {} when it \
             comes back",
            health.probe, health.give_up, health.probation
        ),
    );
    line(
        &mut text,
        "keys",
        &format!(
            "changed every {}, and dropped after {}",
            config.session.rekey,
            config.session.lifetime()
        ),
    );
    if let Some(signing) = &config.signing {
        let what = format!("checked by the key in {}; wrong ones are dropped", signing.key);
        line(&mut text, "signatures", &what);
    }
    let listen = &config.status.listen;
    let page = if listen.is_empty() { "none".to_string() } else { format!("http://{listen}/") };
    line(&mut text, "page", &page);
    text
}

/// Returns the route of a path and its limits.
fn path_summary(path: &PathConfig) -> String {
    let mut text = match (&path.remote, &path.listen) {
        (Some(remote), _) => format!("to {remote}"),
        (_, Some(listen)) => format!("at {listen}"),
        _ => String::new(),
    };
    if let Some(interface) = &path.interface {
        let _ = write!(text, " by {interface}");
    }
    if let Some(address) = &path.address {
        let _ = write!(text, " from {address}");
    }
    let _ = write!(
        text,
        ", packets up to {}, cost {}, priority {}",
        path.mtu, path.cost, path.priority
    );
    if path.backup {
        text.push_str(", a backup");
    }
    if let Some(cap) = path.data_cap {
        let _ = write!(text, ", {cap} of data");
    }
    text
}

fn mavlink_endpoint(mavlink: &MavlinkConfig) -> String {
    let radio = if mavlink.radio_status { ", gets RADIO_STATUS" } else { "" };
    let kinds = [
        ("UDP, listens on", &mavlink.udp_listen),
        ("UDP, to", &mavlink.udp_connect),
        ("TCP, listens on", &mavlink.tcp_listen),
        ("TCP, connects to", &mavlink.tcp_connect),
    ];
    if let Some(device) = &mavlink.serial {
        return format!("serial, {device} at {} baud{radio}", mavlink.baud.unwrap_or(57600));
    }
    let given = kinds.iter().find_map(|(kind, address)| Some((kind, address.as_ref()?)));
    given.map_or_else(String::new, |(kind, address)| format!("{kind} {address}{radio}"))
}

fn udp_port(port: &PortConfig) -> String {
    let class = port.class.name();
    match (&port.listen, &port.send_to) {
        (Some(listen), Some(to)) => format!("UDP, receives {class} on {listen}, sends to {to}"),
        (Some(listen), None) => {
            format!("UDP, receives {class} on {listen}, sends to its last sender")
        }
        (None, Some(to)) => format!("UDP, sends {class} to {to}"),
        (None, None) => String::new(),
    }
}

fn class_transport(classes: &ClassesConfig, class: Class) -> String {
    let transport = classes.transport(class);
    let tx_queue = transport.tx_queue();
    let TransportConfig { protocol, scheduler, congestion, reordering, .. } = transport;
    let mut text = format!("{}, scheduler {}", protocol.name(), scheduler.name());
    if protocol != Protocol::Udp {
        let _ = write!(text, ", congestion {}, queue {tx_queue}", congestion.name());
    }
    if reordering.0.name() != "none" {
        let _ = write!(text, ", reordering {}", reordering.0.name());
    }
    if let Some(repair) = classes.of(class).repair {
        let _ = write!(text, ", {repair}");
    }
    match classes.deadline(class) {
        Some(deadline) => {
            let _ = write!(text, "; dropped when older than {deadline}");
        }
        None => text.push_str("; no deadline"),
    }
    text
}

/// Appends the messages and IP packets with a non-default class.
fn overrides(text: &mut String, config: &GatewayConfig) {
    let given = &config.messages;
    let lists = [
        ("control", &given.control),
        ("telemetry", &given.telemetry),
        ("bulk", &given.bulk),
        ("latest", &given.latest),
        ("every", &given.every),
    ];
    let some = lists.iter().any(|(_, list)| !list.is_empty()) || !config.rule.is_empty();
    if !some {
        return;
    }
    text.push_str("\nOther classes than the default:\n");
    for (name, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        let name_of = |message: &MessageName| match message {
            MessageName::Number(number) => number.to_string(),
            MessageName::Name(name) => name.clone(),
        };
        line(text, name, &list.iter().map(name_of).collect::<Vec<_>>().join(", "));
    }
    for rule in &config.rule {
        let dscp = rule.dscp.map(|dscp| format!("DSCP {dscp}"));
        let port = rule.port.map(|port| format!("port {port}"));
        let what: Vec<String> = dscp.into_iter().chain(port).collect();
        line(text, rule.class.name(), &format!("IP packets of {}", what.join(" and ")));
    }
}

/// Returns warnings about configured interfaces and devices that are absent; a gateway waits for them.
fn missing(config: &GatewayConfig) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, path) in &config.path {
        if let Some(interface) = &path.interface
            && !Path::new("/sys/class/net").join(interface).exists()
        {
            missing.push(format!(
                "path.{name}.interface: there is no interface {interface} now; the gateway waits for it"
            ));
        }
    }
    for (index, mavlink) in config.mavlink.iter().enumerate() {
        if let Some(device) = &mavlink.serial
            && !Path::new(device).exists()
        {
            missing.push(format!(
                "mavlink[{index}].serial: there is no {device} now; the gateway waits for it"
            ));
        }
    }
    missing
}
