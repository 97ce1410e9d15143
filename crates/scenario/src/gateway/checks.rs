//! Checks of a gateway's file.

use skybraid_gateway::class::Class;
use skybraid_gateway::config::{MAVLINK, Network, PathConfig, TUN};
use skybraid_gateway::health::timing::MAX_INTERVAL;
use skybraid_gateway::{GatewayConfig, Side};
use skybraid_traffic::video::protection::Duplicate;
use skybraid_transport::Protocol;
use skybraid_units::{Bytes, Duration};

use super::address::{self, Host, LISTEN, REMOTE};
use super::local;
use crate::ScenarioError;
use crate::checks::transport;
use crate::key::{KeyPath, is_name};
use crate::text::ScenarioText;

pub(super) const MAX_PATHS: usize = 32;
/// Maximum number of trusted peers, each of which is sent an init message.
const MAX_PEERS: usize = 8;
pub(super) const MAX_CHANNELS: usize = 60;
const MAX_NAME_LEN: usize = 32;
pub(super) const NAME: &str = "expected a name of up to 32 letters, digits, `-` and `_`";
pub(super) const INTERFACE: &str =
    "expected the name of a network interface, 1 to 15 characters, for example `wwan0`";
pub(super) const MTU: std::ops::RangeInclusive<u64> = 576..=9000;
/// Minimum MTU of IPv6 (RFC 8200 §5).
pub(super) const MIN_MTU_OF_IPV6: u64 = 1280;

pub(super) type Checked = Result<(), ScenarioError>;

/// Returns the key path of a peer's key: `peer`, or an element of it.
pub(super) fn peer(config: &GatewayConfig, place: usize) -> KeyPath {
    let key = KeyPath::dotted("peer");
    if config.peer.0.len() > 1 { key.index(place) } else { key }
}

/// Checker of a gateway's configuration and text.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    pub config: &'a GatewayConfig,
    pub text: &'a ScenarioText,
}

/// Checks the configuration except for the files it names.
pub(super) fn all(config: &GatewayConfig, text: &ScenarioText) -> Checked {
    let check = Check { config, text };
    check.top()?;
    check.paths()?;
    local::all(check)?;
    check.classes()?;
    check.health()?;
    check.rest()
}

impl Check<'_> {
    pub fn wrong(&self, key: &KeyPath, problem: impl Into<String>) -> Checked {
        Err(self.text.wrong(key, problem.into()))
    }

    pub fn ensure(&self, holds: bool, key: &KeyPath, problem: impl Into<String>) -> Checked {
        if holds { Ok(()) } else { self.wrong(key, problem) }
    }

    fn within(&self, key: &str, value: Duration, min: Duration, max: Duration) -> Checked {
        let fits = min <= value && value <= max;
        self.ensure(fits, &KeyPath::dotted(key), format!("expected {min} to {max}"))
    }

    pub fn mtu(&self, key: &KeyPath, mtu: Bytes, ipv6: bool) -> Checked {
        let (min, max) = (*MTU.start(), *MTU.end());
        if ipv6 && (min..MIN_MTU_OF_IPV6).contains(&mtu.get()) {
            let problem = format!("expected {MIN_MTU_OF_IPV6}B to {max}B, as IPv6 needs");
            return self.wrong(key, problem);
        }
        self.ensure(MTU.contains(&mtu.get()), key, format!("expected {min}B to {max}B"))
    }

    pub fn interface(&self, key: &KeyPath, name: &str) -> Checked {
        self.ensure(address::is_interface(name), key, INTERFACE)
    }

    pub fn name(&self, key: &KeyPath, name: &str) -> Checked {
        let fits = is_name(name) && name.len() <= MAX_NAME_LEN;
        self.ensure(fits, key, format!("found the name `{name}`, {NAME}"))
    }

    fn top(&self) -> Checked {
        let name = &self.config.name;
        let fits = (1..=64).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        self.ensure(fits, &KeyPath::dotted("name"), "expected 1 to 64 characters on a line")?;
        self.ensure(
            !self.config.key.is_empty(),
            &KeyPath::dotted("key"),
            "expected the file of the private key; `skybraid-node keygen FILE` makes one",
        )?;
        let psk = self.config.psk.as_ref().is_none_or(|psk| !psk.is_empty());
        let problem = "expected the file of a key that both ends share; `skybraid-node genpsk FILE` makes one";
        self.ensure(psk, &KeyPath::dotted("psk"), problem)?;
        let peers = &self.config.peer.0;
        if !(1..=MAX_PEERS).contains(&peers.len()) {
            let problem = format!("found {} keys, expected 1 to {MAX_PEERS}", peers.len());
            return self.wrong(&KeyPath::dotted("peer"), problem);
        }
        for (place, key) in peers.iter().enumerate() {
            let first = peers.iter().position(|other| other == key);
            if let Some(first) = first.filter(|first| *first < place) {
                let problem = format!("found the key of peer[{first}] again, expected each once");
                return self.wrong(&peer(self.config, place), problem);
            }
        }
        Ok(())
    }

    fn paths(&self) -> Checked {
        let top = KeyPath::dotted("path");
        let count = self.config.path.len();
        if count == 0 {
            let problem = "found no path, expected at least one table `[path.NAME]`";
            return self.wrong(&top, problem);
        }
        if count > MAX_PATHS {
            return self.wrong(&top, format!("found {count} paths, expected at most {MAX_PATHS}"));
        }
        for (name, path) in &self.config.path {
            let key = top.key(name);
            self.name(&key, name)?;
            self.path(&key, path)?;
        }
        Ok(())
    }

    fn path(&self, key: &KeyPath, path: &PathConfig) -> Checked {
        let own = path.address.as_deref().map(str::parse::<std::net::IpAddr>);
        if let Some(interface) = &path.interface {
            self.interface(&key.key("interface"), interface)?;
        }
        if let Some(Err(_)) = own {
            let problem = "expected an address of this machine, for example `192.0.2.7`";
            return self.wrong(&key.key("address"), problem);
        }
        let ipv6 = match self.config.side {
            Side::Aircraft => self.aircraft_path(key, path)?,
            Side::Ground => self.ground_path(key, path)?,
        };
        self.mtu(&key.key("mtu"), path.mtu, ipv6)?;
        self.ensure(path.priority <= 15, &key.key("priority"), "expected 0 to 15")?;
        let capped = path.data_cap.is_none_or(|cap| cap > Bytes::ZERO);
        self.ensure(capped, &key.key("data_cap"), "expected above zero")
    }

    /// Checks a path of the aircraft. Returns whether it is known to use IPv6.
    fn aircraft_path(&self, key: &KeyPath, path: &PathConfig) -> Result<bool, ScenarioError> {
        if path.listen.is_some() {
            let problem = "found a key of the ground station, expected `remote`, the address of the \
                           ground station";
            self.wrong(&key.key("listen"), problem)?;
        }
        let place = key.key("remote");
        let Some(remote) = &path.remote else {
            self.wrong(&place, REMOTE)?;
            return Ok(false);
        };
        let Some(host) = address::remote(remote) else {
            self.wrong(&place, REMOTE)?;
            return Ok(false);
        };
        let own: Option<std::net::IpAddr> =
            path.address.as_deref().and_then(|address| address.parse().ok());
        let family = |ipv6: bool| if ipv6 { "IPv6" } else { "IPv4" };
        if let Host::Address(remote) = host {
            self.ensure(
                !remote.is_unspecified(),
                &place,
                "expected the ground station's address; this one stands for any",
            )?;
            if let Some(own) = own.filter(|own| own.is_ipv6() != remote.is_ipv6()) {
                let (own, remote) = (family(own.is_ipv6()), family(remote.is_ipv6()));
                let problem = format!("an address of {own} cannot reach a `remote` of {remote}");
                self.wrong(&key.key("address"), problem)?;
            }
            return Ok(remote.is_ipv6());
        }
        Ok(own.is_some_and(|own| own.is_ipv6()))
    }

    /// Checks a path of the ground station. Returns whether it is known to use IPv6.
    fn ground_path(&self, key: &KeyPath, path: &PathConfig) -> Result<bool, ScenarioError> {
        if path.remote.is_some() {
            let problem =
                "found a key of the aircraft, expected `listen`, an address of this machine";
            self.wrong(&key.key("remote"), problem)?;
        }
        if path.address.is_some() {
            let problem = "the address of a path of the ground station is that of `listen`";
            self.wrong(&key.key("address"), problem)?;
        }
        match path.listen.as_deref().map(address::listen) {
            // An unspecified IPv6 address also accepts IPv4.
            Some(Some(listen)) => Ok(listen.is_ipv6() && !listen.ip().is_unspecified()),
            _ => self.wrong(&key.key("listen"), LISTEN).map(|()| false),
        }
    }

    fn classes(&self) -> Checked {
        let paths: Vec<&str> = self.config.path.keys().map(String::as_str).collect();
        for class in Class::ALL {
            let key = KeyPath::dotted("class").key(class.name());
            let given = self.config.class.of(class);
            if let Some(protocol) = given.protocol {
                let fits = matches!(protocol, Protocol::Udp | Protocol::MpDccp | Protocol::Dccp);
                let problem = "expected `udp`, `mp_dccp` or `dccp`";
                self.ensure(fits, &key.key("protocol"), problem)?;
                if protocol.is_single_path() && paths.len() > 1 {
                    let problem = format!(
                        "{} uses one path, found {} ({}); `mp_dccp` uses several",
                        protocol.name(),
                        paths.len(),
                        paths.join(", "),
                    );
                    self.wrong(&key.key("protocol"), problem)?;
                }
            }
            let own = "an algorithm in Python is for the simulator alone";
            let scheduler = given.scheduler.as_ref().is_none_or(|config| config.custom().is_none());
            self.ensure(scheduler, &key.key("scheduler"), own)?;
            let congestion =
                given.congestion.as_ref().is_none_or(|config| config.custom().is_none());
            self.ensure(congestion, &key.key("congestion"), own)?;
            let deadline = given.deadline.is_none_or(Duration::is_positive);
            self.ensure(deadline, &key.key("deadline"), "expected above zero")?;
            self.ensure(given.queue != Some(0), &key.key("queue"), "expected above zero")?;
            let copies = given.duplicate.is_some_and(|duplicate| duplicate != Duplicate::None);
            let problem = "found with `scheduler`, which says itself what leaves on every path";
            let key_of = key.key("duplicate");
            self.ensure(!copies || given.scheduler.is_none(), &key_of, problem)?;
            let problem =
                "found with `network = \"tcp\"`, where one connection carries all of the class";
            self.ensure(!copies || self.config.network == Network::Udp, &key_of, problem)?;
            let problem = "found for control, which leaves on every path as it is";
            self.ensure(!copies || class != Class::Control, &key_of, problem)?;
            if let Some(repair) = &given.repair {
                let key = key.key("repair");
                if let Err((below, expected)) = repair.check() {
                    self.ensure(false, &key.key(below), format!("expected {expected}"))?;
                }
                let tcp = self.config.network == Network::Tcp;
                let problem =
                    "found with `network = \"tcp\"`, where nothing that it could make good is lost";
                self.ensure(!tcp, &key, problem)?;
            }
            let config = self.config.class.transport(class);
            for (place, position) in config.scheduler.positions() {
                let last = paths.len().saturating_sub(1);
                let problem =
                    format!("found path {position}, expected a position from 0 to {last}");
                let fits = usize::from(position) <= last;
                self.ensure(fits, &key.below(&format!("scheduler.{place}")), problem)?;
            }
            if let Err((place, problem)) = transport(&config) {
                self.wrong(&key.below(&place), problem)?;
            }
        }
        Ok(())
    }

    fn health(&self) -> Checked {
        let health = &self.config.health;
        self.within("health.probe", health.probe, Duration::from_millis(5), MAX_INTERVAL)?;
        let three = health.probe * 3;
        if health.give_up < three {
            let problem = format!(
                "found {}, expected at least three times `probe` ({three}), so that a single lost \
                 probe is no outage",
                health.give_up
            );
            self.wrong(&KeyPath::dotted("health.give_up"), problem)?;
        }
        self.within("health.give_up", health.give_up, three, Duration::from_secs(10))?;
        let max = Duration::from_secs(60);
        self.within("health.probation", health.probation, Duration::ZERO, max)
    }

    fn rest(&self) -> Checked {
        let hour = Duration::from_secs(3600);
        self.within("session.rekey", self.config.session.rekey, Duration::from_secs(10), hour)?;
        let session = &self.config.session;
        let day = Duration::from_secs(86_400);
        self.within("session.lifetime", session.lifetime(), session.rekey * 2, day)?;
        let listen = &self.config.status.listen;
        let fits = listen.is_empty() || address::listen(listen).is_some();
        let problem =
            "expected an address and a port, for example `127.0.0.1:9418`, or nothing (`\"\"`)";
        self.ensure(fits, &KeyPath::dotted("status.listen"), problem)?;
        if let Some(signing) = &self.config.signing {
            let problem = "expected the file of the key of signed MAVLink frames";
            self.ensure(!signing.key.is_empty(), &KeyPath::dotted("signing.key"), problem)?;
        }
        for (index, host) in self.config.status.hosts.iter().enumerate() {
            let key = KeyPath::dotted("status.hosts").index(index);
            let problem = "expected a host's name without a port, for example `tower.example.org`";
            self.ensure(address::is_host(host), &key, problem)?;
        }
        if let Some(log) = &self.config.log {
            let problem =
                "expected the name of a file, for example `/var/log/skybraid/flight.jsonl`";
            let named = std::path::Path::new(&log.file).file_name().is_some();
            self.ensure(named, &KeyPath::dotted("log.file"), problem)?;
            self.within("log.every", log.every, Duration::from_millis(100), hour)?;
            let year = hour * (24 * 365);
            self.within("log.max_age", log.max_age, Duration::from_secs(60), year)?;
            let fits = (1_000_000..=1_000_000_000_000).contains(&log.max_size.get());
            let problem = "expected 1MB to 1000GB";
            self.ensure(fits, &KeyPath::dotted("log.max_size"), problem)?;
            let problem = format!("expected at least `max_size` ({})", log.max_size);
            self.ensure(log.keep >= log.max_size, &KeyPath::dotted("log.keep"), problem)?;
        }
        for name in self.config.udp.keys().filter(|name| [MAVLINK, TUN].contains(&name.as_str())) {
            let problem = format!("found the name `{name}`, which is that of another channel");
            self.wrong(&KeyPath::dotted("udp").key(name), problem)?;
        }
        Ok(())
    }
}
