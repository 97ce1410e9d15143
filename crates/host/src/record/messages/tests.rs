//! Tests of the record of a flow.

use super::*;

fn at(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

fn message(id: u32) -> Delivered {
    Delivered { stream: 0, id, held: Duration::ZERO, path: PathId(0) }
}

#[test]
fn a_message_in_flight_at_the_end_is_not_lost_and_no_trial() {
    let limit = Duration::from_millis(300);
    let mut flow = FlowRecord::new(true, false, at(1000), 1, &[limit]);
    for ms in [0, 100, 600, 900] {
        flow.on_written(at(ms), 100);
        flow.on_copy_sent(at(ms), flow.next_id() - 1, PathId(0));
    }
    flow.on_delivered(at(50), message(0));
    flow.on_delivered(at(950), message(2));
    flow.finish(&[3]);
    let summary = &flow.summary;
    assert_eq!((summary.sent, summary.delivered), (4, 2));
    assert_eq!((summary.lost, summary.in_flight), (1, 1));
    assert_eq!((summary.deadlines[0].trials, summary.deadlines[0].met), (3, 1));
}

#[test]
fn deadlines_after_an_early_end_do_not_count() {
    for keep in [true, false] {
        let limits = [Duration::from_millis(300), Duration::from_millis(50)];
        let mut flow = FlowRecord::new(keep, true, at(10_000), 1, &limits);
        for ms in [0, 100, 600, 650, 900] {
            flow.on_written(at(ms), 100);
        }
        for (id, ms) in [(0, 50), (1, 450), (2, 620), (3, 800)] {
            flow.on_delivered(at(ms), message(id));
        }
        flow.end_early(at(920));
        flow.finish(&[]);
        let deadlines = flow.summary.deadlines.iter();
        let counts: Vec<_> = deadlines.map(|deadline| (deadline.trials, deadline.met)).collect();
        // Written at 0, 100 and 600 ms; at 0, 100, 600 and 650 ms.
        assert_eq!(counts, [(3, 2), (4, 2)]);
        assert_eq!((flow.summary.delivered, flow.summary.in_flight), (4, 1));
    }
}

#[test]
fn rows_are_kept_until_the_deadline_has_passed() {
    let limit = Duration::from_secs(20);
    let mut flow = FlowRecord::new(false, false, at(1_000_000), 1, &[limit]);
    let count = 3 << BLOCK_BITS;
    for number in 0..count {
        flow.on_written(at(i64::from(number)), 100);
        flow.on_delivered(at(i64::from(number) + 5), message(number));
    }
    let end = i64::from(count) - 1;
    flow.end_early(at(end));
    flow.finish(&[]);
    let judged = (end - 20_000 + 1) as u64;
    let deadline = &flow.summary.deadlines[0];
    assert_eq!((deadline.trials, deadline.met), (judged, judged));
}

#[test]
fn a_message_is_refused_when_none_of_its_copies_is_left() {
    let mut flow = FlowRecord::new(true, false, at(1000), 1, &[]).with_copies(2);
    for _ in 0..2 {
        flow.on_written(at(0), 100);
    }
    flow.on_refused(0);
    flow.on_copy_sent(at(0), 0, PathId(0));
    flow.on_delivered(at(50), message(0));
    assert!(flow.on_delivered(at(60), message(0)).is_none());
    flow.on_refused(1);
    assert_eq!(flow.summary.refused, 0);
    flow.on_refused(1);
    flow.finish(&[]);
    let summary = &flow.summary;
    assert_eq!((summary.sent, summary.delivered), (2, 1));
    assert_eq!((summary.lost, summary.refused), (1, 1));
}

#[test]
fn memory_is_bounded_without_the_table() {
    let mut flow = FlowRecord::new(false, false, at(i64::MAX / 10_000_000), 1, &[]);
    for number in 0..20 << BLOCK_BITS {
        let now = at(i64::from(number));
        flow.on_written(now, 100);
        if number % 1000 != 0 {
            flow.on_delivered(now + Duration::from_millis(20), message(number));
        }
    }
    let rows: usize = flow.blocks().map(<[_]>::len).sum();
    assert!(rows < 10 << BLOCK_BITS);
    flow.on_copy_sent(at(0), flow.next_id() - 1, PathId(0));
    flow.finish(&[]);
    let summary = &flow.summary;
    assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
}

#[test]
fn a_lost_message_keeps_no_rows_but_its_own() {
    let mut flow = FlowRecord::new(false, false, at(1_000_000), 1, &[Duration::from_millis(300)]);
    for number in 0..100_000 {
        let now = at(i64::from(number));
        flow.on_written(now, 100);
        flow.on_copy_sent(now, number, PathId(0));
        if number == 70 || number == 71 {
            flow.on_copy_lost(number, PathId(0), Some(Cause::Random));
        } else {
            flow.on_delivered(now + Duration::from_millis(20), message(number));
        }
    }
    let rows: usize = flow.blocks().map(<[_]>::len).sum();
    assert!(rows < 1_200, "{rows} rows are kept");
    // A copy arrives after 100 s: late, but not lost.
    assert_eq!(flow.on_delivered(at(100_000), message(71)), Some(at(71)));
    assert_eq!(flow.on_delivered(at(100_000), message(71)), None);
    flow.finish(&[]);
    let summary = &flow.summary;
    assert_eq!((summary.delivered, summary.lost, summary.in_flight), (99_999, 1, 0));
    // The run ends long after the last deadline.
    let deadline = &summary.deadlines[0];
    assert_eq!((deadline.trials, deadline.met), (100_000, 99_998));
}
