//! Whether the delay of groups of packets rises: arrival-time filter and over-use detector.
//!
//! Source: draft-ietf-rmcat-gcc-02 §5.1, §5.2, §5.4. In place of the draft's Kalman filter (§5.3) the
//! slope of the smoothed delay over the last twenty groups, as WebRTC does today; its figures are
//! marked. How the threshold moves can be the draft's or WebRTC's ([`Threshold`]).

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

/// §5.6: `burst_time`.
const BURST: Duration = Duration::from_millis(5);
/// A burst that lasts longer is no longer one (WebRTC): a long queue that drains would otherwise be
/// one group, and the detector would hear nothing of it.
const LONGEST_BURST: Duration = Duration::from_millis(100);
/// Over how many groups the slope is taken (WebRTC).
const WINDOW: usize = 20;
/// How much the delay before counts in the smoothed delay (WebRTC).
const SMOOTHING: f64 = 0.9;
/// From slope to what the threshold is compared with, in ms (WebRTC): the delay that this slope
/// gathers in four times so many groups, but at most 60, a millisecond apart.
const GAIN: f64 = 4.0;
const MOST_GROUPS: u32 = 60;
/// §5.6: `del_var_th(0)`, `overuse_time_th`, in ms.
const THRESHOLD: f64 = 12.5;
const OVER_USE_TIME: f64 = 10.0;
/// §5.4: the threshold's range, and how far above it an estimate is an outlier, in ms.
const LEAST_THRESHOLD: f64 = 6.0;
const MOST_THRESHOLD: f64 = 600.0;
const OUTLIER: f64 = 15.0;
/// How long a pause counts at most when the threshold moves (WebRTC), in ms.
const LONGEST_STEP: f64 = 100.0;

/// How the detector's threshold follows the trend, up and down, in 1/ms.
///
/// The draft's was tuned for another filter. Near convergence the estimate grows by some 30 kbit/s each
/// second, so that at 10 Mbit/s the trend reaches the least threshold, an over-use of 2.5 %, only 8 s
/// after the link's rate was passed, and creeps on from there. A threshold that rises within 100 ms and
/// falls within 6 s stays just above it, and from about 8 Mbit/s on a buffer of 300 ms fills and stays
/// full. WebRTC's falls within 26 ms and lets the over-use be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// draft-ietf-rmcat-gcc-02 §5.6: `K_u` 0.01, `K_d` 0.00018.
    #[default]
    Draft,
    /// 0.0087 and 0.039.
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

/// What the delay says of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Usage {
    /// Queues empty themselves.
    Under,
    /// Queues are steady.
    #[default]
    Normal,
    /// Queues grow.
    Over,
}

/// Packets that were sent, or arrived, in one burst. Times of departure are the sender's, of arrival
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

    /// §5.2.
    fn has(&self, sent: Instant, at: Instant) -> bool {
        let gap = at - self.last_at;
        sent - self.first_sent <= BURST
            || (gap < BURST
                && gap - (sent - self.last_sent) < Duration::ZERO
                && at - self.first_at < LONGEST_BURST)
    }
}

/// The filter and the detector.
#[derive(Clone, Debug)]
pub(super) struct Trendline {
    gains: (f64, f64),
    current: Option<Group>,
    previous: Option<Group>,
    /// Since this arrival times are counted.
    origin: Instant,
    /// Arrival and smoothed delay of the last groups, in ms.
    points: VecDeque<(f64, f64)>,
    groups: u32,
    gathered: f64,
    smoothed: f64,
    trend: f64,
    threshold: f64,
    /// How long the path has been over-used, in ms, and in how many groups.
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
            gathered: 0.0,
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

    /// A packet arrived.
    pub fn arrived(&mut self, sent: Instant, at: Instant) {
        let Some(group) = &mut self.current else {
            self.origin = at;
            self.current = Some(Group::new(sent, at));
            return;
        };
        if sent < group.first_sent {
            return;
        }
        if group.has(sent, at) {
            group.last_sent = group.last_sent.max(sent);
            group.last_at = group.last_at.max(at);
            return;
        }
        let group = *group;
        if let Some(before) = self.previous.replace(group) {
            // §5.1: d(i) = t(i) − t(i−1) − (T(i) − T(i−1)); a group that overtook the one before counts
            // too, or two paths in turn would look like a delay that only rises.
            let between_arrivals = group.last_at - before.last_at;
            let between_departures = group.last_sent - before.last_sent;
            self.point(
                (between_arrivals - between_departures).as_millis_f64(),
                between_departures.as_millis_f64(),
                between_arrivals.as_millis_f64(),
                (group.last_at - self.origin).as_millis_f64(),
            );
        }
        self.current = Some(Group::new(sent, at));
    }

    /// A group came `delay` ms later than the one before, of which it was sent `sent` ms and arrived
    /// `arrived` ms after, at `at` ms.
    fn point(&mut self, delay: f64, sent: f64, arrived: f64, at: f64) {
        self.groups = (self.groups + 1).min(MOST_GROUPS);
        self.gathered += delay;
        self.smoothed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * self.gathered;
        self.points.push_back((at, self.smoothed));
        if self.points.len() > WINDOW {
            self.points.pop_front();
        }
        if self.points.len() == WINDOW {
            let trend = GAIN * f64::from(self.groups) * slope(&self.points);
            self.detect(trend, sent, arrived);
        }
    }

    /// §5.4.
    fn detect(&mut self, trend: f64, sent: f64, arrived: f64) {
        if trend > self.threshold {
            // The path was over-used from somewhere between the two groups on (WebRTC: half-way).
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

    /// §5.4: del_var_th(i) = del_var_th(i−1) + Δt · K(i) · (|m(i)| − del_var_th(i−1)).
    fn adapt(&mut self, trend: f64, arrived: f64) {
        if trend - self.threshold > OUTLIER {
            return;
        }
        let (up, down) = self.gains;
        let gain = if trend < self.threshold { down } else { up };
        self.threshold += arrived.clamp(0.0, LONGEST_STEP) * gain * (trend - self.threshold);
        self.threshold = self.threshold.clamp(LEAST_THRESHOLD, MOST_THRESHOLD);
    }
}

/// The slope of the least-squares line.
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

    /// A packet each 10 ms; each is `rise` ms later than the one before.
    fn fed(rise: f64, packets: u32) -> Trendline {
        let mut trendline = Trendline::new(Threshold::Draft);
        for number in 0..packets {
            let sent = 10.0 * f64::from(number);
            trendline.arrived(ms(sent), ms(50.0 + sent + rise * f64::from(number)));
        }
        trendline
    }

    #[test]
    fn a_steady_delay_is_normal_a_rising_one_over_use_a_falling_one_under_use() {
        assert_eq!(fed(0.0, 100).usage(), Usage::Normal);
        assert_eq!(fed(1.0, 100).usage(), Usage::Over);
        assert_eq!(fed(-1.0, 100).usage(), Usage::Under);
        assert_eq!(fed(1.0, 20).usage(), Usage::Normal);
    }

    #[test]
    fn the_slope_is_that_of_the_line_through_the_points() {
        let points = (0..20).map(|x| (f64::from(x), 3.0 - 0.25 * f64::from(x))).collect();
        assert!((slope(&points) + 0.25).abs() < 1e-12);
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)].into()), 0.0);
    }

    // Source: draft-ietf-rmcat-gcc-02 §5.4: 12.5 + 20 · 0.01 · (20 − 12.5) = 14; then
    // 14 + 20 · 0.00018 · (0 − 14) = 13.9496; 40 is an outlier; never below 6.
    #[test]
    fn the_threshold_follows_the_estimate_up_fast_and_down_slowly() {
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
    fn over_use_is_signalled_after_ten_milliseconds_unless_the_estimate_falls() {
        let mut trendline = Trendline::new(Threshold::Draft);
        trendline.detect(13.0, 8.0, 8.0);
        assert_eq!(trendline.usage(), Usage::Normal);
        trendline.detect(12.9, 8.0, 8.0);
        assert_eq!(trendline.usage(), Usage::Normal);
        trendline.detect(13.5, 8.0, 8.0);
        assert_eq!(trendline.usage(), Usage::Over);
    }

    #[test]
    fn two_paths_in_turn_are_no_over_use() {
        let mut trendline = Trendline::new(Threshold::Draft);
        for number in 0..1000 {
            let sent = 10.0 * f64::from(number);
            trendline.arrived(ms(sent), ms(20.0 + sent + 40.0 * f64::from(number % 2)));
            assert_eq!(trendline.usage(), Usage::Normal);
        }
        assert!(trendline.gathered.abs() <= 40.0);
    }

    #[test]
    fn packets_that_an_outage_delivers_at_once_are_one_group() {
        let mut trendline = Trendline::new(Threshold::Draft);
        for number in 0..40 {
            let sent = 10.0 * f64::from(number);
            trendline.arrived(ms(sent), ms(400.0 + f64::from(number)));
        }
        assert_eq!(trendline.points.len(), 0);
        assert!(trendline.previous.is_none());
    }
}
