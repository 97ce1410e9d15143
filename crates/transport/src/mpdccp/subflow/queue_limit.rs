//! Limit of a subflow by the queue of its path, which its driver measures with traffic of its own.

/// Minimum limit while nothing is held back, in segments.
const MIN_SEGMENTS: u64 = 2;
/// Growth of the limit with each measurement of a short queue, as a divisor, and at least this part of a segment.
const GROWTH: u64 = 16;
const MIN_GROWTH: u64 = 8;

/// Limit of what is in flight.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimit {
    /// Bytes that may be in flight: none while the queue is too long.
    bytes: u64,
    /// While it is: bytes in flight when it became too long, and those that may be once it is short again.
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    in_flight: u64,
    after: u64,
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self { bytes: u64::MAX, held: None }
    }
}

impl QueueLimit {
    /// Bytes that may be in flight; 0 while nothing may leave.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
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
        let mut limit = QueueLimit::default();
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
}
