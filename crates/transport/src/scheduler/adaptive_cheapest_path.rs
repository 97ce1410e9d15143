//! ACPF: cheapest path first, with a smaller part of its window while its queue grows.

use skybraid_units::{Duration, Instant};

use super::cheapest_path::Preference;
use super::{Choice, Scheduler, Unit};
use crate::per_path::PerPath;
use crate::registry::Compat;
use crate::{PathView, algorithm};

algorithm! {
    name: "adaptive_cheapest_path",
    summary: "ACPF of MP-DCCP: cheapest path first, but while the round-trip time of a path \
              exceeds its minimum by a tenth (at least 5 ms), the usable part of its window \
              shrinks, down to 30 %, so that traffic spills before queues fill.",
    source: "Telekom MP-DCCP kernel, sched_acpf.c: the law that was meant",
    linux: "The law as implemented, in integers and with its fault of precedence: the window never \
            shrinks if the minimum round-trip time exceeds 5.05 ms. Spills like `cheapest_path` \
            with `compat = \"linux\"`.",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper",
            "the law as intended, or as implemented";
    },
    scheduler: |config| AdaptiveCheapestPath {
        compat: config.compat,
        parts: PerPath::new(None),
        last: Instant::ZERO,
        preference: Preference::new(config.compat),
    },
}

#[derive(Debug)]
struct AdaptiveCheapestPath {
    compat: Compat,
    /// Usable part of each path's window, indexed by path.
    parts: PerPath<Option<Part>>,
    /// Time of the last decision.
    last: Instant,
    preference: Preference,
}

/// Usable part of a path's window.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Thousandths of the window, 300 to 1000.
    thousandths: f64,
    /// Time of the last change, if that was not at the last decision.
    since: Option<Instant>,
    /// Smoothed and lowest round-trip time from which `change` was computed.
    measured: (Duration, Duration),
    /// See [`intended_change`].
    change: f64,
    /// True if the part stays as it is until the round-trip time changes.
    rests: bool,
}

const WHOLE: f64 = 1000.0;
const MIN: f64 = 300.0;
/// Accepted excess of the round-trip time: 10 %, or 5 ms.
const TARGET_PERCENT: u64 = 10;
const TARGET_MICROS: u64 = 5_000;

impl Part {
    /// Adapts the part to the round-trip time; the last decision was at `last`.
    #[inline]
    fn adapt(&mut self, now: Instant, last: Instant, compat: Compat, path: &PathView) {
        let (Some(rtt), Some(min)) = (path.srtt, path.min_rtt) else { return };
        if self.rests && self.measured == (rtt, min) {
            return;
        }
        match compat {
            Compat::Paper => self.adapt_as_intended(now, last, rtt, min),
            Compat::Linux => self.adapt_as_coded(now, rtt, min),
        }
    }

    fn adapt_as_intended(&mut self, now: Instant, last: Instant, rtt: Duration, min: Duration) {
        if self.measured != (rtt, min) {
            self.measured = (rtt, min);
            self.change = intended_change(micros(rtt), micros(min));
        }
        let elapsed = now.since(self.since.take().unwrap_or(last));
        let (part, change) = (self.thousandths, self.change);
        self.rests = (part >= WHOLE && change >= 0.0) || (part <= MIN && change <= 0.0);
        if !self.rests {
            let next = intended(part, change, micros(min), elapsed.as_millis_f64());
            self.thousandths = next.clamp(MIN, WHOLE);
        }
    }

    fn adapt_as_coded(&mut self, now: Instant, rtt: Duration, min: Duration) {
        let since = *self.since.get_or_insert(now);
        let millis = now.since(since).as_nanos().unsigned_abs() / 1_000_000;
        if millis == 0 {
            return;
        }
        self.since = Some(now);
        let target = TARGET_PERCENT.max(u64::from(target_as_coded(micros(min))));
        let next = coded(self.thousandths as u64, target, micros(rtt), micros(min), millis);
        self.thousandths = (next as f64).clamp(MIN, WHOLE);
    }

    fn has_room(&self, path: &PathView) -> bool {
        let segment = path.segment.get().max(1);
        let window = (path.window.get() / segment) as f64;
        let allowed = libm::ceil(window * self.thousandths / WHOLE).max(1.0) as u64;
        let ahead = path.in_flight + path.queued;
        path.has_room && ahead.get() < allowed.saturating_mul(segment)
    }
}

/// Whole microseconds, at least one.
fn micros(span: Duration) -> u64 {
    (span.as_nanos() / 1000).max(1).unsigned_abs()
}

/// Returns the intended change in percent, positive for growth. Round-trip times are in microseconds.
fn intended_change(rtt: u64, min: u64) -> f64 {
    let (rtt, min) = (rtt as f64, min as f64);
    let excess = (100.0 * rtt / min - 100.0).max(0.0);
    let target = (TARGET_PERCENT as f64).max(100.0 * TARGET_MICROS as f64 / min);
    if excess < target { target - excess } else { -(excess - target) * 100.0 / (100.0 + excess) }
}

/// Returns the part after `millis` of a `change` by the intended law. `min` is the lowest round-trip time in
/// microseconds.
fn intended(part: f64, change: f64, min: u64, millis: f64) -> f64 {
    part + change * part * 10.0 / min as f64 * millis
}

/// Returns the part after `millis` as coded in the kernel, in integers.
fn coded(part: u64, target: u64, rtt: u64, min: u64, millis: u64) -> u64 {
    let excess = (rtt.saturating_mul(100) / min).saturating_sub(100);
    let scaled = |percent: u64| {
        (percent.saturating_mul(part).saturating_mul(10) / min).saturating_mul(millis)
    };
    if excess < target {
        part.saturating_add(scaled(target - excess))
    } else {
        let percent = (excess - target).saturating_mul(100) / excess.saturating_add(100);
        part.saturating_sub(scaled(percent))
    }
}

/// `(rtt_min + 500 000) / rtt_min − 100` in 32 bits, where `500 000 / rtt_min` was meant.
fn target_as_coded(min: u64) -> u32 {
    ((min.saturating_add(100 * TARGET_MICROS) / min) as u32).wrapping_sub(100)
}

impl Scheduler for AdaptiveCheapestPath {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let measured = (Duration::ZERO, Duration::ZERO);
        let initial =
            Part { thousandths: WHOLE, since: Some(now), measured, change: 0.0, rests: false };
        let Self { compat, parts, last, preference } = self;
        for path in paths {
            parts[path.id].get_or_insert(initial).adapt(now, *last, *compat, path);
        }
        *last = now;
        let has_room =
            |path: &PathView| parts[path.id].as_ref().is_some_and(|part| part.has_room(path));
        preference.choose(unit, paths, has_room)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reason;
    use super::super::testing::{UNIT, paths};
    use super::*;
    use crate::{PathId, PathSet};
    use skybraid_units::Bytes;

    // Source: the vectors of the algorithm reference, §7.2. In real numbers the decrement is 25 ·
    // 100 / 150 · 1000 · 10 / 20 000 = 8.33; with each division rounded down it is 8.
    #[test]
    fn a_standing_queue_takes_8_thousandths_in_a_millisecond() {
        assert_eq!(coded(1000, 25, 30_000, 20_000, 1), 992);
        let part = intended(1000.0, intended_change(30_000, 20_000), 20_000, 1.0);
        assert!((part - (1000.0 - 25.0 / 3.0)).abs() < 1e-9, "{part}");
    }

    // A minimum round-trip time of 20 ms gives a target of 25 %, one of 100 ms gives 10 %.
    #[test]
    fn the_part_grows_below_the_target_and_shrinks_above() {
        for (min, at_target) in [(20_000, 25_000), (100_000, 110_000)] {
            let after = |rtt| intended(500.0, intended_change(rtt, min), min, 1.0);
            assert!((after(at_target) - 500.0).abs() < 1e-9);
            assert!(after(at_target - 100) > 500.0);
            assert!(after(at_target + 100) < 500.0);
        }
    }

    // Source: the algorithm reference, §7.2, on the fault of precedence.
    #[test]
    fn the_coded_target_is_absurd_beyond_5_ms() {
        assert_eq!(target_as_coded(4_000), 26);
        assert_eq!(target_as_coded(5_000), 1);
        assert_eq!(target_as_coded(20_000), 4_294_967_222);
    }

    /// Returns how many of ten segments are usable on a path of 20 ms whose round-trip time has
    /// been 60 ms for a second.
    fn used_after_a_second(compat: Compat) -> usize {
        let mut scheduler = Config { compat }.build();
        let mut one = paths(&[60]);
        one[0].min_rtt = Some(Duration::from_millis(20));
        for millis in 0..1000 {
            scheduler.choose(Instant::from_millis(millis), &UNIT, &one);
        }
        let sends = |in_flight: &u64| {
            one[0].in_flight = Bytes::new(in_flight * 1400);
            let answer = scheduler.choose(Instant::from_millis(1000), &UNIT, &one);
            matches!(answer, Choice::Send(..))
        };
        (0..10).filter(sends).count()
    }

    // Source: the algorithm reference, §7.2: floor 300 ‰; as coded the part stays at 1000 ‰.
    #[test]
    fn a_standing_queue_shrinks_the_window_unless_as_coded() {
        assert_eq!(used_after_a_second(Compat::Paper), 3);
        assert_eq!(used_after_a_second(Compat::Linux), 10);
    }

    #[test]
    fn traffic_spills_from_a_path_whose_queue_grows() {
        let mut scheduler = Config::default().build();
        let mut two = paths(&[60, 100]);
        two[0].min_rtt = Some(Duration::from_millis(20));
        two[1].cost = 2;
        two[0].in_flight = Bytes::new(5 * 1400);
        let mut on = |millis| scheduler.choose(Instant::from_millis(millis), &UNIT, &two);
        assert_eq!(on(0), Choice::Send(PathSet::only(PathId(0)), Reason::Cheapest));
        assert_eq!(on(500), Choice::Send(PathSet::only(PathId(1)), Reason::Cheapest));
    }
}
