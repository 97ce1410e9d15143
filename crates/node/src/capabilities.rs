//! Capabilities of this machine for a gateway, determined by trying where that has no side effects.

use std::fs::{self, OpenOptions};
use std::io;

use socket2::{Domain, Protocol, Socket, Type};

use skybraid_io::Capability;

/// Bit of CAP_NET_ADMIN in the capability set (capability.h).
const NET_ADMIN: u32 = 12;
/// Minimum socket buffer; with less, bursts are lost.
const MIN_BUFFER: u64 = 1 << 20;

/// Capabilities, most basic first.
pub fn capabilities() -> Vec<Capability> {
    let add = |name, needed, result: Result<String, String>, remedy: &str| {
        let present = result.is_ok();
        let found = result.unwrap_or_else(|missing| missing);
        Capability { name, present, needed, found, remedy: (!present).then(|| remedy.to_string()) }
    };
    let service = "run it by its systemd unit, or `sudo setcap cap_net_admin,cap_net_raw+ep \
                   $(command -v skybraid-node)`";
    vec![
        add("UDP over IPv4", true, works(udp(Domain::IPV4)), "a kernel with networking"),
        add(
            "UDP over IPv6",
            false,
            works(udp(Domain::IPV6)),
            "`sudo sysctl -w net.ipv6.conf.all.disable_ipv6=0`",
        ),
        add("paths by interface", true, works(by_interface()), service),
        add("TUN", false, tun(), "`sudo modprobe tun`; in a container, `--device /dev/net/tun`"),
        add("rights for TUN", false, net_admin(), service),
        add(
            "MPTCP",
            false,
            works(mptcp()),
            "`sudo sysctl -w net.mptcp.enabled=1`, or Linux 5.6 or later",
        ),
        add(
            "socket buffers",
            false,
            buffers(),
            "`sudo sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304`",
        ),
    ]
}

fn works(tried: io::Result<()>) -> Result<String, String> {
    tried.map(|()| "works".to_string()).map_err(|error| format!("missing: {error}"))
}

fn udp(domain: Domain) -> io::Result<()> {
    Socket::new(domain, Type::DGRAM, None).map(drop)
}

fn by_interface() -> io::Result<()> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)?.bind_device(Some(b"lo"))
}

fn mptcp() -> io::Result<()> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).map(drop)
}

fn tun() -> Result<String, String> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    opened
        .map(|_| "/dev/net/tun can be opened".to_string())
        .map_err(|error| format!("missing: {error}"))
}

/// Checks whether this process may create interfaces.
fn net_admin() -> Result<String, String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    if set >> NET_ADMIN & 1 == 1 {
        Ok("CAP_NET_ADMIN is here".to_string())
    } else {
        Err("missing: CAP_NET_ADMIN; all but `[tun]` works without".to_string())
    }
}

fn buffers() -> Result<String, String> {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let (Some(receive), Some(send)) = (limit("rmem_max"), limit("wmem_max")) else {
        // A container may hide the limits.
        return Ok("their limits cannot be seen".to_string());
    };
    let found = format!("up to {receive} B to receive, {send} B to send");
    if receive.min(send) >= MIN_BUFFER { Ok(found) } else { Err(format!("small: {found}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_its_remedy() {
        for one in capabilities() {
            assert_eq!(one.present, one.remedy.is_none(), "{one:?}");
            assert!(!one.found.is_empty());
        }
    }
}
