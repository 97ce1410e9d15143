//! CCID 2, DCCP's TCP-like congestion control, in whole packets.
//!
//! Source: RFC 4341 §5; RFC 3390 (initial window), RFC 5681 §4.1 (idle). Linux `ccid2.c` for
//! `compat = "linux"`, with congestion window validation (RFC 2861).

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Instant};

use super::{Acked, Congestion, Idle, Lost, PathBasics, Siblings};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "ccid2",
    summary: "DCCP's TCP-like control: the window grows by a packet per two acknowledged packets \
              in slow start, then by one per window. A loss halves it, in whole packets.",
    source: "RFC 4341",
    linux: "an acknowledgement adds up to half the Ack Ratio, rounded up, in slow start; a \
            repeated timeout lowers the threshold again; an idle or little used window shrinks as \
            in RFC 2861; the Ack Ratio follows the sequence window instead of lost \
            acknowledgements",
    parameters: {
        initial_window: Option<u32> = None, "packets", "(RFC 3390: 2 to 4)", "initial window",
            "above zero" if *initial_window != Some(0);
        compat: Compat = Compat::Paper, "paper or linux", "paper", "the RFC, or Linux's behaviour";
    }
}

/// RFC 3390: `min(4·MSS, max(2·MSS, 4380 bytes))`, in packets.
fn rfc_3390(segment: u64) -> u64 {
    (4 * segment).min((2 * segment).max(4380)) / segment
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let segment = path.segment.get().max(1);
        let usual = rfc_3390(segment).min(path.initial_window.get() / segment);
        let initial = self.initial_window.map_or(usual, u64::from).max(1);
        Box::new(Ccid2 {
            linux: self.compat == Compat::Linux,
            segment,
            initial,
            window: initial,
            threshold: path.initial_threshold.get() / segment,
            unlimited: path.initial_threshold == Bytes::new(u64::MAX),
            credit: 0,
            ratio: 2,
            srtt: Duration::ZERO,
            used: 0,
            used_since: Instant::ZERO,
            last_ack: Instant::ZERO,
        })
    }
}

#[derive(Debug)]
struct Ccid2 {
    linux: bool,
    segment: u64,
    /// All windows are in packets.
    initial: u64,
    window: u64,
    threshold: u64,
    /// True until a threshold is set.
    unlimited: bool,
    /// Packets acknowledged that have not yet caused growth.
    credit: u64,
    /// Packets per acknowledgement.
    ratio: u64,
    srtt: Duration,
    /// Linux: maximum packets in flight since `used_since`.
    used: u64,
    used_since: Instant,
    last_ack: Instant,
}

impl Ccid2 {
    fn reduce(&mut self) {
        self.window = (self.window / 2).max(1);
        self.threshold = self.window.max(2);
        self.unlimited = false;
        self.credit = 0;
    }

    /// Linux's timeout for a path with a steady round-trip time.
    fn timeout(&self) -> Duration {
        self.srtt + Duration::from_millis(200)
    }

    /// RFC 2861: keeps part of the window as the threshold.
    fn save_in_threshold(&mut self) {
        if !self.unlimited {
            self.threshold = self.threshold.max(self.window / 2 + self.window / 4);
        }
    }

    /// RFC 2861 §3.1, for a window that is not filled.
    fn validate(&mut self, acked: &Acked) {
        self.used = self.used.max(acked.in_flight.get() / self.segment);
        if self.used >= self.window {
            self.used = 0;
            self.used_since = acked.now;
        } else if acked.now.since(self.used_since) >= self.timeout() {
            self.save_in_threshold();
            let used = self.used.max(self.initial);
            if used < self.window {
                self.window = u64::midpoint(self.window, used);
            }
            self.used = 0;
            self.used_since = acked.now;
        }
    }
}

impl Congestion for Ccid2 {
    fn on_ack(&mut self, acked: &Acked, _: Siblings<'_>) {
        let limited = self.linux || acked.window_limited;
        let packets = acked.bytes.get() / self.segment;
        let mut max = if self.linux { self.ratio.div_ceil(2) } else { self.ratio / 2 }.max(1);
        for _ in 0..if limited { packets } else { 0 } {
            self.credit += 1;
            if self.unlimited || self.window < self.threshold {
                if self.credit >= 2 && max > 0 {
                    self.credit = 0;
                    self.window += 1;
                    max -= 1;
                }
            } else if self.credit >= self.window {
                self.credit = 0;
                self.window += 1;
            }
        }
        if self.linux {
            self.validate(acked);
        }
    }

    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        self.srtt = acked.srtt;
        self.last_ack = acked.now;
    }

    fn on_loss(&mut self, _: &Lost, _: Siblings<'_>) {
        self.reduce();
    }

    fn on_timeout(&mut self, _: &Lost, repeated: bool, _: Siblings<'_>) {
        if self.linux || !repeated {
            self.reduce();
        }
        self.window = 1;
        self.credit = 0;
    }

    fn on_idle(&mut self, idle: &Idle) {
        let now = idle.now;
        if !self.linux {
            self.window = self.window.min(self.initial);
            return;
        }
        self.save_in_threshold();
        let mut idle = now.since(self.last_ack);
        let min = self.window.min(self.initial);
        while idle >= self.timeout() && self.window > min {
            self.window = (self.window / 2).max(min);
            idle -= self.timeout();
        }
        self.used = 0;
        self.used_since = now;
    }

    fn set_ack_ratio(&mut self, ratio: u32) {
        self.ratio = u64::from(ratio);
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.window * self.segment)
    }

    fn slow_start_threshold(&self) -> Bytes {
        if self.unlimited {
            Bytes::new(u64::MAX)
        } else {
            Bytes::new(self.threshold * self.segment)
        }
    }

    fn reads_rates(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::testing::idle_until;
    use super::*;

    const SEGMENT: u64 = 1000;

    fn ccid2(window: u32, threshold: Option<u64>, compat: Compat) -> Box<dyn Congestion> {
        Config { initial_window: Some(window), compat }.build(&PathBasics::in_test(
            Bytes::new(SEGMENT),
            Bytes::new(10 * SEGMENT),
            Bytes::new(threshold.map_or(u64::MAX, |packets| packets * SEGMENT)),
        ))
    }

    fn acknowledge(control: &mut dyn Congestion, packets: u64) {
        let acked = Acked {
            bytes: Bytes::new(packets * SEGMENT),
            srtt: Duration::from_millis(100),
            in_flight: control.window(),
            window_limited: true,
            ..Acked::default()
        };
        control.on_delivery(&acked, Siblings::default());
        control.on_ack(&acked, Siblings::default());
    }

    fn packets(control: &dyn Congestion) -> (u64, u64) {
        (control.window().get() / SEGMENT, control.slow_start_threshold().get() / SEGMENT)
    }

    const LOST: Lost = Lost { now: Instant::ZERO, in_flight: Bytes::ZERO };

    // Source: RFC 3390 §1.
    #[test]
    fn the_initial_window_is_two_to_four_packets() {
        let windows = [500, 1000, 1095, 1448, 2000, 4000].map(rfc_3390);
        assert_eq!(windows, [4, 4, 4, 3, 2, 2]);
    }

    // Source: the vectors of the algorithm reference, §6.2.
    #[test]
    fn slow_start_adds_a_packet_per_two_acknowledged() {
        let mut control = ccid2(10, None, Compat::Paper);
        (0..5).for_each(|_| acknowledge(&mut *control, 2));
        assert_eq!(packets(&*control).0, 15);
    }

    // Source: RFC 4341 §5: at most half the Ack Ratio per acknowledgement.
    #[test]
    fn an_acknowledgement_adds_at_most_half_the_ack_ratio() {
        for (compat, ratio, grown) in
            [(Compat::Paper, 4, 12), (Compat::Paper, 5, 12), (Compat::Linux, 5, 13)]
        {
            let mut control = ccid2(10, None, compat);
            control.set_ack_ratio(ratio);
            acknowledge(&mut *control, 10);
            assert_eq!(packets(&*control).0, grown, "{compat:?} {ratio}");
        }
    }

    // Source: the vectors of the algorithm reference, §6.2.
    #[test]
    fn congestion_avoidance_adds_a_packet_per_window() {
        let mut control = ccid2(10, Some(10), Compat::Paper);
        (0..5).for_each(|_| acknowledge(&mut *control, 2));
        assert_eq!(packets(&*control).0, 11);
    }

    // Source: the vectors of the algorithm reference, §6.2.
    #[test]
    fn a_loss_halves_the_window_and_a_timeout_leaves_one_packet() {
        let mut control = ccid2(11, Some(10), Compat::Paper);
        control.on_loss(&LOST, Siblings::default());
        assert_eq!(packets(&*control), (5, 5));
        let mut control = ccid2(11, Some(10), Compat::Paper);
        control.on_timeout(&LOST, false, Siblings::default());
        assert_eq!(packets(&*control), (1, 5));
        control.on_timeout(&LOST, true, Siblings::default());
        assert_eq!(packets(&*control), (1, 5));
        control.on_loss(&LOST, Siblings::default());
        assert_eq!(packets(&*control), (1, 2));
    }

    // Source: the quirks listed in the algorithm reference, §6.2 (RFC 2861).
    #[test]
    fn linux_halves_an_idle_window_once_per_timeout() {
        let mut control = ccid2(4, Some(8), Compat::Linux);
        (0..60).for_each(|_| acknowledge(&mut *control, 2));
        let grown = packets(&*control).0;
        assert!(grown > 12, "{grown}");
        // One timeout of 300 ms since the last acknowledgement, at time zero.
        control.on_idle(&idle_until(400));
        assert_eq!(packets(&*control), (grown / 2, grown / 2 + grown / 4));
        control.on_idle(&idle_until(5000));
        assert_eq!(packets(&*control).0, 4);
        let mut paper = ccid2(4, Some(8), Compat::Paper);
        (0..60).for_each(|_| acknowledge(&mut *paper, 2));
        paper.on_idle(&idle_until(400));
        assert_eq!(packets(&*paper).0, 4);
    }

    #[test]
    fn linux_drops_half_of_the_unused_window() {
        let mut control = ccid2(4, Some(4), Compat::Linux);
        (0..300).for_each(|_| acknowledge(&mut *control, 2));
        let (grown, _) = packets(&*control);
        let acked = Acked {
            now: Instant::from_millis(500),
            srtt: Duration::from_millis(100),
            in_flight: Bytes::new(6 * SEGMENT),
            ..Acked::default()
        };
        control.on_ack(&acked, Siblings::default());
        assert_eq!(packets(&*control), ((grown + 6) / 2, grown / 2 + grown / 4));
    }
}
