//! Arithmetic of erasure codes: the field GF(2⁸) of 1 + x² + x³ + x⁴ + x⁸ (0x11d), with the generator α = 2.
//!
//! Source: RFC 5510 §8.1; RFC 8681 §3.7.1 has the same field. Addition is the exclusive or.

const POLYNOMIAL: u16 = 0x11d;
/// Order of the generator.
pub const ORDER: usize = 255;

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

/// Returns the logarithm of `value` to base α, below [`ORDER`]; `value` must not be zero.
#[inline]
pub fn log(value: u8) -> usize {
    usize::from(TABLES.log[usize::from(value)])
}

/// Returns α to the power of `exponent`.
#[inline]
pub fn power(exponent: usize) -> u8 {
    TABLES.power[exponent % ORDER]
}

/// Returns the product of `a` and `b`.
#[inline]
pub fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { TABLES.power[log(a) + log(b)] }
}

/// Returns the element whose product with `value` is 1; `value` must not be zero.
#[inline]
pub fn inverse(value: u8) -> u8 {
    power(ORDER - log(value))
}

/// Adds `coefficient` times each of `bytes` to the byte of `sum` at the same index, over the shorter length.
pub fn add_product(sum: &mut [u8], bytes: &[u8], coefficient: u8) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplies polynomials bit by bit modulo 0x11d, as in RFC 5510 §8.1.
    fn slow_product(a: u8, b: u8) -> u8 {
        let (mut a, mut sum) = (u16::from(a), 0);
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                sum ^= a;
            }
            a <<= 1;
            if a & 0x100 != 0 {
                a ^= POLYNOMIAL;
            }
        }
        sum as u8
    }

    #[test]
    fn products_are_those_of_polynomials_modulo_0x11d() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(product(a, b), slow_product(a, b));
            }
        }
        assert_eq!((power(1), power(8), power(255)), (2, 0x1d, 1));
        assert!((1..=255).all(|value| product(value, inverse(value)) == 1));
    }

    #[test]
    fn bytes_are_added_over_the_shorter_length() {
        let mut sum = [1, 2, 3];
        add_product(&mut sum, &[0x80, 5], 2);
        assert_eq!(sum, [1 ^ 0x1d, 2 ^ 10, 3]);
        add_product(&mut sum, &[1; 9], 1);
        assert_eq!(sum, [0x1d, 2 ^ 10 ^ 1, 2]);
    }
}
