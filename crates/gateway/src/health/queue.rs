//! Queue towards the peer, in which control would wait behind the data of this end.
//!
//! Control shares the queues of the networks with all else. Data is held back from a path while probes show that its
//! queue is longer than 75 ms, whatever congestion control would still send: at low rates its smallest window
//! alone takes longer, and after a drop of the rate it takes some seconds to notice. A queue that does not drain while
//! data is held is not of this end, and does not count.

use skybraid_units::{Duration, Instant};

/// Queueing delay above which data is held back, and below which it leaves again.
const MAX_DELAY: Duration = Duration::from_millis(75);
const MIN_DELAY: Duration = Duration::from_millis(40);
/// Maximum jitter that raises the first one.
const MAX_JITTER: Duration = Duration::from_millis(25);
/// Maximum time in which a queue of this end drains, as a multiple of the longest delay seen. Control leaves
/// meanwhile and takes a share of the rate.
const DRAIN: i64 = 3;

/// Queue of a path in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathQueue {
    /// Queueing delay without data of this end.
    foreign: Duration,
    /// Queueing delay of the last probe.
    last: Duration,
    hold: Option<Hold>,
}

/// Data is held back.
#[derive(Clone, Copy, Debug)]
struct Hold {
    longest: Duration,
    rtt: Duration,
    /// Time at which a queue of this end has drained.
    until: Instant,
}

impl PathQueue {
    /// While data is held back, the fraction of the bytes in flight that fits: it keeps the rate with a queue of
    /// 40 ms.
    pub fn share(&self) -> Option<f64> {
        let Hold { longest, rtt, .. } = self.hold?;
        Some((rtt + MIN_DELAY).as_secs_f64() / (rtt + longest).as_secs_f64())
    }

    /// Records the queueing delay of a probe, which is known a round trip later.
    /// The `jitter` of such delays is no queue.
    pub fn on_delay(&mut self, now: Instant, delay: Duration, rtt: Duration, jitter: Duration) {
        self.foreign = self.foreign.min(delay);
        let last = core::mem::replace(&mut self.last, delay);
        // One late probe alone is jitter.
        let own = delay.min(last) - self.foreign;
        self.hold = match self.hold {
            None if own > MAX_DELAY + jitter.min(MAX_JITTER) => Some(Hold::of(now, delay, rtt)),
            Some(_) if own < MIN_DELAY => None,
            Some(hold) if delay > hold.longest => Some(Hold::of(now, delay, rtt)),
            Some(hold) if now >= hold.until => {
                self.foreign = delay;
                None
            }
            hold => hold,
        };
    }

    /// Forgets the queue: nothing is measured any more.
    pub const fn reset(&mut self) {
        *self = Self { foreign: Duration::ZERO, last: Duration::ZERO, hold: None };
    }
}

impl Hold {
    fn of(now: Instant, longest: Duration, rtt: Duration) -> Self {
        Self { longest, rtt, until: now + longest * DRAIN + rtt + MAX_DELAY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes a queue every 50 ms, whose delay in ms `drains` computes from whether data is held. Returns for how many
    /// of the probes it was held.
    fn held(probes: i64, mut delay_ms: impl FnMut(bool) -> i64) -> i64 {
        let mut queue = PathQueue::default();
        let mut held = 0;
        for probe in 0..probes {
            let delay = Duration::from_millis(delay_ms(queue.share().is_some()));
            let [rtt, jitter] = [Duration::from_millis(40), Duration::ZERO];
            queue.on_delay(Instant::from_millis(50 * probe), delay, rtt, jitter);
            held += i64::from(queue.share().is_some());
        }
        held
    }

    #[test]
    fn data_is_held_back_until_its_queue_has_drained() {
        let mut queued = 0;
        let held = held(100, |held| {
            queued = if held { (queued - 50).max(0) } else { queued + 40 };
            queued
        });
        assert!((30..70).contains(&held), "{held} of 100");
    }

    #[test]
    fn a_queue_of_a_second_is_drained_next_to_control() {
        // Control takes half of the rate.
        let mut queued = 1_000;
        let held = held(40, |held| {
            queued -= if held { 25 } else { 0 };
            queued
        });
        assert!(held >= 37, "{held}: released at {queued} ms");
    }

    #[test]
    fn the_queue_of_others_holds_nothing_back_for_good() {
        assert!(held(1_000, |_| 400) <= 30);
        // One that grows by 90 ms again and again looks like one of this end while it is longest.
        let mut draws = (0..).map(|probe| 300 + probe * 7 % 90);
        assert!(held(1_000, |_| draws.next().unwrap_or_default()) < 300);
    }

    #[test]
    fn jitter_of_a_radio_holds_nothing_back() {
        let mut draws = (0..).map(|probe| probe * 37 % 95);
        assert_eq!(held(1_000, |_| draws.next().unwrap_or_default()), 0);
    }
}
