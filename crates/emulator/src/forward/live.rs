//! Status and control of a running emulation.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use skybraid_link::{Cause, Direction};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate};

/// Timeout until a command takes effect.
const COMMAND_TIMEOUT: StdDuration = StdDuration::from_secs(1);

/// Command for a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    /// Take the path down: queued packets are lost.
    Cut,
    /// End a cut. Scripted outages still apply.
    Restore,
    /// Change the rate, delay or loss for packets admitted from now on; `None` leaves a value unchanged.
    Set {
        /// Direction; both if `None`.
        direction: Option<Direction>,
        /// Rate of each link.
        rate: Option<Rate>,
        /// One-way delay of each link.
        delay: Option<Duration>,
        /// Loss probability of each link.
        loss: Option<Probability>,
    },
    /// Restore the scenario's values and end a cut.
    Reset,
}

/// State of one direction of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectionStatus {
    /// Rate.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Duration,
    /// Loss probability.
    pub loss: Probability,
    /// Link is up: false during an outage and while the path is cut.
    pub up: bool,
    /// Start of the cut or outage, to 100 ms; `None` while the path is up.
    pub down_since: Option<Instant>,
    /// Bytes in the queue.
    pub queue: Bytes,
    /// Rate at which IP packets arrived over the last second.
    pub delivered_rate: Rate,
    /// Packets that arrived since the run's start.
    pub delivered: u64,
    /// Packets lost since the run's start, in the order of [`Cause::ALL`].
    pub lost: [u64; Cause::ALL.len()],
}

/// State of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStatus {
    /// Name.
    pub name: String,
    /// Vehicle to ground.
    pub uplink: DirectionStatus,
    /// Ground to vehicle.
    pub downlink: DirectionStatus,
}

/// State of the forwarder.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub at: Instant,
    /// Paths in the order of the lanes.
    pub paths: Vec<PathStatus>,
    /// Packets lost by the emulator itself.
    pub lost_by_emulator: u64,
    /// 99th percentile of the lateness of the packets so far.
    pub lateness_p99: Duration,
}

/// A pending command and its path.
pub(super) struct Order {
    pub path: usize,
    pub command: Command,
    pub done: SyncSender<()>,
}

struct Shared {
    names: Vec<String>,
    snapshot: Mutex<Snapshot>,
    stop: AtomicBool,
    in_flight: AtomicUsize,
    wakeup: EventFd,
}

/// A handle to a running forwarder. Clones share the forwarder.
#[derive(Clone)]
pub struct Controls {
    shared: Arc<Shared>,
    orders: Sender<Order>,
}

/// Forwarder's side of [`Controls`].
pub(super) struct CommandReceiver {
    shared: Arc<Shared>,
    orders: Receiver<Order>,
}

pub(super) fn commands(names: Vec<String>) -> io::Result<(Controls, CommandReceiver)> {
    let wakeup = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
    let (orders, received) = channel();
    let snapshot = Mutex::default();
    let shared = Arc::new(Shared {
        names,
        snapshot,
        stop: AtomicBool::new(false),
        in_flight: AtomicUsize::new(0),
        wakeup,
    });
    let commands = CommandReceiver { shared: Arc::clone(&shared), orders: received };
    Ok((Controls { shared, orders }, commands))
}

impl Controls {
    /// Returns the names of the paths, in the order of the lanes.
    pub fn paths(&self) -> &[String] {
        &self.shared.names
    }

    /// Returns the current state; at most 100 ms old.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a command to the path with this name. The command is in effect when the call returns.
    ///
    /// # Errors
    /// No path has this name, or the forwarder has ended.
    pub fn apply(&self, path: &str, command: Command) -> io::Result<()> {
        let Some(path) = self.shared.names.iter().position(|name| name == path) else {
            let known = self.shared.names.join("`, `");
            let text = format!("found path `{path}`, expected one of `{known}`");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let ended = || io::Error::new(io::ErrorKind::NotConnected, "the run has ended");
        let (done, answer) = sync_channel(1);
        self.orders.send(Order { path, command, done }).map_err(|_| ended())?;
        self.wake();
        answer.recv_timeout(COMMAND_TIMEOUT).map_err(|_| ended())
    }

    /// Returns the number of packets on the links.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }

    /// Stops the forwarder.
    pub(super) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // A pending wakeup is sufficient.
        self.shared.wakeup.write(1).ok();
    }
}

impl CommandReceiver {
    /// Returns the eventfd that wakes the forwarder.
    pub fn wakeup(&self) -> &EventFd {
        &self.shared.wakeup
    }

    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Publishes the number of packets on the links.
    pub fn publish_in_flight(&self, packets: usize) {
        self.shared.in_flight.store(packets, Ordering::Release);
    }

    /// Returns the next order.
    pub fn order(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// Clears the eventfd.
    pub fn clear_wakeup(&self) {
        self.shared.wakeup.read().ok();
    }

    /// Updates the snapshot through `write`, unless another thread is reading it and the update is not
    /// `urgent`.
    pub fn publish(&self, urgent: bool, write: impl FnOnce(&mut Snapshot, &[String])) {
        let snapshot = &self.shared.snapshot;
        let held = if urgent {
            Some(snapshot.lock().unwrap_or_else(PoisonError::into_inner))
        } else {
            snapshot.try_lock().ok()
        };
        if let Some(mut held) = held {
            write(&mut held, &self.shared.names);
        }
    }
}
