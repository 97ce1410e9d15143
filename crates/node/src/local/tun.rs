//! TUN interface: IP packets of the machine, and those that it forwards.

#![allow(unsafe_code, reason = "a TUN interface is made by an ioctl")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use skybraid_gateway::config::TunConfig;
use skybraid_gateway::{ChannelId, Client, Origin};
use skybraid_units::Instant;

use super::offload::{self, Coalescer};
use super::{Counts, Write};
use crate::GatewayError;
use crate::interfaces::Interfaces;
use crate::poller::Source;
use crate::tools::Tools;
use skybraid_io::netlink::{Netlink, Network};

/// Packets per batch. A wakeup reads as many batches as the kernel's queue of the interface holds, so that
/// remaining packets have arrived since the previous wakeup.
const MAX_PACKETS: usize = 32;
/// Segments of large packets after which a batch ends, unless the packets have waited for a stalled gateway:
/// further ones may wait in the kernel.
const MAX_SEGMENTS: usize = 64;

/// Offloads to the interface (linux/if_tun.h): checksums and TCP segmentation.
const OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04;

nix::ioctl_write_int!(make_interface, b'T', 202);
nix::ioctl_write_int!(set_offloads, b'T', 208);

/// `struct ifreq` of linux/if.h, as far as TUN reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// TUN interface of a gateway.
pub struct Tun {
    /// Name.
    pub name: String,
    /// Counters of the interface.
    pub counts: Counts,
    channel: ChannelId,
    config: TunConfig,
    /// `None` while the interface does not exist.
    device: Option<File>,
    /// The system has listed the device since it was made.
    listed: bool,
    coalescer: Coalescer,
    /// Buffer for reuse.
    room: Vec<u8>,
    /// Minimum and maximum MTU of the interface, and the current one, in bytes.
    mtus: [u32; 2],
    mtu: u32,
}

impl Tun {
    /// Creates the interface with its address and sets it up.
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
        let mtu = u32::try_from(config.mtu.get()).unwrap_or(u32::MAX);
        // An interface with an MTU below 1280 bytes loses its IPv6 addresses (RFC 8200 §5).
        let min: u32 = if config.address.contains(':') { 1280 } else { 576 };
        let (config, device, mtus) = (config.clone(), Some(device), [min.min(mtu), mtu]);
        let (counts, coalescer, room) = (Counts::default(), Coalescer::default(), Vec::new());
        Ok(Self {
            name,
            counts,
            channel,
            config,
            device,
            listed: false,
            coalescer,
            room,
            mtus,
            mtu,
        })
    }

    /// Returns whether the interface exists.
    pub const fn exists(&self) -> bool {
        self.device.is_some()
    }

    /// Creates the interface again if somebody has removed it.
    pub fn retry(&mut self, tools: &mut Tools) {
        if self.device.is_some() {
            return;
        }
        let made = make(&self.config).and_then(|device| {
            tools.poller.watch(&device, Source::Tun)?;
            Ok(device)
        });
        match made {
            Ok(device) => {
                self.device = Some(device);
                self.mtu = self.mtus[1];
                tools.alarms.clear(&self.name);
            }
            Err(error) => {
                tools.alarms.raise(&self.name, format!("{} cannot be made: {error}", self.name));
            }
        }
    }

    /// Raises an alarm while the interface, which somebody else may have changed, carries nothing.
    pub fn watch(&mut self, interfaces: &Interfaces, tools: &mut Tools) {
        if self.device.is_none() {
            return;
        }
        let Some((_, interface)) = interfaces.by_name(&self.config.name) else {
            // Not every kernel wakes those who wait for a device that is removed.
            if self.listed {
                self.lose(tools, "it has been removed");
            }
            return;
        };
        self.listed = true;
        let address = address(&self.config).ok().map(|(address, _)| address);
        let lacks = match address {
            _ if !interface.up => "is down",
            Some(address) if !interface.addresses.contains(&address) => "has lost its address",
            _ => return tools.alarms.clear(&self.name),
        };
        let text = format!("{} {lacks}: something else on this machine changes it", self.name);
        tools.alarms.raise(&self.name, text);
    }

    /// Closes a device that is gone; [`retry`](Self::retry) makes another one.
    fn lose(&mut self, tools: &mut Tools, why: impl std::fmt::Display) {
        (self.device, self.listed) = (None, false);
        tools.alarms.raise(&self.name, format!("{} is gone: {why}", self.name));
    }

    /// Lowers the interface's MTU to the size that the paths carry without fragments, and raises it again up
    /// to the configured one.
    pub fn follow(&mut self, unfragmented: u32) {
        let mtu = unfragmented.clamp(self.mtus[0], self.mtus[1]);
        if mtu == self.mtu || self.device.is_none() {
            return;
        }
        self.mtu = mtu;
        // Without the capability, packets are fragmented as before.
        let _ = set_mtu(&self.config.name, mtu);
    }

    /// Reads a batch of packets from the machine. Returns true if there may be more.
    pub fn read(&mut self, now: Instant, tools: &mut Tools, write: &mut Write<'_>) -> bool {
        let arrived = tools.arrival(now);
        let held_up = arrived < now;
        let (channel, mut segments) = (self.channel, 0);
        for _ in 0..MAX_PACKETS {
            let Some(device) = &mut self.device else { return false };
            match device.read(&mut tools.scratch) {
                Ok(length) => {
                    let bytes = tools.scratch.get_mut(..length).unwrap_or_default();
                    let address = sender(bytes.get(offload::HEAD..).unwrap_or_default());
                    let origin = Origin { client: Client { end: 0, address }, arrived };
                    segments += offload::segment(bytes, &mut self.room, &mut |packet| {
                        write(channel, &origin, packet);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The interface has been removed, which makes its device readable for good.
                    if error.raw_os_error() == Some(libc::EBADFD) {
                        self.lose(tools, error);
                    }
                    return false;
                }
            }
            if segments >= MAX_SEGMENTS && !held_up {
                break;
            }
        }
        true
    }

    /// Delivers a packet to the machine, at the latest on the next [`flush`](Self::flush).
    pub fn deliver(&mut self, packet: &[u8]) {
        let Self { device, coalescer, counts, .. } = self;
        coalescer.push(packet, &mut |bytes, packets| put(device, bytes, packets, counts));
    }

    /// Delivers held packets.
    pub fn flush(&mut self) {
        let Self { device, coalescer, counts, .. } = self;
        coalescer.flush(&mut |bytes, packets| put(device, bytes, packets, counts));
    }
}

fn put(device: &mut Option<File>, bytes: &[u8], packets: u16, counts: &mut Counts) {
    if device.as_mut().is_none_or(|device| device.write(bytes).is_err()) {
        counts.dropped += u64::from(packets);
    }
}

fn set_mtu(interface: &str, mtu: u32) -> io::Result<()> {
    let mut netlink = Netlink::open_here()?;
    let link = netlink.link(interface)?;
    netlink.set_mtu(link.index, mtu)
}

/// Returns the source of an IP packet: its address and, for TCP and UDP, its port.
fn sender(packet: &[u8]) -> Option<SocketAddr> {
    let (ip, protocol, rest) = match packet.first()? >> 4 {
        4 => {
            let length = 4 * usize::from(packet.first()? & 15);
            let ip: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            (IpAddr::from(ip), *packet.get(9)?, packet.get(length..))
        }
        6 => {
            let ip: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            (IpAddr::from(ip), *packet.get(6)?, packet.get(40..))
        }
        _ => return None,
    };
    let port = match rest {
        Some([high, low, ..]) if matches!(protocol, 6 | 17) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns the address of the interface and its prefix length.
fn address(config: &TunConfig) -> io::Result<(IpAddr, u8)> {
    config
        .address
        .split_once('/')
        .and_then(|(address, prefix)| Some((address.parse().ok()?, prefix.parse().ok()?)))
        .ok_or_else(|| {
            let text = format!("`{}` is no address with a prefix", config.address);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
}

fn make(config: &TunConfig) -> io::Result<File> {
    let (address, prefix) = address(config)?;
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    let mut request = Request { name: [0; libc::IFNAMSIZ], flags, rest: [0; 22] };
    // The last byte stays zero.
    let room = request.name.iter_mut().take(libc::IFNAMSIZ - 1);
    room.zip(config.name.bytes()).for_each(|(place, byte)| *place = byte);
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, whose size and layout `request` has; it outlives
    // the call.
    unsafe { make_interface(device.as_raw_fd(), &raw mut request as libc::c_ulong) }?;
    // A kernel that refuses sends unsegmented packets only. SAFETY: TUNSETOFFLOAD takes a number.
    unsafe { set_offloads(device.as_raw_fd(), OFFLOADS) }.ok();
    let mut netlink = Netlink::open_here()?;
    let link = netlink.link(&config.name)?;
    netlink.set_mtu(link.index, config.mtu.get() as u32)?;
    netlink.add_address(link.index, Network { address, prefix })?;
    netlink.set_up(link.index)?;
    Ok(device)
}
