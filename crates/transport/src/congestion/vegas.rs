//! Vegas: keeps a few packets in the queue, estimated from the round-trip time.
//!
//! Source: Brakmo and Peterson, TCP Vegas (1995); Linux `tcp_vegas.c`, generation 4.14.

use skybraid_units::{Bytes, Duration, Instant};

use super::reno::{self, Reno};
use super::rounds::Rounds;
use super::{Acked, Congestion, ControlState, Idle, Lost, PathBasics, Siblings};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "vegas",
    summary: "Vegas: once per round, estimates the number of packets in the queue from the \
              round-trip time and its minimum, and grows or shrinks by a segment to keep it \
              between alpha and beta. Reacts to losses like New Reno.",
    source: "Brakmo and Peterson, IEEE JSAC 13(8), 1995",
    linux: "The queue is counted in whole packets with the minimum round-trip time as divisor \
            instead of the present one; in a round with at most two samples the window grows like \
            Reno's; slow start doubles in every round instead of every other; an idle time resets \
            the minimum round-trip time.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "the paper, or Linux's behaviour";
        alpha: u32 = 2, "packets", "2", "grow while fewer packets are queued";
        beta: u32 = 4, "packets", "4", "shrink while more packets are queued",
            "at least alpha" if beta >= alpha;
        gamma: u32 = 1, "packets", "1", "queued packets that end slow start";
    },
    congestion: |config, path| Vegas::new(config, path),
}

#[derive(Debug)]
struct Vegas {
    config: Config,
    reno: Reno,
    /// Minimum round-trip time.
    base_rtt: Duration,
    rounds: Rounds,
    /// Minimum round-trip time of this round, and its number of samples.
    rtt: Duration,
    samples: u32,
    /// True if slow start grows in this round.
    doubles: bool,
    /// True from a loss until the end of recovery: Vegas is off.
    recovering: bool,
}

/// Queue estimate of a round, in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Queue {
    /// Packets of the window in the queue.
    queued: f64,
    /// Window that would leave the queue empty.
    target: f64,
}

impl Queue {
    fn of(compat: Compat, window: u64, base: Duration, rtt: Duration) -> Self {
        match compat {
            Compat::Paper => {
                let target = window as f64 * (base.as_secs_f64() / rtt.as_secs_f64());
                Self { queued: window as f64 - target, target }
            }
            Compat::Linux => {
                let micros = |span: Duration| (span.as_nanos() as u64 / 1000).max(1);
                let (base, rtt) = (micros(base), micros(rtt));
                let queued = window * (rtt - base) / base;
                Self { queued: queued as f64, target: (window * base / rtt) as f64 }
            }
        }
    }
}

impl Vegas {
    fn new(config: &Config, path: &PathBasics) -> Self {
        let growth = reno::Config { compat: config.compat, ..reno::Config::default() };
        Self {
            config: config.clone(),
            reno: Reno::new(&growth, path),
            base_rtt: Duration::MAX,
            rounds: Rounds::default(),
            rtt: Duration::MAX,
            samples: 0,
            doubles: true,
            recovering: false,
        }
    }

    fn begin_round(&mut self) {
        self.rtt = Duration::MAX;
        self.samples = 0;
    }

    fn end_round(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        let needed = if self.config.compat == Compat::Linux { 3 } else { 1 };
        if self.samples < needed {
            self.reno.on_ack(acked, siblings);
            return;
        }
        let segment = self.reno.segment;
        let window = self.reno.window / segment;
        let queue = Queue::of(self.config.compat, window, self.base_rtt, self.rtt);
        if self.reno.in_slow_start() {
            if queue.queued > f64::from(self.config.gamma) {
                let max = (queue.target as u64 + 1) * segment;
                self.reno.window = self.reno.window.min(max);
                self.reno.threshold = self.reno.threshold.min(self.reno.window);
            } else {
                self.doubles = !self.doubles || self.config.compat == Compat::Linux;
                self.slow_start(acked, siblings);
            }
        } else if queue.queued > f64::from(self.config.beta) {
            self.reno.window -= segment.min(self.reno.window);
            // Below the window, so that it does not return to slow start.
            self.reno.threshold = self.reno.threshold.min(self.reno.window.saturating_sub(segment));
        } else if queue.queued < f64::from(self.config.alpha) && acked.window_limited {
            self.reno.window += segment;
        }
        self.reno.window = self.reno.window.max(2 * segment);
    }

    fn slow_start(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        if self.doubles {
            self.reno.on_ack(acked, siblings);
        }
    }
}

impl Congestion for Vegas {
    fn on_delivery(&mut self, acked: &Acked, _: Siblings<'_>) {
        if let Some(rtt) = acked.rtt {
            // As in Linux, so that no round-trip time is zero.
            let rtt = rtt + Duration::from_micros(1);
            self.base_rtt = self.base_rtt.min(rtt);
            self.rtt = self.rtt.min(rtt);
            self.samples += 1;
        }
    }

    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        if self.recovering {
            self.reno.on_ack(acked, siblings);
        } else if self.rounds.end_with(acked) {
            self.end_round(acked, siblings);
            self.begin_round();
        } else if self.reno.in_slow_start() {
            self.slow_start(acked, siblings);
        }
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.recovering = false;
        self.begin_round();
    }

    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>) {
        self.recovering = true;
        self.reno.on_loss(lost, siblings);
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>) {
        self.recovering = true;
        self.reno.on_timeout(lost, repeated, siblings);
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.reno.on_idle(idle);
        if !idle.rule.restarts() {
            return;
        }
        if self.config.compat == Compat::Linux {
            self.base_rtt = Duration::MAX;
        }
        self.begin_round();
    }

    fn on_spurious(&mut self, before: &ControlState) {
        self.reno.on_spurious(before);
    }

    window_of!(reno);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(i64) -> Duration = Duration::from_millis;

    /// Returns Vegas at the end of a round, with a minimum round-trip time of 100 ms and segments
    /// of one byte.
    fn vegas(compat: Compat, window: u64, threshold: u64, rtt_ms: i64) -> Vegas {
        let path = PathBasics::in_test(Bytes::new(1), Bytes::new(window), Bytes::new(threshold));
        let fresh = Vegas::new(&Config { compat, ..Config::default() }, &path);
        Vegas { base_rtt: MS(100), rtt: MS(rtt_ms), samples: 3, ..fresh }
    }

    /// Returns threshold and window after the round.
    fn ended(mut vegas: Vegas) -> (u64, u64) {
        let acked = Acked { bytes: Bytes::new(1), window_limited: true, ..Acked::default() };
        vegas.end_round(&acked, Siblings::default());
        (vegas.slow_start_threshold().get(), vegas.window().get())
    }

    // Source: the vectors of the algorithm reference, §2.3.
    #[test]
    fn the_queue_follows_from_the_round_trip_time() {
        let queue = |compat, rtt_ms| Queue::of(compat, 20, MS(100), MS(rtt_ms));
        let linux = queue(Compat::Linux, 120);
        assert_eq!((linux.queued, linux.target), (4.0, 16.0));
        assert_eq!(queue(Compat::Linux, 125).queued, 5.0);
        let paper = queue(Compat::Paper, 120);
        assert!((paper.queued - 10.0 / 3.0).abs() < 1e-9);
        assert!((queue(Compat::Paper, 125).queued - 4.0).abs() < 1e-9);
    }

    #[test]
    fn the_window_grows_without_a_queue_and_holds_within_bounds() {
        for compat in [Compat::Paper, Compat::Linux] {
            assert_eq!(ended(vegas(compat, 20, 20, 100)), (20, 21));
            assert_eq!(ended(vegas(compat, 20, 20, 120)), (20, 20));
        }
    }

    #[test]
    fn at_125_ms_the_paper_holds_and_linux_shrinks() {
        assert_eq!(ended(vegas(Compat::Paper, 20, 20, 125)), (20, 20));
        assert_eq!(ended(vegas(Compat::Linux, 20, 20, 125)), (18, 19));
        assert_eq!(ended(vegas(Compat::Paper, 20, 20, 130)), (18, 19));
    }

    #[test]
    fn slow_start_ends_one_packet_above_the_empty_queue_s_window() {
        for compat in [Compat::Paper, Compat::Linux] {
            assert_eq!(ended(vegas(compat, 20, u64::MAX, 200)), (11, 11));
        }
    }

    #[test]
    fn slow_start_of_the_paper_grows_in_every_other_round() {
        let mut paper = vegas(Compat::Paper, 20, u64::MAX, 100);
        let acked = Acked { bytes: Bytes::new(1), window_limited: true, ..Acked::default() };
        for (doubles, window) in [(false, 20), (true, 21), (false, 21)] {
            paper.end_round(&acked, Siblings::default());
            assert_eq!((paper.doubles, paper.window().get()), (doubles, window));
        }
    }

    #[test]
    fn in_linux_a_round_with_two_samples_grows_like_reno() {
        let two = Vegas { samples: 2, ..vegas(Compat::Linux, 20, 20, 200) };
        assert_eq!(ended(two), (20, 20));
    }

    #[test]
    fn the_window_is_at_least_two_segments() {
        assert_eq!(ended(vegas(Compat::Linux, 2, 0, 1000)).1, 2);
    }

    // Source: the algorithm reference, §12, case 4.
    #[test]
    fn a_round_trip_time_of_zero_counts_as_a_microsecond() {
        let mut linux = vegas(Compat::Linux, 20, 20, 100);
        let acked = Acked { rtt: Some(Duration::ZERO), ..Acked::default() };
        linux.on_delivery(&acked, Siblings::default());
        assert_eq!((linux.base_rtt, linux.rtt), (MS(1) / 1000, MS(1) / 1000));
        assert_eq!(ended(linux), (20, 21));
    }
}
