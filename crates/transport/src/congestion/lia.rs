//! LIA, linked increases: all paths together grow as one Reno would on the best of them.
//!
//! Source: RFC 6356. Windows are in segments, times in seconds.

use alloc::boxed::Box;

use skybraid_units::Bytes;

use super::aggregate::{Counter, Coupling, Path, Paths, coupled, coupled_by_acks};
use super::{Congestion, PathBasics};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "lia",
    summary: "Linked increases: every path grows by the same amount per acknowledgement, chosen so \
              that all paths together get what one Reno flow would get on the best path, and no \
              path grows faster than Reno. A loss halves the window of its path.",
    source: "RFC 6356",
    linux: "α in units of 1/4096, and acknowledgements counted towards whole segments, so that \
            growth is coarse; in the search for the best path, windows below 150 segments at 100 \
            ms are equal, and the last path is taken",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "arithmetic of the paper or of Linux";
        byte_counting: bool = true, "true or false", "true",
            "grow by all acknowledged data, or by at most a segment per acknowledgement (RFC 5681)";
        min_increase: Bytes = Bytes::ZERO, "bytes", "0B",
            "minimum growth per acknowledgement; 1 B in the MPTCP of ns-3 (Kheirkhah 2015), which \
             exceeds the RFC's growth at large windows",
            "with `compat = \"paper\"` only" if *compat == Compat::Paper || *min_increase == Bytes::ZERO;
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let lia = Lia { min_increase: self.min_increase.get() as f64 };
        match (self.compat, self.byte_counting) {
            (Compat::Paper, true) => coupled(path, lia),
            (Compat::Paper, false) => coupled_by_acks(path, lia),
            (Compat::Linux, _) => coupled(path, Linux::default()),
        }
    }
}

#[derive(Debug)]
struct Lia {
    /// Bytes that an acknowledgement adds at least.
    min_increase: f64,
}

impl Coupling for Lia {
    fn increase(&mut self, own: &Path, paths: &Paths<'_>, acked: f64) -> f64 {
        let total = paths.total_rate();
        // α / w_total of the RFC, from which w_total cancels.
        let linked = paths.max(|path| path.rate() / path.rtt) / (total * total);
        let growth = acked * linked.min(1.0 / own.window);
        growth.max(self.min_increase / own.segment as f64)
    }
}

#[derive(Debug, Default)]
struct Linux {
    acks: Counter,
}

impl Coupling for Linux {
    fn increase(&mut self, own: &Path, paths: &Paths<'_>, _acked: f64) -> f64 {
        self.acks.acknowledge((4096 / linux_alpha(paths)).max(own.packets()))
    }

    fn remaining(&mut self, own: &Path, _: &Paths<'_>, _: f64) -> f64 {
        (own.packets() / 2) as f64
    }
}

/// α / w_total in units of 1/4096, at least one. Divisions round down as in Linux, where rounding
/// decides which path is best.
fn linux_alpha(paths: &Paths<'_>) -> u128 {
    let share = |path: &Path| (path.packets() << 32) / (path.srtt_us() * path.srtt_us());
    // The last of equals wins.
    let Some(best) = paths.all().max_by_key(share) else { return 1 };
    let sum: u128 =
        paths.all().map(|path| (path.packets() << 10) * best.srtt_us() / path.srtt_us()).sum();
    ((best.packets() << 32) / sum.saturating_mul(sum).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::aggregate::testing::{
        SEGMENT, acked, acks_to_grow, assert_close, decreases, increases, sibling,
    };
    use super::super::{CongestionConfig, Sibling, Siblings};
    use super::*;

    fn lia(compat: Compat) -> CongestionConfig {
        CongestionConfig::Lia(Config { compat, ..Config::default() })
    }

    fn paths(windows: [u64; 2], rtts_ms: [i64; 2]) -> [Sibling; 2] {
        [0, 1].map(|path| sibling((windows[path], rtts_ms[path], 1)))
    }

    // Source: RFC 6356 §3; the vectors of the algorithm reference, §3.1.
    #[test]
    fn paths_grow_together_and_none_faster_than_reno() {
        for (windows, rtts, growth) in [
            ([10, 20], [100, 50], [0.032, 0.032]),
            ([10, 10], [100, 100], [0.025, 0.025]),
            ([10, 30], [100, 100], [0.018_75, 0.018_75]),
            ([4, 40], [10, 200], [0.111_111_111, 0.025]),
        ] {
            assert_close(&increases(&lia(Compat::Paper), &paths(windows, rtts)), &growth);
        }
    }

    // Source: `Linked_Increases` of Kheirkhah's MPTCP for ns-3.
    #[test]
    fn an_acknowledgement_adds_at_least_the_minimum() {
        let floor = CongestionConfig::Lia(Config {
            min_increase: Bytes::new(SEGMENT / 100),
            ..Config::default()
        });
        assert_close(&increases(&floor, &paths([100, 100], [100, 100])), &[0.01; 2]);
        assert_close(&increases(&floor, &paths([10, 10], [100, 100])), &[0.025; 2]);
    }

    // Source: RFC 5681 §3.1: a cumulative acknowledgement of 20 segments grows a window in slow start by one.
    #[test]
    fn an_acknowledgement_may_count_for_a_segment_only() {
        for (byte_counting, grown) in [(true, 20), (false, 1)] {
            let config = Config { byte_counting, ..Config::default() };
            let mut control = config.build(&PathBasics::in_test(
                Bytes::new(SEGMENT),
                Bytes::new(10 * SEGMENT),
                Bytes::new(u64::MAX),
            ));
            let before = control.window().get();
            control.on_ack(&acked(20), Siblings { all: &[], own: 0 });
            assert_eq!((control.window().get() - before) / SEGMENT, grown);
        }
    }

    #[test]
    fn a_loss_halves_only_its_own_path() {
        assert_close(&decreases(&lia(Compat::Paper), &paths([10, 20], [100, 50])), &[5.0, 10.0]);
    }

    // Source: Linux mptcp_coupled.c; the vectors of the algorithm reference, §3.1.
    #[test]
    fn linux_rounds_alpha_to_4096ths() {
        for (windows, rtts, alpha) in [
            ([10, 20], [100, 50], 131),
            ([10, 10], [100, 100], 102),
            ([100, 400], [100, 50], 8),
            ([1000, 4000], [100, 50], 1),
        ] {
            let all = paths(windows, rtts);
            let siblings = Siblings { all: &all, own: 0 };
            assert_eq!(linux_alpha(&Paths::new(siblings, windows[0] as f64)), alpha);
        }
    }

    #[test]
    fn linux_needs_one_acknowledgement_more_than_its_threshold() {
        for (windows, rtts, acks) in [
            ([10, 20], [100, 50], [32, 32]),
            ([10, 10], [100, 100], [41, 41]),
            ([100, 400], [100, 50], [513, 513]),
            ([1000, 4000], [100, 50], [4097, 4097]),
        ] {
            assert_eq!(acks_to_grow(&lia(Compat::Linux), &paths(windows, rtts)), acks);
        }
    }
}
