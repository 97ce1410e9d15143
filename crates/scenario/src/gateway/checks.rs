//! What a gateway's file must not say.

use skybraid_gateway::class::Class;
use skybraid_gateway::config::{MAVLINK, Network, PathConfig, TUN};
use skybraid_gateway::{GatewayConfig, Side};
use skybraid_traffic::video::protect::Duplicate;
use skybraid_transport::Protocol;
use skybraid_units::{Bytes, Duration};

use super::address::{self, Host, LISTEN, REMOTE};
use super::local;
use crate::ScenarioError;
use crate::checks::transport;
use crate::key::{KeyPath, is_name};
use crate::text::ScenarioText;

pub(super) const MOST_PATHS: usize = 32;
pub(super) const MOST_CHANNELS: usize = 60;
const LONGEST_NAME: usize = 32;
pub(super) const NAME: &str = "expected a name of up to 32 letters, digits, `-` and `_`";
pub(super) const INTERFACE: &str =
    "expected the name of a network interface, 1 to 15 characters, for example `wwan0`";
pub(super) const MTU: std::ops::RangeInclusive<u64> = 576..=9000;
/// RFC 8200 §5.
pub(super) const LEAST_MTU_OF_IPV6: u64 = 1280;

pub(super) type Checked = Result<(), ScenarioError>;

/// Looks for keys that are wrong, with the text that has them.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    pub config: &'a GatewayConfig,
    pub text: &'a ScenarioText,
}

/// Checks everything but the files that it names.
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

    pub fn hold(&self, holds: bool, key: &KeyPath, problem: impl Into<String>) -> Checked {
        if holds { Ok(()) } else { self.wrong(key, problem) }
    }

    fn within(&self, key: &str, value: Duration, least: Duration, most: Duration) -> Checked {
        let fits = least <= value && value <= most;
        self.hold(fits, &KeyPath::dotted(key), format!("expected {least} to {most}"))
    }

    pub fn mtu(&self, key: &KeyPath, mtu: Bytes, ipv6: bool) -> Checked {
        let (least, most) = (*MTU.start(), *MTU.end());
        if ipv6 && (least..LEAST_MTU_OF_IPV6).contains(&mtu.get()) {
            let problem = format!("expected {LEAST_MTU_OF_IPV6}B to {most}B, as IPv6 needs");
            return self.wrong(key, problem);
        }
        self.hold(MTU.contains(&mtu.get()), key, format!("expected {least}B to {most}B"))
    }

    pub fn interface(&self, key: &KeyPath, name: &str) -> Checked {
        self.hold(address::is_interface(name), key, INTERFACE)
    }

    pub fn name(&self, key: &KeyPath, name: &str) -> Checked {
        let fits = is_name(name) && name.len() <= LONGEST_NAME;
        self.hold(fits, key, format!("found the name `{name}`, {NAME}"))
    }

    fn top(&self) -> Checked {
        let name = &self.config.name;
        let fits = (1..=64).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        self.hold(fits, &KeyPath::dotted("name"), "expected 1 to 64 characters on a line")?;
        self.hold(
            !self.config.key.is_empty(),
            &KeyPath::dotted("key"),
            "expected the file of the private key; `skybraid-node keygen FILE` makes one",
        )
    }

    fn paths(&self) -> Checked {
        let top = KeyPath::dotted("path");
        let count = self.config.path.len();
        if count == 0 {
            let problem = "found no path, expected at least one table `[path.NAME]`";
            return self.wrong(&top, problem);
        }
        if count > MOST_PATHS {
            return self.wrong(&top, format!("found {count} paths, expected at most {MOST_PATHS}"));
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
            Side::Aircraft => self.leaves(key, path)?,
            Side::Ground => self.answers(key, path)?,
        };
        self.mtu(&key.key("mtu"), path.mtu, ipv6)?;
        self.hold(path.priority <= 15, &key.key("priority"), "expected 0 to 15")?;
        let capped = path.data_cap.is_none_or(|cap| cap > Bytes::ZERO);
        self.hold(capped, &key.key("data_cap"), "expected above zero")
    }

    /// A path of the aircraft; whether it is known to be of IPv6.
    fn leaves(&self, key: &KeyPath, path: &PathConfig) -> Result<bool, ScenarioError> {
        if path.listen.is_some() {
            let problem = "a path of the aircraft has `remote`, where the ground station answers; \
                           `listen` is of the ground station";
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
        let own: Option<std::net::IpAddr> = path.address.as_deref().and_then(|it| it.parse().ok());
        let family = |ipv6: bool| if ipv6 { "IPv6" } else { "IPv4" };
        if let Host::Address(remote) = host {
            self.hold(
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

    /// A path of the ground station; whether it is known to be of IPv6.
    fn answers(&self, key: &KeyPath, path: &PathConfig) -> Result<bool, ScenarioError> {
        if path.remote.is_some() {
            let problem = "a path of the ground station has `listen`, where it answers; `remote` is of \
                           the aircraft, which may be anywhere";
            self.wrong(&key.key("remote"), problem)?;
        }
        if path.address.is_some() {
            let problem = "the address of a path of the ground station is that of `listen`";
            self.wrong(&key.key("address"), problem)?;
        }
        match path.listen.as_deref().map(address::listen) {
            // An address of both families also takes IPv4.
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
                self.hold(fits, &key.key("protocol"), problem)?;
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
            let scheduler = given.scheduler.as_ref().is_none_or(|it| it.custom().is_none());
            self.hold(scheduler, &key.key("scheduler"), own)?;
            let congestion = given.congestion.as_ref().is_none_or(|it| it.custom().is_none());
            self.hold(congestion, &key.key("congestion"), own)?;
            let deadline = given.deadline.is_none_or(Duration::is_positive);
            self.hold(deadline, &key.key("deadline"), "expected above zero")?;
            self.hold(given.queue != Some(0), &key.key("queue"), "expected above zero")?;
            let copies = given.duplicate.is_some_and(|it| it != Duplicate::None);
            let problem = "found with `scheduler`, which says itself what leaves on every path";
            let key_of = key.key("duplicate");
            self.hold(!copies || given.scheduler.is_none(), &key_of, problem)?;
            let problem =
                "found with `network = \"tcp\"`, where one connection carries all of the class";
            self.hold(!copies || self.config.network == Network::Udp, &key_of, problem)?;
            let problem = "found for control, which leaves on every path as it is";
            self.hold(!copies || class != Class::Control, &key_of, problem)?;
            if let Some(repair) = &given.repair {
                let key = key.key("repair");
                if let Err((below, expected)) = repair.check() {
                    self.hold(false, &key.key(below), format!("expected {expected}"))?;
                }
                let tcp = self.config.network == Network::Tcp;
                let problem =
                    "found with `network = \"tcp\"`, where nothing that it could make good is lost";
                self.hold(!tcp, &key, problem)?;
            }
            let config = self.config.class.transport(class);
            for (place, position) in config.scheduler.positions() {
                let last = paths.len().saturating_sub(1);
                let problem =
                    format!("found path {position}, expected a position from 0 to {last}");
                let fits = usize::from(position) <= last;
                self.hold(fits, &key.below(&format!("scheduler.{place}")), problem)?;
            }
            if let Err((place, problem)) = transport(&config) {
                self.wrong(&key.below(&place), problem)?;
            }
        }
        Ok(())
    }

    fn health(&self) -> Checked {
        let health = &self.config.health;
        let (least, most) = (Duration::from_millis(5), Duration::from_secs(1));
        self.within("health.probe", health.probe, least, most)?;
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
        let most = Duration::from_secs(60);
        self.within("health.probation", health.probation, Duration::ZERO, most)
    }

    fn rest(&self) -> Checked {
        let hour = Duration::from_secs(3600);
        self.within("session.rekey", self.config.session.rekey, Duration::from_secs(10), hour)?;
        let listen = &self.config.status.listen;
        let fits = listen.is_empty() || address::listen(listen).is_some();
        let problem =
            "expected an address and a port, for example `127.0.0.1:9418`, or nothing (`\"\"`)";
        self.hold(fits, &KeyPath::dotted("status.listen"), problem)?;
        if let Some(log) = &self.config.log {
            let problem =
                "expected the name of a file, for example `/var/log/skybraid/flight.jsonl`";
            let named = std::path::Path::new(&log.file).file_name().is_some();
            self.hold(named, &KeyPath::dotted("log.file"), problem)?;
            self.within("log.every", log.every, Duration::from_millis(100), hour)?;
        }
        for name in self.config.udp.keys().filter(|name| [MAVLINK, TUN].contains(&name.as_str())) {
            let problem = format!("found the name `{name}`, which is that of another channel");
            self.wrong(&KeyPath::dotted("udp").key(name), problem)?;
        }
        Ok(())
    }
}
