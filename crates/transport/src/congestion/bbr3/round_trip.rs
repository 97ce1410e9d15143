//! Probing for the round-trip time.
//!
//! Source: draft-ietf-ccwg-bbr-06 §5.3.4.

use skybraid_units::{Bytes, Duration, Instant};

use super::{Bbr3, STARTUP_PACING_GAIN, State, initial_pace};
use crate::congestion::Acked;

const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

impl Bbr3 {
    /// Tracks the minimum round-trip time, and probes for it when due (§5.3.4.3).
    pub(super) fn update_min_rtt(&mut self, acked: &Acked) {
        let (now, rtt) = (acked.now, acked.latest_rtt.or(acked.rtt));
        if self.min_rtt.value.is_none() && rtt.is_some() {
            // The handshake gave no sample (Linux `bbr_set_pacing_rate`).
            self.pace = initial_pace(self.window, rtt, STARTUP_PACING_GAIN);
        }
        let due = self.probed_rtt.update(now, rtt, self.rules.probe_rtt_interval);
        let expired = self.min_rtt.has_expired(now, self.rules.min_rtt_window);
        if expired || self.min_rtt.value.is_none() || self.probed_rtt.value < self.min_rtt.value {
            self.min_rtt = self.probed_rtt;
        }
        if due && !self.idle_restart && !matches!(self.state, State::ProbeRtt { .. }) {
            self.save_window();
            self.state = State::ProbeRtt { until: None, round_over: false };
            self.probe.stop(&mut self.rounds, acked.delivered);
        }
        if let State::ProbeRtt { until, round_over } = self.state {
            self.lull.extend(acked.delivered, acked.in_flight_after);
            if until.is_some() {
                let round_over = round_over | self.rounds.started;
                self.state = State::ProbeRtt { until, round_over };
                self.end_probe_rtt(now, acked.delivered);
            } else if acked.in_flight_after.get() <= self.probe_rtt_window() {
                self.rounds.restart(acked.delivered);
                let until = Some(now + PROBE_RTT_TIME);
                self.state = State::ProbeRtt { until, round_over: false };
            }
        }
        self.idle_restart &= acked.bytes == Bytes::ZERO;
    }

    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.bdp(State::ProbeRtt { until: None, round_over: false }.window_gain())
            .max(self.min_window())
    }

    pub(super) fn end_probe_rtt(&mut self, now: Instant, delivered: Bytes) {
        if let State::ProbeRtt { until: Some(until), round_over: true } = self.state
            && now > until
        {
            self.probed_rtt.at = now;
            self.window = self.window.max(self.prior_window);
            self.bounds.reset_short_term();
            self.state = State::Startup;
            if self.full.ever {
                self.begin_down(now, delivered);
                self.state = State::Cruise;
            }
        }
    }
}
