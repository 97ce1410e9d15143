//! Limit of a subflow by the queue of its path, which its driver measures with traffic of its own.
//!
//! A measurement is known a round trip and a queue later. Until then, acknowledgements that are overdue pause the
//! subflow: after a sudden fall of the rate they are the first sign of a queue. With a restart window, a path that was
//! idle begins with a few packets: a failed path passes its load on to it, and both may have failed.

use skybraid_units::{Duration, Instant};

/// Minimum limit while nothing is held back, in segments.
const MIN_SEGMENTS: u64 = 2;
/// Growth of the limit with each measurement of a short queue, as a divisor, and at least this part of a segment.
const GROWTH: u64 = 16;
const MIN_GROWTH: u64 = 8;

/// Excess over the lowest round trip that makes acknowledgements overdue.
const MAX_EXCESS: Duration = Duration::from_millis(75);
/// Intervals of acknowledgements that may be missing besides, and their maximum: some are lost.
const SPARE_ACKS: i64 = 2;
const MAX_INTERVAL: Duration = Duration::from_millis(75);
/// Maximum length of a pause: by then a queue has been measured, and a path that has become slower is no queue.
const MAX_PAUSE: Duration = Duration::from_millis(300);

/// Round trips above which it begins with its whole window: slow start would take longer than data waits.
const MAX_RESTART_RTT: Duration = Duration::from_millis(300);

/// Limit of what is in flight.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimit {
    /// Bytes that may be in flight: none while the queue is too long.
    bytes: u64,
    /// While it is: bytes in flight when it became too long, and those that may be once it is short again.
    held: Option<Held>,
    /// Time since which acknowledgements are overdue.
    overdue: Option<Instant>,
    /// Time of the last acknowledgement, and smoothed interval between two.
    acked: Instant,
    interval: Duration,
    paused: bool,
    /// Segments that may be in flight after an idle period until one is acknowledged.
    restart_window: Option<u32>,
    /// Bytes that may be in flight since the last idle period.
    restart: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    in_flight: u64,
    after: u64,
}

impl QueueLimit {
    /// Packets in a row that may lack an acknowledgement because they are lost.
    pub const OVERDUE: usize = 3;

    /// No limit yet. `restart_window` is that after idle periods, in segments.
    pub const fn new(restart_window: Option<u32>) -> Self {
        Self {
            bytes: u64::MAX,
            held: None,
            overdue: None,
            acked: Instant::ZERO,
            interval: Duration::ZERO,
            paused: false,
            restart_window,
            restart: u64::MAX,
        }
    }

    /// Bytes that may be in flight; 0 while nothing may leave.
    #[inline]
    pub fn bytes(&self) -> u64 {
        if self.paused { 0 } else { self.bytes.min(self.restart) }
    }

    /// Records that data is sent after an idle period, in segments of `segment` bytes.
    pub fn on_restart(&mut self, segment: u64, min_rtt: Option<Duration>) {
        if let Some(segments) = self.restart_window
            && min_rtt.is_some_and(|min| min <= MAX_RESTART_RTT)
        {
            self.restart = u64::from(segments) * segment;
        }
    }

    /// Records that `bytes` were acknowledged, with a congestion window of `window` bytes: after an idle period as many
    /// more may be in flight, as in slow start, until the window is reached.
    #[inline]
    pub const fn on_delivered(&mut self, bytes: u64, window: u64) {
        self.restart = self.restart.saturating_add(bytes);
        if self.restart > window {
            self.restart = u64::MAX;
        }
    }

    /// Records an acknowledgement.
    #[inline]
    pub fn on_ack(&mut self, now: Instant) {
        let interval = now.since(self.acked).min(MAX_INTERVAL);
        self.acked = now;
        self.interval += (interval - self.interval) / 8;
    }

    /// True if acknowledgements were overdue at the last call of [`on_age`](Self::on_age).
    #[inline]
    pub const fn is_overdue(&self) -> bool {
        self.overdue.is_some()
    }

    /// Processes the age of a packet in flight, which [`OVERDUE`](Self::OVERDUE) others precede since the last
    /// acknowledgement.
    pub fn on_age(&mut self, now: Instant, age: Option<Duration>, min_rtt: Option<Duration>) {
        let excess = MAX_EXCESS + self.interval * SPARE_ACKS;
        let is_overdue = age.zip(min_rtt).is_some_and(|(age, min)| age > min + excess);
        self.overdue = is_overdue.then(|| self.overdue.unwrap_or(now));
        self.paused = self.overdue.is_some_and(|since| now.since(since) < MAX_PAUSE);
    }

    /// Processes a measurement of the queue: while it is too long, the `share` of the bytes in flight that fits.
    pub fn on_queue(&mut self, share: Option<f64>, in_flight: u64, segment: u64) {
        if let Some(share) = share {
            let in_flight = self.held.map_or(self.bytes.min(in_flight), |held| held.in_flight);
            let after = ((in_flight as f64 * share) as u64).max(MIN_SEGMENTS * segment);
            self.held = Some(Held { in_flight, after });
            self.bytes = 0;
        } else {
            let before = self.held.take().map_or(self.bytes, |held| held.after);
            let growth = (before / GROWTH).max(segment / MIN_GROWTH);
            self.bytes = before.saturating_add(growth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_queue_less_is_in_flight_and_soon_more() {
        let mut limit = QueueLimit::new(None);
        let mut after = |share, in_flight| {
            limit.on_queue(share, in_flight, 1_000);
            limit.bytes()
        };
        assert_eq!(after(None, 40_000), u64::MAX);
        assert_eq!(after(Some(0.5), 40_000), 0);
        // The queue is longer than it seemed, and what is in flight has shrunk.
        assert_eq!(after(Some(0.4), 30_000), 0);
        assert_eq!(after(None, 0), 17_000);
        assert_eq!(after(Some(0.5), 1_000), 0);
        assert_eq!(after(None, 0), 2_125);
    }

    #[test]
    fn an_idle_path_begins_with_four_packets_and_grows() {
        let mut limit = QueueLimit::new(Some(4));
        let (lte, geo) = (Some(Duration::from_millis(50)), Some(Duration::from_millis(600)));
        limit.on_restart(1_000, geo);
        assert_eq!(limit.bytes(), u64::MAX);
        limit.on_restart(1_000, lte);
        assert_eq!(limit.bytes(), 4_000);
        limit.on_delivered(3_000, 12_000);
        assert_eq!(limit.bytes(), 7_000);
        limit.on_delivered(6_000, 12_000);
        assert_eq!(limit.bytes(), u64::MAX);
        let mut unlimited = QueueLimit::new(None);
        unlimited.on_restart(1_000, lte);
        assert_eq!(unlimited.bytes(), u64::MAX);
    }

    #[test]
    fn overdue_acknowledgements_pause_for_a_limited_time() {
        let mut limit = QueueLimit::new(None);
        let mut paused = |at_ms, age_ms: Option<i64>| {
            let rtt = Some(Duration::from_millis(50));
            limit.on_age(Instant::from_millis(at_ms), age_ms.map(Duration::from_millis), rtt);
            limit.bytes() == 0
        };
        assert!(!paused(0, Some(120)));
        assert!(paused(50, Some(130)) && paused(300, Some(400)));
        // A path that stays slower is no queue of this end.
        assert!(!paused(350, Some(500)) && !paused(900, Some(500)));
        assert!(!paused(950, None));
        assert!(paused(1_000, Some(130)));
    }
}
