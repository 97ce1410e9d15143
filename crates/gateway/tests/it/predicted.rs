//! Gateways and the simulator of the same flights: the same links, traffic and policy give the same delays and shares.

use std::fs;

use crate::field::{AIRCRAFT, Field, GROUND, LEO, LTE, simulated_flow};
use skybraid_link::{Direction, Link, LinkConfig, PathConfig, presets};
use skybraid_sim::record::Record;
use skybraid_sim::{FlowSetup, Host, LinkSetup, PathSetup, Setup, Silent, run};
use skybraid_statistics::{Interval, RunShare, share_interval, student_quantile};
use skybraid_testing::{Config, paths_of};
use skybraid_traffic::{Source, TrafficConfig};
use skybraid_transport::{Class, PathInfo, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Seed};

/// Start of the flows, gateways having found one another, and of the messages that count: windows have grown.
const START: Instant = Instant::from_millis(3_000);
const BEGIN: Instant = Instant::from_millis(4_000);
/// Time before the end of a flight in which no message counts: it may be under way.
const REST: Duration = Duration::from_secs(1);

/// Bytes of a gateway's packet that the simulated MP-DCCP lacks: 26 of the envelope, 5 of the message.
const OVERHEAD: Bytes = Bytes::new(26 + 5);

const FLIGHTS: u64 = 12;

/// Traffic and transport of the commands from the ground.
const COMMANDS: [&str; 2] = [
    "kind = \"cbr\"\nrate = \"200kbit/s\"\npacket = \"125B\"",
    "protocol = \"udp\"\nscheduler = \"redundant\"",
];

/// A gateway's transport of video.
const VIDEO: &str = r#"
protocol = "mp_dccp"
scheduler = "low_rtt"
congestion = { name = "ccid5", radio = true }
tx_queue = 400
restart_window = 4
pace_queue = "8ms"
drop_expired = true
"#;

const CHANNELS: &str = r#"
[udp.control]
listen = "127.0.0.1:1"
class = "control"
[udp.video]
listen = "127.0.0.1:2"
"#;

/// Places among the flows: one less than that of the channel, since MAVLink's is the first.
const CONTROL_FLOW: usize = 0;
const VIDEO_FLOW: usize = 1;

struct Flow {
    from: Host,
    traffic: TrafficConfig,
    transport: TransportConfig,
}

/// A message: when it was written, and when it was delivered.
type Message = (Instant, Option<Instant>);

/// Delays in ms of all frames of a flight, or of all messages; none of what did not arrive.
type Delays = Vec<Option<f64>>;

/// Flights of one scenario.
struct Flights {
    /// Links each way of the paths `leo` and `lte`.
    links: Vec<(String, [LinkConfig; 2])>,
    flows: [Flow; 2],
    end: Instant,
}

impl Flights {
    /// Creates flights of `seconds` over the paths of a scenario; trace files are relative to the folder `scenarios`.
    fn new(paths: &str, video: &str, seconds: i64) -> Self {
        let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
        let links = paths_of(paths).unwrap().into_iter().map(|(name, mut path)| {
            if let Some(preset) = path.preset.as_deref().and_then(presets::find) {
                path = path.with_defaults(&PathConfig::parse(preset.text).unwrap());
            }
            for trace in path.traces_mut() {
                let text = fs::read_to_string(format!("{scenarios}{}", trace.file.trace)).unwrap();
                trace.load(&text).unwrap();
            }
            (name, Direction::ALL.map(|way| path.link(way).unwrap()))
        });
        let flow = |from, [traffic, transport]: [&str; 2]| Flow {
            from,
            traffic: TrafficConfig::parse(traffic).unwrap(),
            transport: TransportConfig::parse(transport).unwrap(),
        };
        let flows = [flow(Host::Ground, COMMANDS), flow(Host::Vehicle, [video, VIDEO])];
        Self { links: links.collect(), flows, end: Instant::from_millis(1_000 * seconds) }
    }

    /// Messages of each flow in the simulator.
    fn simulated(&self, seed: u64) -> [Vec<Message>; 2] {
        let links = self.links.iter().map(|(name, links)| {
            let longer = |link: &LinkConfig| LinkConfig { overhead: OVERHEAD, ..link.clone() };
            let [uplink, downlink] = links.each_ref().map(longer);
            let info = PathInfo::default();
            LinkSetup { name: name.clone(), ends: [0, 1], uplink, downlink, info }
        });
        let links: Vec<LinkSetup> = links.collect();
        let flow = |(name, class, flow): (&str, Class, &Flow)| FlowSetup {
            class,
            start: START,
            ..simulated_flow(name, flow.from, flow.traffic.clone(), flow.transport.clone())
        };
        let [control, video] = &self.flows;
        let flows = [("control", Class::Control, control), ("video", Class::Video, video)];
        let setup = Setup {
            seed: Seed(seed),
            duration: self.end.since(Instant::ZERO),
            paths: PathSetup::over_each(&links),
            links,
            forwarding: Vec::new(),
            fragment_size: None,
            flows: flows.map(flow).into(),
            address_changes: Vec::new(),
            record: Record { messages: true, ..Record::default() },
        };
        let outcome = run(&setup, &mut Silent).unwrap();
        [CONTROL_FLOW, VIDEO_FLOW].map(|flow| {
            let rows = outcome.flows[flow].blocks().flatten();
            rows.map(|row| (row.sent(), row.delivered())).collect()
        })
    }

    /// Messages of each flow between two gateways, with the links of the simulated flight.
    fn flown(&self, seed: u64) -> [Vec<Message>; 2] {
        let mut field = Field::new(seed, &[LEO(), LTE()], CHANNELS);
        for (path, (name, configs)) in self.links.iter().enumerate() {
            let [uplink, downlink] = configs;
            let link = |config, way: Direction| Link::new(config, name, way.name(), Seed(seed));
            let links = [link(uplink, Direction::Uplink), link(downlink, Direction::Downlink)];
            field.relink(path, links);
        }
        let mut sources =
            self.flows.each_ref().map(|flow| Source::new(&flow.traffic, START, self.end));
        let sides = self.flows.each_ref().map(|flow| match flow.from {
            Host::Vehicle => AIRCRAFT,
            Host::Ground => GROUND,
        });
        let mut messages = [Vec::new(), Vec::new()];
        loop {
            let [control, video] = sources.each_ref().map(Source::next_write);
            let flow = if control <= video { CONTROL_FLOW } else { VIDEO_FLOW };
            let next = control.min(video);
            field.run(next.min(self.end));
            let Some(write) = sources[flow].write(field.now) else { break };
            let mut bytes = vec![0; write.bytes as usize];
            bytes[..8].copy_from_slice(&(messages[flow].len() as u64).to_le_bytes());
            messages[flow].push((field.now, None));
            field.write(sides[flow], flow as u8 + 1, &bytes);
        }
        for (at, channel, bytes) in field.handed.iter().flatten() {
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let message: &mut Message = &mut messages[usize::from(channel.0) - 1][number as usize];
            assert_eq!(message.1.replace(*at), None, "delivered twice");
        }
        messages
    }

    /// The delays of what was written at once, a frame being there with its last message.
    fn delays(&self, messages: &[Message]) -> Delays {
        let counts = |(sent, _): &&Message| (BEGIN..self.end - REST).contains(sent);
        let messages: Vec<&Message> = messages.iter().filter(counts).collect();
        let delay = |frame: &[&Message]| {
            let (sent, _) = frame[0];
            let came: Option<Vec<Instant>> = frame.iter().map(|message| message.1).collect();
            Some(came?.into_iter().max()?.since(*sent).as_millis_f64())
        };
        messages.chunk_by(|one, other| one.0 == other.0).map(delay).collect()
    }

    /// Delays of each flow by seed: simulated, and between gateways.
    fn both(&self, seeds: u64) -> [[Vec<Delays>; 2]; 2] {
        [Self::simulated, Self::flown].map(|fly| {
            let mut delays = [Vec::new(), Vec::new()];
            for seed in 1..=seeds {
                for (flow, messages) in fly(self, seed).iter().enumerate() {
                    delays[flow].push(self.delays(messages));
                }
            }
            delays
        })
    }
}

/// The percentile of the delays of what arrived.
fn percentile(delays: &Delays, share: f64) -> f64 {
    let mut arrived: Vec<f64> = delays.iter().flatten().copied().collect();
    arrived.sort_by(f64::total_cmp);
    arrived[(share * (arrived.len() - 1) as f64) as usize]
}

/// 95 % interval of the mean of what each flight has.
fn mean(flights: &[f64]) -> Interval {
    let count = flights.len() as f64;
    let mean = flights.iter().sum::<f64>() / count;
    let squares = flights.iter().map(|each| (each - mean) * (each - mean)).sum::<f64>();
    let half = student_quantile(count - 1.0, 0.975) * (squares / (count - 1.0) / count).sqrt();
    Interval { low: mean - half, high: mean + half }
}

/// Returns the 95 % interval of the share that arrives within `within_ms`. The flights of both sides have the same
/// seeds, so what fails for a time fails in both; the remaining misses are independent.
fn in_time(flights: &[Delays], within_ms: f64) -> Interval {
    let all = flights.iter().flatten();
    let met = all.clone().flatten().filter(|delay| **delay <= within_ms).count() as u64;
    share_interval(&[RunShare::of_counts(all.count() as u64, met)], 0.95).interval
}

fn meet([one, other]: [Interval; 2]) -> bool {
    one.low.max(other.low) <= one.high.min(other.high)
}

#[test]
fn frames_take_as_long_as_the_simulator_says() {
    let paths = r#"
        [path.leo]
        uplink = { rate = "15Mbit/s", delay = { min = "20ms", max = "30ms" }, loss = { uniform = "0.5%" } }
        downlink = { rate = "60Mbit/s", delay = "25ms", loss = { uniform = "5%" } }
        [path.lte]
        uplink = { rate = "20Mbit/s", delay = { min = "40ms", max = "50ms" }, loss = { uniform = "0.5%" } }
        downlink = { rate = "30Mbit/s", delay = "30ms", loss = { uniform = "5%" } }
    "#;
    let video = "kind = \"video\"\nrate = \"5Mbit/s\"\nfps = 30";
    let both = Flights::new(paths, video, 16).both(FLIGHTS).map(|[_, video]| video);
    // Of the frames, one in 30 is a key frame, of four times as many packets, and the slowest that arrive whole.
    for share in [0.5, 0.99] {
        let intervals = both.each_ref().map(|flights| {
            let each: Vec<f64> = flights.iter().map(|delays| percentile(delays, share)).collect();
            mean(&each)
        });
        println!("p{:.0}: {intervals:?}", 100.0 * share);
        assert!(meet(intervals), "p{:.0}: {intervals:?}", 100.0 * share);
    }
    let whole = both.map(|flights| in_time(&flights, 300.0));
    println!("whole: {whole:?}");
    assert!(meet(whole), "whole: {whole:?}");
}

#[test]
fn measured_paths_bring_as_much_in_time_as_predicted() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/remote-piloting.toml");
    let video = "kind = \"cbr\"\nrate = \"2Mbit/s\"\npacket = \"1000B\"";
    let both = Flights::new(&fs::read_to_string(file).unwrap(), video, 40).both(3);
    // Delays of the trace are in whole milliseconds. Within 300 ms both paths together bring all commands.
    for (flow, within_ms) in [(CONTROL_FLOW, 18.5), (CONTROL_FLOW, 25.5), (VIDEO_FLOW, 300.0)] {
        let shares = both.each_ref().map(|flows| in_time(&flows[flow], within_ms));
        println!("flow {flow} within {within_ms} ms: {shares:?}");
        assert!(meet(shares), "flow {flow} within {within_ms} ms: {shares:?}");
    }
}
