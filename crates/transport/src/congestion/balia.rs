//! BALIA, balanced linked adaptation: a compromise between LIA's friendliness and OLIA's
//! responsiveness.
//!
//! Source: Peng, Walid, Hwang, Low 2013; draft-walid-mptcp-congestion-control. Windows are in
//! segments, times in seconds.

use alloc::boxed::Box;

use super::aggregate::{Counter, Coupling, Path, Paths, coupled};
use super::{Congestion, PathBasics};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "balia",
    summary: "Balanced linked adaptation: growth and decrease depend on α, the ratio of the \
              fastest path's rate to that of the path, which balances fairness to TCP against \
              responsiveness. A slow path loses up to three quarters of its window at a loss.",
    source: "Peng et al. 2013; draft-walid-mptcp-congestion-control",
    linux: "α in integers, so that a loss takes either half or three quarters of the window; \
            acknowledgements are counted towards whole segments",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "arithmetic of the paper or of Linux";
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        match self.compat {
            Compat::Paper => coupled(path, Balia),
            Compat::Linux => coupled(path, Linux::default()),
        }
    }
}

/// α of the paper: the rate of the fastest path divided by the own rate.
fn alpha(own: &Path, paths: &Paths<'_>) -> f64 {
    paths.max(|path| path.rate()) / own.rate()
}

#[derive(Debug)]
struct Balia;

impl Coupling for Balia {
    const MIN_THRESHOLD: f64 = 1.0;

    fn increase(&mut self, own: &Path, paths: &Paths<'_>, acked: f64) -> f64 {
        let alpha = alpha(own, paths);
        let total = paths.total_rate();
        let linked = own.rate() / (own.rtt * total * total);
        acked * linked * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0
    }

    fn remaining(&mut self, own: &Path, paths: &Paths<'_>, window: f64) -> f64 {
        window - window / 2.0 * alpha(own, paths).min(1.5)
    }
}

#[derive(Debug, Default)]
struct Linux {
    acks: Counter,
}

impl Coupling for Linux {
    const MIN_THRESHOLD: f64 = 1.0;

    fn increase(&mut self, own: &Path, paths: &Paths<'_>, _acked: f64) -> f64 {
        self.acks.acknowledge(linux_acks(own, paths))
    }

    fn remaining(&mut self, own: &Path, paths: &Paths<'_>, _: f64) -> f64 {
        let fastest = paths.all().map(|path| linux_rate(&path)).max().unwrap_or(1);
        let alpha = fastest / linux_rate(own);
        let half = own.packets() / 2;
        // α in 1/1024, at most 1.5.
        let cut = (half * (alpha << 10).min(1536)) >> 10;
        (own.packets() - cut) as f64
    }
}

/// Rate in bytes per second.
fn linux_rate(path: &Path) -> u128 {
    (u128::from(path.segment) * path.packets() * 8_000_000 / path.srtt_us()).max(1)
}

/// Acknowledgements per segment of growth: 10 total² · w / ((rate + fastest)(4 rate + fastest)),
/// with rates scaled down in steps of 2⁵ until they fit in 25 bits, and each division rounded down.
fn linux_acks(own: &Path, paths: &Paths<'_>) -> u128 {
    let fastest = paths.all().map(|path| linux_rate(&path)).max().unwrap_or(1);
    let mut shift = 0;
    while (fastest >> shift) > 1 << 25 {
        shift += 5;
    }
    let (rate, fastest) = (linux_rate(own) >> shift, (fastest >> shift).max(1));
    let total: u128 = paths.all().map(|path| linux_rate(&path) >> shift).sum();
    total * total * 10 / (rate + fastest) * own.packets() / (4 * rate + fastest)
}

#[cfg(test)]
mod tests {
    use super::super::aggregate::testing::{
        acks_to_grow, assert_close, decreases, increases, sibling,
    };
    use super::super::{CongestionConfig, Lost, Sibling, Siblings};
    use super::*;
    use skybraid_units::{Bytes, Instant};

    const BALIA: CongestionConfig = CongestionConfig::Balia(Config { compat: Compat::Paper });
    const LINUX: CongestionConfig = CongestionConfig::Balia(Config { compat: Compat::Linux });

    fn paths(windows: [u64; 2], rtts_ms: [i64; 2]) -> [Sibling; 2] {
        [0, 1].map(|path| sibling((windows[path], rtts_ms[path], 1)))
    }

    // Source: Peng et al. 2013; the vectors of the algorithm reference, §3.3.
    #[test]
    fn growth_and_decrease_follow_the_ratio_to_the_fastest_path() {
        for (windows, rtts, growth, cut) in [
            ([10, 20], [100, 50], [0.016, 0.032], [7.5, 10.0]),
            ([10, 10], [100, 100], [0.025, 0.025], [5.0, 5.0]),
            ([10, 12], [100, 100], [0.023_636_364, 0.024_793_388], [6.0, 6.0]),
        ] {
            let paths = paths(windows, rtts);
            assert_close(&increases(&BALIA, &paths), &growth);
            assert_close(&decreases(&BALIA, &paths), &cut);
        }
    }

    /// Converts to segments of 1448 bytes: Linux scales rates in bytes.
    fn ethernet(paths: [Sibling; 2]) -> [Sibling; 2] {
        paths.map(|path| Sibling {
            window: Bytes::new(path.window.get() / path.segment.get() * 1448),
            segment: Bytes::new(1448),
            ..path
        })
    }

    // Source: Linux mptcp_balia.c; the vectors of the algorithm reference, §3.3, plus the
    // acknowledgement that follows the count.
    #[test]
    fn linux_counts_acknowledgements_and_rounds_alpha() {
        for (windows, rtts, acks, thresholds) in
            [([10, 20], [100, 50], [63, 32], [3, 10]), ([10, 12], [100, 100], [43, 41], [5, 6])]
        {
            let paths = ethernet(paths(windows, rtts));
            assert_eq!(acks_to_grow(&LINUX, &paths), acks);
            for own in [0, 1] {
                let mut control = LINUX.build(&PathBasics::in_test(
                    paths[own].segment,
                    paths[own].window,
                    paths[own].window,
                ));
                let lost = Lost { now: Instant::ZERO, in_flight: paths[own].window };
                control.on_loss(&lost, Siblings { all: &paths, own });
                assert_eq!(control.slow_start_threshold().get(), thresholds[own] * 1448);
            }
        }
    }
}
