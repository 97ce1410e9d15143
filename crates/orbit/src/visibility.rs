//! Satellite passes over an observer.
//!
//! Times are whole milliseconds of the run. The elevation of a satellite is sampled every second while it may
//! change sides of the mask; otherwise sampling skips the minimum time until it may. Rise and set are found to
//! the millisecond by bisection. Passes between two samples are found by the extremum between them.

use alloc::vec::Vec;

use skybraid_track::{Position, Track};
use skybraid_units::{Angle, Duration};

use crate::epoch::Epoch;
use crate::satellite::Satellite;

/// Speed of light in m/s.
pub(crate) const LIGHT: f64 = 299_792_458.0;
/// Sampling interval in ms.
const LOOK: i64 = 1000;
/// Sampling interval of a decayed satellite, in ms.
const DECAYED: i64 = 60_000;
/// Maximum angular rate of an observer about the Earth's centre, in rad/s: 1275 m/s at the ground.
const PLACE_RATE: f64 = 2e-4;
/// Maximum angle between the vertical and the line to the Earth's centre, in rad: 0.19° on WGS 84.
const VERTICAL: f64 = 0.0035;
/// Minimum and maximum distance of an observer from the Earth's centre, in m: from the ground at the pole to
/// 100 km above the equator.
const PLACES: (f64, f64) = (6_344_000.0, 6_478_137.0);

/// Half-open span in ms.
pub(crate) type Span = (i64, i64);

/// Converts ms to the time since the start of the run.
pub(crate) const fn since_start(millis: i64) -> Duration {
    Duration::from_millis(millis)
}

/// Position of an observer in ECEF metres, with its vertical.
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
        let to = [position[0] - origin[0], position[1] - origin[1], position[2] - origin[2]];
        let range = libm::sqrt(dot(to, to));
        Sight { sine: dot(to, up) / range.max(1.0), range }
    }
}

/// A fixed or moving observer with its elevation mask.
#[derive(Clone, Debug)]
pub(crate) struct Observer<'a> {
    track: &'a Track,
    fixed: Option<Frame>,
    start: Epoch,
    mask: f64,
    sine: f64,
}

/// Elevation and range of a satellite, as seen by an observer.
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
    /// Creates an observer with the elevation mask `mask`. The run begins at `start`.
    pub fn new(track: &'a Track, mask: Angle, start: Epoch) -> Self {
        let fixed = track.is_fixed().then(|| Frame::of(track.at(Duration::ZERO)));
        let mask = mask.as_radians();
        Self { track, fixed, start, mask, sine: libm::sin(mask) }
    }

    fn frame(&self, millis: i64) -> Frame {
        self.fixed.unwrap_or_else(|| Frame::of(self.track.at(since_start(millis))))
    }

    /// Returns elevation and range of a satellite at this time; `None` if it has decayed.
    pub fn sight(&self, satellite: &Satellite, millis: i64) -> Option<Sight> {
        let position = satellite.position(self.start + since_start(millis))?;
        Some(self.sight_of(position, millis))
    }

    /// Returns elevation and range of a point in ECEF metres at this time.
    pub fn sight_of(&self, position: [f64; 3], millis: i64) -> Sight {
        self.frame(millis).sight_of(position)
    }

    /// Whether a satellite is at or above the mask.
    pub fn sees(&self, sight: &Sight) -> bool {
        sight.sine >= self.sine
    }

    /// Samples the elevation of a satellite.
    fn look(&self, satellite: &Satellite, reach: &Reach, millis: i64) -> Look {
        let Some(position) = satellite.position(self.start + since_start(millis)) else {
            return Look { at: millis, above: -2.0, steady: DECAYED };
        };
        let frame = self.frame(millis);
        let above = frame.sight_of(position).sine - self.sine;
        Look { at: millis, above, steady: reach.steady(position, frame.origin, above >= 0.0) }
    }

    /// Returns the passes of a satellite from the start of the run to before `end`.
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
                // Of three samples the middle one is nearest to the mask, which may have been crossed twice.
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

/// Sample of a satellite's elevation.
#[derive(Clone, Copy)]
struct Look {
    at: i64,
    /// Sine of its elevation minus the sine of the mask.
    above: f64,
    /// Time in ms for which it stays above or below the mask; at least [`LOOK`].
    steady: i64,
}

/// Returns the passes between the times at which visibility changes.
fn spans(begins_visible: bool, changes: &[i64], end: i64) -> Vec<Span> {
    let start = begins_visible.then_some(0);
    let edges: Vec<i64> =
        start.into_iter().chain(changes.iter().copied()).chain(core::iter::once(end)).collect();
    let pairs = edges.chunks_exact(2).map(|pair| (pair[0], pair[1].min(end)));
    pairs.filter(|(from, to)| from < to).collect()
}

/// Returns the first time in (`from`, `to`] at which `same` is false; it must be true at `from` and false at `to`.
pub(crate) fn crossing(from: i64, to: i64, same: impl Fn(i64) -> bool) -> i64 {
    let (mut from, mut to) = (from, to);
    while to - from > 1 {
        let middle = from + (to - from) / 2;
        if same(middle) { from = middle } else { to = middle }
    }
    to
}

/// Returns the time of the maximum of a unimodal function between `from` and `to`.
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

/// Bounds on the angle at the Earth's centre between observer and satellite.
struct Reach {
    /// Angle in rad beyond which the satellite is never visible.
    never: f64,
    /// Angle in rad within which it is always visible.
    always: f64,
    /// Maximum rate of the angle in rad/s.
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
            rate: satellite.max_angular_rate() + if moves { PLACE_RATE } else { 0.0 },
        }
    }

    /// Returns the time in ms for which visibility cannot change; at least [`LOOK`].
    fn steady(&self, satellite: [f64; 3], place: [f64; 3], visible: bool) -> i64 {
        let lengths = libm::sqrt(dot(satellite, satellite) * dot(place, place));
        let angle = libm::acos((dot(satellite, place) / lengths).clamp(-1.0, 1.0));
        let room = if visible { self.always - angle } else { angle - self.never };
        // A multiple of the sampling interval, so that all satellites are sampled at the same times.
        let looks = (room / self.rate * 1000.0) as i64 / LOOK;
        looks.max(1) * LOOK
    }
}

/// Returns the intersection of two ordered lists of spans.
pub(crate) fn intersection(a: &[Span], b: &[Span]) -> Vec<Span> {
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

/// Returns the union of spans, in order.
pub(crate) fn union(mut spans: Vec<Span>) -> Vec<Span> {
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

    /// Passes by a sample every 10 ms, with the public geometry alone.
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
    fn passes_agree_with_dense_sampling() {
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
                    // A sample every 10 ms is up to 10 ms late.
                    assert!((0..=10).contains(&(expected.0 - found.0)), "{found:?} {expected:?}");
                    assert!((0..=10).contains(&(expected.1 - found.1)), "{found:?} {expected:?}");
                }
            }
        }
        assert!(seen >= 10, "{seen}");
    }

    #[test]
    fn a_pass_shorter_than_the_sampling_interval_is_found() {
        // The mask is just below a culmination, so that the pass lasts half a second.
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
    fn spans_are_united_and_intersected() {
        assert_eq!(union(vec![(5, 7), (0, 2), (2, 4), (6, 9)]), [(0, 4), (5, 9)]);
        let common = intersection(&[(0, 4), (5, 9)], &[(3, 6), (8, 20)]);
        assert_eq!(common, [(3, 4), (5, 6), (8, 9)]);
        assert_eq!(intersection(&[(0, 4)], &[]), []);
    }
}
