//! Properties of any network.

use crate::support::*;
use proptest::prelude::*;
use skybraid_link::{Fate, LossSource, QueueConfig};
use skybraid_sim::{LinkSetup, Observer, PacketEvent, run};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::mptcp::path_manager::PathManager;
use skybraid_transport::reordering::{EngineConfig, ReorderingConfig};
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::tcp::scoreboard::LossDetection;
use skybraid_transport::{Body, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Probability};

/// A path of any quality: rate, delay, loss both ways, queue, and an outage in both directions.
fn any_path() -> impl Strategy<Value = LinkSetup> {
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

fn any_scheduler() -> impl Strategy<Value = SchedulerConfig> {
    proptest::sample::select(SchedulerConfig::ALL)
        .prop_map(|about| SchedulerConfig::by_name(about.name).unwrap())
}

fn any_congestion() -> impl Strategy<Value = CongestionConfig> {
    proptest::sample::select(CongestionConfig::ALL)
        .prop_map(|about| CongestionConfig::by_name(about.name).unwrap())
}

fn any_stream() -> impl Strategy<Value = TransportConfig> {
    let detection = proptest::sample::select(vec![
        LossDetection::Rack,
        LossDetection::Sack,
        LossDetection::Ns3,
        LossDetection::NewReno,
    ]);
    let manager = proptest::sample::select(vec![
        PathManager::FullMesh,
        PathManager::Ports(3),
        PathManager::Announced,
    ]);
    let algorithms = (any_scheduler(), any_congestion(), detection, manager);
    let switches = proptest::array::uniform6(any::<bool>());
    (algorithms, 4_000u64..400_000, switches, 1u32..4).prop_map(
        |((scheduler, congestion, loss_detection, path_manager), buffer, on, ack_every)| {
            TransportConfig {
                scheduler,
                congestion,
                loss_detection,
                path_manager,
                receive_buffer: Bytes::new(buffer),
                proportional_reduction: on[0],
                pacing: on[1],
                opportunistic_retransmission: on[2],
                penalisation: on[3],
                bufferbloat_mitigation: on[4],
                peer_multipath: on[5] || buffer % 8 > 0,
                ack_every,
                ..transport(Protocol::Mptcp)
            }
        },
    )
}

/// Observer of data sent beyond the peer's last received window.
#[derive(Default)]
struct BeyondWindow {
    /// For each host, the end of the window that it last advertised.
    advertised: [u64; 2],
    /// For each direction of data: windows in flight, by arrival, and the newest that has arrived.
    windows: [Vec<(Instant, u64)>; 2],
    open: [u64; 2],
    found: Option<String>,
}

impl Observer for BeyondWindow {
    fn wants_packets(&self) -> bool {
        true
    }

    fn packet(&mut self, event: &PacketEvent<'_>) {
        let Body::Tcp(tcp) = &event.segment.body else { return };
        let (own, other) = (usize::from(!event.uplink), usize::from(event.uplink));
        // RFC 8684 §3.3.4; edge case 13 of the algorithm reference, §12.
        if tcp.window_end < self.advertised[own] {
            self.found = Some(format!("the window moved left at {}", event.entered));
        }
        self.advertised[own] = tcp.window_end;
        let open = &mut self.open[own];
        self.windows[own].retain(|(at, end)| {
            if *at <= event.entered {
                *open = (*open).max(*end);
            }
            *at > event.entered
        });
        if tcp.len > 0 && tcp.dsn + u64::from(tcp.len) > *open {
            self.found = Some(format!("{} to {} at {}", tcp.dsn, tcp.len, event.entered));
        }
        if let Fate::Delivered { at } = event.fate {
            self.windows[other].push((at, tcp.window_end));
        }
    }
}

fn named(paths: Vec<LinkSetup>) -> Vec<LinkSetup> {
    let name = |(index, path)| LinkSetup { name: format!("p{index}"), ..path };
    paths.into_iter().enumerate().map(name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_reliable_transfer_ends_if_the_paths_come_back(
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
            prop_assert!(row.window >= 1424, "a window holds at least a segment: {}", row.window);
        }
    }

    #[test]
    fn nothing_is_sent_beyond_the_peer_s_window(
        paths in proptest::collection::vec(any_path(), 1..4),
        transport in any_stream(),
        seed in 0u64..1000,
    ) {
        let count = paths.len();
        let mut observer = BeyondWindow::default();
        let flows = vec![flow("f", BULK, transport, count)];
        let setup = setup(20, seed, named(paths), flows);
        run(&setup, &mut observer).unwrap();
        prop_assert_eq!(observer.found, None);
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
    fn an_unreliable_message_is_delivered_lost_or_in_flight(
        paths in proptest::collection::vec(any_path(), 1..4),
        protocol in prop_oneof![Just(Protocol::Udp), Just(Protocol::MpDccp)],
        scheduler in any_scheduler(),
        congestion in any_congestion(),
        reordering in proptest::sample::select(ReorderingConfig::ALL),
        packet in 50u64..4000,
        ack_every in 1u32..6,
        seed in 0u64..1000,
    ) {
        let transport = TransportConfig {
            scheduler,
            congestion,
            reordering: ReorderingConfig(EngineConfig::by_name(reordering.name).unwrap()),
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
