//! A network namespace, kept open only by a file descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::resume_unwind;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use super::Netlink;
use crate::context;

/// File of the calling thread's namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace. It exists as long as this value, or a socket or process in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Creates an empty namespace, whose loopback interface is up. The caller stays in its own.
    ///
    /// # Errors
    /// The process may not create network namespaces (it needs `CAP_SYS_ADMIN`, which a user namespace
    /// provides), or there are too many.
    pub fn create(name: &str) -> io::Result<Self> {
        let enter = || unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        let file = in_a_thread(name, enter, || File::open(OWN)).and_then(|opened| opened).map_err(
            |error| context(format_args!("cannot make network namespace `{name}`"), error),
        )?;
        let namespace = Self { name: name.to_owned(), file };
        let mut netlink = namespace.netlink()?;
        let loopback = netlink.link("lo")?.index;
        netlink.set_up(loopback)?;
        Ok(namespace)
    }

    /// Returns the namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current(name: &str) -> io::Result<Self> {
        let file = File::open(OWN).map_err(|error| context(OWN, error))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// Returns another handle of the namespace.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { name: self.name.clone(), file: self.file.try_clone()? })
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the descriptor for `setns` and for netlink.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the file of the namespace in this process; other processes find it below `/proc/PID/fd`.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Runs `work` in the namespace on a new thread. Sockets opened there stay in the namespace wherever they
    /// are used later.
    ///
    /// # Errors
    /// The thread cannot be started or may not enter the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let enter = || setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        in_a_thread(&self.name, enter, work).map_err(|error| {
            context(format_args!("cannot enter network namespace `{}`", self.name), error)
        })
    }

    /// Opens a connection to the kernel for the namespace's interfaces, addresses, routes and rules.
    ///
    /// # Errors
    /// The namespace cannot be entered or there are no netlink sockets.
    pub fn netlink(&self) -> io::Result<Netlink> {
        self.run(|| Netlink::open(&self.name))?
    }
}

/// Runs `enter`, then `work`, on a new thread.
fn in_a_thread<T: Send>(
    name: &str,
    enter: impl FnOnce() -> io::Result<()> + Send,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, || enter().map(|()| work()))?
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))
    })
}
