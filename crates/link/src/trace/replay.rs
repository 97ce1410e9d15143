//! Where in a measurement a run is: at a stated place, at one drawn from the run's seed, or in blocks
//! drawn from it.
//!
//! Place and blocks depend on the seed and the measurement's clock alone: measurements that share a clock
//! are always replayed together.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Duration, Seed};

use crate::trace::{Opportunities, Series};

/// Places are drawn in whole milliseconds, so that opportunities and series agree.
const NANOS_PER_MS: i64 = 1_000_000;

/// Minimum length of a block.
const MIN_BLOCK: Duration = Duration::from_secs(1);

/// The place of a measurement at which a run begins, as a configuration gives it: `"random"`, or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time of the measurement.
    At(Duration),
    /// At a time drawn from the run's seed; the measurement is wrapped around its end.
    Random,
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Start;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`\"random\"`, or a time with a unit, for example \"12s\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Start, E> {
                match text {
                    "random" => Ok(Start::Random),
                    _ => Duration::from_text(text).map(Start::At).map_err(|_| {
                        let expected = "`random`, or a time with a unit, for example \"12s\"";
                        E::custom(format!("found `{text}`, expected {expected}"))
                    }),
                }
            }
        }
        from.deserialize_str(Visitor)
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

/// How a run samples a measurement: the keys next to `trace` or `opportunities`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Where the run begins in it; at its beginning unless said.
    pub start: Option<Start>,
    /// The name of the clock that it shares with other measurements; the file's unless said.
    pub together: Option<String>,
    /// Length of the blocks that the run is composed of, each drawn from the whole measurement.
    pub resample: Option<Duration>,
}

impl Sampling {
    /// Checks the keys against a measurement of this `length`.
    ///
    /// # Errors
    /// The key at fault, what was found and what was expected.
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

    /// The course of a run through a measurement whose clock has this name.
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
    /// From a time on that is drawn for the clock of this name.
    Random {
        /// The clock.
        clock: Arc<str>,
    },
    /// In blocks, each from a time on that is drawn for the clock of this name.
    Blocks {
        /// The clock.
        clock: Arc<str>,
        /// Length of a block.
        length: Duration,
    },
}

/// A measurement as runs replay it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay<T> {
    /// The measurement, shared by all who replay it.
    pub data: Arc<T>,
    /// How much of it counts: where it starts over, and below which places are drawn.
    pub length: Duration,
    /// A run's course through it.
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

/// Turns a run's time into a measurement's: by adding an offset that may change from block to block.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The measurement's time less the run's, in ns.
    pub offset: i64,
    /// When the block ends, in ns of the run's time.
    pub until: i64,
    blocks: Option<Blocks>,
}

#[derive(Clone, Debug)]
struct Blocks {
    seed: Seed,
    clock: Arc<str>,
    /// Length of a block, in ns; above zero.
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

    /// Moves to the block that holds `at`, in ns of the run's time. Returns whether it is another one.
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

/// A time from zero to below `length`, in ns, in whole milliseconds.
fn draw(seed: Seed, stream: &str, length: Duration) -> i64 {
    let bound = (length.as_nanos() / NANOS_PER_MS).max(1);
    seed.stream(stream).below(bound as u64) as i64 * NANOS_PER_MS
}
