//! Chance of a path to deliver in time, learned from what became of earlier packets.

use skybraid_units::Duration;

use crate::PathId;
use crate::per_path::PerPath;

/// Parts into which the time until the deadline is divided.
pub const BINS: usize = 64;
/// Parts of that time in which the sign of trouble of a path that delivers in time may be.
pub const SIGNS: usize = 8;
/// Signs of trouble that are distinguished: eighths of that time, the same on a restless path, and the two below.
pub const LEVELS: usize = 2 * SIGNS + 2;
/// First level of a restless path: one on which a packet was late not long ago.
pub const RESTLESS: usize = SIGNS;
/// Sign of trouble beyond the time until the deadline, which the last packet did not meet.
pub const BEYOND: usize = 2 * SIGNS;
/// The same where the last packet was late too, or nothing has come back for long.
pub const PERSISTENT: usize = BEYOND + 1;

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
/// Independent packets of a row, in which late ones are counted to know how many come together.
const ROW: f64 = 256.0;
/// Factor of the odds of a path to fail while another one fails. Measured: two paths fail together
/// 2.5 to 3.6 times as often as independent ones if both are carriers, about once with Starlink.
const CORRELATION: f64 = 3.0;

/// Numbers of packets by the sign of trouble when they left, and by the parts of the time that they took.
#[derive(Clone, Debug)]
struct Counts {
    at_level: [Count; LEVELS],
    at_any: Count,
}

/// Counts of late packets in rows of [`ROW`] packets.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Packets of the row that is not complete, and late ones.
    packets: f64,
    late: f64,
    /// Complete rows, and the sums of their late packets and of the squares of these.
    count: f64,
    sum: f64,
    squares: f64,
}

impl Rows {
    const NONE: Self = Self { packets: 0.0, late: 0.0, count: 0.0, sum: 0.0, squares: 0.0 };

    fn add(&mut self, late: f64, weight: f64) {
        self.packets += weight;
        self.late += late;
        if self.packets >= ROW {
            self.count += 1.0;
            self.sum += self.late;
            self.squares += self.late * self.late;
            (self.packets, self.late) = (0.0, 0.0);
        }
    }

    fn halve(&mut self) {
        for sum in [&mut self.count, &mut self.sum, &mut self.squares] {
            *sum /= 2.0;
        }
    }

    /// Returns how many late packets come together: the variance of their number over its mean, which is 1 for
    /// independent ones (index of dispersion).
    fn dispersion(&self) -> f64 {
        if self.count < 2.0 || self.sum == 0.0 {
            return 1.0;
        }
        let mean = self.sum / self.count;
        ((self.squares - self.sum * mean) / (self.count - 1.0) / mean).max(1.0)
    }
}

/// Numbers of packets by the parts of the time that they took.
#[derive(Clone, Copy, Debug)]
struct Count {
    took: Tail,
    total: f64,
    rows: Rows,
}

impl Count {
    const NONE: Self = Self { took: [0.0; BINS + 1], total: 0.0, rows: Rows::NONE };

    fn add(&mut self, bins: usize, weight: f64) {
        if self.total >= REMEMBERED {
            self.took.iter_mut().for_each(|count| *count /= 2.0);
            self.total /= 2.0;
            self.rows.halve();
        }
        self.took[bins] += weight;
        self.total += weight;
        self.rows.add(if bins == BINS { weight } else { 0.0 }, weight);
    }
}

impl Counts {
    const NONE: Self = Self { at_level: [Count::NONE; LEVELS], at_any: Count::NONE };

    fn on_settled(&mut self, level: usize, bins: usize, weight: f64) {
        self.at_level[level].add(bins, weight);
        self.at_any.add(bins, weight);
    }
}

/// Chances without measurements, by level: half of the packets take longer than the sign says by a
/// sixteenth of the time, a quarter by two, and at least 0.1 % (without trouble) to 50 % (beyond the deadline)
/// are late.
fn prior() -> [Tail; LEVELS] {
    let mut tails = [[1.0; BINS + 1]; LEVELS];
    for (level, tail) in tails.iter_mut().enumerate() {
        let sign = if level < BEYOND { level % SIGNS } else { SIGNS };
        let trouble = sign as f64 / SIGNS as f64;
        let late = 1e-3 * libm::pow(500.0, trouble);
        for (bin, chance) in tail.iter_mut().enumerate() {
            let above = 16.0 * (bin as f64 / BINS as f64 - trouble);
            *chance = libm::exp2(-above.max(0.0)).max(late);
        }
    }
    tails
}

/// Estimate of a chance from the packets counted so far, from the longest time on: the mean of what was
/// counted and of what holds without it.
struct Mean<'a> {
    count: &'a Count,
    weight: f64,
    scale: f64,
    longer: f64,
}

impl<'a> Mean<'a> {
    fn new(count: &'a Count, weight: f64) -> Self {
        Self { count, weight, scale: 1.0 / (count.total + weight), longer: 0.0 }
    }

    /// Returns the chance to take `bins` parts of the time or more, of which `without` holds without
    /// counts. Called for each of [`BINS`] to 0 in turn.
    fn next(&mut self, bins: usize, without: f64) -> f64 {
        self.longer += self.count.took[bins];
        (self.longer + self.weight * without) * self.scale
    }
}

/// A chance with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// The estimate without any measurement or assumption.
    pub const UNKNOWN: Self = Self { mean: 1.0, low: 0.0, high: 1.0 };

    /// Returns the interval of a chance of `mean`, of which `own` was counted at this level, and `of_path` at
    /// any. What is assumed raises the upper end, and never the lower one: that is what was counted, less by
    /// as much as the path's episodes of late packets may be too many.
    fn of(mean: f64, own: &Count, of_path: &Count) -> Self {
        let episodes = of_path.took[BINS] / of_path.rows.dispersion();
        let certain = poisson(episodes)[0] / episodes.max(f64::MIN_POSITIVE);
        let low = certain * own.took[BINS] / own.total.max(f64::MIN_POSITIVE);
        let total = (own.total + POOLED) / own.rows.dispersion();
        let [_, high] = poisson(mean * total);
        Self { mean, low: low.min(mean), high: (high / total).min(1.0) }
    }

    /// Returns the chance of a miss while another path fails. At the lower end the two fail
    /// independently of each other.
    #[inline]
    pub fn while_another_fails(&self) -> Self {
        Self { mean: joint(self.mean), low: self.low, high: joint(self.high) }
    }

    /// Returns the chance of a miss of a copy that is too late with the chance `too_late` besides.
    #[inline]
    pub fn or_too_late(&self, too_late: f64) -> Self {
        let misses = |chance: f64| (too_late + chance).clamp(0.0, 1.0);
        Self { mean: misses(self.mean), low: misses(self.low), high: misses(self.high) }
    }

    /// Returns the product with a chance that was counted independently. Both are rarely at their upper ends: the
    /// logarithms of the ratios to the means are added in quadrature. That is the greater one and half of the
    /// other, to at most 12 % more.
    #[inline]
    pub fn times(&self, other: &Self) -> Self {
        let (more, less) = if self.high * other.mean >= self.mean * other.high {
            (self, other)
        } else {
            (other, self)
        };
        Self {
            mean: self.mean * other.mean,
            low: self.low * other.low,
            high: more.high * libm::sqrt(less.mean * less.high),
        }
    }

    /// Returns the greater of both, end by end.
    pub fn max(&self, other: &Self) -> Self {
        let greater = |one: f64, other: f64| if one > other { one } else { other };
        Self {
            mean: greater(self.mean, other.mean),
            low: greater(self.low, other.low),
            high: greater(self.high, other.high),
        }
    }

    /// Returns the share of `messages` of which so many as this are not missed.
    pub fn share_left(&self, messages: f64) -> Self {
        let left = |missed: f64| 1.0 - missed / messages.max(1.0);
        Self { mean: left(self.mean), low: left(self.high), high: left(self.low) }
    }
}

impl core::ops::AddAssign for Estimate {
    fn add_assign(&mut self, more: Self) {
        self.mean += more.mean;
        self.low += more.low;
        self.high += more.high;
    }
}

/// Returns the exact 95 % interval of the mean of a Poisson number (Garwood 1936) that is `seen`, to 1 %
/// (Wilson and Hilferty 1931).
fn poisson(seen: f64) -> [f64; 2] {
    let quantile = |shape: f64, deviations: f64| {
        let root = 1.0 - 1.0 / (9.0 * shape) + deviations / (3.0 * libm::sqrt(shape));
        let root = root.max(0.0);
        shape * root * root * root
    };
    [if seen > 0.0 { quantile(seen, -1.96) } else { 0.0 }, quantile(seen + 1.0, 1.96)]
}

/// Chances of a path's packets at one level, as of the last update.
#[derive(Clone, Copy, Debug)]
pub struct Chances {
    longer: Tail,
    /// Chance to miss the whole time.
    late: Estimate,
    /// [`PathOdds::settled`] at the last update.
    as_of: f64,
}

impl Chances {
    const UNKNOWN: Self =
        Self { longer: [1.0; BINS + 1], late: Estimate::UNKNOWN, as_of: f64::NEG_INFINITY };

    /// Returns the chance to take longer than `bins` parts of the time until the deadline; the more of
    /// them, the smaller it is.
    #[inline]
    pub fn longer_than(&self, bins: usize) -> f64 {
        self.longer[bins]
    }

    /// Returns the chance that a copy does not arrive within `left` parts of the time, if another one misses the whole
    /// time, as both do with the chance `together` then: failures come together, longer delays on the way do not.
    #[inline]
    pub fn misses_too(&self, left: usize, together: f64) -> f64 {
        let chance = self.longer[left] + together - self.late.mean;
        if chance < 1.0 { chance } else { 1.0 }
    }

    /// Returns the chance to miss the whole time.
    pub fn late(&self) -> Estimate {
        self.late
    }

    /// Number of independent packets counted before the last update.
    pub fn as_of(&self) -> f64 {
        self.as_of
    }

    #[inline(never)]
    fn update(&mut self, own: &Counts, all: &Count, level: usize, prior: &Tail) {
        let mut at_any = Mean::new(&own.at_any, PRIOR);
        let mut of_all = Mean::new(all, PRIOR);
        let mut of_own = Mean::new(&own.at_level[level], POOLED);
        // After a sign of trouble half of the packets take as long as usual on the path.
        of_all.weight /= 2.0;
        for (bins, longer) in self.longer.iter_mut().enumerate().rev() {
            let as_warned = prior[bins];
            let usual = at_any.next(bins, as_warned);
            *longer = of_own.next(bins, of_all.next(bins, as_warned + usual));
        }
        self.late = Estimate::of(self.longer[BINS], &own.at_level[level], &own.at_any);
    }
}

/// What is known of one path.
#[derive(Clone, Debug)]
struct PathState {
    counts: Counts,
    chances: [Chances; LEVELS],
}

/// The odds of all paths of a connection.
#[derive(Clone, Debug)]
pub struct PathOdds {
    prior: [Tail; LEVELS],
    all: [Count; LEVELS],
    paths: PerPath<PathState>,
    /// Independent packets counted so far.
    settled: f64,
}

impl Default for PathOdds {
    fn default() -> Self {
        let fresh = PathState { counts: Counts::NONE, chances: [Chances::UNKNOWN; LEVELS] };
        Self {
            prior: prior(),
            all: [Count::NONE; LEVELS],
            paths: PerPath::new(fresh),
            settled: 0.0,
        }
    }
}

impl PathOdds {
    /// Records that a packet that left on `path` at `level` took longer than `bins` parts of the time; all
    /// of them if it is late or lost. It counts as `weight` independent packets.
    pub fn on_settled(&mut self, path: PathId, level: usize, bins: usize, weight: f64) {
        self.paths[path].counts.on_settled(level, bins, weight);
        self.all[level].add(bins, weight);
        self.settled += weight;
    }

    /// Updates the chances of packets on `path` at `level`, if as much as one independent packet has been
    /// counted since. Returns them.
    pub fn update(&mut self, path: PathId, level: usize) -> &Chances {
        let PathState { counts, chances } = &mut self.paths[path];
        let chances = &mut chances[level];
        if is_due(chances.as_of, self.settled) {
            chances.update(counts, &self.all[level], level, &self.prior[level]);
            chances.as_of = self.settled;
        }
        chances
    }

    /// Number of independent packets counted so far.
    #[inline]
    pub const fn settled(&self) -> f64 {
        self.settled
    }

    /// Returns the chance of a packet on `path` at `level` to take longer than `bins` parts of the
    /// time until the deadline, as of the last update.
    pub fn chance(&self, path: PathId, level: usize, bins: usize) -> f64 {
        self.chances(path, level).longer_than(bins)
    }

    /// Returns the chances of packets on `path` at `level`, as of the last update.
    #[inline]
    pub fn chances(&self, path: PathId, level: usize) -> &Chances {
        &self.paths[path].chances[level]
    }
}

/// True if chances are to be updated that were `as_of` so many independent packets, of `settled` ones.
#[inline]
pub fn is_due(as_of: f64, settled: f64) -> bool {
    settled - as_of >= 1.0
}

/// Returns the chance that a second copy misses too, if a first one does.
#[inline]
pub fn joint(late: f64) -> f64 {
    CORRELATION * late / (1.0 + (CORRELATION - 1.0) * late)
}

#[cfg(test)]
mod tests {
    use skybraid_units::{Probability, Seed};

    use super::*;

    const PATH: PathId = PathId(1);

    #[test]
    fn chances_fall_with_time_and_rise_with_trouble() {
        let mut odds = PathOdds::default();
        for level in 0..LEVELS {
            odds.update(PATH, level);
            assert_eq!(odds.chance(PATH, level, 0), 1.0);
            for bins in 0..BINS {
                assert!(odds.chance(PATH, level, bins + 1) <= odds.chance(PATH, level, bins));
            }
            if level < BEYOND && level % SIGNS > 0 {
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
        odds.update(PathId(0), 3);
        odds.update(PATH, 3);
        // Of a path without packets: what holds for all, and without those what is assumed.
        let other = (100.0 + PRIOR * prior()[3][BINS]) / (10_000.0 + PRIOR);
        assert!((odds.chance(PATH, 3, BINS) - other).abs() < 1e-12);
        let own = posterior(3, 100.0, 10_000.0);
        assert!((odds.chance(PathId(0), 3, BINS) - own).abs() < 1e-12);
        assert!((own - 0.01).abs() < 1e-3);
    }

    // Source: Garwood's table.
    #[test]
    fn intervals_of_counts_are_those_of_the_table() {
        for (seen, low, high) in [(0.0, 0.0, 3.689), (1.0, 0.025, 5.572), (10.0, 4.795, 18.390)] {
            let [own_low, own_high] = poisson(seen);
            assert!((own_low - low).abs() < 0.02 && (own_high / high - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn an_interval_narrows_with_what_was_counted() {
        let mut odds = PathOdds::default();
        let before = updated(&mut odds);
        assert!(before.low == 0.0 && before.high > 0.05, "{before:?}");
        for packet in 0..10_000 {
            odds.on_settled(PATH, 0, if packet % 100 == 0 { BINS } else { 25 }, 1.0);
        }
        let after = updated(&mut odds);
        assert!(0.0075 < after.low && after.low < 0.01, "{after:?}");
        assert!(0.01 < after.high && after.high < 0.0125, "{after:?}");
    }

    /// Returns the chance of packets at level 0 to be late, brought up to date.
    fn updated(odds: &mut PathOdds) -> Estimate {
        odds.update(PATH, 0).late()
    }

    /// Returns the interval after 10,000 packets in time but for 100 late ones, `together` at a time.
    fn late_by_hundreds(together: usize) -> Estimate {
        let mut odds = PathOdds::default();
        for packet in 0..10_000 {
            let is_late = packet % (100 * together) < together;
            odds.on_settled(PATH, 0, if is_late { BINS } else { 25 }, 1.0);
        }
        updated(&mut odds)
    }

    // Four episodes: Garwood's interval of 4 is 1.09 to 10.24, of 100 it is 81.4 to 121.6. Whole rows hold up to a
    // tenth fewer late packets together.
    #[test]
    fn few_episodes_say_little() {
        let apart = late_by_hundreds(1);
        assert!((apart.low - 0.00814).abs() < 1e-4, "{apart:?}");
        let together = late_by_hundreds(25);
        assert!((together.low / (0.01 * 1.09 / 4.0) - 1.0).abs() < 0.1, "{together:?}");
        assert!((together.high / (0.01 * 10.24 / 4.0) - 1.0).abs() < 0.1, "{together:?}");
        assert!((apart.high / 0.01216 - 1.0).abs() < 0.02, "{apart:?}");
        assert_eq!(together.mean, apart.mean);
    }

    /// Draws paths on which 2 % of 20,000 packets are late, `together` at a time. Returns in how many of 200 the
    /// interval has that share, and the mean ratio of the upper end to it.
    fn coverage(together: u32) -> (u32, f64) {
        let late = 0.02;
        let begins = late / (f64::from(together) * (1.0 - late) + late);
        let (mut covered, mut ratio) = (0, 0.0);
        for seed in 0..200 {
            let mut stream = Seed(seed).stream("late");
            let begins = Probability::new(begins).unwrap();
            let (mut odds, mut left) = (PathOdds::default(), 0);
            for _ in 0..20_000 {
                if left == 0 && stream.chance(begins) {
                    left = together;
                }
                odds.on_settled(PATH, 0, if left > 0 { BINS } else { 25 }, 1.0);
                left = left.saturating_sub(1);
            }
            let Estimate { low, high, .. } = updated(&mut odds);
            covered += u32::from(low <= late && late <= high);
            ratio += high / late / 200.0;
        }
        (covered, ratio)
    }

    // Of 200 intervals of 95 %, 181 cover with three standard deviations to spare. Of 400 late ones
    // the upper end is 1 + 1.96 / 20 times as many.
    #[test]
    fn independent_losses_have_a_narrow_interval_that_covers() {
        let (covered, ratio) = coverage(1);
        assert!(covered >= 181 && ratio < 1.15, "{covered} {ratio}");
    }

    // Bursts of 20 make 20 episodes; Garwood's upper end for 20 is 1.54 times as many.
    #[test]
    fn losses_in_bursts_are_covered() {
        let (covered, ratio) = coverage(20);
        assert!(covered >= 181 && (1.3..1.8).contains(&ratio), "{covered} {ratio}");
    }

    // Ratios of 2 each: 2 to the root of 2, and 12 % of its logarithm more at most.
    #[test]
    fn upper_ends_of_two_paths_meet_in_quadrature() {
        let one = Estimate { mean: 0.01, low: 0.005, high: 0.02 };
        let both = one.times(&one);
        assert!((both.mean - 1e-4).abs() < 1e-12 && (both.low - 2.5e-5).abs() < 1e-12);
        let exponent = libm::log2(both.high / both.mean);
        let exact = libm::sqrt(2.0);
        assert!(exact <= exponent && exponent < 1.12 * exact, "{exponent}");
    }

    // Of an outage of 2 s at 100 Hz, all packets share ten fates.
    #[test]
    fn packets_close_together_share_one_fate() {
        let mut odds = PathOdds::default();
        (0..200).for_each(|_| odds.on_settled(PATH, 0, BINS, 0.05));
        odds.update(PATH, 0);
        assert!((odds.chance(PATH, 0, BINS) - posterior(0, 10.0, 10.0)).abs() < 1e-9);
    }
}
