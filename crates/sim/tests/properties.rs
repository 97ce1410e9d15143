//! What holds on any network.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use proptest::prelude::*;
use skybraid_link::{LossSource, QueueConfig};
use skybraid_sim::PathSetup;
use skybraid_traffic::TrafficConfig;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::reordering::{EngineConfig, ReorderingConfig};
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Probability};
use support::*;

/// A path of any quality: rate, delay, loss both ways, queue, and an outage in both directions.
fn any_path() -> impl Strategy<Value = PathSetup> {
    (1u32..200, 0i64..400, 0.0..0.15, 1u64..60, 0i64..20_000, 0i64..5_000).prop_map(
        |(rate, delay_ms, loss, packets, down_at_ms, down_ms)| {
            let mut path = path("p", f64::from(rate) / 10.0, delay_ms);
            for link in [&mut path.uplink, &mut path.downlink] {
                link.losses = vec![LossSource::Uniform(Probability::new(loss).unwrap())];
                link.queue = QueueConfig::Packets(packets);
                if down_ms > 0 {
                    let at = Instant::from_millis(down_at_ms);
                    link.down = vec![(at, Duration::from_millis(down_ms))];
                }
            }
            path
        },
    )
}

fn any_stream() -> impl Strategy<Value = TransportConfig> {
    let schedulers =
        prop_oneof![Just("low_rtt"), Just("round_robin"), Just("redundant"), Just("cheapest_path")];
    let congestion = prop_oneof![Just("reno"), Just("cubic")];
    (schedulers, congestion, 4_000u64..400_000, any::<bool>(), 1u32..4).prop_map(
        |(scheduler, congestion, receive_buffer, sack, ack_every)| TransportConfig {
            scheduler: SchedulerConfig::by_name(scheduler).unwrap(),
            congestion: CongestionConfig::by_name(congestion).unwrap(),
            receive_buffer: Bytes::new(receive_buffer),
            sack,
            ack_every,
            ..transport(Protocol::Mptcp)
        },
    )
}

fn named(paths: Vec<PathSetup>) -> Vec<PathSetup> {
    let name = |(index, path)| PathSetup { name: format!("p{index}"), ..path };
    paths.into_iter().enumerate().map(name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_reliable_transfer_ends_on_any_network_whose_paths_come_back(
        paths in proptest::collection::vec(any_path(), 1..4),
        transport in any_stream(),
        size in 1u64..120_000,
        seed in 0u64..1000,
    ) {
        let traffic = TrafficConfig::File { size: Bytes::new(size) };
        let count = paths.len();
        let flows = vec![flow("f", traffic, transport, count)];
        let outcome = simulate(4000, seed, named(paths), flows);
        prop_assert_eq!(outcome.flows[0].summary.delivered, 1);
        prop_assert_eq!(outcome.flows[0].summary.delivered_bytes, size);
        for row in &outcome.subflows {
            prop_assert!(row.window >= 1, "a window never closes");
        }
    }

    #[test]
    fn messages_of_a_stream_arrive_in_order_and_once(
        paths in proptest::collection::vec(any_path(), 1..3),
        transport in any_stream(),
        seed in 0u64..1000,
    ) {
        let count = paths.len();
        let flows = vec![flow("f", cbr(0.3, 700), transport, count)];
        let outcome = simulate(60, seed, named(paths), flows);
        let mut last = Instant::ZERO;
        let mut missing = false;
        for row in outcome.flows[0].blocks().flatten() {
            match row.delivered() {
                Some(at) => {
                    prop_assert!(!missing && at >= last && at >= row.sent());
                    last = at;
                }
                None => missing = true,
            }
        }
    }

    #[test]
    fn an_unreliable_message_is_delivered_once_or_lost_or_on_its_way(
        paths in proptest::collection::vec(any_path(), 1..4),
        protocol in prop_oneof![Just(Protocol::Udp), Just(Protocol::MpDccp)],
        scheduler in prop_oneof![Just("redundant"), Just("round_robin"), Just("low_rtt"), Just("cheapest_path")],
        congestion in prop_oneof![Just("ccid2"), Just("cubic"), Just("reno")],
        reordering in prop_oneof![Just("none"), Just("fixed"), Just("adaptive"), Just("equalised")],
        packet in 50u64..4000,
        ack_every in 1u32..6,
        seed in 0u64..1000,
    ) {
        let transport = TransportConfig {
            scheduler: SchedulerConfig::by_name(scheduler).unwrap(),
            congestion: CongestionConfig::by_name(congestion).unwrap(),
            reordering: ReorderingConfig(EngineConfig::by_name(reordering).unwrap()),
            ack_every,
            ..transport(protocol)
        };
        let count = paths.len();
        let flows = vec![flow("f", cbr(0.5, packet), transport, count)];
        let outcome = simulate(30, seed, named(paths), flows);
        let summary = &outcome.flows[0].summary;
        prop_assert_eq!(summary.sent, summary.delivered + summary.lost + summary.in_flight);
        prop_assert_eq!(summary.delays.total(), summary.delivered);
        prop_assert!(summary.refused <= summary.lost);
        for row in &outcome.subflows {
            prop_assert!(row.window >= 1, "a window never closes");
        }
    }
}
