//! Mahimahi packet-delivery traces, replayed by the rules of mahimahi.
//!
//! Each line is an integer: a time in milliseconds at which 1504 bytes may depart (an MTU and the 4-byte header
//! of a tunnel device, which is therefore added to every packet). The trace starts over after its last time. An
//! opportunity without a packet is unused; a packet that does not fit continues in the next opportunity, and
//! several packets may share one. A packet cannot use an opportunity in the millisecond of its arrival
//! (`link_queue.cc`: opportunities up to the present are used up before a packet is enqueued).

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant, Promised, Rate, Seed};

use crate::trace::replay::Place;
use crate::trace::{Replay, TraceError};

/// Bytes of one opportunity.
pub const OPPORTUNITY: u64 = 1504;

/// Header of a tunnel device, in bytes.
pub const TUNNEL_HEADER: u64 = 4;

const NANOS_PER_MS: i64 = 1_000_000;

/// Times of delivery opportunities, in whole milliseconds, which start over after the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    times_ms: Vec<i64>,
    period_ms: i64,
}

impl Opportunities {
    /// Creates opportunities at `times_ms`; several may share a time.
    ///
    /// # Errors
    /// There is no time, a time is negative or before its predecessor, or the last time is zero.
    pub fn new(times_ms: Vec<i64>) -> Result<Self, TraceError> {
        let mut previous = 0;
        for (index, time) in times_ms.iter().enumerate() {
            if *time < previous || *time > i64::MAX / NANOS_PER_MS {
                return Err(TraceError::Sample {
                    sample: index + 1,
                    found: time.to_string(),
                    expected: "a time not before the one above",
                });
            }
            previous = *time;
        }
        if times_ms.is_empty() {
            return Err(TraceError::Empty { expected: EXPECTED });
        }
        if previous == 0 {
            return Err(TraceError::Sample {
                sample: times_ms.len(),
                found: "0".to_string(),
                expected: "a last time above zero, since it is the period",
            });
        }
        Ok(Self { times_ms, period_ms: previous })
    }

    /// Times in ms, within one period.
    pub fn times_ms(&self) -> &[i64] {
        &self.times_ms
    }

    /// Period in ms.
    pub const fn period_ms(&self) -> i64 {
        self.period_ms
    }

    /// Mean rate if every opportunity is used.
    pub fn mean_rate(&self) -> Rate {
        let bits = self.times_ms.len() as u64 * OPPORTUNITY * 8;
        Rate::from_bps(bits * 1000 / self.period_ms as u64)
    }
}

/// Returns the position of the first of `times` that is not before `min`. Jumps are short next to a trace of a million
/// opportunities, so the search begins at the front, with steps that double.
fn first_from(times: &[i64], min: i64) -> usize {
    let mut end = 1;
    while times.get(end).is_some_and(|time| *time < min) {
        end *= 2;
    }
    let start = end / 2;
    let within = times.get(start..times.len().min(end));
    let within = within.promised("the last step began inside").unwrap_or_default();
    start + within.partition_point(|time| *time < min)
}

const EXPECTED: &str = "a time in whole milliseconds, for example `12`";

/// Parses a packet-delivery trace.
///
/// # Errors
/// A line is not an integer or is smaller than the one before, the text is empty, or the last time is zero.
pub fn read(text: &str) -> Result<Opportunities, TraceError> {
    let mut times_ms = Vec::new();
    let mut previous = 0;
    let mut last_line = 0;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            continue;
        }
        let wrong = |expected: &str| TraceError::Line {
            line: index + 1,
            found: trimmed.to_string(),
            expected: expected.to_string(),
        };
        let time: i64 = trimmed.parse().map_err(|_| wrong(EXPECTED))?;
        if !(0..=i64::MAX / NANOS_PER_MS).contains(&time) {
            return Err(wrong(EXPECTED));
        }
        if time < previous {
            return Err(wrong("a time not before the one above"));
        }
        previous = time;
        last_line = index + 1;
        times_ms.push(time);
    }
    if !times_ms.is_empty() && previous == 0 {
        return Err(TraceError::Line {
            line: last_line,
            found: "0".to_string(),
            expected: "a last time above zero, since it is the period".to_string(),
        });
    }
    Opportunities::new(times_ms)
}

/// Cursor over opportunities in the time of a run.
#[derive(Clone, Debug)]
pub(crate) struct OpportunityCursor {
    data: Arc<Opportunities>,
    place: Place,
    /// Time at which the trace starts over, in ms of the trace's time.
    period_ms: i64,
    /// Number of opportunities per period.
    count: usize,
    index: usize,
    /// Start of the current period, in ms of the trace's time.
    base_ms: i64,
    /// Unused bytes of the current opportunity.
    left: u64,
}

impl OpportunityCursor {
    pub fn new(replay: &Replay<Opportunities>, seed: Seed) -> Self {
        let data = Arc::clone(&replay.data);
        let period_ms = (replay.length.as_nanos() / NANOS_PER_MS).clamp(1, data.period_ms);
        let count = data.times_ms.partition_point(|time| *time <= period_ms);
        let place = Place::new(replay, seed);
        Self { data, place, period_ms, count, index: 0, base_ms: 0, left: OPPORTUNITY }
    }

    /// Time of the trace minus time of the run, in ms.
    const fn offset_ms(&self) -> i64 {
        self.place.offset / NANOS_PER_MS
    }

    /// Time of the current opportunity, in ms of the trace's time.
    fn time_ms(&self) -> i64 {
        let local = self.data.times_ms.get(self.index).copied().unwrap_or(self.period_ms);
        self.base_ms.saturating_add(local)
    }

    /// Returns the first opportunity with unused bytes that is not before `from` and is in a later millisecond than
    /// `ready`.
    pub fn next_usable(&mut self, from: Instant, ready: Instant) -> Instant {
        let first_whole = from.as_nanos().div_euclid(NANOS_PER_MS)
            + i64::from(from.as_nanos().rem_euclid(NANOS_PER_MS) != 0);
        let mut min_ms = first_whole.max(ready.as_nanos().div_euclid(NANOS_PER_MS) + 1);
        loop {
            self.enter_block(min_ms);
            self.seek(min_ms.saturating_add(self.offset_ms()));
            let found = self.time_ms().saturating_sub(self.offset_ms());
            let end = self.place.until / NANOS_PER_MS;
            if found < end || self.place.until == i64::MAX {
                return Instant::from_millis(found);
            }
            // The block ends before its next opportunity.
            min_ms = end;
        }
    }

    /// Moves to the block that contains `ms` of the run's time.
    fn enter_block(&mut self, ms: i64) {
        if self.place.move_to(ms.saturating_mul(NANOS_PER_MS)) {
            self.base_ms = 0;
            self.index = 0;
            self.left = OPPORTUNITY;
        }
    }

    /// Moves to the first opportunity that is not before `min_ms` of the trace's time.
    fn seek(&mut self, min_ms: i64) {
        if self.time_ms() >= min_ms {
            return;
        }
        // The base is a multiple of the period; it changes rarely, so most calls need no division.
        if min_ms > self.base_ms.saturating_add(self.period_ms) {
            self.base_ms = (min_ms - 1).div_euclid(self.period_ms).saturating_mul(self.period_ms);
            self.index = 0;
        }
        let local = min_ms - self.base_ms;
        let later = self.data.times_ms.get(self.index..self.count);
        let later = later.promised("an opportunity of the period").unwrap_or_default();
        self.index += first_from(later, local);
        self.left = OPPORTUNITY;
        self.start_over();
    }

    /// Moves to the next period after the last opportunity of a period.
    const fn start_over(&mut self) {
        if self.index >= self.count {
            self.index = 0;
            self.base_ms = self.base_ms.saturating_add(self.period_ms);
        }
    }

    /// Uses up to `bytes` bytes of the current opportunity and returns their number.
    pub fn take(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.left);
        self.left -= taken;
        if self.left == 0 {
            self.left = OPPORTUNITY;
            self.index += 1;
            self.start_over();
        }
        taken
    }

    /// Number of opportunities before `ms` of the trace's time.
    fn count_before(&self, ms: i64) -> i64 {
        let before = |local: i64| {
            // The last opportunity is at the end of the period.
            let all = local > self.period_ms;
            let times = self.data.times_ms.get(..self.count);
            let times = times.promised("the opportunities of a period").unwrap_or_default();
            let near = self.index.saturating_sub(1);
            let is_before = times.get(near).is_some_and(|time| *time < local);
            let start = if is_before { near } else { 0 };
            let later = times.get(start..).promised("a place in the period").unwrap_or_default();
            (if all { times.len() } else { start + first_from(later, local) }) as i64
        };
        let round = ms.max(0) / self.period_ms;
        let start = round * self.period_ms;
        let mut count = before(ms - start);
        if round > 0 {
            count += before(ms - start + self.period_ms);
            count += (round - 1) * self.count as i64;
        }
        count
    }

    /// Returns the rate of the opportunities in the window that contains `at`, of consecutive windows of this length
    /// from the start of the run.
    pub fn mean_rate(&mut self, at: Instant, window: Duration) -> Rate {
        let length_ms = (window.as_nanos() / NANOS_PER_MS).max(1);
        let at_ms = at.as_nanos() / NANOS_PER_MS;
        self.enter_block(at_ms);
        let first = at_ms.div_euclid(length_ms) * length_ms + self.offset_ms();
        self.seek(first);
        let count = self.count_before(first + length_ms) - self.count_before(first);
        Rate::from_bps(count.max(0) as u64 * OPPORTUNITY * 8 * 1000 / length_ms as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_rate_counts_1504_bytes_per_opportunity() {
        assert_eq!(read("1\n").unwrap().mean_rate(), Rate::from_bps(12_032_000));
        assert_eq!(read("5\n10\n10\n").unwrap().mean_rate(), Rate::from_bps(3_609_600));
    }

    #[test]
    fn an_error_names_the_line_and_what_was_expected() {
        let text = |bad| read(bad).unwrap_err().to_string();
        assert_eq!(text("5\n4\n"), "line 2: found `4`, expected a time not before the one above");
        assert_eq!(
            text("5\n5.5\n"),
            "line 2: found `5.5`, expected a time in whole milliseconds, for example `12`"
        );
        assert!(text("-1\n").starts_with("line 1"));
        assert!(text("0\n0\n").starts_with("line 2: found `0`, expected a last time above zero"));
        assert!(text("\n").contains("no samples"));
        assert!(text("NaN\n").starts_with("line 1"));
    }

    #[test]
    fn opportunities_are_counted_over_the_period() {
        let opportunities = Arc::new(read("5\n10\n10\n").unwrap());
        let cursor = OpportunityCursor::new(&opportunities.into(), Seed(1));
        for (ms, count) in [(0, 0), (5, 0), (6, 1), (10, 1), (11, 3), (16, 4), (21, 6)] {
            assert_eq!(cursor.count_before(ms), count, "before {ms}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_search_from_the_front_finds_the_first_time(
            mut times in proptest::collection::vec(0i64..60, 0..80),
            min in 0i64..70
        ) {
            times.sort_unstable();
            let expected = times.iter().position(|time| *time >= min).unwrap_or(times.len());
            proptest::prop_assert_eq!(first_from(&times, min), expected);
        }
    }
}
