//! The TUN interface: IP packets of the machine, and whatever it forwards.

#![allow(unsafe_code, reason = "a TUN interface is made by an ioctl")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use skybraid_gateway::ChannelId;
use skybraid_gateway::config::TunConfig;

use super::{Counts, Write};
use crate::gateway::GatewayError;
use crate::gateway::poller::Source;
use crate::gateway::tools::Tools;
use crate::testbed::{Netlink, Network};

/// Packets that are taken in one wake-up.
const MOST_PACKETS: usize = 64;

nix::ioctl_write_int!(make_interface, b'T', 202);

/// `struct ifreq` of linux/if.h, as far as TUN reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// See the module.
pub struct Tun {
    /// Its name.
    pub name: String,
    /// What it has counted.
    pub counts: Counts,
    channel: ChannelId,
    device: File,
}

impl Tun {
    /// Makes the interface, with its address, and switches it on.
    pub fn open(
        channel: ChannelId,
        config: &TunConfig,
        tools: &mut Tools,
    ) -> Result<Self, GatewayError> {
        let wrong = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; a TUN interface takes root or the right CAP_NET_ADMIN"
                }
                io::ErrorKind::NotFound => "; the kernel needs the module `tun`",
                _ => "",
            };
            GatewayError::Setup { what: format!("[tun] {}{remedy}", config.name), error }
        };
        let device = make(config).map_err(wrong)?;
        tools.poller.watch(&device, Source::Tun).map_err(wrong)?;
        let name = format!("tun {}", config.name);
        Ok(Self { name, counts: Counts::default(), channel, device })
    }

    /// Takes what the machine wants to send.
    pub fn read(&mut self, tools: &mut Tools, write: &mut Write<'_>) {
        for _ in 0..MOST_PACKETS {
            match self.device.read(&mut tools.scratch) {
                Ok(length) => {
                    write(self.channel, tools.scratch.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }

    /// Hands a packet over to the machine.
    pub fn deliver(&mut self, packet: &[u8]) {
        if self.device.write(packet).is_err() {
            self.counts.dropped += 1;
        }
    }
}

fn make(config: &TunConfig) -> io::Result<File> {
    let (address, prefix) = config
        .address
        .split_once('/')
        .and_then(|(address, prefix)| Some((address.parse::<IpAddr>().ok()?, prefix.parse().ok()?)))
        .ok_or_else(|| {
            let text = format!("`{}` is no address with a prefix", config.address);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let mut request = Request { name: [0; libc::IFNAMSIZ], flags, rest: [0; 22] };
    // The last byte stays zero.
    let room = request.name.iter_mut().take(libc::IFNAMSIZ - 1);
    room.zip(config.name.bytes()).for_each(|(place, byte)| *place = byte);
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is in size and layout; it
    // outlives the call.
    unsafe { make_interface(device.as_raw_fd(), &raw mut request as libc::c_ulong) }?;
    let mut netlink = Netlink::here()?;
    let link = netlink.link(&config.name)?;
    netlink.set_mtu(link.index, config.mtu.get() as u32)?;
    netlink.add_address(link.index, Network { address, prefix })?;
    netlink.set_up(link.index)?;
    Ok(device)
}
