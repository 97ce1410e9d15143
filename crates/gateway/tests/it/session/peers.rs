//! Several trusted peers, and a key that both ends share.

use std::collections::VecDeque;

use skybraid_gateway::Side;
use skybraid_gateway::session::{Opened, Refusal, SessionEvent, Sessions};
use skybraid_units::{Duration, Instant};

use super::field::{AIRCRAFT, Field, GROUND, Weather, public, start, start_trusting};

const STATIONS: [&str; 2] = ["ground", "other ground"];

/// An aircraft that trusts two ground stations, of which one is there.
fn field(station: &str) -> Field {
    let mut field = Field::new(&[Weather::fine(20), Weather::fine(45)], 1);
    field.ends = [
        start_trusting(Instant::ZERO, Side::Aircraft, "aircraft", &STATIONS, None),
        start(Instant::ZERO, Side::Ground, station, "aircraft", "one"),
    ];
    field
}

fn holder(field: &Field) -> Option<usize> {
    let peer = field.ends[AIRCRAFT].peer();
    peer.and_then(|peer| STATIONS.iter().position(|station| public(station) == *peer))
}

#[test]
fn the_aircraft_finds_whichever_station_is_there() {
    for (place, station) in STATIONS.into_iter().enumerate() {
        let mut field = field(station);
        field.run_for(Duration::from_millis(200));
        assert!(field.ends.iter().all(Sessions::is_up));
        assert_eq!(holder(&field), Some(place));
        let hello = format!("{station} one").into_bytes();
        let found = field.events[AIRCRAFT].last().unwrap().1.clone();
        assert_eq!(found, SessionEvent::Established { hello, restarted: true });
        field.run_until(Instant::from_millis(300_000));
        assert_eq!(field.restarts(AIRCRAFT), [true, false, false]);
    }
}

#[test]
fn another_station_takes_over_once_the_holder_is_silent() {
    let mut field = field(STATIONS[0]);
    field.run_for(Duration::from_secs(2));
    let other = start(field.now, Side::Ground, STATIONS[1], "aircraft", "one");
    let first = std::mem::replace(&mut field.ends[GROUND], other);
    let change = field.now;
    while holder(&field) != Some(1) {
        field.run_for(Duration::from_millis(10));
        let took = field.now.since(change);
        assert!(took < Duration::from_millis(2_500), "{took}");
    }
    assert!(field.now.since(change) >= Duration::from_millis(900));
    field.run_for(Duration::from_secs(1));
    assert!(field.ends[GROUND].is_up());
    // The first one is back: it has to wait until the second is silent.
    let second = std::mem::replace(&mut field.ends[GROUND], first);
    field.run_for(Duration::from_millis(700));
    assert_eq!(holder(&field), Some(1));
    field.run_for(Duration::from_millis(3_000));
    assert_eq!(holder(&field), Some(0));
    drop(second);
}

#[test]
fn two_gateways_with_one_key_are_not_taken_for_a_restart() {
    let mut field = field(STATIONS[0]);
    let second = Duration::from_secs(1);
    field.run_for(second);
    for name in ["two", "three"] {
        field.ends[AIRCRAFT] = start(field.now, Side::Aircraft, "aircraft", STATIONS[0], name);
        field.run_for(second);
    }
    assert_eq!(field.restarts(GROUND), [true, true, true]);
    assert!(!field.ends[GROUND].is_peer_duplicated(field.now));
    // The third one was not ended: both take turns.
    let fourth = start(field.now, Side::Aircraft, "aircraft", STATIONS[0], "four");
    let third = std::mem::replace(&mut field.ends[AIRCRAFT], fourth);
    field.run_for(second);
    assert!(!field.ends[GROUND].is_peer_duplicated(field.now));
    field.ends[AIRCRAFT] = third;
    field.run_for(second * 2);
    assert!(field.ends[GROUND].is_peer_duplicated(field.now));
    field.run_for(second * 10);
    assert!(!field.ends[GROUND].is_peer_duplicated(field.now));
}

#[test]
fn of_three_gateways_with_one_key_the_first_keeps_the_session() {
    let mut field = field(STATIONS[0]);
    let other = |name| start(Instant::ZERO, Side::Aircraft, "aircraft", STATIONS[0], name);
    let mut waiting = VecDeque::from(["two", "three"].map(other));
    for turn in 0..60 {
        field.run_for(Duration::from_millis(400));
        let next = waiting.pop_front().unwrap();
        waiting.push_back(std::mem::replace(&mut field.ends[AIRCRAFT], next));
        assert_eq!(field.ends[GROUND].is_peer_duplicated(field.now), turn >= 3, "{turn}");
    }
    // Each took it once, and the first came back.
    assert_eq!(field.restarts(GROUND), [true; 4]);
    assert_eq!(field.restarts(AIRCRAFT), [true; 4]);
    // When that is silent, another one takes over.
    field.ends[AIRCRAFT] = waiting.pop_front().unwrap();
    field.run_for(Duration::from_secs(3));
    assert_eq!(field.restarts(GROUND), [true; 5]);
}

#[test]
fn of_two_stations_with_one_key_one_keeps_the_session() {
    for turn_ms in [70, 130, 170, 230, 330] {
        let mut field = field(STATIONS[0]);
        let mut other = start(Instant::ZERO, Side::Ground, STATIONS[0], "aircraft", "two");
        let mut was_reported = false;
        while field.now < Instant::from_millis(60_000) {
            field.run_for(Duration::from_millis(turn_ms));
            std::mem::swap(&mut field.ends[GROUND], &mut other);
            was_reported |= field.ends[AIRCRAFT].is_peer_duplicated(field.now);
        }
        let restarts = field.restarts(AIRCRAFT).into_iter().filter(|restarted| *restarted).count();
        assert!(restarts <= 3 && was_reported, "{turn_ms} ms: {restarts} restarts");
    }
}

#[test]
fn after_another_station_both_ends_begin_again() {
    for (name, stations) in [("one", STATIONS), ("two", [STATIONS[0]; 2])] {
        let mut field = field(stations[0]);
        let second = start(Instant::ZERO, Side::Ground, stations[1], "aircraft", name);
        let mut others = [second].into_iter();
        field.run_for(Duration::from_secs(5));
        let mut other = others.next().unwrap();
        for _ in 0..3 {
            std::mem::swap(&mut field.ends[GROUND], &mut other);
            field.run_for(Duration::from_secs(5));
        }
        assert_eq!(field.restarts(AIRCRAFT), [true; 4], "{stations:?}");
        assert_eq!(field.restarts(GROUND), [true; 4], "{stations:?}");
        // The keys change, and nothing else.
        field.run_for(Duration::from_secs(130));
        for end in [AIRCRAFT, GROUND] {
            assert_eq!(field.restarts(end).last(), Some(&false), "{stations:?}");
        }
    }
}

#[test]
fn a_station_that_answers_while_the_holder_is_heard_is_refused() {
    let mut field = field(STATIONS[0]);
    // Both stations get the inits of the start.
    let mut other = start(Instant::ZERO, Side::Ground, STATIONS[1], "aircraft", "one");
    field.run_for(Duration::from_millis(1));
    let inits = field.inits();
    field.run_for(Duration::from_secs(2));
    assert_eq!(holder(&field), Some(0));
    let (mut out, mut answers) = (Vec::new(), 0);
    for init in inits {
        let from = super::field::address(init.path);
        if other.open(field.now, from, &init.bytes, &mut Vec::new()) == Opened::Handshake {
            other.poll_handshake(field.now, &mut out).unwrap();
            answers += 1;
            let flying = super::field::Flying { to: AIRCRAFT, path: init.path, bytes: out.clone() };
            assert_eq!(field.receive(flying), Opened::Refused(Refusal::Foreign));
        }
    }
    assert_eq!(answers, 2, "one for each path");
    assert_eq!(holder(&field), Some(0));
    assert_eq!(field.events[AIRCRAFT].len(), 1);
}

#[test]
fn another_trusted_aircraft_waits_until_the_first_is_silent() {
    let mut field = Field::new(&[Weather::fine(20)], 1);
    let aircraft = ["aircraft", "spare"];
    field.ends[GROUND] = start_trusting(Instant::ZERO, Side::Ground, "ground", &aircraft, None);
    field.run_for(Duration::from_secs(1));
    assert!(field.ends[GROUND].is_up());
    let mut spare = start(field.now, Side::Aircraft, "spare", "ground", "one");
    let mut init = Vec::new();
    spare.poll_handshake(field.now, &mut init).unwrap();
    let from = "203.0.113.9:9".parse().unwrap();
    let opened = field.ends[GROUND].open(field.now, from, &init, &mut Vec::new());
    assert_eq!(opened, Opened::Refused(Refusal::Stranger));
    // The first one lands.
    field.ends[AIRCRAFT] = start(field.now, Side::Aircraft, "spare", "ground", "one");
    field.run_for(Duration::from_millis(900));
    assert_eq!(field.ends[GROUND].peer(), Some(&public("aircraft")));
    field.run_for(Duration::from_millis(1_500));
    assert_eq!(field.ends[GROUND].peer(), Some(&public("spare")));
    assert_eq!(field.restarts(GROUND), [true, true]);
}

#[test]
fn a_revoked_key_gets_no_session() {
    let mut field = field(STATIONS[1]);
    let trusted = &STATIONS[..1];
    field.ends[AIRCRAFT] = start_trusting(Instant::ZERO, Side::Aircraft, "aircraft", trusted, None);
    field.run_for(Duration::from_secs(10));
    assert!(!field.ends.iter().any(Sessions::is_up));
}

#[test]
fn both_ends_need_the_shared_key_where_one_has_it() {
    for (aircraft, ground) in
        [(Some(1), Some(1)), (Some(1), Some(2)), (Some(1), None), (None, Some(1))]
    {
        let mut field = Field::new(&[Weather::fine(20)], 1);
        field.ends = [
            start_trusting(Instant::ZERO, Side::Aircraft, "aircraft", &["ground"], aircraft),
            start_trusting(Instant::ZERO, Side::Ground, "ground", &["aircraft"], ground),
        ];
        field.run_for(Duration::from_secs(10));
        let up = field.ends.each_ref().map(Sessions::is_up);
        assert_eq!(up, [aircraft == ground; 2], "{aircraft:?} and {ground:?}");
        if aircraft != ground {
            let forged = field.refused.concat();
            assert!(forged.iter().all(|(_, refusal)| *refusal == Refusal::Forged), "{forged:?}");
        }
    }
}
