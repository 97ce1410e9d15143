//! Times of a path, measured by probes: transit each way, round trip, queue.

use skybraid_units::{Duration, Instant};

use super::clock::{Transit, between, micros, nearest};
use super::queue::PathQueue;

/// Window of the lowest round-trip time, kept for one to two windows.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(30);

/// Maximum interval between probes that a file may ask for.
pub const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Times of one path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    incoming: Transit,
    outgoing: Transit,
    queue: PathQueue,
    /// Smoothed round-trip time, and minima of the current and the previous window.
    rtt: Option<Duration>,
    min_rtt: [Option<Duration>; 2],
    min_since: Instant,
    /// Send and arrival time of the peer's newest probe.
    newest: Option<(u32, Instant)>,
    /// Time at which our newest probe left that the peer has echoed.
    echoed: Option<Instant>,
    /// Arrival of that echo, and smoothed interval between echoes: the other end has an interval of its own.
    echo_at: Instant,
    echo_interval: Duration,
    /// Time of the last step of a clock; echoes of probes that left before it measure nothing.
    stepped_at: Option<Instant>,
}

/// Times measured by one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTimes {
    /// Transit time of the probe.
    pub incoming: Duration,
    /// Transit time of our probe that it echoes.
    pub outgoing: Option<Duration>,
    /// Time at which our probe that it echoes left, if the round trip is positive.
    pub echoed: Option<Instant>,
}

impl Timing {
    /// Times before the first probe.
    pub fn new(now: Instant) -> Self {
        Self { min_since: now, ..Self::default() }
    }

    /// Discards what depends on the clock of a peer that has restarted. The round trip stays.
    pub fn forget_peer(&mut self) {
        let Self { rtt, min_rtt, min_since, .. } = *self;
        *self = Self { rtt, min_rtt, min_since, ..Self::default() };
    }

    /// Discards what was measured before a clock was stepped. What to echo and the lowest round trip stay.
    pub fn on_clock_step(&mut self, now: Instant) {
        let Self { min_rtt, min_since, newest, echo_interval, .. } = *self;
        let stepped_at = Some(now);
        *self = Self { min_rtt, min_since, newest, echo_interval, stepped_at, ..Self::default() };
    }

    /// Records a probe that arrived at `now`, sent at `sent_us`, with an echo of ours.
    pub fn on_probe(&mut self, now: Instant, sent_us: u32, echo: Option<(u32, u32)>) -> ProbeTimes {
        self.newest = Some((sent_us, now));
        let incoming = between(sent_us, micros(now));
        self.incoming.sample(now, incoming);
        let Some((left, held)) = echo else {
            return ProbeTimes { incoming, outgoing: None, echoed: None };
        };
        let outgoing = between(left, sent_us.wrapping_sub(held));
        let left_at = now - between(left, micros(now));
        if self.stepped_at.is_some_and(|stepped_at| left_at < stepped_at) {
            return ProbeTimes { incoming, outgoing: Some(outgoing), echoed: None };
        }
        self.outgoing.sample(now, outgoing);
        let rtt = between(left, micros(now).wrapping_sub(held));
        let echoed = rtt.is_positive().then(|| {
            self.on_round_trip(now, rtt);
            now - rtt - Duration::from_micros(i64::from(held))
        });
        if echoed > self.echoed {
            let interval = now.since(core::mem::replace(&mut self.echo_at, now)).min(MAX_INTERVAL);
            self.echo_interval += (interval - self.echo_interval) / 8;
            self.echoed = echoed;
        }
        let lowest = self.outgoing.min().unwrap_or(outgoing);
        let min_rtt = self.min_rtt().unwrap_or_default();
        let jitter = self.outgoing.jitter();
        self.queue.on_delay(now, nearest(outgoing - lowest), min_rtt, jitter);
        ProbeTimes { incoming, outgoing: Some(outgoing), echoed }
    }

    fn on_round_trip(&mut self, now: Instant, rtt: Duration) {
        let smoothed = self.rtt.unwrap_or(rtt);
        self.rtt = Some(smoothed + Duration::from_nanos((rtt - smoothed).as_nanos() / 8));
        if now.since(self.min_since) > MIN_RTT_WINDOW {
            self.min_rtt = [None, self.min_rtt[0]];
            self.min_since = now;
        }
        self.min_rtt[0] = Some(self.min_rtt[0].map_or(rtt, |min| min.min(rtt)));
    }

    /// Returns the incoming transit times.
    pub const fn incoming(&self) -> &Transit {
        &self.incoming
    }

    /// Returns the transit times of our probes up to the peer's kernel, from echoes.
    pub const fn outgoing(&self) -> &Transit {
        &self.outgoing
    }

    /// Time at which our newest probe left that the peer has echoed.
    pub const fn echoed(&self) -> Option<Instant> {
        self.echoed
    }

    /// Returns how long an echo has been overdue, zero or negative if none is. An echo is expected the minimum round
    /// trip and `spare` intervals after the newest echoed probe was sent; an interval is that of the echoes, and at
    /// least `probe`.
    pub fn overdue(&self, now: Instant, probe: Duration, spare: f64) -> Duration {
        let spare = self.echo_interval.max(probe).mul_f64(spare);
        let measured = self.echoed.zip(self.min_rtt());
        measured.map_or(Duration::ZERO, |(echoed, rtt)| now.since(echoed) - (rtt + spare))
    }

    /// Returns the queue towards the peer.
    pub const fn queue(&self) -> &PathQueue {
        &self.queue
    }

    /// Returns the smoothed round-trip time.
    pub const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns the lowest round-trip time of the last minute.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.iter().flatten().min().copied()
    }

    /// Returns the echo for our next probe: send time of the peer's newest probe, and its time here in microseconds.
    pub fn echo(&self, now: Instant) -> Option<(u32, u32)> {
        let (left, arrived) = self.newest?;
        let held = (now.since(arrived).as_nanos() / 1_000).clamp(0, i64::from(u32::MAX));
        Some((left, held as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_excludes_the_time_at_the_peer() {
        let (mut ours, mut peers) = (Timing::new(Instant::ZERO), Timing::new(Instant::ZERO));
        let peers_clock = Duration::from_secs(4_000);
        let at = Instant::from_millis;
        peers.on_probe(at(30) + peers_clock, micros(at(10)), None);
        let echo = peers.echo(at(65) + peers_clock);
        let times = ours.on_probe(at(105), micros(at(65) + peers_clock), echo);
        assert_eq!(ours.rtt(), Some(Duration::from_millis(60)));
        assert_eq!(times.echoed, Some(at(10)));
    }

    #[test]
    fn a_restarted_peer_leaves_only_the_round_trip() {
        let mut timing = Timing::new(Instant::ZERO);
        let at = Instant::from_millis;
        timing.on_probe(at(105), micros(at(65)), Some((micros(at(10)), 35_000)));
        timing.forget_peer();
        assert_eq!(timing.rtt(), Some(Duration::from_millis(60)));
        assert_eq!((timing.echo(at(200)), timing.outgoing().last()), (None, None));
    }
}
