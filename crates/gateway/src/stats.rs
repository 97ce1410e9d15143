//! Counters of a class.

use alloc::vec::Vec;

use skybraid_transport::PathId;
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};

use crate::Class;
use crate::snapshot::ClassSnapshot;

/// Number of newest delays kept for percentiles.
const KEPT: usize = 1024;
/// Window over which the longest delivery gap is reported.
const WINDOW: Duration = Duration::from_secs(1);

/// Counters of a class.
#[derive(Clone, Debug)]
pub struct ClassStats {
    shown: ClassSnapshot,
    /// Newest message delays in ms, in a ring.
    delays: Vec<f32>,
    next: usize,
    delivered_at: Option<Instant>,
    window: Instant,
    longest: Duration,
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
            delays: Vec::new(),
            next: 0,
            delivered_at: None,
            window: Instant::ZERO,
            longest: Duration::ZERO,
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

    /// Records a message that was not delivered.
    pub fn dropped(&mut self, why: Dropped) {
        match why {
            Dropped::Late => self.shown.late += 1,
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
            let ms = delay.as_millis_f64() as f32;
            match self.delays.get_mut(self.next) {
                Some(place) => *place = ms,
                None => self.delays.push(ms),
            }
            self.next = (self.next + 1) % KEPT;
        }
        if let Some(before) = self.delivered_at {
            self.longest = self.longest.max(now.since(before));
        }
        self.delivered_at = Some(now);
    }

    /// Rolls the gap window once it has elapsed.
    pub fn measure(&mut self, now: Instant) {
        if now.since(self.window) >= WINDOW {
            let longest = self.longest.is_positive().then(|| self.longest.as_millis_f64());
            self.shown.longest_gap_ms = longest;
            (self.window, self.longest) = (now, Duration::ZERO);
        }
    }

    /// Name of the class.
    pub const fn name(&self) -> &'static str {
        self.shown.name
    }

    /// Returns the state for snapshots.
    pub fn snapshot(&self, duplicates: u64) -> ClassSnapshot {
        let mut delays = self.delays.clone();
        delays.sort_unstable_by(f32::total_cmp);
        let quantile = |share: f64| {
            let last = delays.len().checked_sub(1)? as f64;
            delays.get((share * last + 0.5) as usize).map(|ms| f64::from(*ms))
        };
        let (delay_p50_ms, delay_p99_ms) = (quantile(0.5), quantile(0.99));
        ClassSnapshot { duplicates, delay_p50_ms, delay_p99_ms, ..self.shown.clone() }
    }
}
