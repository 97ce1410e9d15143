//! Host names under which the page is served. A foreign page whose name is made to resolve to this machine
//! (DNS rebinding) sends its own name, and is refused.

use std::net::IpAddr;

/// File of the machine's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// Host names under which the page is served.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// Returns `localhost`, this machine's name and those of the file.
    pub fn new(named: &[String]) -> Self {
        let own = std::fs::read_to_string(HOSTNAME).unwrap_or_default();
        let names = named.iter().map(String::as_str).chain(["localhost", own.trim()]);
        Self(names.filter(|name| !name.is_empty()).map(bare).collect())
    }

    /// Returns true if a request is for this page: `host` is its Host field (RFC 9110 §7.2), `local` its
    /// destination address.
    pub fn allow(&self, host: &str, local: IpAddr) -> bool {
        let host = host.trim();
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((literal, _)) => literal,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        match name.parse::<IpAddr>() {
            Ok(address) => address.to_canonical() == local.to_canonical() || address.is_loopback(),
            Err(_) => self.0.contains(&bare(name)),
        }
    }
}

fn bare(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_machine_s_own_names_and_addresses_are_answered() {
        let own = std::fs::read_to_string(HOSTNAME).unwrap();
        let hosts = Hosts::new(&["Tower.example.org".to_string()]);
        let local = "192.0.2.7".parse().unwrap();
        for good in [
            "localhost",
            "localhost:9418",
            "LOCALHOST.:9418",
            "127.0.0.1:9418",
            "[::1]:9418",
            "192.0.2.7",
            "192.0.2.7:9418",
            "[::ffff:192.0.2.7]:9418",
            "tower.example.org:9418",
            own.trim(),
        ] {
            assert!(hosts.allow(good, local), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:9418",
            "192.0.2.8:9418",
            "",
            ":9418",
            "[::2]",
            "[",
            "tower",
        ] {
            assert!(!hosts.allow(bad, local), "{bad}");
        }
    }
}
