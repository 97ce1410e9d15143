//! Google congestion control, at the sender: the lesser of what delay and what loss allow.
//!
//! Source: draft-ietf-rmcat-gcc-02; the delay-based half in `trendline` and
//! `aimd`, here the loss-based (§6) and the pacer (§4). Where it leaves freedom: loss is
//! judged once per round trip, but not within `LOSS_INTERVAL` nor on fewer than `LEAST_PACKETS`
//! packets, since a report of five packets knows no loss between none and 20 %. The loss-based
//! estimate follows the draft and stays by itself; WebRTC keeps it below the delay-based one, where 2
//! to 10 % of loss hold a rate that over-use has once lowered. While no report comes nothing changes.

use skybraid_units::{Bytes, Duration, Instant, Rate};

use super::aimd::{Aimd, Incoming};
use super::history::{History, News, RoundTrip};
pub use super::trendline::Threshold;
use super::trendline::Trendline;
use super::{Bounds, Queue, RateControl, RateError, Report, Sent, range, rate};
use crate::about::Kind;

/// For `list` and the documentation.
pub const ABOUT: Kind = Kind {
    name: "gcc",
    summary: "Google congestion control as in WebRTC: growing delay lowers the target to 85 % of what \
              arrives, loss above 10 % lowers it too; loss below 2 % lets it grow.",
    parameters: &[("pacing", "times the target", "2.5"), ("threshold", "draft or webrtc", "draft")],
    source: "draft-ietf-rmcat-gcc-02",
};

/// §4: `burst_time`.
const BURST: Duration = Duration::from_millis(5);
/// Loss is judged no more often.
const LOSS_INTERVAL: Duration = Duration::from_millis(200);
/// Nor on fewer packets (WebRTC).
const LEAST_PACKETS: u32 = 20;
/// §6: below, the estimate grows; above, it falls.
const LITTLE_LOSS: f64 = 0.02;
const MUCH_LOSS: f64 = 0.1;
/// §6.
const LOSS_GROWTH: f64 = 1.05;
/// The round trip before the first report (WebRTC).
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(200);

/// How packets leave.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// At how many times the target the pacer sends, at least 1. The draft's is 1, with which a
    /// queue that an over-long frame leaves never drains; WebRTC's, the default, is 2.5.
    pub pacing: f64,
    /// How the threshold of over-use moves.
    pub threshold: Threshold,
}

impl Default for Config {
    fn default() -> Self {
        Self { pacing: 2.5, threshold: Threshold::Draft }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), RateError> {
        range("pacing", (1.0..=1000.0).contains(&self.pacing), "from 1 to 1000")
    }
}

/// §6.
#[derive(Clone, Debug)]
struct LossBased {
    bounds: Bounds,
    /// As_hat, in bit/s.
    estimate: f64,
    expected: u32,
    lost: u32,
    judged: Option<Instant>,
}

impl LossBased {
    fn new(bounds: &Bounds) -> Self {
        Self { bounds: *bounds, estimate: bounds.first(), expected: 0, lost: 0, judged: None }
    }

    fn update(&mut self, now: Instant, round_trip: Duration) {
        let judged = *self.judged.get_or_insert(now);
        if self.expected < LEAST_PACKETS || now - judged < round_trip.max(LOSS_INTERVAL) {
            return;
        }
        self.judge(f64::from(self.lost) / f64::from(self.expected));
        self.judged = Some(now);
        self.expected = 0;
        self.lost = 0;
    }

    /// This share of the packets was lost.
    fn judge(&mut self, loss: f64) {
        let estimate = if loss > MUCH_LOSS {
            self.estimate * (1.0 - 0.5 * loss)
        } else if loss < LITTLE_LOSS {
            self.estimate * LOSS_GROWTH
        } else {
            self.estimate
        };
        self.estimate = self.bounds.hold(estimate);
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
    /// When all that was sent has left at the pace.
    paced: Instant,
    /// Bytes of the packet that waits to leave, or zero.
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

    /// In bit/s. §6: the lesser of both.
    fn estimate(&self) -> f64 {
        self.delay_based.estimate().min(self.loss_based.estimate)
    }

    /// In bytes per second.
    fn pace(&self) -> f64 {
        self.pacing * self.estimate() / 8.0
    }
}

impl RateControl for Gcc {
    fn queued(&mut self, _now: Instant, queue: Queue) {
        self.next = queue.next.get() as f64;
    }

    fn sent(&mut self, now: Instant, packet: Sent) {
        self.history.sent(now, packet);
        let takes = Duration::from_secs_f64(f64::from(packet.bytes) / self.pace());
        self.paced = self.paced.max(now) + takes;
    }

    fn feedback(&mut self, now: Instant, report: &Report<'_>) {
        let mut newest = None;
        for (packet, news) in self.history.news(now, report) {
            let at = match news {
                News::Missing => {
                    self.loss_based.expected += 1;
                    self.loss_based.lost += 1;
                    continue;
                }
                News::Late { at, .. } => {
                    self.loss_based.lost = self.loss_based.lost.saturating_sub(1);
                    at
                }
                News::Arrived(at) => {
                    self.loss_based.expected += 1;
                    newest = Some((packet.sent, at));
                    at
                }
            };
            self.incoming.arrived(at, packet.bytes);
            self.trendline.arrived(packet.sent, at);
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
        let least = if behind.is_positive() { 0.0 } else { self.next };
        Some(Bytes::new(burst.max(least) as u64))
    }

    fn next_wakeup(&self) -> Instant {
        if self.next > 0.0 { self.paced } else { Instant::FAR_FUTURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        least: Rate::from_bps(100_000),
        start: Rate::from_bps(4_000_000),
        most: Rate::from_bps(20_000_000),
    };

    // Source: draft-ietf-rmcat-gcc-02 §6: × 1.05 below 2 %, unchanged to 10 %, × (1 − 0.5 p) above.
    #[test]
    fn loss_counts_above_a_tenth_and_below_a_fiftieth() {
        for (loss, rate) in [(0.01, 4.2e6), (0.02, 4e6), (0.1, 4e6), (0.2, 3.6e6), (1.0, 2e6)] {
            let mut loss_based = LossBased::new(&BOUNDS);
            loss_based.judge(loss);
            assert_eq!(loss_based.estimate, rate);
        }
    }

    #[test]
    fn loss_is_judged_once_in_200_ms_or_a_longer_round_trip() {
        for (round_trip, judged) in [(50, 5), (400, 2)] {
            let mut loss_based = LossBased::new(&BOUNDS);
            let mut steps = 0;
            for tick in 0..=20 {
                let before = loss_based.estimate;
                loss_based.expected += 20;
                loss_based
                    .update(Instant::from_millis(50 * tick), Duration::from_millis(round_trip));
                steps += i32::from(loss_based.estimate != before);
            }
            assert_eq!(steps, judged);
        }
    }

    // Source: draft-ietf-rmcat-gcc-02 §4: target · burst_time; at 2.5 · 4 Mbit/s 6250 B in 5 ms.
    #[test]
    fn the_pacer_lets_five_milliseconds_go_at_once() {
        let mut gcc = Gcc::new(&Config::default(), &BOUNDS);
        let now = Instant::from_millis(20);
        assert_eq!(gcc.may_send(now), Some(Bytes::new(6250)));
        for number in 0..5 {
            gcc.sent(now, Sent { number, bytes: 1250 });
        }
        assert_eq!(gcc.may_send(now), Some(Bytes::ZERO));
        assert_eq!(gcc.next_wakeup(), Instant::FAR_FUTURE);
        gcc.queued(now, Queue { bytes: Bytes::new(2500), next: Bytes::new(1250) });
        assert_eq!(gcc.next_wakeup(), Instant::from_millis(25));
        assert_eq!(gcc.may_send(Instant::from_millis(25)), Some(Bytes::new(6250)));
    }
}
