//! Reed–Solomon codes over GF(2⁸).
//!
//! Source: RFC 5510 §8.2 (generator matrix: the
//! Vandermonde matrix of powers of the field's generator α = 2, made systematic), as RFC 6865 uses it. A
//! byte of packet j is the value, at αʲ, of a polynomial whose degree is below the number of sources. Any
//! packets as many as the sources therefore determine all others by Lagrange interpolation.

use alloc::vec::Vec;

use skybraid_units::field::{ORDER, log, power};

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
    use skybraid_units::field::product;

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
                    terms.fold(0, |sum, (i, m)| sum ^ product(*m, power(i * j)))
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
