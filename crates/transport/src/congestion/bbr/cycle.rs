//! Transitions between modes: startup, drain, probing for bandwidth, probing for the round-trip
//! time.

use skybraid_units::{Bytes, Duration, Instant};

use super::{Bbr, CYCLE, MIN_SEGMENTS, Mode, initial_pace, times};
use crate::congestion::Acked;

/// Duration of probing for the round-trip time.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// The pipe is full if the bandwidth grew by less than this factor in that many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;

impl Bbr {
    pub(super) fn check_full_pipe(&mut self) {
        if self.bandwidth.max() >= times(self.full_bandwidth, FULL_GROWTH) {
            self.full_bandwidth = self.bandwidth.max();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.filled = self.full_rounds >= FULL_ROUNDS;
    }

    /// Starts probing for bandwidth in a random phase other than the draining one.
    pub(super) fn probe_bandwidth(&mut self, now: Instant) {
        let drawn = self.draws.below(CYCLE.len() as u64 - 1) as usize;
        let phase = if drawn == 0 { 0 } else { drawn + 1 };
        self.mode = Mode::ProbeBw { phase, since: now };
    }

    /// Advances to the next phase of probing for bandwidth once the current one has served its
    /// purpose.
    pub(super) fn advance_cycle(&mut self, acked: &Acked) {
        let Mode::ProbeBw { phase, since } = self.mode else { return };
        let whole = acked.now.since(since) > self.min_rtt.value.unwrap_or(Duration::ZERO);
        let in_flight = acked.in_flight.get();
        let aim = |gain| self.target(self.bandwidth.max(), gain, Bytes::ZERO);
        let gain = self.pacing_gain();
        let over = if gain > 1.0 {
            whole && (acked.lost > Bytes::ZERO || in_flight >= aim(gain))
        } else if gain < 1.0 {
            whole || in_flight <= aim(1.0)
        } else {
            whole
        };
        if over {
            self.mode = Mode::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: acked.now };
        }
    }

    pub(super) fn check_startup_end(&mut self, acked: &Acked) {
        if self.mode == Mode::Startup && self.filled {
            self.mode = Mode::Drain;
        }
        let drained = self.target(self.bandwidth.max(), 1.0, Bytes::ZERO);
        if self.mode == Mode::Drain && acked.in_flight_after.get() <= drained {
            self.probe_bandwidth(acked.now);
        }
    }

    /// Tracks the minimum round-trip time, and probes for it once it is too old.
    pub(super) fn update_min_rtt(&mut self, acked: &Acked) {
        let rtt = acked.latest_rtt.or(acked.rtt);
        if self.min_rtt.value.is_none() && rtt.is_some() {
            // The handshake gave no sample (Linux `bbr_set_pacing_rate`).
            self.pace = initial_pace(self.window, rtt, self.rules.start_gains().0);
        }
        if self.rules.radio
            && let (Some(rtt), Some(min)) = (rtt, self.min_rtt.value)
            && rtt <= min + min / 8
        {
            // Without a queue there is nothing to drain, which all paths of a connection would do at the same time.
            self.min_rtt.at = acked.now;
        }
        let expired = self.min_rtt.update(acked.now, rtt, self.rules.min_rtt_window);
        if expired && !self.idle_restart && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.save_window();
            self.mode = Mode::ProbeRtt { until: None, round_over: false };
        }
        if let Mode::ProbeRtt { until, round_over } = self.mode {
            self.lull.extend(acked.delivered, acked.in_flight_after);
            if until.is_some() {
                self.mode = Mode::ProbeRtt { until, round_over: round_over | self.rounds.started };
                self.end_probe_rtt(acked.now);
            } else if acked.in_flight_after.get() <= MIN_SEGMENTS * self.segment {
                self.rounds.restart(acked.delivered);
                let until = Some(acked.now + PROBE_RTT_TIME);
                self.mode = Mode::ProbeRtt { until, round_over: false };
            }
        }
        self.idle_restart &= acked.bytes == Bytes::ZERO;
    }

    pub(super) fn end_probe_rtt(&mut self, now: Instant) {
        if let Mode::ProbeRtt { until: Some(until), round_over: true } = self.mode
            && now > until
        {
            self.min_rtt.at = now;
            self.window = self.window.max(self.prior_window);
            self.mode = Mode::Startup;
            if self.filled {
                self.probe_bandwidth(now);
            }
        }
    }
}
