//! Allocations of a run in its steady state: packets are kept in buffers that have grown to
//! their size by then.

use skybraid_scenario::Scenario;
use skybraid_sim::record::Record;
use skybraid_sim::{Observer, PacketEvent, run};
use skybraid_transport::scheduler::{SchedulerConfig, low_rtt, redundant, single};
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Duration, Instant};

use crate::counting::allocations;
use crate::simulated::{flow, setup};

/// By then buffers have grown to their size, and rows of lost messages, which are kept for 120 s, are dropped as fast
/// as new ones come.
const WARM_UP: Duration = Duration::from_secs(300);
/// Virtual time of a run.
const DURATION: Duration = Duration::from_secs(600);
/// Most allocations per million packet-hops. A buffer may still grow now and then, when more is under
/// way than ever before; one allocation per thousand packets would be ten times as many.
const MOST: f64 = 100.0;

struct Variant {
    name: &'static str,
    protocol: Protocol,
    scheduler: fn() -> SchedulerConfig,
    /// The flow's packets in a millisecond.
    packets: u64,
    paths: &'static [usize],
}

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "UDP, one path",
        protocol: Protocol::Udp,
        scheduler: one_path,
        packets: 1,
        paths: &[0],
    },
    Variant {
        name: "UDP, redundant",
        protocol: Protocol::Udp,
        scheduler: every_path,
        packets: 1,
        paths: &[0, 1],
    },
    Variant { name: "TCP", protocol: Protocol::Tcp, scheduler: one_path, packets: 1, paths: &[0] },
    Variant {
        name: "MPTCP, lowest RTT",
        protocol: Protocol::Mptcp,
        scheduler: fastest_path,
        packets: 2,
        paths: &[0, 1],
    },
    Variant {
        name: "MP-DCCP, redundant",
        protocol: Protocol::MpDccp,
        scheduler: every_path,
        packets: 1,
        paths: &[0, 1],
    },
];

fn one_path() -> SchedulerConfig {
    SchedulerConfig::Single(single::Config::default())
}

fn fastest_path() -> SchedulerConfig {
    SchedulerConfig::LowRtt(low_rtt::Config::default())
}

fn every_path() -> SchedulerConfig {
    SchedulerConfig::Redundant(redundant::Config::default())
}

/// Counts packet-hops and allocations between the end of the warm-up and the end of the run.
#[derive(Default)]
struct Steady {
    packet_hops: u64,
    before: Option<u64>,
    after: u64,
}

impl Observer for Steady {
    fn progress(&mut self, now: Instant) -> bool {
        if now >= Instant::ZERO + WARM_UP {
            self.after = allocations();
            self.before.get_or_insert(self.after);
        }
        true
    }

    fn wants_packets(&self) -> bool {
        true
    }

    fn packet(&mut self, _event: &PacketEvent<'_>) {
        self.packet_hops += u64::from(self.before.is_some());
    }
}

/// Prints a line for each variant whose name holds `wanted`. True if one allocates too often.
pub fn report(scenario: &Scenario, wanted: &str) -> bool {
    let mut failed = false;
    let mut wanted = VARIANTS.iter().filter(|variant| variant.name.contains(wanted)).peekable();
    if wanted.peek().is_some() {
        println!(
            "\n{:<32} {:>29} {:>8}",
            "steady state", "allocations / 10⁶ packet-hops", "at most"
        );
    }
    for variant in wanted {
        let transport = TransportConfig {
            protocol: variant.protocol,
            scheduler: (variant.scheduler)(),
            ..TransportConfig::default()
        };
        let flows = vec![flow("f", variant.packets, transport, variant.paths.to_vec())];
        let mut steady = Steady::default();
        let flown = run(&setup(scenario, DURATION, flows, Record::default()), &mut steady).is_ok();
        let count = steady.after - steady.before.unwrap_or(steady.after);
        let rate = count as f64 * 1e6 / steady.packet_hops as f64;
        println!("{:<32} {rate:>30.1} {MOST:>8.0}", variant.name);
        failed |= !flown || steady.packet_hops == 0 || rate > MOST;
    }
    failed
}
