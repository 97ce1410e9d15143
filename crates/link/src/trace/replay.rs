//! Position of a run in a measurement: fixed, drawn from the run's seed, or drawn for each of several blocks.
//!
//! Draws depend on the seed and the measurement's clock alone, so measurements that share a clock are replayed
//! together.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Duration, Seed, form};

use crate::trace::{Opportunities, Series};

/// Positions are drawn in whole milliseconds, so that opportunities and series agree.
const NANOS_PER_MS: i64 = 1_000_000;

/// Minimum length of a block.
const MIN_BLOCK: Duration = Duration::from_secs(1);

/// Position in a measurement at which a run begins, in a configuration: `"random"` or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// This time of the measurement.
    At(Duration),
    /// A time drawn from the run's seed; the measurement is wrapped around its end.
    Random,
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "`\"random\"`, or a time with a unit, for example \"12s\"";
        form::text(from, expected, |text| match text {
            "random" => Ok(Self::Random),
            _ => Duration::from_text(text).map(Self::At).map_err(|_| {
                let expected = "`random`, or a time with a unit, for example \"12s\"";
                format!("found `{text}`, expected {expected}")
            }),
        })
    }
}

impl Serialize for Start {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::At(time) => time.serialize(to),
            Self::Random => to.serialize_str("random"),
        }
    }
}

/// Sampling of a measurement by runs: the keys next to `trace` or `opportunities`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Position at which the run begins. Default: the beginning.
    pub start: Option<Start>,
    /// Name of the clock that the measurement shares with others. Default: that of the file.
    pub together: Option<String>,
    /// Length of the blocks of which the run is composed, each drawn from the whole measurement.
    pub resample: Option<Duration>,
}

impl Sampling {
    /// Checks the keys for a measurement of this `length`.
    ///
    /// # Errors
    /// Key at fault, with what was found and what was expected.
    pub fn check(&self, length: Duration) -> Result<(), (&'static str, String, String)> {
        let wrong =
            |key, found: Duration, expected: String| Err((key, found.to_string(), expected));
        match (self.start, self.resample) {
            (Some(Start::At(start)), Some(_)) => {
                let expected = "`resample` alone, whose blocks begin at random".to_string();
                wrong("start", start, expected)
            }
            (Some(Start::At(start)), None) if start >= length => {
                wrong("start", start, format!("a time below the length of {length}"))
            }
            (_, Some(block)) if block < MIN_BLOCK || block > length => wrong(
                "resample",
                block,
                format!("a time from {MIN_BLOCK} to the length of {length}"),
            ),
            (_, Some(block)) if block.as_nanos() % NANOS_PER_MS != 0 => {
                wrong("resample", block, "a time in whole milliseconds".to_string())
            }
            _ => Ok(()),
        }
    }

    /// Returns the course of a run through a measurement on this clock.
    pub(crate) fn course(&self, clock: &str) -> Course {
        match (self.start, self.resample) {
            (_, Some(length)) => Course::Blocks { clock: clock.into(), length },
            (Some(Start::Random), None) => Course::Random { clock: clock.into() },
            (Some(Start::At(start)), None) => Course::From(start),
            (None, None) => Course::From(Duration::ZERO),
        }
    }
}

/// The course of a run through a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// From this time of the measurement on.
    From(Duration),
    /// From a random time on.
    Random {
        /// Name of the clock, from which the time is drawn.
        clock: Arc<str>,
    },
    /// In blocks, each from a random time on.
    Blocks {
        /// Name of the clock, from which the times are drawn.
        clock: Arc<str>,
        /// Length of a block.
        length: Duration,
    },
}

/// A measurement with the course of runs through it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay<T> {
    /// Measurement, shared by all replays.
    pub data: Arc<T>,
    /// Length after which the measurement starts over, the upper bound of drawn positions.
    pub length: Duration,
    /// Course of a run through the measurement.
    pub course: Course,
}

impl<T> Replay<T> {
    /// Whether the course depends on the seed.
    pub const fn is_random(&self) -> bool {
        match self.course {
            Course::From(_) => false,
            Course::Random { .. } | Course::Blocks { .. } => true,
        }
    }
}

impl From<Arc<Series>> for Replay<Series> {
    fn from(data: Arc<Series>) -> Self {
        let length = data.end() - skybraid_units::Instant::ZERO;
        Self { data, length, course: Course::From(Duration::ZERO) }
    }
}

impl From<Arc<Opportunities>> for Replay<Opportunities> {
    fn from(data: Arc<Opportunities>) -> Self {
        let length = Duration::from_millis(data.period_ms());
        Self { data, length, course: Course::From(Duration::ZERO) }
    }
}

/// Conversion of a run's time into a measurement's time, by an offset that may change from block to block.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Time of the measurement minus time of the run, in ns.
    pub offset: i64,
    /// End of the block, in ns of the run's time.
    pub until: i64,
    blocks: Option<Blocks>,
}

#[derive(Clone, Debug)]
struct Blocks {
    seed: Seed,
    clock: Arc<str>,
    /// Length of a block in ns; above zero.
    length: i64,
    /// Length of the measurement.
    whole: Duration,
}

impl Place {
    pub fn new<T>(replay: &Replay<T>, seed: Seed) -> Self {
        let mut place = Self { offset: 0, until: i64::MAX, blocks: None };
        match &replay.course {
            Course::From(start) => place.offset = start.as_nanos(),
            Course::Random { clock } => {
                place.offset = draw(seed, &format!("trace.{clock}"), replay.length);
            }
            Course::Blocks { clock, length } => {
                let (clock, length) = (Arc::clone(clock), length.as_nanos().max(1));
                place.blocks = Some(Blocks { seed, clock, length, whole: replay.length });
                place.until = 0;
                place.move_to(0);
            }
        }
        place
    }

    /// Moves to the block that contains `at`, in ns of the run's time. Returns whether the block changed.
    pub fn move_to(&mut self, at: i64) -> bool {
        let Some(blocks) = self.blocks.as_ref().filter(|_| at >= self.until) else { return false };
        let number = at / blocks.length;
        let start = number.saturating_mul(blocks.length);
        let name = format!("trace.{}.block.{number}", blocks.clock);
        self.offset = draw(blocks.seed, &name, blocks.whole) - start;
        self.until = start.saturating_add(blocks.length);
        true
    }
}

/// Draws a time from zero to below `length`, in ns, a multiple of a millisecond.
fn draw(seed: Seed, stream: &str, length: Duration) -> i64 {
    let bound = (length.as_nanos() / NANOS_PER_MS).max(1);
    seed.stream(stream).below(bound as u64) as i64 * NANOS_PER_MS
}
