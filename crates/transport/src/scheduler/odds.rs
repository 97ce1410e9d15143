//! Chance of a path to deliver in time, learned from what became of earlier packets.

use skybraid_units::{Duration, Instant};

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
const PRIOR: f64 = 8.0;
/// Weight of all paths' packets for one path, in independent packets.
const POOLED: f64 = 50.0;
/// Independent packets after which older ones count half.
const REMEMBERED: f64 = 65_536.0;
/// Time between two packets of a path whose fates are independent; those in between share one.
const INDEPENDENT: Duration = Duration::from_millis(200);

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

    /// Returns the chance of a packet at `level` to take longer than `bins` parts of the time, of which
    /// `without` holds for `weight` packets.
    fn chance(&self, level: usize, bins: usize, without: f64, weight: f64) -> f64 {
        mean(&self.longer[level], bins, without, weight)
    }
}

/// The odds of all paths of a connection.
#[derive(Clone, Debug)]
pub struct PathOdds {
    prior: [Tail; LEVELS],
    all: Odds,
    paths: PerPath<OwnOdds>,
}

/// The odds of a path.
#[derive(Clone, Debug, Default)]
struct OwnOdds {
    odds: Odds,
    /// Time of sending of the last packet that was counted.
    counted: Option<Instant>,
}

impl Default for PathOdds {
    fn default() -> Self {
        Self { prior: prior(), all: Odds::default(), paths: PerPath::new(OwnOdds::default()) }
    }
}

impl PathOdds {
    /// Records what became of a packet on a path, see [`Odds::on_settled`].
    pub fn on_settled(&mut self, path: PathId, level: usize, sent_at: Instant, bins: usize) {
        let own = &mut self.paths[path];
        let since = own.counted.map_or(INDEPENDENT, |last| sent_at.since(last));
        let weight = since.as_secs_f64() / INDEPENDENT.as_secs_f64();
        if weight > 0.0 {
            own.counted = Some(sent_at);
            own.odds.on_settled(level, bins, weight.min(1.0));
            self.all.on_settled(level, bins, weight.min(1.0));
        }
    }

    /// Returns the chance of a packet on `path` at `level` to take longer than `bins` parts of the
    /// time until the deadline.
    pub fn chance(&self, path: PathId, level: usize, bins: usize) -> f64 {
        let as_warned = self.prior[level][bins];
        let own = self.paths.known(path).map(|own| &own.odds);
        // After a sign of trouble half of the packets take as long as usual on the path.
        let usual = own.map_or(as_warned, |own| mean(&own.at_any, bins, as_warned, PRIOR));
        let all = self.all.chance(level, bins, (as_warned + usual) / 2.0, PRIOR);
        own.map_or(all, |own| own.chance(level, bins, all, POOLED))
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
            let bins = if packet % 100 == 0 { BINS } else { 25 };
            odds.on_settled(PathId(0), 3, Instant::ZERO + INDEPENDENT * packet, bins);
        }
        let all = (100.0 + PRIOR * prior()[3][BINS]) / (10_000.0 + PRIOR);
        assert!((odds.chance(PATH, 3, BINS) - all).abs() < 1e-12);
        let own = (100.0 + POOLED * all) / (10_000.0 + POOLED);
        assert!((odds.chance(PathId(0), 3, BINS) - own).abs() < 1e-12);
    }

    // Of an outage of 2 s at 100 Hz, all packets share some ten fates.
    #[test]
    fn packets_close_together_share_one_fate() {
        let mut odds = PathOdds::default();
        for packet in 0..200 {
            let sent_at = Instant::ZERO + INDEPENDENT * packet / 20;
            odds.on_settled(PATH, 0, sent_at, BINS);
        }
        let packets = 1.0 + 199.0 / 20.0;
        let all = (packets + PRIOR * prior()[0][BINS]) / (packets + PRIOR);
        let own = (packets + POOLED * all) / (packets + POOLED);
        assert!((odds.chance(PATH, 0, BINS) - own).abs() < 1e-9);
    }
}
