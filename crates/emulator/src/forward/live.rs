//! Looking at a run and taking a hand in it while it goes on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use skybraid_link::{Cause, Direction};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate};

/// How long a command may take until it holds.
const PATIENCE: StdDuration = StdDuration::from_secs(1);

/// What must be done to a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    /// Take it down: what is in its queues is lost.
    Cut,
    /// End a cut. Scripted outages hold as before.
    Restore,
    /// Another rate, delay or loss for the packets that are admitted from now on; what is `None` stays.
    Set {
        /// Only this direction; both without.
        direction: Option<Direction>,
        /// Rate of each link.
        rate: Option<Rate>,
        /// One-way delay of each link.
        delay: Option<Duration>,
        /// Probability of loss on each link.
        loss: Option<Probability>,
    },
    /// As the scenario says, a cut included.
    Reset,
}

/// A direction of a path at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectionStatus {
    /// Rate.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Duration,
    /// Probability that a packet is lost on the way.
    pub loss: Probability,
    /// False during an outage and while the path is cut.
    pub up: bool,
    /// Since when the path is cut or down, to 100 ms; `None` while it is up.
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

/// A path at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStatus {
    /// Its name.
    pub name: String,
    /// From vehicle to ground.
    pub uplink: DirectionStatus,
    /// From ground to vehicle.
    pub downlink: DirectionStatus,
}

/// The forwarder at an instant.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Snapshot {
    /// When.
    pub at: Instant,
    /// The paths, in the order of the lanes.
    pub paths: Vec<PathStatus>,
    /// Packets that the emulator itself has lost.
    pub lost_by_emulator: u64,
    /// The lateness that 99 % of the packets so far do not exceed.
    pub lateness_p99: Duration,
}

/// A command on its way, with the path that it is for.
pub(super) struct Order {
    pub path: usize,
    pub command: Command,
    pub done: SyncSender<()>,
}

struct Shared {
    names: Vec<String>,
    snapshot: Mutex<Snapshot>,
    stop: AtomicBool,
    on_the_way: AtomicUsize,
    bell: EventFd,
}

/// A handle on a running forwarder. Clones are handles on the same.
#[derive(Clone)]
pub struct Controls {
    shared: Arc<Shared>,
    orders: Sender<Order>,
}

/// The forwarder's side of [`Controls`].
pub(super) struct Desk {
    shared: Arc<Shared>,
    orders: Receiver<Order>,
}

pub(super) fn desk(names: Vec<String>) -> io::Result<(Controls, Desk)> {
    let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
    let (orders, received) = channel();
    let snapshot = Mutex::default();
    let shared = Arc::new(Shared {
        names,
        snapshot,
        stop: AtomicBool::new(false),
        on_the_way: AtomicUsize::new(0),
        bell,
    });
    let desk = Desk { shared: Arc::clone(&shared), orders: received };
    Ok((Controls { shared, orders }, desk))
}

impl Controls {
    /// Names of the paths, in the order of the lanes.
    pub fn paths(&self) -> &[String] {
        &self.shared.names
    }

    /// How things stand; at most 100 ms old.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does something to the path with this name. It holds when the call returns.
    ///
    /// # Errors
    /// No path has the name, or the forwarder has ended.
    pub fn apply(&self, path: &str, command: Command) -> io::Result<()> {
        let Some(path) = self.shared.names.iter().position(|name| name == path) else {
            let known = self.shared.names.join("`, `");
            let text = format!("found path `{path}`, expected one of `{known}`");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let ended = || io::Error::new(io::ErrorKind::NotConnected, "the run has ended");
        let (done, answer) = sync_channel(1);
        self.orders.send(Order { path, command, done }).map_err(|_| ended())?;
        self.ring();
        answer.recv_timeout(PATIENCE).map_err(|_| ended())
    }

    /// How many packets are on the links.
    pub fn on_the_way(&self) -> usize {
        self.shared.on_the_way.load(Ordering::Acquire)
    }

    /// Ends the forwarder's work.
    pub(super) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        // A bell that rings already is as good.
        self.shared.bell.write(1).ok();
    }
}

impl Desk {
    /// What wakes the forwarder.
    pub fn bell(&self) -> &EventFd {
        &self.shared.bell
    }

    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Says how many packets are on the links.
    pub fn tell_on_the_way(&self, packets: usize) {
        self.shared.on_the_way.store(packets, Ordering::Release);
    }

    /// The next order.
    pub fn order(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// The bell is silent until it rings again.
    pub fn hush(&self) {
        self.shared.bell.read().ok();
    }

    /// Lets `write` bring the snapshot up to date, unless somebody reads it at the moment and it is not
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
