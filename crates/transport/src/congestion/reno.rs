//! New Reno: adds one segment per round trip, halves the window on loss.
//!
//! Source: RFC 5681 §3.1 (slow start, congestion avoidance), RFC 6582, RFC 3465 (byte counting).

use skybraid_units::Bytes;

use super::hystart::{HyStart, SlowStart};
use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Siblings};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "reno",
    summary: "New Reno: the window grows by a segment per acknowledgement in slow start and by about \
              a segment per round trip after it, and halves once per window with a loss.",
    source: "RFC 5681, RFC 6582, RFC 3465",
    linux: "The window is counted in whole segments and grows by all acknowledged data; after a \
            loss, the threshold is half of the window instead of half of the data in flight.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "the RFC, or Linux's behaviour";
        byte_counting: bool = false, "true or false", "false",
            "grow by the acknowledged bytes (RFC 3465; at most two segments at once in slow start) \
             instead of the number of acknowledgements, so that delayed acknowledgements do not slow \
             growth";
        hystart: HyStart = HyStart::None, "none, classic or plus", "none",
            "what ends slow start other than a loss: nothing, a rising round-trip time as in Linux's \
             CUBIC, or HyStart++ (RFC 9406)";
    },
    congestion: |config, path| Reno::new(config, path),
}

/// New Reno, also as a part of controls that grow like it.
#[derive(Debug)]
pub(super) struct Reno {
    compat: Compat,
    byte_counting: bool,
    slow_start: SlowStart,
    pub(super) segment: u64,
    initial_window: u64,
    pub(super) window: u64,
    pub(super) threshold: u64,
    /// Bytes acknowledged in congestion avoidance that have not yet caused growth.
    credit: u64,
}

impl Reno {
    pub(super) fn new(config: &Config, path: &PathBasics) -> Self {
        Self {
            compat: config.compat,
            byte_counting: config.byte_counting,
            slow_start: SlowStart::new(config.hystart),
            segment: path.segment.get().max(1),
            initial_window: path.initial_window.get().max(1),
            window: path.initial_window.get().max(1),
            threshold: path.initial_threshold.get(),
            credit: 0,
        }
    }

    /// Reduces the threshold to `threshold` bytes, at least two segments, after a loss.
    pub(super) fn reduce_to(&mut self, threshold: u64) {
        self.threshold = self.whole(threshold).max(2 * self.segment);
        self.window = self.window.min(self.threshold);
        self.credit = 0;
        self.slow_start.on_loss();
    }

    /// Restarts from one segment after a timeout, with a threshold of `threshold` bytes, at least
    /// two segments.
    pub(super) fn restart_towards(&mut self, threshold: u64) {
        self.reduce_to(threshold);
        self.window = self.segment;
        self.slow_start.on_timeout();
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    fn halved(&self, in_flight: Bytes) -> u64 {
        match self.compat {
            Compat::Paper => in_flight.get() / 2,
            Compat::Linux => self.window / 2,
        }
    }

    /// Rounds down to whole segments for Linux.
    fn whole(&self, bytes: u64) -> u64 {
        match self.compat {
            Compat::Paper => bytes,
            Compat::Linux => bytes - bytes % self.segment,
        }
    }

    /// Bytes that an acknowledgement counts for.
    fn counted(&self, acked: &Acked) -> u64 {
        let bytes = acked.bytes.get();
        match self.compat {
            Compat::Linux => bytes,
            Compat::Paper if !self.byte_counting => bytes.min(self.segment),
            // RFC 3465 §2.2, §2.3: two segments, or one during recovery from a timeout.
            Compat::Paper if self.in_slow_start() => {
                bytes.min(if acked.recovering { 1 } else { 2 } * self.segment)
            }
            Compat::Paper => bytes,
        }
    }
}

impl Congestion for Reno {
    fn on_ack(&mut self, acked: &Acked, _: Siblings<'_>) {
        if self.in_slow_start() && self.slow_start.ends_with(acked, self.window / self.segment) {
            self.threshold = self.window;
        }
        if !acked.window_limited {
            return;
        }
        let mut bytes = self.counted(acked);
        if self.in_slow_start() {
            let growth = self.slow_start.growth(bytes, self.segment);
            let needed = match self.compat {
                Compat::Paper => growth,
                Compat::Linux => growth.min(self.threshold - self.window),
            };
            self.window += needed;
            if needed == growth {
                return;
            }
            // In Linux, what slow start does not use counts in congestion avoidance.
            bytes = growth - needed;
        }
        self.credit += bytes;
        let grown = self.credit / self.window;
        self.credit -= grown * self.window;
        self.window += grown * self.segment;
    }

    fn on_loss(&mut self, lost: &Lost, _: Siblings<'_>) {
        self.reduce_to(self.halved(lost.in_flight));
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, _: Siblings<'_>) {
        let threshold = if repeated { self.threshold } else { self.halved(lost.in_flight) };
        self.restart_towards(threshold);
    }

    fn on_spurious(&mut self, before: &ControlState) {
        self.window = before.window.get();
        self.threshold = before.threshold.get();
    }

    fn on_idle(&mut self, idle: &Idle) {
        let window = self.window as f64;
        self.threshold = idle.threshold(self.threshold as f64, window) as u64;
        self.window = self.whole(idle.window(window, self.initial_window as f64) as u64);
    }

    fn on_penalty(&mut self) {
        if !self.in_slow_start() {
            self.threshold = self.whole(self.threshold / 2).max(2 * self.segment);
        }
        self.window = self.whole(self.window / 2).max(self.segment);
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.whole(self.window))
    }

    fn slow_start_threshold(&self) -> Bytes {
        Bytes::new(self.threshold)
    }

    fn reads_rates(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use skybraid_units::{Duration, Instant};

    const SEGMENT: u64 = 1000;
    const LINUX: Config =
        Config { compat: Compat::Linux, byte_counting: false, hystart: HyStart::None };

    fn reno(config: &Config, window: u64, threshold: u64) -> Box<dyn Congestion> {
        config.build(&PathBasics::in_test(
            Bytes::new(SEGMENT),
            Bytes::new(window * SEGMENT),
            Bytes::new(threshold.saturating_mul(SEGMENT)),
        ))
    }

    fn counting(byte_counting: bool) -> Config {
        Config { byte_counting, ..Config::default() }
    }

    fn acknowledge(control: &mut dyn Congestion, segments: u64, recovering: bool) {
        control.on_ack(
            &Acked {
                now: Instant::ZERO,
                bytes: Bytes::new(segments * SEGMENT),
                srtt: Duration::from_millis(100),
                in_flight: control.window(),
                window_limited: true,
                recovering,
                ..Acked::default()
            },
            Siblings::default(),
        );
    }

    fn segments(control: &dyn Congestion) -> u64 {
        control.window().get() / SEGMENT
    }

    // Source: the vectors of the algorithm reference, §1.1.
    #[test]
    fn slow_start_counts_acknowledgements_or_bytes() {
        for (config, grown) in [(counting(false), 15), (counting(true), 20), (LINUX, 20)] {
            let mut control = reno(&config, 10, u64::MAX);
            for _ in 0..5 {
                acknowledge(&mut *control, 2, false);
            }
            assert_eq!(segments(&*control), grown);
        }
    }

    // Source: RFC 3465 §2.2, §2.3; Linux counts everything.
    #[test]
    fn a_large_acknowledgement_counts_for_at_most_two_segments() {
        for (config, recovering, grown) in
            [(counting(true), false, 12), (counting(true), true, 11), (LINUX, true, 18)]
        {
            let mut control = reno(&config, 10, u64::MAX);
            acknowledge(&mut *control, 8, recovering);
            assert_eq!(segments(&*control), grown);
        }
    }

    // The reference's 10.95 belongs to the other formula of RFC 5681, equation 3; counting
    // acknowledged bytes, which the RFC recommends, gives 11 as in Linux.
    #[test]
    fn congestion_avoidance_adds_a_segment_per_window() {
        for config in [counting(false), counting(true), LINUX] {
            let mut control = reno(&config, 10, 10);
            for _ in 0..10 {
                assert_eq!(segments(&*control), 10);
                acknowledge(&mut *control, 1, false);
            }
            assert_eq!(segments(&*control), 11);
        }
    }

    #[test]
    fn in_linux_the_rest_of_slow_start_counts_in_avoidance() {
        let mut control = reno(&LINUX, 9, 10);
        for _ in 0..3 {
            acknowledge(&mut *control, 3, false);
        }
        assert_eq!(segments(&*control), 10);
        acknowledge(&mut *control, 2, false);
        assert_eq!(segments(&*control), 11);
    }

    #[test]
    fn a_loss_halves_the_window_in_whole_segments_in_linux() {
        for (config, threshold) in [(counting(false), 3500), (LINUX, 3000)] {
            let mut control = reno(&config, 7, 7);
            let lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(7 * SEGMENT) };
            control.on_loss(&lost, Siblings::default());
            assert_eq!(control.slow_start_threshold().get(), threshold);
            assert_eq!(control.window().get(), threshold);
            control.on_timeout(&lost, false, Siblings::default());
            assert_eq!(control.window().get(), SEGMENT);
        }
    }

    #[test]
    fn the_threshold_follows_the_flight_or_in_linux_the_window() {
        for (config, threshold) in [(counting(false), 4), (LINUX, 10)] {
            let mut control = reno(&config, 20, u64::MAX);
            let lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(8 * SEGMENT) };
            control.on_loss(&lost, Siblings::default());
            assert_eq!(control.slow_start_threshold().get(), threshold * SEGMENT);
        }
    }

    // Source: the algorithm reference, §5.1.
    #[test]
    fn a_penalty_halves_window_and_threshold_unless_in_slow_start() {
        for (window, threshold, halved) in
            [(40, 30, (20, 15)), (40, 100, (20, 100)), (3, 3, (1, 2)), (1, 2, (1, 2))]
        {
            let mut control = reno(&LINUX, window, threshold);
            control.on_penalty();
            let found = (segments(&*control), control.slow_start_threshold().get() / SEGMENT);
            assert_eq!(found, halved);
        }
    }

    #[test]
    fn an_unfilled_window_does_not_grow() {
        let mut control = reno(&counting(false), 10, u64::MAX);
        control.on_ack(
            &Acked {
                now: Instant::ZERO,
                bytes: Bytes::new(SEGMENT),
                srtt: Duration::from_millis(100),
                in_flight: Bytes::new(SEGMENT),
                window_limited: false,
                ..Acked::default()
            },
            Siblings::default(),
        );
        assert_eq!(control.window().get(), 10 * SEGMENT);
    }
}
