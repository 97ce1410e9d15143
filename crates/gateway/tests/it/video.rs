//! A pilot's video between two gateways in virtual time: what each protection recovers, and its cost.

use std::collections::BTreeMap;

use crate::field::{AIRCRAFT, Field, GROUND, LEO, LTE, Shape};
use skybraid_gateway::snapshot::ClassSnapshot;
use skybraid_units::Instant;

/// Packets of 1,000 bytes in a frame.
const PACKETS: u8 = 12;
/// Every so many frames there is a key frame.
const KEYS: i64 = 30;
/// Time of the first frame in milliseconds, and the number of frames.
const START_MS: i64 = 1_000;
const FRAMES: i64 = 600;
const LTE_PATH: usize = 1;
const VIDEO: usize = 2;

fn ms(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

/// Result of a flight.
struct Flown {
    /// Delay of each packet in milliseconds, by frame and packet.
    delays_ms: BTreeMap<(i64, u8), f64>,
    shown: ClassSnapshot,
    sent: ClassSnapshot,
    /// Megabytes that entered each path at the aircraft.
    megabytes: Vec<f64>,
}

impl Flown {
    fn share(&self, wanted: impl Fn(i64) -> bool) -> f64 {
        let frames = (0..FRAMES).filter(|frame| wanted(*frame)).count();
        let came = self.delays_ms.keys().filter(|(frame, _)| wanted(*frame)).count();
        came as f64 / (frames * usize::from(PACKETS)) as f64
    }

    fn delay_ms(&self, share: f64) -> f64 {
        let mut delays: Vec<f64> = self.delays_ms.values().copied().collect();
        delays.sort_by(f64::total_cmp);
        delays[(share * (delays.len() - 1) as f64) as usize]
    }
}

/// An RTP packet of H.264: a fragment of an IDR slice or of another one.
fn packet(frame: i64, number: u8) -> Vec<u8> {
    let mut packet = vec![0x80, if number + 1 == PACKETS { 0xe0 } else { 0x60 }];
    packet.extend((frame as u16 * u16::from(PACKETS) + u16::from(number)).to_be_bytes());
    packet.extend((frame as u32 * 3_000).to_be_bytes());
    packet.extend([0, 0, 0, 9]);
    let start = if number == 0 { 0x80 } else { 0 };
    packet.extend([0x7c, start | if frame % KEYS == 0 { 5 } else { 1 }, number]);
    packet.resize(1_000, 0);
    packet
}

/// Twenty seconds of video upwards, of which the LTE path loses a share.
fn fly(shapes: &[Shape], class: &str, loss: impl Fn(i64) -> f64) -> Flown {
    fly_seed(7, shapes, class, loss)
}

fn fly_seed(seed: u64, shapes: &[Shape], class: &str, loss: impl Fn(i64) -> f64) -> Flown {
    let extra = format!(
        "[[mavlink]]\nserial = \"-\"\n[udp.video]\nsend_to = \"127.0.0.1:1\"\n[class.video]\n{class}\n"
    );
    let mut field = Field::new(seed, shapes, &extra);
    let lte = if shapes.len() > 1 { LTE_PATH } else { 0 };
    field.run(ms(500));
    for frame in 0..FRAMES {
        field.run(ms(START_MS + frame * 33));
        field.ways[lte].faults[AIRCRAFT].loss = loss(frame);
        for number in 0..PACKETS {
            field.write(AIRCRAFT, 1, &packet(frame, number));
        }
    }
    field.run(ms(START_MS + FRAMES * 33 + 1_000));
    let shown = field.snapshot(GROUND).classes[VIDEO].clone();
    let mut delays_ms = BTreeMap::new();
    for (at, _, bytes) in field.handed[GROUND].iter().filter(|(_, channel, _)| channel.0 == 1) {
        let timestamp = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        let frame = i64::from(timestamp / 3_000);
        let delay = at.since(ms(START_MS + frame * 33)).as_millis_f64();
        assert!(*bytes == packet(frame, bytes[14]), "changed on its way");
        assert!(delays_ms.insert((frame, bytes[14]), delay).is_none(), "delivered twice");
    }
    assert_eq!(shown.delivered as usize, delays_ms.len());
    Flown {
        delays_ms,
        shown,
        sent: field.snapshot(AIRCRAFT).classes[VIDEO].clone(),
        megabytes: field.ways.iter().map(|way| way.bytes[AIRCRAFT] as f64 / 1e6).collect(),
    }
}

#[test]
fn repair_packets_recover_what_a_lossy_path_loses_of_video() {
    let plain = fly(&[LTE()], "", |_| 0.03);
    assert_eq!(plain.shown.repaired, 0);
    assert!((0.96..0.98).contains(&plain.share(|_| true)));
    // Groups of 10 and of what is left: more than 3 of 13 are lost with probability 5e-4, more than 1 of 3
    // (2 pieces and one repair packet) with 3e-3.
    let repaired = fly(&[LTE()], "repair = { share = \"30%\" }", |_| 0.03);
    assert!(repaired.share(|_| true) > 0.998, "{}", repaired.share(|_| true));
    assert!((150..260).contains(&repaired.shown.repaired), "{}", repaired.shown.repaired);
    // 30 ms of propagation, at most the interval of frames by which BBR paces their packets, and 10 ms before
    // a group that is not full is closed. BBR holds more back while it probes for the round-trip time.
    let late = repaired.delay_ms(0.95);
    assert!(late < 30.0 + 33.0 + 10.0, "{late} ms");
    let cost = repaired.megabytes[0] / plain.megabytes[0];
    assert!((1.25..1.5).contains(&cost), "{cost}");
}

#[test]
fn adaptive_repair_costs_nothing_without_loss() {
    let repair = "repair = { fails = \"0.1%\", group = 12 }";
    let none = fly(&[LTE()], "", |_| 0.0);
    let clean = fly(&[LTE()], repair, |_| 0.0);
    let cost = clean.megabytes[0] / none.megabytes[0];
    // Until the first report 1 % is assumed, and some of that for seconds.
    assert!(cost < 1.12, "{cost}");
    // From the tenth second on 5 % are lost, which is known within seconds.
    let lossy = fly(&[LTE()], repair, |frame| if frame < 300 { 0.0 } else { 0.05 });
    let settled = lossy.share(|frame| frame >= 420);
    assert!(settled > 0.998, "{settled}");
    assert!(lossy.megabytes[0] > 1.05 * clean.megabytes[0]);
}

#[test]
fn key_frames_on_every_path_survive_the_losses_of_one() {
    let shapes = || [LTE(), LEO()];
    let is_key = |frame: i64| frame % KEYS == 0;
    // One flight has 240 packets of key frames, too few to tell.
    let flights = |class: &str| -> Vec<Flown> {
        (1..=10).map(|seed| fly_seed(seed, &shapes(), class, |_| 0.2)).collect()
    };
    let mean = |flights: &[Flown], of: &dyn Fn(&Flown) -> f64| {
        flights.iter().map(of).sum::<f64>() / flights.len() as f64
    };
    let (none, keys) = (flights(""), flights("duplicate = \"keys\""));
    let keys_of = |flights: &[Flown]| mean(flights, &|flown| flown.share(is_key));
    let (alone, copied) = (keys_of(&none), keys_of(&keys));
    assert!(copied > 0.999, "{copied}");
    assert!(1.0 - alone > 20.0 * (1.0 - copied), "{alone}");
    // Four of five copies outlive the loss too; of other frames there are none.
    let whole = f64::from(PACKETS) * (FRAMES / KEYS) as f64;
    let copies = mean(&keys, &|flown| flown.shown.duplicates as f64 / whole);
    assert!((0.7..0.9).contains(&copies), "{copies}");
    let rest = |flights: &[Flown]| mean(flights, &|flown| flown.share(|frame| !is_key(frame)));
    assert!((rest(&keys) - rest(&none)).abs() < 0.02);
    let (none, keys) = (&none[6], &keys[6]);
    let all = fly(&shapes(), "duplicate = \"all\"", |_| 0.2);
    // Copies of everything leave where there is room, which a path that loses a fifth seldom has.
    assert!(all.share(|_| true) > none.share(|_| true) + 0.02, "{}", all.share(|_| true));
    assert_eq!((keys.sent.refused, all.sent.refused), (0, 0));
}

// `fly` compares the bytes of each packet with those written. Within 250 ms there are two rounds over either path.
#[test]
fn coded_repair_restores_the_bytes_that_a_lossy_path_loses() {
    let shapes = || [LTE(), LEO()];
    let share = |scheduler: &str| {
        let class = format!("protocol = \"udp\"\nscheduler = {scheduler}\ndeadline = \"400ms\"");
        let flown = fly(&shapes(), &class, |_| 0.05);
        (flown.share(|_| true), flown.megabytes.iter().sum::<f64>())
    };
    let (alone, single) = share("\"low_rtt\"");
    assert!((0.93..0.97).contains(&alone), "{alone}");
    for name in ["coded", "rounds"] {
        let (restored, sent) = share(&format!("{{ name = \"{name}\", within = \"250ms\" }}"));
        assert!(restored > 0.998, "{name}: {restored}");
        assert!(sent < 1.25 * single, "{name}: {}", sent / single);
    }
    let (restored, _) = share("\"streaming\"");
    assert!(restored > 0.998, "streaming: {restored}");
}
