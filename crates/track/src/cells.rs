//! Radio cells along a track: a hexagonal grid of base stations and the handovers between them.
//!
//! The strongest station serves, by log-distance path loss and log-normal shadowing that is correlated
//! over the way travelled (Gudmundson, "Correlation model for shadow fading in mobile radio systems",
//! Electronics Letters 27, 1991). A handover follows event A3 (3GPP TS 36.331, §5.5.4.4) with an offset
//! of `hysteresis`: another station must be stronger by more than that for the time to trigger.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use skybraid_units::{Decibels, Duration, Instant, Length, Seed, Stream};

use crate::position::Position;
use crate::track::Track;

/// How often a terminal measures.
pub const SAMPLE: Duration = Duration::from_millis(40);

/// Rings of cells about the nearest station that a terminal hears: 37 stations. With shadowing a station
/// further away would be the strongest now and then; it is left out.
const RINGS: i32 = 3;

/// No distance counts as shorter; in metres.
const CLOSEST: f64 = 1.0;

/// A hexagonal grid of base stations over a plane that touches the earth at the origin (distances and
/// directions from there are kept; 500 km away, lengths across are off by 0.1 %).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Place of one station; its altitude is that of all antennas.
    pub origin: Position,
    /// From each station to its six neighbours; above zero.
    pub spacing: Length,
    /// Exponent of path loss, 1 to 10: 2 in free space, 2.2 from above the roofs (3GPP TR 36.777, UMa-AV
    /// in line of sight), 3.76 in cities on the ground (3GPP TR 36.942).
    pub exponent: f64,
    /// Standard deviation of each station's shadowing; none makes the nearest station the strongest.
    pub shadowing: Decibels,
    /// Way travelled after which the correlation of shadowing has fallen to 1/e; above zero.
    pub decorrelation: Length,
    /// How much stronger another station must be.
    pub hysteresis: Decibels,
    /// For how long.
    pub time_to_trigger: Duration,
}

/// A station of the grid, in axial coordinates: `q` eastwards, `r` 60° to the left of that.
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
    /// When it is decided.
    pub at: Instant,
    /// The station left.
    pub from: Cell,
    /// The station that serves from then on.
    pub to: Cell,
    /// Straight distance to the new station, in metres.
    pub distance: f64,
}

/// Who serves a node along its track.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The serving station at the start of the run: the strongest.
    pub first: Cell,
    /// Its changes, in order of time.
    pub handovers: Vec<Handover>,
}

impl Service {
    /// The serving station from each instant on, the first being zero.
    pub fn serving(&self) -> Vec<(Instant, Cell)> {
        let first = core::iter::once((Instant::ZERO, self.first));
        first.chain(self.handovers.iter().map(|handover| (handover.at, handover.to))).collect()
    }
}

impl Grid {
    /// A grid with an exponent of 2.2, no shadowing (else correlated over 50 m), a hysteresis of 3 dB and
    /// a time to trigger of 160 ms.
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
    /// The value at fault, by its name, and what was expected.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let above_zero = |value: Length| (1.0..=1e7).contains(&value.as_metres());
        let not_below_zero = |value: Decibels| (0.0..=100.0).contains(&value.get());
        let length = "expected 1m to 10000km";
        let decibels = "expected 0dB to 100dB";
        for (name, fits, expected) in [
            ("spacing", above_zero(self.spacing), length),
            ("exponent", (1.0..=10.0).contains(&self.exponent), "expected 1 to 10"),
            ("shadowing", not_below_zero(self.shadowing), decibels),
            ("decorrelation", above_zero(self.decorrelation), length),
            ("hysteresis", not_below_zero(self.hysteresis), decibels),
        ] {
            if !fits {
                return Err((name, expected.to_string()));
            }
        }
        Ok(())
    }

    /// Where a position lies on the plane: metres to the east and to the north of the origin.
    fn plane(&self, position: Position) -> [f64; 2] {
        let bearing = self.origin.bearing(position).to_radians();
        let distance = self.origin.distance(position);
        [distance * libm::sin(bearing), distance * libm::cos(bearing)]
    }

    /// Where a station stands on that plane.
    fn station(&self, cell: Cell) -> [f64; 2] {
        let spacing = self.spacing.as_metres();
        let (q, r) = (f64::from(cell.q), f64::from(cell.r));
        [spacing * (q + r / 2.0), spacing * r * ROW]
    }

    /// Straight distance in metres from a position to a station.
    pub fn distance(&self, position: Position, cell: Cell) -> f64 {
        self.distance_on_plane(self.plane(position), position.altitude(), cell)
    }

    fn distance_on_plane(&self, [x, y]: [f64; 2], altitude: f64, cell: Cell) -> f64 {
        let [east, north] = self.station(cell);
        let level = libm::hypot(x - east, y - north);
        libm::hypot(level, altitude - self.origin.altitude())
    }

    /// The station next to a position.
    pub fn nearest(&self, position: Position) -> Cell {
        self.nearest_on_plane(self.plane(position))
    }

    fn nearest_on_plane(&self, [x, y]: [f64; 2]) -> Cell {
        let spacing = self.spacing.as_metres();
        let r = y / (spacing * ROW);
        let q = x / spacing - r / 2.0;
        // Of the three coordinates, which add up to zero, the one that rounding moves most follows from
        // the others.
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

    /// Who serves a node on `track` from the start of the run for `length`. Shadowing draws from streams
    /// `name.shadowing.CELL`. A grid that does not pass [`check`](Self::check) serves nobody well.
    pub fn serve(&self, track: &Track, length: Duration, seed: Seed, name: &str) -> Service {
        let mut radio = Radio::new(self, seed, name);
        let first_place = track.at(Duration::ZERO);
        let mut serving = radio.hear(first_place).strongest();
        let mut service = Service { first: serving, handovers: Vec::new() };
        let mut stronger_since: BTreeMap<Cell, Duration> = BTreeMap::new();
        let mut time = SAMPLE;
        while time < length {
            // Nothing changes any more once a node has come to rest.
            let rests = track.end().is_some_and(|end| time > end + SAMPLE);
            if rests && stronger_since.is_empty() {
                break;
            }
            let place = track.at(time);
            let heard = radio.hear(place);
            // One that is no longer heard has no signal to defend itself with.
            let bar = heard.signal(serving) + self.hysteresis.get();
            let mut candidates = BTreeMap::new();
            let mut best: Option<(f64, Cell)> = None;
            for &(cell, signal) in heard.0.iter().filter(|(_, signal)| *signal > bar) {
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

/// What a terminal hears: signals in dB, of which differences count.
struct Heard(Vec<(Cell, f64)>);

impl Heard {
    fn strongest(&self) -> Cell {
        let first = (Cell { q: 0, r: 0 }, f64::NEG_INFINITY);
        let stronger = |best: (Cell, f64), it: &(Cell, f64)| if it.1 > best.1 { *it } else { best };
        self.0.iter().fold(first, stronger).0
    }

    fn signal(&self, cell: Cell) -> f64 {
        let found = self.0.iter().find(|(heard, _)| *heard == cell);
        found.map_or(f64::NEG_INFINITY, |(_, signal)| *signal)
    }
}

/// A terminal under way.
struct Radio<'a> {
    grid: &'a Grid,
    seed: Seed,
    name: &'a str,
    travelled: f64,
    last: Option<Position>,
    shadows: BTreeMap<Cell, Shadow>,
}

/// The shadowing of one station, in standard deviations, where it was last heard.
struct Shadow {
    stream: Stream,
    value: f64,
    travelled: f64,
}

impl<'a> Radio<'a> {
    const fn new(grid: &'a Grid, seed: Seed, name: &'a str) -> Self {
        Self { grid, seed, name, travelled: 0.0, last: None, shadows: BTreeMap::new() }
    }

    fn hear(&mut self, place: Position) -> Heard {
        self.travelled += self.last.map_or(0.0, |last| last.distance(place));
        self.last = Some(place);
        let grid = self.grid;
        let plane = grid.plane(place);
        let nearest = grid.nearest_on_plane(plane);
        let mut heard = Vec::new();
        for q in -RINGS..=RINGS {
            for r in (-RINGS - q).max(-RINGS)..=(RINGS - q).min(RINGS) {
                let cell = Cell { q: nearest.q.saturating_add(q), r: nearest.r.saturating_add(r) };
                let distance = grid.distance_on_plane(plane, place.altitude(), cell);
                let loss = 10.0 * grid.exponent * libm::log10(distance.max(CLOSEST));
                heard.push((cell, self.shadow(cell) - loss));
            }
        }
        Heard(heard)
    }

    /// In dB. A first-order Gauss–Markov process is exact over gaps, so that a station needs no draws
    /// while it is not heard.
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
