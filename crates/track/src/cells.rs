//! Radio cells along a track: a hexagonal grid of base stations and the handovers between them.
//!
//! The strongest station serves. Signals have log-distance path loss and log-normal shadowing that is
//! correlated over the distance travelled (Gudmundson, "Correlation model for shadow fading in mobile radio
//! systems", Electronics Letters 27, 1991). Handovers follow event A3 (3GPP TS 36.331, §5.5.4.4) with an offset
//! of `hysteresis`: another station must be stronger by more than the offset for the time to trigger.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use skybraid_units::{Decibels, Duration, Instant, Length, Seed, Stream};

use crate::position::Position;
use crate::track::Track;

/// Interval between measurements of a terminal.
pub const SAMPLE: Duration = Duration::from_millis(40);

/// Rings of cells around the nearest station that a terminal receives: 37 stations. A station farther away is
/// ignored, even if shadowing would make it the strongest.
const RINGS: i32 = 3;

/// Minimum distance for path loss, in metres.
const MIN_DISTANCE: f64 = 1.0;

/// A hexagonal grid of base stations on a plane tangent to the earth at the origin. The projection keeps
/// distances and directions from the origin (azimuthal equidistant); 500 km away, tangential lengths are off by
/// 0.1 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Position of one station; its altitude is that of all antennas.
    pub origin: Position,
    /// Distance between neighbouring stations; above zero.
    pub spacing: Length,
    /// Path loss exponent, 1 to 10: 2 in free space, 2.2 above the roofs (3GPP TR 36.777, UMa-AV in line of
    /// sight), 3.76 in cities on the ground (3GPP TR 36.942).
    pub exponent: f64,
    /// Standard deviation of each station's shadowing; without it, the nearest station is the strongest.
    pub shadowing: Decibels,
    /// Distance travelled after which the correlation of shadowing has decayed to 1/e; above zero.
    pub decorrelation: Length,
    /// Offset by which another station must be stronger.
    pub hysteresis: Decibels,
    /// Time for which it must be stronger.
    pub time_to_trigger: Duration,
}

/// A station of the grid, in axial coordinates: `q` to the east, `r` 60° to the left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Steps to the east.
    pub q: i32,
    /// Steps to the north-north-east.
    pub r: i32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.q, self.r)
    }
}

/// A change of the serving station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handover {
    /// Time of the decision.
    pub at: Instant,
    /// Old serving station.
    pub from: Cell,
    /// New serving station.
    pub to: Cell,
    /// Line-of-sight distance to the new station, in metres.
    pub distance: f64,
}

/// Serving stations of a node along its track.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Serving station at the start of the run: the strongest.
    pub first: Cell,
    /// Handovers, in order of time.
    pub handovers: Vec<Handover>,
}

impl Service {
    /// Serving stations with the start of their service; the first starts at zero.
    pub fn serving(&self) -> Vec<(Instant, Cell)> {
        let first = core::iter::once((Instant::ZERO, self.first));
        first.chain(self.handovers.iter().map(|handover| (handover.at, handover.to))).collect()
    }
}

impl Grid {
    /// Creates a grid with an exponent of 2.2, no shadowing (decorrelation 50 m), a hysteresis of 3 dB and a time to
    /// trigger of 160 ms.
    pub const fn new(origin: Position, spacing: Length) -> Self {
        Self {
            origin,
            spacing,
            exponent: 2.2,
            shadowing: Decibels::ZERO,
            decorrelation: Length::from_metres(50.0),
            hysteresis: Decibels::new(3.0),
            time_to_trigger: Duration::from_millis(160),
        }
    }

    /// Checks the ranges of all values.
    ///
    /// # Errors
    /// Name of the value at fault, with what was expected.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let is_length = |value: Length| (1.0..=1e7).contains(&value.as_metres());
        let is_decibels = |value: Decibels| (0.0..=100.0).contains(&value.get());
        let length = "expected 1m to 10000km";
        let decibels = "expected 0dB to 100dB";
        for (name, fits, expected) in [
            ("spacing", is_length(self.spacing), length),
            ("exponent", (1.0..=10.0).contains(&self.exponent), "expected 1 to 10"),
            ("shadowing", is_decibels(self.shadowing), decibels),
            ("decorrelation", is_length(self.decorrelation), length),
            ("hysteresis", is_decibels(self.hysteresis), decibels),
        ] {
            if !fits {
                return Err((name, expected.to_string()));
            }
        }
        Ok(())
    }

    /// Returns a position on the plane: metres to the east and to the north of the origin.
    fn plane(&self, position: Position) -> [f64; 2] {
        let bearing = self.origin.bearing(position).to_radians();
        let distance = self.origin.distance(position);
        [distance * libm::sin(bearing), distance * libm::cos(bearing)]
    }

    /// Returns the position of a station on the plane.
    fn station(&self, cell: Cell) -> [f64; 2] {
        let spacing = self.spacing.as_metres();
        let (q, r) = (f64::from(cell.q), f64::from(cell.r));
        [spacing * (q + r / 2.0), spacing * r * ROW]
    }

    /// Returns the line-of-sight distance from a position to a station, in metres.
    pub fn distance(&self, position: Position, cell: Cell) -> f64 {
        self.distance_on_plane(self.plane(position), position.altitude(), cell)
    }

    fn distance_on_plane(&self, [x, y]: [f64; 2], altitude: f64, cell: Cell) -> f64 {
        let [east, north] = self.station(cell);
        let level = libm::hypot(x - east, y - north);
        libm::hypot(level, altitude - self.origin.altitude())
    }

    /// Returns the station nearest to a position.
    pub fn nearest(&self, position: Position) -> Cell {
        self.nearest_on_plane(self.plane(position))
    }

    fn nearest_on_plane(&self, [x, y]: [f64; 2]) -> Cell {
        let spacing = self.spacing.as_metres();
        let r = y / (spacing * ROW);
        let q = x / spacing - r / 2.0;
        // The three cube coordinates add up to zero: the one with the largest rounding error is computed from the
        // other two.
        let s = -q - r;
        let [round_q, round_r, round_s] = [libm::round(q), libm::round(r), libm::round(s)];
        let [off_q, off_r, off_s] = [(q - round_q).abs(), (r - round_r).abs(), (s - round_s).abs()];
        let (q, r) = if off_q > off_r && off_q > off_s {
            (-round_r - round_s, round_r)
        } else if off_r > off_s {
            (round_q, -round_q - round_s)
        } else {
            (round_q, round_r)
        };
        Cell { q: q as i32, r: r as i32 }
    }

    /// Returns the serving stations of a node on `track` in a run of `length`. Shadowing draws from the streams
    /// `name.shadowing.CELL`. The grid must pass [`check`](Self::check).
    pub fn serve(&self, track: &Track, length: Duration, seed: Seed, name: &str) -> Service {
        let mut radio = Radio::new(self, seed, name);
        let first_place = track.at(Duration::ZERO);
        let mut serving = radio.measure(first_place).strongest();
        let mut service = Service { first: serving, handovers: Vec::new() };
        let mut stronger_since: BTreeMap<Cell, Duration> = BTreeMap::new();
        let mut time = SAMPLE;
        while time < length {
            // After a node has come to rest, signals do not change.
            let rests = track.end().is_some_and(|end| time > end + SAMPLE);
            if rests && stronger_since.is_empty() {
                break;
            }
            let place = track.at(time);
            let measured = radio.measure(place);
            // A serving station out of range has a signal of −∞, so any other station is stronger.
            let threshold = measured.signal(serving) + self.hysteresis.get();
            let mut candidates = BTreeMap::new();
            let mut best: Option<(f64, Cell)> = None;
            for &(cell, signal) in measured.0.iter().filter(|(_, signal)| *signal > threshold) {
                let since = stronger_since.get(&cell).copied().unwrap_or(time);
                candidates.insert(cell, since);
                let due = time - since >= self.time_to_trigger;
                if due && best.is_none_or(|(strongest, _)| signal > strongest) {
                    best = Some((signal, cell));
                }
            }
            stronger_since = candidates;
            if let Some((_, to)) = best {
                let at = Instant::ZERO + time;
                let distance = self.distance(place, to);
                service.handovers.push(Handover { at, from: serving, to, distance });
                serving = to;
                stronger_since.clear();
            }
            time += SAMPLE;
        }
        service
    }
}

/// Height of an equilateral triangle of side one.
const ROW: f64 = 0.866_025_403_784_438_6;

/// Measurement of the received stations: signals in dB, up to a common constant.
struct Measurement(Vec<(Cell, f64)>);

impl Measurement {
    fn strongest(&self) -> Cell {
        let first = (Cell { q: 0, r: 0 }, f64::NEG_INFINITY);
        let stronger =
            |best: (Cell, f64), next: &(Cell, f64)| if next.1 > best.1 { *next } else { best };
        self.0.iter().fold(first, stronger).0
    }

    fn signal(&self, cell: Cell) -> f64 {
        let found = self.0.iter().find(|(measured, _)| *measured == cell);
        found.map_or(f64::NEG_INFINITY, |(_, signal)| *signal)
    }
}

/// Radio of a moving terminal.
struct Radio<'a> {
    grid: &'a Grid,
    seed: Seed,
    name: &'a str,
    travelled: f64,
    last: Option<Position>,
    shadows: BTreeMap<Cell, Shadow>,
}

/// Shadowing of one station, in standard deviations, at its last measurement.
struct Shadow {
    stream: Stream,
    value: f64,
    travelled: f64,
}

impl<'a> Radio<'a> {
    const fn new(grid: &'a Grid, seed: Seed, name: &'a str) -> Self {
        Self { grid, seed, name, travelled: 0.0, last: None, shadows: BTreeMap::new() }
    }

    fn measure(&mut self, place: Position) -> Measurement {
        self.travelled += self.last.map_or(0.0, |last| last.distance(place));
        self.last = Some(place);
        let grid = self.grid;
        let plane = grid.plane(place);
        let nearest = grid.nearest_on_plane(plane);
        let mut signals = Vec::new();
        for q in -RINGS..=RINGS {
            for r in (-RINGS - q).max(-RINGS)..=(RINGS - q).min(RINGS) {
                let cell = Cell { q: nearest.q.saturating_add(q), r: nearest.r.saturating_add(r) };
                let distance = grid.distance_on_plane(plane, place.altitude(), cell);
                let loss = 10.0 * grid.exponent * libm::log10(distance.max(MIN_DISTANCE));
                signals.push((cell, self.shadow(cell) - loss));
            }
        }
        Measurement(signals)
    }

    /// Returns the shadowing of a station in dB, a first-order Gauss–Markov process. The process is exact over any
    /// distance, so a station needs no draws while it is out of range.
    fn shadow(&mut self, cell: Cell) -> f64 {
        let deviation = self.grid.shadowing.get();
        if deviation == 0.0 {
            return 0.0;
        }
        let (seed, name, travelled) = (self.seed, self.name, self.travelled);
        let shadow = self.shadows.entry(cell).or_insert_with(|| {
            let mut stream = seed.stream(&format!("{name}.shadowing.{cell}"));
            Shadow { value: stream.standard_normal(), stream, travelled }
        });
        let way = (travelled - shadow.travelled) / self.grid.decorrelation.as_metres();
        let kept = libm::exp(-way);
        let fresh = libm::sqrt(-libm::expm1(-2.0 * way));
        shadow.value = kept * shadow.value + fresh * shadow.stream.standard_normal();
        shadow.travelled = travelled;
        deviation * shadow.value
    }
}
