//! New Reno's window: add one segment per round trip, halve on loss.
//!
//! Source: RFC 5681 §3.1 (slow start, congestion avoidance), RFC 6582, RFC 3465 (byte counting).

use alloc::boxed::Box;

use skybraid_units::{Bytes, Instant};

use super::{Acked, Congestion, Lost, PathBasics, Siblings};
use crate::registry::{About, Check, Parameter};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "reno",
    summary: "New Reno: the window grows by a segment per acknowledgement in slow start and by about \
              a segment per round trip after it, and halves once per window with a loss.",
    source: "RFC 5681, RFC 6582, RFC 3465",
    linux: "",
    parameters: &[Parameter {
        name: "byte_counting",
        unit: "true or false",
        default: "false",
        summary: "grow by what was acknowledged (as Linux does) rather than by the number of \
                  acknowledgements, so that delayed acknowledgements do not slow growth",
    }],
};

/// How growth is counted.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Grow by what was acknowledged rather than by the number of acknowledgements.
    pub byte_counting: bool,
}

impl Check for Config {}

impl Config {
    /// A fresh instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        Box::new(Reno {
            byte_counting: self.byte_counting,
            segment: path.segment.get().max(1),
            initial_window: path.initial_window.get().max(1),
            window: path.initial_window.get().max(1),
            threshold: path.initial_threshold.get(),
            credit: 0,
        })
    }
}

#[derive(Debug)]
struct Reno {
    byte_counting: bool,
    segment: u64,
    initial_window: u64,
    window: u64,
    threshold: u64,
    /// Bytes acknowledged in congestion avoidance and not yet turned into growth.
    credit: u64,
}

impl Reno {
    fn halved(&self, in_flight: Bytes) -> u64 {
        (in_flight.get() / 2).max(2 * self.segment)
    }
}

impl Congestion for Reno {
    fn on_ack(&mut self, acked: &Acked, _: Siblings<'_>) {
        if !acked.window_limited {
            return;
        }
        let bytes = acked.bytes.get();
        if self.window < self.threshold {
            let most = if self.byte_counting { bytes } else { bytes.min(self.segment) };
            self.window += most;
            return;
        }
        self.credit += if self.byte_counting { bytes } else { bytes.min(self.segment) };
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window += self.segment;
        }
    }

    fn on_loss(&mut self, lost: &Lost, _: Siblings<'_>) {
        self.threshold = self.halved(lost.in_flight);
        self.window = self.threshold;
        self.credit = 0;
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, _: Siblings<'_>) {
        if !repeated {
            self.threshold = self.halved(lost.in_flight);
        }
        self.window = self.segment;
        self.credit = 0;
    }

    fn on_idle(&mut self, _now: Instant) {
        self.window = self.window.min(self.initial_window);
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.window)
    }

    fn slow_start_threshold(&self) -> Bytes {
        Bytes::new(self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::{Duration, Seed};

    const SEGMENT: u64 = 1000;

    fn reno(byte_counting: bool, window: u64, threshold: u64) -> Box<dyn Congestion> {
        Config { byte_counting }.build(&PathBasics {
            segment: Bytes::new(SEGMENT),
            initial_window: Bytes::new(window * SEGMENT),
            initial_threshold: Bytes::new(threshold.saturating_mul(SEGMENT)),
            sack: true,
            seed: Seed::default(),
        })
    }

    fn acknowledge(control: &mut dyn Congestion, segments: u64) {
        control.on_ack(
            &Acked {
                now: Instant::ZERO,
                bytes: Bytes::new(segments * SEGMENT),
                srtt: Duration::from_millis(100),
                in_flight: control.window(),
                window_limited: true,
                ..Acked::default()
            },
            Siblings::default(),
        );
    }

    // Source: the vectors of the algorithm reference, §1.1.
    #[test]
    fn ten_segments_in_delayed_acks_grow_a_window_of_ten_to_15_or_with_byte_counting_to_20() {
        for (byte_counting, grown) in [(false, 15), (true, 20)] {
            let mut control = reno(byte_counting, 10, u64::MAX);
            for _ in 0..5 {
                acknowledge(&mut *control, 2);
            }
            assert_eq!(control.window().get(), grown * SEGMENT);
        }
    }

    #[test]
    fn a_window_of_acknowledgements_adds_one_segment_in_congestion_avoidance() {
        let mut control = reno(true, 10, 10);
        for _ in 0..10 {
            acknowledge(&mut *control, 1);
        }
        assert_eq!(control.window().get(), 11 * SEGMENT);
    }

    #[test]
    fn a_loss_with_seven_segments_in_flight_sets_the_threshold_to_three_and_a_half() {
        let mut control = reno(false, 7, 7);
        let lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(7 * SEGMENT) };
        control.on_loss(&lost, Siblings::default());
        assert_eq!(control.slow_start_threshold().get(), 3500);
        control.on_timeout(&lost, false, Siblings::default());
        assert_eq!(control.window().get(), SEGMENT);
    }

    #[test]
    fn the_window_does_not_grow_when_the_application_does_not_fill_it() {
        let mut control = reno(false, 10, u64::MAX);
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
