//! Pacing: segments are sent at a rate instead of in bursts.

use skybraid_units::{Bytes, Duration, Instant, Rate};

/// Default amount of data assigned to a paced subflow in advance. Data is bound to a path as late as
/// possible.
pub const QUANTUM: Duration = Duration::from_millis(1);

/// Maximum delay of a late driver that is made up for by a burst. Without it, a busy machine sends
/// below the pacing rate, a congestion control that measures rates takes that for the path's rate,
/// and both decay together. Linux makes up for at most half of each interval
/// (`tcp_update_skb_after_send`).
const MAX_CATCH_UP: Duration = Duration::from_millis(10);

/// Pacer of one subflow.
#[derive(Debug, Default)]
pub struct Pacer {
    rate: Option<Rate>,
    /// Earliest instant of the next segment.
    next_send: Instant,
    /// True while a segment waits for `next_send`.
    blocked: bool,
    /// Instant at which the last waiting segment was released, on time or late.
    released_at: Instant,
    /// True if a control that sets only a window is paced too.
    paces_windows: bool,
}

impl Pacer {
    /// Creates a pacer that, if `paces_windows`, derives a rate from the window where a control sets none.
    pub fn of_windows(paces_windows: bool) -> Self {
        Self { paces_windows, ..Self::default() }
    }

    /// Pacing rate; `None` for as fast as the window allows.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Sets the rate: that of the control, or else that of a window once there is a round-trip time.
    #[inline]
    pub fn follow(
        &mut self,
        rate: Option<Rate>,
        window: u64,
        threshold: u64,
        srtt: Option<Duration>,
    ) {
        self.rate = rate;
        if let (None, true, Some(srtt)) = (rate, self.paces_windows, srtt) {
            self.rate = Some(window_pace(window, window < threshold, srtt));
        }
    }

    /// True if nothing is paced, and nothing waits for its time.
    #[inline]
    pub const fn is_off(&self) -> bool {
        self.rate.is_none() && !self.blocked
    }

    /// Bytes that may be queued on the subflow, those of `time` and at least two segments; `None` without pacing.
    pub fn quantum(&self, time: Duration, segment: u32) -> Option<u64> {
        let min = 2 * u64::from(segment);
        self.rate.map(|rate| (rate.bits_in(time) / 8).max(min))
    }

    /// Returns true if nothing may be sent yet. `waiting` is true if there is something to send.
    pub fn holds_back(&mut self, now: Instant, waiting: bool) -> bool {
        let early = self.rate.is_some() && self.next_send > now;
        if self.blocked && !early {
            self.released_at = now;
        }
        self.blocked = early && waiting;
        early
    }

    /// Records that nothing waits any more.
    pub const fn release(&mut self) {
        self.blocked = false;
    }

    /// Records that a segment of `bytes` bytes was sent.
    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        if let Some(rate) = self.rate {
            let late = if self.released_at == now { MAX_CATCH_UP } else { Duration::ZERO };
            self.next_send =
                self.next_send.max(now - late) + rate.time_for(Bytes::new(u64::from(bytes)));
        }
    }

    /// Instant at which the waiting segment may be sent; [`Instant::FAR_FUTURE`] if none waits.
    pub const fn next_wakeup(&self) -> Instant {
        if self.blocked { self.next_send } else { Instant::FAR_FUTURE }
    }
}

/// Pacing rate of Linux for a window-based control: two windows per round trip in slow start, 1.2
/// windows afterwards (`tcp_update_pacing_rate`).
fn window_pace(window: u64, slow_start: bool, srtt: Duration) -> Rate {
    let gain = if slow_start { 2.0 } else { 1.2 };
    let seconds = srtt.as_secs_f64().max(1e-6);
    Rate::from_bps((gain * window as f64 * 8.0 / seconds) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_waits_for_the_sending_time_of_the_one_before() {
        let mut pacer = Pacer::default();
        let at = |ms| Instant::from_millis(ms);
        pacer.on_sent(at(0), 1250);
        assert!(!pacer.holds_back(at(0), true), "without a rate nothing waits");
        pacer.follow(Some(Rate::from_mbps(10.0)), 0, 0, None);
        pacer.on_sent(at(0), 1250);
        assert!(pacer.holds_back(at(0), true));
        assert_eq!(pacer.next_wakeup(), at(1));
        assert!(!pacer.holds_back(at(1), true));
        assert_eq!(pacer.next_wakeup(), Instant::FAR_FUTURE);
    }

    /// Number of segments of 1250 bytes that may be sent at `now`.
    fn sent_at(pacer: &mut Pacer, now: Instant) -> usize {
        core::iter::from_fn(|| (!pacer.holds_back(now, true)).then(|| pacer.on_sent(now, 1250)))
            .count()
    }

    #[test]
    fn a_late_driver_catches_up_by_at_most_10_ms() {
        let mut pacer = Pacer::default();
        pacer.follow(Some(Rate::from_mbps(10.0)), 0, 0, None);
        let at = |ms| Instant::from_millis(ms);
        assert_eq!([20, 21, 25, 26].map(|ms| sent_at(&mut pacer, at(ms))), [1, 1, 4, 1]);
        assert_eq!(sent_at(&mut pacer, at(100)), 11);
        assert_eq!(pacer.next_wakeup(), at(101));
    }

    #[test]
    fn an_idle_subflow_does_not_catch_up() {
        let mut pacer = Pacer::default();
        pacer.follow(Some(Rate::from_mbps(10.0)), 0, 0, None);
        let at = |ms| Instant::from_millis(ms);
        pacer.on_sent(at(20), 1250);
        assert!(pacer.holds_back(at(20), false));
        assert_eq!(sent_at(&mut pacer, at(50)), 1);
    }

    #[test]
    fn the_quantum_is_1_ms_of_data_but_at_least_two_segments() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.quantum(QUANTUM, 1000), None);
        pacer.follow(Some(Rate::from_mbps(80.0)), 0, 0, None);
        assert_eq!(pacer.quantum(QUANTUM, 1000), Some(10_000));
        pacer.follow(Some(Rate::from_mbps(1.0)), 0, 0, None);
        assert_eq!(pacer.quantum(QUANTUM, 1000), Some(2000));
    }

    // Source: Linux `tcp_update_pacing_rate`, `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`.
    #[test]
    fn a_window_is_paced_at_twice_its_rate_then_at_1_2() {
        let mut pacer = Pacer::of_windows(true);
        let mut rate = |threshold| {
            pacer.follow(None, 12_500, threshold, Some(Duration::from_millis(100)));
            pacer.rate()
        };
        assert_eq!([rate(u64::MAX), rate(0)], [2.0, 1.2].map(|mbps| Some(Rate::from_mbps(mbps))));
        pacer.follow(None, 12_500, 0, None);
        assert_eq!(pacer.rate(), None, "before the first round-trip time");
    }
}
