//! Addresses in a gateway's file.

use std::net::{IpAddr, SocketAddr};

/// Expected value of a listening address.
pub(super) const LISTEN: &str =
    "expected an address and a port, for example `0.0.0.0:9417` or `[::]:9417`";
/// Expected value of a remote address.
pub(super) const REMOTE: &str = "expected a host and a port, for example `ground.example.org:9417`, \
                                 `192.0.2.1:9417` or `[2001:db8::1]:9417`";

/// Parses an address and a port above zero.
pub(super) fn listen(text: &str) -> Option<SocketAddr> {
    text.parse().ok().filter(|address: &SocketAddr| address.port() > 0)
}

/// Parses a host name or address, and a port above zero.
pub(super) fn remote(text: &str) -> Option<Host<'_>> {
    if let Some(address) = listen(text) {
        return Some(Host::Address(address.ip()));
    }
    let (name, port) = text.rsplit_once(':')?;
    let has_port = port.bytes().all(|letter| letter.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0);
    (is_host(name) && has_port).then_some(Host::Name(name))
}

/// Returns whether a text is a host name (RFC 1123 §2.1) and not an address.
pub(super) fn is_host(name: &str) -> bool {
    let label = |label: &str| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        (1..=63).contains(&label.len()) && label.chars().all(fits)
    };
    let numbers = name.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    !numbers && name.len() <= 253 && name.trim_end_matches('.').split('.').all(label)
}

/// A host by address or name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

/// Returns whether the kernel accepts a text as the name of an interface.
pub(super) fn is_interface(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '/' | ':' | '%');
    (1..=15).contains(&name.len()) && name.chars().all(fits) && name != "." && name != ".."
}

/// Parses an address and its prefix length.
pub(super) fn with_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.parse().ok().filter(|prefix| (1..=max).contains(prefix))?;
    Some((address, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_is_a_name_or_an_address_with_a_port() {
        let address = |text: &str| Some(Host::Address(text.parse().unwrap()));
        assert_eq!(remote("192.0.2.1:9417"), address("192.0.2.1"));
        assert_eq!(remote("[2001:db8::1]:9417"), address("2001:db8::1"));
        for name in ["ground.example.org", "ground", "gs-1.example.org.", "3com.example"] {
            assert_eq!(remote(&format!("{name}:1")), Some(Host::Name(name)), "{name}");
        }
        for wrong in [
            "ground",
            "ground:",
            "ground:0",
            "ground:65536",
            "ground:+5",
            ":9417",
            "a b:1",
            "2001:db8::1:9417",
            "192.0.2:1",
            "192.0.2.256:1",
            "http://ground:1",
            "a..b:1",
        ] {
            assert_eq!(remote(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_prefix_fits_its_family() {
        assert!(with_prefix("10.77.0.1/24").is_some());
        assert!(with_prefix("fd77::1/64").is_some());
        for wrong in ["10.77.0.1", "10.77.0.1/33", "10.77.0.1/0", "fd77::1/129", "ten/8"] {
            assert_eq!(with_prefix(wrong), None, "{wrong}");
        }
    }
}
