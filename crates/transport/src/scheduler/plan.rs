//! Copies of a message before a deadline: the chance of a miss with them, and their price.

use super::odds::{BINS, Estimate, PathOdds};
use super::route::Route;

/// Parts of the time until the deadline in which decisions are taken.
pub const STEPS: usize = 16;
/// Whole [`BINS`] of a part.
const STEP: usize = BINS / STEPS;
/// Reciprocals of the numbers of ages that are looked at; a division takes several times as long.
const RECIPROCALS: [f64; STEPS + 2] = reciprocals();
/// Factor between two estimates of a chance that are not distinguished.
const SIMILAR: f64 = 3.0;

/// One copy of a message, and another one if that is overdue.
#[derive(Clone, Copy, Debug)]
struct Hedged {
    /// Chance of a miss.
    missed: f64,
    /// The same, and the price of the further copies.
    cost: f64,
}

/// The plan of the least cost, and the chances of a miss that forecasts are made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of copies at once.
    pub copies: usize,
    /// True if the second path carries the first copy.
    pub is_swapped: bool,
    /// Number of the paths besides the first that may carry copies.
    pub others: usize,
    /// Chance of a miss with so many copies at once: one, two, or one on each path.
    pub missed: [Estimate; 3],
}

impl Plan {
    /// The plan before the first message.
    pub const UNKNOWN: Self =
        Self { copies: 1, is_swapped: false, others: 0, missed: [Estimate::UNKNOWN; 3] };
}

/// Time and price for which a plan is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Whole [`BINS`] of the time that are left.
    pub left: usize,
    /// Price of a further copy, as a chance of a miss.
    pub price: f64,
}

impl Terms {
    /// Returns the plan of the least cost for a message over the best path, and up to two others from the better one
    /// on.
    pub fn plan<'a>(
        &self,
        odds: &PathOdds,
        mut first: &'a Route,
        others: [Option<&'a Route>; 2],
    ) -> Plan {
        // What a silent path holds up is in the way once it is back.
        let is_tried = |route: &&Route| !route.is_silent || first.is_troubled();
        let [second, third] = others.map(|route| route.filter(is_tried));
        let Some(mut second) = second else {
            return Plan { copies: 1, is_swapped: false, others: 0, missed: [first.late; 3] };
        };
        let mut single = self.hedged(odds, first, second);
        let mut is_swapped = false;
        if second.srtt < first.srtt {
            // The faster path leaves more time for a further copy.
            let faster = self.hedged(odds, second, first);
            if faster.cost <= single.cost * SIMILAR {
                core::mem::swap(&mut first, &mut second);
                (single, is_swapped) = (faster, true);
            }
        }
        let both = first.late.times(&second.late_together);
        let all = third.map_or(both, |third| both.times(&third.late_together));
        let two = both.mean + self.price;
        let three = if third.is_some() { all.mean + 2.0 * self.price } else { f64::INFINITY };
        let copies = if three < two.min(single.cost) {
            3
        } else if two < single.cost {
            2
        } else {
            1
        };
        let others = if third.is_some() { 2 } else { 1 };
        let missed = [first.hedged_by(second, single.missed), both, all];
        Plan { copies, is_swapped, others, missed }
    }

    /// Returns the plan of a copy on `first`, and one on `other` if that is not acknowledged by the
    /// best time for it.
    ///
    /// Trouble begins at any time, and is noticed once the first packet in it is overdue: all that are
    /// in flight by then are copied, each at an age from none to that of the first.
    fn hedged(&self, odds: &PathOdds, first: &Route, other: &Route) -> Hedged {
        let Self { left, price } = *self;
        let back = first.back_bins;
        let overdue = first.expected_bins + 1;
        let of_first = odds.chances(first.path, first.level);
        let copy_costs =
            |age: usize| price * of_first.longer_than(age.min(BINS).saturating_sub(back));
        let of_other = odds.chances(other.path, other.level);
        let together = other.late_together.mean;
        let too_late = |age: usize| match left.checked_sub(age) {
            Some(left) => of_other.misses_too(left, together),
            None => 1.0,
        };
        let end = left.max(overdue);
        let least = copy_costs(end);
        let late = first.late.mean;
        let mut best = Hedged { missed: late, cost: late };
        let (mut sum, mut ages, mut age) = (0.0, 0, 0);
        while age < overdue {
            sum += too_late(age);
            ages += 1;
            age += STEP;
        }
        while age <= end {
            sum += too_late(age);
            ages += 1;
            // The later the copy, the more often it is late, and the less often it is needed.
            let missed = late * sum * RECIPROCALS[ages];
            if missed + least >= best.cost {
                break;
            }
            let cost = missed + copy_costs(age);
            if cost < best.cost {
                best = Hedged { missed, cost };
            }
            age += STEP;
        }
        best
    }
}

/// Returns the reciprocal of each index from 1 on.
const fn reciprocals() -> [f64; STEPS + 2] {
    let mut of = [1.0; STEPS + 2];
    let mut number = 2;
    while number < of.len() {
        of[number] = 1.0 / number as f64;
        number += 1;
    }
    of
}
