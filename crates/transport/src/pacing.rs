//! Pacing: segments leave at a rate rather than in bursts.

use skybraid_units::{Bytes, Duration, Instant, Rate};

/// How much is handed to a paced subflow in advance: data is bound to a path as late as possible.
const QUANTUM: Duration = Duration::from_millis(1);

/// How much a driver that woke late sends at once to make up for it. Without that, a busy machine sends
/// slower than the pace, a congestion control that measures its rate takes that for the path's, and both
/// go down together. Linux makes up for at most half of each interval (`tcp_update_skb_after_send`).
const MOST_MADE_UP: Duration = Duration::from_millis(10);

/// The pace of one subflow.
#[derive(Debug, Default)]
pub struct Pacer {
    rate: Option<Rate>,
    /// When the next segment may leave.
    next: Instant,
    /// Something waits for that.
    holds: bool,
    /// When what had waited was let go, then or late.
    let_go: Instant,
}

impl Pacer {
    /// The rate; `None` for as fast as the window allows.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Sets the rate.
    pub const fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate;
    }

    /// The bytes that may wait for their turn, at least two segments; `None` without a pace.
    pub fn quantum(&self, segment: u32) -> Option<u64> {
        let least = 2 * u64::from(segment);
        self.rate.map(|rate| (rate.bits_in(QUANTUM) / 8).max(least))
    }

    /// True when nothing may leave yet; `waiting` says that something would.
    pub fn holds_back(&mut self, now: Instant, waiting: bool) -> bool {
        let early = self.rate.is_some() && self.next > now;
        if self.holds && !early {
            self.let_go = now;
        }
        self.holds = early && waiting;
        early
    }

    /// Nothing waits any more.
    pub const fn release(&mut self) {
        self.holds = false;
    }

    /// A segment of `bytes` leaves.
    pub fn sent(&mut self, now: Instant, bytes: u32) {
        if let Some(rate) = self.rate {
            let late = if self.let_go == now { MOST_MADE_UP } else { Duration::ZERO };
            self.next = self.next.max(now - late) + rate.time_for(Bytes::new(u64::from(bytes)));
        }
    }

    /// When what waits may leave; [`Instant::FAR_FUTURE`] where nothing does.
    pub const fn next_wakeup(&self) -> Instant {
        if self.holds { self.next } else { Instant::FAR_FUTURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_waits_until_the_one_before_has_taken_its_time_at_the_rate() {
        let mut pacer = Pacer::default();
        let at = |ms| Instant::from_millis(ms);
        pacer.sent(at(0), 1250);
        assert!(!pacer.holds_back(at(0), true), "without a rate nothing waits");
        pacer.set_rate(Some(Rate::from_mbps(10.0)));
        pacer.sent(at(0), 1250);
        assert!(pacer.holds_back(at(0), true));
        assert_eq!(pacer.next_wakeup(), at(1));
        assert!(!pacer.holds_back(at(1), true));
        assert_eq!(pacer.next_wakeup(), Instant::FAR_FUTURE);
    }

    /// At 10 Mbit/s, how many segments of 1250 bytes leave at an instant.
    fn leaving(pacer: &mut Pacer, now: Instant) -> usize {
        let sent =
            core::iter::from_fn(|| (!pacer.holds_back(now, true)).then(|| pacer.sent(now, 1250)));
        sent.count()
    }

    #[test]
    fn a_driver_that_wakes_late_makes_up_for_it_up_to_ten_milliseconds() {
        let mut pacer = Pacer::default();
        pacer.set_rate(Some(Rate::from_mbps(10.0)));
        let at = |ms| Instant::from_millis(ms);
        assert_eq!([20, 21, 25, 26].map(|ms| leaving(&mut pacer, at(ms))), [1, 1, 4, 1]);
        assert_eq!(leaving(&mut pacer, at(100)), 11);
        assert_eq!(pacer.next_wakeup(), at(101));
    }

    #[test]
    fn when_nothing_waited_there_is_nothing_to_make_up_for() {
        let mut pacer = Pacer::default();
        pacer.set_rate(Some(Rate::from_mbps(10.0)));
        let at = |ms| Instant::from_millis(ms);
        pacer.sent(at(20), 1250);
        assert!(pacer.holds_back(at(20), false));
        assert_eq!(leaving(&mut pacer, at(50)), 1);
    }

    #[test]
    fn a_millisecond_of_data_may_wait_but_never_less_than_two_segments() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.quantum(1000), None);
        pacer.set_rate(Some(Rate::from_mbps(80.0)));
        assert_eq!(pacer.quantum(1000), Some(10_000));
        pacer.set_rate(Some(Rate::from_mbps(1.0)));
        assert_eq!(pacer.quantum(1000), Some(2000));
    }
}
