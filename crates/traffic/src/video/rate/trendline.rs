//! Inter-group delay trend: arrival-time filter and over-use detector.
//!
//! Source: draft-ietf-rmcat-gcc-02 §5.1, §5.2, §5.4. In place of the draft's Kalman filter (§5.3) it uses the
//! slope of the smoothed delay over the last twenty groups, as WebRTC does today; values from WebRTC are
//! marked. The adaptation of the threshold is the draft's or WebRTC's ([`Threshold`]).

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

/// `burst_time` (§5.6).
const BURST: Duration = Duration::from_millis(5);
/// Maximum length of a burst (WebRTC). Otherwise a long draining queue would be one group and hidden from
/// the detector.
const MAX_BURST: Duration = Duration::from_millis(100);
/// Number of groups over which the slope is taken (WebRTC).
const WINDOW: usize = 20;
/// Weight of the previous value in the smoothed delay (WebRTC).
const SMOOTHING: f64 = 0.9;
/// Factor from slope to trend, in ms (WebRTC): the delay accumulated at this slope over four times the number of
/// groups, limited to 60, a millisecond apart.
const GAIN: f64 = 4.0;
const MAX_GROUPS: u32 = 60;
/// `del_var_th(0)` and `overuse_time_th`, in ms (§5.6).
const THRESHOLD: f64 = 12.5;
const OVER_USE_TIME: f64 = 10.0;
/// Range of the threshold, and distance above it beyond which an estimate is an outlier, in ms (§5.4).
const MIN_THRESHOLD: f64 = 6.0;
const MAX_THRESHOLD: f64 = 600.0;
const OUTLIER: f64 = 15.0;
/// Maximum time step of the threshold's adaptation, in ms (WebRTC).
const MAX_STEP: f64 = 100.0;

/// Gains of the detector's threshold towards the trend, up and down, in 1/ms.
///
/// The draft's gains were tuned for another filter. Near convergence the estimate grows by about 30 kbit/s per
/// second, so that at 10 Mbit/s the trend reaches the minimum threshold, an over-use of 2.5 %, only 8 s
/// after the link rate was exceeded, and keeps rising slowly. A threshold that rises within 100 ms and falls
/// within 6 s stays just above it, and from about 8 Mbit/s on a buffer of 300 ms fills and stays full. WebRTC's
/// threshold falls within 26 ms, so that the over-use is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// `K_u` 0.01, `K_d` 0.00018 (draft-ietf-rmcat-gcc-02 §5.6).
    #[default]
    Draft,
    /// `K_u` 0.0087, `K_d` 0.039 (WebRTC).
    Webrtc,
}

impl Threshold {
    fn gains(self) -> (f64, f64) {
        match self {
            Self::Draft => (0.01, 0.00018),
            Self::Webrtc => (0.0087, 0.039),
        }
    }
}

/// Signal of the over-use detector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Usage {
    /// Queues drain.
    Under,
    /// Queues are steady.
    #[default]
    Normal,
    /// Queues grow.
    Over,
}

/// Packets sent or received in one burst. Departure times are of the sender's clock, arrival times of
/// the receiver's.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent: Instant,
    last_sent: Instant,
    first_at: Instant,
    last_at: Instant,
}

impl Group {
    fn new(sent: Instant, at: Instant) -> Self {
        Self { first_sent: sent, last_sent: sent, first_at: at, last_at: at }
    }

    /// Returns whether a packet belongs to the burst (§5.2).
    fn includes(&self, sent: Instant, at: Instant) -> bool {
        let gap = at - self.last_at;
        sent - self.first_sent <= BURST
            || (gap < BURST
                && gap - (sent - self.last_sent) < Duration::ZERO
                && at - self.first_at < MAX_BURST)
    }
}

/// Arrival-time filter and over-use detector.
#[derive(Clone, Debug)]
pub(super) struct Trendline {
    gains: (f64, f64),
    current: Option<Group>,
    previous: Option<Group>,
    /// Origin of arrival times.
    origin: Instant,
    /// Arrival time and smoothed delay of the last groups, in ms.
    points: VecDeque<(f64, f64)>,
    groups: u32,
    accumulated: f64,
    smoothed: f64,
    trend: f64,
    threshold: f64,
    /// Duration of the current over-use in ms, and its number of groups.
    over: Option<(f64, u32)>,
    usage: Usage,
}

impl Trendline {
    pub fn new(threshold: Threshold) -> Self {
        Self {
            gains: threshold.gains(),
            current: None,
            previous: None,
            origin: Instant::ZERO,
            points: VecDeque::with_capacity(WINDOW + 1),
            groups: 0,
            accumulated: 0.0,
            smoothed: 0.0,
            trend: 0.0,
            threshold: THRESHOLD,
            over: None,
            usage: Usage::Normal,
        }
    }

    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Handles a packet sent at `sent` and received at `at`.
    pub fn on_received(&mut self, sent: Instant, at: Instant) {
        let Some(group) = &mut self.current else {
            self.origin = at;
            self.current = Some(Group::new(sent, at));
            return;
        };
        if sent < group.first_sent {
            return;
        }
        if group.includes(sent, at) {
            group.last_sent = group.last_sent.max(sent);
            group.last_at = group.last_at.max(at);
            return;
        }
        let group = *group;
        if let Some(before) = self.previous.replace(group) {
            // §5.1: d(i) = t(i) − t(i−1) − (T(i) − T(i−1)). A group that overtook its predecessor counts too;
            // otherwise alternating paths would look like a delay that only rises.
            let between_arrivals = group.last_at - before.last_at;
            let between_departures = group.last_sent - before.last_sent;
            self.add_point(
                (between_arrivals - between_departures).as_millis_f64(),
                between_departures.as_millis_f64(),
                between_arrivals.as_millis_f64(),
                (group.last_at - self.origin).as_millis_f64(),
            );
        }
        self.current = Some(Group::new(sent, at));
    }

    /// Adds a group at `at` ms with delay variation `delay`, sent `sent` ms and received `arrived` ms after the
    /// previous group.
    fn add_point(&mut self, delay: f64, sent: f64, arrived: f64, at: f64) {
        self.groups = (self.groups + 1).min(MAX_GROUPS);
        self.accumulated += delay;
        self.smoothed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * self.accumulated;
        self.points.push_back((at, self.smoothed));
        if self.points.len() > WINDOW {
            self.points.pop_front();
        }
        if self.points.len() == WINDOW {
            let trend = GAIN * f64::from(self.groups) * slope(&self.points);
            self.detect(trend, sent, arrived);
        }
    }

    /// Updates the over-use signal (§5.4).
    fn detect(&mut self, trend: f64, sent: f64, arrived: f64) {
        if trend > self.threshold {
            // Over-use started between the two groups (WebRTC: half-way).
            let (time, count) = match self.over {
                Some((time, count)) => (time + sent, count + 1),
                None => (sent / 2.0, 1),
            };
            self.over = Some((time, count));
            if time > OVER_USE_TIME && count > 1 && trend >= self.trend {
                self.over = None;
                self.usage = Usage::Over;
            }
        } else {
            self.over = None;
            self.usage = if trend < -self.threshold { Usage::Under } else { Usage::Normal };
        }
        self.trend = trend;
        self.adapt(trend.abs(), arrived);
    }

    /// Adapts the threshold (§5.4): del_var_th(i) = del_var_th(i−1) + Δt · K(i) · (|m(i)| − del_var_th(i−1)).
    fn adapt(&mut self, trend: f64, arrived: f64) {
        if trend - self.threshold > OUTLIER {
            return;
        }
        let (up, down) = self.gains;
        let gain = if trend < self.threshold { down } else { up };
        self.threshold += arrived.clamp(0.0, MAX_STEP) * gain * (trend - self.threshold);
        self.threshold = self.threshold.clamp(MIN_THRESHOLD, MAX_THRESHOLD);
    }
}

/// Returns the slope of the least-squares line.
fn slope(points: &VecDeque<(f64, f64)>) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), point| {
        (above + (point.0 - x) * (point.1 - y), below + (point.0 - x) * (point.0 - x))
    });
    if below > 0.0 { above / below } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: f64) -> Instant {
        Instant::from_secs_f64(millis * 1e-3)
    }

    /// Feeds a packet each 10 ms, each delayed by `rise` ms more than its predecessor.
    fn fed(rise: f64, packets: u32) -> Trendline {
        let mut trendline = Trendline::new(Threshold::Draft);
        for number in 0..packets {
            let sent = 10.0 * f64::from(number);
            trendline.on_received(ms(sent), ms(50.0 + sent + rise * f64::from(number)));
        }
        trendline
    }

    #[test]
    fn rising_delay_is_over_use_and_falling_delay_under_use() {
        assert_eq!(fed(0.0, 100).usage(), Usage::Normal);
        assert_eq!(fed(1.0, 100).usage(), Usage::Over);
        assert_eq!(fed(-1.0, 100).usage(), Usage::Under);
        assert_eq!(fed(1.0, 20).usage(), Usage::Normal);
    }

    #[test]
    fn the_slope_is_that_of_a_line_through_the_points() {
        let points = (0..20).map(|x| (f64::from(x), 3.0 - 0.25 * f64::from(x))).collect();
        assert!((slope(&points) + 0.25).abs() < 1e-12);
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)].into()), 0.0);
    }

    // Source: draft-ietf-rmcat-gcc-02 §5.4: 12.5 + 20 · 0.01 · (20 − 12.5) = 14; then
    // 14 + 20 · 0.00018 · (0 − 14) = 13.9496; 40 is an outlier; never below 6.
    #[test]
    fn the_threshold_rises_fast_and_falls_slowly() {
        let mut trendline = Trendline::new(Threshold::Draft);
        for (trend, threshold) in [(20.0, 14.0), (0.0, 13.9496), (40.0, 13.9496)] {
            trendline.adapt(trend, 20.0);
            assert!((trendline.threshold - threshold).abs() < 1e-12);
        }
        for _ in 0..10_000 {
            trendline.adapt(0.0, 100.0);
        }
        assert_eq!(trendline.threshold, 6.0);
    }

    // Source: draft-ietf-rmcat-gcc-02 §5.4: for at least 10 ms, and not while the estimate falls.
    #[test]
    fn over_use_is_signalled_after_10_ms_unless_the_trend_falls() {
        let mut trendline = Trendline::new(Threshold::Draft);
        trendline.detect(13.0, 8.0, 8.0);
        assert_eq!(trendline.usage(), Usage::Normal);
        trendline.detect(12.9, 8.0, 8.0);
        assert_eq!(trendline.usage(), Usage::Normal);
        trendline.detect(13.5, 8.0, 8.0);
        assert_eq!(trendline.usage(), Usage::Over);
    }

    #[test]
    fn alternating_paths_are_no_over_use() {
        let mut trendline = Trendline::new(Threshold::Draft);
        for number in 0..1000 {
            let sent = 10.0 * f64::from(number);
            trendline.on_received(ms(sent), ms(20.0 + sent + 40.0 * f64::from(number % 2)));
            assert_eq!(trendline.usage(), Usage::Normal);
        }
        assert!(trendline.accumulated.abs() <= 40.0);
    }

    #[test]
    fn packets_delivered_at_once_after_an_outage_are_one_group() {
        let mut trendline = Trendline::new(Threshold::Draft);
        for number in 0..40 {
            let sent = 10.0 * f64::from(number);
            trendline.on_received(ms(sent), ms(400.0 + f64::from(number)));
        }
        assert_eq!(trendline.points.len(), 0);
        assert!(trendline.previous.is_none());
    }
}
