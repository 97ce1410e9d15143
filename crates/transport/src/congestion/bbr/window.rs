//! Window and pacing rate, derived from the model.

use skybraid_units::{Bytes, Duration, Rate};

use super::{Bbr, MIN_SEGMENTS, Mode, bdp, times};
use crate::congestion::Acked;

/// Maximum aggregation, as a time at the bandwidth.
const MAX_AGGREGATION: Duration = Duration::from_millis(100);

impl Bbr {
    /// Target of the bytes in flight for `gain` bandwidth-delay products plus `extra`.
    pub(super) fn target(&self, bandwidth: Rate, gain: f64, extra: Bytes) -> u64 {
        let Some(rtt) = self.min_rtt.value else {
            return self.initial_window;
        };
        let bandwidth = self.random_loss.make_up(bandwidth);
        if !self.linux() {
            let segments = (bdp(bandwidth, rtt, gain) + extra.get() as f64) / self.segment as f64;
            return libm::ceil(segments - 1e-9) as u64 * self.segment;
        }
        // Rates are in segments per 2^24 µs and gains in 1/256; each product but the last is
        // rounded down.
        let scaled = u128::from(bandwidth.as_bps()) * (1 << 24) / 8_000_000;
        let scaled = scaled / u128::from(self.segment) * (rtt.as_nanos() / 1000).max(0) as u128;
        let product = (scaled * ((gain * 256.0) as u128)) >> 8;
        let segments = product.div_ceil(1 << 24) as u64 + extra.get() / self.segment;
        let probing = matches!(self.mode, Mode::ProbeBw { phase: 0, .. });
        let even = (segments + 3 * self.transmission_unit()).next_multiple_of(2);
        (even + 2 * u64::from(probing)) * self.segment
    }

    /// Segments that Linux sends as a unit: those of a millisecond.
    pub(super) fn transmission_unit(&self) -> u64 {
        let min = if self.pace < Rate::from_bps(1_200_000) { 1 } else { 2 };
        (self.pace.as_bps() / 8 / 1024 / self.segment).clamp(min, 127)
    }

    pub(super) fn save_window(&mut self) {
        let undisturbed = !self.recovering && !matches!(self.mode, Mode::ProbeRtt { .. });
        self.prior_window =
            if undisturbed { self.window } else { self.prior_window.max(self.window) };
    }

    pub(super) fn set_pace(&mut self, gain: f64) {
        let margin = if self.linux() { 0.99 } else { 1.0 };
        let pace = times(self.random_loss.make_up(self.rate()), gain * margin);
        if pace > Rate::ZERO && (self.filled || pace > self.pace) {
            self.pace = pace;
        }
    }

    pub(super) fn set_window(&mut self, acked: &Acked) {
        let bytes = acked.bytes.get();
        if self.recovering {
            self.window = self.window.saturating_sub(acked.lost.get()).max(self.segment);
        }
        if self.conserving {
            self.window = self.window.max(self.conserved.get());
        } else if bytes > 0 {
            let max = Bytes::new(self.rate().bits_in(MAX_AGGREGATION) / 8);
            let extra = if self.filled { self.extra.max().min(max) } else { Bytes::ZERO };
            let target = self.target(self.rate(), self.window_gain(), extra);
            if self.filled {
                self.window = (self.window + bytes).min(target);
            } else if self.window < target || acked.delivered.get() < self.initial_window {
                self.window += bytes;
            }
            self.window = self.window.max(MIN_SEGMENTS * self.segment);
        }
        self.bound_window();
    }

    pub(super) fn bound_window(&mut self) {
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window = self.window.min(MIN_SEGMENTS * self.segment);
        }
    }
}
