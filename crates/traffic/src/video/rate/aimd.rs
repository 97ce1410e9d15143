//! Delay-based estimate: the state machine of increase, hold and decrease.
//!
//! Source: draft-ietf-rmcat-gcc-02 §5.5. Choices where the draft leaves freedom:
//! - The deviation of the over-use rate starts and stays as in WebRTC (`MIN_VARIANCE`).
//! - Over-use never raises the estimate, and lowers it once while no incoming rate is known.
//! - The limit of 1.5 times the incoming rate stops growth but never lowers the estimate, so that a pause of
//!   the sender does not undo what was learnt.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::Bounds;
use super::trendline::Usage;

/// β (§5.6).
const DECREASE: f64 = 0.85;
/// Maximum growth per second (§5.5).
const GROWTH: f64 = 1.08;
/// Weight of earlier rates in the average over-use rate (§5.5).
const SMOOTHING: f64 = 0.95;
/// Number of deviations within which a rate is close to the average (§5.5).
const CLOSE: f64 = 3.0;
/// Limit of the estimate in units of the incoming rate (§5.5).
const AHEAD: f64 = 1.5;
/// Response time of estimator and detector in addition to a round trip, in s (§5.5).
const REACTION: f64 = 0.1;
/// Minimum step of additive increase, in bit/s (§5.5).
const MIN_STEP: f64 = 1000.0;
/// Bounds of the variance of the over-use rate over its mean, in kbit/s (WebRTC).
const MIN_VARIANCE: f64 = 0.4;
const MAX_VARIANCE: f64 = 2.5;
/// T, the window of the incoming rate (§5.6).
const WINDOW: Duration = Duration::from_millis(500);

/// Incoming rate over half a second of the receiver's clock. After a silence of that length the measurement
/// starts from scratch: the rate before an outage says nothing about the rate after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    arrivals: VecDeque<(Instant, u32)>,
    bytes: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Incoming {
    pub fn on_received(&mut self, at: Instant, bytes: u32) {
        let silent = self.last.is_none_or(|last| at - last >= WINDOW);
        let last = self.last.map_or(at, |last| last.max(at));
        if silent {
            self.first = Some(at);
        }
        self.last = Some(last);
        self.arrivals.push_back((at, bytes));
        self.bytes += u64::from(bytes);
        while let Some((old, bytes)) = self.arrivals.front().copied()
            && last - old >= WINDOW
        {
            self.arrivals.pop_front();
            self.bytes -= u64::from(bytes);
        }
    }

    /// Returns the incoming rate in bit/s once a whole window has elapsed.
    pub fn rate(&self) -> Option<f64> {
        let measured = self.last? - self.first? >= WINDOW;
        measured.then(|| self.bytes as f64 * 8.0 / WINDOW.as_secs_f64())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hold,
    Increase,
    Decrease,
}

/// Average incoming rate at over-use in kbit/s, and its variance over its mean.
#[derive(Clone, Copy, Debug)]
struct OverUseRate {
    mean: f64,
    variance: f64,
}

impl OverUseRate {
    fn with_sample(before: Option<Self>, sample: f64) -> Self {
        let Some(Self { mean, variance }) = before else {
            return Self { mean: sample, variance: MIN_VARIANCE };
        };
        let mean = SMOOTHING * mean + (1.0 - SMOOTHING) * sample;
        let off = mean - sample;
        let variance = SMOOTHING * variance + (1.0 - SMOOTHING) * off * off / mean.max(1.0);
        Self { mean, variance: variance.clamp(MIN_VARIANCE, MAX_VARIANCE) }
    }

    /// Returns whether `sample` is so far above the average that the path must have changed.
    fn is_exceeded_by(&self, sample: f64) -> bool {
        sample > self.mean + CLOSE * libm::sqrt(self.variance * self.mean)
    }
}

/// Delay-based estimate of the path's capacity.
#[derive(Clone, Debug)]
pub(super) struct Aimd {
    bounds: Bounds,
    state: State,
    over_use_rate: Option<OverUseRate>,
    updated: Option<Instant>,
    /// A_hat, in bit/s.
    estimate: f64,
}

impl Aimd {
    pub fn new(bounds: &Bounds) -> Self {
        Self {
            bounds: *bounds,
            state: State::Increase,
            over_use_rate: None,
            updated: None,
            estimate: bounds.first(),
        }
    }

    /// Returns the estimate in bit/s.
    pub fn estimate(&self) -> f64 {
        self.estimate
    }

    /// Updates the estimate by the detector's signal and the incoming rate in bit/s.
    pub fn update(
        &mut self,
        now: Instant,
        usage: Usage,
        incoming: Option<f64>,
        round_trip: Duration,
    ) {
        let passed = self.updated.map_or(0.0, |then| now.since(then).as_secs_f64());
        self.updated = Some(now);
        let entered = match (usage, self.state) {
            (Usage::Over, State::Decrease) | (Usage::Normal, State::Increase) => false,
            (Usage::Under, State::Hold) => false,
            (Usage::Over, _) => {
                self.state = State::Decrease;
                true
            }
            (Usage::Normal, State::Hold) => {
                self.state = State::Increase;
                true
            }
            (Usage::Normal, State::Decrease) | (Usage::Under, _) => {
                self.state = State::Hold;
                true
            }
        };
        match self.state {
            State::Hold => {}
            State::Increase => self.increase(passed, incoming, round_trip.as_secs_f64()),
            State::Decrease => {
                let carried = match incoming {
                    Some(rate) => {
                        if entered {
                            self.over_use_rate =
                                Some(OverUseRate::with_sample(self.over_use_rate, rate / 1e3));
                        }
                        rate
                    }
                    None if entered => self.estimate,
                    None => f64::INFINITY,
                };
                self.estimate = self.bounds.clamp(self.estimate.min(DECREASE * carried));
            }
        }
    }

    fn increase(&mut self, passed: f64, incoming: Option<f64>, round_trip: f64) {
        if incoming.is_some_and(|rate| {
            self.over_use_rate.is_some_and(|over_use_rate| over_use_rate.is_exceeded_by(rate / 1e3))
        }) {
            self.over_use_rate = None;
        }
        let grown = if self.over_use_rate.is_some() {
            let step = 0.5 * (passed / (REACTION + round_trip)).min(1.0);
            self.estimate + (step * packet_bits(self.estimate)).max(MIN_STEP)
        } else {
            self.estimate * libm::pow(GROWTH, passed.min(1.0))
        };
        let limit = incoming.map_or(f64::INFINITY, |rate| AHEAD * rate);
        self.estimate = self.bounds.clamp(grown.min(limit).max(self.estimate));
    }
}

/// Returns the size of a packet in bits at a rate in bit/s, with 30 frames per second in packets of up to
/// 1200 B (§5.5).
fn packet_bits(estimate: f64) -> f64 {
    let frame = estimate / 30.0;
    frame / libm::ceil(frame / (1200.0 * 8.0)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Rate;

    const RTT: Duration = Duration::from_millis(50);

    fn aimd() -> Aimd {
        Aimd::new(&Bounds {
            min: Rate::from_bps(100_000),
            start: Rate::from_bps(3_000_000),
            max: Rate::from_bps(20_000_000),
        })
    }

    // Source: draft-ietf-rmcat-gcc-02 §5.5, the table of transitions.
    #[test]
    fn the_states_follow_the_drafts_table() {
        use State::{Decrease, Hold, Increase};
        for (state, signal, next) in [
            (Hold, Usage::Over, Decrease),
            (Increase, Usage::Over, Decrease),
            (Decrease, Usage::Over, Decrease),
            (Hold, Usage::Normal, Increase),
            (Increase, Usage::Normal, Increase),
            (Decrease, Usage::Normal, Hold),
            (Hold, Usage::Under, Hold),
            (Increase, Usage::Under, Hold),
            (Decrease, Usage::Under, Hold),
        ] {
            let mut aimd = aimd();
            aimd.state = state;
            aimd.update(Instant::ZERO, signal, None, RTT);
            assert_eq!(aimd.state, next);
        }
    }

    // Source: draft-ietf-rmcat-gcc-02 §5.5: 3 Mbit/s · 1.08^0.2 = 3 046 536 bit/s; over-use at
    // 2.5 Mbit/s: 0.85 · 2.5; then additive: 2 125 000 / 30 = 70 833 bits in 8 packets of 8854 bits, of
    // which α = 0.5 · 50 / 150 = 1/6.
    #[test]
    fn growth_is_additive_near_the_over_use_rate() {
        let mut aimd = aimd();
        let mut at = |millis, usage, incoming| {
            aimd.update(Instant::from_millis(millis), usage, Some(incoming), RTT);
            libm::round(aimd.estimate())
        };
        assert_eq!(at(0, Usage::Normal, 3e6), 3_000_000.0);
        assert_eq!(at(200, Usage::Normal, 3e6), libm::round(3e6 * libm::pow(1.08, 0.2)));
        assert_eq!(at(300, Usage::Over, 2.5e6), 2_125_000.0);
        assert_eq!(at(350, Usage::Normal, 2.5e6), 2_125_000.0);
        assert_eq!(at(400, Usage::Normal, 2.5e6), libm::round(2_125_000.0 + 70_833.333 / 48.0));
        // 3σ = 3 · √(0.4 · 2500) kbit/s = 95 kbit/s above the average the path has changed.
        let before = at(450, Usage::Normal, 2.594e6);
        assert!(at(1450, Usage::Normal, 2.594e6) - before < 10_000.0);
        let before = at(1500, Usage::Normal, 2.596e6);
        assert!(at(2500, Usage::Normal, 2.596e6) - before > 150_000.0);
    }

    #[test]
    fn the_incoming_rate_limits_growth_without_lowering() {
        let mut aimd = aimd();
        for second in 0..30 {
            aimd.update(Instant::from_millis(1000 * second), Usage::Normal, Some(2.2e6), RTT);
        }
        assert_eq!(aimd.estimate(), 3.3e6);
        aimd.update(Instant::from_millis(31_000), Usage::Normal, Some(1e6), RTT);
        assert_eq!(aimd.estimate(), 3.3e6);
    }

    #[test]
    fn the_incoming_rate_is_that_of_half_a_second() {
        let mut incoming = Incoming::default();
        for number in 0..200 {
            incoming.on_received(Instant::from_millis(10 * number), 1250);
            let measured = number >= 50;
            assert_eq!(incoming.rate(), measured.then_some(1e6));
        }
        incoming.on_received(Instant::from_millis(4_000), 1250);
        assert_eq!(incoming.rate(), None);
        incoming.on_received(Instant::from_millis(4_499), 1250);
        incoming.on_received(Instant::from_millis(4_500), 1250);
        assert_eq!(incoming.rate(), Some(40_000.0));
    }
}
