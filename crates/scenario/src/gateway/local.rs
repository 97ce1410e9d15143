//! Checks of a gateway's local side: MAVLink, UDP ports, the TUN interface, and the classification of
//! messages.

use std::net::SocketAddr;

use skybraid_gateway::Side;
use skybraid_gateway::config::{MAVLINK, MavlinkConfig, MessageName};
use skybraid_gateway::inner::Prefix;
use skybraid_transport::mutran::mavlink;

use super::address::{self, Host, LISTEN, REMOTE};
use super::checks::{Check, Checked, MAX_CHANNELS};
use crate::key::KeyPath;
use crate::wording;

/// Maximum message number of MAVLink 2, of 24 bits.
const MAX_MESSAGE: u32 = 0x00ff_ffff;
/// Baud rates that Linux names, which all serial drivers support.
const BAUDS: [u32; 21] = [
    1200, 2400, 4800, 9600, 19200, 38400, 57600, 115_200, 230_400, 460_800, 500_000, 576_000,
    921_600, 1_000_000, 1_152_000, 1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000,
    4_000_000,
];

/// Checks the local side.
pub(super) fn all(check: Check<'_>) -> Checked {
    let channels = check.config.channels().len().max(check.config.mavlink.len());
    if channels > MAX_CHANNELS {
        let problem = format!("found {channels} channels, expected at most {MAX_CHANNELS}");
        return check.wrong(&KeyPath::dotted("udp"), problem);
    }
    for (index, config) in check.config.mavlink.iter().enumerate() {
        check.mavlink(&KeyPath::dotted(MAVLINK).index(index), config)?;
    }
    check.ports()?;
    check.tun()?;
    check.distinct_ports()?;
    check.messages()?;
    check.rules()
}

/// Returns the kinds of MAVLink endpoints, with the configured value of each.
fn kinds(config: &MavlinkConfig) -> [(&'static str, Option<&String>); 5] {
    [
        ("serial", config.serial.as_ref()),
        ("udp_listen", config.udp_listen.as_ref()),
        ("udp_connect", config.udp_connect.as_ref()),
        ("tcp_listen", config.tcp_listen.as_ref()),
        ("tcp_connect", config.tcp_connect.as_ref()),
    ]
}

impl Check<'_> {
    fn mavlink(self, key: &KeyPath, config: &MavlinkConfig) -> Checked {
        let given =
            kinds(config).into_iter().filter_map(|(kind, value)| value.map(|value| (kind, value)));
        let given: Vec<(&str, &String)> = given.collect();
        let [(kind, value)] = given.as_slice() else {
            let names: Vec<String> = given.iter().map(|(kind, _)| format!("`{kind}`")).collect();
            let found = if names.is_empty() { "none".to_string() } else { names.join(" and ") };
            return self.wrong(
                key,
                format!(
                    "found {found}, expected exactly one of `serial`, `udp_listen`, `udp_connect`, \
                     `tcp_listen`, `tcp_connect`; each has a table `[[mavlink]]` of its own"
                ),
            );
        };
        let place = key.key(kind);
        match *kind {
            "serial" => {
                let problem = "expected a serial device, for example `/dev/ttyAMA0`";
                self.ensure(value.starts_with('/'), &place, problem)?;
            }
            "udp_listen" | "tcp_listen" => {
                self.ensure(address::listen(value).is_some(), &place, LISTEN)?;
            }
            _ => self.ensure(address::remote(value).is_some(), &place, REMOTE)?,
        }
        let Some(baud) = config.baud else { return Ok(()) };
        let place = key.key("baud");
        if *kind != "serial" {
            return self.wrong(&place, format!("`baud` is of `serial`, found `{kind}`"));
        }
        let known: Vec<String> = BAUDS.iter().map(u32::to_string).collect();
        let problem = format!("expected one of {}", known.join(", "));
        self.ensure(BAUDS.contains(&baud), &place, problem)
    }

    fn ports(self) -> Checked {
        for (name, port) in &self.config.udp {
            let key = KeyPath::dotted("udp").key(name);
            self.name(&key, name)?;
            if port.listen.is_none() && port.send_to.is_none() {
                let problem = "found neither `listen`, for datagrams that are to be carried, nor \
                               `send_to`, for those that arrive; expected one or both";
                return self.wrong(&key, problem);
            }
            if let Some(listen) = &port.listen {
                self.ensure(address::listen(listen).is_some(), &key.key("listen"), LISTEN)?;
            }
            if let Some(to) = &port.send_to {
                self.ensure(address::remote(to).is_some(), &key.key("send_to"), REMOTE)?;
            }
        }
        Ok(())
    }

    fn tun(self) -> Checked {
        let Some(tun) = &self.config.tun else { return Ok(()) };
        let key = KeyPath::dotted("tun");
        self.interface(&key.key("name"), &tun.name)?;
        let Some((address, _)) = address::with_prefix(&tun.address) else {
            let problem = "expected an address with its prefix, for example `10.77.0.1/24` or \
                           `fd77::1/64`";
            return self.wrong(&key.key("address"), problem);
        };
        self.mtu(&key.key("mtu"), tun.mtu, address.is_ipv6())?;
        for (index, network) in tun.allowed.iter().enumerate() {
            if let Err(problem) = network.parse::<Prefix>() {
                return self.wrong(&key.key("allowed").index(index), problem.to_string());
            }
        }
        self.no_path_inside(&tun.name, tun.address.parse().ok())
    }

    /// Checks that no path leads through the TUN interface itself.
    fn no_path_inside(self, name: &str, network: Option<Prefix>) -> Checked {
        for (path, config) in &self.config.path {
            let key = KeyPath::dotted("path").key(path);
            if config.interface.as_deref() == Some(name) {
                let problem = format!(
                    "found `{name}`, which is this gateway's own `[tun]`, expected a network's"
                );
                return self.wrong(&key.key("interface"), problem);
            }
            let remote = config.remote.as_deref().and_then(address::remote);
            if let (Some(Host::Address(remote)), Some(network)) = (remote, &network)
                && network.contains(remote)
            {
                let problem =
                    format!("found {remote}, which is in {network}, the network of `[tun]` itself");
                return self.wrong(&key.key("remote"), problem);
            }
        }
        Ok(())
    }

    /// Checks that no two endpoints listen on one port, except for paths, which may share one.
    fn distinct_ports(self) -> Checked {
        let mut taken: Vec<(KeyPath, bool, SocketAddr)> = Vec::new();
        let add = |key: KeyPath, tcp: bool, text: Option<&String>| {
            let address = text.and_then(|text| address::listen(text));
            address.map(|address| (key, tcp, address))
        };
        let config = self.config;
        let paths = config.path.iter().filter(|_| config.side == Side::Ground).filter_map(
            |(name, path)| {
                let tcp = config.network == skybraid_gateway::config::Network::Tcp;
                add(KeyPath::dotted("path").key(name).key("listen"), tcp, path.listen.as_ref())
            },
        );
        taken.extend(paths);
        let own = taken.len();
        for (index, mavlink) in config.mavlink.iter().enumerate() {
            let key = KeyPath::dotted(MAVLINK).index(index);
            taken.extend(add(key.key("udp_listen"), false, mavlink.udp_listen.as_ref()));
            taken.extend(add(key.key("tcp_listen"), true, mavlink.tcp_listen.as_ref()));
        }
        for (name, port) in &config.udp {
            let key = KeyPath::dotted("udp").key(name).key("listen");
            taken.extend(add(key, false, port.listen.as_ref()));
        }
        let status = Some(&config.status.listen).filter(|listen| !listen.is_empty());
        taken.extend(add(KeyPath::dotted("status.listen"), true, status));
        let clash = |one: SocketAddr, other: SocketAddr| {
            let either = one.ip().is_unspecified() || other.ip().is_unspecified();
            one.port() == other.port() && (one.ip() == other.ip() || either)
        };
        for (at, (key, tcp, address)) in taken.iter().enumerate().skip(own) {
            let before = taken.iter().take(at);
            let mut same =
                before.filter(|(_, other_tcp, other)| other_tcp == tcp && clash(*other, *address));
            if let Some((other, _, theirs)) = same.next() {
                let problem =
                    format!("found `{address}`, but {other} listens on `{theirs}` already");
                return self.wrong(key, problem);
            }
        }
        Ok(())
    }

    fn messages(self) -> Checked {
        let given = &self.config.messages;
        let classes =
            [("control", &given.control), ("telemetry", &given.telemetry), ("bulk", &given.bulk)];
        let orders = [("latest", &given.latest), ("every", &given.every)];
        for lists in [&classes[..], &orders[..]] {
            let mut named: Vec<(u32, KeyPath)> = Vec::new();
            for (list, messages) in lists {
                let list = KeyPath::dotted("messages").key(list);
                for (index, message) in messages.iter().enumerate() {
                    let key = list.index(index);
                    let number = self.message(&key, message)?;
                    if let Some((_, other)) = named.iter().find(|(known, _)| *known == number) {
                        return self
                            .wrong(&key, format!("is also in {other}, expected in one list"));
                    }
                    named.push((number, key));
                }
            }
        }
        Ok(())
    }

    fn message(self, key: &KeyPath, message: &MessageName) -> Result<u32, crate::ScenarioError> {
        let wrong = |problem: String| Err(self.text.wrong(key, problem));
        match message {
            MessageName::Number(number) if *number <= MAX_MESSAGE => Ok(*number),
            MessageName::Number(_) => wrong(format!("expected at most {MAX_MESSAGE}")),
            MessageName::Name(name) => {
                if let Some(known) = mavlink::COMMON.iter().find(|known| known.name == name) {
                    return Ok(known.message);
                }
                let known: Vec<&str> = mavlink::COMMON.iter().map(|known| known.name).collect();
                let unknown = wording::unknown_of_many("message", name, &known);
                wrong(format!(
                    "{unknown} (one without a name here is given by its number, such as 76 for \
                     COMMAND_LONG)"
                ))
            }
        }
    }

    fn rules(self) -> Checked {
        for (index, rule) in self.config.rule.iter().enumerate() {
            let key = KeyPath::dotted("rule").index(index);
            if rule.dscp.is_none() && rule.port.is_none() {
                let problem = "found neither `dscp` nor `port`, expected one or both";
                return self.wrong(&key, problem);
            }
            let dscp = rule.dscp.is_none_or(|dscp| dscp <= 63);
            self.ensure(dscp, &key.key("dscp"), "expected 0 to 63")?;
            self.ensure(rule.port != Some(0), &key.key("port"), "expected 1 to 65535")?;
        }
        Ok(())
    }
}
