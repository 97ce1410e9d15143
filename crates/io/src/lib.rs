//! Input and output that the emulator and the gateway's daemon share: datagrams in batches, the clock of
//! a run, network namespaces and the kernel's netlink interfaces.
//!
//! `unsafe` is permitted where a system call has no safe wrapper; each use states why it is sound.

pub mod batch;
mod capability;
pub mod clock;
pub mod netlink;

use std::fmt::Display;
use std::io;

pub use capability::Capability;

/// Returns `error` with a description of the attempted operation in front; its kind stays.
pub fn context(what: impl Display, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
