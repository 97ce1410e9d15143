//! Re-execution of the command in a sandbox, which leaves nothing behind.
//!
//! Process P0 is the command as started by the user. It forks C, which enters a new mount, PID and (if
//! unprivileged) user and network namespace, and forks P1, the first process of the PID namespace, which
//! executes the command again. C and P1 receive SIGKILL when their parent ends, and with P1 the kernel ends
//! every process of its PID namespace; network namespaces are held only by file descriptors and are removed
//! with the last of them. So the death of any of the three ends everything.
//!
//! The first process of a PID namespace has no default signal dispositions: **the command must handle SIGTERM
//! and SIGHUP (and SIGINT, unless it wants to ignore Ctrl-C)**, or they have no effect. It also inherits
//! orphans, which remain as zombies until it ends.
#![allow(unsafe_code, reason = "what happens between fork and exec has no safe form")]

mod capabilities;

use std::env;
use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::fcntl::OFlag;
use nix::unistd::{getegid, geteuid, pipe2};

use crate::command::SANDBOX_VARIABLE;

pub use capabilities::{Capabilities, capabilities};

/// Returns true if this process is the first of a sandbox. Its children are in the sandbox, but not the
/// first.
pub fn is_inside() -> bool {
    std::process::id() == 1 && env::var_os(SANDBOX_VARIABLE).is_some()
}

/// Runs `argv` in a new sandbox with `additions` to this process's environment, waits for it and returns its
/// exit status (128 plus the signal number if ended by a signal). Meanwhile this process ignores SIGINT and
/// SIGQUIT, which the terminal sends to both, and forwards SIGTERM and SIGHUP.
///
/// Must be called from the main thread: the sandbox ends with the calling thread.
///
/// # Errors
/// The program does not exist, or the kernel refuses a step; the error contains the step, the reason and a
/// remedy.
pub fn reenter(argv: &[OsString], additions: &[(OsString, OsString)]) -> io::Result<i32> {
    let plan = Plan::new(argv, additions)?;
    let (reports, report) = pipe2(OFlag::O_CLOEXEC)?;
    // Nobody writes to this pipe: it stays open as long as P0 lives.
    let (alive, life) = pipe2(OFlag::O_CLOEXEC)?;
    let mask = block_signals();
    // SAFETY: the child only makes system calls, with memory allocated before (see `child`).
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((reports, life));
        // SAFETY: this is the child of a fork; `plan` was created before it.
        unsafe { self::child(&plan, &report, &alive, &mask) }
    }
    if child < 0 {
        let error = io::Error::last_os_error();
        restore_signals(&mask);
        return Err(Step::Fork.error(&error));
    }
    drop((report, alive));
    let passing = Passing::to(child);
    restore_signals(&mask);
    let mut report = Vec::new();
    let read = File::from(reports).read_to_end(&mut report);
    let status = wait(child);
    drop((passing, life));
    read?;
    match <[u8; 5]>::try_from(report.as_slice()) {
        Ok([step, errno @ ..]) => {
            let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
            Err(Step::of(step).error(&error))
        }
        Err(_) => Ok(status),
    }
}

/// Steps of entering the sandbox that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Step {
    Fork,
    User,
    Map,
    Unshare,
    Parent,
    Mount,
    Execute,
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Fork,
        Self::User,
        Self::Map,
        Self::Unshare,
        Self::Parent,
        Self::Mount,
        Self::Execute,
    ];

    fn of(number: u8) -> Self {
        Self::ALL.into_iter().find(|step| *step as u8 == number).unwrap_or(Self::Fork)
    }

    fn error(self, error: &io::Error) -> io::Error {
        let what = match self {
            Self::Fork => "start a process",
            Self::User => "make a user namespace",
            Self::Map => "become root of a user namespace",
            Self::Unshare => "make mount, PID and network namespaces",
            Self::Parent => "tie the sandbox to this process",
            Self::Mount => "make the sandbox's mounts private",
            Self::Execute => "execute the command",
        };
        let remedy = match self {
            Self::Fork | Self::Parent | Self::Execute => String::new(),
            Self::User | Self::Map | Self::Unshare | Self::Mount => format!("; {}", remedy()),
        };
        io::Error::new(error.kind(), format!("cannot {what} for the sandbox: {error}{remedy}"))
    }
}

/// Returns the setting that permits an ordinary user to create namespaces, as far as known.
fn remedy() -> String {
    let setting = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    let found = [
        ("user/max_user_namespaces", "0", "10000"),
        ("user/max_net_namespaces", "0", "10000"),
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ]
    .into_iter()
    .find(|(key, bad, _)| setting(&format!("/proc/sys/{key}")).is_ok_and(|value| value == *bad));
    match found {
        Some((key, _, good)) => {
            format!("allow it by `sudo sysctl -w {}={good}`, or run as root", key.replace('/', "."))
        }
        None => "run as root, or, in a container, with the rights CAP_SYS_ADMIN and CAP_NET_ADMIN \
                 and a system-call filter that allows `unshare`"
            .to_owned(),
    }
}

/// Returns true if this process may create namespaces and set up networks without a user namespace.
fn privileged() -> bool {
    const CAP_NET_ADMIN: u64 = 12;
    const CAP_SYS_ADMIN: u64 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = line.and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok()).unwrap_or(0);
    [CAP_NET_ADMIN, CAP_SYS_ADMIN].into_iter().all(|right| rights >> right & 1 == 1)
}

/// Files and lines that make this user root of its new user namespace.
struct IdMaps {
    setgroups: CString,
    uid: (CString, String),
    gid: (CString, String),
}

impl IdMaps {
    fn new() -> Self {
        Self {
            setgroups: c"/proc/self/setgroups".to_owned(),
            uid: (c"/proc/self/uid_map".to_owned(), format!("0 {} 1", geteuid())),
            gid: (c"/proc/self/gid_map".to_owned(), format!("0 {} 1", getegid())),
        }
    }

    /// Writes the ID maps of the calling process.
    ///
    /// # Safety
    /// None beyond that of system calls; it makes only system calls, so it may run after `fork`.
    unsafe fn write(&self) -> Result<(), i32> {
        // SAFETY: the paths are NUL-terminated and the texts outlive the calls.
        unsafe {
            // Kernels before 3.19 have neither this file nor the requirement.
            let _ = write_file(&self.setgroups, b"deny");
            write_file(&self.uid.0, self.uid.1.as_bytes())?;
            write_file(&self.gid.0, self.gid.1.as_bytes())
        }
    }
}

/// Data needed after `fork`, when memory must not be allocated.
struct Plan {
    program: CString,
    /// Keeps alive the strings that the pointers refer to.
    _strings: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    maps: Option<IdMaps>,
}

impl Plan {
    fn new(argv: &[OsString], additions: &[(OsString, OsString)]) -> io::Result<Self> {
        let Some(name) = argv.first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        };
        let missing = || {
            let text = format!("there is no program `{}`", name.to_string_lossy());
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        let program = find(Path::new(name)).ok_or_else(missing)?;
        let text = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::other);
        let arguments = argv.iter().map(|argument| text(argument.clone().into_vec()));
        let arguments = arguments.collect::<io::Result<Vec<_>>>()?;
        let mut variables: Vec<(OsString, OsString)> = env::vars_os().collect();
        let inside = (OsString::from(SANDBOX_VARIABLE), OsString::from("1"));
        for (key, value) in additions.iter().cloned().chain([inside]) {
            variables.retain(|(old, _)| *old != key);
            variables.push((key, value));
        }
        let lines = variables
            .into_iter()
            .map(|(key, value)| text([key.as_bytes(), b"=", value.as_bytes()].concat()));
        let lines = lines.collect::<io::Result<Vec<_>>>()?;
        let pointers = |strings: &[CString]| {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
        };
        let (argv, environment) = (pointers(&arguments), pointers(&lines));
        let program = text(program.into_os_string().into_vec())?;
        let maps = (!privileged()).then(IdMaps::new);
        // Moving the strings keeps the pointers valid.
        let _strings = arguments.into_iter().chain(lines).collect();
        Ok(Self { program, _strings, argv, environment, maps })
    }
}

/// Returns the program's file, searched along `PATH` as by a shell.
fn find(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 || name.is_absolute() {
        return name.is_file().then(|| name.to_owned());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Code of C, and of P1 up to `execve`.
///
/// # Safety
/// Only for the child of a fork. Makes only system calls, as other threads of the parent may have held locks
/// at the fork.
unsafe fn child(plan: &Plan, report: &OwnedFd, alive: &OwnedFd, mask: &libc::sigset_t) -> ! {
    // SAFETY: descriptors are open, pointers point into `plan`, `mask` or this stack, and strings are
    // NUL-terminated.
    unsafe {
        let mut spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID;
        if let Some(maps) = &plan.maps {
            attempt(libc::unshare(libc::CLONE_NEWUSER), Step::User, report);
            if let Err(errno) = maps.write() {
                fail(Step::Map, errno, report);
            }
            spaces |= libc::CLONE_NEWNET;
        }
        attempt(libc::unshare(spaces), Step::Unshare, report);
        // Called after changes of credentials, which would clear the setting.
        die_with_parent(alive, report);
        // Equivalent pipe for P1: C holds its other end as long as it lives.
        let mut pipe = [0; 2];
        attempt(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), Step::Parent, report);
        let first = libc::fork();
        attempt(first, Step::Fork, report);
        if first == 0 {
            libc::close(pipe[1]);
            libc::dup3(pipe[0], alive.as_raw_fd(), libc::O_CLOEXEC);
            become_first(plan, report, alive, mask);
        }
        libc::close(report.as_raw_fd());
        pass_signals_on(first, None);
        restore_signals(mask);
        libc::_exit(wait(first));
    }
}

/// P1: fresh mounts, then the command.
///
/// # Safety
/// As [`child`].
unsafe fn become_first(plan: &Plan, report: &OwnedFd, alive: &OwnedFd, mask: &libc::sigset_t) -> ! {
    // SAFETY: as in `child`.
    unsafe {
        die_with_parent(alive, report);
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let mounted =
            libc::mount(c"none".as_ptr(), c"/".as_ptr(), ptr::null(), private, ptr::null());
        attempt(mounted, Step::Mount, report);
        // A container may refuse a fresh /proc; the old one suffices, with its own process IDs.
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let (source, target) = (c"proc".as_ptr(), c"/proc".as_ptr());
        libc::mount(source, target, source, flags, ptr::null());
        restore_signals(mask);
        let (argv, environment) = (plan.argv.as_ptr(), plan.environment.as_ptr());
        attempt(libc::execve(plan.program.as_ptr(), argv, environment), Step::Execute, report);
        libc::_exit(127)
    }
}

/// Makes the kernel end this process with its parent, and exits if the parent is gone already: then nobody
/// holds the other end of `alive`.
///
/// # Safety
/// As [`child`].
unsafe fn die_with_parent(alive: &OwnedFd, report: &OwnedFd) {
    let mut fd = libc::pollfd { fd: alive.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: plain system calls; `fd` outlives them.
    unsafe {
        attempt(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), Step::Parent, report);
        libc::poll(&raw mut fd, 1, 0);
        if fd.revents & libc::POLLHUP != 0 {
            libc::_exit(128 + libc::SIGKILL);
        }
    }
}

/// Reports to P0 and exits if a system call has failed.
///
/// # Safety
/// As [`child`].
unsafe fn attempt(result: i32, step: Step, report: &OwnedFd) {
    if result < 0 {
        // SAFETY: as the caller's.
        unsafe { fail(step, errno(), report) }
    }
}

/// Reports the failed step to P0 and exits.
///
/// # Safety
/// As [`child`].
unsafe fn fail(step: Step, errno: i32, report: &OwnedFd) -> ! {
    let [a, b, c, d] = errno.to_ne_bytes();
    let bytes = [step as u8, a, b, c, d];
    // SAFETY: the bytes outlive the call.
    unsafe {
        libc::write(report.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
        libc::_exit(126)
    }
}

fn errno() -> i32 {
    // SAFETY: the address is valid and belongs to this thread.
    unsafe { *libc::__errno_location() }
}

/// Writes `bytes` to the file at once.
///
/// # Safety
/// None beyond that of system calls.
unsafe fn write_file(path: &CStr, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: the path is NUL-terminated; the bytes outlive the call.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(errno());
        }
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = if written < 0 { Err(errno()) } else { Ok(()) };
        libc::close(fd);
        result
    }
}

/// Waits for a child and returns its exit status as a shell does. Makes system calls only.
fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended < 0 && errno() == libc::EINTR {
            continue;
        }
        return match (ended == child, libc::WIFEXITED(status)) {
            (false, _) => 128 + libc::SIGKILL,
            (true, true) => libc::WEXITSTATUS(status),
            (true, false) => 128 + libc::WTERMSIG(status),
        };
    }
}

/// Process to which this one's SIGTERM and SIGHUP are forwarded.
static RECEIVER: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: i32) {
    let errno_before = errno();
    let receiver = RECEIVER.load(Ordering::Relaxed);
    if receiver > 0 {
        // SAFETY: a system call without pointers, permitted in signal handlers; and the address of `errno`
        // belongs to this thread.
        unsafe {
            libc::kill(receiver, signal);
            *libc::__errno_location() = errno_before;
        }
    }
}

/// Signals whose disposition changes while the sandbox runs.
const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Ignores signals that the terminal sends to all and forwards the others; saves the former dispositions in
/// `former`. Makes system calls only.
fn pass_signals_on(receiver: i32, mut former: Option<&mut [libc::sigaction; 4]>) {
    RECEIVER.store(receiver, Ordering::Relaxed);
    for (number, signal) in SIGNALS.into_iter().enumerate() {
        let terminal = signal == libc::SIGINT || signal == libc::SIGQUIT;
        // SAFETY: all zeros are a valid `sigaction`; the handler makes only a system call; the memory for the
        // former dispositions outlives the call.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32) = pass_on;
            action.sa_sigaction =
                if terminal { libc::SIG_IGN } else { handler as libc::sighandler_t };
            action.sa_flags = libc::SA_RESTART;
            let old = former.as_mut().and_then(|former| former.get_mut(number));
            libc::sigaction(signal, &raw const action, old.map_or(ptr::null_mut(), ptr::from_mut));
        }
    }
}

/// Signal dispositions while the sandbox runs; the former ones are restored on drop.
struct Passing {
    former: [libc::sigaction; 4],
}

impl Passing {
    fn to(child: i32) -> Self {
        // SAFETY: all zeros are a valid `sigaction`.
        let mut former: [libc::sigaction; 4] = unsafe { std::mem::zeroed() };
        pass_signals_on(child, Some(&mut former));
        Self { former }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        RECEIVER.store(0, Ordering::Relaxed);
        for (signal, former) in SIGNALS.into_iter().zip(&self.former) {
            // SAFETY: `former` was filled by the kernel.
            unsafe { libc::sigaction(signal, ptr::from_ref(former), ptr::null_mut()) };
        }
    }
}

/// Blocks all signals of the calling thread; returns the former mask.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the calls fill both sets.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: the set outlives the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(mask), ptr::null_mut()) };
}
