//! Messages by their numbers.

use super::*;

fn at(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

fn message(id: u32) -> Delivered {
    Delivered { stream: 0, id, held: Duration::ZERO, path: PathId(0) }
}

#[test]
fn a_message_on_its_way_at_the_end_is_neither_lost_nor_a_trial() {
    let limit = Duration::from_millis(300);
    let mut flow = FlowRecord::new(true, false, at(1000), 1, &[limit]);
    for ms in [0, 100, 600, 900] {
        flow.written(at(ms), 100);
        flow.copy_sent(at(ms), flow.next_id() - 1, PathId(0));
    }
    flow.delivered(at(50), message(0));
    flow.delivered(at(950), message(2));
    flow.finish(&[3]);
    let summary = &flow.summary;
    assert_eq!((summary.sent, summary.delivered), (4, 2));
    assert_eq!((summary.lost, summary.in_flight), (1, 1));
    assert_eq!((summary.deadlines[0].trials, summary.deadlines[0].met), (3, 1));
}

#[test]
fn in_a_run_that_ends_early_only_deadlines_before_its_real_end_count() {
    for keep in [true, false] {
        let limits = [Duration::from_millis(300), Duration::from_millis(50)];
        let mut flow = FlowRecord::new(keep, true, at(10_000), 1, &limits);
        for ms in [0, 100, 600, 650, 900] {
            flow.written(at(ms), 100);
        }
        for (id, ms) in [(0, 50), (1, 450), (2, 620), (3, 800)] {
            flow.delivered(at(ms), message(id));
        }
        flow.end_early(at(920));
        flow.finish(&[]);
        let counts: Vec<_> = flow.summary.deadlines.iter().map(|it| (it.trials, it.met)).collect();
        // Written at 0, 100 and 600 ms; at 0, 100, 600 and 650 ms.
        assert_eq!(counts, [(3, 2), (4, 2)]);
        assert_eq!((flow.summary.delivered, flow.summary.in_flight), (4, 1));
    }
}

#[test]
fn messages_are_not_forgotten_before_their_deadline_so_that_the_run_may_end_any_time() {
    let limit = Duration::from_secs(20);
    let mut flow = FlowRecord::new(false, false, at(1_000_000), 1, &[limit]);
    let count = 3 << BLOCK_BITS;
    for number in 0..count {
        flow.written(at(i64::from(number)), 100);
        flow.delivered(at(i64::from(number) + 5), message(number));
    }
    let end = i64::from(count) - 1;
    flow.end_early(at(end));
    let judged = (end - 20_000 + 1) as u64;
    let deadline = &flow.summary.deadlines[0];
    assert_eq!((deadline.trials, deadline.met), (judged, judged));
}

#[test]
fn a_message_is_refused_when_none_of_its_copies_is_left() {
    let mut flow = FlowRecord::new(true, false, at(1000), 1, &[]).with_copies(2);
    for _ in 0..2 {
        flow.written(at(0), 100);
    }
    flow.refused(0);
    flow.copy_sent(at(0), 0, PathId(0));
    flow.delivered(at(50), message(0));
    assert!(flow.delivered(at(60), message(0)).is_none());
    flow.refused(1);
    assert_eq!(flow.summary.refused, 0);
    flow.refused(1);
    flow.finish(&[]);
    let summary = &flow.summary;
    assert_eq!((summary.sent, summary.delivered), (2, 1));
    assert_eq!((summary.lost, summary.refused), (1, 1));
}

#[test]
fn without_the_table_memory_does_not_grow_with_the_number_of_messages() {
    let mut flow = FlowRecord::new(false, false, at(i64::MAX / 10_000_000), 1, &[]);
    for number in 0..20 << BLOCK_BITS {
        let now = at(i64::from(number));
        flow.written(now, 100);
        if number % 1000 != 0 {
            flow.delivered(now + Duration::from_millis(20), message(number));
        }
    }
    let rows: usize = flow.blocks().map(<[_]>::len).sum();
    assert!(rows < 10 << BLOCK_BITS);
    flow.copy_sent(at(0), flow.next_id() - 1, PathId(0));
    flow.finish(&[]);
    let summary = &flow.summary;
    assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
}
