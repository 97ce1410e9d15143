//! ECF: earliest completion first.
//!
//! F is the fastest path, S the slower path under consideration.

use skybraid_units::{Duration, Instant};

use super::{Choice, FastOrSlow, Reason, Scheduler, Unit, send_on};
use crate::registry::Compat;
use crate::{PathView, algorithm};

algorithm! {
    name: "ecf",
    summary: "Earliest completion first: while the fastest path is full, a slower path is used \
              unless the waiting data would complete earlier on the fast path. Once it waits, the \
              scheduler stops waiting only with a margin of `beta`.",
    source: "Lim et al., CoNEXT 2017; Linux out-of-tree MPTCP, mptcp_ecf.c",
    linux: "Counts bytes, assumes at least one window of either path as waiting data, and adds \
            half of Linux's `rttvar`, which is four deviations and at least 200 ms.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "form of the comparison";
        beta: f64 = 0.25, "ratio", "0.25",
            "relative margin of the slow path's completion time that ends the waiting",
            "a number from 0 to 1000" if (0.0..=1000.0).contains(beta);
    },
    scheduler: |config| Ecf { compat: config.compat, beta: config.beta, waiting: false },
}

#[derive(Debug)]
struct Ecf {
    compat: Compat,
    beta: f64,
    waiting: bool,
}

/// Outcome of comparing F and S for all waiting data.
struct Comparison {
    /// F completes all of it before S completes one unit.
    fast_is_earlier: bool,
    /// S takes at least two round trips of F for all of it.
    slow_is_late: bool,
}

impl Ecf {
    fn by_paper(&self, backlog: u64, two: &FastOrSlow) -> Comparison {
        let windows = |path: &PathView| backlog as f64 / path.window.get().max(1) as f64;
        let (fast_rtt, slow_rtt) = (two.fast_rtt.as_secs_f64(), two.slow_rtt.as_secs_f64());
        let delta = two.fast.rtt_deviation.max(two.slow.rtt_deviation).as_secs_f64();
        let margin = if self.waiting { 1.0 + self.beta } else { 1.0 };
        Comparison {
            fast_is_earlier: (1.0 + windows(two.fast)) * fast_rtt < margin * (slow_rtt + delta),
            slow_is_late: windows(two.slow) * slow_rtt >= 2.0 * fast_rtt + delta,
        }
    }

    fn by_linux(&self, backlog: u64, two: &FastOrSlow) -> Comparison {
        let micros = |span: Duration| (span.as_nanos() / 1000).max(0).unsigned_abs();
        let (fast_rtt, slow_rtt) = (micros(two.fast_rtt), micros(two.slow_rtt));
        let rttvar = |path: &PathView| micros(path.rtt_deviation * 4).max(RTO_MIN_MICROS);
        let delta = rttvar(two.fast).max(rttvar(two.slow)) / 2;
        let (fast_window, slow_window) = (two.fast.window.get(), two.slow.window.get());
        let through = fast_rtt.saturating_mul(backlog.max(fast_window).saturating_add(fast_window));
        let bound = fast_window.saturating_mul(slow_rtt.saturating_add(delta));
        let margin = if self.waiting { (bound as f64 * self.beta) as u64 } else { 0 };
        Comparison {
            fast_is_earlier: through < bound.saturating_add(margin),
            slow_is_late: slow_rtt.saturating_mul(backlog.max(slow_window))
                >= slow_window.saturating_mul((2 * fast_rtt).saturating_add(delta)),
        }
    }
}

/// Linux's `TCP_RTO_MIN`, the floor of `rttvar`.
const RTO_MIN_MICROS: u64 = 200_000;

impl Scheduler for Ecf {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let two = match FastOrSlow::of(unit, paths) {
            Ok(two) => two,
            Err(choice) => return choice,
        };
        let backlog = (unit.bytes + unit.backlog).get();
        let comparison = match self.compat {
            Compat::Paper => self.by_paper(backlog, &two),
            Compat::Linux => self.by_linux(backlog, &two),
        };
        if !comparison.fast_is_earlier {
            self.waiting = false;
        } else if comparison.slow_is_late {
            self.waiting = true;
            return Choice::wait_for(two.fast.id, Reason::FastIsEarlier);
        }
        send_on(Some(two.slow), Reason::SlowIsEarlier, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, chosen, paths};
    use super::*;
    use crate::PathId;
    use alloc::vec;
    use alloc::vec::Vec;
    use skybraid_units::Bytes;

    /// Returns paths with windows of 10 segments, round trips of 20 and 100 ms and a deviation of
    /// 10 ms. The fast path is full.
    fn full_fast_and_free_slow() -> Vec<PathView> {
        let mut two = paths(&[20, 100]);
        two[0].has_room = false;
        two[1].rtt_deviation = Duration::from_millis(10);
        two
    }

    /// True if `scheduler` waits for the fast path while `segments` of 1400 B are queued.
    fn waits(scheduler: &mut dyn Scheduler, segments: u64) -> bool {
        let unit = Unit { backlog: Bytes::new((segments - 1) * 1400), ..UNIT };
        let answer = scheduler.choose(Instant::ZERO, &unit, &full_fast_and_free_slow());
        let waits = answer == Choice::wait_for(PathId(0), Reason::FastIsEarlier);
        assert!(waits || matches!(answer, Choice::Send(_, Reason::SlowIsEarlier)), "{answer:?}");
        waits
    }

    // Source: the vectors of the algorithm reference, §5.5, in the order of its table.
    #[test]
    fn the_slow_path_is_used_unless_the_fast_one_is_earlier() {
        let fresh = || Config::default().build();
        assert!(waits(&mut *fresh(), 20), "60 < 110 and 200 >= 50");
        assert!(!waits(&mut *fresh(), 60), "140 >= 110");
        let mut waiting = fresh();
        assert!(waits(&mut *waiting, 20));
        assert!(!waits(&mut *waiting, 60), "140 >= 137.5");
        assert!(!waits(&mut *fresh(), 2), "24 < 110 but 20 < 50");
    }

    // 50 segments: 6·20 = 120 ms is between 110 and 137.5 ms.
    #[test]
    fn once_waiting_it_needs_a_margin_to_stop() {
        let mut scheduler = Config::default().build();
        assert!(!waits(&mut *scheduler, 50));
        assert!(waits(&mut *scheduler, 20));
        assert!(waits(&mut *scheduler, 50));
        assert!(!waits(&mut *scheduler, 60));
        assert!(!waits(&mut *scheduler, 50));
    }

    // Computed by hand from the algorithm reference, §5.5, with δ = 200 ms / 2 (§1.4). 150 segments:
    // 20·(210 + 14) kB·ms = 4.48 ≥ 14·200 = 2.8. 20 segments: 0.84 < 2.8 and 100·28 ≥ 14·140.
    // 2 segments count as a window of 10: 0.56 < 2.8 but 100·14 < 14·140.
    #[test]
    fn linux_uses_its_floor_of_the_deviation() {
        let fresh = || Config { compat: Compat::Linux, ..Config::default() }.build();
        assert!(!waits(&mut *fresh(), 150));
        assert!(waits(&mut *fresh(), 20));
        assert!(!waits(&mut *fresh(), 2));
        assert!(waits(&mut *fresh(), 60), "1.96 < 2.8, where the paper uses the slow path");
        let mut waiting = fresh();
        // 130 segments: 20·(182 + 14) = 3.92 is above 1.25 · 2.8 = 3.5; 110 segments with 3.36 are
        // between.
        assert!(!waits(&mut *waiting, 110));
        assert!(waits(&mut *waiting, 20));
        assert!(waits(&mut *waiting, 110));
        assert!(!waits(&mut *waiting, 130));
    }

    #[test]
    fn the_fast_path_is_used_once_it_has_room() {
        let mut two = full_fast_and_free_slow();
        two[0].has_room = true;
        assert_eq!(chosen(&mut *Config::default().build(), &two), Some(vec![0]));
    }

    // Source: the algorithm reference, §12 item 5. In 32 bits the products would overflow.
    #[test]
    fn linux_products_do_not_overflow_for_large_windows() {
        let mut two = full_fast_and_free_slow();
        two[0].window = Bytes::new(10_000_000);
        two[1].window = Bytes::new(10_000_000);
        let mut scheduler = Config { compat: Compat::Linux, ..Config::default() }.build();
        let unit = Unit { backlog: Bytes::new(20_000_000), ..UNIT };
        let answer = scheduler.choose(Instant::ZERO, &unit, &two);
        assert_eq!(answer, Choice::wait_for(PathId(0), Reason::FastIsEarlier));
    }

    #[test]
    fn a_negative_beta_is_refused() {
        assert!(Config { beta: -0.1, ..Config::default() }.check().is_err());
    }
}
