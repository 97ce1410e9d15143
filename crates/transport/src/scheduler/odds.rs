//! Chance of a path to deliver in time, learned from what became of earlier packets.

use crate::PathId;
use crate::per_path::PerPath;

/// Parts into which the time until the deadline is divided.
pub const BINS: usize = 16;
/// Signs of trouble that are distinguished: eighths of that time, and beyond it.
pub const LEVELS: usize = 9;

/// By sixteenths of the time until the deadline, from none of it to all of it: packets that took
/// longer, or the chance of it.
type Tail = [f64; BINS + 1];

/// Weight of what holds without measurements, in packets.
const PRIOR: f64 = 8.0;
/// Weight of all paths' packets for one path, in packets.
const POOLED: f64 = 50.0;
/// Packets after which older ones count half.
const REMEMBERED: f64 = 65_536.0;

/// Numbers of packets by the sign of trouble when they left, and by the time that they took.
#[derive(Clone, Debug)]
pub struct Odds {
    longer: [Tail; LEVELS],
}

impl Default for Odds {
    fn default() -> Self {
        Self { longer: [[0.0; BINS + 1]; LEVELS] }
    }
}

/// Chances without measurements, by level: half of the packets take longer than the sign says by a
/// sixteenth, a quarter by two, and at least 0.1 % (without trouble) to 50 % (beyond the deadline)
/// are late.
fn prior() -> [Tail; LEVELS] {
    let mut tails = [[1.0; BINS + 1]; LEVELS];
    for (level, tail) in tails.iter_mut().enumerate() {
        let trouble = level as f64 / (LEVELS - 1) as f64;
        let late = 1e-3 * libm::pow(500.0, trouble);
        for (bin, chance) in tail.iter_mut().enumerate() {
            let above = bin as f64 - 2.0 * level as f64;
            *chance = libm::exp2(-above.max(0.0)).max(late);
        }
    }
    tails
}

impl Odds {
    /// Records that a packet that left at `level` took longer than `bins` sixteenths; all of them
    /// if it is late or lost.
    pub fn on_settled(&mut self, level: usize, bins: usize) {
        let longer = &mut self.longer[level];
        if longer.first().is_some_and(|count| *count >= REMEMBERED) {
            longer.iter_mut().for_each(|count| *count /= 2.0);
        }
        longer.iter_mut().take(bins + 1).for_each(|count| *count += 1.0);
    }
}

/// Returns the chance of a packet to take longer than `bins` sixteenths, of which `without` holds for `weight` packets.
#[inline]
fn chance(longer: &Tail, bins: usize, without: f64, weight: f64) -> f64 {
    (longer[bins] + weight * without) / (longer[0] + weight)
}

/// Chances of a path's packets at one level.
#[derive(Clone, Copy, Debug)]
pub struct Chances<'a> {
    prior: &'a Tail,
    all: &'a Tail,
    own: Option<&'a Tail>,
}

impl Chances<'_> {
    /// Returns the chance to take longer than `bins` sixteenths; the more of them, the smaller it is.
    #[inline]
    pub fn longer_than(&self, bins: usize) -> f64 {
        let all = chance(self.all, bins, self.prior[bins], PRIOR);
        self.own.map_or(all, |own| chance(own, bins, all, POOLED))
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
    pub fn on_settled(&mut self, path: PathId, level: usize, bins: usize) {
        self.paths[path].on_settled(level, bins);
        self.all.on_settled(level, bins);
    }

    /// Returns the chance of a packet on `path` at `level` to take longer than `bins` sixteenths.
    pub fn chance(&self, path: PathId, level: usize, bins: usize) -> f64 {
        self.chances(path, level).longer_than(bins)
    }

    /// Returns the chances of packets on `path` at `level`.
    #[inline]
    pub fn chances(&self, path: PathId, level: usize) -> Chances<'_> {
        let own = self.paths.known(path).map(|own| &own.longer[level]);
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

    // A posterior mean: (late + weight · prior) / (packets + weight), of all paths' packets first.
    #[test]
    fn many_packets_outweigh_what_was_assumed() {
        let mut odds = PathOdds::default();
        for packet in 0..10_000 {
            odds.on_settled(PathId(0), 3, if packet % 100 == 0 { BINS } else { 5 });
        }
        let all = (100.0 + PRIOR * prior()[3][BINS]) / (10_000.0 + PRIOR);
        assert!((odds.chance(PATH, 3, BINS) - all).abs() < 1e-12);
        let own = (100.0 + POOLED * all) / (10_000.0 + POOLED);
        assert!((odds.chance(PathId(0), 3, BINS) - own).abs() < 1e-12);
    }
}
