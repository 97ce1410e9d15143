//! Receiver's reorder stack, held against a simulation of the receiver frame by frame.

use std::collections::{BTreeMap, VecDeque};

use skybraid_link::{Direction, Fate, Link};
use skybraid_units::{Bytes, Instant, Seed};

use crate::common::{direction, lost, ms, path};

/// A terminal with bursts of 223 B at 20 kbit in 1 ms, and a gateway with four frames of 2001 B, half a percent of each
/// lost.
const TEXT: &str = r#"
uplink.access = { kind = "dvb", rules = "opensand", frame = "1ms", phase = "0ms", waveform = 12, cra = "18.6Mbit/s", frame_loss = "0.5%", terminal_delay = "9ms", gateway_delay = "9ms" }
downlink.access = { kind = "dvb", frame = "1ms", phase = "0ms", modcod = 1, symbol_rate = "26.4MHz", carriers = 5, frame_loss = "0.5%", terminal_delay = "9ms", gateway_delay = "9ms" }
"#;

fn stacked() -> String {
    TEXT.replace("frame_loss", "reorder_stack = 5, frame_loss")
}

/// Arrivals of packets (sent at, bytes) through a link, in the order of admission; `None` if lost or never released.
fn arrivals(link: &mut Link, packets: &[(f64, u64)]) -> Vec<Option<Instant>> {
    let mut arrivals = vec![None; packets.len()];
    let mut held = VecDeque::new();
    for (index, (at, bytes)) in packets.iter().enumerate() {
        let fate = link.admit(ms(*at), Bytes::new(*bytes));
        while let Some(release) = link.release() {
            for packet in held.drain(..release.packets) {
                arrivals[packet] = Some(release.at);
            }
        }
        match fate {
            Fate::Delivered { at } => arrivals[index] = Some(at),
            Fate::Held => held.push_back(index),
            Fate::Lost { .. } => {}
        }
    }
    arrivals
}

/// Times at which a receiver delivers frames (number, arrival): one in order at once, others when the gap before them
/// is filled or more than five wait.
fn receiver(frames: impl Iterator<Item = (u64, Instant)>) -> BTreeMap<u64, Instant> {
    let (mut expected, mut waiting, mut delivered) = (0, BTreeMap::new(), BTreeMap::new());
    for (number, at) in frames {
        waiting.insert(number, at);
        if waiting.len() > 5 && !waiting.contains_key(&expected) {
            expected = *waiting.keys().next().unwrap();
        }
        while waiting.remove(&expected).is_some() {
            delivered.insert(expected, at);
            expected += 1;
        }
    }
    delivered
}

/// Packets of 60, 1274 and 1350 B, one in a superframe, are 1, 6 and 7 bursts. The link without a stack says when they
/// arrive, and one with a packet in each burst which bursts are lost.
#[test]
fn held_packets_arrive_when_a_receiver_frame_by_frame_has_them() {
    let bursts = |bytes: u64| match bytes {
        60 => 1,
        1274 => 6,
        _ => 7,
    };
    let mut random = Seed(9).stream("sizes");
    let packets: Vec<(f64, u64)> = (0..20_000)
        .map(|n| (f64::from(n) * 3.0 + 0.5, [60, 60, 60, 1274, 1350][random.below(5) as usize]))
        .collect();
    let total: u64 = packets.iter().map(|(_, bytes)| bursts(*bytes)).sum();
    let mut probe = direction(TEXT, Direction::Uplink, 4);
    let burst_lost: Vec<bool> = (0..total)
        .map(|n| lost(probe.admit(ms(n as f64 * 3.0 + 0.5), Bytes::new(60))).is_some())
        .collect();

    let mut plain = direction(TEXT, Direction::Uplink, 4);
    let mut first = 0;
    let frames: Vec<(u64, u64, Option<Instant>)> = packets
        .iter()
        .map(|(at, bytes)| {
            let (from, to) = (first, first + bursts(*bytes) - 1);
            first = to + 1;
            let fate = plain.admit(ms(*at), Bytes::new(*bytes));
            let arrives = match fate {
                Fate::Delivered { at } => Some(at),
                _ => None,
            };
            assert_eq!(arrives.is_none(), (from..=to).any(|burst| burst_lost[burst as usize]));
            (from, to, arrives)
        })
        .collect();
    // All bursts of a packet travel together, 18 ms and the time to the next superframe after it.
    let sent = |index: usize| ms(packets[index].0 + 18.5);
    let received = frames.iter().enumerate().flat_map(|(index, (from, to, arrives))| {
        assert!(arrives.is_none_or(|at| at == sent(index)));
        let burst_lost = &burst_lost;
        (*from..=*to)
            .filter(move |burst| !burst_lost[*burst as usize])
            .map(move |burst| (burst, sent(index)))
    });
    let delivered = receiver(received);

    let found = arrivals(&mut direction(&stacked(), Direction::Uplink, 4), &packets);
    let mut late = 0;
    for (index, (_, to, arrives)) in frames.iter().enumerate() {
        let expected = arrives.and_then(|_| delivered.get(to).copied());
        assert_eq!(found[index], expected, "packet {index}");
        late += usize::from(expected.is_some_and(|at| Some(at) > *arrives));
    }
    assert!(late > 200, "{late} packets waited");
}

/// Blocks of a megabit every second: what follows a loss in the last frames of a block waits for the next block.
#[test]
fn the_end_of_a_block_waits_for_the_next_one() {
    let packets: Vec<(f64, u64)> = (0..200)
        .flat_map(|block| {
            (0..88).map(move |n| (f64::from(block) * 1000.0 + f64::from(n) * 0.01, 1500))
        })
        .collect();
    let plain = arrivals(&mut direction(TEXT, Direction::Downlink, 2), &packets);
    let held = arrivals(&mut direction(&stacked(), Direction::Downlink, 2), &packets);
    let waits: Vec<f64> = plain
        .iter()
        .zip(&held)
        .filter_map(|(plain, held)| Some((held.as_ref()?.since((*plain)?)).as_millis_f64()))
        .collect();
    assert!(plain.iter().zip(&held).all(|(plain, held)| held.is_none() || plain.is_some()));
    let longest = waits.iter().copied().fold(0.0, f64::max);
    assert!((900.0..1100.0).contains(&longest), "{longest} ms");
    assert!(waits.iter().filter(|wait| **wait == 0.0).count() > waits.len() / 2);
    // Order is kept.
    assert!(held.iter().flatten().is_sorted());
}

#[test]
fn a_reorder_stack_excludes_effects_behind_the_receiver() {
    for (text, part) in [
        ("reorder_stack = 0", "`uplink.access.reorder_stack`: found 0, expected 1 to 127"),
        ("reorder_stack = 200", "`uplink.access.reorder_stack`: found 200"),
    ] {
        let text = TEXT.replacen("frame_loss", &format!("{text}, frame_loss"), 1);
        let error = path(&text).link(Direction::Uplink).unwrap_err().to_string();
        assert!(error.starts_with(part), "{error}");
    }
    let text = format!("{}\nuplink.delay = \"5ms\"", stacked());
    let error = path(&text).link(Direction::Uplink).unwrap_err().to_string();
    assert_eq!(
        error,
        "`uplink.access.reorder_stack`: `reorder_stack` and `delay` exclude one another"
    );
}
