//! Endless sequence of random spans of time.

use skybraid_units::{Duration, Instant, Stream};

use crate::along::Factor;
use crate::distribution::Distribution;
use crate::sampler::Sampler;

/// Minimum time between two spans.
const MIN_BETWEEN: Duration = Duration::from_millis(1);

/// Maximum number of redraws of an interval below the minimum, after which the minimum is used.
const MAX_REDRAWS: u32 = 64;

/// Spans whose starts follow one another at random intervals, in order of time. Both depend on time and seed alone.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    interval: Sampler,
    length: Sampler,
    at_least: Duration,
    /// Divisor of the intervals.
    rate: f64,
    /// Factor on the number of spans per time.
    factor: Factor,
    intervals: Stream,
    lengths: Stream,
    previous: Option<(Instant, Instant)>,
}

impl Timeline {
    /// Creates the sequence, with the random streams of intervals and lengths. Intervals below `at_least` are drawn
    /// again.
    pub fn new(
        interval: &Distribution,
        length: &Distribution,
        at_least: Duration,
        [intervals, lengths]: [Stream; 2],
    ) -> Self {
        let (interval, length) = (interval.sampler(), length.sampler());
        let factor = Factor::default();
        Self { interval, length, at_least, rate: 1.0, factor, intervals, lengths, previous: None }
    }

    /// Returns the sequence with intervals divided by `rate`, which is above zero.
    pub fn at_rate(self, rate: f64) -> Self {
        Self { rate, ..self }
    }

    /// Returns the sequence with intervals that end where the integral of `factor` reaches them.
    pub fn along(self, factor: Factor) -> Self {
        Self { factor, ..self }
    }

    /// Returns start and end of the next span. A span that would overlap the previous one starts 1 ms after its end,
    /// so service never stops for ever. The first interval is what remains of one at a random time, where the
    /// distribution has phases.
    pub fn next(&mut self) -> (Instant, Instant) {
        let first = self.previous.is_none();
        let mut draw = || match first {
            true => self.interval.remaining(&mut self.intervals),
            false => self.interval.draw(&mut self.intervals),
        };
        let mut interval = draw();
        for _ in 0..MAX_REDRAWS {
            if interval >= self.at_least {
                break;
            }
            interval = draw();
        }
        if self.rate != 1.0 {
            interval = interval.mul_f64(1.0 / self.rate);
        }
        let (last_start, last_end) = self.previous.unwrap_or_default();
        let start = self.factor.after(last_start, interval.max(self.at_least));
        let start = start.max(last_start + self.at_least).max(last_end + MIN_BETWEEN);
        let span = (start, start + self.length.draw(&mut self.lengths));
        self.previous = Some(span);
        span
    }
}
