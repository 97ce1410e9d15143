//! Two endpoints joined by a bottleneck: a link with constant rate and propagation delay after a
//! drop-tail buffer, with optional random loss before the buffer.

use std::collections::VecDeque;

use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Role, Segment, TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed, Stream};

/// The path from the sender to the receiver and back.
#[derive(Clone, Copy)]
pub struct Path {
    pub rate: Rate,
    /// Propagation delay of the round trip.
    pub propagation: Duration,
    /// Buffer in bytes, the packet in service included.
    pub buffer: u64,
    pub loss: Probability,
}

/// State of the sender at one instant.
#[derive(Clone, Copy)]
pub struct Sample {
    pub at: f64,
    /// Congestion window and bytes in flight, in segments.
    pub window: f64,
    pub in_flight: f64,
    /// Pacing rate in Mbit/s of payload.
    pub pace: f64,
    /// Bytes in the buffer.
    pub queue: u64,
    /// Bytes acknowledged and segments marked lost since the start.
    pub acked: u64,
    pub lost: u64,
}

pub struct Bench {
    pub path: Path,
    pub now: Instant,
    pub log: Vec<Sample>,
    /// Interval at which the endpoints run, as on a busy machine; zero for no restriction.
    pub grain: Duration,
    ends: [Endpoint; 2],
    wires: [VecDeque<(Instant, Segment)>; 2],
    /// Future departures from the buffer, with sizes.
    buffer: VecDeque<(Instant, u64)>,
    queued: u64,
    draws: Stream,
}

pub const SEGMENT: f64 = 1448.0;

impl Bench {
    pub fn new(config: &TransportConfig, path: Path, seed: u64) -> Self {
        let config = TransportConfig {
            receive_buffer: Bytes::new(1 << 40),
            seed: Seed(seed),
            ..config.clone()
        };
        let info = [PathInfo::default()];
        Self {
            path,
            now: Instant::ZERO,
            log: Vec::new(),
            grain: Duration::ZERO,
            ends: [Role::Client, Role::Server].map(|role| Endpoint::new(&config, &info, role)),
            wires: Default::default(),
            buffer: VecDeque::new(),
            queued: 0,
            draws: Seed(seed).stream("loss"),
        }
    }

    /// Writes a message at the sender.
    pub fn write(&mut self, bytes: u32) {
        let message = Message { stream: 0, id: 0, class: Class::Data, bytes, deadline: None };
        self.ends[0].write(self.now, message);
        self.drain(0);
    }

    /// Runs until `seconds` after the start.
    pub fn run_until(&mut self, seconds: f64) {
        let end = Instant::from_secs_f64(seconds);
        self.drain(0);
        loop {
            let arrivals = self.wires.iter().filter_map(|wire| wire.front().map(|(at, _)| *at));
            let timers = self.ends.iter().map(Endpoint::next_wakeup);
            let next = self.round_up(arrivals.chain(timers).min().unwrap());
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            self.step();
        }
    }

    /// Returns the first multiple of the grain at or after an instant.
    fn round_up(&self, at: Instant) -> Instant {
        let grain = self.grain.as_nanos();
        if grain == 0 {
            return at;
        }
        let passed = at.since(Instant::ZERO).as_nanos();
        Instant::ZERO + Duration::from_nanos((passed + grain - 1) / grain * grain)
    }

    fn step(&mut self) {
        for side in [0, 1] {
            while self.wires[side].front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, segment) = self.wires[side].pop_front().unwrap();
                self.ends[1 - side].receive(self.now, PathId(0), &segment);
                self.drain(1 - side);
            }
            self.ends[side].wake(self.now);
            self.drain(side);
        }
        self.settle();
        let (at, queue) = (self.now.as_secs_f64(), self.queued);
        let log = &mut self.log;
        self.ends[0].samples(&mut |sample| {
            log.push(Sample {
                at,
                window: sample.window.get() as f64 / SEGMENT,
                in_flight: sample.in_flight.get() as f64 / SEGMENT,
                pace: sample.pacing.map_or(0.0, |pace| pace.as_bps() as f64 / 1e6),
                queue,
                acked: sample.totals.acked_bytes,
                lost: sample.totals.lost,
            });
        });
    }

    fn drain(&mut self, side: usize) {
        while let Some(transmit) = self.ends[side].poll_send(self.now) {
            let segment = transmit.segment;
            let data = matches!(&segment.body, Body::Tcp(tcp) if tcp.len > 0);
            let mut departure = self.now;
            if data {
                match self.pass(u64::from(segment.size)) {
                    Some(at) => departure = at,
                    None => continue,
                }
            }
            self.wires[side].push_back((departure + self.path.propagation / 2, segment));
        }
        while self.ends[side].poll_delivered().is_some() {}
    }

    /// Removes departed packets from the buffer.
    fn settle(&mut self) {
        while let Some((_, size)) = self.buffer.front().filter(|(at, _)| *at <= self.now) {
            self.queued -= size;
            self.buffer.pop_front();
        }
    }

    /// Returns the departure time of a packet of `size` bytes; `None` if it is lost.
    fn pass(&mut self, size: u64) -> Option<Instant> {
        self.settle();
        if self.draws.chance(self.path.loss) || self.queued + size > self.path.buffer {
            return None;
        }
        let free = self.buffer.back().map_or(self.now, |(at, _)| *at);
        let departure = free.max(self.now) + self.path.rate.time_for(Bytes::new(size));
        self.buffer.push_back((departure, size));
        self.queued += size;
        Some(departure)
    }

    /// Goodput between two times, as a share of the link's payload capacity.
    pub fn utilisation(&self, from: f64, to: f64) -> f64 {
        let capacity = self.path.rate.as_bps() as f64 / 8.0 * SEGMENT / 1500.0;
        (self.at(to).acked - self.at(from).acked) as f64 / (capacity * (to - from))
    }

    /// Returns the state of the sender at a time.
    pub fn at(&self, seconds: f64) -> Sample {
        let after = self.log.partition_point(|sample| sample.at <= seconds);
        self.log[after - 1]
    }

    /// Returns the samples between two times.
    pub fn between(&self, from: f64, to: f64) -> &[Sample] {
        let index = |at| self.log.partition_point(|sample: &Sample| sample.at < at);
        &self.log[index(from)..index(to)]
    }
}
