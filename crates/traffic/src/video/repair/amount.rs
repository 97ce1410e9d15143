//! Number of repair packets that a measured loss requires.

use skybraid_units::Probability;

use super::MAX_PACKETS;

/// Returns the probability that not all of `sources` packets are recovered with `repairs` repair packets
/// of a Reed–Solomon code. This is the probability of more than
/// `repairs` losses where each packet is lost independently with probability `loss`.
///
/// Binomial formula; the relative error is below 10⁻¹¹ for groups of up to 255 packets.
pub fn failure_probability(loss: Probability, sources: usize, repairs: usize) -> Probability {
    let p = loss.ratio();
    if sources == 0 || p <= 0.0 {
        return Probability::ZERO;
    }
    if p >= 1.0 {
        return Probability::ONE;
    }
    let packets = sources.saturating_add(repairs);
    let (lost_log, kept_log) = (libm::log(p), libm::log1p(-p));
    let term = |lost: usize| {
        let kept = packets - lost;
        let ways = log_factorial(packets) - log_factorial(lost) - log_factorial(kept);
        libm::exp(ways + lost as f64 * lost_log + kept as f64 * kept_log)
    };
    // Small terms first: those at the far end of the sum.
    let sum: f64 = (repairs + 1..=packets).rev().map(term).sum();
    Probability::saturating(sum)
}

fn log_factorial(n: usize) -> f64 {
    libm::lgamma(n as f64 + 1.0)
}

/// Returns the minimum number of repair packets with which a Reed–Solomon group of `sources` source
/// packets fails with a probability of at most `target`, where each packet is lost independently with
/// probability `loss`. `None` if the code does not support that many.
pub fn repair_for(loss: Probability, sources: usize, target: Probability) -> Option<usize> {
    let max_repairs = MAX_PACKETS.checked_sub(sources)?;
    (0..=max_repairs).find(|&repairs| failure_probability(loss, sources, repairs) <= target)
}

/// Weight of one packet in the mean loss.
const WEIGHT_PER_PACKET: f64 = 1.0 / 1000.0;
/// Loss assumed before any measurement.
const FIRST_LOSS: f64 = 0.01;

/// Exponentially weighted mean of the share of lost packets.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredLoss(f64);

impl MeasuredLoss {
    /// Creates a mean before any measurement: 1 %.
    pub const fn new() -> Self {
        Self(FIRST_LOSS)
    }

    /// Returns the share of lost packets, 0 to 1.
    pub const fn ratio(self) -> f64 {
        self.0
    }

    /// Records that `share` of `packets` further packets was lost.
    pub fn record(&mut self, share: f64, packets: u32) {
        let weight = (f64::from(packets) * WEIGHT_PER_PACKET).min(1.0);
        self.0 += (share - self.0) * weight;
    }

    /// Returns the minimum number of repair packets with which a Reed–Solomon group of `sources` packets
    /// fails with a probability of at most `target`, limited to `sources`.
    pub fn repairs(self, sources: usize, target: Probability) -> usize {
        let loss = Probability::saturating(self.0);
        repair_for(loss, sources, target).unwrap_or(sources).min(sources)
    }
}

impl Default for MeasuredLoss {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::repair::Group;
    use skybraid_units::Seed;

    fn p(ratio: f64) -> Probability {
        Probability::new(ratio).unwrap()
    }

    fn fails(loss: f64, sources: usize, repairs: usize) -> f64 {
        failure_probability(p(loss), sources, repairs).ratio()
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-11, "{found} instead of {expected}");
    }

    // Source: by hand. Ten sources without repair 1 − 0.9¹⁰ = 0.6513215599; two with one repair
    // packet 3 p² (1 − p) + p³ = 0.028 at p = 0.1; one with two p³; more than half of 255 at p = 1/2
    // is 1/2.
    #[test]
    fn failure_probabilities_are_those_of_the_binomial_formula() {
        assert_near(fails(0.1, 10, 0), 0.651_321_559_9);
        assert_near(fails(0.1, 2, 1), 0.028);
        assert_near(fails(0.01, 1, 2), 1e-6);
        assert_near(fails(0.5, 128, 127), 0.5);
        assert_near(fails(1e-3, 1, 30), 1e-93);
        assert_eq!((fails(0.0, 10, 0), fails(1.0, 10, 5), fails(0.5, 0, 0)), (0.0, 1.0, 0.0));
    }

    #[test]
    fn the_number_of_repairs_is_the_minimum_for_the_target() {
        for sources in [1, 2, 10, 50, 200] {
            for (loss, target) in [(0.001, 1e-6), (0.01, 1e-4), (0.1, 1e-3)] {
                let repairs = repair_for(p(loss), sources, p(target)).unwrap();
                assert!(fails(loss, sources, repairs) <= target);
                assert!(repairs > 0 && fails(loss, sources, repairs - 1) > target);
            }
        }
        assert_eq!(repair_for(p(0.0), 10, p(0.0)), Some(0));
        assert_eq!(repair_for(p(0.5), 10, p(1.0)), Some(0));
        assert_eq!(repair_for(p(0.9), 200, p(1e-3)), None);
        assert_eq!(repair_for(p(0.1), 256, p(1.0)), None);
    }

    /// Returns the share of 40 000 groups that fail, and its standard error by the formula.
    fn simulated(loss: f64, sources: usize, repairs: usize) -> (f64, f64) {
        let rounds = 40_000;
        let mut random = Seed(8627).stream("groups");
        let mut failed = 0;
        for _ in 0..rounds {
            let mut group = Group::new(sources, repairs);
            for position in 0..group.packets() {
                if !random.chance(p(loss)) {
                    group.on_received(position);
                }
            }
            failed += u32::from(!group.is_complete());
        }
        let expected = fails(loss, sources, repairs);
        let share = f64::from(failed) / f64::from(rounds);
        (share, libm::sqrt(expected * (1.0 - expected) / f64::from(rounds)))
    }

    #[test]
    fn simulated_groups_fail_as_often_as_computed() {
        let groups = [(0.05, 10, 2), (0.2, 20, 6), (0.1, 40, 4), (0.3, 5, 5), (0.05, 10, 1)];
        for (loss, sources, repairs) in groups {
            let (share, error) = simulated(loss, sources, repairs);
            assert!((share - fails(loss, sources, repairs)).abs() < 4.0 * error);
        }
    }
}
