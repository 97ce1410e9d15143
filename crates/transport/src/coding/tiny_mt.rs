//! TinyMT32, the generator of coding coefficients.
//!
//! Source: RFC 8682 §2, with the parameters of §2.1.

const MAT1: u32 = 0x8f70_11ee;
const MAT2: u32 = 0xfc78_ff1f;
const TMAT: u32 = 0x3793_fdff;
/// Steps that mix the seed into the state, and as many before the first number.
const LOOPS: u32 = 8;

/// State of the generator.
#[derive(Clone, Debug)]
pub struct TinyMt32([u32; 4]);

impl TinyMt32 {
    /// Creates the generator of a seed.
    pub fn new(seed: u32) -> Self {
        let mut state = [seed, MAT1, MAT2, TMAT];
        for step in 1..LOOPS {
            let before = state[(step - 1) as usize & 3];
            let mixed = 1_812_433_253_u32.wrapping_mul(before ^ before >> 30);
            state[step as usize & 3] ^= step.wrapping_add(mixed);
        }
        let mut generator = Self(state);
        (0..LOOPS).for_each(|_| generator.advance());
        generator
    }

    const fn advance(&mut self) {
        let [zero, one, two, three] = self.0;
        let mut x = (zero & 0x7fff_ffff) ^ one ^ two;
        x ^= x << 1;
        let y = three ^ three >> 1 ^ x;
        let odd = (y & 1).wrapping_neg();
        self.0 = [one, two ^ odd & MAT1, x ^ y << 10 ^ odd & MAT2, y];
    }

    /// Returns the next number.
    pub const fn next_u32(&mut self) -> u32 {
        self.advance();
        let [zero, _, two, three] = self.0;
        let sum = zero.wrapping_add(two >> 8);
        three ^ sum ^ (sum & 1).wrapping_neg() & TMAT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Source: RFC 8682 §2.1, the first numbers of the seed 1.
    #[test]
    fn the_first_numbers_are_those_of_rfc_8682() {
        let mut generator = TinyMt32::new(1);
        let numbers: [u32; 10] = core::array::from_fn(|_| generator.next_u32());
        let published = [
            2_545_341_989,
            981_918_433,
            3_715_302_833,
            2_387_538_352,
            3_591_001_365,
            3_820_442_102,
            2_114_400_566,
            2_196_103_051,
            2_783_359_912,
            764_534_509,
        ];
        assert_eq!(numbers, published);
    }
}
