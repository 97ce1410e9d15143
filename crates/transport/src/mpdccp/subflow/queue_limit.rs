//! Limit of a subflow by the queue of its path, which its driver measures with traffic of its own.

/// Minimum limit while nothing is held back, in segments.
const MIN_SEGMENTS: u64 = 2;
/// Growth of the limit with each measurement of a short queue, as a divisor, and at least this part of a segment.
const GROWTH: u64 = 16;
const MIN_GROWTH: u64 = 8;

/// Limit of what is in flight.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimit {
    /// Bytes in flight when the queue became too long; nothing new leaves while it is.
    held: Option<u64>,
    bytes: u64,
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self { held: None, bytes: u64::MAX }
    }
}

impl QueueLimit {
    /// Bytes that may be in flight; `None` while nothing may leave.
    pub const fn bytes(&self) -> Option<u64> {
        if self.held.is_some() { None } else { Some(self.bytes) }
    }

    /// Processes a measurement of the queue: while it is too long, the `share` of what is in flight that it has room
    /// for.
    pub fn on_queue(&mut self, share: Option<f64>, in_flight: u64, segment: u64) {
        let held = share.map(|_| self.held.unwrap_or_else(|| self.bytes.min(in_flight)));
        match share.zip(held) {
            Some((share, held)) => {
                self.bytes = ((held as f64 * share) as u64).max(MIN_SEGMENTS * segment);
            }
            None => {
                let growth = (self.bytes / GROWTH).max(segment / MIN_GROWTH);
                self.bytes = self.bytes.saturating_add(growth);
            }
        }
        self.held = held;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_queue_less_is_in_flight_and_soon_more() {
        let mut limit = QueueLimit::default();
        let mut after = |share, in_flight| {
            limit.on_queue(share, in_flight, 1_000);
            limit.bytes()
        };
        assert_eq!(after(None, 40_000), Some(u64::MAX));
        assert_eq!(after(Some(0.5), 40_000), None);
        // The queue is longer than it seemed, and what is in flight has shrunk.
        assert_eq!(after(Some(0.4), 30_000), None);
        assert_eq!(after(None, 0), Some(17_000));
        assert_eq!(after(Some(0.5), 1_000), None);
        assert_eq!(after(None, 0), Some(2_125));
    }
}
