//! TCP under random loss, compared with its formula.

use crate::support::*;
use skybraid_transport::congestion::{CongestionConfig, reno};
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::Bytes;

/// Returns the segments per second of one Reno flow over a path without queueing, after the first tenth of the run.
fn reno_rate(p: f64, rtt_ms: i64) -> f64 {
    let transport = TransportConfig {
        protocol: Protocol::Tcp,
        congestion: CongestionConfig::Reno(reno::Config::default()),
        receive_buffer: Bytes::new(1 << 40),
        send_buffer: Bytes::new(1 << 30),
        ..TransportConfig::default()
    };
    let expected = 0.87 / p.sqrt() / (rtt_ms as f64 / 1e3);
    // With the minimum of 250 losses, the rates of single seeds vary by 2.3 %.
    let (segments, seeds) = ((2000.0 / p).min(2.5e6), 2);
    let seconds = (segments / expected) as i64;
    let mut acked_bytes = 0;
    for seed in 0..seeds {
        let link = lossy(path("a", 1e5, rtt_ms / 2), p);
        let flows = vec![flow("f", BULK, transport.clone(), 1)];
        let outcome = simulate(seconds, seed, vec![link], flows);
        let settled = |at: f64| at > 0.1 * seconds as f64;
        let rows = outcome.subflows.iter().filter(|row| settled(row.at.as_secs_f64()));
        acked_bytes += rows.map(|row| row.acked_bytes).sum::<u64>();
    }
    acked_bytes as f64 / 1448.0 / (0.9 * seconds as f64) / seeds as f64
}

/// Padhye, Firoiu, Towsley, Kurose 1998, equation 30 without a window limit.
fn pftk(p: f64, rtt_s: f64, timeout_s: f64, b: f64) -> f64 {
    let fast = rtt_s * (2.0 * b * p / 3.0).sqrt();
    let slow = timeout_s * (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / (fast + slow)
}

fn assert_reno_follows_pftk(rtt_ms: i64) {
    for p in [1e-4, 1e-3, 1e-2] {
        let rtt = rtt_ms as f64 / 1e3;
        // Linux's minimum timeout is the round trip plus 200 ms; every second segment is acknowledged.
        let ratio = reno_rate(p, rtt_ms) / pftk(p, rtt, rtt + 0.2, 2.0);
        assert!((ratio - 1.0).abs() < 0.10, "RTT {rtt_ms} ms, p {p}: {ratio:.3}");
    }
}

#[test]
fn reno_follows_the_pftk_formula_at_20_ms() {
    assert_reno_follows_pftk(20);
}

#[test]
fn reno_follows_the_pftk_formula_at_100_ms() {
    assert_reno_follows_pftk(100);
}

#[test]
fn reno_follows_the_pftk_formula_at_600_ms() {
    assert_reno_follows_pftk(600);
}
