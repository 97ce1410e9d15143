//! Losses of a path as a chain of two states, and how many packets of a run arrive.

/// Packets after which older ones count half.
const REMEMBERED: f64 = 4096.0;
/// Loss assumed before any measurement.
const FIRST_LOSS: f64 = 0.01;
/// Weight of what is assumed, in packets.
const PRIOR: f64 = 8.0;

/// Fates of a path's packets, counted by the fate of the packet before (Gilbert 1960: ON/OFF loss).
#[derive(Clone, Debug, Default)]
pub struct LossChain {
    /// Packets after one that arrived, and after one that was lost: those that arrived, those lost.
    counts: [[f64; 2]; 2],
    last_lost: bool,
}

impl LossChain {
    /// Records the fate of the next packet.
    pub fn on_settled(&mut self, lost: bool) {
        let [arrived, gone] = &mut self.counts[usize::from(self.last_lost)];
        if *arrived + *gone >= REMEMBERED {
            (*arrived, *gone) = (*arrived / 2.0, *gone / 2.0);
        }
        *if lost { gone } else { arrived } += 1.0;
        self.last_lost = lost;
    }

    /// Returns the chance of loss after a packet that arrived, and after one that was lost.
    pub fn rates(&self) -> [f64; 2] {
        let [[arrived, gone], [back, stays]] = self.counts;
        let first = (gone + PRIOR * FIRST_LOSS) / (arrived + gone + PRIOR);
        let after_loss = (stays + PRIOR * first) / (back + stays + PRIOR);
        [first, after_loss]
    }

    /// True if the last packet was lost.
    pub const fn is_off(&self) -> bool {
        self.last_lost
    }
}

/// Returns the chance that a packet long after those that are known is lost.
pub fn stationary([after_arrival, after_loss]: [f64; 2]) -> f64 {
    after_arrival / (1.0 - after_loss + after_arrival).max(f64::MIN_POSITIVE)
}

/// Chances that 0, 1, … of some packets arrive.
#[derive(Clone, Debug)]
pub struct Arrivals {
    after_arrival: alloc::vec::Vec<f64>,
    after_loss: alloc::vec::Vec<f64>,
    rates: [f64; 2],
}

impl Arrivals {
    /// Creates the chances of no packets, before which one was lost with probability `off`.
    pub fn new(rates: [f64; 2], off: f64) -> Self {
        Self { after_arrival: alloc::vec![1.0 - off], after_loss: alloc::vec![off], rates }
    }

    /// Adds a packet.
    pub fn push(&mut self) {
        let [first, second] = self.rates;
        self.after_arrival.push(0.0);
        self.after_loss.push(0.0);
        let mut arrived = 0.0;
        for (on, off) in self.after_arrival.iter_mut().zip(&mut self.after_loss) {
            let lost = *on * first + *off * second;
            let next = *on * (1.0 - first) + *off * (1.0 - second);
            (*on, *off) = (arrived, lost);
            arrived = next;
        }
    }

    /// Returns the chances after `packets` more packets.
    pub fn after(mut self, packets: usize) -> Self {
        (0..packets).for_each(|_| self.push());
        self
    }

    /// Chances in ascending order of the number that arrives.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.after_arrival.iter().zip(&self.after_loss).map(|(on, off)| on + off)
    }

    /// Chance that what arrives does not suffice for `needed` unknowns: fewer combinations arrive, or they
    /// depend on each other, which random ones over GF(256) do in 1 of 255 · 256ʲ cases if j more arrive.
    pub fn insufficient(&self, needed: usize) -> f64 {
        let fewer: f64 = self.iter().take(needed).sum();
        let singular = core::iter::successors(Some(1.0 / 255.0), |chance| Some(chance / 256.0));
        fewer
            + self
                .iter()
                .skip(needed)
                .zip(singular)
                .map(|(arrive, rank)| arrive * rank)
                .sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    // Source: the binomial formula, C(6, r) 0.7ʳ 0.3⁶⁻ʳ.
    #[test]
    fn independent_losses_are_binomial() {
        let ways = [1.0, 6.0, 15.0, 20.0, 15.0, 6.0, 1.0];
        let seen: Vec<f64> = Arrivals::new([0.3; 2], 0.3).after(6).iter().collect();
        for (arrived, (chance, ways)) in seen.iter().zip(ways).enumerate() {
            let arrived = arrived as i32;
            assert!(
                (chance - ways * 0.7_f64.powi(arrived) * 0.3_f64.powi(6 - arrived)).abs() < 1e-12
            );
        }
    }

    // By brute force: all 2⁸ sequences of fates of a chain that begins after a loss.
    #[test]
    fn losses_in_a_chain_are_those_of_all_sequences() {
        let rates = [0.05, 0.8];
        let mut expected = [0.0; 9];
        for fates in 0..1_u32 << 8 {
            let (mut chance, mut off) = (1.0, true);
            for packet in 0..8 {
                let lost = fates >> packet & 1 == 1;
                let rate = rates[usize::from(off)];
                chance *= if lost { rate } else { 1.0 - rate };
                off = lost;
            }
            expected[8 - fates.count_ones() as usize] += chance;
        }
        for (seen, expected) in Arrivals::new(rates, 1.0).after(8).iter().zip(expected) {
            assert!((seen - expected).abs() < 1e-12, "{seen} {expected}");
        }
    }

    // Of a random square matrix over GF(256): 1 − Π (1 − 256⁻ⁱ) is singular.
    #[test]
    fn combinations_may_depend_on_each_other() {
        let none_lost = |sent: usize| Arrivals::new([0.0; 2], 0.0).after(sent).insufficient(18);
        let singular =
            |from: i32| 1.0 - (from..from + 18).map(|i| 1.0 - 256_f64.powi(-i)).product::<f64>();
        assert!((none_lost(18) - singular(1)).abs() < 1e-4);
        assert!((none_lost(19) - singular(2)).abs() < 1e-6);
        assert_eq!(none_lost(17), 1.0);
    }

    #[test]
    fn the_chain_is_learned_from_fates() {
        let mut chain = LossChain::default();
        // Bursts of 4 losses after each 16 arrivals: 1 of 16, then 3 of 4; a fifth in all.
        (0..20_000).for_each(|packet| chain.on_settled(packet % 20 >= 16));
        let [first, second] = chain.rates();
        assert!((first - 1.0 / 16.0).abs() < 0.003 && (second - 0.75).abs() < 0.01);
        assert!((stationary([1.0 / 16.0, 0.75]) - 0.2).abs() < 1e-12);
        assert!(chain.is_off());
    }
}
