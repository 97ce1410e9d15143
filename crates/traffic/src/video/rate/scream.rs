//! SCReAM, self-clocked rate adaptation for multimedia: a window by queue delay, a pacer, and a target
//! for the encoder by what the window leaves waiting.
//!
//! Source: RFC 8298; here the congestion window (§4.1.2.1, §4.1.2.2), loss detection (§4.1.2.4), the
//! send window (§4.1.2.5), pacing (§4.1.2.6) and fast increase (§4.1.2.7); the queue's delay in
//! `queue_delay`, the target in `media_rate`. ECN is not
//! carried. Where the RFC leaves freedom:
//! - While a window stays closed a packet leaves each 200 ms, so that the clock of reports starts again
//!   when all that was in flight is lost.
//! - The reordering window is the longest seen, at most a round trip, as in RFC 8985; none at first.
//! - The share of round trips with a loss is smoothed by 1/100.
//! - The round trip leaves out how long the receiver held a packet; before the first there is no pacing.

use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Rate};

use super::history::{History, News, RoundTrip};
use super::media_rate::{MediaRate, Network};
use super::queue_delay::QueueDelay;
use super::{Bounds, Queue, RateControl, RateError, Report, Sent, range, rate};
use crate::about::Kind;

/// For `list` and the documentation.
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

/// §4.1.1.1: `MIN_CWND` and `MSS`, in bytes.
const LEAST_WINDOW: f64 = 3000.0;
const SEGMENT: f64 = 1000.0;
/// `MAX_BYTES_IN_FLIGHT_HEAD_ROOM`, and §4.1.2.2: over which time the most is taken.
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
const LEAST_PACE: f64 = 50_000.0;
/// How often a packet leaves while the window is closed.
const KEEP_ALIVE: Duration = Duration::from_millis(200);
/// What a round trip weighs in the share of those with a loss.
const LOSS_WEIGHT: f64 = 0.01;

/// How SCReAM is set.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The delay of the network's queue to aim at (`QDELAY_TARGET_LO`), above zero to 0.4 s.
    pub queue_target: Duration,
    /// How fast the target may rise, each second (`RAMP_UP_SPEED`). §4.1.3 names 1000 kbit/s as a
    /// high setting.
    pub ramp_up: Rate,
    /// How long a base delay is remembered. RFC 6817 says ten minutes; a path that becomes longer looks
    /// congested for so long.
    pub base_history: Duration,
    /// Accept a longer queue beside flows that fill it (§4.1.2.3), up to 0.4 s. Off, since
    /// the aircraft's bearer is its own, and the RFC warns of queues that it takes for another's.
    pub compete: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue_target: Duration::from_millis(100),
            ramp_up: Rate::from_bps(200_000),
            base_history: Duration::from_secs(600),
            compete: false,
        }
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

/// `max_bytes_in_flight`: the most in flight over five seconds, by halves of a second.
#[derive(Clone, Debug, Default)]
struct MostInFlight {
    spans: Vec<(i64, f64)>,
}

impl MostInFlight {
    fn add(&mut self, now: Instant, bytes: f64) {
        let span = now.as_nanos().div_euclid(FLIGHT_SPAN.as_nanos());
        self.spans.retain(|(old, _)| span - old <= FLIGHT_SPANS as i64);
        match self.spans.last_mut() {
            Some((last, most)) if *last == span => *most = most.max(bytes),
            _ => self.spans.push((span, bytes)),
        }
    }

    fn get(&self) -> f64 {
        self.spans.iter().fold(0.0, |most, (_, bytes)| most.max(*bytes))
    }
}

/// SCReAM.
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
    /// Since when the trend has been low.
    calm_since: Option<Instant>,
    /// Bytes up to the highest packet that arrived, and of it those since the last update of the window.
    acked: u64,
    newly_acked: f64,
    most_in_flight: MostInFlight,
    /// Packets that are missing, and since when.
    missing: Vec<(u64, Instant)>,
    reordering: Duration,
    loss_event: Option<Instant>,
    /// Share of round trips with a loss, the end of this one, whether it has had any.
    loss_event_rate: f64,
    round_end: Option<Instant>,
    round_lost: bool,
    /// Before, nothing leaves.
    paced: Instant,
    last_sent: Instant,
    /// Bytes of the packet that waits to leave, or zero.
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
            window: LEAST_WINDOW,
            fast_increase: true,
            calm_since: None,
            acked: 0,
            newly_acked: 0.0,
            most_in_flight: MostInFlight::default(),
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

    /// §4.1.2: all that was sent after the highest packet that arrived.
    fn in_flight(&self) -> f64 {
        self.history.total.saturating_sub(self.acked) as f64
    }

    /// §4.1.2.5: `calculate_send_window`.
    fn send_window(&self) -> f64 {
        let slack = if self.queue.is_above_target() { 0.0 } else { SEGMENT };
        (self.window + slack - self.in_flight()).max(0.0)
    }

    /// A closed window lets a packet go at this time.
    fn keep_alive(&self) -> Instant {
        self.last_sent + KEEP_ALIVE
    }

    /// §4.1.2.4: whether a packet has been missing for longer than the reordering window.
    fn detect_loss(&mut self, now: Instant) -> bool {
        let window = self.reordering;
        let before = self.missing.len();
        self.missing.retain(|(_, since)| now - *since < window);
        self.missing.len() < before
    }

    /// §4.1.2.1: a loss event, at most once per round trip.
    fn react_to_loss(&mut self, now: Instant) -> bool {
        let round_trip = self.round_trip.get().unwrap_or(Duration::ZERO);
        if self.loss_event.is_some_and(|last| now - last < round_trip) {
            return false;
        }
        self.loss_event = Some(now);
        self.round_lost = true;
        self.fast_increase = false;
        self.window = LEAST_WINDOW.max(AFTER_LOSS * self.window);
        self.newly_acked = 0.0;
        self.media.lost();
        true
    }

    /// §4.1.2.2: `update_cwnd`.
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
            self.media.congested();
        }
        let off = (self.queue.target - self.queue.delay) / self.queue.target;
        let used = in_flight * 1.25 + acked > self.window;
        if off <= 0.0 || used {
            self.window += GAIN * off * acked * SEGMENT / self.window;
        }
        let most = self.most_in_flight.get() * HEAD_ROOM;
        self.window = self.window.min(most).max(LEAST_WINDOW);
    }

    /// §4.1.2.7.
    fn resume_fast_increase(&mut self, now: Instant) {
        if self.queue.trend >= TREND {
            self.calm_since = None;
            return;
        }
        let since = *self.calm_since.get_or_insert(now);
        // A loss ends fast increase too, and begins the time of calm anew.
        let since = self.loss_event.map_or(since, |loss| since.max(loss));
        if now - since >= CALM {
            self.fast_increase = true;
        }
    }

    /// §4.1.1.2: `loss_event_rate`.
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
    fn queued(&mut self, now: Instant, queue: Queue) {
        self.next = queue.next.get() as f64;
        self.media.queued(now, queue.bytes.get());
    }

    fn sent(&mut self, now: Instant, packet: Sent) {
        self.history.sent(now, packet);
        self.media.sent(now, packet.bytes);
        self.most_in_flight.add(now, self.in_flight());
        self.last_sent = now;
        // §4.1.2.6.
        if let Some(round_trip) = self.round_trip.get() {
            let pace = (self.window * 8.0 / round_trip.as_secs_f64()).max(LEAST_PACE);
            let takes = Duration::from_secs_f64(f64::from(packet.bytes) * 8.0 / pace);
            self.paced = self.paced.max(now) + takes;
        }
    }

    fn feedback(&mut self, now: Instant, report: &Report<'_>) {
        let mut newest = None;
        for (packet, news) in self.history.news(now, report) {
            match news {
                News::Missing => {
                    self.missing.push((packet.number, now));
                    continue;
                }
                News::Late { since, .. } => {
                    let longest = self.round_trip.get().unwrap_or(Duration::ZERO);
                    self.reordering = self.reordering.max(now - since).min(longest);
                    self.missing.retain(|(number, _)| *number != packet.number);
                }
                News::Arrived(at) => newest = Some((packet, at)),
            }
            self.media.acked(packet.bytes);
        }
        if let Some((packet, at)) = newest {
            self.round_trip.sample(now, packet.sent, at, report.reported);
            if packet.total > self.acked {
                self.newly_acked += (packet.total - self.acked) as f64;
                self.acked = packet.total;
                self.queue.measured(now, at - packet.sent);
            }
        }
        self.queue.pass(now);
        self.count_rounds(now);
        if !(self.detect_loss(now) && self.react_to_loss(now)) {
            self.update_window();
            self.resume_fast_increase(now);
        }
        if self.compete {
            self.queue.compete(self.loss_event_rate);
        }
        self.tick(now);
    }

    fn tick(&mut self, now: Instant) {
        self.queue.pass(now);
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
        let window = if now >= self.keep_alive() { window.max(self.next) } else { window };
        Some(Bytes::new(window as u64))
    }

    fn next_wakeup(&self) -> Instant {
        let leave = if self.next == 0.0 {
            Instant::FAR_FUTURE
        } else if self.send_window() >= self.next {
            self.paced
        } else {
            self.keep_alive().max(self.paced)
        };
        leave.min(self.media.due())
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
            least: Rate::from_bps(100_000),
            start: Rate::from_bps(1_000_000),
            most: Rate::from_bps(10_000_000),
        };
        Scream::new(&Config::default(), &bounds)
    }

    /// `count` packets of 1000 B leave at 0 ms and, but for those `missing`, arrive after 20 ms; the
    /// report is there after 50 ms.
    fn after_a_round(mut scream: Scream, count: u64, missing: &[u64]) -> Scream {
        let start = scream.history.total / 1000;
        for number in start..start + count {
            scream.sent(ms(0), Sent { number, bytes: 1000 });
        }
        let arrivals: Vec<_> = (start..start + count)
            .map(|number| Arrival { number, at: (!missing.contains(&number)).then_some(ms(20)) })
            .collect();
        scream.feedback(ms(50), &Report { reported: ms(20), arrivals: &arrivals });
        scream
    }

    // Source: RFC 8298 §4.1.2.2: by what is acknowledged, if that and 1.5 times what is in flight is more
    // than the window.
    #[test]
    fn fast_increase_adds_what_arrived() {
        assert_eq!(after_a_round(scream(), 4, &[]).window, 7000.0);
        assert_eq!(after_a_round(scream(), 3, &[]).window, 3000.0);
    }

    // Source: RFC 8298 §4.1.2.2 with a delay of 25 ms at a target of 100 ms: 0.75 · 10 000 · 1000 / 12 000;
    // with 200 ms: −1 · 10 000 · 1000 / 12 000.
    #[test]
    fn the_window_moves_with_the_distance_from_the_target() {
        for (delay, window) in [(0.025, 12_625.0), (0.2, 12_000.0 - 10_000.0 / 12.0)] {
            let mut scream = scream();
            scream.fast_increase = false;
            scream.window = 12_000.0;
            scream.newly_acked = 10_000.0;
            scream.history.total = 8_000;
            scream.most_in_flight.add(ms(0), 20_000.0);
            scream.queue.delay = delay;
            scream.update_window();
            assert!((scream.window - window).abs() < 1e-9);
        }
    }

    // Source: RFC 8298 §4.1.2.2: no growth of a window that is not used, and never above 1.1 times the
    // most in flight in five seconds.
    #[test]
    fn an_unused_window_does_not_grow_and_shrinks_to_what_was_in_flight() {
        let mut scream = scream();
        scream.fast_increase = false;
        scream.window = 12_000.0;
        scream.newly_acked = 1_000.0;
        scream.most_in_flight.add(ms(0), 20_000.0);
        scream.update_window();
        assert_eq!(scream.window, 12_000.0);
        scream.most_in_flight.add(ms(6_000), 10_000.0);
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
        control.feedback(ms(80), &Report { reported: ms(60), arrivals: &late });
        assert_eq!(control.reordering, Duration::from_millis(30));
        control.missing.push((9, ms(100)));
        assert!(!control.detect_loss(ms(129)));
        assert!(control.detect_loss(ms(130)));
    }

    // Source: RFC 8298 §4.1.2.5: cwnd + MSS − bytes_in_flight up to the target, cwnd − bytes_in_flight above.
    // §4.1.2.6: 1000 B at 7000 B in a round trip of 50 ms take 50/7 ms.
    #[test]
    fn packets_leave_within_the_window_and_at_its_pace() {
        let mut scream = after_a_round(scream(), 4, &[]);
        let now = ms(60);
        assert_eq!(scream.may_send(now), Some(Bytes::new(8000)));
        scream.sent(now, Sent { number: 4, bytes: 1000 });
        assert_eq!(scream.may_send(now), Some(Bytes::ZERO));
        scream.queued(now, Queue { bytes: Bytes::new(2000), next: Bytes::new(1000) });
        assert_eq!(scream.next_wakeup(), now + Duration::from_nanos(7_142_857));
        assert_eq!(scream.may_send(ms(68)), Some(Bytes::new(7000)));
        scream.queue.delay = 0.11;
        assert_eq!(scream.may_send(ms(68)), Some(Bytes::new(6000)));
    }

    #[test]
    fn a_closed_window_lets_a_packet_go_each_200_ms() {
        let mut scream = scream();
        for number in 0..4 {
            scream.sent(ms(0), Sent { number, bytes: 1000 });
        }
        scream.queued(ms(0), Queue { bytes: Bytes::new(2400), next: Bytes::new(1200) });
        assert_eq!(scream.may_send(ms(199)), Some(Bytes::ZERO));
        assert_eq!(scream.may_send(ms(200)), Some(Bytes::new(1200)));
        scream.tick(ms(200));
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
