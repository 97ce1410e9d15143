//! Time series, and the cursor that reads one in the time of a run.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant, Promised, Seed};

use crate::trace::replay::Place;
use crate::trace::{Replay, TraceError};

/// A step-wise function of time: `values[i]` holds from `times[i]` until the next time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    times: Vec<Instant>,
    values: Vec<f64>,
    end: Instant,
    repeat: bool,
}

impl Series {
    /// Creates a series of `values` (bit/s, ns or ratio), each from its time on. After `end` it starts over if
    /// `repeat` is set; otherwise the last value stays. A delay of infinity is a gap.
    ///
    /// # Errors
    /// There is no sample, the numbers of times and values differ, the first time is not zero, times do not increase, a
    /// value is negative or NaN, or `end` is not after the last time.
    pub fn new(
        times: Vec<Instant>,
        values: Vec<f64>,
        end: Instant,
        repeat: bool,
    ) -> Result<Self, TraceError> {
        let wrong = |index: usize, found: String, expected| {
            Err(TraceError::Sample { sample: index + 1, found, expected })
        };
        if times.is_empty() {
            return Err(TraceError::Empty { expected: "at least one sample" });
        }
        if times.len() != values.len() {
            let found = format!("{} times and {} values", times.len(), values.len());
            return wrong(times.len().min(values.len()), found, "as many values as times");
        }
        let mut previous = None;
        for (index, (time, value)) in times.iter().zip(&values).enumerate() {
            match previous {
                None if *time != Instant::ZERO => {
                    return wrong(index, time.to_string(), "the first time to be zero");
                }
                Some(earlier) if *time <= earlier => {
                    return wrong(index, time.to_string(), "a time later than the one before");
                }
                _ => previous = Some(*time),
            }
            if value.is_nan() || *value < 0.0 {
                return wrong(index, value.to_string(), "a number, zero or more");
            }
        }
        if previous.is_some_and(|last| end <= last) {
            return wrong(times.len() - 1, end.to_string(), "an end later than the last time");
        }
        Ok(Self { times, values, end, repeat })
    }

    /// Creates a series from samples (time, value). The last sample lasts as long as the one before it.
    ///
    /// # Errors
    /// As for [`Series::new`].
    pub fn from_samples(samples: &[(Instant, f64)], repeat: bool) -> Result<Self, TraceError> {
        let times: Vec<Instant> = samples.iter().map(|(time, _)| *time).collect();
        let last_step = match times.as_slice() {
            [.., earlier, last] => *last - *earlier,
            _ => Duration::from_secs(1),
        };
        let end = times.last().copied().unwrap_or_default() + last_step;
        Self::new(times, samples.iter().map(|(_, value)| *value).collect(), end, repeat)
    }

    /// Start of each value; strictly increasing from zero.
    pub fn times(&self) -> &[Instant] {
        &self.times
    }

    /// Values in bit/s, ns or as ratio.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// End of the series.
    pub const fn end(&self) -> Instant {
        self.end
    }

    /// Whether the series starts over at its end.
    pub const fn repeats(&self) -> bool {
        self.repeat
    }
}

/// Cursor over a [`Series`] in the time of a run. Queries must be in order of time.
#[derive(Clone, Debug)]
pub(crate) struct SeriesCursor {
    series: Arc<Series>,
    place: Place,
    /// Time at which the series starts over, in ns of the series' time; `None` if its last value stays.
    period: Option<i64>,
    index: usize,
    /// Start of the current repetition, in ns of the series' time.
    base: i64,
    /// End of the current value, in ns of the run's time.
    until: i64,
    value: f64,
}

impl SeriesCursor {
    pub fn new(replay: &Replay<Series>, seed: Seed) -> Self {
        let series = Arc::clone(&replay.data);
        let period = replay.length.as_nanos().max(1);
        let mut cursor = Self {
            value: series.values.first().copied().promised("a first value").unwrap_or_default(),
            period: (series.repeat || replay.is_random()).then_some(period),
            place: Place::new(replay, seed),
            series,
            index: 0,
            base: 0,
            until: 0,
        };
        cursor.advance(0);
        cursor
    }

    /// Minimum of all values.
    pub fn min(&self) -> f64 {
        self.series.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Returns the value at `at`, with the instant until which it holds.
    pub fn at(&mut self, at: Instant) -> (f64, Instant) {
        if at.as_nanos() >= self.until {
            self.advance(at.as_nanos());
        }
        (self.value, Instant::from_nanos(self.until))
    }

    fn advance(&mut self, at: i64) {
        if self.place.move_to(at) {
            self.base = 0;
            self.index = 0;
        }
        let at = at.saturating_add(self.place.offset);
        if let Some(period) = self.period
            && at >= self.base.saturating_add(period)
        {
            self.base = (at / period).saturating_mul(period);
            self.index = 0;
        }
        let local = Instant::from_nanos(at.saturating_sub(self.base));
        let later = self.series.times.get(self.index..).promised("a sample").unwrap_or_default();
        // Most queries are in the next sample; far jumps use a binary search.
        let skipped = match later {
            [_, next, ..] if *next > local => 0,
            [_, _, after, ..] if *after > local => 1,
            _ => later.partition_point(|time| *time <= local).saturating_sub(1),
        };
        self.index += skipped;
        let value = self.series.values.get(self.index).copied().promised("a value per time");
        self.value = value.unwrap_or(self.value);
        self.until = self.end_of_step().min(self.place.until);
    }

    /// End of the current value in the series, in ns of the run's time.
    fn end_of_step(&self) -> i64 {
        let next = self.series.times.get(self.index + 1).map(|next| next.as_nanos());
        let end = match (next, self.period) {
            (Some(next), Some(period)) => next.min(period),
            (Some(end), None) | (None, Some(end)) => end,
            (None, None) => return i64::MAX,
        };
        self.base.saturating_add(end).saturating_sub(self.place.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_repeating_series_starts_over_at_its_end() {
        let ms = Instant::from_millis;
        let series =
            Series::new(vec![ms(0), ms(10), ms(30)], vec![1.0, 2.0, 3.0], ms(40), true).unwrap();
        let mut cursor = SeriesCursor::new(&Arc::new(series).into(), Seed(1));
        for (at, value, until) in [
            (0, 1.0, 10),
            (9, 1.0, 10),
            (10, 2.0, 30),
            (39, 3.0, 40),
            (40, 1.0, 50),
            (475, 3.0, 480),
        ] {
            assert_eq!(cursor.at(ms(at)), (value, ms(until)), "at {at} ms");
        }
    }

    #[test]
    fn the_last_value_of_a_series_that_ends_stays() {
        let ms = Instant::from_millis;
        let series = Series::from_samples(&[(ms(0), 1.0), (ms(10), 2.0)], false).unwrap();
        let mut cursor = SeriesCursor::new(&Arc::new(series).into(), Seed(1));
        assert_eq!(cursor.at(ms(1_000_000)), (2.0, Instant::FAR_FUTURE));
    }

    #[test]
    fn invalid_series_are_rejected() {
        let ms = Instant::from_millis;
        assert!(Series::from_samples(&[], true).is_err());
        assert!(Series::from_samples(&[(ms(1), 1.0)], true).is_err());
        assert!(Series::from_samples(&[(ms(0), 1.0), (ms(0), 1.0)], true).is_err());
        assert!(Series::from_samples(&[(ms(0), f64::NAN)], true).is_err());
        assert!(Series::from_samples(&[(ms(0), -1.0)], true).is_err());
        assert!(Series::new(vec![ms(0)], vec![1.0], ms(0), true).is_err());
        assert!(Series::new(vec![ms(0)], vec![], ms(1), true).is_err());
    }
}
