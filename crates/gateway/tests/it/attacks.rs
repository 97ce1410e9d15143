//! Two gateways in virtual time, and who listens, forges, copies and blocks.

use std::net::SocketAddr;

use crate::field::{AIRCRAFT, Copier, Fault, Field, GROUND, LEO, LTE, frame, read};
use sha2::{Digest, Sha256};
use skybraid_gateway::SigningKey;
use skybraid_gateway::event::What;
use skybraid_transport::PathId;
use skybraid_units::Instant;

const COMMAND_LONG: u32 = 76;
/// The largest timestamp that a signature holds.
const LAST: u64 = (1 << 48) - 1;

fn ms(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

/// A signed command of the ground station, with its number in its payload.
fn signed(key: &SigningKey, number: u32, timestamp: u64) -> Vec<u8> {
    let mut frame = frame(255, COMMAND_LONG, number);
    frame[2] = 1;
    frame.push(9);
    frame.extend(&timestamp.to_le_bytes()[..6]);
    let signature = Sha256::new().chain_update(key.0).chain_update(&frame).finalize();
    frame.extend(&signature[..6]);
    frame
}

/// The numbers of the commands that reached the aircraft's side, sorted.
fn commands(field: &Field) -> Vec<u32> {
    let numbers = field.handed[AIRCRAFT].iter().map(|(_, _, frame)| read(frame).1);
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Sends 50 genuine commands, one each 20 ms, after a forged one of the largest timestamp.
fn lock_out(field: &mut Field, genuine: &SigningKey) {
    field.run(ms(1_000));
    field.write(GROUND, 0, &signed(&SigningKey([66; 32]), 666, LAST));
    for number in 0..50 {
        field.run(ms(1_020 + 20 * i64::from(number)));
        field.write(GROUND, 0, &signed(genuine, number, 1_000 + u64::from(number)));
    }
    field.run(ms(3_000));
}

#[test]
fn a_forged_timestamp_does_not_lock_the_ground_station_out() {
    let key = SigningKey([7; 32]);
    let genuine: Vec<u32> = (0..50).collect();

    let mut without = Field::new(1, &[LTE(), LEO()], "");
    lock_out(&mut without, &key);
    assert_eq!(commands(&without), [genuine.clone(), vec![666]].concat());

    let mut with = Field::new(1, &[LTE(), LEO()], "");
    with.know_signing_key(&key);
    lock_out(&mut with, &key);
    assert_eq!(commands(&with), genuine);
    assert_eq!(with.snapshot(GROUND).refused.signatures, 1);

    // A sender that does not check: the receiver does.
    let mut half = Field::new(1, &[LTE(), LEO()], "");
    half.secrets[AIRCRAFT].signing = Some(key.clone());
    half.restart(AIRCRAFT);
    lock_out(&mut half, &key);
    assert_eq!(commands(&half), genuine);
    assert_eq!(half.snapshot(GROUND).refused.signatures, 0);
    assert_eq!(half.snapshot(AIRCRAFT).refused.signatures, 1);
}

#[test]
fn a_verified_frame_that_is_written_again_is_dropped() {
    let key = SigningKey([7; 32]);
    let mut field = Field::new(2, &[LTE(), LEO()], "");
    field.know_signing_key(&key);
    field.run(ms(1_000));
    for number in [0, 1, 0, 2, 1] {
        field.write(GROUND, 0, &signed(&key, number, 1_000 + u64::from(number)));
    }
    field.run(ms(2_000));
    assert_eq!(commands(&field), [0, 1, 2]);
    assert_eq!(field.snapshot(AIRCRAFT).classes[0].superseded, 2);
}

/// The address of somebody who forwards copies.
fn copier() -> SocketAddr {
    "203.0.113.66:6666".parse().unwrap()
}

/// Sends a command each 20 ms in both directions until `until_ms`, and 200 ms after that ends.
fn talk(field: &mut Field, until_ms: i64) -> Vec<u32> {
    let start = field.now.as_nanos() / 1_000_000;
    let sent: Vec<u32> = (start..until_ms).step_by(20).map(|at| at as u32).collect();
    for at in &sent {
        field.run(ms(i64::from(*at)));
        field.write(GROUND, 0, &frame(255, COMMAND_LONG, *at));
        field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, *at));
    }
    field.run(ms(until_ms + 200));
    sent
}

/// Returns those of these commands that reached the aircraft.
fn arrived(field: &Field, sent: &[u32]) -> usize {
    let numbers = commands(field);
    sent.iter().filter(|number| numbers.binary_search(number).is_ok()).count()
}

#[test]
fn who_copies_faster_than_the_original_takes_nothing_over() {
    for seed in 0..20 {
        let mut field = Field::new(seed, &[LTE(), LEO()], "");
        field.run(ms(1_000));
        let genuine: Vec<_> = field.ways.iter().map(|way| way.aircraft.to_string()).collect();
        field.copier = Some(Copier { address: copier(), relays: false });
        let sent = talk(&mut field, 4_200);
        assert_eq!((sent.len(), arrived(&field, &sent)), (160, 160));
        let used: Vec<_> =
            field.snapshot(GROUND).paths.iter().map(|path| path.remote.clone()).collect();
        assert_eq!(used, genuine.into_iter().map(Some).collect::<Vec<_>>());
        let got = field.copied;
        assert!(got.sent > 0, "the copier was challenged");
        assert!(got.sent <= 3 * got.received, "{got:?}");
    }
}

#[test]
fn the_first_sealed_datagrams_prove_the_aircrafts_addresses() {
    let mut field = Field::new(8, &[LTE(), LEO()], "");
    let known = |field: &Field| {
        let paths = field.snapshot(GROUND).paths;
        paths.iter().map(|path| path.remote.is_some()).collect::<Vec<_>>()
    };
    // An init, its response, and the proof; then the slower path's.
    field.run(ms(89));
    assert_eq!(known(&field), [false, false]);
    field.run(ms(91));
    assert_eq!(known(&field), [false, true]);
    field.run(ms(136));
    assert_eq!(known(&field), [true, true]);
}

#[test]
fn a_forged_cookie_sends_no_init_to_somebody_else() {
    let mut field = Field::new(10, &[LTE(), LEO()], "");
    field.remembers = 8;
    field.run(ms(1));
    let (_, path, init) = field.heard[0].clone();
    let echo = &init[init.len() - 32..init.len() - 16];
    // Kind 6, with the keyed hash of an init that somebody has seen.
    let cookie = [&[0x38], echo, &[7; 16]].concat();
    let now = ms(2) + crate::field::APART;
    field.ends[AIRCRAFT].receive(now, copier(), &cookie, PathId(path as u8));
    let mut out = Vec::new();
    let answer = field.ends[AIRCRAFT].poll_send(now, &mut out).unwrap();
    assert_eq!((answer.path, answer.to), (PathId(path as u8), field.ways[path].ground));
    assert_eq!(out[out.len() - 16..], [7; 16], "the ground gets the init with the cookie");
}

#[test]
fn a_path_that_goes_away_amid_a_validation_costs_no_wakeups() {
    let mut field = Field::new(9, &[LTE(), LEO()], "");
    field.run(ms(1_000));
    field.copier = Some(Copier { address: copier(), relays: false });
    // The first copies have been challenged, and nobody has answered yet.
    field.run(ms(1_110));
    assert!(field.copied.sent > 0);
    for path in 0..2 {
        field.ends[GROUND].set_path_up(ms(1_110), PathId(path), false);
    }
    let (mut now, mut wakeups) = (ms(1_110), 0);
    while now < ms(2_110) {
        now = field.ends[GROUND].next_wakeup().max(now);
        field.ends[GROUND].wake(now);
        while field.ends[GROUND].poll_send(now, &mut Vec::new()).is_some() {}
        wakeups += 1;
        assert!(wakeups < 1_000, "it wakes without end at {now:?}");
    }
}

#[test]
fn who_copies_from_the_start_does_not_keep_the_ends_apart() {
    let mut field = Field::new(3, &[LTE(), LEO()], "");
    field.copier = Some(Copier { address: copier(), relays: false });
    field.run(ms(1_000));
    let sent = talk(&mut field, 4_200);
    assert_eq!(arrived(&field, &sent), 160);
}

#[test]
fn who_relays_challenges_alone_is_left_when_he_stops() {
    let mut field = Field::new(4, &[LTE()], "");
    field.copier = Some(Copier { address: copier(), relays: true });
    field.run(ms(1_000));
    let before = talk(&mut field, 2_000);
    assert_eq!(arrived(&field, &before), before.len());
    assert_eq!(field.snapshot(GROUND).paths[0].remote, Some(copier().to_string()));
    field.copier = Some(Copier { address: copier(), relays: false });
    field.run(ms(3_000));
    let after = talk(&mut field, 4_000);
    assert_eq!(arrived(&field, &after), after.len());
    assert_eq!(field.snapshot(GROUND).paths[0].remote, Some(field.ways[0].aircraft.to_string()));
}

#[test]
fn a_new_address_is_used_within_two_and_a_half_round_trips() {
    let mut field = Field::new(5, &[LTE()], "");
    field.run(ms(1_000));
    for round in 0..50_i64 {
        let start = 1_000 + 2_000 * round;
        field.run(ms(start));
        field.rebind(0);
        let sent = talk(&mut field, start + 1_500);
        let missing = sent.len() - arrived(&field, &sent);
        // What left before a datagram came from the new address: 30 ms.
        assert!(missing <= 3, "{missing} in round {round}");
        let delays = field.handed[AIRCRAFT]
            .iter()
            .map(|(at, _, it)| at.since(ms(i64::from(read(it).1))).as_millis_f64());
        let slowest = delays.fold(0.0, f64::max);
        assert!(slowest <= 161.0, "{slowest}");
    }
}

#[test]
fn an_aircraft_is_followed_while_its_link_loses_a_third() {
    let mut field = Field::new(6, &[LTE()], "");
    field.run(ms(1_000));
    field.ways[0].faults = [Fault { loss: 0.33, ..Fault::default() }; 2];
    for round in 0..50_i64 {
        let start = 1_000 + 3_000 * round;
        field.run(ms(start));
        field.rebind(0);
        talk(&mut field, start + 2_000);
        let used = field.snapshot(GROUND).paths[0].remote.clone();
        assert_eq!(used, Some(field.ways[0].aircraft.to_string()), "round {round}");
    }
}

/// Alarms of a side.
fn alarms(field: &mut Field, side: usize) -> Vec<String> {
    let events = std::iter::from_fn(|| field.ends[side].poll_event());
    let texts = events.filter_map(|event| match event.what {
        What::Alarm { text } => Some(text),
        _ => None,
    });
    texts.collect()
}

#[test]
fn blocking_handshakes_raises_an_alarm_and_ends_the_session() {
    let mut field =
        Field::new(7, &[LTE(), LEO()], "[session]\nrekey = \"10s\"\nlifetime = \"40s\"");
    field.run(ms(1_000));
    field.blocks_handshakes = true;
    let sent = talk(&mut field, 39_000);
    assert_eq!(arrived(&field, &sent), sent.len());
    for side in [AIRCRAFT, GROUND] {
        let shown = field.snapshot(side);
        assert!(shown.session && shown.session_overdue && !shown.session_expired);
        assert!((0.0..1_000.0).contains(&shown.session_left_ms.unwrap()), "{shown:?}");
        let alarms = alarms(&mut field, side);
        let overdue =
            "the session's keys could not be changed, since no handshake gets through: it ends in";
        assert!(alarms.len() == 1 && alarms[0].starts_with(overdue), "{alarms:?}");
        assert!(alarms[0].ends_with("22 s"), "well before: {alarms:?}");
    }
    field.run(ms(40_500));
    let after = talk(&mut field, 42_000);
    assert_eq!(arrived(&field, &after), 0);
    for side in [AIRCRAFT, GROUND] {
        let shown = field.snapshot(side);
        assert!(!shown.session && !shown.session_overdue && shown.session_expired);
        assert_eq!(shown.session_left_ms, None);
        assert_eq!(alarms(&mut field, side).len(), 1);
    }
    field.blocks_handshakes = false;
    field.run(ms(43_500));
    let again = talk(&mut field, 45_000);
    assert_eq!(arrived(&field, &again), again.len());
    assert!(!field.snapshot(GROUND).session_expired);
}
