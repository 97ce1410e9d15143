//! Fixed maximum wait for a missing datagram.

use alloc::boxed::Box;

use skybraid_units::Duration;

use super::{Engine, Reorderer, Rules};
use crate::PathId;
use crate::registry::{About, Check, Compat, InvalidParameter, Parameter};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "fixed",
    summary: "Delivers in order, and waits for a missing datagram for at most a fixed time.",
    source: "RFC 9897 (MP_SEQ, MP_RTT); the reordering module of MP-DCCP for Linux",
    linux: super::buffer::LINUX,
    parameters: &[
        Parameter {
            name: "timeout",
            unit: "time",
            default: "15ms",
            summary: "maximum wait of a datagram that arrived early",
        },
        super::buffer::LOSS_INFERENCE,
        super::buffer::DROP_LATE,
        super::buffer::CAPACITY,
        super::buffer::COMPAT,
    ],
};

/// Parameters of the engine.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Maximum wait of an early datagram.
    pub timeout: Duration,
    /// See [`Rules::loss_inference`].
    pub loss_inference: u8,
    /// See [`Rules::drop_late`].
    pub drop_late: bool,
    /// See [`Rules::capacity`].
    pub capacity: usize,
    /// Reference behaviour.
    pub compat: Compat,
}

impl Default for Config {
    fn default() -> Self {
        let rules = Rules::default();
        Self {
            timeout: Duration::from_millis(15),
            loss_inference: rules.loss_inference,
            drop_late: rules.drop_late,
            capacity: rules.capacity,
            compat: rules.compat,
        }
    }
}

impl Config {
    fn rules(&self) -> Rules {
        Rules {
            loss_inference: self.loss_inference,
            drop_late: self.drop_late,
            capacity: self.capacity,
            compat: self.compat,
        }
    }

    /// Builds a new instance.
    pub fn build(&self) -> Option<Reorderer> {
        Some(Reorderer::new(Box::new(Fixed { timeout: self.timeout }), self.rules()))
    }
}

impl Check for Config {
    fn check(&self) -> Result<(), InvalidParameter> {
        self.rules().check()
    }

    fn use_linux_behaviour(&mut self) {
        self.compat = Compat::Linux;
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
