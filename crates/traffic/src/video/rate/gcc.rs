//! Google congestion control at the sender: the minimum of a delay-based and a loss-based estimate.
//!
//! Source: draft-ietf-rmcat-gcc-02. The delay-based part is in `trendline` and `aimd`, the loss-based part
//! (§6) and the pacer (§4) are here. Choices where the draft leaves freedom:
//! - Loss is evaluated once per round trip, but not within `LOSS_INTERVAL` and not on fewer than
//!   `MIN_PACKETS` packets, since a report of five packets cannot express a loss between 0 and 20 %.
//! - The loss-based estimate is independent, as in the draft; WebRTC keeps it below the delay-based one, so
//!   that 2 to 10 % of loss hold a rate once lowered by over-use.
//! - Without reports nothing changes.

use skybraid_units::{Bytes, Duration, Instant, Rate, keys};

use super::aimd::{Aimd, Incoming};
use super::history::{History, RoundTrip, Update};
pub use super::trendline::Threshold;
use super::trendline::Trendline;
use super::{Bounds, Queue, RateControl, RateError, Report, Sent, range, rate};
use crate::about::Kind;

/// Registry entry.
pub const ABOUT: Kind = Kind {
    name: "gcc",
    summary: "Google congestion control as in WebRTC: growing delay lowers the target to 85 % of what \
              arrives, loss above 10 % lowers it too; loss below 2 % lets it grow.",
    parameters: &[("pacing", "times the target", "2.5"), ("threshold", "draft or webrtc", "draft")],
    source: "draft-ietf-rmcat-gcc-02",
};

/// `burst_time` (§4).
const BURST: Duration = Duration::from_millis(5);
/// Minimum time between evaluations of loss.
const LOSS_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum number of packets for an evaluation of loss (WebRTC).
const MIN_PACKETS: u32 = 20;
/// Loss below which the estimate grows, and above which it falls (§6).
const LITTLE_LOSS: f64 = 0.02;
const MUCH_LOSS: f64 = 0.1;
/// Growth of the estimate per evaluation (§6).
const LOSS_GROWTH: f64 = 1.05;
/// Round-trip time before the first report (WebRTC).
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(200);

keys! {
    /// Parameters of Google congestion control.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Config {
        /// Pacing rate in units of the target, at least 1. With the draft's value of 1, a queue left by an
        /// over-long frame never drains; WebRTC's value, 2.5, is the default.
        pub pacing: f64 = 2.5,
        /// Adaptation of the over-use threshold.
        pub threshold: Threshold = Threshold::Draft,
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), RateError> {
        range("pacing", (1.0..=1000.0).contains(&self.pacing), "from 1 to 1000")
    }
}

/// Loss-based estimate (§6).
#[derive(Clone, Debug)]
struct LossBased {
    bounds: Bounds,
    /// As_hat, in bit/s.
    estimate: f64,
    expected: u32,
    lost: u32,
    evaluated: Option<Instant>,
}

impl LossBased {
    fn new(bounds: &Bounds) -> Self {
        Self { bounds: *bounds, estimate: bounds.first(), expected: 0, lost: 0, evaluated: None }
    }

    fn update(&mut self, now: Instant, round_trip: Duration) {
        let evaluated = *self.evaluated.get_or_insert(now);
        if self.expected < MIN_PACKETS || now - evaluated < round_trip.max(LOSS_INTERVAL) {
            return;
        }
        self.apply(f64::from(self.lost) / f64::from(self.expected));
        self.evaluated = Some(now);
        self.expected = 0;
        self.lost = 0;
    }

    /// Updates the estimate by the share of lost packets.
    fn apply(&mut self, loss: f64) {
        let estimate = if loss > MUCH_LOSS {
            self.estimate * (1.0 - 0.5 * loss)
        } else if loss < LITTLE_LOSS {
            self.estimate * LOSS_GROWTH
        } else {
            self.estimate
        };
        self.estimate = self.bounds.clamp(estimate);
    }
}

/// Google congestion control.
#[derive(Clone, Debug)]
pub struct Gcc {
    pacing: f64,
    history: History,
    round_trip: RoundTrip,
    trendline: Trendline,
    incoming: Incoming,
    delay_based: Aimd,
    loss_based: LossBased,
    /// Time at which all sent packets have left at the pacing rate.
    paced: Instant,
    /// Bytes of the next waiting packet, or zero.
    next: f64,
}

impl Gcc {
    pub(super) fn new(config: &Config, bounds: &Bounds) -> Self {
        Self {
            pacing: config.pacing,
            history: History::default(),
            round_trip: RoundTrip::default(),
            trendline: Trendline::new(config.threshold),
            incoming: Incoming::default(),
            delay_based: Aimd::new(bounds),
            loss_based: LossBased::new(bounds),
            paced: Instant::from_nanos(i64::MIN),
            next: 0.0,
        }
    }

    /// Returns the minimum of both estimates in bit/s (§6).
    fn estimate(&self) -> f64 {
        self.delay_based.estimate().min(self.loss_based.estimate)
    }

    /// Returns the pacing rate in bytes per second.
    fn pace(&self) -> f64 {
        self.pacing * self.estimate() / 8.0
    }
}

impl RateControl for Gcc {
    fn on_queue_changed(&mut self, _now: Instant, queue: Queue) {
        self.next = queue.next.get() as f64;
    }

    fn on_sent(&mut self, now: Instant, packet: Sent) {
        self.history.on_sent(now, packet);
        let takes = Duration::from_secs_f64(f64::from(packet.bytes) / self.pace());
        self.paced = self.paced.max(now) + takes;
    }

    fn on_feedback(&mut self, now: Instant, report: &Report<'_>) {
        let mut newest = None;
        for (packet, update) in self.history.updates(now, report) {
            let at = match update {
                Update::Missing => {
                    self.loss_based.expected += 1;
                    self.loss_based.lost += 1;
                    continue;
                }
                Update::Late { at, .. } => {
                    self.loss_based.lost = self.loss_based.lost.saturating_sub(1);
                    at
                }
                Update::Arrived(at) => {
                    self.loss_based.expected += 1;
                    newest = Some((packet.sent, at));
                    at
                }
            };
            self.incoming.on_received(at, packet.bytes);
            self.trendline.on_received(packet.sent, at);
        }
        if let Some((sent, at)) = newest {
            self.round_trip.sample(now, sent, at, report.reported);
        }
        let round_trip = self.round_trip.get().unwrap_or(FIRST_ROUND_TRIP);
        self.delay_based.update(now, self.trendline.usage(), self.incoming.rate(), round_trip);
        self.loss_based.update(now, round_trip);
    }

    fn target(&self) -> Rate {
        rate(self.estimate())
    }

    fn may_send(&self, now: Instant) -> Option<Bytes> {
        let behind = self.paced - now;
        let burst = self.pace() * (BURST.as_secs_f64() - behind.as_secs_f64().max(0.0));
        // A burst holds at least one packet, however low the rate.
        let min_burst = if behind.is_positive() { 0.0 } else { self.next };
        Some(Bytes::new(burst.max(min_burst) as u64))
    }

    fn next_wakeup(&self) -> Instant {
        if self.next > 0.0 { self.paced } else { Instant::FAR_FUTURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        min: Rate::from_bps(100_000),
        start: Rate::from_bps(4_000_000),
        max: Rate::from_bps(20_000_000),
    };

    // Source: draft-ietf-rmcat-gcc-02 §6: × 1.05 below 2 %, unchanged to 10 %, × (1 − 0.5 p) above.
    #[test]
    fn loss_lowers_the_estimate_above_10_percent() {
        for (loss, rate) in [(0.01, 4.2e6), (0.02, 4e6), (0.1, 4e6), (0.2, 3.6e6), (1.0, 2e6)] {
            let mut loss_based = LossBased::new(&BOUNDS);
            loss_based.apply(loss);
            assert_eq!(loss_based.estimate, rate);
        }
    }

    #[test]
    fn loss_is_evaluated_at_most_once_per_round_trip() {
        for (round_trip, evaluations) in [(50, 5), (400, 2)] {
            let mut loss_based = LossBased::new(&BOUNDS);
            let mut steps = 0;
            for tick in 0..=20 {
                let before = loss_based.estimate;
                loss_based.expected += 20;
                loss_based
                    .update(Instant::from_millis(50 * tick), Duration::from_millis(round_trip));
                steps += i32::from(loss_based.estimate != before);
            }
            assert_eq!(steps, evaluations);
        }
    }

    // Source: draft-ietf-rmcat-gcc-02 §4: target · burst_time; at 2.5 · 4 Mbit/s 6250 B in 5 ms.
    #[test]
    fn the_pacer_sends_bursts_of_five_milliseconds() {
        let mut gcc = Gcc::new(&Config::default(), &BOUNDS);
        let now = Instant::from_millis(20);
        assert_eq!(gcc.may_send(now), Some(Bytes::new(6250)));
        for number in 0..5 {
            gcc.on_sent(now, Sent { number, bytes: 1250 });
        }
        assert_eq!(gcc.may_send(now), Some(Bytes::ZERO));
        assert_eq!(gcc.next_wakeup(), Instant::FAR_FUTURE);
        gcc.on_queue_changed(now, Queue { bytes: Bytes::new(2500), next: Bytes::new(1250) });
        assert_eq!(gcc.next_wakeup(), Instant::from_millis(25));
        assert_eq!(gcc.may_send(Instant::from_millis(25)), Some(Bytes::new(6250)));
    }
}
