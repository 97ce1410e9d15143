//! Sessions under faults of networks, and restarts of an end.

use proptest::prelude::*;
use skybraid_gateway::Side;
use skybraid_gateway::session::{Handshake, Opened, Refusal, SessionEvent, Sessions, path_of};
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::field::{AIRCRAFT, Dice, Field, Flying, GROUND, Weather, address, private, public};

const FIRST: PathId = PathId(0);
const SECOND: PathId = PathId(1);

#[test]
fn a_session_stands_one_round_trip_after_the_start() {
    let mut field = Field::new(&[Weather::fine(40), Weather::fine(300)], 1);
    field.run_for(Duration::from_millis(79));
    assert!(!field.ends[AIRCRAFT].is_up() && !field.ends[GROUND].is_up());
    field.run_for(Duration::from_millis(1));
    assert!(field.ends[AIRCRAFT].is_up());
    assert!(!field.ends[GROUND].is_up(), "the ground waits for the first sealed datagram");
    field.run_for(Duration::from_millis(60 + 40));
    assert!(field.ends[GROUND].is_up());
    let found = |end: usize| {
        let SessionEvent::Established { hello, restarted } = field.events[end][0].1.clone() else {
            panic!("it has ended");
        };
        (String::from_utf8(hello).unwrap(), restarted)
    };
    assert_eq!(found(AIRCRAFT), ("ground one".to_string(), true));
    assert_eq!(found(GROUND), ("aircraft one".to_string(), true));
    field.run_for(Duration::from_secs(5));
    assert!(field.refused.concat().is_empty(), "late answers over the slow path are no offence");
    assert_eq!(field.events.each_ref().map(Vec::len), [1, 1]);
}

#[test]
fn keys_change_where_each_path_carries_one_way_alone() {
    let mut field = Field::flying_link(&[Weather::fine(20), Weather::fine(40)]);
    field.paths[0].dead[GROUND] = true;
    field.paths[1].dead[AIRCRAFT] = true;
    field.run_for(Duration::from_secs(1_000));
    for end in [AIRCRAFT, GROUND] {
        // The first session, and one each two minutes.
        assert_eq!(field.restarts(end), [&[true][..], &[false; 8]].concat());
    }
}

#[test]
fn an_init_is_repeated_with_growing_pauses() {
    let mut field = Field::new(&[Weather { dead: [false, true], ..Weather::fine(10) }], 1);
    field.run_for(Duration::from_millis(8_000));
    let inits: Vec<_> = field.heard.iter().map(|(at, it)| (*at, it.bytes.clone())).collect();
    let times: Vec<i64> = inits.iter().map(|(at, _)| at.as_nanos() / 1_000_000).collect();
    assert_eq!(times, [0, 250, 750, 1750, 2750, 3750, 4750, 5750, 6750, 7750]);
    assert!(inits[..7].iter().all(|(_, init)| *init == inits[0].1));
    assert!(inits[7..].iter().all(|(_, init)| *init == inits[7].1));
    assert_ne!(inits[0].1, inits[7].1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn handshakes_complete_despite_loss_copies_and_reordering(
        seed in any::<u64>(), loss in 0.0f64..0.5, repeat in 0.0f64..0.5, least in 1i64..200,
        spread in 0i64..400,
    ) {
        let weather = Weather {
            loss, repeat, delay_ms: (least, least + spread), dead: [false; 2],
        };
        let mut field = Field::new(&[weather; 2], seed);
        field.run_for(Duration::from_secs(30));
        prop_assert!(field.ends.iter().all(Sessions::is_up));
        let mut sent = Vec::new();
        for number in 0..300_u32 {
            for end in [AIRCRAFT, GROUND] {
                let path = PathId((number % 2) as u8);
                prop_assert!(field.send(end, path, &number.to_be_bytes()));
            }
            sent.push(number.to_be_bytes().to_vec());
            field.run_for(Duration::from_millis(5));
        }
        field.run_for(Duration::from_secs(2));
        for end in [AIRCRAFT, GROUND] {
            let mut arrived = field.messages[end].clone();
            arrived.sort();
            let count = arrived.len();
            arrived.dedup();
            prop_assert_eq!(arrived.len(), count, "no message arrives twice");
            prop_assert!(arrived.iter().all(|message| sent.contains(message)));
            prop_assert!(count as f64 > 300.0 * (1.0 - loss) * 0.7, "{}", count);
            let expected = |(_, refusal): &(Instant, Refusal)| *refusal == Refusal::Replayed;
            prop_assert!(field.refused[end].iter().all(expected), "only repetitions are refused");
        }
    }
}

// The paths' delays differ by 300 ms, so that datagrams of both keys overtake each other.
#[test]
fn a_change_of_keys_under_load_loses_no_datagram() {
    let mut field = Field::new(&[Weather::fine(5), Weather::fine(305)], 1);
    let setups = [(Side::Aircraft, "aircraft", "ground"), (Side::Ground, "ground", "aircraft")];
    field.ends = setups.map(|(side, own, peer)| {
        let setup = skybraid_gateway::session::Setup {
            side,
            private: private(own),
            peers: vec![public(peer)],
            psk: None,
            hello: Vec::new(),
            rekey: Duration::from_secs(1),
            lifetime: Duration::from_secs(600),
        };
        Sessions::new(Instant::ZERO, setup, super::field::dice(own))
    });
    field.run_for(Duration::from_secs(1));
    let mut sent = Vec::new();
    for number in 0..20_000_u32 {
        for end in [AIRCRAFT, GROUND] {
            assert!(field.send(end, PathId((number % 2) as u8), &number.to_be_bytes()));
        }
        sent.push(number.to_be_bytes().to_vec());
        field.run_for(Duration::from_millis(1));
    }
    field.run_for(Duration::from_secs(1));
    for end in [AIRCRAFT, GROUND] {
        field.messages[end].sort();
        assert_eq!(field.messages[end], sent);
        assert!(field.refused[end].is_empty());
        let restarts = field.restarts(end);
        assert!(restarts.len() >= 20, "{} changes of keys", restarts.len());
        assert!(restarts[0] && !restarts[1..].contains(&true));
    }
}

#[test]
fn keys_change_every_two_minutes() {
    let mut field = Field::flying_link(&[Weather::fine(20)]);
    field.run_until(Instant::from_millis(601_000));
    let times = field.events[AIRCRAFT].iter().map(|(at, _)| at.as_nanos() / 1_000_000_000);
    assert_eq!(times.collect::<Vec<_>>(), [0, 120, 240, 360, 480, 600]);
    assert!(field.refused.concat().is_empty());
}

#[test]
fn the_ground_is_heard_while_it_hears_nothing() {
    let mut field = Field::flying_link(&[Weather::fine(20)]);
    // The way up dies between the answer and its confirmation.
    field.run_until(Instant::from_millis(119_000));
    field.ends[AIRCRAFT].renew(field.now);
    field.run_for(Duration::from_millis(1));
    let changed = field.events[AIRCRAFT].len();
    while field.events[AIRCRAFT].len() == changed {
        field.run_for(Duration::from_millis(1));
    }
    field.paths[0].dead[GROUND] = true;
    for _ in 0..90 {
        field.run_for(Duration::from_secs(1));
        assert!(field.now.since(field.last[AIRCRAFT]) < Duration::from_millis(100));
    }
    field.paths[0].dead[GROUND] = false;
    field.run_for(Duration::from_secs(2));
    assert!(field.now.since(field.last[GROUND]) < Duration::from_millis(100));
    assert!(field.now.since(field.last[AIRCRAFT]) < Duration::from_millis(100));
    assert!(!field.restarts(GROUND)[1..].contains(&true));
}

#[test]
fn a_session_whose_keys_cannot_be_changed_ends_at_both_ends() {
    let mut field = Field::flying_link(&[Weather::fine(20), Weather::fine(50)]);
    field.blocks_handshakes = true;
    let overdue = |field: &Field| field.ends.each_ref().map(|end| end.is_overdue(field.now));
    field.run_until(Instant::from_millis(239_000));
    assert_eq!(overdue(&field), [false; 2]);
    field.run_until(Instant::from_millis(241_000));
    assert_eq!(overdue(&field), [true; 2]);
    field.run_until(Instant::from_millis(599_000));
    assert!(field.ends.iter().all(Sessions::is_up));
    let late: Vec<_> = [AIRCRAFT, GROUND]
        .map(|end| {
            let mut bytes = Vec::new();
            field.ends[end].seal(field.now, FIRST, b"late", &mut bytes).unwrap();
            Flying { to: 1 - end, path: FIRST, bytes }
        })
        .into();
    field.run_until(Instant::from_millis(601_000));
    for end in [AIRCRAFT, GROUND] {
        assert!(!field.ends[end].is_up());
        assert!(!field.send(end, FIRST, b"no longer"));
        assert!(field.last[end] < Instant::from_millis(600_100));
        assert_eq!(field.events[end].last().unwrap().1, SessionEvent::Expired);
    }
    for flying in late {
        assert_eq!(field.receive(flying), Opened::Refused(Refusal::Foreign));
    }
    field.blocks_handshakes = false;
    field.run_until(Instant::from_millis(602_200));
    assert!(field.ends.iter().all(Sessions::is_up));
    assert_eq!(field.restarts(GROUND), [true, false], "the same two, with other keys");
    assert_eq!(overdue(&field), [false; 2]);
}

#[test]
fn a_restart_of_the_aircraft_differs_from_a_change_of_keys() {
    let mut field = Field::flying_link(&[Weather::fine(50)]);
    field.ends[AIRCRAFT].renew(field.now);
    field.run_for(Duration::from_secs(1));
    let since = field.now;
    field.restart(AIRCRAFT, "two");
    field.run_for(Duration::from_millis(250));
    assert_eq!(field.restarts(GROUND), [true, false, true]);
    assert!(field.last[GROUND].since(since) > Duration::from_millis(150));
    assert_eq!(field.restarts(AIRCRAFT), [true, false, true], "its own start is the first");
    field.run_for(Duration::from_secs(5));
    assert_eq!(field.events[GROUND].len(), 3);
}

#[test]
fn a_restarted_ground_is_heard_within_two_round_trips() {
    let mut field = Field::flying_link(&[Weather::fine(50)]);
    field.restart(GROUND, "two");
    let restarted = field.now;
    // A probe finds nobody who knows it; the answer to that; then a handshake, and a probe again.
    field.run_for(Duration::from_millis(50 + 100 + 100 + 50 + 50));
    assert_eq!(field.restarts(AIRCRAFT), [true, true]);
    assert!(field.ends[GROUND].is_up());
    assert!(field.last[GROUND] > restarted);
    let found = field.events[AIRCRAFT].last().unwrap().1.clone();
    assert_eq!(found, SessionEvent::Established { hello: b"ground two".to_vec(), restarted: true });
}

#[test]
fn a_returning_ground_station_resets_the_aircrafts_backoff() {
    let mut field = Field::flying_link(&[Weather::fine(50)]);
    field.paths[0].dead[GROUND] = true;
    field.ends[AIRCRAFT].renew(field.now);
    field.run_for(Duration::from_millis(3_800));
    field.restart(GROUND, "two");
    field.paths[0].dead[GROUND] = false;
    field.run_for(Duration::from_millis(50 + 100 + 200 + 100 + 50 + 50));
    assert!(field.ends[GROUND].is_up(), "the next repetition would have been too late");
}

#[test]
fn both_ends_find_each_other_after_both_restarted() {
    let mut field = Field::flying_link(&[Weather::fine(50), Weather::fine(80)]);
    field.restart(GROUND, "two");
    field.restart(AIRCRAFT, "two");
    field.run_for(Duration::from_millis(300));
    assert!(field.ends.iter().all(Sessions::is_up));
    assert_eq!(field.restarts(GROUND), [true, true]);
    assert_eq!(field.restarts(AIRCRAFT), [true, true]);
}

// What was sealed before a restart must not reach an endpoint that has restarted.
#[test]
fn datagrams_from_before_a_restart_of_the_peer_are_refused() {
    let mut field = Field::flying_link(&[Weather::fine(10)]);
    let mut late = Vec::new();
    field.ends[AIRCRAFT].seal(field.now, FIRST, b"from before", &mut late).unwrap();
    field.restart(AIRCRAFT, "two");
    field.run_for(Duration::from_secs(1));
    let opened = field.receive(Flying { to: GROUND, path: FIRST, bytes: late });
    assert_eq!(opened, Opened::Refused(Refusal::Foreign));
}

#[test]
fn only_a_paths_newest_datagram_updates_its_address() {
    let mut field = Field::flying_link(&[Weather::fine(10), Weather::fine(10)]);
    let mut seal = |path| {
        let mut out = Vec::new();
        let number = field.ends[AIRCRAFT].seal(field.now, path, b"position", &mut out).unwrap();
        (Flying { to: GROUND, path, bytes: out }, number)
    };
    let (one, two, other) = (seal(FIRST), seal(FIRST), seal(SECOND));
    assert_eq!(two.1, one.1 + 1);
    assert_eq!(path_of(&other.0.bytes), Some(SECOND));
    for ((flying, number), wanted) in [(two, true), (one, false), (other, true)] {
        let path = flying.path;
        let opened = field.receive(flying);
        assert_eq!(opened, Opened::Message { path, number, current: true, newest: wanted });
    }
}

#[test]
fn without_a_session_nothing_is_sealed() {
    let mut field = Field::new(&[Weather::fine(10)], 1);
    let mut out = vec![9; 9];
    assert!(field.ends[AIRCRAFT].seal(field.now, FIRST, b"early", &mut out).is_err());
    assert!(out.is_empty());
    let mut field = Field::flying_link(&[Weather::fine(10)]);
    assert!(field.ends[AIRCRAFT].seal(field.now, PathId(64), b"no path", &mut out).is_err());
    assert!(field.ends[AIRCRAFT].seal(field.now, PathId(63), &[7; 65_519], &mut out).is_ok());
    assert!(field.ends[AIRCRAFT].seal(field.now, PathId(63), &[7; 65_520], &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn the_ground_never_begins_a_handshake() {
    let mut ground = super::field::start(Instant::ZERO, Side::Ground, "ground", "aircraft", "one");
    ground.renew(Instant::ZERO);
    assert_eq!(ground.next_wakeup(), Instant::FAR_FUTURE);
    assert_eq!(ground.poll_handshake(Instant::ZERO, &mut Vec::new()), None);
}

#[test]
fn a_hello_may_have_1024_bytes_and_still_fits_into_a_packet() {
    let mut ends = [(Side::Aircraft, "aircraft", "ground"), (Side::Ground, "ground", "aircraft")]
        .map(|(side, own, peer)| {
            let setup = skybraid_gateway::session::Setup {
                side,
                private: private(own),
                peers: vec![public(peer)],
                psk: None,
                hello: vec![7; 2000],
                rekey: Duration::from_secs(120),
                lifetime: Duration::from_secs(600),
            };
            let dice = Dice(skybraid_units::Seed(5).stream(own));
            Sessions::new(Instant::ZERO, setup, Box::new(dice))
        });
    let mut out = Vec::new();
    let asked = ends[AIRCRAFT].poll_handshake(Instant::ZERO, &mut out);
    assert_eq!(asked, Some(Handshake::OnEveryPath));
    assert!(out.len() <= 1200, "{}", out.len());
    let from = address(FIRST);
    let opened = ends[GROUND].open(Instant::ZERO, from, &out, &mut Vec::new());
    assert_eq!(opened, Opened::Handshake);
    let answered = ends[GROUND].poll_handshake(Instant::ZERO, &mut out);
    assert_eq!(answered, Some(Handshake::Reply { to: from }));
    ends[AIRCRAFT].open(Instant::ZERO, from, &out, &mut Vec::new());
    let found = ends[AIRCRAFT].poll_event();
    let hello = vec![7; 1024];
    assert_eq!(found, Some(SessionEvent::Established { hello, restarted: true }));
}
