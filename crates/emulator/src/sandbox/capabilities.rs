//! Capabilities of this machine for the emulator, determined in a child process.

use std::fs;
use std::io::{self, Read};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::{IdMaps, errno, privileged, remedy};
use skybraid_io::Capability;
use skybraid_io::netlink::veth_request;

/// Capabilities that the emulator can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Capabilities, most basic first.
    pub list: Vec<Capability>,
    /// Congestion control algorithms loaded in the kernel.
    pub congestion_controls: Vec<String>,
}

impl Capabilities {
    /// Returns true if all required capabilities are present.
    pub fn sufficient(&self) -> bool {
        self.list.iter().all(|capability| capability.present || !capability.needed)
    }

    /// Returns the capability of this name.
    pub fn get(&self, name: &str) -> Option<&Capability> {
        self.list.iter().find(|capability| capability.name == name)
    }
}

/// Determines the capabilities. The calling process is unaffected.
///
/// # Errors
/// A process or pipe cannot be created.
pub fn capabilities() -> io::Result<Capabilities> {
    let root = privileged();
    let maps = IdMaps::new();
    let veth = veth_request();
    let user = in_a_child(|| {
        // SAFETY: in the child of a fork, system calls only.
        unsafe { [enter_user_namespace(&maps)] }
    })?;
    let tried = in_a_child(|| {
        // SAFETY: in the child of a fork, system calls only.
        unsafe { probe((!root).then_some(&maps), &veth) }
    })?;
    let [namespaces, veth, packet, tun, mptcp] = tried;
    let mut list = Vec::new();
    let mut add = |name, needed, result: i32, found: String, mend: String| {
        let present = result == 0;
        let reason = io::Error::from_raw_os_error(result);
        let found = match result {
            0 => found,
            NOT_TRIED => "not tried, as there are no network namespaces".to_owned(),
            _ => format!("missing: {reason}"),
        };
        let remedy = (!present).then_some(mend);
        list.push(Capability { name, present, needed, found, remedy });
    };
    let module = |name: &str| format!("`sudo modprobe {name}`, or a kernel that has it");
    let rights = if root { "can be made" } else { "can be made, in a user namespace" };
    add("network namespaces", true, namespaces, rights.to_owned(), remedy());
    add("veth", true, veth, "can be made, in pairs".to_owned(), module("veth"));
    add("packet sockets", true, packet, "can be opened".to_owned(), module("af_packet"));
    let found = if root { "can be made; root does not need them" } else { "can be made" };
    add("user namespaces", !root, user[0], found.to_owned(), remedy());
    add("MPTCP", false, mptcp, mptcp_found(), mptcp_remedy(mptcp));
    add("TUN", false, tun, "/dev/net/tun works".to_owned(), module("tun"));
    let controls = setting("net/ipv4/tcp_available_congestion_control");
    let chosen = setting("net/ipv4/tcp_congestion_control");
    add(
        "TCP congestion control",
        false,
        if controls.is_empty() { libc::ENOENT } else { 0 },
        format!("{controls}; new connections use {chosen}"),
        "`sudo modprobe tcp_NAME` for one that is missing".to_owned(),
    );
    let congestion_controls = controls.split_whitespace().map(str::to_owned).collect();
    Ok(Capabilities { list, congestion_controls })
}

fn mptcp_found() -> String {
    let schedulers = setting("net/mptcp/available_schedulers");
    let managers = setting("net/mptcp/available_path_managers");
    let or_unknown = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
    let (schedulers, managers) = (or_unknown(schedulers), or_unknown(managers));
    format!("schedulers: {schedulers}; path managers: {managers}")
}

fn mptcp_remedy(result: i32) -> String {
    if result == libc::ENOPROTOOPT {
        "`sudo sysctl -w net.mptcp.enabled=1`".to_owned()
    } else {
        "a kernel with CONFIG_MPTCP (Linux 5.6 or later)".to_owned()
    }
}

fn setting(key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/{key}")).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Result of a skipped trial; no errno has this value.
const NOT_TRIED: i32 = -1;

/// Runs `work`, limited to system calls, in a child and returns its results.
fn in_a_child<const N: usize>(work: impl FnOnce() -> [i32; N]) -> io::Result<[i32; N]> {
    let (results, result) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the child makes system calls only and exits without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let values = work();
        // SAFETY: the values outlive the call.
        unsafe {
            libc::write(result.as_raw_fd(), values.as_ptr().cast(), size_of::<[i32; N]>());
            libc::_exit(0)
        }
    }
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(result);
    let report = read(results);
    super::wait(child);
    let report = report?;
    let mut values = [NOT_TRIED; N];
    for (value, bytes) in values.iter_mut().zip(report.chunks_exact(size_of::<i32>())) {
        *value = bytes.try_into().map_or(NOT_TRIED, i32::from_ne_bytes);
    }
    Ok(values)
}

fn read(pipe: OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::from(pipe).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Enters new namespaces, and tries veth, packet sockets, TUN and MPTCP there. Returns errno values, 0 for
/// success.
///
/// # Safety
/// Only for the child of a fork: makes only system calls.
unsafe fn probe(maps: Option<&IdMaps>, veth: &[u8]) -> [i32; 5] {
    let mut results = [NOT_TRIED; 5];
    // SAFETY: pointers point to memory that outlives the calls, with the sizes that are passed.
    unsafe {
        results[0] = enter(maps);
        if results[0] != 0 {
            return results;
        }
        results[1] = acknowledged(veth);
        let protocol = i32::from((libc::ETH_P_ALL as u16).to_be());
        results[2] = socket(libc::AF_PACKET, libc::SOCK_RAW, protocol);
        results[3] = tun();
        results[4] = socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    }
    results
}

/// Creates a user namespace and becomes its root.
///
/// # Safety
/// As [`probe`].
unsafe fn enter_user_namespace(maps: &IdMaps) -> i32 {
    // SAFETY: as the caller's.
    unsafe {
        if libc::unshare(libc::CLONE_NEWUSER) < 0 {
            return errno();
        }
        maps.write().err().unwrap_or(0)
    }
}

/// Creates the namespaces of the sandbox.
///
/// # Safety
/// As [`probe`].
unsafe fn enter(maps: Option<&IdMaps>) -> i32 {
    // SAFETY: as the caller's.
    unsafe {
        let refused = maps.map_or(0, |maps| enter_user_namespace(maps));
        if refused != 0 {
            return refused;
        }
        let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET;
        if libc::unshare(spaces) < 0 { errno() } else { 0 }
    }
}

/// # Safety
/// As [`probe`].
unsafe fn socket(family: i32, kind: i32, protocol: i32) -> i32 {
    // SAFETY: a system call without pointers.
    if unsafe { libc::socket(family, kind, protocol) } < 0 { errno() } else { 0 }
}

/// Returns the kernel's result of an rtnetlink request.
///
/// # Safety
/// As [`probe`].
unsafe fn acknowledged(request: &[u8]) -> i32 {
    /// Length of a message header; the errno follows.
    const HEADER: usize = 16;
    let mut answer = [0_u8; 4096];
    // SAFETY: as the caller's.
    let length = unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE);
        if fd < 0 || libc::send(fd, request.as_ptr().cast(), request.len(), 0) < 0 {
            return errno();
        }
        libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    let Some(&[a, b, c, d]) = answer.get(HEADER..HEADER + 4).and_then(|bytes| bytes.first_chunk())
    else {
        return libc::EPROTO;
    };
    if length < 0 { errno() } else { -i32::from_ne_bytes([a, b, c, d]) }
}

/// Creates a TUN interface.
///
/// # Safety
/// As [`probe`].
unsafe fn tun() -> i32 {
    // SAFETY: all zeros are a valid `ifreq`; otherwise as the caller's.
    unsafe {
        let fd = libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 {
            return errno();
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        if libc::ioctl(fd, libc::TUNSETIFF, ptr::from_mut(&mut request)) < 0 { errno() } else { 0 }
    }
}
