//! A thousand cuts: whatever happens to the other paths, control arrives while one path lives.

use crate::field::{AIRCRAFT, Fault, Field, GROUND, LEO, LTE, Shape, frame, read};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed, Stream};

const COMMAND_LONG: u32 = 76;
/// Milliseconds between two commands of each side.
const PERIOD: i64 = 20;
/// Milliseconds that a datagram may take in addition to its link's delay: queue, serialisation, a step of the test.
const SLACK: i64 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The aircraft's interface is gone.
    Dead,
    Silent,
    /// One direction alone.
    OneWay(usize),
    Slow,
    Lossy,
    /// Silent and well in turn, each for so many milliseconds.
    Flapping(i64),
    /// The aircraft is seen at another address.
    Rebound,
}

/// A temporary fault of some paths.
#[derive(Clone, Debug)]
struct Cut {
    from_ms: i64,
    until_ms: i64,
    victims: Vec<(usize, Kind)>,
}

fn draw(random: &mut Stream, paths: usize, count: usize) -> Vec<Cut> {
    let mut at = 2_000;
    let between =
        |random: &mut Stream, low: i64, high: i64| low + random.below((high - low) as u64) as i64;
    (0..count)
        .map(|_| {
            // At least one path is spared.
            let spared = random.below(paths as u64) as usize;
            let one = (spared + 1 + random.below(paths as u64 - 1) as usize) % paths;
            let mut victims = Vec::new();
            for path in (0..paths).filter(|path| *path != spared) {
                if path == one || random.unit() < 0.5 {
                    let kind = match random.below(8) {
                        0 => Kind::Dead,
                        1 => Kind::Silent,
                        2 => Kind::OneWay(AIRCRAFT),
                        3 => Kind::OneWay(GROUND),
                        4 => Kind::Slow,
                        5 => Kind::Lossy,
                        6 => Kind::Flapping(between(random, 30, 400)),
                        _ => Kind::Rebound,
                    };
                    victims.push((path, kind));
                }
            }
            let from_ms = at;
            let until_ms = from_ms + between(random, 50, 2_000);
            at = until_ms + between(random, 0, 500);
            Cut { from_ms, until_ms, victims }
        })
        .collect()
}

/// Sets what is wrong with a path at a moment of a cut; `None` when the cut is over.
fn apply(field: &mut Field, path: usize, kind: Kind, since_ms: Option<i64>) {
    let silent = Fault { silent: true, ..Fault::default() };
    let faults = match (kind, since_ms) {
        (_, None) | (Kind::Rebound, _) => [Fault::default(); 2],
        (Kind::Dead | Kind::Silent, _) => [silent; 2],
        (Kind::OneWay(side), _) => {
            let mut faults = [Fault::default(); 2];
            faults[side] = silent;
            faults
        }
        (Kind::Slow, _) => [Fault { slower: Duration::from_millis(500), ..Fault::default() }; 2],
        (Kind::Lossy, _) => [Fault { loss: 0.3, ..Fault::default() }; 2],
        (Kind::Flapping(each), Some(since)) if since / each % 2 == 0 => [silent; 2],
        (Kind::Flapping(_), _) => [Fault::default(); 2],
    };
    if field.ways[path].faults != faults {
        field.ways[path].faults = faults;
    }
    if kind == Kind::Dead {
        field.set_interface(path, since_ms.is_none());
    }
    if kind == Kind::Rebound && since_ms == Some(0) {
        field.rebind(path);
    }
}

/// Flies through the cuts; every command must arrive, once, as soon as the slowest path that lived from
/// its writing to its arrival allows.
fn fly(seed: u64, shapes: &[Shape], count: usize) {
    let mut random = Seed(seed).stream("cuts");
    let cuts = draw(&mut random, shapes.len(), count);
    // As control sees it, one full packet may be ahead that looks for the path's MTU.
    let slowest = |Shape(name, rate, delay, _): &Shape| {
        let packet = rate.time_for(Bytes::new(1_500));
        (*name, (*delay + packet).as_nanos() / 1_000_000)
    };
    let mut delays: Vec<(&str, i64)> = shapes.iter().map(slowest).collect();
    delays.sort_unstable();
    let mut field = Field::new(seed, shapes, "[session]\nrekey = \"10s\"");
    let end = cuts.last().unwrap().until_ms + 3_000;
    let mut next = 0;
    for at in (0..end).step_by(5) {
        field.run(Instant::from_millis(at));
        while next < cuts.len() && cuts[next].until_ms < at {
            cuts[next]
                .victims
                .iter()
                .for_each(|(path, kind)| apply(&mut field, *path, *kind, None));
            next += 1;
        }
        if let Some(cut) = cuts.get(next).filter(|cut| cut.from_ms <= at) {
            let since = (at - cut.from_ms) / 5 * 5;
            for (path, kind) in &cut.victims {
                apply(&mut field, *path, *kind, Some(since));
            }
        }
        if at >= 1_000 && at % PERIOD == 0 {
            field.write(GROUND, 0, &frame(255, COMMAND_LONG, at as u32));
            field.write(AIRCRAFT, 0, &frame(1, COMMAND_LONG, at as u32));
        }
    }
    field.run(Instant::from_millis(end + 2_000));
    // A path is taken for cut from just before to a little after: a new address is learnt with the next
    // datagram of the aircraft and validated in one and a half round trips, and what was written in the
    // last step may have met either state.
    let cut = |path: usize, from: i64, until: i64| {
        cuts.iter().any(|cut| {
            let (_, delay) = delays[path];
            let after =
                if cut.victims.contains(&(path, Kind::Rebound)) { 80 + 5 * delay } else { 5 };
            let hit = cut.victims.iter().any(|(victim, _)| *victim == path);
            hit && cut.from_ms - 5 <= until && from <= cut.until_ms.max(cut.from_ms + after) + 5
        })
    };
    let mut worst = 0;
    for side in [AIRCRAFT, GROUND] {
        let mut arrived = std::collections::BTreeMap::new();
        for (at, _, it) in &field.handed[side] {
            if read(it).0 == COMMAND_LONG {
                let number = i64::from(read(it).1);
                let delay = at.since(Instant::from_millis(number)).as_nanos() / 1_000_000;
                assert!(
                    arrived.insert(number, delay).is_none(),
                    "seed {seed}: {number} came twice"
                );
                assert!(delay <= 1_000, "seed {seed}: {number} was {delay} ms old");
            }
        }
        for written in (1_000..end).step_by(PERIOD as usize) {
            let alive = (0..delays.len())
                .filter(|path| !cut(*path, written, written + delays[*path].1 + SLACK));
            let Some(slowest) = alive.map(|path| delays[path].1).max() else { continue };
            let delay = arrived.get(&written);
            assert!(
                delay.is_some_and(|delay| *delay <= slowest + SLACK),
                "seed {seed}: the command written at {written} ms to side {side} took {delay:?} ms, the \
                 slowest living path {slowest} ms; cuts {:?}",
                cuts.iter()
                    .filter(|cut| cut.from_ms < written + 500 && cut.until_ms > written - 1_000)
                    .collect::<Vec<_>>()
            );
            worst = worst.max(*delay.unwrap());
        }
        let shown = field.snapshot(side);
        assert_eq!((shown.refused.forged, shown.refused.unreadable), (0, 0));
        assert!(shown.sessions > (end / 15_000) as u64, "keys were changed meanwhile");
    }
    assert!(
        worst > delays.iter().map(|(_, delay)| *delay).min().unwrap(),
        "no cut hit the best path"
    );
}

const RADIO: fn() -> Shape =
    || Shape("radio", Rate::from_mbps(1.0), Duration::from_millis(8), 1_500);

#[test]
fn a_thousand_cuts_of_one_of_two_paths_cost_no_control_message() {
    fly(11, &[LTE(), LEO()], 1_000);
}

#[test]
fn a_thousand_cuts_of_paths_cost_no_control_message() {
    fly(12, &[LTE(), LEO(), RADIO()], 1_000);
}
