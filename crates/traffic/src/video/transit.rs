//! Minimum transit time of a stream, from which a jitter buffer derives the due times of its frames.

use skybraid_units::{Duration, Instant};

/// Length of a window of the minimum transit time, which is taken over the last two windows.
const WINDOW: Duration = Duration::from_secs(5);

/// Minimum transit time of the last 5 to 10 s.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinTransit {
    /// Minimum of the current and of the previous window.
    windows: [Option<Duration>; 2],
    start: Instant,
}

impl Default for MinTransit {
    fn default() -> Self {
        Self { windows: [None; 2], start: Instant::ZERO }
    }
}

impl MinTransit {
    /// Records a packet of a frame captured at `captured` that arrives `now`.
    pub(super) fn on_received(&mut self, now: Instant, captured: Instant) {
        let transit = now - captured;
        if now - self.start >= WINDOW {
            self.windows = [None, self.windows[0]];
            self.start = now;
        }
        self.windows[0] = Some(self.windows[0].map_or(transit, |min| min.min(transit)));
    }

    /// Returns the due time of a frame captured at `captured` in a jitter buffer of this length.
    pub(super) fn due(&self, captured: Instant, jitter_buffer: Duration) -> Instant {
        let transit = self.windows.iter().flatten().min().copied().unwrap_or_default();
        captured + transit + jitter_buffer
    }
}
