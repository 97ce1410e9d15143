//! `skybraid-node status`: state of a running gateway.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde_json::Value;
use skybraid_node::ask;
use skybraid_scenario::GatewayFile;

use super::error::NodeError;

/// Default address of a gateway's status page.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9418";

/// Returns the state of the gateway, and whether it has a session and a path.
pub fn status(file: Option<&Path>, url: &str, json: bool) -> Result<(String, bool), NodeError> {
    let address = match file {
        Some(file) => status_address(file)?,
        None => url.trim_start_matches("http://").trim_end_matches('/').to_string(),
    };
    let body = ask(&address, "/status.json")?;
    let status: Value = serde_json::from_slice(&body).map_err(|error| {
        NodeError::Request(format!("what answers at {address} is no gateway: {error}"))
    })?;
    let up = matches!(word(&status["verdict"]["level"]), "good" | "limited");
    let text = if json { format!("{status:#}\n") } else { table(&status) };
    Ok((text, up))
}

/// Returns the address of the status page of a gateway, as reached from this machine.
fn status_address(file: &Path) -> Result<String, NodeError> {
    let listen = GatewayFile::load(file)?.config.status.listen;
    let Ok(mut address) = listen.parse::<SocketAddr>() else {
        let place = file.display();
        let problem = "the gateway of this file has no page to ask: `status.listen` is empty";
        return Err(NodeError::Request(format!("{place}: {problem}")));
    };
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    Ok(address.to_string())
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("–")
}

fn text(value: &Value) -> String {
    word(value).to_string()
}

fn each(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ms(value: &Value) -> String {
    match value.as_f64() {
        None => "–".to_string(),
        Some(ms) if ms < 10.0 => format!("{ms:.1} ms"),
        Some(ms) if ms < 1000.0 => format!("{ms:.0} ms"),
        Some(ms) => format!("{:.1} s", ms / 1e3),
    }
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or("–".to_string(), |share| format!("{:.1} %", share * 100.0))
}

fn scaled(value: &Value, unit: &str) -> String {
    let Some(value) = value.as_f64() else { return "–".to_string() };
    for (size, prefix) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= size {
            return format!("{:.1} {prefix}{unit}", value / size);
        }
    }
    format!("{value:.0} {unit}")
}

/// Appends a table, unless it has no rows, in columns of minimum width: the first left-aligned, all others
/// right-aligned.
fn append_table(text: &mut String, heads: Vec<String>, rows: impl Iterator<Item = Vec<String>>) {
    let rows: Vec<_> = core::iter::once(heads).chain(rows).collect();
    if rows.len() == 1 {
        return;
    }
    text.push('\n');
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string never fails.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
}

/// Returns a summary of the process lockdown.
fn lockdown(locked: &serde_json::Map<String, Value>) -> String {
    let get = |name: &str| locked.get(name).unwrap_or(&Value::Null);
    let rights: Vec<&str> = each(get("capabilities")).iter().map(word).collect();
    let rights = if rights.is_empty() { "none".to_string() } else { rights.join(", ") };
    let is_on = |name: &str| if get(name) == true { "on" } else { "off" };
    let mut text = format!(
        "locked down: capabilities {rights}; no_new_privs {}; seccomp {}; landlock {}",
        is_on("no_new_privs"),
        is_on("seccomp"),
        word(get("landlock")),
    );
    for problem in each(get("problems")) {
        let _ = write!(text, " ({})", word(problem));
    }
    text
}

/// Column of a table: head, key of the status, and how its value is written.
type Column = (&'static str, &'static str, fn(&Value) -> String);

const PATH_COLUMNS: [Column; 13] = [
    ("path", "name", text),
    ("to peer", "outgoing", text),
    ("from peer", "incoming", text),
    ("delay to", "outgoing_delay_ms", ms),
    ("from", "incoming_delay_ms", ms),
    ("round trip", "rtt_ms", ms),
    ("jitter", "jitter_ms", ms),
    ("loss to", "outgoing_loss", percent),
    ("from", "incoming_loss", percent),
    ("rate to", "outgoing_bps", |rate| scaled(rate, "bit/s")),
    ("from", "incoming_bps", |rate| scaled(rate, "bit/s")),
    ("first", "control_won", Value::to_string),
    ("data left", "data_left", |left| scaled(left, "B")),
];

const CLASS_COLUMNS: [Column; 10] = [
    ("class", "name", text),
    ("median", "delay_p50_ms", ms),
    ("99 %", "delay_p99_ms", ms),
    ("gap", "longest_gap_ms", ms),
    ("written", "written", Value::to_string),
    ("refused", "refused", Value::to_string),
    ("delivered", "delivered", Value::to_string),
    ("late", "late", Value::to_string),
    ("superseded", "superseded", Value::to_string),
    ("repaired", "repaired", Value::to_string),
];

/// Returns the cells of one row.
fn row(columns: &[Column], of: &Value) -> Vec<String> {
    columns.iter().map(|(_, key, cell)| cell(&of[*key])).collect()
}

fn heads(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|(head, _, _)| (*head).to_string()).collect()
}

fn table(status: &Value) -> String {
    let about = &status["about"];
    let runs = status["uptime_ms"].as_f64().unwrap_or(0.0) / 1e3;
    let mut text = format!(
        "{}, {}, Skybraid {}, runs for {runs:.0} s\n{}\n",
        word(&about["name"]),
        word(&about["side"]),
        word(&about["version"]),
        word(&status["verdict"]["text"]),
    );
    for alarm in each(&status["alarms"]) {
        let _ = writeln!(text, "alarm: {}", word(alarm));
    }
    if let Some(locked) = status["lockdown"].as_object() {
        let _ = writeln!(text, "{}", lockdown(locked));
    }
    let (paths, classes) = (each(&status["paths"]), each(&status["classes"]));
    append_table(
        &mut text,
        heads(&PATH_COLUMNS),
        paths.iter().map(|path| row(&PATH_COLUMNS, path)),
    );
    // In TCP mode the MPTCP connection follows the paths.
    let carriers = classes.first().map_or(0, |class| each(&class["by_path"]).len());
    let names = paths.iter().map(|path| word(&path["name"])).chain(["mptcp"]).take(carriers);
    let mut first = heads(&CLASS_COLUMNS);
    first.extend(names.map(|name| format!("by {name}")));
    let with_carriers = |class: &Value| {
        let mut cells = row(&CLASS_COLUMNS, class);
        cells.extend(each(&class["by_path"]).iter().map(Value::to_string));
        cells
    };
    append_table(&mut text, first, classes.iter().map(with_carriers));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_state_is_shown_as_a_table() {
        let status = json!({
            "about": {"name": "kite", "side": "ground", "version": "0.1.0"},
            "verdict": {"level": "limited", "text": "Control arrives in 31 ms over 1 of 2 paths."},
            "alarms": ["lte: nothing gets through"],
            "uptime_ms": 61_500.0,
            "paths": [{
                "name": "dish", "outgoing": "up", "incoming": "down", "outgoing_delay_ms": 31.4,
                "incoming_delay_ms": null, "rtt_ms": 1234.0, "jitter_ms": 1.25, "outgoing_loss": 0.0,
                "incoming_loss": null, "outgoing_bps": 999.0, "incoming_bps": 4.2e6,
                "control_won": 7, "data_left": 2.5e9,
            }],
            "classes": [{
                "name": "control", "delay_p50_ms": 31.2, "delay_p99_ms": 58.0,
                "longest_gap_ms": null, "written": 1, "refused": 0, "delivered": 9, "late": 0,
                "superseded": 2, "repaired": 4, "by_path": [9],
            }],
        });
        assert_eq!(
            table(&status),
            "kite, ground, Skybraid 0.1.0, runs for 62 s\n\
             Control arrives in 31 ms over 1 of 2 paths.\n\
             alarm: lte: nothing gets through\n\
             \n\
             path  to peer  from peer  delay to  from  round trip  jitter  loss to  from    rate to        from  first  data left\n\
             dish       up       down     31 ms     –       1.2 s  1.2 ms    0.0 %     –  999 bit/s  4.2 Mbit/s      7     2.5 GB\n\
             \n\
             class    median   99 %  gap  written  refused  delivered  late  superseded  repaired  by dish\n\
             control   31 ms  58 ms    –        1        0          9     0           2         4        9\n"
        );
    }
}
