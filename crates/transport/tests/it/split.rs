//! Split connections: endpoints and proxies in a row, joined by wires with a rate, a delay, a drop-tail
//! queue and independent losses.

use crate::chain::{Chain, Hop, mean};
use proptest::prelude::*;
use skybraid_transport::config::Profile;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::split::{Cache, Loss, LostMessages, Proxy, Side};
use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Protocol, Role, Segment, TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant, Rate};

/// Payload of a packet of 1500 bytes.
const PAYLOAD: u32 = 1448;
/// The 5 MB file, in messages of 10 kB.
const FILE: u32 = 500;
/// Capacity of the chain at 1 Mbit/s and 500 ms, in packets of 1500 bytes.
const PIPE: u32 = 42;

/// TCP New Reno as ns-2 ran it. The paper does not name the initial slow start threshold; the pipe keeps
/// the first slow start from overrunning the queues.
/// Source: Palazzi 2007 §2.
fn new_reno() -> TransportConfig {
    TransportConfig {
        protocol: Protocol::Tcp,
        initial_threshold: Some(Bytes::new(u64::from(PIPE * PAYLOAD))),
        ..TransportConfig::of(Profile::Ns2)
    }
}

/// W – T – S – G: everything at 1 Mbit/s with queues of 50 packets; 125 ms from T to S and from S to G,
/// where `satellite_loss` is lost in all. The air link W – T has no number for its delay, which is small.
/// Source: Palazzi 2007 §2.
fn palazzi(wireless_loss: f64, satellite_loss: f64) -> [Hop; 3] {
    let hop = |delay, loss| Hop { delay: Duration::from_millis(delay), loss, ..Hop::default() };
    [hop(5, wireless_loss), hop(125, satellite_loss / 2.0), hop(125, satellite_loss / 2.0)]
}

/// Whether T and S are proxies.
const NONE: [bool; 2] = [false, false];
const TRUCK: [bool; 2] = [true, false];
const TRUCK_AND_SATELLITE: [bool; 2] = [true, true];

/// Returns the mean transfer time of the file from W to G over 20 runs, in seconds.
fn file_time(wireless_loss: f64, proxies: [bool; 2]) -> f64 {
    mean(20, |seed| {
        let hops = palazzi(wireless_loss, 0.001);
        let cache = Cache::default();
        let mut chain = Chain::new(|_| new_reno(), &hops, &proxies, cache, seed);
        chain.write(0, (0..FILE).map(|id| (0, id, 10_000)));
        chain.run_until(Instant::from_millis(2_000_000), |chain| chain.delivered[1].len() == 500);
        assert_eq!(chain.delivered[1].len(), 500);
        chain.now.as_secs_f64()
    })
}

// Source: Palazzi 2007, Figs 4 and 9 (PAL-E01, PAL-E06): both proxies bring New Reno to 91 % of what the
// link carries, 44 s.
#[test]
fn splitting_keeps_wireless_loss_from_the_satellite_link() {
    let [low, medium, high] = [0.001, 0.005, 0.01]
        .map(|loss| [NONE, TRUCK, TRUCK_AND_SATELLITE].map(|proxies| file_time(loss, proxies)));
    assert!(low[0] < medium[0] && 2.0 * low[0] < high[0], "unsplit: {low:?} {medium:?} {high:?}");
    assert!(low[1] < 0.8 * low[0], "a proxy at T: {low:?}");
    assert!(high[1] < 0.5 * high[0], "a proxy at T: {high:?}");
    assert!((high[1] / low[1] - 1.0).abs() < 0.02, "a proxy at T: {low:?} {high:?}");
    assert!((high[2] / low[2] - 1.0).abs() < 0.02, "proxies at T and S: {low:?} {high:?}");
    assert!(high[2] < 0.9 * high[1], "proxies at T and S: {high:?}");
    assert!((high[2] - 44.0).abs() < 1.5, "proxies at T and S: {high:?}");
}

/// Returns the mean throughput with a proxy at T over 230 s, in kbit/s.
fn throughput(cache: u32, hops: [Hop; 3], from: usize, seed: u64) -> f64 {
    let cache = Cache::Packets(cache);
    let mut chain = Chain::new(|_| new_reno(), &hops, &TRUCK, cache, seed);
    chain.write(from, (0..20_000).map(|id| (0, id, PAYLOAD)));
    chain.run_until(Instant::from_millis(230_000), |_| false);
    assert!(chain.max_stored <= 1.0);
    chain.delivered[1 - from].len() as f64 * f64::from(PAYLOAD) * 8.0 / 230e3
}

// Source: Palazzi 2007, Figs 10 and 11 (PAL-E07, PAL-E08, PAL-T4): the cache must hold twice the pipe,
// 84 packets.
#[test]
fn a_cache_of_less_than_twice_the_pipe_starves_the_satellite() {
    for (from, half, whole) in [(0, 0.87, 0.95), (1, 0.6, 0.88)] {
        let hops = palazzi(0.01, 0.001);
        let sweep = [PIPE / 2, PIPE, 2 * PIPE, 150, 250]
            .map(|cache| mean(10, |seed| throughput(cache, hops, from, seed)));
        let share = sweep.map(|rate| rate / sweep[4]);
        assert!(share[0] < 0.6 * share[1], "from end {from}: {sweep:?}");
        assert!(share[1] < half, "from end {from}: {sweep:?}");
        assert!(share[2] > whole, "from end {from}: {sweep:?}");
        assert!(share[3] > 0.97, "from end {from}: {sweep:?}");
    }
}

// Source: derived from the rule of Palazzi 2007 §1.1. Let the cache be C, the round trip R on the side
// towards the receiver and r on the other. At the rate x, what waits for the next hop is x R, and half of
// the rest is the window, which x r fills: x = C / (R + 2 r). A window admits whole packets, and what is
// left over, less than one, leaves twice as much memory idle. From G, where r is the satellite's round
// trip, the pipe is full at twice its size.
#[test]
fn the_rate_is_what_half_of_the_free_cache_lets_in() {
    // 12.0 ms and 0.4 ms to send a packet and an acknowledgement, once for each hop.
    let (wireless, satellite) = (0.010 + 0.0124, 0.500 + 2.0 * 0.0124);
    for (from, time) in [(0, satellite + 2.0 * wireless), (1, wireless + 2.0 * satellite)] {
        for cache in [10, 20, 30, 40] {
            let rate = throughput(cache, palazzi(0.0, 0.0), from, 1);
            let packets = rate * 1e3 / f64::from(8 * PAYLOAD) * time;
            let cache = f64::from(cache);
            assert!(
                cache - 2.0 < packets && packets < cache,
                "from end {from}: {packets:.2} {cache}"
            );
        }
    }
}

/// Returns `count` messages of all sizes in two streams.
fn mixed(count: u32) -> impl Iterator<Item = (u8, u32, u32)> {
    let size = |id: u32| [1, 700, 1448, 20_000, 60, 3][id as usize % 6];
    (0..count).map(move |id| {
        let (stream, id) =
            if id % 10 < 7 { (0, id / 10 * 7 + id % 10) } else { (1, id / 10 * 3 + id % 10 - 7) };
        (stream, id, size(id + u32::from(stream)))
    })
}

fn is_closed(end: &Endpoint) -> bool {
    matches!(end, Endpoint::Stream(connection) if connection.is_closed())
}

// Legs take turns between TCP with SACK and MPTCP over two paths, whose segments are 24 bytes smaller:
// each proxy makes new chunks.
#[test]
fn every_message_arrives_once_in_order_through_all_proxies() {
    let config = |hop: usize| TransportConfig {
        protocol: if hop.is_multiple_of(2) { Protocol::Tcp } else { Protocol::Mptcp },
        scheduler: SchedulerConfig::by_name("low_rtt").unwrap(),
        ..TransportConfig::default()
    };
    for proxies in 0..4 {
        for seed in 1..6 {
            let hop = Hop { loss: 0.02, jitter: Duration::from_millis(40), ..Hop::default() };
            let cache = Cache::Packets(40);
            let mut chain =
                Chain::new(config, &vec![hop; proxies + 1], &vec![true; proxies], cache, seed);
            let written: Vec<_> = mixed(200).collect();
            for end in [0, 1] {
                chain.write(end, written.iter().copied());
                chain.close(end);
            }
            chain.run_until(Instant::from_millis(600_000), |_| false);
            let expected: Vec<_> = written.iter().map(|(stream, id, _)| (*stream, *id)).collect();
            for end in [0, 1] {
                assert_eq!(chain.delivered[end], expected, "{proxies} proxies, seed {seed}");
                assert_eq!(chain.end(end).unacknowledged(), Bytes::ZERO);
                assert!(is_closed(chain.end(end)), "{proxies} proxies, seed {seed}");
                assert_eq!(chain.end(end).is_split(), proxies > 0);
            }
            for hop in 0..proxies {
                for side in Side::BOTH {
                    assert_eq!(chain.proxy(hop).stored(side), Bytes::ZERO);
                    assert_eq!(chain.proxy(hop).owes(side), Loss::default());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Source: Palazzi 2007, PAL-V1.
    #[test]
    fn the_cache_never_overflows_and_nothing_is_lost(
        seed in 0u64..1000,
        rates in [0.2..20.0f64, 0.2..20.0],
        losses in [0.0..0.1f64, 0.0..0.1],
        delays in [1i64..200, 1..200],
        jitters in [0i64..20, 0..20],
        downs in [(0i64..4000, 0i64..3000), (0..4000, 0..3000)],
        cache in 1u32..80,
        ns2: bool,
    ) {
        let hops = [0, 1].map(|hop| {
            let (from, long) = downs[hop];
            Hop {
                rate: Rate::from_mbps(rates[hop]),
                delay: Duration::from_millis(delays[hop]),
                queue: 20,
                loss: losses[hop],
                jitter: Duration::from_millis(jitters[hop]),
                down: [(Instant::from_millis(from), Instant::from_millis(from + long)); 2],
            }
        });
        let config = if ns2 { new_reno() } else { TransportConfig { protocol: Protocol::Tcp, ..Default::default() } };
        let mut chain = Chain::new(|_| config.clone(), &hops, &[true], Cache::Packets(cache), seed);
        chain.write(0, mixed(80));
        chain.write(1, mixed(80));
        let whole = |chain: &Chain| chain.delivered.iter().all(|messages| messages.len() == 80);
        chain.run_until(Instant::from_millis(3_600_000), whole);
        prop_assert!(whole(&chain));
        prop_assert!(chain.max_stored <= 1.0);
        let expected: Vec<_> = mixed(80).map(|(stream, id, _)| (stream, id)).collect();
        prop_assert_eq!(&chain.delivered[0], &expected);
        prop_assert_eq!(&chain.delivered[1], &expected);
    }
}

/// Two hops of 10 ms around a proxy with room for 20 packets; the second one fails for data from 2 s until
/// `back`.
fn interrupted(back: Instant) -> Chain {
    let hop = Hop { delay: Duration::from_millis(10), ..Hop::default() };
    let down = [(Instant::from_millis(2_000), back), hop.down[1]];
    let mut chain =
        Chain::new(|_| new_reno(), &[hop, Hop { down, ..hop }], &[true], Cache::Packets(20), 1);
    chain.write(0, (0..1000).map(|id| (0, id, PAYLOAD)));
    chain
}

// Source: Palazzi 2007 §1.1 and PAL-V1: an update is sent once space returns.
#[test]
fn a_blocked_sender_resumes_when_the_cache_drains() {
    let mut chain = interrupted(Instant::from_millis(20_000));
    chain.run_until(Instant::from_millis(20_000), |_| false);
    let full = chain.proxy(0).stored(Side::Upstream);
    assert!(full.get() + 2 * u64::from(PAYLOAD) > 20 * u64::from(PAYLOAD), "{full:?}");
    let sent = chain.data_sent(0);
    let limit = Instant::from_millis(60_000);
    chain.run_until(limit, |chain| chain.proxy(0).stored(Side::Upstream) < full);
    let drained = chain.now;
    assert_eq!(chain.data_sent(0), sent);
    // Each departing packet admits half a packet.
    chain.run_until(limit, |chain| chain.data_sent(0) > sent);
    let (acknowledgement, packet) = (0.0105, 0.012);
    let wait = chain.now.since(drained).as_secs_f64();
    assert!(wait < acknowledgement + 2.0 * packet, "{wait}");
    chain.run_until(limit, |chain| chain.delivered[1].len() == 1000);
    assert_eq!(chain.delivered[1].len(), 1000);
}

#[test]
fn a_failed_proxy_reports_acknowledged_but_undelivered_data() {
    let mut chain = interrupted(Instant::FAR_FUTURE);
    chain.run_until(Instant::from_millis(60_000), |_| false);
    assert!(chain.end(0).is_split());
    let acknowledged = 1000 * u64::from(PAYLOAD) - chain.end(0).unacknowledged().get();
    let arrived = chain.delivered[1].len() as u32;
    let [forth, back] = chain.fail_proxy(0);
    assert_eq!(forth.bytes.get(), acknowledged - u64::from(arrived * PAYLOAD));
    let count = (forth.bytes.get() / u64::from(PAYLOAD)) as u32;
    assert!(count >= 18);
    assert_eq!(forth.messages, [LostMessages { stream: 0, first: arrived, count }]);
    assert_eq!(back, Loss::default());
    chain.run_until(Instant::from_millis(600_000), |_| false);
    assert_eq!(chain.delivered[1].len() as u32, arrived);
}

#[test]
fn the_data_owed_by_a_failed_proxy_bounds_the_loss() {
    for seed in 1..20 {
        let hops = palazzi(0.01, 0.02);
        let cache = Cache::default();
        let mut chain = Chain::new(|_| new_reno(), &hops, &TRUCK, cache, seed);
        chain.write(0, (0..1000).map(|id| (0, id, PAYLOAD)));
        chain.run_until(Instant::from_millis(5_000 + 500 * seed as i64), |_| false);
        let [owed, _] = chain.fail_proxy(0);
        chain.run_until(Instant::from_millis(60_000), |_| false);
        let acknowledged = 1000 * u64::from(PAYLOAD) - chain.end(0).unacknowledged().get();
        let arrived = chain.delivered[1].len() as u64 * u64::from(PAYLOAD);
        let lost = acknowledged.saturating_sub(arrived);
        assert!(0 < lost && lost <= owed.bytes.get(), "{lost} {owed:?}");
        let first = owed.messages.first().unwrap();
        assert!(first.first <= chain.delivered[1].len() as u32, "{owed:?}");
    }
}

/// Returns a data segment and its proxy.
fn proxy_and_data() -> (Proxy, Segment) {
    let paths = [PathInfo::default()];
    let config = new_reno();
    let side = (&config, paths.as_slice());
    let mut proxy = Proxy::new(side, side, Cache::Packets(10));
    let mut sender = Endpoint::new(&config, &paths, Role::Client);
    let now = Instant::ZERO;
    let message = Message { stream: 0, id: 0, class: Class::Data, bytes: 9000, deadline: None };
    sender.write(now, message);
    let syn = sender.poll_send(now).unwrap().segment;
    assert!(proxy.poll_send(now).is_none());
    proxy.receive(now, Side::Upstream, PathId(0), &syn);
    let (side, answer) = proxy.poll_send(now).unwrap();
    assert_eq!(side, Side::Upstream);
    sender.receive(now, PathId(0), &answer.segment);
    let data = std::iter::from_fn(|| sender.poll_send(now)).map(|transmit| transmit.segment);
    let has_data = |it: &Segment| matches!(&it.body, Body::Tcp(tcp) if tcp.len > 0);
    (proxy, { data }.find(has_data).unwrap())
}

// Source: Palazzi 2007 §1.1 (half of the free memory); RFC 9293 §3.10.7.4 (an unacceptable segment).
#[test]
fn a_segment_beyond_the_window_is_not_stored() {
    let window = 5 * u64::from(PAYLOAD);
    for (dsn, stored) in [(0, PAYLOAD), (window - u64::from(PAYLOAD), PAYLOAD), (window, 0)] {
        let (mut proxy, mut segment) = proxy_and_data();
        if let Body::Tcp(tcp) = &mut segment.body {
            (tcp.seq, tcp.dsn) = (dsn, dsn);
        }
        proxy.receive(Instant::ZERO, Side::Upstream, PathId(0), &segment);
        assert_eq!(proxy.stored(Side::Upstream).get(), u64::from(stored), "at {dsn}");
    }
}
