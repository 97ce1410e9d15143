//! The scheduler of upstream Linux: the path whose queue empties first, in bursts.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Instant};

use super::{Choice, Reason, Scheduler, Unit, candidates, send_on, untried};
use crate::per_path::PerPath;
use crate::{PathId, PathView, algorithm};

algorithm! {
    name: "linux",
    summary: "The scheduler of MPTCP in upstream Linux: sends a burst on the path that would \
              transmit its queued and unacknowledged bytes first at its average pacing rate. Data \
              queues for a path with a full window until its send buffer is full.",
    source: "Linux net/mptcp/protocol.c; pacing rates tcp_update_pacing_rate",
    parameters: {
        /// The default is a maximal IP packet without its headers: 65536 − 20 − 40 − 40 − 8.
        burst: u64 = 65_428, "bytes", "65428",
            "bytes sent on a path before the queues are compared again",
            "at least 1" if *burst > 0;
        buffer: u64 = 2, "windows", "2",
            "maximum queued and unacknowledged data of a path; Linux sizes send buffers for two \
             windows",
            "at least 1" if *buffer > 0;
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        let config = Self { burst: self.burst.max(1), buffer: self.buffer.max(1) };
        Box::new(LinuxUpstream { config, current: None, averages: PerPath::new(0) })
    }
}

#[derive(Debug)]
struct LinuxUpstream {
    config: Config,
    /// Path of the current burst, and the bytes left of it.
    current: Option<(PathId, u64)>,
    /// Average pacing rate of each path in bytes per second; zero for a path not seen yet.
    averages: PerPath<u64>,
}

/// Returns the pacing rate in bytes per second. If the congestion control sets none, Linux's rule
/// applies: two windows per round trip up to half the slow start threshold, then 1.2 windows;
/// unlimited before the first round-trip time sample.
fn pacing(path: &PathView) -> u64 {
    if let Some(rate) = path.pacing {
        return rate.as_bps() / 8;
    }
    let Some(srtt) = path.srtt.filter(|srtt| srtt.is_positive()) else { return u64::MAX };
    let starting = path.window.get() < path.threshold.get() / 2;
    let percent = if starting { 200 } else { 120 };
    let per_second = u128::from(path.window.get()) * 1_000_000_000 * percent
        / 100
        / srtt.as_nanos().unsigned_abs() as u128;
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// Returns the mean of a rate weighted by `held` bytes and one weighted by the next `burst`.
fn averaged(average: u64, held: u64, pacing: u64, burst: u64) -> u64 {
    let weighted = u128::from(average) * u128::from(held) + u128::from(pacing) * u128::from(burst);
    let mean = weighted.checked_div(u128::from(held) + u128::from(burst));
    mean.and_then(|mean| u64::try_from(mean).ok()).unwrap_or(average)
}

/// Bytes queued and in flight.
fn held(path: &PathView) -> Bytes {
    path.queued + path.in_flight
}

impl LinuxUpstream {
    fn has_buffer(&self, path: &PathView) -> bool {
        held(path).get() < path.window.get().saturating_mul(self.config.buffer)
    }

    /// Returns the time to drain what the path holds, in units of 2⁻³² s.
    fn drain_time(&self, path: &PathView) -> u128 {
        (u128::from(held(path).get()) << 32) / u128::from(self.averages[path.id].max(1))
    }

    /// Initialises the average rate of each new path.
    fn add_paths(&mut self, paths: &[PathView]) {
        for path in paths {
            let average = &mut self.averages[path.id];
            if *average == 0 {
                *average = pacing(path);
            }
        }
    }
}

impl Scheduler for LinuxUpstream {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        self.add_paths(paths);
        let open = untried(unit, candidates(paths));
        if let Some((current, left @ 1..)) = self.current
            && unit.carried_by.is_empty()
            && let Some(path) = open.clone().find(|path| path.id == current)
            && self.has_buffer(path)
        {
            self.current = Some((current, left.saturating_sub(unit.bytes.get())));
            return send_on(Some(path), Reason::Burst, paths);
        }
        let Some(path) = open.min_by_key(|path| self.drain_time(path)) else {
            return Choice::wait(Reason::NoPath);
        };
        if !self.has_buffer(path) {
            return Choice::wait_for(path.id, Reason::WindowFull);
        }
        let burst = self.config.burst.min(unit.window_room.get());
        let average = &mut self.averages[path.id];
        *average = averaged(*average, held(path).get(), pacing(path), burst);
        self.current = Some((path.id, burst.saturating_sub(unit.bytes.get())));
        send_on(Some(path), Reason::ShortestQueue, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::testing::{UNIT, paths};
    use super::*;
    use crate::PathSet;
    use skybraid_units::{Duration, Rate};

    /// Returns two paths with 30 000 B at 1 MB/s and 5 000 B at 100 kB/s.
    fn two_queues() -> Vec<PathView> {
        let mut two = paths(&[20, 20]);
        for (path, (queued, bps)) in two.iter_mut().zip([(30_000, 8_000_000), (5_000, 800_000)]) {
            path.window = Bytes::new(100_000);
            path.queued = Bytes::new(queued);
            path.pacing = Some(Rate::from_bps(bps));
        }
        two
    }

    // Source: the vectors of the algorithm reference, §5.6: 30 ms against 50 ms.
    #[test]
    fn the_queue_that_empties_first_is_chosen_even_if_longer() {
        let mut scheduler = Config::default().build();
        let answer = scheduler.choose(Instant::ZERO, &UNIT, &two_queues());
        assert_eq!(answer, Choice::Send(PathSet::only(PathId(0)), Reason::ShortestQueue));
    }

    // Source: the vectors of the algorithm reference, §5.6.
    #[test]
    fn the_average_rate_is_weighted_by_bytes() {
        assert_eq!(averaged(1_000_000, 30_000, 2_000_000, 10_000), 1_250_000);
        assert_eq!(averaged(7, 0, 9, 0), 7);
    }

    // Source: the algorithm reference, §5.6. 46 segments of 1400 B are 64 400 B; one more begins
    // within the burst.
    #[test]
    fn a_burst_stays_on_its_path() {
        let mut scheduler = Config::default().build();
        let mut two = two_queues();
        let mut on_first = 0;
        loop {
            let answer = scheduler.choose(Instant::ZERO, &UNIT, &two);
            if answer == Choice::Send(PathSet::only(PathId(1)), Reason::ShortestQueue) {
                break;
            }
            let reason = if on_first == 0 { Reason::ShortestQueue } else { Reason::Burst };
            assert_eq!(answer, Choice::Send(PathSet::only(PathId(0)), reason));
            on_first += 1;
            two[0].queued += UNIT.bytes;
        }
        assert_eq!(on_first, 47);
    }

    #[test]
    fn a_burst_is_bounded_by_the_receive_window() {
        let mut scheduler = Config::default().build();
        let mut two = two_queues();
        let unit = Unit { window_room: Bytes::new(2800), ..UNIT };
        for reason in [Reason::ShortestQueue, Reason::Burst] {
            let answer = scheduler.choose(Instant::ZERO, &unit, &two);
            assert_eq!(answer, Choice::Send(PathSet::only(PathId(0)), reason));
        }
        two[0].queued = Bytes::new(60_000);
        let answer = scheduler.choose(Instant::ZERO, &unit, &two);
        assert_eq!(answer, Choice::Send(PathSet::only(PathId(1)), Reason::ShortestQueue));
    }

    // 14 kB per 20 ms is 700 kB/s. Source: Linux tcp_update_pacing_rate.
    #[test]
    fn a_window_is_paced_at_200_percent_in_slow_start_then_at_120() {
        let mut path = paths(&[20])[0];
        assert_eq!(pacing(&path), 840_000);
        path.threshold = Bytes::new(u64::MAX);
        assert_eq!(pacing(&path), 1_400_000);
        path.pacing = Some(Rate::from_bps(8));
        assert_eq!(pacing(&path), 1);
        path.pacing = None;
        path.srtt = Some(Duration::ZERO);
        assert_eq!(pacing(&path), u64::MAX);
    }

    #[test]
    fn it_waits_for_a_full_send_buffer() {
        let mut scheduler = Config::default().build();
        let mut two = two_queues();
        two[0].window = Bytes::new(15_000);
        two[0].has_room = false;
        let answer = scheduler.choose(Instant::ZERO, &UNIT, &two);
        assert_eq!(answer, Choice::wait_for(PathId(0), Reason::WindowFull));
    }
}
