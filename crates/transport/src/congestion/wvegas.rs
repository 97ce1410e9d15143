//! wVegas, weighted Vegas: every path keeps a few segments in its queues, in proportion to its
//! rate.
//!
//! Source: Cao, Xu, Fu, ICNP 2012; draft-xu-mptcp-congestion-control. Windows are in segments,
//! times in seconds.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Instant};

use super::aggregate::{Paths, Window};
use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Siblings};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "wvegas",
    summary: "Weighted Vegas: once per round trip, every path compares its number of queued \
              segments with its share of a common total, and adds or removes a segment. Shares \
              follow rates, so traffic moves away from paths whose queues grow. A single path has \
              the whole total, as in Vegas.",
    source: "Cao, Xu and Fu, ICNP 2012; draft-xu-mptcp-congestion-control",
    linux: "whole segments, weights in units of 1/65536, and Reno's growth in rounds with fewer \
            than three round-trip time samples; the window grows even if it is not used; an idle \
            time resets all round-trip times",
    parameters: {
        total_alpha: f64 = 10.0, "segments", "10", "total segments that all paths keep in queues",
            "a number of at least 1" if *total_alpha >= 1.0 && total_alpha.is_finite();
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "arithmetic of the paper or of Linux";
    }
}

/// Share of a path before the first measurement, and its minimum, in segments.
const MIN_ALPHA: f64 = 2.0;
/// Segments in queues above which slow start ends.
const GAMMA: f64 = 1.0;

impl Config {
    /// Builds a new instance. A total outside its range is replaced by the default.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let usual = Self::default().total_alpha;
        Box::new(Wvegas {
            total_alpha: if self.check().is_ok() { self.total_alpha } else { usual },
            compat: self.compat,
            alpha: MIN_ALPHA,
            window: Window::new(path),
            base_rtt: f64::INFINITY,
            round: Round::default(),
            min_queueing: None,
        })
    }
}

#[derive(Debug)]
struct Wvegas {
    total_alpha: f64,
    compat: Compat,
    window: Window,
    /// Segments to keep in this path's queues.
    alpha: f64,
    base_rtt: f64,
    round: Round,
    /// Minimum queueing delay of a round since the queue was last drained.
    min_queueing: Option<f64>,
}

/// Round-trip times of one round.
#[derive(Debug, Default)]
struct Round {
    /// Bytes delivered since the start at which the round ends; `None` before it starts.
    end: Option<Bytes>,
    rtts: f64,
    samples: u32,
}

impl Wvegas {
    /// Returns `window · numerator / denominator`, rounded down for Linux.
    fn scaled(&self, numerator: f64, denominator: f64) -> f64 {
        self.rounded(self.rounded(self.window.segments()) * numerator / denominator)
    }

    fn rounded(&self, value: f64) -> f64 {
        match self.compat {
            Compat::Paper => value,
            // A value just below an integer is that integer: times are in seconds here.
            Compat::Linux => libm::floor(value + 1e-9),
        }
    }

    /// True if the window may grow: in Linux, whether it is used or not.
    fn may_grow(&self, acked: &Acked) -> bool {
        acked.window_limited || self.compat == Compat::Linux
    }

    fn begin_round(&mut self, acked: &Acked) {
        let end = Some(acked.delivered + acked.in_flight_after);
        self.round = Round { end, ..Round::default() };
    }

    fn end_round(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        let Round { rtts, samples, .. } = self.round;
        self.begin_round(acked);
        let min_samples = match self.compat {
            Compat::Paper => 1,
            Compat::Linux => 3,
        };
        if samples < min_samples {
            if acked.window_limited && !self.window.slow_start(acked.bytes) {
                self.window.avoid_congestion(acked.bytes);
            }
            return;
        }
        let limited = self.may_grow(acked);
        let rtt = rtts / f64::from(samples);
        let queued = self.scaled(rtt - self.base_rtt, rtt);
        if self.window.in_slow_start() {
            if queued > GAMMA {
                let target = self.scaled(self.base_rtt, rtt);
                self.window.set_segments(self.window.segments().min(target + 1.0));
            } else if limited {
                self.window.slow_start(acked.bytes);
            }
        } else {
            self.avoid_congestion(rtt, queued, limited, siblings);
        }
    }

    fn avoid_congestion(&mut self, rtt: f64, queued: f64, limited: bool, siblings: Siblings<'_>) {
        let window = self.rounded(self.window.segments());
        if queued >= self.alpha {
            let weight = self.weight(rtt, siblings);
            let share = self.rounded(weight * self.total_alpha);
            self.alpha = share.max(MIN_ALPHA);
        }
        if queued > self.alpha {
            self.window.set_segments(window - 1.0);
        } else if queued < self.alpha && limited {
            self.window.set_segments(window + 1.0);
        }
        let queueing = rtt - self.base_rtt;
        let min = self.min_queueing.map_or(queueing, |min| min.min(queueing));
        self.min_queueing = Some(min);
        // An empty queue needs no draining.
        if min > 0.0 && queueing >= 2.0 * min {
            self.window.set_segments(self.drained(rtt));
            self.min_queueing = None;
        }
    }

    /// Window that drains the queues.
    fn drained(&self, rtt: f64) -> f64 {
        match self.compat {
            Compat::Paper => self.scaled(self.base_rtt, 2.0 * rtt),
            Compat::Linux => {
                let factor = libm::floor(self.base_rtt / (2.0 * rtt) * 65_536.0);
                self.scaled(factor, 65_536.0)
            }
        }
    }

    /// Share of this path in the total rate, for its round-trip time in this round.
    fn weight(&self, rtt: f64, siblings: Siblings<'_>) -> f64 {
        let paths = Paths::new(siblings, self.window.segments());
        if paths.own().is_none() {
            return 1.0;
        }
        let rate = self.window.segments() / rtt;
        match self.compat {
            Compat::Paper => rate / (rate + paths.others().map(|path| path.rate()).sum::<f64>()),
            Compat::Linux => {
                // Segments per microsecond in 1/65536; the weight has the same unit.
                let whole = |rate: f64| libm::floor(rate * 0.065_536);
                let total =
                    whole(rate) + paths.others().map(|path| whole(path.rate())).sum::<f64>();
                libm::floor(whole(rate) * 65_536.0 / total.max(1.0)) / 65_536.0
            }
        }
    }
}

impl Congestion for Wvegas {
    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        match self.round.end {
            Some(end) if acked.delivered >= end => return self.end_round(acked, siblings),
            Some(_) => {}
            None => self.begin_round(acked),
        }
        if self.may_grow(acked) {
            self.window.slow_start(acked.bytes);
        }
    }

    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        if let Some(rtt) = acked.rtt.filter(|rtt| rtt.is_positive()) {
            let rtt = rtt.as_secs_f64();
            self.base_rtt = self.base_rtt.min(rtt);
            self.round.rtts += rtt;
            self.round.samples += 1;
        }
    }

    fn on_recovered(&mut self, _now: Instant) {
        // Samples taken during recovery do not count.
        self.round = Round::default();
        self.min_queueing = None;
    }

    fn on_loss(&mut self, lost: &Lost, _: Siblings<'_>) {
        self.window.reduce(self.window.halved(lost));
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, _: Siblings<'_>) {
        if !repeated {
            self.window.reduce(self.window.halved(lost));
        }
        self.window.restart();
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.window.idle(idle);
        if self.compat == Compat::Linux && idle.rule.restarts() {
            // `CA_EVENT_CWND_RESTART` initialises the control again.
            self.base_rtt = f64::INFINITY;
            self.round = Round::default();
            self.min_queueing = None;
            self.alpha = MIN_ALPHA;
        }
    }

    fn on_spurious(&mut self, before: &ControlState) {
        self.window.restore(before);
    }

    fn is_coupled(&self) -> bool {
        true
    }

    window_of!(window);
}

#[cfg(test)]
mod tests {
    use super::super::aggregate::testing::{SEGMENT, sibling};
    use super::super::idle::testing::idle_until;
    use super::super::{Sibling, Siblings};
    use super::*;
    use skybraid_units::Duration;

    const BASE_MS: i64 = 100;

    /// Returns a control with a known base round-trip time, in congestion avoidance unless
    /// `threshold` is higher.
    fn wvegas(compat: Compat, window: u64, threshold: u64) -> Box<dyn Congestion> {
        let config = Config { compat, ..Config::default() };
        let mut control = config.build(&PathBasics::in_test(
            Bytes::new(SEGMENT),
            Bytes::new(window * SEGMENT),
            Bytes::new(threshold * SEGMENT),
        ));
        control.on_delivery(&sampled(0, BASE_MS), Siblings::default());
        let begin = Acked { in_flight_after: Bytes::new(1), ..Acked::default() };
        control.on_ack(&begin, Siblings::default());
        control
    }

    fn sampled(delivered: u64, rtt_ms: i64) -> Acked {
        Acked {
            bytes: Bytes::new(SEGMENT),
            delivered: Bytes::new(delivered),
            rtt: Some(Duration::from_millis(rtt_ms)),
            window_limited: true,
            ..Acked::default()
        }
    }

    /// Returns the window in segments after a round of four samples, the last of which ends it.
    fn after_round(control: &mut dyn Congestion, rtt_ms: i64, paths: &[Sibling]) -> f64 {
        let siblings = Siblings { all: paths, own: 0 };
        let delivered = [0, 0, 0, 1].map(|delivered| delivered * u64::MAX);
        for delivered in delivered {
            control.on_delivery(&sampled(delivered, rtt_ms), siblings);
        }
        control.on_ack(&sampled(u64::MAX, rtt_ms), siblings);
        control.window().get() as f64 / SEGMENT as f64
    }

    // Source: the vectors of the algorithm reference, §3.4: 20 · 20 / 120 = 3.33 segments are
    // queued.
    #[test]
    fn more_than_gamma_in_the_queue_ends_slow_start() {
        for (compat, window) in [(Compat::Linux, 17.0), (Compat::Paper, 20.0 / 1.2 + 1.0)] {
            let mut control = wvegas(compat, 20, 1000);
            let found = after_round(&mut *control, 120, &[]);
            assert!((found - window).abs() < 1e-6, "{found}");
            assert!(control.slow_start_threshold() < control.window());
        }
    }

    // Source: the vectors of the algorithm reference, §3.4: raw weights 0.189 and 0.811.
    #[test]
    fn weights_follow_rates() {
        let paths = [sibling((20, 120, 1)), sibling((40, 60, 1))];
        for (compat, weights) in
            [(Compat::Paper, [0.2, 0.8]), (Compat::Linux, [10.0 / 53.0, 43.0 / 53.0])]
        {
            for own in [0, 1] {
                let path =
                    PathBasics::in_test(Bytes::new(SEGMENT), paths[own].window, paths[own].window);
                let control = Wvegas {
                    total_alpha: 10.0,
                    compat,
                    alpha: MIN_ALPHA,
                    window: Window::new(&path),
                    base_rtt: 0.05,
                    round: Round::default(),
                    min_queueing: None,
                };
                let rtt = paths[own].srtt.as_secs_f64();
                let weight = control.weight(rtt, Siblings { all: &paths, own });
                assert!((weight - weights[own]).abs() < 2e-5, "{weight}");
                let share = control.rounded(weight * 10.0);
                let expected = if compat == Compat::Linux { [1.0, 8.0] } else { [2.0, 8.0] };
                assert!((share - expected[own]).abs() < 1e-6, "{share}");
            }
        }
    }

    // Source: the algorithm reference, §3.4. Two paths with equal rates share ten segments; a
    // single path has all of them. Whole segments, so that a queue can be exactly right.
    #[test]
    fn the_window_moves_towards_its_share_of_the_queues() {
        for (rtt_ms, paths, moved) in
            [(101, 2, 1.0), (125, 2, 0.0), (140, 2, -1.0), (130, 1, 1.0), (167, 1, 0.0)]
        {
            let mut control = wvegas(Compat::Linux, 25, 25);
            let window =
                after_round(&mut *control, rtt_ms, &[sibling((25, rtt_ms, 1)); 2][..paths]);
            assert!((window - 25.0 - moved).abs() < 1e-6, "{rtt_ms} ms: {window}");
        }
    }

    // Source: the vectors of the algorithm reference, §3.4: 30 · 100 / 300, in Linux rounded down.
    #[test]
    fn a_queue_of_twice_the_minimum_is_drained() {
        for (compat, drained) in [(Compat::Paper, 10.0), (Compat::Linux, 9.0)] {
            let mut control = wvegas(compat, 30, 30);
            let paths = [sibling((30, 110, 1)); 2];
            let before = after_round(&mut *control, 110, &paths);
            assert!((before - 31.0).abs() < 1e-6);
            // One segment goes because more than the share is queued; the remaining window is
            // drained.
            let window = after_round(&mut *control, 150, &paths);
            assert!((window - drained).abs() < 1e-6, "{window}");
        }
    }

    // Source: mptcp_wvegas.c, `mptcp_wvegas_cwnd_event`: a restart initialises the control again, so that the next
    // round-trip time is the base, whatever queue it contains.
    #[test]
    fn an_idle_time_of_linux_forgets_the_base_round_trip_time() {
        for (compat, moved) in [(Compat::Paper, -1.0), (Compat::Linux, 1.0)] {
            let mut control = wvegas(compat, 25, 25);
            control.on_idle(&idle_until(0));
            let begin = Acked { in_flight_after: Bytes::new(1), ..Acked::default() };
            control.on_ack(&begin, Siblings::default());
            let window = after_round(&mut *control, 140, &[sibling((25, 140, 1)); 2]);
            assert!((window - 25.0 - moved).abs() < 1e-6, "{window}");
        }
    }
}
