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

/// Value of a sample; without one, the sample is left out.
trait Value {
    fn number(self) -> Option<f64>;
}

impl Value for f64 {
    fn number(self) -> Option<f64> {
        Some(self)
    }
}

impl Value for u64 {
    fn number(self) -> Option<f64> {
        Some(self as f64)
    }
}

impl Value for bool {
    fn number(self) -> Option<f64> {
        u64::from(self).number()
    }
}

impl<T: Value> Value for Option<T> {
    fn number(self) -> Option<f64> {
        self.and_then(T::number)
    }
}

/// Adds families with a sample for each item: their names, helps and values. The label is the item's name.
macro_rules! families {
    ($text:ident, $label:literal, $item:ident in $items:expr; $($name:literal, $help:literal: $value:expr;)*) => {
        $($text.family(
            $name,
            $help,
            $items.iter().map(|$item| (vec![($label, &*$item.name)], $value.number())),
        );)*
    };
}

/// Adds families with samples for each path and direction: their names, helps, and values outgoing and incoming.
macro_rules! of_both_ways {
    ($text:ident, $path:ident in $paths:expr; $($name:literal, $help:literal: $out:expr, $in:expr;)*) => {
        $(let samples = $paths.iter().flat_map(|$path| {
            let ways = WAYS.into_iter().zip([$out.number(), $in.number()]);
            ways.map(|(way, value)| (vec![("path", &*$path.name), ("direction", way)], value))
        });
        $text.family($name, $help, samples);)*
    };
}

const WAYS: [&str; 2] = ["outgoing", "incoming"];

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
        paths(&mut text, state);
        classes(&mut text, state);
    }
    local(&mut text, edges);
    if let Some(log) = log {
        let lost = [(Vec::new(), log.lost.number())];
        text.family("skybraid_log_lost_lines_total", "Lines that the event log lacks.", lost);
    }
    text.0
}

fn whole(text: &mut Text, version: &str, state: &Snapshot) {
    macro_rules! one {
        ($($name:literal, $help:literal: $value:expr;)*) => {
            $(text.family($name, $help, [(Vec::new(), $value.number())]);)*
        };
    }
    one! {
        "skybraid_uptime_seconds", "Since the start.": state.uptime_ms / 1e3;
        "skybraid_session_up", "Whether a session with the other end is established.": state.session;
        "skybraid_session_left_seconds", "Until the session ends unless its keys are changed.":
            seconds(state.session_left_ms);
        "skybraid_session_overdue", "The session's keys should have been changed for a while.":
            state.session_overdue;
        "skybraid_sessions_total", "Sessions, changes of keys included.": state.sessions;
        "skybraid_bugs_total", "Broken invariants of this program: anything but 0 is a bug.": state.bugs;
        "skybraid_peer_restarts_total", "How often the other end has been restarted.": state.peer_restarts;
        "skybraid_peer_silent_seconds", "Since when nothing has been heard from the other end.":
            seconds(state.silent_ms);
    }
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
    let reasons = reasons.map(|(reason, number)| (vec![("reason", reason)], number.number()));
    let help = "Datagrams from outside that were refused.";
    text.family("skybraid_refused_datagrams_total", help, reasons);
    let Some(tun) = &state.tun else { return };
    let ways = WAYS.into_iter().zip([tun.refused_outgoing, tun.refused_incoming]);
    let ways = ways.map(|(way, number)| (vec![("direction", way)], number.number()));
    let help = "IP packets of the TUN interface whose inner addresses are not allowed.";
    text.family("skybraid_tun_refused_packets_total", help, ways);
}

fn paths(text: &mut Text, state: &Snapshot) {
    let states = state.paths.iter().flat_map(|path| {
        WAYS.into_iter().zip([path.outgoing, path.incoming]).flat_map(move |(way, is)| {
            PathState::ALL.into_iter().map(move |state| {
                let labels =
                    vec![("path", &*path.name), ("direction", way), ("state", state.name())];
                (labels, (state == is).number())
            })
        })
    });
    text.family("skybraid_path_state", "1 for the state in which a path is.", states);
    of_both_ways! { text, path in state.paths;
        "skybraid_path_delay_seconds", "One-way delay.":
            seconds(path.outgoing_delay_ms), seconds(path.incoming_delay_ms);
        "skybraid_path_loss_ratio", "Share lost in the last second or so, 0 to 1.":
            path.outgoing_loss, path.incoming_loss;
        "skybraid_path_bytes_total", "Bytes of IP packets.": path.outgoing_bytes, path.incoming_bytes;
        "skybraid_path_datagrams_total", "Datagrams.": path.outgoing_datagrams, path.incoming_datagrams;
        "skybraid_path_mtu_bytes", "Largest IP packet that goes through.":
            f64::from(path.mtu), path.incoming_mtu.map(f64::from);
        "skybraid_path_mtu_error", "1 where IP packets of 1280 bytes do not go through.":
            (path.mtu_state == MtuState::Error), path.peer_mtu_error;
    }
    families! { text, "path", path in state.paths;
        "skybraid_path_rtt_seconds", "Smoothed round-trip time.": seconds(path.rtt_ms);
        "skybraid_path_rtt_min_seconds", "Lowest round-trip time of the last minute.": seconds(path.min_rtt_ms);
        "skybraid_path_jitter_seconds", "Jitter of what arrives (RFC 3550).": seconds(path.jitter_ms);
        "skybraid_path_black_holes_total", "How often packets that had gone through no longer did.":
            path.black_holes;
        "skybraid_path_data_left_bytes", "What is left of its data.": path.data_left;
        "skybraid_path_control_first_total", "Control messages that arrived here first.": path.control_won;
        "skybraid_path_given_up_total", "How often it has been given up.": path.given_up;
    }
}

fn classes(text: &mut Text, state: &Snapshot) {
    families! { text, "class", class in state.classes;
        "skybraid_class_written_messages_total", "Messages that local applications wrote.": class.written;
        "skybraid_class_written_bytes_total", "Their bytes.": class.written_bytes;
        "skybraid_class_refused_messages_total",
            "Messages for which there was no room at the sender, or no session.": class.refused;
        "skybraid_class_delivered_messages_total", "Messages delivered to local applications.": class.delivered;
        "skybraid_class_delivered_bytes_total", "Their bytes.": class.delivered_bytes;
        "skybraid_class_late_messages_total",
            "Messages older than the deadline, dropped wherever they had waited.": class.late;
        "skybraid_class_superseded_messages_total", "Messages dropped for a newer one of their kind.":
            class.superseded;
        "skybraid_class_duplicate_messages_total", "Second copies.": class.duplicates;
        "skybraid_class_repaired_datagrams_total", "Lost datagrams that were recovered from repair packets.":
            class.repaired;
        "skybraid_class_late_ratio",
            "Share of what arrived in the last second or so that was older than the deadline, 0 to 1.":
            class.late_share;
        "skybraid_class_delay_p50_seconds", "Median age of the messages of the last 10 s.":
            seconds(class.delay_p50_ms);
        "skybraid_class_delay_p99_seconds", "99th percentile of the age of the messages of the last 10 s.":
            seconds(class.delay_p99_ms);
        "skybraid_class_longest_gap_seconds", "Longest time between two deliveries in the last second or so.":
            seconds(class.longest_gap_ms);
        "skybraid_class_expected_in_time_ratio",
            "Share of the messages that the scheduler expects in time, 0 to 1.":
            class.forecast.as_ref().map(|forecast| forecast.expected);
        "skybraid_class_wanted_in_time_ratio", "Share of the messages that must arrive in time, 0 to 1.":
            class.forecast.as_ref().map(|forecast| forecast.wanted);
        "skybraid_class_best_in_time_ratio",
            "Share expected in time with copies on all paths, 0 to 1: no plan reaches more.":
            class.forecast.as_ref().map(|forecast| forecast.best);
        "skybraid_class_copies_ratio", "Bytes of further copies, of those of the first copies.":
            class.forecast.as_ref().map(|forecast| forecast.overhead);
    }
    let by_path = state.classes.iter().flat_map(|class| {
        // In TCP mode, the MPTCP connection follows the paths.
        let names = state.paths.iter().map(|path| path.name.as_str()).chain(["mptcp"]);
        names.zip(&class.by_path).map(move |(path, number)| {
            (vec![("class", class.name), ("path", path)], number.number())
        })
    });
    let help = "Messages delivered by each path.";
    text.family("skybraid_class_delivered_by_path_total", help, by_path);
    families! { text, "channel", channel in state.channels;
        "skybraid_channel_written_messages_total", "Messages from local applications.": channel.written;
        "skybraid_channel_delivered_messages_total", "Messages delivered to local applications.":
            channel.delivered;
        "skybraid_channel_shared", "The other end has it too.": channel.shared;
    }
}

fn local(text: &mut Text, edges: &SocketCounters) {
    families! { text, "path", edge in edges.paths;
        "skybraid_path_open", "The path has a socket.": edge.open;
        "skybraid_path_unsent_datagrams_total", "Datagrams that could not leave.": edge.unsent;
        "skybraid_path_too_large_datagrams_total", "Datagrams that were too large for the interface.":
            edge.too_large;
        "skybraid_path_unread_datagrams_total",
            "Datagrams from the network that arrived faster than they were read.": edge.unread;
    }
    families! { text, "end", edge in edges.local;
        "skybraid_local_clients", "Senders, connections or devices at a local end.": edge.clients;
        "skybraid_local_foreign_bytes_total", "Bytes outside MAVLink frames.": edge.foreign_bytes;
        "skybraid_local_unread_datagrams_total",
            "Datagrams from a local application that arrived faster than they were read.": edge.unread;
        "skybraid_local_dropped_messages_total", "Messages that a local end was too slow to take.": edge.dropped;
        "skybraid_local_late_messages_total",
            "Messages that became too old while they waited for a local end.": edge.late;
    }
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
