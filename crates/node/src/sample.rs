//! Sample state for tests: a ground station with two paths, a dish and LTE.

use skybraid_gateway::event::PathState;
use skybraid_gateway::health::MtuState;
use skybraid_gateway::snapshot::{
    ChannelSnapshot, ClassSnapshot, ForecastSnapshot, PathSnapshot, RefusedSnapshot, Snapshot,
    TunSnapshot,
};
use skybraid_gateway::{Class, Side};

fn path(name: &str, rtt_ms: f64) -> PathSnapshot {
    PathSnapshot {
        name: name.to_string(),
        outgoing: PathState::Up,
        incoming: PathState::Up,
        remote: Some("198.51.100.7:40000".to_string()),
        rtt_ms: Some(rtt_ms),
        min_rtt_ms: Some(rtt_ms - 10.0),
        incoming_delay_ms: Some(rtt_ms / 2.0),
        outgoing_delay_ms: Some(rtt_ms / 2.0),
        incoming_late: false,
        outgoing_late: false,
        jitter_ms: Some(1.5),
        incoming_loss: Some(0.01),
        outgoing_loss: Some(0.0),
        outgoing_bps: 200_000.0,
        incoming_bps: 4_000_000.0,
        outgoing_bytes: 1000,
        incoming_bytes: 2000,
        outgoing_datagrams: 10,
        incoming_datagrams: 20,
        control_won: 7,
        mtu: 1500,
        mtu_state: MtuState::SearchComplete,
        incoming_mtu: Some(1500),
        peer_mtu_error: false,
        black_holes: 0,
        data_left: None,
        given_up: 1,
    }
}

/// Returns the sample state.
pub(super) fn snapshot() -> Snapshot {
    let class = |class: Class| ClassSnapshot {
        name: class.name(),
        written: 100,
        written_bytes: 3000,
        delivered: 90,
        delivered_bytes: 2700,
        late: 1,
        superseded: 2,
        duplicates: 80,
        repaired: 5,
        by_path: vec![30, 60],
        ..ClassSnapshot::default()
    };
    let mut classes: Vec<ClassSnapshot> = Class::ALL.into_iter().map(class).collect();
    if let Some(control) = classes.first_mut() {
        control.delay_p50_ms = Some(31.2);
        control.delay_p99_ms = Some(58.0);
        control.longest_gap_ms = Some(25.0);
        control.silent_ms = Some(12.0);
        control.forecast = Some(ForecastSnapshot {
            within_ms: 150.0,
            wanted: 0.99999,
            expected: 0.9995,
            expected_interval: [0.9991, 0.9997],
            overhead: 0.2,
            best: 0.9998,
            best_interval: [0.9995, 0.9999],
            best_overhead: 1.0,
            words:
                "within 150 ms no plan reaches 99.999 %: best 99.98 % (99.95 to 99.99) at +100 %, \
                    99.95 % (99.91 to 99.97) at +20.0 %"
                    .to_string(),
        });
    }
    let channel = |name: &str| ChannelSnapshot {
        name: name.to_string(),
        written: 5,
        delivered: 6,
        shared: true,
    };
    Snapshot {
        name: "kite".to_string(),
        side: Side::Ground,
        uptime_ms: 61_500.0,
        session: true,
        peer: None,
        session_left_ms: Some(540_000.0),
        session_overdue: false,
        session_expired: false,
        sessions: 2,
        peer_restarts: 1,
        peer_duplicated: false,
        silent_ms: Some(12.0),
        paths: vec![path("dish", 80.0), path("lte", 60.0)],
        classes,
        channels: vec![channel("mavlink"), channel("video")],
        bugs: 0,
        tun: Some(TunSnapshot { peer: None, refused_outgoing: 4, refused_incoming: 9 }),
        control_limit: None,
        sources: Vec::new(),
        refused: RefusedSnapshot { forged: 3, ..RefusedSnapshot::default() },
    }
}
