//! Fixed maximum wait for a missing datagram.

use alloc::boxed::Box;

use skybraid_units::Duration;

use super::buffer::engine;
use super::{Engine, Reorderer};
use crate::PathId;

engine! {
    name: "fixed",
    summary: "Delivers in order, and waits for a missing datagram for at most a fixed time.",
    source: "RFC 9897 (MP_SEQ, MP_RTT); the reordering module of MP-DCCP for Linux",
    parameters: {
        timeout: Duration = Duration::from_millis(15), "time", "15ms",
            "maximum wait of a datagram that arrived early";
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self) -> Option<Reorderer> {
        Some(Reorderer::new(Box::new(Fixed { timeout: self.timeout }), self.rules()))
    }
}

#[derive(Debug)]
struct Fixed {
    timeout: Duration,
}

impl Engine for Fixed {
    fn max_wait(&self, _path: PathId) -> Duration {
        self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::testing::Bench;
    use super::*;

    fn bench() -> Bench {
        Bench::new(Config::default().build().unwrap())
    }

    // Source: the MP-DCCP golden tests of the algorithm reference, §9.9 (fixed, 15 ms).
    #[test]
    fn a_persistent_hole_is_given_up_after_15_ms() {
        let mut bench = bench();
        for ms in 0..15 {
            assert_eq!(bench.arrive(ms, 0, ms as u64 + 1), []);
        }
        assert_eq!(bench.wakeup_ms(), Some(15));
        assert_eq!(bench.wake(15), (1..=15).collect::<alloc::vec::Vec<_>>());
    }

    #[test]
    fn a_filled_hole_releases_the_following_datagrams_at_once() {
        let mut bench = bench();
        for ms in 0..9 {
            assert_eq!(bench.arrive(ms, 0, ms as u64 + 1), []);
        }
        assert_eq!(bench.arrive(9, 1, 0), (0..10).collect::<alloc::vec::Vec<_>>());
        assert_eq!(bench.wakeup_ms(), None);
    }
}
