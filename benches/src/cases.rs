//! Small fixed cases whose instructions and allocations are counted: see `tests/counts`.
//!
//! The links are written out here, so that a change of a preset or a trace moves no count.

use std::collections::VecDeque;
use std::error::Error;
use std::hint::black_box;
use std::net::SocketAddr;

use skybraid_gateway::{ChannelId, Gateway, GatewayConfig, PrivateKey, Random, Secrets};
use skybraid_link::Link;
use skybraid_scenario::Scenario;
use skybraid_sim::record::Record;
use skybraid_sim::{Setup, Silent, run};
use skybraid_testing::Config;
use skybraid_transport::PathId;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_units::{Bytes, Duration, Instant, Seed, Stream};

use crate::algorithms::{Decisions, Subject};

/// Work that is ready to run; everything before it is not counted.
pub type Work = Box<dyn FnOnce()>;
type Prepared = Result<Work, Box<dyn Error>>;

/// A case: its name, and what prepares it.
pub struct Case {
    /// Name in the baseline.
    pub name: &'static str,
    /// Prepares the work to be counted.
    pub prepare: fn() -> Prepared,
}

/// All cases.
pub const CASES: [Case; 12] = [
    Case { name: "udp-one-path", prepare: || simulated([LINKS, UDP_ONE_PATH]) },
    Case { name: "udp-redundant", prepare: || simulated([LINKS, UDP_REDUNDANT]) },
    Case { name: "udp-in-turn", prepare: || simulated([LINKS, UDP_IN_TURN]) },
    Case { name: "tcp", prepare: || simulated([LINKS, TCP]) },
    Case { name: "mptcp", prepare: || simulated([LINKS, MPTCP]) },
    Case { name: "mp-dccp", prepare: || simulated([LINKS, MP_DCCP]) },
    Case { name: "video", prepare: || simulated([LINKS, VIDEO]) },
    Case { name: "flight", prepare: || simulated([FLIGHT, CONSTANT]) },
    Case { name: "flight-processes", prepare: || simulated([FLIGHT, PROCESSES]) },
    Case { name: "gateway-message", prepare: messages },
    Case { name: "link-admit", prepare: admissions },
    Case { name: "scheduler-decision", prepare: decisions },
];

/// Two links of constant rate and delay that lose packets.
const LINKS: &str = r#"
name = "counts"
duration = "20s"
seed = 1
[path.a]
rate = "20Mbit/s"
delay = "40ms"
loss = { uniform = "0.2%" }
queue = { bytes = "200kB" }
[path.b]
rate = "30Mbit/s"
delay = "25ms"
loss = { uniform = "0.1%" }
queue = { bytes = "300kB" }
"#;
const UDP_ONE_PATH: &str = r#"
[flow.f]
from = "vehicle"
traffic = { kind = "cbr", rate = "9.6Mbit/s", packet = "1200B" }
transport = { protocol = "udp", scheduler = "single", paths = ["a"] }
require = { deadline = "300ms", share = "90%" }
"#;
const UDP_REDUNDANT: &str = r#"
[flow.f]
from = "vehicle"
traffic = { kind = "cbr", rate = "9.6Mbit/s", packet = "1200B" }
transport = { protocol = "udp", scheduler = "redundant" }
require = { deadline = "300ms", share = "90%" }
"#;
const UDP_IN_TURN: &str = r#"
[flow.f]
from = "vehicle"
traffic = { kind = "cbr", rate = "19.2Mbit/s", packet = "1200B" }
transport = { protocol = "udp", scheduler = "round_robin" }
require = { deadline = "300ms", share = "90%" }
"#;
const TCP: &str = r#"
[flow.f]
from = "vehicle"
traffic = { kind = "cbr", rate = "9.6Mbit/s", packet = "1200B" }
transport = { protocol = "tcp", paths = ["b"] }
require = { deadline = "300ms", share = "90%" }
"#;
const MPTCP: &str = r#"
[flow.f]
from = "vehicle"
traffic = { kind = "cbr", rate = "12Mbit/s", packet = "1200B" }
transport = { protocol = "mptcp", scheduler = "low_rtt", congestion = "cubic" }
require = { deadline = "300ms", share = "90%" }
"#;
const MP_DCCP: &str = r#"
[flow.f]
from = "vehicle"
traffic = { kind = "cbr", rate = "9.6Mbit/s", packet = "1200B" }
transport = { protocol = "mp_dccp", scheduler = "redundant" }
require = { deadline = "300ms", share = "90%" }
"#;
const VIDEO: &str = r#"
[flow.f]
from = "vehicle"
traffic = { kind = "video", rate = "8Mbit/s", rate_control = { kind = "gcc" }, repair = { kind = "xor", share = "20%" } }
transport = { protocol = "udp", scheduler = "round_robin" }
require = [{ frames = "10%", within = "400ms" }]
"#;

/// The flows of the main scenario.
const FLIGHT: &str = r#"
name = "flight"
duration = "30s"
seed = 1
[flow.video]
from = "vehicle"
traffic = { kind = "cbr", rate = "10Mbit/s", packet = "1200B" }
transport = { protocol = "mptcp", scheduler = "low_rtt", congestion = "cubic" }
require = { deadline = "300ms", share = "90%" }
[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "redundant" }
require = { deadline = "300ms", share = "99.999%" }
"#;
/// Paths with nothing that varies.
const CONSTANT: &str = r#"
[path]
lte = { rate = "40Mbit/s", delay = "40ms", loss = { uniform = "0.01%" } }
leo = { rate = "80Mbit/s", delay = "25ms", loss = { uniform = "0.01%" } }
"#;
/// The same paths with all processes of the families of flights.
const PROCESSES: &str = r#"
[path.lte]
rate = { process = [[0, "20Mbit/s"], [0.5, "40Mbit/s"], [1, "60Mbit/s"]], slow = "40s", fast = "2s", slow_share = 0.7, both_ways = 0.5 }
delay = { process = [[0, "0ms"], [0.5, "8ms"], [0.99, "70ms"], [1, "80ms"]], plus = "32ms", slow = "10s", fast = "0s", slow_share = 0.5, step = "200ms", both_ways = 1.0 }
loss = { uniform = "0.01%" }
handover = { interval = { mean = "20s" }, interruption = { quantiles = [[0, "20ms"], [0.9, "50ms"], [1, "300ms"]] } }
stall = { interval = { mean = "15s" }, length = { quantiles = [[0, "150ms"], [0.9, "500ms"], [1, "2s"]] } }
outage = { interval = { mean = "60s" }, length = { quantiles = [[0, "500ms"], [1, "2s"]] } }
[path.leo]
rate = { process = [[0, "30Mbit/s"], [0.5, "80Mbit/s"], [1, "120Mbit/s"]], slow = "40s", fast = "2s", slow_share = 0.7, both_ways = 0.5 }
delay = { process = [[0, "0ms"], [0.5, "4ms"], [1, "20ms"]], plus = "21ms", slow = "10s", fast = "1s", slow_share = 0.5, step = "1s", both_ways = 1.0 }
loss = { on_off = { on = { mean = "20s" }, off = "1s", off_loss = "5%" } }
reconfiguration = { every = "15s", phase = "12s", interruption = "20ms", delay_step = { quantiles = [[0, "0ms"], [1, "8ms"]] } }
outage = { interval = { mean = "60s" }, length = { quantiles = [[0, "500ms"], [1, "2s"]] } }
"#;

/// Returns the run of a scenario that is written in two parts.
fn parsed(parts: [&str; 2]) -> Result<Setup, Box<dyn Error>> {
    let scenario = Scenario::parse(&parts.concat(), "counts.toml".as_ref(), &[])?;
    Ok(scenario.setup(Seed(1), Record::default()))
}

/// Returns a run without tables.
fn simulated(parts: [&str; 2]) -> Prepared {
    let setup = parsed(parts)?;
    Ok(Box::new(move || {
        black_box(run(&setup, &mut Silent)).ok();
    }))
}

/// Returns packets for both links, one per millisecond.
fn admissions() -> Prepared {
    let setup = parsed([LINKS, UDP_REDUNDANT])?;
    let links = setup.links.iter();
    let mut links: Vec<_> =
        links.map(|pair| Link::new(&pair.uplink, &pair.name, "uplink", Seed(1))).collect();
    Ok(Box::new(move || {
        for ms in 0..50_000 {
            for link in &mut links {
                black_box(link.admit(Instant::from_millis(ms), Bytes::new(1228)));
            }
        }
    }))
}

/// Returns decisions of every scheduler for eight paths.
fn decisions() -> Prepared {
    let named =
        SchedulerConfig::ALL.iter().filter_map(|about| SchedulerConfig::by_name(about.name));
    let mut all: Vec<_> = named.map(|config| Decisions::new(&config, 8)).collect();
    Ok(Box::new(move || all.iter_mut().for_each(|decisions| decisions.round(4_000))))
}

/// Secrets from a seed.
struct Drawn(Stream);

impl Random for Drawn {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.0.below(256) as u8);
    }
}

/// Two gateways over two networks with a constant delay.
struct Pair {
    ends: [Gateway; 2],
    addresses: [SocketAddr; 2],
    /// Datagrams in flight to each end, in order of arrival.
    in_flight: [VecDeque<(Instant, PathId, Vec<u8>)>; 2],
    delivered: usize,
}

impl Pair {
    const DELAY: Duration = Duration::from_millis(30);

    fn new() -> Result<Self, Box<dyn Error>> {
        let mut random = Seed(1).stream("keys");
        let mut secret = || PrivateKey(core::array::from_fn(|_| random.below(256) as u8));
        let keys = [secret(), secret()];
        let [aircraft, ground] = ["aircraft", "ground"].map(|name| {
            let peer = keys[usize::from(name == "aircraft")].public();
            let text = format!(
                "side = \"{name}\"\nkey = \"-\"\npeer = \"{peer}\"\n\
                 [[mavlink]]\nserial = \"-\"\n[path.a]\n[path.b]\n"
            );
            GatewayConfig::parse(&text)
        });
        let configs = [aircraft?, ground?];
        let [first, second] = [0, 1].map(|end| {
            let random = Drawn(Seed(1).stream(["aircraft", "ground"][end]));
            let secrets = Secrets::from(keys[end].clone());
            Gateway::new(Instant::ZERO, &configs[end], secrets, Box::new(random))
        });
        let addresses = ["10.0.0.1:5000".parse()?, "192.0.2.1:4100".parse()?];
        let mut pair = Self {
            ends: [first, second],
            addresses,
            in_flight: [VecDeque::new(), VecDeque::new()],
            delivered: 0,
        };
        for path in [PathId(0), PathId(1)] {
            pair.ends[0].set_remote(path, Some(addresses[1]));
        }
        Ok(pair)
    }

    /// Runs one millisecond from `now` on.
    fn step(&mut self, now: Instant) {
        let mut out = Vec::new();
        for end in [0, 1] {
            while let Some((at, path, _)) = self.in_flight[end].front()
                && *at <= now
            {
                let path = *path;
                let Some((_, _, bytes)) = self.in_flight[end].pop_front() else { return };
                self.ends[end].receive(now, self.addresses[1 - end], &bytes, path);
            }
            self.ends[end].wake(now);
            while let Some(outgoing) = self.ends[end].poll_send(now, &mut out) {
                self.in_flight[1 - end].push_back((now + Self::DELAY, outgoing.path, out.clone()));
            }
            while self.ends[end].poll_local(&mut out).is_some() {
                self.delivered += 1;
            }
        }
    }
}

/// Returns a pair of gateways that carry a command each 5 ms in both directions.
fn messages() -> Prepared {
    let mut pair = Pair::new()?;
    (0..1_000).for_each(|ms| pair.step(Instant::from_millis(ms)));
    Ok(Box::new(move || {
        // A MAVLink 2 frame of a COMMAND_LONG.
        let mut frame = vec![0xfd, 8, 0, 0, 0, 255, 1, 76, 0, 0];
        frame.extend([0; 10]);
        for ms in 1_000..5_000_i64 {
            let now = Instant::from_millis(ms);
            if ms % 5 == 0 {
                frame[10..14].copy_from_slice(&(ms as u32).to_le_bytes());
                pair.ends.iter_mut().for_each(|end| end.write(now, ChannelId(0), &frame));
            }
            pair.step(now);
        }
        assert!(black_box(pair.delivered) > 1_500, "{} messages were delivered", pair.delivered);
    }))
}
