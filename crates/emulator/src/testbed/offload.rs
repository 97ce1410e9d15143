//! Disabling of veth offloads, with which frames differ from real packets (checksums left to the hardware,
//! joined segments), and the link state query.
#![allow(unsafe_code, reason = "the ethtool request is an ioctl with a pointer in it")]

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use skybraid_io::context;
use skybraid_io::netlink::Namespace;

/// `SIOCETHTOOL` of linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// Requests of linux/ethtool.h, ordered so that none depends on a later one.
const OFFLOADS: [(&str, u32); 5] =
    [("gro", 0x2c), ("gso", 0x24), ("tso", 0x1f), ("sg", 0x19), ("tx checksum", 0x17)];

/// `ETHTOOL_GLINK` of linux/ethtool.h.
const GET_LINK: u32 = 0x0a;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Disables transmit checksums, scatter-gather, TSO, GSO and GRO of an interface, so that each frame is a
/// packet that could be on a real link.
///
/// # Errors
/// The interface does not exist, its driver does not permit it, or permissions are missing.
pub fn switch_offloads_off(namespace: &Namespace, interface: &str) -> io::Result<()> {
    let socket = namespace.run(|| Socket::new(Domain::IPV4, Type::DGRAM, None))??;
    for (name, command) in OFFLOADS {
        let place = namespace.name();
        ethtool(&socket, interface, command).map_err(|error| {
            context(format_args!("cannot switch {name} off at {place}:{interface}"), error)
        })?;
    }
    Ok(())
}

/// Returns true if an interface in the network namespace of `socket` exists and both its ends are up.
pub(crate) fn has_carrier(socket: &impl AsRawFd, interface: &str) -> bool {
    ethtool(socket, interface, GET_LINK).is_ok_and(|link| link != 0)
}

/// Executes a request with the value 0 and returns the resulting value.
fn ethtool(socket: &impl AsRawFd, interface: &str, command: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data: 0 };
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    if interface.len() > room {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the descriptor is open, `request` and the value it points to outlive the call, and they
    // have the layout that this ioctl expects.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.data)
}
