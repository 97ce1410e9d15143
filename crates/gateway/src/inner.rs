//! Addresses inside IP packets of the TUN interface that the peer may send from and receive at, as
//! `AllowedIPs` of WireGuard.
//!
//! A packet from the peer must come from the peer's TUN address or from a network of `[tun] allowed`; a packet
//! to the peer must go to one of these. Anything else is dropped and counted.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use crate::config::TunConfig;

/// A network: an address and the length of its prefix in bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Whether an address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = network.to_bits() ^ address.to_bits();
                differ.checked_shr(32 - u32::from(self.length)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = network.to_bits() ^ address.to_bits();
                differ.checked_shr(128 - u32::from(self.length)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Invalid network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a network, for example `192.168.1.0/24`, `fd01::/64` or `10.0.0.7/32`")]
pub struct NoPrefix;

impl FromStr for Prefix {
    type Err = NoPrefix;
    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let (address, length) = text.split_once('/').ok_or(NoPrefix)?;
        let address: IpAddr = address.parse().map_err(|_| NoPrefix)?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let digits =
            (1..=3).contains(&length.len()) && length.bytes().all(|byte| byte.is_ascii_digit());
        let length = length.parse().ok().filter(|length| digits && *length <= max);
        Ok(Self { address, length: length.ok_or(NoPrefix)? })
    }
}

/// Addresses allowed in packets of the TUN interface.
#[derive(Clone, Debug, Default)]
pub struct InnerAddresses {
    own: Option<IpAddr>,
    /// Network of the local address; must contain the peer's address.
    network: Option<Prefix>,
    allowed: Vec<Prefix>,
    peer: Option<IpAddr>,
    /// Dropped packets to the peer, and from the peer.
    pub refused: [u64; 2],
}

impl InnerAddresses {
    /// Reads the allowed networks, before the peer's address is known. Invalid text allows nothing.
    pub fn new(config: Option<&TunConfig>) -> Self {
        let Some(config) = config else { return Self::default() };
        let network: Option<Prefix> = config.address.parse().ok();
        Self {
            own: network.map(|network| network.address),
            network,
            allowed: config.allowed.iter().filter_map(|text| text.parse().ok()).collect(),
            peer: None,
            refused: [0; 2],
        }
    }

    /// Returns the local TUN address, sent to the peer.
    pub const fn own(&self) -> Option<IpAddr> {
        self.own
    }

    /// Returns the peer's TUN address, if known and allowed.
    pub const fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Records the TUN address reported by the peer, which must be in the local network.
    ///
    /// # Errors
    /// The address is outside the network, or the local one; packets pass only as the file allows.
    pub fn set_peer(&mut self, address: Option<IpAddr>) -> Result<(), String> {
        self.peer = None;
        let (Some(address), Some(network)) = (address, self.network) else { return Ok(()) };
        if Some(address) == self.own {
            return Err(alloc::format!(
                "tun: {address} is the address of both ends: give each one of its own"
            ));
        }
        if !network.contains(address) {
            return Err(alloc::format!(
                "tun: the other end's address {address} is not in {network}: give both ends addresses of one network"
            ));
        }
        self.peer = Some(address);
        Ok(())
    }

    /// Whether an IP packet may be sent to the peer; counts refused packets.
    pub fn admits_outgoing(&mut self, packet: &[u8]) -> bool {
        let admitted = addresses(packet).is_some_and(|(_, to)| self.is_of_peer(to));
        self.refused[0] += u64::from(!admitted);
        admitted
    }

    /// Whether an IP packet from the peer may be delivered; counts refused packets.
    pub fn admits_incoming(&mut self, packet: &[u8]) -> bool {
        let admitted = addresses(packet)
            .is_some_and(|(from, _)| self.is_of_peer(from) && Some(from) != self.own);
        self.refused[1] += u64::from(!admitted);
        admitted
    }

    fn is_of_peer(&self, address: IpAddr) -> bool {
        self.peer == Some(address) || self.allowed.iter().any(|network| network.contains(address))
    }
}

/// Source and destination of an IP packet (RFC 791 §3.1, RFC 8200 §3).
fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let at = |from: usize| packet.get(from..)?.first_chunk::<4>().copied();
            Some((Ipv4Addr::from(at(12)?).into(), Ipv4Addr::from(at(16)?).into()))
        }
        6 => {
            let at = |from: usize| packet.get(from..)?.first_chunk::<16>().copied();
            Some((Ipv6Addr::from(at(8)?).into(), Ipv6Addr::from(at(24)?).into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn packet(from: &str, to: &str) -> Vec<u8> {
        match (from.parse().unwrap(), to.parse().unwrap()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut packet = vec![0x45; 12];
                packet.extend(from.octets().into_iter().chain(to.octets()));
                packet
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut packet = vec![0x60; 8];
                packet.extend(from.octets().into_iter().chain(to.octets()));
                packet
            }
            _ => unreachable!(),
        }
    }

    fn inner(address: &str, peer: &str, allowed: &[&str]) -> InnerAddresses {
        let text = alloc::format!("address = '{address}'\nallowed = {allowed:?}");
        let mut inner = InnerAddresses::new(Some(&toml::from_str(&text).unwrap()));
        inner.set_peer(peer.parse().ok()).unwrap();
        inner
    }

    #[test]
    fn only_the_two_ends_pass_unless_the_file_says_more() {
        for (address, peer, stranger) in
            [("10.77.0.1/24", "10.77.0.2", "8.8.8.8"), ("fd77::1/64", "fd77::2", "2001:db8::8")]
        {
            let own = address.split('/').next().unwrap();
            let mut inner = inner(address, peer, &[]);
            assert!(inner.admits_incoming(&packet(peer, own)));
            assert!(inner.admits_incoming(&packet(peer, stranger)));
            assert!(inner.admits_outgoing(&packet(own, peer)));
            assert!(!inner.admits_incoming(&packet(stranger, own)));
            assert!(!inner.admits_incoming(&packet(own, own)));
            assert!(!inner.admits_outgoing(&packet(own, stranger)));
            assert!(!inner.admits_outgoing(&[]));
            assert_eq!(inner.refused, [2, 2]);
        }
    }

    #[test]
    fn networks_of_the_file_pass() {
        let mut inner = inner("10.77.0.1/24", "10.77.0.2", &["192.168.1.0/24", "fd01::/16"]);
        assert!(inner.admits_incoming(&packet("192.168.1.255", "10.77.0.1")));
        assert!(inner.admits_incoming(&packet("fd01:2::3", "fd77::1")));
        assert!(inner.admits_outgoing(&packet("10.77.0.1", "192.168.1.0")));
        assert!(!inner.admits_incoming(&packet("192.168.2.0", "10.77.0.1")));
        assert!(!inner.admits_incoming(&packet("fd02::3", "fd77::1")));
    }

    #[test]
    fn nobody_takes_this_end_s_address_even_where_all_is_allowed() {
        let mut inner = inner("10.77.0.1/24", "10.77.0.2", &["0.0.0.0/0"]);
        assert!(inner.admits_incoming(&packet("8.8.8.8", "10.77.0.1")));
        assert!(!inner.admits_incoming(&packet("10.77.0.1", "10.77.0.1")));
        assert!(!inner.admits_incoming(&packet("2001:db8::8", "fd77::1")));
    }

    #[test]
    fn a_peer_s_address_outside_the_network_allows_nothing() {
        let mut inner = inner("10.77.0.1/24", "10.77.0.2", &[]);
        for wrong in ["10.78.0.2", "10.77.0.1", "fd77::2"] {
            assert!(inner.set_peer(wrong.parse().ok()).is_err(), "{wrong}");
            assert_eq!(inner.peer(), None);
        }
        assert!(!inner.admits_incoming(&packet("10.77.0.2", "10.77.0.1")));
    }

    #[test]
    fn a_network_reads_back_and_nothing_else_is_one() {
        for text in ["0.0.0.0/0", "10.0.0.7/32", "::/0", "fd01::1/128"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "::/129", "10.0.0/8", "a/8"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPrefix), "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut inner = inner("10.77.0.1/24", "10.77.0.2", &[]);
            inner.admits_incoming(&bytes);
            inner.admits_outgoing(&bytes);
        }
    }
}
