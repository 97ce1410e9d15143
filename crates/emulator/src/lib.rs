//! Scenarios in real time: real links between network namespaces, sockets, packet captures.
//!
//! Everything but [`capture`] needs Linux. `unsafe` is permitted where a system call has no safe wrapper; each use
//! states why it is sound.

pub mod capture;
#[cfg(target_os = "linux")]
pub mod command;
#[cfg(target_os = "linux")]
mod confined;
#[cfg(target_os = "linux")]
pub mod control;
#[cfg(target_os = "linux")]
pub mod emulation;
#[cfg(target_os = "linux")]
pub mod forward;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(target_os = "linux")]
pub mod hosts;
#[cfg(target_os = "linux")]
pub mod proxy;
#[cfg(target_os = "linux")]
pub mod sandbox;
#[cfg(target_os = "linux")]
pub mod testbed;
