//! EWTCP, equally weighted TCP: every path gets an equal share of one TCP, whatever its losses.
//!
//! Source: Honda et al., PFLDNeT 2009; Wischik et al., NSDI 2011.

use alloc::boxed::Box;

use super::aggregate::{Coupling, Path, Paths, coupled};
use super::{Congestion, PathBasics};
use crate::algorithm;

algorithm! {
    name: "ewtcp",
    summary: "Equally weighted TCP: Reno on every path with a growth of 1/n² segments per round \
              trip for n paths, so that n paths over one bottleneck get the share of one TCP flow. \
              Paths do not influence one another.",
    source: "Honda et al., PFLDNeT 2009; Wischik et al., NSDI 2011",
    parameters: {
        increase: Option<f64> = None, "segments per round trip", "(1/n²)",
            "growth in congestion avoidance",
            "a number above 0 and at most 1" if increase.is_none_or(|increase| increase > 0.0 && increase <= 1.0);
    }
}

impl Config {
    /// Builds a new instance. An increase outside its range is ignored.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let increase = self.increase.filter(|_| self.check().is_ok());
        coupled(path, Ewtcp { increase })
    }
}

#[derive(Debug)]
struct Ewtcp {
    increase: Option<f64>,
}

impl Coupling for Ewtcp {
    const MIN_THRESHOLD: f64 = 1.0;

    fn increase(&mut self, own: &Path, paths: &Paths<'_>, acked: f64) -> f64 {
        let paths = paths.count() as f64;
        acked * self.increase.unwrap_or(1.0 / (paths * paths)) / own.window
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionConfig;
    use super::super::aggregate::testing::{assert_close, decreases, increases, sibling};
    use super::*;

    // Source: the algorithm reference, §3.5: windows grow with the square root of the increase.
    #[test]
    fn two_paths_grow_a_quarter_of_a_segment_per_round_trip() {
        let paths = [(10, 100, 1), (20, 50, 1)].map(sibling);
        let ewtcp = CongestionConfig::Ewtcp(Config::default());
        assert_close(&increases(&ewtcp, &paths), &[0.025, 0.0125]);
        assert_close(&decreases(&ewtcp, &paths), &[5.0, 10.0]);
        let half = CongestionConfig::Ewtcp(Config { increase: Some(0.5) });
        assert_close(&increases(&half, &paths), &[0.05, 0.025]);
    }

    #[test]
    fn an_increase_of_more_than_a_segment_is_refused() {
        assert_eq!(Config { increase: Some(1.5) }.check().unwrap_err().0, "increase");
    }
}
