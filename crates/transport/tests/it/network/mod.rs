//! A small network for tests: bulk flows between pairs of endpoints, over wires that they may share.

use std::collections::VecDeque;

use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::scheduler::{SchedulerConfig, low_rtt};
use skybraid_transport::tcp::scoreboard::LossDetection;
use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Protocol, Role, Segment, TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant, Probability, Seed, Stream};

/// Payload bytes per segment.
pub const SEGMENT: u64 = 1000;

/// A wire for data. Acknowledgements return after `delay`, without a queue.
pub struct Wire {
    delay: Duration,
    loss: Probability,
    stream: Stream,
    /// Maximum additional delay of an acknowledgement, in seconds.
    jitter: f64,
    bottleneck: Option<Bottleneck>,
    in_transit: VecDeque<(Instant, usize, PathId, Segment)>,
}

/// A drop-tail queue before a wire.
struct Bottleneck {
    per_segment: Duration,
    /// Maximum segments queued or in service.
    limit: i64,
    free_at: Instant,
    taken: u64,
    dropped: u64,
    /// Sum of the queueing delays of all segments sent, in seconds.
    queueing: f64,
}

impl Wire {
    /// Creates a wire without a rate limit, with independent losses of segments.
    pub fn lossy(rtt: Duration, loss: f64, name: &str) -> Self {
        Self {
            delay: rtt / 2,
            loss: Probability::new(loss).unwrap(),
            stream: Seed(1).stream(name),
            jitter: 0.0,
            bottleneck: None,
            in_transit: VecDeque::new(),
        }
    }

    /// Creates a wire with a rate in segments per second and a queue of at most `limit` segments.
    pub fn bottleneck(rtt: Duration, rate: f64, limit: u32) -> Self {
        let mut wire = Self::lossy(rtt, 0.0, "");
        wire.bottleneck = Some(Bottleneck {
            per_segment: Duration::from_secs_f64(1.0 / rate),
            limit: i64::from(limit),
            free_at: Instant::ZERO,
            taken: 0,
            dropped: 0,
            queueing: 0.0,
        });
        wire
    }

    /// Delays acknowledgements by up to `max`, uniformly distributed and in order. Without jitter,
    /// drop-tail queues drop by phase, not by rate (Floyd and Jacobson 1991).
    pub fn with_jitter(mut self, max: Duration, name: &str) -> Self {
        self.jitter = max.as_secs_f64();
        self.stream = Seed(1).stream(name);
        self
    }

    fn send(&mut self, now: Instant, flow: usize, path: PathId, segment: Segment) {
        let data = matches!(&segment.body, Body::Tcp(tcp) if tcp.len > 0);
        let mut left = now;
        if data {
            if self.loss != Probability::ZERO && self.stream.chance(self.loss) {
                return;
            }
            if let Some(bottleneck) = &mut self.bottleneck {
                let Some(at) = bottleneck.pass(now) else { return };
                left = at;
            }
        }
        self.in_transit.push_back((left + self.delay, flow, path, segment));
    }
}

impl Bottleneck {
    fn pass(&mut self, now: Instant) -> Option<Instant> {
        let start = self.free_at.max(now);
        let queued = start.since(now);
        if queued.as_nanos() >= self.limit * self.per_segment.as_nanos() {
            self.dropped += 1;
            return None;
        }
        self.taken += 1;
        self.queueing += queued.as_secs_f64();
        self.free_at = start + self.per_segment;
        Some(self.free_at)
    }
}

/// An endless bulk transfer with one subflow per wire.
struct Flow {
    ends: [Endpoint; 2],
    wires: Vec<usize>,
    /// Acknowledgements in transit, by path.
    back: Vec<VecDeque<(Instant, Segment)>>,
    acked: Vec<u64>,
    /// Sum of the samples of the windows, in segments.
    windows: Vec<f64>,
}

/// Measurements of a run.
pub struct Measured {
    /// Segments per second, by flow and path.
    pub rates: Vec<Vec<f64>>,
    /// Mean congestion windows in segments, by flow and path.
    pub windows: Vec<Vec<f64>>,
    /// Mean queueing delay in seconds, by wire.
    pub queueing: Vec<f64>,
    /// Share of segments dropped, by wire.
    pub dropped: Vec<f64>,
}

impl Measured {
    /// Segments per second of a flow over all its paths.
    pub fn total(&self, flow: usize) -> f64 {
        self.rates[flow].iter().sum()
    }
}

pub struct Network {
    now: Instant,
    wires: Vec<Wire>,
    flows: Vec<Flow>,
}

impl Network {
    pub fn new(wires: Vec<Wire>) -> Self {
        Self { now: Instant::ZERO, wires, flows: Vec::new() }
    }

    /// Adds a flow with one subflow over each of `wires`. Acknowledgements are not delayed.
    pub fn flow(mut self, congestion: CongestionConfig, wires: &[usize]) -> Self {
        let config = TransportConfig {
            protocol: Protocol::Mptcp,
            congestion,
            scheduler: SchedulerConfig::LowRtt(low_rtt::Config::default()),
            segment: Some(Bytes::new(SEGMENT)),
            ack_every: 1,
            // The TCP of the years in which the couplings were defined: RFC 6675.
            loss_detection: LossDetection::Sack,
            proportional_reduction: false,
            receive_buffer: Bytes::new(1 << 40),
            ..TransportConfig::default()
        };
        let paths = vec![PathInfo::default(); wires.len()];
        let mut ends =
            [Role::Client, Role::Server].map(|role| Endpoint::new(&config, &paths, role));
        for id in 0..16 {
            let message =
                Message { stream: 0, id, class: Class::Data, bytes: u32::MAX, deadline: None };
            ends[0].write(Instant::ZERO, message);
        }
        self.flows.push(Flow {
            ends,
            wires: wires.to_vec(),
            back: vec![VecDeque::new(); wires.len()],
            acked: vec![0; wires.len()],
            windows: vec![0.0; wires.len()],
        });
        self
    }

    /// Lets `warm_up` pass, then measures for `time`.
    pub fn measure(&mut self, warm_up: Duration, time: Duration) -> Measured {
        for flow in 0..self.flows.len() {
            self.drain(flow, 0);
        }
        self.run_until(self.now + warm_up);
        let before = self.acked();
        for bottleneck in self.wires.iter_mut().filter_map(|wire| wire.bottleneck.as_mut()) {
            (bottleneck.taken, bottleneck.dropped, bottleneck.queueing) = (0, 0, 0.0);
        }
        let samples = 100.0 * time.as_secs_f64();
        for _ in 0..samples as u64 {
            self.run_until(self.now + Duration::from_millis(10));
            for flow in &mut self.flows {
                let windows = &mut flow.windows;
                flow.ends[0].samples(&mut |sample| {
                    let segments = sample.window.get() as f64 / SEGMENT as f64;
                    windows[sample.path.index()] += segments / samples;
                });
            }
        }
        let seconds = time.as_secs_f64() * SEGMENT as f64;
        let rate = |(after, before): (u64, u64)| (after - before) as f64 / seconds;
        let flows = self.acked().into_iter().zip(before);
        let bottlenecks = || self.wires.iter().filter_map(|wire| wire.bottleneck.as_ref());
        let share =
            |queue: &Bottleneck| queue.dropped as f64 / (queue.taken + queue.dropped) as f64;
        Measured {
            windows: self.flows.iter().map(|flow| flow.windows.clone()).collect(),
            rates: flows
                .map(|(after, before)| after.into_iter().zip(before).map(rate).collect())
                .collect(),
            queueing: bottlenecks().map(|queue| queue.queueing / queue.taken as f64).collect(),
            dropped: bottlenecks().map(share).collect(),
        }
    }

    fn acked(&mut self) -> Vec<Vec<u64>> {
        for flow in &mut self.flows {
            let acked = &mut flow.acked;
            flow.ends[0].samples(&mut |sample| {
                acked[sample.path.index()] = sample.totals.acked_bytes;
            });
        }
        self.flows.iter().map(|flow| flow.acked.clone()).collect()
    }

    fn run_until(&mut self, end: Instant) {
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = next;
            self.step();
        }
        self.now = end;
    }

    fn next(&self) -> Option<Instant> {
        let data = self.wires.iter().filter_map(|wire| wire.in_transit.front()).map(|(at, ..)| *at);
        let flows = self.flows.iter();
        let acks = flows.clone().flat_map(|flow| &flow.back).filter_map(VecDeque::front);
        let timers = flows.flat_map(|flow| &flow.ends).map(Endpoint::next_wakeup);
        data.chain(acks.map(|(at, _)| *at)).chain(timers).min()
    }

    /// Processes the events that are due.
    fn step(&mut self) {
        let now = self.now;
        for wire in 0..self.wires.len() {
            while self.wires[wire].in_transit.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, flow, path, segment) = self.wires[wire].in_transit.pop_front().unwrap();
                self.flows[flow].ends[1].receive(now, path, &segment);
                self.drain(flow, 1);
            }
        }
        for flow in 0..self.flows.len() {
            for path in 0..self.flows[flow].back.len() {
                while self.flows[flow].back[path].front().is_some_and(|(at, _)| *at <= now) {
                    let (_, segment) = self.flows[flow].back[path].pop_front().unwrap();
                    self.flows[flow].ends[0].receive(now, PathId(path as u8), &segment);
                    self.drain(flow, 0);
                }
            }
            for side in [0, 1] {
                if self.flows[flow].ends[side].next_wakeup() <= now {
                    self.flows[flow].ends[side].wake(now);
                    self.drain(flow, side);
                }
            }
        }
    }

    fn drain(&mut self, flow: usize, side: usize) {
        let flow_state = &mut self.flows[flow];
        while let Some(transmit) = flow_state.ends[side].poll_send(self.now) {
            let wire = &mut self.wires[flow_state.wires[transmit.path.index()]];
            if side == 0 {
                wire.send(self.now, flow, transmit.path, transmit.segment);
            } else {
                let jitter = Duration::from_secs_f64(wire.jitter * wire.stream.unit());
                let back = &mut flow_state.back[transmit.path.index()];
                let last = back.back().map_or(Instant::ZERO, |(at, _)| *at);
                back.push_back(((self.now + wire.delay + jitter).max(last), transmit.segment));
            }
        }
        while flow_state.ends[side].poll_delivered().is_some() {}
    }
}
