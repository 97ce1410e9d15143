//! Pacing: segments leave at a rate rather than in bursts.

use skybraid_units::{Bytes, Duration, Instant, Rate};

/// How much is handed to a paced subflow in advance: data is bound to a path as late as possible.
const QUANTUM: Duration = Duration::from_millis(1);

/// The pace of one subflow.
#[derive(Debug, Default)]
pub struct Pacer {
    rate: Option<Rate>,
    /// When the next segment may leave.
    next: Instant,
    /// Something waits for that.
    holds: bool,
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
            self.next = self.next.max(now) + rate.time_for(Bytes::new(u64::from(bytes)));
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
