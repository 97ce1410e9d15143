//! Reed–Solomon codes over GF(2⁸).
//!
//! Source: RFC 5510 §8.1 (field of 1 + x² + x³ + x⁴ + x⁸, 0x11d) and §8.2 (generator matrix: the
//! Vandermonde matrix of powers of the field's generator α = 2, made systematic), as RFC 6865 uses it. A
//! byte of packet j is the value, at αʲ, of a polynomial whose degree is below the number of sources. Any
//! packets as many as the sources therefore determine all others by Lagrange interpolation.

use alloc::vec::Vec;

const POLYNOMIAL: u16 = 0x11d;
const ORDER: usize = 255;

struct Tables {
    /// αⁱ, repeated once, so that the sum of two logarithms needs no reduction.
    power: [u8; 2 * ORDER],
    /// Logarithm to base α; the entry of zero is never used.
    log: [u8; 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables { power: [0; 2 * ORDER], log: [0; 256] };
    let mut value: u16 = 1;
    let mut exponent = 0;
    while exponent < ORDER {
        tables.power[exponent] = value as u8;
        tables.power[exponent + ORDER] = value as u8;
        tables.log[value as usize] = exponent as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        exponent += 1;
    }
    tables
}

fn log(value: u8) -> usize {
    usize::from(TABLES.log[usize::from(value)])
}

/// Returns α to the power of `exponent`.
fn power(exponent: usize) -> u8 {
    TABLES.power[exponent % ORDER]
}

fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { TABLES.power[log(a) + log(b)] }
}

/// Adds `coefficient` times each of `bytes` to the byte of `sum` at the same index, over the shorter length.
pub(super) fn add_product(sum: &mut [u8], bytes: &[u8], coefficient: u8) {
    if coefficient == 1 {
        sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        return;
    }
    let mut products = [0; 256];
    for (byte, entry) in (0..=u8::MAX).zip(&mut products) {
        *entry = product(coefficient, byte);
    }
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum ^= products[usize::from(*byte)];
    }
}

/// Lagrange interpolation of packets from others.
#[derive(Clone, Debug)]
pub(super) struct Interpolation {
    /// For each known packet αʲ of its position j, and the logarithm of the product of its differences
    /// from all others.
    known: Vec<(u8, usize)>,
}

impl Interpolation {
    /// Creates the interpolation from the packets at these distinct positions below 255.
    pub(super) fn new(positions: impl Iterator<Item = usize>) -> Self {
        let points: Vec<u8> = positions.map(power).collect();
        let weight = |&point: &u8| {
            let others = points.iter().filter(|&&other| other != point);
            (point, others.map(|other| log(point ^ other)).sum())
        };
        Self { known: points.iter().map(weight).collect() }
    }

    /// Returns the coefficient of each known packet in the sum that equals the packet at `position`, which must
    /// not be known.
    pub(super) fn coefficients(&self, position: usize) -> impl Iterator<Item = u8> {
        let at = power(position);
        let all: usize = self.known.iter().map(|(point, _)| log(at ^ point)).sum();
        self.known.iter().map(move |(point, weight)| {
            // Logarithms are subtracted modulo the order.
            let divisor = (log(at ^ point) + weight) % ORDER;
            power(all + ORDER - divisor)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Seed;

    /// Multiplies polynomials bit by bit modulo 0x11d, as in RFC 5510 §8.1.
    fn slow_product(a: u8, b: u8) -> u8 {
        let (mut a, mut sum) = (u16::from(a), 0);
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                sum ^= a;
            }
            a <<= 1;
            if a & 0x100 != 0 {
                a ^= 0x11d;
            }
        }
        sum as u8
    }

    fn slow_power(exponent: usize) -> u8 {
        (0..exponent).fold(1, |value, _| slow_product(value, 2))
    }

    #[test]
    fn products_are_those_of_polynomials_modulo_0x11d() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(product(a, b), slow_product(a, b));
            }
        }
        assert_eq!((slow_power(8), power(8)), (0x1d, 0x1d));
        assert_eq!((slow_power(255), power(255)), (1, 1));
    }

    #[test]
    fn bytes_are_added_over_the_shorter_length() {
        let mut sum = [1, 2, 3];
        add_product(&mut sum, &[0x80, 5], 2);
        assert_eq!(sum, [1 ^ 0x1d, 2 ^ 10, 3]);
        add_product(&mut sum, &[1; 9], 1);
        assert_eq!(sum, [0x1d, 2 ^ 10 ^ 1, 2]);
    }

    // Source: RFC 5510 §8.2: codeword = source · V(k,k)⁻¹ · V(k,n), V(i,j) = αⁱʲ; with m = source ·
    // V(k,k)⁻¹, byte j of the codeword is the sum of m(i) · αⁱʲ.
    #[test]
    fn codewords_are_those_of_the_vandermonde_matrix() {
        let mut random = Seed(5510).stream("codewords");
        for _ in 0..300 {
            let sources = 1 + random.below(40) as usize;
            let repairs = random.below(20) as usize;
            let message: Vec<u8> = (0..sources).map(|_| random.next_u64() as u8).collect();
            let codeword: Vec<u8> = (0..sources + repairs)
                .map(|j| {
                    let terms = message.iter().enumerate();
                    terms.fold(0, |sum, (i, m)| sum ^ slow_product(*m, slow_power(i * j % 255)))
                })
                .collect();
            let interpolation = Interpolation::new(0..sources);
            for position in sources..sources + repairs {
                let coefficients = interpolation.coefficients(position);
                let sum = coefficients
                    .zip(&codeword)
                    .fold(0, |sum, (coefficient, byte)| sum ^ product(coefficient, *byte));
                assert_eq!(sum, codeword[position]);
            }
        }
    }
}
