//! Westwood+: Westwood with one rate sample per round-trip time, which is robust against aggregated
//! acknowledgements.
//!
//! Source: Grieco and Mascolo, Performance evaluation and comparison of Westwood+, New Reno, and
//! Vegas TCP congestion control (2004); Linux `tcp_westwood.c`. Selectively acknowledged data
//! counts as delivered; without SACK the rate waits until the hole is filled.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Instant};

use super::reno::{self, Reno};
use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Siblings};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "westwood_plus",
    summary: "Westwood+: measures the delivery rate once per round-trip time and, after a loss, \
              sets the window to that rate times the minimum round-trip time instead of halving \
              it. Grows like New Reno.",
    source: "Grieco and Mascolo, ACM CCR 34(2), 2004",
    linux: "At most one sample per 50 ms, in whole bytes per millisecond, smoothed twice by an \
            eighth. A loss halves the window first; the rate sets it at the end of recovery, \
            possibly to a larger value. A timeout resets the minimum round-trip time.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "the paper, or Linux's behaviour";
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let growth = reno::Config { compat: self.compat, ..reno::Config::default() };
        Box::new(WestwoodPlus {
            compat: self.compat,
            reno: Reno::new(&growth, path),
            filter: None,
            began: None,
            rtt: Duration::ZERO,
            min_rtt: None,
            fast_recovery: false,
        })
    }
}

/// Minimum interval between two samples in Linux.
const MIN_SPAN: Duration = Duration::from_millis(50);

/// Smoothed rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Filter {
    /// Rate and last sample, in bytes/s.
    Tustin { rate: f64, last: f64 },
    /// Rate and its first filter stage, in bytes/ms.
    Eighths { rate: u64, first: u64 },
}

impl Filter {
    fn begin(compat: Compat, bytes: u64, span: Duration) -> Self {
        match compat {
            Compat::Paper => {
                let sample = bytes as f64 / span.as_secs_f64();
                Self::Tustin { rate: sample, last: sample }
            }
            Compat::Linux => {
                let sample = bytes / millis(span).max(1);
                Self::Eighths { rate: sample, first: sample }
            }
        }
    }

    fn take(self, bytes: u64, span: Duration) -> Self {
        match self {
            Self::Tustin { rate, last } => {
                let sample = bytes as f64 / span.as_secs_f64();
                Self::Tustin { rate: 0.9 * rate + 0.1 * (sample + last) / 2.0, last: sample }
            }
            Self::Eighths { rate, first } => {
                let first = (7 * first + bytes / millis(span).max(1)) / 8;
                Self::Eighths { rate: (7 * rate + first) / 8, first }
            }
        }
    }

    /// Bytes delivered in `span`.
    fn bytes_in(self, span: Duration) -> u64 {
        match self {
            Self::Tustin { rate, .. } => (rate * span.as_secs_f64()) as u64,
            Self::Eighths { rate, .. } => rate * (span.as_nanos() as u64).div_ceil(1_000_000),
        }
    }
}

/// Converts to whole milliseconds.
fn millis(span: Duration) -> u64 {
    span.as_nanos() as u64 / 1_000_000
}

#[derive(Debug)]
struct WestwoodPlus {
    compat: Compat,
    reno: Reno,
    filter: Option<Filter>,
    /// Start of the current sample, and the bytes delivered by then.
    began: Option<(Instant, u64)>,
    rtt: Duration,
    min_rtt: Option<Duration>,
    /// True if the current recovery did not start with a timeout.
    fast_recovery: bool,
}

impl WestwoodPlus {
    /// Capacity of the path without a queue, in bytes.
    fn pipe(&self) -> Option<u64> {
        Some(self.filter?.bytes_in(self.min_rtt?))
    }
}

impl Congestion for WestwoodPlus {
    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        if let Some(rtt) = acked.rtt {
            self.rtt = rtt;
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        }
        let delivered = acked.delivered.get();
        let (began, before) = *self.began.get_or_insert((acked.now, delivered));
        let span = acked.now.since(began);
        let due = match self.compat {
            Compat::Paper => span.is_positive() && span >= acked.srtt,
            Compat::Linux => span > self.rtt.max(MIN_SPAN),
        };
        if due {
            let bytes = delivered - before;
            self.filter = Some(match self.filter {
                Some(filter) => filter.take(bytes, span),
                None => Filter::begin(self.compat, bytes, span),
            });
            self.began = Some((acked.now, delivered));
        }
    }

    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        self.reno.on_ack(acked, siblings);
    }

    fn on_recovered(&mut self, _now: Instant) {
        let fast = core::mem::take(&mut self.fast_recovery);
        if let Some(pipe) = self.pipe()
            && fast
            && self.compat == Compat::Linux
        {
            self.reno.reduce_to(pipe);
            self.reno.window = self.reno.threshold;
        }
    }

    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>) {
        self.fast_recovery = true;
        match self.pipe() {
            Some(pipe) if self.compat == Compat::Paper => self.reno.reduce_to(pipe),
            _ => self.reno.on_loss(lost, siblings),
        }
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>) {
        self.fast_recovery = false;
        match self.pipe() {
            Some(pipe) => self.reno.restart_towards(pipe),
            None => self.reno.on_timeout(lost, repeated, siblings),
        }
        if self.compat == Compat::Linux {
            self.min_rtt = None;
        }
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.reno.on_idle(idle);
    }

    fn on_spurious(&mut self, before: &ControlState) {
        // The recovery that ends now was none: the window of before stays.
        self.fast_recovery = false;
        self.reno.on_spurious(before);
    }

    window_of!(reno);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    // Source: the vectors of the algorithm reference, §2.4.1.
    #[test]
    fn linux_smooths_twice_by_an_eighth_in_integers() {
        let mut filter = Filter::begin(Compat::Linux, 1000, MS);
        for (first, rate) in [(1125, 1015), (1234, 1042), (1329, 1077)] {
            filter = filter.take(2000, MS);
            assert_eq!(filter, Filter::Eighths { rate, first });
        }
    }

    // Source: the vectors of the algorithm reference, §2.4.2.
    #[test]
    fn the_paper_averages_samples_and_keeps_nine_tenths() {
        let filter = Filter::begin(Compat::Paper, 1000, MS).take(2000, MS);
        let Filter::Tustin { rate, .. } = filter else { panic!("of the paper") };
        assert!((rate - 1.05e6).abs() < 1e-3);
    }

    /// Returns a flow with a window of 80 segments on a path that delivers a segment per
    /// millisecond and holds 40, after ten samples.
    fn measured(compat: Compat) -> Box<dyn Congestion> {
        let mut control = Config { compat }.build(&PathBasics::in_test(
            Bytes::new(1000),
            Bytes::new(80_000),
            Bytes::new(0),
        ));
        for step in 0..510 {
            let acked = Acked {
                now: Instant::from_millis(step),
                bytes: Bytes::new(1000),
                delivered: Bytes::new(1000 * step as u64),
                srtt: Duration::from_millis(40),
                rtt: Some(Duration::from_millis(40)),
                ..Acked::default()
            };
            control.on_delivery(&acked, Siblings::default());
        }
        control
    }

    const LOST: Lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(60_000) };

    /// Returns threshold and window in bytes.
    fn state(control: &dyn Congestion) -> (u64, u64) {
        (control.slow_start_threshold().get(), control.window().get())
    }

    #[test]
    fn a_loss_leaves_the_path_s_capacity() {
        let mut control = measured(Compat::Paper);
        control.on_loss(&LOST, Siblings::default());
        assert_eq!(state(&*control), (40_000, 40_000));
    }

    #[test]
    fn in_linux_the_capacity_sets_the_window_after_recovery() {
        let mut control = measured(Compat::Linux);
        control.on_loss(&LOST, Siblings::default());
        control.on_loss(&LOST, Siblings::default());
        assert_eq!(state(&*control), (20_000, 20_000));
        control.on_recovered(Instant::ZERO);
        assert_eq!(state(&*control), (40_000, 40_000));
    }

    // Source: Linux `tcp_undo_cwnd_reduction`, which sets the window back; the event that ends a
    // reduction and would set it to the capacity (`CA_EVENT_COMPLETE_CWR`) does not follow.
    #[test]
    fn in_linux_an_undone_recovery_leaves_the_window_as_before() {
        let mut control = measured(Compat::Linux);
        let (threshold, window) = (control.slow_start_threshold(), control.window());
        control.on_loss(&LOST, Siblings::default());
        control.on_spurious(&ControlState { window, threshold });
        control.on_recovered(Instant::ZERO);
        assert_eq!(state(&*control), (threshold.get(), window.get()));
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_the_capacity_as_threshold() {
        for compat in [Compat::Paper, Compat::Linux] {
            let mut control = measured(compat);
            control.on_timeout(&LOST, false, Siblings::default());
            assert_eq!(state(&*control), (40_000, 1000));
            // Recovery from a timeout ends without a change of the window.
            control.on_recovered(Instant::ZERO);
            assert_eq!(state(&*control), (40_000, 1000));
        }
    }
}
