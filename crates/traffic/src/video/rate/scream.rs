//! SCReAM, self-clocked rate adaptation for multimedia: a congestion window controlled by queue delay, a
//! pacer, and an encoder target controlled by the sender's queue.
//!
//! Source: RFC 8298. The congestion window (§4.1.2.1, §4.1.2.2), loss detection (§4.1.2.4), the send window
//! (§4.1.2.5), pacing (§4.1.2.6) and fast increase (§4.1.2.7) are here, the queue delay is in `queue_delay`,
//! and the target in `media_rate`. ECN is not supported. Choices where the RFC leaves freedom:
//! - While the window is closed a packet is sent every 200 ms, so that feedback resumes after everything in
//!   flight was lost.
//! - The reordering window is the maximum reordering seen, limited to a round trip as in RFC 8985; zero at
//!   first.
//! - The share of round trips with a loss is smoothed by 1/100.
//! - The round-trip time excludes the receiver's delay; before the first sample there is no pacing.

use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Rate, keys};

use super::history::{History, RoundTrip, Update};
use super::media_rate::{MediaRate, Network};
use super::queue_delay::QueueDelay;
use super::{Bounds, Queue, RateControl, RateError, Report, Sent, range, rate};
use crate::about::Kind;

/// Registry entry.
pub const ABOUT: Kind = Kind {
    name: "scream",
    summary: "SCReAM: a window that keeps the delay of the network's queue at a target, packets paced \
              through it, and a target that falls when packets wait in the sender or are lost.",
    parameters: &[
        ("queue_target", "time", "100ms"),
        ("ramp_up", "bit/s each second", "200kbit/s"),
        ("base_history", "time", "10min"),
        ("compete", "true or false", "false"),
    ],
    source: "RFC 8298",
};

/// `MIN_CWND` and `MSS`, in bytes (§4.1.1.1).
const MIN_WINDOW: f64 = 3000.0;
const SEGMENT: f64 = 1000.0;
/// `MAX_BYTES_IN_FLIGHT_HEAD_ROOM`, and the time over which the maximum is taken (§4.1.2.2).
const HEAD_ROOM: f64 = 1.1;
const FLIGHT_SPAN: Duration = Duration::from_millis(500);
const FLIGHT_SPANS: usize = 10;
/// `GAIN`.
const GAIN: f64 = 1.0;
/// `BETA_LOSS`.
const AFTER_LOSS: f64 = 0.8;
/// `QDELAY_TREND_TH` and `QDELAY_TREND_LO`.
const TREND: f64 = 0.2;
/// `T_RESUME_FAST_INCREASE`.
const CALM: Duration = Duration::from_secs(5);
/// `RATE_PACE_MIN`, in bit/s.
const MIN_PACE: f64 = 50_000.0;
/// Interval between packets while the window is closed.
const KEEP_ALIVE: Duration = Duration::from_millis(200);
/// Weight of a round trip in the share of round trips with a loss.
const LOSS_WEIGHT: f64 = 0.01;

keys! {
    /// Parameters of SCReAM.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Config {
        /// Target delay of the network queue (`QDELAY_TARGET_LO`), above zero to 0.4 s.
        pub queue_target: Duration = Duration::from_millis(100),
        /// Maximum rise of the target per second (`RAMP_UP_SPEED`). §4.1.3 names 1000 kbit/s as a high
        /// setting.
        pub ramp_up: Rate = Rate::from_bps(200_000),
        /// Time for which a base delay is kept. RFC 6817 recommends ten minutes; a path that becomes longer looks
        /// congested for that long.
        pub base_history: Duration = Duration::from_secs(600),
        /// Whether a longer queue is accepted next to competing flows (§4.1.2.3), up to 0.4 s. Off by default: the
        /// aircraft's bearer is its own, and the RFC warns of taking one's own queue for another's.
        pub compete: bool = false,
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), RateError> {
        let target = self.queue_target;
        let fits = target.is_positive() && target <= Duration::from_millis(400);
        range("queue_target", fits, "above zero and at most 400ms")?;
        range("ramp_up", self.ramp_up > Rate::ZERO, "above zero")?;
        range("base_history", self.base_history >= Duration::from_secs(1), "at least 1s")
    }
}

/// Maximum bytes in flight over five seconds (`max_bytes_in_flight`), in spans of half a second.
#[derive(Clone, Debug, Default)]
struct MaxInFlight {
    spans: Vec<(i64, f64)>,
}

impl MaxInFlight {
    fn add(&mut self, now: Instant, bytes: f64) {
        let span = now.as_nanos().div_euclid(FLIGHT_SPAN.as_nanos());
        self.spans.retain(|(old, _)| span - old <= FLIGHT_SPANS as i64);
        match self.spans.last_mut() {
            Some((last, max)) if *last == span => *max = max.max(bytes),
            _ => self.spans.push((span, bytes)),
        }
    }

    fn get(&self) -> f64 {
        self.spans.iter().fold(0.0, |max, (_, bytes)| max.max(*bytes))
    }
}

/// SCReAM rate control.
#[derive(Clone, Debug)]
pub struct Scream {
    compete: bool,
    history: History,
    round_trip: RoundTrip,
    queue: QueueDelay,
    media: MediaRate,
    /// `cwnd`, in bytes.
    window: f64,
    fast_increase: bool,
    /// Time since which the trend has been low.
    calm_since: Option<Instant>,
    /// Bytes up to the highest packet received, and those of them since the last update of the window.
    acked: u64,
    newly_acked: f64,
    max_in_flight: MaxInFlight,
    /// Missing packets, each with the time of the report.
    missing: Vec<(u64, Instant)>,
    reordering: Duration,
    loss_event: Option<Instant>,
    /// Share of round trips with a loss, end of the current one, and whether it has had a loss.
    loss_event_rate: f64,
    round_end: Option<Instant>,
    round_lost: bool,
    /// Time before which no packet may be sent.
    paced: Instant,
    last_sent: Instant,
    /// Bytes of the next waiting packet, or zero.
    next: f64,
}

impl Scream {
    pub(super) fn new(config: &Config, bounds: &Bounds) -> Self {
        let never = Instant::from_nanos(i64::MIN);
        Self {
            compete: config.compete,
            history: History::default(),
            round_trip: RoundTrip::default(),
            queue: QueueDelay::new(config.queue_target, config.base_history),
            media: MediaRate::new(bounds, config.ramp_up),
            window: MIN_WINDOW,
            fast_increase: true,
            calm_since: None,
            acked: 0,
            newly_acked: 0.0,
            max_in_flight: MaxInFlight::default(),
            missing: Vec::new(),
            reordering: Duration::ZERO,
            loss_event: None,
            loss_event_rate: 0.0,
            round_end: None,
            round_lost: false,
            paced: never,
            last_sent: never,
            next: 0.0,
        }
    }

    /// Returns the bytes sent after the highest packet received (§4.1.2).
    fn in_flight(&self) -> f64 {
        self.history.total.saturating_sub(self.acked) as f64
    }

    /// Returns the send window (§4.1.2.5, `calculate_send_window`).
    fn send_window(&self) -> f64 {
        let slack = if self.queue.is_above_target() { 0.0 } else { SEGMENT };
        (self.window + slack - self.in_flight()).max(0.0)
    }

    /// Returns the time at which a packet may be sent even if the window is closed.
    fn keep_alive_at(&self) -> Instant {
        self.last_sent + KEEP_ALIVE
    }

    /// Returns whether a packet has been missing for longer than the reordering window (§4.1.2.4).
    fn detect_loss(&mut self, now: Instant) -> bool {
        let window = self.reordering;
        let before = self.missing.len();
        self.missing.retain(|(_, since)| now - *since < window);
        self.missing.len() < before
    }

    /// Handles a loss (§4.1.2.1). Returns `false` if the round trip already had a loss event.
    fn on_loss(&mut self, now: Instant) -> bool {
        let round_trip = self.round_trip.get().unwrap_or(Duration::ZERO);
        if self.loss_event.is_some_and(|last| now - last < round_trip) {
            return false;
        }
        self.loss_event = Some(now);
        self.round_lost = true;
        self.fast_increase = false;
        self.window = MIN_WINDOW.max(AFTER_LOSS * self.window);
        self.newly_acked = 0.0;
        self.media.on_loss();
        true
    }

    /// Updates the congestion window (§4.1.2.2, `update_cwnd`).
    fn update_window(&mut self) {
        let acked = core::mem::take(&mut self.newly_acked);
        let in_flight = self.in_flight();
        if self.fast_increase {
            if self.queue.trend < TREND {
                if in_flight * 1.5 + acked > self.window {
                    self.window += acked;
                }
                return;
            }
            self.fast_increase = false;
            self.media.on_congestion();
        }
        let off = (self.queue.target - self.queue.delay) / self.queue.target;
        let used = in_flight * 1.25 + acked > self.window;
        if off <= 0.0 || used {
            self.window += GAIN * off * acked * SEGMENT / self.window;
        }
        let max = self.max_in_flight.get() * HEAD_ROOM;
        self.window = self.window.min(max).max(MIN_WINDOW);
    }

    /// Resumes fast increase after a calm period (§4.1.2.7).
    fn resume_fast_increase(&mut self, now: Instant) {
        if self.queue.trend >= TREND {
            self.calm_since = None;
            return;
        }
        let since = *self.calm_since.get_or_insert(now);
        // A loss also ends fast increase, and restarts the calm period.
        let since = self.loss_event.map_or(since, |loss| since.max(loss));
        if now - since >= CALM {
            self.fast_increase = true;
        }
    }

    /// Updates the share of round trips with a loss (§4.1.1.2, `loss_event_rate`).
    fn count_rounds(&mut self, now: Instant) {
        let Some(round_trip) = self.round_trip.get() else { return };
        if now >= *self.round_end.get_or_insert(now + round_trip) {
            let lost = f64::from(u8::from(core::mem::take(&mut self.round_lost)));
            self.loss_event_rate += LOSS_WEIGHT * (lost - self.loss_event_rate);
            self.round_end = Some(now + round_trip);
        }
    }

    fn network(&self) -> Network {
        Network {
            fast_increase: self.fast_increase,
            trend: self.queue.trend,
            trend_peak: self.queue.trend_peak,
        }
    }
}

impl RateControl for Scream {
    fn on_queue_changed(&mut self, now: Instant, queue: Queue) {
        self.next = queue.next.get() as f64;
        self.media.on_queue_changed(now, queue.bytes.get());
    }

    fn on_sent(&mut self, now: Instant, packet: Sent) {
        self.history.on_sent(now, packet);
        self.media.on_sent(now, packet.bytes);
        self.max_in_flight.add(now, self.in_flight());
        self.last_sent = now;
        // §4.1.2.6.
        if let Some(round_trip) = self.round_trip.get() {
            let pace = (self.window * 8.0 / round_trip.as_secs_f64()).max(MIN_PACE);
            let takes = Duration::from_secs_f64(f64::from(packet.bytes) * 8.0 / pace);
            self.paced = self.paced.max(now) + takes;
        }
    }

    fn on_feedback(&mut self, now: Instant, report: &Report<'_>) {
        let mut newest = None;
        for (packet, update) in self.history.updates(now, report) {
            match update {
                Update::Missing => {
                    self.missing.push((packet.number, now));
                    continue;
                }
                Update::Late { since, .. } => {
                    let max = self.round_trip.get().unwrap_or(Duration::ZERO);
                    self.reordering = self.reordering.max(now - since).min(max);
                    self.missing.retain(|(number, _)| *number != packet.number);
                }
                Update::Arrived(at) => newest = Some((packet, at)),
            }
            self.media.on_acked(packet.bytes);
        }
        if let Some((packet, at)) = newest {
            self.round_trip.sample(now, packet.sent, at, report.reported);
            if packet.total > self.acked {
                self.newly_acked += (packet.total - self.acked) as f64;
                self.acked = packet.total;
                self.queue.record(now, at - packet.sent);
            }
        }
        self.queue.advance(now);
        self.count_rounds(now);
        if !(self.detect_loss(now) && self.on_loss(now)) {
            self.update_window();
            self.resume_fast_increase(now);
        }
        if self.compete {
            self.queue.adjust_target(self.loss_event_rate);
        }
        self.on_timeout(now);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.queue.advance(now);
        self.media.step(now, &self.network());
    }

    fn target(&self) -> Rate {
        rate(self.media.target())
    }

    fn may_send(&self, now: Instant) -> Option<Bytes> {
        if now < self.paced {
            return Some(Bytes::ZERO);
        }
        let window = self.send_window();
        let window = if now >= self.keep_alive_at() { window.max(self.next) } else { window };
        Some(Bytes::new(window as u64))
    }

    fn next_wakeup(&self) -> Instant {
        let send_at = if self.next == 0.0 {
            Instant::FAR_FUTURE
        } else if self.send_window() >= self.next {
            self.paced
        } else {
            self.keep_alive_at().max(self.paced)
        };
        send_at.min(self.media.due())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arrival;
    use super::*;

    fn ms(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    fn scream() -> Scream {
        let bounds = Bounds {
            min: Rate::from_bps(100_000),
            start: Rate::from_bps(1_000_000),
            max: Rate::from_bps(10_000_000),
        };
        Scream::new(&Config::default(), &bounds)
    }

    /// Sends `count` packets of 1000 B at 0 ms. All but those in `missing` arrive after 20 ms; the report arrives
    /// after 50 ms.
    fn after_a_round(mut scream: Scream, count: u64, missing: &[u64]) -> Scream {
        let start = scream.history.total / 1000;
        for number in start..start + count {
            scream.on_sent(ms(0), Sent { number, bytes: 1000 });
        }
        let arrivals: Vec<_> = (start..start + count)
            .map(|number| Arrival { number, at: (!missing.contains(&number)).then_some(ms(20)) })
            .collect();
        scream.on_feedback(ms(50), &Report { reported: ms(20), arrivals: &arrivals });
        scream
    }

    // Source: RFC 8298 §4.1.2.2: by what is acknowledged, if that and 1.5 times what is in flight is more
    // than the window.
    #[test]
    fn fast_increase_adds_acknowledged_bytes() {
        assert_eq!(after_a_round(scream(), 4, &[]).window, 7000.0);
        assert_eq!(after_a_round(scream(), 3, &[]).window, 3000.0);
    }

    // Source: RFC 8298 §4.1.2.2 with a delay of 25 ms at a target of 100 ms: 0.75 · 10 000 · 1000 / 12 000;
    // with 200 ms: −1 · 10 000 · 1000 / 12 000.
    #[test]
    fn the_window_follows_the_distance_from_the_target() {
        for (delay, window) in [(0.025, 12_625.0), (0.2, 12_000.0 - 10_000.0 / 12.0)] {
            let mut scream = scream();
            scream.fast_increase = false;
            scream.window = 12_000.0;
            scream.newly_acked = 10_000.0;
            scream.history.total = 8_000;
            scream.max_in_flight.add(ms(0), 20_000.0);
            scream.queue.delay = delay;
            scream.update_window();
            assert!((scream.window - window).abs() < 1e-9);
        }
    }

    // Source: RFC 8298 §4.1.2.2: no growth of a window that is not used, and never above 1.1 times the
    // most in flight in five seconds.
    #[test]
    fn an_unused_window_shrinks_to_the_bytes_in_flight() {
        let mut scream = scream();
        scream.fast_increase = false;
        scream.window = 12_000.0;
        scream.newly_acked = 1_000.0;
        scream.max_in_flight.add(ms(0), 20_000.0);
        scream.update_window();
        assert_eq!(scream.window, 12_000.0);
        scream.max_in_flight.add(ms(6_000), 10_000.0);
        scream.update_window();
        assert_eq!(scream.window, 11_000.0);
    }

    // Source: RFC 8298 §4.1.2.1: 0.8 of the window, once per round trip.
    #[test]
    fn losses_of_one_round_trip_are_one_event() {
        let mut control = scream();
        control.window = 20_000.0;
        let control = after_a_round(control, 10, &[3, 5]);
        assert_eq!(control.window, 16_000.0);
        assert_eq!(control.target(), Rate::from_bps(900_000));
        assert!(!control.fast_increase);
        let control = after_a_round(control, 10, &[14]);
        assert_eq!(control.target(), Rate::from_bps(900_000));
    }

    // Source: RFC 8298 §4.1.2.4.
    #[test]
    fn a_late_packet_widens_the_reordering_window() {
        let mut control = after_a_round(scream(), 4, &[1]);
        let late = [Arrival { number: 1, at: Some(ms(30)) }];
        control.on_feedback(ms(80), &Report { reported: ms(60), arrivals: &late });
        assert_eq!(control.reordering, Duration::from_millis(30));
        control.missing.push((9, ms(100)));
        assert!(!control.detect_loss(ms(129)));
        assert!(control.detect_loss(ms(130)));
    }

    // Source: RFC 8298 §4.1.2.5: cwnd + MSS − bytes_in_flight up to the target, cwnd − bytes_in_flight above.
    // §4.1.2.6: 1000 B at 7000 B in a round trip of 50 ms take 50/7 ms.
    #[test]
    fn packets_are_sent_within_the_window_at_its_pace() {
        let mut scream = after_a_round(scream(), 4, &[]);
        let now = ms(60);
        assert_eq!(scream.may_send(now), Some(Bytes::new(8000)));
        scream.on_sent(now, Sent { number: 4, bytes: 1000 });
        assert_eq!(scream.may_send(now), Some(Bytes::ZERO));
        scream.on_queue_changed(now, Queue { bytes: Bytes::new(2000), next: Bytes::new(1000) });
        assert_eq!(scream.next_wakeup(), now + Duration::from_nanos(7_142_857));
        assert_eq!(scream.may_send(ms(68)), Some(Bytes::new(7000)));
        scream.queue.delay = 0.11;
        assert_eq!(scream.may_send(ms(68)), Some(Bytes::new(6000)));
    }

    #[test]
    fn a_closed_window_lets_a_packet_pass_every_200_ms() {
        let mut scream = scream();
        for number in 0..4 {
            scream.on_sent(ms(0), Sent { number, bytes: 1000 });
        }
        scream.on_queue_changed(ms(0), Queue { bytes: Bytes::new(2400), next: Bytes::new(1200) });
        assert_eq!(scream.may_send(ms(199)), Some(Bytes::ZERO));
        assert_eq!(scream.may_send(ms(200)), Some(Bytes::new(1200)));
        scream.on_timeout(ms(200));
        assert_eq!(scream.next_wakeup(), ms(200));
    }

    // Source: RFC 8298 §4.1.2.7.
    #[test]
    fn fast_increase_resumes_after_five_calm_seconds() {
        let mut scream = scream();
        scream.fast_increase = false;
        scream.resume_fast_increase(ms(0));
        scream.queue.trend = 0.3;
        scream.resume_fast_increase(ms(4_000));
        scream.queue.trend = 0.1;
        scream.resume_fast_increase(ms(5_000));
        scream.resume_fast_increase(ms(9_999));
        assert!(!scream.fast_increase);
        scream.resume_fast_increase(ms(10_000));
        assert!(scream.fast_increase);
    }
}
