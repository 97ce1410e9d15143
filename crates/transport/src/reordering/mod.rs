//! Reordering: does the receiver of an unreliable flow put messages back in order, and how long
//! does it wait for a missing one?

use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use crate::Delivered;
use crate::registry::{About, Parameter};

/// How messages of an unreliable flow are put back in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReorderingConfig {
    /// Each message is handed over as it arrives.
    #[default]
    None,
    /// Messages are handed over in order; a missing one is waited for at most this long.
    Fixed(Duration),
}

impl ReorderingConfig {
    /// What there is to choose from.
    pub const ALL: &'static [About] = &[
        About {
            name: "none",
            summary: "Messages are handed over as they arrive.",
            source: "RFC 768",
            linux: "",
            parameters: &[],
        },
        About {
            name: "fixed",
            summary: "Messages are handed over in order; a missing one is waited for at most so long.",
            source: "algorithm reference §7",
            linux: "",
            parameters: &[Parameter {
                name: "fixed",
                unit: "time",
                default: "required",
                summary: "longest wait for a missing message, written `{ fixed = \"50ms\" }`",
            }],
        },
    ];
}

/// Messages that wait for an earlier one.
#[derive(Debug, Default)]
pub struct Reorderer {
    limit: Duration,
    next: u32,
    /// Ascending by message number.
    held: Vec<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    message: Delivered,
    expires: Instant,
}

impl Reorderer {
    /// A reorderer that waits at most `limit` for a missing message. The first message is number 0.
    pub fn new(limit: Duration) -> Self {
        Self { limit, next: 0, held: Vec::new() }
    }

    /// Takes a whole message, once. Hands over what is due.
    pub fn insert(
        &mut self,
        now: Instant,
        message: Delivered,
        release: &mut impl FnMut(Delivered),
    ) {
        if message.id < self.next {
            // Its turn has passed; late is better than never for an application that can tell.
            release(message);
            return;
        }
        let place = self.held.partition_point(|held| held.message.id < message.id);
        self.held.insert(place, Held { message, expires: now + self.limit });
        self.poll(now, release);
    }

    /// Hands over what is due at `now`.
    pub fn poll(&mut self, now: Instant, release: &mut impl FnMut(Delivered)) {
        let mut due = 0;
        for (index, held) in self.held.iter().enumerate() {
            // A message whose wait has ended takes along all that stand before it.
            if held.message.id == self.next || held.expires <= now {
                due = index + 1;
                self.next = held.message.id + 1;
            }
        }
        for held in self.held.drain(..due) {
            release(held.message);
        }
    }

    /// When the next wait ends.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.expires).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;

    fn handed_over(reorderer: &mut Reorderer, at_ms: i64, id: u32) -> Vec<u32> {
        let mut out = Vec::new();
        reorderer.insert(
            Instant::from_millis(at_ms),
            Delivered { id, path: PathId(0) },
            &mut |message| out.push(message.id),
        );
        out
    }

    // Source: the MP-DCCP golden tests of the algorithm reference, §9.9 (fixed, 15 ms).
    #[test]
    fn a_hole_that_fills_in_time_releases_all_and_one_that_does_not_is_given_up_at_the_limit() {
        let mut reorderer = Reorderer::new(Duration::from_millis(15));
        assert_eq!(handed_over(&mut reorderer, 0, 0), [0]);
        assert_eq!(handed_over(&mut reorderer, 1, 2), []);
        assert_eq!(handed_over(&mut reorderer, 9, 1), [1, 2]);
        assert_eq!(handed_over(&mut reorderer, 20, 4), []);
        assert_eq!(reorderer.next_wakeup(), Some(Instant::from_millis(35)));
        let mut out = Vec::new();
        reorderer.poll(Instant::from_millis(35), &mut |message| out.push(message.id));
        assert_eq!(out, [4]);
        assert_eq!(handed_over(&mut reorderer, 40, 3), [3]);
    }
}
