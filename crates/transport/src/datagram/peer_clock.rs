//! The offset of the peer's clock, from packets that it echoes: one-way delays without a common clock.

use skybraid_units::{Duration, Instant};

/// Half the time for which a sample of the clocks' offset holds; clocks drift.
const WINDOW: Duration = Duration::from_secs(30);

/// Samples of the offset on one path.
#[derive(Clone, Debug, Default)]
pub struct PeerClock {
    /// Best sample of the current window, and of the one before.
    best: [Option<Sample>; 2],
    since: Instant,
}

/// The sample of a window with the lowest round-trip time: the most certain offset, as in NTP.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rtt: Duration,
    offset: Duration,
}

impl PeerClock {
    /// Returns the one-way delay of a packet whose round trip took `rtt`. `transit` is its arrival by the peer's clock
    /// less its sending by ours.
    pub fn delay(&mut self, now: Instant, rtt: Duration, transit: Duration) -> Duration {
        let sample = Sample { rtt, offset: transit - rtt / 2 };
        let [current, last] = &mut self.best;
        if current.is_none() || now.since(self.since) >= WINDOW {
            *last = current.take();
            self.since = now;
        }
        if current.is_none_or(|best| rtt <= best.rtt) {
            *current = Some(sample);
        }
        let best = [*current, *last].into_iter().flatten().min_by_key(|sample| sample.rtt);
        let delay = transit - best.unwrap_or(sample).offset;
        delay.max(Duration::ZERO).min(rtt)
    }
}
