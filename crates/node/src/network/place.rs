//! Local interface and address of a path's socket, and their availability.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use skybraid_gateway::config::PathConfig;
use skybraid_units::Instant;
use socket2::{Domain, Protocol, Socket, Type};

use crate::interfaces::Interfaces;
use crate::remote::Remote;
use skybraid_io::batch::{join_arrivals, set_int, stamp_arrivals, widen};

/// Configuration of a path's near end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Outgoing interface.
    pub interface: Option<String>,
    /// Local address and port; port zero means any.
    pub local: Option<SocketAddr>,
    /// The address must exist, now and later. A listener on a removed address waits for it instead.
    pub needs_address: bool,
}

/// Interface and address that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAddresses {
    /// Index of the interface, if one is configured.
    pub index: u32,
    /// Usable addresses of the interface.
    pub addresses: BTreeSet<IpAddr>,
}

impl Place {
    /// Parses the aircraft's end of a path.
    pub fn of_aircraft(path: &PathConfig) -> io::Result<Self> {
        let address = path.address.as_deref().map(parse::<IpAddr>).transpose()?;
        Ok(Self {
            interface: path.interface.clone(),
            local: address.map(|address| SocketAddr::new(address, 0)),
            needs_address: true,
        })
    }

    /// Parses the ground's end of a path.
    pub fn of_ground(path: &PathConfig) -> io::Result<Self> {
        let listen = path.listen.as_deref().map(parse::<SocketAddr>).transpose()?;
        Ok(Self { interface: path.interface.clone(), local: listen, needs_address: false })
    }

    /// Returns the interface and addresses to use for a remote address.
    pub fn local_addresses(
        &self,
        interfaces: &Interfaces,
        remote: Option<IpAddr>,
    ) -> Option<LocalAddresses> {
        let wanted = self.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let wanted = wanted.filter(|ip| self.needs_address && !ip.is_loopback());
        let found = match (&self.interface, wanted) {
            (Some(name), _) => interfaces.by_name(name),
            (None, Some(address)) => interfaces.by_address(address),
            (None, None) => return Some(LocalAddresses::default()),
        };
        let (index, interface) = found.filter(|(_, interface)| interface.up)?;
        if !self.needs_address {
            return Some(LocalAddresses { index, addresses: BTreeSet::new() });
        }
        let usable = |address: &&IpAddr| {
            wanted.is_none_or(|wanted| **address == wanted)
                && remote.is_none_or(|remote| reaches(**address, remote))
        };
        let addresses: BTreeSet<IpAddr> =
            interface.addresses.iter().filter(usable).copied().collect();
        (!addresses.is_empty()).then_some(LocalAddresses { index, addresses })
    }

    /// Returns the address of the ground to use, among those reachable from here; `heard` says whether the one in
    /// use is heard.
    pub fn choose(
        &self,
        now: Instant,
        remote: &mut Remote,
        used: Option<SocketAddr>,
        heard: bool,
        interfaces: &Interfaces,
    ) -> Option<SocketAddr> {
        let fits = |address| self.near(address).is_some();
        let reaches = |address: SocketAddr| {
            fits(address) && self.local_addresses(interfaces, Some(address.ip())).is_some()
        };
        let chosen = remote.choose_heard(now, used, heard, reaches);
        chosen.or_else(|| remote.choose(used, fits))
    }

    /// Returns the local address of a socket towards `remote`; `None` if the address families differ.
    pub fn near(&self, remote: SocketAddr) -> Option<SocketAddr> {
        match self.local {
            Some(local) => (local.is_ipv4() == remote.is_ipv4()).then_some(local),
            None if remote.is_ipv4() => Some((Ipv4Addr::UNSPECIFIED, 0).into()),
            None => Some((Ipv6Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// Binds a socket to this place.
    pub fn bind(&self, socket: &Socket, near: SocketAddr) -> io::Result<()> {
        if let Some(interface) = &self.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.bind(&near.into())
    }

    /// Opens a non-blocking UDP socket whose packets are never fragmented: the gateway, not the kernel,
    /// discovers their size.
    pub fn udp(&self, near: SocketAddr) -> io::Result<Socket> {
        let kind = Type::DGRAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(near), kind, Some(Protocol::UDP))?;
        widen(&socket)?;
        stamp_arrivals(&socket)?;
        join_arrivals(&socket);
        let probe = libc::IP_PMTUDISC_PROBE;
        // An IPv6 socket also carries IPv4 if it listens on all addresses.
        let ipv4 = set_int(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe);
        if near.is_ipv4() {
            ipv4?;
        } else {
            let v6 = libc::IPPROTO_IPV6;
            set_int(&socket, v6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
            set_int(&socket, v6, libc::IPV6_DONTFRAG, 1)?;
        }
        self.bind(&socket, near)?;
        Ok(socket)
    }
}

impl LocalAddresses {
    /// Returns true if a socket created on `self` can be kept.
    pub fn is_kept_by(&self, now: &Self) -> bool {
        self.index == now.index && self.addresses.is_subset(&now.addresses)
    }
}

/// Whether a remote address may be reached from a local one. Every interface has a link-local address of IPv6, also
/// where the network has no IPv6.
const fn reaches(local: IpAddr, remote: IpAddr) -> bool {
    match (local, remote) {
        (IpAddr::V4(_), IpAddr::V4(_)) => true,
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            !local.is_unicast_link_local() || remote.is_unicast_link_local()
        }
        _ => false,
    }
}

fn parse<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    text: &str,
) -> io::Result<T> {
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_io::batch::get_int;

    #[test]
    fn packets_are_never_fragmented_and_sizes_are_not_remembered() {
        let place = Place { interface: None, local: None, needs_address: true };
        let v4 = place.udp("127.0.0.1:0".parse().unwrap()).unwrap();
        let found = get_int(&v4, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER).unwrap();
        assert_eq!(found, libc::IP_PMTUDISC_PROBE);
        let v6 = place.udp("[::1]:0".parse().unwrap()).unwrap();
        let found = get_int(&v6, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER).unwrap();
        assert_eq!(found, libc::IPV6_PMTUDISC_PROBE);
    }

    #[test]
    fn a_link_local_address_reaches_none_beyond_its_link() {
        let reaches =
            |local: &str, remote: &str| reaches(local.parse().unwrap(), remote.parse().unwrap());
        assert!(!reaches("fe80::1", "2001:db8::1") && reaches("fe80::1", "fe80::2"));
        assert!(reaches("2001:db8::2", "2001:db8::1") && reaches("10.0.0.1", "192.0.2.1"));
        assert!(!reaches("2001:db8::2", "192.0.2.1"));
    }

    #[test]
    fn another_interface_or_a_lost_address_needs_a_new_socket() {
        let local_addresses = |index, last: &[u8]| LocalAddresses {
            index,
            addresses: last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect(),
        };
        assert!(local_addresses(3, &[1]).is_kept_by(&local_addresses(3, &[1, 2])));
        assert!(!local_addresses(3, &[1, 2]).is_kept_by(&local_addresses(3, &[2])));
        assert!(!local_addresses(3, &[1]).is_kept_by(&local_addresses(4, &[1])));
    }
}
