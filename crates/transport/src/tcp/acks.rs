//! Times at which a receiver acknowledges data in order.
//!
//! Source: RFC 9293 §3.8.6.3 and RFC 5681 §4.2; Linux `tcp_event_data_recv`, `tcp_measure_rcv_mss`,
//! `tcp_grow_window`, `tcp_send_delayed_ack`, `tcp_delack_timer_handler` and `tcp_cleanup_rbuf`.

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant};

use crate::rtt::RttEstimator;

/// Minimum interval that Linux expects between segments, and minimum delay (`TCP_ATO_MIN`).
const MIN_DELAY: Duration = Duration::from_millis(40);
/// Maximum delay of an acknowledgement in Linux (`TCP_DELACK_MAX`).
pub const MAX_DELAY: Duration = Duration::from_millis(200);
/// Maximum acknowledgements sent at once at the start and after a pause (`TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;
/// Segment size that Linux assumes at first (`TCP_MSS_DEFAULT`).
const SMALL_SEGMENT: u32 = 536;
/// Receive window that Linux begins with: half of the default of `tcp_rmem`.
pub const FIRST_WINDOW: u64 = 65_536;
/// Segments that are shorter do not widen the window in Linux.
const MIN_WIDENING: u32 = 128;

/// Rule by which data in order is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckRule {
    /// Every few segments and within a fixed delay.
    #[default]
    Fixed,
    /// Linux's: sixteen at once at the start and after a pause, each one that widens the window, then
    /// one for more than a full segment; a delay that follows the interval between segments.
    Linux,
}

impl AckRule {
    /// Value in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Linux => "linux",
        }
    }
}

/// Pending acknowledgement of a receiver.
#[derive(Debug)]
pub struct Acks {
    every: u32,
    delay: Duration,
    unacknowledged: u32,
    due_at: Instant,
    due: bool,
    adaptive: Option<Box<Adaptive>>,
}

/// State of Linux's rule.
#[derive(Debug)]
struct Adaptive {
    /// Size of the peer's segments (`rcv_mss`), and that of the last short one.
    segment: u32,
    last_short: u32,
    /// Bytes since the last acknowledgement.
    bytes: u64,
    /// Short segments since the last acknowledgement, at most two.
    pushed: u8,
    /// Acknowledgements that are sent at once from now on.
    quick: u32,
    /// Expected interval between segments (`ato`); zero before the first.
    interval: Duration,
    /// The application answers what it receives, so that its data carries acknowledgements
    /// (`pingpong`).
    interactive: bool,
    last: Instant,
    /// Window on offer (`rcv_ssthresh`), and what the receive buffer has room for.
    window: u64,
    room: u64,
}

impl Acks {
    /// Creates the state of a receiver that acknowledges by `rule`: if fixed, at least every `every`
    /// segments and within `delay`.
    pub fn new(rule: AckRule, every: u32, delay: Duration) -> Self {
        Self {
            every: every.max(1),
            delay,
            unacknowledged: 0,
            due_at: Instant::FAR_FUTURE,
            due: false,
            adaptive: (rule == AckRule::Linux).then(|| Box::new(Adaptive::new())),
        }
    }

    /// True if all data in order has been acknowledged.
    #[inline]
    pub const fn is_clear(&self) -> bool {
        self.unacknowledged == 0
    }

    /// True if an acknowledgement must be sent at once.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.due
    }

    /// Instant at which the delayed acknowledgement is due.
    #[inline]
    pub const fn next_wakeup(&self) -> Instant {
        self.due_at
    }

    /// Sets the size of the receive buffer in bytes, up to which the window widens.
    pub const fn set_room(&mut self, bytes: u64) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.room = bytes;
        }
    }

    /// Requests an immediate acknowledgement.
    #[inline]
    pub const fn request(&mut self) {
        self.due = true;
    }

    /// Records a segment of `bytes` in order, after which nothing is missing.
    #[inline]
    pub fn on_in_order(&mut self, now: Instant, bytes: u32, rtt: &RttEstimator) {
        self.unacknowledged += 1;
        let Some(adaptive) = &mut self.adaptive else {
            if self.unacknowledged >= self.every {
                self.due = true;
            } else {
                self.due_at = self.due_at.min(now + self.delay);
            }
            return;
        };
        if adaptive.on_segment(now, bytes, rtt) {
            self.due = true;
            return;
        }
        let delay = adaptive.delay(rtt);
        if self.due_at <= now + delay / 4 {
            self.due = true;
        } else {
            self.due_at = self.due_at.min(now + delay);
        }
    }

    /// Records a duplicate, which calls for an immediate acknowledgement: one may have been lost.
    pub fn on_duplicate(&mut self) {
        self.due = true;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.quick = QUICK;
            adaptive.interval = MIN_DELAY;
            adaptive.interactive = false;
        }
    }

    /// Records own data, which carries acknowledgements.
    #[inline]
    pub fn on_data_sent(&mut self, now: Instant) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.interactive |= now.since(adaptive.last) < adaptive.interval;
        }
    }

    /// Requests the delayed acknowledgement if its time has come.
    #[inline]
    pub fn wake(&mut self, now: Instant, rtt: &RttEstimator) {
        if self.due_at > now {
            return;
        }
        self.due = true;
        self.due_at = Instant::FAR_FUTURE;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.on_delayed(rtt);
        }
    }

    /// Records that an acknowledgement was sent.
    #[inline]
    pub fn on_sent(&mut self) {
        self.unacknowledged = 0;
        self.due = false;
        self.due_at = Instant::FAR_FUTURE;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.on_sent();
        }
    }
}

impl Adaptive {
    const fn new() -> Self {
        Self {
            segment: SMALL_SEGMENT,
            last_short: 0,
            bytes: 0,
            pushed: 0,
            quick: 0,
            interval: Duration::ZERO,
            interactive: false,
            last: Instant::ZERO,
            window: FIRST_WINDOW,
            room: FIRST_WINDOW,
        }
    }

    /// Records a segment. Returns true if it must be acknowledged at once.
    fn on_segment(&mut self, now: Instant, bytes: u32, rtt: &RttEstimator) -> bool {
        self.measure_segment(bytes);
        self.measure_interval(now, rtt);
        self.widen(bytes);
        self.bytes += u64::from(bytes);
        self.bytes > u64::from(self.segment)
            || (self.quick > 0 && !self.interactive)
            // The application reads at once, and a short segment ends what was written.
            || self.pushed > u8::from(self.interactive)
    }

    fn measure_segment(&mut self, bytes: u32) {
        let before = core::mem::take(&mut self.last_short);
        if bytes >= self.segment {
            self.segment = bytes;
            return;
        }
        if bytes >= SMALL_SEGMENT {
            self.last_short = bytes;
            if bytes == before {
                self.segment = bytes;
                return;
            }
        }
        self.pushed = (self.pushed + 1).min(2);
    }

    fn measure_interval(&mut self, now: Instant, rtt: &RttEstimator) {
        let gap = now.since(self.last);
        self.last = now;
        if self.interval == Duration::ZERO {
            self.quick = QUICK;
            self.interval = MIN_DELAY;
        } else if gap <= MIN_DELAY / 2 {
            self.interval = self.interval / 2 + MIN_DELAY / 2;
        } else if gap < self.interval {
            self.interval = (self.interval / 2 + gap).min(rtt.timeout());
        } else if gap > rtt.timeout() {
            self.quick = self.quick.max(QUICK);
        }
    }

    /// Widens the window by twice what arrived; the peer learns of it at once.
    fn widen(&mut self, bytes: u32) {
        if self.window < self.room && bytes >= MIN_WIDENING {
            self.window = (self.window + 2 * u64::from(bytes)).min(self.room);
            self.quick |= 1;
        }
    }

    /// Delay of the next acknowledgement.
    fn delay(&self, rtt: &RttEstimator) -> Duration {
        let delay = self.interval.min(MAX_DELAY);
        match rtt.srtt() {
            Some(srtt) if delay > MIN_DELAY => delay.min(srtt.max(MIN_DELAY)),
            _ => delay,
        }
    }

    /// Records that no data carried the acknowledgement within its delay.
    fn on_delayed(&mut self, rtt: &RttEstimator) {
        if core::mem::take(&mut self.interactive) {
            self.interval = MIN_DELAY;
        } else {
            self.interval = (self.interval * 2).min(rtt.timeout());
        }
    }

    fn on_sent(&mut self) {
        self.bytes = 0;
        self.pushed = 0;
        if self.quick > 0 {
            self.quick -= 1;
            if self.quick == 0 {
                self.interval = MIN_DELAY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::RtoRule;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn ms(ms: i64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns an estimator of a path of 100 ms, whose timeout is 300 ms.
    fn rtt() -> RttEstimator {
        let mut rtt = RttEstimator::new(RtoRule::Linux, ms(200), Duration::from_secs(120));
        rtt.on_sample(ms(100), false);
        rtt
    }

    fn linux() -> Acks {
        Acks::new(AckRule::Linux, 2, ms(40))
    }

    /// Receives full segments every `every_ms` from `start_ms`, and sends what is due at once. Returns
    /// how many were acknowledged at once.
    fn full_segments(acks: &mut Acks, start_ms: i64, every_ms: i64, count: i64) -> usize {
        let arrivals = (0..count).map(|number| at(start_ms + number * every_ms));
        let at_once = arrivals.filter(|now| {
            acks.wake(*now, &rtt());
            if acks.is_due() {
                acks.on_sent();
            }
            acks.on_in_order(*now, 1448, &rtt());
            let due = acks.is_due();
            if due {
                acks.on_sent();
            }
            due
        });
        at_once.count()
    }

    // Source: Linux `TCP_MAX_QUICKACKS`, `tcp_event_data_recv`, `__tcp_ack_snd_check`.
    #[test]
    fn the_first_16_segments_are_acknowledged_at_once() {
        let mut acks = linux();
        assert_eq!(full_segments(&mut acks, 0, 1, 16), 16);
        assert_eq!(full_segments(&mut acks, 16, 1, 20), 10, "every second one");
        // A pause longer than the timeout of 300 ms.
        assert_eq!(full_segments(&mut acks, 340, 1, 16), 16);
        // A shorter one.
        assert_eq!(full_segments(&mut acks, 600, 1, 20), 10);
    }

    // Source: Linux `tcp_grow_window`.
    #[test]
    fn a_segment_that_widens_the_window_is_acknowledged_at_once() {
        let mut acks = linux();
        full_segments(&mut acks, 0, 1, 16);
        acks.set_room(FIRST_WINDOW + 30 * 2 * 1448);
        assert_eq!(full_segments(&mut acks, 16, 1, 30), 30);
        assert_eq!(full_segments(&mut acks, 46, 1, 20), 10, "every second one");
    }

    // Source: Linux `tcp_send_delayed_ack`, `tcp_delack_timer_handler`: the delay begins with 40 ms and
    // doubles with each that expires, up to the round-trip time and 200 ms.
    #[test]
    fn a_delay_that_expires_doubles_up_to_the_round_trip_time() {
        let mut acks = linux();
        full_segments(&mut acks, 0, 1, 16);
        let mut now = 16;
        let delays = [0; 3].map(|_| {
            acks.on_in_order(at(now), 1448, &rtt());
            let delay = acks.next_wakeup().since(at(now));
            now += delay.as_nanos() / 1_000_000;
            acks.wake(at(now), &rtt());
            assert!(acks.is_due());
            acks.on_sent();
            now += 150;
            delay
        });
        assert_eq!(delays, [ms(40), ms(80), ms(100)]);
    }

    // Source: Linux `tcp_measure_rcv_mss` and `tcp_cleanup_rbuf`.
    #[test]
    fn a_short_segment_is_acknowledged_when_it_is_read() {
        let mut acks = linux();
        full_segments(&mut acks, 0, 1, 16);
        acks.on_in_order(at(16), 100, &rtt());
        assert!(acks.is_due());
        acks.on_sent();
        // An application that answers lets its data carry the acknowledgement, until two wait.
        acks.on_data_sent(at(17));
        acks.on_in_order(at(18), 100, &rtt());
        assert!(!acks.is_due());
        acks.on_in_order(at(19), 100, &rtt());
        assert!(acks.is_due());
    }

    #[test]
    fn a_fixed_rule_counts_segments_and_bounds_the_delay() {
        let mut acks = Acks::new(AckRule::Fixed, 3, ms(25));
        acks.on_in_order(at(0), 1448, &rtt());
        acks.on_in_order(at(10), 100, &rtt());
        assert!(!acks.is_due() && !acks.is_clear());
        assert_eq!(acks.next_wakeup(), at(25));
        acks.on_in_order(at(11), 100, &rtt());
        assert!(acks.is_due());
    }

    // Source: Linux `tcp_enter_quickack_mode`.
    #[test]
    fn a_duplicate_begins_quick_acknowledgements() {
        let mut acks = linux();
        full_segments(&mut acks, 0, 1, 30);
        acks.on_duplicate();
        assert!(acks.is_due());
        acks.on_sent();
        assert_eq!(full_segments(&mut acks, 30, 1, 15), 15);
    }
}
