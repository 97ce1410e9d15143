//! Confinement of programs that root starts in an emulation: only the capabilities for their node's network,
//! and no writing to root's home.
#![allow(unsafe_code, reason = "what happens between fork and exec has no safe form")]

use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use nix::unistd::{Uid, User, geteuid};

/// Capabilities that a program keeps, by number (linux/capability.h): `CAP_NET_BIND_SERVICE`,
/// `CAP_NET_ADMIN`, `CAP_NET_RAW`.
const KEPT: u64 = 1 << 10 | 1 << 12 | 1 << 13;
/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// Zero argument of prctl(2), which reads whole words.
const ZERO: libc::c_ulong = 0;

/// Restrictions of a program, prepared before the fork.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// Root's home, and the working directory if inside: it stays writable.
    home: Option<CString>,
    working: Option<CString>,
}

impl Confinement {
    /// Returns the confinement for programs of this process; `None` if it is not root of the machine.
    pub fn of_root() -> io::Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        // A user namespace maps few users and only has power over the user's own resources anyway.
        let map = fs::read_to_string("/proc/self/uid_map")?;
        if !map.split_whitespace().eq(["0", "0", "4294967295"]) {
            return Ok(None);
        }
        let home = User::from_uid(Uid::from_raw(0)).ok().flatten().map(|root| root.dir);
        let home = home.filter(|home| home.is_dir() && home.as_path() != Path::new("/"));
        let home: Option<PathBuf> = home.map(fs::canonicalize).transpose()?;
        let working = env::current_dir().ok();
        let working = working.filter(|working| {
            home.as_deref().is_some_and(|home| working.starts_with(home) && working != home)
        });
        let text = |path: PathBuf| CString::new(path.as_os_str().as_bytes());
        Ok(Some(Self {
            home: home.map(text).transpose()?,
            working: working.map(text).transpose()?,
        }))
    }

    /// Confines the calling process irrevocably.
    ///
    /// # Safety
    /// For the child of a fork before exec: makes only system calls.
    pub unsafe fn apply(&self) -> io::Result<()> {
        // SAFETY: strings are NUL-terminated; structures are on this stack and outlive the calls.
        unsafe {
            self.protect_home()?;
            drop_rights()
        }
    }

    /// # Safety
    /// As [`apply`](Self::apply).
    unsafe fn protect_home(&self) -> io::Result<()> {
        let Some(home) = &self.home else { return Ok(()) };
        let none = ptr::null();
        // SAFETY: as in `apply`.
        unsafe {
            done(libc::unshare(libc::CLONE_NEWNS))?;
            let private = libc::MS_REC | libc::MS_PRIVATE;
            done(libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, private, ptr::null()))?;
            let bind = libc::MS_BIND | libc::MS_REC;
            done(libc::mount(home.as_ptr(), home.as_ptr(), none, bind, ptr::null()))?;
            if let Some(working) = &self.working {
                done(libc::mount(working.as_ptr(), working.as_ptr(), none, bind, ptr::null()))?;
            }
            let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
            done(libc::mount(none, home.as_ptr(), none, read_only, ptr::null()))?;
            // The open directory belongs to the mount below.
            let directory = self.working.as_ref();
            match directory {
                Some(directory) => done(libc::chdir(directory.as_ptr())),
                None => enter_again(),
            }
        }
    }
}

/// Re-enters the working directory by name, so that it is on the new mounts.
///
/// # Safety
/// Makes system calls only.
unsafe fn enter_again() -> io::Result<()> {
    let mut path = [0; 4096];
    // SAFETY: the kernel writes at most the length, including the terminating NUL.
    unsafe {
        if libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) < 0 {
            return Ok(());
        }
        done(libc::chdir(path.as_ptr()))
    }
}

/// Drops all capabilities except those for the node's network, for the process and its children.
///
/// # Safety
/// Makes system calls only.
unsafe fn drop_rights() -> io::Result<()> {
    // Version and process; then effective, permitted and inheritable, low and high words.
    let mut header = [VERSION, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: the kernel reads the header and writes or reads 24 bytes of sets.
    unsafe {
        for number in 0..64 {
            let number: libc::c_ulong = number;
            if KEPT >> number & 1 == 0
                && libc::prctl(libc::PR_CAPBSET_READ, number, ZERO, ZERO, ZERO) == 1
            {
                done(libc::prctl(libc::PR_CAPBSET_DROP, number, ZERO, ZERO, ZERO))?;
            }
        }
        let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
        libc::prctl(libc::PR_CAP_AMBIENT, clear, ZERO, ZERO, ZERO);
        let on: libc::c_ulong = 1;
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, ZERO, ZERO, ZERO))?;
        if libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let kept = KEPT as u32;
        let [effective, permitted, inheritable, high @ ..] = &mut sets;
        (*effective, *permitted, *inheritable) = (*effective & kept, *permitted & kept, 0);
        *high = [0; 3];
        if libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
