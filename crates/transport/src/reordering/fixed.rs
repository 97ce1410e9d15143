//! Fixed maximum wait for a missing datagram.

use alloc::boxed::Box;

use skybraid_units::Duration;

use super::{Engine, Reorderer, Rules};
use crate::registry::{About, Compat};
use crate::{PathId, parameters};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "fixed",
    summary: "Delivers in order, and waits for a missing datagram for at most a fixed time.",
    source: "RFC 9897 (MP_SEQ, MP_RTT); the reordering module of MP-DCCP for Linux",
    linux: super::buffer::LINUX,
    parameters: PARAMETERS,
};

parameters! {
    timeout: Duration = Duration::from_millis(15), "time", "15ms",
        "maximum wait of a datagram that arrived early";
    loss_inference: u8 = 0, "0 to 3", "0",
        "condition for giving up a missing datagram early: 0 never, 1 when every path has delivered a \
         later one, 2 when gaps in the paths' sequence numbers account for all missing datagrams (not \
         for udp), 3 either",
        "0 to 3" if *loss_inference <= 3;
    drop_late: bool = false, "true or false", "false",
        "drop datagrams that arrive after they were given up, instead of delivering them out of order";
    capacity: usize = 2048, "datagrams", "2048", "maximum number of waiting datagrams",
        "above zero" if *capacity > 0;
    compat: Compat = Compat::Paper, "paper or linux", "paper", "as intended, or as deployed";
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
