//! LIA, linked increases: all paths together grow as one Reno would on the best of them.
//!
//! Source: RFC 6356. Windows are in segments, times in seconds.

use alloc::boxed::Box;

use super::aggregate::{Counter, Coupling, Path, Paths, coupled};
use super::{Congestion, PathBasics};
use crate::registry::{About, Compat, compat_config};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "lia",
    summary: "Linked increases: every path grows by the same amount per acknowledgement, chosen so \
              that all together get what one Reno would get on the best path, and never more on any \
              path than Reno would; a loss halves the window of its own path.",
    source: "RFC 6356",
    linux: "α in whole units of 1/4096 and acknowledgements counted towards whole segments, so that \
            growth is coarse; paths' windows below 150 segments at 100 ms look alike when the best \
            path is sought, and the last one is taken",
    parameters: &[Compat::parameter("whose arithmetic")],
};

compat_config! {
    /// Parameters of the control.
    ///
    /// Arithmetic of the RFC or of Linux.
    Config
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        match self.compat {
            Compat::Paper => coupled(path, Lia),
            Compat::Linux => coupled(path, Linux::default()),
        }
    }
}

#[derive(Debug)]
struct Lia;

impl Coupling for Lia {
    fn increase(&mut self, own: &Path, paths: &Paths<'_>, acked: f64) -> f64 {
        let total = paths.total_rate();
        // α / w_total of the RFC, from which w_total cancels.
        let linked = paths.max(|path| path.rate() / path.rtt) / (total * total);
        acked * linked.min(1.0 / own.window)
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
        acks_to_grow, assert_close, decreases, increases, sibling,
    };
    use super::super::{CongestionConfig, Sibling, Siblings};
    use super::*;

    fn lia(compat: Compat) -> CongestionConfig {
        CongestionConfig::Lia(Config { compat })
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
