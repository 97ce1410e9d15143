//! Capabilities (capabilities(7)): those that a configured gateway needs, and dropping the others.

#![allow(unsafe_code, reason = "capabilities have no wrapper here")]

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use skybraid_gateway::GatewayConfig;
use skybraid_gateway::config::Network;

use skybraid_io::batch::BUFFER;

/// Capabilities that a gateway may need, by number (linux/capability.h).
const DAC_OVERRIDE: u32 = 1;
const NET_BIND_SERVICE: u32 = 10;
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
/// Ports below this one require `CAP_NET_BIND_SERVICE` (ip(7)).
const UNPRIVILEGED_PORT: u16 = 1024;
/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Returns a bit for each capability that the gateway of this configuration needs while it runs; `log` is its
/// log file.
pub(super) fn needed(config: &GatewayConfig, log: Option<&Path>) -> u64 {
    let mut needed = 0;
    let small_buffers = ["rmem_max", "wmem_max"].iter().any(|name| {
        let limit = fs::read_to_string(format!("/proc/sys/net/core/{name}"));
        limit
            .ok()
            .and_then(|limit| limit.trim().parse().ok())
            .is_none_or(|size: usize| size < BUFFER)
    });
    // MTU of TUN, MPTCP endpoints, and buffers beyond the limit.
    if config.tun.is_some() || config.network == Network::Tcp || small_buffers {
        needed |= 1 << NET_ADMIN;
    }
    // SO_BINDTODEVICE before Linux 5.7.
    if config.path.values().any(|path| path.interface.is_some()) {
        needed |= 1 << NET_RAW;
    }
    let listens = config.path.values().filter_map(|path| path.listen.as_deref());
    let listens = listens.chain(config.udp.values().filter_map(|port| port.listen.as_deref()));
    let listens = listens.chain(config.mavlink.iter().flat_map(|end| {
        [end.udp_listen.as_deref(), end.tcp_listen.as_deref()].into_iter().flatten()
    }));
    let mut listens = listens.chain([config.status.listen.as_str()]);
    let is_low = |at: &str| at.parse().is_ok_and(|at: SocketAddr| at.port() < UNPRIVILEGED_PORT);
    if listens.any(is_low) {
        needed |= 1 << NET_BIND_SERVICE;
    }
    if !reaches_its_files(config, log) {
        needed |= 1 << DAC_OVERRIDE;
    }
    needed
}

/// Returns true if the log folder and the existing devices can be written without `CAP_DAC_OVERRIDE`.
fn reaches_its_files(config: &GatewayConfig, log: Option<&Path>) -> bool {
    let Ok(before) = get() else { return true };
    let mut without = before;
    without[0].effective &= !(1 << DAC_OVERRIDE);
    if set(&without).is_err() {
        return true;
    }
    let may = |file: &Path, how: AccessFlags| {
        !file.exists() || faccessat(AT_FDCWD, file, how, AtFlags::AT_EACCESS).is_ok()
    };
    let folder = log.map(super::files::folder);
    let reaches = folder.is_none_or(|folder| may(&folder, AccessFlags::W_OK | AccessFlags::X_OK))
        && config
            .mavlink
            .iter()
            .filter_map(|end| end.serial.as_deref())
            .all(|device| may(Path::new(device), AccessFlags::R_OK | AccessFlags::W_OK));
    // The process had this set before, so the kernel permits restoring it.
    let _ = set(&before);
    reaches
}

/// Drops all capabilities except those in `needed`; never adds one that the process lacks.
pub(super) fn drop_all_but(needed: u64) -> Result<(), String> {
    let message = |error: io::Error| error.to_string();
    // The bounding set can be lowered only with CAP_SETPCAP; without it, no_new_privs has the same effect.
    // The kernel reads whole words.
    const ZERO: libc::c_ulong = 0;
    for number in 0..64 {
        if needed >> number & 1 == 0 {
            let number: libc::c_ulong = number;
            // SAFETY: prctl with these arguments takes no pointers.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, ZERO, ZERO, ZERO) };
        }
    }
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, ZERO, ZERO, ZERO) };
    let words = [needed as u32, (needed >> 32) as u32];
    let mut sets = get().map_err(message)?;
    for (set, word) in sets.iter_mut().zip(words) {
        let kept = set.permitted & word;
        *set = Set { effective: kept, permitted: kept, inheritable: 0 };
    }
    set(&sets).map_err(message)
}

/// Returns the names of the capabilities of a set.
pub(super) fn names(set: u64) -> Vec<String> {
    let name = |number: u32| match number {
        DAC_OVERRIDE => "dac_override".to_string(),
        NET_BIND_SERVICE => "net_bind_service".to_string(),
        NET_ADMIN => "net_admin".to_string(),
        NET_RAW => "net_raw".to_string(),
        _ => format!("number {number}"),
    };
    (0..64).filter(|number| set >> number & 1 == 1).map(name).collect()
}

fn get() -> io::Result<[Set; 2]> {
    let mut sets = [Set::default(); 2];
    call(libc::SYS_capget, sets.as_mut_ptr())?;
    Ok(sets)
}

fn set(sets: &[Set; 2]) -> io::Result<()> {
    let mut sets = *sets;
    call(libc::SYS_capset, sets.as_mut_ptr())
}

fn call(number: libc::c_long, sets: *mut Set) -> io::Result<()> {
    let mut header = Header { version: VERSION, process: 0 };
    // SAFETY: both calls read the header and read or write two sets, which outlive the call.
    let result = unsafe { libc::syscall(number, &raw mut header, sets) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
