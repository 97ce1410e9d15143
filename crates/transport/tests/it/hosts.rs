//! Hosts as they are configured: when subflows join, how buffers grow, what becomes of an unused window.

use std::collections::VecDeque;

use skybraid_transport::congestion::{CongestionConfig, IdleRestart};
use skybraid_transport::mptcp::buffers::Buffers;
use skybraid_transport::mptcp::path_manager::JoinAfter;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::scheduler::redundant::{self, Walk};
use skybraid_transport::segment::{Flags, Tcp};
use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Protocol, Role, Segment, TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant};

/// One-way delay of every path.
const DELAY: Duration = Duration::from_millis(50);

/// A client and a server over two paths without limit.
struct Pair {
    now: Instant,
    ends: [Endpoint; 2],
    in_transit: VecDeque<(Instant, usize, PathId, Segment)>,
    /// Segments sent, with their times and senders.
    sent: Vec<(Instant, usize, Tcp)>,
    written: u32,
    /// Every so many segments one is lost; 0 for none.
    loses: usize,
    delivered: Vec<u32>,
}

impl Pair {
    fn new(config: &TransportConfig) -> Self {
        let paths = [PathInfo::default(); 2];
        Self {
            now: Instant::ZERO,
            ends: [Role::Client, Role::Server].map(|role| Endpoint::new(config, &paths, role)),
            in_transit: VecDeque::new(),
            sent: Vec::new(),
            written: 0,
            loses: 0,
            delivered: Vec::new(),
        }
    }

    fn write(&mut self, bytes: u32) {
        let (id, class) = (self.written, Class::Data);
        self.written += 1;
        self.ends[0].write(self.now, Message { stream: 0, id, class, bytes, deadline: None });
    }

    fn run(&mut self, ms: i64) {
        let end = self.now + Duration::from_millis(ms);
        loop {
            for (from, endpoint) in self.ends.iter_mut().enumerate() {
                while let Some(sent) = endpoint.poll_send(self.now) {
                    if let Body::Tcp(tcp) = sent.segment.body {
                        self.sent.push((self.now, from, tcp));
                    }
                    if self.loses > 0 && self.sent.len().is_multiple_of(self.loses) {
                        continue;
                    }
                    let at = self.now + DELAY;
                    self.in_transit.push_back((at, 1 - from, sent.path, sent.segment));
                }
                let delivered = core::iter::from_fn(|| endpoint.poll_delivered());
                self.delivered.extend(delivered.map(|message| message.id));
            }
            let wakeups = self.ends.iter().map(Endpoint::next_wakeup);
            let arrival = self.in_transit.front().map(|(at, ..)| *at);
            let next = wakeups.chain(arrival).min().unwrap_or(end);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next.max(self.now);
            // One at a time, so that each may be answered.
            if arrival.is_some_and(|at| at <= self.now) {
                let (_, to, path, segment) = self.in_transit.pop_front().unwrap();
                self.ends[to].receive(self.now, path, &segment);
            }
            let now = self.now;
            self.ends
                .iter_mut()
                .filter(|end| end.next_wakeup() <= now)
                .for_each(|end| end.wake(now));
        }
    }

    /// Times at which the client sent an MP_JOIN.
    fn joins(&self) -> Vec<Instant> {
        let is_join = |tcp: &Tcp| tcp.flags.has(Flags::SYN) && tcp.flags.has(Flags::JOIN);
        let joins = self.sent.iter().filter(|(_, from, tcp)| *from == 0 && is_join(tcp));
        joins.map(|(at, ..)| *at).collect()
    }

    /// Receive window that the server announced last.
    fn announced(&self) -> u64 {
        let (.., tcp) = self.sent.iter().rev().find(|(_, from, _)| *from == 1).unwrap();
        tcp.window_end - tcp.data_ack
    }

    /// Maximum data that the client sent within a round trip, whose acknowledgements come at once.
    fn most_in_a_round_trip(&self) -> u32 {
        let data: Vec<_> = self.sent.iter().filter(|(.., tcp)| tcp.len > 0).collect();
        let since = |start: Instant| {
            let within =
                data.iter().filter(move |(at, ..)| *at >= start && *at < start + DELAY * 2);
            within.map(|(.., tcp)| tcp.len).sum()
        };
        data.iter().map(|(at, ..)| since(*at)).max().unwrap()
    }

    /// Time of the client's first data.
    fn first_data(&self) -> Instant {
        self.sent.iter().find(|(.., tcp)| tcp.len > 0).unwrap().0
    }

    /// Time of the client's last data.
    fn last_data(&self) -> Instant {
        self.sent.iter().rev().find(|(.., tcp)| tcp.len > 0).unwrap().0
    }

    /// Congestion window of the client's first subflow in segments of 1000 bytes.
    fn window(&self) -> u64 {
        let mut windows = Vec::new();
        self.ends[0].samples(&mut |sample| windows.push(sample.window.get() / 1000));
        windows[0]
    }
}

fn config(protocol: Protocol) -> TransportConfig {
    TransportConfig {
        protocol,
        segment: Some(Bytes::new(1000)),
        congestion: CongestionConfig::by_name("reno").unwrap(),
        ..TransportConfig::default()
    }
}

// Source: RFC 8684 §3.1: no new subflow until a DSS option has been received across the path.
#[test]
fn a_client_that_waits_for_a_dss_joins_with_its_answer() {
    let at = Instant::from_millis;
    let mut usual = Pair::new(&config(Protocol::Mptcp));
    usual.run(150);
    assert_eq!(usual.joins(), [at(100)]);
    let join_after = JoinAfter::Dss;
    let mut waits = Pair::new(&TransportConfig { join_after, ..config(Protocol::Mptcp) });
    waits.run(5_000);
    assert_eq!(waits.joins(), []);
    waits.write(2_000);
    waits.run(1_000);
    assert_eq!(waits.joins(), [at(5_100)]);
}

// Source: Linux: a window of 64 KiB at first; it does not hold a transfer back that doubles each round trip.
#[test]
fn tuned_buffers_grow_with_the_transfer_and_no_further() {
    let buffers = Buffers::Auto;
    let mut tuned = Pair::new(&TransportConfig { buffers, ..config(Protocol::Tcp) });
    tuned.run(150);
    assert_eq!(tuned.ends[0].send_buffer(), Some(Bytes::new(2 * 10_000)));
    let mut fixed = Pair::new(&config(Protocol::Tcp));
    for pair in [&mut tuned, &mut fixed] {
        pair.write(2_000_000);
        pair.run(1_400);
    }
    let first = tuned.sent.iter().find(|(_, from, _)| *from == 1).unwrap().2;
    assert_eq!((first.window_end, fixed.announced()), (65_536, 6_000_000));
    let grown = tuned.announced();
    assert!((1_000_000..=6_000_000).contains(&grown), "{grown} B");
    let duration = |pair: &Pair| pair.last_data().since(pair.first_data());
    assert_eq!(duration(&tuned), duration(&fixed));
    // A trickle needs no more than the first window.
    let mut slow = Pair::new(&TransportConfig { buffers, ..config(Protocol::Tcp) });
    for _ in 0..50 {
        slow.write(1_000);
        slow.run(20);
    }
    assert_eq!(slow.announced(), 65_536);
}

// Source: RFC 7661 §1: without validation, a window grows on each acknowledgement, used or not.
#[test]
fn an_unused_window_grows_only_without_validation() {
    let windows = [true, false].map(|window_validation| {
        let mut pair = Pair::new(&TransportConfig { window_validation, ..config(Protocol::Tcp) });
        for _ in 0..50 {
            pair.write(1_000);
            pair.run(200);
        }
        pair.window()
    });
    assert_eq!(windows, [10, 60]);
}

// Source: RFC 9293 §3.1: a window field that is not scaled has 16 bits, so at most 65 segments of 1000 B are in flight;
// RFC 5681 §3.1: the window grows with each acknowledgement all the same.
#[test]
fn a_peer_without_window_scaling_bounds_what_is_in_flight() {
    let in_flight = [None, Some(Bytes::new(65_535))].map(|max_in_flight| {
        let config = TransportConfig {
            max_in_flight,
            segment: Some(Bytes::new(1_000)),
            window_validation: false,
            ack_every: 1,
            ..config(Protocol::Tcp)
        };
        let mut pair = Pair::new(&config);
        pair.write(400_000);
        pair.run(750);
        assert!(pair.window() > 65, "{} segments", pair.window());
        pair.most_in_a_round_trip()
    });
    assert!(in_flight[0] > 65_535, "{} B", in_flight[0]);
    assert_eq!(in_flight[1], 65_000);
}

// Source: RFC 5681 §4.1; Linux `tcp_cwnd_restart` and `tcp_cwnd_application_limited`: 10 + 200 segments, then 0.9 s of
// silence at a timeout of 300 ms.
#[test]
fn the_window_after_a_pause_is_the_initial_one_or_halved() {
    let rules = [IdleRestart::Off, IdleRestart::Initial, IdleRestart::Rfc2861, IdleRestart::Used];
    let windows = rules.map(|idle_restart| {
        let mut pair = Pair::new(&TransportConfig { idle_restart, ..config(Protocol::Tcp) });
        pair.write(200_000);
        pair.run(1_500);
        let before = pair.window();
        assert_eq!(pair.last_data(), Instant::from_millis(600));
        // The use of a window is judged when a burst has been sent: with the second of these.
        let after = [0, 900].map(|ms| {
            pair.run(ms);
            pair.write(1_000);
            pair.run(0);
            pair.window()
        });
        (before, after)
    });
    let (before, kept) = windows[0];
    assert!([before; 2] == kept && windows.iter().all(|(same, _)| *same == before));
    assert_eq!(windows[1].1[0], 10);
    // After 900 ms, the third timeout has not quite passed.
    assert_eq!(windows[2].1[0], before / 4);
    // One segment was in flight, which counts as ten.
    assert_eq!(windows[3].1, [before, u64::midpoint(before, 10)]);
}

/// Numbers of the segments that each subflow sends of a write of `segments` segments over two equal paths.
fn redundantly(version: Option<Walk>, segments: u64) -> [Vec<u64>; 2] {
    let scheduler =
        SchedulerConfig::Redundant(redundant::Config { version, ..redundant::Config::default() });
    let mut pair = Pair::new(&TransportConfig { scheduler, ..config(Protocol::Mptcp) });
    pair.run(1_000);
    pair.write(segments as u32 * 1_000);
    // Until the first acknowledgement returns.
    pair.run(99);
    [0, 1].map(|subflow| {
        let data = pair.sent.iter().filter(|(.., tcp)| tcp.len > 0 && tcp.subflow == subflow);
        data.map(|(.., tcp)| tcp.dsn / 1_000).collect()
    })
}

// Source: multipath-tcp/mptcp, issue #392: the slower subflow misses what has been sent, and the last segment has no
// copy; pull request #391; issue #474: one segment again and again.
#[test]
fn each_version_of_redundant_mptcp_has_its_own_copies() {
    let all: Vec<u64> = (0..8).collect();
    assert_eq!(redundantly(None, 8), [all.clone(), all.clone()]);
    assert_eq!(redundantly(Some(Walk::Unsent), 8), [all[..7].to_vec(), all[1..].to_vec()]);
    assert_eq!(redundantly(Some(Walk::Unsent), 1), [vec![0], vec![]]);
    assert_eq!(redundantly(Some(Walk::Unacknowledged), 8), [all.clone(), all]);
    assert_eq!(redundantly(Some(Walk::Repeating), 8), [vec![0; 10], vec![0; 10]]);
}

// A subflow that joins while data is on its way begins with the oldest of it, or with new data.
#[test]
fn a_subflow_that_joins_late_begins_where_its_version_does() {
    for (version, copies) in [(Walk::Unacknowledged, true), (Walk::Unsent, false)] {
        let version = Some(version);
        let scheduler = SchedulerConfig::Redundant(redundant::Config { version, strict: false });
        let mut pair = Pair::new(&TransportConfig { scheduler, ..config(Protocol::Mptcp) });
        pair.write(100_000);
        pair.run(1_000);
        let data: Vec<Tcp> =
            pair.sent.iter().map(|sent| sent.2).filter(|tcp| tcp.len > 0).collect();
        let joined = data.iter().position(|tcp| tcp.subflow == 1).unwrap();
        let known = data[..joined].iter().any(|tcp| tcp.dsn == data[joined].dsn);
        assert_eq!(known, copies, "{version:?}");
    }
}

#[test]
fn every_version_of_redundant_mptcp_delivers_despite_losses() {
    for version in [Walk::Unsent, Walk::Unacknowledged, Walk::Repeating] {
        let version = Some(version);
        let scheduler = SchedulerConfig::Redundant(redundant::Config { version, strict: false });
        let mut pair = Pair::new(&TransportConfig { scheduler, ..config(Protocol::Mptcp) });
        pair.loses = 7;
        for _ in 0..60 {
            pair.write(5_000);
            pair.run(100);
        }
        pair.run(60_000);
        assert_eq!(pair.delivered, (0..60).collect::<Vec<u32>>(), "{version:?}");
    }
}
