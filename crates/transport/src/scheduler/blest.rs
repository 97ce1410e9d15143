//! BLEST: a slower path is used only if its data will not block the peer's receive window.
//!
//! F is the fastest path, S the slower path under consideration.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Instant};

use super::{Choice, FastOrSlow, Reason, Scheduler, Unit, send_on};
use crate::registry::Compat;
use crate::{PathId, PathView, algorithm};

algorithm! {
    name: "blest",
    summary: "BLEST: while the fastest path is full, a slower path is used only if the peer's \
              window has room for the data in flight on the slower path and for all that the fast \
              path could send meanwhile; otherwise data waits for the fast path. The estimate is \
              scaled by λ, which grows while the window blocks and shrinks otherwise.",
    source: "Ferlin et al., Networking 2016; chavali2022 §4; Linux out-of-tree MPTCP, mptcp_blest.c",
    linux: "λ starts at 1.2. The number of round trips is the integer quotient plus one, and a \
            fast path in its first slow start is expected to double its window in each.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "form of the estimate";
        /// Rounded to thousandths.
        lambda: Option<f64> = None, "ratio", "(1.0; 1.2 with compat linux)", "initial λ",
            "lambda_min to lambda_max" if lambda.is_none_or(|lambda| (*lambda_min..=*lambda_max).contains(&lambda));
        lambda_min: f64 = 1.0, "ratio", "1.0", "minimum λ",
            "a number from 0.001 to 1000" if (0.001..=1000.0).contains(lambda_min);
        lambda_max: f64 = 1.3, "ratio", "1.3", "maximum λ",
            "a number from lambda_min to 1000" if (*lambda_min..=1000.0).contains(lambda_max);
        lambda_up: f64 = 0.04, "ratio", "0.04",
            "increase of λ after a round trip of the slow path in which the window blocked",
            "a number from 0 to 1000" if (0.0..=1000.0).contains(lambda_up);
        lambda_down: f64 = 0.01, "ratio", "0.01",
            "decrease of λ after any other round trip of the slow path",
            "a number from 0 to 1000" if (0.0..=1000.0).contains(lambda_down);
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        let thousandths = |ratio: f64| libm::round(ratio * 1000.0) as u64;
        let usual = match self.compat {
            Compat::Paper => 1.0,
            Compat::Linux => 1.2,
        };
        let min = thousandths(self.lambda_min);
        let max = thousandths(self.lambda_max).max(min);
        Box::new(Blest {
            compat: self.compat,
            lambda: thousandths(self.lambda.unwrap_or(usual)).clamp(min, max),
            min,
            max,
            up: thousandths(self.lambda_up),
            down: thousandths(self.lambda_down),
            period: None,
        })
    }
}

#[derive(Debug)]
struct Blest {
    compat: Compat,
    lambda: u64,
    min: u64,
    max: u64,
    up: u64,
    down: u64,
    period: Option<Period>,
}

/// One round trip of the slow path, the interval at which λ is adapted.
#[derive(Clone, Copy, Debug)]
struct Period {
    since: Instant,
    /// [`Unit::blocked`] at the start.
    blocked: u64,
    fast: PathId,
    /// Minimum and maximum round-trip time of the fast path in this period.
    min_rtt: Duration,
    max_rtt: Duration,
}

impl Blest {
    /// Adapts λ after each round trip of the slow path. Returns the current period.
    fn adapt(&mut self, now: Instant, unit: &Unit, paths: &FastOrSlow) -> Period {
        let (fast, rtt) = (paths.fast.id, paths.fast_rtt);
        let fresh = Period { since: now, blocked: unit.blocked, fast, min_rtt: rtt, max_rtt: rtt };
        let mut period = self.period.unwrap_or(fresh);
        if now.since(period.since) >= paths.slow.min_rtt.unwrap_or(paths.slow_rtt)
            && now > period.since
        {
            self.lambda = if unit.blocked > period.blocked {
                self.lambda + self.up
            } else {
                self.lambda.saturating_sub(self.down)
            }
            .clamp(self.min, self.max);
            period = fresh;
        }
        if period.fast != fast {
            (period.fast, period.min_rtt, period.max_rtt) = (fast, rtt, rtt);
        }
        period.min_rtt = period.min_rtt.min(rtt);
        period.max_rtt = period.max_rtt.max(rtt);
        self.period = Some(period);
        period
    }

    /// Returns X·λ in bytes: the data that F is expected to send during one round trip of S.
    fn sent_meanwhile(&self, paths: &FastOrSlow, period: &Period) -> u64 {
        let segment = paths.fast.segment.get().max(1);
        match self.compat {
            Compat::Paper => {
                let rtts = paths.slow_rtt.as_nanos() as f64 / paths.fast_rtt.as_nanos() as f64;
                let window = paths.fast.window.get() as f64 / segment as f64;
                let x = segment as f64 * (window + (rtts - 1.0) / 2.0) * rtts;
                libm::ceil(x * self.lambda as f64 / 1000.0) as u64
            }
            Compat::Linux => {
                let micros = |span: Duration| (span.as_nanos() / 1000).max(0).unsigned_abs();
                let average = (micros(period.min_rtt) + micros(period.max_rtt)) / 2;
                let rtts = micros(paths.slow_rtt).checked_div(average).unwrap_or(0) + 1;
                let window = paths.fast.window.get() / segment;
                let packets = if paths.fast.threshold == Bytes::new(u64::MAX) {
                    window.saturating_mul((1 << rtts.min(16)) - 1)
                } else {
                    let avoiding = window.max(paths.fast.threshold.get() / segment + 1);
                    avoiding.saturating_add((rtts - 1) / 2).saturating_mul(rtts)
                };
                packets.saturating_mul(segment).saturating_mul(self.lambda) / 1000
            }
        }
    }
}

impl Scheduler for Blest {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let two = match FastOrSlow::of(unit, paths) {
            Ok(two) => two,
            Err(choice) => return choice,
        };
        let period = self.adapt(now, unit, &two);
        let own = match self.compat {
            Compat::Paper => two.slow.segment,
            Compat::Linux => unit.bytes,
        };
        let left = unit.window - (two.slow.in_flight + two.slow.queued + own);
        if self.sent_meanwhile(&two, &period) <= left.get() {
            send_on(Some(two.slow), Reason::NoBlocking, paths)
        } else {
            Choice::wait_for(two.fast.id, Reason::BlockingEstimate)
        }
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, paths};
    use super::*;
    use crate::PathSet;
    use alloc::vec::Vec;

    /// Returns F (round trip 20 ms, window 10 segments, full) and S (100 ms, 5 segments in flight).
    fn full_fast_and_free_slow(threshold: u64) -> Vec<PathView> {
        let mut two = paths(&[20, 100]);
        two[0].has_room = false;
        two[0].threshold = Bytes::new(threshold);
        two[1].in_flight = Bytes::new(5 * 1400);
        two
    }

    /// True if S is used from this receive window on, and F is waited for below it.
    fn needs(config: &Config, two: &[PathView], window: u64) -> bool {
        let answer = |window: u64| {
            let unit = Unit { window: Bytes::new(window), ..UNIT };
            config.build().choose(Instant::ZERO, &unit, two)
        };
        answer(window) == Choice::Send(PathSet::only(PathId(1)), Reason::NoBlocking)
            && answer(window - 1) == Choice::wait_for(PathId(0), Reason::BlockingEstimate)
    }

    // Source: the vectors of the algorithm reference, §5.4; chavali2022 §4.
    #[test]
    fn the_paper_s_estimate_sets_the_window_that_s_needs() {
        let two = full_fast_and_free_slow(9 * 1400);
        assert!(needs(&Config::default(), &two, 84_000 + 8_400));
    }

    // Source: the vectors of the algorithm reference, §5.4. Six round trips of 12 segments.
    #[test]
    fn linux_scales_the_estimate_by_its_lambda() {
        let two = full_fast_and_free_slow(9 * 1400);
        for (lambda, window) in [(1.0, 109_200), (1.2, 129_360), (1.3, 139_440)] {
            let config =
                Config { compat: Compat::Linux, lambda: Some(lambda), ..Config::default() };
            assert!(needs(&config, &two, window), "{lambda}");
        }
        let usual = Config { compat: Compat::Linux, ..Config::default() };
        assert!(needs(&usual, &two, 129_360));
    }

    // Source: the vectors of the algorithm reference, §5.4. 10·(2⁶ − 1) segments of 1400 B, λ 1.2.
    #[test]
    fn linux_expects_a_path_in_slow_start_to_double_its_window() {
        let config = Config { compat: Compat::Linux, ..Config::default() };
        assert!(needs(&config, &full_fast_and_free_slow(u64::MAX), 1_058_400 + 8_400));
    }

    // Source: the algorithm reference, §5.4: +0.04 and −0.01 per round trip, from 1.0 to 1.3.
    #[test]
    fn lambda_rises_while_the_window_blocks_and_falls_otherwise() {
        let mut two = full_fast_and_free_slow(9 * 1400);
        two[1].in_flight = Bytes::ZERO;
        let mut scheduler = Config::default().build();
        let mut uses_slow = |millis: i64, blocked: u64, window: u64| {
            let unit = Unit { window: Bytes::new(window), blocked, ..UNIT };
            let answer = scheduler.choose(Instant::from_millis(millis), &unit, &two);
            matches!(answer, Choice::Send(..))
        };
        let with = |lambda: f64| (84_000.0 * lambda) as u64 + 1_400;
        assert!(uses_slow(0, 0, with(1.0)));
        assert!(uses_slow(99, 1, with(1.0)), "the round trip is not over");
        assert!(!uses_slow(100, 1, with(1.04) - 1) && uses_slow(100, 1, with(1.04)));
        assert!(!uses_slow(200, 1, with(1.03) - 1) && uses_slow(200, 1, with(1.03)));
        for round in 3..13 {
            uses_slow(100 * round, 99 + round as u64, with(1.0));
        }
        assert!(!uses_slow(1250, 200, with(1.3) - 1) && uses_slow(1250, 200, with(1.3)));
        for round in 13..60 {
            uses_slow(100 * round, 200, with(1.0));
        }
        assert!(uses_slow(6000, 200, with(1.0)));
    }

    // Source: chavali2022 §4: the estimate requires that F is the faster one.
    #[test]
    fn a_free_path_as_fast_as_the_full_one_needs_no_estimate() {
        let mut two = full_fast_and_free_slow(9 * 1400);
        two[1].srtt = two[0].srtt;
        let unit = Unit { window: Bytes::ZERO, ..UNIT };
        let answer = Config::default().build().choose(Instant::ZERO, &unit, &two);
        assert!(matches!(answer, Choice::Send(_, Reason::LowestRtt)));
    }

    #[test]
    fn parameters_outside_their_range_are_reported() {
        let wrong = |config: Config| config.check().unwrap_err().0;
        assert_eq!(wrong(Config { lambda_min: 0.0, ..Config::default() }), "lambda_min");
        assert_eq!(wrong(Config { lambda_max: 0.9, ..Config::default() }), "lambda_max");
        assert_eq!(wrong(Config { lambda: Some(1.4), ..Config::default() }), "lambda");
        assert_eq!(wrong(Config { lambda_up: f64::NAN, ..Config::default() }), "lambda_up");
        assert!(Config::default().check().is_ok());
    }
}
