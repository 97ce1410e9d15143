//! Use of the congestion window by a subflow.
//!
//! Source: RFC 7661; Linux `tcp_is_cwnd_limited` and `tcp_cwnd_validate`.

/// Use of the window: a window that is not used must not grow.
#[derive(Debug)]
pub struct WindowUse {
    /// False if every window counts as used.
    validates: bool,
    /// Data below this was outstanding when the window last limited sending.
    limited_mark: u64,
    /// Maximum bytes in flight in this round trip and the last one.
    peak: [u64; 2],
    peak_mark: u64,
}

impl WindowUse {
    /// Creates the state of a subflow that has sent nothing. Without `validates`, every window counts as used.
    pub const fn new(validates: bool) -> Self {
        Self { validates, limited_mark: 0, peak: [0; 2], peak_mark: 0 }
    }

    /// Records that the window holds back data after sequence number `next`.
    #[inline]
    pub const fn on_limited(&mut self, next: u64) {
        self.limited_mark = next;
    }

    /// Records the bytes in flight after a transmission.
    #[inline]
    pub fn on_sent(&mut self, in_flight: u64) {
        self.peak[0] = self.peak[0].max(in_flight);
    }

    /// Records that data up to `una` is acknowledged, with `in_flight` bytes in flight before; `next` is sent next.
    #[inline]
    pub const fn on_acked(&mut self, una: u64, in_flight: u64, next: u64) {
        if una >= self.peak_mark {
            self.peak = [in_flight, self.peak[0]];
            self.peak_mark = next;
        }
    }

    /// True if the window limited sending when the data before `ack` was sent; in slow start, if at least half of it
    /// was used.
    #[inline]
    pub fn is_limited(&self, ack: u64, window: u64, threshold: u64) -> bool {
        !self.validates
            || ack <= self.limited_mark
            || (window < threshold && window < 2 * self.peak[0].max(self.peak[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Source: Linux `tcp_is_cwnd_limited`: in slow start, a window below twice the maximum in flight counts as used.
    #[test]
    fn a_window_is_used_if_it_limits_or_half_of_it_in_slow_start() {
        let mut used = WindowUse::new(true);
        used.on_sent(5_000);
        assert!(used.is_limited(1, 9_999, u64::MAX) && !used.is_limited(1, 10_000, u64::MAX));
        assert!(!used.is_limited(1, 9_999, 9_000), "congestion avoidance");
        used.on_limited(3_000);
        assert!(used.is_limited(3_000, 20_000, 9_000) && !used.is_limited(3_001, 20_000, 9_000));
        // The peak is forgotten after two round trips.
        used.on_acked(0, 1_000, 5_000);
        assert!(used.is_limited(4_000, 9_999, u64::MAX));
        used.on_acked(5_000, 1_000, 6_000);
        assert!(!used.is_limited(6_000, 9_999, u64::MAX));
        assert!(WindowUse::new(false).is_limited(1, 10_000, 9_000));
    }
}
