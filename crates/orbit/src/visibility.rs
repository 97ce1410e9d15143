//! When a place sees a satellite above its mask.
//!
//! Times are whole milliseconds of the run. A satellite is looked at every second while it may be in
//! sight; while it is too far round the Earth, as long is skipped as it needs at least to come near.
//! Risings and settings are found to the millisecond by bisection, and passes that begin and end
//! between two looks by the turning point between them.

use alloc::vec::Vec;

use skybraid_track::{Position, Track};
use skybraid_units::{Angle, Duration};

use crate::epoch::Epoch;
use crate::satellite::Satellite;

/// Speed of light in m/s.
pub(crate) const LIGHT: f64 = 299_792_458.0;
/// How often a satellite in sight is looked at, in ms.
const LOOK: i64 = 1000;
/// How long a satellite that has come down is not looked at, in ms.
const DOWN: i64 = 60_000;
/// What a place moves at most about the Earth's centre, in rad/s: 1275 m/s at the ground.
const PLACE_RATE: f64 = 2e-4;
/// What the vertical differs at most from the line to the Earth's centre, in rad: 0.19° on WGS 84.
const VERTICAL: f64 = 0.0035;
/// What a place is at least and at most away from the Earth's centre, in m: from the pole's ground to
/// 100 km above the equator.
const PLACES: (f64, f64) = (6_344_000.0, 6_478_137.0);

/// From the first millisecond on, to before the second.
pub(crate) type Span = (i64, i64);

/// Time since the start of the run.
pub(crate) const fn since_start(millis: i64) -> Duration {
    Duration::from_millis(millis)
}

/// Where a place is, and which way is up there.
#[derive(Clone, Copy, Debug)]
struct Frame {
    origin: [f64; 3],
    up: [f64; 3],
}

impl Frame {
    fn of(place: Position) -> Self {
        let (sin_latitude, cos_latitude) = libm::sincos(place.latitude().to_radians());
        let (sin_longitude, cos_longitude) = libm::sincos(place.longitude().to_radians());
        let up = [cos_latitude * cos_longitude, cos_latitude * sin_longitude, sin_latitude];
        Self { origin: place.ecef(), up }
    }

    fn sight_of(&self, position: [f64; 3]) -> Sight {
        let Self { origin, up } = *self;
        let way = [position[0] - origin[0], position[1] - origin[1], position[2] - origin[2]];
        let range = libm::sqrt(dot(way, way));
        Sight { sine: dot(way, up) / range.max(1.0), range }
    }
}

/// A place, perhaps moving, with the elevation above which it sees satellites.
#[derive(Clone, Debug)]
pub(crate) struct Observer<'a> {
    track: &'a Track,
    fixed: Option<Frame>,
    start: Epoch,
    mask: f64,
    sine: f64,
}

/// A satellite as a place sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// Sine of the elevation.
    pub sine: f64,
    /// Distance in m.
    pub range: f64,
}

impl Sight {
    /// Elevation in degrees.
    pub fn elevation(&self) -> f64 {
        libm::asin(self.sine.clamp(-1.0, 1.0)).to_degrees()
    }
}

impl<'a> Observer<'a> {
    /// A place that sees what stands at least `mask` high. The run begins at `start`.
    pub fn new(track: &'a Track, mask: Angle, start: Epoch) -> Self {
        let fixed = track.is_fixed().then(|| Frame::of(track.at(Duration::ZERO)));
        let mask = mask.as_radians();
        Self { track, fixed, start, mask, sine: libm::sin(mask) }
    }

    fn frame(&self, millis: i64) -> Frame {
        self.fixed.unwrap_or_else(|| Frame::of(self.track.at(since_start(millis))))
    }

    /// The satellite as seen at this time; `None` once it has come down.
    pub fn sight(&self, satellite: &Satellite, millis: i64) -> Option<Sight> {
        let position = satellite.position(self.start + since_start(millis))?;
        Some(self.sight_of(position, millis))
    }

    /// A point in earth-fixed metres as seen at this time.
    pub fn sight_of(&self, position: [f64; 3], millis: i64) -> Sight {
        self.frame(millis).sight_of(position)
    }

    /// Whether what is seen so stands above the mask.
    pub fn sees(&self, sight: &Sight) -> bool {
        sight.sine >= self.sine
    }

    /// Looks at a satellite.
    fn look(&self, satellite: &Satellite, reach: &Reach, millis: i64) -> Look {
        let Some(position) = satellite.position(self.start + since_start(millis)) else {
            return Look { at: millis, above: -2.0, steady: DOWN };
        };
        let frame = self.frame(millis);
        let above = frame.sight_of(position).sine - self.sine;
        Look { at: millis, above, steady: reach.steady(position, frame.origin, above >= 0.0) }
    }

    /// The passes of a satellite over this place from the start of the run to before `end`.
    pub fn passes(&self, satellite: &Satellite, end: i64) -> Vec<Span> {
        let reach = Reach::new(self.mask, self.fixed.is_none(), satellite);
        let above = |at: i64| self.look(satellite, &reach, at).above;
        let mut changes = Vec::new();
        let mut now = self.look(satellite, &reach, 0);
        let mut visible = now.above >= 0.0;
        let begins_visible = visible;
        let mut before: Option<Look> = None;
        while now.at < end {
            let then = self.look(satellite, &reach, (now.at + now.steady).min(end));
            if (then.above >= 0.0) != visible {
                changes.push(crossing(now.at, then.at, |at| (above(at) >= 0.0) == visible));
                visible = !visible;
            } else if let Some(past) = before {
                // Three looks, the middle one the nearest to the mask: it may have been crossed twice.
                let sign = if visible { -1.0 } else { 1.0 };
                let turns = sign * now.above > sign * past.above
                    && sign * now.above >= sign * then.above
                    && then.at - past.at <= 2 * LOOK;
                if turns {
                    let peak = highest(past.at, then.at, |at| sign * above(at));
                    if (above(peak) >= 0.0) != visible {
                        let same = |at: i64| (above(at) >= 0.0) == visible;
                        changes.push(crossing(past.at, peak, same));
                        changes.push(crossing(peak, then.at, |at| !same(at)));
                    }
                }
            }
            before = (now.steady <= LOOK).then_some(now);
            now = then;
        }
        spans(begins_visible, &changes, end)
    }
}

/// A look at a satellite.
#[derive(Clone, Copy)]
struct Look {
    at: i64,
    /// By how much the sine of its elevation exceeds that of the mask.
    above: f64,
    /// For so long, in ms, it stays above or below; at least until the next look.
    steady: i64,
}

/// Passes from the times at which visibility changes.
fn spans(begins_visible: bool, changes: &[i64], end: i64) -> Vec<Span> {
    let start = begins_visible.then_some(0);
    let edges: Vec<i64> =
        start.into_iter().chain(changes.iter().copied()).chain(core::iter::once(end)).collect();
    let pairs = edges.chunks_exact(2).map(|pair| (pair[0], pair[1].min(end)));
    pairs.filter(|(from, to)| from < to).collect()
}

/// The first time in (`from`, `to`] at which `same` no longer holds; it holds at `from`, not at `to`.
pub(crate) fn crossing(from: i64, to: i64, same: impl Fn(i64) -> bool) -> i64 {
    let (mut from, mut to) = (from, to);
    while to - from > 1 {
        let middle = from + (to - from) / 2;
        if same(middle) { from = middle } else { to = middle }
    }
    to
}

/// Where a function with one peak between `from` and `to` is highest.
fn highest(from: i64, to: i64, of: impl Fn(i64) -> f64) -> i64 {
    let (mut from, mut to) = (from, to);
    while to - from > 1 {
        let middle = from + (to - from) / 2;
        if of(middle) < of(middle + 1) { from = middle + 1 } else { to = middle }
    }
    if of(from) >= of(to) { from } else { to }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// How far round the Earth a satellite may be to be seen, and how fast it comes nearer.
struct Reach {
    /// Beyond this angle at the Earth's centre it is never seen, in rad.
    never: f64,
    /// Within this one it is always seen.
    always: f64,
    /// Rad/s.
    rate: f64,
}

impl Reach {
    fn new(mask: f64, moves: bool, satellite: &Satellite) -> Self {
        let (near, far) = satellite.distances();
        let angle = |place: f64, elevation: f64, radius: f64| {
            libm::acos((place * libm::cos(elevation) / radius).min(1.0)) - elevation
        };
        Self {
            never: angle(PLACES.0, mask - VERTICAL, far),
            always: angle(PLACES.1, mask + VERTICAL, near),
            rate: satellite.fastest() + if moves { PLACE_RATE } else { 0.0 },
        }
    }

    /// For how many milliseconds it cannot come into sight, or cannot leave it; at least until the
    /// next look.
    fn steady(&self, satellite: [f64; 3], place: [f64; 3], visible: bool) -> i64 {
        let lengths = libm::sqrt(dot(satellite, satellite) * dot(place, place));
        let angle = libm::acos((dot(satellite, place) / lengths).clamp(-1.0, 1.0));
        let room = if visible { self.always - angle } else { angle - self.never };
        // Whole looks, so that looks fall on the same times for all satellites.
        let looks = (room / self.rate * 1000.0) as i64 / LOOK;
        looks.max(1) * LOOK
    }
}

/// The times that lie in both lists; both are in order.
pub(crate) fn both(a: &[Span], b: &[Span]) -> Vec<Span> {
    let mut found = Vec::new();
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(&&(from_a, to_a)), Some(&&(from_b, to_b))) = (left.peek(), right.peek()) {
        let (from, to) = (from_a.max(from_b), to_a.min(to_b));
        if from < to {
            found.push((from, to));
        }
        if to_a < to_b {
            left.next()
        } else {
            right.next()
        };
    }
    found
}

/// The times that lie in any of the spans, in order.
pub(crate) fn any(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut found: Vec<Span> = Vec::new();
    for (from, to) in spans {
        match found.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => found.push((from, to)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walker::Walker;
    use alloc::vec;

    fn place(latitude: f64, longitude: f64) -> Track {
        Track::fixed(Position::new(latitude, longitude, 500.0).unwrap())
    }

    /// Looks every 10 ms, with the public geometry alone.
    fn brute(satellite: &Satellite, place: &Track, mask: f64, end: i64) -> Vec<Span> {
        let visible = |at: i64| {
            let position = satellite.position(Epoch::J2000 + since_start(at)).unwrap();
            place.at(since_start(at)).look(position).elevation >= mask
        };
        let mut found = Vec::new();
        let mut from = visible(0).then_some(0);
        for at in (10..=end).step_by(10) {
            match (from, visible(at.min(end - 1)) && at < end) {
                (None, true) => from = Some(at),
                (Some(start), false) => {
                    found.push((start, at));
                    from = None;
                }
                _ => {}
            }
        }
        found
    }

    #[test]
    fn passes_are_those_that_a_look_every_10_ms_finds() {
        let satellites = Walker::delta(550.0, 53.0, 6, 3, 1).satellites("s");
        let mut seen = 0;
        for latitude in [0.0, 47.0, 62.0] {
            let place = place(latitude, 7.4);
            let observer = Observer::new(&place, Angle::from_degrees(10.0), Epoch::J2000);
            for satellite in &satellites {
                let found = observer.passes(satellite, 3_000_000);
                let expected = brute(satellite, &place, 10.0, 3_000_000);
                assert_eq!(found.len(), expected.len(), "{} {found:?}", satellite.name());
                seen += found.len();
                for (found, expected) in found.iter().zip(&expected) {
                    // A look every 10 ms sees a change up to 10 ms late.
                    assert!((0..=10).contains(&(expected.0 - found.0)), "{found:?} {expected:?}");
                    assert!((0..=10).contains(&(expected.1 - found.1)), "{found:?} {expected:?}");
                }
            }
        }
        assert!(seen >= 10, "{seen}");
    }

    #[test]
    fn a_pass_shorter_than_the_time_between_looks_is_found() {
        // The mask is set just below a culmination, so that the pass lasts half a second.
        let satellite = Walker::delta(550.0, 53.0, 1, 1, 0).satellites("s").remove(0);
        let place = place(40.0, 10.0);
        let low = Observer::new(&place, Angle::from_degrees(5.0), Epoch::J2000);
        let passes = low.passes(&satellite, 86_400_000);
        let (from, to) = passes[0];
        let height = |at: i64| low.sight(&satellite, at).unwrap().elevation();
        let top = highest(from, to, height);
        for offset in [0, 333, 666] {
            let mask = Angle::from_degrees(height(top - 250));
            let place = place.clone();
            let start = Epoch::J2000 + since_start(offset);
            let high = Observer::new(&place, mask, start);
            let found = high.passes(&satellite, to + 60_000);
            let (rise, set) = found[0];
            assert!((rise + offset - (top - 250)).abs() <= 1, "{rise} {top}");
            assert!((450..=550).contains(&(set - rise)), "{rise} {set}");
        }
    }

    #[test]
    fn spans_are_joined_and_cut() {
        assert_eq!(any(vec![(5, 7), (0, 2), (2, 4), (6, 9)]), [(0, 4), (5, 9)]);
        assert_eq!(both(&[(0, 4), (5, 9)], &[(3, 6), (8, 20)]), [(3, 4), (5, 6), (8, 9)]);
        assert_eq!(both(&[(0, 4)], &[]), []);
    }
}
