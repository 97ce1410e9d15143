//! Programs run in a node of the testbed.
#![allow(unsafe_code, reason = "what happens between fork and exec, and pidfds, have no safe form")]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use skybraid_units::{Duration, Instant};

use crate::confined::Confinement;
use skybraid_io::clock::Clock;
use skybraid_io::context;
use skybraid_io::netlink::Namespace;

/// Set only in the environment of the sandbox's first process.
pub(crate) const SANDBOX_VARIABLE: &str = "SKYBRAID_SANDBOX";

/// Standard streams of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// The program owns the terminal: it reads from it and receives its signals (a shell).
    Terminal,
    /// Inherits the output of this process; no input.
    Inherit,
    /// Writes to these files; no input.
    Files {
        /// Standard output.
        stdout: &'a Path,
        /// Standard error.
        stderr: &'a Path,
    },
}

/// A running program, terminated on drop.
///
/// Unless it has the terminal, the program leads its own process group, so that its children are terminated
/// with it. It does not end with the thread that started it: in the sandbox everything ends with the first
/// process anyway, and `PR_SET_PDEATHSIG` would track the thread, not the process.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    /// Readable once the program has ended.
    pidfd: OwnedFd,
    own_group: bool,
    status: Option<ExitStatus>,
}

impl Program {
    /// Starts `argv` in the network of `node`, with `environment` added to this process's. Unless it is to
    /// `keep_privileges`, a program of the machine's root has only the capabilities for its node's network, and root's
    /// home is read-only except for a working directory inside.
    ///
    /// # Errors
    /// The program does not exist or may not be executed, an output file cannot be created, or the kernel refuses to
    /// drop the capabilities.
    pub fn start(
        node: &Namespace,
        argv: &[impl AsRef<OsStr>],
        environment: &[(String, String)],
        output: Output<'_>,
        keep_privileges: bool,
    ) -> io::Result<Self> {
        let confinement = if keep_privileges { None } else { Confinement::of_root()? };
        let Some((program, arguments)) = argv.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        };
        let name = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.args(arguments).env_remove(SANDBOX_VARIABLE);
        command.envs(environment.iter().map(|(key, value)| (key, value)));
        let own_group = output != Output::Terminal;
        if own_group {
            command.stdin(Stdio::null()).process_group(0);
        }
        if let Output::Files { stdout, stderr } = output {
            command.stdout(create(stdout)?);
            // Sharing one file keeps the lines of both streams in order.
            command.stderr(if stdout == stderr { append(stderr)? } else { create(stderr)? });
        }
        let namespace = node.fd().as_raw_fd();
        // SAFETY: only system calls that are safe between fork and exec; the descriptor stays open in
        // the child until exec, as `node` is borrowed until `spawn` returns.
        unsafe {
            command.pre_exec(move || {
                enter(namespace)?;
                confinement.as_ref().map_or(Ok(()), |confinement| confinement.apply())
            })
        };
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::new(error.kind(), format!("there is no program `{name}`"))
            }
            _ => context(format_args!("cannot start `{name}` in {}", node.name()), error),
        })?;
        let pidfd = open_pidfd(child.id()).map_err(|error| context("pidfd_open", error))?;
        Ok(Self { name, child, pidfd, own_group, status: None })
    }

    /// Returns the name with which the program was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns a descriptor that becomes readable when the program ends; for `poll` and `epoll`.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the exit status, or `None` while the program runs.
    ///
    /// # Errors
    /// The process has already been waited for.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|error| context(&self.name, error))?;
        }
        Ok(self.status)
    }

    /// Waits until the program ends.
    ///
    /// # Errors
    /// As [`Program::poll`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().map_err(|error| context(&self.name, error))?;
        self.status = Some(status);
        Ok(status)
    }

    /// Waits until the program ends, for at most `longest`; returns `None` on timeout.
    ///
    /// # Errors
    /// As [`Program::poll`].
    pub fn wait_for(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        self.await_end(timeout)?;
        self.poll()
    }

    /// Sends SIGTERM to the program and its children, and SIGKILL after `grace`. If the program has ended
    /// already, its status is kept.
    ///
    /// # Errors
    /// As [`Program::poll`].
    pub fn terminate(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = self.poll()? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM);
        self.await_end(grace)?;
        // The process has not been waited for, so its group ID cannot have been reused.
        self.signal(Signal::SIGKILL);
        self.wait()
    }

    /// Sends a signal to the program and, unless it has the terminal, to its children.
    pub fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.child.id().cast_signed());
        // Fails only if the process has ended, which the caller detects next.
        let _ = if self.own_group {
            killpg(process, signal)
        } else {
            nix::sys::signal::kill(process, signal)
        };
    }

    /// Waits for the end without collecting the exit status.
    fn await_end(&self, timeout: Duration) -> io::Result<()> {
        let clock = Clock::starting_in(timeout);
        loop {
            let left = Instant::ZERO.since(clock.now()).as_nanos().max(0);
            let milliseconds = u16::try_from((left + 999_999) / 1_000_000).unwrap_or(u16::MAX);
            let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(milliseconds)) {
                Ok(0) if left > 0 => {}
                Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.poll(), Ok(None)) {
            self.signal(Signal::SIGKILL);
            // The status is no longer needed.
            let _ = self.child.wait();
        }
    }
}

/// A plain number for how a program ended: its exit status, or 128 plus the signal's number.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Runs `argv` in the namespaces of these files, entered in order, with exactly `environment`, and waits for
/// it. The program owns the terminal.
///
/// # Errors
/// A namespace cannot be entered, or the program does not exist.
pub fn run_in(
    namespaces: &[impl AsRef<Path>],
    argv: &[impl AsRef<OsStr>],
    environment: &[(String, String)],
) -> io::Result<ExitStatus> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
    };
    let open = |path: &Path| File::open(path).map_err(|error| context(path.display(), error));
    let files =
        namespaces.iter().map(|path| open(path.as_ref())).collect::<io::Result<Vec<_>>>()?;
    let descriptors: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    // SAFETY: only system calls that are safe between fork and exec; the descriptors stay open in the
    // child until exec, as `files` outlives the call.
    unsafe {
        command.pre_exec(move || {
            for descriptor in &descriptors {
                // The file determines the kind of namespace.
                if libc::setns(*descriptor, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.status().map_err(|error| context(program.as_ref().to_string_lossy(), error))
}

fn create(path: &Path) -> io::Result<File> {
    File::create(path).map_err(|error| context(path.display(), error))
}

fn append(path: &Path) -> io::Result<File> {
    let file = File::options().append(true).open(path);
    file.map_err(|error| context(path.display(), error))
}

/// Enters the namespace in the new process and resets the process settings inherited from this process.
fn enter(namespace: i32) -> io::Result<()> {
    // SAFETY: plain system calls; the descriptor is open.
    unsafe {
        if libc::setns(namespace, libc::CLONE_NEWNET) < 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in 1..=libc::SIGRTMAX() {
            // Fails for KILL and STOP, which is fine.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    Ok(())
}

fn open_pidfd(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers; the process is a child that has not been waited for.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
