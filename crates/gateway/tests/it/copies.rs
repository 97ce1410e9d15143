//! Copies before a deadline, between two gateways and in the simulator: both miss as much, for as many packets.

use crate::field::{AIRCRAFT, Field, GROUND, LEO, LTE, Shape, simulated_flow};
use skybraid_gateway::config::ClassConfig;
use skybraid_link::{LinkConfig, LossSource, RateSource};
use skybraid_sim::record::Record;
use skybraid_sim::{FlowSetup, Host, LinkSetup, PathSetup, Setup, Silent, run};
use skybraid_statistics::{Interval, RunShare, share_interval, student_quantile};
use skybraid_testing::Config;
use skybraid_traffic::TrafficConfig;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::{PathInfo, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed};

/// Schedulers with their settings; the first sends no copy.
const SCHEDULERS: [(&str, &str); 8] = [
    ("low_rtt", ""),
    ("hedge", ", within = \"150ms\""),
    ("early_warning", ", within = \"150ms\""),
    ("deadline", ", within = \"150ms\""),
    ("coded", ", within = \"150ms\""),
    ("rounds", ", within = \"150ms\""),
    ("streaming", ""),
    ("budget", ", rtt = \"300ms\""),
];

/// Paths between the gateways, but for the losses, and for what LTE takes longer towards the ground.
const PATHS: fn() -> [Shape; 2] = || {
    [
        Shape(LEO().0, Rate::from_mbps(15.0), Duration::from_millis(25), 1_500),
        Shape(LTE().0, Rate::from_mbps(20.0), Duration::from_millis(30), 1_500),
    ]
};
const LOSS: f64 = 0.05;
const LTE_SLOWER: Duration = Duration::from_millis(15);

const START: Instant = Instant::from_millis(3_000);
const END: Instant = Instant::from_millis(23_000);
const EVERY: Duration = Duration::from_millis(10);
const WITHIN: Duration = Duration::from_millis(150);
const BYTES: usize = 1250;
const FLIGHTS: u64 = 4;

/// Messages of all flights, and the packets that left the aircraft.
#[derive(Debug, Default)]
struct Count {
    /// Messages whose deadline fell within the flight.
    sent: u64,
    in_time: u64,
    /// Packets per message of each flight.
    packets: Vec<f64>,
}

impl Count {
    fn add(&mut self, sent: u64, in_time: u64, packets: u64) {
        self.sent += sent;
        self.in_time += in_time;
        self.packets.push(packets as f64 / sent as f64);
    }

    fn in_time(&self) -> Interval {
        share_interval(&[RunShare::of_counts(self.sent, self.in_time)], 0.95).interval
    }

    /// Mean of the packets per message, less `base`.
    fn packets_above(&self, base: f64) -> Interval {
        let flights = self.packets.len() as f64;
        let mean = self.packets.iter().sum::<f64>() / flights;
        let squares = self.packets.iter().map(|each| (each - mean) * (each - mean)).sum::<f64>();
        let error = (squares / (flights - 1.0) / flights).sqrt();
        let half = error * student_quantile(flights - 1.0, 0.975);
        Interval { low: mean - base - half, high: mean - base + half }
    }
}

fn simulated(scheduler: &SchedulerConfig) -> Count {
    let slower = [Duration::ZERO, LTE_SLOWER];
    let links = PATHS().into_iter().zip(slower).map(|(Shape(name, rate, delay, mtu), slower)| {
        let plain = |delay| LinkConfig::plain(RateSource::Constant(rate), delay);
        let downlink = LinkConfig { mtu: Bytes::new(mtu), ..plain(delay) };
        let losses = vec![LossSource::Uniform(Probability::new(LOSS).unwrap())];
        let uplink = LinkConfig { mtu: Bytes::new(mtu), losses, ..plain(delay + slower) };
        LinkSetup { name: name.into(), ends: [0, 1], uplink, downlink, info: PathInfo::default() }
    });
    let links: Vec<LinkSetup> = links.collect();
    let bytes = Bytes::new(BYTES as u64);
    let transport = TransportConfig { scheduler: scheduler.clone(), ..TransportConfig::default() };
    let traffic = TrafficConfig::Cbr { rate: Rate::from_mbps(1.0), packet: bytes };
    let flow = FlowSetup {
        start: START,
        judged_by: vec![WITHIN],
        ..simulated_flow("control", Host::Vehicle, traffic, transport)
    };
    let setup = Setup {
        seed: Seed(1),
        duration: END.since(Instant::ZERO),
        paths: PathSetup::over_each(&links),
        links,
        forwarding: Vec::new(),
        fragment_size: None,
        flows: vec![flow],
        address_changes: Vec::new(),
        record: Record::default(),
    };
    let mut count = Count::default();
    for seed in 1..=FLIGHTS {
        let outcome = run(&Setup { seed: Seed(seed), ..setup.clone() }, &mut Silent).unwrap();
        let judged = &outcome.flows[0].summary.deadlines[0];
        let uplinks = outcome.link_totals.iter().step_by(2);
        let packets = uplinks.map(|link| link.delivered + link.lost.iter().sum::<u64>()).sum();
        count.add(judged.trials, judged.met, packets);
    }
    count
}

fn between_gateways(scheduler: &str) -> Count {
    let classes = format!(
        "[udp.control]\nsend_to = \"127.0.0.1:1\"\nclass = \"control\"\n\
         [class.control]\n{scheduler}"
    );
    let mut count = Count::default();
    for seed in 1..=FLIGHTS {
        let mut field = Field::new(seed, &PATHS(), &classes);
        field.ways.iter_mut().for_each(|way| way.faults[AIRCRAFT].loss = LOSS);
        field.ways[1].faults[AIRCRAFT].slower = LTE_SLOWER;
        field.run(START);
        let mut written = Vec::new();
        while field.now < END {
            let mut message = [0; BYTES];
            message[..8].copy_from_slice(&(written.len() as u64).to_le_bytes());
            written.push(field.now);
            field.write(AIRCRAFT, 1, &message);
            field.run(field.now + EVERY);
        }
        let mut seen = vec![false; written.len()];
        for (at, _, message) in &field.handed[GROUND] {
            let number = u64::from_le_bytes(message[..8].try_into().unwrap()) as usize;
            seen[number] |= at.since(written[number]) <= WITHIN;
        }
        let due = written.iter().filter(|at| **at + WITHIN <= END).count();
        let in_time = seen[..due].iter().filter(|in_time| **in_time).count();
        let packets = field.ways.iter().map(|way| way.packets[AIRCRAFT]).sum();
        count.add(due as u64, in_time as u64, packets);
    }
    count
}

fn meet(one: Interval, other: Interval) -> bool {
    one.low.max(other.low) <= one.high.min(other.high)
}

#[test]
fn gateways_miss_what_the_simulator_misses_for_as_many_copies() {
    let mut bases = None;
    for (name, settings) in SCHEDULERS {
        let text = format!("scheduler = {{ name = \"{name}\"{settings} }}\n");
        let class = ClassConfig::parse(&text).unwrap();
        let both = [simulated(&class.scheduler.unwrap()), between_gateways(&text)];
        let [base, own_base] = *bases.get_or_insert_with(|| {
            [0, 1].map(|side| {
                let Interval { low, high } = both[side].packets_above(0.0);
                f64::midpoint(low, high)
            })
        });
        let [one, other] = &both;
        let over = [one.packets_above(base), other.packets_above(own_base)];
        let [overhead, own_overhead] =
            over.map(|Interval { low, high }| 100.0 * f64::midpoint(low, high));
        println!(
            "| `{name}` | {} of {} | {} of {} | {overhead:.1} % | {own_overhead:.1} % |",
            one.sent - one.in_time,
            one.sent,
            other.sent - other.in_time,
            other.sent,
        );
        assert!(meet(one.in_time(), other.in_time()), "{name}: {both:?}");
        assert!(
            meet(over[0], over[1]) || (overhead - own_overhead).abs() <= 2.0,
            "{name}: {both:?}"
        );
    }
}
