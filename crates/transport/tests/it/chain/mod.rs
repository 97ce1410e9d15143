//! Endpoints and proxies in a row.

use std::collections::VecDeque;

use skybraid_transport::split::{Cache, Loss, Proxy, Side};
use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Role, Segment, TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed, Stream};

/// A link of the chain with equal properties in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    pub rate: Rate,
    pub delay: Duration,
    /// Capacity of the queue in packets, the one in service included.
    pub queue: usize,
    /// Probability of independent packet losses.
    pub loss: f64,
    /// Maximum additional delay, uniformly distributed: packets may overtake each other.
    pub jitter: Duration,
    /// Outages, as sending times: away from end 0, and back.
    pub down: [(Instant, Instant); 2],
}

impl Default for Hop {
    fn default() -> Self {
        Self {
            rate: Rate::from_mbps(1.0),
            delay: Duration::from_millis(5),
            queue: 50,
            loss: 0.0,
            jitter: Duration::ZERO,
            down: [(Instant::FAR_FUTURE, Instant::FAR_FUTURE); 2],
        }
    }
}

/// Number of parallel wires per hop; TCP uses the first one.
const PATHS: usize = 2;

/// One direction of a hop on one path.
struct Wire {
    hop: Hop,
    down: (Instant, Instant),
    /// Number of data segments sent.
    data: u64,
    /// Right edge of the window that a proxy last announced on the wire.
    edge: u64,
    random: Stream,
    /// Departure times of the queued packets.
    queue: VecDeque<Instant>,
    /// Segments in transit, in order of arrival.
    in_transit: VecDeque<(Instant, Segment)>,
}

impl Wire {
    fn send(&mut self, now: Instant, segment: Segment) {
        self.data += u64::from(matches!(&segment.body, Body::Tcp(tcp) if tcp.len > 0));
        while self.queue.front().is_some_and(|sent| *sent <= now) {
            self.queue.pop_front();
        }
        if self.queue.len() >= self.hop.queue {
            return;
        }
        let start = self.queue.back().copied().unwrap_or(now);
        let sent = start + self.hop.rate.time_for(Bytes::new(u64::from(segment.size)));
        self.queue.push_back(sent);
        let lost = self.random.chance(Probability::new(self.hop.loss).unwrap());
        let jitter = self.hop.jitter.mul_f64(self.random.unit());
        let (from, to) = self.down;
        if !lost && !(from..to).contains(&now) {
            let arrival = sent + self.hop.delay + jitter;
            let place = self.in_transit.partition_point(|(at, _)| *at <= arrival);
            self.in_transit.insert(place, (arrival, segment));
        }
    }
}

enum Node {
    End(Box<Endpoint>),
    Router,
    Proxy(Box<Proxy>),
}

/// Two ends with proxies and routers between them. Lane 2 i leads from node i to the next one, lane
/// 2 i + 1 back; each lane has one wire per path, of which the second is twice as long.
pub struct Chain {
    pub now: Instant,
    nodes: Vec<Node>,
    wires: Vec<Wire>,
    /// Stream and number of the messages delivered at each end.
    pub delivered: [Vec<(u8, u32)>; 2],
    /// Maximum used share of the memory of one direction after any event.
    pub max_stored: f64,
}

impl Chain {
    /// Creates a chain over `hops`. The node after hop i is a proxy if `proxies[i]` is true, else a
    /// router. The transport of hop i is `config(i)`.
    pub fn new(
        config: impl Fn(usize) -> TransportConfig,
        hops: &[Hop],
        proxies: &[bool],
        cache: Cache,
        seed: u64,
    ) -> Self {
        assert_eq!(proxies.len() + 1, hops.len());
        let paths = [PathInfo::default(); PATHS];
        let end = |hop, role| Node::End(Endpoint::new(config(hop), &paths, role).into());
        let between = proxies.iter().enumerate().map(|(hop, proxy)| match proxy {
            true => {
                let (upstream, downstream) = (config(hop), config(hop + 1));
                Node::Proxy(Proxy::new((&upstream, &paths), (&downstream, &paths), cache).into())
            }
            false => Node::Router,
        });
        let mut nodes = vec![end(0, Role::Client)];
        nodes.extend(between);
        nodes.push(end(hops.len() - 1, Role::Server));
        let wires = (0..2 * hops.len() * PATHS).map(|index| {
            let (lane, path) = (index / PATHS, index % PATHS);
            let hop = hops[lane / 2];
            Wire {
                hop: Hop { delay: hop.delay * (1 + path as i64), ..hop },
                down: hop.down[lane % 2],
                data: 0,
                edge: 0,
                random: Seed(seed).stream(&format!("lane {lane} path {path}")),
                queue: VecDeque::new(),
                in_transit: VecDeque::new(),
            }
        });
        let wires = wires.collect();
        let delivered = Default::default();
        let mut chain = Self { now: Instant::ZERO, nodes, wires, delivered, max_stored: 0.0 };
        chain.drain(0);
        chain
    }

    fn node_of(&self, end: usize) -> usize {
        if end == 0 { 0 } else { self.nodes.len() - 1 }
    }

    /// Writes messages at an end (0 or 1), each given as stream, number and size.
    pub fn write(&mut self, end: usize, messages: impl IntoIterator<Item = (u8, u32, u32)>) {
        let now = self.now;
        for (stream, id, bytes) in messages {
            let message = Message { stream, id, class: Class::Data, bytes, deadline: None };
            self.end(end).write(now, message);
        }
        self.drain(self.node_of(end));
    }

    /// Closes the sending side of an end.
    pub fn close(&mut self, end: usize) {
        self.end(end).close();
        self.drain(self.node_of(end));
    }

    pub fn end(&mut self, end: usize) -> &mut Endpoint {
        let index = self.node_of(end);
        match &mut self.nodes[index] {
            Node::End(endpoint) => endpoint,
            Node::Router | Node::Proxy(_) => unreachable!(),
        }
    }

    /// Returns the proxy after hop `hop`.
    pub fn proxy(&self, hop: usize) -> &Proxy {
        match &self.nodes[hop + 1] {
            Node::Proxy(proxy) => proxy,
            Node::Router | Node::End(_) => unreachable!(),
        }
    }

    pub fn fail_proxy(&mut self, hop: usize) -> [Loss; 2] {
        match &mut self.nodes[hop + 1] {
            Node::Proxy(proxy) => proxy.fail(),
            Node::Router | Node::End(_) => unreachable!(),
        }
    }

    /// Returns the number of data segments sent on a hop away from end 0.
    pub fn data_sent(&self, hop: usize) -> u64 {
        self.wires[2 * hop * PATHS].data
    }

    fn drain(&mut self, index: usize) {
        let (left, right) = (2 * index.saturating_sub(1) + 1, 2 * index);
        let last = self.nodes.len() - 1;
        match &mut self.nodes[index] {
            Node::End(end) => {
                while let Some(transmit) = end.poll_send(self.now) {
                    let lane = if index == 0 { right } else { left };
                    let wire = lane * PATHS + transmit.path.index();
                    self.wires[wire].send(self.now, transmit.segment);
                }
                while let Some(message) = end.poll_delivered() {
                    let at = usize::from(index == last);
                    self.delivered[at].push((message.stream, message.id));
                }
            }
            Node::Proxy(proxy) => {
                while let Some((side, transmit)) = proxy.poll_send(self.now) {
                    let lane = if side == Side::Upstream { left } else { right };
                    let wire = lane * PATHS + transmit.path.index();
                    if let Body::Tcp(tcp) = &transmit.segment.body {
                        assert!(tcp.window_end >= self.wires[wire].edge, "the edge moved left");
                        self.wires[wire].edge = tcp.window_end;
                    }
                    self.wires[wire].send(self.now, transmit.segment);
                }
                for side in Side::BOTH {
                    let share = proxy.stored(side).get() as f64 / proxy.memory(side).get() as f64;
                    self.max_stored = self.max_stored.max(share);
                }
            }
            Node::Router => {}
        }
    }

    fn arrive(&mut self, wire: usize) {
        let (_, segment) = self.wires[wire].in_transit.pop_front().unwrap();
        let (lane, path) = (wire / PATHS, PathId((wire % PATHS) as u8));
        let rightward = lane.is_multiple_of(2);
        let index = if rightward { lane / 2 + 1 } else { lane / 2 };
        match &mut self.nodes[index] {
            Node::End(end) => end.receive(self.now, path, &segment),
            Node::Proxy(proxy) => {
                let side = if rightward { Side::Upstream } else { Side::Downstream };
                proxy.receive(self.now, side, path, &segment);
            }
            Node::Router => {
                let next = if rightward { wire + 2 * PATHS } else { wire - 2 * PATHS };
                return self.wires[next].send(self.now, segment);
            }
        }
        self.drain(index);
    }

    fn due(&self) -> (Instant, bool, usize) {
        let arrivals =
            self.wires.iter().enumerate().filter_map(|(index, wire)| {
                wire.in_transit.front().map(|(at, _)| (*at, false, index))
            });
        let timers = self.nodes.iter().enumerate().map(|(index, node)| {
            let at = match node {
                Node::End(end) => end.next_wakeup(),
                Node::Proxy(proxy) => proxy.next_wakeup(),
                Node::Router => Instant::FAR_FUTURE,
            };
            (at, true, index)
        });
        arrivals.chain(timers).min().unwrap()
    }

    /// Runs until `limit`, until no event is left, or until `done`.
    pub fn run_until(&mut self, limit: Instant, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let (at, timer, index) = self.due();
            if at > limit || at == Instant::FAR_FUTURE {
                self.now = if at == Instant::FAR_FUTURE { self.now } else { limit };
                return;
            }
            self.now = self.now.max(at);
            if !timer {
                self.arrive(index);
                continue;
            }
            match &mut self.nodes[index] {
                Node::End(end) => end.wake(self.now),
                Node::Proxy(proxy) => proxy.wake(self.now),
                Node::Router => {}
            }
            self.drain(index);
        }
    }
}

/// Returns the mean of a figure over the runs of so many seeds.
pub fn mean(seeds: u64, run: impl Fn(u64) -> f64) -> f64 {
    (1..=seeds).map(run).sum::<f64>() / seeds as f64
}
