//! What this machine lets the emulator do, found out by trying it in a child process.

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

/// All that the emulator can make use of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// One after the other, what is needed first.
    pub list: Vec<Capability>,
    /// The kernel's algorithms of congestion control that are loaded.
    pub congestion_controls: Vec<String>,
}

impl Capabilities {
    /// Whether everything that is needed is there.
    pub fn sufficient(&self) -> bool {
        self.list.iter().all(|capability| capability.present || !capability.needed)
    }

    /// The capability of this name.
    pub fn get(&self, name: &str) -> Option<&Capability> {
        self.list.iter().find(|capability| capability.name == name)
    }
}

/// Tries out what there is. The calling process stays as it is.
///
/// # Errors
/// There are no more processes or pipes.
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

/// The result of a trial without a ground to try it on; no error has this number.
const NOT_TRIED: i32 = -1;

/// Runs `work`, which may make system calls only, in a child and gives its results.
fn in_a_child<const N: usize>(work: impl FnOnce() -> [i32; N]) -> io::Result<[i32; N]> {
    let (results, result) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the child makes system calls only and ends without returning.
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
    let told = read(results);
    super::wait(child);
    let told = told?;
    let mut values = [NOT_TRIED; N];
    for (value, bytes) in values.iter_mut().zip(told.chunks_exact(size_of::<i32>())) {
        *value = bytes.try_into().map_or(NOT_TRIED, i32::from_ne_bytes);
    }
    Ok(values)
}

fn read(pipe: OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::from(pipe).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Goes into new namespaces, and tries veth, packet sockets, TUN and MPTCP there. The results are error
/// numbers, 0 for success.
///
/// # Safety
/// Only for the child of a fork; it makes nothing but system calls.
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

/// Makes a user namespace and becomes its root.
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

/// Makes the sandbox's namespaces.
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

/// What the kernel answers to an rtnetlink request.
///
/// # Safety
/// As [`probe`].
unsafe fn acknowledged(request: &[u8]) -> i32 {
    /// A message's header, after which comes the error number.
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

/// Makes a TUN interface.
///
/// # Safety
/// As [`probe`].
unsafe fn tun() -> i32 {
    // SAFETY: all bytes zero is a valid `ifreq`; the rest as the caller's.
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
