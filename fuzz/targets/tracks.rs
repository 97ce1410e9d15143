//! Any text as a track. The first byte picks the reader and whether there is a speed. Where a track
//! leads must be a position at any time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skybraid_track::Position;
use skybraid_track::file::{Format, read};
use skybraid_units::{Duration, Speed};

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let speed = (first & 4 != 0).then(|| Speed::from_metres_per_second(50.0));
    let format = Format::ALL[usize::from(first % 4)];
    let Ok(track) = read(text, format, speed) else { return };
    let end = track.end().unwrap_or_default();
    for at in [Duration::from_nanos(i64::MIN), Duration::ZERO, end / 2, end, Duration::MAX] {
        let place = track.at(at);
        let again = Position::new(place.latitude(), place.longitude(), place.altitude());
        assert_eq!(again, Ok(place));
    }
});
