//! The daemon of an aircraft or a ground station: a gateway on a real machine, with sockets, devices,
//! timers and signals.
//!
//! [`run`] puts a [`skybraid_gateway::Gateway`] between the networks and the local applications and
//! stays until it is asked to end. All of it is one thread, which never waits for anything but the next
//! datagram, byte or due time; names are resolved on threads of their own.
//!
//! `unsafe` is allowed where a system call has no safe wrapper; each use says why it is sound.

mod accept;
mod alarms;
mod arrival;
mod capabilities;
mod engine;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod http;
mod interfaces;
mod local;
mod lockdown;
mod log;
mod metrics;
mod names;
mod network;
mod notify;
mod page;
mod poller;
#[cfg(test)]
mod sample;
mod tools;
mod verdict;
mod watch;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use skybraid_gateway::{Event, GatewayConfig, Secrets, Snapshot};

pub use capabilities::capabilities;
pub use http::{AskError, ask};
pub use lockdown::{Lockdown, lock_down};
pub use watch::Watchers;

/// Error: a gateway cannot start or run on.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Something of the file cannot be had on this machine: a port is taken, rights are missing.
    #[error("{what}: {error}")]
    Setup {
        /// Attempted operation, with the file's key.
        what: String,
        /// Error of the system.
        error: io::Error,
    },
    /// The system refused what no gateway can do without.
    #[error("{what}: {error}")]
    System {
        /// Attempted operation.
        what: &'static str,
        /// Error of the system.
        error: io::Error,
    },
}

/// State that a running gateway shares with those who watch it.
#[derive(Debug, Default)]
pub struct Shared {
    snapshot: Mutex<Option<Snapshot>>,
    edges: Mutex<Edges>,
    lockdown: Mutex<Option<Lockdown>>,
    ended: AtomicBool,
}

impl Shared {
    /// Returns the state, at most 200 ms old; `None` before the first.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the counters of sockets and devices, at most 200 ms old.
    pub fn edges(&self) -> Edges {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the process's lockdown; `None` where it was not asked for.
    pub fn lockdown(&self) -> Option<Lockdown> {
        self.lockdown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the lockdown, for those who watch.
    pub fn set_lockdown(&self, lockdown: Lockdown) {
        *self.lockdown.lock().unwrap_or_else(PoisonError::into_inner) = Some(lockdown);
    }

    /// Ends the gateway within 200 ms, as SIGTERM does.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns whether the gateway ends or has ended.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn publish(&self, snapshot: Snapshot, edges: Edges) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
        *self.edges.lock().unwrap_or_else(PoisonError::into_inner) = edges;
    }
}

/// Counters of sockets and devices since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Edges {
    /// Towards the networks, in the order of the paths' names.
    pub paths: Vec<PathEdge>,
    /// Towards local applications.
    pub local: Vec<LocalEdge>,
}

/// A path's socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PathEdge {
    /// The path's name.
    pub name: String,
    /// It has a socket (or, in TCP mode, a connection).
    pub open: bool,
    /// Datagrams that could not leave.
    pub unsent: u64,
    /// Of those, how many were too large for the interface.
    pub too_large: u64,
    /// Last error of the system.
    pub error: Option<String>,
}

/// A MAVLink end, a UDP port or the TUN interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LocalEdge {
    /// Its kind and address.
    pub name: String,
    /// Number of clients: remembered senders, connections, an open device.
    pub clients: u64,
    /// Bytes that were no MAVLink frame, and datagrams that ended amid one.
    pub foreign_bytes: u64,
    /// Frames and datagrams that it was too slow to take.
    pub dropped: u64,
    /// Frames that became too old while they waited for it.
    pub late: u64,
}

/// Carries traffic until SIGTERM, SIGINT or [`Shared::end`].
///
/// The calling thread takes both signals; threads that are started before must hold them back
/// ([`hold_signals`]). Events that do not fit into `events` are lost.
///
/// # Errors
/// A local port is taken, rights for the TUN interface are missing, or the system refuses timers and the
/// like. Networks that are not there, and devices, are waited for.
pub fn run(
    config: &GatewayConfig,
    secrets: impl Into<Secrets>,
    shared: Arc<Shared>,
    events: SyncSender<Event>,
) -> Result<(), GatewayError> {
    let ended = Arc::clone(&shared);
    let result = engine::Engine::new(config, secrets.into(), shared, events)
        .and_then(|mut engine| engine.run());
    ended.end();
    result
}

/// Holds SIGTERM and SIGINT back from the calling thread and those that it starts, so that
/// [`run`] gets them. To be called first of all.
///
/// # Errors
/// The system refuses, which Linux never does.
pub fn hold_signals() -> io::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    set.thread_block().map_err(io::Error::from)
}
