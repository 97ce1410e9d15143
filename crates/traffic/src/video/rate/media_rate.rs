//! SCReAM's target rate of the encoder.
//!
//! Source: RFC 8298 §4.1.3. Choices where the RFC leaves freedom:
//! - The size of the sender's queue is its minimum since the last step. A frame enters at once and is paced
//!   out over a frame interval, so that the momentary size reflects the phase of the frames more than
//!   congestion: 200 ms are only six frames at 30 per second.
//! - `target_bitrate_last_max` is the target at the last loss or end of fast increase.
//! - `rate_media` is the rate into the queue: the rate out of it plus its growth.
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant, Rate};

use super::{Bounds, bps};

/// `RATE_ADJUST_INTERVAL` (RFC 8298 §4.1.1.1).
const INTERVAL: Duration = Duration::from_millis(200);
/// `BETA_R`.
const AFTER_LOSS: f64 = 0.9;
/// `PRE_CONGESTION_GUARD`.
const GUARD: f64 = 0.1;
/// `TX_QUEUE_SIZE_FACTOR`.
const QUEUE_FACTOR: f64 = 1.0;
/// `RTP_QDELAY_TH`, in s.
const LONG_QUEUE: f64 = 0.02;
/// `TARGET_RATE_SCALE_RTP_QDELAY`.
const WITH_LONG_QUEUE: f64 = 0.95;
/// Number of samples of `rate_media_median`, which covers more than 10 s (§4.1.1.2).
const MEDIAN_OVER: usize = 51;

/// State of the network at a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    pub fast_increase: bool,
    /// `qdelay_trend`.
    pub trend: f64,
    /// `qdelay_trend_mem`.
    pub trend_peak: f64,
}

/// Target rate of the encoder.
#[derive(Clone, Debug)]
pub(super) struct MediaRate {
    bounds: Bounds,
    /// `RAMP_UP_SPEED`, in bit/s per second.
    ramp_up: f64,
    /// `target_bitrate`, in bit/s.
    target: f64,
    /// `target_bitrate_last_max`, in bit/s.
    last_max: f64,
    since: Option<Instant>,
    /// Bits sent, acknowledged and queued since the last step.
    sent: f64,
    acked: f64,
    entered: f64,
    /// Current `rtp_queue_size`, and its minimum since the last step, in bits.
    queue: f64,
    min_queue: f64,
    /// `rate_media` at the last steps.
    media: VecDeque<f64>,
}

impl MediaRate {
    pub fn new(bounds: &Bounds, ramp_up: Rate) -> Self {
        Self {
            bounds: *bounds,
            ramp_up: bps(ramp_up),
            target: bounds.first(),
            last_max: 1.0,
            since: None,
            sent: 0.0,
            acked: 0.0,
            entered: 0.0,
            queue: 0.0,
            min_queue: 0.0,
            media: VecDeque::with_capacity(MEDIAN_OVER + 1),
        }
    }

    /// Returns the target in bit/s.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// Returns the time of the next step.
    pub fn due(&self) -> Instant {
        self.since.map_or(Instant::FAR_FUTURE, |since| since + INTERVAL)
    }

    pub fn on_queue_changed(&mut self, now: Instant, bytes: u64) {
        self.since.get_or_insert(now);
        let bits = bytes as f64 * 8.0;
        self.entered += bits - self.queue;
        self.queue = bits;
        self.min_queue = self.min_queue.min(bits);
    }

    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.since.get_or_insert(now);
        self.sent += f64::from(bytes) * 8.0;
    }

    pub fn on_acked(&mut self, bytes: u32) {
        self.acked += f64::from(bytes) * 8.0;
    }

    /// Records congestion at the current target.
    pub fn on_congestion(&mut self) {
        self.last_max = self.target;
    }

    /// Handles a loss event.
    pub fn on_loss(&mut self) {
        self.on_congestion();
        self.target = self.bounds.clamp(AFTER_LOSS * self.target);
    }

    /// Performs the step if it is due.
    pub fn step(&mut self, now: Instant, network: &Network) {
        let Some(since) = self.since else { return };
        let passed = (now - since).as_secs_f64();
        if now < since + INTERVAL {
            return;
        }
        let media = ((self.sent + self.entered) / passed).max(0.0);
        self.media.push_back(media);
        if self.media.len() > MEDIAN_OVER {
            self.media.pop_front();
        }
        let current = self.sent.max(self.acked) / passed;
        self.adjust(current, media.max(self.median()), network);
        self.since = Some(now);
        self.sent = 0.0;
        self.acked = 0.0;
        self.entered = 0.0;
        self.min_queue = self.queue;
    }

    fn median(&self) -> f64 {
        let mut sorted: Vec<f64> = self.media.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().promised("a sample of the rate").unwrap_or(0.0)
    }

    /// Updates the target (§4.1.3), with the throughput and the encoder's rate in bit/s.
    fn adjust(&mut self, current: f64, media: f64, network: &Network) {
        let interval = INTERVAL.as_secs_f64();
        let ramp_up = self.ramp_up.min(self.target / 2.0) * interval;
        let off = 4.0 * (self.target - self.last_max) / self.last_max;
        let scale = (off * off).clamp(0.2, 1.0);
        if network.fast_increase {
            self.target += ramp_up * scale;
        } else {
            let delta = current * (1.0 - GUARD * network.trend) - QUEUE_FACTOR * self.min_queue;
            self.target += if delta > 0.0 { (delta * scale).min(ramp_up) } else { delta };
            // A product instead of a quotient, so that a queue without throughput is long.
            if self.min_queue > LONG_QUEUE * current {
                self.target *= WITH_LONG_QUEUE;
            }
        }
        let limit = current.max(media) * (2.0 - network.trend_peak);
        self.target = self.bounds.clamp(self.target.min(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Network = Network { fast_increase: true, trend: 0.0, trend_peak: 0.0 };
    const TRENDING: Network = Network { fast_increase: false, trend: 0.5, trend_peak: 0.5 };

    fn media() -> MediaRate {
        let bounds = Bounds {
            min: Rate::from_bps(100_000),
            start: Rate::from_bps(1_000_000),
            max: Rate::from_bps(10_000_000),
        };
        MediaRate::new(&bounds, Rate::from_bps(200_000))
    }

    fn adjusted(media: &mut MediaRate, current: f64, network: &Network) -> f64 {
        media.adjust(current, current, network);
        libm::round(media.target())
    }

    // Source: RFC 8298 §4.1.3: 200 kbit/s² · 0.2 s = 40 kbit/s; at a low rate half of it a second.
    #[test]
    fn fast_increase_ramps_up_at_the_configured_speed() {
        let mut media = media();
        assert_eq!(adjusted(&mut media, 1e6, &CALM), 1_040_000.0);
        media.target = 200_000.0;
        assert_eq!(adjusted(&mut media, 1e6, &CALM), 220_000.0);
    }

    // Source: RFC 8298 §4.1.3: (4 · −0.1)² = 0.16, held at 0.2; (4 · −0.2)² = 0.64.
    #[test]
    fn the_ramp_is_slower_near_the_rate_of_past_congestion() {
        let mut media = media();
        for (target, after) in [(900_000.0, 908_000.0), (800_000.0, 825_600.0)] {
            media.last_max = 1e6;
            media.target = target;
            assert_eq!(adjusted(&mut media, 1e6, &CALM), after);
        }
    }

    // Source: RFC 8298 §4.1.3: 0.3 Mbit/s · 0.95 − 0.5 Mbit = −0.215 Mbit/s, then · 0.95 since the queue
    // holds more than 20 ms; the limit is 1.5 times what the encoder makes.
    #[test]
    fn a_queue_in_the_sender_lowers_the_target() {
        let mut media = media();
        media.min_queue = 500_000.0;
        media.adjust(300_000.0, 1e6, &TRENDING);
        assert_eq!(libm::round(media.target()), libm::round(785_000.0 * 0.95));
        media.min_queue = 5_999.0;
        media.target = 500_000.0;
        media.adjust(300_000.0, 1e6, &TRENDING);
        assert_eq!(libm::round(media.target()), 540_000.0);
    }

    // Source: RFC 8298 §4.1.3: at most (2 − qdelay_trend_mem) times what is sent or made.
    #[test]
    fn a_remembered_trend_limits_the_target_by_the_rate_in_use() {
        let mut media = media();
        assert_eq!(adjusted(&mut media, 400_000.0, &TRENDING), 600_000.0);
    }

    #[test]
    fn a_loss_event_lowers_the_target_at_once() {
        let mut media = media();
        media.on_loss();
        assert_eq!(media.target(), 900_000.0);
        assert_eq!(media.last_max, 1e6);
    }

    #[test]
    fn a_step_measures_sent_acknowledged_and_encoded_rates() {
        let mut media = media();
        media.on_queue_changed(Instant::ZERO, 25_000);
        media.on_sent(Instant::ZERO, 12_500);
        media.on_queue_changed(Instant::ZERO, 12_500);
        media.on_acked(5_000);
        media.step(Instant::from_millis(199), &CALM);
        assert_eq!(media.target(), 1e6);
        media.step(Instant::from_millis(200), &CALM);
        // 1 Mbit/s was made.
        assert_eq!(media.median(), 1e6);
        assert_eq!(media.target(), 1_040_000.0);
        assert_eq!(media.due(), Instant::from_millis(400));
    }
}
