//! Long outages and clocks far apart: numbers and times on the wire go round and come back.

use crate::field::commands::{COMMAND_LONG, delays, ms, talk};
use crate::field::{AIRCRAFT, Fault, Field, GEO, GROUND, LEO, LTE, frame};
use skybraid_gateway::ChannelId;
use skybraid_gateway::event::PathState;
use skybraid_units::Duration;

/// Control and video on one channel each.
const EXTRA: &str = "[[mavlink]]\nserial = \"-\"\n[udp.video]\nsend_to = \"127.0.0.1:1\"\n";
const VIDEO: u8 = 1;
/// Times on the wire are microseconds modulo 2³².
const ROUND_US: i64 = 1 << 32;

/// Both sides write a packet of video, numbered by its milliseconds.
fn film(field: &mut Field, at: i64) {
    let mut packet = at.to_be_bytes().to_vec();
    packet.resize(1_250, 7);
    field.write(AIRCRAFT, VIDEO, &packet);
    field.write(GROUND, VIDEO, &packet);
}

/// Numbers of commands and of video packets of a period that arrived at a side.
fn arrived(field: &Field, side: usize, from_ms: i64, until_ms: i64) -> (usize, usize) {
    let within = |at: i64| (from_ms..until_ms).contains(&at);
    let commands = delays(field, side).iter().filter(|(at, _)| within((*at).into())).count();
    let video = field.handed[side].iter().filter(|(_, channel, bytes)| {
        channel.0 == VIDEO && within(i64::from_be_bytes(bytes[..8].try_into().unwrap()))
    });
    (commands, video.count())
}

/// Asserts that everything of a period arrived at both ends.
fn all_arrived(field: &Field, from_ms: i64, until_ms: i64, what: &str) {
    let written = (from_ms..until_ms).step_by(20).count();
    for side in [AIRCRAFT, GROUND] {
        let arrived = arrived(field, side, from_ms, until_ms);
        assert_eq!(arrived, (written, written), "{what}, at {side}");
    }
}

fn set_silent(field: &mut Field, paths: &[usize], silent: bool) {
    for path in paths {
        field.ways[*path].faults = [Fault { silent, ..Fault::default() }; 2];
    }
}

#[test]
fn video_is_back_two_seconds_after_a_clock_leaps_or_stops() {
    for side in [AIRCRAFT, GROUND] {
        for leap_s in [-30, -5, -2, 1, 60, 600, 2_147, 2_400, 4_200, 36_000] {
            let what = format!("{side} by {leap_s} s");
            let mut field = Field::new(81, &[LTE(), LEO(), GEO()], EXTRA);
            field.run(ms(1_000));
            talk(&mut field, 5_000, film);
            let mut at = 5_000;
            if leap_s > 0 {
                field.leap(side, Duration::from_secs(leap_s));
            } else {
                field.begin_pause(side);
                at -= 1_000 * leap_s;
                talk(&mut field, at, film);
                field.end_pause(side);
            }
            talk(&mut field, at + 10_000, film);
            // The fastest path fails in one direction; the other end reports it.
            field.ways[2].faults[AIRCRAFT] = Fault { silent: true, ..Fault::default() };
            talk(&mut field, at + 13_000, film);
            field.run(ms(at + 14_000));
            all_arrived(&field, at + 2_000, at + 9_500, &what);
            all_arrived(&field, at + 11_000, at + 13_000, &what);
            let shown = field.snapshot(AIRCRAFT);
            assert_eq!(shown.paths[2].outgoing, PathState::Down, "{what}");
        }
    }
}

#[test]
fn clocks_half_a_round_of_the_wire_apart_are_compared() {
    for apart_ms in (-75..=75).step_by(15) {
        let mut field = Field::new(82, &[LTE()], EXTRA);
        let scatter = Duration::from_millis(20);
        field.ways[0].faults = [Fault { scatter, ..Fault::default() }; 2];
        let already_us = crate::field::APART.as_nanos() / 1_000;
        let leap_us = 2 * ROUND_US + ROUND_US / 2 - already_us + 1_000 * apart_ms;
        field.leap(AIRCRAFT, Duration::from_micros(leap_us));
        field.run(ms(1_000));
        talk(&mut field, 6_000, film);
        field.run(ms(7_000));
        all_arrived(&field, 1_000, 6_000, &format!("{apart_ms} ms"));
        for side in [AIRCRAFT, GROUND] {
            let shown = &field.snapshot(side).paths[0];
            let shown = [shown.jitter_ms, shown.incoming_delay_ms, shown.outgoing_delay_ms];
            let is_sane = shown.iter().all(|ms| ms.is_some_and(|ms| (0.0..60.0).contains(&ms)));
            assert!(is_sane, "{apart_ms} ms: {shown:?}");
        }
    }
}

#[test]
fn a_path_that_was_gone_for_half_an_hour_finds_its_mtu() {
    for minutes in [1, 28, 50] {
        let mut field = Field::new(83, &[LTE(), LEO()], EXTRA);
        field.run(ms(3_000));
        // The fastest path.
        set_silent(&mut field, &[1], true);
        let back = 3_000 + 60_000 * minutes;
        field.run(ms(back));
        set_silent(&mut field, &[1], false);
        field.run(ms(back + 2_000));
        talk(&mut field, back + 5_000, film);
        field.ways[1].faults = [Fault { limit: 1_000, ..Fault::default() }; 2];
        talk(&mut field, back + 14_000, film);
        field.run(ms(back + 15_000));
        all_arrived(&field, back + 9_000, back + 14_000, &format!("{minutes} min"));
        for side in [AIRCRAFT, GROUND] {
            let mtu = field.snapshot(side).paths[1].mtu;
            assert!((850..=1_000).contains(&mtu), "{minutes} min: {mtu} B at {side}");
        }
    }
}

#[test]
fn after_an_hour_without_any_path_failures_are_seen() {
    for minutes in [1, 20, 37, 50, 60, 71] {
        let mut field = Field::new(84, &[LTE(), LEO()], EXTRA);
        field.run(ms(3_000));
        set_silent(&mut field, &[0, 1], true);
        let back = 3_000 + 60_000 * minutes;
        field.run(ms(back));
        set_silent(&mut field, &[0, 1], false);
        field.run(ms(back + 3_000));
        talk(&mut field, back + 6_000, film);
        for side in [AIRCRAFT, GROUND] {
            let states = field.snapshot(side).paths.iter().map(|path| path.outgoing).collect();
            let states: Vec<PathState> = states;
            assert_eq!(states, [PathState::Up; 2], "{minutes} min, {side}");
        }
        field.ways[1].faults[AIRCRAFT] = Fault { silent: true, ..Fault::default() };
        talk(&mut field, back + 10_000, film);
        field.run(ms(back + 11_000));
        all_arrived(&field, back + 3_000, back + 5_800, &format!("{minutes} min"));
        all_arrived(&field, back + 7_000, back + 10_000, &format!("{minutes} min"));
        let shown = field.snapshot(AIRCRAFT);
        assert_eq!(shown.paths[1].outgoing, PathState::Down, "{minutes} min");
    }
}

#[test]
fn repaired_commands_flow_after_ten_minutes_without_uplink() {
    let lines = "[session]\nrekey = \"5min\"\n[class.control]\nrepair = { share = \"20%\" }\n";
    let mut field = Field::new(85, &[LTE(), LEO()], &format!("{EXTRA}{lines}"));
    field.run(ms(1_000));
    talk(&mut field, 5_000, |_, _| {});
    for way in &mut field.ways {
        way.faults[AIRCRAFT] = Fault { silent: true, ..Fault::default() };
    }
    let back = 605_000;
    for at in (5_000..back).step_by(15) {
        field.run(ms(at));
        field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, at as u32));
    }
    set_silent(&mut field, &[0, 1], false);
    talk(&mut field, back + 5_000, |_, _| {});
    field.run(ms(back + 6_000));
    let written = (back + 1_000..back + 5_000).step_by(20).count();
    assert_eq!(arrived(&field, GROUND, back + 1_000, back + 5_000).0, written);
}

#[test]
fn a_command_held_for_a_round_of_the_wire_is_refused() {
    for paths in [&[LTE()][..], &[LTE(), LEO()]] {
        let lines = "[session]\nrekey = \"1h\"\nlifetime = \"24h\"\n";
        let mut field = Field::new(86, paths, &format!("{EXTRA}{lines}"));
        field.remembers = 64;
        field.run(ms(1_000));
        talk(&mut field, 3_000, |_, _| {});
        // Somebody on the way keeps a command on the last path, which carries nothing from then on. Other paths carry
        // all but handshakes and commands.
        let held = paths.len() - 1;
        set_silent(&mut field, &(0..paths.len()).collect::<Vec<_>>(), true);
        field.run(ms(33_000));
        field.heard.clear();
        field.write(GROUND, 0, &frame(255, COMMAND_LONG, 33_000));
        let of_path = |(to, path, _): &&(usize, usize, Vec<u8>)| *to == AIRCRAFT && *path == held;
        let kept = field.heard.iter().rev().find(of_path).unwrap().2.clone();
        field.blocks_handshakes = true;
        set_silent(&mut field, &(0..held).collect::<Vec<_>>(), false);
        let before = delays(&field, AIRCRAFT).len();
        field.run(ms(33_000 + ROUND_US / 1_000 + 100));
        let from = field.ways[held].ground;
        field.inject(AIRCRAFT, held, from, &kept);
        assert_eq!(delays(&field, AIRCRAFT).len(), before, "{} paths", paths.len());
        field.blocks_handshakes = false;
        set_silent(&mut field, &[held], false);
        let again = field.now.as_nanos() / 1_000_000 + 3_000;
        field.run(ms(again));
        talk(&mut field, again + 2_000, film);
        field.run(ms(again + 3_000));
        all_arrived(&field, again, again + 2_000, "once handshakes pass");
    }
}

#[test]
fn an_expired_session_costs_no_wakeups() {
    for scheduler in ["redundant", "deadline", "hedge", "coded"] {
        let class = format!("[class.video]\nprotocol = \"udp\"\nscheduler = \"{scheduler}\"\n");
        let lines = format!("{EXTRA}[session]\nrekey = \"10s\"\n{class}");
        let mut field = Field::new(87, &[LTE(), LEO()], &lines);
        field.run(ms(1_000));
        talk(&mut field, 5_000, film);
        set_silent(&mut field, &[0, 1], true);
        // The session ends 50 s after its last change of keys. Until then packets of video are in flight and wait.
        for at in (5_000..49_000).step_by(20) {
            field.run(ms(at));
            film(&mut field, at);
        }
        for side in [AIRCRAFT, GROUND] {
            let apart = if side == AIRCRAFT { crate::field::APART } else { Duration::ZERO };
            let (mut now, mut wakeups) = (ms(49_000) + apart, 0);
            for write_at in (49_000..109_000).step_by(20).map(|at| ms(at) + apart) {
                field.ends[side].write(write_at, ChannelId(VIDEO), &[7; 1_250]);
                while now < write_at {
                    while field.ends[side].poll_send(now, &mut Vec::new()).is_some() {}
                    now = field.ends[side].next_wakeup().clamp(now, write_at);
                    field.ends[side].wake(now);
                    wakeups += 1;
                    assert!(wakeups < 20_000, "{scheduler}, {side}: wakes without end at {now:?}");
                }
            }
            assert!(!field.snapshot(side).session);
        }
    }
}
