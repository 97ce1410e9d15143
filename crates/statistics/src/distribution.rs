//! Quantiles of the normal, Student's and the gamma distribution.

use core::f64::consts::SQRT_2;

use libm::{erfc, exp, fabs, log, sqrt};
use statrs::function::erf::erfc_inv;
use statrs::function::gamma::{gamma_lr, gamma_ur, ln_gamma};

/// Degrees of freedom from which on Student's quantile is expanded around the normal one: the first term left out is
/// then below 1e-13.
const EXPANDED: f64 = 1_000.0;

/// Shape from which on a gamma variable's quantile is expanded around the normal one: the first term left out is then
/// below 1e-12 of it.
const EXPANDED_SHAPE: f64 = 10_000.0;

/// Quantile of a gamma variable below which two terms of its series have all digits.
const TINY: f64 = 1e-8;

/// Most steps of an inversion; Newton's need about five, and halving ends with the digits.
const STEPS: usize = 200;

/// Returns the probability that a standard normal variable is at most `score`.
pub fn normal_cdf(score: f64) -> f64 {
    erfc(-score / SQRT_2) / 2.0
}

/// Returns the quantile of the standard normal distribution; infinite for 0 and 1, NaN outside.
pub fn normal_quantile(probability: f64) -> f64 {
    if !(0.0..=1.0).contains(&probability) {
        return f64::NAN;
    }
    -SQRT_2 * erfc_inv(2.0 * probability)
}

/// Returns the quantile of Student's t distribution.
///
/// # Arguments
/// * `freedom`: degrees of freedom, above 0, not necessarily a whole number.
/// * `probability`: between 0 and 1, both excluded.
pub fn student_quantile(freedom: f64, probability: f64) -> f64 {
    if freedom.is_nan() || freedom <= 0.0 || !(0.0..=1.0).contains(&probability) {
        return f64::NAN;
    }
    let normal = normal_quantile(probability);
    if freedom >= EXPANDED || !normal.is_finite() {
        return expanded(normal, freedom);
    }
    let log_density = ln_gamma((freedom + 1.0) / 2.0)
        - ln_gamma(freedom / 2.0)
        - log(freedom * core::f64::consts::PI) / 2.0;
    let density = |t: f64| exp(log_density - (freedom + 1.0) / 2.0 * libm::log1p(t * t / freedom));
    let (within, above) = (fabs(probability - 0.5), (1.0 - probability).min(probability));
    // Half of the beta distribution's part below t² / (freedom + t²) is between 0 and |t|, half of the rest beyond; the
    // smaller argument has more digits.
    let half = |a, b, part| statrs::function::beta::beta_reg(a, b, part) / 2.0;
    let excess = |t: f64| {
        let square = t * t;
        if square < freedom {
            half(0.5, freedom / 2.0, square / (freedom + square)) - within
        } else {
            above - half(freedom / 2.0, 0.5, freedom / (freedom + square))
        }
    };
    let reach = invert(excess, density, fabs(normal).max(1e-3));
    if probability < 0.5 { -reach } else { reach }
}

/// Student's quantile by the normal one (Abramowitz and Stegun, 26.7.5).
fn expanded(z: f64, freedom: f64) -> f64 {
    if !z.is_finite() {
        return z;
    }
    let square = z * z;
    let terms = [
        (square + 1.0) / 4.0,
        ((5.0 * square + 16.0) * square + 3.0) / 96.0,
        (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0,
        ((((79.0 * square + 776.0) * square + 1_482.0) * square - 1_920.0) * square - 945.0)
            / 92_160.0,
    ];
    z * (1.0 + terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom))
}

/// Returns the value that a gamma variable of scale 1 stays below with a probability of `tail`, or above with it.
///
/// # Arguments
/// * `shape`: above 0.
/// * `tail`: between 0 and 1, both excluded.
/// * `upper`: whether `tail` lies above the value.
pub fn gamma_quantile(shape: f64, tail: f64, upper: bool) -> f64 {
    if shape.is_nan() || shape <= 0.0 || !(tail > 0.0 && tail < 1.0) {
        return f64::NAN;
    }
    if !shape.is_finite() {
        return f64::INFINITY;
    }
    let below = if upper { 1.0 - tail } else { tail };
    let score = normal_quantile(below);
    if shape >= EXPANDED_SHAPE {
        return expanded_gamma(shape, score);
    }
    let log_gamma = ln_gamma(shape);
    let density = |x: f64| exp((shape - 1.0) * log(x) - x - log_gamma);
    // Wilson and Hilferty 1931; of small shapes, the distribution's own beginning.
    let cube = 1.0 - 1.0 / (9.0 * shape) + score / (3.0 * sqrt(shape));
    let beginning = exp((log(below) + log(shape) + log_gamma) / shape);
    let guess = if shape < 1.0 || cube <= 0.1 { beginning } else { shape * cube * cube * cube };
    if beginning < TINY {
        return beginning * (1.0 + beginning / (shape + 1.0));
    }
    if upper {
        invert(|x| tail - gamma_ur(shape, x), density, guess)
    } else {
        invert(|x| gamma_lr(shape, x) - tail, density, guess)
    }
}

/// Quantile of a gamma variable by the normal one (Cornish and Fisher; Goldberg and Levine, Annals of Mathematical
/// Statistics 17, 1946, for chi-square).
fn expanded_gamma(shape: f64, z: f64) -> f64 {
    let square = z * z;
    let root = sqrt(shape);
    let terms = [
        z,
        (square - 1.0) / 3.0,
        (square - 7.0) * z / 36.0,
        -((3.0 * square + 7.0) * square - 16.0) / 810.0,
        ((9.0 * square + 256.0) * square - 433.0) * z / 38_880.0,
    ];
    shape + root * terms.iter().rev().fold(0.0, |sum, term| sum / root + term)
}

/// Returns the positive root of an increasing function: Newton's steps, or halving where they leave the bracket.
fn invert(function: impl Fn(f64) -> f64, slope: impl Fn(f64) -> f64, guess: f64) -> f64 {
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut at = guess;
    for _ in 0..STEPS {
        let found = function(at);
        if found > 0.0 {
            high = at;
        } else {
            low = at;
        }
        let newton = at - found / slope(at);
        let inside = newton > low && newton < high && newton.is_finite();
        let next = if inside {
            newton
        } else if high.is_finite() {
            f64::midpoint(low, high)
        } else {
            2.0 * at
        };
        if fabs(next - at) <= 4.0 * f64::EPSILON * at {
            return next;
        }
        at = next;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(found: f64, expected: f64) -> bool {
        fabs(found - expected) <= 1e-9 * fabs(expected)
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, sections 1.3.6.7.1, 1.3.6.7.2 and 1.3.6.7.4.
        assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-14);
        for (freedom, expected) in
            [(1.0, 12.706), (2.0, 4.303), (10.0, 2.228), (100.0, 1.984), (1e9, 1.960)]
        {
            assert!((student_quantile(freedom, 0.975) - expected).abs() < 5e-4, "{freedom}");
        }
        // Half of chi-square with twice the shape.
        for (freedom, low, high) in
            [(2.0, 0.051, 7.378), (20.0, 9.591, 34.170), (100.0, 74.222, 129.561)]
        {
            assert!((2.0 * gamma_quantile(freedom / 2.0, 0.025, false) - low).abs() < 5e-4);
            assert!((2.0 * gamma_quantile(freedom / 2.0, 0.025, true) - high).abs() < 5e-4);
        }
    }

    #[test]
    fn one_and_two_degrees_of_freedom_have_closed_forms() {
        for probability in [0.500_1_f64, 0.6, 0.9, 0.975, 0.999, 0.02] {
            let cauchy = libm::tan(core::f64::consts::PI * (probability - 0.5));
            assert!(close(student_quantile(1.0, probability), cauchy), "{probability}");
            let two = (2.0 * probability - 1.0) * sqrt(0.5 / (probability * (1.0 - probability)));
            assert!(close(student_quantile(2.0, probability), two), "{probability}");
        }
    }

    #[test]
    fn the_expansion_continues_the_inversion() {
        let (below, above) = (EXPANDED * (1.0 - 1e-13), EXPANDED);
        for probability in [0.500_1, 0.6, 0.9, 0.975, 0.995] {
            let (inverted, series) =
                (student_quantile(below, probability), student_quantile(above, probability));
            assert!((inverted - series).abs() < 1e-11, "{inverted} {series}");
        }
    }

    #[test]
    fn the_expansion_of_gamma_continues_the_inversion() {
        for tail in [0.001, 0.025, 0.4] {
            for upper in [false, true] {
                let below = gamma_quantile(EXPANDED_SHAPE * (1.0 - 1e-15), tail, upper);
                let above = gamma_quantile(EXPANDED_SHAPE, tail, upper);
                assert!(fabs(below - above) < 1e-10 * above, "{tail} {below} {above}");
            }
        }
    }

    #[test]
    fn what_has_no_quantile_is_not_a_number() {
        assert!(student_quantile(0.0, 0.9).is_nan());
        assert!(student_quantile(3.0, 1.1).is_nan());
        assert!(gamma_quantile(-1.0, 0.1, false).is_nan());
        assert!(gamma_quantile(1.0, 0.0, true).is_nan());
        assert!(normal_quantile(f64::NAN).is_nan());
    }

    proptest! {
        #[test]
        fn exponential_quantiles_are_logarithms(tail in 0.000_1..0.999_9_f64) {
            prop_assert!(close(gamma_quantile(1.0, tail, true), -log(tail)));
            prop_assert!(close(gamma_quantile(1.0, tail, false), -libm::log1p(-tail)));
        }

        #[test]
        fn a_gamma_quantile_leaves_its_tail(exponent in -0.5..6.0_f64, tail in 0.001..0.5_f64, upper: bool) {
            let shape = libm::pow(10.0, exponent);
            let x = gamma_quantile(shape, tail, upper);
            let left = if upper { gamma_ur(shape, x) } else { gamma_lr(shape, x) };
            prop_assert!(fabs(left - tail) < 1e-7 * tail, "{shape} {x} {left}");
        }
    }
}
