//! Commands that both sides write all the time, numbered by when.

use skybraid_units::Instant;

use super::{AIRCRAFT, Field, GROUND, frame, read};

/// A MAVLink message of a kind in which every message counts.
pub const COMMAND_LONG: u32 = 76;

/// The time so many milliseconds after the start.
pub fn ms(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

/// Runs until `until_ms`, writing each 20 ms a command from either side numbered by its milliseconds.
pub fn talk(field: &mut Field, until_ms: i64, mut each: impl FnMut(&mut Field, i64)) {
    let start = field.now.as_nanos() / 1_000_000;
    for at in (start..until_ms).step_by(20) {
        field.run(ms(at));
        each(field, at);
        field.write(GROUND, 0, &frame(255, COMMAND_LONG, at as u32));
        field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, at as u32));
    }
    field.run(ms(until_ms));
}

/// The numbers of the commands that were delivered at a side, with the delays of each in milliseconds.
pub fn delays(field: &Field, side: usize) -> Vec<(u32, f64)> {
    let commands = field.handed[side].iter().filter(|(_, _, it)| read(it).0 == COMMAND_LONG);
    commands
        .map(|(at, _, frame)| {
            let number = read(frame).1;
            (number, at.since(ms(i64::from(number))).as_millis_f64())
        })
        .collect()
}
