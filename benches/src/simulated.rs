//! The simulator over the two paths of the main scenario, with 100 ms samples on.

use skybraid_scenario::Scenario;
use skybraid_sim::record::Record;
use skybraid_sim::{FlowSetup, Host, PathSetup, Setup, Silent, run};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::scheduler::{SchedulerConfig, low_rtt, redundant, round_robin, single};
use skybraid_transport::{Class, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

/// Virtual time of a run.
pub const DURATION: Duration = Duration::from_secs(600);
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
        transport,
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

/// A run of `flows` over the scenario's paths that keeps `record`.
pub fn setup(scenario: &Scenario, flows: Vec<FlowSetup>, record: Record) -> Setup {
    let setup = scenario.setup(Seed(1), record);
    Setup { duration: DURATION, paths: PathSetup::over_each(&setup.links), flows, ..setup }
}

fn fly(scenario: &Scenario, flows: Vec<FlowSetup>) -> u64 {
    let record = Record { links: true, subflows: true, ..Record::default() };
    run(&setup(scenario, flows, record), &mut Silent).map_or(0, |outcome| outcome.packet_hops)
}

/// One flow of datagrams with a copy on each path, as the scenario's control flow.
pub fn redundant(scenario: &Scenario) -> u64 {
    let scheduler = SchedulerConfig::Redundant(redundant::Config::default());
    let transport = TransportConfig { scheduler, ..TransportConfig::default() };
    fly(scenario, vec![flow("f", 1, transport, vec![0, 1])])
}

/// One flow of datagrams that takes the two paths in turn.
pub fn in_turn(scenario: &Scenario) -> u64 {
    let scheduler = SchedulerConfig::RoundRobin(round_robin::Config::default());
    let transport = TransportConfig { scheduler, ..TransportConfig::default() };
    fly(scenario, vec![flow("f", 2, transport, vec![0, 1])])
}

/// A TCP connection on each path.
pub fn tcp(scenario: &Scenario) -> u64 {
    let transport = TransportConfig {
        protocol: Protocol::Tcp,
        scheduler: SchedulerConfig::Single(single::Config::default()),
        ..TransportConfig::default()
    };
    fly(scenario, vec![flow("f", 1, transport.clone(), vec![0]), flow("g", 1, transport, vec![1])])
}

/// One MPTCP connection over both paths.
pub fn mptcp(scenario: &Scenario) -> u64 {
    let transport = TransportConfig {
        protocol: Protocol::Mptcp,
        scheduler: SchedulerConfig::LowRtt(low_rtt::Config::default()),
        ..TransportConfig::default()
    };
    fly(scenario, vec![flow("f", 2, transport, vec![0, 1])])
}
