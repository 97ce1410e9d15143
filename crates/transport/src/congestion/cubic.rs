//! CUBIC: the window follows a cubic curve around the window of the last loss.
//!
//! Source: RFC 9438. Windows are in segments and times in seconds, as in the RFC.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Instant};

use super::hystart::{HyStart, SlowStart};
use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Siblings, cubic_linux};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "cubic",
    summary: "CUBIC: after a loss the window grows steeply, levels off near the window of the \
              loss, then probes beyond it. Growth depends on time, not on round trips, and is \
              never slower than Reno's.",
    source: "RFC 9438, RFC 9406",
    linux: "Integers: whole segments, times in 1/1024 s, beta 717/1024, C 410/1024. The curve is \
            evaluated one minimum (not smoothed) round-trip time ahead; the threshold follows the \
            window instead of the data in flight; Reno's lower bound never steepens; a timeout \
            resets the state; an idle time shifts the curve.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "the RFC, or Linux's behaviour";
        c: f64 = 0.4, "segments/s³", "0.4", "steepness of the curve",
            "a number above zero" if *c > 0.0 && c.is_finite();
        beta: f64 = 0.7, "ratio", "0.7", "factor on the window after a loss",
            "a number between 0 and 1" if *beta > 0.0 && *beta < 1.0;
        fast_convergence: bool = true, "true or false", "true",
            "release bandwidth faster if the window at a loss is smaller than at the loss before";
        hystart: Option<HyStart> = None, "none, classic or plus", "(plus; classic with compat linux)",
            "what ends slow start other than a loss: nothing, a rising round-trip time as in Linux, or \
             HyStart++, which RFC 9438 §4.10 recommends";
    }
}

impl Config {
    /// Builds a new instance. Parameters outside their range are replaced by the defaults.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let usual = Self::default();
        let c = if self.c > 0.0 { self.c } else { usual.c };
        let beta = if self.beta > 0.0 && self.beta < 1.0 { self.beta } else { usual.beta };
        let slow_start = |usual| SlowStart::new(self.hystart.unwrap_or(usual));
        if self.compat == Compat::Linux {
            let slow_start = slow_start(HyStart::Classic);
            return cubic_linux::build(c, beta, self.fast_convergence, slow_start, path);
        }
        let segment = path.segment.get().max(1) as f64;
        let initial = (path.initial_window.get() as f64 / segment).max(1.0);
        Box::new(Cubic {
            c,
            beta,
            fast_convergence: self.fast_convergence,
            slow_start: slow_start(HyStart::Plus),
            segment,
            initial_window: initial,
            window: initial,
            threshold: if path.initial_threshold == Bytes::new(u64::MAX) {
                f64::INFINITY
            } else {
                path.initial_threshold.get() as f64 / segment
            },
            w_max: 0.0,
            window_before_loss: 0.0,
            epoch: None,
            curve_before: None,
        })
    }
}

#[derive(Debug)]
struct Cubic {
    c: f64,
    beta: f64,
    fast_convergence: bool,
    slow_start: SlowStart,
    segment: f64,
    initial_window: f64,
    window: f64,
    threshold: f64,
    /// Window at the last loss, lowered by fast convergence.
    w_max: f64,
    /// `cwnd_prior`: the window just before the last reduction.
    window_before_loss: f64,
    epoch: Option<Epoch>,
    /// `w_max`, `cwnd_prior` and the epoch before the last reduction (RFC 9438 §4.9.2).
    curve_before: Option<Box<(f64, f64, Option<Epoch>)>>,
}

/// Congestion avoidance between two losses.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Start of the epoch, shifted by the time in which the application did not fill the window.
    start: Instant,
    /// Time of the last acknowledgement.
    last: Instant,
    k: f64,
    w_max: f64,
    w_est: f64,
}

impl Cubic {
    /// W_cubic(t) of RFC 9438 figure 1.
    fn curve(&self, epoch: &Epoch, t: f64) -> f64 {
        let offset = t - epoch.k;
        self.c * offset * offset * offset + epoch.w_max
    }

    fn begin_epoch(&self, now: Instant) -> Epoch {
        // After a timeout, or before any loss, the curve starts on its plateau (§4.8, §4.10).
        let (k, w_max) = if self.w_max > self.window {
            (libm::cbrt((self.w_max - self.window) / self.c), self.w_max)
        } else {
            (0.0, self.window)
        };
        Epoch { start: now, last: now, k, w_max, w_est: self.window }
    }

    fn reduce(&mut self) {
        **self.curve_before.get_or_insert_default() =
            (self.w_max, self.window_before_loss, self.epoch);
        self.window_before_loss = self.window;
        self.w_max = if self.fast_convergence && self.window < self.w_max {
            self.window * (1.0 + self.beta) / 2.0
        } else {
            self.window
        };
        self.epoch = None;
    }
}

impl Congestion for Cubic {
    fn on_ack(&mut self, acked: &Acked, _: Siblings<'_>) {
        if self.window < self.threshold && self.slow_start.ends_with(acked, self.window as u64) {
            self.threshold = self.window;
        }
        let segments = acked.bytes.get() as f64 / self.segment;
        if !acked.window_limited {
            if let Some(epoch) = &mut self.epoch {
                epoch.start += acked.now.since(epoch.last);
                epoch.last = acked.now;
            }
            return;
        }
        if self.window < self.threshold {
            let growth = self.slow_start.growth(acked.bytes.get(), self.segment as u64);
            self.window += growth as f64 / self.segment;
            return;
        }
        let mut epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin_epoch(acked.now),
        };
        epoch.last = acked.now;
        let t = acked.now.since(epoch.start).as_secs_f64();
        let reno_alpha = if epoch.w_est >= self.window_before_loss {
            1.0
        } else {
            3.0 * (1.0 - self.beta) / (1.0 + self.beta)
        };
        epoch.w_est += reno_alpha * segments / self.window;
        if self.curve(&epoch, t) < epoch.w_est {
            self.window = self.window.max(epoch.w_est);
        } else {
            let ahead = self.curve(&epoch, t + acked.srtt.as_secs_f64());
            let target = ahead.clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) / self.window * segments;
        }
        self.epoch = Some(epoch);
    }

    fn on_loss(&mut self, lost: &Lost, _: Siblings<'_>) {
        self.reduce();
        let in_flight = lost.in_flight.get() as f64 / self.segment;
        self.threshold = (in_flight * self.beta).max(2.0);
        self.window = self.threshold;
        self.slow_start.on_loss();
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, _: Siblings<'_>) {
        if !repeated {
            self.reduce();
            let in_flight = lost.in_flight.get() as f64 / self.segment;
            self.threshold = (in_flight * self.beta).max(2.0);
        }
        // §4.8: the first congestion avoidance after a timeout starts on the plateau.
        self.w_max = 0.0;
        self.epoch = None;
        self.window = 1.0;
        self.slow_start.on_timeout();
    }

    fn on_spurious(&mut self, before: &ControlState) {
        self.window = before.window.get() as f64 / self.segment;
        self.threshold = match before.threshold.get() {
            u64::MAX => f64::INFINITY,
            bytes => bytes as f64 / self.segment,
        };
        (self.w_max, self.window_before_loss, self.epoch) =
            self.curve_before.as_deref().copied().unwrap_or_default();
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.threshold = idle.threshold(self.threshold, self.window);
        self.window = idle.window(self.window, self.initial_window);
        if idle.rule.restarts() {
            self.epoch = None;
        }
    }

    fn on_penalty(&mut self) {
        if self.window >= self.threshold {
            self.threshold = (self.threshold / 2.0).max(2.0);
        }
        self.window = (self.window / 2.0).max(1.0);
        // The window climbs back along a new curve; on the old one it would jump back.
        self.epoch = None;
    }

    fn window(&self) -> Bytes {
        Bytes::new((self.window * self.segment) as u64)
    }

    fn slow_start_threshold(&self) -> Bytes {
        Bytes::new((self.threshold * self.segment) as u64)
    }

    fn reads_rates(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Duration;

    fn cubic(window: f64, w_max: f64) -> Cubic {
        Cubic {
            c: 0.4,
            beta: 0.7,
            fast_convergence: true,
            slow_start: SlowStart::new(HyStart::None),
            segment: 1000.0,
            initial_window: 10.0,
            window,
            threshold: window,
            w_max,
            window_before_loss: w_max,
            epoch: None,
            curve_before: None,
        }
    }

    // Source: the vectors of the algorithm reference, §2.2, worked out from RFC 9438 §4.2.
    #[test]
    fn the_curve_passes_through_its_published_points() {
        let points =
            [(0.0, 70.0), (1.0, 86.6808), (2.0, 95.6403), (5.0, 100.1919), (8.0, 121.6527)];
        let control = cubic(70.0, 100.0);
        let epoch = control.begin_epoch(Instant::ZERO);
        assert!((epoch.k - 4.217_163).abs() < 1e-6);
        for (t, window) in points {
            assert!((control.curve(&epoch, t) - window).abs() < 1e-4, "at {t} s");
        }
        let larger = cubic(700.0, 1000.0);
        let epoch = larger.begin_epoch(Instant::ZERO);
        assert!((epoch.k - 9.085_603).abs() < 1e-6);
        for (t, window) in [(1.0, 788.5551), (4.0, 947.3877), (8.0, 999.4882)] {
            assert!((larger.curve(&epoch, t) - window).abs() < 1e-4, "at {t} s");
        }
    }

    #[test]
    fn a_penalty_halves_the_window_and_starts_a_new_curve() {
        let mut control = cubic(70.0, 100.0);
        control.on_penalty();
        assert_eq!((control.window, control.threshold), (35.0, 35.0));
        let expected = libm::cbrt(65.0 / 0.4);
        assert!((control.begin_epoch(Instant::ZERO).k - expected).abs() < 1e-9);
    }

    #[test]
    fn fast_convergence_lowers_the_plateau_if_the_window_shrank() {
        let mut control = cubic(80.0, 100.0);
        let lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(80_000) };
        control.on_loss(&lost, Siblings::default());
        assert!((control.w_max - 68.0).abs() < 1e-9);
        assert!((control.window - 56.0).abs() < 1e-9);
        assert!((control.begin_epoch(Instant::ZERO).k - 3.107).abs() < 1e-3);
    }

    #[test]
    fn one_loss_per_epoch_gives_the_response_function_s_average() {
        // RFC 9438 §5.1: with C = 0.4 and beta = 0.7 the average window is 1.054 (RTT/p)^0.75.
        let mut control = cubic(70.0, 100.0);
        let rtt = Duration::from_millis(10);
        let (mut now, mut sum, mut rounds) = (Instant::ZERO, 0.0, 0.0);
        while control.window < 100.0 {
            sum += control.window;
            rounds += 1.0;
            now += rtt;
            for _ in 0..(control.window as u32) {
                let acked = Acked {
                    now,
                    bytes: Bytes::new(1000),
                    srtt: rtt,
                    in_flight: control.window(),
                    window_limited: true,
                    ..Acked::default()
                };
                // Disables Reno's floor for the pure cubic curve.
                control.window_before_loss = f64::INFINITY;
                if let Some(epoch) = &mut control.epoch {
                    epoch.w_est = 0.0;
                }
                control.on_ack(&acked, Siblings::default());
            }
        }
        let average = sum / rounds;
        let p: f64 = 1.0 / sum;
        let expected = 1.054 * (rtt.as_secs_f64() / p).powf(0.75);
        assert!((average / expected - 1.0).abs() < 0.03, "{average} against {expected}");
    }

    #[test]
    fn time_with_an_unfilled_window_does_not_advance_the_curve() {
        let mut control = cubic(70.0, 100.0);
        let acked = |ms, window_limited| Acked {
            now: Instant::from_millis(ms),
            bytes: Bytes::new(1000),
            srtt: Duration::from_millis(100),
            in_flight: Bytes::new(70_000),
            window_limited,
            ..Acked::default()
        };
        control.on_ack(&acked(0, true), Siblings::default());
        let before = control.window;
        control.on_ack(&acked(60_000, false), Siblings::default());
        control.on_ack(&acked(60_001, true), Siblings::default());
        assert!(control.window - before < 1.0);
    }

    // Source: RFC 9438 §4.9.2.
    #[test]
    fn the_curve_continues_after_a_spurious_loss() {
        let mut control = cubic(90.0, 100.0);
        control.epoch = Some(control.begin_epoch(Instant::ZERO));
        let before =
            ControlState { window: control.window(), threshold: control.slow_start_threshold() };
        let lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(90_000) };
        control.on_timeout(&lost, false, Siblings::default());
        assert_eq!(control.window(), Bytes::new(1000));
        control.on_spurious(&before);
        assert_eq!((control.window(), control.w_max), (Bytes::new(90_000), 100.0));
        assert!(control.epoch.is_some());
    }
}
