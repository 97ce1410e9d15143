//! CUBIC as Linux computes it, in integers.
//!
//! Source: Linux `tcp_cubic.c`, generation 4.14. Windows are in whole segments and times in ticks
//! of 1/1024 s. Linux computes its cube root from a hand-tuned table and one step of Newton's
//! method, with a mean error of 0.195 %; the table cannot be derived, so the root is exact here,
//! rounded to the nearest integer. Linux's clock also advances in jiffies, this one does not.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Instant};

use super::hystart::SlowStart;
use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Restart, Siblings};

/// Interval at which the growth of an unchanged window is recomputed.
const RECOMPUTE: Duration = Duration::from_nanos(1_000_000_000 / 32);
/// Time after the start of an epoch in which samples do not count for the minimum round-trip time.
const SETTLING: Duration = Duration::from_secs(1);

/// Converts to ticks of 1/1024 s.
fn ticks(span: Duration) -> u64 {
    (i128::from(span.as_nanos().max(0)) * 1024 / 1_000_000_000) as u64
}

/// Cube root, rounded to the nearest integer.
fn cube_root(of: u64) -> u64 {
    let cube = |x: u64| u128::from(x) * u128::from(x) * u128::from(x);
    let mut root = libm::cbrt(of as f64) as u64;
    // The root is rounded up if `of` is at least (root + ½)³.
    while cube(2 * root + 1) <= 8 * u128::from(of) {
        root += 1;
    }
    root
}

pub(super) fn build(
    c: f64,
    beta: f64,
    fast_convergence: bool,
    slow_start: SlowStart,
    path: &PathBasics,
) -> Box<dyn Congestion> {
    let segment = path.segment.get().max(1);
    let initial_window = (path.initial_window.get() / segment).max(1);
    Box::new(Cubic {
        beta: (libm::round(beta * 1024.0) as u64).clamp(1, 1023),
        c: (libm::round(c * 102.4) as u64).clamp(1, 1 << 30) * 10,
        fast_convergence,
        slow_start,
        segment,
        initial_window,
        window: initial_window,
        threshold: path.initial_threshold.get() / segment,
        unpaid: 0,
        credit: 0,
        last_max: 0,
        delay_min: None,
        epoch: None,
    })
}

#[derive(Debug)]
struct Cubic {
    /// Units of 1/1024.
    beta: u64,
    /// Units of 1/1024 segments/s³.
    c: u64,
    fast_convergence: bool,
    slow_start: SlowStart,
    segment: u64,
    initial_window: u64,
    window: u64,
    threshold: u64,
    /// Acknowledged bytes that do not make a whole segment yet.
    unpaid: u64,
    /// Segments acknowledged that have not yet caused growth (`snd_cwnd_cnt`).
    credit: u64,
    /// Window at the last loss, lowered by fast convergence; 0 for none.
    last_max: u64,
    delay_min: Option<Duration>,
    epoch: Option<Epoch>,
}

/// Congestion avoidance between two losses.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// Time until the plateau, in ticks.
    k: u64,
    /// Plateau of the curve.
    origin: u64,
    /// Window that Reno would have, and the acknowledged segments that have not yet caused its
    /// growth.
    reno: u64,
    reno_credit: u64,
    /// Acknowledged segments per segment of growth, with the window and time of its computation.
    per_growth: u64,
    computed: (u64, Instant),
}

impl Epoch {
    fn new(control: &Cubic, now: Instant) -> Self {
        let above = control.last_max.saturating_sub(control.window);
        Self {
            start: now,
            // A tick is 2^-10 s: its cube is 2^-30 s³ and C is in 2^-10, hence 2^40.
            k: cube_root(((1 << 40) / control.c).saturating_mul(above)),
            origin: control.last_max.max(control.window),
            reno: control.window,
            reno_credit: 0,
            per_growth: 0,
            computed: (0, now),
        }
    }

    /// Value of the curve `t` ticks after the start.
    fn curve(&self, c: u64, t: u64) -> u64 {
        let offset = u128::from(t.abs_diff(self.k));
        let rise = offset.saturating_pow(3).saturating_mul(u128::from(c)) >> 40;
        let rise = u64::try_from(rise).unwrap_or(u64::MAX);
        if t < self.k { self.origin.saturating_sub(rise) } else { self.origin.saturating_add(rise) }
    }
}

impl Cubic {
    fn per_growth(&self, epoch: &mut Epoch, now: Instant) -> u64 {
        let window = self.window;
        let min_rtt = self.delay_min.unwrap_or(Duration::ZERO);
        let target = epoch.curve(self.c, ticks(now.since(epoch.start) + min_rtt));
        let mut per_growth =
            if target > window { window / (target - window) } else { window.saturating_mul(100) };
        if self.last_max == 0 {
            per_growth = per_growth.min(20);
        }
        let reno_scale = 8 * (1024 + self.beta) / 3 / (1024 - self.beta);
        let per_reno = (window * reno_scale / 8).max(1);
        // Strictly above, so that some credit always remains.
        let steps = epoch.reno_credit.saturating_sub(1) / per_reno;
        epoch.reno += steps;
        epoch.reno_credit -= steps * per_reno;
        if epoch.reno > window {
            per_growth = per_growth.min(window / (epoch.reno - window));
        }
        per_growth.max(2)
    }

    fn grow_by_credit(&mut self, per_growth: u64, acked: u64) {
        if self.credit >= per_growth {
            // Credit from a time of slower growth.
            self.credit = 0;
            self.window += 1;
        }
        self.credit += acked;
        self.window += self.credit / per_growth;
        self.credit %= per_growth;
    }

    fn reduce(&mut self) {
        self.last_max = if self.fast_convergence && self.window < self.last_max {
            self.window * (1024 + self.beta) / 2048
        } else {
            self.window
        };
        self.threshold = (self.window * self.beta / 1024).max(2);
        self.epoch = None;
        self.credit = 0;
    }
}

impl Congestion for Cubic {
    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        let settling = self.epoch.is_some_and(|epoch| acked.now.since(epoch.start) < SETTLING);
        if let Some(rtt) = acked.rtt.filter(|_| !settling) {
            self.delay_min = Some(self.delay_min.map_or(rtt, |min| min.min(rtt)));
        }
    }

    fn on_ack(&mut self, acked: &Acked, _: Siblings<'_>) {
        if self.window < self.threshold && self.slow_start.ends_with(acked, self.window) {
            self.threshold = self.window;
        }
        if !acked.window_limited {
            return;
        }
        let in_slow_start = self.window < self.threshold;
        let mut bytes = acked.bytes.get();
        if in_slow_start {
            bytes = self.slow_start.growth(bytes, self.segment);
        }
        bytes += self.unpaid;
        self.unpaid = bytes % self.segment;
        let mut segments = bytes / self.segment;
        if in_slow_start {
            let needed = segments.min(self.threshold - self.window);
            self.window += needed;
            segments -= needed;
            if segments == 0 {
                return;
            }
        }
        let mut epoch = self.epoch.unwrap_or_else(|| Epoch::new(self, acked.now));
        epoch.reno_credit += segments;
        let (window, at) = epoch.computed;
        if window != self.window || acked.now.since(at) > RECOMPUTE {
            epoch.per_growth = self.per_growth(&mut epoch, acked.now);
            epoch.computed = (self.window, acked.now);
        }
        self.epoch = Some(epoch);
        self.grow_by_credit(epoch.per_growth, segments);
    }

    fn on_loss(&mut self, _: &Lost, _: Siblings<'_>) {
        self.reduce();
        self.window = self.threshold;
        self.slow_start.on_loss();
    }

    fn on_timeout(&mut self, _: &Lost, repeated: bool, _: Siblings<'_>) {
        if !repeated {
            self.reduce();
        }
        self.window = 1;
        self.last_max = 0;
        self.delay_min = None;
        self.slow_start.on_timeout();
    }

    fn on_spurious(&mut self, before: &ControlState) {
        // `tcp_undo_cwnd_reduction` and `tcp_reno_undo_cwnd`: the curve starts again.
        self.window = self.window.max(before.window.get() / self.segment);
        self.threshold = match before.threshold.get() {
            u64::MAX => u64::MAX,
            bytes => self.threshold.max(bytes / self.segment),
        };
    }

    fn on_idle(&mut self, idle: &Idle) {
        let window = self.window as f64;
        self.threshold = idle.threshold(self.threshold as f64, window) as u64;
        self.window = idle.window(window, self.initial_window as f64) as u64;
    }

    fn on_restart(&mut self, restart: &Restart) {
        // `CA_EVENT_TX_START`: the time since the last transmission does not count, whether the window restarts or not.
        if let Some(epoch) = &mut self.epoch {
            epoch.start = (epoch.start + restart.span).min(restart.now);
        }
    }

    fn on_penalty(&mut self) {
        // The kernel reduces the window without changing the curve.
        if self.window >= self.threshold {
            self.threshold = (self.threshold / 2).max(2);
        }
        self.window = (self.window / 2).max(1);
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.window * self.segment)
    }

    fn slow_start_threshold(&self) -> Bytes {
        Bytes::new(self.threshold.saturating_mul(self.segment))
    }

    fn reads_rates(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::hystart::HyStart;
    use super::*;

    fn cubic(window: u64, last_max: u64) -> Cubic {
        Cubic {
            beta: 717,
            c: 410,
            fast_convergence: true,
            slow_start: SlowStart::new(HyStart::None),
            segment: 1000,
            initial_window: 10,
            window,
            threshold: 0,
            unpaid: 0,
            credit: 0,
            last_max,
            delay_min: Some(Duration::from_millis(100)),
            epoch: None,
        }
    }

    fn acknowledge(control: &mut Cubic, ms: i64, segments: u64) {
        let acked = Acked {
            now: Instant::from_millis(ms),
            bytes: Bytes::new(segments * 1000),
            window_limited: true,
            ..Acked::default()
        };
        control.on_ack(&acked, Siblings::default());
    }

    #[test]
    fn the_cube_root_is_the_nearest_integer() {
        for (of, root) in
            [(0, 0), (1, 1), (3, 1), (4, 2), (27, 3), (42, 3), (43, 4), (1 << 60, 1 << 20)]
        {
            assert_eq!(cube_root(of), root, "of {of}");
        }
    }

    // Source: the vectors of the algorithm reference, §2.2: 4316.97 and 9300.6 ticks.
    #[test]
    fn the_plateau_is_reached_after_k_ticks() {
        for (window, last_max, k) in [(70, 100, 4317), (700, 1000, 9301)] {
            let epoch = Epoch::new(&cubic(window, last_max), Instant::ZERO);
            assert_eq!((epoch.k, epoch.origin), (k, last_max));
            // The curve drops whole segments of its distance to the plateau.
            assert_eq!(epoch.curve(410, 0).abs_diff(window), 0);
            assert_eq!(epoch.curve(410, k), last_max);
        }
    }

    #[test]
    fn the_curve_is_read_one_minimum_round_trip_time_ahead() {
        let control = cubic(70, 100);
        let mut epoch = Epoch::new(&control, Instant::ZERO);
        // 0.1 s ahead the curve is 0.4·(4.2158 - 0.1)³ = 27.9 below 100, in whole segments 27.
        assert_eq!(control.per_growth(&mut epoch, Instant::ZERO), 70 / 3);
    }

    #[test]
    fn growth_is_bounded_and_faster_before_the_first_loss() {
        let at = Instant::from_millis;
        let control = cubic(70, 100);
        let mut epoch = Epoch::new(&control, Instant::ZERO);
        assert_eq!(control.per_growth(&mut epoch, at(60_000)), 2);
        let mut epoch = Epoch { origin: 50, k: 0, ..epoch };
        assert_eq!(control.per_growth(&mut epoch, Instant::ZERO), 7000);
        let first = cubic(70, 0);
        let mut epoch = Epoch::new(&first, Instant::ZERO);
        assert_eq!(first.per_growth(&mut epoch, Instant::ZERO), 20);
    }

    #[test]
    fn reno_s_floor_rises_by_a_segment_per_15_eighths_of_a_window() {
        let control = cubic(80, 80);
        let mut epoch = Epoch { reno_credit: 150, ..Epoch::new(&control, Instant::ZERO) };
        assert_eq!(control.per_growth(&mut epoch, Instant::ZERO), 8000);
        epoch.reno_credit += 1;
        assert_eq!(control.per_growth(&mut epoch, Instant::ZERO), 80);
        assert_eq!((epoch.reno, epoch.reno_credit), (81, 1));
    }

    #[test]
    fn a_loss_keeps_717_of_1024_and_a_timeout_drops_the_plateau() {
        let mut control = cubic(80, 100);
        let lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(10_000) };
        control.on_loss(&lost, Siblings::default());
        // Fast convergence: 80·1741/2048 = 68.008.
        assert_eq!((control.window, control.threshold, control.last_max), (56, 56, 68));
        control.on_timeout(&lost, false, Siblings::default());
        assert_eq!((control.window, control.threshold, control.last_max), (1, 39, 0));
        assert_eq!(control.delay_min, None);
    }

    #[test]
    fn the_growth_is_recomputed_after_a_32nd_of_a_second() {
        let mut control = cubic(70, 100);
        acknowledge(&mut control, 0, 1);
        let before = control.epoch.unwrap().per_growth;
        acknowledge(&mut control, 31, 1);
        assert_eq!(control.epoch.unwrap().per_growth, before);
        acknowledge(&mut control, 2000, 1);
        assert_ne!(control.epoch.unwrap().per_growth, before);
    }

    #[test]
    fn an_idle_period_shifts_the_curve() {
        let mut control = cubic(70, 100);
        acknowledge(&mut control, 0, 1);
        let restart = |now, span| Restart {
            now: Instant::from_millis(now),
            span: Duration::from_millis(span),
            app_limited: true,
        };
        control.on_restart(&restart(5000, 4900));
        assert_eq!(control.epoch.unwrap().start, Instant::from_millis(4900));
        control.on_restart(&restart(6000, 1100));
        assert_eq!(control.epoch.unwrap().start, Instant::from_millis(6000), "not in the future");
    }
}
