//! Video over simulated paths.

use crate::support::{flow, lossy, path, simulate, transport};
use skybraid_link::QueueConfig;
use skybraid_sim::Outcome;
use skybraid_sim::record::VideoSummary;
use skybraid_testing::Config;
use skybraid_traffic::TrafficConfig;
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Duration, Instant};

/// Parses a video flow of a scenario.
fn video(keys: &str) -> TrafficConfig {
    let text = format!("kind = \"video\"\nrate = \"6Mbit/s\"\n{keys}");
    TrafficConfig::parse(&text).unwrap()
}

fn summary(outcome: &Outcome) -> &VideoSummary {
    outcome.flows[0].summary.video.as_ref().unwrap()
}

fn percentile_ms(summary: &VideoSummary, share: f64) -> f64 {
    let rank = (share * summary.latencies.total() as f64).ceil() as u64;
    summary.latencies.at_rank(rank).unwrap().as_millis_f64()
}

#[test]
fn a_perfect_link_shows_every_frame_after_the_jitter_buffer() {
    let links = vec![path("lte", 100.0, 40)];
    let flows = vec![flow("video", video(""), transport(Protocol::Udp), 1)];
    let outcome = simulate(20, 1, links, flows);
    let seen = summary(&outcome);
    // Frames of the last 190 ms are in flight.
    assert_eq!((seen.frames, seen.shown, seen.intact), (600, 595, 595));
    assert_eq!(seen.freezes, 0);
    // 40 ms of propagation, 0.1 ms for the first packet of 1228 B, 150 ms of jitter buffer. A key frame of
    // 91 kB takes 7.5 ms, which the buffer hides.
    for share in [0.001, 0.5, 1.0] {
        let latency = percentile_ms(seen, share);
        assert!((latency - 190.1).abs() < 0.3, "{latency} ms at {share}");
    }
    assert_eq!(seen.worst_second, Some(30));
}

#[test]
fn a_reliable_stream_freezes_with_its_path_and_loses_nothing() {
    let mut link = path("lte", 100.0, 40);
    for direction in [&mut link.uplink, &mut link.downlink] {
        direction.down = vec![(Instant::from_millis(5_000), Duration::from_secs(2))];
    }
    let flows = vec![flow("video", video(""), transport(Protocol::Tcp), 1)];
    let outcome = simulate(20, 1, vec![link], flows);
    let seen = summary(&outcome);
    assert_eq!((seen.shown, seen.intact), (595, 595));
    assert!(seen.freezes >= 1);
    let gap = seen.longest_gap.as_secs_f64();
    assert!((1.8..4.0).contains(&gap), "{gap} s");
    assert!((percentile_ms(seen, 0.5) - 190.0).abs() < 2.0, "the delay goes away again");
}

#[test]
fn reed_solomon_recovers_one_percent_of_loss() {
    let seen = |keys: &str| {
        let links = vec![lossy(path("lte", 100.0, 40), 0.01)];
        let flows = vec![flow("video", video(keys), transport(Protocol::Udp), 1)];
        let outcome = simulate(60, 3, links, flows);
        let sent = outcome.flows[0].summary.sent;
        (summary(&outcome).clone(), sent)
    };
    let (plain, packets) = seen("");
    let (repaired, more) = seen("repair = { kind = \"reed_solomon\" }");
    // A frame of 20 packets is complete with probability 0.99^20 = 0.82.
    assert!((plain.complete as f64 / 1795.0 - 0.82).abs() < 0.06, "{}", plain.complete);
    assert!(plain.intact < 900, "damage lasts until the next key frame");
    assert!(repaired.intact >= 1790, "{} of 1795", repaired.intact);
    let added = more as f64 / packets as f64 - 1.0;
    assert!((0.2..0.3).contains(&added), "{added}");
    let (twice, _) = seen("duplicate = \"all\"");
    // Both copies are lost with probability 1e-4, of 20 packets 0.2 % of the frames.
    assert!(twice.complete >= 1785, "{}", twice.complete);
    let (measured, amount) = seen("repair = { kind = \"reed_solomon\", fails = \"0.01%\" }");
    assert!(measured.intact >= 1790, "{}", measured.intact);
    assert!(amount < more, "{amount} packets against {more}");
}

#[test]
fn rate_control_fits_a_link_that_a_constant_rate_overflows() {
    let seen = |keys: &str| {
        let links = vec![path("lte", 3.0, 40)];
        let flows = vec![flow("video", video(keys), transport(Protocol::Udp), 1)];
        simulate(60, 1, links, flows)
    };
    let constant = seen("");
    assert!(percentile_ms(summary(&constant), 1.0) > 20_000.0, "the queue has no end");
    for kind in ["scream", "gcc"] {
        let outcome = seen(&format!("rate_control = {{ kind = \"{kind}\" }}"));
        let latency = percentile_ms(summary(&outcome), 0.5);
        assert!(latency < 400.0, "{kind}: {latency} ms");
        let carried = crate::support::goodput_mbps(&outcome, 0, 60);
        assert!((2.0..3.0).contains(&carried), "{kind}: {carried} Mbit/s");
        // Reports every 50 ms.
        let reports = outcome.flows[1].summary.delivered;
        assert!((1100..1210).contains(&reports), "{kind}: {reports}");
    }
}

#[test]
fn expired_messages_are_dropped_before_transmission() {
    let mut link = path("lte", 3.0, 40);
    link.uplink.queue = QueueConfig::Packets(50);
    let slowest_ms = |drop_after: &str, drop_expired: bool| {
        let transport =
            TransportConfig { tx_queue: Some(10_000), drop_expired, ..transport(Protocol::Dccp) };
        let flows = vec![flow("video", video(drop_after), transport, 1)];
        let outcome = simulate(30, 1, vec![link.clone()], flows);
        let summary = &outcome.flows[0].summary;
        (summary.delays.at_rank(summary.delivered).unwrap().as_millis_f64(), summary.refused)
    };
    let (slowest, refused) = slowest_ms("drop_after = \"300ms\"", true);
    // A message sent within 300 ms waits in the link for 50 packets of 4 ms each and propagates for 40 ms.
    assert!(refused > 0 && slowest < 300.0 + 200.0 + 40.0 + 10.0, "{slowest} ms");
    let (slowest, _) = slowest_ms("", false);
    assert!(slowest > 5_000.0, "{slowest} ms");
}
