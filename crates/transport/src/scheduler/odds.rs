//! Chance of a path to deliver in time, learned from what became of earlier packets.

/// Parts into which the time until the deadline is divided.
pub const BINS: usize = 16;
/// Signs of trouble that are distinguished: eighths of that time, and beyond it.
pub const LEVELS: usize = 9;

/// Chance that a packet takes longer than each sixteenth of the time until the deadline, from none
/// of it to all of it.
pub type Tail = [f64; BINS + 1];

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

/// Chance without measurements: half of the packets take longer than the sign says by a sixteenth,
/// a quarter by two, and at least 0.1 % (without trouble) to 50 % (beyond the deadline) are late.
fn prior(level: usize) -> Tail {
    let trouble = level as f64 / (LEVELS - 1) as f64;
    let late = 1e-3 * libm::pow(500.0, trouble);
    let mut tail = [1.0; BINS + 1];
    for (bin, chance) in tail.iter_mut().enumerate() {
        let above = bin as f64 - 2.0 * level as f64;
        *chance = libm::exp2(-above.max(0.0)).max(late);
    }
    tail
}

impl Odds {
    /// Records that a packet that left at `level` took longer than `bins` sixteenths; all of them
    /// if it is late or lost.
    pub fn on_settled(&mut self, level: usize, bins: usize) {
        let Some(longer) = self.longer.get_mut(level) else { return };
        if longer.first().is_some_and(|count| *count >= REMEMBERED) {
            longer.iter_mut().for_each(|count| *count /= 2.0);
        }
        longer.iter_mut().take(bins + 1).for_each(|count| *count += 1.0);
    }

    /// Returns the chances at `level`, of which `without` holds for `weight` packets.
    fn tail(&self, level: usize, without: &Tail, weight: f64) -> Tail {
        let mut tail = *without;
        if let Some(longer) = self.longer.get(level)
            && let Some(count) = longer.first()
        {
            let share = 1.0 / (count + weight);
            for (chance, longer) in tail.iter_mut().zip(longer) {
                *chance = (longer + weight * *chance) * share;
            }
        }
        tail
    }

    /// Returns the chances over all paths, whose packets these are.
    pub fn of_all(&self, level: usize) -> Tail {
        self.tail(level, &prior(level), PRIOR)
    }

    /// Returns the chances of one path, whose packets these are; `all` are those over all paths.
    pub fn of_path(&self, level: usize, all: &Tail) -> Tail {
        self.tail(level, all, POOLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_fall_with_time_and_rise_with_trouble() {
        for level in 0..LEVELS {
            let tail = Odds::default().of_all(level);
            assert_eq!(tail[0], 1.0);
            assert!(tail.windows(2).all(|pair| pair[1] <= pair[0]), "{tail:?}");
            if level > 0 {
                assert!(tail[BINS] > Odds::default().of_all(level - 1)[BINS]);
            }
        }
    }

    // A posterior mean: (late + weight · prior) / (packets + weight).
    #[test]
    fn many_packets_outweigh_what_was_assumed() {
        let mut odds = Odds::default();
        for packet in 0..10_000 {
            odds.on_settled(3, if packet % 100 == 0 { BINS } else { 5 });
        }
        let tail = odds.of_all(3);
        let expected = (100.0 + PRIOR * prior(3)[BINS]) / (10_000.0 + PRIOR);
        assert!((tail[BINS] - expected).abs() < 1e-12, "{tail:?}");
        assert!((tail[5] - 1.0).abs() < 1e-3);
        let untouched = Odds::default().of_path(3, &tail);
        assert!(untouched.iter().zip(&tail).all(|(one, all)| (one - all).abs() < 1e-12));
    }
}
