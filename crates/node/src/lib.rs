//! The daemon of an aircraft or a ground station: a gateway on a real machine, with sockets, devices,
//! timers and signals.
//!
//! [`run`] connects a [`skybraid_gateway::Gateway`] with the networks and the local applications until
//! shutdown. It is a single thread, which waits only for the next datagram, byte or timer; names are resolved
//! on threads of their own.
//!
//! `unsafe` is permitted where a system call has no safe wrapper; each use states why it is sound.

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
mod remote;
#[cfg(test)]
mod sample;
mod tools;
mod verdict;
mod watch;

use std::collections::BTreeMap;
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
    /// A configured resource is not available on this machine: a port is in use, or permissions are missing.
    #[error("{what}: {error}")]
    Setup {
        /// Attempted operation, with the file's key.
        what: String,
        /// Error of the system.
        error: io::Error,
    },
    /// The system refused an essential operation.
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
    edges: Mutex<SocketCounters>,
    lockdown: Mutex<Option<Lockdown>>,
    ended: AtomicBool,
}

impl Shared {
    /// Returns the state, at most 200 ms old; `None` before the first.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the counters of sockets and devices, at most 200 ms old.
    pub fn edges(&self) -> SocketCounters {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the process's lockdown; `None` where it was not asked for.
    pub fn lockdown(&self) -> Option<Lockdown> {
        self.lockdown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the lockdown for the watchers.
    pub fn set_lockdown(&self, lockdown: Lockdown) {
        *self.lockdown.lock().unwrap_or_else(PoisonError::into_inner) = Some(lockdown);
    }

    /// Stops the gateway within 200 ms, as SIGTERM does.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns whether the gateway ends or has ended.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn publish(&self, snapshot: Snapshot, edges: SocketCounters) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
        *self.edges.lock().unwrap_or_else(PoisonError::into_inner) = edges;
    }
}

/// Counters of sockets and devices since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SocketCounters {
    /// Network side, in the order of the paths' names.
    pub paths: Vec<PathCounters>,
    /// Local applications.
    pub local: Vec<LocalCounters>,
    /// Texts of raised alarms by key; that of a path is its name.
    #[serde(skip)]
    pub alarms: BTreeMap<String, String>,
}

/// Socket counters of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PathCounters {
    /// Path name.
    pub name: String,
    /// The path has a socket (or, in TCP mode, a connection).
    pub open: bool,
    /// Datagrams that could not be sent.
    pub unsent: u64,
    /// Datagrams among `unsent` that exceeded the interface's MTU.
    pub too_large: u64,
    /// Datagrams that arrived faster than they were read. Of paths that share a socket, the first one has them.
    pub unread: u64,
    /// Last error of the system.
    pub error: Option<String>,
    /// Datagrams could not be sent in the last moment, for that reason.
    pub failing: bool,
}

/// A MAVLink endpoint, a UDP port or the TUN interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LocalCounters {
    /// Kind and address.
    pub name: String,
    /// Number of clients: remembered senders, connections, an open device.
    pub clients: u64,
    /// Bytes outside of MAVLink frames, and datagrams with a truncated frame.
    pub foreign_bytes: u64,
    /// Datagrams from the application that arrived faster than they were read.
    pub unread: u64,
    /// Frames and datagrams dropped because the receiver was too slow.
    pub dropped: u64,
    /// Frames that expired while queued.
    pub late: u64,
}

/// Forwards traffic until SIGTERM, SIGINT or [`Shared::end`].
///
/// The calling thread receives both signals; threads started before must block them ([`hold_signals`]).
/// Events that do not fit into `events` are lost.
///
/// # Errors
/// A local port is in use, permissions for the TUN interface are missing, or the system refuses timers and
/// the like. Missing networks and devices are retried.
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

/// Blocks signals in the calling thread and its future children; must be called first. [`run`] receives SIGTERM
/// and SIGINT. The others never end a gateway: SIGHUP of a terminal that was closed, or of a log rotation, and
/// SIGXFSZ of a log that has reached a file size limit, which becomes an error of the log.
///
/// # Errors
/// The system refuses, which does not happen on Linux.
pub fn hold_signals() -> io::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGXFSZ] {
        set.add(signal);
    }
    set.thread_block().map_err(io::Error::from)
}
