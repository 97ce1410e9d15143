//! How bad the links of a run were, next to those of all flights of their families.
//!
//! Flights of a family differ: of ten, none may be among the bad ones that decide a share of 99.9 %, and nothing that
//! the ten carried says so. But links are functions of time and seed, so that probes over many drawn flights tell how
//! often some or all paths of a flow miss a deadline. A run is post-stratified by them (Holt and Smith, Journal of the
//! Royal Statistical Society A 142, 1979): its misses while all paths were bad, and while some were, count as often as
//! such times are among all flights.

use alloc::vec::Vec;

use libm::{floor, log};

use crate::CONFIDENCE;
use crate::share_interval::Events;

/// Drawn flights that stand for all of a family.
pub const FLIGHTS: u32 = 1_024;
/// Delays below this number of seconds are one bin.
const SHORTEST_S: f64 = 1e-3;
/// Ratio of the delays of two neighbouring bins.
const RATIO: f64 = 1.06;
/// Bins of delays, the last for everything above 100 s and for lost probes.
const BINS: usize = 200;

/// Parts of a time in which paths miss a deadline, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exposure {
    /// Some paths do, others do not.
    pub some: f64,
    /// All paths do.
    pub all: f64,
}

/// Delays of probes that were sent on all paths at once, by the best and by the worst path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeDelays {
    best: [u32; BINS],
    worst: [u32; BINS],
    probes: u32,
}

impl Default for ProbeDelays {
    fn default() -> Self {
        Self { best: [0; BINS], worst: [0; BINS], probes: 0 }
    }
}

impl ProbeDelays {
    /// Adds a probe.
    ///
    /// # Arguments
    /// * `delays_s`: of each path in s; infinite where the probe was lost.
    pub fn add(&mut self, delays_s: impl Iterator<Item = f64> + Clone) {
        let best = delays_s.clone().fold(f64::INFINITY, f64::min);
        let worst = delays_s.fold(0.0, f64::max);
        for (bins, delay_s) in [(&mut self.best, best), (&mut self.worst, worst)] {
            bins[bin(delay_s)] += 1;
        }
        self.probes += 1;
    }

    /// Returns how much of the time paths miss a deadline, to 6 % of the deadline; nothing without a probe.
    ///
    /// # Arguments
    /// * `deadline_s`: in s; infinite to count losses only.
    pub fn exposure(&self, deadline_s: f64) -> Exposure {
        let missed = |bins: &[u32; BINS]| {
            let late = bins.iter().skip(first_late(deadline_s)).map(|count| f64::from(*count));
            late.sum::<f64>() / f64::from(self.probes.max(1))
        };
        let (all, any) = (missed(&self.best), missed(&self.worst));
        Exposure { some: any - all, all }
    }
}

/// Exposure of many flights, for each deadline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    flights: u32,
    /// Of each bin, the sum over flights of the exposure to a deadline before it, of its square, and the largest.
    sums: Vec<[Exposure; 3]>,
}

impl Family {
    /// Adds a flight.
    pub fn add(&mut self, flight: &ProbeDelays) {
        self.sums.resize(BINS, [Exposure::default(); 3]);
        let probes = f64::from(flight.probes.max(1));
        let (mut all, mut any) = (0.0, 0.0);
        let bins = self.sums.iter_mut().zip(flight.best.iter().zip(&flight.worst)).rev();
        for ([sum, square, largest], (best, worst)) in bins {
            all += f64::from(*best) / probes;
            any += f64::from(*worst) / probes;
            let some = any - all;
            *sum = Exposure { some: sum.some + some, all: sum.all + all };
            *square = Exposure { some: square.some + some * some, all: square.all + all * all };
            *largest = Exposure { some: largest.some.max(some), all: largest.all.max(all) };
        }
        self.flights += 1;
    }

    /// Returns the mean exposure of the flights to a deadline, and how much more it may be at [`CONFIDENCE`]; nothing
    /// without a flight.
    ///
    /// # Arguments
    /// * `deadline_s`: in s; infinite to count losses only.
    pub fn exposure(&self, deadline_s: f64) -> [Exposure; 2] {
        if self.flights == 0 {
            return [Exposure::default(); 2];
        }
        let [sum, square, largest] = self.sums[first_late(deadline_s)];
        let flights = f64::from(self.flights);
        // Few flights have most of the bad times, so that the next one may be the worst.
        let more = |sum: f64, square: f64, largest: f64| {
            if largest == 0.0 {
                return 0.0;
            }
            let events = Events {
                variance: (square - sum * sum / flights).max(0.0),
                freedom: flights,
                largest,
                tail: (1.0 - CONFIDENCE) / 2.0,
            };
            (events.interval(sum).high - sum) / flights
        };
        [
            Exposure { some: sum.some / flights, all: sum.all / flights },
            Exposure {
                some: more(sum.some, square.some, largest.some),
                all: more(sum.all, square.all, largest.all),
            },
        ]
    }
}

/// Returns the first bin of what misses a deadline. Losses, which have the last bin, miss every one.
fn first_late(deadline_s: f64) -> usize {
    bin(deadline_s).min(BINS - 2) + 1
}

/// Returns the bin of a delay.
fn bin(delay_s: f64) -> usize {
    let bin = floor(log(delay_s.max(SHORTEST_S) / SHORTEST_S) / log(RATIO));
    (bin as usize).min(BINS - 1)
}

/// Returns the share of misses that all flights are expected to have, from the share that some of them had.
///
/// # Arguments
/// * `missing`: share of 0 to 1 that was missed.
/// * `bound`: share that may have been missed while all paths were bad, such as an end of the interval.
/// * `flights`: number of flights seen.
/// * `seen`: how bad their links were.
/// * `drawn`: the same of [`FLIGHTS`] others.
pub(crate) fn expected(
    missing: f64,
    bound: f64,
    flights: usize,
    seen: Exposure,
    drawn: Exposure,
) -> f64 {
    if drawn == seen {
        return missing;
    }
    let others = f64::from(FLIGHTS) / (f64::from(FLIGHTS) + flights as f64);
    let family = Exposure {
        some: seen.some + others * (drawn.some - seen.some),
        all: seen.all + others * (drawn.all - seen.all),
    };
    // Even while all paths miss the deadline something may arrive, such as what is sent again or recovered.
    let of_all = if bound < seen.all { bound / seen.all } else { 1.0 };
    let elsewhere = (missing - seen.all).max(0.0);
    let most = elsewhere + family.some;
    let scaled = if seen.some > 0.0 { elsewhere * family.some / seen.some } else { most };
    (family.all * of_all + scaled.min(most)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(delays_s: &[[f64; 2]]) -> ProbeDelays {
        let mut probes = ProbeDelays::default();
        for delays_s in delays_s {
            probes.add(delays_s.iter().copied());
        }
        probes
    }

    #[test]
    fn exposure_is_the_part_of_probes_that_miss_the_deadline() {
        let lost = f64::INFINITY;
        let seen = probes(&[[0.02, 0.04], [0.02, lost], [0.5, lost], [0.04, 0.4]]);
        assert_eq!(seen.exposure(0.1), Exposure { some: 0.5, all: 0.25 });
        assert_eq!(seen.exposure(1.0), Exposure { some: 0.5, all: 0.0 });
        assert_eq!(seen.exposure(f64::INFINITY), Exposure { some: 0.5, all: 0.0 });
        assert_eq!(ProbeDelays::default().exposure(0.1), Exposure::default());
    }

    #[test]
    fn a_familys_mean_may_be_more_by_a_flight_that_was_not_drawn() {
        let mut family = Family::default();
        for flight in 0..100 {
            let best = if flight == 0 { 0.5 } else { 0.02 };
            family.add(&probes(&[[best, 0.6], [0.02, 0.5]]));
        }
        let [mean, more] = family.exposure(0.1);
        assert!((mean.all - 0.005).abs() < 1e-12 && (mean.some - 0.995).abs() < 1e-12);
        // One event of weight 0.5 in 100 flights: by Poisson, up to 5.57 of them (Garwood 1936).
        assert!((mean.all + more.all - 0.005 * 5.572).abs() < 2e-4, "{more:?}");
        assert!(more.some < 0.05);
        assert_eq!(family.exposure(1.0), [Exposure::default(); 2]);
        assert_eq!(Family::default().exposure(0.1), [Exposure::default(); 2]);
    }

    #[test]
    fn misses_count_as_often_as_the_familys_bad_times() {
        let (seen, drawn) = (Exposure { some: 0.1, all: 0.01 }, Exposure { some: 0.2, all: 0.05 });
        // As many flights were seen as were drawn: the family has 0.15 and 0.03.
        let is = |missing, share: f64| {
            (expected(missing, missing, FLIGHTS as usize, seen, drawn) - share).abs() < 1e-12
        };
        // A tenth is missed of the time in which some paths are bad, and all where all are.
        assert!(is(0.02, 0.045));
        // Half of the messages arrived while all were bad.
        assert!(is(0.005, 0.015));
    }

    #[test]
    fn without_drawn_flights_the_share_is_that_of_the_run() {
        let seen = Exposure { some: 0.1, all: 0.01 };
        assert_eq!(expected(0.02, 0.02, 1, seen, seen), 0.02);
        let unknown = Exposure::default();
        assert_eq!(expected(0.02, 0.02, 1, unknown, unknown), 0.02);
    }

    #[test]
    fn what_was_not_seen_is_taken_as_missed() {
        let drawn = Exposure { some: 0.2, all: 0.05 };
        let expected = |missing| expected(missing, missing, 0, Exposure::default(), drawn);
        assert!((expected(0.0) - 0.25).abs() < 1e-12);
        assert!(expected(0.9) <= 1.0);
    }
}
