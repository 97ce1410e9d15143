//! BBR, version 3: version 1 with bounds from observed loss.
//!
//! Source: draft-ietf-ccwg-bbr-06. Undoing a spurious recovery (§5.5.11) is omitted: the control
//! keeps its model.

use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Stream};

use super::model::{Aggregation, Lull, MaxFilter, MinRtt, Rounds, bdp, initial_pace, times};
use super::{Acked, Congestion, Lost, PathBasics, RateSample, Restart, Siblings};
use crate::algorithm;

mod bounds;
mod probe;
mod round_trip;
#[cfg(test)]
mod tests;
mod window;

use bounds::Bounds;
use probe::Probe;

algorithm! {
    name: "bbr3",
    summary: "BBR version 3: paces at the measured bandwidth with about two bandwidth-delay \
              products in flight, remembers the amount in flight that lost more than 2 %, and \
              stays 15 % below it. It probes for more bandwidth every two to three seconds, and \
              for a lower round-trip time every five seconds.",
    source: "draft-ietf-ccwg-bbr-06",
    parameters: {
        /// `BBR.LossThresh`.
        loss_threshold: Probability = Probability::saturating(0.02), "probability", "2%",
            "loss in a round trip above which the amount in flight is too large",
            "less than 100%" if loss_threshold.ratio() < 1.0;
        /// `BBR.Beta`.
        beta: f64 = 0.7, "ratio", "0.7",
            "minimum factor on the amount in flight after a round trip with too much loss",
            "a number between 0 and 1" if *beta > 0.0 && *beta < 1.0;
        /// `BBR.Headroom`.
        headroom: f64 = 0.15, "ratio", "0.15",
            "headroom for other flows below the amount in flight that was too large",
            "a number from 0 to below 1" if (0.0..1.0).contains(headroom);
        /// `BBR.MinRTTFilterLen`.
        min_rtt_window: Duration = Duration::from_secs(10), "time", "10s",
            "time for which the minimum round-trip time is valid",
            "a time above zero" if min_rtt_window.is_positive();
        /// `BBR.ProbeRTTInterval`.
        probe_rtt_interval: Duration = Duration::from_secs(5), "time", "5s",
            "interval at which the queue is drained to measure the round-trip time",
            "a time above zero" if probe_rtt_interval.is_positive();
    },
    congestion: |config, path| Bbr3::new(config, path),
}

const STARTUP_PACING_GAIN: f64 = 2.77;
/// Number of probing cycles of the maximum filter of the bandwidth.
const BANDWIDTH_CYCLES: u64 = 2;
const AGGREGATION_ROUNDS: u64 = 10;
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
const DRAIN_ROUNDS: u64 = 3;
const STARTUP_LOSS_EVENTS: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    /// The round in which it began.
    Drain(u64),
    Down,
    Cruise,
    Refill,
    Up,
    /// `until` is set once little enough is in flight.
    ProbeRtt {
        until: Option<Instant>,
        round_over: bool,
    },
}

impl State {
    const fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain(_) => 0.5,
            Self::Down => 0.9,
            Self::Up => 1.25,
            Self::Cruise | Self::Refill | Self::ProbeRtt { .. } => 1.0,
        }
    }

    const fn window_gain(self) -> f64 {
        match self {
            Self::Up => 2.25,
            Self::ProbeRtt { .. } => 0.5,
            Self::Startup | Self::Drain(_) | Self::Down | Self::Cruise | Self::Refill => 2.0,
        }
    }

    /// True in the states of `ProbeBW`.
    const fn probes_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// True if the state sends faster than the known bandwidth, or is about to.
    const fn accelerates(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

/// Detector of a full pipe: faster sending no longer brings faster delivery (§5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    rate: Rate,
    rounds: u32,
    now: bool,
    /// True once the pipe has been full.
    ever: bool,
}

impl FullPipe {
    /// Restarts from the rate `rate`.
    fn restart(&mut self, rate: Rate) {
        *self = Self { rate, ever: self.ever, ..Self::default() };
    }

    /// Processes the delivery rate at the end of a round.
    fn end_round(&mut self, rate: Rate) {
        if rate >= times(self.rate, FULL_GROWTH) {
            self.restart(rate);
            return;
        }
        self.rounds += 1;
        self.now = self.rounds >= FULL_ROUNDS;
        self.ever |= self.now;
    }
}

#[derive(Debug)]
struct Bbr3 {
    rules: Config,
    segment: u64,
    initial_window: u64,
    sack: bool,
    draws: Stream,
    state: State,
    rounds: Rounds,
    full: FullPipe,
    max_bandwidth: MaxFilter<Rate>,
    cycle: u64,
    /// Bandwidth to send at: the maximum measured, within the bounds.
    bandwidth: Rate,
    min_rtt: MinRtt,
    /// Minimum round-trip time since the last probe for it.
    probed_rtt: MinRtt,
    bounds: Bounds,
    probe: Probe,
    aggregation: Aggregation,
    extra: MaxFilter<Bytes>,
    lull: Lull,
    idle_restart: bool,
    window: u64,
    prior_window: u64,
    /// True if the window, not the pacing rate, limited sending before the current acknowledgement.
    window_limited: bool,
    pace: Rate,
    recovering: bool,
}

impl Bbr3 {
    fn new(rules: &Config, path: &PathBasics) -> Self {
        let window = path.initial_window.get().max(1);
        Self {
            rules: rules.clone(),
            segment: path.segment.get().max(1),
            initial_window: window,
            sack: path.sack,
            draws: path.seed.stream("bbr3"),
            state: State::Startup,
            rounds: Rounds::default(),
            full: FullPipe::default(),
            max_bandwidth: MaxFilter::new(),
            cycle: 0,
            bandwidth: Rate::ZERO,
            min_rtt: MinRtt::default(),
            probed_rtt: MinRtt::default(),
            bounds: Bounds::default(),
            probe: Probe::default(),
            aggregation: Aggregation::default(),
            extra: MaxFilter::new(),
            lull: Lull::default(),
            idle_restart: false,
            window,
            prior_window: 0,
            window_limited: false,
            pace: initial_pace(window, None, STARTUP_PACING_GAIN),
            recovering: false,
        }
    }

    /// Updates the model, and every state but `ProbeRTT`, with a delivery rate sample.
    fn measure(&mut self, acked: &Acked, sample: &RateSample) {
        self.on_rate_sample(acked, sample);
        self.rounds.update(sample.prior_delivered, acked.delivered);
        self.probe.rounds += u64::from(self.rounds.started);
        if !sample.app_limited || sample.rate >= self.max_bandwidth.max() {
            self.max_bandwidth.update(self.cycle, sample.rate, BANDWIDTH_CYCLES);
        }
        self.end_loss_round();
        let max = Bytes::new(u64::MAX);
        let extra = self.aggregation.update(acked.now, acked.bytes, self.bandwidth, max);
        let rounds = if self.full.ever { AGGREGATION_ROUNDS } else { 1 };
        self.extra.update(self.rounds.count, extra.min(Bytes::new(self.window)), rounds);
        if self.rounds.started && !self.full.now && !sample.app_limited {
            self.full.end_round(sample.rate);
        }
        self.check_startup_loss(acked, sample);
        if self.state == State::Startup && self.full.ever {
            self.state = State::Drain(self.rounds.count);
        }
        if let State::Drain(since) = self.state {
            let drained = acked.in_flight_after.get() <= self.with_budget(self.bdp(1.0));
            if drained || self.rounds.count > since + DRAIN_ROUNDS {
                self.start_down(acked);
            }
        }
        if self.full.ever {
            self.advance_cycle(acked, sample);
        }
    }
}

impl Congestion for Bbr3 {
    fn on_ack(&mut self, _: &Acked, _: Siblings<'_>) {}

    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        self.rounds.started = false;
        self.window_limited = acked.in_flight.get() + self.segment > self.window;
        let sample = acked.rate.map(|sample| RateSample {
            app_limited: sample.app_limited || self.lull.covers(sample.prior_delivered),
            ..sample
        });
        if acked.lost > Bytes::ZERO {
            self.on_lost(acked, sample.as_ref());
        }
        if let Some(sample) = &sample {
            self.measure(acked, sample);
        }
        self.update_min_rtt(acked);
        if let Some(sample) = &sample {
            self.bounds.begin_loss_round(acked, sample);
        }
        self.bandwidth = self.max_bandwidth.max().min(self.bounds.bandwidth);
        self.set_pace(self.state.pacing_gain());
        self.set_window(acked);
    }

    fn on_loss(&mut self, _: &Lost, _: Siblings<'_>) {
        self.save_window();
        self.recovering = true;
    }

    fn on_recovered(&mut self, _: Instant) {
        self.recovering = false;
        self.window = self.window.max(self.prior_window);
        self.bound_window();
    }

    fn on_timeout(&mut self, _: &Lost, _: bool, _: Siblings<'_>) {
        self.save_window();
        self.recovering = true;
        self.window = self.segment;
    }

    fn on_established(&mut self, now: Instant, rtt: Option<Duration>) {
        self.min_rtt = MinRtt { value: rtt, at: now };
        self.probed_rtt = self.min_rtt;
        self.aggregation.restart(now);
        self.pace = initial_pace(self.window, rtt, STARTUP_PACING_GAIN);
    }

    fn on_restart(&mut self, &Restart { now, app_limited, .. }: &Restart) {
        if !app_limited {
            return;
        }
        self.idle_restart = true;
        self.aggregation.restart(now);
        if self.state.probes_bandwidth() {
            self.set_pace(1.0);
        }
        self.end_probe_rtt(now, self.bounds.delivered);
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.window.max(self.segment))
    }

    fn slow_start_threshold(&self) -> Bytes {
        if self.full.ever { self.window() } else { Bytes::new(u64::MAX) }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pace)
    }

    fn governs_recovery(&self) -> bool {
        true
    }
}
