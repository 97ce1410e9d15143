//! The crate with input and output: real links between namespaces, sockets, packet captures.
//!
//! `unsafe` is allowed where a system call has no safe wrapper; each use says why it is sound.

mod batch;
pub mod capture;
pub mod clock;
pub mod command;
mod confined;
pub mod control;
pub mod emulation;
pub mod forward;
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
pub mod hosts;
pub mod proxy;
pub mod sandbox;
pub mod testbed;
