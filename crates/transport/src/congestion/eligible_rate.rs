//! Eligible rate of Westwood: the rate that the path can carry, estimated from acknowledgements.
//!
//! Source: Mascolo et al., TCP Westwood (2001; the filter of Tustin's rule); Wang, Valla, Sanadidi,
//! Gerla, Adaptive bandwidth share estimation (2002). Rates are in bytes/s and times in seconds.

use alloc::collections::VecDeque;

use skybraid_units::{Instant, Promised};

use super::Acked;
use super::rounds::Rounds;

/// Parameters of [`super::westwood`].
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Averages each sample with the one before, and treats a long silence as empty samples.
    pub(super) tustin: bool,
    pub(super) adaptive_interval: bool,
    pub(super) adaptive_gain: bool,
    pub(super) t_min: f64,
    pub(super) tau: f64,
    pub(super) n: f64,
    pub(super) beta: f64,
    pub(super) u_window: usize,
}

/// Weight of the past in the throughput that detects congestion, as in the paper of 2002. (Texts
/// that restate it use the estimate itself, which detects no congestion once it is too high.)
const THROUGHPUT_MEMORY: f64 = 0.6;

/// Weight of the old estimate after `delta` in a filter with time constant `tau`: the bilinear
/// form, which reaches zero at twice `tau` and would be negative beyond.
pub(super) fn alpha(tau: f64, delta: f64) -> f64 {
    ((2.0 * tau - delta) / (2.0 * tau + delta)).max(0.0)
}

/// Interval that a sample must cover: from zero, if the throughput fills the window without a
/// queue, up to the round-trip time.
pub(super) fn interval(rtt: f64, rtt_min: f64, window: f64, throughput: f64) -> f64 {
    (rtt * (window - throughput * rtt_min) / window).clamp(0.0, rtt)
}

#[derive(Debug)]
pub(super) struct EligibleRate {
    rules: Rules,
    /// Times of acknowledgements and bytes delivered by then, for one round-trip time.
    log: VecDeque<(Instant, u64)>,
    estimate: Option<f64>,
    last_sample: f64,
    rounds: Rounds,
    round_began: Option<(Instant, u64)>,
    throughput: Option<f64>,
    /// Difference between samples, current and recent.
    instability: f64,
    instabilities: VecDeque<f64>,
}

impl EligibleRate {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            log: VecDeque::new(),
            estimate: None,
            last_sample: 0.0,
            rounds: Rounds::default(),
            round_began: None,
            throughput: None,
            instability: 0.0,
            instabilities: VecDeque::new(),
        }
    }

    /// Estimate in bytes/s; `None` before the second acknowledgement.
    pub(super) fn get(&self) -> Option<f64> {
        self.estimate
    }

    /// Processes the delivery of an acknowledgement. `rtt_min` is in seconds, `window` in bytes.
    pub(super) fn on_delivery(&mut self, acked: &Acked, rtt_min: f64, window: f64) {
        let (now, delivered) = (acked.now, acked.delivered.get());
        let Some(&(last, _)) = self.log.back() else {
            self.log.push_back((now, delivered));
            return;
        };
        let delta = now.since(last).as_secs_f64();
        if delta <= 0.0 {
            // Simultaneous acknowledgements make one sample: the next one includes this delivery.
            return;
        }
        let rtt = acked.srtt.as_secs_f64();
        self.measure_throughput(acked);
        self.log.push_back((now, delivered));
        let floor = self.rules.t_min.max(delta);
        let span = match self.throughput {
            Some(throughput) if self.rules.adaptive_interval => {
                interval(rtt, rtt_min, window, throughput).max(floor)
            }
            _ => floor,
        };
        let sample = self.sample(span);
        self.trim(now, rtt.max(floor));
        let tau = self.time_constant(sample, rtt);
        self.filter(sample, tau, delta);
    }

    /// Rate over the last `span` seconds in bytes/s.
    fn sample(&self, span: f64) -> f64 {
        let ends = self.log.back().zip(self.log.front()).promised("a logged delivery");
        let Some((&(now, delivered), &oldest)) = ends else {
            return 0.0;
        };
        // The last acknowledgement before the span; half a nanosecond is allowed for rounding.
        let outside = self
            .log
            .partition_point(|(at, _)| now.since(*at).as_secs_f64() > span - 5e-10)
            .checked_sub(1)
            .and_then(|index| self.log.get(index).copied());
        match outside {
            Some((_, before)) => (delivered - before) as f64 / span,
            // The log is shorter than the span.
            None => (delivered - oldest.1) as f64 / now.since(oldest.0).as_secs_f64(),
        }
    }

    fn trim(&mut self, now: Instant, span: f64) {
        while let Some((second, _)) = self.log.get(1)
            && now.since(*second).as_secs_f64() > span
        {
            self.log.pop_front();
        }
    }

    fn measure_throughput(&mut self, acked: &Acked) {
        if !self.rounds.end_with(acked) {
            return;
        }
        let (now, delivered) = (acked.now, acked.delivered.get());
        if let Some((began, before)) = self.round_began.replace((now, delivered)) {
            let rate = (delivered - before) as f64 / now.since(began).as_secs_f64();
            let memory = THROUGHPUT_MEMORY;
            self.throughput =
                Some(self.throughput.map_or(rate, |old| memory * old + (1.0 - memory) * rate));
        }
    }

    /// Time constant of the filter: a stable network is followed quickly, an unstable one slowly.
    fn time_constant(&mut self, sample: f64, rtt: f64) -> f64 {
        if !self.rules.adaptive_gain {
            return self.rules.tau;
        }
        let change = if self.estimate.is_some() { (sample - self.last_sample).abs() } else { 0.0 };
        self.instability = self.rules.beta * self.instability + (1.0 - self.rules.beta) * change;
        self.instabilities.push_back(self.instability);
        if self.instabilities.len() > self.rules.u_window {
            self.instabilities.pop_front();
        }
        let max = self.instabilities.iter().copied().fold(0.0, f64::max);
        let relative = if max > 0.0 { self.instability / max } else { 0.0 };
        rtt + self.rules.n * rtt * relative
    }

    fn filter(&mut self, sample: f64, tau: f64, mut delta: f64) {
        let Some(mut estimate) = self.estimate else {
            self.estimate = Some(sample);
            self.last_sample = sample;
            return;
        };
        let mut sample = sample;
        let mut smoothed = sample;
        if self.rules.tustin {
            // A silence of half the time constant counts as an empty sample.
            let silence = tau / 2.0;
            let empty = libm::ceil(delta / silence) - 1.0;
            if empty >= 1.0 {
                let alpha = alpha(tau, silence);
                estimate = alpha * estimate + (1.0 - alpha) * self.last_sample / 2.0;
                estimate *= libm::pow(alpha, empty - 1.0);
                self.last_sample = 0.0;
                sample *= delta / (delta - empty * silence);
                delta -= empty * silence;
            }
            smoothed = (sample + self.last_sample) / 2.0;
        }
        let alpha = alpha(tau, delta);
        self.estimate = Some(alpha * estimate + (1.0 - alpha) * smoothed);
        self.last_sample = sample;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::{Bytes, Duration};

    const RULES: Rules = Rules {
        tustin: false,
        adaptive_interval: false,
        adaptive_gain: false,
        t_min: 0.0,
        tau: 0.1,
        n: 10.0,
        beta: 0.6,
        u_window: 10,
    };

    fn acked(now_us: i64, delivered: u64) -> Acked {
        Acked {
            now: Instant::from_nanos(now_us * 1000),
            delivered: Bytes::new(delivered),
            srtt: Duration::from_millis(100),
            in_flight_after: Bytes::new(100_000),
            ..Acked::default()
        }
    }

    /// Estimate after a first sample of 1 MB/s and a second of 2 MB/s, `delta_us` apart.
    fn stepped(rules: Rules, delta_us: i64) -> f64 {
        let mut rate = EligibleRate::new(rules);
        let delta = delta_us as u64;
        for (now, delivered) in [(0, 0), (delta_us, delta), (2 * delta_us, 3 * delta)] {
            rate.on_delivery(&acked(now, delivered), 0.1, 100_000.0);
        }
        rate.get().unwrap()
    }

    fn assert_near(measured: f64, expected: f64) {
        assert!((measured / expected - 1.0).abs() < 1e-6, "{measured} against {expected}");
    }

    // Source: the vectors of the algorithm reference, §2.4.3.
    #[test]
    fn a_sample_moves_the_estimate_by_the_filter_s_weight() {
        assert_near(alpha(0.1, 0.01), 0.904_762);
        assert_near(alpha(0.6, 0.01), 0.983_471);
        assert_near(stepped(RULES, 10_000), 1.095_238e6);
        assert_near(stepped(Rules { tau: 0.6, ..RULES }, 10_000), 1.016_529e6);
        assert_near(stepped(RULES, 100_000), 5.0e6 / 3.0);
    }

    // Source: Mascolo et al. 2001: the same filter over the mean of two samples.
    #[test]
    fn tustins_rule_averages_each_sample_with_the_one_before() {
        let tustin = Rules { tustin: true, ..RULES };
        assert_near(stepped(tustin, 10_000), 1e6 + (1.0 - 19.0 / 21.0) * 0.5e6);
    }

    // By hand: tau 0.1 s, silence 0.05 s, alpha 0.6. 1 MB/s meets one empty sample: 0.6 + 0.4·0.5 =
    // 0.8; then a sample of 0.2 MB in 0.05 s: 0.6·0.8 + 0.4·(4 + 0)/2 = 1.28.
    #[test]
    fn tustins_rule_treats_a_silence_as_an_empty_sample() {
        assert_near(stepped(Rules { tustin: true, ..RULES }, 100_000), 1.28e6);
    }

    #[test]
    fn a_gap_of_two_time_constants_erases_the_old_estimate() {
        assert_eq!(alpha(0.1, 0.21), 0.0);
        assert!(alpha(0.1, 0.0) <= 1.0);
        assert_near(stepped(RULES, 300_000), 2e6);
    }

    #[test]
    fn simultaneous_acknowledgements_make_one_sample() {
        let mut rate = EligibleRate::new(RULES);
        for (now, delivered) in [(0, 0), (10_000, 10_000), (10_000, 15_000), (20_000, 20_000)] {
            rate.on_delivery(&acked(now, delivered), 0.1, 100_000.0);
        }
        assert_near(rate.get().unwrap(), 1e6);
    }

    // Source: palazzi2007 PAL-T1, with its equations 2 and 3 in consistent units.
    #[test]
    fn the_interval_grows_with_congestion_up_to_the_rtt() {
        assert_near(interval(0.2, 0.1, 20.0, 60.0), 0.14);
        assert_eq!(interval(0.2, 0.1, 20.0, 200.0), 0.0);
        assert_eq!(interval(0.2, 0.1, 20.0, 300.0), 0.0);
        assert_eq!(interval(0.2, 0.1, 20.0, 0.0), 0.2);
        let spans = [180.0, 120.0, 60.0, 1.0].map(|rate| interval(0.2, 0.1, 20.0, rate));
        assert!(spans.is_sorted());
    }

    // By hand: rounds of 100 kB in 100 ms and of 200 kB in 100 ms: 0.6·1 + 0.4·2 = 1.4 MB/s.
    #[test]
    fn the_throughput_keeps_six_tenths_of_the_past_per_round() {
        let mut rate = EligibleRate::new(RULES);
        for (now, delivered) in [(0, 1), (100_000, 100_001), (200_000, 300_001)] {
            rate.measure_throughput(&Acked {
                in_flight_after: Bytes::ZERO,
                ..acked(now, delivered)
            });
        }
        assert_near(rate.throughput.unwrap(), 1.4e6);
    }

    #[test]
    fn a_sample_counts_the_data_delivered_in_its_interval() {
        let rules = Rules { t_min: 0.03, ..RULES };
        let mut rate = EligibleRate::new(rules);
        for (now, delivered) in
            [(0, 0), (10_000, 1000), (20_000, 2000), (30_000, 3000), (40_000, 9000)]
        {
            rate.on_delivery(&acked(now, delivered), 0.1, 100_000.0);
        }
        assert_near(rate.last_sample, 8000.0 / 0.03);
    }

    // Source: palazzi2007 PAL-T2.
    #[test]
    fn the_estimate_converges_to_a_constant_sample() {
        let adaptive = Rules { adaptive_interval: true, adaptive_gain: true, ..RULES };
        for rules in [RULES, adaptive] {
            let mut rate = EligibleRate::new(rules);
            rate.estimate = Some(5e6);
            for step in 0..400 {
                rate.on_delivery(&acked(10_000 * step, 10_000 * step as u64), 0.1, 100_000.0);
            }
            assert!((rate.get().unwrap() / 1e6 - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn an_unstable_network_is_followed_more_slowly() {
        let adaptive = Rules { adaptive_gain: true, ..RULES };
        let mut rate = EligibleRate::new(adaptive);
        rate.estimate = Some(1e6);
        rate.last_sample = 1e6;
        assert_near(rate.time_constant(1e6, 0.1), 0.1);
        assert_near(rate.time_constant(3e6, 0.1), 1.1);
        rate.last_sample = 3e6;
        // U falls to 0.6 of the largest of the last ten.
        assert_near(rate.time_constant(3e6, 0.1), 0.1 + 10.0 * 0.1 * 0.6);
    }
}
