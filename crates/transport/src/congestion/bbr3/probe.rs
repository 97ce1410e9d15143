//! Probing for bandwidth: down, cruise, refill, up.
//!
//! Source: draft-ietf-ccwg-bbr-06 §5.3.3.

use skybraid_units::{Bytes, Duration, Instant};

use super::{Bbr3, State};
use crate::congestion::model::Rounds;
use crate::congestion::{Acked, RateSample};

/// Round trips in which Reno would recover on a path with a typical bandwidth-delay product.
const RENO_ROUNDS: u64 = 63;
/// Maximum growth of the long-term bound in segments per round trip, as a power of two.
const MAX_DOUBLINGS: u32 = 30;

/// Phase that the current acknowledgements belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Init,
    Refilling,
    /// The probe has begun; its acknowledgements are still to come.
    Starting,
    Feedback,
    /// The probe is over; its last acknowledgements are still to come.
    Stopping,
}

/// State of probing for bandwidth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    phase: Phase,
    /// True if the current samples belong to a probe whose loss has not been handled.
    pub pending: bool,
    /// True if the last probe lost too much.
    pub too_high: bool,
    /// True if the last probe stopped at the bound of the one before, as a precaution.
    precautionary: bool,
    /// Round trips since the last probe, starting at a random 0 or 1.
    pub rounds: u64,
    /// Start of the cycle, and the wait until the next probe.
    since: Instant,
    pub wait: Duration,
    up_rounds: u32,
    up_acked: u64,
    /// Bytes to be acknowledged for each segment of growth of the long-term bound.
    acked_per_step: u64,
}

impl Probe {
    /// Ends the probe, if there is one.
    pub(super) fn stop(&mut self, rounds: &mut Rounds, delivered: Bytes) {
        self.phase = Phase::Stopping;
        rounds.restart(delivered);
    }
}

impl Bbr3 {
    /// `StartProbeBW_DOWN`.
    pub(super) fn start_down(&mut self, acked: &Acked) {
        self.begin_down(acked.now, acked.delivered);
    }

    pub(super) fn begin_down(&mut self, now: Instant, delivered: Bytes) {
        self.bounds.reset_round();
        self.probe.rounds = self.draws.below(2);
        self.probe.wait = Duration::from_secs_f64(2.0 + self.draws.unit());
        self.probe.since = now;
        self.probe.stop(&mut self.rounds, delivered);
        self.state = State::Down;
    }

    fn start_refill(&mut self, acked: &Acked) {
        self.bounds.reset_short_term();
        self.probe.up_rounds = 0;
        self.probe.up_acked = 0;
        self.probe.precautionary = false;
        self.probe.phase = Phase::Refilling;
        self.rounds.restart(acked.delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, acked: &Acked, sample: &RateSample) {
        self.probe.pending = true;
        self.probe.phase = Phase::Starting;
        self.rounds.restart(acked.delivered);
        self.full.restart(sample.rate);
        self.state = State::Up;
        self.steepen();
    }

    /// `UpdateProbeBWCyclePhase`.
    pub(super) fn advance_cycle(&mut self, acked: &Acked, sample: &RateSample) {
        if self.adapt_long_term(acked, sample) {
            return;
        }
        let state = self.state;
        match state {
            State::Down | State::Cruise if self.is_time_to_probe(acked.now) => {
                self.start_refill(acked);
            }
            State::Down => {
                let drained = self.with_budget(self.bdp_of_max(1.0));
                if acked.in_flight_after.get() <= self.with_headroom().min(drained) {
                    self.state = State::Cruise;
                }
            }
            State::Refill if self.rounds.started => self.start_up(acked, sample),
            State::Up if self.is_time_to_go_down(acked, sample) => {
                self.probe.too_high = false;
                self.start_down(acked);
            }
            _ => {}
        }
    }

    /// Returns a multiple of the bandwidth-delay product without the short-term bound.
    fn bdp_of_max(&self, gain: f64) -> u64 {
        let rtt = self.min_rtt.value.unwrap_or(Duration::ZERO);
        super::bdp(self.max_bandwidth.max(), rtt, gain) as u64
    }

    pub(super) fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno_rounds = (self.target() / self.segment).min(RENO_ROUNDS);
        now > self.probe.since + self.probe.wait || self.probe.rounds >= reno_rounds
    }

    fn is_time_to_go_down(&mut self, acked: &Acked, sample: &RateSample) -> bool {
        // Before the acknowledgement, and to a whole segment: the window never admits more.
        let reached = acked.in_flight.get() + self.segment > self.bounds.long_term;
        if self.probe.too_high && reached {
            self.probe.precautionary = true;
            return true;
        }
        if self.window_limited && self.window >= self.bounds.long_term {
            // The bound, not the path, keeps the rate from growing.
            self.full.restart(sample.rate);
            return false;
        }
        self.full.now
    }

    /// `AdaptLongTermModel`. Returns true if the state has changed.
    fn adapt_long_term(&mut self, acked: &Acked, sample: &RateSample) -> bool {
        if self.rounds.started && self.probe.phase == Phase::Starting {
            self.probe.phase = Phase::Feedback;
        }
        if self.rounds.started && self.probe.phase == Phase::Stopping {
            self.probe.pending = false;
            self.probe.phase = Phase::Init;
            if self.state.probes_bandwidth() && !sample.app_limited {
                self.cycle += 1;
            }
            if self.state.probes_bandwidth() && self.probe.precautionary && !self.probe.too_high {
                self.start_refill(acked);
                return true;
            }
        }
        if !self.is_too_much(sample) && self.bounds.long_term != u64::MAX {
            self.bounds.long_term = self.bounds.long_term.max(sample.sent_in_flight.get());
            if self.state == State::Up {
                self.raise_long_term(acked);
            }
        }
        false
    }

    /// `ProbeInflightLongtermUpward`.
    fn raise_long_term(&mut self, acked: &Acked) {
        if !self.window_limited || self.window < self.bounds.long_term {
            return;
        }
        let per_step = self.probe.acked_per_step.max(1);
        self.probe.up_acked += acked.bytes.get();
        let steps = self.probe.up_acked / per_step;
        self.probe.up_acked -= steps * per_step;
        self.bounds.long_term += steps * self.segment;
        if self.rounds.started {
            self.steepen();
        }
    }

    /// `RaiseInflightLongtermSlope`: the growth doubles with each round trip.
    fn steepen(&mut self) {
        let growth = 1 << self.probe.up_rounds;
        self.probe.up_rounds = (self.probe.up_rounds + 1).min(MAX_DOUBLINGS);
        self.probe.acked_per_step = (self.window / growth).max(self.segment);
    }
}
