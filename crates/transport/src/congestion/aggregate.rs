//! Common parts of the coupled controls: the participating paths, and Reno's window around a
//! coupling rule.

use alloc::boxed::Box;
use core::fmt::Debug;

use skybraid_units::{Bytes, Duration};

use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Siblings};

/// A path that takes part in the sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Congestion window in segments; in fast recovery, the slow start threshold.
    pub window: f64,
    /// Smoothed round-trip time in seconds, above zero.
    pub rtt: f64,
    /// Larger of the last two intervals between losses, in bytes.
    pub loss_interval: u64,
    /// Bytes per segment.
    pub segment: u64,
}

impl Path {
    /// Segments per second.
    pub fn rate(&self) -> f64 {
        self.window / self.rtt
    }

    /// Window in whole segments, at most 24 bits so that integer products stay in range.
    pub fn packets(&self) -> u128 {
        (self.window as u128).clamp(1, 1 << 24)
    }

    /// Round-trip time as in Linux: in eighths of a microsecond, at most 32 bits.
    pub fn srtt_us(&self) -> u128 {
        ((self.rtt * 8e6 + 0.5) as u128).clamp(1, 1 << 32)
    }
}

/// Participating paths (RFC 6356 §3): those with data flowing and a round-trip time, and the own
/// path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paths<'a> {
    siblings: Siblings<'a>,
    /// Own window in segments; siblings store it in whole bytes only.
    window: f64,
}

impl<'a> Paths<'a> {
    pub fn new(siblings: Siblings<'a>, window: f64) -> Self {
        Self { siblings, window }
    }

    pub fn all(self) -> impl Iterator<Item = Path> + Clone + 'a {
        (0..self.siblings.all.len()).filter_map(move |index| self.path(index))
    }

    /// Participating paths other than the own.
    pub fn others(self) -> impl Iterator<Item = Path> + 'a {
        let own = self.siblings.own;
        (0..self.siblings.all.len())
            .filter(move |index| *index != own)
            .filter_map(move |index| self.path(index))
    }

    fn path(&self, index: usize) -> Option<Path> {
        let sibling = self.siblings.all.get(index)?;
        let own = index == self.siblings.own;
        let known = sibling.srtt.is_positive() && sibling.srtt != Duration::MAX;
        let segment = sibling.segment.get().max(1);
        (known && (own || sibling.active)).then(|| Path {
            window: if own { self.window } else { sibling.window.get() as f64 / segment as f64 },
            rtt: sibling.srtt.as_secs_f64(),
            loss_interval: sibling.acked_since_loss.max(sibling.acked_between_losses).get(),
            segment,
        })
    }

    /// Own path, if others participate as well.
    pub fn own(&self) -> Option<Path> {
        let own = self.path(self.siblings.own)?;
        self.others().next().map(|_| own)
    }

    pub fn count(&self) -> usize {
        self.all().count()
    }

    /// Segments per second over all paths.
    pub fn total_rate(&self) -> f64 {
        self.all().map(|path| path.rate()).sum()
    }

    /// Maximum of `value` over the participating paths.
    pub fn max(&self, value: impl FnMut(Path) -> f64) -> f64 {
        self.all().map(value).fold(0.0, f64::max)
    }
}

/// Rule of a coupled control: its differences from Reno.
pub(super) trait Coupling: Debug + Send {
    /// Minimum slow start threshold in segments while several paths participate.
    const MIN_THRESHOLD: f64 = 2.0;

    /// Growth in segments for `acked` segments acknowledged in congestion avoidance; may be
    /// negative.
    fn increase(&mut self, own: &Path, paths: &Paths<'_>, acked: f64) -> f64;

    /// Returns the part of `window` segments that remains after a loss.
    fn remaining(&mut self, own: &Path, paths: &Paths<'_>, window: f64) -> f64 {
        let _ = (own, paths);
        window / 2.0
    }
}

/// Byte-counting Reno with a coupling rule that applies while several paths participate.
#[derive(Debug)]
struct Coupled<C> {
    window: Window,
    /// Maximum bytes of an acknowledgement that count.
    max_counted: Bytes,
    rule: C,
}

/// Builds a coupled control with `rule`.
pub(super) fn coupled(path: &PathBasics, rule: impl Coupling + 'static) -> Box<dyn Congestion> {
    Box::new(Coupled { window: Window::new(path), max_counted: Bytes::new(u64::MAX), rule })
}

/// Builds a coupled control with `rule` of which an acknowledgement counts for at most a segment (RFC 5681 §3.1).
pub(super) fn coupled_by_acks(
    path: &PathBasics,
    rule: impl Coupling + 'static,
) -> Box<dyn Congestion> {
    Box::new(Coupled { window: Window::new(path), max_counted: path.segment, rule })
}

impl<C: Coupling> Coupled<C> {
    fn remaining(&mut self, lost: &Lost, siblings: Siblings<'_>) -> f64 {
        let paths = Paths::new(siblings, self.window.segments());
        let segment = self.window.segment;
        match paths.own() {
            Some(own) => {
                let in_flight = lost.in_flight.get() as f64 / segment;
                let left = self.rule.remaining(&own, &paths, in_flight);
                left.max(C::MIN_THRESHOLD) * segment
            }
            None => self.window.halved(lost),
        }
    }
}

impl<C: Coupling> Congestion for Coupled<C> {
    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        let bytes = acked.bytes.min(self.max_counted);
        if !acked.window_limited || self.window.slow_start(bytes) {
            return;
        }
        let paths = Paths::new(siblings, self.window.segments());
        match paths.own() {
            Some(own) => {
                let segments = bytes.get() as f64 / self.window.segment;
                self.window.grow(self.rule.increase(&own, &paths, segments));
            }
            None => self.window.avoid_congestion(bytes),
        }
    }

    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>) {
        let remaining = self.remaining(lost, siblings);
        self.window.reduce(remaining);
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>) {
        if !repeated {
            let remaining = self.remaining(lost, siblings);
            self.window.reduce(remaining);
        }
        self.window.restart();
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.window.idle(idle);
    }

    fn on_spurious(&mut self, before: &ControlState) {
        self.window.restore(before);
    }

    fn is_coupled(&self) -> bool {
        true
    }

    window_of!(window);
}

/// Reno's window (RFC 5681) in bytes, fractions included: a coupled window may grow by less than a
/// byte at a time.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes per segment.
    pub segment: f64,
    initial: f64,
    size: f64,
    threshold: f64,
    /// Bytes acknowledged in congestion avoidance that have not yet caused growth.
    credit: f64,
}

impl Window {
    pub fn new(path: &PathBasics) -> Self {
        let initial = path.initial_window.get().max(1) as f64;
        Self {
            segment: path.segment.get().max(1) as f64,
            initial,
            size: initial,
            threshold: path.initial_threshold.get() as f64,
            credit: 0.0,
        }
    }

    pub fn window(&self) -> Bytes {
        Bytes::new(self.size as u64)
    }

    pub fn slow_start_threshold(&self) -> Bytes {
        Bytes::new(self.threshold as u64)
    }

    pub fn segments(&self) -> f64 {
        self.size / self.segment
    }

    pub fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows by the acknowledged bytes if in slow start. Returns true if in slow start.
    pub fn slow_start(&mut self, acked: Bytes) -> bool {
        let grows = self.in_slow_start();
        if grows {
            self.size += acked.get() as f64;
        }
        grows
    }

    /// Grows by one segment per window of acknowledged data.
    pub fn avoid_congestion(&mut self, acked: Bytes) {
        self.credit += acked.get() as f64;
        if self.credit >= self.size {
            self.credit -= self.size;
            self.size += self.segment;
        }
    }

    /// Adds `segments`, which may be negative; at least one segment remains.
    pub fn grow(&mut self, segments: f64) {
        self.size = (self.size + segments * self.segment).max(self.segment);
    }

    /// Returns half of the bytes in flight, at least two segments.
    pub fn halved(&self, lost: &Lost) -> f64 {
        ((lost.in_flight.get() / 2) as f64).max(2.0 * self.segment)
    }

    /// Sets threshold and window to `remaining` bytes.
    pub fn reduce(&mut self, remaining: f64) {
        self.threshold = remaining;
        self.size = remaining.max(self.segment);
        self.credit = 0.0;
    }

    /// Sets the window to `segments`, at least two, outside slow start.
    pub fn set_segments(&mut self, segments: f64) {
        self.size = (segments * self.segment).max(2.0 * self.segment);
        self.threshold = self.threshold.min(self.size - self.segment);
    }

    /// Sets the window to one segment after a timeout.
    pub fn restart(&mut self) {
        self.size = self.segment;
        self.credit = 0.0;
    }

    pub fn restore(&mut self, before: &ControlState) {
        self.size = before.window.get() as f64;
        self.threshold = before.threshold.get() as f64;
    }

    pub fn idle(&mut self, idle: &Idle) {
        self.threshold = idle.threshold(self.threshold, self.size);
        self.size = idle.window(self.size, self.initial);
    }

    pub fn on_penalty(&mut self) {
        let half = self.size / 2.0;
        if !self.in_slow_start() {
            self.threshold = half.max(2.0 * self.segment);
        }
        self.size = half.max(self.segment);
    }
}

/// Linux's counter of acknowledgements per segment of growth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter(u128);

impl Counter {
    /// Counts an acknowledgement. Returns the growth in segments: one on the acknowledgement after
    /// `needed` others.
    pub fn acknowledge(&mut self, needed: u128) -> f64 {
        if self.0 < needed {
            self.0 += 1;
            return 0.0;
        }
        self.0 = 0;
        1.0
    }
}

#[cfg(test)]
pub(super) mod testing {
    use alloc::vec::Vec;

    use super::*;
    use crate::congestion::idle::testing::idle_until;
    use crate::congestion::{CongestionConfig, Sibling, reno};
    use skybraid_units::Instant;

    /// A large segment, so that windows in whole bytes resolve a billionth of a segment.
    pub const SEGMENT: u64 = 1_000_000_000;

    /// Returns a path with a window in segments, a round-trip time in milliseconds and segments
    /// between losses.
    pub fn sibling((window, rtt_ms, between_losses): (u64, i64, u64)) -> Sibling {
        Sibling {
            active: true,
            window: Bytes::new(window * SEGMENT),
            acked_since_loss: Bytes::ZERO,
            acked_between_losses: Bytes::new(between_losses * SEGMENT),
            srtt: Duration::from_millis(rtt_ms),
            segment: Bytes::new(SEGMENT),
        }
    }

    /// Builds the controls of `paths` in congestion avoidance.
    pub fn controls(config: &CongestionConfig, paths: &[Sibling]) -> Vec<Box<dyn Congestion>> {
        let build = |path: &Sibling| {
            config.build(&PathBasics::in_test(path.segment, path.window, path.window))
        };
        paths.iter().map(build).collect()
    }

    pub fn acked(segments: u64) -> Acked {
        Acked { bytes: Bytes::new(segments * SEGMENT), window_limited: true, ..Acked::default() }
    }

    /// Growth of each path's window in segments for one acknowledged segment.
    pub fn increases(config: &CongestionConfig, paths: &[Sibling]) -> Vec<f64> {
        let grown = |(own, mut control): (usize, Box<dyn Congestion>)| {
            let before = control.window().get() as f64;
            control.on_ack(&acked(1), Siblings { all: paths, own });
            (control.window().get() as f64 - before) / SEGMENT as f64
        };
        controls(config, paths).into_iter().enumerate().map(grown).collect()
    }

    /// Reduction of each path's window in segments by a loss.
    pub fn decreases(config: &CongestionConfig, paths: &[Sibling]) -> Vec<f64> {
        let cut = |(own, mut control): (usize, Box<dyn Congestion>)| {
            let before = control.window();
            let lost = Lost { now: Instant::ZERO, in_flight: before };
            control.on_loss(&lost, Siblings { all: paths, own });
            assert_eq!(control.window(), control.slow_start_threshold());
            (before - control.window()).get() as f64 / SEGMENT as f64
        };
        controls(config, paths).into_iter().enumerate().map(cut).collect()
    }

    /// Number of acknowledged segments that each path needs to grow.
    pub fn acks_to_grow(config: &CongestionConfig, paths: &[Sibling]) -> Vec<u32> {
        let count = |(own, mut control): (usize, Box<dyn Congestion>)| {
            let before = control.window();
            let mut acks = 0;
            while control.window() == before {
                control.on_ack(&acked(1), Siblings { all: paths, own });
                acks += 1;
            }
            acks
        };
        controls(config, paths).into_iter().enumerate().map(count).collect()
    }

    pub fn assert_close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    /// Without participating siblings, a coupled control is Reno to the byte (RFC 6356 §3).
    pub fn assert_reno_alone(config: &CongestionConfig) {
        let reno =
            CongestionConfig::Reno(reno::Config { byte_counting: true, ..reno::Config::default() });
        let mut failed = sibling((50, 20, 9));
        failed.active = false;
        let own = sibling((10, 100, 9));
        for all in [&[][..], &[own], &[own, failed]] {
            let siblings = Siblings { all, own: 0 };
            let path =
                PathBasics::in_test(Bytes::new(1448), Bytes::new(14_480), Bytes::new(30_001));
            let mut pair = [config.build(&path), reno.build(&path)];
            for step in 0..400 {
                for control in &mut pair {
                    let lost = Lost { now: Instant::ZERO, in_flight: control.window() };
                    match step {
                        150 | 290 => control.on_loss(&lost, siblings),
                        210 => control.on_timeout(&lost, false, siblings),
                        211 => control.on_timeout(&lost, true, siblings),
                        380 => control.on_idle(&idle_until(0)),
                        _ => {
                            let bytes = Bytes::new(1448 * (1 + step % 2));
                            let acked = Acked { bytes, window_limited: true, ..Acked::default() };
                            control.on_ack(&acked, siblings);
                        }
                    }
                }
                let [found, expected] = &pair;
                assert_eq!(found.window(), expected.window(), "step {step}");
                assert_eq!(found.slow_start_threshold(), expected.slow_start_threshold());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{SEGMENT, acked, assert_reno_alone, controls, sibling};
    use super::*;
    use crate::congestion::{CongestionConfig, balia, coupled, ewtcp, lia, olia};
    use skybraid_units::Instant;

    fn every_coupled() -> [CongestionConfig; 5] {
        [
            CongestionConfig::Lia(lia::Config::default()),
            CongestionConfig::Olia(olia::Config::default()),
            CongestionConfig::Balia(balia::Config::default()),
            CongestionConfig::Ewtcp(ewtcp::Config::default()),
            CongestionConfig::Coupled(coupled::Config::default()),
        ]
    }

    // Source: RFC 6356 §3; the algorithm reference, §12 item 3.
    #[test]
    fn a_path_without_participating_siblings_is_reno() {
        for config in every_coupled() {
            assert_reno_alone(&config);
        }
    }

    // Source: RFC 6356 §3: slow start, timeouts and restarts are those of RFC 5681.
    #[test]
    fn slow_start_and_timeouts_are_not_coupled() {
        let paths = [sibling((10, 100, 500)), sibling((20, 50, 100))];
        let siblings = Siblings { all: &paths, own: 0 };
        for config in every_coupled() {
            let mut control = config.build(&PathBasics::in_test(
                Bytes::new(SEGMENT),
                Bytes::new(10 * SEGMENT),
                Bytes::new(u64::MAX),
            ));
            control.on_ack(&acked(2), siblings);
            assert_eq!(control.window().get(), 12 * SEGMENT, "{}", config.name());
            let lost = Lost { now: Instant::ZERO, in_flight: control.window() };
            control.on_timeout(&lost, false, siblings);
            assert_eq!(control.window().get(), SEGMENT, "{}", config.name());
        }
    }

    // Source: the algorithm reference, §3.2 and §12 item 2: two segments for LIA, one for the others.
    #[test]
    fn losses_keep_the_threshold_above_its_minimum() {
        let paths = [sibling((1, 100, 500)), sibling((20, 50, 100))];
        for (config, floor) in every_coupled().iter().zip([2, 1, 1, 1, 1]) {
            for mut control in controls(config, &paths).into_iter().take(1) {
                let lost = Lost { now: Instant::ZERO, in_flight: control.window() };
                control.on_loss(&lost, Siblings { all: &paths, own: 0 });
                let threshold = control.slow_start_threshold().get();
                assert_eq!(threshold, floor * SEGMENT, "{}", config.name());
            }
        }
    }

    // Source: Raiciu et al., NSDI 2012; the algorithm reference, §5.1.
    #[test]
    fn a_penalty_halves_the_window_but_not_in_slow_start() {
        for config in every_coupled() {
            let [mut small, mut large, mut slow_start] =
                [(3, 3), (40, 40), (40, 100)].map(|(window, threshold)| {
                    config.build(&PathBasics::in_test(
                        Bytes::new(SEGMENT),
                        Bytes::new(window * SEGMENT),
                        Bytes::new(threshold * SEGMENT),
                    ))
                });
            let state = |control: &mut Box<dyn Congestion>| {
                control.on_penalty();
                (control.window().get(), control.slow_start_threshold().get())
            };
            assert_eq!(state(&mut small), (SEGMENT * 3 / 2, 2 * SEGMENT));
            assert_eq!(state(&mut small), (SEGMENT, 2 * SEGMENT));
            assert_eq!(state(&mut large), (20 * SEGMENT, 20 * SEGMENT));
            assert_eq!(state(&mut slow_start), (20 * SEGMENT, 100 * SEGMENT));
        }
    }
}
