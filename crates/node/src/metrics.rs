//! Gateway state in Prometheus format (text format 0.0.4): base units, counts since the start.

use std::fmt::Write;

use skybraid_gateway::event::PathState;
use skybraid_gateway::health::MtuState;
use skybraid_gateway::snapshot::Snapshot;

use super::SocketCounters;
use super::watch::LogState;

/// Media type.
pub(super) const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metric families, each with its help and type before the first sample.
#[derive(Default)]
struct Text(String);

/// Label name and value.
type Label<'a> = (&'a str, &'a str);

impl Text {
    fn family<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, Option<f64>)>,
    ) {
        let mut samples =
            samples.into_iter().filter_map(|(labels, value)| Some((labels, value?))).peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        // Writing to a string never fails.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            self.0.push_str(name);
            for (place, (label, text)) in labels.iter().enumerate() {
                let open = if place == 0 { '{' } else { ',' };
                let _ = write!(self.0, "{open}{label}=\"{}\"", escaped(text));
            }
            let close = if labels.is_empty() { "" } else { "}" };
            let _ = writeln!(self.0, "{close} {value}");
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(ms: Option<f64>) -> Option<f64> {
    ms.map(|ms| ms / 1e3)
}

fn count(number: u64) -> Option<f64> {
    Some(number as f64)
}

/// Returns the metrics; only those of the daemon until there is a state.
pub(super) fn text(
    version: &str,
    state: Option<&Snapshot>,
    edges: &SocketCounters,
    log: Option<&LogState>,
) -> String {
    let mut text = Text::default();
    if let Some(state) = state {
        whole(&mut text, version, state);
        tun(&mut text, state);
        paths(&mut text, state);
        classes(&mut text, state);
    }
    local(&mut text, edges);
    if let Some(log) = log {
        let lost = [(Vec::new(), count(log.lost))];
        text.family("skybraid_log_lost_lines_total", "Lines that the event log lacks.", lost);
    }
    text.0
}

fn whole(text: &mut Text, version: &str, state: &Snapshot) {
    let mut one = |name, help, value| text.family(name, help, [(Vec::new(), value)]);
    let up = Some(f64::from(u8::from(state.session)));
    one("skybraid_uptime_seconds", "Since the start.", Some(state.uptime_ms / 1e3));
    one("skybraid_session_up", "Whether a session with the other end is established.", up);
    let help = "Until the session ends unless its keys are changed.";
    one("skybraid_session_left_seconds", help, seconds(state.session_left_ms));
    let overdue = Some(f64::from(u8::from(state.session_overdue)));
    let help = "The session's keys should have been changed for a while.";
    one("skybraid_session_overdue", help, overdue);
    one("skybraid_sessions_total", "Sessions, changes of keys included.", count(state.sessions));
    let help = "Broken invariants of this program: anything but 0 is a bug.";
    one("skybraid_bugs_total", help, count(state.bugs));
    let help = "How often the other end has been restarted.";
    one("skybraid_peer_restarts_total", help, count(state.peer_restarts));
    let help = "Since when nothing has been heard from the other end.";
    one("skybraid_peer_silent_seconds", help, seconds(state.silent_ms));
    let labels =
        vec![("name", state.name.as_str()), ("side", state.side.name()), ("version", version)];
    text.family("skybraid_gateway_info", "What this gateway is.", [(labels, Some(1.0))]);
    let refused = &state.refused;
    let reasons = [
        ("foreign", refused.foreign),
        ("forged", refused.forged),
        ("replayed", refused.replayed),
        ("stranger", refused.strangers),
        ("cookie", refused.cookies),
        ("unreadable", refused.unreadable),
        ("signature", refused.signatures),
    ];
    let reasons = reasons.map(|(reason, number)| (vec![("reason", reason)], count(number)));
    let help = "Datagrams from outside that were refused.";
    text.family("skybraid_refused_datagrams_total", help, reasons);
}

fn tun(text: &mut Text, state: &Snapshot) {
    let Some(tun) = &state.tun else { return };
    let ways = [("outgoing", tun.refused_outgoing), ("incoming", tun.refused_incoming)];
    let ways = ways.map(|(way, number)| (vec![("direction", way)], count(number)));
    let help = "IP packets of the TUN interface whose inner addresses are not allowed.";
    text.family("skybraid_tun_refused_packets_total", help, ways);
}

fn paths(text: &mut Text, state: &Snapshot) {
    let each = || state.paths.iter().map(|path| (vec![("path", path.name.as_str())], path));
    let ways = ["outgoing", "incoming"];
    let states = each().flat_map(|(labels, path)| {
        ways.into_iter().zip([path.outgoing, path.incoming]).flat_map(move |(way, is)| {
            let labels = labels.clone();
            PathState::ALL.into_iter().map(move |state| {
                let more = [("direction", way), ("state", state.name())];
                let labels = labels.iter().copied().chain(more).collect();
                (labels, Some(f64::from(u8::from(state == is))))
            })
        })
    });
    text.family("skybraid_path_state", "1 for the state in which a path is.", states);
    macro_rules! both_ways {
        ($name:literal, $help:literal, $path:ident => $out:expr, $in:expr) => {
            let samples = each().flat_map(|(labels, $path)| {
                ways.into_iter().zip([$out, $in]).map(move |(way, value)| {
                    (labels.iter().copied().chain([("direction", way)]).collect(), value)
                })
            });
            text.family($name, $help, samples);
        };
    }
    both_ways!("skybraid_path_delay_seconds", "One-way delay.",
        path => seconds(path.outgoing_delay_ms), seconds(path.incoming_delay_ms));
    both_ways!("skybraid_path_loss_ratio", "Share lost in the last second or so, 0 to 1.",
        path => path.outgoing_loss, path.incoming_loss);
    both_ways!("skybraid_path_bytes_total", "Bytes of IP packets.",
        path => count(path.outgoing_bytes), count(path.incoming_bytes));
    both_ways!("skybraid_path_datagrams_total", "Datagrams.",
        path => count(path.outgoing_datagrams), count(path.incoming_datagrams));
    macro_rules! each_path {
        ($name:literal, $help:literal, $path:ident => $value:expr) => {
            text.family($name, $help, each().map(|(labels, $path)| (labels, $value)));
        };
    }
    each_path!("skybraid_path_rtt_seconds", "Smoothed round-trip time.",
        path => seconds(path.rtt_ms));
    each_path!("skybraid_path_rtt_min_seconds", "Lowest round-trip time of the last minute.",
        path => seconds(path.min_rtt_ms));
    each_path!("skybraid_path_jitter_seconds", "Jitter of what arrives (RFC 3550).",
        path => seconds(path.jitter_ms));
    both_ways!("skybraid_path_mtu_bytes", "Largest IP packet that goes through.",
        path => count(u64::from(path.mtu)), path.incoming_mtu.map(f64::from));
    both_ways!("skybraid_path_mtu_error",
        "1 where IP packets of 1280 bytes do not go through.",
        path => count((path.mtu_state == MtuState::Error).into()),
        count(path.peer_mtu_error.into()));
    each_path!("skybraid_path_black_holes_total",
        "How often packets that had gone through no longer did.", path => count(path.black_holes));
    each_path!("skybraid_path_data_left_bytes", "What is left of its data.",
        path => path.data_left.and_then(count));
    each_path!("skybraid_path_control_first_total",
        "Control messages that arrived here first.", path => count(path.control_won));
    each_path!("skybraid_path_given_up_total", "How often it has been given up.",
        path => count(path.given_up));
}

fn classes(text: &mut Text, state: &Snapshot) {
    let each = || state.classes.iter().map(|class| (vec![("class", class.name)], class));
    macro_rules! each_class {
        ($name:literal, $help:literal, $class:ident => $value:expr) => {
            text.family($name, $help, each().map(|(labels, $class)| (labels, $value)));
        };
    }
    each_class!("skybraid_class_written_messages_total",
        "Messages that local applications wrote.", class => count(class.written));
    each_class!("skybraid_class_written_bytes_total", "Their bytes.",
        class => count(class.written_bytes));
    each_class!("skybraid_class_refused_messages_total",
        "Messages for which there was no room at the sender, or no session.",
        class => count(class.refused));
    each_class!("skybraid_class_delivered_messages_total",
        "Messages delivered to local applications.", class => count(class.delivered));
    each_class!("skybraid_class_delivered_bytes_total", "Their bytes.",
        class => count(class.delivered_bytes));
    each_class!("skybraid_class_late_messages_total",
        "Messages older than the deadline, dropped wherever they had waited.", class => count(class.late));
    each_class!("skybraid_class_superseded_messages_total",
        "Messages dropped for a newer one of their kind.",
        class => count(class.superseded));
    each_class!("skybraid_class_duplicate_messages_total", "Second copies.",
        class => count(class.duplicates));
    each_class!("skybraid_class_repaired_datagrams_total",
        "Lost datagrams that were recovered from repair packets.",
        class => count(class.repaired));
    each_class!("skybraid_class_late_ratio",
        "Share of what arrived in the last second or so that was older than the deadline, 0 to 1.",
        class => class.late_share);
    each_class!("skybraid_class_delay_p50_seconds", "Median age of the messages of the last 10 s.",
        class => seconds(class.delay_p50_ms));
    each_class!("skybraid_class_delay_p99_seconds",
        "99th percentile of the age of the messages of the last 10 s.", class => seconds(class.delay_p99_ms));
    each_class!("skybraid_class_longest_gap_seconds",
        "Longest time between two deliveries in the last second or so.",
        class => seconds(class.longest_gap_ms));
    macro_rules! each_forecast {
        ($name:literal, $help:literal, $forecast:ident => $value:expr) => {
            text.family(
                $name,
                $help,
                each().map(|(labels, class)| {
                    (labels, class.forecast.as_ref().map(|$forecast| $value))
                }),
            );
        };
    }
    each_forecast!("skybraid_class_expected_in_time_ratio",
        "Share of the messages that the scheduler expects in time, 0 to 1.", it => it.expected);
    each_forecast!("skybraid_class_wanted_in_time_ratio",
        "Share of the messages that must arrive in time, 0 to 1.", it => it.wanted);
    each_forecast!("skybraid_class_best_in_time_ratio",
        "Share expected in time with copies on all paths, 0 to 1: no plan reaches more.",
        it => it.best);
    each_forecast!("skybraid_class_copies_ratio",
        "Bytes of further copies, of those of the first copies.", it => it.overhead);
    let names = || state.paths.iter().map(|path| path.name.as_str());
    let by_path = each().flat_map(|(labels, class)| {
        // In TCP mode, the MPTCP connection follows the paths.
        names().chain(["mptcp"]).zip(&class.by_path).map(move |(path, number)| {
            (labels.iter().copied().chain([("path", path)]).collect(), count(*number))
        })
    });
    let help = "Messages delivered by each path.";
    text.family("skybraid_class_delivered_by_path_total", help, by_path);
    let each =
        || state.channels.iter().map(|channel| (vec![("channel", channel.name.as_str())], channel));
    let help = "Messages from local applications.";
    let written = each().map(|(labels, channel)| (labels, count(channel.written)));
    text.family("skybraid_channel_written_messages_total", help, written);
    let help = "Messages delivered to local applications.";
    let delivered = each().map(|(labels, channel)| (labels, count(channel.delivered)));
    text.family("skybraid_channel_delivered_messages_total", help, delivered);
    let shared =
        each().map(|(labels, channel)| (labels, Some(f64::from(u8::from(channel.shared)))));
    text.family("skybraid_channel_shared", "The other end has it too.", shared);
}

fn local(text: &mut Text, edges: &SocketCounters) {
    let each = || edges.paths.iter().map(|edge| (vec![("path", edge.name.as_str())], edge));
    let open = each().map(|(labels, edge)| (labels, Some(f64::from(u8::from(edge.open)))));
    text.family("skybraid_path_open", "The path has a socket.", open);
    let unsent = each().map(|(labels, edge)| (labels, count(edge.unsent)));
    text.family("skybraid_path_unsent_datagrams_total", "Datagrams that could not leave.", unsent);
    let large = each().map(|(labels, edge)| (labels, count(edge.too_large)));
    let help = "Datagrams that were too large for the interface.";
    text.family("skybraid_path_too_large_datagrams_total", help, large);
    let unread = each().map(|(labels, edge)| (labels, count(edge.unread)));
    let help = "Datagrams from the network that arrived faster than they were read.";
    text.family("skybraid_path_unread_datagrams_total", help, unread);
    let each = || edges.local.iter().map(|edge| (vec![("end", edge.name.as_str())], edge));
    let clients = each().map(|(labels, edge)| (labels, count(edge.clients)));
    let help = "Senders, connections or devices at a local end.";
    text.family("skybraid_local_clients", help, clients);
    let foreign = each().map(|(labels, edge)| (labels, count(edge.foreign_bytes)));
    text.family("skybraid_local_foreign_bytes_total", "Bytes outside MAVLink frames.", foreign);
    let unread = each().map(|(labels, edge)| (labels, count(edge.unread)));
    let help = "Datagrams from a local application that arrived faster than they were read.";
    text.family("skybraid_local_unread_datagrams_total", help, unread);
    let dropped = each().map(|(labels, edge)| (labels, count(edge.dropped)));
    let help = "Messages that a local end was too slow to take.";
    text.family("skybraid_local_dropped_messages_total", help, dropped);
    let late = each().map(|(labels, edge)| (labels, count(edge.late)));
    let help = "Messages that became too old while they waited for a local end.";
    text.family("skybraid_local_late_messages_total", help, late);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalCounters, PathCounters, sample};
    use std::collections::BTreeSet;

    fn everything() -> String {
        let mut state = sample::snapshot();
        state.name = "kite \"7\"\\\n".to_string();
        let path = PathCounters { name: "dish".into(), open: true, ..PathCounters::default() };
        let local =
            LocalCounters { name: "udp 127.0.0.1:14550".into(), ..LocalCounters::default() };
        let edges = SocketCounters { paths: vec![path], local: vec![local], ..Default::default() };
        text("1.2.3", Some(&state), &edges, Some(&LogState { lost: 4, ..LogState::default() }))
    }

    #[test]
    fn values_are_in_base_units_with_the_paths_name() {
        let text = everything();
        for line in [
            "skybraid_path_rtt_seconds{path=\"lte\"} 0.06",
            "skybraid_path_loss_ratio{path=\"dish\",direction=\"incoming\"} 0.01",
            "skybraid_path_state{path=\"lte\",direction=\"outgoing\",state=\"up\"} 1",
            "skybraid_path_state{path=\"lte\",direction=\"outgoing\",state=\"down\"} 0",
            "skybraid_class_delay_p50_seconds{class=\"control\"} 0.0312",
            "skybraid_class_delivered_by_path_total{class=\"video\",path=\"lte\"} 60",
            "skybraid_refused_datagrams_total{reason=\"forged\"} 3",
            "skybraid_gateway_info{name=\"kite \\\"7\\\"\\\\\\n\",side=\"ground\",version=\"1.2.3\"} 1",
            "skybraid_path_open{path=\"dish\"} 1",
            "skybraid_log_lost_lines_total 4",
            "skybraid_session_left_seconds 540",
            "skybraid_session_overdue 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // Unknown values are left out instead of zero.
        assert!(!text.contains("skybraid_path_data_left_bytes"));
        assert!(!text.contains("delay_p50_seconds{class=\"bulk\"}"));
    }

    // Source: Prometheus, "Exposition formats", text format 0.0.4; "Metric and label naming".
    #[test]
    fn the_text_has_the_form_that_prometheus_reads() {
        let text = everything();
        assert!(text.ends_with('\n'));
        let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
        let mut family = ("", "");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap();
                family = kind.split_once(' ').unwrap();
                assert_eq!(family.0, name);
                assert!(help.ends_with('.') || help.ends_with("0 to 1."), "{help}");
                assert!(["gauge", "counter"].contains(&family.1), "{kind}");
                assert_eq!(name.ends_with("_total"), family.1 == "counter", "{name}");
                assert!(families.insert(name), "a family twice: {name}");
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(series.split('{').next(), Some(family.0), "{line}");
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            assert!(samples.insert(series), "a sample twice: {series}");
        }
        assert!(families.len() > 35);
    }

    #[test]
    fn before_the_first_state_there_is_little_to_say() {
        assert_eq!(text("1.2.3", None, &SocketCounters::default(), None), "");
    }
}
