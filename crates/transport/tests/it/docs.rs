//! The table of defaults in `docs/transport.md` matches the code.

use std::fmt::Write;
use std::path::Path;

use skybraid_transport::TransportConfig;
use skybraid_transport::config::Profile;
use skybraid_transport::mptcp::path_manager::PathManager;
use skybraid_transport::rtt::RtoRule;
use skybraid_transport::tcp::scoreboard::LossDetection;
use skybraid_units::Bytes;

const BEGIN: &str = "<!-- defaults: kept by a test of the transport crate; SKYBRAID_UPDATE_DOCS=1 rewrites it -->\n";
const END: &str = "<!-- end of defaults -->";

fn size(bytes: Bytes) -> String {
    match bytes.get() {
        bytes if bytes.is_multiple_of(1_000_000) => format!("{}MB", bytes / 1_000_000),
        bytes => format!("{bytes}B"),
    }
}

/// Returns every key except `profile` and `paths`, with its value in scenario notation.
fn keys(config: &TransportConfig) -> Vec<(&'static str, String)> {
    // Exhaustive, so that a new key does not compile until it is listed.
    let TransportConfig {
        protocol,
        paths: _,
        subflows: _,
        scheduler,
        congestion,
        reordering,
        receive_buffer,
        send_buffer,
        buffers,
        refuse_when_full,
        initial_window,
        initial_threshold,
        max_in_flight,
        segment,
        loss_detection,
        proportional_reduction,
        undo,
        pacing,
        idle_restart,
        window_validation,
        ack_rule,
        ack_every,
        ack_delay,
        rto_min,
        rto_rule,
        flight_size,
        retransmission_restarts_timer,
        report_every,
        path_manager,
        join_after,
        peer_multipath,
        opportunistic_retransmission,
        penalisation,
        bufferbloat_mitigation,
        seed: _,
        tx_queue,
        drop_expired,
        restart_window,
        pace_queue,
        keep_alive,
        probe_every,
        stack,
    } = config;
    let detection = match loss_detection {
        LossDetection::Rack => "rack",
        LossDetection::Sack => "sack",
        LossDetection::Ns3 => "ns3",
        LossDetection::NewReno => "new_reno",
    };
    let rule = match rto_rule {
        RtoRule::Rfc6298 => "rfc6298",
        RtoRule::Linux => "linux",
        RtoRule::Ns3 => "ns3",
    };
    let manager = match path_manager {
        PathManager::FullMesh => "full_mesh".to_string(),
        PathManager::Announced => "announced".to_string(),
        PathManager::Ports(ports) => format!("{{ ports = {ports} }}"),
    };
    let restart = restart_window.map_or("none".to_string(), |packets| packets.to_string());
    vec![
        ("protocol", protocol.name().to_string()),
        ("scheduler", scheduler.name().to_string()),
        ("congestion", congestion.name().to_string()),
        ("reordering", reordering.0.name().to_string()),
        ("receive_buffer", size(*receive_buffer)),
        ("send_buffer", size(*send_buffer)),
        ("buffers", buffers.name().to_string()),
        ("refuse_when_full", refuse_when_full.to_string()),
        ("initial_window", initial_window.to_string()),
        ("initial_threshold", initial_threshold.map_or("none".to_string(), size)),
        ("max_in_flight", max_in_flight.map_or("none".to_string(), size)),
        ("segment", segment.map_or("from the smallest MTU".to_string(), size)),
        ("loss_detection", detection.to_string()),
        ("proportional_reduction", proportional_reduction.to_string()),
        ("undo", undo.to_string()),
        ("pacing", pacing.to_string()),
        ("idle_restart", idle_restart.name().to_string()),
        ("window_validation", window_validation.to_string()),
        ("ack_rule", ack_rule.name().to_string()),
        ("ack_every", ack_every.to_string()),
        ("ack_delay", ack_delay.to_string()),
        ("rto_min", rto_min.to_string()),
        ("rto_rule", rule.to_string()),
        ("flight_size", flight_size.name().to_string()),
        ("retransmission_restarts_timer", retransmission_restarts_timer.to_string()),
        ("report_every", report_every.to_string()),
        ("path_manager", manager),
        ("join_after", join_after.name().to_string()),
        ("peer_multipath", peer_multipath.to_string()),
        ("opportunistic_retransmission", opportunistic_retransmission.to_string()),
        ("penalisation", penalisation.to_string()),
        ("bufferbloat_mitigation", bufferbloat_mitigation.to_string()),
        ("tx_queue", tx_queue.unwrap_or(TransportConfig::TX_QUEUE).to_string()),
        ("drop_expired", drop_expired.to_string()),
        ("restart_window", restart),
        ("pace_queue", pace_queue.to_string()),
        ("keep_alive", keep_alive.to_string()),
        ("probe_every", probe_every.to_string()),
        ("stack", stack.name().to_string()),
    ]
}

/// Returns the table: a row per key, with the values that a profile changes.
fn table() -> String {
    let mut text =
        "| key | no profile | `ns2` | `rfc` | `linux` |\n|---|---|---|---|---|\n".to_string();
    let profiles = [Profile::Ns2, Profile::Rfc, Profile::Linux]
        .map(|profile| keys(&TransportConfig::of(profile)));
    for (place, (key, usual)) in keys(&TransportConfig::default()).into_iter().enumerate() {
        let changed = profiles.each_ref().map(|profile| {
            let value = &profile[place].1;
            if *value == usual { String::new() } else { format!("`{value}`") }
        });
        let [ns2, rfc, linux] = changed;
        writeln!(text, "| `{key}` | `{usual}` | {ns2} | {rfc} | {linux} |").unwrap();
    }
    text
}

#[test]
fn the_guide_s_table_of_defaults_is_that_of_the_code() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/transport.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let expected = table();
    if std::env::var_os("SKYBRAID_UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, expected, "SKYBRAID_UPDATE_DOCS=1 writes the table anew");
}
