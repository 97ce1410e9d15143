//! BBR, version 1: paces at the measured delivery rate, with about two measured bandwidth-delay
//! products in flight.
//!
//! Source: draft-cardwell-iccrg-bbr-congestion-control-00; Linux `tcp_bbr.c` for what the draft
//! omits (recovery, policers, aggregation).

use skybraid_units::{Bytes, Duration, Instant, Promised, Rate, Stream};

use super::model::{Aggregation, Lull, MaxFilter, MinRtt, Rounds, bdp, initial_pace, times};
use super::{Acked, Congestion, Lost, PathBasics, RateSample, Restart, Siblings};
use crate::algorithm;
use crate::registry::Compat;

mod cycle;
mod policer;
mod random_loss;
#[cfg(test)]
mod tests;
mod window;

use policer::Policer;
use random_loss::RandomLoss;

algorithm! {
    name: "bbr",
    summary: "BBR version 1: measures the bottleneck's bandwidth and the minimum round-trip time, \
              paces at that bandwidth and keeps at most two bandwidth-delay products in flight. It \
              probes for more bandwidth every eighth round trip, and for a lower round-trip time \
              every ten seconds. Losses below about 20 % do not slow it down.",
    source: "draft-cardwell-iccrg-bbr-congestion-control-00; Cardwell et al., ACM Queue 14(5), 2016",
    linux: "startup gains of 739/256 and 88/256 instead of 2/ln 2 and ln 2/2, integer \
            bandwidth-delay products, a pacing rate 1 % below the bandwidth, and a window with \
            three more transmission units, rounded up to an even number of segments, and two more \
            while probing",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "gains and rounding of the draft, or of Linux";
        bandwidth_rounds: u32 = 10, "round trips", "10",
            "time for which the maximum delivery rate counts as the bandwidth",
            "at least 1" if *bandwidth_rounds > 0;
        min_rtt_window: Duration = Duration::from_secs(10), "time", "10s",
            "time for which the minimum round-trip time is valid before it is measured again",
            "a time above zero" if min_rtt_window.is_positive();
        aggregation: bool = true, "true or false", "true",
            "widen the window by the excess data of aggregated acknowledgements";
        policer: bool = true, "true or false", "true",
            "keep the rate that a token-bucket policer appears to allow";
        radio: bool = false, "true or false", "false",
            "for radio links: compensate losses that do not depend on the rate, up to 60 %; do not \
             shrink the window after a loss; do not drain paths whose round trips are near their \
             minimum";
    },
    congestion: |config, path| Bbr::new(config, path),
}

impl Config {
    /// Pacing gains of startup and drain.
    fn start_gains(&self) -> (f64, f64) {
        match self.compat {
            Compat::Paper => (2.0 / core::f64::consts::LN_2, core::f64::consts::LN_2 / 2.0),
            Compat::Linux => (739.0 / 256.0, 88.0 / 256.0),
        }
    }
}

/// Pacing gains of the phases of probing for bandwidth.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const WINDOW_GAIN: f64 = 2.0;
/// Minimum window, and the window while probing for the round-trip time.
const MIN_SEGMENTS: u64 = 4;
const AGGREGATION_ROUNDS: u64 = 10;
/// Segments after which the measurement of aggregation restarts.
const AGGREGATION_EPOCH: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw {
        phase: usize,
        since: Instant,
    },
    /// `until` is set once at most the minimum window is in flight.
    ProbeRtt {
        until: Option<Instant>,
        round_over: bool,
    },
}

#[derive(Debug)]
struct Bbr {
    rules: Config,
    segment: u64,
    initial_window: u64,
    draws: Stream,
    mode: Mode,
    rounds: Rounds,
    bandwidth: MaxFilter<Rate>,
    min_rtt: MinRtt,
    /// Bandwidth that growth is measured against, and the number of rounds without growth.
    full_bandwidth: Rate,
    full_rounds: u32,
    filled: bool,
    aggregation: Aggregation,
    extra: MaxFilter<Bytes>,
    policer: Policer,
    random_loss: RandomLoss,
    lull: Lull,
    idle_restart: bool,
    window: u64,
    /// Window before recovery or before probing for the round-trip time.
    prior_window: u64,
    pace: Rate,
    recovering: bool,
    /// True in the first round of a recovery: packet conservation.
    conserving: bool,
    /// Bytes delivered and lost since the start.
    delivered: Bytes,
    lost: Bytes,
    /// Bytes in flight if each byte just acknowledged is replaced by a new one.
    conserved: Bytes,
}

impl Bbr {
    fn new(rules: &Config, path: &PathBasics) -> Self {
        let window = path.initial_window.get().max(1);
        Self {
            rules: rules.clone(),
            segment: path.segment.get().max(1),
            initial_window: window,
            draws: path.seed.stream("bbr"),
            mode: Mode::Startup,
            rounds: Rounds::default(),
            bandwidth: MaxFilter::new(),
            min_rtt: MinRtt::default(),
            full_bandwidth: Rate::ZERO,
            full_rounds: 0,
            filled: false,
            aggregation: Aggregation::default(),
            extra: MaxFilter::new(),
            policer: Policer::default(),
            random_loss: RandomLoss::default(),
            lull: Lull::default(),
            idle_restart: false,
            window,
            prior_window: 0,
            pace: initial_pace(window, None, rules.start_gains().0),
            recovering: false,
            conserving: false,
            delivered: Bytes::ZERO,
            conserved: Bytes::ZERO,
            lost: Bytes::ZERO,
        }
    }

    fn linux(&self) -> bool {
        self.rules.compat == Compat::Linux
    }

    /// Bandwidth to send at.
    fn rate(&self) -> Rate {
        self.policer.rate().unwrap_or(self.bandwidth.max())
    }

    fn pacing_gain(&self) -> f64 {
        let (start, drain) = self.rules.start_gains();
        match self.mode {
            Mode::Startup => start,
            Mode::Drain => drain,
            Mode::ProbeBw { .. } if self.policer.rate().is_some() => 1.0,
            Mode::ProbeBw { phase, .. } => {
                CYCLE.get(phase).promised("a phase of the cycle").copied().unwrap_or(1.0)
            }
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => self.rules.start_gains().0,
            Mode::ProbeBw { .. } => WINDOW_GAIN,
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    /// Updates the model with a delivery rate sample. Returns false if the sample was
    /// application-limited.
    fn measure(&mut self, acked: &Acked, sample: &RateSample) -> bool {
        self.rounds.update(sample.prior_delivered, acked.delivered);
        self.conserving &= !self.rounds.started;
        let app_limited = sample.app_limited || self.lull.covers(sample.prior_delivered);
        if !app_limited || sample.rate >= self.bandwidth.max() {
            let window = u64::from(self.rules.bandwidth_rounds.max(1));
            self.bandwidth.update(self.rounds.count, sample.rate, window);
        }
        self.watch_policer(acked.now, acked.lost > Bytes::ZERO, app_limited);
        if self.rules.aggregation {
            let max = Bytes::new(AGGREGATION_EPOCH * self.segment);
            let extra = self.aggregation.update(acked.now, acked.bytes, self.rate(), max);
            let extra = extra.min(Bytes::new(self.window));
            self.extra.update(self.rounds.count, extra, AGGREGATION_ROUNDS);
        }
        !app_limited
    }

    fn watch_policer(&mut self, now: Instant, losing: bool, app_limited: bool) {
        let seen = policer::Observation {
            at: now,
            delivered: self.delivered,
            lost: self.lost,
            losing,
            round_started: self.rounds.started,
            app_limited,
        };
        let steady = matches!(self.mode, Mode::ProbeBw { .. });
        if self.rules.policer && self.policer.update(&seen, steady) {
            self.probe_bandwidth(now);
        }
    }
}

impl Congestion for Bbr {
    fn on_ack(&mut self, _: &Acked, _: Siblings<'_>) {}

    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        self.delivered = acked.delivered;
        self.conserved = acked.in_flight_after + acked.bytes;
        self.lost += acked.lost;
        self.rounds.started = false;
        if self.rules.radio {
            // What was sent in a phase is acknowledged in the next one.
            let draining = matches!(self.mode, Mode::ProbeBw { phase: 2, .. });
            let count = |bytes: Bytes| bytes.get() / self.segment;
            self.random_loss.on_delivery(draining, count(acked.bytes), count(acked.lost));
        }
        let informative = acked.rate.is_some_and(|sample| self.measure(acked, &sample));
        self.advance_cycle(acked);
        if informative && self.rounds.started && !self.filled {
            self.check_full_pipe();
        }
        self.check_startup_end(acked);
        self.update_min_rtt(acked);
        self.set_pace(self.pacing_gain());
        self.set_window(acked);
    }

    fn on_loss(&mut self, _: &Lost, _: Siblings<'_>) {
        self.save_window();
        if self.rules.radio {
            return;
        }
        self.recovering = true;
        self.conserving = true;
        self.rounds.restart(self.delivered);
        self.window = self.conserved.get().max(self.segment);
        self.bound_window();
    }

    fn on_recovered(&mut self, _: Instant) {
        self.recovering = false;
        self.conserving = false;
        self.window = self.window.max(self.prior_window);
        self.bound_window();
    }

    fn on_timeout(&mut self, lost: &Lost, _: bool, _: Siblings<'_>) {
        self.save_window();
        self.recovering = true;
        self.conserving = false;
        self.lost += lost.in_flight;
        self.full_bandwidth = Rate::ZERO;
        self.rounds.started = true;
        self.watch_policer(lost.now, true, false);
        let min = if self.rules.radio { MIN_SEGMENTS } else { 1 };
        self.window = min * self.segment;
    }

    fn on_established(&mut self, now: Instant, rtt: Option<Duration>) {
        self.min_rtt = MinRtt { value: rtt, at: now };
        self.aggregation.restart(now);
        self.pace = initial_pace(self.window, rtt, self.rules.start_gains().0);
    }

    fn on_restart(&mut self, &Restart { now, app_limited, .. }: &Restart) {
        if !app_limited {
            return;
        }
        self.idle_restart = true;
        self.aggregation.restart(now);
        if matches!(self.mode, Mode::ProbeBw { .. }) {
            self.set_pace(1.0);
        }
        self.end_probe_rtt(now);
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.window.max(self.segment))
    }

    fn slow_start_threshold(&self) -> Bytes {
        if self.filled { self.window() } else { Bytes::new(u64::MAX) }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pace)
    }

    fn governs_recovery(&self) -> bool {
        true
    }
}
