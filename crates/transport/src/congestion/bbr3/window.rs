//! Window and pacing rate, derived from the model.
//!
//! Source: draft-ietf-ccwg-bbr-06 §5.6.

use skybraid_units::{Duration, Rate};

use super::{Bbr3, State, bdp, times};
use crate::congestion::Acked;

const MIN_SEGMENTS: u64 = 4;
/// Share by which the pacing rate stays below the bandwidth.
const PACING_MARGIN: f64 = 0.01;
/// Maximum burst in bytes.
const MAX_QUANTUM: u64 = 64 * 1024;

impl Bbr3 {
    /// `BDPMultiple`, in bytes.
    pub(super) fn bdp(&self, gain: f64) -> u64 {
        let Some(rtt) = self.min_rtt.value else {
            return self.initial_window;
        };
        bdp(self.bandwidth, rtt, gain) as u64
    }

    pub(super) fn min_window(&self) -> u64 {
        MIN_SEGMENTS * self.segment
    }

    /// `QuantizationBudget`: raises `bytes` in flight to the minimum that keeps a host busy.
    pub(super) fn with_budget(&self, bytes: u64) -> u64 {
        let quantum = self.pace.bits_in(Duration::from_millis(1)) / 8;
        let quantum = quantum.min(MAX_QUANTUM).max(2 * self.segment);
        let probing = if self.state == State::Up { 2 * self.segment } else { 0 };
        bytes.max(3 * quantum).max(self.min_window()) + probing
    }

    /// `TargetInflight`.
    pub(super) fn target(&self) -> u64 {
        self.bdp(1.0).min(self.window)
    }

    pub(super) fn save_window(&mut self) {
        let undisturbed = !self.recovering && !matches!(self.state, State::ProbeRtt { .. });
        self.prior_window =
            if undisturbed { self.window } else { self.prior_window.max(self.window) };
    }

    pub(super) fn set_pace(&mut self, gain: f64) {
        let pace = times(self.bandwidth, gain * (1.0 - PACING_MARGIN));
        if pace > Rate::ZERO && (self.full.ever || pace > self.pace) {
            self.pace = pace;
        }
    }

    pub(super) fn set_window(&mut self, acked: &Acked) {
        let target = self.bdp(self.state.window_gain()) + self.extra.max().get();
        let target = self.with_budget(target);
        let grown = self.window + acked.bytes.get();
        if self.full.ever {
            self.window = grown.min(target);
        } else if self.window < target || acked.delivered.get() < self.initial_window {
            self.window = grown;
        }
        self.window = self.window.max(self.min_window());
        self.bound_window();
    }

    /// `BoundCwndForProbeRTT` and `BoundCwndForModel`.
    pub(super) fn bound_window(&mut self) {
        let bound = match self.state {
            State::Startup | State::Drain(_) => u64::MAX,
            State::Down | State::Refill | State::Up => self.bounds.long_term,
            State::Cruise => self.with_headroom(),
            State::ProbeRtt { .. } => self.with_headroom().min(self.probe_rtt_window()),
        };
        let bound = bound.min(self.bounds.short_term).max(self.min_window());
        self.window = self.window.min(bound);
    }
}
