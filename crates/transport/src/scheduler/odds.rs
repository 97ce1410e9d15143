//! Chance of a path to deliver in time, learned from what became of earlier packets.

use skybraid_units::Duration;

use crate::PathId;
use crate::per_path::PerPath;

/// Parts into which the time until the deadline is divided.
pub const BINS: usize = 64;
/// Signs of trouble that are distinguished: eighths of that time, and beyond it.
pub const LEVELS: usize = 9;

/// By parts of the time until the deadline, from none of it to all of it: packets that took longer,
/// or the chance of it.
type Tail = [f64; BINS + 1];

/// Weight of what holds without measurements, in independent packets.
const PRIOR: f64 = 24.0;
/// Weight of all paths' packets for one path, in independent packets.
const POOLED: f64 = 50.0;
/// Independent packets after which older ones count half.
const REMEMBERED: f64 = 65_536.0;
/// Time between two packets of a path whose fates are independent; those in between share one.
pub const INDEPENDENT: Duration = Duration::from_millis(200);

/// Numbers of packets by the sign of trouble when they left, and by the time that they took.
#[derive(Clone, Debug)]
pub struct Odds {
    longer: [Tail; LEVELS],
    /// The same at any level.
    at_any: Tail,
}

impl Default for Odds {
    fn default() -> Self {
        Self { longer: [[0.0; BINS + 1]; LEVELS], at_any: [0.0; BINS + 1] }
    }
}

/// Chances without measurements, by level: half of the packets take longer than the sign says by a
/// sixteenth of the time, a quarter by two, and at least 0.1 % (without trouble) to 50 % (beyond the deadline)
/// are late.
fn prior() -> [Tail; LEVELS] {
    let mut tails = [[1.0; BINS + 1]; LEVELS];
    for (level, tail) in tails.iter_mut().enumerate() {
        let trouble = level as f64 / (LEVELS - 1) as f64;
        let late = 1e-3 * libm::pow(500.0, trouble);
        for (bin, chance) in tail.iter_mut().enumerate() {
            let above = 16.0 * (bin as f64 / BINS as f64 - trouble);
            *chance = libm::exp2(-above.max(0.0)).max(late);
        }
    }
    tails
}

/// Returns the share of a tail beyond `bins`, of which `without` holds for `weight` packets.
fn mean(longer: &Tail, bins: usize, without: f64, weight: f64) -> f64 {
    (longer[bins] + weight * without) / (longer[0] + weight)
}

impl Odds {
    /// Records that a packet that left at `level` took longer than `bins` parts of the time; all of
    /// them if it is late or lost. It counts as `weight` independent packets.
    pub fn on_settled(&mut self, level: usize, bins: usize, weight: f64) {
        for longer in [&mut self.longer[level], &mut self.at_any] {
            if longer.first().is_some_and(|count| *count >= REMEMBERED) {
                longer.iter_mut().for_each(|count| *count /= 2.0);
            }
            longer.iter_mut().take(bins + 1).for_each(|count| *count += weight);
        }
    }
}

/// Chances of a path's packets at one level.
#[derive(Clone, Copy, Debug)]
pub struct Chances<'a> {
    prior: &'a Tail,
    all: &'a Tail,
    /// Of the path itself: at any level, and at this one.
    own: Option<[&'a Tail; 2]>,
}

impl Chances<'_> {
    /// Returns the chance to take longer than `bins` parts of the time until the deadline; the more of
    /// them, the smaller it is.
    #[inline]
    pub fn longer_than(&self, bins: usize) -> f64 {
        let as_warned = self.prior[bins];
        let Some([at_any, own]) = self.own else { return mean(self.all, bins, as_warned, PRIOR) };
        // After a sign of trouble half of the packets take as long as usual on the path.
        let usual = mean(at_any, bins, as_warned, PRIOR);
        mean(own, bins, mean(self.all, bins, (as_warned + usual) / 2.0, PRIOR), POOLED)
    }
}

/// The odds of all paths of a connection.
#[derive(Clone, Debug)]
pub struct PathOdds {
    prior: [Tail; LEVELS],
    all: Odds,
    paths: PerPath<Odds>,
}

impl Default for PathOdds {
    fn default() -> Self {
        Self { prior: prior(), all: Odds::default(), paths: PerPath::new(Odds::default()) }
    }
}

impl PathOdds {
    /// Records what became of a packet on a path, see [`Odds::on_settled`].
    pub fn on_settled(&mut self, path: PathId, level: usize, bins: usize, weight: f64) {
        self.paths[path].on_settled(level, bins, weight);
        self.all.on_settled(level, bins, weight);
    }

    /// Returns the chance of a packet on `path` at `level` to take longer than `bins` parts of the
    /// time until the deadline.
    pub fn chance(&self, path: PathId, level: usize, bins: usize) -> f64 {
        self.chances(path, level).longer_than(bins)
    }

    /// Returns the chances of packets on `path` at `level`.
    #[inline]
    pub fn chances(&self, path: PathId, level: usize) -> Chances<'_> {
        let own = self.paths.known(path).map(|own| [&own.at_any, &own.longer[level]]);
        Chances { prior: &self.prior[level], all: &self.all.longer[level], own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(1);

    #[test]
    fn chances_fall_with_time_and_rise_with_trouble() {
        let odds = PathOdds::default();
        for level in 0..LEVELS {
            assert_eq!(odds.chance(PATH, level, 0), 1.0);
            for bins in 0..BINS {
                assert!(odds.chance(PATH, level, bins + 1) <= odds.chance(PATH, level, bins));
            }
            if level > 0 {
                assert!(odds.chance(PATH, level, BINS) > odds.chance(PATH, level - 1, BINS));
            }
        }
    }

    /// Posterior mean of the chance to be late, if `late` of `packets` on one path were: of these and the
    /// assumption, half of which is what is usual on the path; then of all paths and the own one.
    fn posterior(level: usize, late: f64, packets: f64) -> f64 {
        let assumed = prior()[level][BINS];
        let with = |weight: f64, without: f64| (late + weight * without) / (packets + weight);
        with(POOLED, with(PRIOR, (assumed + with(PRIOR, assumed)) / 2.0))
    }

    #[test]
    fn many_packets_outweigh_what_was_assumed() {
        let mut odds = PathOdds::default();
        for packet in 0..10_000 {
            let bins = if packet % 100 == 0 { BINS } else { 25 };
            odds.on_settled(PathId(0), 3, bins, 1.0);
        }
        let other = (100.0 + PRIOR * prior()[3][BINS]) / (10_000.0 + PRIOR);
        assert!((odds.chance(PATH, 3, BINS) - other).abs() < 1e-12);
        let own = posterior(3, 100.0, 10_000.0);
        assert!((odds.chance(PathId(0), 3, BINS) - own).abs() < 1e-12);
        assert!((own - 0.01).abs() < 1e-3);
    }

    // Of an outage of 2 s at 100 Hz, all packets share ten fates.
    #[test]
    fn packets_close_together_share_one_fate() {
        let mut odds = PathOdds::default();
        (0..200).for_each(|_| odds.on_settled(PATH, 0, BINS, 0.05));
        assert!((odds.chance(PATH, 0, BINS) - posterior(0, 10.0, 10.0)).abs() < 1e-9);
    }
}
