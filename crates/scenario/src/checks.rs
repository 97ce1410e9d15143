//! Checks of flows and transports, and warnings about scenarios.

use skybraid_host::{Host, PathSetup, Route, Setup};
use skybraid_link::{DelayConfig, Shape};
use skybraid_traffic::video::rate::RateError;
use skybraid_traffic::{TrafficConfig, TrafficError, VideoConfig};
use skybraid_transport::{PathSet, Protocol, TransportConfig};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Bytes, Duration};

use crate::file::FlowFile;
use crate::key::{KeyPath, is_name};
use crate::network::table;
use crate::text::ScenarioText;
use crate::{Flow, Link, Node, Requirement, Scenario};

/// Maximum number of copies of a message.
const MAX_COPIES: u32 = 8;
/// Maximum number of connections between two nodes.
const MAX_CONNECTIONS: u32 = 10_000;
/// Maximum number of messages of a flow within a run: hours of work, and of memory where tables are kept.
const MAX_MESSAGES: f64 = 1e9;

/// A key below the checked table and the problem with its value.
pub(crate) type Problem = (String, String);

/// Checks the keys of a flow that depend on no other table.
pub(crate) fn flow(group: &str, read: &FlowFile, duration: Duration) -> Result<(), Problem> {
    let wrong = |key: &str, problem: String| Err((key.to_string(), problem));
    if !is_name(group) {
        let problem = format!("found the name {group:?}, expected letters, digits, `-` and `_`");
        return wrong("", problem);
    }
    read.traffic.check().map_err(traffic_problem)?;
    let start = read.start;
    if start >= duration {
        let problem = format!("found {start}, expected before the end of the run of {duration}");
        return wrong("start", problem);
    }
    if let Some(stop) = read.stop.filter(|stop| *stop <= start) {
        return wrong("stop", format!("found {stop}, expected later than `start` {start}"));
    }
    let active = read.stop.unwrap_or(duration).min(duration) - start;
    if let Some((key, messages)) = read.traffic.messages_within(active)
        && messages > MAX_MESSAGES
    {
        let problem = format!(
            "expected at most {MAX_MESSAGES:e} messages within the run; found {messages:.1e}"
        );
        return wrong(&format!("traffic.{key}"), problem);
    }
    let protocol = read.transport.clone().unwrap_or_default().protocol;
    let protected = read.traffic.video().is_some_and(VideoConfig::is_protected);
    if read.with.is_none() && protected && protocol.is_reliable() {
        let name = protocol.name();
        let problem = format!(
            "found {name}, which loses nothing that `duplicate` or `repair` could recover; \
             expected udp, dccp or mp_dccp"
        );
        return wrong("transport.protocol", problem);
    }
    if let Some(copies) = read.copies.filter(|copies| !(1..=MAX_COPIES).contains(copies)) {
        return wrong("copies", format!("found {copies}, expected 1 to {MAX_COPIES}"));
    }
    if read.transport.is_some() && read.with.is_some() {
        let problem = "found it and `with`, expected one of them: `with` means the transport of the other flow";
        return wrong("transport", problem.to_string());
    }
    match read.connections.filter(|count| !(1..=MAX_CONNECTIONS).contains(count)) {
        Some(count) => {
            wrong("connections", format!("found {count}, expected 1 to {MAX_CONNECTIONS}"))
        }
        None => Ok(()),
    }
}

/// Returns the key below a flow that an error in its traffic concerns, and the problem.
fn traffic_problem(error: TrafficError) -> Problem {
    let below = |key: &str| format!("traffic.{key}");
    match error {
        TrafficError::Zero { key } => (below(key), "expected above zero".into()),
        TrafficError::TooLarge { key } => (below(key), "expected less than 4GB".into()),
        TrafficError::Outside { key, found, min, max } => {
            (below(key), format!("found {found}, expected {min} to {max}"))
        }
        TrafficError::RateControl(error) => {
            let key = match &error {
                RateError::Range { key, .. } if key.starts_with("repair.") => below(key),
                RateError::Range { key, .. } => below(&format!("rate_control.{key}")),
                RateError::Bounds { .. } => below("rate_control"),
            };
            (key, error.to_string())
        }
    }
}

/// Checks that requirements of a video are of a flow of video.
pub(crate) fn requirements(of: &[Requirement], traffic: &TrafficConfig) -> Result<(), Problem> {
    if traffic.video().is_none() && of.iter().any(Requirement::is_of_video) {
        let problem = "found a requirement of a video, expected `traffic.kind = \"video\"`";
        return Err(("require".to_string(), problem.to_string()));
    }
    Ok(())
}

/// Checks the ranges of a transport's parameters.
pub(crate) fn transport(config: &TransportConfig) -> Result<(), Problem> {
    let above_zero = [
        ("receive_buffer", config.receive_buffer > Bytes::ZERO),
        ("send_buffer", config.send_buffer > Bytes::ZERO),
        ("initial_window", config.initial_window > 0),
        ("initial_threshold", config.initial_threshold.is_none_or(|size| size > Bytes::ZERO)),
        ("max_in_flight", config.max_in_flight.is_none_or(|size| size > Bytes::ZERO)),
        ("segment", config.segment.is_none_or(|size| size > Bytes::ZERO)),
        ("ack_every", config.ack_every > 0),
        ("rto_min", config.rto_min.is_positive()),
        ("report_every", config.report_every.is_positive()),
        ("tx_queue", config.tx_queue() > 0),
        ("restart_window", config.restart_window.is_none_or(|packets| packets > 0)),
        ("pace_queue", config.pace_queue.is_positive()),
        ("keep_alive", config.keep_alive.is_positive()),
        ("probe_every", config.probe_every.is_positive()),
    ];
    for (key, is_valid) in above_zero {
        if !is_valid {
            return Err((key.to_string(), "expected above zero".to_string()));
        }
    }
    config.scheduler.check().map_err(|(key, problem)| (format!("scheduler.{key}"), problem))?;
    config.congestion.check().map_err(|(key, problem)| (format!("congestion.{key}"), problem))?;
    config.reordering.check().map_err(|(key, problem)| (format!("reordering.{key}"), problem))?;
    Ok(())
}

/// Checks that a transport supports `count` paths; `names` are those of the named paths.
pub(crate) fn use_of_paths(
    config: &TransportConfig,
    count: usize,
    names: &[&str],
) -> Result<(), Problem> {
    if count > PathSet::CAPACITY {
        let max = PathSet::CAPACITY;
        return Err(("paths".to_string(), format!("found {count} paths, expected at most {max}")));
    }
    if config.protocol.is_single_path() && count > 1 {
        let others = match config.protocol {
            Protocol::Tcp => "`mptcp` or `parallel_tcp`",
            _ => "`mp_dccp`",
        };
        let problem = format!(
            "{} uses one path, found {count} ({}); name one with `paths`, or use protocol {others}",
            config.protocol.name(),
            names.join(", "),
        );
        return Err(("paths".to_string(), problem));
    }
    for (key, position) in config.scheduler.positions() {
        if usize::from(position) >= count {
            let last = count.saturating_sub(1);
            let problem = format!("found path {position}, expected a position from 0 to {last}");
            return Err((format!("scheduler.{key}"), problem));
        }
    }
    Ok(())
}

/// Checks that bulk traffic has a transport that can be full; over another it would write endlessly at one instant.
pub(crate) fn bulk(traffic: &TrafficConfig, protocol: Protocol) -> Result<(), Problem> {
    if !matches!(traffic, TrafficConfig::Bulk { .. }) || protocol != Protocol::Udp {
        return Ok(());
    }
    let problem = "`bulk` writes as much as the transport takes, and udp takes without end; \
                   expected another kind of traffic, or a protocol with congestion control";
    Err(("traffic.kind".to_string(), problem.to_string()))
}

/// Returns warnings about valid but probably unintended settings: nodes without a link, and deadlines that no
/// message can meet. `setup` holds the routes of the flows.
pub(crate) fn warnings(
    nodes: &[Node],
    links: &[Link],
    flows: &[Flow],
    setup: &Setup,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        if !links.iter().any(|link| link.ends.contains(&number)) {
            warnings.push(format!("node.{}: no link leads to it", node.name));
        }
    }
    for link in links {
        if let Some(warning) = link.orbit.as_ref().and_then(|orbit| orbit.config.warning()) {
            warnings.push(format!("{}.orbit: {warning}", link.name));
        }
    }
    let mut reported: Vec<&str> = Vec::new();
    for (flow, setup_flow) in flows.iter().zip(&setup.flows) {
        let Some(deadline) = flow.deadline else { continue };
        let split = setup_flow.proxies.iter().map(|proxy| proxy.paths.as_slice());
        let segments = core::iter::once(setup_flow.paths.as_slice()).chain(split);
        let min_delays = segments.map(|paths| {
            let paths = paths
                .iter()
                .filter_map(|path| setup.paths.get(*path).promised("a path of the flow"));
            let delays: Option<Vec<Duration>> =
                paths.map(|path| constant_delay(path, links, flow.from)).collect();
            delays.and_then(|delays| delays.into_iter().min())
        });
        let Some(min_delays) = min_delays.collect::<Option<Vec<Duration>>>() else { continue };
        let min_delay = min_delays.into_iter().fold(Duration::ZERO, |sum, delay| sum + delay);
        if deadline < min_delay && !reported.contains(&flow.group.as_str()) {
            reported.push(&flow.group);
            warnings.push(format!(
                "flow.{}.require: no message can arrive within {deadline}, since every path delays \
                 it by {min_delay} or more",
                flow.group
            ));
        }
    }
    warnings
}

/// Returns the propagation delay of a path in the direction of the sender, if it is constant.
fn constant_delay(path: &PathSetup, links: &[Link], from: Host) -> Option<Duration> {
    let route = match from {
        Host::Vehicle => &path.uplink,
        Host::Ground => &path.downlink,
    };
    let Route::Fixed(hops) = route else { return None };
    let mut sum = Duration::ZERO;
    for hop in hops {
        let link = links.get(hop.link()).promised("a link of the route")?;
        let direction = link.config.direction(hop.direction());
        if !direction.changes.is_empty() || link.orbit.is_some() {
            return None;
        }
        sum += match &direction.delay {
            None => Duration::ZERO,
            Some(DelayConfig::Distribution(delay)) => match delay.shape {
                Shape::Fixed(span) => span + delay.plus,
                _ => return None,
            },
            Some(_) => return None,
        };
    }
    Some(sum)
}

/// Returns warnings about scripted outages after the end of the run.
pub(crate) fn late_outages(scenario: &Scenario, text: &ScenarioText) -> Vec<String> {
    let mut warnings = Vec::new();
    for link in &scenario.links {
        let outages = link.config.down.iter().flatten().enumerate();
        for (index, (at, _)) in outages.filter(|(_, (at, _))| *at >= scenario.duration) {
            let kind = if text.has(&table("link", &link.group)) { "link" } else { "path" };
            let key = table(kind, &link.group).key("down").index(index);
            let words = format!(
                "the outage at {at} has no effect: the run ends after {}",
                scenario.duration
            );
            let warning = text.warning(&key, &words);
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    warnings
}

/// Returns warnings about paths that no flow uses, if there are flows. `setup` holds the routes of the flows.
pub(crate) fn unused_paths(links: &[Link], setup: &Setup, text: &ScenarioText) -> Vec<String> {
    if setup.flows.is_empty() || !text.has(&KeyPath::dotted("path")) {
        return Vec::new();
    }
    let mut used = Vec::new();
    for path in setup.flows.iter().flat_map(|flow| &flow.paths) {
        let Some(path) = setup.paths.get(*path).promised("a path of the flow") else { continue };
        for route in [&path.uplink, &path.downlink] {
            let Route::Fixed(hops) = route else { return Vec::new() };
            used.extend(hops.iter().map(|hop| hop.link()));
        }
    }
    let unused = links.iter().enumerate().filter(|(number, _)| !used.contains(number));
    let warning = |(_, link): (usize, &Link)| {
        text.warning(&table("path", &link.group), "no flow uses this path")
    };
    unused.map(warning).collect()
}

/// Returns warnings about tracks without effect: those of nodes without cells, coverage, factors or satellites on any
/// link.
pub(crate) fn unused_tracks(scenario: &Scenario, text: &ScenarioText) -> Vec<String> {
    let mut groups: Vec<&str> = Vec::new();
    for (number, (node, track)) in scenario.nodes.iter().zip(&scenario.tracks).enumerate() {
        let follows = |link: &Link| {
            let has = |kind, key| text.has(&table(kind, &link.group).key(key));
            let is_followed = link.cells.is_some() || link.orbit.is_some();
            let is_read = |key| has("path", key) || has("link", key);
            link.ends.contains(&number) && (is_followed || is_read("coverage") || is_read("along"))
        };
        let moves = track.as_ref().is_some_and(|track| !track.is_fixed());
        if moves && !scenario.links.iter().any(follows) && !groups.contains(&node.group.as_str()) {
            groups.push(&node.group);
        }
    }
    let warning = |group: &&str| {
        let words = "the track has no effect: no path or link of this node has `along`, `cells`, `coverage` or `orbit`";
        text.warning(&table("node", group).key("track"), words)
    };
    groups.iter().map(warning).collect()
}
