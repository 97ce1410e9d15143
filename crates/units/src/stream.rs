//! Named random streams.
//!
//! A stream depends on the root seed and the name of its component alone, so enabling one effect does not
//! change the draws of another, and all schedulers of a comparison see the same link.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Probability;

/// Root seed of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the stream of the component `name`, for example `"lte.uplink.loss"`. The same seed and name give
    /// the same stream on every machine.
    pub fn stream(self, name: &str) -> Stream {
        let mut words = [mix(self.0 ^ 0x9e37_79b9_7f4a_7c15), mix(self.0.wrapping_add(1))];
        for byte in name.bytes() {
            words[0] = mix(words[0] ^ u64::from(byte));
            words[1] = mix(words[1].wrapping_add(u64::from(byte)).rotate_left(17));
        }
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&words[0].to_le_bytes());
        seed[8..].copy_from_slice(&words[1].to_le_bytes());
        Stream(Pcg64Mcg::from_seed(seed))
    }
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014).
const fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A stream of random draws (PCG XSL-RR 128/64, O'Neill 2014). Distributions use `libm`, so draws are the same
/// on every machine.
#[derive(Clone, Debug)]
pub struct Stream(Pcg64Mcg);

impl Stream {
    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws uniformly from [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Returns true with probability `p`. Always uses one draw.
    pub fn chance(&mut self, p: Probability) -> bool {
        self.unit() < p.ratio()
    }

    /// Draws uniformly from 0 to `bound` − 1; zero for a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws uniformly from [`low`, `high`).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Draws from the standard normal distribution (Box and Muller 1958).
    pub fn standard_normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }

    /// Draws from a normal distribution.
    pub fn normal(&mut self, mean: f64, standard_deviation: f64) -> f64 {
        mean + standard_deviation * self.standard_normal()
    }

    /// Draws from the exponential distribution with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_name_alone() {
        let draw = |seed, name| Seed(seed).stream(name).next_u64();
        assert_eq!(draw(7, "lte.uplink.loss"), draw(7, "lte.uplink.loss"));
        assert_ne!(draw(7, "lte.uplink.loss"), draw(7, "lte.uplink.harq"));
        assert_ne!(draw(7, "lte.uplink.loss"), draw(8, "lte.uplink.loss"));
    }

    #[test]
    fn draws_are_the_same_on_every_machine() {
        let mut stream = Seed(7).stream("golden");
        let drawn = [stream.next_u64(), stream.next_u64(), stream.next_u64()];
        assert_eq!(drawn, GOLDEN);
        let normal = stream.standard_normal();
        assert_eq!(normal.to_bits(), GOLDEN_NORMAL_BITS, "{normal}");
    }

    const GOLDEN: [u64; 3] =
        [5_866_581_131_684_512_943, 951_270_633_131_771_933, 16_999_801_772_493_371_333];
    const GOLDEN_NORMAL_BITS: u64 = 4_605_041_084_337_616_843;

    #[test]
    fn moments_of_the_distributions_hold() {
        let mut stream = Seed(1).stream("moments");
        let count = 200_000;
        let mean_and_variance = |draw: &mut dyn FnMut() -> f64| {
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..count {
                let x = draw();
                sum += x;
                squares += x * x;
            }
            let mean = sum / f64::from(count);
            (mean, squares / f64::from(count) - mean * mean)
        };
        let (mean, variance) = mean_and_variance(&mut || stream.normal(3.0, 2.0));
        assert!((mean - 3.0).abs() < 0.02 && (variance - 4.0).abs() < 0.06, "{mean} {variance}");
        let (mean, variance) = mean_and_variance(&mut || stream.exponential(5.0));
        assert!((mean - 5.0).abs() < 0.05 && (variance - 25.0).abs() < 0.7, "{mean} {variance}");
        let (mean, variance) = mean_and_variance(&mut || stream.unit());
        assert!((mean - 0.5).abs() < 0.003 && (variance - 1.0 / 12.0).abs() < 0.001);
    }
}
