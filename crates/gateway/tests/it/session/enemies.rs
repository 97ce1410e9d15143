//! Attackers who listen, forge, replay and flood.

use std::net::{Ipv4Addr, SocketAddr};

use proptest::prelude::*;
use skybraid_gateway::Side;
use skybraid_gateway::session::{Handshake, Opened, Refusal, Sessions};
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::field::{
    AIRCRAFT, Field, Flying, GROUND, Weather, address, dice, ground, private, public, start,
};

const PATH: PathId = PathId(0);

fn link() -> Field {
    Field::flying_link(&[Weather::fine(20), Weather::fine(90)])
}

fn sealed(field: &mut Field, end: usize, message: &[u8]) -> Flying {
    let mut bytes = Vec::new();
    field.ends[end].seal(field.now, PATH, message, &mut bytes).unwrap();
    Flying { to: 1 - end, path: PATH, bytes }
}

/// Both ends still understand each other, and no session has changed since.
fn nothing_has_happened(field: &mut Field, sessions: [usize; 2]) {
    for end in [AIRCRAFT, GROUND] {
        let flying = sealed(field, end, b"still here");
        assert!(matches!(field.receive(flying), Opened::Message { .. }));
    }
    assert_eq!(field.events.each_ref().map(Vec::len), sessions);
}

#[test]
fn a_sealed_datagram_with_a_flipped_bit_is_refused() {
    let mut field = link();
    for end in [AIRCRAFT, GROUND] {
        let whole = sealed(&mut field, end, b"set mode: guided");
        for bit in 0..8 * whole.bytes.len() {
            let mut flipped = whole.clone();
            flipped.bytes[bit / 8] ^= 1 << (bit % 8);
            let opened = field.receive(flipped);
            // In the envelope it may make another kind of it, or a number that has been seen.
            let wanted: &[Refusal] = match bit / 8 {
                0..10 => &[Refusal::Foreign, Refusal::Forged, Refusal::Replayed],
                _ => &[Refusal::Forged],
            };
            assert!(
                wanted.iter().any(|reason| opened == Opened::Refused(*reason)),
                "{bit}: {opened:?}"
            );
        }
        assert!(matches!(field.receive(whole), Opened::Message { newest: true, .. }));
    }
    nothing_has_happened(&mut field, [1, 1]);
}

#[test]
fn a_sealed_datagram_that_is_cut_short_or_too_long_is_refused() {
    let mut field = link();
    let whole = sealed(&mut field, AIRCRAFT, b"set mode: guided");
    for length in 0..whole.bytes.len() {
        let bytes = whole.bytes[..length].to_vec();
        let opened = field.receive(Flying { bytes, ..whole.clone() });
        assert!(matches!(opened, Opened::Refused(_)), "{length}");
    }
    let bytes = [&whole.bytes[..], &[0]].concat();
    let opened = field.receive(Flying { bytes, ..whole.clone() });
    assert_eq!(opened, Opened::Refused(Refusal::Forged));
    assert!(matches!(field.receive(whole), Opened::Message { .. }));
}

#[test]
fn a_handshake_survives_forged_copies_with_a_flipped_bit() {
    let mut field = Field::new(&[Weather { dead: [true; 2], ..Weather::fine(20) }], 1);
    field.run_for(Duration::from_millis(1));
    let init = field.inits()[0].clone();
    // The cookie at the end means nothing while there are few inits.
    for bit in 0..8 * (init.bytes.len() - 16) {
        let mut flipped = init.clone();
        flipped.bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(field.receive(flipped), Opened::Refused(_)), "bit {bit} of the init");
    }
    assert_eq!(field.receive(init), Opened::Handshake);
    let response = field.heard.last().unwrap().1.clone();
    // Nor does the cookie of the address, which is for its sender alone.
    for bit in 0..8 * (response.bytes.len() - 16) {
        let mut flipped = response.clone();
        flipped.bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(field.receive(flipped), Opened::Refused(_)), "bit {bit} of the answer");
    }
    assert!(!field.ends[AIRCRAFT].is_up());
    assert_eq!(field.receive(response), Opened::Handshake);
    assert!(field.ends[AIRCRAFT].is_up());
}

#[test]
fn a_replayed_datagram_is_refused_even_if_first_late() {
    let mut field = link();
    let datagrams: Vec<_> = (0..5_000).map(|_| sealed(&mut field, AIRCRAFT, b"arm")).collect();
    let newest = datagrams[4_999].clone();
    assert!(matches!(field.receive(newest.clone()), Opened::Message { .. }));
    assert_eq!(field.receive(newest), Opened::Refused(Refusal::Replayed));
    // Within the window each arrives once, in any order; behind it none does.
    for at in (904..4_999).rev() {
        let opened = field.receive(datagrams[at].clone());
        assert!(matches!(opened, Opened::Message { newest: false, .. }), "{at}");
        let again = field.receive(datagrams[at].clone());
        assert_eq!(again, Opened::Refused(Refusal::Replayed), "{at}");
    }
    let old = field.receive(datagrams[903].clone());
    assert_eq!(old, Opened::Refused(Refusal::Replayed));
}

#[test]
fn a_datagram_is_refused_on_another_path_and_by_its_own_sender() {
    let mut field = link();
    let mut moved = sealed(&mut field, AIRCRAFT, b"arm");
    let mut returned = moved.clone();
    moved.bytes[3] = 1;
    moved.path = PathId(1);
    assert_eq!(field.receive(moved), Opened::Refused(Refusal::Forged));
    returned.to = AIRCRAFT;
    assert!(matches!(field.receive(returned), Opened::Refused(_)));
    nothing_has_happened(&mut field, [1, 1]);
}

#[test]
fn a_forged_number_far_ahead_does_not_shut_the_window() {
    let mut field = link();
    let mut ahead = sealed(&mut field, AIRCRAFT, b"arm");
    ahead.bytes[4..10].fill(0xff);
    assert_eq!(field.receive(ahead), Opened::Refused(Refusal::Forged));
    nothing_has_happened(&mut field, [1, 1]);
}

#[test]
fn an_init_that_is_sent_again_disturbs_nothing() {
    let mut field = link();
    for _ in 0..5 {
        field.run_for(Duration::from_secs(1));
        field.ends[AIRCRAFT].renew(field.now);
    }
    field.run_for(Duration::from_secs(1));
    assert_eq!(field.events.each_ref().map(Vec::len), [6, 6]);
    // All of them, from the very first, again and again: under the session of those times and of now.
    for _ in 0..20 {
        for init in field.inits() {
            field.receive(init);
        }
        field.run_for(Duration::from_millis(500));
        nothing_has_happened(&mut field, [6, 6]);
    }
}

#[test]
fn old_inits_do_not_keep_a_restarted_ground_from_its_aircraft() {
    let mut field = link();
    for _ in 0..200 {
        field.run_for(Duration::from_millis(400));
        field.ends[AIRCRAFT].renew(field.now);
    }
    field.run_for(Duration::from_secs(1));
    let inits = field.inits();
    assert!(inits.len() >= 400);
    let mut inits = inits.into_iter().cycle();
    field.restart(GROUND, "two");
    for _ in 0..500 {
        for _ in 0..20 {
            field.receive(inits.next().unwrap());
        }
        field.run_for(Duration::from_millis(1));
    }
    assert!(field.ends[GROUND].is_up());
    assert!(field.now.since(field.last[GROUND]) < Duration::from_millis(100));
}

#[test]
fn a_stranger_gets_no_session() {
    let now = Instant::ZERO;
    let mut stranger = start(now, Side::Aircraft, "stranger", "ground", "one");
    let mut field = link();
    let mut bytes = Vec::new();
    stranger.poll_handshake(now, &mut bytes).unwrap();
    let opened = field.receive(Flying { to: GROUND, path: PATH, bytes: bytes.clone() });
    assert_eq!(opened, Opened::Refused(Refusal::Stranger));
    // Whoever takes another for the ground is not even heard.
    let mut lost = start(now, Side::Aircraft, "aircraft", "another ground", "one");
    lost.poll_handshake(now, &mut bytes).unwrap();
    let opened = field.receive(Flying { to: GROUND, path: PATH, bytes });
    assert_eq!(opened, Opened::Refused(Refusal::Forged));
    nothing_has_happened(&mut field, [1, 1]);
}

/// Somebody who knows the ground's public key, at an address of his own.
fn attacker(number: u32) -> (Vec<u8>, SocketAddr) {
    let name = format!("attacker {number}");
    let mut attacker = start(Instant::ZERO, Side::Aircraft, &name, "ground", "one");
    let mut bytes = Vec::new();
    attacker.poll_handshake(Instant::ZERO, &mut bytes).unwrap();
    (bytes, (Ipv4Addr::from_bits(0x0b00_0000 + number), 14_550).into())
}

#[test]
fn under_a_flood_of_inits_the_aircraft_connects_by_cookie() {
    let mut field = Field::new(&[Weather::fine(20), Weather::fine(30)], 1);
    let inits: Vec<_> = (0..200).map(attacker).collect();
    let (mut strangers, mut cookies) = (0, 0);
    let mut plain = Vec::new();
    for round in 0..2_000_u32 {
        for (at, (init, from)) in inits.iter().enumerate().skip(round as usize % 100).take(5) {
            // The keyed hash is right, the address is another each time: he does not hear the answers.
            let ip = Ipv4Addr::from_bits(0x0c00_0000 + round * 1000 + at as u32);
            let from = SocketAddr::from((ip, from.port()));
            match field.ends[GROUND].open(field.now, from, init, &mut plain) {
                Opened::Refused(Refusal::Stranger) => strangers += 1,
                Opened::Refused(Refusal::Cookie) => cookies += 1,
                other => panic!("{other:?}"),
            }
            let mut out = Vec::new();
            while let Some(reply) = field.ends[GROUND].poll_handshake(field.now, &mut out) {
                assert_eq!(reply, Handshake::Reply { to: from });
                assert!(out.len() < init.len(), "a reply is never larger than the init");
            }
        }
        field.run_for(Duration::from_millis(1));
    }
    assert!(strangers <= 20 + 2 * 20, "{strangers} were worth a Diffie-Hellman");
    assert_eq!(strangers + cookies, 10_000);
    // One round trip for the cookie, one for the session, and a probe.
    let (at, _) = field.events[GROUND][0];
    assert!(at <= Instant::from_millis(40 + 40 + 50 + 20), "{at:?}");
    let refused = |refusal| field.refused[GROUND].iter().filter(|(_, it)| *it == refusal).count();
    assert!(refused(Refusal::Cookie) > 0, "the aircraft was asked for a cookie");
}

#[test]
fn whoever_has_a_cookie_is_heard_five_times_a_second() {
    let mut field = link();
    let (mut strangers, mut plain, mut out) = (0, Vec::new(), Vec::new());
    let (_, from) = attacker(0);
    let inits: Vec<_> = (0..100).map(|number| attacker(number).0).collect();
    let mut cookie = [0; 16];
    for round in 0..2_000 {
        let mut init = inits[round % inits.len()].clone();
        let end = init.len() - 16;
        init[end..].copy_from_slice(&cookie);
        let opened = field.ends[GROUND].open(field.now, from, &init, &mut plain);
        strangers += i32::from(opened == Opened::Refused(Refusal::Stranger));
        while field.ends[GROUND].poll_handshake(field.now, &mut out).is_some() {
            cookie.copy_from_slice(&out[17..]);
        }
        field.run_for(Duration::from_millis(1));
    }
    assert_ne!(cookie, [0; 16]);
    assert!((20 + 2 * 20..=20 + 2 * 20 + 2 * 5 + 1).contains(&strangers), "{strangers}");
    // The cookie of one address is worth nothing at another.
    field.ends[GROUND].open(field.now, ground(), &inits[0], &mut plain);
    let mut elsewhere = inits[0].clone();
    let end = elsewhere.len() - 16;
    elsewhere[end..].copy_from_slice(&cookie);
    let opened = field.ends[GROUND].open(field.now, ground(), &elsewhere, &mut plain);
    assert_eq!(opened, Opened::Refused(Refusal::Cookie));
}

#[test]
fn no_answer_is_more_than_three_times_its_request() {
    let setup = |side, own: &str, peer: &str, hello| skybraid_gateway::session::Setup {
        side,
        private: private(own),
        peers: vec![public(peer)],
        psk: None,
        hello,
        rekey: Duration::from_secs(120),
        lifetime: Duration::from_secs(600),
    };
    let now = Instant::ZERO;
    let aircraft = setup(Side::Aircraft, "aircraft", "ground", Vec::new());
    let ground = setup(Side::Ground, "ground", "aircraft", vec![7; 1024]);
    let mut aircraft = Sessions::new(now, aircraft, dice("aircraft"));
    let mut ground = Sessions::new(now, ground, dice("ground"));
    let (mut init, mut out) = (Vec::new(), Vec::new());
    aircraft.poll_handshake(now, &mut init).unwrap();
    let mut answers = 0;
    for _ in 0..200 {
        ground.open(now, address(PATH), &init, &mut Vec::new());
        while ground.poll_handshake(now, &mut out).is_some() {
            answers += 1;
            assert!(out.len() <= 3 * init.len(), "{} to {}", out.len(), init.len());
        }
    }
    assert_eq!(answers, 200);
}

#[test]
fn a_cookie_is_believed_only_if_it_names_the_init() {
    let mut field = Field::new(&[Weather { dead: [false, true], ..Weather::fine(20) }], 1);
    field.run_for(Duration::from_millis(1));
    let init = field.inits()[0].bytes.clone();
    let mac = &init[init.len() - 32..init.len() - 16];
    let cookie = |echo: &[u8]| [&[0x38], echo, &[7; 16]].concat();
    let receive = |field: &mut Field, bytes| {
        let before = field.heard.len();
        let opened = field.receive(Flying { to: AIRCRAFT, path: PATH, bytes });
        (opened, field.heard[before..].iter().map(|(_, it)| it.bytes.clone()).collect::<Vec<_>>())
    };
    let foreign = Opened::Refused(Refusal::Foreign);
    assert_eq!(receive(&mut field, cookie(&[0; 16])), (foreign, vec![]));
    let again = [&init[..init.len() - 16], &[7; 16]].concat();
    assert_eq!(receive(&mut field, cookie(mac)), (Opened::Handshake, vec![again]));
    // Who has heard the init cannot make the aircraft flood others.
    let repeats = (0..1000).map(|_| receive(&mut field, cookie(mac)).1.len()).sum::<usize>();
    assert!(repeats <= 20, "{repeats}");
}

#[test]
fn a_forged_unknown_session_costs_a_handshake_and_nothing_else() {
    let mut field = link();
    let mut sessions = [1, 1];
    for _ in 0..3 {
        let head = sealed(&mut field, AIRCRAFT, b"").bytes[..10].to_vec();
        let forged = Flying { to: AIRCRAFT, path: PATH, bytes: [&[0x3c], &head[..]].concat() };
        for _ in 0..1000 {
            assert_eq!(field.receive(forged.clone()), Opened::Handshake);
        }
        nothing_has_happened(&mut field, sessions);
        field.run_for(Duration::from_secs(1));
        sessions = sessions.map(|count| count + 1);
        nothing_has_happened(&mut field, sessions);
        // The session that it names is no longer the current one.
        assert_eq!(field.receive(forged), Opened::Refused(Refusal::Foreign));
    }
    assert_eq!(field.restarts(GROUND), [true, false, false, false]);
    assert!(field.inits().len() <= 2 * (1 + 3), "{}", field.inits().len());
}

#[test]
fn unknown_sessions_get_at_most_ten_answers_per_second() {
    let mut field = link();
    let mut datagram = sealed(&mut field, AIRCRAFT, b"lost").bytes;
    datagram[1] ^= 0xff;
    let (mut answers, mut out, mut plain) = (0, Vec::new(), Vec::new());
    for millis in 0..3_000 {
        let now = field.now + Duration::from_millis(millis);
        let from = address(PATH);
        let opened = field.ends[GROUND].open(now, from, &datagram, &mut plain);
        assert_eq!(opened, Opened::Refused(Refusal::Foreign));
        while let Some(reply) = field.ends[GROUND].poll_handshake(now, &mut out) {
            assert_eq!(reply, Handshake::Reply { to: from });
            assert_eq!(out, [&[0x3c], &datagram[..10]].concat());
            answers += 1;
        }
    }
    assert!((30..=40).contains(&answers), "{answers}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn garbage_is_refused(
        garbage in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..200), 0u8..8, 0usize..2), 1..40,
        ),
    ) {
        let mut field = link();
        for (mut bytes, kind, to) in garbage {
            if let Some(first) = bytes.first_mut() {
                *first = 1 << 5 | kind << 2;
            }
            let opened = field.receive(Flying { to, path: PATH, bytes });
            prop_assert!(matches!(opened, Opened::Refused(_)));
        }
        prop_assert!(field.ends.iter().all(Sessions::is_up));
        nothing_has_happened(&mut field, [1, 1]);
    }
}
