//! OLIA, opportunistic linked increases: a Pareto-optimal variant of LIA.
//!
//! Source: Khalili, Gast, Popovic, Upadhyay, Le Boudec, CoNEXT 2012;
//! draft-khalili-mptcp-congestion-control. Windows are in segments, times in seconds.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::aggregate::{Coupling, Path, Paths, coupled};
use super::{Congestion, PathBasics};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "olia",
    summary: "Opportunistic linked increases: paths grow in proportion to their windows over their \
              squared round-trip times, and growth is moved from the paths with the largest \
              windows to the best paths, which carry the most data between losses. A loss halves \
              the window of its path.",
    source: "Khalili et al., CoNEXT 2012; draft-khalili-mptcp-congestion-control",
    linux: "growth in units of 1/1024 segment per acknowledgement, applied in whole segments",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "arithmetic of the paper or of Linux";
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        match self.compat {
            Compat::Paper => coupled(path, Olia::default()),
            Compat::Linux => coupled(path, Linux::default()),
        }
    }
}

/// Maxima over all paths that the rule compares, computed once per acknowledgement.
#[derive(Debug, Default)]
struct Survey {
    /// Quality and window in whole bytes, by path.
    ranked: Vec<(f64, f64)>,
    total_rate: f64,
    best: f64,
    widest: f64,
}

impl Survey {
    fn take(&mut self, paths: &Paths<'_>) {
        let Self { ranked, total_rate, best, widest } = self;
        ranked.clear();
        (*total_rate, *best, *widest) = (0.0, 0.0, 0.0);
        for path in paths.all() {
            let (quality, bytes) = (quality(&path), whole_bytes(&path));
            *total_rate += path.rate();
            *best = best.max(quality);
            *widest = widest.max(bytes);
            ranked.push((quality, bytes));
        }
    }

    /// α of the own path: the growth moved to it (positive) or from it, as a numerator of 1, 0 or −1 over a number of
    /// paths.
    fn alpha(&self, own: &Path) -> (i32, usize) {
        let least_best = self.best * (1.0 - 1e-12);
        let is_widest = |bytes: f64| bytes >= self.widest;
        let is_collected = |quality: f64, bytes: f64| quality >= least_best && !is_widest(bytes);
        let (mut collected, mut widest) = (0, 0);
        for (quality, bytes) in &self.ranked {
            collected += usize::from(is_collected(*quality, *bytes));
            widest += usize::from(is_widest(*bytes));
        }
        let count = self.ranked.len();
        let (own_quality, own_bytes) = (quality(own), whole_bytes(own));
        if collected == 0 {
            (0, 1)
        } else if is_collected(own_quality, own_bytes) {
            (1, count * collected)
        } else if is_widest(own_bytes) {
            (-1, count * widest)
        } else {
            (0, 1)
        }
    }
}

/// Bytes between losses over the squared round-trip time.
fn quality(path: &Path) -> f64 {
    path.loss_interval as f64 / (path.rtt * path.rtt)
}

/// Window in whole bytes, as siblings store it: only then can windows be equal. Below 2^63 bytes, where a cast rounds
/// down.
fn whole_bytes(path: &Path) -> f64 {
    (path.window * path.segment as f64 + 1e-6) as i64 as f64
}

#[derive(Debug, Default)]
struct Olia {
    survey: Survey,
}

impl Coupling for Olia {
    const MIN_THRESHOLD: f64 = 1.0;

    fn increase(&mut self, own: &Path, paths: &Paths<'_>, acked: f64) -> f64 {
        self.survey.take(paths);
        let total = self.survey.total_rate;
        let (numerator, denominator) = self.survey.alpha(own);
        let moved = f64::from(numerator) / denominator as f64;
        acked * (own.rate() / own.rtt / (total * total) + moved / own.window)
    }
}

#[derive(Debug, Default)]
struct Linux {
    /// Growth not yet applied, in 1/1024 segment.
    pending: i128,
    survey: Survey,
}

impl Coupling for Linux {
    const MIN_THRESHOLD: f64 = 1.0;

    fn increase(&mut self, own: &Path, paths: &Paths<'_>, _acked: f64) -> f64 {
        self.survey.take(paths);
        self.pending += linux_growth(own, paths, self.survey.alpha(own));
        if self.pending.abs() < 1023 {
            return 0.0;
        }
        core::mem::take(&mut self.pending).signum() as f64
    }

    fn remaining(&mut self, own: &Path, _: &Paths<'_>, _: f64) -> f64 {
        (own.packets() / 2) as f64
    }
}

/// Growth per acknowledgement in 1/1024 segment, rounded towards zero.
fn linux_growth(own: &Path, paths: &Paths<'_>, (numerator, denominator): (i32, usize)) -> i128 {
    let share = |path: Path| ((path.packets() << 10) * own.srtt_us() / path.srtt_us()) as i128;
    let total = (1 + paths.all().map(share).sum::<i128>()).min(1 << 45);
    let squared = total * total;
    let (numerator, denominator) = (i128::from(numerator), denominator as i128);
    let window = own.packets() as i128;
    let scaled = window << 10;
    ((numerator * squared + denominator * scaled * scaled) << 10) / (denominator * window * squared)
}

#[cfg(test)]
mod tests {
    use super::super::aggregate::testing::{assert_close, decreases, increases, sibling};
    use super::super::{CongestionConfig, Siblings};
    use super::*;

    const OLIA: CongestionConfig = CongestionConfig::Olia(Config { compat: Compat::Paper });

    fn alpha(paths: &Paths<'_>) -> (i32, usize) {
        let mut survey = Survey::default();
        survey.take(paths);
        survey.alpha(&paths.own().unwrap())
    }

    // Source: Khalili et al. 2012; the vectors of the algorithm reference, §3.2.
    #[test]
    fn growth_moves_from_the_widest_paths_to_the_best() {
        let best_is_narrow = [(10, 100, 500), (20, 50, 100)].map(sibling);
        assert_close(&increases(&OLIA, &best_is_narrow), &[0.054, 0.007]);
        let best_is_wide = [(10, 100, 100), (20, 50, 500)].map(sibling);
        assert_close(&increases(&OLIA, &best_is_wide), &[0.004, 0.032]);
        let two_best = [(10, 100, 300), (10, 100, 300), (20, 100, 100)].map(sibling);
        let growth = [0.022_916_667, 0.022_916_667, -0.004_166_667];
        assert_close(&increases(&OLIA, &two_best), &growth);
    }

    // Source: Khalili et al. 2012, equation of α: the sum over the paths is zero.
    #[test]
    fn the_moved_growth_sums_to_zero() {
        let all =
            [(10, 100, 300), (20, 20, 1), (10, 100, 300), (20, 90, 2), (7, 30, 1)].map(sibling);
        let moved = |own: usize| {
            let paths = Paths::new(Siblings { all: &all, own }, all[own].window.get() as f64 / 1e9);
            let (numerator, denominator) = alpha(&paths);
            f64::from(numerator) / denominator as f64
        };
        assert_close(&[0, 1, 2, 3, 4].map(moved), &[0.1, -0.1, 0.1, -0.1, 0.0]);
    }

    #[test]
    fn the_current_loss_interval_counts_like_the_last_one() {
        let mut paths = [(10, 100, 0), (20, 100, 100)].map(sibling);
        paths[0].acked_since_loss = sibling((0, 1, 101)).acked_between_losses;
        assert_close(&increases(&OLIA, &paths), &[10.0 / 900.0 + 0.05, 20.0 / 900.0 - 0.025]);
    }

    #[test]
    fn a_loss_halves_only_its_own_path() {
        let paths = [(10, 100, 500), (20, 50, 100)].map(sibling);
        assert_close(&decreases(&OLIA, &paths), &[5.0, 10.0]);
    }

    // Linux mptcp_olia.c as the algorithm reference, §3.2, describes it. By hand, path 1: total 1 +
    // 10·1024 + 20·1024·2 = 51201; (51201² + 2·10240²)·1024 / (2·10·51201²) = 55.3 of 1/1024.
    // Path 2: total 25601; (2·20480² − 25601²)·1024 / (2·20·25601²) = 7.17.
    #[test]
    fn linux_rounds_growth_to_1024ths() {
        let all = [(10, 100, 500), (20, 50, 100)].map(sibling);
        let growth = |own: usize, window| {
            let paths = Paths::new(Siblings { all: &all, own }, window);
            linux_growth(&paths.own().unwrap(), &paths, alpha(&paths))
        };
        assert_eq!([growth(0, 10.0), growth(1, 20.0)], [55, 7]);
    }
}
