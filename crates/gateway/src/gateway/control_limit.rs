//! Limit of the rate of control, by the queues that it would fill: in the networks, and at a slow driver.

use skybraid_units::{Duration, Instant};

use crate::rate_limiter::RateLimiter;
use crate::sources::{Client, Component};

/// Window of the driver lag, whose maximum covers one to two windows.
const LAG_WINDOW: Duration = Duration::from_millis(50);
/// Driver lag that does not count as a queue: time slices of the machine's scheduler.
const DEFAULT_LAG: Duration = Duration::from_millis(5);
/// Time within which two control sources count as concurrent.
const WRITES: Duration = Duration::from_secs(5);
/// Additional delay that a sole control source may cause.
const ALONE: Duration = Duration::from_millis(100);

/// Rate limit of control, and the lag of the driver here, which probes carry to the peer for its own limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControlLimit {
    limiter: RateLimiter,
    /// Last two sources of control, with the times of their last writes.
    writers: [Option<(Client, Component, Instant)>; 2],
    lag: DriverLag,
}

/// Waits of datagrams for the driver.
#[derive(Clone, Copy, Debug, Default)]
struct DriverLag {
    /// Maxima of this and the previous window.
    max: [Duration; 2],
    since: Instant,
}

impl ControlLimit {
    /// A limit before the first message.
    pub fn new(now: Instant) -> Self {
        Self { lag: DriverLag { since: now, ..DriverLag::default() }, ..Self::default() }
    }

    /// Remembers the two sources that have written control last.
    pub fn on_written(&mut self, now: Instant, client: Client, component: Component) {
        let is_known = |known: &Option<(Client, Component, Instant)>| {
            known.is_some_and(|writer| (writer.0, writer.1) == (client, component))
        };
        let place = self.writers.iter().position(is_known).unwrap_or_else(|| {
            let [first, second] = self.writers.map(|known| known.map(|writer| writer.2));
            usize::from(first > second)
        });
        if let Some(writer) = self.writers.get_mut(place) {
            *writer = Some((client, component, now));
        }
    }

    /// Admits a message to be sent now.
    pub fn take(&mut self, now: Instant) -> bool {
        self.limiter.take(now)
    }

    /// True while a burst is let on faster and faster.
    pub const fn is_starting(&self) -> bool {
        self.limiter.is_starting()
    }

    /// Refunds an admitted message that is not sent.
    pub fn refund(&mut self) {
        self.limiter.refund();
    }

    /// Time at which the next message may leave, if the last one was not admitted.
    pub fn next(&self) -> Instant {
        self.limiter.next()
    }

    /// Returns the limit in messages per second; `None` if unlimited.
    pub const fn rate(&self) -> Option<f64> {
        self.limiter.rate()
    }

    /// Handles a measurement: the queueing delay in the network, the lag of the peer's driver, the round trip,
    /// and the time at which the probe left.
    pub fn on_delay(
        &mut self,
        now: Instant,
        queued: Duration,
        peer_lag: Duration,
        rtt: Duration,
        probed: Instant,
    ) {
        // Programs wake up late even in normal operation.
        let wait = queued.max(peer_lag - DEFAULT_LAG);
        let recent = |writer: &&(_, _, Instant)| now.since(writer.2) < WRITES;
        // A sole source delays only itself.
        let is_shared = self.writers.iter().flatten().filter(recent).count() > 1;
        let wait = if is_shared { wait } else { wait - ALONE };
        self.limiter.on_queueing_delay(now, wait, rtt, probed);
    }

    /// Records a datagram's wait for the driver here.
    pub fn on_lag(&mut self, now: Instant, waited: Duration) {
        let DriverLag { max, since } = &mut self.lag;
        if now.since(*since) >= LAG_WINDOW {
            (*max, *since) = ([Duration::ZERO, max[0]], now);
        }
        max[0] = max[0].max(waited);
    }

    /// Maximum recent wait of a datagram for the driver here in milliseconds, as probes carry it.
    pub fn lag_ms(&self) -> u8 {
        let [this, previous] = self.lag.max;
        (this.max(previous).as_nanos() / 1_000_000).clamp(0, 255) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: i64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Whether control is limited after two seconds of writes by `writers` with this queue and lag.
    fn is_limited(writers: u8, queued: Duration, lag: Duration) -> bool {
        let mut limit = ControlLimit::new(Instant::ZERO);
        for tick in 0..2_000 {
            let now = Instant::from_millis(tick);
            limit.on_written(now, Client::default(), (tick as u8 % writers, 1));
            if tick % 4 == 0 {
                limit.take(now);
            }
            if tick % 50 == 0 {
                limit.on_delay(now, queued, lag, ms(50), now - ms(50));
            }
        }
        limit.rate().is_some()
    }

    #[test]
    fn a_sole_source_may_delay_itself_by_a_tenth_of_a_second() {
        assert!(!is_limited(1, ms(90), ms(90)));
        assert!(is_limited(1, ms(110), ms(0)) && is_limited(1, ms(0), ms(110)));
        assert!(is_limited(2, ms(10), ms(0)) && is_limited(2, ms(0), ms(10)));
        assert!(!is_limited(2, ms(1), ms(5)));
    }

    #[test]
    fn the_lag_is_the_longest_of_the_last_windows() {
        let mut limit = ControlLimit::new(Instant::ZERO);
        for (now, waited, expected) in [(0, 30, 30), (20, 3, 30), (60, 2, 30), (120, 1, 2)] {
            limit.on_lag(Instant::from_millis(now), ms(waited));
            assert_eq!(limit.lag_ms(), expected, "{now} ms");
        }
    }
}
