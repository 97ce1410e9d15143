//! Reorder buffer: datagrams that wait for an earlier one.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant, Promised};

use super::{Engine, RttKind};
use crate::PathId;
use crate::per_path::PerPath;
use crate::registry::Compat;
use crate::segment::Datagram;

pub(super) const LINUX: &str = "waits end at multiples of 50 ms only, and the adaptive engine \
                                takes the minimum latency as zero";

/// Declares an engine with its own parameters, then those of the reorder buffer, which `Config::rules` returns.
macro_rules! engine {
    (name: $name:literal, summary: $summary:literal, source: $source:literal, parameters: { $($own:tt)* }) => {
        $crate::algorithm! {
            name: $name,
            summary: $summary,
            source: $source,
            linux: $crate::reordering::buffer::LINUX,
            parameters: {
                $($own)*
                loss_inference: u8 = 0, "0 to 3", "0",
                    "condition for giving up a missing datagram early: 0 never, 1 when every path has delivered a \
                     later one, 2 when gaps in the paths' sequence numbers account for all missing datagrams (not \
                     for udp), 3 either",
                    "0 to 3" if *loss_inference <= 3;
                drop_late: bool = false, "true or false", "false",
                    "drop datagrams that arrive after they were given up, instead of delivering them out of order";
                capacity: usize = 2048, "datagrams", "2048", "maximum number of waiting datagrams",
                    "above zero" if *capacity > 0;
                compat: $crate::registry::Compat = $crate::registry::Compat::Paper, "paper or linux", "paper",
                    "as intended, or as deployed";
            }
        }

        impl Config {
            pub(super) fn rules(&self) -> $crate::reordering::Rules {
                let Self { loss_inference, drop_late, capacity, compat, .. } = *self;
                $crate::reordering::Rules { loss_inference, drop_late, capacity, compat }
            }
        }
    };
}
pub(super) use engine;

/// Timer interval of Telekom's kernel module.
const TICK: Duration = Duration::from_millis(50);

/// Rules common to all engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Condition for giving up a missing datagram before its time: 0 never; 1 every path has
    /// brought a later one; 2 the gaps in the paths' own packet numbers explain all missing
    /// datagrams; 3 either.
    pub loss_inference: u8,
    /// Drops datagrams that arrive after they were given up instead of delivering them out of
    /// order.
    pub drop_late: bool,
    /// Maximum datagrams held.
    pub capacity: usize,
    /// Reference behaviour.
    pub compat: Compat,
}

/// A received datagram and its path.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Path of the datagram.
    pub path: PathId,
    /// The datagram.
    pub datagram: Datagram,
    /// Time of arrival.
    pub at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    arrival: Arrival,
    expires: Instant,
}

/// State of a path.
#[derive(Clone, Copy, Debug, Default)]
struct PathState {
    /// Highest datagram number received on the path, plus 1; 0 before the first.
    datagram_end: u64,
    /// Next expected packet number of the path; `None` before the first packet.
    next_packet: Option<u64>,
    /// Packet numbers missed since the buffer was last empty.
    missed: u64,
}

/// Reorder buffer of a flow. The first datagram has number 0.
#[derive(Debug)]
pub struct Reorderer {
    engine: Box<dyn Engine>,
    rules: Rules,
    next: u64,
    /// Held datagrams in ascending order of their numbers.
    held: VecDeque<Held>,
    /// Instant at which the first wait ends.
    wake_at: Instant,
    paths: PerPath<PathState>,
}

impl Reorderer {
    /// Creates a reorder buffer with the waits of `engine`.
    pub fn new(engine: Box<dyn Engine>, rules: Rules) -> Self {
        Self {
            engine,
            rules,
            next: 0,
            held: VecDeque::new(),
            wake_at: Instant::FAR_FUTURE,
            paths: PerPath::new(PathState::default()),
        }
    }

    /// See [`Engine::on_latency`].
    pub fn on_latency(&mut self, path: PathId, latency: Duration) {
        self.engine.on_latency(path, latency);
    }

    /// See [`Engine::wants_rtt`].
    pub fn wants_rtt(&self) -> Option<RttKind> {
        self.engine.wants_rtt()
    }

    /// Records the arrival of packet `number` of the path, data or not.
    pub fn on_packet(&mut self, path: PathId, number: u64) {
        let state = &mut self.paths[path];
        let next = state.next_packet.unwrap_or(number);
        if number >= next {
            state.missed += number - next;
            state.next_packet = Some(number + 1);
        } else {
            state.missed = state.missed.saturating_sub(1);
        }
    }

    /// Records the arrival of datagram `sequence`, duplicate or not.
    pub fn on_datagram(&mut self, path: PathId, sequence: u64) {
        let state = &mut self.paths[path];
        state.datagram_end = state.datagram_end.max(sequence + 1);
    }

    /// Inserts a datagram that is not a duplicate, if any, and releases what is due.
    pub fn insert(
        &mut self,
        now: Instant,
        arrival: Option<Arrival>,
        release: &mut impl FnMut(Arrival),
    ) {
        if let Some(arrival) = arrival {
            let sequence = arrival.datagram.sequence;
            if sequence < self.next {
                // For an application that can detect it, late delivery is better than none.
                if !self.rules.drop_late {
                    release(arrival);
                }
                return;
            }
            let mut expires = now + self.engine.max_wait(arrival.path);
            if self.rules.compat == Compat::Linux {
                let ticks = expires.since(Instant::ZERO).as_nanos().max(0) as u64;
                let whole = ticks.div_ceil(TICK.as_nanos() as u64) as i64;
                expires = Instant::ZERO + TICK * whole;
            }
            let place = self.held.partition_point(|held| held.arrival.datagram.sequence < sequence);
            self.held.insert(place, Held { arrival, expires });
            self.wake_at = self.wake_at.min(expires);
        }
        self.poll(now, release);
    }

    /// Releases the datagrams that are due at `now`.
    pub fn poll(&mut self, now: Instant, release: &mut impl FnMut(Arrival)) {
        if self.wake_at <= now {
            // A datagram whose wait has ended releases all datagrams before it as well.
            let due = self.held.iter().rposition(|held| held.expires <= now);
            self.release_first(due.map_or(0, |index| index + 1), release);
        }
        self.release_first(self.held.len().saturating_sub(self.rules.capacity), release);
        loop {
            while let Some(held) = self.held.front()
                && held.arrival.datagram.sequence == self.next
            {
                self.release_first(1, release);
            }
            if self.held.is_empty() || !self.hole_is_lost() {
                break;
            }
            self.release_first(1, release);
        }
        let first = self.held.iter().map(|held| held.expires).min();
        self.wake_at = first.unwrap_or(Instant::FAR_FUTURE);
        if self.held.is_empty() {
            self.paths.iter_mut().for_each(|state| state.missed = 0);
        }
    }

    fn release_first(&mut self, count: usize, release: &mut impl FnMut(Arrival)) {
        for held in self.held.drain(..count) {
            self.next = held.arrival.datagram.sequence + 1;
            release(held.arrival);
        }
    }

    /// True if the datagrams missing before the first held one are inferred to be lost.
    fn hole_is_lost(&self) -> bool {
        let every_path_is_past_it = || {
            let mut used = self.paths.iter().filter(|state| state.datagram_end > 0).peekable();
            used.peek().is_some() && used.all(|state| state.datagram_end > self.next + 1)
        };
        let gaps_explain_all = || {
            let last = self.held.back().promised("a held datagram");
            let Some(last) = last else { return false };
            let span = last.arrival.datagram.sequence + 1 - self.next;
            let missing = span - self.held.len() as u64;
            self.paths.iter().map(|state| state.missed).sum::<u64>() == missing
        };
        match self.rules.loss_inference {
            0 => false,
            1 => every_path_is_past_it(),
            2 => gaps_explain_all(),
            _ => every_path_is_past_it() || gaps_explain_all(),
        }
    }

    /// Instant at which the next wait ends.
    pub const fn next_wakeup(&self) -> Instant {
        self.wake_at
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use alloc::vec::Vec;

    /// A reorder buffer whose methods return the sequence numbers released.
    pub struct Bench(Reorderer);

    impl Bench {
        pub fn new(reorderer: Reorderer) -> Self {
            Self(reorderer)
        }

        pub fn arrive(&mut self, at_ms: i64, path: u8, sequence: u64) -> Vec<u64> {
            let path = PathId(path);
            let datagram = Datagram { sequence, message: 0, len: 100, fragment: 0, fragments: 1 };
            let mut out = Vec::new();
            self.0.on_datagram(path, sequence);
            let arrival = Some(Arrival { path, datagram, at: Instant::from_millis(at_ms) });
            let release = &mut |arrival: Arrival| out.push(arrival.datagram.sequence);
            self.0.insert(Instant::from_millis(at_ms), arrival, release);
            out
        }

        pub fn on_packet(&mut self, path: u8, number: u64) {
            self.0.on_packet(PathId(path), number);
        }

        pub fn wake(&mut self, at_ms: i64) -> Vec<u64> {
            let mut out = Vec::new();
            let release = &mut |arrival: Arrival| out.push(arrival.datagram.sequence);
            self.0.poll(Instant::from_millis(at_ms), release);
            out
        }

        pub fn wakeup_ms(&self) -> Option<i64> {
            let at = self.0.next_wakeup();
            (at != Instant::FAR_FUTURE).then(|| at.as_nanos() / 1_000_000)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::fixed;
    use super::testing::Bench;
    use super::*;

    fn bench(config: fixed::Config) -> Bench {
        Bench::new(config.build().unwrap())
    }

    // Source: the MP-DCCP golden tests of the algorithm reference, §9.9.
    #[test]
    fn a_hole_is_given_up_once_every_path_is_past_it() {
        let mut bench = bench(fixed::Config { loss_inference: 1, ..fixed::Config::default() });
        assert_eq!(bench.arrive(0, 0, 0), [0]);
        assert_eq!(bench.arrive(1, 1, 1), [1]);
        assert_eq!(bench.arrive(2, 0, 3), []);
        assert_eq!(bench.arrive(3, 0, 4), []);
        assert_eq!(bench.arrive(5, 1, 5), [3, 4, 5]);
    }

    // Source: the algorithm reference, §7.3, loss detection 2.
    #[test]
    fn a_hole_is_given_up_once_the_paths_gaps_explain_it() {
        let mut bench = bench(fixed::Config { loss_inference: 2, ..fixed::Config::default() });
        let mut arrive = |path, number, sequence| {
            bench.on_packet(path, number);
            bench.arrive(0, path, sequence)
        };
        assert_eq!(arrive(0, 10, 0), [0]);
        assert_eq!(arrive(1, 50, 1), [1]);
        // Path 0 lost its packet 11 with datagram 2, but datagram 3 may still come on path 1.
        assert_eq!(arrive(0, 12, 4), []);
        assert_eq!(arrive(1, 51, 3), [3, 4]);
        // The paths have no gaps again: a datagram that is merely late is waited for.
        assert_eq!(arrive(0, 13, 6), []);
        assert_eq!(arrive(1, 52, 5), [5, 6]);
    }

    #[test]
    fn a_datagram_given_up_is_delivered_late_or_dropped() {
        for (drop_late, expected) in [(false, &[1_u64][..]), (true, &[][..])] {
            let mut bench = bench(fixed::Config { drop_late, ..fixed::Config::default() });
            bench.arrive(0, 0, 0);
            bench.arrive(1, 0, 2);
            assert_eq!(bench.wake(16), [2]);
            assert_eq!(bench.arrive(17, 1, 1), expected);
        }
    }

    #[test]
    fn a_full_buffer_releases_its_first_datagram() {
        let mut bench = bench(fixed::Config { capacity: 2, ..fixed::Config::default() });
        assert_eq!(bench.arrive(0, 0, 1), []);
        assert_eq!(bench.arrive(0, 0, 5), []);
        assert_eq!(bench.arrive(0, 0, 7), [1]);
    }

    #[test]
    fn the_kernel_module_checks_every_50_ms() {
        let compat = Compat::Linux;
        let mut bench = bench(fixed::Config { compat, ..fixed::Config::default() });
        assert_eq!(bench.arrive(40, 0, 1), []);
        assert_eq!(bench.wakeup_ms(), Some(100));
        assert_eq!(bench.arrive(60, 0, 2), []);
    }

    proptest::proptest! {
        #[test]
        fn every_datagram_is_released_once(
            order in proptest::collection::vec(0u64..60, 1..60),
            loss_inference in 0u8..4,
            capacity in 1usize..20,
        ) {
            let config = fixed::Config { loss_inference, capacity, ..fixed::Config::default() };
            let mut bench = bench(config);
            let (mut seen, mut out) = (alloc::collections::BTreeSet::new(), Vec::new());
            for (index, sequence) in order.iter().enumerate() {
                if seen.insert(*sequence) {
                    let path = (sequence % 3) as u8;
                    bench.on_packet(path, index as u64);
                    out.extend(bench.arrive(4 * index as i64, path, *sequence));
                }
            }
            out.extend(bench.wake(1_000_000));
            out.sort_unstable();
            proptest::prop_assert_eq!(out, seen.into_iter().collect::<Vec<_>>());
            proptest::prop_assert_eq!(bench.wakeup_ms(), None);
        }
    }
}
