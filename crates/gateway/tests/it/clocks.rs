//! Clocks of the two ends that cannot be compared as usual: crossed paths, a paused machine, fast crystals.

use crate::field::commands::{COMMAND_LONG, delays, ms, talk};
use crate::field::{AIRCRAFT, Fault, Field, GROUND, LEO, LTE, frame};
use skybraid_units::Duration;

const SLOW_PROBES: &str = "[health]\nprobe = \"250ms\"\ngive_up = \"1s\"";

/// The first path carries upwards alone, the second one downwards.
fn cross(field: &mut Field) {
    let silent = Fault { silent: true, ..Fault::default() };
    field.ways[0].faults[GROUND] = silent;
    field.ways[1].faults[AIRCRAFT] = silent;
}

/// Writes a command from either side each 500 ms until `until_ms`; returns how many.
fn talk_slowly(field: &mut Field, until_ms: i64) -> usize {
    let start = field.now.as_nanos() / 1_000_000;
    let times = (start..until_ms).step_by(500);
    for at in times.clone() {
        field.run(ms(at));
        field.write(GROUND, 0, &frame(255, COMMAND_LONG, at as u32));
        field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, at as u32));
    }
    field.run(ms(until_ms + 500));
    times.count()
}

#[test]
fn two_hours_of_crossed_paths_cost_no_command() {
    for drift_ppm in [-100, 100] {
        let mut field = Field::new(61, &[LTE(), LEO()], SLOW_PROBES);
        field.drift_ppm = drift_ppm;
        field.run(ms(2_000));
        cross(&mut field);
        field.run(ms(10_000));
        let written = talk_slowly(&mut field, 7_200_000);
        for side in [AIRCRAFT, GROUND] {
            let late = field.snapshot(side).classes[0].late;
            assert_eq!((delays(&field, side).len(), late), (written, 0), "{drift_ppm} ppm, {side}");
        }
    }
}

#[test]
fn a_paused_machine_takes_no_old_command_for_new() {
    for side in [AIRCRAFT, GROUND] {
        for pause in [1_500, 5_000, 60_000] {
            let mut field = Field::new(63, &[LTE(), LEO()], "");
            field.run(ms(1_000));
            talk(&mut field, 3_000, |_, _| {});
            let end = 3_000 + pause;
            field.begin_pause(side);
            talk(&mut field, end, |_, _| {});
            field.end_pause(side);
            talk(&mut field, end + 3_000, |_, _| {});
            field.run(ms(end + 4_000));
            for at in [AIRCRAFT, GROUND] {
                let seen = delays(&field, at);
                let stale = seen.iter().filter(|(_, age)| *age > 1_000.0).count();
                // Those that were on their way when the clock stopped, within a round trip, look like new ones.
                assert!(stale <= 4, "{side} paused for {pause} ms, {at}: {stale} stale");
                let fresh = seen.iter().filter(|(number, _)| i64::from(*number) >= end + 1_000);
                assert_eq!(fresh.count(), 100, "{side} paused for {pause} ms, {at}");
            }
        }
    }
}

#[test]
fn crystals_that_are_far_off_cost_no_command() {
    for drift_ppm in [-1_000, -500, 500, 1_000] {
        let mut field = Field::new(64, &[LTE()], SLOW_PROBES);
        field.drift_ppm = drift_ppm;
        field.run(ms(2_000));
        let written = talk_slowly(&mut field, 1_800_000);
        for side in [AIRCRAFT, GROUND] {
            let shown = field.snapshot(side);
            assert_eq!((delays(&field, side).len(), shown.classes[0].late), (written, 0));
            let delay = shown.paths[0].incoming_delay_ms.unwrap();
            assert!((0.0..=60.0).contains(&delay), "{drift_ppm} ppm, {side}: {delay} ms");
        }
    }
}

/// Asserts that control flows both ways from `from_ms` on, is never old, and that what is shown of clocks is sane.
fn is_back(field: &Field, from_ms: i64, until_ms: i64, what: &str) {
    let expected = (from_ms..until_ms).step_by(20).count();
    for at in [AIRCRAFT, GROUND] {
        let seen = delays(field, at);
        let stale = seen.iter().filter(|(_, age)| *age > 1_000.0).count();
        assert_eq!(stale, 0, "{what}, at {at}");
        let fresh =
            seen.iter().filter(|(number, _)| (from_ms..until_ms).contains(&(*number).into()));
        assert_eq!(fresh.count(), expected, "{what}, at {at}");
        let shown = field.snapshot(at);
        for path in &shown.paths {
            let delay = path.incoming_delay_ms.unwrap();
            assert!((0.0..60.0).contains(&delay), "{what}, at {at}: {delay} ms");
            assert!(path.rtt_ms.unwrap() < 200.0, "{what}, at {at}: {path:?}");
        }
    }
}

#[test]
fn a_machine_that_slept_for_a_minute_is_back_within_a_second() {
    for side in [AIRCRAFT, GROUND] {
        let mut field = Field::new(65, &[LTE(), LEO()], "");
        field.run(ms(1_000));
        talk(&mut field, 3_000, |_, _| {});
        // The clock goes on while the machine sleeps; its networks do not.
        field.stop(side);
        for way in &mut field.ways {
            way.faults = [Fault { silent: true, ..Fault::default() }; 2];
        }
        field.run(ms(63_000));
        field.ways.iter_mut().for_each(|way| way.faults = [Fault::default(); 2]);
        field.go_on(side);
        talk(&mut field, 68_000, |_, _| {});
        field.run(ms(69_000));
        is_back(&field, 64_000, 68_000, &format!("{side} slept"));
    }
}

#[test]
fn a_clock_that_leaps_ten_minutes_costs_two_seconds_at_most() {
    for side in [AIRCRAFT, GROUND] {
        for minutes in [1, 10, 600] {
            let mut field = Field::new(66, &[LTE(), LEO()], "");
            field.run(ms(1_000));
            talk(&mut field, 3_000, |_, _| {});
            field.leap(side, Duration::from_secs(60 * minutes));
            talk(&mut field, 10_000, |_, _| {});
            field.run(ms(11_000));
            is_back(&field, 5_000, 10_000, &format!("{side} leapt by {minutes} min"));
        }
    }
}

#[test]
fn clocks_that_are_days_apart_cost_nothing() {
    for side in [AIRCRAFT, GROUND] {
        let mut field = Field::new(67, &[LTE(), LEO()], "");
        field.leap(side, Duration::from_secs(86_400 * 400));
        field.run(ms(1_000));
        talk(&mut field, 6_000, |_, _| {});
        field.run(ms(7_000));
        is_back(&field, 1_000, 6_000, &format!("{side} is 400 days ahead"));
    }
}
