//! Warnings about valid but probably unintended settings of a gateway's file.

use skybraid_gateway::class::Class;
use skybraid_gateway::config::PathConfig;
use skybraid_gateway::{GatewayConfig, Side};
use skybraid_transport::Protocol;
use skybraid_units::Duration;

use super::address;

/// Returns all warnings, each with the key it concerns.
pub(super) fn all(config: &GatewayConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    shared_routes(config, &mut warnings);
    control_transport(config, &mut warnings);
    open_ports(config, &mut warnings);
    if config.channels().is_empty() {
        warnings.push(
            "there is nothing to carry: no `[[mavlink]]`, no `[udp.NAME]` and no `[tun]`"
                .to_string(),
        );
    }
    if config.tun.is_none() && !config.rule.is_empty() {
        warnings.push("rule: rules are for packets of `[tun]`, and there is none".to_string());
    }
    if config.health.give_up > Duration::from_millis(300) {
        warnings.push(format!(
            "health.give_up: video and other data may stand still for {} when a path falls silent",
            config.health.give_up
        ));
    }
    warnings
}

fn shared_routes(config: &GatewayConfig, warnings: &mut Vec<String>) {
    if config.side == Side::Ground {
        return;
    }
    let route = |path: &PathConfig| (path.interface.clone(), path.address.clone());
    let mut seen: Vec<(&str, _)> = Vec::new();
    for (name, path) in &config.path {
        let own = route(path);
        if let Some((other, _)) = seen.iter().find(|(_, route)| *route == own) {
            warnings.push(format!(
                "path.{name}: it leaves this machine as {other} does, by {}; `interface` or `address` \
                 keeps them apart",
                match own {
                    (None, None) => "whichever way the routing table says",
                    _ => "the same interface and address",
                }
            ));
        }
        seen.push((name, own));
    }
}

fn control_transport(config: &GatewayConfig, warnings: &mut Vec<String>) {
    let transport = config.class.transport(Class::Control);
    if transport.protocol != Protocol::Udp {
        warnings.push(format!(
            "class.control.protocol: under {} control waits while a window is full; over `udp` it \
             never waits",
            transport.protocol.name()
        ));
    }
    if transport.scheduler.name() != "redundant" && config.path.len() > 1 {
        warnings.push(format!(
            "class.control.scheduler: with {} a control message that is lost with its path is lost; \
             `redundant` sends it on every path",
            transport.scheduler.name()
        ));
    }
}

fn open_ports(config: &GatewayConfig, warnings: &mut Vec<String>) {
    let open = |text: &str| address::listen(text).filter(|address| !address.ip().is_loopback());
    if let Some(address) = open(&config.status.listen) {
        warnings.push(format!(
            "status.listen: everybody who can reach {address} sees the state of this gateway (and can \
             change nothing)"
        ));
    }
    for (index, mavlink) in config.mavlink.iter().enumerate() {
        let listens = [
            ("udp_listen", mavlink.udp_listen.as_ref()),
            ("tcp_listen", mavlink.tcp_listen.as_ref()),
        ];
        for (key, text) in listens {
            if let Some(address) = text.and_then(|text| open(text)) {
                warnings.push(format!(
                    "mavlink[{index}].{key}: everybody who can reach {address} may send MAVLink to the \
                     other end"
                ));
            }
        }
    }
}
