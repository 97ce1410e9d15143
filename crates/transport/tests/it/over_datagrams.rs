//! Endpoints that exchange encoded datagrams over lossy paths deliver the same messages as endpoints
//! that exchange segment records.

use std::collections::BTreeMap;

use skybraid_transport::congestion::{CongestionConfig, bbr, ccid2};
use skybraid_transport::scheduler::{SchedulerConfig, low_rtt, redundant, round_robin};
use skybraid_transport::wire::datagram::{Header, OUTER_HEADERS, Payload, decode, encode, excess};
use skybraid_transport::{
    Class, Delivered, Endpoint, Message, PathId, PathInfo, Protocol, Role, Segment, Transmit,
    TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed, Stream};

/// Form in which segments cross the paths.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Means {
    /// Segment records.
    Records,
    /// Datagrams with filler as payload.
    Filler,
    /// Datagrams with the whole payload.
    Whole,
}

/// One direction of path n: 6 − 2 n Mbit/s, 20 + 15 n ms, with losses and an outage of 3 s.
struct Lane {
    rate: Rate,
    delay: Duration,
    random: Stream,
    free_at: Instant,
    dead: (Instant, Instant),
}

impl Lane {
    fn new(path: i64, side: usize) -> Self {
        let from = Instant::from_millis(4_000 + 2_000 * path);
        Self {
            rate: Rate::from_mbps(6.0 - 2.0 * path as f64),
            delay: Duration::from_millis(20 + 15 * path) + Duration::from_nanos(123),
            random: Seed(9).stream(&format!("lane {path} {side}")),
            free_at: Instant::ZERO,
            dead: (from, from + Duration::from_secs(3)),
        }
    }

    /// Returns the arrival time of a packet unless it is lost. The queue holds up to 100 ms of packets.
    fn pass(&mut self, now: Instant, size: u32) -> Option<Instant> {
        let lost = self.random.chance(Probability::new(0.02).unwrap());
        let start = self.free_at.max(now);
        if start.since(now) > Duration::from_millis(100) {
            return None;
        }
        self.free_at = start + self.rate.time_for(Bytes::new(u64::from(size)));
        let dead = self.dead.0 <= now && now < self.dead.1;
        (!lost && !dead).then_some(self.free_at + self.delay)
    }
}

/// A packet in transit to `side`.
struct InTransit {
    side: usize,
    path: PathId,
    segment: Segment,
    datagram: Vec<u8>,
}

/// Outcome of a run.
#[derive(Debug, Default)]
struct Outcome {
    delivered: Vec<(usize, Instant, Delivered)>,
    sent: [u64; 2],
}

struct Run {
    means: Means,
    protocol: Protocol,
    now: Instant,
    ends: [Endpoint; 2],
    lanes: Vec<Lane>,
    in_transit: BTreeMap<(Instant, u64), InTransit>,
    outcome: Outcome,
    /// Maximum excess of a packet without payload over its simulated size.
    max_excess: u32,
}

const PATHS: i64 = 2;

impl Run {
    fn new(config: &TransportConfig, means: Means) -> Self {
        let paths = [PathInfo::default(); PATHS as usize];
        let sides = [0, 1];
        Self {
            means,
            protocol: config.protocol,
            now: Instant::ZERO,
            ends: [Role::Client, Role::Server].map(|role| Endpoint::new(config, &paths, role)),
            lanes: sides
                .iter()
                .flat_map(|side| (0..PATHS).map(move |path| Lane::new(path, *side)))
                .collect(),
            in_transit: BTreeMap::new(),
            outcome: Outcome::default(),
            max_excess: 0,
        }
    }

    /// Encodes a segment as a datagram and checks its size.
    fn write(&mut self, segment: &Segment) -> Vec<u8> {
        let payload = vec![7; segment.body.payload_bytes() as usize];
        let (payload, max) = match self.means {
            Means::Records => return Vec::new(),
            Means::Filler => (Payload::Filler, 0),
            Means::Whole => (Payload::Bytes(&payload), excess(self.protocol)),
        };
        let mut out = Vec::new();
        let place = encode(segment, &Header::default(), payload, &mut out).unwrap();
        let larger = out.len() as u32 + OUTER_HEADERS - segment.size;
        if segment.body.payload_bytes() == 0 {
            self.max_excess = self.max_excess.max(larger);
        } else {
            let tiny = self.means == Means::Filler && place.is_empty();
            assert!(larger <= max || tiny, "{larger} of {segment:?}");
        }
        out
    }

    fn settle(&mut self) {
        for side in [0, 1] {
            while let Some(Transmit { path, segment }) = self.ends[side].poll_send(self.now) {
                let datagram = self.write(&segment);
                self.outcome.sent[side] += 1;
                let lane = &mut self.lanes[side * PATHS as usize + path.index()];
                if let Some(at) = lane.pass(self.now, segment.size) {
                    let number = self.outcome.sent.iter().sum();
                    let side = 1 - side;
                    self.in_transit
                        .insert((at, number), InTransit { side, path, segment, datagram });
                }
            }
            while let Some(message) = self.ends[side].poll_delivered() {
                self.outcome.delivered.push((side, self.now, message));
            }
        }
    }

    fn arrive(&mut self) {
        let Some((_, in_transit)) = self.in_transit.pop_first() else { return };
        let InTransit { side, path, mut segment, datagram } = in_transit;
        if self.means != Means::Records {
            let read = decode(&datagram, self.now).unwrap();
            if self.means == Means::Whole {
                assert_eq!(read.payload.len() as u32, segment.body.payload_bytes());
                assert!(datagram[read.payload].iter().all(|octet| *octet == 7));
            }
            segment = read.segment;
        }
        self.ends[side].receive(self.now, path, &segment);
    }

    /// Runs ten seconds of small and occasional large messages, and ten seconds without messages.
    fn finish(mut self, step: Duration) -> (Outcome, u32) {
        let end = Instant::from_millis(20_000);
        let mut ids = [0; 2];
        let mut writes: Vec<(Instant, usize, u32)> = (0..1000)
            .flat_map(|tick| {
                let at = Instant::from_millis(10 * tick);
                let large = if tick % 100 == 50 { Some((at, 0, 30_000)) } else { None };
                let small = [(at, 0, 1_100), (at, 1, 60 + (tick % 7) as u32)];
                small.into_iter().chain(large)
            })
            .collect();
        writes.reverse();
        loop {
            self.settle();
            let arrival = self.in_transit.first_key_value().map(|((at, _), _)| *at);
            let write = writes.last().map(|(at, ..)| *at);
            let timers = self.ends.iter().map(Endpoint::next_wakeup);
            let next = timers.chain(arrival).chain(write).min().unwrap().max(self.now);
            if next > end {
                return (self.outcome, self.max_excess);
            }
            // A driver's clock advances in steps.
            let steps = (next.as_nanos() + step.as_nanos() - 1).div_euclid(step.as_nanos());
            self.now = Instant::from_nanos(steps * step.as_nanos());
            while writes.last().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, side, bytes) = writes.pop().unwrap();
                let (class, deadline) = (Class::Data, None);
                let message = Message { stream: 0, id: ids[side], class, bytes, deadline };
                ids[side] += 1;
                self.ends[side].write(self.now, message);
                if writes.is_empty() {
                    self.ends.iter_mut().for_each(Endpoint::close);
                }
            }
            while self.in_transit.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
                self.arrive();
            }
            for end in &mut self.ends {
                if end.next_wakeup() <= self.now {
                    end.wake(self.now);
                }
            }
        }
    }
}

fn config(protocol: Protocol) -> TransportConfig {
    let scheduler = match protocol {
        Protocol::Udp => SchedulerConfig::Redundant(redundant::Config::default()),
        _ => SchedulerConfig::LowRtt(low_rtt::Config::default()),
    };
    let congestion = match protocol {
        Protocol::Dccp | Protocol::MpDccp => CongestionConfig::Ccid2(ccid2::Config::default()),
        _ => TransportConfig::default().congestion,
    };
    TransportConfig { protocol, scheduler, congestion, ..TransportConfig::default() }
}

/// Runs with segment records and with datagrams. Each message must be delivered within `tolerance` of
/// its time without datagrams. Returns the maximum excess of a packet without payload.
fn compare(config: &TransportConfig, step: Duration, tolerance: Duration) -> u32 {
    let (records, _) = Run::new(config, Means::Records).finish(step);
    assert!(records.delivered.len() > 1000, "{} messages", records.delivered.len());
    let excess = [Means::Filler, Means::Whole].map(|means| {
        let (outcome, max_excess) = Run::new(config, means).finish(step);
        let pairs = outcome.delivered.iter().zip(&records.delivered);
        for (index, (found, expected)) in pairs.enumerate() {
            let late = found.1.since(expected.1).max(expected.1.since(found.1));
            let held = (found.2.held - expected.2.held).abs();
            assert!(late.max(held) <= tolerance, "message {index} by {means:?}: {late}");
            let what = |(side, _, message): &(usize, Instant, Delivered)| {
                (*side, message.id, message.path)
            };
            assert_eq!(what(found), what(expected), "message {index} by {means:?}");
        }
        assert_eq!(outcome.delivered.len(), records.delivered.len());
        assert_eq!(outcome.sent, records.sent);
        max_excess
    });
    excess[0].max(excess[1])
}

/// As [`compare`], to the nanosecond.
fn same(config: &TransportConfig, step: Duration) -> u32 {
    compare(config, step, Duration::ZERO)
}

const NANOSECOND: Duration = Duration::from_nanos(1);
const MICROSECOND: Duration = Duration::from_micros(1);

#[test]
fn redundant_datagrams() {
    assert_eq!(same(&config(Protocol::Udp), NANOSECOND), 0);
}

// Reports carry round-trip times in microseconds, the resolution of a clock in microseconds.
#[test]
fn datagrams_on_the_fastest_path_with_reports() {
    let scheduler = SchedulerConfig::LowRtt(low_rtt::Config::default());
    assert_eq!(same(&TransportConfig { scheduler, ..config(Protocol::Udp) }, MICROSECOND), 0);
}

#[test]
fn tcp_to_the_nanosecond() {
    // After the peer's FIN the data acknowledgement differs from the subflow's.
    assert_eq!(same(&config(Protocol::Tcp), NANOSECOND), 2);
}

#[test]
fn mptcp_to_the_nanosecond_with_each_kind_of_control() {
    let bbr = CongestionConfig::Bbr(bbr::Config::default());
    assert_eq!(same(&config(Protocol::Mptcp), NANOSECOND), 0);
    assert_eq!(
        same(&TransportConfig { congestion: bbr, ..config(Protocol::Mptcp) }, NANOSECOND),
        0
    );
}

#[test]
fn parallel_tcp_to_the_nanosecond() {
    assert_eq!(same(&config(Protocol::ParallelTcp), NANOSECOND), 2);
}

#[test]
fn dccp_to_the_microsecond() {
    assert_eq!(same(&config(Protocol::Dccp), MICROSECOND), 0);
}

#[test]
fn mp_dccp_to_the_microsecond() {
    // A Sync after a long silence carries its length as the elapsed time.
    assert_eq!(same(&config(Protocol::MpDccp), MICROSECOND), 1);
    let scheduler = SchedulerConfig::RoundRobin(round_robin::Config::default());
    assert_eq!(same(&TransportConfig { scheduler, ..config(Protocol::MpDccp) }, MICROSECOND), 1);
}

// Elapsed times are in microseconds. The error of a timeout is up to five times that of a round-trip
// time and doubles at each repetition, of which an outage of 3 s has up to four.
#[test]
fn dccp_within_the_rounding_of_timeouts_at_nanoseconds() {
    let tolerance = Duration::from_micros(5 << 4);
    assert_eq!(compare(&config(Protocol::Dccp), NANOSECOND, tolerance), 0);
    assert_eq!(compare(&config(Protocol::MpDccp), NANOSECOND, tolerance), 1);
}
