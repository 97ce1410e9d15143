//! No command older than its deadline is delivered, however paths hold datagrams up, in virtual time.

use crate::field::commands::{self, COMMAND_LONG, delays as ages, ms};
use crate::field::{AIRCRAFT, Fault, Field, GEO, GROUND, LEO, LTE, Shape, frame, read};
use skybraid_gateway::Snapshot;
use skybraid_units::{Duration, Instant, Rate};

const HEARTBEAT: u32 = 0;
const MANUAL_CONTROL: u32 = 69;
/// Telemetry in which every message counts.
const STATUSTEXT: u32 = 253;

/// Runs until `until_ms`, writing a command from either side each 20 ms.
fn talk(field: &mut Field, until_ms: i64) {
    commands::talk(field, until_ms, |_, _| {});
}

fn oldest(field: &Field, side: usize) -> f64 {
    ages(field, side).iter().map(|(_, age)| *age).fold(0.0, f64::max)
}

/// Holds up everything that a side sends, on all paths.
fn hold_up(field: &mut Field, sender: usize, by: i64) {
    for way in &mut field.ways {
        way.faults[sender] = Fault { slower: Duration::from_millis(by), ..Fault::default() };
    }
}

#[test]
fn minutes_of_asymmetric_delay_deliver_no_stale_command() {
    for (sender, receiver) in [(GROUND, AIRCRAFT), (AIRCRAFT, GROUND)] {
        for held in [1_500, 1_900] {
            let mut field = Field::new(21, &[LTE(), LEO()], "");
            field.run(ms(1_000));
            talk(&mut field, 3_000);
            hold_up(&mut field, sender, held);
            talk(&mut field, 123_000);
            hold_up(&mut field, sender, 0);
            talk(&mut field, 130_000);
            let seen = ages(&field, receiver);
            assert!(oldest(&field, receiver) <= 1_000.0, "{held} ms: {}", oldest(&field, receiver));
            let after = seen.iter().filter(|(number, _)| *number >= 124_000).count();
            assert!(after >= 290, "{held} ms: only {after} of 300 afterwards");
            // The other direction is not affected.
            let unharmed = ages(&field, sender).len();
            assert!(unharmed >= 6_300, "{held} ms: {unharmed} the other way");
        }
    }
}

#[test]
fn asymmetric_delay_from_the_start_delivers_no_stale_command() {
    for (sender, receiver) in [(GROUND, AIRCRAFT), (AIRCRAFT, GROUND)] {
        for held in [1_500, 1_900] {
            let mut field = Field::new(22, &[LTE(), LEO()], "");
            hold_up(&mut field, sender, held);
            talk(&mut field, 60_000);
            assert!(oldest(&field, receiver) <= 1_000.0, "{held} ms: {}", oldest(&field, receiver));
            let shown = field.snapshot(receiver);
            assert!(
                shown.classes[0].late > 100,
                "they arrived, and were dropped: {:?}",
                shown.classes[0]
            );
        }
    }
}

#[test]
fn both_directions_held_up_deliver_no_stale_command() {
    let mut field = Field::new(23, &[LTE(), LEO()], "");
    field.run(ms(1_000));
    talk(&mut field, 3_000);
    hold_up(&mut field, GROUND, 1_500);
    hold_up(&mut field, AIRCRAFT, 1_900);
    talk(&mut field, 63_000);
    for side in [AIRCRAFT, GROUND] {
        assert!(oldest(&field, side) <= 1_000.0, "{}", oldest(&field, side));
    }
}

#[test]
fn a_restarted_end_delivers_no_stale_command_over_held_paths() {
    for restarted in [AIRCRAFT, GROUND] {
        let mut field = Field::new(24, &[LTE(), LEO()], "");
        talk(&mut field, 3_000);
        hold_up(&mut field, GROUND, 1_500);
        talk(&mut field, 6_000);
        field.restart(restarted);
        talk(&mut field, 40_000);
        assert!(oldest(&field, AIRCRAFT) <= 1_000.0, "{}", oldest(&field, AIRCRAFT));
    }
}

#[test]
fn symmetric_paths_lose_nothing_not_even_by_satellite() {
    let mut field = Field::new(25, &[GEO()], "");
    field.run(ms(2_000));
    talk(&mut field, 62_000);
    field.run(ms(63_000));
    for side in [AIRCRAFT, GROUND] {
        assert_eq!(ages(&field, side).len(), 3_000);
        assert_eq!(field.snapshot(side).classes[0].late, 0);
    }
}

#[test]
fn the_first_commands_of_a_session_are_not_dropped_as_stale() {
    let mut field = Field::new(26, &[LTE(), LEO()], "");
    let mut first = 0;
    while !(field.snapshot(AIRCRAFT).session && field.snapshot(GROUND).session) {
        first += 5;
        field.run(ms(first));
    }
    for side in [AIRCRAFT, GROUND] {
        field.write(side, 0, &frame(1, COMMAND_LONG, first as u32));
    }
    field.run(ms(first + 900));
    for side in [AIRCRAFT, GROUND] {
        assert_eq!(ages(&field, side).len(), 1);
    }
}

#[test]
fn an_hour_of_drifting_clocks_costs_no_command() {
    let lines = "[health]\nprobe = \"250ms\"\ngive_up = \"1s\"";
    for drift_ppm in [-100, 100] {
        let mut field = Field::new(27, &[LTE()], lines);
        field.drift_ppm = drift_ppm;
        field.run(ms(1_000));
        for at in (1_000..3_600_000).step_by(500) {
            field.run(ms(at));
            field.write(GROUND, 0, &frame(255, COMMAND_LONG, at as u32));
            field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, at as u32));
        }
        field.run(ms(3_601_000));
        for side in [AIRCRAFT, GROUND] {
            let shown = field.snapshot(side);
            assert_eq!((ages(&field, side).len(), shown.classes[0].late), (7_198, 0));
            let delay = shown.paths[0].incoming_delay_ms.unwrap();
            assert!((delay - 30.0).abs() < 2.0, "{delay} ms after an hour");
        }
    }
}

#[test]
fn a_stopped_process_delivers_no_stale_command() {
    for stopped in [AIRCRAFT, GROUND] {
        for stop in [500, 1_500, 1_900, 10_000] {
            let mut field = Field::new(29, &[LTE(), LEO()], "");
            field.run(ms(1_000));
            talk(&mut field, 3_000);
            field.stop(stopped);
            let start = 3_000;
            for at in (start..start + stop).step_by(20) {
                field.run(ms(at));
                for side in [AIRCRAFT, GROUND] {
                    field.write(side, 0, &frame(9, COMMAND_LONG, at as u32));
                    field.write(side, 0, &frame(9, MANUAL_CONTROL, at as u32));
                }
            }
            let end = start + stop;
            field.run(ms(end));
            field.go_on(stopped);
            field.run(ms(end + 40));
            for side in [AIRCRAFT, GROUND] {
                let case = format!("{stopped} stopped for {stop} ms, side {side}");
                assert!(oldest(&field, side) <= 1_000.0, "{case}: {}", oldest(&field, side));
                let sticks = |(at, _, it): &(Instant, _, Vec<u8>)| {
                    let (message, number) = read(it);
                    let during = i64::from(number) >= start && *at >= ms(end);
                    (message == MANUAL_CONTROL && during).then_some(i64::from(number))
                };
                let seen: Vec<i64> = field.handed[side].iter().filter_map(sticks).collect();
                // The last was written 20 ms before the end, and those on their way were fresh.
                assert!(seen.contains(&(end - 20)), "{case}: {seen:?}");
                if side != stopped {
                    assert!(seen[0] >= end - 20, "{case}: the newest goes first: {seen:?}");
                }
            }
            talk(&mut field, end + 3_000);
            field.run(ms(end + 4_000));
            let fresh = |side: usize| {
                let seen = ages(&field, side);
                seen.iter().filter(|(number, _)| i64::from(*number) >= end + 1_000).count()
            };
            assert_eq!([fresh(AIRCRAFT), fresh(GROUND)], [100, 100], "{stop} ms");
            let late = |side| field.snapshot(side).classes[0].late;
            assert!(stop < 1_500 || late(stopped) > 0, "{:?}", field.snapshot(stopped).classes[0]);
        }
    }
}

#[test]
fn what_waited_for_a_path_is_not_sent_when_it_is_too_old() {
    let mut field = Field::new(30, &[LTE(), LEO()], "");
    field.run(ms(1_000));
    talk(&mut field, 3_000);
    (0..2).for_each(|path| field.set_interface(path, false));
    talk(&mut field, 7_000);
    (0..2).for_each(|path| field.set_interface(path, true));
    field.run(ms(8_000));
    assert!(oldest(&field, GROUND) <= 1_000.0, "{}", oldest(&field, GROUND));
}

#[test]
fn an_age_counts_from_the_kernels_arrival() {
    let mut field = Field::new(31, &[LTE()], "");
    field.run(ms(2_000));
    field.stop(AIRCRAFT);
    field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, 1));
    field.run(ms(2_150));
    field.go_on(AIRCRAFT);
    field.run(ms(2_300));
    let shown = field.snapshot(GROUND);
    let delay = shown.classes[0].delay_p50_ms.unwrap();
    assert!((delay - 180.0).abs() < 2.0, "{delay} ms");
}

#[test]
fn a_class_that_falls_silent_has_no_delay() {
    let mut field = Field::new(33, &[LTE()], "");
    field.run(ms(1_000));
    talk(&mut field, 2_000);
    field.run(ms(11_500));
    let delay = |field: &Field| field.snapshot(GROUND).classes[0].delay_p50_ms;
    assert!(delay(&field).is_some());
    field.run(ms(12_500));
    assert_eq!(delay(&field), None);
    talk(&mut field, 13_000);
    assert!(delay(&field).is_some());
}

#[test]
fn a_flood_of_telemetry_takes_no_place_of_another_component() {
    // A tenth of what is written fits through.
    let radio = Shape("radio", Rate::from_mbps(2.0), Duration::from_millis(8), 1_500);
    let mut field = Field::new(32, &[radio], "");
    field.run(ms(1_000));
    for at in 1_000..13_000 {
        field.run(ms(at));
        (0..26).for_each(|_| field.write_by(AIRCRAFT, 0, 1, &frame(1, STATUSTEXT, 7)));
        if at % 20 == 0 && at >= 3_000 {
            field.write_by(AIRCRAFT, 0, 0, &frame(2, STATUSTEXT, at as u32));
        }
    }
    field.run(ms(14_000));
    let genuine = field.handed[GROUND].iter().filter(|(_, _, it)| it[5] == 2).count();
    let sources = field.snapshot(AIRCRAFT).sources;
    let source = |end: u8| sources.iter().find(|source| source.end == end).unwrap();
    assert_eq!((source(0).written, source(0).refused, source(0).late), (500, 0, 0), "{sources:?}");
    // What the path itself loses under congestion control is lost to both alike.
    assert!(genuine >= 450, "{genuine} of 500; {sources:?}");
    assert!(source(1).refused > 200_000, "{sources:?}");
}

/// Delays at the ground of 50 commands a second of one component, sorted, while another writes so many.
fn beside_a_flood(per_ms: u32, shapes: &[Shape]) -> (usize, Vec<f64>, Snapshot) {
    let mut field = Field::new(33, shapes, "");
    field.run(ms(1_000));
    for at in 1_000..24_000 {
        field.run(ms(at));
        (0..per_ms).for_each(|_| field.write_by(AIRCRAFT, 0, 1, &frame(1, COMMAND_LONG, 7)));
        if at % 1_000 == 0 {
            field.write_by(AIRCRAFT, 0, 0, &frame(2, HEARTBEAT, at as u32));
        }
        if at % 20 == 0 && at >= 4_000 {
            field.write_by(AIRCRAFT, 0, 0, &frame(2, COMMAND_LONG, at as u32));
        }
    }
    field.run(ms(25_000));
    let of_two = |(at, _, it): &(Instant, _, Vec<u8>)| {
        let (message, number) = read(it);
        let number = i64::from(number);
        (it[5] == 2 && message == COMMAND_LONG).then(|| at.since(ms(number)).as_millis_f64())
    };
    let mut delays: Vec<f64> = field.handed[GROUND].iter().filter_map(of_two).collect();
    delays.sort_unstable_by(f64::total_cmp);
    (delays.len(), delays, field.snapshot(AIRCRAFT))
}

#[test]
fn a_flood_of_commands_takes_neither_place_nor_time_of_others() {
    let narrow = |rate| Shape("lte", Rate::from_mbps(rate), Duration::from_millis(30), 1_500);
    for rate in [3.0, 10.0] {
        let (alone, without, _) = beside_a_flood(0, &[narrow(rate)]);
        let (beside, with, shown) = beside_a_flood(26, &[narrow(rate)]);
        let p99 = |delays: &[f64]| delays[delays.len() * 99 / 100];
        assert_eq!((alone, beside), (1_000, 1_000), "{rate} Mbit/s: {:?}", shown.sources);
        let added = p99(&with) - p99(&without);
        assert!(added < 5.0, "{rate} Mbit/s: {added} ms more");
        let flood = shown.sources.iter().find(|source| source.end == 1).unwrap();
        assert!(flood.refused + flood.late > 200_000, "{flood:?}");
    }
}

#[test]
fn a_round_trip_above_the_deadline_is_reported() {
    let mut field = Field::new(28, &[GEO()], "[class.control]\ndeadline = \"400ms\"");
    talk(&mut field, 10_000);
    assert_eq!(ages(&field, AIRCRAFT).len(), 0);
    let texts: Vec<String> = std::iter::from_fn(|| field.ends[AIRCRAFT].poll_event())
        .filter_map(|event| match event.what {
            skybraid_gateway::event::What::Alarm { text } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("class.control.deadline 400 ms"), "{texts:?}");
}
