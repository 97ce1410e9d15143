//! Two gateways over links in virtual time: what arrives, how soon, and what a fault costs.

use crate::field::commands::{COMMAND_LONG, delays, ms, talk};
use crate::field::{AIRCRAFT, Fault, Field, GEO, GROUND, LEO, LTE, frame, read};
use skybraid_gateway::event::PathState;
use skybraid_gateway::snapshot::PathSnapshot;
use skybraid_units::Duration;

const MANUAL_CONTROL: u32 = 69;
const ATTITUDE: u32 = 30;

#[test]
fn control_arrives_once_by_the_faster_path() {
    let mut field = Field::new(1, &[LTE(), LEO()], "");
    field.run(ms(300));
    talk(&mut field, 5_000, |_, _| {});
    field.run(ms(5_200));
    for side in [AIRCRAFT, GROUND] {
        let seen = delays(&field, side);
        let numbers: Vec<u32> = seen.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (300..5_000).step_by(20).collect::<Vec<_>>());
        assert!(seen.iter().all(|(_, delay)| (30.0..31.0).contains(delay)), "{seen:?}");
        let shown = field.snapshot(side);
        for (path, delay) in shown.paths.iter().zip([45.0, 30.0]) {
            assert_eq!((path.outgoing, path.incoming), (PathState::Up, PathState::Up));
            assert!((path.rtt_ms.unwrap() - 2.0 * delay).abs() < 1.0, "{path:?}");
            assert!((path.incoming_delay_ms.unwrap() - delay).abs() < 1.0, "{path:?}");
            assert_eq!((path.mtu, path.outgoing_loss), (1_500, Some(0.0)));
        }
        let control = &shown.classes[0];
        assert_eq!(control.delivered, 235);
        assert_eq!((control.late, control.superseded), (0, 0));
        assert_eq!(control.by_path[..2], [0, 235]);
        assert_eq!(control.duplicates, 235);
    }
}

/// What a snapshot has of the directions of a path: outgoing, incoming, and of both.
fn measured(path: &PathSnapshot) -> [bool; 3] {
    let same = |values: &[Option<f64>]| {
        let known = values[0].is_some();
        assert!(values.iter().all(|value| value.is_some() == known), "{path:?}");
        known
    };
    [
        same(&[path.outgoing_delay_ms, path.outgoing_loss]),
        same(&[path.incoming_delay_ms, path.incoming_loss, path.jitter_ms]),
        same(&[path.rtt_ms, path.min_rtt_ms]),
    ]
}

#[test]
fn a_direction_that_is_not_up_shows_no_measurement() {
    let mut field = Field::new(1, &[LTE(), LEO()], "");
    field.set_interface(1, false);
    field.run(ms(2_000));
    for side in [AIRCRAFT, GROUND] {
        let [heard, unheard] = &field.snapshot(side).paths[..] else { panic!("two paths") };
        assert!((heard.outgoing_delay_ms.unwrap() - 45.0).abs() < 1.0, "{heard:?}");
        assert_eq!(unheard.outgoing, PathState::Unheard);
        assert_eq!((measured(heard), measured(unheard)), ([true; 3], [false; 3]));
    }
    field.set_interface(1, true);
    field.run(ms(4_000));
    field.ways[1].faults[AIRCRAFT].silent = true;
    field.run(ms(5_000));
    let [aircraft, ground] =
        [AIRCRAFT, GROUND].map(|side| measured(&field.snapshot(side).paths[1]));
    assert_eq!((aircraft, ground), ([false, true, false], [true, false, false]));
    field.ways[1].faults[AIRCRAFT].silent = false;
    field.run(ms(6_000));
    assert_eq!(measured(&field.snapshot(GROUND).paths[1]), [true; 3]);
}

#[test]
fn a_silent_path_is_down_within_300_ms_at_no_cost_to_control() {
    let mut field = Field::new(2, &[LTE(), LEO()], "");
    field.run(ms(1_000));
    talk(&mut field, 3_000, |field, at| {
        if at == 2_000 {
            field.ways[1].faults = [Fault { silent: true, ..Fault::default() }; 2];
        }
    });
    let states = |side: usize| {
        let path = &field.snapshot(side).paths[1];
        (path.outgoing, path.incoming)
    };
    assert_eq!(states(AIRCRAFT), (PathState::Down, PathState::Down));
    assert_eq!(states(GROUND), (PathState::Down, PathState::Down));
    for side in [AIRCRAFT, GROUND] {
        let events = std::iter::from_fn(|| field.ends[side].poll_event()).collect::<Vec<_>>();
        let given_up = events.iter().rev().find(|event| {
            matches!(&event.what, skybraid_gateway::event::What::Path { path, to, .. }
                if path == "lte" && *to == PathState::Down)
        });
        let offset = if side == AIRCRAFT { crate::field::APART } else { Duration::ZERO };
        let after = (given_up.unwrap().at - offset).since(ms(2_000)).as_millis_f64();
        assert!(after <= 300.0, "given up after {after} ms");
        let seen = delays(&field, side);
        let sent = (1_000..2_940).step_by(20).count();
        assert!(seen.len() >= sent, "{} of {sent}", seen.len());
        assert!(seen.iter().all(|(_, delay)| *delay < 46.0));
    }
}

#[test]
fn control_resumes_within_a_second_of_a_restart() {
    for (sides, shapes) in [
        (vec![AIRCRAFT], [LTE(), LEO()]),
        (vec![GROUND], [LTE(), LEO()]),
        (vec![AIRCRAFT, GROUND], [LTE(), LEO()]),
    ] {
        let mut field = Field::new(3, &shapes, "");
        talk(&mut field, 6_000, |field, at| {
            if at == 3_000 {
                sides.iter().for_each(|side| field.restart(*side));
            }
        });
        for side in [AIRCRAFT, GROUND] {
            let seen = delays(&field, side);
            let first = seen.iter().map(|(number, _)| *number).find(|number| *number >= 3_000);
            assert!(first.unwrap() < 3_500, "{sides:?}: control from {first:?} ms on");
            assert_eq!(seen.last().unwrap().0, 5_960);
        }
    }
}

#[test]
fn a_change_of_keys_is_no_loss() {
    let mut field = Field::new(3, &[LTE(), LEO()], "[session]\nrekey = \"10s\"");
    for at in (500..25_000).step_by(500) {
        field.run(ms(at));
        for side in [AIRCRAFT, GROUND] {
            for path in &field.snapshot(side).paths {
                let loss = [path.incoming_loss, path.outgoing_loss];
                assert_eq!(loss, [Some(0.0); 2], "{at} ms: {path:?}");
            }
        }
    }
    assert_eq!(field.snapshot(GROUND).sessions, 3);
}

#[test]
fn the_first_path_that_can_be_used_opens_the_session_at_once() {
    let mut field = Field::new(3, &[LTE()], "");
    field.set_interface(0, false);
    field.run(ms(110));
    field.set_interface(0, true);
    // 20 ms to the next try, and a round trip.
    field.run(ms(110 + 20 + 62));
    assert!(field.snapshot(AIRCRAFT).session);
}

#[test]
fn the_ground_follows_the_aircraft_to_another_address() {
    let mut field = Field::new(4, &[LTE()], "");
    talk(&mut field, 4_000, |field, at| {
        if at == 2_000 {
            field.rebind(0);
        }
    });
    let numbers: Vec<u32> = delays(&field, AIRCRAFT).iter().map(|(number, _)| *number).collect();
    // What the ground sent to the old address until a datagram came from the new one is lost: the
    // aircraft's one-way delay, and the time to its next datagram.
    let lost = (1_000..3_900).step_by(20).filter(|number| !numbers.contains(number)).count();
    assert!(lost <= 3, "{lost}");
}

#[test]
fn an_aircraft_is_controlled_over_one_satellite_path() {
    let mut field = Field::new(5, &[GEO()], "");
    field.run(ms(2_000));
    talk(&mut field, 4_000, |_, _| {});
    field.run(ms(4_500));
    let seen = delays(&field, AIRCRAFT);
    assert_eq!(seen.len(), 100);
    assert!(seen.iter().all(|(_, delay)| (280.0..285.0).contains(delay)), "{seen:?}");
    assert_eq!(field.snapshot(GROUND).paths[0].mtu, 1_400);
}

#[test]
fn a_command_too_old_for_its_class_is_never_delivered() {
    let mut field = Field::new(6, &[LTE(), LEO()], "");
    field.run(ms(1_000));
    talk(&mut field, 4_000, |field, at| {
        if at == 2_000 {
            let late = Fault { slower: Duration::from_millis(1_500), ..Fault::default() };
            field.ways.iter_mut().for_each(|way| way.faults[GROUND] = late);
        }
    });
    let [late, in_time] = [AIRCRAFT, GROUND].map(|side| field.snapshot(side).classes[0].late_share);
    assert_eq!((late, in_time), (Some(1.0), Some(0.0)));
    field.run(ms(8_000));
    let seen = delays(&field, AIRCRAFT);
    assert!(seen.iter().all(|(_, delay)| *delay < 1_001.0), "{seen:?}");
    assert!(field.snapshot(AIRCRAFT).classes[0].late >= 95);
    // What arrived before says nothing of now.
    let ages = |field: &Field| {
        let control = &field.snapshot(GROUND).classes[0];
        (control.late_share, control.delay_p50_ms.is_some())
    };
    assert_eq!(ages(&field), (None, true));
    field.run(ms(16_000));
    assert_eq!(ages(&field), (None, false));
}

#[test]
fn sticks_that_arrive_behind_newer_ones_are_dropped() {
    let mut field = Field::new(7, &[LTE(), LEO()], "");
    field.run(ms(1_000));
    for number in 0..500_u32 {
        let at = 1_000 + 20 * i64::from(number);
        field.run(ms(at));
        // The faster path loses a third, whose copies arrive by the slower one behind the next.
        field.ways[1].faults[GROUND].loss = 0.33;
        field.ways[0].faults[GROUND].slower = Duration::from_millis(20);
        field.write(GROUND, 0, &frame(255, MANUAL_CONTROL, number));
    }
    field.run(ms(12_000));
    let numbers: Vec<u32> = field.handed[AIRCRAFT].iter().map(|(_, _, it)| read(it).1).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let shown = &field.snapshot(AIRCRAFT).classes[0];
    assert!(shown.superseded > 60, "{shown:?}");
    assert_eq!(shown.superseded + shown.delivered, 500);
}

#[test]
fn telemetry_moves_to_the_path_that_lives() {
    let mut field = Field::new(8, &[LTE(), LEO()], "");
    field.run(ms(1_500));
    for number in 0..300_u32 {
        let at = 1_500 + 20 * i64::from(number);
        field.run(ms(at));
        if number == 150 {
            field.ways[1].faults = [Fault { silent: true, ..Fault::default() }; 2];
        }
        field.write(AIRCRAFT, 0, &frame(1, ATTITUDE, number));
    }
    field.run(ms(8_500));
    let numbers: Vec<u32> = field.handed[GROUND].iter().map(|(_, _, it)| read(it).1).collect();
    let lost: Vec<u32> = (0..300).filter(|number| !numbers.contains(number)).collect();
    // From the cut until the ground has found out and the aircraft has heard of it.
    let most = (0.25 + 0.05 + 0.045 + 0.03) / 0.02 + 2.0;
    assert!((lost.len() as f64) < most, "{lost:?}");
    assert!(lost.iter().all(|number| (148..170).contains(number)), "{lost:?}");
}

/// The 99th percentile of the delays of commands to the aircraft, in milliseconds, and Mbit/s of a file
/// that the aircraft sends meanwhile, if it does.
fn beside_a_download(download: bool) -> (f64, f64) {
    let files = "[[mavlink]]\nserial = \"-\"\n[udp.files]\nclass = \"bulk\"\n";
    let mut field = Field::new(9, &[LTE(), LEO()], files);
    field.run(ms(2_000));
    for at in 2_000..12_000 {
        field.run(ms(at));
        if download {
            // 58 Mbit/s: more than the slower path takes.
            (0..6).for_each(|_| field.write(AIRCRAFT, 1, &[7; 1_200]));
        }
        if at % 20 == 0 {
            field.write(GROUND, 0, &frame(255, COMMAND_LONG, at as u32));
            field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, at as u32));
        }
    }
    field.run(ms(14_000));
    let control = |side: usize| {
        let commands = field.handed[side].iter().filter(|(_, channel, _)| channel.0 == 0);
        let mut delays: Vec<f64> = commands
            .map(|(at, _, it)| at.since(ms(i64::from(read(it).1))).as_millis_f64())
            .collect();
        assert_eq!(delays.len(), 500);
        delays.sort_unstable_by(f64::total_cmp);
        delays[delays.len() * 99 / 100]
    };
    let worst = control(AIRCRAFT).max(control(GROUND));
    let files = field.handed[GROUND].iter().filter(|(_, channel, _)| channel.0 == 1);
    let bytes: usize = files.map(|(_, _, it)| it.len()).sum();
    (worst, 8.0 * bytes as f64 / 10e6)
}

#[test]
fn a_download_at_full_rate_does_not_delay_control() {
    let (alone, _) = beside_a_download(false);
    let (beside, rate) = beside_a_download(true);
    assert!(beside - alone < 10.0, "{alone} ms alone, {beside} ms beside {rate} Mbit/s");
    assert!(rate > 35.0, "the download has the slower path for itself: {rate} Mbit/s of 50");
}

/// A signed frame: the link and the timestamp stand before the signature.
fn signed(message: u32, number: u32) -> Vec<u8> {
    let mut frame = frame(1, message, number);
    frame[2] = 1;
    frame.push(9);
    frame.extend(&u64::from(number + 1).to_le_bytes()[..6]);
    frame.extend([0; 6]);
    frame
}

#[test]
fn signed_frames_keep_their_order_under_loss_on_one_path() {
    let mut field = Field::new(10, &[LTE(), LEO()], "");
    field.run(ms(1_000));
    field.ways[1].faults[AIRCRAFT].loss = 0.3;
    for number in 0..500 {
        field.run(ms(1_000 + 5 * i64::from(number)));
        field.write(AIRCRAFT, 0, &signed(COMMAND_LONG, number));
    }
    field.run(ms(5_000));
    let seen: Vec<u32> = field.handed[GROUND].iter().map(|(_, _, it)| read(it).1).collect();
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
    let whole =
        field.handed[GROUND].iter().all(|(_, _, it)| *it == signed(COMMAND_LONG, read(it).1));
    assert!(whole, "signed frames are not changed");
    // The faster path's 30 ms, or the slower one's 45.
    let late = field.handed[GROUND].iter().filter(|(at, _, it)| {
        at.since(ms(1_000 + 5 * i64::from(read(it).1))).as_millis_f64() > 52.0
    });
    assert_eq!(late.count(), 0);
}

#[test]
fn duplicated_and_reordered_datagrams_are_delivered_once() {
    let mut field = Field::new(11, &[LTE(), LEO()], "");
    field.duplicates = true;
    field.run(ms(1_000));
    talk(&mut field, 3_000, |_, _| {});
    field.run(ms(4_000));
    for side in [AIRCRAFT, GROUND] {
        let numbers: Vec<u32> = delays(&field, side).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1_000..3_000).step_by(20).collect::<Vec<_>>());
        let refused = field.snapshot(side).refused;
        assert!(refused.replayed > 300 && refused.forged == 0, "{refused:?}");
    }
}

#[test]
fn a_large_datagram_crosses_paths_of_small_packets_whole() {
    let extra = "[[mavlink]]\nserial = \"-\"\n[udp.video]\nsend_to = \"127.0.0.1:1\"\n";
    let mut field = Field::new(12, &[LTE(), GEO()], extra);
    field.run(ms(3_000));
    let large: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
    field.write(AIRCRAFT, 1, &large);
    field.run(ms(5_000));
    let seen: Vec<&Vec<u8>> = field.handed[GROUND].iter().map(|(_, _, it)| it).collect();
    assert_eq!(seen, [&large]);
}

#[test]
fn a_path_with_spent_data_volume_is_used_last() {
    let extra = "[path.lte]\ndata_cap = \"200kB\"\n";
    let mut field = Field::new(13, &[LTE(), LEO()], extra);
    let spent = |field: &Field| field.snapshot(AIRCRAFT).paths[1].data_left == Some(0);
    let mut number = 0;
    while !spent(&field) {
        number += 1;
        assert!(number < 5_000);
        field.run(ms(1_000 + 20 * number));
        field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, number as u32));
    }
    let start = 1_000 + 20 * number;
    field.run(ms(start + 500));
    let before = field.ways[1].bytes[AIRCRAFT];
    talk(&mut field, start + 2_500, |_, _| {});
    // Signs of life go on: 20 a second of about 140 bytes.
    let per_second = (field.ways[1].bytes[AIRCRAFT] - before) as f64 / 2.0;
    assert!(per_second < 4_000.0, "{per_second} bytes a second");
    field.ways[0].faults = [Fault { silent: true, ..Fault::default() }; 2];
    let cut = start + 2_500;
    talk(&mut field, cut + 2_000, |_, _| {});
    field.run(ms(cut + 3_000));
    let later = delays(&field, GROUND);
    let after = later.iter().filter(|(number, _)| i64::from(*number) > cut + 400).count();
    assert_eq!(after, (cut + 420..cut + 2_000).step_by(20).count());
}

#[test]
fn files_that_do_not_match_raise_an_alarm_in_plain_words() {
    let mut field = Field::new(14, &[LTE(), LEO()], "");
    let mut other = Field::new(14, &[LTE(), GEO()], "");
    // The same keys, another file: the ground of one against the aircraft of the other.
    std::mem::swap(&mut field.ends[GROUND], &mut other.ends[GROUND]);
    field.run(ms(4_000));
    let texts: Vec<String> = std::iter::from_fn(|| field.ends[AIRCRAFT].poll_event())
        .filter_map(|event| match event.what {
            skybraid_gateway::event::What::Alarm { text } => Some(text),
            _ => None,
        })
        .collect();
    let said = "path `leo` is here and not at the peer: give it one name in both files";
    assert!(texts.iter().any(|text| text == said), "{texts:?}");
}

/// An IPv4 packet of 40 bytes.
fn packet(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    [&[0x45; 12][..], &from, &to, &[0; 20]].concat()
}

#[test]
fn ip_packets_of_strange_sources_are_dropped_both_ways() {
    let tun = "[[mavlink]]\nserial = \"-\"\n[tun]\naddress = \"10.77.0.X/24\"\n";
    let ends = [[10, 77, 0, 2], [10, 77, 0, 1]];
    for (allowed, passes) in [("", false), ("allowed = [\"8.8.8.0/24\"]\n", true)] {
        let mut field = Field::new(15, &[LTE(), LEO()], &format!("{tun}{allowed}"));
        field.run(ms(2_000));
        for side in [AIRCRAFT, GROUND] {
            let (own, peer) = (ends[side], ends[1 - side]);
            field.write(side, 1, &packet(own, peer));
            field.write(side, 1, &packet([8, 8, 8, 8], peer));
            field.write(side, 1, &packet(own, [8, 8, 8, 8]));
            field.write(side, 1, &packet(peer, peer));
        }
        field.run(ms(4_000));
        for side in [AIRCRAFT, GROUND] {
            let (own, peer) = (ends[side], ends[1 - side]);
            let mut expected = vec![packet(peer, own)];
            if passes {
                expected.push(packet([8, 8, 8, 8], own));
                expected.push(packet(peer, [8, 8, 8, 8]));
            }
            let seen: Vec<Vec<u8>> =
                field.handed[side].iter().map(|(_, _, it)| it.clone()).collect();
            assert_eq!(seen, expected);
            let tun = field.snapshot(side).tun.unwrap();
            let refused = [tun.refused_outgoing, tun.refused_incoming];
            assert_eq!(refused, if passes { [0, 1] } else { [1, 2] });
        }
    }
}
