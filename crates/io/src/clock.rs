//! Common clock of a run: the kernel's monotonic clock, which includes the time while the machine is suspended, counted
//! from the run's start.

use nix::time::{ClockId, clock_gettime};
use skybraid_units::{Duration, Instant};

/// Clock of the kernel. While the machine is suspended, `CLOCK_MONOTONIC` stops: what waited would seem new.
const KERNEL_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// Maximum distance of two clock readings that count as simultaneous, and maximum attempts.
const CLOSE_NS: i64 = 5_000;
const REPEATS: usize = 8;

/// Reads a kernel clock in nanoseconds; returns zero if it cannot be read, which does not happen on Linux.
fn read(clock: ClockId) -> i64 {
    clock_gettime(clock).map_or(0, |time| std::time::Duration::from(time).as_nanos() as i64)
}

/// The kernel's `CLOCK_BOOTTIME` with the run's start as zero. Threads and processes of one machine that share
/// a `Clock` share its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    start_ns: i64,
}

impl Clock {
    /// Creates a clock that starts now.
    pub fn starting_now() -> Self {
        Self::starting_in(Duration::ZERO)
    }

    /// Creates a clock that starts after `wait`, so that threads can get ready.
    pub fn starting_in(wait: Duration) -> Self {
        Self { start_ns: read(KERNEL_CLOCK) + wait.as_nanos() }
    }

    /// Returns the time of the run; negative before its start.
    pub fn now(self) -> Instant {
        Instant::from_nanos(read(KERNEL_CLOCK) - self.start_ns)
    }

    /// Converts `at` to nanoseconds of `CLOCK_BOOTTIME`, for kernel timers.
    pub fn as_boottime_ns(self, at: Instant) -> i64 {
        at.as_nanos().saturating_add(self.start_ns)
    }

    /// Returns the offset from nanoseconds of `CLOCK_REALTIME`, used for kernel packet timestamps, to the
    /// time of the run. It changes when the wall clock is set; read it again for every batch of packets.
    pub fn from_realtime_ns(self) -> i64 {
        // Reads one clock between two readings of the other; repeats if the process was interrupted in
        // between.
        let mut best = (i64::MAX, 0);
        for _ in 0..REPEATS {
            let before = read(KERNEL_CLOCK);
            let wall = read(ClockId::CLOCK_REALTIME);
            let width = read(KERNEL_CLOCK) - before;
            if width < best.0 {
                best = (width, before + width / 2 - wall);
            }
            if width <= CLOSE_NS {
                break;
            }
        }
        best.1 - self.start_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_starts_at_zero_and_agrees_with_kernel_stamps() {
        let clock = Clock::starting_in(Duration::from_secs(5));
        let before = clock.now();
        assert!(before < Instant::ZERO && before > Instant::from_millis(-6000));
        let stamped = read(ClockId::CLOCK_REALTIME) + clock.from_realtime_ns();
        let after = clock.now();
        let near = Instant::from_nanos(stamped);
        assert!(
            near >= before - Duration::from_millis(1) && near <= after + Duration::from_millis(1)
        );
        assert_eq!(clock.as_boottime_ns(Instant::ZERO), clock.start_ns);
    }
}
