//! Switching off what makes a veth carry other than real packets: checksums left to the hardware,
//! segments put together; asking whether it is connected.
#![allow(unsafe_code, reason = "the ethtool request is an ioctl with a pointer in it")]

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use skybraid_io::context;
use skybraid_io::netlink::Namespace;

/// `SIOCETHTOOL` of linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// Requests of linux/ethtool.h, in an order that leaves none depending on a later one.
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

/// Switches off transmit checksums, scatter-gather, TSO, GSO and GRO of an interface, so that each
/// frame is a packet that could be on a real link.
///
/// # Errors
/// There is no such interface, its driver does not allow it, or rights are missing.
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

/// Whether an interface in the network namespace of `socket` is there, switched on, and its other end
/// too.
pub(crate) fn has_carrier(socket: &impl AsRawFd, interface: &str) -> bool {
    ethtool(socket, interface, GET_LINK).is_ok_and(|link| link != 0)
}

/// Carries out a request with the value 0 and gives the value that it leaves.
fn ethtool(socket: &impl AsRawFd, interface: &str, command: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data: 0 };
    // SAFETY: all bytes zero is a valid `ifreq`.
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
