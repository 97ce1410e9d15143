//! Scenarios in real time: real links between network namespaces, sockets, packet captures.
//!
//! `unsafe` is permitted where a system call has no safe wrapper; each use states why it is sound.

pub mod capture;
pub mod command;
mod confined;
pub mod control;
pub mod emulation;
pub mod forward;
#[doc(hidden)]
pub mod fuzzing;
pub mod hosts;
pub mod proxy;
pub mod sandbox;
pub mod testbed;
