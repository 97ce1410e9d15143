//! Way: one direction of a lane.

use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};

use super::Watcher;
use super::port::BATCH;
use super::stage::{Stage, Waiting};

/// Maximum time for which received frames stay unread.
const MAX_UNREAD: Duration = Duration::from_millis(1);
/// Minimum time for frames to stay unread; below, each frame wakes the forwarder.
const MIN_UNREAD: Duration = Duration::from_micros(100);
/// Idle time of a port after which each frame wakes the forwarder again.
const QUIET_AFTER: Duration = Duration::from_millis(2);

/// One direction of a lane. It reads from the port of the same number and writes to the port of the other
/// end.
pub(super) struct Way {
    pub stages: std::ops::Range<usize>,
    /// Minimum delay of a packet.
    min_delay: Duration,
    /// Frames to be sent now; unshaped frames are marked.
    pub leaving: Vec<(Waiting, bool)>,
    pub down_since: Option<Instant>,
    pub watchers: Vec<Watcher>,
    /// Time of the last frame that was read.
    pub last_frame: Instant,
}

impl Way {
    /// A way over these stages, whose minimum delay is not known yet.
    pub fn new(stages: std::ops::Range<usize>, watchers: Vec<Watcher>, now: Instant) -> Self {
        Self {
            stages,
            min_delay: Duration::ZERO,
            leaving: Vec::with_capacity(4 * BATCH),
            down_since: None,
            watchers,
            last_frame: now,
        }
    }

    /// Learns the minimum delay from its links, which are among `stages`.
    pub fn learn_min_delay(&mut self, stages: &[Stage]) {
        let own = stages.get(self.stages.clone()).promised("a link of a direction");
        let delays = own.unwrap_or_default().iter().map(|stage| stage.link.min_delay());
        self.min_delay = delays.fold(Duration::ZERO, |sum, delay| sum + delay);
    }

    /// Returns how long an arriving frame may stay unread and still leave on time; `None` if each frame must
    /// wake the forwarder.
    pub fn may_wait(&self, stages: &[Stage], now: Instant) -> Option<Duration> {
        if now - self.last_frame >= QUIET_AFTER {
            return None;
        }
        let mut wait = self.min_delay / 2;
        let only = stages.get(self.stages.start).filter(|_| self.stages.len() == 1);
        if let Some(stage) = only
            && stage.link.keeps_order()
            && stage.held == 0
            && let Some(last) = stage.waiting.back()
        {
            // The frame cannot overtake earlier frames.
            wait = wait.max(last.due - now);
        }
        Some(wait.min(MAX_UNREAD)).filter(|wait| *wait >= MIN_UNREAD)
    }
}
