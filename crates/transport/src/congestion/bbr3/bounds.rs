//! Bounds on bandwidth and data in flight, derived from loss.
//!
//! Source: draft-ietf-ccwg-bbr-06 §5.5.10, §5.3.1.3.

use skybraid_units::{Bytes, Rate};

use super::{Bbr3, STARTUP_LOSS_EVENTS, State, times};
use crate::congestion::{Acked, RateSample};

/// Bounds, and the delivery and loss signals of the round trip that they follow from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum bytes in flight known not to cause much loss (`inflight_longterm`).
    pub long_term: u64,
    /// Bounds on bytes in flight and bandwidth after recent loss (`inflight_shortterm`,
    /// `bw_shortterm`).
    pub short_term: u64,
    pub bandwidth: Rate,
    /// Maximum delivery of this round trip: rate and bytes.
    latest_rate: Rate,
    pub(super) latest: Bytes,
    /// Bytes delivered since the start.
    pub delivered: Bytes,
    loss_round_ends: Bytes,
    loss_round_started: bool,
    loss_in_round: bool,
    /// Number of acknowledgements that revealed a loss in this round trip.
    loss_events: u32,
}

const NO_BOUND: Rate = Rate::from_bps(u64::MAX);

impl Default for Bounds {
    fn default() -> Self {
        Self {
            long_term: u64::MAX,
            short_term: u64::MAX,
            bandwidth: NO_BOUND,
            latest_rate: Rate::ZERO,
            latest: Bytes::ZERO,
            delivered: Bytes::ZERO,
            loss_round_ends: Bytes::ZERO,
            loss_round_started: false,
            loss_in_round: false,
            loss_events: 0,
        }
    }
}

impl Bounds {
    /// `ResetShortTermModel`.
    pub(super) fn reset_short_term(&mut self) {
        self.short_term = u64::MAX;
        self.bandwidth = NO_BOUND;
    }

    /// `ResetCongestionSignals`.
    pub(super) fn reset_round(&mut self) {
        self.loss_in_round = false;
        self.latest_rate = Rate::ZERO;
        self.latest = Bytes::ZERO;
    }

    /// `AdvanceLatestDeliverySignals`.
    pub(super) fn begin_loss_round(&mut self, acked: &Acked, sample: &RateSample) {
        if self.loss_round_started {
            self.latest_rate = sample.rate;
            self.latest = acked.delivered - sample.prior_delivered;
        }
    }
}

/// Returns the bytes in flight at which losses exceeded the share `threshold`, given that they did
/// so within the last `size` bytes lost: `lost` of `in_flight` bytes are lost, these included
/// (`InflightAtLoss`).
pub(super) fn in_flight_at_loss(in_flight: f64, lost: f64, size: f64, threshold: f64) -> f64 {
    let (in_flight, lost) = (in_flight - size, lost - size);
    (in_flight + (threshold * in_flight - lost) / (1.0 - threshold)).max(0.0)
}

impl Bbr3 {
    /// `UpdateLatestDeliverySignals`.
    pub(super) fn on_rate_sample(&mut self, acked: &Acked, sample: &RateSample) {
        let bounds = &mut self.bounds;
        bounds.delivered = acked.delivered;
        bounds.latest_rate = bounds.latest_rate.max(sample.rate);
        bounds.latest = bounds.latest.max(acked.delivered - sample.prior_delivered);
        bounds.loss_round_started = sample.prior_delivered >= bounds.loss_round_ends;
        if bounds.loss_round_started {
            bounds.loss_round_ends = acked.delivered;
        }
    }

    /// `HandleLostPacket`, for all losses that one acknowledgement reveals. The acknowledged
    /// segment represents them: it was sent just after them.
    pub(super) fn on_lost(&mut self, acked: &Acked, sample: Option<&RateSample>) {
        self.bounds.loss_events += 1;
        if !self.bounds.loss_in_round {
            self.bounds.loss_in_round = true;
            self.bounds.loss_round_ends = acked.delivered;
        }
        if let Some(sample) = sample
            && self.probe.pending
            && self.is_too_much(sample)
        {
            let [in_flight, lost, size] =
                [sample.sent_in_flight, sample.lost, acked.lost].map(|bytes| bytes.get() as f64);
            let threshold = self.rules.loss_threshold.ratio();
            let at_loss = in_flight_at_loss(in_flight, lost, size, threshold);
            self.probe.too_high = true;
            self.probe.pending = false;
            if !sample.app_limited {
                let min = self.target() as f64 * self.rules.beta;
                self.bounds.long_term = at_loss.max(min) as u64;
            }
            if self.state == State::Up {
                self.start_down(acked);
            }
        }
    }

    /// `IsInflightTooHigh`.
    pub(super) fn is_too_much(&self, sample: &RateSample) -> bool {
        let allowed = sample.sent_in_flight.get() as f64 * self.rules.loss_threshold.ratio();
        sample.lost.get() as f64 > allowed || (!self.sack && sample.lost > Bytes::ZERO)
    }

    /// `UpdateCongestionSignals` without its first step: loss takes effect once per round trip.
    pub(super) fn end_loss_round(&mut self) {
        if !self.bounds.loss_round_started {
            return;
        }
        if self.bounds.loss_in_round && !self.state.accelerates() {
            let (beta, bounds) = (self.rules.beta, &mut self.bounds);
            if bounds.bandwidth == NO_BOUND {
                bounds.bandwidth = self.max_bandwidth.max();
            }
            if bounds.short_term == u64::MAX {
                bounds.short_term = self.window;
            }
            bounds.bandwidth = bounds.latest_rate.max(times(bounds.bandwidth, beta));
            bounds.short_term = bounds.latest.get().max((bounds.short_term as f64 * beta) as u64);
        }
        self.bounds.loss_in_round = false;
    }

    /// `CheckStartupHighLoss`: startup ends if a round trip of recovery lost too much in several
    /// places.
    pub(super) fn check_startup_loss(&mut self, acked: &Acked, sample: &RateSample) {
        let whole_round = acked.recovering && self.bounds.loss_round_started;
        let events = if self.sack { STARTUP_LOSS_EVENTS } else { 1 };
        if self.state == State::Startup
            && whole_round
            && self.bounds.loss_events >= events
            && self.is_too_much(sample)
        {
            self.full.ever = true;
            self.full.now = true;
            self.bounds.long_term = self.bdp(1.0).max(self.bounds.latest.get());
        }
        if self.bounds.loss_round_started {
            self.bounds.loss_events = 0;
        }
    }

    /// `InflightWithHeadroom`.
    pub(super) fn with_headroom(&self) -> u64 {
        let max = self.bounds.long_term;
        if max == u64::MAX {
            return max;
        }
        let headroom = ((max as f64 * self.rules.headroom) as u64).max(self.segment);
        max.saturating_sub(headroom).max(self.min_window())
    }
}
