//! Thousands of messages that a program writes at once.

use crate::field::commands::{delays, ms, talk};
use crate::field::{AIRCRAFT, Field, GROUND, Shape, frame, read};
use skybraid_units::{Duration, Rate};

const MISSION_ITEM_INT: u32 = 73;
const PARAM_VALUE: u32 = 22;

/// Networks of these rates.
fn shapes(mbps: [f64; 3]) -> [Shape; 3] {
    let named = [("dish", mbps[0]), ("lte1", mbps[1]), ("lte2", mbps[2])];
    named.map(|(name, mbps)| Shape(name, Rate::from_mbps(mbps), Duration::from_millis(30), 1_500))
}

/// Result of a burst.
#[derive(Debug)]
struct Burst {
    /// Numbers of the messages that arrived, in the order of their arrival.
    arrived: Vec<u32>,
    /// Time from the burst to the last arrival in milliseconds.
    last_ms: f64,
    /// Longest delay of the commands of other programs meanwhile, and the number of those that arrived.
    worst_ms: f64,
    others: usize,
    /// Messages counted as refused or late at the sender, and as late at the other end.
    counted: [u64; 2],
}

/// Writes `count` messages to the aircraft at once, next to a command each 20 ms.
fn burst(mbps: [f64; 3], message: u32, count: u32) -> Burst {
    let mut field = Field::new(1, &shapes(mbps), "");
    field.run(ms(2_000));
    (0..count).for_each(|number| field.write_by(GROUND, 0, 1, &frame(254, message, number)));
    talk(&mut field, 12_000, |_, _| {});
    field.run(ms(30_000));
    let arrived = field.handed[AIRCRAFT].iter().filter(|(_, _, it)| read(it).0 == message);
    let times: Vec<(f64, u32)> =
        arrived.map(|(at, _, it)| (at.since(ms(2_000)).as_millis_f64(), read(it).1)).collect();
    let others = delays(&field, AIRCRAFT);
    let lost = |side: usize| {
        let classes = &field.snapshot(side).classes;
        classes.iter().map(|class| class.refused + class.late).sum::<u64>()
    };
    Burst {
        last_ms: times.last().map_or(0.0, |(at, _)| *at),
        arrived: times.into_iter().map(|(_, number)| number).collect(),
        worst_ms: others.iter().map(|(_, delay)| *delay).fold(0.0, f64::max),
        others: others.len(),
        counted: [lost(GROUND), lost(AIRCRAFT)],
    }
}

#[test]
fn ten_thousand_commands_at_once_arrive_in_order() {
    for mbps in [[50.0, 20.0, 20.0], [20.0, 5.0, 3.0]] {
        let burst = burst(mbps, MISSION_ITEM_INT, 10_000);
        assert_eq!(burst.arrived, (0..10_000).collect::<Vec<_>>(), "{mbps:?}");
        assert!(burst.worst_ms < 200.0 && burst.others == 500, "{mbps:?}: {}", burst.worst_ms);
    }
}

#[test]
fn commands_that_no_network_carries_in_time_are_counted() {
    let burst = burst([5.0, 3.0, 2.0], MISSION_ITEM_INT, 10_000);
    let counted: u64 = burst.counted.iter().sum();
    let missing = 10_000 - burst.arrived.len() as u64;
    assert!(counted >= missing * 85 / 100, "{counted} of {missing}");
    assert!(burst.arrived.is_sorted() && burst.arrived.len() > 4_000, "{}", burst.arrived.len());
    assert!(burst.last_ms < 1_000.0 && burst.worst_ms < 250.0, "{}", burst.worst_ms);
}

#[test]
fn a_burst_over_slow_networks_does_not_stop_other_commands() {
    let burst = burst([0.5, 0.3, 0.2], MISSION_ITEM_INT, 10_000);
    assert!(burst.arrived.is_sorted() && burst.arrived.len() > 400, "{}", burst.arrived.len());
    assert!(burst.others == 500 && burst.worst_ms < 700.0, "{} {}", burst.others, burst.worst_ms);
}

#[test]
fn a_list_of_three_thousand_parameters_arrives_whole() {
    for mbps in [[20.0, 5.0, 3.0], [0.5, 0.3, 0.2]] {
        let burst = burst(mbps, PARAM_VALUE, 3_000);
        assert_eq!(burst.arrived.len(), 3_000, "{mbps:?}");
        assert!(burst.worst_ms < 300.0 && burst.others == 500, "{mbps:?}: {}", burst.worst_ms);
    }
}
