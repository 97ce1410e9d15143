//! Copies sent before a deadline, between two ends of a datagram flow over lossy paths.

use std::collections::BTreeMap;

use skybraid_transport::congestion::{CongestionConfig, ccid2, ccid5};
use skybraid_transport::scheduler::forecast::Forecast;
use skybraid_transport::scheduler::{
    SchedulerConfig, coded, deadline, early_warning, hedge, low_rtt, rounds, streaming,
};
use skybraid_transport::segment::Dccp;
use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Protocol, Role, Segment, TransportConfig,
};
use skybraid_units::{Duration, Instant, Probability, Seed};

const EVERY_MS: i64 = 10;

/// Result of a flow of equal messages.
struct Outcome {
    /// Share of the messages that were late or lost.
    missed: f64,
    /// Copies of a message, mean.
    copies: f64,
    /// Copies that left after the deadline of their message.
    pointless: u32,
    /// Share that the scheduler expects in time at the end.
    forecast: Option<Forecast>,
}

/// Sends a message every 10 ms for `seconds` as datagrams over paths of these one-way delays, which lose data
/// as `lost` says; what returns is never lost.
fn flow(
    scheduler: SchedulerConfig,
    delays_ms: &[i64],
    within_ms: i64,
    seconds: i64,
    lost: impl FnMut(Instant, PathId) -> bool,
) -> Outcome {
    let config = TransportConfig { protocol: Protocol::Udp, scheduler, ..Default::default() };
    flow_of(&config, delays_ms, within_ms, seconds, lost)
}

fn flow_of(
    config: &TransportConfig,
    delays_ms: &[i64],
    within_ms: i64,
    seconds: i64,
    mut lost: impl FnMut(Instant, PathId) -> bool,
) -> Outcome {
    let paths = vec![PathInfo::default(); delays_ms.len()];
    let mut ends = [Role::Client, Role::Server].map(|role| Endpoint::new(config, &paths, role));
    let mut wires: BTreeMap<(Instant, u64), (usize, PathId, Segment)> = BTreeMap::new();
    let (mut number, mut copies, mut delivered, mut pointless) = (0, 0, 0, 0);
    let messages = seconds * 1000 / EVERY_MS;
    let end = Instant::from_millis(seconds * 1000 + 1000);
    let (mut now, mut written, mut steps) = (Instant::ZERO, 0, 0);
    while now < end {
        steps += 1;
        assert!(steps < 200 * messages, "an end wakes without an end");
        while written < messages && now >= Instant::from_millis(written * EVERY_MS) {
            let deadline = Some(now + Duration::from_millis(within_ms));
            let id = written as u32;
            let message = Message { stream: 0, id, class: Class::Control, bytes: 200, deadline };
            ends[0].write(now, message);
            written += 1;
        }
        let sent_at = |id: u32| Instant::from_millis(i64::from(id) * EVERY_MS);
        let within = Duration::from_millis(within_ms);
        for (side, host) in ends.iter_mut().enumerate() {
            host.wake(now);
            while let Some(sent) = host.poll_send(now) {
                copies += i32::from(matches!(sent.segment.body, Body::Repair(_)));
                if let Body::Datagram(datagram) | Body::Dccp(Dccp { data: datagram, .. }) =
                    sent.segment.body
                    && datagram.fragments > 0
                {
                    copies += 1;
                    pointless += u32::from(now.since(sent_at(datagram.message)) > within);
                }
                if side == 0 && lost(now, sent.path) {
                    continue;
                }
                let delay = Duration::from_millis(delays_ms[sent.path.index()]);
                number += 1;
                wires.insert((now + delay, number), (1 - side, sent.path, sent.segment));
            }
        }
        while let Some(entry) = wires.first_entry().filter(|entry| entry.key().0 <= now) {
            let (side, path, segment) = entry.remove();
            ends[side].receive(now, path, &segment);
        }
        while let Some(message) = ends[1].poll_delivered() {
            delivered += i64::from(now.since(sent_at(message.id)) <= within);
        }
        let timers = ends.iter().map(Endpoint::next_wakeup).min().unwrap();
        let arrival = wires.first_key_value().map_or(end, |(key, _)| key.0);
        let next = if written < messages { Instant::from_millis(written * EVERY_MS) } else { end };
        now = timers.min(arrival).min(next).max(now + Duration::from_nanos(1));
    }
    Outcome {
        missed: 1.0 - delivered as f64 / messages as f64,
        copies: f64::from(copies) / messages as f64,
        pointless,
        forecast: ends[0].forecast(),
    }
}

/// Losses of a share of the packets, independent of each other.
fn independent(share: f64) -> impl FnMut(Instant, PathId) -> bool {
    let mut stream = Seed(7).stream("loss");
    move |_, _| stream.chance(Probability::new(share).unwrap())
}

// With independent losses of p, a message is missed if both copies are lost: p². The second one is
// sent for a share p of the messages. Four standard deviations of 20,000 messages each.
#[test]
fn hedging_misses_as_duplication_for_the_bytes_of_the_losses() {
    let scheduler = SchedulerConfig::Hedge(hedge::Config::default());
    let p = 0.1;
    let seen = flow(scheduler, &[30, 40], 300, 200, independent(p));
    let deviation = |share: f64| 4.0 * (share * (1.0 - share) / 20_000.0).sqrt();
    assert!((seen.missed - p * p).abs() < deviation(p * p), "{}", seen.missed);
    assert!((seen.copies - 1.0 - p).abs() < deviation(p), "{}", seen.copies);
    assert_eq!(seen.pointless, 0);
}

// A path that is silent from 50 s on: what left before the first sign of it is missed at most, an
// acknowledgement after 80 ms, or 30 ms where it is still in time to send once more.
#[test]
fn early_warning_leaves_a_path_that_fell_silent() {
    let silent = |now: Instant, path: PathId| now >= Instant::from_millis(50_000) && path.0 == 0;
    let config = early_warning::Config { hedge: false, ..Default::default() };
    let seen = flow(SchedulerConfig::EarlyWarning(config), &[30, 40], 100, 100, silent);
    assert!(seen.missed * 10_000.0 <= 14.0, "{}", seen.missed);
    assert!(seen.copies < 1.05, "{}", seen.copies);
    let config = early_warning::Config::default();
    let hedged = flow(SchedulerConfig::EarlyWarning(config), &[15, 20], 100, 100, silent);
    assert_eq!(hedged.missed, 0.0);
}

// Three paths that lose 5 % each and a budget of 30 %: a hedge for each loss costs 5 %.
#[test]
fn the_deadline_is_met_at_the_least_bytes() {
    let scheduler = |budget| {
        let budget = Probability::new(budget).unwrap();
        SchedulerConfig::Deadline(deadline::Config { budget, ..Default::default() })
    };
    let seen = flow(scheduler(0.3), &[30, 40, 50], 300, 200, independent(0.05));
    assert!(seen.missed < 0.001, "{}", seen.missed);
    assert!(seen.copies < 1.3 + 0.5 * 0.3 * 16_384.0 / 20_000.0, "{}", seen.copies);
    let without = flow(scheduler(0.0), &[30, 40, 50], 300, 200, independent(0.05));
    assert_eq!(without.copies, 1.0);
}

// Two paths of which each loses a share p on its own: with a copy on both p² are missed, and no plan does
// better within 100 ms. `deadline` takes failures to come together up to 3 times as often.
#[test]
fn a_share_that_no_plan_reaches_is_forecast() {
    let p = 0.05;
    let config = deadline::Config { budget: Probability::ONE, ..Default::default() };
    let seen = flow(SchedulerConfig::Deadline(config), &[30, 40], 100, 400, independent(p));
    let forecast = seen.forecast.unwrap();
    assert!(forecast.is_out_of_reach(), "{forecast}");
    let least = 1.0 - forecast.best().mean;
    assert!(p * p * 0.8 < least && least < 3.2 * p * p, "{forecast}");
    let expected = forecast.expected();
    assert!(
        expected.low <= 1.0 - seen.missed && 1.0 - seen.missed <= expected.high,
        "{} {forecast}",
        seen.missed
    );
    assert!(forecast.to_string().contains("no plan reaches 99.999 %: best 99."), "{forecast}");
}

#[test]
fn paths_without_trouble_are_expected_to_reach_the_share() {
    let calm = deadline::Config::default();
    let seen = flow(SchedulerConfig::Deadline(calm), &[30, 40], 300, 400, |_, _| false);
    let forecast = seen.forecast.unwrap();
    let expected = forecast.expected();
    assert!(expected.mean >= forecast.wanted() && forecast.overhead() < 0.01, "{forecast}");
    let hedge = SchedulerConfig::Hedge(hedge::Config::default());
    assert_eq!(flow(hedge, &[30, 40], 300, 10, |_, _| false).forecast, None);
}

// As by hedging: p² are missed for a share p of further packets, plus the combinations that guard
// against losses of repair.
#[test]
fn coded_runs_miss_less_than_copies_where_repair_is_lost_too() {
    let p = 0.1;
    let coded = SchedulerConfig::Coded(coded::Config::default());
    let seen = flow(coded, &[30, 40], 300, 200, independent(p));
    assert!(seen.missed < p * p / 3.0, "{}", seen.missed);
    assert!(seen.copies < 1.0 + 2.5 * p, "{}", seen.copies);
}

// Losses of 30 in a row on the first path: 0.3 s of each 4 s, and not before round trips are known. A run's
// combinations depend on each other in 1 of 255 cases, unless one more is sent.
#[test]
fn runs_of_losses_are_recovered_within_the_deadline() {
    let burst = |now: Instant, path: PathId| {
        path.0 == 0 && (now.as_nanos() / 1_000_000 + 2000) % 4000 < 300
    };
    let fails = Probability::new(0.001).unwrap();
    let schedulers = [
        (SchedulerConfig::Coded(coded::Config { fails, ..Default::default() }), 0.0),
        (SchedulerConfig::Rounds(rounds::Config::default()), 0.002),
    ];
    for (scheduler, most) in schedulers {
        let name = format!("{scheduler:?}");
        let seen = flow(scheduler, &[30, 40], 300, 200, burst);
        assert!(seen.missed <= most, "{name}: {}", seen.missed);
        assert!(seen.copies < 1.25, "{name}: {}", seen.copies);
    }
    let streaming = streaming::Config { burst: 8, delay: 4, ..Default::default() };
    let streaming = SchedulerConfig::Streaming(streaming);
    let burst = |now: Instant, path: PathId| path.0 == 0 && now.as_nanos() / 1_000_000 % 4000 < 80;
    let seen = flow(streaming, &[30, 40], 300, 200, burst);
    assert_eq!(seen.missed, 0.0);
}

// At 1 % of losses CCID 2 has a window of 1.2 / sqrt(p) = 12 packets, twice those of a round trip; CCID 5 paces. Missed
// besides are the messages before the connection is open, 0.05 %, and those beyond its queue.
#[test]
fn over_mp_dccp_copies_save_what_a_path_loses() {
    let p = 0.01;
    let controls = [
        CongestionConfig::Ccid2(ccid2::Config::default()),
        CongestionConfig::Ccid5(ccid5::Config::default()),
    ];
    for congestion in controls {
        let missed = |scheduler, budget| {
            let congestion = congestion.clone();
            let protocol = Protocol::MpDccp;
            let config = TransportConfig { protocol, scheduler, congestion, ..Default::default() };
            let seen = flow_of(&config, &[30, 40], 300, 200, independent(p));
            assert!(seen.copies < 1.0 + budget, "{}", seen.copies);
            seen.missed
        };
        let low_rtt = missed(SchedulerConfig::LowRtt(low_rtt::Config::default()), 0.001);
        assert!(0.8 * p < low_rtt && low_rtt < 1.5 * p, "{low_rtt}");
        let hedged = missed(SchedulerConfig::Hedge(hedge::Config::default()), 1.2 * p);
        assert!(low_rtt - hedged > 0.8 * p, "{hedged}");
        let deadline = missed(SchedulerConfig::Deadline(deadline::Config::default()), 0.2);
        assert!(low_rtt - deadline > 0.8 * p, "{deadline}");
    }
}
