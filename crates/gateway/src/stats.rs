//! Counters of a class.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_transport::PathId;
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};

use crate::Class;
use crate::snapshot::ClassSnapshot;

/// Maximum number and age of the newest delays, which are kept for percentiles.
const KEPT: usize = 1024;
const RECENT: Duration = Duration::from_secs(10);
/// Window over which the longest delivery gap and the share of late messages are reported.
const WINDOW: Duration = Duration::from_secs(1);

/// Counters of a class.
#[derive(Clone, Debug)]
pub struct ClassStats {
    shown: ClassSnapshot,
    /// Newest message delays in ms with their times, oldest first.
    delays: VecDeque<(Instant, f32)>,
    delivered_at: Option<Instant>,
    window: Window,
}

/// Window of deliveries.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Instant,
    longest_gap: Duration,
    delivered: u32,
    late: u32,
}

/// Reason for which a message was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Past the class's deadline.
    Late,
    /// Superseded by a newer message.
    Superseded,
}

impl ClassStats {
    /// Counters at zero, on `paths` paths.
    pub fn new(class: Class, paths: usize) -> Self {
        let by_path = alloc::vec![0; paths];
        Self {
            shown: ClassSnapshot { name: class.name(), by_path, ..ClassSnapshot::default() },
            delays: VecDeque::new(),
            delivered_at: None,
            window: Window::default(),
        }
    }

    /// Records a message that a local application wrote.
    pub fn written(&mut self, bytes: usize) {
        self.shown.written += 1;
        self.shown.written_bytes += bytes as u64;
    }

    /// Records messages that did not leave.
    pub fn refused(&mut self, messages: u64) {
        self.shown.refused += messages;
    }

    /// Records messages that were too old before they could leave.
    pub fn late(&mut self, messages: u64) {
        self.shown.late += messages;
    }

    /// Records a message that arrived and was not delivered.
    pub fn dropped(&mut self, why: Dropped) {
        match why {
            Dropped::Late => {
                self.shown.late += 1;
                self.window.late += 1;
            }
            Dropped::Superseded => self.shown.superseded += 1,
        }
    }

    /// Records a delivered message.
    pub fn delivered(&mut self, now: Instant, bytes: usize, path: PathId, delay: Option<Duration>) {
        self.shown.delivered += 1;
        self.shown.delivered_bytes += bytes as u64;
        if let Some(count) =
            self.shown.by_path.get_mut(path.index()).promised("a path of this gateway")
        {
            *count += 1;
        }
        if let Some(delay) = delay {
            if self.delays.len() >= KEPT {
                self.delays.pop_front();
            }
            self.delays.push_back((now, delay.as_millis_f64() as f32));
        }
        self.window.delivered += 1;
        if let Some(before) = self.delivered_at {
            self.window.longest_gap = self.window.longest_gap.max(now.since(before));
        }
        self.delivered_at = Some(now);
    }

    /// Rolls the window once it has elapsed, and forgets old delays.
    pub fn measure(&mut self, now: Instant) {
        while self.delays.front().is_some_and(|(at, _)| now.since(*at) > RECENT) {
            self.delays.pop_front();
        }
        self.shown.silent_ms = self.delivered_at.map(|at| now.since(at).as_millis_f64());
        let Window { since, longest_gap, delivered, late } = self.window;
        if now.since(since) >= WINDOW {
            self.shown.longest_gap_ms =
                longest_gap.is_positive().then(|| longest_gap.as_millis_f64());
            let arrived = delivered + late;
            self.shown.late_share = (arrived > 0).then(|| f64::from(late) / f64::from(arrived));
            self.window = Window { since: now, ..Window::default() };
        }
    }

    /// Name of the class.
    pub const fn name(&self) -> &'static str {
        self.shown.name
    }

    /// Returns the state for snapshots.
    pub fn snapshot(&self, duplicates: u64) -> ClassSnapshot {
        let mut delays: Vec<f32> = self.delays.iter().map(|(_, ms)| *ms).collect();
        delays.sort_unstable_by(f32::total_cmp);
        let quantile = |share: f64| {
            let last = delays.len().checked_sub(1)? as f64;
            delays.get((share * last + 0.5) as usize).map(|ms| f64::from(*ms))
        };
        let (delay_p50_ms, delay_p99_ms) = (quantile(0.5), quantile(0.99));
        ClassSnapshot { duplicates, delay_p50_ms, delay_p99_ms, ..self.shown.clone() }
    }
}
