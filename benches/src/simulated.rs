//! The simulator over the two paths of the main scenario, with 100 ms samples on, next to a bare loop over the same
//! links.

use skybraid_scenario::Scenario;
use skybraid_sim::record::Record;
use skybraid_sim::{FlowSetup, Host, PathSetup, Setup, Silent, run};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::scheduler::{SchedulerConfig, low_rtt, redundant, round_robin, single};
use skybraid_transport::{Class, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

use crate::floor;

/// A variant: what runs, and the share of the bare loop's speed that it must reach.
pub struct Variant {
    /// Name in the table.
    pub name: &'static str,
    /// Minimum share of the bare loop's speed; `None` for the loop itself.
    pub target: Option<f64>,
    /// Simulates this time. Returns packet-hops.
    pub run: fn(&Scenario, Duration) -> u64,
}

/// All variants; the first is the bare loop.
pub const VARIANTS: [Variant; 5] = [
    Variant { name: "floor: bare loop, two links", target: None, run: floor::run },
    Variant { name: "datagrams, redundant", target: Some(0.6), run: redundant },
    Variant { name: "datagrams, in turn", target: Some(0.5), run: in_turn },
    Variant { name: "TCP", target: Some(0.2), run: tcp },
    Variant { name: "MPTCP", target: Some(0.2), run: mptcp },
];

/// The scenario whose paths are used, from the repository's root.
pub const SCENARIO: &str = "scenarios/remote-piloting.toml";

/// Payload of a packet in bytes.
pub const PACKET: u64 = 1200;
/// From one packet to the next on each link: 9.6 Mbit/s of payload.
pub const INTERVAL: Duration = Duration::from_millis(1);

/// A flow that sends `packets_per_ms` packets every millisecond.
pub fn flow(
    name: &str,
    packets_per_ms: u64,
    transport: TransportConfig,
    paths: Vec<usize>,
) -> FlowSetup {
    FlowSetup {
        name: name.into(),
        group: name.into(),
        from: Host::Vehicle,
        class: Class::Data,
        start: Instant::ZERO,
        stop: Instant::FAR_FUTURE,
        traffic: TrafficConfig::Cbr {
            rate: Rate::from_bps(packets_per_ms * PACKET * 8 * 1000),
            packet: Bytes::new(PACKET),
        },
        transport: transport.into(),
        paths,
        deadline: None,
        judged_by: vec![Duration::from_millis(300)],
        frames_within: Vec::new(),
        judges_delays: false,
        rides_with: None,
        copies: 1,
        proxies: Vec::new(),
    }
}

/// A run of `flows` over the scenario's paths, of this duration, that keeps `record`.
pub fn setup(
    scenario: &Scenario,
    duration: Duration,
    flows: Vec<FlowSetup>,
    record: Record,
) -> Setup {
    let setup = scenario.setup(Seed(1), record);
    Setup { duration, paths: PathSetup::over_each(&setup.links), flows, ..setup }
}

fn fly(scenario: &Scenario, duration: Duration, flows: Vec<FlowSetup>) -> u64 {
    let record = Record { links: true, subflows: true, ..Record::default() };
    let setup = setup(scenario, duration, flows, record);
    run(&setup, &mut Silent).map_or(0, |outcome| outcome.packet_hops)
}

/// One flow of datagrams with a copy on each path, as the scenario's control flow.
fn redundant(scenario: &Scenario, duration: Duration) -> u64 {
    let scheduler = SchedulerConfig::Redundant(redundant::Config::default());
    let transport = TransportConfig { scheduler, ..TransportConfig::default() };
    fly(scenario, duration, vec![flow("f", 1, transport, vec![0, 1])])
}

/// One flow of datagrams that takes the two paths in turn.
fn in_turn(scenario: &Scenario, duration: Duration) -> u64 {
    let scheduler = SchedulerConfig::RoundRobin(round_robin::Config::default());
    let transport = TransportConfig { scheduler, ..TransportConfig::default() };
    fly(scenario, duration, vec![flow("f", 2, transport, vec![0, 1])])
}

/// A TCP connection on each path.
fn tcp(scenario: &Scenario, duration: Duration) -> u64 {
    let transport = TransportConfig {
        protocol: Protocol::Tcp,
        scheduler: SchedulerConfig::Single(single::Config::default()),
        ..TransportConfig::default()
    };
    fly(
        scenario,
        duration,
        vec![flow("f", 1, transport.clone(), vec![0]), flow("g", 1, transport, vec![1])],
    )
}

/// One MPTCP connection over both paths.
fn mptcp(scenario: &Scenario, duration: Duration) -> u64 {
    let transport = TransportConfig {
        protocol: Protocol::Mptcp,
        scheduler: SchedulerConfig::LowRtt(low_rtt::Config::default()),
        ..TransportConfig::default()
    };
    fly(scenario, duration, vec![flow("f", 2, transport, vec![0, 1])])
}
