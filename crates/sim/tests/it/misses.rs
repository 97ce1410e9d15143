//! Causes of misses: each miss has one cause, and the counts add up.

use crate::support::*;
use proptest::prelude::*;
use skybraid_link::{Cause, QueueConfig};
use skybraid_sim::record::{MissCause, Record, Summary};
use skybraid_sim::{FlowSetup, LinkSetup, Silent, run};
use skybraid_testing::Config;
use skybraid_traffic::TrafficConfig;
use skybraid_transport::reordering::{EngineConfig, ReorderingConfig};
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Duration, Instant};

fn scheduler(name: &str) -> SchedulerConfig {
    SchedulerConfig::by_name(name).unwrap()
}

/// Returns the summaries of one flow over `links`, without tables and with them.
fn summaries(seconds: i64, seed: u64, links: &[LinkSetup], flow: &FlowSetup) -> [Summary; 2] {
    [false, true].map(|messages| {
        let mut setup = setup(seconds, seed, links.to_vec(), vec![flow.clone()]);
        setup.record = Record { messages, ..Record::default() };
        run(&setup, &mut Silent).unwrap().flows[0].summary.clone()
    })
}

/// Returns the causes of the messages that missed the first deadline.
fn causes(links: &[LinkSetup], flow: &FlowSetup) -> Vec<(MissCause, u64)> {
    let [summary, _] = summaries(20, 1, links, flow);
    assert_add_up(&summary);
    summary.misses.by_deadline[0].iter().collect()
}

fn assert_add_up(summary: &Summary) {
    for (deadline, counts) in summary.deadlines.iter().zip(&summary.misses.by_deadline) {
        assert_eq!(counts.total(), deadline.trials - deadline.met, "{counts:?}");
    }
    assert_eq!(summary.misses.lost.total(), summary.lost, "{:?}", summary.misses.lost);
    let Some(video) = &summary.video else { return };
    for (deadline, counts) in video.deadlines.iter().zip(&video.misses) {
        assert_eq!(counts.total(), deadline.trials - deadline.met, "{counts:?}");
    }
    assert_eq!(video.damaged.total(), video.frames - video.intact);
}

fn control(transport: TransportConfig, paths: usize) -> FlowSetup {
    flow("control", cbr(1.0, 1000), transport, paths)
}

#[test]
fn a_loss_is_named_by_its_path_and_its_effect() {
    let links = [lossy(path("lte", 10.0, 20), 0.1)];
    let found = causes(&links, &control(transport(Protocol::Udp), 1));
    let [(cause, count)] = found[..] else { panic!("{found:?}") };
    assert_eq!(cause, MissCause::Lost { path: 0, effect: Some(Cause::Random) });
    assert!(count > 150);
}

#[test]
fn the_copy_lost_last_names_the_path() {
    let links = [lossy(path("lte", 10.0, 20), 1.0), lossy(path("leo", 10.0, 40), 1.0)];
    let redundant =
        TransportConfig { scheduler: scheduler("redundant"), ..transport(Protocol::Udp) };
    let found = causes(&links, &control(redundant, 2));
    assert_eq!(found[0].0, MissCause::Lost { path: 1, effect: Some(Cause::Random) });
    assert_eq!(found.len(), 1);
}

#[test]
fn a_path_longer_than_the_deadline_is_late_by_propagation() {
    let found = causes(&[path("geo", 10.0, 400)], &control(transport(Protocol::Udp), 1));
    assert_eq!(found, [(MissCause::Propagation { path: 0 }, found[0].1)]);
}

#[test]
fn a_backlog_is_late_by_the_queue_also_at_the_end() {
    let found = causes(&[path("slow", 0.5, 20)], &control(transport(Protocol::Udp), 1));
    assert_eq!(found, [(MissCause::Queue { path: 0 }, found[0].1)]);
}

#[test]
fn a_halt_is_distinguished_from_its_queue() {
    let mut link = path("leo", 10.0, 20);
    link.uplink.halts = vec![(Instant::from_millis(5_000), Duration::from_millis(800))];
    let found = causes(&[link], &control(transport(Protocol::Udp), 1));
    let [(cause, count)] = found[..] else { panic!("{found:?}") };
    assert_eq!(cause, MissCause::Halt { path: 0 });
    // 125 messages a second. A message sent t into the halt waits for the remaining 800 ms - t and for the
    // queue to drain, a tenth of t: more than 280 ms for t below 577 ms.
    assert!((71..=74).contains(&count), "{count}");
}

#[test]
fn tcp_is_late_by_retransmissions_and_by_waiting_for_order() {
    let links = [lossy(path("lte", 10.0, 120), 0.02)];
    let found = causes(&links, &control(transport(Protocol::Tcp), 1));
    let names: Vec<&str> = found.iter().map(|(cause, _)| cause.name()).collect();
    assert!(names.contains(&"retransmission") && names.contains(&"order"), "{names:?}");
}

#[test]
fn a_window_that_is_too_small_is_late_by_the_sender() {
    let tcp = TransportConfig {
        receive_buffer: skybraid_units::Bytes::new(3000),
        ..transport(Protocol::Tcp)
    };
    let found = causes(&[path("lte", 10.0, 50)], &control(tcp, 1));
    // Messages not sent by the end were also late by the sender.
    let causes: Vec<MissCause> = found.iter().map(|(cause, _)| *cause).collect();
    assert_eq!(causes, [MissCause::Sender, MissCause::Unsent], "{found:?}");
}

#[test]
fn refused_and_expired_messages_are_distinguished() {
    let dccp = |tx_queue, drop_expired| TransportConfig {
        tx_queue: Some(tx_queue),
        drop_expired,
        ..transport(Protocol::Dccp)
    };
    let slow = [path("slow", 0.5, 20)];
    let found = causes(&slow, &control(dccp(5, false), 1));
    assert!(found.iter().any(|(cause, _)| *cause == MissCause::Refused), "{found:?}");
    let limit = Some(Duration::from_millis(300));
    let flow = FlowSetup { deadline: limit, ..control(dccp(10_000, true), 1) };
    let found = causes(&slow, &flow);
    assert!(found.iter().any(|(cause, _)| *cause == MissCause::Expired), "{found:?}");
    assert!(found.iter().all(|(cause, _)| *cause != MissCause::Refused), "{found:?}");
}

#[test]
fn damaged_references_are_distinguished_from_losses() {
    let text = "kind = \"video\"\nrate = \"6Mbit/s\"";
    let limit = Duration::from_millis(400);
    let video = FlowSetup {
        frames_within: vec![limit],
        ..flow("video", TrafficConfig::parse(text).unwrap(), transport(Protocol::Udp), 1)
    };
    let [summary, _] = summaries(20, 1, &[lossy(path("lte", 100.0, 40), 0.002)], &video);
    assert_add_up(&summary);
    let found = &summary.video.unwrap().misses[0];
    let count = |name: &str| {
        let named = found.iter().filter(|(cause, _)| cause.name() == name);
        named.map(|(_, count)| count).sum()
    };
    let (lost, reference): (u64, u64) = (count("lost"), count("reference"));
    assert!(lost > 0 && reference > lost, "{found:?}");
    assert_eq!(lost + reference, found.total());
}

fn any_link() -> impl Strategy<Value = LinkSetup> {
    let times = (0i64..8_000, 0i64..2_000, 0i64..8_000, 0i64..1_000);
    (1u32..80, 0i64..400, 0.0..0.1, 2u64..60, times).prop_map(
        |(rate, delay_ms, loss, packets, (down_ms, down_for, halt_ms, halt_for))| {
            let mut path = lossy(path("p", f64::from(rate) / 10.0, delay_ms), loss);
            path.uplink.queue = QueueConfig::Packets(packets);
            let span = |at, lasts| vec![(Instant::from_millis(at), Duration::from_millis(lasts))];
            if down_for > 1000 {
                path.uplink.down = span(down_ms, down_for);
            }
            if halt_for > 500 {
                path.uplink.halts = span(halt_ms, halt_for);
            }
            path
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn causes_add_up_to_all_misses(
        links in proptest::collection::vec(any_link(), 1..4),
        protocol in proptest::sample::select(Protocol::ALL.to_vec()),
        about in proptest::sample::select(SchedulerConfig::ALL),
        (tx_queue, drop_expired, reordered, refuses) in (1u32..200, any::<bool>(), any::<bool>(), any::<bool>()),
        (is_video, copies, packet) in (any::<bool>(), 1u8..3, 200u64..4_000),
        seed in any::<u64>(),
    ) {
        let reordering = if reordered {
            ReorderingConfig(EngineConfig::by_name("fixed").unwrap())
        } else {
            ReorderingConfig::none()
        };
        let transport = TransportConfig {
            scheduler: SchedulerConfig::by_name(about.name).unwrap(),
            tx_queue: Some(tx_queue),
            drop_expired,
            refuse_when_full: refuses,
            send_buffer: skybraid_units::Bytes::new(50_000),
            reordering,
            ..transport(protocol)
        };
        let traffic = if is_video {
            TrafficConfig::parse("kind = \"video\"\nrate = \"2Mbit/s\"\ndrop_after = \"400ms\"").unwrap()
        } else {
            cbr(1.0, packet)
        };
        let flow = FlowSetup {
            judged_by: [100, 300, 2_000].map(Duration::from_millis).to_vec(),
            frames_within: [300, 1_000].map(Duration::from_millis).to_vec(),
            deadline: Some(Duration::from_millis(300)),
            copies,
            ..flow("flow", traffic, transport, links.len())
        };
        let [without, with] = summaries(10, seed, &links, &flow);
        assert_add_up(&without);
        assert_add_up(&with);
        prop_assert_eq!(&without.misses, &with.misses);
    }
}
