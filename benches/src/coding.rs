//! Speed of the sliding-window code: bytes of datagrams that a core combines into repair packets.

use std::hint::black_box;

use skybraid_transport::coding::coefficients;
use skybraid_units::field::add_product;

use crate::now;

/// Bytes of a datagram, datagrams that a repair packet covers, repair packets of a round, rounds.
const DATAGRAM: usize = 1400;
const COVERED: usize = 16;
const REPAIRS: u16 = 64;
const ROUNDS: usize = 60;
/// Rate that one core must reach.
const TARGET_GBIT_S: f64 = 1.0;

/// Prints the best rate of several rounds, if `coding` holds `wanted`. True if it is below its target.
pub fn report(wanted: &str) -> bool {
    if !"coding".contains(wanted) {
        return false;
    }
    let datagrams = vec![vec![0xa5_u8; DATAGRAM]; COVERED];
    let mut sum = vec![0_u8; DATAGRAM];
    let round = |sum: &mut Vec<u8>| {
        let start = now();
        for key in 1..=REPAIRS {
            for (datagram, coefficient) in datagrams.iter().zip(coefficients(key)) {
                add_product(black_box(sum), datagram, coefficient);
            }
        }
        start.elapsed().as_secs_f64()
    };
    let best = (0..ROUNDS).map(|_| round(&mut sum)).fold(f64::INFINITY, f64::min);
    let bits = 8.0 * (DATAGRAM * COVERED) as f64 * f64::from(REPAIRS);
    let rate = bits / best / 1e9;
    println!(
        "coding: {rate:.1} Gbit/s of datagrams in repair packets, at least {TARGET_GBIT_S:.0}"
    );
    rate < TARGET_GBIT_S
}
