//! Small networks for tests.

use skybraid_link::{LinkConfig, LossSource, QueueConfig, RateSource};
use skybraid_sim::record::Record;
use skybraid_sim::{FlowSetup, Host, LinkSetup, Outcome, PathSetup, Setup, Silent, run};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::{Class, PathInfo, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed};

/// A path of constant rate and delay in both directions, with an unlimited queue.
pub fn path(name: &str, mbps: f64, delay_ms: i64) -> LinkSetup {
    let rate = RateSource::Constant(Rate::from_mbps(mbps));
    let link = LinkConfig {
        queue: QueueConfig::Unlimited,
        ..LinkConfig::plain(rate, Duration::from_millis(delay_ms))
    };
    LinkSetup {
        name: name.into(),
        ends: [0, 1],
        uplink: link.clone(),
        downlink: link,
        info: PathInfo::default(),
    }
}

/// The same path with uniform loss from vehicle to ground.
pub fn lossy(path: LinkSetup, ratio: f64) -> LinkSetup {
    let mut path = path;
    path.uplink.losses = vec![LossSource::Uniform(Probability::new(ratio).unwrap())];
    path
}

/// A flow from the vehicle over all of `paths` paths.
pub fn flow(
    name: &str,
    traffic: TrafficConfig,
    transport: TransportConfig,
    paths: usize,
) -> FlowSetup {
    FlowSetup {
        name: name.into(),
        group: name.into(),
        from: Host::Vehicle,
        class: Class::Data,
        start: Instant::ZERO,
        stop: Instant::FAR_FUTURE,
        traffic,
        transport: transport.into(),
        paths: (0..paths).collect(),
        deadline: None,
        judged_by: vec![Duration::from_millis(300)],
        frames_within: Vec::new(),
        judges_delays: false,
        rides_with: None,
        copies: 1,
        proxies: vec![],
    }
}

/// Constant bit rate.
pub fn cbr(mbps: f64, packet: u64) -> TrafficConfig {
    TrafficConfig::Cbr { rate: Rate::from_mbps(mbps), packet: Bytes::new(packet) }
}

/// A bulk source.
pub const BULK: TrafficConfig = TrafficConfig::Bulk { packet: Bytes::new(14_480) };

/// A transport of this protocol with defaults.
pub fn transport(protocol: Protocol) -> TransportConfig {
    TransportConfig { protocol, ..TransportConfig::default() }
}

/// Runs a simulation with every table.
pub fn simulate(seconds: i64, seed: u64, links: Vec<LinkSetup>, flows: Vec<FlowSetup>) -> Outcome {
    run(&setup(seconds, seed, links, flows), &mut Silent).unwrap()
}

/// Creates a run with every table.
pub fn setup(seconds: i64, seed: u64, links: Vec<LinkSetup>, flows: Vec<FlowSetup>) -> Setup {
    Setup {
        seed: Seed(seed),
        duration: Duration::from_secs(seconds),
        paths: PathSetup::over_each(&links),
        links,
        forwarding: vec![],
        fragment_size: None,
        flows,
        address_changes: vec![],
        record: Record { messages: true, subflows: true, links: true, ..Record::default() },
    }
}

/// Returns the goodput in Mbit/s.
pub fn goodput_mbps(outcome: &Outcome, flow: usize, seconds: i64) -> f64 {
    outcome.flows[flow].summary.delivered_bytes as f64 * 8.0 / seconds as f64 / 1e6
}
