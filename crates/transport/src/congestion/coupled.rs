//! Fully coupled windows: all paths together act as one TCP that moves to the least congested path.
//!
//! Source: Kelly, Voice 2005 and Han et al. 2006, as stated in Wischik et al., NSDI 2011. Windows
//! are in segments.

use alloc::boxed::Box;

use super::aggregate::{Coupling, Path, Paths, coupled};
use super::{Congestion, PathBasics};
use crate::algorithm;

algorithm! {
    name: "coupled",
    summary: "Fully coupled: every acknowledgement adds one over the sum of the windows, and a \
              loss takes half of that sum from its path, so that all traffic moves to the least \
              congested path. With `epsilon`, a family from fully coupled (0) over linked \
              increases (1) to uncoupled paths (2).",
    source: "Kelly and Voice 2005; Han et al. 2006; Wischik et al., NSDI 2011",
    parameters: {
        epsilon: Option<f64> = None, "0 to 2", "none",
            "growth by α (α w)^(1−ε) / W^(2−ε) per acknowledgement, and decrease by half of the path's \
             window w; W is the sum of all windows",
            "a number from 0 to 2" if epsilon.is_none_or(|epsilon| (0.0..=2.0).contains(&epsilon));
        alpha: f64 = 1.0, "ratio", "1", "α of that family; without effect unless `epsilon` is set",
            "a number above zero" if *alpha > 0.0 && alpha.is_finite();
    }
}

impl Config {
    /// Builds a new instance. Parameters outside their range are replaced by the defaults.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let Self { epsilon, alpha } =
            if self.check().is_ok() { self.clone() } else { Self::default() };
        match epsilon {
            None => coupled(path, FullyCoupled),
            Some(epsilon) => coupled(path, Epsilon { epsilon, alpha }),
        }
    }
}

fn total_window(paths: &Paths<'_>) -> f64 {
    paths.all().map(|path| path.window).sum()
}

#[derive(Debug)]
struct FullyCoupled;

impl Coupling for FullyCoupled {
    const MIN_THRESHOLD: f64 = 1.0;

    fn increase(&mut self, _: &Path, paths: &Paths<'_>, acked: f64) -> f64 {
        acked / total_window(paths)
    }

    fn remaining(&mut self, _: &Path, paths: &Paths<'_>, window: f64) -> f64 {
        window - total_window(paths) / 2.0
    }
}

#[derive(Debug)]
struct Epsilon {
    epsilon: f64,
    alpha: f64,
}

impl Coupling for Epsilon {
    const MIN_THRESHOLD: f64 = 1.0;

    fn increase(&mut self, own: &Path, paths: &Paths<'_>, acked: f64) -> f64 {
        let own_part = libm::pow(self.alpha * own.window, 1.0 - self.epsilon);
        acked * self.alpha * own_part / libm::pow(total_window(paths), 2.0 - self.epsilon)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionConfig;
    use super::super::aggregate::testing::{assert_close, decreases, increases, sibling};
    use super::*;

    fn with_epsilon(epsilon: f64, alpha: f64) -> CongestionConfig {
        CongestionConfig::Coupled(Config { epsilon: Some(epsilon), alpha })
    }

    // Source: Wischik et al. 2011, algorithm COUPLED; the algorithm reference, §3.5.
    #[test]
    fn a_loss_takes_half_of_all_windows_from_its_own_path() {
        let paths = [(10, 100, 1), (30, 50, 1)].map(sibling);
        let coupled = CongestionConfig::Coupled(Config::default());
        assert_close(&increases(&coupled, &paths), &[0.025, 0.025]);
        assert_close(&decreases(&coupled, &paths), &[9.0, 20.0]);
    }

    // Source: the algorithm reference, §3.5, COUPLED_EPSILON at its three named points.
    #[test]
    fn epsilon_leads_from_fully_coupled_over_linked_to_uncoupled() {
        let paths = [(10, 100, 1), (30, 50, 1)].map(sibling);
        let fully = increases(&with_epsilon(0.0, 1.0), &paths);
        assert_close(&fully, &[10.0 / 1600.0, 30.0 / 1600.0]);
        let linked = increases(&with_epsilon(1.0, 0.75), &paths);
        assert_close(&linked, &[0.75 / 40.0, 0.75 / 40.0]);
        let uncoupled = increases(&with_epsilon(2.0, 1.0), &paths);
        assert_close(&uncoupled, &[1.0 / 10.0, 1.0 / 30.0]);
        assert_close(&decreases(&with_epsilon(1.0, 1.0), &paths), &[5.0, 15.0]);
    }

    #[test]
    fn an_epsilon_above_two_is_refused() {
        assert_eq!(Config { epsilon: Some(2.5), alpha: 1.0 }.check().unwrap_err().0, "epsilon");
    }
}
