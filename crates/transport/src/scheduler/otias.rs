//! OTIAS: out-of-order transmission for in-order arrival.

use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant};

use super::ranking::Ranking;
use super::{Choice, Reason, Scheduler, Unit, send_on};
use crate::registry::Compat;
use crate::{PathId, PathView, algorithm};

algorithm! {
    name: "otias",
    summary: "Sends each unit on the path where it is expected to arrive first, including the \
              round trips that it waits for room there: units queue for a path with a full window.",
    source: "Yang, Wang, Amer 2014 (OTIAS); Telekom MP-DCCP kernel, sched_otias.c",
    linux: "As in Telekom's MP-DCCP kernel: round trips are rounded down to integers. The kernel \
            bounds the queues by the sockets' `tx_qlen`; set `queue` to the same number.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "round trips of waiting as fractions, or rounded down";
        queue: Option<u64> = None, "segments", "(no bound)",
            "maximum number of waiting segments per path",
            "at least 1" if *queue != Some(0);
    },
    scheduler: |config| Otias {
        compat: config.compat,
        queue: config.queue,
        seen: Vec::new(),
        ranking: Ranking::new(),
    },
}

#[derive(Debug)]
struct Otias {
    compat: Compat,
    queue: Option<u64>,
    /// Values that decide each path's place in `ranking`.
    seen: Vec<Seen>,
    /// Order by rank and expected arrival.
    ranking: Ranking<(Option<usize>, Duration)>,
}

/// State of a path on which its expected arrival depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    usable: bool,
    backup: bool,
    srtt: Option<Duration>,
    ahead: Bytes,
    window: Bytes,
}

impl Seen {
    #[inline]
    fn of(path: &PathView) -> Self {
        let PathView { usable, backup, srtt, window, .. } = *path;
        Self { usable, backup, srtt, ahead: path.queued + path.in_flight, window }
    }

    /// Returns the expected time until a unit arrives, queueing included.
    fn arrival(&self, compat: Compat) -> Duration {
        let Some(srtt) = self.srtt else { return Duration::MAX };
        let excess = (self.ahead - self.window).get();
        let window = self.window.get().max(1);
        let rounds = match compat {
            Compat::Paper => excess as f64 / window as f64,
            Compat::Linux => (excess / window) as f64,
        };
        srtt.mul_f64(rounds + 0.5)
    }
}

impl Otias {
    /// Brings the order up to date.
    fn see(&mut self, paths: &[PathView]) {
        for (path, view) in (0..).map(PathId).zip(paths) {
            let seen = Seen::of(view);
            match self.seen.get_mut(path.index()) {
                Some(known) if *known == seen => continue,
                Some(known) => *known = seen,
                None => self.seen.push(seen),
            }
            let rank = seen.usable.then_some(usize::from(seen.backup));
            self.ranking.set(path, (rank, seen.arrival(self.compat)), rank);
        }
    }

    fn has_queue_space(&self, path: &PathView) -> bool {
        self.queue.is_none_or(|max| path.queued.get().div_ceil(path.segment.get().max(1)) < max)
    }
}

impl Scheduler for Otias {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        self.see(paths);
        let open = self.ranking.lowest_class(unit.carried_by);
        let mut views = self.ranking.of(open).filter_map(|path| paths.get(path.index()));
        let best = views.find(|view| self.has_queue_space(view));
        send_on(best, Reason::EarliestArrival, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, paths};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use skybraid_units::Bytes;

    /// Returns a path with 15 segments queued on a full window of 10, and a path with room. The
    /// tuples are windows, in flight and queued, in segments.
    fn queued_fast_and_free_slow() -> Vec<PathView> {
        let mut two = paths(&[20, 60]);
        for (path, (window, in_flight, queued)) in two.iter_mut().zip([(10, 10, 15), (20, 5, 3)]) {
            path.window = Bytes::new(window * 1400);
            path.in_flight = Bytes::new(in_flight * 1400);
            path.queued = Bytes::new(queued * 1400);
            path.has_room = path.queued < path.room();
        }
        two
    }

    // Source: the vectors of the algorithm reference, §5.7.
    #[test]
    fn one_and_a_half_queued_windows_take_two_round_trips() {
        let two = queued_fast_and_free_slow();
        let arrival = |compat, path: usize| Seen::of(&two[path]).arrival(compat);
        assert_eq!(arrival(Compat::Paper, 0), Duration::from_millis(40));
        assert_eq!(arrival(Compat::Paper, 1), Duration::from_millis(30));
        assert_eq!(arrival(Compat::Linux, 0), Duration::from_millis(30));
        assert_eq!(arrival(Compat::Linux, 1), Duration::from_millis(30));
    }

    // Source: the vectors of the algorithm reference, §5.7.
    #[test]
    fn the_paper_takes_the_free_path_where_the_kernel_sees_a_tie() {
        let two = queued_fast_and_free_slow();
        let build = |compat| Config { compat, ..Config::default() }.build();
        assert_eq!(chosen(&mut *build(Compat::Paper), &two), Some(vec![1]));
        assert_eq!(chosen(&mut *build(Compat::Linux), &two), Some(vec![0]));
    }

    #[test]
    fn a_full_path_is_used_if_waiting_there_is_shorter() {
        let mut two = queued_fast_and_free_slow();
        two[0].queued = Bytes::new(5 * 1400);
        assert!(!two[0].has_room);
        assert_eq!(chosen(&mut *Config::default().build(), &two), Some(vec![0]));
    }

    #[test]
    fn a_path_with_a_full_queue_is_not_used() {
        let mut two = queued_fast_and_free_slow();
        let mut scheduler = Config { queue: Some(15), compat: Compat::Linux }.build();
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
        two[1].queued = Bytes::new(15 * 1400);
        assert_eq!(chosen(&mut *scheduler, &two), None);
    }
}
