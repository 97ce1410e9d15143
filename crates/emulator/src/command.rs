//! Programs that run in a node of the testbed.
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

/// Set in the environment of the sandbox's first process alone.
pub(crate) const SANDBOX_VARIABLE: &str = "SKYBRAID_SANDBOX";

/// Where a program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// The terminal is the program's: it reads from it and gets its signals (a shell).
    Terminal,
    /// It writes where this process writes and reads nothing.
    Inherit,
    /// It writes to these files and reads nothing.
    Files {
        /// Its standard output.
        stdout: &'a Path,
        /// What it complains.
        stderr: &'a Path,
    },
}

/// A running program. Dropping it ends it.
///
/// Unless it has the terminal, it is a process group of its own, so that what it has started ends with
/// it. It does not end with the thread that has started it: in the sandbox everything ends with the
/// first process anyway, and `PR_SET_PDEATHSIG` would heed the thread, not the process.
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
    /// Starts `argv` in the network of `node`, with `environment` added to this process's.
    ///
    /// # Errors
    /// There is no such program, it may not be executed, or an output file cannot be made.
    pub fn start(
        node: &Namespace,
        argv: &[impl AsRef<OsStr>],
        environment: &[(String, String)],
        output: Output<'_>,
    ) -> io::Result<Self> {
        Self::start_as(node, argv, environment, output, None)
    }

    /// As [`start`](Self::start); where this process is root of the machine, the program keeps rights over its node's
    /// network alone, and root's home is read-only to it, but for the working directory inside of it.
    ///
    /// # Errors
    /// As [`start`](Self::start), or the kernel refuses to take the rights away.
    pub fn start_confined(
        node: &Namespace,
        argv: &[impl AsRef<OsStr>],
        environment: &[(String, String)],
        output: Output<'_>,
    ) -> io::Result<Self> {
        Self::start_as(node, argv, environment, output, Confinement::of_root()?)
    }

    fn start_as(
        node: &Namespace,
        argv: &[impl AsRef<OsStr>],
        environment: &[(String, String)],
        output: Output<'_>,
        confinement: Option<Confinement>,
    ) -> io::Result<Self> {
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
            // One file for both keeps the lines in their order.
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

    /// The program's name, as it was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Becomes readable when the program ends; for `poll` and `epoll`.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// How it ended, or `None` while it runs.
    ///
    /// # Errors
    /// Somebody else has waited for the process.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|error| context(&self.name, error))?;
        }
        Ok(self.status)
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// As [`Program::poll`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().map_err(|error| context(&self.name, error))?;
        self.status = Some(status);
        Ok(status)
    }

    /// Waits until it ends, but not longer than `longest`; `None` if it still runs then.
    ///
    /// # Errors
    /// As [`Program::poll`].
    pub fn wait_for(&mut self, longest: Duration) -> io::Result<Option<ExitStatus>> {
        self.await_end(longest)?;
        self.poll()
    }

    /// Asks the program and what it has started to end (SIGTERM), and ends them after `grace`
    /// (SIGKILL). One that has ended already keeps its status.
    ///
    /// # Errors
    /// As [`Program::poll`].
    pub fn terminate(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = self.poll()? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM);
        self.await_end(grace)?;
        // The process is not waited for yet, so its group's number cannot be another's.
        self.signal(Signal::SIGKILL);
        self.wait()
    }

    /// Sends a signal to the program and, unless it has the terminal, to what it has started.
    pub fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.child.id().cast_signed());
        // It fails only if the process has ended, which is what the caller finds out next.
        let _ = if self.own_group {
            killpg(process, signal)
        } else {
            nix::sys::signal::kill(process, signal)
        };
    }

    /// Waits for the end without collecting the status.
    fn await_end(&self, longest: Duration) -> io::Result<()> {
        let clock = Clock::starting_in(longest);
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
            // Nothing is left to be told.
            let _ = self.child.wait();
        }
    }
}

/// A plain number for how a program ended: its exit status, or 128 plus the signal's number.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Runs `argv` in the namespaces that these files stand for, entered in their order, with exactly
/// `environment`, and waits for it. The terminal is the program's.
///
/// # Errors
/// A namespace cannot be entered, or there is no such program.
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
                // The kind of namespace is the file's.
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

/// In the new process: goes into the namespace and takes back what this process has set for itself.
fn enter(namespace: i32) -> io::Result<()> {
    // SAFETY: plain system calls; the descriptor is open.
    unsafe {
        if libc::setns(namespace, libc::CLONE_NEWNET) < 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in 1..=libc::SIGRTMAX() {
            // KILL and STOP refuse, which is all right.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    Ok(())
}

fn open_pidfd(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers; the process is a child nobody has waited for.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
